"""A job as its submitter sees it."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import AsyncIterator, Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from switchgear.app.arguments import REFERENCE, Reference, read_untyped_result
from switchgear.app.job_updates import UNKNOWN, End, JobSubscriber, Progress
from switchgear.app.transport import refuse_to_block
from switchgear.app.views import Explanation, JobInfo
from switchgear.errors import ClientError, JobUnknown

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.task import Task

__all__ = ["Job", "Updates"]

R = TypeVar("R")


class Job(Reference, Generic[R]):
    """A job that was submitted: by this process just now, or by any other, if it is made of a handle.

    Its result may be asked for any number of times, by any process, while the server remembers the job.  News are sent
    by the server; nothing is asked again and again.
    """

    def __init__(self, app: App, task: Task[Any, R] | None, handle: str, follower: JobSubscriber | None = None) -> None:
        self.app = app
        self.task = task
        self.handle = handle
        self._follower = follower

    def __repr__(self) -> str:
        of = f" {self.task.name}" if self.task is not None else ""
        end = self._known_end
        return f"<Job {self.handle}{of}{' ' + end.state if end is not None else ''}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (other.handle, other.app) == (self.handle, self.app)

    def __hash__(self) -> int:
        return hash(self.handle)

    # --- the end ---

    def result(self, timeout: float | None = None) -> R:
        """What the task returned, waited for until it has.

        Raises TaskFailed, PredecessorFailed, JobCancelled, JobExpired, JobLost or JobTimedOut (all are JobFailed),
        TimeoutError, JobUnknown, ServerUnreachable, or ResultError if the result is not what the task says it returns.
        """
        return self._read(self._wait_end(timeout))

    async def result_async(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - like `result`
        """The same with asyncio; `await job` is short for it."""
        return self._read(await self._wait_end_async(timeout))

    def __await__(self) -> Generator[Any, None, R]:
        return self.result_async().__await__()

    def wait(self, timeout: float | None = None) -> str:
        """Wait until the job has ended, well or not; the word for its state.  Raises TimeoutError."""
        return self._wait_end(timeout).state

    async def wait_async(self, timeout: float | None = None) -> str:  # noqa: ASYNC109 - like `wait`
        """The same with asyncio."""
        return (await self._wait_end_async(timeout)).state

    def _read(self, end: End) -> R:
        failure = end.failure(self.handle)
        if failure is not None:
            raise failure
        if self.task is None:
            return cast(R, read_untyped_result(end.result))
        return self.task.arguments.decode_result(end.result)

    def _wait_end(self, timeout: float | None) -> End:
        if (known := self._known_end) is not None:
            return self._known(known)
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            follower = self._follow(timeout)
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            return self._known(self.app.line.wait(follower.future, left))
        except TimeoutError as error:
            if isinstance(error, ClientError):  # it says more than we could
                raise
            raise TimeoutError(f"job {self.handle} has not ended within {timeout:g} s") from None

    async def _wait_end_async(self, seconds: float | None) -> End:
        if (known := self._known_end) is not None:
            return self._known(known)
        try:
            async with asyncio.timeout(seconds):
                follower = await self._follow_async()
                return self._known(await self.app.line.wait_async(follower.future, seconds))
        except TimeoutError as error:
            if seconds is None or isinstance(error, ClientError):
                raise
            raise TimeoutError(f"job {self.handle} has not ended within {seconds:g} s") from None

    def _known(self, end: End) -> End:
        if end.state == UNKNOWN:
            failure = end.failure(self.handle)
            assert failure is not None
            raise failure
        return end

    @property
    def _known_end(self) -> End | None:
        follower = self._follower
        if follower is None or not follower.future.done() or follower.future.exception() is not None:
            return None
        return follower.future.result()

    @property
    def _place(self) -> int | None:
        return self._follower.place if self._follower is not None else None

    def _follow(self, timeout: float | None) -> JobSubscriber:
        """Somebody who hears of this job."""
        follower = self._follower
        if follower is not None and follower.is_usable:
            return follower
        follower = JobSubscriber()
        self._begin(follower, self.app.line.wait(self.app.line.watch(self.handle, follower, self._place), timeout))
        return follower

    async def _follow_async(self) -> JobSubscriber:
        follower = self._follower
        if follower is not None and follower.is_usable:
            return follower
        follower = JobSubscriber()
        line = self.app.line
        self._begin(follower, await line.wait_async(line.watch(self.handle, follower, self._place)))
        return follower

    def _begin(self, follower: JobSubscriber, state: str) -> None:
        if state == UNKNOWN:
            self._known(End(UNKNOWN))
        self._follower = follower

    # --- on the way ---

    def updates(self) -> Updates:
        """Progress as it is reported, first the latest there is, until the job ends; for `for` and `async for`."""
        return Updates(self)

    def status(self) -> JobInfo:
        """The job as the server sees it now; raises JobUnknown."""
        return JobInfo.read(self._ask("job"))

    async def status_async(self) -> JobInfo:
        """The same with asyncio."""
        return JobInfo.read(await self._ask_async("job"))

    def explain(self) -> Explanation:
        """Why the job is where it is: what it waits for, and who could run it."""
        return Explanation.read(self.handle, self._ask("explain"))

    async def explain_async(self) -> Explanation:
        """The same with asyncio."""
        return Explanation.read(self.handle, await self._ask_async("explain"))

    # --- acting ---

    def cancel(self, cascade: bool = False) -> bool:
        """Cancel it; with `cascade` also the jobs that wait for it.  False if it had ended before.

        A job that runs is told: see `current_job().cancelled`.
        """
        try:
            self._ask("cancel", cascade=cascade)
        except JobUnknown:
            self.status()  # raises if there is no such job
            return False
        return True

    async def cancel_async(self, cascade: bool = False) -> bool:
        """The same with asyncio."""
        try:
            await self._ask_async("cancel", cascade=cascade)
        except JobUnknown:
            await self.status_async()
            return False
        return True

    def retry(self) -> None:
        """Have a job that ended without success run again, with all its attempts; raises ServerRefused."""
        self._ask("retry")
        self._follower = None  # that end does not count any more

    async def retry_async(self) -> None:
        """The same with asyncio."""
        await self._ask_async("retry")
        self._follower = None

    def _ask(self, verb: str, **arguments: Any) -> Any:
        refuse_to_block()
        line = self.app.line
        return line.wait(line.control(verb, {"handle": self.handle, **arguments}, self._place))

    async def _ask_async(self, verb: str, **arguments: Any) -> Any:
        line = self.app.line
        return await line.wait_async(line.control(verb, {"handle": self.handle, **arguments}, self._place))

    # --- as an argument ---

    @property
    def as_argument(self) -> R:
        """The job itself, but typed as its result, for a task that takes such: `combine.submit(job.as_argument)`.

        At run time `combine.submit(job)` is the same; a type checker would not let it pass.
        """
        return cast(R, self)

    def as_reference(self) -> dict[str, Any]:
        if self.task is not None and self.task.arguments.gives_bytes:
            return {REFERENCE: self.handle, "bytes": True}
        return {REFERENCE: self.handle}


class Updates:
    """The progress of a job, to be iterated over in either way."""

    def __init__(self, job: Job[Any]) -> None:
        self._job = job

    def __iter__(self) -> Iterator[Progress]:
        return self._iterate()

    def __aiter__(self) -> AsyncIterator[Progress]:
        return self._iterate_async()

    def _iterate(self) -> Iterator[Progress]:
        follower = self._job._follow(None)
        news: queue.SimpleQueue[Progress | None] = queue.SimpleQueue()
        follower.listen(news.put)
        try:
            while True:
                progress = self._job.app.line.wait_news(news)
                if progress is None:
                    return
                yield progress
        finally:
            follower.ignore(news.put)

    async def _iterate_async(self) -> AsyncIterator[Progress]:
        follower = await self._job._follow_async()
        loop = asyncio.get_running_loop()
        news: asyncio.Queue[Progress | None] = asyncio.Queue()

        def listener(progress: Progress | None) -> None:
            try:
                loop.call_soon_threadsafe(news.put_nowait, progress)
            except RuntimeError:
                pass  # the loop that wanted to know is closed

        follower.listen(listener)
        try:
            while True:
                progress = await news.get()
                if progress is None:
                    return
                yield progress
        finally:
            follower.ignore(listener)
