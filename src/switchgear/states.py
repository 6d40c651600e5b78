"""The enumerations of a job: its states, causes of transitions, delivery modes, unique policies and edge policies.

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
    "PRIORITY_NAMES",
    "QUEUED_STATES",
    "READY",
    "RUNNING",
    "SCHEDULED",
    "UNSUCCESSFUL_STATES",
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
    """The state of a job. The numbers are stored; never renumber them."""

    WAITING = 0  # for predecessors
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
UNSUCCESSFUL_STATES: Final = frozenset({FAILED, CANCELLED, EXPIRED})

PRIORITY_NAMES: Final = ("high", "normal", "low")  # the priorities that a submitter can choose


class Cause(IntEnum):
    """The cause of a change of state. Each cause leads to exactly one state (`engine.lifecycle`), so a log of causes
    and times is a log of states. The numbers are stored; never renumber them."""

    SUBMITTED = 0  # may run at once
    SUBMITTED_EARLY = 1  # before its run-at time
    SUBMITTED_WAITING = 2  # before its predecessors are done
    RELEASED = 3  # the last predecessor is done
    RELEASED_EARLY = 4  # the last predecessor is done, but the run-at time has not come
    DUE = 5
    HELD_BACK = 6  # a predecessor was added
    TAKEN = 7
    SUCCEEDED = 8
    SETTLED = 9  # reported done while no worker held it
    ENDED_BADLY = 10  # its worker reported failure, or the store has lost its payload
    WORKER_LOST = 11
    TIMED_OUT = 12
    GIVEN_BACK = 13  # its worker released it; the attempt does not count
    RETRY_LATER = 14  # its worker asked for a retry after a pause
    EXHAUSTED = 15  # lost or timed out, and no attempt is left: the job is dead
    CANCELLED = 16
    ABANDONED = 17  # no client waits for its result any more
    EXPIRED = 18
    RETRIED = 19  # a finished job is run again on request
    SERVER_LOST = 20  # the server stopped while the job was running
    RETRIED_WAITING = 21  # retried, and not all its predecessors are done
    SKIPPED = 22  # a predecessor did not succeed, and the edge cancels this job
    DOOMED = 23  # a predecessor did not succeed, and the edge makes this job fail
    REPLACED = 24  # replaced by another submission with the same unique key
    RESCHEDULED = 25  # its run-at time was changed


class Delivery(IntEnum):
    """How the submitter uses the result. The numbers are stored."""

    WAIT = 0  # waits for it on the connection; without a waiting submitter the job is pointless
    HANDLE = 1  # may ask for it later
    THROW_AWAY = 2


class EdgePolicy(IntEnum):
    """What happens to a job if a predecessor ends without success. The numbers are stored."""

    WAIT = 0  # keeps waiting: the predecessor may be retried
    SKIP = 1  # is cancelled
    FAIL = 2  # fails
    RUN = 3  # runs anyway, as if the predecessor were done
    ERROR = 4  # runs only if a predecessor failed or expired, when all have ended; otherwise it is skipped


class UniqueScope(IntEnum):
    """How long a job has its unique key. The numbers are stored."""

    UNFINISHED = 0  # until its end
    QUEUED = 1  # until it starts


class LateReport(IntEnum):
    """The outcome of a report on a job that was taken from its worker."""

    UNKNOWN = 0  # the worker never had the job, or too long ago
    ACCEPTED = 1  # the result is the first, and counts
    DROPPED = 2  # the report changes nothing
    UNWANTED = 3  # the report changes nothing, as expected: the job was cancelled, or done by another worker


class UniquePolicy(IntEnum):
    """What happens to a submission whose unique key is taken."""

    JOIN = 0  # joins the job that has the key
    REJECT = 1  # is refused
    REPLACE = 2  # replaces the job that has the key, which is cancelled


class CatchUp(IntEnum):
    """What happens to missed ticks of a schedule. The numbers are stored."""

    NONE = 0  # no job is made
    LATEST = 1  # a job is made for the last of them
    ALL = 2  # a job is made for each of them, up to a limit
