"""Real servers write the job log of all their jobs, without being asked."""

from __future__ import annotations

import signal
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from switchgear.joblog import JobLog, LoggedRun
from tests.support.postgres import Cluster
from tests.support.servers import Server, running_switchgear
from tests.support.waiting import eventually
from tests.support.wire import Kind, Wire
from tests.system.talk import acknowledged, control, failing_start, grab, unfinished, wait_for_line

pytestmark = pytest.mark.system

BACKGROUND = Kind.SUBMIT_JOB_BG
FOREGROUND = Kind.SUBMIT_JOB


def worker_of(server: Server, function: bytes = b"resize") -> Wire:
    worker = Wire(server.address)
    worker.send(Kind.CAN_DO, function)
    return worker


def start(client: Wire, worker: Wire, kind: Kind) -> bytes:
    """Submit a job and let the worker have it."""
    handle = acknowledged(client, b"resize", b"x", kind)
    job = grab(worker)
    assert job is not None
    assert job[0] == handle
    return handle


def logged(log: JobLog, condition: Callable[[LoggedRun], bool], handle: bytes) -> LoggedRun:
    """The run of this job, once it is as it should be."""

    def found() -> LoggedRun | None:
        return next((run for run in log.ran(handle=handle.decode()) if condition(run)), None)

    run = eventually(found, f"{handle!r} is in the job log")
    assert run is not None
    return run


def has_ended(run: LoggedRun) -> bool:
    return run.ended_at is not None


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'jobs.db'}"


@pytest.fixture
def beside(tmp_path: Path) -> str:
    """Where the log of that store is."""
    return f"sqlite:{tmp_path / 'jobs-log.db'}"


@pytest.mark.parametrize("kind", [BACKGROUND, FOREGROUND])
def test_jobs_that_end_well_and_badly(store: str, beside: str, kind: Kind) -> None:
    with (
        running_switchgear(store=store) as server,
        Wire(server.address) as client,
        worker_of(server) as worker,
        JobLog.open(beside) as log,
    ):
        done, failed, refused = (start(client, worker, kind) for _ in range(3))
        run = logged(log, lambda run: run.state == "running", done)
        assert (run.function, run.source, run.host) == ("resize", "server", socket.gethostname())
        worker.send(Kind.WORK_COMPLETE, done, b"result")
        worker.send(Kind.WORK_FAIL, failed)
        worker.send(Kind.WORK_EXCEPTION, refused, b"no such image")
        worker.send(Kind.WORK_FAIL, refused)
        run = logged(log, has_ended, done)
        assert (run.state, run.result_code, run.attempts, run.process) == ("done", 0, 1, str(server.pid))
        assert run.protocol == "gearman"
        assert run.seconds is not None
        run = logged(log, has_ended, failed)
        assert (run.state, run.result_code) == ("failed", 1)
        run = logged(log, has_ended, refused)
        assert (run.state, run.error) == ("failed", "no such image")
        assert {run.handle for run in log.failures()} == {failed.decode(), refused.decode()}
        assert [(summary.runs, summary.ok, summary.failed) for summary in log.summary()] == [(3, 1, 2)]


def draft_packet(kind: int, body: bytes = b"") -> bytes:
    return b"\0JOB%c%b%b" % (kind, len(body).to_bytes(4, "big"), body)


def test_the_draft_of_2005_is_logged_the_same(store: str, beside: str) -> None:
    with (
        running_switchgear(store=store) as server,
        socket.create_connection(server.address) as peer,
        peer.makefile("rb") as answers,
        JobLog.open(beside) as log,
    ):
        peer.sendall(draft_packet(0x01, b"rss"))
        peer.sendall(draft_packet(0x04, b"rss\0" + b"23\0" + bytes([0, 1])))
        header = answers.read(9)
        handle = answers.read(header[8])
        peer.sendall(draft_packet(0x06))
        assert answers.read(9)[4] == 0x07
        peer.sendall(draft_packet(0x0B, bytes([3]) + b"the feed is gone"))
        run = logged(log, has_ended, handle)
    assert (run.function, run.key, run.state) == ("rss", "23", "failed")
    assert (run.result_code, run.error) == (3, "the feed is gone")
    assert run.protocol not in ("", "gearman")


def test_the_last_job_before_the_end_is_in_the_log(store: str, beside: str) -> None:
    with running_switchgear(store=store) as server, Wire(server.address) as client, worker_of(server) as worker:
        handle = start(client, worker, BACKGROUND)
        worker.send(Kind.WORK_COMPLETE, handle, b"")
        worker.expect_nothing()
        server.process.send_signal(signal.SIGTERM)
        assert server.wait_stopped() == 0
    with JobLog.open(beside, create=False) as log:
        assert [(run.handle, run.state) for run in log.ran()] == [(handle.decode(), "done")]


