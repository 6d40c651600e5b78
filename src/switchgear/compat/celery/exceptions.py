"""The exceptions that Celery programs raise and catch."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import Any

from switchgear.compat.not_supported import NotSupported

__all__ = [
    "CeleryError",
    "Ignore",
    "ImproperlyConfigured",
    "MaxRetriesExceededError",
    "NotRegistered",
    "Reject",
    "Retry",
    "SoftTimeLimitExceeded",
    "TaskError",
    "TaskRevokedError",
    "TimeLimitExceeded",
    "TimeoutError",
]


class CeleryError(Exception):
    """The base class of the exceptions of this module."""


class ImproperlyConfigured(CeleryError):
    """The configuration cannot be used."""


class TaskPredicate(CeleryError):
    """Raised by a task to decide about its own end."""


class CeleryRetry(TaskPredicate):
    """The task is to run again later; raised by `self.retry`."""

    def __init__(
        self,
        message: str | None = None,
        exc: BaseException | None = None,
        when: float | datetime | None = None,
        is_eager: bool = False,
        sig: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(message or "Task can be retried", exc, when)
        self.message = message
        self.exc = exc
        self.when = when
        self.is_eager = is_eager
        self.sig = sig

    @property
    def delay_seconds(self) -> float:
        """How long to wait before the task runs again."""
        return float(self.when) if isinstance(self.when, int | float) else 0.0

    def __str__(self) -> str:
        if self.message:
            return self.message
        after = f" in {self.when:g}s" if isinstance(self.when, int | float) else ""
        return f"Retry{after}" + (f": {self.exc!r}" if self.exc is not None else "")


class Ignore(TaskPredicate):
    """The task has no result that matters."""


class Reject(TaskPredicate):
    """The task is not to be run here; `requeue` gives it back."""

    def __init__(self, reason: Any = None, requeue: bool = False) -> None:
        if requeue:
            raise NotSupported("Reject(requeue=True) is not supported: self.retry(countdown=...) runs the task again")
        self.reason = reason
        self.requeue = requeue
        super().__init__(reason, requeue)


class TaskError(CeleryError):
    """The base of errors about tasks."""


class NotRegistered(KeyError, TaskError):
    """There is no task of this name."""


class CeleryTimeoutError(TaskError, builtins.TimeoutError):
    """The result did not come in time."""


class MaxRetriesExceededError(TaskError):
    """The task has used up its retries."""

    def __init__(self, *args: Any, task_args: Any = (), task_kwargs: Any = None) -> None:
        self.task_args = task_args
        self.task_kwargs = task_kwargs or {}
        super().__init__(*args)


class TaskRevokedError(TaskError):
    """The task was revoked, or has expired."""


class SoftTimeLimitExceeded(Exception):
    """Raised inside of a task when its `soft_time_limit` is over."""


class TimeLimitExceeded(Exception):
    """The task ran for longer than its `time_limit`."""


Retry = CeleryRetry
TimeoutError = CeleryTimeoutError
