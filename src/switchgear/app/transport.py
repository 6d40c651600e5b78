"""`AppTransport`: the interface between an app and its servers: submit, subscribe, control, wait.

Answers are futures of `concurrent.futures`, so that threads and event loops can wait for them alike.  Waiting goes
through the transport (`wait`), because a transport without threads, such as that of the tests, does the work meanwhile.
"""

from __future__ import annotations

import asyncio
import queue
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar
from weakref import WeakSet

from switchgear.client.gearman.graph_request import GraphIds
from switchgear.client.gearman.job_subscriber import JobSubscriber, Progress
from switchgear.client.gearman.submit_request import SubmitRequest

__all__ = ["JOB_LOOPS", "AppTransport", "only", "refuse_to_block", "telling"]

T = TypeVar("T")

# Submissions of one batch are written at once and answered at once.  With several batches on their way the server
# always has something to do while the next is prepared.
BATCH_REQUESTS: Final = 500
BATCH_BYTES: Final = 1024 * 1024
BATCHES_ON_THEIR_WAY: Final = 4


# Event loops in which workers run jobs side by side.
JOB_LOOPS: Final[WeakSet[asyncio.AbstractEventLoop]] = WeakSet()


def refuse_to_block() -> None:
    """Raise RuntimeError in a job that shares its event loop with other jobs, which would all be blocked.

    In a loop of the user's own, such as that of a notebook, blocking is the user's own affair.
    """
    loop = asyncio._get_running_loop()
    if loop is not None and loop in JOB_LOOPS:
        raise RuntimeError(
            "await it instead (await job, await task.submit_async(...) and the like):"
            " blocking here would stop all tasks of this worker's event loop"
        )


