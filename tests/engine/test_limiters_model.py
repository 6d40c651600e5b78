"""Limits held against a slow and obvious model: lists that are searched from end to end, and tokens as fractions.

SWITCHGEAR_MODEL_EXAMPLES sets how many conversations are tried; beyond the default they differ from run to run.
"""

from __future__ import annotations

import os
from fractions import Fraction

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from switchgear.model import BEST_FIRST, HIGH, LOW, NORMAL, READY, RUNNING, SECOND_US, Job
from switchgear.policy import Policy, Rate
from switchgear.testing import check_engine
from tests.engine.harness import Harness

EXAMPLES = int(os.environ.get("SWITCHGEAR_MODEL_EXAMPLES", "0"))
KEYS = (b"", b"a", b"b", b"c")
RATES: tuple[Rate | None, ...] = (None, None, (1, SECOND_US), (3, 2 * SECOND_US), (7, 3 * SECOND_US))
numbers = st.integers(0, 20)
policies = st.builds(
    Policy,
    concurrency=st.sampled_from((0, 0, 1, 3)),
    rate=st.sampled_from(RATES),
    key_concurrency=st.sampled_from((0, 0, 1, 2)),
    key_rate=st.sampled_from(RATES),
    fair=st.booleans(),
)


class Bucket:
    """Tokens that come back all the time."""

    def __init__(self, rate: Rate | None) -> None:
        self.rate = rate
        self.tokens = Fraction(rate[0] if rate else 0)

    def wait(self, span_us: int) -> None:
        if self.rate is not None:
            count, period_us = self.rate
            self.tokens = min(Fraction(count), self.tokens + Fraction(span_us * count, period_us))

    def has_one(self) -> bool:
        return self.rate is None or self.tokens >= 1

    def take(self) -> None:
        self.tokens -= 1

    def changed_to(self, rate: Rate | None) -> Bucket:
        """Whole tokens stay, as far as they fit; a full bucket stays full."""
        changed = Bucket(rate)
        if self.rate is not None and rate is not None and self.tokens < self.rate[0]:
            changed.tokens = self.tokens if rate == self.rate else min(changed.tokens, Fraction(int(self.tokens)))
        return changed


