"""Which server a command talks to: `--server`, then SWITCHGEAR_SERVER, then SWITCHGEAR_URL, then the usual address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from switchgear.cli.main import main
from tests.client.background import url_of
from tests.support.servers import HOST, Server, free_port, running_switchgear

pytestmark = pytest.mark.system

NOBODY = "gearman://127.0.0.1:2"
HINT = "there is a queue in ./.switchgear; to ask that: --server embedded:.switchgear"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_switchgear() as server:
        yield server


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory where nothing is, and nobody at the usual address."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("switchgear.cli.output.DEFAULT_URL", f"gearman://{HOST}:{free_port()}")
    return tmp_path


def call(*args: str, server: str | None = None, url: str | None = None) -> Result:
    return CliRunner(env={"SWITCHGEAR_SERVER": server, "SWITCHGEAR_URL": url}).invoke(main, list(args))


def test_the_option_counts_then_the_commands_own_variable_then_that_of_apps(server: Server) -> None:
    there = url_of(server)
    assert call("functions", "--server", there, server=NOBODY, url=NOBODY).exit_code == 0
    assert call("functions", server=there, url=NOBODY).exit_code == 0
    assert call("functions", server="", url=there).exit_code == 0
    assert call("functions", server=NOBODY, url=there).exit_code == 3


@pytest.mark.parametrize("variable", ["server", "url"])
def test_of_several_in_a_variable_the_first_is_asked(server: Server, variable: str) -> None:
    assert call("functions", **{variable: f"{url_of(server)}, {NOBODY}"}).exit_code == 0
    assert call("functions", **{variable: f"{url_of(server)} {NOBODY}"}).exit_code == 0


def test_the_option_takes_one_server(server: Server) -> None:
    assert call("functions", "--server", f"{url_of(server)},{NOBODY}").exit_code == 2


# --- nobody at the usual address ---


def make_queue(here: Path) -> None:
    (here / ".switchgear").mkdir()
    (here / ".switchgear" / "jobs.db").touch()


def test_a_queue_in_this_directory_is_mentioned(here: Path) -> None:
    make_queue(here)
    answer = call("functions")
    assert answer.exit_code == 3
    assert "Connection refused" in answer.stderr
    assert HINT in answer.stderr


def test_it_is_not_mentioned_to_those_who_chose_a_server(here: Path) -> None:
    make_queue(here)
    assert HINT not in call("functions", "--server", NOBODY).stderr
    assert HINT not in call("functions", url=NOBODY).stderr


def test_without_a_queue_there_is_nothing_to_mention(here: Path) -> None:
    (here / ".switchgear").mkdir()
    assert HINT not in call("functions").stderr


# --- workers ---


def test_the_help_of_a_worker_tells_the_defaults() -> None:
    text = " ".join(call("worker", "--help").stdout.split())
    assert "Default: the servers of the app; for a command, those in SWITCHGEAR_SERVER, then" in text
    assert "without a heartbeat. Default: 15." in text
    assert "before its process is killed. Default: 5." in text


def test_a_worker_takes_all_the_servers_in_a_variable() -> None:
    refused = call("worker", "f", "--exec", "cat", url="gearman://a,nonsense://b")
    assert refused.exit_code == 2
    assert '"nonsense://b": clients and workers speak gearman://' in refused.stderr


def test_a_directory_must_be_there_unless_it_is_that_of_an_app(here: Path) -> None:
    refused = call("worker", "f", "--exec", "cat", url="embedded:queue")
    assert (refused.exit_code, "there is no" in refused.stderr) == (2, True)
    (here / "appless.py").write_text("")
    refused = call("worker", "appless:app", url="embedded:queue")
    assert "appless has no app" in refused.stderr
