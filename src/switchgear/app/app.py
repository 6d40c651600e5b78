"""`App`: registers tasks, and controls their jobs on the servers: find, retry, cancel, pause, limit.

One class, because it is all that a program sees of an app; most methods only pass the call on to a module of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from switchgear.app.app_arguments import (
    checked_codec,
    checked_exceptions,
    checked_run_here,
    checked_undeclared,
    usual_urls,
)
from switchgear.app.app_registry import the_apps
from switchgear.app.declarations import (
    Undeclared,
    app_declarations,
    module_of_caller,
    undeclared_text,
)
from switchgear.app.hooks import AppHooks
from switchgear.app.injection import Scope
from switchgear.app.lazy_transport import LazyTransport
from switchgear.app.middleware import Middleware
from switchgear.app.schedules import AppSchedules, TaskSchedule
from switchgear.app.server_locations import ServerLocation, locations_of
from switchgear.app.task import AsyncTask, Task, new_task
from switchgear.app.task_decorator import TaskDecorator
from switchgear.app.task_modules import task_modules
from switchgear.app.task_options import Rate, TaskKeywords, TaskOptions

if TYPE_CHECKING:
    from switchgear.app.bulk_operation import BulkOperation
    from switchgear.app.graph_context import Graph
    from switchgear.app.job import Job
    from switchgear.app.payloads.codec import PayloadCodec
    from switchgear.app.server_answers import ConnectionInfo, FunctionInfo, JobInfo, NodeInfo, ServerInfo, WorkerInfo
    from switchgear.app.signatures import GraphStep
    from switchgear.app.tracing import AppTracing
    from switchgear.app.transport import AppTransport
    from switchgear.client.gearman.submit_request import SubmitRequest

__all__ = ["App"]

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("switchgear")

DEFAULT_CONNECT_SECONDS: Final = 5.0


class App:
    """Tasks by name, and the connection to the server that has their jobs.

    `App()` is where the variable SWITCHGEAR_URL says, or else in the directory `.switchgear`, with a server inside the
    processes that use it. `App("gearman://host:4730")` uses a running server; of several, the first that can be
    reached. An app connects when it is first used.

    >>> app = App("gearman://127.0.0.1:4730")
    >>> @app.task
    ... def add(a: int, b: int = 1) -> int:
    ...     return a + b
    >>> add(2), add.name.endswith(".add")
    (3, True)
    """

    def __init__(
        self,
        urls: str | Iterable[str] | None = None,
        *,
        connect_seconds: float = DEFAULT_CONNECT_SECONDS,
        name: str | None = None,
        include: str | Iterable[str] = (),
        discover: str | Iterable[str] = (),
        run_here: bool | Literal["all"] = True,
        token: str | None = None,
        payloads: PayloadCodec | None = None,
        undeclared: Undeclared | None = None,
        exceptions: Iterable[type[Exception]] | None = (),
        transport: AppTransport | None = None,
    ) -> None:
        """Each URL is a server with its own jobs. `gearman://HOST:PORT+HOST:PORT` is one cluster with two nodes.

        `connect_seconds` is how long a request waits for an unreachable server; `transport` is for tests.

        A program that submits jobs to an embedded app also runs jobs of those tasks, in background threads, unless
        `run_here=False`; with `run_here="all"` it runs jobs of all its tasks, whoever submitted them.

        `token` identifies the program to a server that demands it; default: SWITCHGEAR_TOKEN or SWITCHGEAR_TOKEN_FILE
        in the environment.

        `payloads` compresses and encrypts payloads and results, and stores large ones elsewhere.

        Workers import the modules of `include`, and of each package of `discover` those called `tasks`, so that tasks
        may be declared in several modules (`load_tasks`).

        The app owns the schedules and limits that it declares, by its `name`, which is that of its module if none is
        given.  `undeclared` says what a worker does at its start with those that the app had declared earlier and that
        are gone from the code: "remove", "report" in the log, or "keep".  Without it they are removed if the app was
        given a name, and else reported, because another program may have a module of the same name.

        `exceptions` are classes that `Job.result` may raise because a task has raised them, beside the built-in ones
        and those in the module of the task.  With None, it raises a plain `TaskFailed` for all.
        """
        self.token = token
        self.payloads = checked_codec(payloads)
        self.locations = locations_of(usual_urls() if urls is None else urls, token)
        self._tasks: dict[str, Task[Any, Any]] = {}
        self.include = (include,) if isinstance(include, str) else tuple(include)
        self.discover = (discover,) if isinstance(discover, str) else tuple(discover)
        self.connect_seconds = connect_seconds
        self.run_here = checked_run_here(run_here)
        self.undeclared = checked_undeclared(undeclared, name)
        self.name = module_of_caller(1) if name is None else name
        the_apps.add(self)
        self.logs_failures = False  # the app logs failed jobs with their tracebacks itself, and workers need not
        self.exceptions = checked_exceptions(exceptions)
        self.tracing: AppTracing | None = None  # a tracing system; see switchgear.contrib.otel
        self.now: Callable[[], float] = time.time  # what `delay` and `expires` are counted from
        self.hooks = AppHooks()
        self._schedules: dict[str, TaskSchedule] = {}
        self._lazy_transport = LazyTransport(self, transport)

    @property
    def tasks(self) -> dict[str, Task[Any, Any]]:
        """The tasks by name, with the shared ones if this is the default app."""
        the_apps.bind_shared(self)
        return self._tasks

    def __repr__(self) -> str:
        return f"<App {', '.join(location.url for location in self.locations)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- tasks ---

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, /, *, name: str | None = None, **options: Unpack[TaskKeywords]) -> TaskDecorator: ...

    def task(self, function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any) -> Any:
        """Make a function a task: `@app.task`, or `@app.task(retries=3, ...)`.

        A task is known to servers and workers by its name: that of its module and its own, unless one is given.
        """
        checked = TaskOptions().changed(options)
        if function is not None:
            return self.register(function, name, checked)
        return TaskDecorator(self, name, checked)

    def register(self, function: Callable[..., Any], name: str | None, options: TaskOptions) -> Task[Any, Any]:
        """Make a function a task of this app; see `task`."""
        task = new_task(self, function, name, options)
        self._add_task(task)
        return task

    def adopt(self, task: Task[Any, Any]) -> None:
        """Make a shared task one of this app."""
        self._add_task(task)
        task.bind(self)

    def _add_task(self, task: Task[Any, Any]) -> None:
        name = task.name
        known = self._tasks.get(name)
        if known is not None and not _is_same_source(known.function, task.function):
            raise ValueError(f"there is a task {name} already, in {known.function.__module__}; give this one a name")
        self._tasks[name] = task
        self._lazy_transport.task_added()

    def set_default(self) -> None:
        """Let tasks that are declared without an app (`shared_task`) belong to this app."""
        the_apps.set_default(self)

    def load_tasks(self) -> None:
        """Import the modules of `include`, and the modules `tasks` of the packages of `discover`, as workers do."""
        for module in [*self.include, *(name for package in self.discover for name in task_modules(package))]:
            import_module(module)

    # --- hooks ---

    def add_middleware(self, *middleware: Middleware) -> None:
        """Run code around submissions, jobs, processes and workers; what is added first is outermost."""
        for each in middleware:
            if not isinstance(each, Middleware):
                raise TypeError(f"a middleware is an object of a subclass of Middleware, not {each!r}")
        self.hooks.middleware.extend(middleware)

    @overload
    def resource(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def resource(self, /, *, scope: Scope = "process") -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def resource(self, function: Callable[..., Any] | None = None, /, *, scope: Scope = "process") -> Any:
        """Define something that tasks are given by its type: `@app.resource`, or `@app.resource(scope="job")`.

        The function returns the resource, or yields it and closes it afterwards; it may be a coroutine function for
        tasks that are. A task takes it by a parameter whose default is `INJECTED`.
        """

        def define(opening: Callable[..., Any]) -> Callable[..., Any]:
            self.hooks.resources.define(opening, scope)
            return opening

        return define if function is None else define(function)

    def every(
        self,
        when: float | str,
        *,
        timezone: str = "",
        catch_up: str = "latest",
        overlap: bool = False,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[TaskKeywords],
    ) -> TaskDecorator:
        """Run a task on a schedule: `@app.every("*/5 * * * *")`, or `@app.every(30)` for each 30 seconds.

        Above a function it makes a task of it, with `options`; above `@app.task` it takes that task.  The server keeps
        the schedule, under `name` or else that of the task, and fires it once whatever the number of processes that
        declare it.  `catch_up` is what becomes of ticks while no server ran: the "latest" is made up for, "all" or
        "none".  Without `overlap` a tick passes while the job of the last one is unfinished.  Workers declare the
        schedules of their app when they connect.
        """
        plan = TaskSchedule.planned(when, timezone, catch_up, overlap, name, args, dict(kwargs or {}))
        return TaskDecorator(self, None, TaskOptions().changed(options), plan, has_options=bool(options))

    def add_schedule(self, schedule: TaskSchedule) -> None:
        """Declare a schedule; one of the same name is replaced."""
        self._schedules[schedule.name] = schedule
        self._lazy_transport.serve((schedule.task_name,))

    def declared_schedules(self) -> list[TaskSchedule]:
        """The schedules that this program declares with `@app.every`."""
        return list(self._schedules.values())

    def declarations(self) -> list[tuple[str, dict[str, Any]]]:
        """What a worker declares to a server about its tasks: verbs of CONTROL with their arguments."""
        return app_declarations(self)

    @property
    def schedules(self) -> AppSchedules:
        """The schedules that the server keeps."""
        return AppSchedules(self)

    # --- jobs ---

    def graph(
        self,
        *,
        on_success: GraphStep[Any] | None = None,
        on_error: GraphStep[Any] | None = None,
        finally_: GraphStep[Any] | None = None,
    ) -> Graph:
        """A graph of jobs, described by calling tasks: `with app.graph() as g:`; see `Graph`.

        `on_success` runs when all jobs have succeeded, `on_error` is given the first `Failure` when all have ended, and
        `finally_` runs in any case.
        """
        from switchgear.app.graph_context import Graph
        from switchgear.app.signatures import Callbacks

        return Graph(self, Callbacks(on_success, on_error, finally_))

    def job(self, handle: str) -> Job[Any]:
        """A job that was submitted before, perhaps by another process.  The server is not asked yet.

        If it is known of which task it is, `task.job(handle)` reads its result by the hints of that task.
        """
        return self.job_of(None, handle)

    def signal(self, job: Job[Any] | str, name: str, value: Any = None) -> bool:
        """Send a signal to a job, for `current_job().wait_for(name)`; False if one of this name had come before.

        It may come before the job waits for it. The value is anything that JSON can express. Raises JobUnknown, or
        ServerRefused if the job has ended.
        """
        from switchgear.app.durable_tasks import make_requests, signal_job

        return make_requests(self.transport, signal_job(self, _handle_of(job), name, value))

    async def signal_async(self, job: Job[Any] | str, name: str, value: Any = None) -> bool:
        """`signal` with asyncio."""
        from switchgear.app.durable_tasks import make_requests_async, signal_job

        return await make_requests_async(self.transport, signal_job(self, _handle_of(job), name, value))

    def approve(self, job: Job[Any] | str, *, by: str = "", comment: str = "", name: str = "approval") -> bool:
        """Approve a job that waits for it (`wait_for_approval`); False if it was approved or rejected before."""
        return self.signal(job, name, {"approved": True, "by": by, "comment": comment})

    def reject(self, job: Job[Any] | str, *, by: str = "", comment: str = "", name: str = "approval") -> bool:
        """Reject a job that waits for an approval; False if it was approved or rejected before."""
        return self.signal(job, name, {"approved": False, "by": by, "comment": comment})

    def jobs(
        self,
        *,
        task: Task[Any, Any] | str | None = None,
        states: Iterable[str] = (),
        dead: bool = False,
        error: str | None = None,
        unique: str | None = None,
        key: str | None = None,
        contains: str | None = None,
        limit: int | None = 100,
    ) -> Iterator[JobInfo]:
        """Jobs that match, newest first, unfinished ones and those of the history; all of them if `limit` is None.

        `contains` is a text in the payload, name, unique key or error; payloads of more than 64 KiB are not searched.
        """
        from switchgear.app.job_selection import selected_jobs, selection_of

        more = {"unique": unique, "key": key, "contains": contains}
        return selected_jobs(self, selection_of(_name_of(task), states, dead=dead, error=error, **more), limit)

    def dead_jobs(
        self, *, task: Task[Any, Any] | str | None = None, error: str | None = None, limit: int | None = 100
    ) -> Iterator[JobInfo]:
        """Jobs whose last attempt was lost or took too long, newest first."""
        return self.jobs(task=task, dead=True, error=error, limit=limit)

    def retry_dead(
        self, *, task: Task[Any, Any] | str | None = None, function: str | None = None, error: str | None = None
    ) -> list[str]:
        """Run all dead jobs that match again, with all their attempts; returns their handles."""
        return self.retry_all(task=task or function, error=error, dead=True)

    def retry_all(
        self,
        *,
        task: Task[Any, Any] | str | None = None,
        states: Iterable[str] = (),
        dead: bool = False,
        error: str | None = None,
    ) -> list[str]:
        """Run all jobs that ended without success and match again, with all their attempts; returns their handles.

        Without `states` these are failed ones, dead or not; "cancelled" and "expired" have to be named.  Something has
        to be given, lest everything is retried by saying nothing.
        """
        from switchgear.app.job_selection import retry_selected, selection_of

        return retry_selected(self, selection_of(_name_of(task), states, dead=dead, error=error))

    def cancel_all(
        self,
        *,
        task: Task[Any, Any] | str | None = None,
        states: Iterable[str] = (),
        error: str | None = None,
    ) -> list[str]:
        """Cancel all unfinished jobs that match; returns their handles."""
        from switchgear.app.job_selection import cancel_selected, selection_of

        return cancel_selected(self, selection_of(_name_of(task), states, error=error))

    def bulk(
        self,
        action: Literal["cancel", "retry"],
        *,
        task: Task[Any, Any] | str | None = None,
        states: Iterable[str] = (),
        dead: bool = False,
        error: str | None = None,
        unique: str | None = None,
        cascade: bool = False,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> BulkOperation:
        """Cancel or retry all jobs that match, up to a million, with one request.

        The server does it by itself, beside its other work: `app.bulk("cancel", task=resize).wait()` waits for the end.
        With `dry_run` nothing is changed, and `matched` says how many jobs it would be. `cascade` cancels also the jobs
        that wait for those that match; if several servers own functions, the jobs of others are not counted.
        """
        from switchgear.app.bulk_operation import BulkOperation
        from switchgear.app.job_selection import selection_of

        selection = selection_of(_name_of(task), states, dead=dead, error=error, unique=unique)
        answer = self.control("bulk", action=action, **selection, cascade=cascade, limit=limit, dry_run=dry_run)
        return BulkOperation(self, answer)

    def pause(self, task: Task[Any, Any] | str) -> None:
        """Start no more jobs of this task on any worker; running jobs go on."""
        self.control("pause", function=_name_of(task))

    def resume(self, task: Task[Any, Any] | str) -> None:
        """Start jobs of a paused task again."""
        self.control("resume", function=_name_of(task))

    def limit(
        self,
        task: Task[Any, Any] | str,
        *,
        concurrency: int | None = None,
        rate: str | tuple[int, float] | None = None,
        key_concurrency: int | None = None,
        key_rate: str | tuple[int, float] | None = None,
        fair: bool | None = None,
    ) -> Mapping[str, Any]:
        """Set those limits of a task that are given, for all its workers together; returns all limits.

        A rate is "10/s" or (10, 1), and "none" removes it; a concurrency of 0 removes that limit.
        """
        limits = {"concurrency": concurrency, "key_concurrency": key_concurrency, "fair": fair}
        rates = {"rate": _rate_of(rate, "rate"), "key_rate": _rate_of(key_rate, "key_rate")}
        policy: Mapping[str, Any] = self.control("limit", function=_name_of(task), **limits, **rates)["policy"]
        return policy

    def place(
        self,
        task: Task[Any, Any] | str,
        *,
        beside: Task[Any, Any] | str | None = None,
        partition: int | None = None,
        by_name: bool = False,
        shards: int | None = None,
    ) -> Mapping[str, Any]:
        """Put a task at the server of another task, or into a partition, if several servers own functions.

        With `by_name` it goes back to where it was before. With `shards` a task without unfinished jobs is divided into
        so many functions, which different servers own; 1 unites them. Returns where it is: partition, node, and whether
        it was placed; and the names of its shards, if it is divided.
        """
        other = None if beside is None else _name_of(beside)
        where = {"beside": other, "partition": partition, "by_name": by_name or None, "shards": shards}
        answer: Mapping[str, Any] = self.control("place", function=_name_of(task), **where)
        return answer

    # --- the server ---

    def functions(self) -> list[FunctionInfo]:
        """Every function that the server knows, with the numbers of its jobs."""
        from switchgear.app.server_answers import FunctionInfo

        return [FunctionInfo.read(answer) for answer in self.control("functions")]

    def workers(self) -> list[WorkerInfo]:
        """The workers that are connected to the server."""
        from switchgear.app.server_answers import WorkerInfo

        return [WorkerInfo.read(answer) for answer in self.control("workers")]

    def control_workers(
        self,
        action: Literal["ping", "drain", "restart", "resize", "broadcast"],
        workers: str = "*",
        *,
        slots: int | None = None,
        text: str | None = None,
    ) -> list[str]:
        """Tell the workers of this name, first parts of a name, pattern or id to do something; returns the names of
        those that were told.

        Each answers with its status a moment later: `workers()` shows it.  With "drain" they stop when their jobs have
        ended, with "restart" they start again after that, with "resize" they have `slots` slots, and with "broadcast"
        their middleware is given the `text`.
        """
        from switchgear.app.server_answers import WorkerInfo

        answer = self.control("control_workers", action=action, workers=workers, slots=slots, text=text)
        return [WorkerInfo.name_of(worker) for worker in answer["told"]]

    def server(self) -> ServerInfo:
        """The server's own state: version, uptime, listeners, memory."""
        from switchgear.app.server_answers import ServerInfo

        return ServerInfo.read(self.control("server"))

    def nodes(self) -> list[NodeInfo]:
        """The servers that share the jobs in one PostgreSQL; empty if the server is not one of several."""
        from switchgear.app.server_answers import NodeInfo

        return [NodeInfo.read(answer) for answer in self.control("nodes")]

    def dashboard(self, port: int = 0) -> str:
        """The URL of the dashboard of the server that this app uses; raises ConfigError if the server has none.

        The server of an embedded app opens its dashboard at the first call, on 127.0.0.1: at `port`, or else at 4740,
        or at a free port if another program has that.  It is open as long as the process runs that owns the directory.
        """
        from switchgear.dashboard.address import dashboard_url

        if any(location.directory is not None for location in self.locations):
            return str(self.control("open_dashboard", port=port)["url"])
        return dashboard_url(listener["url"] for listener in self.control("server")["listeners"])

    def connections(self, limit: int = 100) -> list[ConnectionInfo]:
        """The connections that make the server hold most, the largest first."""
        from switchgear.app.server_answers import ConnectionInfo

        return [ConnectionInfo.read(answer) for answer in self.control("connections", limit=limit)["connections"]]

    def explain_server(self) -> list[str]:
        """Why the server refuses submissions, and who holds most of its memory; or that it accepts them."""
        return [reason["text"] for reason in self.control("explain_server")["reasons"]]

    def declare(self) -> None:
        """Tell the server about limits and schedules, as a worker does when it connects."""
        for verb, arguments in self.declarations():
            answer = self.control(verb, **arguments)
            if verb == "declare" and (answer["schedules"] or answer["functions"]):
                log.warning("%s", undeclared_text(answer["schedules"], answer["functions"], answer["removed"]))

    def control(self, verb: str, **arguments: Any) -> Any:
        """The answer to a CONTROL request, which needs a Switchgear server; see docs/verbs.md.

        Arguments of None are left out.  Raises ServerRefused, ServerUnreachable or ExtensionRequired.
        """
        from switchgear.app.transport import refuse_to_block

        refuse_to_block()
        return self.transport.wait(self.transport.control(verb, arguments))

    async def control_async(self, verb: str, **arguments: Any) -> Any:
        """`control` with asyncio."""
        return await self.transport.wait_async(self.transport.control(verb, arguments))

    # --- the transport ---

    @property
    def transport(self) -> AppTransport:
        """The transport of this process to the servers, made when it is first needed."""
        return self._lazy_transport.get()

    def before_waiting(self, task: Task[Any, Any] | None) -> None:
        """Called when the program waits for a job of this task: in embedded mode it may be the only one that runs it.

        If the task is not known it may be any.
        """
        self._lazy_transport.serve(self.tasks if task is None else (task.name,))

    def use_locations(self, locations: Sequence[ServerLocation]) -> None:
        """Use other servers than those that the app was made for; for workers."""
        self.close()
        self.locations = list(locations)

    def use_transport(
        self, transport: AppTransport | None, now: Callable[[], float]
    ) -> tuple[AppTransport | None, Callable[[], float]]:
        """Use another transport and clock, for tests; returns the previous ones, to be given back here."""
        previous, self.now = self.now, now
        return self._lazy_transport.replace(transport), previous

    def close(self) -> None:
        """Disconnect.  The server drops jobs that are not durable and that only this process waits for.

        The app may be used again, and then connects again.
        """
        self._lazy_transport.close()
        for location in self.locations:
            location.close()

    # --- for tasks ---

    def submit_request(self, task: Task[Any, R], request: SubmitRequest) -> Job[R]:
        """Submit a job, and wait until the server has taken it."""
        from switchgear.app.job import Job
        from switchgear.app.transport import only, refuse_to_block, telling
        from switchgear.client.gearman.job_subscriber import JobSubscriber

        refuse_to_block()  # before the job is there
        transport = self.transport
        subscriber = JobSubscriber()
        with telling([request]) as outcomes:
            answer = transport.wait(transport.submit(request, subscriber))
            outcomes += answer
        handle = only(outcomes)
        return Job(self, task, handle, subscriber)

    async def submit_request_async(self, task: Task[Any, R], request: SubmitRequest) -> Job[R]:
        """`submit_request` with asyncio."""
        from switchgear.app.job import Job
        from switchgear.app.transport import only, telling
        from switchgear.client.gearman.job_subscriber import JobSubscriber

        transport = self.transport
        subscriber = JobSubscriber()
        with telling([request]) as outcomes:
            answer = await transport.wait_async(transport.submit(request, subscriber))
            outcomes += answer
        handle = only(outcomes)
        return Job(self, task, handle, subscriber)

    def job_of(self, task: Task[Any, R] | None, handle: str) -> Job[R]:
        """The job with this handle, of this task if it is known."""
        from switchgear.app.job import Job

        return Job(self, task, handle)


def _rate_of(rate: str | tuple[int, float] | None, name: str) -> list[float] | None:
    """A rate as the server takes it; "none" is no limit, and None leaves the limit as it is."""
    if rate is None:
        return None
    return [0, 0] if rate == "none" else list(Rate.of(rate, name))


def _name_of(task: Task[Any, Any] | str | None) -> str | None:
    return task.name if isinstance(task, Task) else task


def _handle_of(job: Job[Any] | str) -> str:
    handle = job if isinstance(job, str) else getattr(job, "handle", None)
    if not isinstance(handle, str):
        raise TypeError(f"expected a job or the handle of one, not {job!r}")
    return handle


def _is_same_source(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether both functions come from the same lines of source: a module loaded again, or a notebook cell run
    again."""

    def source(function: Callable[..., Any]) -> tuple[Any, ...]:
        code = getattr(function, "__code__", None)
        return (function.__qualname__, getattr(code, "co_filename", None))

    return source(one) == source(other)
