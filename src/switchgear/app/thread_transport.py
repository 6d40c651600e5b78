"""`ThreadTransport`: the usual transport of an app.  A background thread owns the connections.

One daemon thread per app and process has an event loop and the connections.  Callers from any thread, with or without
event loops of their own, put their requests into a queue and wait for futures.  Requests that are queued before the
thread looks are written to the socket at once.

There is a connection for each server.  Requests go to the first that is connected; if none is, the servers are tried in
their order, again and again with growing pauses, until one is reached or the request has waited for `connect_seconds`.
A lost connection does not end what the server keeps: subscribers of durable jobs are subscribed again on a new
connection to the same server.  Requests without an answer fail, unless sending them again can do no harm.

With several servers, each tells on connecting the prefix of its handles.  Two equal prefixes are refused, because the
job of one server would be taken for that of the other.  Before a request about a job of which only the handle is known,
all servers are tried: so equal prefixes are noticed, and the request goes to the server with the prefix of the handle.

A fork leaves the thread behind in the parent.  The child notices by its process id and starts its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from switchgear.app.server_connection import ServerConnection
from switchgear.app.server_locations import ServerLocation
from switchgear.app.transport import AppTransport
from switchgear.backoff import ReconnectBackoff, RetryPauses, without_jitter
from switchgear.client.cluster_nodes import NODE_SEPARATOR
from switchgear.client.gearman.error_codes import JOB_NOT_FOUND
from switchgear.client.gearman.graph_request import BeginGraphRequest, GraphEncoder, GraphIds, GraphRequest
from switchgear.client.gearman.job_subscriber import JobSubscriber
from switchgear.client.gearman.pending_requests import (
    UNKNOWN,
    ControlRequest,
    PendingSubmission,
    RoutedRequest,
    SubscribeRequest,
)
from switchgear.client.gearman.submit_request import SubmitRequest
from switchgear.errors import ConfigError, JobUnknown, ServerUnreachable

__all__ = ["ThreadTransport"]

_CLOSE_SECONDS: Final = 5.0
_BACKOFF: Final = ReconnectBackoff(first_seconds=0.02, most_seconds=1.0, rng=without_jitter)


class ThreadTransport(AppTransport):
    """Carries the requests of an app to its servers, in a thread."""

    takes_graphs = True

    def __init__(
        self,
        locations: Sequence[ServerLocation],
        connect_seconds: float,
        before_submission: Callable[[Collection[bytes]], None] | None = None,
    ) -> None:
        """`before_submission` is called with the functions of each submission, in the thread of the caller."""
        self._locations = locations
        self._connect_seconds = connect_seconds
        # Weakly, so that an app which is dropped disconnects at once.
        self._before_submission = weakref.WeakMethod(before_submission) if before_submission is not None else None
        self._lock = threading.Lock()
        self._io_thread: IoThread | None = None
        self._is_closed = False
        _transports.add(self)

    def submit_batch(
        self, requests: list[SubmitRequest], subscribers: list[JobSubscriber | None]
    ) -> Future[list[str | Exception]]:
        before_submission = self._before_submission() if self._before_submission is not None else None
        if before_submission is not None:
            before_submission({request.function for request in requests})
        future: Future[list[str | Exception]] = Future()
        self._enqueue(PendingSubmission(requests, subscribers, future), None)
        return future

    def begin_graph(self, count: int, predecessor: str = "") -> Future[GraphIds]:
        future: Future[GraphIds] = Future()
        self._enqueue(BeginGraphRequest(count, predecessor, future), None)
        return future

    def submit_graph(self, ids: GraphIds, requests: Iterable[SubmitRequest]) -> Future[int]:
        encoder = GraphEncoder(ids)
        encoder.add_all(requests)
        before_submission = self._before_submission() if self._before_submission is not None else None
        if before_submission is not None:
            before_submission(encoder.functions)
        future: Future[int] = Future()
        self._enqueue(GraphRequest(ids, encoder.parts(), future), ids.server_number)
        return future

    def watch(self, handle: str, subscriber: JobSubscriber, server_number: int | None = None) -> Future[str]:
        future: Future[str] = Future()
        self._enqueue(SubscribeRequest(handle, subscriber, future), server_number)
        return future

    def control(self, verb: str, arguments: dict[str, Any], server_number: int | None = None) -> Future[Any]:
        future: Future[Any] = Future()
        self._enqueue(ControlRequest(verb, arguments, future), server_number)
        return future

    def __del__(self) -> None:
        """Stop the thread of an app that was dropped without being closed."""
        io_thread = self._io_thread
        if io_thread is not None and io_thread.process_id == os.getpid():
            io_thread.stop(0.0)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            io_thread, self._io_thread = self._io_thread, None
        if io_thread is not None and io_thread.process_id == os.getpid():
            io_thread.stop()

    def _enqueue(self, request: RoutedRequest, server_number: int | None) -> None:
        io_thread = self._io_thread
        if io_thread is None or io_thread.process_id != os.getpid():
            io_thread = self._start()
        io_thread.enqueue(request, server_number)

    def _start(self) -> IoThread:
        with self._lock:
            if self._is_closed:
                raise ServerUnreachable("the app was closed")
            if self._io_thread is None or self._io_thread.process_id != os.getpid():
                self._io_thread = IoThread(self._locations, self._connect_seconds)
            return self._io_thread

    def reset_after_fork(self) -> None:
        """Forget the thread after a fork; another thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        if self._io_thread is not None:
            _threads_of_parent.append(self._io_thread)
        self._io_thread = None


