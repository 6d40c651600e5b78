"""`Task`: a function registered with an app, which can be called here or submitted to a worker."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sized
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, nullcontext
from hashlib import blake2b
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from switchgear.app.app_registry import the_apps
from switchgear.app.arguments import Arguments, to_json
from switchgear.app.open_graph import OPEN_GRAPH
from switchgear.app.task_options import EDGE_POLICIES, SubmitKeywords, TaskOptions
from switchgear.app.tracing import SendSpan
from switchgear.client.gearman.submit_request import SubmitRequest
from switchgear.errors import ArgumentError
from switchgear.job_options import JOB_OPTION_NAMED

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.graph import Group, Signature
    from switchgear.app.job import Job
    from switchgear.app.job_group import JobGroup
    from switchgear.app.row_types import TakesOne, TakesThree, TakesTwo

__all__ = ["AsyncTask", "Task", "new_task", "task_name"]

P = ParamSpec("P")
Q = ParamSpec("Q")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
R = TypeVar("R")

_KEY_BYTES: Final = 64  # what servers take of a unique key; longer ones are hashed
_DIGEST_BYTES: Final = 16
_DEFAULTS: Final = TaskOptions()
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
        self.arguments.check_reference = lambda reference: _check_same_server(self.app, reference)
        self.injected = self.arguments.injected
        self.settings = options  # what counts for the next submission
        self._declared = options  # what the workers know
        self._wanted: dict[str, list[str] | None] = {}  # which arguments `unique` and `key` are given; None: all
        for option in ("unique", "key", "label"):
            self._check_chooser(option)
        self._needs = self._find_needs()

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
        for option in ("unique", "key", "label"):
            if option in options:
                other._check_chooser(option)
        other._needs = other._find_needs()
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
            return map_jobs(self, self._requests_for(map(tuple, rows), watch=True, trace=span.trace), window, in_order)

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
        from switchgear.app.graph import Group, Signature

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
        from switchgear.app.graph import Signature

        return Signature(self, args, kwargs)

    s = signature

    def immutable_signature(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R]:
        """A signature that is not given the result of the step before it in a chain."""
        from switchgear.app.graph import Signature

        return Signature(self, args, kwargs, is_immutable=True)

    si = immutable_signature

    def job(self, handle: str) -> Job[R]:
        """A job of this task that was submitted before, perhaps by another process."""
        return self.app.job_of(self, handle)

    # --- inside ---

    def key_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The key that the option `key` gives for these arguments; None without the option."""
        return self._chosen("key", self.arguments.bind(args, kwargs))

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
        if self.app.hooks.middleware:
            task, on_outcome = self.app.hooks.prepared(self, args, dict(kwargs))
            request = task._request(args, kwargs, watch=watch, trace=trace)
            request.on_outcome = on_outcome
            return request
        return self._request(args, kwargs, watch=watch, trace=trace)

    def _request(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, watch: bool, trace: str) -> SubmitRequest:
        by_name = self.arguments.bind(args, kwargs)
        payload = self.arguments.encode_bound(by_name)
        settings = self.settings
        now = self.app.now()
        options = self._json_options(by_name, payload, now)
        if trace or settings.trace:
            options["trace"] = settings.trace or trace
        return SubmitRequest(
            function=self.name.encode(),
            unique=self._unique_key(by_name),
            payload=self._wrapped(payload),
            priority=settings.priority,
            durable=settings.durable,
            watch=watch,
            run_at=settings.at if settings.at is not None else now + settings.delay if settings.delay else 0.0,
            options=options,
            needs=self._needs if b'"$job"' not in payload else self._needs_with_references(payload),
        )

    def alike_request(self, trace: str) -> SubmitRequest | None:
        """A request that all jobs of this task share apart from their payloads and edges; None if they share none."""
        if not self._is_alike():
            return None
        settings = self.settings
        options = schedule_options(settings)
        if trace or settings.trace:
            options["trace"] = settings.trace or trace
        function = self.name.encode()
        return SubmitRequest(function, b"", b"", settings.priority, settings.durable, False, 0.0, options, self._needs)

    def request_like(self, alike: SubmitRequest, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> SubmitRequest:
        """The request for a job with these arguments, of which `alike_request` has given the rest."""
        payload = self.arguments.encode_bound(self.arguments.bind(args, kwargs))
        options, needs = alike.options, alike.needs
        if b'"$job"' in payload:
            edges = self._edges(payload)
            if edges:
                options = {**options, "after": list(edges), "on_failure": list(edges.values())}
                needs = (*needs, "a job as an argument")
        function, priority, durable = alike.function, alike.priority, alike.durable
        return SubmitRequest(function, self._wrapped(payload), b"", priority, durable, False, 0.0, options, needs)

    def _requests(self, iterables: tuple[Iterable[Any], ...], *, watch: bool, trace: str) -> Iterator[SubmitRequest]:
        if not iterables:
            raise TypeError(f"{self.name}: an iterable of arguments is needed")
        # Raised now, and not when the first result is asked for.
        for iterable in iterables:
            if not isinstance(iterable, Iterable):
                raise TypeError(f"{self.name}: {iterable!r} is not iterable")
        rows = self._rows(iterables) if len(iterables) > 1 else ((item,) for item in iterables[0])
        return self._requests_for(rows, watch=watch, trace=trace)

    def _refuse_callbacks(self, what: str) -> None:
        if self.settings.has_callbacks:
            raise ValueError(f"{what} has no callbacks; submit a group of signatures: group({self.name}.s(...), ...)")

    def _requests_for(self, rows: Iterable[tuple[Any, ...]], *, watch: bool, trace: str) -> Iterator[SubmitRequest]:
        """The requests for rows of arguments."""
        if self._is_alike():
            return self._alike(rows, watch, trace)
        return (self.request(row, {}, watch=watch, trace=trace) for row in rows)

    def _is_alike(self) -> bool:
        """Whether jobs of this task differ only in their payloads, unless jobs are among their arguments."""
        settings = self.settings
        if self.app.hooks.middleware:
            return False
        of_its_own = settings.unique or settings.key is not None or settings.after or settings.expires is not None
        of_its_own = of_its_own or settings.label is not None
        return not (of_its_own or settings.at is not None or settings.delay)

    def _alike(self, rows: Iterable[tuple[Any, ...]], watch: bool, trace: str) -> Iterator[SubmitRequest]:
        """Requests that differ only in their payloads."""
        bind, encode_bound, function = self.arguments.bind, self.arguments.encode_bound, self.name.encode()
        settings, needs = self.settings, self._needs
        priority, durable, options = settings.priority, settings.durable, schedule_options(settings)
        if trace or settings.trace:
            options["trace"] = settings.trace or trace
        for row in rows:
            payload = encode_bound(bind(row, {}))
            if b'"$job"' in payload:
                yield self.request(row, {}, watch=watch, trace=trace)
            else:
                yield SubmitRequest(
                    function, self._wrapped(payload), b"", priority, durable, watch, 0.0, options, needs
                )

    def _wrapped(self, payload: bytes) -> bytes:
        """The payload as the app's `PayloadCodec` have it."""
        payloads = self.app.payloads
        if payloads is None:
            return payload
        return payloads.wrap(payload, self.name, self.arguments.references(payload))

    def _rows(self, iterables: tuple[Iterable[Any], ...]) -> Iterator[tuple[Any, ...]]:
        """Rows of items of several iterables; raises ValueError if one has more items, at once if that can be known."""
        lengths = [len(iterable) for iterable in iterables if isinstance(iterable, Sized)]
        if len(set(lengths)) > 1:
            raise ValueError(f"{self.name}: the iterables have different lengths: {', '.join(map(str, lengths))}")
        limited = [iterable for iterable in iterables if not _is_endless(iterable)]
        if not limited or len(limited) == len(iterables):
            return zip(*iterables, strict=bool(limited))
        return _beside_endless(iterables, zip(*limited, strict=True))

    def _json_options(self, by_name: Mapping[str, Any], payload: bytes, now: float) -> dict[str, Any]:
        """The JSON options of SUBMIT_JOB_OPTIONS; see `switchgear.job_options`."""
        settings = self.settings
        options: dict[str, Any] = schedule_options(settings)
        if settings.expires is not None:
            options["expires_at"] = now + settings.expires
        if settings.key is not None:
            key = self._chosen("key", by_name)
            if key is not None:
                options["key"] = short_key(key).decode()
        if settings.label is not None:
            label = self._chosen("label", by_name)
            if label is not None:
                options["label"] = shortened_label(label)
        if settings.unique:
            options["unique_scope"] = settings.unique_scope
            options["unique_policy"] = settings.unique_policy
            if settings.unique_for is not None:
                options["unique_for"] = settings.unique_for
        if settings.after or b'"$job"' in payload:
            edges = self._edges(payload)
            options["after"] = list(edges)
            options["on_failure"] = list(edges.values())
        return options

    def _edges(self, payload: bytes) -> dict[str, str]:
        """Handles of the predecessors, and the policy for each if it does not succeed."""
        edges = dict.fromkeys(self.arguments.references(payload), self.settings.on_failure)
        for entry in self.settings.after:
            before, policy = entry if isinstance(entry, tuple) else (entry, self.settings.on_failure)
            if policy not in EDGE_POLICIES:
                raise ValueError(f"after: a policy is one of {', '.join(EDGE_POLICIES)}, not {policy!r}")
            try:
                _check_same_server(self.app, before)
            except ValueError as error:
                raise ArgumentError(f"{self.name}: after: {error}") from None
            for handle in _handles_of(before):
                edges[handle] = policy
        return edges

    def _needs_with_references(self, payload: bytes) -> tuple[str, ...]:
        has_any = bool(self.arguments.references(payload))
        return (*self._needs, "a job as an argument") if has_any else self._needs

    def _find_needs(self) -> tuple[str, ...]:
        """The options that need a Switchgear server, in the words of the user."""
        settings = self.settings
        needs = [
            name
            for name in ("retries", "crash_limit", "expires", "retention", "key", "label", "requires", "after")
            if getattr(settings, name) != getattr(_DEFAULTS, name)
        ]
        if settings.timeout != self._declared.timeout:
            needs.append("timeout")  # that of the task itself its workers see to
        if settings.unique:
            names = ("unique_scope", "unique_for", "unique_policy")
            needs += [name for name in names if getattr(settings, name) != getattr(_DEFAULTS, name)]
        return tuple(needs)

    def _unique_key(self, by_name: Mapping[str, Any]) -> bytes:
        unique = self.settings.unique
        if not unique:
            return b""
        if unique is True:
            if self.arguments.takes_bytes:
                return blake2b(self.arguments.encode_bound(by_name), digest_size=_DIGEST_BYTES).hexdigest().encode()
            return blake2b(self._canonical(by_name), digest_size=_DIGEST_BYTES).hexdigest().encode()
        chosen = self._chosen("unique", by_name)
        return b"" if chosen is None else short_key(chosen)

    def _canonical(self, by_name: Mapping[str, Any]) -> bytes:
        """All arguments in one encoding, whether or not defaults were given explicitly."""
        values: dict[str, Any] = {}
        for name, value in sorted(self.arguments.with_defaults(by_name).items()):
            try:
                values[name] = to_json(value, is_sorted=True).decode()
            except (TypeError, ValueError):
                continue  # a default that only Python can express; arguments that were given have been checked
        return to_json(values)

    def _chosen(self, option: str, by_name: Mapping[str, Any]) -> Any:
        """The value that the option `unique` or `key` gives for these arguments."""
        choose = getattr(self.settings, option)
        if not callable(choose):
            return choose
        known = self.arguments.with_defaults(by_name)
        wanted = self._wanted[option]
        return choose(**(known if wanted is None else {name: known[name] for name in wanted if name in known}))

    def _check_chooser(self, option: str) -> None:
        """Raise TypeError if the callable cannot be called with the arguments of the task."""
        choose = getattr(self.settings, option)
        if not callable(choose):
            return
        names = self.arguments.signature.parameters
        takes_more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in names.values())
        wanted: list[str] | None = []
        for parameter in inspect.signature(choose).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                wanted = None  # all of them
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            if wanted is not None:
                wanted.append(parameter.name)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise TypeError(f"{self.name}: {option} is called with arguments by name, but has positional-only ones")
            if parameter.default is parameter.empty and parameter.name not in names and not takes_more:
                raise TypeError(
                    f"{self.name}: {option} wants {parameter.name}, but the task has the parameters "
                    f"{', '.join(names) or '(none)'}"
                )
        self._wanted = self._wanted | {option: wanted}  # a copy with other options has others


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


