"""Limits in the simulation: random changes, and an independent count of running and started jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Final

from switchgear.engine.sliced_work import SlicedKind
from switchgear.model import NO_RESOURCES, RUNNING, SECOND_US, Cause, Function, Job, Worker
from switchgear.model.job import place_of
from switchgear.policy import Policy, Rate
from switchgear.resources import split_requirements
from switchgear.testing.invariants import broken

if TYPE_CHECKING:
    from switchgear.testing.simulation.simulated_cluster import SimulatedCluster

__all__ = [
    "ALL_RESOURCES",
    "ALL_TAGS",
    "KEYS",
    "REQUIREMENTS",
    "RESOURCES",
    "TAG_SETS",
    "LimitWatch",
    "check_turn",
    "had_fitted",
    "set_policy",
]

KEYS: Final = (b"", b"red", b"green", b"blue")
# What jobs require, and what workers have.
REQUIREMENTS: Final = (
    b"",
    b"",
    b"",
    b"",
    b"gpu",
    b"large",
    b"gpu,large",
    b"gpu,ram=2",
    b"ram=1",
    b"ram=3",
    b"cores=0.5,ram=1",
)
TAG_SETS: Final = (frozenset[bytes](), frozenset({b"gpu"}), frozenset({b"gpu", b"large"}), frozenset({b"large", b"x"}))
ALL_TAGS: Final = frozenset({b"gpu", b"large"})
RESOURCES: Final = (NO_RESOURCES, NO_RESOURCES, {b"ram": 4000}, {b"ram": 2000, b"cores": 1000}, {b"ram": 3500})
ALL_RESOURCES: Final = {b"ram": 4000, b"cores": 2000}
RATES: Final[tuple[Rate | None, ...]] = (None, None, (1, SECOND_US), (3, SECOND_US), (2, 60 * SECOND_US))


def some_policy(rng: Random) -> Policy:
    if rng.random() < 0.2:
        return Policy()
    return Policy(
        concurrency=rng.choice((0, 0, 1, 2, 5)),
        rate=rng.choice(RATES),
        key_concurrency=rng.choice((0, 0, 1, 2)),
        key_rate=rng.choice(RATES),
        fair=rng.random() < 0.5,
    )


def set_policy(world: SimulatedCluster) -> None:
    """Change the limits of a function, or set the same ones again."""
    function = world.engine.function_named(world.rng.choice(world.function_names))
    known = function.limiter.policy if function.limiter is not None else Policy()
    policy = known if world.rng.random() < 0.1 else some_policy(world.rng)
    world.tell(f"{function}: {policy}")
    if policy != known:
        world.limits.forget(function)
    world.engine.set_policy(function, policy)
    world.told.function(function, "limited")


def check_turn(world: SimulatedCluster, worker: Worker, job: Job, ready: list[Job]) -> None:
    """Check that the assigned job was the first of these ready jobs that was allowed to start."""
    if world.engine.sliced_work.is_pending(SlicedKind.LIMITS, job.function):
        return  # those that are not in the queues of their keys yet have to wait
    limiter = job.function.limiter
    equals = [other for other in ready if (other.function, other.priority) == (job.function, job.priority)]
    equals = [other for other in equals if had_fitted(worker, job, other)]
    if limiter is not None and limiter.key_queues is not None:
        if limiter.policy.fair:
            equals = [other for other in equals if (other.key, other.requires) == (job.key, job.requires)]
        else:
            # A job whose key queue is closed has to wait; the queue of this one was open.
            equals = [other for other in equals if other.key == job.key or not is_held_up(other)]
    if min(equals, key=place_of).id != job.id:
        broken(f"{job} was handed out, of {sorted(equals, key=place_of)}")


def had_fitted(worker: Worker, job: Job, other: Job) -> bool:
    """Whether the worker fitted another job before it was given this one."""
    tags, amounts = split_requirements(other.requires)
    before = dict(worker.offer.free) if worker.offer is not None else {}
    for name, amount in (worker.uses or {}).get(job.id, ()):
        if name in before:
            before[name] += amount
    return tags <= worker.tags and all(before.get(name, 0) >= amount for name, amount in amounts)


def is_held_up(job: Job) -> bool:
    limiter = job.function.limiter
    key_queue = limiter.key_queues.get(job.key) if limiter is not None and limiter.key_queues is not None else None
    return key_queue is not None and not key_queue.is_open


class LimitWatch:
    """Counts running jobs and starts, by the time that has really passed."""

    def __init__(self) -> None:
        self.starts: dict[tuple[Function, bytes | None], list[int]] = {}  # by function, and by function and key

    def forget(self, function: Function) -> None:
        """Drop the counts of a function whose limits were changed."""
        self.starts = {counted: times for counted, times in self.starts.items() if counted[0] is not function}

    def observe(self, moves: Iterable[tuple[Job, Cause]], world: SimulatedCluster) -> None:
        """Raise BrokenInvariant for starts that exceed a limit."""
        started = [job for job, cause in moves if cause is Cause.TAKEN and job.function.limiter is not None]
        if not started:
            return
        running: Counter[tuple[Function, bytes | None]] = Counter()
        for job in world.engine.jobs.values():
            if job.state is RUNNING:
                running[job.function, None] += 1
                running[job.function, job.key] += 1
        for job in started:
            function, limiter = job.function, job.function.limiter
            assert limiter is not None
            policy = limiter.policy
            self._check(function, None, policy.concurrency, policy.rate, running, world.span_us)
            if job.key:
                self._check(function, job.key, policy.key_concurrency, policy.key_rate, running, world.span_us)

    def _check(
        self,
        function: Function,
        key: bytes | None,
        most: int,
        rate: Rate | None,
        running: Counter[tuple[Function, bytes | None]],
        now_us: int,
    ) -> None:
        counted = function, key
        if 0 < most < running[counted]:
            broken(f"of {function}, key {key!r}, {running[counted]} run, and only {most} may")
        if rate is None:
            return
        times = self.starts.setdefault(counted, [])
        times.append(now_us)
        count, period_us = rate
        for place, since_us in enumerate(times):
            # As many as the bucket holds, and the tokens that returned since.
            if len(times) - place > count + (now_us - since_us) * count // period_us:
                broken(f"of {function}, key {key!r}, {len(times) - place} were started in {now_us - since_us} µs")
