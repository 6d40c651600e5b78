"""`Task.map`: the results of a task over many arguments, with a bounded number of jobs at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from switchgear.app.awaited_jobs import AwaitedJobs
from switchgear.app.job import Job
from switchgear.app.transport import refuse_to_block, telling
from switchgear.client.gearman.job_subscriber import JobSubscriber
from switchgear.client.gearman.submit_request import SubmitRequest
from switchgear.errors import ServerUnreachable
from switchgear.verbs.permitted_values import MOST_HANDLES

if TYPE_CHECKING:
    from switchgear.app.task import Task

__all__ = ["map_jobs", "map_jobs_async"]

R = TypeVar("R")


class TaskMap:
    """Submits jobs and waits for them, within a window.

    New jobs are submitted when half of the window is empty, so that a round trip carries many submissions.
    """

    def __init__(self, task: Task[Any, R], requests: Iterator[SubmitRequest], size: int, in_order: bool) -> None:
        if type(size) is not int or size < 1:
            raise ValueError(f"window is a whole number from 1 up, not {size!r}")
        self.task = task
        self.transport = task.app.transport
        self.window: AwaitedJobs[Any] = AwaitedJobs(self.transport, in_order)
        self._requests = requests
        self._size = size
        self._is_exhausted = False
        self._submitting: Future[list[str | Exception]] | None = None  # not answered yet
        self._sent: list[SubmitRequest] = []  # the requests of these
        self._subscribers: list[JobSubscriber] = []  # of these

    def submit(self) -> Future[list[str | Exception]] | None:
        """Submit as many jobs as the window has room for; returns the future whose result is given to `add`."""
        if self._is_exhausted or len(self.window) > self._size // 2:
            return None
        requests = list(islice(self._requests, self._size - len(self.window)))
        self._is_exhausted = not requests
        if not requests:
            return None
        self._sent = requests
        self._subscribers = [JobSubscriber() for _ in requests]
        self._submitting = self.transport.submit_batch(requests, [*self._subscribers])
        return self._submitting

    def sending(self) -> AbstractContextManager[list[str | Exception]]:
        """The block in which the outcomes of a submission are waited for."""
        return telling(self._sent)

    def add(self, outcomes: list[str | Exception]) -> None:
        """Add the jobs of a submission to the window."""
        self._submitting = None
        refusal: Exception | None = None
        for outcome, subscriber in zip(outcomes, self._subscribers):
            if isinstance(outcome, str):
                self.window.add(Job(self.task.app, self.task, outcome, subscriber), subscriber)
            else:
                refusal = refusal or outcome
        if refusal is not None:
            raise refusal

    def cancel_rest(self) -> None:
        """Cancel all unfinished jobs, without waiting for the answers."""
        self._cancel([(job._server_number, job.handle) for job in self.window.jobs()])
        if self._submitting is not None:  # we were interrupted, but the jobs will be there
            self._submitting.add_done_callback(self._cancel_submitted)

    def _cancel_submitted(self, submitting: Future[list[str | Exception]]) -> None:
        if submitting.exception() is None:
            outcomes = zip(submitting.result(), self._subscribers)
            self._cancel([(each.server_number, outcome) for outcome, each in outcomes if isinstance(outcome, str)])

    def _cancel(self, jobs: list[tuple[int | None, str]]) -> None:
        """Cancel jobs, each of them named by its server and its handle; one request for many."""
        by_server: dict[int | None, list[str]] = {}
        for server_number, handle in jobs:
            by_server.setdefault(server_number, []).append(handle)
        for server_number, handles in by_server.items():
            for start in range(0, len(handles), MOST_HANDLES):
                arguments = {"action": "cancel", "handles": handles[start : start + MOST_HANDLES]}
                with suppress(ServerUnreachable):  # the app was closed
                    self.transport.control("bulk", arguments, server_number)


def map_jobs(task: Task[Any, R], requests: Iterator[SubmitRequest], size: int, in_order: bool) -> Iterator[R]:
    """Implements `Task.map`."""
    refuse_to_block()
    return _iterate(TaskMap(task, requests, size, in_order))


def _iterate(mapping: TaskMap) -> Iterator[Any]:
    try:
        while True:
            submitting = mapping.submit()
            if submitting is not None:
                with mapping.sending() as outcomes:
                    answer = mapping.transport.wait(submitting)
                    outcomes += answer
                mapping.add(outcomes)
            if not len(mapping.window):
                return
            _, job = mapping.window.next(None)
            yield job.result(0)
    finally:
        mapping.cancel_rest()


def map_jobs_async(
    task: Task[Any, R], requests: Iterator[SubmitRequest], size: int, in_order: bool
) -> AsyncIterator[R]:
    """Implements `Task.amap`."""
    return _iterate_async(TaskMap(task, requests, size, in_order))


async def _iterate_async(mapping: TaskMap) -> AsyncIterator[Any]:
    try:
        while True:
            submitting = mapping.submit()
            if submitting is not None:
                with mapping.sending() as outcomes:
                    answer = await mapping.transport.wait_async(submitting)
                    outcomes += answer
                mapping.add(outcomes)
            if not len(mapping.window):
                return
            _, job = await mapping.window.next_async(None)
            yield job.result(0)
    finally:
        mapping.cancel_rest()
