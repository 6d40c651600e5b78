"""`Prefetch`: how many jobs a pool holds beyond its slots, so that a free slot need not wait for the server.

A held job counts as running at the server: its time limit has begun, and no other worker can have it.  So without a
setting, a pool holds no more jobs than it will have started within 10 ms, by the recent run times of their tasks.  It
holds none while it has a job whose task is slow, unknown or limited.  If a held job has waited for longer than that,
the jobs are released that would not be held by the current estimate, and after a while all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from switchgear.client.gearman.assigned_job import AssignedJob

if TYPE_CHECKING:
    from switchgear.app.task import Task

__all__ = ["MOST_PREFETCH", "Prefetch"]

MOST_PREFETCH: Final = 100_000  # the largest setting
AHEAD_SECONDS: Final = 0.01  # what is held should have begun by then
MOST_AHEAD: Final = 128  # more would not save anything
QUICK_SECONDS: Final = 0.0002  # starting another thread for such a job takes longer than to wait for one
SHORT_LIMIT_SECONDS: Final = 5.0  # of a time limit as short as this, waiting would take a part that counts
PAUSE_SECONDS: Final = 1.0  # after held jobs had to be released
# An estimate is doubled by a job that took longer and shrinks by a fifth with one that did not.  So about three jobs of
# four are within it, a pause of the whole process changes little, and a few slow jobs are enough to be noticed.
GROWTH: Final = 2.0
SHRINKAGE: Final = 0.8
LEAST_SECONDS: Final = 1e-6


class Prefetch:
    """Estimates run times from the jobs of a pool, and decides how many to hold.  Belongs to the I/O thread."""

    def __init__(self, wanted: int | None, tasks: Iterable[Task[Any, Any]], most: int = MOST_AHEAD) -> None:
        """`wanted` is a fixed number of jobs to hold; None: the number is estimated, and is at most `most`."""
        self._wanted = wanted
        self._most = min(most, MOST_AHEAD)
        self._limited = {task.name for task in tasks if task.settings.limits() or _is_short(task.settings.timeout)}
        self._seconds: dict[str, float] = {}  # estimates by function
        self._here: dict[str, int] = {}  # jobs by function
        self._latest = ""  # the function of the job that ended last
        self._paused_until = 0.0

    def arrived(self, assignment: AssignedJob) -> bool:
        """Count an assigned job; returns whether it will take very little time."""
        function = assignment.function
        if assignment.timeout_seconds and _is_short(assignment.timeout_seconds):
            self._limited.add(function)
        here = self._here
        here[function] = here.get(function, 0) + 1
        return self._seconds.get(function, 1.0) <= QUICK_SECONDS

    def left(self, function: str, took_seconds: float | None) -> None:
        """Remove a job, which has run for `took_seconds`; None if it was not run to its end."""
        here = self._here
        here[function] -= 1
        if not here[function]:
            del here[function]
        if took_seconds is not None:
            self._latest = function
            known = self._seconds.get(function)
            if known is None:
                known = took_seconds
            else:
                known *= GROWTH if took_seconds > known else SHRINKAGE
            self._seconds[function] = max(known, LEAST_SECONDS)

    def ahead(self, now: float) -> int:
        """How many jobs may be held beyond the slots."""
        if self._wanted is not None:
            return self._wanted
        if now < self._paused_until:
            return 0
        slowest_seconds = LEAST_SECONDS
        for function in self._here or (self._latest,):
            seconds = self._seconds.get(function)
            if seconds is None or function in self._limited:
                return 0
            if seconds > slowest_seconds:
                slowest_seconds = seconds
        return min(self._most, int(AHEAD_SECONDS / slowest_seconds))

    def give_up(self, now: float) -> bool:
        """A job was held for too long: hold none for a while; returns whether all held jobs should be released."""
        if self._wanted is not None:
            return False
        self._paused_until = now + PAUSE_SECONDS
        return True


def _is_short(limit_seconds: float | None) -> bool:
    return limit_seconds is not None and 0 < limit_seconds < SHORT_LIMIT_SECONDS