def schedule_options(settings: TaskOptions) -> dict[str, Any]:
    """The options of the jobs that a schedule of this task makes."""
    options: dict[str, Any] = {"attempts_limit": settings.attempts, "crash_limit": settings.crash_limit}
    if settings.timeout is not None:
        options["timeout"] = settings.timeout
    if settings.retention is not None:
        options["retention"] = settings.retention
    if settings.requires:
        options["requires"] = list(settings.requires)
    return options


def shortened_label(label: Any) -> str:
    """A label as servers take it: its beginning, if it is long.

    >>> shortened_label(17), len(shortened_label("x" * 1000))
    ('17', 256)
    """
    text = str(label).replace("\0", "").encode(errors="replace")[: JOB_OPTION_NAMED["label"].most]
    return text.decode(errors="ignore")


def short_key(chosen: Any) -> bytes:
    """A key as servers take it: the chosen value if it is short and printable, else a hash of it.

    >>> short_key("a.png"), short_key(17), short_key(("a", 1))
    (b'a.png', b'17', b'["a",1]')
    >>> len(short_key("x" * 1000))
    32
    """
    if isinstance(chosen, str):
        key = chosen.encode(errors="surrogatepass")
    elif isinstance(chosen, bytes):
        key = chosen
    else:
        try:
            key = to_json(chosen, is_sorted=True)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"a key cannot be made of {chosen!r}: {error}") from error
    # A dash means something else to servers, and what is not text cannot be shown.
    if 0 < len(key) <= _KEY_BYTES and b"\0" not in key and key != b"-" and _is_text(key):
        return key
    return blake2b(key, digest_size=_DIGEST_BYTES).hexdigest().encode()


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_endless(iterable: Iterable[Any]) -> bool:
    """Whether an iterable is known to be endless, so that it may be paired with others of any length."""
    if isinstance(iterable, itertools.repeat):
        return length_hint(iterable, -1) < 0
    return isinstance(iterable, itertools.count | itertools.cycle)


