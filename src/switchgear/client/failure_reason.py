"""`reason_of`: the failure reason that is reported for an exception of a job's function."""

from __future__ import annotations

from switchgear.errors import JobFailed

__all__ = ["reason_of"]


def reason_of(error: BaseException) -> bytes:
    """The reason to report: that of a JobFailed, or the class and message of any other exception."""
    if isinstance(error, JobFailed):
        return error.error or str(error).encode(errors="replace")
    text = str(error)
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__).encode(errors="replace")
