"""`rq.timeouts`: the exception that ends a job which takes longer than its `job_timeout`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final

from switchgear.app.current_job import current_job
from switchgear.app.soft_timeout import raise_after

__all__ = ["CLEAN_UP_SECONDS", "BaseTimeoutException", "JobTimeoutException", "job_timeout"]

# The server gives the job so much longer than its `job_timeout`: the function gets the exception, and can clean up.
CLEAN_UP_SECONDS: Final = 1.0


class BaseTimeoutException(Exception):
    """RQ's base class of such exceptions."""


class JobTimeoutException(BaseTimeoutException):
    """The job has taken longer than its `job_timeout`."""


def job_timeout() -> AbstractContextManager[None]:
    """Raise JobTimeoutException in this thread when the time of the job that runs is over, so that its slot is free for
    the next job: a thread cannot be stopped otherwise."""
    left = current_job().seconds_left
    return nullcontext() if left is None else raise_after(max(0.0, left - CLEAN_UP_SECONDS), JobTimeoutException)
