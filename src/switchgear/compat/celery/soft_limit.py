"""`soft_time_limit`: raises SoftTimeLimitExceeded in the thread of a task that takes too long."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from switchgear.app.soft_timeout import raise_after
from switchgear.compat.celery.exceptions import SoftTimeLimitExceeded

__all__ = ["soft_time_limit"]


def soft_time_limit(seconds: float | None) -> AbstractContextManager[None]:
    """Raise SoftTimeLimitExceeded in this thread after so long."""
    return nullcontext() if seconds is None else raise_after(seconds, SoftTimeLimitExceeded)
