"""A job as a server assigns it to a worker, and the outcomes that a worker can report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

__all__ = ["SUSPENDED", "AssignedJob", "Complete", "Fail", "Outcome", "RetryLater", "Stopped"]


class AssignedJob(msgspec.Struct, frozen=True):
    """One attempt of a job."""

    handle: str
    function: str
    payload: bytes
    unique: str = ""
    attempt: int = 1  # how often the job was started, this attempt included
    losses: int = 0  # how many of these starts were lost with their workers
    attempts_limit: int = 0  # of the job itself; 0: the task decides
    timeout_seconds: float = 0.0  # 0: none
    results: Mapping[str, bytes | None] = msgspec.field(default_factory=dict)  # by handle, of jobs among its arguments
    # By handle, of those without success: state, result (none), cause and error.
    failures: Mapping[str, tuple[str, bytes, str, bytes]] = msgspec.field(default_factory=dict)
    trace: str = ""  # the traceparent of its submitter's span


@dataclass(frozen=True, slots=True)
class Complete:
    """The job has succeeded, with this result."""

    result: bytes


@dataclass(frozen=True, slots=True)
class Fail:
    """The job has failed, and is not tried again.  Without an error, no reason is given."""

    error: str


@dataclass(frozen=True, slots=True)
class RetryLater:
    """The attempt has failed, and the job is to be tried again after a delay."""

    delay_seconds: float
    error: str
    attempts_limit: int = 0  # of the task, for jobs that have none


# The reason of an attempt that ended because its job waits at the server now. It is not reported: the server has told
# the worker, or is about to, that the job is no longer its own.
SUSPENDED: Final = "it waits for something else"


@dataclass(frozen=True, slots=True)
class Stopped:
    """The attempt was stopped before its end, for this reason."""

    reason: str


Outcome = Complete | Fail | RetryLater | Stopped