class AppTransport(ABC):
    """Sends requests to a server, or to the first of several that can be reached; for any number of threads and
    loops."""

    @abstractmethod
    def submit_batch(
        self, requests: list[SubmitRequest], subscribers: list[JobSubscriber | None]
    ) -> Future[list[str | Exception]]:
        """Submit jobs; the result has a handle or an exception for each.  Subscribers receive all events of their
        jobs."""

    takes_graphs: bool = False  # `begin_graph` and `submit_graph` can be called

    def begin_graph(self, count: int, predecessor: str = "") -> Future[GraphIds]:
        """Reserve handles for a graph of `count` jobs, at the server that has this predecessor if there is one.

        The future raises ExtensionRequired if the server is a plain Gearman server.
        """
        raise NotImplementedError

    def submit_graph(self, ids: GraphIds, requests: Iterable[SubmitRequest]) -> Future[int]:
        """Submit all jobs of a graph, or none of them; the result is their number."""
        raise NotImplementedError

    @abstractmethod
    def watch(self, handle: str, subscriber: JobSubscriber, server_number: int | None = None) -> Future[str]:
        """Subscribe to a job; the result is its state, or "unknown".  `server_number` is the server that has it, if
        known."""

    @abstractmethod
    def control(self, verb: str, arguments: dict[str, Any], server_number: int | None = None) -> Future[Any]:
        """Send a CONTROL request, which needs a Switchgear server; the result is the answer."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect.  Requests without an answer fail with ServerUnreachable."""

    # --- waiting ---

    def wait(self, future: Future[T], timeout: float | None = None) -> T:
        """The result of a request; raises TimeoutError, or the exception of the request."""
        if not future.done():
            refuse_to_block()
        try:
            return future.result(timeout)
        except FutureTimeoutError:
            if future.done():
                raise  # the answer itself is a TimeoutError
            raise TimeoutError(f"no answer within {timeout:g} s") from None

    async def wait_async(self, future: Future[T], timeout: float | None = None) -> T:  # noqa: ASYNC109 - like `wait`
        """`wait` with asyncio. Cancelling the wait does not cancel the request."""
        if not future.done():
            loop = asyncio.get_running_loop()
            arrived = asyncio.Event()

            def tell(_: Future[T]) -> None:
                try:
                    loop.call_soon_threadsafe(arrived.set)
                except RuntimeError:
                    pass  # the loop that wanted to know is closed

            future.add_done_callback(tell)
            try:
                async with asyncio.timeout(timeout):
                    await arrived.wait()
            finally:
                _forget_callback(future, tell)
        return future.result()

    def wait_progress(self, updates: queue.SimpleQueue[Progress | None]) -> Progress | None:
        """The next progress that a subscriber has put into this queue; None when the job has ended."""
        if updates.empty():
            refuse_to_block()
        return updates.get()

    # --- submitting ---

    def submit(self, request: SubmitRequest, subscriber: JobSubscriber | None) -> Future[list[str | Exception]]:
        """Submit one job, as a batch of one; see `only`."""
        return self.submit_batch([request], [subscriber])

    def _outcomes(self, requests: list[SubmitRequest], future: Future[list[str | Exception]]) -> list[str | Exception]:
        """The outcomes of a batch, of which those are told that want to know."""
        with telling(requests) as outcomes:
            answer = self.wait(future)
            outcomes += answer
        return outcomes

    async def _outcomes_async(
        self, requests: list[SubmitRequest], future: Future[list[str | Exception]]
    ) -> list[str | Exception]:
        with telling(requests) as outcomes:
            answer = await self.wait_async(future)
            outcomes += answer
        return outcomes

    def submit_many(self, requests: Iterable[SubmitRequest]) -> Iterator[list[str | Exception]]:
        """Submit any number of jobs, many of them on their way at a time; outcomes in order, batch by batch.

        If the requests raise, that is raised after the outcomes of those before have been given.
        """
        on_their_way: deque[tuple[list[SubmitRequest], Future[list[str | Exception]]]] = deque()
        problem: Exception | None = None
        try:
            for batch in batches(requests):
                on_their_way.append((batch, self.submit_batch(batch, [None] * len(batch))))
                if len(on_their_way) >= BATCHES_ON_THEIR_WAY:
                    yield self._outcomes(*on_their_way.popleft())
        except Exception as error:
            problem = error
        while on_their_way:
            yield self._outcomes(*on_their_way.popleft())
        if problem is not None:
            raise problem

    async def submit_many_async(self, requests: Iterable[SubmitRequest]) -> AsyncIterator[list[str | Exception]]:
        """`submit_many` with asyncio."""
        on_their_way: deque[tuple[list[SubmitRequest], Future[list[str | Exception]]]] = deque()
        problem: Exception | None = None
        try:
            for batch in batches(requests):
                on_their_way.append((batch, self.submit_batch(batch, [None] * len(batch))))
                await asyncio.sleep(0)  # others may go on while a long list is prepared
                if len(on_their_way) >= BATCHES_ON_THEIR_WAY:
                    yield await self._outcomes_async(*on_their_way.popleft())
        except Exception as error:
            problem = error
        while on_their_way:
            yield await self._outcomes_async(*on_their_way.popleft())
        if problem is not None:
            raise problem


@contextmanager
def telling(requests: list[SubmitRequest]) -> Iterator[list[str | Exception]]:
    """A block that fills the list with the outcomes of these requests, or raises; tells those that want to know."""
    outcomes: list[str | Exception] = []
    try:
        yield outcomes
    except Exception as error:
        outcomes = [error] * len(requests)
        raise
    finally:
        for request, outcome in zip(requests, outcomes):
            if request.on_outcome is not None:
                request.on_outcome(outcome)


def _forget_callback(future: Future[Any], callback: Callable[[Future[Any]], None]) -> None:
    """Remove a callback, so that repeated short waits for one future do not accumulate callbacks."""
    # Futures have no public way to take a callback back.
    with future._condition, suppress(ValueError):
        future._done_callbacks.remove(callback)  # type: ignore[attr-defined]


def only(outcomes: list[str | Exception]) -> str:
    """The handle of a batch of one; raises its exception if it was refused."""
    (outcome,) = outcomes
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def batches(requests: Iterable[SubmitRequest]) -> Iterator[list[SubmitRequest]]:
    """Requests in batches, bounded by number and bytes."""
    batch: list[SubmitRequest] = []
    size = 0
    for request in requests:
        batch.append(request)
        size += len(request.payload)
        if len(batch) >= BATCH_REQUESTS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
