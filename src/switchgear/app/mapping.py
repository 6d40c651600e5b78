"""A task over many arguments: results as an iterator, with a bounded number of jobs at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from switchgear.app.following import JobFollower
from switchgear.app.job import Job
from switchgear.app.requests import SubmitRequest
from switchgear.app.window import Window
from switchgear.errors import ServerUnreachable

if TYPE_CHECKING:
    from switchgear.app.task import Task

__all__ = ["map_jobs", "map_jobs_async"]

R = TypeVar("R")


class Mapping:
    """Submits and waits, some at a time.

    New jobs are submitted when half of the window is empty, so that a submission is worth its round trip.
    """

    def __init__(self, task: Task[Any, R], requests: Iterator[SubmitRequest], size: int, in_order: bool) -> None:
        if type(size) is not int or size < 1:
            raise ValueError(f"window is a whole number from 1 up, not {size!r}")
        self.task = task
        self.line = task.app.line
        self.window: Window[Any] = Window(self.line, in_order)
        self._requests = requests
        self._size = size
        self.is_exhausted = False

    def next_requests(self) -> list[SubmitRequest]:
        """What to submit now."""
        if self.is_exhausted or len(self.window) > self._size // 2:
            return []
        requests = list(islice(self._requests, self._size - len(self.window)))
        self.is_exhausted = not requests
        return requests

    def add(self, outcomes: list[str | Exception], followers: list[JobFollower | None]) -> None:
        """These were submitted."""
        refusal: Exception | None = None
        for outcome, follower in zip(outcomes, followers):
            assert follower is not None
            if isinstance(outcome, str):
                self.window.add(Job(self.task.app, self.task, outcome, follower), follower)
            else:
                refusal = refusal or outcome
        if refusal is not None:
            raise refusal

    def cancel_rest(self) -> None:
        """Nobody wants the others any more; whatever becomes of these requests, nobody waits for that either."""
        with suppress(ServerUnreachable):  # the app was closed
            for job in self.window.jobs():
                self.line.control("cancel", {"handle": job.handle}, job._place)


def map_jobs(task: Task[Any, R], requests: Iterator[SubmitRequest], size: int, in_order: bool) -> Iterator[R]:
    """See Task.map."""
    return _iterate(Mapping(task, requests, size, in_order))


def _iterate(mapping: Mapping) -> Iterator[Any]:
    try:
        while True:
            requests = mapping.next_requests()
            if requests:
                followers: list[JobFollower | None] = [JobFollower() for _ in requests]
                mapping.add(mapping.line.wait(mapping.line.submit_batch(requests, followers)), followers)
            if not len(mapping.window):
                return
            _, job = mapping.window.next(None)
            yield job.result(0)
    finally:
        mapping.cancel_rest()


def map_jobs_async(
    task: Task[Any, R], requests: Iterator[SubmitRequest], size: int, in_order: bool
) -> AsyncIterator[R]:
    """See Task.amap."""
    return _iterate_async(Mapping(task, requests, size, in_order))


async def _iterate_async(mapping: Mapping) -> AsyncIterator[Any]:
    line = mapping.line
    try:
        while True:
            requests = mapping.next_requests()
            if requests:
                followers: list[JobFollower | None] = [JobFollower() for _ in requests]
                mapping.add(await line.wait_async(line.submit_batch(requests, followers)), followers)
            if not len(mapping.window):
                return
            _, job = await mapping.window.next_async(None)
            yield job.result(0)
    finally:
        mapping.cancel_rest()
