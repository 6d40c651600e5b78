"""`HueyTask`: a decorated function, which is enqueued by calling it; `HueyCall`: a call that is not enqueued yet."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from switchgear.app.current_job import Retry as JobRetry
from switchgear.app.current_job import current_job
from switchgear.app.failure import Failure, FailureReference
from switchgear.app.graph_plan import GraphPlan, PlannedJob
from switchgear.app.job_execution import is_retried
from switchgear.app.task import Task
from switchgear.compat.huey.exceptions import CancelExecution, RetryTask
from switchgear.compat.huey.result import HueyResult, HueyResultGroup
from switchgear.compat.json_types import from_json_types, to_json_types
from switchgear.compat.not_supported import NotSupported, refuse_unknown
from switchgear.errors import TaskFailed

if TYPE_CHECKING:
    from switchgear.compat.huey.app import HueyApp

__all__ = ["HueyCall", "HueyTask"]

RESULT_BEFORE: Final = "switchgear_result_before"  # the keyword with the result of the task before it in a pipeline
ERROR_OF: Final = "switchgear_error_of"  # the keyword with the failure that an error handler is for
_CALL_OPTIONS: Final = (
    "eta",
    "delay",
    "retries",
    "priority",
    "expires",
    "timeout",
    "id",
    "retry_delay",
    "retry_backoff",
)
_HINTS: Final = {
    "id": "the server gives jobs their ids; read the `id` of the result",
    "retry_delay": "it is an option of the task: @huey.task(retry_delay=...)",
    "retry_backoff": "it is an option of the task: @huey.task(retry_backoff=...)",
}


class HueyTask:
    """A task: calling it enqueues a job and returns its result object."""

    def __init__(self, huey: HueyApp, function: Callable[..., Any], task: Task[Any, Any], context: bool) -> None:
        functools.update_wrapper(self, function)
        self.huey = huey
        self.func = function
        self.task = task
        self.context = context

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a call."""
        return self.huey.enqueue(self.s(*args, **kwargs))

    def call_local(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function here and now."""
        return self.func(*args, **kwargs)

    def s(self, *args: Any, **kwargs: Any) -> HueyCall:
        """A call for a pipeline, or for `huey.enqueue`."""
        options: dict[str, Any] = {name: kwargs.pop(name) for name in _CALL_OPTIONS if name in kwargs}
        return HueyCall(self, args, kwargs, options)

    def schedule(self, args: Any = None, kwargs: dict[str, Any] | None = None, **options: Any) -> Any:
        """Enqueue a call for later: `schedule((1, 2), delay=60)`, or `schedule(60)`."""
        if options.get("eta") is None and options.get("delay") is None:
            if isinstance(args, datetime):
                options["eta"], args = args, None
            elif isinstance(args, int | float | timedelta):
                options["delay"], args = args, None
            else:
                raise ValueError("schedule() missing required eta= or delay=")
        return self.huey.enqueue(HueyCall(self, tuple(args or ()), dict(kwargs or {}), options))

    def map(self, items: Iterable[Any]) -> HueyResultGroup:
        """Enqueue a call for each item; an item that is a tuple is all arguments of its call."""
        calls = [self.s(*(item if isinstance(item, tuple) else (item,))) for item in items]
        return HueyResultGroup([self.huey.enqueue(call) for call in calls])

    def revoke(self, *args: Any, **kwargs: Any) -> None:
        """Start no jobs of this task until `restore`; others are as they were."""
        if args or kwargs:
            raise NotSupported("revoke_until and revoke_once are not supported: revoke() and restore() the task")
        self.huey.switchgear_app.pause(self.task)

    def restore(self) -> bool:
        """Start jobs of this task again; returns whether it was revoked."""
        was_revoked = self.is_revoked()
        self.huey.switchgear_app.resume(self.task)
        return was_revoked

    def is_revoked(self, *args: Any, **kwargs: Any) -> bool:
        """Whether no jobs of this task are started."""
        functions = self.huey.switchgear_app.functions()
        return any(info.paused for info in functions if info.name == self.task.name)

    def run_job(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Run one attempt, with hooks and signals."""
        args, kwargs = tuple(from_json_types(list(arguments))), dict(from_json_types(keywords))
        failed: Failure | None = kwargs.pop(ERROR_OF, None)
        if failed is not None:
            if not isinstance(failed.exception, TaskFailed):
                return None
            args = (*args, f"{failed.exception.error_type}: {failed.exception.message}")
        args, kwargs = _extended(args, kwargs, kwargs.pop(RESULT_BEFORE, None))
        call = HueyCall(self, args, kwargs, {})
        job = current_job()
        call.id = job.handle
        if self.context:
            kwargs = kwargs | {"task": call}
        return self.huey.run_with_hooks(call, lambda: self._attempt(call, args, kwargs))

    def _attempt(self, call: HueyCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return to_json_types(self.func(*args, **kwargs))
        except RetryTask as error:
            delay = error.delay if error.eta is None else max(0.0, _aware(error.eta).timestamp() - time.time())
            raise JobRetry(str(error), delay=delay if delay is not None else 0.0) from error
        except CancelExecution as error:
            if error.retry or (error.retry is None and is_retried(self.task.settings, current_job(), error)):
                raise JobRetry("cancelled by the task, which runs again") from error
            self.huey.emit("canceled", call)
            return None


def _extended(args: tuple[Any, ...], kwargs: dict[str, Any], before: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with the result of the task before: a dict is keywords, anything else the last argument."""
    if before is None:
        return args, kwargs
    if isinstance(before, dict):
        return args, before | kwargs
    return (*args, before), kwargs


class HueyCall:
    """A call of a task, with what is to run after it."""

    def __init__(self, task: HueyTask, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> None:
        self.task = task
        self.args = args
        self.kwargs = kwargs
        self.options = options
        self.id: str | None = None
        self._then: HueyCall | None = None
        self._error: HueyCall | None = None

    def __repr__(self) -> str:
        return f"{self.name}: {self.id}"

    @property
    def retries(self) -> int:
        """How often the running job is tried again at most."""
        job = current_job(None)
        return 0 if job is None else max(0, job.attempts_limit - (job.attempt - job.losses))

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.task.func.__name__

    def then(self, task: Any, *args: Any, **kwargs: Any) -> HueyCall:
        """Run another task with the result of this one."""
        if self._then is not None:
            self._then.then(task, *args, **kwargs)
        else:
            self._then = _call_of(task, args, kwargs)
        return self

    def error(self, task: Any, *args: Any, **kwargs: Any) -> HueyCall:
        """Run another task with the text of the exception if this one fails."""
        self._error = _call_of(task, args, kwargs)
        return self

    def submit(self) -> list[HueyResult]:
        """Submit this call and those after it, all or none; returns their results."""
        app = self.task.huey.switchgear_app
        plan = GraphPlan(app)
        jobs = self._add_to(plan, None)
        plan.submit()
        self.id = jobs[0].handle
        return [HueyResult(app, job.handle) for job in jobs]

    def _add_to(self, plan: GraphPlan, before: PlannedJob[Any] | None) -> list[PlannedJob[Any]]:
        """Add this call and those after it to a plan; returns their jobs."""
        task = self.task.task.with_options(**_submit_options(self.options))
        kwargs = dict(to_json_types(self.kwargs))
        if before is not None:
            kwargs[RESULT_BEFORE] = before
        job = plan.add(task, tuple(to_json_types(list(self.args))), kwargs)
        if self._error is not None:
            handler = self._error
            after = handler.task.task.with_options(after=[(job, "error")])
            keywords = to_json_types(handler.kwargs) | {ERROR_OF: FailureReference([job])}
            plan.add(after, tuple(to_json_types(list(handler.args))), keywords)
        return [job, *(self._then._add_to(plan, job) if self._then is not None else ())]


def _call_of(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> HueyCall:
    if isinstance(task, HueyCall):
        return copy.copy(task)
    call: HueyCall = task.s(*args, **kwargs)
    return call


def _submit_options(given: dict[str, Any]) -> dict[str, Any]:
    refuse_unknown("a call", (name for name in given if name in _HINTS and given[name] is not None), _HINTS)
    options: dict[str, Any] = {}
    if given.get("eta") is not None:
        options["at"] = _aware(given["eta"])
    elif given.get("delay") is not None:
        options["delay"] = given["delay"]
    if given.get("retries") is not None:
        options["retries"] = given["retries"]
    if given.get("timeout") is not None:
        options["timeout"] = given["timeout"]
    if given.get("priority") is not None:
        options["priority"] = priority_of(given["priority"])
    if given.get("expires") is not None:
        options["expires"] = seconds_until(given["expires"])
    return options


def priority_of(number: int) -> str:
    """Huey's priorities are whole numbers, of which the highest is first; 0 is usual.

    >>> priority_of(10), priority_of(0), priority_of(-1)
    ('high', 'normal', 'low')
    """
    return "high" if number > 0 else "low" if number < 0 else "normal"


def seconds_until(expires: float | timedelta | datetime) -> float:
    """The seconds until an expiry."""
    if isinstance(expires, datetime):
        return max(0.001, _aware(expires).timestamp() - time.time())
    return expires.total_seconds() if isinstance(expires, timedelta) else float(expires)


def _aware(moment: datetime) -> datetime:
    """Huey takes a time without a zone for local time, and gives it as UTC to its storage."""
    return moment if moment.tzinfo is not None else moment.astimezone(UTC)
