"""`AwaitedJobs`: waits for a bounded window of jobs, and returns them in order or as they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from switchgear.client.gearman.job_subscriber import JobEnd, JobSubscriber

if TYPE_CHECKING:
    from switchgear.app.job import Job
    from switchgear.app.transport import AppTransport

__all__ = ["AwaitedJobs"]

R = TypeVar("R")


class AwaitedJobs(Generic[R]):
    """Jobs that are waited for; `next` returns them in their order or as they end."""

    def __init__(self, transport: AppTransport, in_order: bool) -> None:
        self._transport = transport
        self._in_order = in_order
        self._jobs: deque[tuple[Job[R], JobSubscriber]] = deque()  # in order
        self._unordered: dict[JobSubscriber, Job[R]] = {}  # keeps them alive: the transport holds subscribers weakly
        self._ended: deque[JobSubscriber] = deque()
        self._some_ended: Future[None] = Future()

    def __len__(self) -> int:
        return len(self._jobs) + len(self._unordered)

    def jobs(self) -> list[Job[R]]:
        """All jobs that are waited for."""
        return [job for job, _ in self._jobs] + list(self._unordered.values())

    def add(self, job: Job[R], subscriber: JobSubscriber) -> None:
        """Wait for this job as well."""
        if self._in_order:
            self._jobs.append((job, subscriber))
            return
        self._unordered[subscriber] = job
        subscriber.future.add_done_callback(lambda _: self._note(subscriber))

    def fill(self, most: int, jobs: Iterator[tuple[Job[R], JobSubscriber]]) -> bool:
        """Add jobs when half of the window is free, many at a time; returns whether there is a job to wait for."""
        if len(self) <= most // 2:
            for added in islice(jobs, most - len(self)):
                self.add(*added)
        return bool(len(self))

    def _note(self, subscriber: JobSubscriber) -> None:
        """A job has ended; called in the I/O thread."""
        self._ended.append(subscriber)
        some_ended = self._some_ended
        if not some_ended.done():
            try:
                some_ended.set_result(None)
            except Exception:  # noqa: S110 - another thread was faster, and that is as good
                pass

    def next(self, timeout: float | None) -> tuple[JobEnd, Job[R]]:
        """The next job that has ended; raises TimeoutError or ServerUnreachable."""
        if self._in_order:
            job, subscriber = self._jobs[0]  # it stays, should the wait be interrupted
            end = self._transport.wait(subscriber.future, timeout)
            self._jobs.popleft()
            return end, job
        while not self._ended:
            self._transport.wait(self._some_ended, timeout)
            self._prepare()
        subscriber = self._ended.popleft()
        return subscriber.future.result(), self._unordered.pop(subscriber)

    async def next_async(self, seconds: float | None) -> tuple[JobEnd, Job[R]]:
        """The next result, with asyncio."""
        if self._in_order:
            job, subscriber = self._jobs[0]
            end = await self._transport.wait_async(subscriber.future, seconds)
            self._jobs.popleft()
            return end, job
        while not self._ended:
            await self._transport.wait_async(self._some_ended, seconds)
            self._prepare()
        subscriber = self._ended.popleft()
        return subscriber.future.result(), self._unordered.pop(subscriber)

    def _prepare(self) -> None:
        """A future for the next end of a job.  Ends that come before it is set are in `_ended`."""
        self._some_ended = Future()
