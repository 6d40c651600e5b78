"""`CeleryTask`: a task as Celery's programs know it, over a task of `App`."""

from __future__ import annotations

import inspect
import random
import time
import traceback
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import msgspec

from switchgear.app.current_job import Retry as JobRetry
from switchgear.app.current_job import current_job
from switchgear.app.task_options import TaskOptions
from switchgear.compat.celery import signals
from switchgear.compat.celery.exceptions import CeleryRetry, Ignore, MaxRetriesExceededError, Reject
from switchgear.compat.celery.request import CeleryRequest, current_request, request_of
from switchgear.compat.celery.soft_limit import soft_time_limit
from switchgear.compat.celery.submission import rate_of, submit_options
from switchgear.compat.json_types import from_json_types, to_json_types
from switchgear.compat.not_supported import NotSupported
from switchgear.errors import JobCancelled, JobExpired
from switchgear.job_options import JOB_OPTION_NAMED

if TYPE_CHECKING:
    from switchgear.app.failure import Failure
    from switchgear.app.task import Task
    from switchgear.compat.celery.app import CeleryApp
    from switchgear.compat.celery.canvas import CeleryGroup, CelerySignature
    from switchgear.compat.celery.result import AsyncResult, EagerResult

__all__ = ["CALLS", "ERROR_OF", "CeleryTask", "ExcInfo", "new_task_class"]

CALLS: Final = "switchgear_calls"  # the keyword with the rows of arguments of `map` and `starmap`
ERROR_OF: Final = "switchgear_error_of"  # the keyword with the failure that an error callback is for
# How often a task runs again is decided when it calls `retry`, not when it is submitted.
_MOST_RETRIES: Final = JOB_OPTION_NAMED["attempts_limit"].most - 1


class ExcInfo:
    """An exception with its traceback, as handlers get it."""

    def __init__(self, error: BaseException) -> None:
        self.exception = error
        self.traceback = "".join(traceback.format_exception(error))

    def __str__(self) -> str:
        return self.traceback


_SPAWN: Final = (
    "a task without this layer adds jobs that its successors wait for with current_job().spawn(...)"
    " (docs/howto/durable-tasks.md)"
)
_NOT_SUPPORTED: Final = {
    "add_to_chord": _SPAWN,
    "add_trail": "the steps of a chain are known by the `parent` of its result",
    "replace": _SPAWN,
    "send_event": "switchgear trace, the dashboard and the API show what happens to jobs",
    "signature_from_request": "make the signature again with the arguments of the task",
}


