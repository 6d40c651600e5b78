"""Requirements held against a small model: who may be given which job, counted anew from plain lists at every step."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from switchgear.engine.engine import SubmitOptions
from switchgear.model import BEST_FIRST, READY, RUNNING, Delivery, Job, Worker
from switchgear.policy import Policy
from switchgear.resources import canonical_requirements, resource_amounts
from switchgear.testing import RecordingPeer, check_engine
from tests.engine.harness import Harness

EXAMPLES = int(os.environ.get("SWITCHGEAR_MODEL_EXAMPLES", "0"))
NAMES = (b"mail", b"resize")

numbers = st.integers(0, 30)
tags = st.sampled_from((frozenset[str](), frozenset[str](), frozenset({"gpu"}), frozenset({"gpu", "large"})))
needed: st.SearchStrategy[dict[str, float]] = st.sampled_from(
    ({}, {"ram": 1}, {"ram": 2}, {"ram": 3}, {"ram": 1, "cores": 0.5}, {"cores": 0}, {"disk": 1})
)
offered: st.SearchStrategy[dict[str, float]] = st.sampled_from(({"ram": 3}, {"ram": 4, "cores": 1}, {"ram": 2.5}, {}))


@dataclass(eq=False)
class Needs:
    """What a job needs."""

    tags: frozenset[str]
    amounts: dict[str, float]


@dataclass(eq=False)
class Has:
    """What a worker has, and which jobs it has in hand."""

    tags: frozenset[str] = frozenset()
    amounts: dict[str, float] = field(default_factory=dict)
    holds: list[int] = field(default_factory=list)


class EngineAndNeeds(RuleBasedStateMachine):
    """Asks the engine, and knows who fits what."""

    @initialize(wakeups=st.integers(0, 2), limit=st.sampled_from((0, 0, 2)))
    def begin(self, wakeups: int, limit: int) -> None:
        self.harness = Harness(wakeups=wakeups, function_order="registration")
        self.engine = self.harness.engine
        self.limit = limit
        for name in NAMES:
            self.engine.set_policy(self.engine.function_named(name), Policy(concurrency=limit))
        self.needs: dict[int, Needs] = {}
        self.jobs: list[Job] = []  # in the order in which they are handed out
        self.workers: dict[Worker, Has] = {}
        for amounts in ({"ram": 3.0}, {"ram": 4.0, "cores": 1.0}):
            self.worker_comes({b"mail", b"resize"}, frozenset({"gpu"}), amounts)

    # --- the model ---

    def free(self, has: Has, name: str) -> float:
        return has.amounts.get(name, 0) - sum(self.needs[job_id].amounts.get(name, 0) for job_id in has.holds)

    def fits(self, has: Has, job: Job) -> bool:
        needs = self.needs[job.id]
        enough = all(self.free(has, name) >= amount for name, amount in needs.amounts.items() if amount)
        return needs.tags <= has.tags and enough

    def expected(self, worker: Worker) -> list[Job]:
        """The jobs that the worker may be given now, the one that it must be given first."""
        has = self.workers[worker]
        for function in reversed(worker.order):
            running = sum(job.worker is not None for job in self.jobs if job.function is function)
            if function.paused or (self.limit and running >= self.limit):
                continue
            ready = [job for job in self.jobs if job.function is function and job.state is READY]
            fitting = [job for job in ready if self.fits(has, job)]
            if fitting:
                return sorted(fitting, key=lambda job: BEST_FIRST.index(job.priority))
        return []

    def to_the_end(self, worker: Worker, job_id: int) -> None:
        """A job that its worker gives back, or has at its end, comes last."""
        for job in self.jobs:
            if job.id == job_id and job.worker is worker:
                self.jobs.remove(job)
                self.jobs.append(job)
                return

    def hear(self) -> None:
        """Workers that were given jobs have them, and only those that fitted."""
        for worker, has in self.workers.items():
            assert isinstance(worker.peer, RecordingPeer)
            for news in worker.peer.heard:
                if news[0] == "assign":
                    job = next(job for job in self.jobs if job.id == news[2])
                    assert self.fits(has, job), f"{worker} does not fit {job}"
                    has.holds.append(job.id)
            worker.peer.heard.clear()

    # --- jobs ---

    @rule(name=st.sampled_from(NAMES), priority=st.sampled_from(BEST_FIRST), tags=tags, amounts=needed)
    def submit(self, name: bytes, priority: int, tags: frozenset[str], amounts: dict[str, float]) -> None:
        requires = canonical_requirements([*tags, *(f"{name}={amount}" for name, amount in amounts.items())])
        self.needs[self.engine.next_job_id] = Needs(tags, amounts)
        options = SubmitOptions(requires=requires)
        self.jobs.append(self.engine.submit(name, b"", b"", priority, Delivery.HANDLE, None, options))

    @precondition(lambda self: bool(self.jobs))
    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        """A worker that has it holds it until it reports."""
        unfinished = [job for job in self.jobs if job.state in (READY, RUNNING)]
        unfinished.sort(key=lambda job: job.worker is None)
        if unfinished:
            self.engine.cancel(unfinished[number % len(unfinished)])

    @rule(name=st.sampled_from(NAMES))
    def pause_and_resume(self, name: bytes) -> None:
        function = self.engine.function_named(name)
        if function.paused:
            self.engine.resume(function)
        else:
            self.engine.pause(function)

    # --- workers ---

    @rule(names=st.sets(st.sampled_from(NAMES), min_size=1), tags=tags, amounts=offered)
    def worker_comes(self, names: set[bytes], tags: frozenset[str], amounts: dict[str, float]) -> None:
        worker = self.engine.add_worker(RecordingPeer(), "test")
        self.workers[worker] = Has()
        self.describe(worker, tags, amounts)
        for name in sorted(names):
            self.engine.can_do(worker, self.engine.function_named(name))

    def some(self, number: int) -> Worker:
        return list(self.workers)[number % min(4, len(self.workers))]

    def has_workers(self) -> bool:
        return bool(self.workers)

    def describe(self, worker: Worker, tags: frozenset[str], amounts: dict[str, float]) -> None:
        has = self.workers[worker]
        has.tags, has.amounts = tags, dict(amounts)
        self.engine.describe_worker(worker, frozenset(tag.encode() for tag in tags), resource_amounts(amounts))

    @precondition(has_workers)
    @rule(number=numbers, tags=tags, amounts=offered)
    def worker_changes(self, number: int, tags: frozenset[str], amounts: dict[str, float]) -> None:
        self.describe(self.some(number), tags, amounts)

    @precondition(has_workers)
    @rule(number=numbers)
    def worker_takes(self, number: int) -> None:
        worker = self.some(number)
        expected = self.expected(worker)
        job = self.engine.take(worker)
        assert job is (expected[0] if expected else None)
        if job is not None:
            self.workers[worker].holds.append(job.id)

    @precondition(has_workers)
    @rule(number=numbers)
    def worker_sleeps(self, number: int) -> None:
        worker = self.some(number)
        expected = self.expected(worker)
        assert self.engine.sleep(worker) == (not expected)

    @precondition(has_workers)
    @rule(number=numbers, credit=st.integers(1, 3))
    def worker_grants(self, number: int, credit: int) -> None:
        self.engine.grant(self.some(number), credit)

    @precondition(has_workers)
    @rule(number=numbers, held=numbers, verb=st.sampled_from(("complete", "fail", "release")))
    def worker_reports(self, number: int, held: int, verb: str) -> None:
        worker = self.some(number)
        holds = self.workers[worker].holds
        if not holds:
            return
        job_id = holds.pop(held % len(holds))
        if verb == "release":
            self.to_the_end(worker, job_id)
        report: dict[str, Any] = {
            "complete": lambda: self.engine.complete(worker, job_id, b""),
            "fail": lambda: self.engine.fail(worker, job_id),
            "release": lambda: self.engine.release(worker, job_id),
        }
        assert report[verb]() is not None

    @precondition(has_workers)
    @rule(number=numbers)
    def worker_leaves(self, number: int) -> None:
        worker = self.some(number)
        for job_id in self.workers.pop(worker).holds:
            self.to_the_end(worker, job_id)
        self.engine.remove_worker(worker)

    @rule(seconds=st.sampled_from((1, 2)))
    def time_passes(self, seconds: int) -> None:
        self.harness.pass_seconds(seconds)

    # --- what holds after each step ---

    def check_invariants(self, *arguments: Any, **options: Any) -> None:
        if not hasattr(self, "engine"):
            return
        self.hear()
        check_engine(self.engine)
        for worker in self.workers:
            expected = self.expected(worker)
            if worker.credits:
                assert not expected, f"{worker} has credit, and could be given {expected[0]}"
            if worker.asleep and expected:
                assert expected[0].function.wakeup_check_pending, f"{worker} sleeps, and could be given {expected[0]}"


TestRequirements = EngineAndNeeds.TestCase
TestRequirements.settings = settings(
    max_examples=EXAMPLES or 60,
    stateful_step_count=40,
    deadline=None,
    derandomize=not EXAMPLES,
    database=None,
    suppress_health_check=list(HealthCheck),
)
