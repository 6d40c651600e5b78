"""`CeleryApp`: what `Celery(...)` makes, over a `switchgear.App`."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, overload

from switchgear.app.app import App
from switchgear.app.declarations import module_of_caller
from switchgear.app.middleware import Middleware
from switchgear.app.schedules import TaskSchedule
from switchgear.app.server_locations import location_of
from switchgear.app.task import new_task
from switchgear.app.task_modules import task_modules
from switchgear.app.task_options import TaskOptions
from switchgear.compat.app_choice import own_urls, urls_for
from switchgear.compat.celery import signals
from switchgear.compat.celery.configuration import CeleryConfiguration
from switchgear.compat.celery.exceptions import ImproperlyConfigured, NotRegistered
from switchgear.compat.celery.result import AsyncResult, GroupResult
from switchgear.compat.celery.schedules import timetable_text
from switchgear.compat.celery.submission import submit_options
from switchgear.compat.celery.task import CeleryTask, new_task_class
from switchgear.compat.json_types import to_json_types
from switchgear.compat.not_supported import NotSupported

if TYPE_CHECKING:
    from switchgear.compat.celery.canvas import CelerySignature

__all__ = ["CeleryApp", "current_celery_app", "shared_task"]

log = logging.getLogger("switchgear.compat.celery")

_shared: list[CeleryTask] = []  # tasks of `shared_task` that have no app yet
_current: list[CeleryApp] = []  # the last is the current one


def current_celery_app() -> CeleryApp:
    """The app that was made last; one of its own if there is none."""
    if not _current:
        CeleryApp("default")
    return _current[-1]


class CeleryApp:
    """An app with tasks.  Jobs go to a Switchgear server: see `broker` in docs/howto/compatibility.md."""

    def __init__(
        self,
        main: str | None = None,
        *,
        broker: object = None,
        backend: object = None,
        include: Iterable[str] | None = None,
        config_source: Any = None,
        set_as_current: bool = True,
        task_cls: type[CeleryTask] | None = None,
        **others: Any,
    ) -> None:
        self.main = main
        self.conf = CeleryConfiguration()
        if broker is not None:
            self.conf["broker_url"] = broker
        self.switchgear_app = App(
            urls_for(broker, "the broker"), name=main or module_of_caller(1), include=include or (), run_here=False
        )
        self.switchgear_app.add_middleware(_WorkerSignals(self))
        self.Task: type[CeleryTask] = task_cls or CeleryTask
        self.tasks: dict[str, CeleryTask] = {}
        self.on_after_configure = signals.CelerySignal("on_after_configure")
        self.on_after_finalize = signals.CelerySignal("on_after_finalize")
        self.control = CeleryControl(self)
        self._discover: list[tuple[Any, str]] = []
        self._periodic: list[tuple[Any, CelerySignature, str | None, dict[str, Any]]] = []
        self._is_finalized = False
        if set_as_current:
            _current.append(self)
        if config_source is not None:
            self.config_from_object(config_source)

    def __repr__(self) -> str:
        return f"<Celery {self.main or '__main__'}>"

    def __enter__(self) -> CeleryApp:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect."""
        self.switchgear_app.close()

    # --- configuration ---

    def config_from_object(self, obj: Any, silent: bool = False, force: bool = False, namespace: Any = None) -> None:
        """Take over settings from a module, its name, a class or an object."""
        try:
            self.conf.read_object(obj, namespace)
        except ImportError:
            if not silent:
                raise
        urls = own_urls(self.conf.get("broker_url"))
        if urls:
            self.switchgear_app.use_locations([location_of(url, None) for url in urls])

    def autodiscover_tasks(
        self,
        packages: Iterable[str] | Callable[[], Iterable[str]] | None = None,
        related_name: str = "tasks",
        force: bool = False,
    ) -> None:
        """Import the modules `tasks` of these packages when a worker starts; without packages, of Django's apps."""
        self._discover.append((packages, related_name))

    def set_default(self) -> None:
        """Make this the current app."""
        _current.append(self)

    set_current = set_default

    def queue_of(self, task_name: str) -> Any:
        """The queue that the setting `task_routes` gives to a task."""
        routes = self.conf["task_routes"]
        for route in routes if isinstance(routes, list | tuple) else [routes or {}]:
            if not isinstance(route, Mapping):
                raise NotSupported("task_routes: routers are not supported: use a mapping of names or patterns")
            for pattern, target in route.items():
                if fnmatch.fnmatchcase(task_name, str(pattern)):
                    return target.get("queue") if isinstance(target, Mapping) else target
        default = self.conf["task_default_queue"]
        return None if default == "celery" else default

    # --- tasks ---

    @overload
    def task(self, function: Callable[..., Any], /) -> CeleryTask: ...

    @overload
    def task(self, **options: Any) -> Callable[[Callable[..., Any]], CeleryTask]: ...

    def task(self, *functions: Callable[..., Any], **options: Any) -> Any:
        """Make a function a task: `@app.task`, or `@app.task(bind=True, max_retries=5)`."""

        def make(function: Callable[..., Any]) -> CeleryTask:
            return self.register_task(new_task_of(function, self.Task, options, self.main))

        return make(functions[0]) if functions else make

    def register_task(self, task: CeleryTask | type[CeleryTask], **options: Any) -> CeleryTask:
        """Register a task that is an object of a class."""
        found = task() if isinstance(task, type) else task
        if found.name is None:
            found.name = f"{type(found).__module__}.{type(found).__name__}"
        known = self.tasks.get(found.name)
        if known is not None and type(known).__module__ != type(found).__module__:
            raise ImproperlyConfigured(f"there is a task {found.name} already, in {type(known).__module__}")
        found.bind_to(self)
        self.tasks[found.name] = found
        return found

    def bind_shared(self) -> None:
        """Give the tasks of `shared_task` to this app."""
        while _shared:
            self.register_task(_shared.pop(0))

    def send_task(
        self, name: str, args: Iterable[Any] | None = None, kwargs: dict[str, Any] | None = None, **options: Any
    ) -> AsyncResult:
        """Submit a task by its name, which this process need not know."""
        self.bind_shared()
        if name in self.tasks:
            return self.tasks[name].apply_async(args, kwargs, **options)
        task = new_task(self.switchgear_app, _elsewhere, name, TaskOptions())
        task = task.with_options(**submit_options(options, self.switchgear_app.now()))
        return AsyncResult(
            task.submit(*to_json_types(list(args or ())), **to_json_types(kwargs or {})).handle, app=self
        )

    def signature(self, name: str, *args: Any, **kwargs: Any) -> CelerySignature:
        """A signature of a task by its name; see `CeleryTask.signature`."""
        return self.task_named(name).signature(*args, **kwargs)

    def task_named(self, name: str) -> CeleryTask:
        """The task of this name; raises NotRegistered."""
        self.bind_shared()
        try:
            return self.tasks[name]
        except KeyError:
            raise NotRegistered(name) from None

    def AsyncResult(self, id: str, **others: Any) -> AsyncResult:  # noqa: N802 - Celery's name
        """The result of a job by its id."""
        return AsyncResult(id, app=self)

    def GroupResult(self, *args: Any, **kwargs: Any) -> GroupResult:  # noqa: N802 - Celery's name
        """The results of a group."""
        return GroupResult(*args, **kwargs)

    @property
    def current_task(self) -> CeleryTask | None:
        """The task that runs."""
        from switchgear.compat.celery.request import current_request

        return self.tasks.get(current_request.get().task)

    # --- periodic tasks ---

    def add_periodic_task(
        self,
        schedule: Any,
        sig: CelerySignature,
        args: Any = (),
        kwargs: Any = None,
        name: str | None = None,
        **options: Any,
    ) -> str:
        """Run a signature on a schedule; the server fires it, and no beat process is needed."""
        if args or kwargs:
            sig = sig.clone(args, kwargs)
        self._periodic.append((schedule, sig, name, options))
        if self._is_finalized:
            self._declare_periodic()
        return name or repr(sig)

    def _declare_periodic(self) -> None:
        for name, entry in dict(self.conf["beat_schedule"]).items():
            task = self.task_named(entry["task"])
            sig = task.signature(entry.get("args", ()), entry.get("kwargs"), **entry.get("options", {}))
            self._schedule(entry["schedule"], sig, name, {})
        for when, sig, periodic_name, options in self._periodic:
            self._schedule(when, sig, periodic_name or repr(sig), options)

    def _schedule(self, when: Any, sig: CelerySignature, name: str, options: dict[str, Any]) -> None:
        task = sig.task.submitted_task(sig.submit_options | options)
        args, kwargs = tuple(to_json_types(list(sig.args))), to_json_types(sig.kwargs)
        spec = timetable_text(when)
        timezone = self.conf.timezone_name if isinstance(spec, str) else ""
        plan = TaskSchedule.planned(spec, timezone, "latest", True, name, args, kwargs)
        self.switchgear_app.add_schedule(plan.of(task))

    # --- workers ---

    def __switchgear_app__(self) -> App:
        """The app that `switchgear worker MODULE:APP` runs, with everything declared."""
        self.finalize()
        return self.switchgear_app

    def finalize(self, auto: bool = False) -> None:
        """Declare shared and periodic tasks; done when a worker loads the app."""
        if self._is_finalized:
            return
        self.switchgear_app.include = (*self.switchgear_app.include, *self._modules())
        self.switchgear_app.load_tasks()
        self.bind_shared()
        self.on_after_configure.send(self)
        self.on_after_finalize.send(self)
        self._declare_periodic()
        self._is_finalized = True

    def _modules(self) -> list[str]:
        modules = [*_texts(self.conf["imports"]), *_texts(self.conf["include"])]
        for packages, related_name in self._discover:
            if packages is None:
                from django.conf import settings

                packages = settings.INSTALLED_APPS
            names = packages() if callable(packages) else packages
            for package in [names] if isinstance(names, str) else names:
                modules += task_modules(package) if related_name == "tasks" else [f"{package}.{related_name}"]
        return modules

    def worker_main(self, argv: Any = None) -> NoReturn:
        """Not supported."""
        raise NotSupported("worker_main is not supported: run `switchgear worker MODULE:APP`")

    start = worker_main