def test_a_crash_between_start_and_end_is_seen(store: str, beside: str) -> None:
    """The background job is done by the next server; the other was for a client that has gone."""
    with JobLog.open(beside) as log:
        with running_switchgear(store=store) as server, Wire(server.address) as client, worker_of(server) as worker:
            background = start(client, worker, BACKGROUND)
            foreground = start(client, worker, FOREGROUND)
            for handle in (background, foreground):
                logged(log, lambda run: run.state == "running", handle)
            server.kill()
        assert {run.handle for run in log.unfinished()} == {background.decode(), foreground.decode()}
        with running_switchgear(store=store) as server, worker_of(server) as worker:
            assert unfinished(server) == [background]  # a foreground job is not kept because its start is logged
            run = logged(log, lambda run: run.state == "ready", background)
            assert run.ended_at is None
            assert grab(worker) == (background, b"x")
            worker.send(Kind.WORK_COMPLETE, background, b"")
            run = logged(log, has_ended, background)
            assert (run.state, run.attempts) == ("done", 2)
            assert [run.handle for run in log.unfinished()] == [foreground.decode()]


def test_starts_of_foreground_jobs_are_not_kept_in_the_store(store: str, tmp_path: Path, beside: str) -> None:
    with (
        running_switchgear(store=store) as server,
        Wire(server.address) as client,
        worker_of(server) as worker,
        JobLog.open(beside) as log,
    ):
        handle = start(client, worker, FOREGROUND)
        logged(log, lambda run: run.state == "running", handle)
        acknowledged(client, b"other", b"x")  # the commit that this waits for would have the other too
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as jobs:
            assert jobs.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
        worker.send(Kind.WORK_COMPLETE, handle, b"")
        assert client.receive_packet().type == Kind.WORK_COMPLETE
        acknowledged(client, b"other", b"x")
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as jobs:
            assert jobs.execute("SELECT count(*) FROM jobs").fetchone() == (3,)  # its history


def test_a_store_in_memory_has_no_log_unless_one_is_named(tmp_path: Path) -> None:
    with running_switchgear() as server, Wire(server.address) as client:
        assert control(client, "server")["joblog"] is None
    url = f"sqlite:{tmp_path / 'named.db'}"
    with (
        running_switchgear("--joblog", url) as server,
        Wire(server.address) as client,
        worker_of(server) as worker,
        JobLog.open(url) as log,
    ):
        handles = [start(client, worker, kind) for kind in (FOREGROUND, BACKGROUND)]
        for handle in handles:
            logged(log, lambda run: run.state == "running", handle)
            worker.send(Kind.WORK_COMPLETE, handle, b"")
            assert logged(log, has_ended, handle).state == "done"
        expected = {"url": url, "written": 4, "waiting": 0, "dropped": 0}
        with Wire(server.address) as operator:
            eventually(lambda: control(operator, "server")["joblog"] == expected, "the server says so")


def test_it_can_be_switched_off(store: str, tmp_path: Path) -> None:
    with running_switchgear("--joblog", "off", store=store) as server, Wire(server.address) as client:
        acknowledged(client, b"resize", b"x")
        assert control(client, "server")["joblog"] is None
    assert not list(tmp_path.glob("*-log.db"))


def test_a_log_that_cannot_be_used_is_told_at_the_start(store: str, tmp_path: Path) -> None:
    (tmp_path / "jobs-log.db").write_text("something else" * 100, encoding="utf-8")
    status, lines = failing_start(store=store)
    assert status == 1
    assert "cannot be used as a job log" in lines[-1]
    status, lines = failing_start("--joblog", "postgresql://x?y=z", store=store)
    assert status == 2


def test_a_log_that_is_held_up_holds_up_nobody(store: str, beside: str) -> None:
    """Somebody else has the log locked: jobs go on, and are in the log later."""
    with (
        running_switchgear(store=store) as server,
        Wire(server.address) as client,
        worker_of(server) as worker,
        JobLog.open(beside) as log,
        closing(sqlite3.connect(beside.removeprefix("sqlite:"), isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        handles = []
        for _ in range(20):
            handles.append(start(client, worker, BACKGROUND))
            worker.send(Kind.WORK_COMPLETE, handles[-1], b"")
        worker.expect_nothing()
        assert not log.ran()
        other.execute("COMMIT")
        for handle in handles:
            logged(log, has_ended, handle)


@pytest.mark.xdist_group("postgresql")
def test_two_servers_share_a_log(postgres: Cluster) -> None:
    url = postgres.new_url()
    handles = set()
    with JobLog.open(url) as log:
        for name in ("alpha", "beta"):
            settings = ("--joblog", url, "--set", f"gearman.handle_prefix=H:{name}")
            with (
                running_switchgear(*settings) as server,
                Wire(server.address) as client,
                worker_of(server) as worker,
            ):
                handle = start(client, worker, BACKGROUND)
                worker.send(Kind.WORK_COMPLETE, handle, b"")
                logged(log, has_ended, handle)
                handles.add(handle.decode())
        assert {run.handle for run in log.ran(function="resize")} == handles == {"H:alpha:1", "H:beta:1"}


@pytest.mark.xdist_group("postgresql")
def test_a_database_that_is_away_keeps_no_server_from_starting(postgres: Cluster) -> None:
    url = postgres.new_url()
    postgres.stop()
    try:
        with running_switchgear("--joblog", url) as server, Wire(server.address) as client, worker_of(server) as worker:
            wait_for_line(server, "job log: the job log postgresql://")
            handle = start(client, worker, BACKGROUND)
            worker.send(Kind.WORK_COMPLETE, handle, b"")
            worker.expect_nothing()
            postgres.start()
            wait_for_line(server, "job log: works again after")
            with JobLog.open(url) as log:
                logged(log, has_ended, handle)
    finally:
        postgres.stop()
        postgres.start()
