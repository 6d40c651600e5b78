"""The exceptions that Huey programs raise and catch."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

__all__ = ["CancelExecution", "HueyException", "ResultTimeout", "RetryTask", "TaskException"]


class HueyException(Exception):
    """The base class of the exceptions of this module."""


class CancelExecution(HueyException):
    """Raised by a task that is not to go on; it runs again if `retry`, or if it has retries and `retry` is None."""

    def __init__(self, retry: bool | None = None, *args: Any) -> None:
        super().__init__(*args)
        self.retry = retry


class RetryTask(HueyException):
    """Raised by a task that is to run again."""

    def __init__(
        self, msg: str | None = None, eta: datetime | None = None, delay: float | timedelta | None = None
    ) -> None:
        super().__init__(msg or "asked to be run again")
        self.eta = eta
        self.delay = delay.total_seconds() if isinstance(delay, timedelta) else delay


class TaskException(HueyException):
    """A task has failed; `metadata` has the error and the traceback as text."""

    def __init__(self, metadata: dict[str, Any] | None = None, *args: Any) -> None:
        self.metadata = metadata or {}
        super().__init__(self.metadata.get("error", "unknown error"), *args)


class ResultTimeout(HueyException, TimeoutError):
    """The result did not come in time."""