class GateAndModel(RuleBasedStateMachine):
    """One function, one worker that asks for each job, and a policy that changes now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness()
        self.engine = self.harness.engine
        self.worker = self.harness.worker()
        self.policy = Policy()
        self.bucket = Bucket(None)
        self.buckets = {key: Bucket(None) for key in KEYS}
        self.queue: list[Job] = []
        self.running: list[Job] = []
        self.action = 0
        self.waiting_since: dict[tuple[int, bytes], int] = {}  # which action gave a key its turn, by priority and key

    # --- the model ---

    def may_run(self, key: bytes) -> bool:
        running = sum(job.key == key for job in self.running)
        is_busy = 0 < self.policy.key_concurrency <= running
        return not key or (not is_busy and self.buckets[key].has_one())

    def is_open(self) -> bool:
        return not 0 < self.policy.concurrency <= len(self.running) and self.bucket.has_one()

    def eligible(self, priority: int) -> list[Job]:
        """Of each key that may run, the first job; in the order of their places."""
        first: dict[bytes, Job] = {}
        for job in self.queue:
            if job.priority == priority and self.may_run(job.key):
                first.setdefault(job.key, job)
        return list(first.values())

    def acceptable(self, priorities: tuple[int, ...]) -> list[Job]:
        """Who may be handed out next."""
        for priority in priorities if self.is_open() else ():
            jobs = self.eligible(priority)
            if jobs and not self.policy.fair:
                return jobs[:1]
            if jobs:
                since = {job: self.waiting_since[priority, job.key] for job in jobs}
                return [job for job in jobs if since[job] == min(since.values())]
        return []

    def end_of_action(self, served: Job | None = None) -> None:
        """Give a turn to each key that has got one."""
        self.action += 1
        known = self.waiting_since
        self.waiting_since = {
            (priority, job.key): known.get((priority, job.key), self.action)
            for priority in BEST_FIRST
            for job in self.eligible(priority)
        }
        if served is not None and (served.priority, served.key) in self.waiting_since:
            self.waiting_since[served.priority, served.key] = self.action
        check_engine(self.engine)
        assert self.harness.function().ready == len(self.queue)
        for job in self.queue:
            is_held_up = not self.is_open() or not self.may_run(job.key)
            assert (self.engine.limiters.why_closed(job) is not None) == is_held_up

    # --- actions ---

    @initialize(policy=policies, keys=st.lists(st.sampled_from(KEYS), max_size=12))
    def begin(self, policy: Policy, keys: list[bytes]) -> None:
        self.change_policy(policy)
        self.submit(keys, NORMAL)

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=6), priority=st.sampled_from((HIGH, NORMAL, NORMAL, LOW)))
    def submit(self, keys: list[bytes], priority: int) -> None:
        for key in keys:
            self.queue.append(self.harness.submit(key=key, priority=priority))
            self.end_of_action()

    @rule(times=st.integers(1, 5), completes=st.booleans())
    def take_some(self, times: int, completes: bool) -> None:
        for _ in range(times):
            self.take(None)
            if completes and self.running:
                self.leave(len(self.running) - 1, "complete")

    @rule(priority=st.none() | st.sampled_from((HIGH, NORMAL, LOW)))
    def take(self, priority: int | None) -> None:
        if priority is None:
            acceptable = self.acceptable(BEST_FIRST)
            job = self.engine.take(self.worker)
        else:
            acceptable = self.acceptable((priority,))
            job = self.engine.take_of(self.worker, self.harness.function(), priority)
        assert job in acceptable if acceptable else job is None
        if job is not None:
            self.queue.remove(job)
            self.running.append(job)
            if self.policy.rate is not None:
                self.bucket.take()
            if self.policy.key_rate is not None and job.key:
                self.buckets[job.key].take()
        self.end_of_action(job)

    @precondition(lambda self: self.running)
    @rule(number=numbers, verb=st.sampled_from(("complete", "complete", "fail", "hand back", "cancel")))
    def leave(self, number: int, verb: str) -> None:
        job = self.running.pop(number % len(self.running))
        assert job.state is RUNNING
        if verb == "complete":
            self.engine.complete(self.worker, job.id, b"")
        elif verb == "fail":
            self.engine.fail(self.worker, job.id)
        elif verb == "hand back":
            self.engine.release(self.worker, job.id)
            self.queue.append(job)
        else:
            self.engine.cancel(job)
        self.end_of_action()

    @precondition(lambda self: self.queue)
    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        job = self.queue.pop(number % len(self.queue))
        assert job.state is READY
        self.engine.cancel(job)
        self.end_of_action()

    @rule(span_us=st.sampled_from((1, 142_857, 333_333, 333_334, SECOND_US, 10 * SECOND_US)))
    def wait(self, span_us: int) -> None:
        self.harness.pass_seconds(span_us / SECOND_US)
        for bucket in (self.bucket, *self.buckets.values()):
            bucket.wait(span_us)
        self.end_of_action()

    @rule(seconds=st.sampled_from((-3600, -1, 1, 3600)))
    def set_clock(self, seconds: float) -> None:
        self.harness.set_clock(seconds)
        self.end_of_action()

    @rule(policy=policies)
    def change_policy(self, policy: Policy) -> None:
        self.engine.set_policy(self.harness.function(), policy)
        self.bucket = self.bucket.changed_to(policy.rate)
        self.buckets = {key: bucket.changed_to(policy.key_rate) for key, bucket in self.buckets.items()}
        if policy != self.policy:
            self.waiting_since = {}
        self.policy = policy
        self.end_of_action()


TestGateAndModel = GateAndModel.TestCase
TestGateAndModel.settings = settings(
    max_examples=EXAMPLES or 100,
    stateful_step_count=60,
    deadline=None,
    derandomize=not EXAMPLES,
    database=None,
    suppress_health_check=list(HealthCheck),
)
