"""Records of jobs, their statuses and results, as an application of the 2005 draft keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from switchgear.client.address import ServerAddress
from switchgear.client.connection_security import NO_SECURITY
from switchgear.protocols.gearman_draft.messages import JobRequest, JobType, Progress

__all__ = ["DraftResult", "DraftStatus", "JobRecord", "ascii_bytes"]


class DraftResult(NamedTuple):
    """How a job ended: a result code, 0 for success and 1 to 255 for an error, and data."""

    code: int
    data: bytes


class DraftStatus(NamedTuple):
    """The progress of a job: parts done and parts in all; 0 of 0 if its worker has not reported."""

    numerator: int
    denominator: int
    seconds_left: int | None  # None: no estimate

    @classmethod
    def of(cls, progress: Progress) -> DraftStatus:
        return cls(progress.numerator, progress.denominator, progress.seconds_left or None)


@dataclass(eq=False, slots=True)
class JobRecord:
    """A job that a server has taken, with all that is needed to ask for it or to create it again.

    It can be stored, and made again by an application that is restarted: a handle is good on its server only.
    """

    name: str
    args: bytes
    dupkey: str
    job_type: JobType
    server: ServerAddress
    handle: str = ""  # of ASYNC_HANDLE jobs only
    outcome: DraftResult | None = None  # once it is known
    elapsed_seconds: int = 0  # from its creation to its end, once that is known

    @classmethod
    def of(cls, request: JobRequest, server: ServerAddress, handle: str) -> JobRecord:
        """The record of a request that a server has granted."""
        server = server.secured_by(NO_SECURITY)  # a token must not be stored with the record
        return cls(request.name.decode(), request.args, request.dupkey.decode(), request.job_type, server, handle)

    def request(self) -> JobRequest:
        """The request that creates the job."""
        return JobRequest(ascii_bytes(self.name), ascii_bytes(self.dupkey), JobType(self.job_type), self.args)


def ascii_bytes(text: str) -> bytes:
    """A name, key or handle as the protocol has it."""
    if not text.isascii() or "\0" in text:
        raise ValueError(f"{text!r} is not ASCII, or has a NUL")
    return text.encode()
