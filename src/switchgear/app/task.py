"""`Task`: a function registered with an app, which can be called here or submitted to a worker."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from switchgear.app.app_registry import the_apps
from switchgear.app.argument_rows import argument_rows
from switchgear.app.arguments import Arguments
from switchgear.app.open_graph import OPEN_GRAPH
from switchgear.app.predecessors import check_same_server
from switchgear.app.task_functions import check_function, check_name, task_name
from switchgear.app.task_options import SubmitKeywords, TaskOptions
from switchgear.app.task_requests import TaskRequests
from switchgear.app.tracing import SendSpan
from switchgear.client.gearman.submit_request import SubmitRequest

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.job import Job
    from switchgear.app.job_group import JobGroup
    from switchgear.app.row_types import TakesOne, TakesThree, TakesTwo
    from switchgear.app.signatures import Group, Signature

__all__ = ["AsyncTask", "Task", "new_task"]

P = ParamSpec("P")
Q = ParamSpec("Q")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
R = TypeVar("R")

_NOT_TRACED: Final = SendSpan()
# What tasks of other libraries have.
_INSTEAD: Final = {
    "delay": "task.submit(...) submits a job",
    "send": "task.submit(...) submits a job",
    "enqueue": "task.submit(...) submits a job",
    "kiq": "task.submit(...) submits a job",
    "apply_async": "task.options(delay=10).submit(...) submits a job with options",
    "send_with_options": "task.options(delay=10).submit(...) submits a job with options",
    "schedule": "task.options(delay=10).submit(...) submits a job for later",
    "retry": "a task raises switchgear.Retry to be run again",
    "AsyncResult": "task.job(handle) is a job that was submitted before",
}


class Task(Generic[P, R]):
    """A function registered with an app.

    Calling it calls the function, here and now.  `submit` has a worker call it, and gives a Job.
    """

    def __init__(self, app: App | None, function: Callable[..., Any], name: str, options: TaskOptions) -> None:
        """Without an app it is a shared task, which finds its app when it is needed."""
        functools.update_wrapper(self, function)
        self._app = app
        self.name = name
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self.arguments: Arguments[R] = Arguments(function, name)
        self.arguments.check_reference = lambda reference: check_same_server(self.app, reference)
        self.injected = self.arguments.injected
        self.settings = options  # what counts for the next submission
        self._declared = options  # what the workers know
        self.requests = TaskRequests(self, options)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    if not TYPE_CHECKING:  # for type checkers there are no other names

        def __getattr__(self, name: str) -> Any:
            instead = _INSTEAD.get(name)
            hint = f"; {instead}" if instead else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        graph = OPEN_GRAPH.get()
        if graph is not None:
            return graph.call(self, args, kwargs)
        if self.injected:
            return cast(R, self._call_with_resources(args, kwargs))
        return cast(R, self.function(*args, **kwargs))

    def _call_with_resources(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function here, with resources for the parameters that are not given."""
        given = inspect.signature(self.function).bind_partial(*args, **kwargs).arguments
        kinds = {name: kind for name, kind in self.injected_kinds.items() if name not in given}
        with ExitStack() as stack:
            return self.function(*args, **kwargs, **self.app.hooks.resources.values(self.name, kinds, stack))

    @functools.cached_property
    def injected_kinds(self) -> dict[str, Any]:
        """The types of the parameters that a worker provides."""
        return self.arguments.injected_kinds

    @property
    def app(self) -> App:
        """The app of the task; raises ConfigError if a shared task does not know it yet."""
        if self._app is None:
            the_apps.bind_shared(the_apps.default_app())
        if self._app is None:  # a copy with other options, of a task that has its app by now
            self._app = the_apps.default_app()
        return self._app

    @property
    def typed_function(self) -> Callable[P, R]:
        """The function as type checkers see it: its result is that of the job, also if it is a coroutine function."""
        return cast(Callable[P, R], self.function)

    def bind(self, app: App) -> None:
        """Bind a shared task to an app."""
        self._app = app

    @property
    def options(self) -> TaskOptionsOf[P, R]:
        """The options, and a way to change them for a submission.

        `task.options.timeout` is an option of the task.  `task.options(timeout=5, delay=60)` is the task with other
        options, to be submitted; the task itself stays as it is.
        """
        return TaskOptionsOf(self)

    def with_options(self, **options: Unpack[SubmitKeywords]) -> Task[P, R]:
        """A copy of the task with other options; see `options`."""
        other = copy.copy(self)
        other.settings = self.settings.changed(options, for_submission=True)
        other.requests = TaskRequests(other, self._declared, self.requests)
        return other

    def with_arguments(self, arguments: Arguments[Any]) -> Task[..., Any]:
        """A copy of the task whose jobs have other arguments."""
        other = copy.copy(self)
        other.arguments = arguments
        other.requests = TaskRequests(other, self._declared, self.requests)
        return other

    # --- submitting ---

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Submit a job, and return when the server has accepted it (and, if it is durable, stored it).

        Raises ArgumentError if the function cannot be called with these arguments, ServerUnreachable, ServerRefused or
        ExtensionRequired.
        """
        if self.settings.has_callbacks:
            return self.signature(*args, **kwargs).submit_with_callbacks()
        if self.app.tracing is None:
            return self.app.submit_request(self, self.request(args, kwargs))
        with self.sending() as span:
            job = self.app.submit_request(self, self.request(args, kwargs, trace=span.trace))
            span.accepted(job.handle)
            return job

    async def submit_async(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """`submit` with asyncio."""
        if self.settings.has_callbacks:
            return await self.signature(*args, **kwargs).submit_with_callbacks_async()
        if self.app.tracing is None:
            return await self.app.submit_request_async(self, self.request(args, kwargs))
        with self.sending() as span:
            job = await self.app.submit_request_async(self, self.request(args, kwargs, trace=span.trace))
            span.accepted(job.handle)
            return job

    @overload
    def submit_many(self: TakesOne[A, R], a: Iterable[A], /) -> JobGroup[R]: ...

    @overload
    def submit_many(self: TakesTwo[A, B, R], a: Iterable[A], b: Iterable[B], /) -> JobGroup[R]: ...

    @overload
    def submit_many(self: TakesThree[A, B, C, R], a: Iterable[A], b: Iterable[B], c: Iterable[C], /) -> JobGroup[R]: ...

    @overload
    def submit_many(
        self, a: Iterable[Any], b: Iterable[Any], c: Iterable[Any], d: Iterable[Any], /, *more: Iterable[Any]
    ) -> JobGroup[R]: ...

    def submit_many(self, *iterables: Iterable[Any]) -> JobGroup[R]:
        """Submit a job for each item, or for each row of items if there are several iterables.

        Far faster than one by one: many submissions are in flight at once. Only the ids of the jobs are kept here, so
        that a million take eight megabytes.
        """
        from switchgear.app.job_group import JobGroup

        self._refuse_callbacks("submit_many")
        with self.sending() as span:
            group = JobGroup.submit(self.app, self, self._requests(iterables, watch=False, trace=span.trace))
            span.accepted_many(len(group))
            return group

    @overload
    async def submit_many_async(self: TakesOne[A, R], a: Iterable[A], /) -> JobGroup[R]: ...

    @overload
    async def submit_many_async(self: TakesTwo[A, B, R], a: Iterable[A], b: Iterable[B], /) -> JobGroup[R]: ...

    @overload
    async def submit_many_async(
        self: TakesThree[A, B, C, R], a: Iterable[A], b: Iterable[B], c: Iterable[C], /
    ) -> JobGroup[R]: ...

    @overload
    async def submit_many_async(
        self, a: Iterable[Any], b: Iterable[Any], c: Iterable[Any], d: Iterable[Any], /, *more: Iterable[Any]
    ) -> JobGroup[R]: ...

    async def submit_many_async(self, *iterables: Iterable[Any]) -> JobGroup[R]:
        """`submit_many` with asyncio."""
        from switchgear.app.job_group import JobGroup

        self._refuse_callbacks("submit_many")
        with self.sending() as span:
            requests = self._requests(iterables, watch=False, trace=span.trace)
            group = await JobGroup.submit_async(self.app, self, requests)
            span.accepted_many(len(group))
            return group

    @overload
    def map(self: TakesOne[A, R], a: Iterable[A], /, *, window: int = 1000, in_order: bool = True) -> Iterator[R]: ...

    @overload
    def map(
        self: TakesTwo[A, B, R],
        a: Iterable[A],
        b: Iterable[B],
        /,
        *,
        window: int = 1000,
        in_order: bool = True,
    ) -> Iterator[R]: ...

    @overload
    def map(
        self: TakesThree[A, B, C, R],
        a: Iterable[A],
        b: Iterable[B],
        c: Iterable[C],
        /,
        *,
        window: int = 1000,
        in_order: bool = True,
    ) -> Iterator[R]: ...

    @overload
    def map(
        self,
        a: Iterable[Any],
        b: Iterable[Any],
        c: Iterable[Any],
        d: Iterable[Any],
        /,
        *more: Iterable[Any],
        window: int = 1000,
        in_order: bool = True,
    ) -> Iterator[R]: ...

    def map(self, *iterables: Iterable[Any], window: int = 1000, in_order: bool = True) -> Iterator[R]:
        """The results for each item, or for each row of items if there are several iterables.

        At most `window` jobs are unfinished, or finished and not yet taken, at a time; so the iterables may be without
        end.  The first job that does not succeed raises what its `result` raises, and those not yet started are
        cancelled.
        """
        from switchgear.app.task_map import map_jobs

        self._refuse_callbacks("map")
        with self.sending() as span:  # the jobs are submitted later, one after the other
            return map_jobs(self, self._requests(iterables, watch=True, trace=span.trace), window, in_order)

    @overload
    def amap(
        self: TakesOne[A, R], a: Iterable[A], /, *, window: int = 1000, in_order: bool = True
    ) -> AsyncIterator[R]: ...

    @overload
    def amap(
        self: TakesTwo[A, B, R],
        a: Iterable[A],
        b: Iterable[B],
        /,
        *,
        window: int = 1000,
        in_order: bool = True,
    ) -> AsyncIterator[R]: ...

    @overload
    def amap(
        self: TakesThree[A, B, C, R],
        a: Iterable[A],
        b: Iterable[B],
        c: Iterable[C],
        /,
        *,
        window: int = 1000,
        in_order: bool = True,
    ) -> AsyncIterator[R]: ...

    @overload
    def amap(
        self,
        a: Iterable[Any],
        b: Iterable[Any],
        c: Iterable[Any],
        d: Iterable[Any],
        /,
        *more: Iterable[Any],
        window: int = 1000,
        in_order: bool = True,
    ) -> AsyncIterator[R]: ...

    def amap(self, *iterables: Iterable[Any], window: int = 1000, in_order: bool = True) -> AsyncIterator[R]:
        """`map` with asyncio."""
        from switchgear.app.task_map import map_jobs_async

        self._refuse_callbacks("amap")
        with self.sending() as span:
            return map_jobs_async(self, self._requests(iterables, watch=True, trace=span.trace), window, in_order)

    @overload
    def starmap(
        self: TakesOne[A, R], rows: Iterable[tuple[A]], *, window: int = 1000, in_order: bool = True
    ) -> Iterator[R]: ...

    @overload
    def starmap(
        self: TakesTwo[A, B, R], rows: Iterable[tuple[A, B]], *, window: int = 1000, in_order: bool = True
    ) -> Iterator[R]: ...

    @overload
    def starmap(
        self: TakesThree[A, B, C, R],
        rows: Iterable[tuple[A, B, C]],
        *,
        window: int = 1000,
        in_order: bool = True,
    ) -> Iterator[R]: ...

    @overload
    def starmap(
        self,
        rows: Iterable[tuple[Any, Any, Any, Any, *tuple[Any, ...]]],
        *,
        window: int = 1000,
        in_order: bool = True,
    ) -> Iterator[R]: ...

    def starmap(self, rows: Iterable[Any], *, window: int = 1000, in_order: bool = True) -> Iterator[R]:
        """`map` over rows of arguments: `resize.starmap([("a.png", 64), ("b.png", 128)])`."""
        from switchgear.app.task_map import map_jobs

        self._refuse_callbacks("starmap")
        with self.sending() as span:
            requests = self.requests.for_rows(map(tuple, rows), watch=True, trace=span.trace)
            return map_jobs(self, requests, window, in_order)

    @overload
    def chunks(self: TakesOne[A, R], rows: Iterable[tuple[A]], size: int) -> Group[list[R]]: ...

    @overload
    def chunks(self: TakesTwo[A, B, R], rows: Iterable[tuple[A, B]], size: int) -> Group[list[R]]: ...

    @overload
    def chunks(self: TakesThree[A, B, C, R], rows: Iterable[tuple[A, B, C]], size: int) -> Group[list[R]]: ...

    @overload
    def chunks(self, rows: Iterable[tuple[Any, Any, Any, Any, *tuple[Any, ...]]], size: int) -> Group[list[R]]: ...

    def chunks(self, rows: Iterable[Any], size: int) -> Group[list[R]]:
        """A group of jobs, each of which makes `size` calls, one for each row of arguments, and returns their results.

        For tasks that take less time than handing out a job: `count.chunks(zip(texts), 100).submit()`.
        """
        from switchgear.app.chunks import chunk_task
        from switchgear.app.signatures import Group, Signature

        if type(size) is not int or size < 1:
            raise ValueError(f"size is a whole number from 1 up, not {size!r}")
        task = chunk_task(self)
        whole = iter(rows)
        chunks = iter(lambda: [tuple(row) for row in itertools.islice(whole, size)], [])
        return Group([Signature(task, (chunk,), {}, is_immutable=True) for chunk in chunks])

    @overload
    def signature(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R]: ...

    @overload
    def signature(self: Task[Concatenate[Any, Q], R], *args: Q.args, **kwargs: Q.kwargs) -> Signature[R]: ...

    def signature(self, *args: Any, **kwargs: Any) -> Signature[R]:
        """The task with arguments, to be submitted later, as part of a chain or group.

        In a chain, the result of the step before it is its first argument, and those that are given here follow.
        """
        from switchgear.app.signatures import Signature

        return Signature(self, args, kwargs)

    s = signature

    def immutable_signature(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R]:
        """A signature that is not given the result of the step before it in a chain."""
        from switchgear.app.signatures import Signature

        return Signature(self, args, kwargs, is_immutable=True)

    si = immutable_signature

    def job(self, handle: str) -> Job[R]:
        """A job of this task that was submitted before, perhaps by another process."""
        return self.app.job_of(self, handle)

    # --- inside ---

    def key_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The key that the option `key` gives for these arguments; None without the option."""
        return self.requests.chosen_values.chosen("key", self.arguments.bind(args, kwargs))

    def sending(self) -> AbstractContextManager[SendSpan]:
        """A span around the submission of jobs of this task; one without effect if nothing traces them, or if the
        trace was given as an option."""
        tracing = self.app.tracing
        if tracing is None or self.settings.trace is not None:
            return nullcontext(_NOT_TRACED)
        return tracing.sending(self.name)

    def request(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, watch: bool = True, trace: str = ""
    ) -> SubmitRequest:
        """The request that submits a job with these arguments; `trace` is that of its `sending`."""
        return self.requests.request_for(args, kwargs, watch=watch, trace=trace)

    def _requests(self, iterables: tuple[Iterable[Any], ...], *, watch: bool, trace: str) -> Iterator[SubmitRequest]:
        return self.requests.for_rows(argument_rows(self.name, iterables), watch=watch, trace=trace)

    def _refuse_callbacks(self, what: str) -> None:
        if self.settings.has_callbacks:
            raise ValueError(f"{what} has no callbacks; submit a group of signatures: group({self.name}.s(...), ...)")


