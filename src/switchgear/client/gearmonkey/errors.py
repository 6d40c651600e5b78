"""Errors of GearMonkey clients, besides ServerUnreachable and ServerRefused.

ClientError
├── NoWorkers            a roll call found nobody
├── UnknownJob           there is no such job, or not any more
├── JobNotFinished       a timeout passed first; also a TimeoutError
└── ServerUnreachable
    └── LostWhileWaiting     the job exists, but the wait for it was cut off
"""

from __future__ import annotations

from switchgear.errors import ClientError, ServerUnreachable

__all__ = ["JobNotFinished", "LostWhileWaiting", "NoWorkers", "UnknownJob"]


class NoWorkers(ClientError):
    """The roll call found no worker, or nothing that is a number; no job was created."""


class UnknownJob(ClientError):
    """Redis has no hash of this job: it never existed, or was finished more than 25 hours ago, or was lost."""


class JobNotFinished(ClientError, TimeoutError):
    """The timeout passed first.  The job stays where it is; `job_id` is there to `get` it or `wait` for it."""

    def __init__(self, text: str, job_id: int) -> None:
        super().__init__(text)
        self.job_id = job_id


class LostWhileWaiting(ServerUnreachable):
    """The job was created, and then Redis went away; `job_id` is there to `get` it or `wait` for it."""

    def __init__(self, text: str, job_id: int) -> None:
        super().__init__(text)
        self.job_id = job_id
