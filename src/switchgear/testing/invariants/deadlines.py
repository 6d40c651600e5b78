"""Invariants: everything that has to happen by itself has a deadline, and stale deadlines are few."""

from __future__ import annotations

from collections import Counter

from switchgear.engine.deadlines import LEAST_STALE_FOR_SWEEP, DeadlineKind
from switchgear.engine.engine import Engine
from switchgear.model import RUNNING, SCHEDULED, Job, KeyQueue, Limiter, Schedule, Worker
from switchgear.testing.invariants.broken_invariant import broken
from switchgear.testing.invariants.dependencies import failures_to_tell

__all__ = ["check_deadlines"]


class DeadlineEntries:
    """The entries of the engine's index of deadlines, stale ones included."""

    def __init__(self, engine: Engine) -> None:
        self._counts: Counter[tuple[DeadlineKind, int, int]] = Counter()
        self._live: Counter[DeadlineKind] = Counter()
        self.stale = 0
        for deadline in engine.deadlines:
            at_us, _, kind, subject, _ = deadline
            self._counts[kind, id(subject), at_us] += 1
            if engine.deadline_dispatch.is_live(deadline):
                self._live[kind] += 1
            else:
                self.stale += 1

    def expect(self, kind: DeadlineKind, subject: Job | Worker | Schedule | Limiter | KeyQueue, at_us: int) -> None:
        """The subject must have a deadline of this kind at this time."""
        if not self._counts[kind, id(subject), at_us]:
            broken(f"nothing will happen to {subject} for {kind.name} at {at_us}")

    def live(self, kind: DeadlineKind) -> int:
        """How many deadlines of this kind are not stale."""
        return self._live[kind]


def check_deadlines(engine: Engine) -> None:
    """Check the deadlines of jobs, workers, schedules and limiters, and how many are stale."""
    entries = DeadlineEntries(engine)
    if entries.stale > engine.deadlines.stale:
        broken(f"{entries.stale} deadlines are stale, {engine.deadlines.stale} are counted")
    if len(engine.deadlines) > 2 * (len(engine.deadlines) - entries.stale + LEAST_STALE_FOR_SWEEP):
        broken(f"of {len(engine.deadlines)} deadlines {entries.stale} are stale")
    if engine.pending_failures:
        entries.expect(DeadlineKind.FAILED_DEPENDENCY, engine.pending_failures[0], engine.now_us)
    _check_jobs(engine, entries)
    _check_workers(engine, entries)
    _check_schedules(engine, entries)
    _check_functions(engine, entries)


def _check_jobs(engine: Engine, entries: DeadlineEntries) -> None:
    limited = 0
    for job in engine.jobs.values():
        if job.state is SCHEDULED:
            entries.expect(DeadlineKind.DUE, job, job.run_at_us)
        if job.expires_us and (job.state is not RUNNING or job.expires_us > engine.now_us):
            entries.expect(DeadlineKind.EXPIRY, job, job.expires_us)
        will_be_told = job in engine.pending_failures or not failures_to_tell(engine).isdisjoint(job.predecessors)
        if (
            engine.dependencies.failed_dependency(job)
            and not will_be_told
            and job not in engine.dependencies.linked_later  # it is told when it is linked
            and not entries_for(engine, DeadlineKind.FAILED_DEPENDENCY, job)
        ):
            broken(f"{job} must not go on, and nobody will tell it")
        if job.run_limit:
            limited += 1
            if job.state is not RUNNING:
                broken(f"{job} has a time limit")
    if limited != entries.live(DeadlineKind.RUN_LIMIT):
        broken(f"{limited} jobs have a time limit that nobody watches")


def _check_workers(engine: Engine, entries: DeadlineEntries) -> None:
    for worker in engine.workers.values():
        if worker.lease_until_us:
            entries.expect(DeadlineKind.LEASE, worker, worker.lease_check_us)
            if worker.lease_check_us > worker.lease_until_us:
                broken(f"the lease of {worker} is looked at too late")
        for until_us in (worker.tickets or {}).values():
            entries.expect(DeadlineKind.WAIT_TIMEOUT, worker, until_us)


def _check_schedules(engine: Engine, entries: DeadlineEntries) -> None:
    for schedule in engine.schedules.values():
        if schedule.next_us != (schedule.timetable.next_after_us(schedule.reached_us) or 0):
            broken(f"{schedule} has met its ticks until {schedule.reached_us}, and its next is at {schedule.next_us}")
        if schedule.wake_us:
            entries.expect(DeadlineKind.TICK, schedule, schedule.wake_us)
        elif schedule.next_us and not schedule.paused:
            broken(f"nobody will look at {schedule}")


def _check_functions(engine: Engine, entries: DeadlineEntries) -> None:
    for function in engine.functions.values():
        for job in function.uniques.values():
            if job.unique_until_us:
                entries.expect(DeadlineKind.KEY_HELD, job, job.unique_until_us)
        if function.limiter is not None:
            looked_at: list[Limiter | KeyQueue] = [function.limiter]
            if function.limiter.key_queues is not None:
                looked_at += function.limiter.key_queues.values()
            for limiter in looked_at:
                if limiter.check_us:
                    entries.expect(DeadlineKind.LIMITER, limiter, limiter.check_us)
    pending = sum(function.wakeup_check_pending for function in engine.functions.values())
    if pending != entries.live(DeadlineKind.UNANSWERED_WAKEUP):
        broken(f"{pending} functions have a wakeup check pending, and another number of deadlines")


def entries_for(engine: Engine, kind: DeadlineKind, job: Job) -> int:
    return sum(each is kind and subject is job for _, _, each, subject, _ in engine.deadlines)