class IoThread:
    """The thread, its event loop and its connections."""

    def __init__(self, locations: Sequence[ServerLocation], connect_seconds: float) -> None:
        self.process_id = os.getpid()
        self._connect_seconds = connect_seconds
        self._queue: deque[tuple[RoutedRequest, int | None]] = deque()
        self._is_called = False  # the thread is about to read the queue
        self._is_stopping = False
        # Not uvloop: it resolves names in its own threads, and a forked process would crash at its end because of them.
        self._loop = asyncio.SelectorEventLoop()
        check_prefix = self._check_prefix if len(locations) > 1 else None
        self._connections = [
            ServerConnection(number, location, self._send_waiting, check_prefix)
            for number, location in enumerate(locations)
        ]
        self._unrouted: deque[PendingCall] = deque()  # the server to ask is not known yet
        self._surveying: asyncio.Task[None] | None = None
        self._was_surveyed = False  # all servers have been tried, and their prefixes differ
        self._waiting: deque[PendingCall] = deque()
        self._connecting: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="switchgear-line", daemon=True)
        self._thread.start()

    # --- in any thread ---

    def enqueue(self, request: RoutedRequest, server_number: int | None) -> None:
        """Queue a request for the I/O thread."""
        self._queue.append((request, server_number))
        if not self._is_called:
            self._is_called = True
            try:
                self._loop.call_soon_threadsafe(self._drain_queue)
            except RuntimeError:  # the loop is closed
                self._fail_queue()

    def stop(self, timeout_seconds: float = _CLOSE_SECONDS) -> None:
        """Disconnect, and end the thread, which is waited for."""
        try:
            self._loop.call_soon_threadsafe(self._begin_to_stop)
        except RuntimeError:
            return
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_seconds)

    def _fail_queue(self) -> None:
        while self._queue:
            self._queue.popleft()[0].fail(ServerUnreachable("the app was closed"))

    # --- in the thread ---

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._finish())
        finally:
            self._loop.close()
            self._is_called = False  # first, so that later callers see that the loop is closed
            self._fail_queue()

    def _begin_to_stop(self) -> None:
        self._is_stopping = True
        self._loop.stop()

    async def _finish(self) -> None:
        self._drain_queue()
        if self._connecting is not None:
            self._connecting.cancel()
        error = ServerUnreachable("the app was closed")
        for waiting in (*self._waiting, *self._unrouted):
            waiting.request.fail(error)
        self._waiting.clear()
        self._unrouted.clear()
        for connection in self._connections:
            connection.close(error)
        await asyncio.sleep(0)  # transports close in the next turn
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drain_queue(self) -> None:
        self._is_called = False  # first, so that nothing is left behind unseen
        touched: set[ServerConnection] = set()
        while self._queue:
            request, server_number = self._queue.popleft()
            if self._is_stopping:
                request.fail(ServerUnreachable("the app was closed"))
                continue
            self._route(PendingCall(request, server_number, self._loop.time() + self._connect_seconds), touched)
        for connection in touched:
            connection.flush()

    def _route(self, waiting: PendingCall, touched: set[ServerConnection]) -> None:
        if not self._find_server(waiting):
            self._unrouted.append(waiting)
            if self._surveying is None or self._surveying.done():
                self._surveying = self._loop.create_task(self._survey())
            return
        connection = self._connection_for(waiting.server_number)
        if connection is None:
            self._wait(waiting)
        else:
            self._send(connection, waiting)
            touched.add(connection)

    def _connection_for(self, server_number: int | None) -> ServerConnection | None:
        """The connection to use now, or None if there is none."""
        if server_number is not None and server_number < len(self._connections):
            return self._connections[server_number] if self._connections[server_number].is_ready else None
        for connection in self._connections:
            if connection.is_ready:
                return connection
        return None

    def _send(self, connection: ServerConnection, waiting: PendingCall) -> None:
        request = waiting.request
        if request.may_repeat:
            request.on_lost = lambda: self._ask_again(waiting)
        try:
            connection.send(request)
        except Exception as error:  # whatever it is, the answer is waited for
            request.fail(error)

    def _ask_again(self, waiting: PendingCall) -> bool:
        """The connection was lost before the answer; returns whether the request is sent again."""
        if waiting.was_repeated or self._is_stopping:
            return False
        waiting.was_repeated = True
        waiting.deadline = self._loop.time() + self._connect_seconds
        self._wait(waiting)
        return True

    # --- which server has the job ---

    def _check_prefix(self, connection: ServerConnection, prefix: str) -> None:
        for other in self._connections:
            if prefix and other is not connection and other.prefix == prefix:
                raise ConfigError(
                    f"the handles of both {other.location.url} and {connection.location.url} begin with {prefix}, so"
                    " that a job of one would be taken for one of the other; give each server a gearman.handle_prefix"
                    f" of its own, or, if they are nodes of one cluster, write {_as_cluster(other, connection)}"
                )

    def _find_server(self, waiting: PendingCall) -> bool:
        """Whether it is known which server to ask."""
        if len(self._connections) == 1:
            return True
        request, has_place = waiting.request, waiting.server_number is not None
        if isinstance(request, ControlRequest) and request.verb == "states":  # each server is asked for all handles
            return self._was_surveyed
        handle = request.job_handle()
        if has_place or not handle:
            return True
        if not self._was_surveyed:
            return False
        prefix = handle[: handle.rfind(":") + 1]
        prefixes = [connection.prefix for connection in self._connections]
        if prefix and prefix in prefixes:
            waiting.server_number = prefixes.index(prefix)
        elif not any(prefixes) and None not in prefixes:
            waiting.server_number = 0  # they are all plain servers: any of them raises ExtensionRequired
        return waiting.server_number is not None

    async def _survey(self) -> None:
        """Connect to all servers that are not known yet, until the server of each request is known."""
        pauses = RetryPauses(_BACKOFF)
        while self._unrouted:
            unknown = [connection for connection in self._connections if connection.prefix is None]
            found = await asyncio.gather(*map(self._identify, unknown), return_exceptions=True)
            problems = [problem for problem in found if isinstance(problem, Exception)]
            clash = next((problem for problem in problems if not isinstance(problem, ServerUnreachable)), None)
            self._was_surveyed = clash is None
            unplaced, self._unrouted = self._unrouted, deque()
            touched: set[ServerConnection] = set()
            for waiting in unplaced:
                if clash is not None:
                    waiting.request.fail(clash)
                elif self._find_server(waiting):
                    self._route(waiting, touched)
                elif not problems or waiting.deadline <= self._loop.time():
                    _answer_unknown(waiting.request, problems)
                else:
                    self._unrouted.append(waiting)
            for connection in touched:
                connection.flush()
            if self._unrouted:
                await asyncio.sleep(pauses.next_seconds())

    async def _identify(self, connection: ServerConnection) -> None:
        try:
            async with asyncio.timeout(max(self._connect_seconds, connection.location.start_seconds)):
                await connection.connect()
        except TimeoutError:
            raise ServerUnreachable(f"{connection.location.url} did not answer in time") from None

    def _fail_unrouted(self, clash: ConfigError) -> None:
        """A server was refused because of its prefix: fail the requests that wait for it, or for any server."""
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            if entry.server_number is None or self._connections[entry.server_number].prefix is None:
                entry.request.fail(clash)
            else:
                self._waiting.append(entry)

    # --- while no server is connected ---

    def _wait(self, waiting: PendingCall) -> None:
        self._waiting.append(waiting)
        if self._connecting is None or self._connecting.done():
            self._connecting = self._loop.create_task(self._connect())

    def _send_waiting(self) -> None:
        """A server is connected: send what has waited for it."""
        waiting, self._waiting = self._waiting, deque()
        touched: set[ServerConnection] = set()
        for entry in waiting:
            connection = self._connection_for(entry.server_number)
            if connection is None:
                self._waiting.append(entry)
            else:
                self._send(connection, entry)
                touched.add(connection)
        for connection in touched:
            connection.flush()

    async def _connect(self) -> None:
        """Try the servers until no request waits."""
        pauses = RetryPauses(_BACKOFF)
        while self._waiting:
            try:
                error = await self._try_servers()
            except ConfigError as clash:
                self._fail_unrouted(clash)
                continue
            if error is None:
                self._send_waiting()
                continue
            self._fail_overdue(error)
            if self._waiting:
                soonest = min(entry.deadline for entry in self._waiting) - self._loop.time()
                await asyncio.sleep(max(0.0, min(pauses.next_seconds(), soonest)))

    async def _try_servers(self) -> ServerUnreachable | None:
        error = ServerUnreachable("no server")
        is_lasting = True  # of all servers
        wanted = {entry.server_number for entry in self._waiting}
        connections = [connection for connection in self._connections if None in wanted or connection.number in wanted]
        for done, connection in enumerate(connections):
            try:
                # A server that does not answer must not use up the time of the others; but a server that is being
                # started in this process, or loads its queue in another, will soon be there.
                share_seconds = self._seconds_left() / (len(connections) - done)
                async with asyncio.timeout(max(share_seconds, connection.location.start_seconds)):
                    await connection.connect()
                return None
            except ServerUnreachable as problem:
                error = problem
            except TimeoutError:
                error = ServerUnreachable(f"{connection.location.url} did not answer in time")
            is_lasting = is_lasting and error.is_lasting
        error.is_lasting = is_lasting
        return error

    def _seconds_left(self) -> float:
        latest = max((entry.deadline for entry in self._waiting), default=0.0)
        return max(0.1, latest - self._loop.time())

    def _fail_overdue(self, error: ServerUnreachable) -> None:
        """Fail the requests that have waited long enough, or all of them if waiting does not help."""
        now = self._loop.time()
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            if entry.deadline > now and not error.is_lasting:
                self._waiting.append(entry)
            else:
                entry.request.fail(error)


