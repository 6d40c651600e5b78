"""What a worker hears from a server."""

from __future__ import annotations

from dataclasses import dataclass

from switchgear.app.job_execution import AssignedJob
from switchgear.errors import ServerRefused

__all__ = [
    "Arrived",
    "Event",
    "QueuesSeen",
    "RefusedByServer",
    "ReportAccepted",
    "Revoked",
    "Subscribed",
    "Unrunnable",
]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The server knows what we can do, and jobs may come."""

    extended: bool  # it speaks our extensions


@dataclass(frozen=True, slots=True)
class Arrived:
    """A job to be run."""

    assignment: AssignedJob


@dataclass(frozen=True, slots=True)
class Unrunnable:
    """A job that cannot be run; the server has been told."""

    assignment: AssignedJob
    error: str


@dataclass(frozen=True, slots=True)
class Revoked:
    """The server does not want this job run any more, for a reason in a word."""

    handle: str
    reason: str


@dataclass(frozen=True, slots=True)
class RefusedByServer:
    """The server has answered with an error; `about` says to what, if that is known."""

    error: ServerRefused
    about: str = ""


@dataclass(frozen=True, slots=True)
class QueuesSeen:
    """So many jobs of our functions are ready for a worker."""

    ready: int


@dataclass(frozen=True, slots=True)
class ReportAccepted:
    """The server has dealt with everything that was sent before `settle`."""


Event = Subscribed | Arrived | Unrunnable | Revoked | RefusedByServer | QueuesSeen | ReportAccepted