def _beside_endless(
    iterables: tuple[Iterable[Any], ...], limited: Iterator[tuple[Any, ...]]
) -> Iterator[tuple[Any, ...]]:
    endless = [iter(iterable) if _is_endless(iterable) else None for iterable in iterables]
    for row in limited:
        items = iter(row)
        yield tuple([next(items if others is None else others) for others in endless])


def _check_same_server(app: App, before: Any) -> None:
    """Raise ValueError for a job of another app's servers: at this app's servers its handle means another job, or
    none."""
    other = getattr(before, "app", None)  # a handle has none
    if other is None or other is app:
        return
    known = {location.directory or location.url for location in app.locations}
    if not all((location.directory or location.url) in known for location in other.locations):
        what = f"job {before.handle}" if hasattr(before, "handle") else repr(before)
        raise ValueError(f"{what} is of another app: it is at {_urls(other)}, and this task at {_urls(app)}")


def _urls(app: App) -> str:
    return ", ".join(location.url for location in app.locations)


def _handles_of(before: Any) -> Iterable[str]:
    if isinstance(before, str):
        return (before,)
    if hasattr(before, "handles"):  # a group
        return cast(Iterable[str], before.handles)
    handle = getattr(before, "handle", None)
    if isinstance(handle, str):
        return (handle,)
    raise TypeError(f"after: expected a job, a group or a handle, not {before!r}")


