"""A finished job names the workers that ran it: over HTTP, on the command line, and in the job log."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from switchgear.joblog import JobLog
from tests.cli.commands import call
from tests.support.http_client import HttpClient
from tests.support.servers import HOST, Server, free_port, running_switchgear
from tests.support.waiting import eventually
from tests.support.wire import Kind, Packet, Wire
from tests.system.talk import control

pytestmark = pytest.mark.system


def submit(server: Server, function: bytes = b"f") -> str:
    with Wire(server.address) as client:
        client.send(Kind.SUBMIT_JOB_BG, function, b"", b"payload")
        created = client.receive()
        assert isinstance(created, Packet)
        return created.body.decode()


def grab(wire: Wire, name: bytes, function: bytes = b"f") -> None:
    wire.send(Kind.SET_CLIENT_ID, name)
    wire.send(Kind.CAN_DO, function)
    wire.send(Kind.GRAB_JOB)
    answer = wire.receive()
    assert isinstance(answer, Packet)
    assert answer.type == Kind.JOB_ASSIGN


def ran_twice(server: Server, function: bytes = b"f") -> str:
    """A job that the first worker loses, and the second does."""
    handle = submit(server, function)
    with Wire(server.address) as first:
        grab(first, b"first/1", function)
    with Wire(server.address) as watcher:
        eventually(lambda: control(watcher, "job", handle=handle)["state"] == "ready", "its loss is noticed")
    with Wire(server.address) as second:
        grab(second, "zweite Schicht\t✓".encode(), function)
        second.send(Kind.WORK_COMPLETE, handle.encode(), b"done")
        with Wire(server.address) as watcher:
            eventually(lambda: control(watcher, "job", handle=handle)["state"] == "done", "it is done")
    return handle


def test_workers_and_attempts_of_a_finished_job(tmp_path: Path) -> None:
    url = f"http://{HOST}:{free_port()}"
    with running_switchgear("--listen", url, store=f"sqlite:{tmp_path}/jobs.db") as server:
        handle = ran_twice(server)
        with closing(HttpClient(url)) as client:
            answer = client.call("GET", f"/v1/jobs/{handle}/attempts").json
        assert answer["state"] == "done"
        first, second = answer["attempts"]
        assert (first["attempt"], first["outcome"], first["worker"]) == (1, "worker_lost", "first/1")
        assert (second["attempt"], second["outcome"], second["worker"]) == (2, "succeeded", "zweite Schicht ✓")
        assert {attempt["protocol"] for attempt in answer["attempts"]} == {"gearman"}
        assert {attempt["worker_host"] for attempt in answer["attempts"]} == {HOST}
        assert first["started_at"] <= first["ended_at"] <= second["started_at"] <= second["ended_at"]
        shown = call(server, "job", handle).output
        assert "worker lost after" in shown
        assert f"by first/1 (gearman, {HOST})" in shown
        assert f"by zweite Schicht ✓ (gearman, {HOST})" in shown
        with JobLog.open(f"sqlite:{tmp_path}/jobs-log.db", create=False) as log:

            def is_written() -> bool:
                return bool(log.ran(handle=handle)) and log.ran(handle=handle)[0].ended_at is not None

            eventually(is_written, "the end is written")
            (run,) = log.ran(handle=handle)
        assert (run.worker, run.worker_host, run.protocol) == ("zweite Schicht ✓", HOST, "gearman")
        assert [start.worker for start in run.starts] == ["first/1", "zweite Schicht ✓"]
        runs = json.loads(call(server, "log", "--handle", handle, "--json").stdout)["runs"]
        assert [start["worker"] for start in runs[0]["starts"]] == ["first/1", "zweite Schicht ✓"]
    with running_switchgear("--listen", url, store=f"sqlite:{tmp_path}/jobs.db"), closing(HttpClient(url)) as client:
        again = client.call("GET", f"/v1/jobs/{handle}/attempts").json
        assert [attempt["worker"] for attempt in again["attempts"]] == ["first/1", "zweite Schicht ✓"]


def test_without_a_job_log_only_the_present_worker_is_known() -> None:
    url = f"http://{HOST}:{free_port()}"
    with running_switchgear("--listen", url) as server, closing(HttpClient(url)) as client:
        handle = submit(server)
        assert client.call("GET", f"/v1/jobs/{handle}/attempts").json["attempts"] == []
        with Wire(server.address) as worker:
            grab(worker, b"hand")
            (attempt,) = client.call("GET", f"/v1/jobs/{handle}/attempts").json["attempts"]
            assert (attempt["worker"], attempt["outcome"], attempt["ended_at"]) == ("hand", "running", None)
        done = ran_twice(server, b"g")
        attempts = client.call("GET", f"/v1/jobs/{done}/attempts").json["attempts"]
        assert [attempt["worker"] for attempt in attempts] == [None, None]
        assert "attempts\n  1  " in call(server, "job", done).output
