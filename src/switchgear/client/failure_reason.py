"""What is said of a job whose function raised something."""

from __future__ import annotations

from switchgear.errors import JobFailed

__all__ = ["reason_of"]


def reason_of(error: BaseException) -> bytes:
    """The reason of a failure, for whoever wanted the result: what the function said, or else what it raised."""
    if isinstance(error, JobFailed):
        return error.error or str(error).encode(errors="replace")
    text = str(error)
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__).encode(errors="replace")
