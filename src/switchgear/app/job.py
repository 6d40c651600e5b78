"""`Job`: a submitted job; its result, progress, status, cancellation and retry."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import AsyncIterator, Generator, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from switchgear.app.payloads.codec import PLAIN
from switchgear.app.payloads.envelope import is_envelope
from switchgear.app.references import REFERENCE, Reference, to_json
from switchgear.app.reraised_exceptions import restored_failure
from switchgear.app.server_answers import Explanation, JobInfo
from switchgear.app.task_options import Priority, Seconds, TaskOptions
from switchgear.app.transport import refuse_to_block
from switchgear.app.type_hints import read_untyped_result
from switchgear.client.gearman.job_subscriber import JobEnd, JobSubscriber, Progress
from switchgear.client.gearman.pending_requests import UNKNOWN
from switchgear.errors import ClientError, JobFailed, JobUnknown, ResultError
from switchgear.json_bytes import plain

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.task import Task

__all__ = ["Job", "Updates"]

R = TypeVar("R")

# What jobs of other libraries have.
_INSTEAD: Final = {
    "get": "job.result() waits for the result",
    "ready": "job.status().is_finished says whether it has ended",
    "state": "job.status().state is its state",
    "id": "job.handle identifies it",
    "task_id": "job.handle identifies it",
    "revoke": "job.cancel() cancels it",
    "forget": "the option retention= says how long it is kept",
}


class Job(Reference, Generic[R]):
    """A job that was submitted: by this process just now, or by any other, if it is made of a handle.

    Any process can ask for its result any number of times, while the server keeps the job. The server pushes events;
    nothing is polled.
    """

    def __init__(
        self, app: App, task: Task[Any, R] | None, handle: str, subscriber: JobSubscriber | None = None
    ) -> None:
        self.app = app
        self.task = task
        self.handle = handle
        self._subscriber = subscriber

    def __repr__(self) -> str:
        of = f" {self.task.name}" if self.task is not None else ""
        end = self._known_end
        return f"<Job {self.handle}{of}{' ' + end.state if end is not None else ''}>"

    if not TYPE_CHECKING:  # for type checkers there are no other names

        def __getattr__(self, name: str) -> Any:
            instead = _INSTEAD.get(name)
            hint = f"; {instead}" if instead else ""
            raise AttributeError(f"'Job' object has no attribute {name!r}{hint}", name=name, obj=self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (other.handle, other.app) == (self.handle, self.app)

    def __hash__(self) -> int:
        return hash(self.handle)

    # --- the end ---

    def result(self, timeout: float | None = None) -> R:
        """Wait for the job, and return what the task returned.

        Raises TaskFailed, PredecessorFailed, JobCancelled, JobExpired, JobLost or JobTimedOut (all are JobFailed),
        TimeoutError, JobUnknown, ServerUnreachable, or ResultError if the result is not what the task says it returns.
        """
        return self._read(self._wait_end(timeout))

    async def result_async(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - like `result`
        """`result` with asyncio; `await job` is short for it."""
        end = await self._wait_end_async(timeout)
        if self.app.payloads is None:
            return self._read(end)
        return await asyncio.to_thread(self._read, end)  # it may be in a blob store

    def __await__(self) -> Generator[Any, None, R]:
        return self.result_async().__await__()

    def wait(self, timeout: float | None = None) -> str:
        """Wait until the job has ended in any state; returns the name of the state.  Raises TimeoutError."""
        return self._wait_end(timeout).state

    async def wait_async(self, timeout: float | None = None) -> str:  # noqa: ASYNC109 - like `wait`
        """`wait` with asyncio."""
        return (await self._wait_end_async(timeout)).state

    def _read(self, end: JobEnd) -> R:
        failure = end.failure(self.handle)
        if isinstance(failure, JobFailed):
            failure = restored_failure(self.app, self.task, failure)
        if failure is not None:
            raise failure
        data = end.result
        if is_envelope(data):
            try:
                data = (self.app.payloads or PLAIN).unwrap(data, self.task.name if self.task is not None else None)
            except ValueError as error:
                raise ResultError(f"the result of {self.handle}: {error}") from error
        return cast(R, read_untyped_result(data)) if self.task is None else self.task.arguments.decode_result(data)

    def _wait_end(self, timeout: float | None) -> JobEnd:
        if (known := self._known_end) is not None:
            return self._known(known)
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            subscriber = self._subscribe(timeout)
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            return self._known(self.app.transport.wait(subscriber.future, left))
        except TimeoutError as error:
            if isinstance(error, ClientError):  # its message has the details
                raise
            raise TimeoutError(f"job {self.handle} has not ended within {timeout:g} s") from None

    async def _wait_end_async(self, seconds: float | None) -> JobEnd:
        if (known := self._known_end) is not None:
            return self._known(known)
        try:
            async with asyncio.timeout(seconds):
                subscriber = await self._subscribe_async()
                return self._known(await self.app.transport.wait_async(subscriber.future, seconds))
        except TimeoutError as error:
            if seconds is None or isinstance(error, ClientError):
                raise
            raise TimeoutError(f"job {self.handle} has not ended within {seconds:g} s") from None

    def _known(self, end: JobEnd) -> JobEnd:
        if end.state == UNKNOWN:
            failure = end.failure(self.handle)
            assert failure is not None
            raise failure
        return end

    @property
    def _known_end(self) -> JobEnd | None:
        subscriber = self._subscriber
        if subscriber is None or not subscriber.future.done() or subscriber.future.exception() is not None:
            return None
        return subscriber.future.result()

    @property
    def _server_number(self) -> int | None:
        return self._subscriber.server_number if self._subscriber is not None else None

    def _subscribe(self, timeout: float | None) -> JobSubscriber:
        """The subscriber of this job, made and subscribed if there is none."""
        subscriber = self._subscriber
        if subscriber is not None and subscriber.is_usable:
            return subscriber
        subscriber = JobSubscriber()
        transport = self.app.transport
        self.app.before_waiting(self.task)
        self._begin(subscriber, transport.wait(transport.watch(self.handle, subscriber, self._server_number), timeout))
        return subscriber

    async def _subscribe_async(self) -> JobSubscriber:
        subscriber = self._subscriber
        if subscriber is not None and subscriber.is_usable:
            return subscriber
        subscriber = JobSubscriber()
        transport = self.app.transport
        self.app.before_waiting(self.task)
        self._begin(
            subscriber, await transport.wait_async(transport.watch(self.handle, subscriber, self._server_number))
        )
        return subscriber

    def _begin(self, subscriber: JobSubscriber, state: str) -> None:
        if state == UNKNOWN:
            self._known(JobEnd(UNKNOWN))
        self._subscriber = subscriber

    # --- while it runs ---

    def updates(self) -> Updates:
        """The progress of the job, from the latest report until its end; for `for` and `async for`."""
        return Updates(self)

    def status(self) -> JobInfo:
        """The state of the job at the server; raises JobUnknown."""
        return JobInfo.read(self._ask("job"))

    async def status_async(self) -> JobInfo:
        """`status` with asyncio."""
        return JobInfo.read(await self._ask_async("job"))

    def explain(self) -> Explanation:
        """Why the job is in its state: what it waits for, and which workers could run it."""
        return Explanation.read(self.handle, self._ask("explain"))

    async def explain_async(self) -> Explanation:
        """`explain` with asyncio."""
        return Explanation.read(self.handle, await self._ask_async("explain"))

    # --- acting ---

    def cancel(self, cascade: bool = False) -> bool:
        """Cancel the job; with `cascade` also the jobs that wait for it.  False if it had ended before.

        A running job is asked to stop: see `current_job().cancelled`. If several servers own functions, the jobs of
        others are cancelled a moment later.
        """
        try:
            self._ask("cancel", cascade=cascade)
        except JobUnknown:
            self.status()  # raises if there is no such job
            return False
        return True

    async def cancel_async(self, cascade: bool = False) -> bool:
        """`cancel` with asyncio."""
        try:
            await self._ask_async("cancel", cascade=cascade)
        except JobUnknown:
            await self.status_async()
            return False
        return True

    def complete(self, result: R) -> None:
        """Complete a job that does not run with this result, without running it; raises ServerRefused."""
        self._ask("complete", result=plain(self._result_bytes(result)))

    async def complete_async(self, result: R) -> None:
        """`complete` with asyncio."""
        await self._ask_async("complete", result=plain(self._result_bytes(result)))

    def _result_bytes(self, result: R) -> bytes:
        data = to_json(result) if self.task is None else self.task.arguments.encode_result(result)
        payloads = self.app.payloads
        return data if payloads is None else payloads.wrap(data, "" if self.task is None else self.task.name, [])

    def retry(self) -> None:
        """Run a job again that ended without success, with all its attempts; raises ServerRefused."""
        self._ask("retry")
        self._subscriber = None  # the earlier end no longer counts

    async def retry_async(self) -> None:
        """`retry` with asyncio."""
        await self._ask_async("retry")
        self._subscriber = None

    def change(
        self, *, priority: Priority | None = None, at: datetime | float | None = None, delay: Seconds | None = None
    ) -> JobInfo:
        """Change the priority of a job that does not run yet, or when it may start; raises ServerRefused.

        With `delay=0` the job starts as soon as possible. A ready job goes to the end of the queue of its new priority.
        """
        return JobInfo.read(self._ask("change", **self._changes(priority=priority, at=at, delay=delay)))

    async def change_async(
        self, *, priority: Priority | None = None, at: datetime | float | None = None, delay: Seconds | None = None
    ) -> JobInfo:
        """`change` with asyncio."""
        return JobInfo.read(await self._ask_async("change", **self._changes(priority=priority, at=at, delay=delay)))

    def _changes(self, **given: Any) -> dict[str, Any]:
        """The arguments of the verb for those of `change` that are given; raises ValueError."""
        given = {name: value for name, value in given.items() if value is not None}
        options = TaskOptions().changed(given, for_submission=True)
        changes: dict[str, Any] = {"priority": options.priority} if "priority" in given else {}
        if options.at is not None:
            changes["run_at"] = options.at
        elif options.delay is not None:  # 0 is also right if the server's clock is behind
            changes["run_at"] = self.app.now() + options.delay if options.delay else 0
        return changes

    def _ask(self, verb: str, **arguments: Any) -> Any:
        refuse_to_block()
        transport = self.app.transport
        return transport.wait(transport.control(verb, {"handle": self.handle, **arguments}, self._server_number))

    async def _ask_async(self, verb: str, **arguments: Any) -> Any:
        transport = self.app.transport
        return await transport.wait_async(
            transport.control(verb, {"handle": self.handle, **arguments}, self._server_number)
        )

    # --- as an argument ---

    @property
    def as_argument(self) -> R:
        """The job itself, typed as its result, for tasks with such an argument: `combine.submit(job.as_argument)`.

        At run time `combine.submit(job)` is the same; a type checker would not let it pass.
        """
        return cast(R, self)

    def as_reference(self) -> dict[str, Any]:
        if self.task is not None and self.task.arguments.gives_bytes:
            return {REFERENCE: self.handle, "bytes": True}
        return {REFERENCE: self.handle}


class Updates:
    """The progress of a job, as an iterator and as an async iterator."""

    def __init__(self, job: Job[Any]) -> None:
        self._job = job

    def __iter__(self) -> Iterator[Progress]:
        return self._iterate()

    def __aiter__(self) -> AsyncIterator[Progress]:
        return self._iterate_async()

    def _iterate(self) -> Iterator[Progress]:
        subscriber = self._job._subscribe(None)
        updates: queue.SimpleQueue[Progress | None] = queue.SimpleQueue()
        subscriber.add_listener(updates.put)
        try:
            while True:
                progress = self._job.app.transport.wait_progress(updates)
                if progress is None:
                    return
                yield progress
        finally:
            subscriber.remove_listener(updates.put)

    async def _iterate_async(self) -> AsyncIterator[Progress]:
        subscriber = await self._job._subscribe_async()
        loop = asyncio.get_running_loop()
        updates: asyncio.Queue[Progress | None] = asyncio.Queue()

        def listener(progress: Progress | None) -> None:
            try:
                loop.call_soon_threadsafe(updates.put_nowait, progress)
            except RuntimeError:
                pass  # the loop that wanted to know is closed

        subscriber.add_listener(listener)
        try:
            while True:
                progress = await updates.get()
                if progress is None:
                    return
                yield progress
        finally:
            subscriber.remove_listener(listener)
