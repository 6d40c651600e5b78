"""The words for where a job is, how it came there, and what may be wanted of it.

Most of the numbers behind them are stored; those are never changed.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = [
    "CANCELLED",
    "DONE",
    "EXPIRED",
    "FAILED",
    "FINAL_STATES",
    "QUEUED_STATES",
    "READY",
    "RUNNING",
    "SCHEDULED",
    "WAITING",
    "CatchUp",
    "Cause",
    "Delivery",
    "EdgePolicy",
    "JobState",
    "UniquePolicy",
    "UniqueScope",
]


class JobState(IntEnum):
    """Where a job is in its life.  The numbers are stored; never renumber them."""

    WAITING = 0  # for its predecessors
    SCHEDULED = 1  # for a time
    READY = 2  # for a worker
    RUNNING = 3
    DONE = 4
    FAILED = 5
    CANCELLED = 6
    EXPIRED = 7


WAITING: Final = JobState.WAITING
SCHEDULED: Final = JobState.SCHEDULED
READY: Final = JobState.READY
RUNNING: Final = JobState.RUNNING
DONE: Final = JobState.DONE
FAILED: Final = JobState.FAILED
CANCELLED: Final = JobState.CANCELLED
EXPIRED: Final = JobState.EXPIRED

QUEUED_STATES: Final = frozenset({WAITING, SCHEDULED, READY})
FINAL_STATES: Final = frozenset({DONE, FAILED, CANCELLED, EXPIRED})


class Cause(IntEnum):
    """Why a job moved.  Each cause leads to exactly one state (`engine.lifecycle`), so a log of causes and times is
    a log of states.  The numbers are stored; never renumber them."""

    SUBMITTED = 0  # and may run at once
    SUBMITTED_EARLY = 1  # before its run-at time
    SUBMITTED_WAITING = 2  # before its predecessors are done
    RELEASED = 3  # the last predecessor is done
    RELEASED_EARLY = 4  # the last predecessor is done, its time has not come
    DUE = 5
    HELD_BACK = 6  # a predecessor was added
    TAKEN = 7
    SUCCEEDED = 8
    SETTLED = 9  # reported done while no worker held it
    ENDED_BADLY = 10  # its worker reported failure
    WORKER_LOST = 11
    TIMED_OUT = 12
    GIVEN_BACK = 13  # its worker returned it unharmed; no attempt is spent
    RETRY_LATER = 14  # its worker asked for another try after a pause
    EXHAUSTED = 15  # lost or timed out, and no attempt is left: the job is dead
    CANCELLED = 16
    ABANDONED = 17  # nobody waits for its result any more
    EXPIRED = 18
    RETRIED = 19  # a person or program asked for a finished job to run again
    SERVER_LOST = 20  # the server stopped while the job was running
    RETRIED_WAITING = 21  # retried, and not all its predecessors are done
    SKIPPED = 22  # a predecessor did not succeed, and the edge says that this job is then not wanted
    DOOMED = 23  # a predecessor did not succeed, and the edge says that this job then fails too
    REPLACED = 24  # another with the same unique key was submitted in its place


class Delivery(IntEnum):
    """What the submitter wants of the result.  The numbers are stored."""

    WAIT = 0  # stays connected for it; without a waiting submitter the job is pointless
    HANDLE = 1  # may ask for it later
    THROW_AWAY = 2


class EdgePolicy(IntEnum):
    """What becomes of a job when one it waits for ends without success.  The numbers are stored."""

    WAIT = 0  # it waits on: the other may be retried
    SKIP = 1  # it is cancelled
    FAIL = 2  # it fails
    RUN = 3  # it runs anyway, as if the other were done


class UniqueScope(IntEnum):
    """How long a job's unique key is its own.  The numbers are stored."""

    UNFINISHED = 0  # until its end
    QUEUED = 1  # until it is started


class UniquePolicy(IntEnum):
    """What becomes of a submission whose unique key is taken."""

    JOIN = 0  # it is the job that has the key
    REJECT = 1  # it is refused
    REPLACE = 2  # the job that has the key is cancelled, and this one comes in its place


class CatchUp(IntEnum):
    """What becomes of the ticks of a schedule that were missed.  The numbers are stored."""

    NONE = 0  # nothing
    LATEST = 1  # the last of them is made up for
    ALL = 2  # all of them are, up to a bound
