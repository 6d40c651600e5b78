"""The words of dwork: what a QueryMsg and its parts say, as both sides see them.

Names of tasks and workers are arbitrary bytes and stay bytes here.  A field that is absent is None, or empty where it
may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

__all__ = ["MOST_LISTED", "LogEntry", "LogState", "Query", "QueryType", "Task"]

# A page of a list: long enough that a large graph is read in few requests, short enough not to hold up the server.
MOST_LISTED: Final = 1000


class QueryType(IntEnum):
    """What a message asks or answers.  Numbers from 100 up are this server's own."""

    CREATE = 0
    STEAL = 1
    COMPLETE = 2
    TRANSFER = 3  # as an answer to STEAL: here are tasks
    LOOKUP = 4
    NOT_FOUND = 5
    OK = 6  # as a request: how are you?
    EXIT = 7  # as an answer to STEAL: there is nothing left to do
    ERROR = 8
    LIST = 100


class LogState(IntEnum):
    """What happened to a task, in the words of its log."""

    PENDING = 0
    STOLEN = 1
    WAITING = 2
    COPYING = 3
    READY = 4
    STARTED = 5
    DONE = 6
    RECORDED = 7


class LogEntry(NamedTuple):
    """One line of a task's log."""

    state: int  # a LogState, or what another version knows besides
    time_us: int  # since the epoch


@dataclass(slots=True)
class Task:
    """A TaskMsg.  Where dependencies say where they are, that is not kept; nobody has a use for it."""

    name: bytes
    origin: bytes = b""
    predecessors: Sequence[bytes] = ()
    successors: Sequence[bytes] = ()
    log: Sequence[LogEntry] = ()
    # From here on this server's own.
    error: bytes | None = None  # why it failed
    id: int | None = None
    state: int | None = None  # a model.JobState
    after: Sequence[int] = ()  # ids of the tasks that it waits for, or has waited for


@dataclass(slots=True)
class Query:
    """A QueryMsg."""

    type: int  # a QueryType, or what another version knows besides
    tasks: Sequence[Task] = ()
    name: bytes | None = None
    n: int | None = None
    location: bytes | None = None
    # From here on this server's own.
    reason: bytes | None = None  # ERROR, NOT_FOUND
    wait_ms: int | None = None  # STEAL: wait up to so long for a task
    lease_ms: int | None = None  # STEAL: there will be a sign of life this often
    retry_us: int | None = None  # CREATE: first sent so long ago, and the answer was lost
    cursor: int | None = None  # LIST: where this page begins, and in the answer the next one
