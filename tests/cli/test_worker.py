"""`switchgear worker`."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchgear.client import Client, UpdateKind
from switchgear.errors import JobFailed
from tests.cli.commands import call, call_json, running
from tests.client.background import url_of
from tests.support.servers import HOST, Server, free_port, running_gearmand, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system


@pytest.fixture(params=["switchgear", "gearmand"])
def any_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    start = running_switchgear if request.param == "switchgear" else running_gearmand
    with start() as server:
        yield server


@pytest.fixture
def client(any_server: Server) -> Iterator[Client]:
    with Client(url_of(any_server)) as client:
        yield client


def test_it_runs_a_command_for_each_job(any_server: Server, client: Client) -> None:
    script = 'echo "about $SWITCHGEAR_FUNCTION" >&2; echo "progress: 1/2" >&2; rev'
    with running(any_server, "worker", "reverse", "mirror", "--exec", script) as worker:
        worker.until("connected")
        updates = list(client.submit("reverse", b"abc\n").updates(DEADLINE_SECONDS))
        assert [update.kind for update in updates] == [UpdateKind.WARNING, UpdateKind.STATUS, UpdateKind.COMPLETE]
        assert updates[0].data == b"about reverse\n"
        assert updates[-1].data == b"cba\n"
        assert client.submit("mirror", b"xyz\n").wait(DEADLINE_SECONDS) == b"zyx\n"


def test_exit_status_decides(any_server: Server, client: Client) -> None:
    with running(any_server, "worker", "fail", "--exec", "echo out of paper >&2; exit 3") as worker:
        worker.until("connected")
        with pytest.raises(JobFailed) as caught:
            client.submit("fail").wait(DEADLINE_SECONDS)
        assert caught.value.error == b"exit status 3\nout of paper"
        assert "exit status 3" in worker.until("failed")


def test_it_stops_after_so_many_jobs(any_server: Server, client: Client) -> None:
    submissions = [client.submit("count", b"x") for _ in range(2)]
    with running(any_server, "worker", "count", "--exec", "cat", "--count", "2", "--jobs", "5") as worker:
        assert [submission.wait(DEADLINE_SECONDS) for submission in submissions] == [b"x", b"x"]
        assert worker.exit_code() == 0


def test_a_time_limit(any_server: Server, client: Client) -> None:
    with (
        running(any_server, "worker", "slow", "--exec", "sleep 1000", "--timeout", "0.1"),
        pytest.raises(JobFailed, match=r"timed out after 0\.1 s"),
    ):
        client.submit("slow").wait(DEADLINE_SECONDS)


def test_term_lets_running_jobs_finish(any_server: Server, client: Client, tmp_path: Path) -> None:
    pipe = tmp_path / "go"
    with running(any_server, "worker", "slow", "--exec", f"mkfifo {pipe}; echo ready >&2; cat {pipe}") as worker:
        submission = client.submit("slow")
        next(submission.updates(DEADLINE_SECONDS))
        worker.send(signal.SIGTERM)
        worker.until("SIGTERM")
        pipe.write_bytes(b"finished")
        assert submission.wait(DEADLINE_SECONDS) == b"finished"
        assert worker.exit_code() == 0


def test_int_is_told_apart(any_server: Server) -> None:
    with running(any_server, "worker", "f", "--exec", "cat") as worker:
        worker.until("connected")
        worker.send(signal.SIGINT)
        assert worker.exit_code() == 130


def test_the_time_to_finish_is_limited(any_server: Server, client: Client) -> None:
    script = "echo ready >&2; exec sleep 1000"
    with running(any_server, "worker", "slow", "--exec", script, "--drain-timeout", "0.05") as worker:
        submission = client.submit("slow", background=True)
        worker.until("started")
        worker.send(signal.SIGTERM)
        worker.until("stopped before its end")
        assert worker.exit_code() == 1
        eventually(lambda: not client.status(submission.handle).running, "it is back in its queue")
        assert client.status(submission.handle).known


def test_a_second_signal_kills(any_server: Server, client: Client) -> None:
    stubborn = "trap '' TERM; echo ready >&2; while :; do sleep 0.01; done"
    with running(any_server, "worker", "slow", "--exec", stubborn, "--drain-timeout", "1000") as worker:
        submission = client.submit("slow")
        next(submission.updates(DEADLINE_SECONDS))
        worker.send(signal.SIGTERM)
        worker.until("SIGTERM")
        worker.send(signal.SIGTERM)
        worker.until("stopped before its end")
        assert worker.exit_code() == 1


def test_it_waits_for_its_server() -> None:
    with running(f"gearman://{HOST}:{free_port()}", "worker", "f", "--exec", "cat") as worker:
        assert "next attempt in" in worker.until("Connection refused")
        worker.send(signal.SIGTERM)
        assert worker.exit_code() == 0


def test_several_servers(tmp_path: Path) -> None:
    with running_switchgear() as one, running_gearmand() as two:
        servers = ["--server", url_of(one), "--server", url_of(two)]
        with running("", "worker", "f", "--exec", "cat", *servers) as worker:
            for _ in servers[::2]:
                worker.until("connected")
            for server in (one, two):
                assert call(server, "submit", "f", "abc").stdout == "abc"


def test_reports_for_programs(any_server: Server, client: Client) -> None:
    with running(any_server, "worker", "f", "--exec", "cat; exit $(cat)", "--json", "--name", "tester") as worker:
        connected = json.loads(worker.until("connected"))
        assert connected["server"] == url_of(any_server)
        handle = client.submit("f", background=True).handle
        done = json.loads(worker.until("done"))
        assert (done["event"], done["handle"], done["function"]) == ("done", handle, "f")


def test_what_the_server_keeps_of_a_job() -> None:
    with running_switchgear() as server:
        script = "echo hot >&2; echo 'progress: 1/4' >&2; echo oh no >&2; exit 2"
        with running(server, "worker", "f", "--exec", script, "--name", "tester") as worker:
            worker.until("connected")
            eventually(
                lambda: [found["name"] for found in call_json(server, "workers")] == ["tester"],
                "the server has read the worker's name",
            )
            handle = call(server, "submit", "--background", "f", "x").stdout.strip()
            worker.until("failed")
            eventually(lambda: call_json(server, "job", handle)["state"] == "failed", "the server has the report")
            job = call_json(server, "job", handle)
    assert job["dead"] is False
    assert job["warnings"] == "hot\noh no\n"
    assert job["error"] == "exit status 2\nhot\noh no"
    assert (job["numerator"], job["denominator"]) == (1, 4)


@pytest.mark.parametrize(
    "arguments",
    [
        ["f"],
        ["--exec", "cat"],
        ["f", "--exec", "cat", "--jobs", "0"],
        ["f", "--exec", "cat", "--count", "0"],
        ["f", "--exec", "cat", "--timeout", "soon"],
        ["f", "--exec", "cat", "--server", "ftp://x"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    assert call("gearman://localhost:1", "worker", *arguments).exit_code == 2


def test_help_tells_the_contract() -> None:
    text = call("gearman://localhost:1", "worker", "--help").stdout
    for word in ("progress: 3/10", "progress: 30%", "SWITCHGEAR_HANDLE", "exit status", "switchgear worker reverse"):
        assert word in text
