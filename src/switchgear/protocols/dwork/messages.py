"""The messages of dwork: a QueryMsg and its parts, for servers and clients.

Names of tasks and workers are arbitrary bytes and stay bytes here.  A field that is absent is None, or empty where it
may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

__all__ = ["MOST_LISTED", "LogEntry", "LogState", "Query", "QueryType", "Task"]

# The page size of lists: large enough to read a large graph in few requests, small enough not to block the server.
MOST_LISTED: Final = 1000


class QueryType(IntEnum):
    """The type of a request or answer. Numbers from 100 up are extensions of this server."""

    CREATE = 0
    STEAL = 1
    COMPLETE = 2
    TRANSFER = 3  # as an answer to STEAL: tasks for the worker
    LOOKUP = 4
    NOT_FOUND = 5
    OK = 6  # as a request: the state of the server
    EXIT = 7  # as an answer to STEAL: no tasks are left
    ERROR = 8
    LIST = 100


class LogState(IntEnum):
    """The events in the log of a task."""

    PENDING = 0
    STOLEN = 1
    WAITING = 2
    COPYING = 3
    READY = 4
    STARTED = 5
    DONE = 6
    RECORDED = 7


class LogEntry(NamedTuple):
    """One entry of a task's log."""

    state: int  # a LogState, or an unknown number of another version
    time_us: int  # since the epoch


@dataclass(slots=True)
class Task:
    """A TaskMsg. The locations of dependencies are not kept, because they are not used."""

    name: bytes
    origin: bytes = b""
    predecessors: Sequence[bytes] = ()
    successors: Sequence[bytes] = ()
    log: Sequence[LogEntry] = ()
    # Extensions of this server.
    error: bytes | None = None  # why it failed
    id: int | None = None
    state: int | None = None  # a model.JobState
    after: Sequence[int] = ()  # ids of its predecessors, past and present
    trace: bytes = b""  # the traceparent of its creator's span

    # Written by hand, here and below, because every task of a request passes here: the code that `dataclass` generates
    # is interpreted even if the class is compiled, and takes ten times as long.
    def __init__(
        self,
        name: bytes,
        origin: bytes = b"",
        predecessors: Sequence[bytes] = (),
        successors: Sequence[bytes] = (),
        log: Sequence[LogEntry] = (),
        error: bytes | None = None,
        id: int | None = None,
        state: int | None = None,
        after: Sequence[int] = (),
        trace: bytes = b"",
    ) -> None:
        self.name = name
        self.origin = origin
        self.predecessors = predecessors
        self.successors = successors
        self.log = log
        self.error = error
        self.id = id
        self.state = state
        self.after = after
        self.trace = trace


@dataclass(slots=True)
class Query:
    """A QueryMsg."""

    type: int  # a QueryType, or an unknown number of another version
    tasks: Sequence[Task] = ()
    name: bytes | None = None
    n: int | None = None
    location: bytes | None = None
    # Extensions of this server.
    reason: bytes | None = None  # ERROR, NOT_FOUND
    wait_ms: int | None = None  # STEAL: how long to wait for a task
    lease_ms: int | None = None  # STEAL: the worker's lease
    retry_us: int | None = None  # CREATE: how long ago it was first sent; the answer was lost
    cursor: int | None = None  # LIST: the position of this page and, in the answer, of the next one
    tags: bytes | None = None  # STEAL: the tags of the worker, with commas
    resources: bytes | None = None  # STEAL: its resources, such as memory=64G,cores=8

    def __init__(
        self,
        type: int,
        tasks: Sequence[Task] = (),
        name: bytes | None = None,
        n: int | None = None,
        location: bytes | None = None,
        reason: bytes | None = None,
        wait_ms: int | None = None,
        lease_ms: int | None = None,
        retry_us: int | None = None,
        cursor: int | None = None,
        tags: bytes | None = None,
        resources: bytes | None = None,
    ) -> None:
        self.type = type
        self.tasks = tasks
        self.name = name
        self.n = n
        self.location = location
        self.reason = reason
        self.wait_ms = wait_ms
        self.lease_ms = lease_ms
        self.retry_us = retry_us
        self.cursor = cursor
        self.tags = tags
        self.resources = resources
