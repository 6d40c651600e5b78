"""Limits in the simulation: operators that change them, and an onlooker who counts for himself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Final

from switchgear.engine.queues import place_of
from switchgear.model import RUNNING, SECOND_US, Cause, Function, Job
from switchgear.policy import Policy, Rate
from switchgear.testing.invariants import broken

if TYPE_CHECKING:
    from switchgear.testing.simulation.simulated_cluster import SimulatedCluster

__all__ = ["KEYS", "LimitWatch", "check_turn", "set_policy"]

KEYS: Final = (b"", b"red", b"green", b"blue")
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
    """An operator changes the limits of a function, or says the same once more."""
    function = world.engine.function_named(world.rng.choice(world.function_names))
    known = function.gate.policy if function.gate is not None else Policy()
    policy = known if world.rng.random() < 0.1 else some_policy(world.rng)
    world.tell(f"{function}: {policy}")
    if policy != known:
        world.limits.forget(function)
    world.engine.set_policy(function, policy)


def check_turn(job: Job, ready: list[Job]) -> None:
    """The job was handed out, and these were ready: was it the first of those that might have been?"""
    gate = job.function.gate
    equals = [other for other in ready if (other.function, other.priority) == (job.function, job.priority)]
    if gate is not None and gate.lanes is not None:
        if gate.policy.fair:
            equals = [other for other in equals if other.key == job.key]
        else:
            # Whoever shares a closed lane with others has to wait; this one's was open.
            equals = [other for other in equals if other.key == job.key or not is_held_up(other)]
    if min(equals, key=place_of).id != job.id:
        broken(f"{job} was handed out, of {sorted(equals, key=place_of)}")


def is_held_up(job: Job) -> bool:
    gate = job.function.gate
    lane = gate.lanes.get(job.key) if gate is not None and gate.lanes is not None else None
    return lane is not None and not lane.is_open


class LimitWatch:
    """Counts who runs, and when jobs were started, by the time that has really passed."""

    def __init__(self) -> None:
        self.starts: dict[tuple[Function, bytes | None], list[int]] = {}  # by function, and by function and key

    def forget(self, function: Function) -> None:
        """Its limits are others now."""
        self.starts = {counted: times for counted, times in self.starts.items() if counted[0] is not function}

    def observe(self, moves: Iterable[tuple[Job, Cause]], world: SimulatedCluster) -> None:
        """Complain about starts that should not have been."""
        started = [job for job, cause in moves if cause is Cause.TAKEN and job.function.gate is not None]
        if not started:
            return
        running: Counter[tuple[Function, bytes | None]] = Counter()
        for job in world.engine.jobs.values():
            if job.state is RUNNING:
                running[job.function, None] += 1
                running[job.function, job.key] += 1
        for job in started:
            function, gate = job.function, job.function.gate
            assert gate is not None
            policy = gate.policy
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
            # As many as the bucket holds, and what came back to it since.
            if len(times) - place > count + (now_us - since_us) * count // period_us:
                broken(f"of {function}, key {key!r}, {len(times) - place} were started in {now_us - since_us} µs")