class PendingCall:
    """A request without an answer, and how long it may wait for a server to be connected."""

    __slots__ = ("deadline", "request", "server_number", "was_repeated")

    def __init__(self, request: RoutedRequest, server_number: int | None, deadline: float) -> None:
        self.request = request
        self.server_number = server_number
        self.deadline = deadline
        self.was_repeated = False


def _as_cluster(first: ServerConnection, second: ServerConnection) -> str:
    """The URL of two servers as nodes of a cluster."""
    return f"{first.location.url}{NODE_SEPARATOR}{second.location.url.partition('://')[2]}"


def _answer_unknown(request: RoutedRequest, problems: list[Exception]) -> None:
    """Answer a request about a job that no server has, or none that can be reached."""
    handle = request.job_handle()
    if isinstance(request, SubscribeRequest):
        request.succeed(UNKNOWN)
    elif problems:
        request.fail(JobUnknown(JOB_NOT_FOUND, f"no server that can be reached has {handle} ({problems[0]})"))
    else:
        request.fail(JobUnknown(JOB_NOT_FOUND, f"no server of this app gives handles such as {handle}"))


# Event loops of a parent process, which must not be touched in its children: not even to be thrown away.
_threads_of_parent: list[IoThread] = []
_transports: weakref.WeakSet[ThreadTransport] = weakref.WeakSet()


def _reset_after_fork() -> None:
    for transport in list(_transports):
        transport.reset_after_fork()


def _close_all() -> None:
    """Disconnect when the program ends, so that the server drops jobs that only it waited for."""
    for transport in list(_transports):
        with suppress(KeyboardInterrupt):  # the program ends already
            transport.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
atexit.register(_close_all)
