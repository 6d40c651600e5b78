"""`ProcessAutoscaler`: starts and ends child processes of a worker, between a least and a most number, by the backlog.

Each process has its slot pool, whose connections stay open while it has no process: such a pool rests, and grants no
credit.  So nothing has to be registered again, and a job that is pushed to a pool in the moment in which it goes to
rest is released unharmed, as it is whenever there is no room.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from switchgear.app.worker.executor import Attempt
from switchgear.app.worker.observer import AppWorkerObserver
from switchgear.app.worker.process_executor import ProcessExecutor
from switchgear.app.worker.slot_pool import SlotPool
from switchgear.client.gearman.worker_connection import WorkerConnection

__all__ = ["CHECK_SECONDS", "AutoscaleLimits", "AutoscalePolicy", "ProcessAutoscaler", "parse_autoscale"]

MOST_PROCESSES: Final = 1000
CHECK_SECONDS: Final = 1.0
SHRINK_SECONDS: Final = 30.0  # for so long processes must have been superfluous
# A server that does not answer how many jobs are ready, or refuses to, is asked again after this time.
UNANSWERED_SECONDS: Final = 30.0

_LIMITS: Final = re.compile(r"\s*([0-9]{1,9})\s*,\s*([0-9]{1,9})\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class AutoscaleLimits:
    """The least and the most number of processes."""

    least: int
    most: int


def parse_autoscale(text: str) -> AutoscaleLimits:
    """The limits that `2,10` says; raises ValueError."""
    match = _LIMITS.fullmatch(text)
    if match is None:
        raise ValueError("write two numbers of processes, the least and the most, such as 2,10")
    limits = AutoscaleLimits(int(match[1]), int(match[2]))
    if not 1 <= limits.least <= limits.most <= MOST_PROCESSES:
        raise ValueError(f"the least number of processes comes first, and both are from 1 to {MOST_PROCESSES}")
    return limits


class AutoscalePolicy:
    """Decides how many processes there should be."""

    def __init__(self, limits: AutoscaleLimits, now: float) -> None:
        self._limits = limits
        self._since = now
        self._peak = 0  # of busy processes since then

    def saw_busy(self, busy: int) -> None:
        """Note that this many processes were busy at the same time."""
        self._peak = max(self._peak, busy)

    def may_grow(self, active: int, busy: int) -> bool:
        """Whether there would be more processes if more jobs were ready."""
        return busy >= active < self._limits.most

    def processes(self, now: float, *, active: int, busy: int, ready_jobs: int, starting: int = 0) -> int:
        """How many processes there should be, if `active` are there, of which `starting` cannot take a job yet."""
        self.saw_busy(busy)
        if ready_jobs and self.may_grow(active, busy):
            self._since, self._peak = now, busy
            return min(self._limits.most, active + min(ready_jobs, active))
        if starting:  # an app may take long to import, and whether it was needed is not known before
            self._since = now
        if now - self._since < SHRINK_SECONDS:
            return active
        wanted = max(self._limits.least, min(active, self._peak))
        self._since, self._peak = now, busy
        return wanted


class ProcessAutoscaler:
    """Applies the policy to the pools of a worker.  It belongs to the I/O thread."""

    def __init__(
        self, limits: AutoscaleLimits, pools: Sequence[tuple[SlotPool, ProcessExecutor]], observer: AppWorkerObserver
    ) -> None:
        """The pools beyond the least number of processes are put to rest; they must not be open yet."""
        self._limits = limits
        self._pools = pools
        self._observer = observer
        self._policy: AutoscalePolicy | None = None  # from the first check on
        self._asked_at: float | None = None  # when servers were asked for their ready jobs; None: they have answered
        for _, executor in pools[limits.least :]:
            executor.rest()

    def use_limit(self, processes: int) -> str:
        """Have this number of processes, as far as there are pools for it; returns why not, or an empty text."""
        if processes > len(self._pools):
            return f"this worker was started for at most {len(self._pools)} processes (--autoscale MIN,MAX)"
        self._limits = AutoscaleLimits(processes, processes)
        self._policy = None  # the next check begins with the new limits
        resting = [executor for _, executor in self._pools if executor.resting]
        missing = processes - (len(self._pools) - len(resting))
        for executor in resting[: max(0, missing)]:
            executor.wake()
        return ""

    def attempt_ended(self) -> None:
        """Called when a pool has just become free.

        The number of busy processes is largest just before one of them becomes free, so the peak is exact although it
        is looked at only then.
        """
        if self._policy is not None:
            self._policy.saw_busy(self._busy + 1)

    @property
    def _busy(self) -> int:
        return sum(1 for pool, _ in self._pools if pool.attempts)

    def check(self, now: float) -> None:
        """Start or end processes, if that is due."""
        policy = self._policy = self._policy or AutoscalePolicy(self._limits, now)
        awake = [(pool, executor) for pool, executor in self._pools if not executor.resting]
        active, busy = len(awake), self._busy
        starting = sum(1 for pool, executor in awake if not executor.ready and not pool.attempts)
        may_grow = policy.may_grow(active, busy)
        ready_jobs = self._ready_jobs() if may_grow else 0
        wanted = policy.processes(now, active=active, busy=busy, ready_jobs=ready_jobs, starting=starting)
        if wanted > active:
            self._note(wanted, active, "all are busy, and more jobs are ready")
            for executor in [each for _, each in self._pools if each.resting][: wanted - active]:
                executor.wake()
        elif wanted < active:
            self._shrink(active, wanted)
        if may_grow:
            self._ask(now)
        else:
            self._forget_answers()

    def _shrink(self, active: int, wanted: int) -> None:
        idle = [executor for pool, executor in self._pools if not executor.resting and pool.is_idle]
        ending = idle[max(0, len(idle) - (active - wanted)) :]
        if ending:
            self._note(active - len(ending), active, f"the rest was not needed for {SHRINK_SECONDS:g} s")
        for executor in ending:
            executor.rest()

    def _note(self, wanted: int, active: int, reason: str) -> None:
        self._observer.note(f"{wanted} {'process' if wanted == 1 else 'processes'} instead of {active}: {reason}")

    # --- the backlog; all pools have the same servers and functions, so the first one asks ---

    def _ready_jobs(self) -> int:
        """How many jobs are ready at all servers.  A plain server does not tell: there may be one."""
        pool = self._pools[0][0]
        return sum(
            pool.ready_jobs.get(connection, 0) if connection.protocol.extended else 1
            for connection in pool.connections
            if connection.subscribed
        )

    def _ask(self, now: float) -> None:
        pool = self._pools[0][0]
        if self._asked_at is not None and not self._is_answered and now - self._asked_at < UNANSWERED_SECONDS:
            return
        self._asked_at = now
        for connection in self._asked_connections:
            pool.ready_jobs.pop(connection, None)
            connection.protocol.count_ready_jobs()
            connection.flush_soon()

    def _forget_answers(self) -> None:
        """An answer is of use for the next check only."""
        if self._asked_at is not None and self._is_answered:
            self._asked_at = None
            self._pools[0][0].ready_jobs.clear()

    @property
    def _asked_connections(self) -> list[WorkerConnection[Attempt]]:
        return [each for each in self._pools[0][0].connections if each.subscribed and each.protocol.extended]

    @property
    def _is_answered(self) -> bool:
        return all(connection in self._pools[0][0].ready_jobs for connection in self._asked_connections)
