"""`HueyApp`: what `RedisHuey(...)` and its siblings make, over a `switchgear.App`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NoReturn

from switchgear.app.app import App
from switchgear.app.declarations import module_of_caller
from switchgear.app.middleware import Middleware
from switchgear.app.schedules import TaskSchedule
from switchgear.app.task_options import TaskOptions
from switchgear.backoff import Backoff
from switchgear.compat.app_choice import urls_for
from switchgear.compat.huey.crontab import HueyCrontab
from switchgear.compat.huey.exceptions import CancelExecution
from switchgear.compat.huey.result import HueyResult, HueyResultGroup
from switchgear.compat.huey.task import HueyCall, HueyTask, priority_of, seconds_until
from switchgear.compat.not_supported import NotSupported

__all__ = ["HueyApp"]

log = logging.getLogger("switchgear.compat.huey")

_MOST_PAUSES: Final = 64
_UNFINISHED: Final = ("waiting", "scheduled", "ready")


class HueyApp:
    """Tasks and their jobs.  `url` is that of a server; default: SWITCHGEAR_URL, else the directory `.switchgear`."""

    def __init__(self, name: str = "huey", *args: Any, immediate: bool = False, url: Any = None, **others: Any) -> None:
        """Options of Huey's storages, such as `host` and `filename`, have no effect."""
        self.name = name
        self.immediate = immediate
        self.utc = others.get("utc", True)
        self.switchgear_app = App(urls_for(url, "the url"), name=name or module_of_caller(1), run_here=False)
        self.switchgear_app.add_middleware(_Startup(self))
        self._before: dict[str, Callable[..., Any]] = {}
        self._after: dict[str, Callable[..., Any]] = {}
        self.startup: dict[str, Callable[[], Any]] = {}
        self.shutdown: dict[str, Callable[[], Any]] = {}
        self._receivers: list[tuple[Callable[..., Any], tuple[str, ...]]] = []

    def __repr__(self) -> str:
        return f"<Huey {self.name}>"

    def __switchgear_app__(self) -> App:
        """The app that `switchgear worker MODULE:HUEY` runs."""
        return self.switchgear_app

    # --- tasks ---

    def task(
        self,
        retries: int = 0,
        retry_delay: float = 0,
        retry_backoff: float = 0,
        priority: int | None = None,
        context: bool = False,
        name: str | None = None,
        expires: Any = None,
        timeout: float | None = None,
        **others: Any,
    ) -> Callable[[Callable[..., Any]], HueyTask]:
        """Make a function a task: `@huey.task(retries=2, retry_delay=10)`."""
        if others:
            raise NotSupported(f"huey.task: {', '.join(others)} is not supported")
        given: dict[str, Any] = {"retries": retries, "backoff": _pauses(retries, retry_delay, retry_backoff)}
        if priority is not None:
            given["priority"] = priority_of(priority)
        if expires is not None:
            given["expires"] = seconds_until(expires)
        if timeout is not None:
            given["timeout"] = timeout
        options = TaskOptions().changed(given | {"jitter": False})

        def decorate(function: Callable[..., Any]) -> HueyTask:
            def call(*arguments: Any, **keywords: Any) -> Any:
                return made.run_job(arguments, keywords)

            call.__module__, call.__qualname__, call.__doc__ = (
                function.__module__,
                function.__qualname__,
                function.__doc__,
            )
            registered = self.switchgear_app.register(
                call, name or f"{function.__module__}.{function.__name__}", options
            )
            made = HueyTask(self, function, registered, context)
            return made

        return decorate

    def periodic_task(self, validate_datetime: Any, **options: Any) -> Callable[[Callable[..., Any]], HueyTask]:
        """Run a function on a schedule: `@huey.periodic_task(crontab(minute="*/5"))`; the server fires it."""
        if not isinstance(validate_datetime, HueyCrontab):
            raise NotSupported("periodic_task takes crontab(...); functions that check a time are not supported")

        def decorate(function: Callable[..., Any]) -> HueyTask:
            made = self.task(**options)(function)
            plan = TaskSchedule.planned(
                validate_datetime.cron, "UTC" if self.utc else "", "none", True, made.task.name, (), {}
            )
            self.switchgear_app.add_schedule(plan.of(made.task))
            return made

        return decorate

    def enqueue(self, call: HueyCall) -> Any:
        """Enqueue a call, or a pipeline of calls; returns its result, or those of the pipeline."""
        if self.immediate:
            return _ran_here(call)
        results = call.submit()
        return results[0] if len(results) == 1 else HueyResultGroup(results)

    # --- jobs ---

    def result(self, id: str, **options: Any) -> Any:
        """What a job returned, by its id; see `HueyResult.get`."""
        return HueyResult(self.switchgear_app, id).get(**options)

    def revoke_by_id(self, id: str, **options: Any) -> None:
        """Cancel a job."""
        HueyResult(self.switchgear_app, id).revoke()

    def pending_count(self) -> int:
        """How many jobs of the app wait for a worker."""
        mine = self.switchgear_app.tasks
        return sum(info.ready for info in self.switchgear_app.functions() if info.name in mine)

    __len__ = pending_count

    def scheduled_count(self) -> int:
        """How many jobs of the app wait for their time, or for other jobs."""
        mine = self.switchgear_app.tasks
        return sum(info.waiting_or_scheduled for info in self.switchgear_app.functions() if info.name in mine)

    def __bool__(self) -> bool:
        return True

    def flush(self) -> None:
        """Cancel all jobs of the app that have not started."""
        for name in self.switchgear_app.tasks:
            self.switchgear_app.cancel_all(task=name, states=_UNFINISHED)

    # --- hooks ---

    def pre_execute(self, name: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator: call the function before each job; it may raise CancelExecution."""
        return _adding_to(self._before, name)

    def post_execute(self, name: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator: call the function after each job, with its result and exception."""
        return _adding_to(self._after, name)

    def on_startup(self, name: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator: call the function when a process begins to run jobs."""
        return _adding_to(self.startup, name)

    def on_shutdown(self, name: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator: call the function when a process stops running jobs."""
        return _adding_to(self.shutdown, name)

    def signal(self, *signals: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator: call the function with these signals of workers, or with all."""

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            self._receivers.append((function, signals))
            return function

        return decorate

    def emit(self, signal: str, call: HueyCall, *details: Any) -> None:
        """Send a signal; what receivers raise is logged."""
        for function, wanted in self._receivers:
            if not wanted or signal in wanted:
                try:
                    function(signal, call, *details)
                except Exception:
                    log.exception("a receiver of the signal %s has failed", signal)

    def run_with_hooks(self, call: HueyCall, run: Callable[[], Any]) -> Any:
        """Run an attempt with what was registered around it; for workers."""
        try:
            for before in self._before.values():
                before(call)
        except CancelExecution:
            self.emit("canceled", call)
            return None
        self.emit("executing", call)
        value, error = None, None
        try:
            value = run()
        except Exception as raised:
            error = raised
            self.emit("error", call, raised)
            raise
        finally:
            for after in self._after.values():
                try:
                    after(call, value, error)
                except Exception:
                    log.exception("a post_execute hook has failed")
        self.emit("complete", call)
        return value

    # --- not supported ---

    def lock_task(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported."""
        raise NotSupported("lock_task is not supported: switchgear limit TASK --concurrency 1 makes jobs wait instead")

    def rate_limit(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported."""
        raise NotSupported("rate_limit is not supported: switchgear limit TASK --rate 10/m makes jobs wait instead")

    def pending(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported."""
        raise NotSupported("pending is not supported: pending_count(), `switchgear jobs` or the dashboard")

    def scheduled(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported."""
        raise NotSupported("scheduled is not supported: scheduled_count(), `switchgear jobs` or the dashboard")

    def put(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported."""
        raise NotSupported("put is not supported: use a database for values that are not results of jobs")

    def get(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported."""
        raise NotSupported("get is not supported: result(ID) is the result of a job")

    def create_consumer(self, **options: Any) -> NoReturn:
        """Not supported."""
        raise NotSupported("create_consumer is not supported: run `switchgear worker MODULE:HUEY`")


class _Startup(Middleware):
    """Calls the startup and shutdown hooks."""

    def __init__(self, huey: HueyApp) -> None:
        self._huey = huey

    def on_process_start(self) -> None:
        for function in self._huey.startup.values():
            function()

    def on_process_stop(self) -> None:
        for function in self._huey.shutdown.values():
            function()


class HueyImmediateResult:
    """The result of a call that ran here, with `immediate=True`."""

    def __init__(self, value: Any) -> None:
        self.id = f"local:{id(self)}"
        self._value = value

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """What the task returned."""
        return self._value

    __call__ = get

    def is_ready(self) -> bool:
        """Always true."""
        return True


def _ran_here(call: HueyCall) -> Any:
    return HueyImmediateResult(call.task.call_local(*call.args, **call.kwargs))


def _adding_to(
    hooks: dict[str, Callable[..., Any]], name: str | None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        hooks[name or function.__name__] = function
        return function

    return decorate


def _pauses(retries: int, delay: float | timedelta, backoff: float) -> Backoff:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    count = max(1, min(retries, _MOST_PAUSES))
    return Backoff.of([seconds * (backoff or 1) ** number for number in range(count)])
