"""`current_job()`: the job that a task runs for; its progress, time left and cancellation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, TypeVar, overload

from switchgear.errors import JobCancelled, SwitchgearError

__all__ = ["CurrentJob", "NotInAJob", "Retry", "current_job", "running"]

_LARGEST_FIGURE: Final = 2**32 - 1  # what Gearman servers keep of a numerator

D = TypeVar("D")


class NotInAJob(SwitchgearError):
    """`current_job()` was called outside of a job."""


class Retry(SwitchgearError):
    """Raised by a task that wants to be run again later.

    `delay` is the pause in seconds; without one, it is as long as the task's backoff says.  This is one of the task's
    `retries`, whatever its `retry_on` and `give_up_on` say; when they are used up, the job has failed.
    """

    def __init__(self, message: str = "", *, delay: float | None = None) -> None:
        super().__init__(message or "asked to be run again")
        if delay is not None and not 0 <= delay < float("inf"):
            raise ValueError(f"a delay is a number of seconds from 0 on, not {delay!r}")
        self.delay = delay


class CurrentJob:
    """The job that is being run.  All of it may be used from any thread."""

    def __init__(
        self,
        handle: str,
        function: str,
        *,
        attempt: int = 1,
        losses: int = 0,
        attempts_limit: int = 0,
        timeout_seconds: float = 0.0,
        trace: str = "",
        on_progress: Callable[[int, int, str], None] | None = None,
    ) -> None:
        self.handle = handle
        """The job's handle, as the submitter knows it."""
        self.function = function
        """The name of the task."""
        self.attempt = attempt
        """Which start of the job this is, from 1 on, those included whose worker was lost."""
        self.trace = trace
        """The traceparent of the submitter's span (W3C Trace Context); empty if there is none."""
        self.losses = losses
        """How many of the earlier attempts ended because a worker, or the server, was lost."""
        self.attempts_limit = attempts_limit
        """How many attempts the job was submitted with, lost ones not counted; 0 if the task decides."""
        self.deadline = time.time() + timeout_seconds if timeout_seconds else None
        """When this attempt has taken too long, in seconds since the epoch; None if it may take for ever."""
        self._on_progress = on_progress
        self._stop_reason = ""
        self._stopping: threading.Event | None = None  # made for the first who waits for it: most jobs never do
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"CurrentJob({self.handle!r}, {self.function!r}, attempt={self.attempt})"

    def progress(self, done: int, total: int = 100, message: str = "") -> None:
        """Report how far the job is, and a message; those who wait for the job receive it.

        This may be called as often as is convenient: of reports in quick succession only the latest is sent.
        """
        figures = _figure(done, "done"), _figure(total, "total")
        if not isinstance(message, str):
            raise TypeError(f"the message of a progress is text, not {type(message).__name__}")
        on_progress = self._on_progress
        if on_progress is not None:
            on_progress(*figures, message.encode(errors="backslashreplace").decode())

    @property
    def cancelled(self) -> bool:
        """Whether this attempt should stop: the job was cancelled, has timed out, or was given to another
        worker because the connection was lost, or this worker has to stop."""
        return self._stop_reason != ""

    @property
    def cancel_reason(self) -> str:
        """Why the attempt should stop, in one word such as `cancelled` or `timed_out`; empty if it should not."""
        return self._stop_reason

    def raise_if_cancelled(self) -> None:
        """Raise JobCancelled if this attempt should stop.  A task need not catch it: it ends the attempt without a
        failure."""
        if self._stop_reason:
            raise JobCancelled(f"{self.handle} ({self.function}): {self._stop_reason}")

    def wait_cancelled(self, seconds: float) -> bool:
        """Sleep for this long, or until the attempt should stop; returns whether it should."""
        with self._lock:
            if self._stopping is None:
                self._stopping = threading.Event()
            if self._stop_reason:
                self._stopping.set()
        return self._stopping.wait(seconds)

    @property
    def seconds_left(self) -> float | None:
        """The seconds left until the timeout of this attempt; None if it has no timeout."""
        return None if self.deadline is None else max(0.0, self.deadline - time.time())

    def end(self) -> None:
        """End the attempt: no more progress is reported; for executors."""
        self._on_progress = None  # without it the two would refer to each other, and not be freed at once

    def cancel(self, reason: str) -> None:
        """Ask the attempt to stop, for this reason unless there is one already; for executors."""
        with self._lock:
            self._stop_reason = self._stop_reason or reason or "cancelled"
            if self._stopping is not None:
                self._stopping.set()


def _figure(number: object, name: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} of a progress is a whole number, not {number!r}")
    return max(0, min(number, _LARGEST_FIGURE))


_CURRENT: Final[ContextVar[CurrentJob]] = ContextVar("switchgear_current_job")
_MISSING: Final = object()


@overload
def current_job() -> CurrentJob: ...
@overload
def current_job(default: D) -> CurrentJob | D: ...
def current_job(default: object = _MISSING) -> object:
    """The job that the calling code is run for; elsewhere `default`, or NotInAJob if none is given."""
    job = _CURRENT.get(None)
    if job is not None:
        return job
    if default is not _MISSING:
        return default
    raise NotInAJob(
        "current_job() is only there while a worker runs a task, in the thread or coroutine that runs it;"
        " code that is also called without a job can use current_job(None)"
    )


class running:  # noqa: N801 - used like a function; as a generator it would cost as much as the rest of a small job
    """Within this context `current_job()` is this job; for executors."""

    __slots__ = ("_job", "_token")

    def __init__(self, job: CurrentJob) -> None:
        self._job = job

    def __enter__(self) -> None:
        self._token = _CURRENT.set(self._job)

    def __exit__(self, *exc: object) -> None:
        _CURRENT.reset(self._token)
