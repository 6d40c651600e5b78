"""Tasks and servers as a dwork client sees them: records, stolen tasks, status.

Names are bytes to a server and text in Python: bytes that are not UTF-8 are decoded as in file names (surrogateescape),
so that every name survives the round trip.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from switchgear.model import FINAL_STATES, JobState
from switchgear.protocols.dwork.messages import LogState, Query
from switchgear.protocols.dwork.messages import Task as TaskMessage

__all__ = ["NewTask", "ServerStatus", "Stolen", "StolenTask", "TaskRecord", "bytes_of", "text_of"]

_STARTS: Final = frozenset({LogState.STOLEN, LogState.STARTED})
_FINAL_STATES: Final = frozenset(state.name.lower() for state in FINAL_STATES)
_STATUS: Final = re.compile(rb"(?<!\d)(-?\d{1,18}) active tasks?, (-?\d{1,18}) ready")


def text_of(name: bytes) -> str:
    """A name as text."""
    return name.decode(errors="surrogateescape")


def bytes_of(name: str | bytes) -> bytes:
    """A name as it is sent."""
    return name.encode(errors="surrogateescape") if isinstance(name, str) else name


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to be created, after others are done."""

    name: str | bytes
    after: tuple[str | bytes, ...] = ()
    trace: str = ""  # the traceparent of the creator's span; needs a Switchgear server


@dataclass(frozen=True, slots=True)
class StolenTask:
    """A task that a server has handed out."""

    name: str
    origin: str  # a host name; what it means is the server's business
    stolen_us: int  # when, by the server's clock
    trace: str = ""  # the traceparent of its creator's span


@dataclass(frozen=True, slots=True)
class Stolen:
    """The answer to a Steal: some tasks, or none."""

    tasks: tuple[StolenTask, ...] = ()
    all_done: bool = False  # nothing is left to do: all are done, except those that are stuck
    stuck: int = 0  # if no task is left: how many tasks wait for a failed one

    def __iter__(self) -> Iterator[StolenTask]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    @classmethod
    def task_of(cls, task: TaskMessage) -> StolenTask:
        stolen_us = next((at_us for state, at_us in reversed(task.log) if state == LogState.STOLEN), 0)
        return StolenTask(text_of(task.name), text_of(task.origin), stolen_us, text_of(task.trace))


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The status of a server."""

    active: int  # tasks that are not done
    ready: int  # those of them that could be stolen now
    text: str  # in the server's own words

    @classmethod
    def of(cls, answer: Query) -> ServerStatus:
        text = answer.name or b""
        match = _STATUS.search(text)
        ready = answer.n if answer.n is not None else int(match[2]) if match else 0
        return cls(int(match[1]) if match else ready, ready, text_of(text))


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A server's record of a task."""

    name: str
    id: int
    state: str  # waiting, ready, running, done, failed, cancelled or expired
    location: str  # who has it, a worker or the server itself; empty if that was not asked for
    error: str | None  # why it failed
    after: tuple[int, ...]  # ids of the tasks that it waits for, or has waited for
    started_us: int  # when it was last handed out; 0: never
    ended_us: int  # 0: not yet

    @classmethod
    def of(cls, task: TaskMessage, location: bytes | None = None) -> TaskRecord:
        state = _state_name(task.state)
        started_us = next((at_us for entry, at_us in reversed(task.log) if entry in _STARTS), 0)
        return cls(
            name=text_of(task.name),
            id=task.id or 0,
            state=state,
            location=text_of(location or b""),
            error=None if task.error is None else text_of(task.error),
            after=tuple(task.after),
            started_us=started_us,
            ended_us=task.log[-1].time_us if task.log and state in _FINAL_STATES else 0,
        )

    def seconds(self, now_us: int) -> float:
        """How long the task ran, or has been running; 0 if it has not been started."""
        if not self.started_us:
            return 0.0
        end_us = self.ended_us or (now_us if self.state == "running" else 0)
        return max(0, end_us - self.started_us) / 1e6


def _state_name(state: int | None) -> str:
    try:
        return "unknown" if state is None else JobState(state).name.lower()
    except ValueError:
        return f"state {state}"
