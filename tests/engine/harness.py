"""A small world for tests of the engine: an engine, a clock, and short words for what tests do most."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from switchgear.engine.engine import Engine, EngineSettings, SubmitOptions
from switchgear.engine.state import Observer
from switchgear.model import NORMAL, SECOND_US, Cause, Delivery, Function, Job, JobState, Schedule, Worker
from switchgear.testing import FakeClock, RecordingPeer


class RecordingObserver(Observer):
    """Writes down what an operator would be told."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def job_requeued(self, job: Job, cause: Cause) -> None:
        self.heard.append(("requeued", job.id, cause))

    def job_died(self, job: Job) -> None:
        self.heard.append(("died", job.id))

    def job_expired(self, job: Job) -> None:
        self.heard.append(("expired", job.id))

    def worker_expired(self, worker: Worker) -> None:
        self.heard.append(("worker expired", worker.id))

    def wake_policy_failed(self, function: Function, error: Exception) -> None:
        self.heard.append(("wake policy failed", function.name, repr(error)))

    def function_created(self, function: Function) -> None:
        self.heard.append(("function", function.name))

    def schedule_fired(self, schedule: Schedule, job: Job) -> None:
        self.heard.append(("schedule fired", schedule.name, job.id))

    def schedule_skipped(self, schedule: Schedule) -> None:
        self.heard.append(("schedule skipped", schedule.name))

    def schedule_missed(self, schedule: Schedule, count: int) -> None:
        self.heard.append(("schedule missed", schedule.name, count))

    def schedule_refused(self, schedule: Schedule, reason: str) -> None:
        self.heard.append(("schedule refused", schedule.name, reason))


class Harness:
    """An engine at a known time.  `pass_seconds` lets time pass."""

    def __init__(self, *, keeps: bool = True, clock: FakeClock | None = None, **settings: Any) -> None:
        self.clock = clock or FakeClock()
        self.observer = RecordingObserver()
        self.engine = Engine(EngineSettings(**settings), self.observer)
        self.engine.reports_changes = keeps
        self.engine.advance(self.clock.now_us())

    @property
    def now_us(self) -> int:
        return self.clock.now_us()

    def pass_seconds(self, seconds: float) -> None:
        self.engine.advance(self.clock.advance(seconds))

    def set_clock(self, seconds: float) -> None:
        """Somebody sets the wall clock by so much."""
        self.clock.set_wall_clock(seconds)
        self.engine.clock_moved(self.clock.follow_wall_clock())
        self.engine.advance(self.now_us)

    def at(self, seconds: float) -> int:
        """The moment that is so many seconds away."""
        return self.now_us + round(seconds * SECOND_US)

    def function(self, name: bytes = b"mail") -> Function:
        return self.engine.function_named(name)

    def submit(
        self,
        function: bytes = b"mail",
        *,
        unique: bytes = b"",
        payload: bytes = b"",
        priority: int = NORMAL,
        delivery: Delivery = Delivery.HANDLE,
        watcher: RecordingPeer | None = None,
        after: tuple[Job, ...] = (),
        **options: Any,
    ) -> Job:
        """Submit a job; `after` are the jobs it has to wait for, and the rest are SubmitOptions."""
        chosen = SubmitOptions(**options)
        if after:
            chosen = replace(chosen, predecessors=tuple(job.id for job in after))
        given = None if chosen == SubmitOptions() else chosen
        return self.engine.submit(function, unique, payload, priority, delivery, watcher, given)

    def worker(self, *functions: bytes, timeout_seconds: float = 0, peer: RecordingPeer | None = None) -> Worker:
        """A worker with a peer of its own that can do these; without any, mail."""
        worker = self.engine.add_worker(peer or RecordingPeer(), "test")
        for name in functions or (b"mail",):
            self.engine.can_do(worker, self.function(name), round(timeout_seconds * SECOND_US))
        return worker

    def running(self, *functions: bytes, **submission: Any) -> tuple[Worker, Job]:
        """A worker, and a job that it runs."""
        worker = self.worker(*functions)
        job = self.submit(*functions[:1], **submission)
        assert self.engine.take(worker) is job
        return worker, job

    def ended(self, state: JobState, **submission: Any) -> Job:
        """A job that has come to this end."""
        if state is JobState.CANCELLED:
            job = self.submit(**submission)
            self.engine.cancel(job)
        elif state is JobState.EXPIRED:
            job = self.submit(expires_us=self.at(1), **submission)
            self.pass_seconds(1)
        else:
            worker, job = self.running(**submission)
            if state is JobState.DONE:
                self.engine.complete(worker, job.id, b"")
            else:
                self.engine.fail(worker, job.id)
            self.engine.remove_worker(worker)
        assert job.state is state
        return job

    def drain_with(self, worker: Worker) -> list[int]:
        """Let the worker do all that it gets; returns the ids in the order in which it got them."""
        order = []
        while (job := self.engine.take(worker)) is not None:
            order.append(job.id)
            self.engine.complete(worker, job.id, b"")
        return order


def peer_of(worker: Worker) -> RecordingPeer:
    peer = worker.peer
    assert isinstance(peer, RecordingPeer)
    return peer


def causes(job: Job) -> list[Cause]:
    """Why the job moved, the submission first."""
    return [cause for cause, _ in job.log]


def ids(*jobs: Job) -> list[int]:
    return [job.id for job in jobs]


def state_of(job: Job) -> JobState:
    """The job's state; a call, since a type checker believes that an attribute once compared stays as it was."""
    return job.state