class AsyncTask(Task[P, R]):
    """A task that is a coroutine function.  Its result is that of the coroutine."""

    # Called, it gives a coroutine like the function; everything else is about what comes of it.
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]
        graph = OPEN_GRAPH.get()
        if graph is not None:
            return cast(Coroutine[Any, Any, R], graph.call(self, args, kwargs))
        if self.injected:
            return cast(Coroutine[Any, Any, R], self._call_with_resources_async(args, kwargs))
        return cast(Coroutine[Any, Any, R], self.function(*args, **kwargs))

    async def _call_with_resources_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = inspect.signature(self.function).bind_partial(*args, **kwargs).arguments
        kinds = {name: kind for name, kind in self.injected_kinds.items() if name not in given}
        async with AsyncExitStack() as stack:
            resources = await self.app.hooks.resources.values_async(self.name, kinds, stack)
            return await self.function(*args, **kwargs, **resources)


class TaskOptionsOf(Generic[P, R]):
    """The options of a task as attributes; calling it returns a copy of the task with other options."""

    __slots__ = ("_task",)

    def __init__(self, task: Task[P, R]) -> None:
        self._task = task

    def __call__(self, **options: Unpack[SubmitKeywords]) -> Task[P, R]:
        return self._task.with_options(**options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task.settings, name)

    def __repr__(self) -> str:
        return repr(self._task.settings)


def new_task(app: App | None, function: Callable[..., Any], name: str | None, options: TaskOptions) -> Task[Any, Any]:
    """A task of this app, or a shared one; raises TypeError or ValueError."""
    if isinstance(function, Task):
        raise TypeError(f"{function.name} is a task already")
    check_function(function, name)
    name = task_name(function) if name is None else name
    check_name(name)
    kind = AsyncTask if inspect.iscoroutinefunction(function) else Task
    return kind(app, function, name, options)
