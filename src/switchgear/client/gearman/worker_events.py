"""Events that `WorkerProtocol` makes of what a server sends to a worker."""

from __future__ import annotations

from dataclasses import dataclass

from switchgear.client.gearman.assigned_job import AssignedJob
from switchgear.errors import ServerRefused

__all__ = [
    "FoundUndeclared",
    "JobAssigned",
    "JobResumed",
    "JobRevoked",
    "JobUnrunnable",
    "ReadyJobsCounted",
    "RefusedByServer",
    "ReportsConfirmed",
    "WorkerEvent",
    "WorkerSubscribed",
]


@dataclass(frozen=True, slots=True)
class WorkerSubscribed:
    """The server knows the functions of the worker, and jobs may come."""

    extended: bool  # the server knows our extensions


@dataclass(frozen=True, slots=True)
class JobAssigned:
    """A job was assigned, and can be run."""

    assignment: AssignedJob


@dataclass(frozen=True, slots=True)
class JobUnrunnable:
    """A job was assigned that cannot be run; the server has been told."""

    assignment: AssignedJob
    error: str


@dataclass(frozen=True, slots=True)
class JobRevoked:
    """The server wants this job stopped; the reason is one word, such as `cancelled` or `timed_out`."""

    handle: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobResumed:
    """The server was asked for a job that this worker still runs; False: the job is another worker's, or has ended."""

    handle: str
    is_ours: bool


@dataclass(frozen=True, slots=True)
class RefusedByServer:
    """The server has answered with an error; `about` is what it answers, if that is known."""

    error: ServerRefused
    about: str = ""


@dataclass(frozen=True, slots=True)
class FoundUndeclared:
    """The server has schedules and limits that the app had declared earlier, and declares no more."""

    schedules: tuple[str, ...]
    functions: tuple[str, ...]  # those with limits
    removed: bool


@dataclass(frozen=True, slots=True)
class ReadyJobsCounted:
    """How many jobs of the functions of the worker are ready at the server."""

    ready: int


@dataclass(frozen=True, slots=True)
class ControlRequested:
    """An operator wants something of the worker, which answers with `send_status` and this number."""

    number: int
    action: str  # one of switchgear.verbs.permitted_values.WORKER_ACTIONS, or one of a later version
    slots: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class ReportsConfirmed:
    """The server has handled everything that was sent before `request_confirmation`."""


WorkerEvent = (
    WorkerSubscribed
    | JobAssigned
    | JobUnrunnable
    | JobRevoked
    | JobResumed
    | RefusedByServer
    | FoundUndeclared
    | ReadyJobsCounted
    | ControlRequested
    | ReportsConfirmed
)
