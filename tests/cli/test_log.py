"""`switchgear log`."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from switchgear.cli.log import _past
from switchgear.cli.main import main
from switchgear.joblog import JobLog, RegisteredTask
from tests.support.servers import running_switchgear


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in list(os.environ):
        if variable.startswith("SWITCHGEAR_"):
            monkeypatch.delenv(variable)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'jobs-log.db'}"


@pytest.fixture
def log(url: str) -> Iterator[JobLog]:
    """A done, a failed and an unfinished one, started three, two and one hours ago."""
    now = time.time()
    with JobLog.open(url) as log:
        log.register_start_task(RegisteredTask("mail", id="a"), now - 3 * 3600)
        log.register_task_result(RegisteredTask("mail", id="a"), now - 3 * 3600 + 2)
        log.register_start_task(RegisteredTask("resize", "17-3", "H:web:9", id="b"), now - 2 * 3600)
        log.register_task_result(
            RegisteredTask("resize", "17-3", "H:web:9", id="b"), now - 2 * 3600 + 0.5, ValueError("no\x1b[2J")
        )
        log.register_start_task(RegisteredTask("resize", host="web2", id="c"), now - 3600)
        yield log


def call(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["log", "--url", url, *arguments], prog_name="switchgear")


def call_json(url: str, *arguments: str) -> Any:
    result = call(url, "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def functions(url: str, *arguments: str) -> list[str]:
    return [run["function"] for run in call_json(url, *arguments)["runs"]]


@pytest.mark.usefixtures("log")
def test_the_newest_first(url: str) -> None:
    lines = call(url).stdout.splitlines()
    heads = ["ID", "STARTED", "FUNCTION", "KEY", "STATE", "TOOK", "ATTEMPTS", "HANDLE", "HOST", "ERROR"]
    assert lines[0].split() == heads
    assert [line.split()[0] for line in lines[1:]] == ["3", "2", "1"]
    assert "resize    17-3  failed   500 ms         1  H:web:9" in lines[2]
    assert lines[2].endswith("ValueError: no\\x1b[2J")  # it does nothing to the terminal


@pytest.mark.usefixtures("log")
def test_for_programs(url: str) -> None:
    answer = call_json(url, "--failed")
    assert answer["next_before_id"] is None
    (run,) = answer["runs"]
    assert run["handle"] == "H:web:9"
    assert run["key"] == "17-3"
    assert run["state"] == "failed"
    assert run["seconds"] == pytest.approx(0.5, abs=1e-5)
    assert run["error"] == "ValueError: no\x1b[2J"
    assert run["started_at"] == pytest.approx(time.time() - 7200, abs=60)


@pytest.mark.usefixtures("log")
def test_filters(url: str) -> None:
    assert functions(url) == ["resize", "resize", "mail"]
    assert functions(url, "--function", "mail") == ["mail"]
    assert functions(url, "--failed", "--function", "mail") == []
    assert len(functions(url, "--unfinished")) == 1
    assert functions(url, "--since", "150m") == ["resize", "resize"]
    assert functions(url, "--since", "1d", "--until", "2.5h") == ["mail"]
    assert functions(url, "--since", "2000-01-01", "--until", "2000-01-02") == []
    assert functions(url, "--since", f"{time.time() - 4000:.0f}") == ["resize"]
    assert functions(url, "--key", "17-3") == ["resize"]
    assert functions(url, "--handle", "H:web:9") == ["resize"]
    assert functions(url, "--host", "web2") == ["resize"]


@pytest.mark.usefixtures("log")
def test_pages(url: str) -> None:
    first = call_json(url, "--limit", "2")
    assert [run["id"] for run in first["runs"]] == [3, 2]
    assert first["next_before_id"] == 2
    assert [run["id"] for run in call_json(url, "--before", "2")["runs"]] == [1]
    assert call(url, "--limit", "2").stderr == "There may be more: --before 2\n"


@pytest.mark.usefixtures("log")
def test_the_summary(url: str) -> None:
    lines = call(url, "--summary").stdout.splitlines()
    heads = "FUNCTION RUNS OK FAILED OTHER UNFINISHED MEAN P50 P99 LONGEST FIRST LAST"
    assert lines[0].split() == heads.split()
    assert lines[1].split()[:8] == ["mail", "1", "1", "0", "0", "0", "2", "s"]
    assert lines[2].split()[:8] == ["resize", "2", "0", "1", "0", "1", "500", "ms"]
    (mail,) = call_json(url, "--summary", "--until", "150m")
    assert (mail["function"], mail["runs"], mail["ok"], mail["other"]) == ("mail", 1, 1, 0)
    assert mail["p99_seconds"] == pytest.approx(2, abs=1e-5)


def test_an_empty_log_is_no_error(url: str) -> None:
    JobLog.open(url).close()
    assert call_json(url) == {"runs": [], "next_before_id": None}
    assert call_json(url, "--summary") == []
    assert call(url).exit_code == 0


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--failed", "--unfinished"], "cannot both be"),
        (["--summary", "--limit", "5"], "--limit does not go with it"),
        (["--summary", "--failed"], "--failed does not go with it"),
        (["--config", "x.toml"], "give one of them"),
        (["--since", "noon"], "'noon' is no time: write 2h, yesterday"),
        (["--since", "5y"], "is no duration"),
        (["--limit", "0"], "range"),
    ],
)
def test_wrong_usage(url: str, arguments: list[str], complaint: str) -> None:
    result = call(url, *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_no_log_there(tmp_path: Path) -> None:
    result = call(f"sqlite:{tmp_path / 'nothing.db'}")
    assert result.exit_code == 1
    assert result.stderr == f"switchgear: there is no job log at {tmp_path / 'nothing.db'}\n"
    assert not list(tmp_path.iterdir())
    assert call("redis://x").exit_code == 2


def test_no_log_where_the_server_would_have_it_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHGEAR_STORE", f"sqlite:{tmp_path / 'jobs.db'}")
    result = CliRunner().invoke(main, ["log"], prog_name="switchgear")
    assert result.exit_code == 1
    first, *others = result.stderr.splitlines()
    assert first == f"switchgear: there is no job log at {tmp_path / 'jobs-log.db'}"
    assert "--url sqlite:PATH" in " ".join(others)
    assert "--config" in " ".join(others)


@pytest.mark.usefixtures("log")
def test_the_configuration_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["log", *arguments], prog_name="switchgear")

    file = tmp_path / "server.toml"
    file.write_text(f"store = 'sqlite:{tmp_path / 'jobs.db'}'\n", encoding="utf-8")
    assert len(run("--config", str(file)).stdout.splitlines()) == 4
    monkeypatch.setenv("SWITCHGEAR_JOBLOG_URL", f"sqlite:{tmp_path / 'jobs-log.db'}")
    assert len(run().stdout.splitlines()) == 4
    monkeypatch.setenv("SWITCHGEAR_JOBLOG_URL", "none")
    result = run()
    assert result.exit_code == 2
    assert "is switched off" in result.stderr


def test_moments_of_the_past() -> None:
    now = time.time()
    assert _past("2h") == pytest.approx(now - 7200, abs=5)
    assert _past("1h30m") == pytest.approx(now - 5400, abs=5)
    assert _past("1700000000") == 1_700_000_000
    assert 0 <= now - _past("today") < 25 * 3600 + 5
    assert 22 * 3600 <= _past("today") - _past("Yesterday") <= 26 * 3600
    assert _past("90000w") == 0


# --- whose log ---


@pytest.mark.system
@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("named_by", ["SWITCHGEAR_URL", "SWITCHGEAR_SERVER", "--server"])
def test_the_server_that_is_named_is_asked_where_its_log_is(
    url: str, named_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHGEAR_STATE_DIR", str(tmp_path / "nothing here"))
    with running_switchgear("--joblog", url) as server:
        address = f"gearman://127.0.0.1:{server.port}"
        arguments = ["--server", address] if named_by == "--server" else []
        if not arguments:
            monkeypatch.setenv(named_by, address)
        result = CliRunner().invoke(main, ["log", *arguments], prog_name="switchgear")
    assert result.stderr == f"Job log of {address}, {url}\n"
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == ["3", "2", "1"]


@pytest.mark.system
def test_the_log_is_found_from_another_directory_than_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the server has a directory of its own
    with running_switchgear("--joblog", "sqlite:log.db") as server:
        result = CliRunner().invoke(main, ["log", "--server", f"gearman://127.0.0.1:{server.port}"])
    assert result.exit_code == 0, result.stderr
    assert re.search(r"sqlite:/.*/log\.db$", result.stderr)


@pytest.mark.system
def test_a_server_without_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_switchgear("--joblog", "off") as server:
        monkeypatch.setenv("SWITCHGEAR_URL", f"gearman://127.0.0.1:{server.port}")
        result = CliRunner().invoke(main, ["log"], prog_name="switchgear")
    assert result.exit_code != 0
    assert f"127.0.0.1:{server.port} writes no job log" in result.stderr


@pytest.mark.system
def test_the_log_of_a_server_on_another_machine(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_switchgear("--joblog", url) as server:
        monkeypatch.setenv("SWITCHGEAR_URL", f"gearman://127.0.0.1:{server.port}")
        (tmp_path / "jobs-log.db").rename(tmp_path / "not visible")  # as from another machine
        result = CliRunner().invoke(main, ["log"], prog_name="switchgear")
    assert result.exit_code != 0
    assert "cannot be read from here: run this command where that" in result.stderr


@pytest.mark.system
def test_an_embedded_server_writes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queue").mkdir()
    monkeypatch.setenv("SWITCHGEAR_URL", f"embedded:{tmp_path / 'queue'}")
    result = CliRunner().invoke(main, ["log"], prog_name="switchgear")
    assert result.exit_code != 0
    assert "writes no job log" in result.stderr
    assert "switchgear jobs" in result.stderr


@pytest.mark.usefixtures("log")
def test_a_log_that_is_named_is_read_without_a_server(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHGEAR_URL", "gearman://127.0.0.1:1")
    result = call(url)
    assert (result.exit_code, result.stderr) == (0, "")