class CeleryTask:
    """The base of all tasks; classes that are given as `base` may override the handlers."""

    name: str | None = None
    max_retries: ClassVar[int | None] = 3
    default_retry_delay: ClassVar[float] = 180
    autoretry_for: ClassVar[tuple[type[BaseException], ...]] = ()
    dont_autoretry_for: ClassVar[tuple[type[BaseException], ...]] = ()
    retry_kwargs: ClassVar[dict[str, Any]] = {}
    retry_backoff: ClassVar[bool | int] = False
    retry_backoff_max: ClassVar[int] = 600
    retry_jitter: ClassVar[bool] = True
    throws: ClassVar[tuple[type[BaseException], ...]] = ()
    rate_limit: ClassVar[str | float | None] = None
    time_limit: ClassVar[float | None] = None
    soft_time_limit: ClassVar[float | None] = None
    expires: ClassVar[Any] = None
    queue: ClassVar[Any] = None
    priority: ClassVar[int | None] = None
    ignore_result: ClassVar[bool] = False
    typing: ClassVar[bool] = True
    abstract: ClassVar[bool] = False

    MaxRetriesExceededError: ClassVar[type[Exception]] = MaxRetriesExceededError

    _app: CeleryApp | None = None
    _task: Task[Any, Any] | None = None

    def __getattr__(self, name: str) -> NoReturn:
        if name in _NOT_SUPPORTED:
            raise NotSupported(f"Task.{name} is not supported: {_NOT_SUPPORTED[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<@task: {self.name}>"

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """What the task does; a class of its own overrides it."""
        raise TypeError(f"{type(self).__name__} needs a method run")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function here and now."""
        token = current_request.set(CeleryRequest(task=self.name or "", args=args, kwargs=kwargs))
        try:
            return self.run(*args, **kwargs)
        finally:
            current_request.reset(token)

    @property
    def app(self) -> CeleryApp:
        """The app of the task."""
        from switchgear.compat.celery.app import current_celery_app

        if self._app is None:
            current_celery_app().bind_shared()
        assert self._app is not None
        return self._app

    @property
    def request(self) -> CeleryRequest:
        """The job that runs."""
        return current_request.get()

    # --- handlers, for subclasses ---

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Called before the task runs."""

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Called after the task has succeeded."""

    def on_retry(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Called when the task is to run again."""

    def on_failure(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Called when the task has failed."""

    def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Called when the task has ended, however it did."""

    # --- submitting ---

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Submit the task with these arguments."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Iterable[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        *,
        link: Any = None,
        link_error: Any = None,
        **options: Any,
    ) -> AsyncResult:
        """Submit the task; see `switchgear.compat.celery.submission` for the options."""
        args, kwargs = tuple(args or ()), dict(kwargs or {})
        self.check_arguments(args, kwargs)
        signature = self.signature(args, kwargs, **options)
        for callback in _listed(link):
            signature.link(callback)
        for callback in _listed(link_error):
            signature.link_error(callback)
        result: AsyncResult = signature.apply_async()
        return result

    def check_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise TypeError if the task cannot be called with these arguments."""
        if self.typing:
            inspect.signature(self.run).bind(*args, **kwargs)

    def apply(
        self, args: Iterable[Any] | None = None, kwargs: dict[str, Any] | None = None, **options: Any
    ) -> EagerResult:
        """Run the task here, with its retries, and return its result object."""
        from switchgear.compat.celery.eager import apply_here

        return apply_here(self, tuple(args or ()), dict(kwargs or {}), throw=bool(options.get("throw")))

    def signature(
        self, args: Iterable[Any] | None = None, kwargs: dict[str, Any] | None = None, **options: Any
    ) -> CelerySignature:
        """The task with arguments, to be submitted later."""
        from switchgear.compat.celery.canvas import CelerySignature

        options |= dict(options.pop("options", None) or {})
        return CelerySignature(self, tuple(args or ()), dict(kwargs or {}), options)

    subtask = signature

    def s(self, *args: Any, **kwargs: Any) -> CelerySignature:
        """Short for `signature(args, kwargs)`."""
        return self.signature(args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> CelerySignature:
        """A signature that is not given the result of the task before it."""
        return self.signature(args, kwargs, immutable=True)

    def map(self, it: Iterable[Any]) -> CelerySignature:
        """A signature of one job that calls the task for each item and returns the list of results."""
        return self.starmap((item,) for item in it)

    def starmap(self, it: Iterable[Iterable[Any]]) -> CelerySignature:
        """A signature of one job that calls the task with each row of arguments and returns the list of results."""
        return self.signature(kwargs={CALLS: [list(row) for row in it]}, immutable=True)

    def chunks(self, it: Iterable[Iterable[Any]], n: int) -> CeleryGroup:
        """A group of jobs that make `n` calls each."""
        from switchgear.compat.celery.canvas import CeleryGroup

        rows = list(it)
        return CeleryGroup([self.starmap(rows[start : start + n]) for start in range(0, len(rows), n)])

    def AsyncResult(self, task_id: str) -> AsyncResult:  # noqa: N802 - Celery's name
        """The result of a job by its id."""
        return self.app.AsyncResult(task_id)

    # --- inside of a running task ---

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: BaseException | None = None,
        throw: bool = True,
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> CeleryRetry:
        """Run the task again later: raises Retry, or `exc` when the retries are used up."""
        from switchgear.compat.not_supported import NotSupported

        if args is not None or kwargs is not None:
            raise NotSupported("retry with other arguments is not supported: submit another job with them")
        request = self.request
        if max_retries is not None:
            request.override_max_retries = max_retries
        limit = self.max_retries if max_retries is None else max_retries
        if request.called_directly:
            raise exc or CeleryRetry("Task can be retried")
        if limit is not None and request.retries + 1 > limit:
            if exc is not None:
                raise exc
            text = f"Can't retry {self.name}[{request.id}] args:{request.args} kwargs:{request.kwargs}"
            raise MaxRetriesExceededError(text, task_args=request.args, task_kwargs=request.kwargs)
        if eta is not None:
            delay = max(0.0, eta.timestamp() - time.time())
        else:
            delay = float(self.default_retry_delay if countdown is None else countdown)
        retry = CeleryRetry(exc=exc, when=delay, is_eager=request.is_eager)
        if throw:
            raise retry
        return retry

    def update_state(self, task_id: str | None = None, state: str | None = None, meta: Any = None, **more: Any) -> None:
        """Report a state and details, which `AsyncResult.state` and `.info` show."""
        job = current_job(None)
        if job is None or (task_id is not None and task_id != job.handle):
            return
        message = msgspec.json.encode({"state": state, "meta": to_json_types(meta)}).decode()
        figures = meta if isinstance(meta, dict) else {}
        done, total = figures.get("current"), figures.get("total")
        is_counted = isinstance(done, int) and isinstance(total, int)
        job.progress(done if is_counted else 0, total if is_counted else 0, message)  # type: ignore[arg-type]

    # --- inside ---

    def bind_to(self, app: CeleryApp) -> None:
        """Register the task with an app."""
        self._app = app
        assert self.name is not None
        self._task = app.switchgear_app.register(self._entry_point(), self.name, self._options(app))

    def _entry_point(self) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            return to_json_types(self.run_job(tuple(from_json_types(list(arguments))), from_json_types(keywords)))

        call.__module__ = type(self).__module__
        call.__qualname__ = call.__name__ = (self.name or "").rpartition(".")[2]
        call.__doc__ = self.__doc__
        return call

    def _options(self, app: CeleryApp) -> TaskOptions:
        given: dict[str, Any] = {
            "retries": _MOST_RETRIES,
            "retry_on": (),
            "timeout": self.time_limit or app.conf.get("task_time_limit"),
            "rate": rate_of(self.rate_limit or app.conf.get("task_default_rate_limit")),
            "retention": app.conf.result_seconds,
        }
        if given["timeout"] is not None:
            given["run_in"] = "process"  # which can be killed
            given["retries"] = self._most_retries()  # an attempt that took too long counts too
        return TaskOptions().changed({name: value for name, value in given.items() if value is not None})

    def _most_retries(self) -> int:
        """How often the task may run again by its declaration; it cannot ask for it without its `self`."""
        is_bound = not isinstance(inspect.getattr_static(type(self), "run"), staticmethod)
        if not (is_bound or self.autoretry_for):
            return 0
        return _MOST_RETRIES if self.max_retries is None else self.max_retries

    def submitted_task(self, options: dict[str, Any]) -> Task[Any, Any]:
        """The task of the app with the options of one submission."""
        app = self.app
        assert self._task is not None
        defaults = {"queue": self.queue or app.queue_of(self.name or ""), "priority": self.priority}
        if self.expires is not None:
            defaults["expires"] = self.expires
        changes = submit_options(defaults | options, app.switchgear_app.now())
        return self._task.with_options(**changes) if changes else self._task

    def run_job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one attempt of a job, with handlers, signals and retries."""
        failed = kwargs.pop(ERROR_OF, None)
        if failed is not None:
            found = self._error_arguments(failed)
            if found is None:
                return None
            args = (*found, *args)
        request = request_of(current_job(), args, kwargs)
        try:
            return self.run_attempt(request)
        except CeleryRetry as retry:
            raise JobRetry(str(retry), delay=retry.delay_seconds) from retry.exc

    def _error_arguments(self, failure: Failure) -> tuple[Any, ...] | None:
        """What an error callback is called with: request, exception and traceback, or the id if it takes one
        argument; None if the job was revoked, which is no error."""
        from switchgear.compat.celery.result import celery_exception

        if isinstance(failure.exception, JobCancelled | JobExpired):
            return None
        wanted = inspect.signature(self.run).parameters.values()
        positional = [each for each in wanted if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        if len(positional) == 1 and not any(each.kind is each.VAR_POSITIONAL for each in wanted):
            return (failure.job,)
        request = CeleryRequest(id=failure.job, task=failure.task)
        return (request, celery_exception(self.app, failure.exception), failure.traceback)

    def run_attempt(self, request: CeleryRequest) -> Any:
        """Run the function once; raises CeleryRetry if it is to run again."""
        args, kwargs, task_id = request.args, request.kwargs, request.id or ""
        token = current_request.set(request)
        status, outcome, einfo = "SUCCESS", None, None
        named = {"task_id": task_id, "task": self, "args": args, "kwargs": kwargs}
        signals.task_prerun.send(self, **named)
        try:
            self.before_start(task_id, args, kwargs)
            try:
                with soft_time_limit(self.soft_time_limit):
                    outcome = self._run_with_autoretry(request)
            except (Ignore, Reject):
                return None
            self.on_success(outcome, task_id, args, kwargs)
            signals.task_success.send(self, result=outcome)
        except CeleryRetry as retry:
            status, outcome, einfo = "RETRY", retry, ExcInfo(retry)
            self.on_retry(retry, task_id, args, kwargs, einfo)
            signals.task_retry.send(self, request=request, reason=retry, einfo=einfo)
            raise
        except Exception as error:
            status, outcome, einfo = "FAILURE", error, ExcInfo(error)
            self.on_failure(error, task_id, args, kwargs, einfo)
            details = {"exception": error, "traceback": error.__traceback__, "einfo": einfo}
            signals.task_failure.send(self, task_id=task_id, args=args, kwargs=kwargs, **details)
            raise
        finally:
            if status != "RETRY":
                self.after_return(status, outcome, task_id, args, kwargs, einfo)
            signals.task_postrun.send(self, retval=outcome, state=status, **named)
            current_request.reset(token)
        return outcome

    def _run_with_autoretry(self, request: CeleryRequest) -> Any:
        try:
            calls = request.kwargs.get(CALLS)
            if calls is not None:
                return [self.run(*row) for row in calls]
            return self.run(*request.args, **request.kwargs)
        except (CeleryRetry, Ignore, Reject):
            raise
        except Exception as error:
            if isinstance(error, self.dont_autoretry_for) or not isinstance(error, tuple(self.autoretry_for)):
                raise
            self._retry_after(error, request)

    def _retry_after(self, error: Exception, request: CeleryRequest) -> NoReturn:
        named = dict(self.retry_kwargs)
        if self.retry_backoff:
            longest = min(self.retry_backoff_max, int(max(1, self.retry_backoff)) * 2**request.retries)
            named["countdown"] = random.randrange(longest + 1) if self.retry_jitter else longest
        if request.override_max_retries is not None:
            named["max_retries"] = request.override_max_retries
        raise self.retry(exc=error, **named)


def new_task_class(
    function: Callable[..., Any], base: type[CeleryTask], bind: bool, attributes: dict[str, Any]
) -> type[CeleryTask]:
    """A class for a function with the decorator; each option is an attribute, as in Celery."""
    body = {
        "run": function if bind else staticmethod(function),
        "__module__": function.__module__,
        "__doc__": function.__doc__,
        "__wrapped__": staticmethod(function),
        **attributes,
    }
    return type(function.__name__, (base,), body)


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]
