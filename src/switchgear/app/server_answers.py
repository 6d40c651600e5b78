"""Answers of a server as typed objects: jobs, functions, schedules, workers, the server, explanations."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from switchgear.client.gearman.job_subscriber import Progress

__all__ = [
    "ConnectionInfo",
    "Explanation",
    "FunctionInfo",
    "JobInfo",
    "NodeInfo",
    "ScheduleInfo",
    "ServerInfo",
    "WorkerInfo",
]


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job as the server sees it at one moment.  `details` has the server's whole answer."""

    handle: str
    task: str  # the name of its task, or function
    state: str  # waiting, scheduled, ready, running, done, failed, cancelled, expired
    dead: bool  # failed because its attempts were lost or timed out
    attempts: int  # how often it was started
    priority: str
    progress: Progress | None
    message: str  # what it says it is doing
    error: str | None  # what its worker said about a failure; the first line is the exception
    created_at: datetime
    run_at: datetime | None
    expires_at: datetime | None
    finished_at: datetime | None
    predecessors: tuple[str, ...]
    label: str = ""  # what people see beside the task
    key: str = ""  # what limits and fair sharing count by
    details: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> JobInfo:
        """Convert the JSON answer of the server to this class."""
        message = _text(answer.get("message")) or ""
        numerator, denominator = answer.get("numerator", 0), answer.get("denominator", 0)
        return cls(
            handle=answer["handle"],
            task=_text(answer["function"]) or "",
            state=answer["state"],
            dead=answer["dead"],
            attempts=answer["attempts"],
            priority=answer["priority"],
            progress=Progress(numerator, denominator, message) if numerator or denominator or message else None,
            message=message,
            error=_text(answer["error"]),
            created_at=datetime.fromtimestamp(answer["created_at"], UTC),
            run_at=_moment(answer["run_at"]),
            expires_at=_moment(answer["expires_at"]),
            finished_at=_moment(answer["finished_at"]),
            predecessors=tuple(answer.get("predecessors", ())),
            label=_text(answer.get("label")) or "",
            key=_text(answer.get("key")) or "",
            details=answer,
        )

    @property
    def is_finished(self) -> bool:
        """Whether the job has ended, in any state."""
        return self.state in ("done", "failed", "cancelled", "expired")


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """A function as the server sees it.  `details` has the server's whole answer."""

    name: str
    ready: int
    running: int
    waiting_or_scheduled: int
    workers: int
    paused: bool
    done: int  # this and the next: since the server started
    failed: int
    details: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> FunctionInfo:
        """Convert the JSON answer of the server to this class."""
        names = ("ready", "running", "waiting_or_scheduled", "workers", "paused", "done", "failed")
        return cls(_text(answer["name"]) or "", **{name: answer[name] for name in names}, details=answer)


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule as the server keeps it.  `details` has the server's whole answer."""

    name: str
    task: str  # the name of its task, or function
    spec: str  # its timetable in words: a cron line, or an interval
    timezone: str
    catch_up: str
    overlap: bool
    paused: bool
    next_at: datetime | None  # None while it is paused
    last_at: datetime | None
    last_job: str | None  # its handle
    last_state: str | None  # of that job, while it is remembered
    fired: int  # ticks for which a job was made
    skipped: int  # ticks that passed because the last job was unfinished
    missed: int  # ticks that were over before the server could meet them
    details: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> ScheduleInfo:
        """Convert the JSON answer of the server to this class."""
        names = ("spec", "timezone", "catch_up", "overlap", "paused", "last_job", "last_state")
        counts = ("fired", "skipped", "missed")
        return cls(
            name=_text(answer["name"]) or "",
            task=_text(answer["function"]) or "",
            next_at=_moment(answer["next_at"]),
            last_at=_moment(answer["last_at"]),
            **{name: answer[name] for name in (*names, *counts)},
            details=answer,
        )


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as the server sees it.  `details` has the server's whole answer."""

    name: str
    protocol: str
    address: str
    functions: tuple[str, ...]
    running: tuple[str, ...]  # handles
    details: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> WorkerInfo:
        """Convert the JSON answer of the server to this class."""
        functions = tuple(_text(name) or "" for name in answer["functions"])
        return cls(
            cls.name_of(answer),
            answer["protocol"],
            answer["address"],
            functions,
            tuple(answer["running"]),
            details=answer,
        )

    @staticmethod
    def name_of(answer: Mapping[str, Any]) -> str:
        """The name of a worker in an answer of the server."""
        return _text(answer["name"]) or ""


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """A connection as the server sees it.  `details` has the server's whole answer."""

    address: str
    protocol: str
    name: str  # as the peer calls itself
    held_bytes: int  # what the server holds in memory for it
    details: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> ConnectionInfo:
        """Convert the JSON answer of the server to this class."""
        name = _text(answer["client_id"]) or ""
        return cls(answer["address"], answer["protocol"], name, answer["held"], details=answer)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One of several servers that share their jobs.  `details` has the server's whole answer."""

    name: str
    address: str
    role: str  # owner, standby or gone
    silent_seconds: float  # since its last sign of life
    details: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> NodeInfo:
        """Convert the JSON answer of the server to this class."""
        return cls(answer["name"], answer["address"], answer["role"], answer["silent_seconds"], details=answer)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The state of a server.  `details` has its whole answer."""

    version: str
    process_id: int
    uptime_seconds: float
    store: str
    jobs: int  # unfinished
    workers: int
    details: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> ServerInfo:
        """Convert the JSON answer of the server to this class."""
        names = ("version", "uptime_seconds", "store", "jobs", "workers")
        return cls(process_id=answer["pid"], **{name: answer[name] for name in names}, details=answer)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is in its state; `str` of it is for people.  `details` has the server's whole answer."""

    handle: str
    state: str
    reasons: tuple[str, ...]
    details: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def read(cls, handle: str, answer: Mapping[str, Any]) -> Explanation:
        """Convert the JSON answer of the server to this class."""
        return cls(handle, str(answer.get("state", "")), tuple(_reasons(answer)), details=answer)

    def __str__(self) -> str:
        lines = [f"{self.handle} is {self.state}"]
        if len(self.reasons) == 1:
            return f"{lines[0]}: {self.reasons[0]}"
        return "\n".join([lines[0] + (":" if self.reasons else ""), *(f"- {reason}" for reason in self.reasons)])


def _reasons(answer: Mapping[str, Any]) -> Iterator[str]:
    for reason in answer.get("reasons", ()):
        yield reason if isinstance(reason, str) else str(reason.get("text", reason))


def _text(value: Any) -> str | None:
    """Text of an answer; bytes that are not UTF-8 come as an object with the key base64."""
    if isinstance(value, dict) and "base64" in value:
        return base64.b64decode(value["base64"]).decode(errors="backslashreplace")
    return None if value is None else str(value)


def _moment(seconds: float | None) -> datetime | None:
    """A time in an answer as datetime; times beyond the calendar become its last moment."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.max.replace(tzinfo=UTC)
