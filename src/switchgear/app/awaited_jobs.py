"""Waiting for many jobs, some of them at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from switchgear.app.job_updates import End, JobSubscriber

if TYPE_CHECKING:
    from switchgear.app.job import Job
    from switchgear.app.transport import AppTransport

__all__ = ["AwaitedJobs"]

R = TypeVar("R")


class AwaitedJobs(Generic[R]):
    """Jobs that are waited for, given in their order or as they end."""

    def __init__(self, line: AppTransport, in_order: bool) -> None:
        self._line = line
        self._in_order = in_order
        self._jobs: deque[tuple[Job[R], JobSubscriber]] = deque()  # in order
        self._unordered: dict[JobSubscriber, Job[R]] = {}  # keeps them alive: the line holds followers weakly
        self._ended: deque[JobSubscriber] = deque()
        self._some_ended: Future[None] = Future()

    def __len__(self) -> int:
        return len(self._jobs) + len(self._unordered)

    def jobs(self) -> list[Job[R]]:
        """All that are waited for."""
        return [job for job, _ in self._jobs] + list(self._unordered.values())

    def add(self, job: Job[R], follower: JobSubscriber) -> None:
        """Wait for this one as well."""
        if self._in_order:
            self._jobs.append((job, follower))
            return
        self._unordered[follower] = job
        follower.future.add_done_callback(lambda _: self._note(follower))

    def fill(self, most: int, jobs: Iterator[tuple[Job[R], JobSubscriber]]) -> bool:
        """Add jobs when half of the room is free, many at a time; whether there is one to wait for."""
        if len(self) <= most // 2:
            for added in islice(jobs, most - len(self)):
                self.add(*added)
        return bool(len(self))

    def _note(self, follower: JobSubscriber) -> None:
        """In the thread of the line."""
        self._ended.append(follower)
        some_ended = self._some_ended
        if not some_ended.done():
            try:
                some_ended.set_result(None)
            except Exception:  # noqa: S110 - another thread was faster, and that is as good
                pass

    def next(self, timeout: float | None) -> tuple[End, Job[R]]:
        """The next that has ended; raises TimeoutError, or what became of the connection."""
        if self._in_order:
            job, follower = self._jobs[0]  # it stays, should the wait be interrupted
            end = self._line.wait(follower.future, timeout)
            self._jobs.popleft()
            return end, job
        while not self._ended:
            self._line.wait(self._some_ended, timeout)
            self._prepare()
        follower = self._ended.popleft()
        return follower.future.result(), self._unordered.pop(follower)

    async def next_async(self, seconds: float | None) -> tuple[End, Job[R]]:
        """The same with asyncio."""
        if self._in_order:
            job, follower = self._jobs[0]
            end = await self._line.wait_async(follower.future, seconds)
            self._jobs.popleft()
            return end, job
        while not self._ended:
            await self._line.wait_async(self._some_ended, seconds)
            self._prepare()
        follower = self._ended.popleft()
        return follower.future.result(), self._unordered.pop(follower)

    def _prepare(self) -> None:
        """For the next wait.  What ends between the two steps is seen in `_ended`."""
        self._some_ended = Future()