def new_task(app: App | None, function: Callable[..., Any], name: str | None, options: TaskOptions) -> Task[Any, Any]:
    """A task of this app, or a shared one; raises TypeError or ValueError."""
    if isinstance(function, Task):
        raise TypeError(f"{function.name} is a task already")
    _check_function(function, name)
    name = task_name(function) if name is None else name
    if not name or "\0" in name or name.encode(errors="ignore").decode() != name:
        raise ValueError(f"{name!r} cannot be the name of a task")
    kind = AsyncTask if inspect.iscoroutinefunction(function) else Task
    return kind(app, function, name, options)


def _check_function(function: Any, name: str | None) -> None:
    """Raise TypeError for what cannot be a task, with what to do instead."""
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"a task is made of a function, not of {function!r}")
    shown = name or getattr(function, "__qualname__", "")
    if not hasattr(function, "__qualname__") and not (name and inspect.isfunction(function)):
        raise TypeError(f"{function!r} is no function; define one that calls it, and make that a task")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{shown} has a `yield`, and a task has one result: return a list, report progress by"
            " current_job().progress(...), or submit a job for each item"
        )
    first = next(iter(inspect.signature(function).parameters.values()), None) if inspect.isfunction(function) else None
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    if first is not None and first.name == "self" and owner and not owner.endswith("<locals>"):
        raise TypeError(
            f"{shown} is a method, and a worker has no object for `self`: make a function of it, or a staticmethod,"
            " and pass what it needs, or have it injected (docs/howto/hooks.md)"
        )


def task_name(function: Callable[..., Any]) -> str:
    """The name of a function's task, which is the same in processes that import the module and that run it as a
    script."""
    module = function.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        file = getattr(main, "__file__", None)
        if spec is not None and spec.name:
            module = spec.name
        elif file:
            module = Path(file).stem
    if "<lambda>" in function.__qualname__:
        raise ValueError("a lambda has no name that a worker could know; give one: app.task(name=...)")
    return f"{module}.{function.__qualname__}"
