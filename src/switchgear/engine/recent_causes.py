"""`RecentCauses`: remembers why the latest unsuccessful jobs ended, for jobs that are submitted after them.

A job that waits for one of them ends with its error. The texts come from workers, so they are counted in the memory
account, and the oldest are forgotten when they fill their share of it. A job whose cause is forgotten ends all the
same, with an error that names its predecessor and has no text.
"""

from __future__ import annotations

from typing import Final

from switchgear.engine.predecessor_error import RootCause
from switchgear.memory import MemoryAccount

__all__ = ["CAUSE_BYTES", "RecentCauses"]

MOST_RECENT_CAUSES: Final = 10_000
# The approximate memory of one entry without its text.
CAUSE_BYTES: Final = 300


class RecentCauses:
    """Causes by job, the oldest first. Jobs that ended for the same cause share one object, which counts for each."""

    def __init__(self, memory: MemoryAccount) -> None:
        self.held_bytes = 0
        self._memory = memory
        self._causes: dict[int, RootCause] = {}
        self._functions: dict[int, bytes] = {}  # the function of each of these jobs: who may hear of them

    def __len__(self) -> int:
        return len(self._causes)

    def get(self, job_id: int) -> RootCause | None:
        """Why this job was unsuccessful; None if that is not known any more."""
        return self._causes.get(job_id)

    def function_of(self, job_id: int) -> bytes | None:
        """The function of a job whose cause is known; None if it is not."""
        return self._functions.get(job_id)

    def remember(self, job_id: int, function: bytes, cause: RootCause) -> None:
        """Remember why a job was unsuccessful. The oldest causes are forgotten if there are too many."""
        self.forget(job_id)
        self._causes[job_id] = cause
        self._functions[job_id] = function
        self._count(CAUSE_BYTES + len(cause.text))
        limit_bytes = self._memory.failure_limit_bytes // 2
        while len(self._causes) > MOST_RECENT_CAUSES or 0 < limit_bytes < self.held_bytes:
            self.forget(next(iter(self._causes)))

    def forget(self, job_id: int) -> None:
        """Forget the cause of a job, if there is one."""
        cause = self._causes.pop(job_id, None)
        if cause is not None:
            del self._functions[job_id]
            self._count(-CAUSE_BYTES - len(cause.text))

    def clear(self) -> None:
        """Forget everything."""
        self._causes.clear()
        self._functions.clear()
        self._count(-self.held_bytes)

    def _count(self, more_bytes: int) -> None:
        self.held_bytes += more_bytes
        self._memory.failure_bytes += more_bytes