class CeleryControl:
    """`app.control`: what operators do to jobs."""

    def __init__(self, app: CeleryApp) -> None:
        self._app = app

    def revoke(self, task_id: str | list[str], terminate: bool = False, **options: Any) -> None:
        """Cancel jobs."""
        for id in [task_id] if isinstance(task_id, str) else task_id:
            self._app.AsyncResult(id).revoke()

    terminate = revoke

    def purge(self) -> int:
        """Cancel all jobs of the app that have not started; returns how many these were."""
        app = self._app.switchgear_app
        waiting = ("waiting", "scheduled", "ready")
        return sum(len(app.cancel_all(task=name, states=waiting)) for name in self._app.tasks)

    discard_all = purge

    def rate_limit(self, task_name: str, rate_limit: str | float, **options: Any) -> None:
        """Change the rate of a task."""
        from switchgear.compat.celery.submission import rate_of

        self._app.switchgear_app.limit(task_name, rate=rate_of(rate_limit) or "none")

    def __getattr__(self, name: str) -> NoReturn:
        raise NotSupported(f"app.control.{name} is not supported: see switchgear --help, the dashboard and the API")


class _WorkerSignals(Middleware):
    """Sends Celery's signals about workers and processes."""

    def __init__(self, app: CeleryApp) -> None:
        self._app = app

    def on_worker_start(self) -> None:
        signals.worker_ready.send(self._app)

    def on_worker_stop(self) -> None:
        signals.worker_shutdown.send(self._app)

    def on_process_start(self) -> None:
        signals.worker_process_init.send(self._app)

    def on_process_stop(self) -> None:
        signals.worker_process_shutdown.send(self._app)


@overload
def shared_task(function: Callable[..., Any], /) -> CeleryTask: ...


@overload
def shared_task(**options: Any) -> Callable[[Callable[..., Any]], CeleryTask]: ...


def shared_task(*functions: Callable[..., Any], **options: Any) -> Any:
    """Make a function a task of the current app: `@shared_task`, or `@shared_task(bind=True)`."""

    def make(function: Callable[..., Any]) -> CeleryTask:
        task = new_task_of(function, CeleryTask, options, None)
        _shared.append(task)
        return task

    return make(functions[0]) if functions else make


def new_task_of(
    function: Callable[..., Any], base: type[CeleryTask], options: dict[str, Any], main: str | None
) -> CeleryTask:
    """A task that is not registered yet."""
    attributes = dict(options)
    name = attributes.pop("name", None)
    bind = attributes.pop("bind", False)
    module = main if function.__module__ == "__main__" and main else function.__module__
    task = new_task_class(function, attributes.pop("base", None) or base, bind, attributes)()
    task.name = name or f"{module}.{function.__name__}"
    return task


def _elsewhere(*arguments: Any, **keywords: Any) -> Any:
    """The function of a task that only other processes know."""
    raise NotRegistered("this task is not known here")


def _texts(given: str | Iterable[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())
