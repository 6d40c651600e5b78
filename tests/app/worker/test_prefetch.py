"""Jobs that a worker holds ahead of its free slots: how many, and what becomes of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from switchgear.app.app import App
from switchgear.app.server_locations import location_of
from switchgear.app.worker.executor import Attempt, Executor
from switchgear.app.worker.observer import AppWorkerObserver
from switchgear.app.worker.prefetch import MOST_AHEAD, PAUSE_SECONDS, Prefetch
from switchgear.app.worker.slot_pool import SlotPool
from switchgear.app.worker.worker import WorkerSettings
from switchgear.client.gearman.assigned_job import AssignedJob, Complete
from switchgear.client.gearman.worker_connection import WorkerConnection
from switchgear.client.gearman.worker_protocol import WorkerIntroduction
from switchgear.errors import ConfigError, JobCancelled
from switchgear.protocols.gearman.codec import response
from switchgear.protocols.gearman.messages import Packet
from tests.app.worker.harness import wait_for, working
from tests.app.worker.test_batches import URL, Wire, in_a_loop
from tests.support.servers import running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

LEARNING = 60  # jobs after which an estimate has come from anywhere to where it belongs


def make_app() -> App:
    app = App(URL)

    @app.task(name="quick")
    def quick() -> None: ...

    @app.task(name="other")
    def other() -> None: ...

    @app.task(name="limited", concurrency=1)
    def limited() -> None: ...

    @app.task(name="hasty", timeout=2)
    def hasty() -> None: ...

    @app.task(name="patient", timeout=60)
    def patient() -> None: ...

    return app


def prefetch_of(wanted: int | None = None, most: int = MOST_AHEAD) -> Prefetch:
    return Prefetch(wanted, make_app().tasks.values(), most)


def learn(prefetch: Prefetch, function: str, seconds: float, times: int = LEARNING) -> None:
    for number in range(times):
        prefetch.arrived(AssignedJob(f"H:{number}", function, b""))
        prefetch.left(function, seconds)


# --- how many ---


def test_none_is_held_of_a_task_of_which_nothing_is_known() -> None:
    prefetch = prefetch_of()
    assert prefetch.ahead(0.0) == 0
    learn(prefetch, "quick", 0.0)
    assert prefetch.ahead(0.0) == MOST_AHEAD
    assert not prefetch.arrived(AssignedJob("H:1", "other", b""))
    assert prefetch.ahead(0.0) == 0
    prefetch.left("other", None)
    assert prefetch.ahead(0.0) == MOST_AHEAD


@pytest.mark.parametrize(
    ("seconds", "least", "most"), [(0.00001, 128, 128), (0.001, 5, 15), (0.004, 1, 4), (0.1, 0, 0)]
)
def test_as_many_are_held_as_are_begun_in_a_moment(seconds: float, least: int, most: int) -> None:
    prefetch = prefetch_of()
    learn(prefetch, "quick", seconds)
    assert least <= prefetch.ahead(0.0) <= most


def test_a_task_that_becomes_slow_is_noticed_within_a_dozen_jobs_and_one_slow_job_is_not() -> None:
    prefetch = prefetch_of()
    learn(prefetch, "quick", 0.00001)
    learn(prefetch, "quick", 10.0, times=1)
    assert prefetch.ahead(0.0) == MOST_AHEAD
    learn(prefetch, "quick", 10.0, times=12)
    assert prefetch.ahead(0.0) == 0
    learn(prefetch, "quick", 0.00001)
    assert prefetch.ahead(0.0) == MOST_AHEAD


def test_the_slowest_task_that_is_here_decides() -> None:
    prefetch = prefetch_of()
    learn(prefetch, "other", 1.0)
    learn(prefetch, "quick", 0.00001)
    assert prefetch.arrived(AssignedJob("H:1", "quick", b""))
    assert prefetch.ahead(0.0) == MOST_AHEAD
    assert not prefetch.arrived(AssignedJob("H:2", "other", b""))
    assert prefetch.ahead(0.0) == 0


@pytest.mark.parametrize(("function", "expected"), [("limited", 0), ("hasty", 0), ("patient", MOST_AHEAD)])
def test_none_is_held_of_tasks_with_limits_or_little_time(function: str, expected: int) -> None:
    prefetch = prefetch_of()
    learn(prefetch, function, 0.00001)
    assert prefetch.ahead(0.0) == expected


def test_a_job_may_have_less_time_than_its_task() -> None:
    prefetch = prefetch_of()
    learn(prefetch, "quick", 0.00001)
    prefetch.arrived(AssignedJob("H:1", "quick", b"", timeout_seconds=1.0))
    assert prefetch.ahead(0.0) == 0


def test_after_some_were_handed_back_none_is_held_for_a_while() -> None:
    prefetch = prefetch_of()
    learn(prefetch, "quick", 0.00001)
    assert prefetch.give_up(100.0)
    assert prefetch.ahead(100.0 + PAUSE_SECONDS / 2) == 0
    assert prefetch.ahead(100.0 + PAUSE_SECONDS) == MOST_AHEAD


def test_a_number_is_a_number() -> None:
    for wanted in (0, 7):
        prefetch = prefetch_of(wanted)
        assert prefetch.ahead(0.0) == wanted
        learn(prefetch, "limited", 100.0)
        assert not prefetch.give_up(0.0)
        assert prefetch.ahead(0.0) == wanted


def test_there_may_be_a_limit() -> None:
    prefetch = prefetch_of(most=3)
    learn(prefetch, "quick", 0.00001)
    assert prefetch.ahead(0.0) == 3


def test_a_number_that_makes_no_sense_is_refused() -> None:
    for number in (-1, 100_001):
        with pytest.raises(ConfigError, match="from 0 to 100000"):
            WorkerSettings(prefetch=number)


# --- at a post ---


class Held(Executor):
    """Begins an attempt when it is told to."""

    takes_ahead = True

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.begun: list[Attempt] = []
        self.held: list[Attempt] = []
        self.cancelled: list[str] = []

    def start(self, attempt: Attempt) -> None:
        (self.begun if len(self.begun) < self.slots else self.held).append(attempt)

    def waiting(self) -> list[Attempt]:
        return list(self.held)

    def withdraw(self, attempt: Attempt) -> bool:
        if attempt in self.held:
            self.held.remove(attempt)
            return True
        return False

    def cancel(self, attempt: Attempt, *, hard: bool) -> None:
        self.cancelled.append(attempt.handle)

    def end(self, attempt: Attempt, took_seconds: float = 0.0) -> None:
        attempt.took_seconds = took_seconds
        self.owner.attempts_ended([(attempt, Complete(b"null"))])

    async def close(self) -> bool:
        return True


class Returned(AppWorkerObserver):
    def __init__(self) -> None:
        self.started: list[str] = []
        self.handles: list[str] = []

    def job_started(self, assignment: AssignedJob) -> None:
        self.started.append(assignment.handle)

    def job_returned(self, assignment: AssignedJob) -> None:
        self.handles.append(assignment.handle)


class Stage:
    """A post of two slots that holds so many jobs more, and what it writes."""

    def __init__(self, prefetch: int | None, *, extended: bool = True) -> None:
        app = make_app()
        self.executor = Held(2)
        self.observer = Returned()
        introduction = WorkerIntroduction("me", {"quick": 0.0})
        self.pool = SlotPool(
            "x",
            self.executor,
            app.tasks,
            [location_of(URL)],
            introduction,
            self.observer,
            lambda finished: None,
            prefetch=Prefetch(prefetch, app.tasks.values()),
        )
        self.pool.open(asyncio.get_running_loop())
        self.connection: WorkerConnection[Attempt] = self.pool.connections[0]
        with socket.socket() as sock:
            self.wire = Wire(sock)
            self.connection.connection_made(cast(asyncio.Transport, self.wire))
        answer = response(Packet.OPTION_RES, b"switchgear") if extended else response(Packet.ERROR, b"X\0no")
        self.connection.data_received(answer)

    def push(self, *numbers: int) -> None:
        pushes = [response(Packet.JOB_PUSH, f"H:{n}\0quick\0\x001\x000\x000\x000\0{{}}".encode()) for n in numbers]
        self.connection.data_received(b"".join(pushes))

    async def written(self) -> list[str]:
        for _ in range(3):
            await asyncio.sleep(0)
        writes = [packet for write in self.wire.writes for packet in write]
        self.wire.writes.clear()
        return writes


@in_a_loop
async def test_credit_is_given_for_the_slots_and_for_those_that_are_held() -> None:
    stage = Stage(3)
    assert (await stage.written())[-1] == "CREDIT 5 15000"
    stage.push(1, 2, 3, 4, 5)
    assert len(stage.executor.held) == 3
    stage.push(6)  # more than was asked for
    assert await stage.written() == ["HAND_BACK H:6"]


@in_a_loop
async def test_credit_grows_when_jobs_turn_out_to_be_quick() -> None:
    stage = Stage(None)
    assert (await stage.written())[-1] == "CREDIT 2 15000"
    stage.push(1, 2)
    stage.executor.end(stage.executor.begun.pop())
    assert await stage.written() == ["WORK_COMPLETE H:2 null", f"CREDIT {1 + MOST_AHEAD} 15000"]


@in_a_loop
async def test_a_plain_server_is_not_asked_for_more_than_the_slots_hold() -> None:
    stage = Stage(3, extended=False)
    for number in (1, 2):
        assert (await stage.written())[-1] == "GRAB_JOB_UNIQ "
        stage.connection.data_received(response(Packet.JOB_ASSIGN_UNIQ, f"H:{number}\0quick\0\0{{}}".encode()))
    assert await stage.written() == []
    assert not stage.executor.held


@in_a_loop
async def test_what_waits_in_vain_is_handed_back_after_the_credit_was_taken_back() -> None:
    stage = Stage(None)
    stage.push(1, 2)
    stage.executor.end(stage.executor.begun.pop())
    stage.push(3, 4, 5)
    await stage.written()
    stage.pool.held_too_long()
    assert await stage.written() == [
        f"CREDIT -{MOST_AHEAD - 2} 15000",
        "HAND_BACK H:4",
        "HAND_BACK H:5",
    ]
    assert stage.observer.handles == ["H:4", "H:5"]
    assert {attempt.handle for attempt in stage.pool.attempts} == {"H:1", "H:3"}


@in_a_loop
async def test_a_number_of_jobs_is_held_even_in_vain() -> None:
    stage = Stage(3)
    stage.push(1, 2, 3)
    await stage.written()
    stage.pool.held_too_long()
    assert await stage.written() == []
    assert len(stage.executor.held) == 1


@in_a_loop
async def test_what_is_too_much_by_now_is_handed_back_when_it_has_waited_for_long() -> None:
    stage = Stage(None)
    stage.push(1, 2)
    stage.executor.end(stage.executor.begun.pop())
    stage.push(3, 4, 5, 6, 7, 8)
    await stage.written()
    stage.pool.waiting_long()
    assert await stage.written() == []  # so many may wait
    stage.executor.end(stage.executor.begun.pop(), took_seconds=0.004)
    for _ in range(20):
        stage.pool._prefetch.arrived(AssignedJob("H:0", "quick", b""))
        stage.pool._prefetch.left("quick", 0.004)
    allowed = stage.pool._prefetch.ahead(asyncio.get_running_loop().time())
    assert allowed in (1, 2)
    held = [attempt.handle for attempt in stage.executor.held]
    excess = len(stage.pool.attempts) - 2 - allowed
    assert held == ["H:4", "H:5", "H:6", "H:7", "H:8"]
    stage.pool.waiting_long()
    assert stage.observer.handles == held[-excess:]  # the last that came
    assert len(stage.pool.attempts) == 2 + allowed


@in_a_loop
async def test_a_job_that_is_held_is_not_said_to_be_started_until_it_is_begun() -> None:
    stage = Stage(3)
    stage.push(1, 2, 3)
    assert stage.observer.started == []
    first, second = stage.executor.begun
    stage.pool.attempts_begun([first])
    assert stage.observer.started == ["H:1"]
    stage.executor.end(first)
    stage.executor.end(second)  # before anybody has told that it was begun
    stage.pool.attempts_begun([first, second])
    assert stage.observer.started == ["H:1", "H:2"]
    stage.pool.stop_taking()
    assert (stage.observer.started, stage.observer.handles) == (["H:1", "H:2"], ["H:3"])


@in_a_loop
async def test_a_worker_that_stops_hands_back_what_it_has_not_begun() -> None:
    stage = Stage(3)
    stage.push(1, 2, 3, 4)
    await stage.written()
    stage.pool.stop_taking()
    assert await stage.written() == ["CREDIT -1 15000", "HAND_BACK H:3", "HAND_BACK H:4"]
    assert not stage.executor.held
    assert {attempt.handle for attempt in stage.pool.attempts} == {"H:1", "H:2"}


# --- with a server ---


@contextmanager
def holding(folder: Path) -> Iterator[Any]:
    """A worker whose only thread is taken, with two jobs that wait for it."""
    with running_switchgear() as server, working(server, "add hold", slots=1, prefetch=5) as crew:
        hold = crew.submit("hold", str(folder))
        wait_for(folder, "started")
        jobs = [crew.submit("add", number) for number in range(2)]
        eventually(lambda: [job.status().state for job in jobs] == ["running"] * 2, "the worker holds them")
        yield crew, hold, jobs


@pytest.mark.system
def test_a_job_that_is_cancelled_while_it_is_held_is_never_started(tmp_path: Path) -> None:
    with holding(tmp_path) as (crew, hold, jobs):
        jobs[0].cancel()
        with pytest.raises(JobCancelled):
            jobs[0].result(DEADLINE_SECONDS)
        assert crew.recorder.until("dropped") == "cancelled"
        (tmp_path / "go").touch()
        assert hold.result(DEADLINE_SECONDS) == "finished"
        assert jobs[1].result(DEADLINE_SECONDS) == 2
        assert crew.worker.finished_jobs == 3


@pytest.mark.system
def test_a_worker_that_stops_gives_others_what_it_holds(tmp_path: Path) -> None:
    with holding(tmp_path) as (crew, hold, jobs):
        crew.worker.stop(1000.0)
        eventually(lambda: [job.status().state for job in jobs] == ["ready"] * 2, "they are handed back")
        assert [job.status().attempts for job in jobs] == [0, 0]
        assert hold.status().state == "running"
        (tmp_path / "go").touch()
        assert hold.result(DEADLINE_SECONDS) == "finished"
        assert crew.worker.wait(DEADLINE_SECONDS)
