"""`switchgear dwork work`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchgear.client.dwork import DworkClient
from tests.cli.commands import running
from tests.cli.dwork_calls import dwork
from tests.client.dwork_servers import Original, fake_server, running_dwork
from tests.support.servers import HOST, free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def module_url() -> Iterator[str]:
    with running_dwork() as (_, url):
        yield url


@pytest.fixture
def url(module_url: str) -> Iterator[str]:
    """A server that has nothing to do, and is left with nothing to do."""
    yield module_url
    with DworkClient(module_url) as client:
        while stolen := client.steal(1000):
            client.complete([task.name for task in stolen])
        assert stolen.all_done


def test_names_of_tasks_are_commands(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with DworkClient(url) as client:
        client.create(["touch a", ("cat a && echo here", ["touch a"])])
    result = dwork("work", "--jobs", "2", url=url)
    assert (result.exit_code, result.stdout) == (0, "here\n")
    assert "here: done in " in result.stderr


def test_a_failure_is_reported_with_its_reason(url: str) -> None:
    command = "echo first >&2; echo oh no >&2; exit 3"
    with DworkClient(url) as client:
        client.create([command, ("echo never", [command])])
        result = dwork("work", "-q", url=url)
        assert (result.exit_code, result.stdout) == (0, "")
        assert "failed in " in result.stderr
        record = client.lookup(command)
        assert record is not None
        assert (record.state, record.error) == ("failed", "oh no")
        client.create(command)  # once more, so that the rest can be done


def test_for_programs(url: str) -> None:
    with DworkClient(url) as client:
        client.create("echo out")
    result = dwork("work", "--json", url=url)
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(event["event"], event["task"]) for event in events] == [("started", "echo out"), ("done", "echo out")]
    assert result.stderr == "out\n"


def test_it_waits_for_more_until_told_to_stop(url: str, tmp_path: Path) -> None:
    with running("", "dwork", "work", "--wait", "-s", url) as worker, DworkClient(url) as client:
        client.create("echo first")
        worker.until("echo first: done")
        client.create("echo second")
        worker.until("echo second: done")
        worker.send(signal.SIGTERM)
        worker.until("SIGTERM: running tasks may finish")
        assert worker.exit_code() == 0


def test_one_signal_lets_tasks_finish(url: str, tmp_path: Path) -> None:
    command = f"until test -e {tmp_path}/go; do sleep 0.02; done"
    with DworkClient(url) as client, running("", "dwork", "work", "--wait", "-s", url) as worker:
        client.create(command)
        worker.until("started")
        worker.send(signal.SIGINT)
        worker.until("SIGINT")
        (tmp_path / "go").touch()
        worker.until("done in")
        assert worker.exit_code() == 130
        assert client.status().active == 0


def test_a_second_signal_gives_tasks_back(url: str) -> None:
    with DworkClient(url) as client, running("", "dwork", "work", "-s", url, "--host", "here") as worker:
        client.create("sleep 1000")
        worker.until("started")
        record = client.lookup("sleep 1000")
        assert record is not None
        assert record.location == "here"
        worker.send(signal.SIGTERM)
        worker.until("SIGTERM")
        worker.send(signal.SIGTERM)
        worker.until("sleep 1000: given back")
        assert worker.exit_code() == 1
        eventually(lambda: client.status().ready == 1, "it is there for others")


def test_nobody_there() -> None:
    result = dwork("work", "--timeout", "0.1", "--give-up", "0.2", url=f"dwork://{HOST}:{free_port()}")
    assert result.exit_code == 3
    assert "switchgear dwork: cannot connect to dwork://" in result.stderr


def test_with_the_original_server() -> None:
    original = Original()
    original.ready = [b"exit 3", b"true"]
    with fake_server(original) as server, running("", "dwork", "work", "--host", "h", "-s", server.url) as worker:
        worker.until("exit 3: kept since the server cannot be told")
        worker.until("true: done")
        worker.send(signal.SIGTERM)
        assert worker.exit_code() == 0
        assert original.assigned == {b"h": [b"exit 3"]}


def test_a_shell_loop(url: str, tmp_path: Path) -> None:
    """As it stands in the help."""
    program = f"{sys.executable} -m switchgear dwork"
    script = f"""
        while task=$({program} steal -q --wait 0.3); do
            if sh -c "$task"; then {program} complete "$task"
            else {program} complete --error "exit status $?" "$task"; fi
        done
    """
    with DworkClient(url) as client:
        client.create(["exit 3", f"echo 'a,b' > {tmp_path}/out"])
        subprocess.run(["sh", "-c", script], check=True, env={**os.environ, "SWITCHGEAR_DWORK_SERVER": url})
        assert (tmp_path / "out").read_text() == "a,b\n"
        record = client.lookup("exit 3")
        assert record is not None
        assert (record.state, record.error) == ("failed", "exit status 3")
