"""The application (client) of the 2005 draft, without I/O: creates jobs on a random server, waits, asks, recreates.

There are up to two connections to each server.  Answers carry no handle and come in the order of the requests, so a
request behind a job that is waited for would wait with it: jobs that are waited for have a connection of their own.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from switchgear.client.address import ServerAddress
from switchgear.client.draft.flow_steps import (
    CloseStep,
    ConnectionState,
    DraftConnection,
    Flow,
    OpenStep,
    SendStep,
    WaitStep,
    draft_servers,
    refusal,
)
from switchgear.client.draft.records import DraftResult, DraftStatus, JobRecord, ascii_bytes
from switchgear.errors import ClientError, ServerRefused, ServerUnreachable
from switchgear.protocols.gearman_draft.codec import packet
from switchgear.protocols.gearman_draft.messages import (
    Completion,
    ErrorCode,
    JobRequest,
    JobType,
    Packet,
    Progress,
    malformed,
)

__all__ = ["POLL_SECONDS", "Application"]

# A server that could not be reached is not the first choice for this long.
SHUN_SECONDS: Final = 5.0
# An asynchronous job that is waited for is asked for so often.
POLL_SECONDS: Final = 0.2
# The end of a throw-away job is never known. It counts as unfinished for this long, and at most this many do.
THROWN_AWAY_SECONDS: Final = 60.0
MOST_THROWN_AWAY: Final = 10_000
# How many unread statuses of a job are kept.
MOST_NEWS: Final = 1000


def read_handle(body: bytes) -> str:
    """The handle in a job_create_res; empty for a job without one."""
    if not body.isascii():
        raise malformed("a handle is not ASCII")
    return body.decode()


# The answer to a request, and its decoder.
ANSWERS: Final[dict[Packet, tuple[Packet, Callable[[bytes], Any]]]] = {
    Packet.JOB_CREATE_REQ: (Packet.JOB_CREATE_RES, read_handle),
    Packet.JOB_STATUS_REQ: (Packet.JOB_STATUS_RES, Progress.unpack),
    Packet.JOB_COMPLETE_REQ: (Packet.JOB_COMPLETE_RES, Completion.unpack),
}


class AwaitedJob:
    """A job whose end the server sends by itself."""

    def __init__(self) -> None:
        self.news: deque[DraftStatus] = deque(maxlen=MOST_NEWS)
        self.completion: Completion | None = None
        self.error: ServerUnreachable | None = None  # the server is gone, and the end will not come

    def has_updates(self) -> bool:
        return bool(self.news) or self.completion is not None or self.error is not None


class DraftRequest:
    """A request without an answer yet."""

    def __init__(self, kind: Packet, wait: AwaitedJob | None = None) -> None:
        self.expected, self._read = ANSWERS[kind]
        self.wait = wait  # begins with the answer
        self._answer: Any = None
        self._error: ClientError | None = None

    def is_answered(self) -> bool:
        return self._answer is not None or self._error is not None

    def answer(self, body: bytes) -> None:
        """Read the answer; raises PeerError if it is not one to this request."""
        self._answer = self._read(body)

    def fail(self, error: ClientError) -> None:
        """The answer is an error, or will not come."""
        self._error = error

    def result(self) -> Any:
        """The answer; raises the error in its place."""
        if self._answer is None:
            raise self._error or ClientError("not answered yet")
        return self._answer


class ApplicationConnection(DraftConnection):
    """A connection of an application, with its requests in order."""

    def __init__(self, address: ServerAddress) -> None:
        super().__init__(address)
        self.requests: deque[DraftRequest] = deque()  # in the order in which they will be answered
        self.waits: deque[AwaitedJob] = deque()

    def on_packet(self, kind: int, body: bytes) -> None:
        if kind == Packet.ERROR:
            error = refusal(body)  # if the packet is malformed, the request fails with the connection
            if self.requests:
                self.requests.popleft().fail(error)
        elif self.waits and kind == Packet.JOB_STATUS_RES:
            self.waits[0].news.append(DraftStatus.of(Progress.unpack(body)))
        elif self.waits and kind == Packet.JOB_COMPLETE_RES:
            self.waits[0].completion = Completion.unpack(body)
            self.waits.popleft()
        elif self.requests and kind == self.requests[0].expected:
            request = self.requests[0]
            request.answer(body)
            self.requests.popleft()
            if request.wait is not None:
                self.waits.append(request.wait)
        else:
            raise malformed(f"a packet of type {kind} that was not asked for")

    def on_lost(self) -> None:
        for request in self.requests:
            request.fail(self.problem)
        for wait in self.waits:
            wait.error = self.problem
        self.requests.clear()
        self.waits.clear()


class Application:
    """All flows of an application.  `timeout_seconds` is for connecting and for answers that need no job to run."""

    def __init__(
        self, urls: str | Iterable[str], timeout_seconds: float, clock: Callable[[], float], rng: random.Random
    ) -> None:
        self.servers = draft_servers(urls)
        if not self.servers:
            raise ValueError("an application needs a server")
        self._known_servers = {server: server for server in self.servers}  # with the settings for TLS
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._rng = rng
        self._connections: dict[
            tuple[ServerAddress, bool], ApplicationConnection
        ] = {}  # by server and whether it is for waiting
        self._shunned_until: dict[ServerAddress, float] = {}
        self._unfinished: dict[JobRecord, AwaitedJob | None] = {}
        self._thrown_away: dict[JobRecord, float] = {}  # when each was created, oldest first

    @property
    def unfinished(self) -> list[JobRecord]:
        """Jobs that were created and whose end is not known, except those thrown away."""
        return list(self._unfinished)

    @property
    def connections(self) -> list[ApplicationConnection]:
        return list(self._connections.values())

    def forget(self, record: JobRecord) -> None:
        """Do not count this job as unfinished any more."""
        self._unfinished.pop(record, None)
        self._thrown_away.pop(record, None)

    # --- creating ---

    def submit(self, name: str, args: bytes, dupkey: str, job_type: JobType) -> Flow[JobRecord]:
        """Create a job on a random server; on another if that one cannot be reached, or takes no jobs now."""
        return (yield from self._create(JobRequest(ascii_bytes(name), ascii_bytes(dupkey), JobType(job_type), args)))

    def recreate(self, record: JobRecord) -> Flow[JobRecord]:
        """Create a job again, on any server."""
        created = yield from self._create(record.request())
        self.forget(record)
        return created

    def _create(self, request: JobRequest) -> Flow[JobRecord]:
        waits = request.job_type is JobType.SYNC_WAIT
        problem: ClientError | None = None
        for server in self._in_random_order():
            wait = AwaitedJob() if waits else None
            connection = self._connection_to(server, waits)
            try:
                handle = yield from self._ask(connection, Packet.JOB_CREATE_REQ, request.pack(), wait)
            except ServerUnreachable as error:
                self._shunned_until[server] = self._clock() + SHUN_SECONDS
                problem = error
                continue
            except ServerRefused as error:
                if error.code != ErrorCode.REFUSED.name:
                    raise
                problem = error
                continue
            record = JobRecord.of(request, server, handle)
            if request.job_type is JobType.ASYNC_THROW_AWAY:
                self._thrown_away[record] = self._clock()
                self._drop_old_thrown_away()
            else:
                self._unfinished[record] = wait
            return record
        raise problem or ClientError("there is no server")

    def _in_random_order(self) -> list[ServerAddress]:
        now = self._clock()
        servers = self._rng.sample(self.servers, len(self.servers))
        return sorted(servers, key=lambda server: self._shunned_until.get(server, 0.0) > now)

    # --- waiting ---

    def next_status(self, record: JobRecord, deadline: float | None) -> Flow[DraftStatus | None]:
        """The next status of a job that is waited for, or None at its end; raises TimeoutError."""
        wait = self._unfinished.get(record)
        if record.outcome is not None:
            return None
        if wait is None:
            raise ClientError(f"{record.name} is not a job of this client that can be waited for without asking")
        if not (yield WaitStep(wait.has_updates, deadline)):
            raise TimeoutError(f"{record.name} did not end in time")
        if wait.news:
            return wait.news.popleft()
        if wait.completion is None:
            raise wait.error or ClientError("no news")
        self._record_end(record, wait.completion)
        return None

    def wait(self, record: JobRecord, deadline: float | None, poll_seconds: float) -> Flow[DraftResult]:
        """The end of a job, waited for or asked for again and again; raises TimeoutError."""
        while record.outcome is None:
            if record.job_type is JobType.SYNC_WAIT:
                yield from self.next_status(record, deadline)
            elif (yield from self.complete(record)) is None:
                now = self._clock()
                if deadline is not None and now >= deadline:
                    raise TimeoutError(f"{record.name} did not end in time")
                until = now + poll_seconds
                yield WaitStep(lambda: False, until if deadline is None else min(until, deadline))
        return record.outcome

    # --- asking ---

    def status(self, record: JobRecord) -> Flow[DraftStatus]:
        """Ask the job's server how far the job is."""
        return DraftStatus.of((yield from self._ask_with_handle(record, Packet.JOB_STATUS_REQ)))

    def complete(self, record: JobRecord) -> Flow[DraftResult | None]:
        """Ask the job's server how the job ended; None if it has not."""
        if record.outcome is None:
            completion: Completion = yield from self._ask_with_handle(record, Packet.JOB_COMPLETE_REQ)
            if completion.elapsed_seconds:
                self._record_end(record, completion)
        return record.outcome

    def _ask_with_handle(self, record: JobRecord, kind: Packet) -> Flow[Any]:
        if not record.handle:
            raise ClientError(f"{record.name} has no handle to ask with")
        return (yield from self._ask(self._connection_to(record.server, False), kind, ascii_bytes(record.handle)))

    def _record_end(self, record: JobRecord, completion: Completion) -> None:
        record.outcome = DraftResult(completion.code, completion.data)
        record.elapsed_seconds = completion.elapsed_seconds
        self.forget(record)

    # --- after the loss of a server ---

    def recreate_unfinished(self) -> Flow[list[tuple[JobRecord, JobRecord]]]:
        """Create the unfinished jobs again whose servers are gone or do not know them any more.

        Returns the old and the new record of each.  Jobs that their servers still have stay there.  Throw-away jobs of
        the last minute are created again if their server cannot be reached: it cannot be asked about them.
        """
        recreated = []
        for record, wait in list(self._unfinished.items()):
            lost = (yield from self._is_unknown(record)) if wait is None else (yield from self._has_lost(wait))
            if lost:
                recreated.append((record, (yield from self.recreate(record))))
        self._drop_old_thrown_away()
        unreachable = yield from self._unreachable({record.server for record in self._thrown_away})
        for record in list(self._thrown_away):
            if record.server in unreachable:
                recreated.append((record, (yield from self.recreate(record))))
        return recreated

    def _drop_old_thrown_away(self) -> None:
        since = self._clock() - THROWN_AWAY_SECONDS
        while self._thrown_away:
            oldest = next(iter(self._thrown_away))
            if self._thrown_away[oldest] >= since and len(self._thrown_away) <= MOST_THROWN_AWAY:
                return
            del self._thrown_away[oldest]

    def _unreachable(self, servers: set[ServerAddress]) -> Flow[set[ServerAddress]]:
        """The servers to which there is no connection and none can be made."""
        unreachable = set()
        for server in servers:
            connection = self._connection_to(server, waits=False)
            yield WaitStep(lambda connection=connection: not connection.is_open, self._clock())  # type: ignore[misc]
            try:
                yield from self._connect(connection)
            except ServerUnreachable:
                self._shunned_until[server] = self._clock() + SHUN_SECONDS
                unreachable.add(server)
        return unreachable

    def _has_lost(self, wait: AwaitedJob) -> Flow[bool]:
        yield WaitStep(lambda: wait.error is not None, self._clock())
        return wait.error is not None

    def _is_unknown(self, record: JobRecord) -> Flow[bool]:
        try:
            yield from self.complete(record)
        except ServerUnreachable:
            self._shunned_until[record.server] = self._clock() + SHUN_SECONDS
            return True
        except ServerRefused as error:
            if error.code == ErrorCode.UNKNOWN_HANDLE.name:
                return True
            raise
        return False

    # --- connections ---

    def _connection_to(self, server: ServerAddress, waits: bool) -> ApplicationConnection:
        connection = self._connections.get((server, waits))
        if connection is None:
            # A record that was stored has the server without the settings for TLS.
            known = self._known_servers.get(server, server)
            connection = self._connections[server, waits] = ApplicationConnection(known)
        return connection

    def _ask(
        self, connection: ApplicationConnection, kind: Packet, body: bytes, wait: AwaitedJob | None = None
    ) -> Flow[Any]:
        """Send a request, and wait for its answer; raises ServerUnreachable or ServerRefused."""
        yield WaitStep(lambda: not connection.is_open, self._clock())  # the server may have closed it long ago
        yield from self._connect(connection)
        request = DraftRequest(kind, wait)
        connection.requests.append(request)
        yield SendStep(connection, packet(kind, body))
        if not (yield WaitStep(request.is_answered, self._clock() + self._timeout_seconds)):
            # The answer may still come, and would be taken for that to the next question.
            yield CloseStep(connection, f"{connection.address} did not answer within {self._timeout_seconds:g} s")
        return request.result()

    def _connect(self, connection: ApplicationConnection) -> Flow[None]:
        if connection.state is ConnectionState.SHUT:
            yield OpenStep(connection)
        if not (
            yield WaitStep(
                lambda: connection.state is not ConnectionState.OPENING, self._clock() + self._timeout_seconds
            )
        ):
            yield CloseStep(connection, f"cannot connect to {connection.address}: no answer in time")
        if not connection.is_open:
            raise connection.problem
