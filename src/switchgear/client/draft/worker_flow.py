"""The worker of the 2005 draft, without I/O: asks each server in turn, runs one task at a time, sleeps, is woken.

Two meanings of noop.  It says both "no job for you" and "wake up", and a worker that gets up by itself, because its
time is over, may ask a server that has just called it.  Then two packets come, and the first noop must not be taken
for the answer: the answer may be a task, which would lie there while we ask elsewhere.  So a server that may have
called is asked with a *fence* behind the question: a question for a handle that no server gives.  Our server answers
it with an error, and another may answer it with a status.  What comes before that is the answer to the question.

The draft says nothing about such handles, so a server may leave the fence without an answer, or close the connection.
It is then asked without fences: a noop counts as the answer if no task follows within a moment, and a task that comes
later still is run as soon as the worker is free.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from switchgear.backoff import ReconnectBackoff, RetryPauses
from switchgear.client.address import ServerAddress
from switchgear.client.draft.flow_steps import (
    CloseStep,
    ConnectionState,
    DraftConnection,
    Flow,
    OpenStep,
    RunStep,
    SendStep,
    WaitStep,
    draft_servers,
    refusal,
)
from switchgear.client.draft.records import ascii_bytes
from switchgear.client.failure_reason import reason_of
from switchgear.errors import ServerRefused
from switchgear.protocols.gearman_draft.codec import packet
from switchgear.protocols.gearman_draft.messages import (
    Assignment,
    ErrorCode,
    Packet,
    Progress,
    Result,
    join_names,
    malformed,
)

__all__ = ["DraftTask", "DraftTiming", "DraftWorkerFlow", "DraftWorkerObserver", "TaskValue", "failed", "succeeded"]

CONNECT_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 10.0
GOODBYE_SECONDS: Final = 5.0
# How long after a noop the answer to the fence may take, at a server that has not answered one yet.
FENCE_SECONDS: Final = 1.0
# How long after a noop a task may follow, at a server that does not answer fences.
SECOND_ANSWER_SECONDS: Final = 0.05

RESULT_CODES: Final = range(256)

ASK: Final = packet(Packet.JOB_ASSIGN_REQ)
FENCE: Final = packet(Packet.JOB_STATUS_REQ, b"-")
SLEEP: Final = packet(Packet.WORKER_SLEEP)
GOODBYE: Final = packet(Packet.WORKER_DISCONNECT)

TaskValue = bytes | tuple[int, bytes] | None
"""The return value of a handler: the result of a success, or a result code with data; None is an empty result."""


class DraftTask:
    """A task as its handler sees it."""

    def __init__(
        self, connection: DraftWorkerConnection, assignment: Assignment, announce: Callable[[DraftTask, bytes], None]
    ) -> None:
        self.name = assignment.name.decode("ascii", "replace")
        self.args = assignment.args
        self.server = connection.address
        self.connection = connection
        self._announce = announce

    def __repr__(self) -> str:
        return f"DraftTask({self.name!r}, {str(self.server)!r})"

    def progress(self, numerator: int, denominator: int, seconds_left: float | None = None) -> None:
        """Report how far the task is, and how many more seconds it will take, if that is known."""
        seconds = 0 if seconds_left is None else max(1, round(seconds_left))
        self._announce(self, packet(Packet.JOB_STATUS_ANNOUNCE, Progress(numerator, denominator, seconds).pack()))


class DraftWorkerObserver:
    """Callbacks for what a worker does, which do nothing unless overridden.  Must not raise."""

    def connected(self, server: ServerAddress) -> None:
        """The worker is connected, and has announced its names."""

    def disconnected(self, server: ServerAddress, problem: str, retry_seconds: float) -> None:
        """There is no connection; another attempt follows after a pause."""

    def refused(self, server: ServerAddress, error: ServerRefused) -> None:
        """Called when a server has answered with an error."""

    def task_started(self, task: DraftTask) -> None:
        """Called before a handler is called."""

    def task_ended(self, task: DraftTask, code: int, seconds: float) -> None:
        """Called when the end of a task was announced."""

    def task_dropped(self, task: DraftTask) -> None:
        """The connection was lost before the end was announced; if the server comes back, it has the task run again."""

    def sleeping(self) -> None:
        """The worker has announced sleep to all connected servers."""

    def woken(self, server: ServerAddress | None) -> None:
        """The worker was woken by a server that called or has come back; None: by the end of `sleep_seconds`."""


@dataclass(frozen=True, slots=True)
class DraftTiming:
    """Intervals and limits of a worker."""

    sleep_threshold_seconds: float = 0.02  # for how long servers without tasks are polled before going to sleep
    pause_seconds: float = 0.002  # between two rounds of asking
    sleep_seconds: float = 10.0  # then they are asked again, called or not
    tasks_total: int = 0  # stop after this many tasks; 0: never
    backoff: ReconnectBackoff = field(default_factory=ReconnectBackoff)  # between attempts to connect


def succeeded(value: TaskValue) -> Result:
    """The result of a handler that returned this."""
    if value is None:
        return Result(0)
    if isinstance(value, bytes):
        return Result(0, value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], bytes) and value[0] in RESULT_CODES:
        return Result(*value)
    return Result(1, f"a handler returns bytes, or a result code and bytes, not a {type(value).__name__}".encode())


def failed(error: Exception) -> Result:
    """The result of a handler that raised this: any defect of a handler is the end of its task, not of the worker."""
    return Result(1, reason_of(error))


class DraftWorkerConnection(DraftConnection):
    """A connection on which tasks are asked for."""

    def __init__(
        self, address: ServerAddress, names: list[bytes], observer: DraftWorkerObserver, backoff: ReconnectBackoff
    ) -> None:
        super().__init__(address)
        self.pauses = RetryPauses(backoff)  # between attempts to connect, until a server answers
        self.retry_at: float | None = 0.0  # when to connect; None: that is to be found out
        self.give_up_at = 0.0  # while connecting
        self.calls = False  # there is something new: it has called, or is there again
        self.answers_fences: bool | None = None  # None: that is not known yet
        self._introduction = packet(Packet.WORKER_CONNECT, join_names(names))
        self._observer = observer
        self._asked = False
        self._assignment: Assignment | None = None
        self._may_call = False  # sleep was announced, so a call may be on its way
        self._fence_is_due = False  # the answer to the question is sure only when the fence is there
        self._fences = 0  # sent and not come back
        self._noop_may_be_call = False  # a noop has come that is the answer, unless a task follows

    # --- for the worker ---

    def task_request(self) -> bytes:
        """The packet that asks for a task."""
        self._asked = True
        self.calls = False
        self._noop_may_be_call = False
        self._fence_is_due = self._may_call
        if not self._may_call or self.answers_fences is False:
            return ASK
        self._may_call = False
        self._fences += 1
        return ASK + FENCE

    def is_answered(self) -> bool:
        return not self._asked

    def is_settled(self) -> bool:
        """Whether the question is answered, or a noop arrived that may be the answer."""
        return not self._asked or self._noop_may_be_call

    @property
    def seconds_for_second_answer(self) -> float:
        """How long to wait for what may follow a noop."""
        if self.answers_fences is None:
            return FENCE_SECONDS
        return ANSWER_SECONDS if self.answers_fences else SECOND_ANSWER_SECONDS

    def take_noop_as_answer(self) -> None:
        """Take the noop for the answer: no other packet has followed in time."""
        self._asked = self._fence_is_due = self._may_call = self._noop_may_be_call = False
        self.answers_fences = False
        self._fences = 0

    @property
    def has_assignment(self) -> bool:
        """Whether a task came after a noop had been taken for the answer."""
        return self._assignment is not None

    def take_assignment(self) -> Assignment | None:
        """The task in the answer; None if there was none."""
        assignment, self._assignment = self._assignment, None
        return assignment

    def sleep(self) -> bytes:
        """The packet that announces sleep."""
        self._may_call = True
        return SLEEP

    # --- input ---

    def on_opened(self) -> bytes:
        self._asked = self._may_call = self._fence_is_due = self._noop_may_be_call = False
        self._assignment = None
        self._fences = 0
        self.calls = True
        self._observer.connected(self.address)
        return self._introduction

    def on_lost(self) -> None:
        if self._fences and self.answers_fences is None:
            self.answers_fences = False  # the fence may be what the server has closed the connection for
        self._asked = self.calls = False
        self._assignment = None
        self.retry_at = None

    def on_packet(self, kind: int, body: bytes) -> None:
        self.pauses.reset()
        if kind == Packet.NOOP:
            if not self._asked:
                self.calls = True
                self._may_call = False
            elif not self._fence_is_due:
                self._asked = False
            else:
                self._noop_may_be_call = True
        elif kind == Packet.JOB_ASSIGN_RES and (self._asked or self.answers_fences is False):
            self._assignment = Assignment.unpack(body)
            self.calls = not self._asked
            self._asked = self._fence_is_due = self._may_call = self._noop_may_be_call = False
        elif kind == Packet.JOB_STATUS_RES and self._fences:
            self._on_fence()
        elif kind == Packet.ERROR:
            self._on_error(refusal(body))
        else:
            raise malformed(f"a packet of type {kind} that was not asked for")

    def _on_fence(self) -> None:
        self.answers_fences = True
        self._fences -= 1
        if self._fence_is_due and not self._fences:
            self._asked = self._fence_is_due = self._noop_may_be_call = False

    def _on_error(self, error: ServerRefused) -> None:
        if self._fences and error.code == ErrorCode.UNKNOWN_HANDLE.name:
            self._on_fence()
            return
        if not self._fence_is_due:
            self._asked = False
        self._observer.refused(self.address, error)


class DraftWorkerFlow:
    """The flow of a worker: one task at a time, from any of its servers."""

    def __init__(
        self,
        urls: str | Iterable[str],
        names: Iterable[str],
        timing: DraftTiming,
        observer: DraftWorkerObserver | None,
        announce: Callable[[DraftTask, bytes], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        addresses = draft_servers(urls)
        job_names = [ascii_bytes(name) for name in names]
        if not addresses or not job_names:
            raise ValueError("a worker needs a server and a name")
        self.observer = observer or DraftWorkerObserver()
        self.connections = [
            DraftWorkerConnection(address, job_names, self.observer, timing.backoff) for address in addresses
        ]
        self.stopping = False
        self.stopping_at_once = False  # without waiting until the servers have closed the connections
        self._timing = timing
        self._announce = announce
        self._clock = clock
        self._first = 0  # whose turn it is
        self._tasks_done = 0

    def work(self) -> Flow[None]:
        """Work until stopped, and then disconnect."""
        while not self.stopping:
            task = yield from self._poll_servers()
            if task is not None:
                yield from self._do(task)
            elif not self.stopping:
                yield from self._sleep()
        yield from self._disconnect_all()

    # --- looking for work ---

    def _poll_servers(self) -> Flow[DraftTask | None]:
        """Ask every server in turn, again and again until it is time to sleep."""
        threshold = self._clock() + self._timing.sleep_threshold_seconds
        while not self.stopping:
            yield from self._reconnect()
            task = yield from self._ask_around()
            now = self._clock()
            if task is not None or now >= threshold:
                return task
            yield WaitStep(lambda: self.stopping, min(threshold, now + self._timing.pause_seconds))
        return None

    def _ask_around(self) -> Flow[DraftTask | None]:
        for place in [*range(self._first, len(self.connections)), *range(self._first)]:
            connection = self.connections[place]
            if not connection.is_open or self.stopping:
                continue
            if not connection.has_assignment:
                yield from self._ask(connection)
            assignment = connection.take_assignment()
            if assignment is not None:
                self._first = (place + 1) % len(self.connections)  # no server is served only when others have nothing
                return DraftTask(connection, assignment, self._announce)
        return None

    def _ask(self, connection: DraftWorkerConnection) -> Flow[None]:
        """Ask a server for a task, and wait for the answer."""
        yield SendStep(connection, connection.task_request())
        answered = yield WaitStep(connection.is_settled, self._clock() + ANSWER_SECONDS)
        if answered:
            answered = yield WaitStep(connection.is_answered, self._clock() + connection.seconds_for_second_answer)
            if not answered and not connection.answers_fences:
                connection.take_noop_as_answer()
                return
        if not answered:
            yield CloseStep(connection, f"{connection.address} did not answer within {ANSWER_SECONDS:g} s")

    def _sleep(self) -> Flow[None]:
        """Sleep until a server wakes the worker, or for `sleep_seconds`."""
        servers = [connection for connection in self.connections if connection.is_open]
        for connection in servers:
            yield SendStep(connection, connection.sleep())
        if servers:
            self.observer.sleeping()
        deadline = self._clock() + self._timing.sleep_seconds
        while not self._is_called() and self._clock() < deadline:
            yield from self._reconnect()
            yield WaitStep(lambda: self._is_called() or self._has_lost(), min(deadline, self._next_deadline()))
        if self.stopping:
            return
        callers = [place for place, connection in enumerate(self.connections) if connection.calls]
        self.observer.woken(self.connections[callers[0]].address if callers else None)
        if callers:
            self._first = callers[0]

    def _is_called(self) -> bool:
        return self.stopping or any(connection.calls for connection in self.connections)

    # --- connections ---

    def _has_lost(self) -> bool:
        """Whether a connection was lost and has no time for its next attempt yet."""
        return any(
            connection.retry_at is None and connection.state is ConnectionState.SHUT for connection in self.connections
        )

    def _reconnect(self) -> Flow[None]:
        """Connect to servers without a connection, after a pause."""
        now = self._clock()
        for connection in self.connections:
            if connection.state is ConnectionState.OPENING and now >= connection.give_up_at:
                yield CloseStep(connection, f"cannot connect to {connection.address}: no answer in time")
            if connection.state is not ConnectionState.SHUT:
                continue
            if connection.retry_at is None:
                pause_seconds = connection.pauses.next_seconds()
                connection.retry_at = now + pause_seconds
                self.observer.disconnected(connection.address, str(connection.problem), pause_seconds)
            if now >= connection.retry_at:
                connection.give_up_at = now + CONNECT_SECONDS
                yield OpenStep(connection)

    def _next_deadline(self) -> float:
        """When the next attempt to connect begins or is given up."""
        moments = [
            connection.give_up_at for connection in self.connections if connection.state is ConnectionState.OPENING
        ]
        moments += [
            connection.retry_at or 0.0 for connection in self.connections if connection.state is ConnectionState.SHUT
        ]
        return min(moments, default=float("inf"))

    def _disconnect_all(self) -> Flow[None]:
        """Disconnect from all servers, which close the connections after everything sent before."""
        for connection in self.connections:
            if connection.is_open:
                yield SendStep(connection, GOODBYE)
        yield WaitStep(
            lambda: self.stopping_at_once or not any(connection.is_open for connection in self.connections),
            self._clock() + GOODBYE_SECONDS,
        )

    # --- working ---

    def _do(self, task: DraftTask) -> Flow[None]:
        self.observer.task_started(task)
        started = self._clock()
        result: Result | None = yield RunStep(task)  # None: given up, because the server is gone
        yield WaitStep(lambda: not task.connection.is_open, self._clock())  # it may have gone meanwhile
        if result is None or not task.connection.is_open:
            self.observer.task_dropped(task)
            return
        yield SendStep(task.connection, packet(Packet.JOB_COMPLETE_ANNOUNCE, result.pack()))
        self.observer.task_ended(task, result.code, self._clock() - started)
        self._tasks_done += 1
        if self._tasks_done == self._timing.tasks_total:
            self.stopping = True
