"""`current_job()`: the job that a task runs for; its progress, time left and cancellation."""

from __future__ import annotations

import threading
import time
import typing
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast, overload

from switchgear.errors import JobCancelled, ResultError, SwitchgearError

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.durable_tasks import Approval, JobEvents
    from switchgear.app.signatures import GraphStep
    from switchgear.app.task_options import Seconds

__all__ = ["CurrentJob", "JobSuspended", "NotInAJob", "Retry", "current_job", "running"]

_LARGEST_FIGURE: Final = 2**32 - 1  # what Gearman servers keep of a numerator

D = TypeVar("D")
J = TypeVar("J")
P = ParamSpec("P")
T = TypeVar("T")


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


class JobSuspended(BaseException):
    """Raised in a task whose job waits at the server from now on: the end of this run, not of the job.

    It is no `Exception`, so that a task does not catch it by mistake; `finally` and `with` work as ever.
    """


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
        self._app: App | None = None
        self._job_events: JobEvents | None = None
        self._made_steps: set[str] = set()  # in this run
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
        worker while the connection was lost, or this worker has to stop."""
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

    # --- waiting without a worker ---

    def sleep(self, seconds: Seconds) -> None:
        """Wait for this long without taking a slot: the task is called again from its beginning, and then goes on.

        This and the methods below raise `JobSuspended`, which ends the run of the task, unless what they wait for has
        come. See docs/howto/durable-tasks.md.
        """
        self._events.run(self._events.sleep(seconds))

    async def sleep_async(self, seconds: Seconds) -> None:
        """`sleep` with asyncio."""
        await self._events.run_async(self._events.sleep(seconds))

    @overload
    def wait_for(self, name: str, timeout: Seconds | None = None) -> Any: ...
    @overload
    def wait_for(self, name: str, timeout: Seconds | None = None, *, kind: type[T]) -> T: ...
    def wait_for(self, name: str, timeout: Seconds | None = None, *, kind: Any = Any) -> Any:
        """Wait for a signal without taking a slot; returns its value, read as a `kind`.

        `app.signal(job, name, value)` sends it. Raises TimeoutError if none comes within `timeout`, and ResultError
        if the value is not of that kind.
        """
        return self._value_of(name, self._events.run(self._events.wait_for(name, timeout)), kind)

    @overload
    async def wait_for_async(self, name: str, timeout: Seconds | None = None) -> Any: ...  # noqa: ASYNC109
    @overload
    async def wait_for_async(self, name: str, timeout: Seconds | None = None, *, kind: type[T]) -> T: ...  # noqa: ASYNC109
    async def wait_for_async(
        self,
        name: str,
        timeout: Seconds | None = None,  # noqa: ASYNC109 - like `wait_for`
        *,
        kind: Any = Any,
    ) -> Any:
        """`wait_for` with asyncio."""
        return self._value_of(name, await self._events.run_async(self._events.wait_for(name, timeout)), kind)

    def wait_for_approval(self, name: str = "approval", timeout: Seconds | None = None) -> Approval:
        """Wait until a person has approved or rejected the job (`app.approve`, `app.reject`); raises TimeoutError."""
        from switchgear.app.durable_tasks import Approval

        return self.wait_for(name, timeout, kind=Approval)

    async def wait_for_approval_async(
        self,
        name: str = "approval",
        timeout: Seconds | None = None,  # noqa: ASYNC109 - like `wait_for`
    ) -> Approval:
        """`wait_for_approval` with asyncio."""
        from switchgear.app.durable_tasks import Approval

        return await self.wait_for_async(name, timeout, kind=Approval)

    def step(self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function once for the job, however often its task is called: later runs are given its result.

        The name is the step's own within the job: a second step of that name raises ValueError. The result has to be
        JSON, and is remembered for 30 days. If the worker is lost in the middle of the function, the function is called
        again.
        """
        from switchgear.app.durable_tasks import STEP

        self._check_step(name)
        event, known = self._events.run(self._events.recall(STEP, name))
        if event.has_come:
            self._made_steps.add(name)
            return cast(T, self._converted(known, function))
        result = function(*args, **kwargs)
        self._events.run(self._events.remember(event, result))
        self._made_steps.add(name)
        return result

    async def step_async(
        self, name: str, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`step` for a coroutine function."""
        from switchgear.app.durable_tasks import STEP

        self._check_step(name)
        event, known = await self._events.run_async(self._events.recall(STEP, name))
        if event.has_come:
            self._made_steps.add(name)
            return cast(T, self._converted(known, function))
        result = await function(*args, **kwargs)
        await self._events.run_async(self._events.remember(event, result))
        self._made_steps.add(name)
        return result

    def _check_step(self, name: str) -> None:
        """Raise ValueError if the step was made in this run: its function would silently not be called again."""
        if name in self._made_steps:
            raise ValueError(
                f"{self.handle} has made the step {name} already in this run: give each step a name of its own, such as"
                f" {name}-2"
            )

    def spawn(self, step: GraphStep[J]) -> J:
        """Submit a signature, group or chain; whatever waits for this job waits for these jobs too.

        Returns the job, or the jobs of a group. A task that is called again is given the same ones.
        """
        return self._events.run(self._events.spawn(step))

    async def spawn_async(self, step: GraphStep[J]) -> J:
        """`spawn` with asyncio."""
        return await self._events.run_async(self._events.spawn(step))

    def bind(self, app: App) -> None:
        """Set the app of the task; for executors."""
        self._app = app

    @property
    def _events(self) -> JobEvents:
        events = self._job_events
        if events is None:
            from switchgear.app.durable_tasks import JobEvents

            if self._app is None:
                raise NotInAJob(f"{self!r} is not run by a worker of an app")
            events = self._job_events = JobEvents(self._app, self.handle, self.raise_if_cancelled)
        return events

    def _value_of(self, name: str, data: bytes, kind: Any) -> Any:
        from switchgear.app.type_hints import Hint

        try:
            return Hint(kind).read(data)
        except ValueError as error:
            raise ResultError(f"{self.handle}: the value of the signal {name!r}: {error}") from error

    def _converted(self, value: Any, function: Callable[..., Any]) -> Any:
        """The result of a step as its function declares it."""
        from switchgear.app.type_hints import Hint

        kind = typing.get_type_hints(function).get("return", Any) if hasattr(function, "__annotations__") else Any
        return Hint(kind).convert(value)

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
