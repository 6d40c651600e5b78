"""`InMemoryTransport`: connects an app with an in-memory server in the same thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from switchgear.app.server_answers import Explanation
from switchgear.app.transport import AppTransport
from switchgear.client.gearman.client_protocol import ClientProtocol
from switchgear.client.gearman.graph_request import BeginGraphRequest, GraphEncoder, GraphIds, GraphRequest
from switchgear.client.gearman.job_subscriber import JobEnd, JobSubscriber, Progress
from switchgear.client.gearman.pending_requests import (
    ControlRequest,
    PendingSubmission,
    RoutedRequest,
    SubscribeRequest,
)
from switchgear.errors import ClientError, ServerUnreachable
from switchgear.testing.in_memory_hub import InMemoryHub

if TYPE_CHECKING:
    from switchgear.client.gearman.submit_request import SubmitRequest

__all__ = ["InMemoryTransport", "WouldWaitForever"]

T = TypeVar("T")


class WouldWaitForever(ClientError):
    """The awaited event cannot happen: there is nothing left to run. The text says why the job does not run."""


class WouldWaitTooLong(WouldWaitForever, TimeoutError):
    """The same if a time limit was given: code that handles time limits sees the error of a real server."""


@dataclass(frozen=True, slots=True)
class CausedEnd(JobEnd):
    """The end of a job that ran in this process, with its exception."""

    original: BaseException | None = None

    def failure(self, handle: str) -> ClientError | None:
        failure = JobEnd.failure(self, handle)
        if failure is not None:
            failure.__cause__ = self.original
        return failure


class InMemoryTransport(AppTransport):
    """Sends requests to the in-memory server and gets the answers at once.  A caller that waits runs jobs meanwhile."""

    takes_graphs = True

    def __init__(
        self,
        hub: InMemoryHub,
        work: Callable[[], object],
        work_async: Callable[[], Coroutine[Any, Any, object]],
        wait_for_others: Callable[[], Coroutine[Any, Any, bool]],
    ) -> None:
        """`work` runs jobs while a caller waits; `wait_for_others` waits until something has happened in another
        coroutine, and returns whether there is one that could make it happen."""
        self._hub = hub
        self._connection = hub.connect()
        self._work = work
        self._work_async = work_async
        self._wait_for_others = wait_for_others
        # The handles of the jobs whose ends the futures await.
        self._handles: WeakKeyDictionary[Future[Any], str] = WeakKeyDictionary()
        self._is_closed = False
        self.submitted: list[tuple[SubmitRequest, str]] = []  # with their handles
        self.before_submit: Callable[[], None] = lambda: None  # may refuse a submission by raising
        self.original_error: Callable[[str], BaseException | None] = lambda handle: None
        self._protocol = ClientProtocol("the in-memory server")
        self._protocol.greet()
        self.pump()

    def submit_batch(
        self, requests: list[SubmitRequest], subscribers: list[JobSubscriber | None]
    ) -> Future[list[str | Exception]]:
        self.before_submit()
        future: Future[list[str | Exception]] = Future()
        self._send(PendingSubmission(requests, subscribers, future))
        for request, subscriber, outcome in zip(requests, subscribers, future.result(), strict=True):
            if isinstance(outcome, str):
                self.submitted.append((request, outcome))
                if subscriber is not None:
                    self._know(subscriber, outcome)
        return future

    def begin_graph(self, count: int, predecessor: str = "") -> Future[GraphIds]:
        self.before_submit()
        future: Future[GraphIds] = Future()
        self._send(BeginGraphRequest(count, predecessor, future))
        return future

    def submit_graph(self, ids: GraphIds, requests: Iterable[SubmitRequest]) -> Future[int]:
        submitted = list(requests)
        encoder = GraphEncoder(ids)
        encoder.add_all(submitted)
        future: Future[int] = Future()
        future.add_done_callback(lambda _: self._note_graph(future, ids, submitted))
        self._send(GraphRequest(ids, encoder.parts(), future))
        return future

    def _note_graph(self, future: Future[int], ids: GraphIds, requests: list[SubmitRequest]) -> None:
        if future.exception() is None:
            self.submitted.extend((request, ids.handle(index)) for index, request in enumerate(requests))

    def watch(self, handle: str, subscriber: JobSubscriber, server_number: int | None = None) -> Future[str]:
        self._know(subscriber, handle)
        future: Future[str] = Future()
        self._send(SubscribeRequest(handle, subscriber, future))
        return future

    def control(self, verb: str, arguments: dict[str, Any], server_number: int | None = None) -> Future[Any]:
        future: Future[Any] = Future()
        self._send(ControlRequest(verb, arguments, future))
        return future

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._connection.leave()
            self._protocol.connection_lost(ServerUnreachable("the in-memory server is gone"))

    # --- waiting ---

    def wait(self, future: Future[T], timeout: float | None = None) -> T:
        self._work()
        self.pump()
        if not future.done():
            raise self._would_wait_forever(future, timeout)
        return future.result()

    async def wait_async(self, future: Future[T], timeout: float | None = None) -> T:  # noqa: ASYNC109 - as declared
        await self._work_async()
        self.pump()
        while not future.done():
            if not await self._wait_for_others():
                raise self._would_wait_forever(future, timeout)
            self.pump()
        return future.result()

    def wait_progress(self, updates: SimpleQueue[Progress | None]) -> Progress | None:
        if updates.empty():
            self._work()
            self.pump()
        if updates.empty():
            raise WouldWaitForever("news of the job cannot come: nothing is left that could be run now")
        return updates.get()

    def _would_wait_forever(self, future: Future[Any], timeout: float | None) -> WouldWaitForever:
        kind = WouldWaitForever if timeout is None else WouldWaitTooLong
        handle = self._handles.get(future)
        if handle is None:
            return kind("what is waited for cannot come: nothing is left that could be run now")
        return kind(f"the end of a job cannot come: {self.explain(handle)}")

    def explain(self, handle: str) -> str:
        """Why a job is in its state, in the server's words."""
        return str(Explanation.read(handle, self.control("explain", {"handle": handle}).result()))

    # --- internals ---

    def pump(self) -> None:
        """Exchange pending bytes with the server."""
        while True:
            if self._protocol.outgoing:
                self._connection.send(self._protocol.take_outgoing())
            data = self._connection.read()
            if not data:
                return
            self._protocol.receive(data)

    def _send(self, request: RoutedRequest) -> None:
        if self._is_closed:
            raise ServerUnreachable("the in-memory server is gone")
        request.send(self._protocol)
        self.pump()

    def _know(self, subscriber: JobSubscriber, handle: str) -> None:
        self._handles[subscriber.future] = handle
        tell = subscriber.end

        def end(end: JobEnd) -> None:
            original = self.original_error(handle) if end.state == "failed" else None
            tell(end if original is None else CausedEnd(end.state, end.result, end.cause, end.error, original))

        subscriber.end = end  # type: ignore[method-assign]  # it hears of the end with what only we know
