"""The table of refusals: why the engine or the access rules refuse a command, and the answer of each protocol.

`errors.Refused` has the reason.  A protocol that is not in the table has one answer for all reasons: the draft's error
REFUSED, WMP's NO, PING/PONG's FAILED, each with the text of the refusal if there is room for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = [
    "REFUSALS",
    "REFUSED_CONFLICT",
    "REFUSED_COUNT",
    "REFUSED_CYCLE",
    "REFUSED_DRAINING",
    "REFUSED_FULL",
    "REFUSED_LIMIT",
    "REFUSED_MANY",
    "REFUSED_NOT_ALLOWED",
    "REFUSED_RUNNING",
    "REFUSED_STORAGE",
    "REFUSED_UNIDENTIFIED",
    "REFUSED_UNIQUE",
    "Refusal",
]

REFUSED_FULL: Final = "full"
REFUSED_DRAINING: Final = "draining"
REFUSED_STORAGE: Final = "storage"
REFUSED_LIMIT: Final = "limit"
REFUSED_CONFLICT: Final = "conflict"
REFUSED_UNIQUE: Final = "unique"
REFUSED_CYCLE: Final = "cycle"
REFUSED_RUNNING: Final = "running"
REFUSED_NOT_ALLOWED: Final = "not_allowed"
REFUSED_UNIDENTIFIED: Final = "unidentified"
REFUSED_COUNT: Final = "unexpected_count"
REFUSED_MANY: Final = "too_many_jobs"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One row: the answers to one reason."""

    meaning: str
    gearman: str  # the code of the ERROR packet
    gearmonkey: str  # the first word of the error, as in Redis
    dwork: str  # the type of the answer
    http: int  # the status of the answer


REFUSALS: Final[Mapping[str, Refusal]] = {
    REFUSED_FULL: Refusal("there is no room for it in a queue or in memory", "QUEUE_ERROR", "OOM", "Error", 429),
    REFUSED_DRAINING: Refusal("the server is shutting down", "QUEUE_ERROR", "ERR", "Exit", 503),
    REFUSED_STORAGE: Refusal("the store does not work", "QUEUE_ERROR", "MISCONF", "Error", 503),
    REFUSED_LIMIT: Refusal("there are as many things of its kind as may be", "ARGUMENT_TOO_LARGE", "ERR", "Error", 429),
    REFUSED_CONFLICT: Refusal("it contradicts what there is", "INVALID_ARGUMENT", "ERR", "Error", 409),
    REFUSED_UNIQUE: Refusal("another job has the unique key", "ALREADY_SUBMITTED", "ERR", "Error", 409),
    REFUSED_CYCLE: Refusal("jobs would wait for each other", "QUEUE_ERROR", "ERR", "Error", 409),
    REFUSED_RUNNING: Refusal("a worker has the job", "QUEUE_ERROR", "ERR", "Error", 409),
    REFUSED_NOT_ALLOWED: Refusal(
        "the peer does not have the role or the function", "NOT_ALLOWED", "NOPERM", "Error", 403
    ),
    REFUSED_UNIDENTIFIED: Refusal(
        "the peer has not identified itself, and needs a role", "AUTHENTICATION_REQUIRED", "NOAUTH", "Error", 401
    ),
    REFUSED_COUNT: Refusal("another number of jobs was expected", "INVALID_ARGUMENT", "ERR", "Error", 409),
    REFUSED_MANY: Refusal("more jobs match than one action may change", "ARGUMENT_TOO_LARGE", "ERR", "Error", 413),
}
