"""What goes wrong around the jobs of a worker, and must not cost it slots, jobs or the jobs of others."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from switchgear.app.server_locations import FixedLocation
from switchgear.app.worker import thread_executor
from switchgear.app.worker.child import Child
from switchgear.app.worker.child_messages import CancelJob, ChildProgress, Frame
from switchgear.app.worker.executor import Attempt
from switchgear.app.worker.executor_choice import choose_executors
from switchgear.app.worker.progress_throttle import ProgressThrottle
from switchgear.app.worker.worker import AppWorker, WorkerSettings
from switchgear.client.address import ServerAddress
from switchgear.client.gearman.assigned_job import AssignedJob, Complete, Outcome, Stopped
from switchgear.errors import JobLost, TaskFailed
from tests.app.worker.harness import QUICK, Recorder, wait_for, working
from tests.app.worker.tasks import make_app
from tests.client.background import url_of
from tests.support.servers import Server, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_switchgear("--set", "limits.packet_bytes=1MiB") as server:
        yield server


# --- results ---


def test_a_result_that_the_server_does_not_take_fails_its_job_and_no_other(server: Server, tmp_path: Path) -> None:
    with working(server, "repeat hold") as crew:
        neighbour = crew.submit("hold", str(tmp_path))
        wait_for(tmp_path, "started")
        with pytest.raises(TaskFailed, match="the result has 2000002 bytes, and the server takes at most 1048576"):
            crew.run("repeat", "x", 2_000_000)
        (tmp_path / "go").touch()
        assert neighbour.result(DEADLINE_SECONDS) == "finished"
        assert neighbour.status().attempts == 1
        ends = [event for event in crew.recorder.all_so_far() if event[0] == "ended"]
        assert ends[-2:] == [("ended", "Fail"), ("ended", "Complete")]


@pytest.mark.parametrize("task", ["repeat", "repeat_in_process"])
def test_large_arguments_and_results(server: Server, task: str) -> None:
    text = "x" * 1_000_000
    with working(server, task) as crew:
        assert crew.run(task, text, 1) == text


# --- threads ---


@pytest.mark.parametrize("threads_there_are", [0, 1])
def test_a_system_without_threads_costs_no_slot(
    server: Server, threads_there_are: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_short = threading.Event()
    usual = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if is_short.is_set() and thread.name.startswith("switchgear-job-"):
            raise RuntimeError("can't start new thread")
        usual(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(thread_executor, "NO_THREAD_SECONDS", 0.01)
    with working(server, "add hold", slots=3, prefetch=0) as crew:
        for number in range(threads_there_are):
            assert crew.run("add", number) == number + 1
        is_short.set()
        jobs = [crew.submit("hold", str(tmp_path)) for _ in range(3)]
        assert crew.recorder.until("note") == "no thread could be started: can't start new thread"
        is_short.clear()
        (tmp_path / "go").touch()
        assert [job.result(DEADLINE_SECONDS) for job in jobs] == ["finished"] * 3
        pool = crew.worker._pools[0]
        eventually(lambda: pool.connections[0].protocol.granted == 3, "all slots are free again")
        assert "disconnected" not in [name for name, _ in crew.recorder.all_so_far()]


# --- observers ---


def test_an_observer_with_a_defect_costs_no_slot(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def job_ended(recorder: Recorder, assignment: AssignedJob, outcome: Outcome, seconds: float) -> None:
        raise ValueError("an oversight")

    monkeypatch.setattr(Recorder, "job_ended", job_ended)
    with working(server, "add", slots=2) as crew:
        jobs = [crew.submit("add", number) for number in range(20)]
        assert [job.result(DEADLINE_SECONDS) for job in jobs] == list(range(1, 21))
        pool = crew.worker._pools[0]
        eventually(lambda: not pool.attempts, "every attempt has left")
    assert "an oversight" in caplog.text


def test_progress_of_a_job_whose_worker_has_stopped_goes_nowhere() -> None:
    loop = asyncio.new_event_loop()
    attempt = Attempt(AssignedJob("H:a:1", "add", b"{}"), make_app().tasks["add"], loop)
    loop.close()
    attempt.job.progress(1, 2)
    attempt.job.progress(2, 2)


# --- event loops ---


def test_a_job_that_ends_its_event_loop_costs_nobody_a_slot(server: Server) -> None:
    with working(server, "leave_an_exit add_async") as crew:
        assert crew.run("leave_an_exit", 0.01) == "finished"
        assert "SystemExit(5)" in crew.recorder.until("note")
        assert [crew.run("add_async", number) for number in range(3)] == [1, 2, 3]


def test_in_a_process_such_a_job_is_lost_with_its_process(server: Server) -> None:
    with working(server, "leave_an_exit_in_process process_id_in_process") as crew:
        job = crew.submit("leave_an_exit_in_process", 1000.0, crash_limit=1)
        with pytest.raises(JobLost):
            job.result(DEADLINE_SECONDS)
        assert crew.run("process_id_in_process")


def test_a_place_with_a_defect_is_tried_again(server: Server) -> None:
    class Fickle(FixedLocation):
        problems: ClassVar = [KeyError("an oversight")]

        def address(self) -> ServerAddress:
            if self.problems:
                raise self.problems.pop()
            return super().address()

    app, recorder = make_app(url_of(server)), Recorder()
    executor_choice = choose_executors(app.tasks, only=frozenset({"add"}))
    worker = AppWorker(
        app, executor_choice, WorkerSettings(backoff=QUICK), recorder, locations=[Fickle(url_of(server))]
    )
    worker.start()
    assert recorder.until("disconnected") == "'an oversight'"
    assert recorder.until("subscribed") == "threads"
    worker.stop(0.0)
    assert worker.wait(DEADLINE_SECONDS)
    app.close()


# --- children ---


@pytest.fixture
def child() -> Iterator[Child]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = Child(make_app(), theirs)
        yield child
        if child._runner is not None:
            child._runner.close()


@pytest.mark.parametrize("task", ["hold", "hold_async"])
def test_a_cancellation_may_come_before_its_job_has_begun(child: Child, task: str, tmp_path: Path) -> None:
    payload = f'["{tmp_path}"]'.encode()
    child._cancel(CancelJob(2, "cancelled"))
    assert child._work(2, AssignedJob("H:a:2", task, payload)) == Stopped("cancelled")
    (tmp_path / "go").touch()
    assert child._work(3, AssignedJob("H:a:3", task, payload)) == Complete(b'"finished"')


def test_a_job_that_tells_much_does_not_flood_its_worker(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Frame] = []
    monkeypatch.setattr(child, "_send", sent.append)
    assert child._work(1, AssignedJob("H:a:1", "chatter", b"[5000]")) == Complete(b"5000")
    assert len(sent) < 500
    assert sent[-1] == ChildProgress(1, 5000, 5000, "")


def test_the_latest_figures_travel_although_the_job_says_no_more() -> None:
    sent: list[Frame] = []
    pacer = ProgressThrottle(sent.append)
    for done in (1, 2, 3):
        pacer.put(ChildProgress(1, done, 3, ""))
    eventually(lambda: len(sent) == 2, "the rest is sent by itself")
    assert sent == [ChildProgress(1, 1, 3, ""), ChildProgress(1, 3, 3, "")]
    pacer.flush()
    assert len(sent) == 2


def test_a_coroutine_that_does_not_end_ends_with_its_process(server: Server, tmp_path: Path) -> None:
    with working(server, "resist_async_in_process process_id_in_process") as crew:
        before = crew.run("process_id_in_process")
        job = crew.submit("resist_async_in_process", str(tmp_path))
        wait_for(tmp_path, "started")
        job.cancel()
        wait_for(tmp_path, "would not stop")
        assert crew.recorder.until("dropped") == "cancelled"
        assert crew.run("process_id_in_process") != before


def test_what_a_job_prints_in_its_process_is_there_when_it_has_ended(
    server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    with working(server, "shout_in_process") as crew:
        crew.run("shout_in_process", "hello out there")
        said: Any = capfd.readouterr()
        assert "hello out there" in said.out


def test_a_worker_ends_although_a_coroutine_has_left_a_thread_behind(server: Server, tmp_path: Path) -> None:
    with working(url_of(server), "hold_in_pool") as crew:
        crew.submit("hold_in_pool", str(tmp_path))
        wait_for(tmp_path, "started")
        crew.worker.stop(0.0)
        assert crew.worker.wait(DEADLINE_SECONDS)
        assert crew.worker.left_behind  # so the command ends without waiting for it
        (tmp_path / "go").touch()
