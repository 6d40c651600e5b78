"""`RqQueue`: a queue of jobs; each is a function on the server whose payload names the Python function to call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from switchgear.app.app import App
from switchgear.app.job_group import JobGroup
from switchgear.app.task import Task
from switchgear.compat.app_choice import urls_for
from switchgear.compat.json_types import to_json_types
from switchgear.compat.not_supported import NotSupported
from switchgear.compat.rq.job import NoSuchJobError, RqJob
from switchgear.compat.rq.options import ENQUEUE_OPTIONS, RqCallback, RqRetry, function_path, job_options
from switchgear.compat.rq.run import call_function, import_function

__all__ = ["DEFAULT_TIMEOUT_SECONDS", "EnqueueData", "Queue", "RqQueue", "app_of", "default_app", "job", "queue_task"]

DEFAULT_TIMEOUT_SECONDS: Final = 180
PREFIX: Final = "rq"
REGISTRY_STATES: Final = {"started": "running", "finished": "done", "deferred": "waiting", "canceled": "cancelled"}
UNFINISHED: Final = ("waiting", "scheduled", "ready")

_apps: dict[tuple[str, ...], App] = {}
_default: list[App] = []


class EnqueueData(NamedTuple):
    """One job of `enqueue_many`."""

    function: str | Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: dict[str, Any]


def app_of(connection: Any) -> App:
    """The app for a connection: an App, the URL of a server, or anything else, which is not used."""
    if isinstance(connection, App):
        return connection
    urls = tuple(urls_for(connection, "the connection"))
    if urls not in _apps:
        _apps[urls] = App(urls, name="", run_here=False)  # without a name it owns nothing on the server
    return _apps[urls]


def default_app() -> App:
    """The app of the worker, or that of SWITCHGEAR_URL."""
    return _default[-1] if _default else app_of(None)


def use_as_default(app: App) -> None:
    """Let running jobs use this app; for workers."""
    _default.append(app)


def queue_task(app: App, queue: str) -> Task[..., Any]:
    """The task of a queue."""
    name = f"{PREFIX}.{queue}"
    task = app.tasks.get(name)
    return task if task is not None else app.task(name=name, retry_on=Exception)(call_function)


class RqQueue:
    """A queue with a name."""

    def __init__(
        self,
        name: str = "default",
        connection: Any = None,
        *,
        default_timeout: Any = None,
        is_async: bool = True,
        **others: Any,
    ) -> None:
        for option in ("job_class", "serializer", "death_penalty_class"):
            if others.pop(option, None) is not None:
                raise NotSupported(f"Queue: {option} is not supported: jobs are JSON")
        self.name = name
        self.connection = app_of(connection)
        self._default_timeout = DEFAULT_TIMEOUT_SECONDS if default_timeout is None else default_timeout
        self.is_async = is_async
        self._task = queue_task(self.connection, name)

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RqQueue) and (other.name, other.connection) == (self.name, self.connection)

    def __hash__(self) -> int:
        return hash(self.name)

    def __switchgear_app__(self) -> App:
        """The app that `switchgear worker MODULE:QUEUE` runs."""
        use_as_default(self.connection)
        return self.connection

    # --- enqueueing ---

    def enqueue(self, f: str | Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Enqueue a call of a function: `enqueue(f, x, y=1, job_timeout=60)`."""
        return self._enqueue(_parsed(f, args, kwargs))

    def enqueue_call(self, func: str | Callable[..., Any], args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Enqueue a call with its arguments as a tuple and a dict."""
        return self._enqueue(EnqueueData(func, tuple(args or ()), dict(kwargs or {}), options))

    def enqueue_at(self, datetime: datetime, f: str | Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Enqueue a call for a time; no scheduler is needed.  A time without a zone is UTC, as RQ has it."""
        moment = datetime if datetime.tzinfo is not None else datetime.replace(tzinfo=UTC)
        return self._enqueue(_parsed(f, args, kwargs), at=moment)

    def enqueue_in(self, time_delta: timedelta, func: str | Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Enqueue a call for later."""
        return self._enqueue(_parsed(func, args, kwargs), delay=time_delta)

    @staticmethod
    def prepare_data(
        func: str | Callable[..., Any], args: Any = None, kwargs: Any = None, **options: Any
    ) -> EnqueueData:
        """A job for `enqueue_many`."""
        return EnqueueData(func, tuple(args or ()), dict(kwargs or {}), options)

    def enqueue_many(self, job_datas: Iterable[EnqueueData], pipeline: Any = None, **others: Any) -> list[Any]:
        """Enqueue many jobs; they are sent together."""
        datas = list(job_datas)
        if not self.is_async:
            return [self._enqueue(data) for data in datas]
        requests = []
        for data in datas:
            task, arguments = self._submission(data, {})
            requests.append(task.request((), arguments, watch=False))
        group: JobGroup[Any] = JobGroup.submit(self.connection, self._task, requests)
        ids = (data.options.get("job_id") for data in datas)
        return [RqJob(self.connection, handle, id) for handle, id in zip(group.handles, ids, strict=True)]

    def _enqueue(self, data: EnqueueData, **when: Any) -> Any:
        if not self.is_async:
            return RqFinishedJob(data)
        task, arguments = self._submission(data, when)
        return RqJob(self.connection, task.submit(**arguments).handle, data.options.get("job_id"))

    def _submission(self, data: EnqueueData, when: dict[str, Any]) -> tuple[Task[..., Any], dict[str, Any]]:
        """The task with the options of one job, and its arguments."""
        options = data.options
        path = function_path(data.function)
        arguments: dict[str, Any] = {
            "function": path,
            "args": to_json_types(list(data.args)),
            "kwargs": to_json_types(data.kwargs),
        }
        if options.get("meta"):
            arguments["meta"] = to_json_types(options["meta"])
        retry = options.get("retry")
        if retry is not None:
            arguments["intervals"] = retry.intervals if isinstance(retry, RqRetry) else [0.0]
        for name in ("on_success", "on_failure"):
            callback = options.get(name)
            if callback is not None:
                arguments[name] = (callback if isinstance(callback, RqCallback) else RqCallback(callback)).name
        changes = job_options(options, self._default_timeout) | when
        changes["label"] = str(options.get("description") or path)
        return self._task.with_options(**changes), arguments

    # --- looking ---

    def fetch_job(self, job_id: str) -> RqJob | None:
        """The job with this id; None if there is none."""
        try:
            return RqJob.fetch(job_id, self.connection)
        except NoSuchJobError:
            return None

    @property
    def job_ids(self) -> list[str]:
        """The jobs that wait for a worker, in the order of their submission."""
        found = self.connection.jobs(task=self._task, states="ready", limit=None)
        return [info.handle for info in found][::-1]

    def get_job_ids(self, offset: int = 0, length: int = -1) -> list[str]:
        """Up to `length` of `job_ids`, from the one at `offset`; all if `length` is negative."""
        ids = self.job_ids[offset:]
        return ids if length < 0 else ids[:length]

    @property
    def jobs(self) -> list[RqJob]:
        """The jobs that wait for a worker."""
        return [RqJob(self.connection, handle) for handle in self.job_ids]

    def get_jobs(self, offset: int = 0, length: int = -1) -> list[RqJob]:
        """Up to `length` of `jobs`, from the one at `offset`; all if `length` is negative."""
        return [RqJob(self.connection, handle) for handle in self.get_job_ids(offset, length)]

    @property
    def count(self) -> int:
        """How many jobs wait for a worker."""
        return next((info.ready for info in self.connection.functions() if info.name == self._task.name), 0)

    def __len__(self) -> int:
        return self.count

    @classmethod
    def all(cls, connection: Any = None, **others: Any) -> list[RqQueue]:
        """The queues that the server knows."""
        names = (row.name for row in app_of(connection).functions())
        return [cls(name.partition(".")[2], connection) for name in names if name.startswith(f"{PREFIX}.")]

    def __bool__(self) -> bool:
        return True

    def is_empty(self) -> bool:
        """Whether no job waits for a worker."""
        return self.count == 0

    def empty(self) -> int:
        """Cancel the jobs that have not started; returns how many these were."""
        return len(self.connection.cancel_all(task=self._task, states=UNFINISHED))

    delete = empty

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_registry"):
            status = name.removesuffix("_job_registry").removesuffix("_registry")
            state = REGISTRY_STATES.get(status, status)
            raise NotSupported(f"{name} is not supported: switchgear jobs --state {state}, or App.jobs(states=...)")
        raise AttributeError(f"Queue has no attribute {name}")


Queue = RqQueue  # RQ's name


class RqFinishedJob:
    """The job of a queue with `is_async=False`, which ran in this process."""

    def __init__(self, data: EnqueueData) -> None:
        self.id = f"local:{id(self)}"
        self.meta: dict[str, Any] = dict(data.options.get("meta") or {})
        self.is_finished = True
        function = import_function(data.function) if isinstance(data.function, str) else data.function
        self.result = function(*data.args, **data.kwargs)

    def get_status(self, refresh: bool = True) -> str:
        """finished."""
        return "finished"

    def return_value(self, refresh: bool = False) -> Any:
        """What the function returned."""
        return self.result


def _parsed(f: str | Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> EnqueueData:
    """The options among the keywords of `enqueue`; `args` and `kwargs` as keywords are those of the function."""
    options = {name: kwargs.pop(name) for name in list(kwargs) if name in ENQUEUE_OPTIONS}
    if "args" in kwargs or "kwargs" in kwargs:
        if args:
            raise ValueError("Extra positional arguments cannot be used when using explicit args and kwargs")
        args = tuple(kwargs.pop("args", None) or ())
        kwargs = dict(kwargs.pop("kwargs", None) or {})
    return EnqueueData(f, args, kwargs, options)


def job(queue: RqQueue | str = "default", connection: Any = None, **options: Any) -> Callable[..., Any]:
    """A decorator that adds `delay` to a function: `@job("low", timeout=60)`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def delay(*args: Any, **kwargs: Any) -> Any:
            chosen = queue if isinstance(queue, RqQueue) else RqQueue(queue, connection)
            more = {name: kwargs.pop(name) for name in ("depends_on", "job_id", "at_front") if name in kwargs}
            return chosen.enqueue_call(function, args, kwargs, **(options | more))

        function.delay = function.enqueue = delay  # type: ignore[attr-defined]
        return function

    return decorate
