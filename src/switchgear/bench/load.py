"""The load of the benchmarks: Gearman clients and workers in one thread, which check every answer.

Only the server should be measured, so the load is cheap: packets are encoded before the clock starts, and the output of
a connection goes out in one write. Every payload has the number of its job. A job must be created once, under a unique
handle, be assigned once, and, in the foreground, be returned to its submitter under that handle.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from switchgear.bench.server import HOST
from switchgear.client.gearman.packets import response_decoder
from switchgear.protocols.gearman.codec import request
from switchgear.protocols.gearman.messages import Packet

__all__ = ["Fault", "Load", "LoadResult", "drain", "round_trips", "submit"]

FUNCTION = b"bench"
NUMBER_BYTES = 12
RECEIVE_BYTES = 1 << 18
PATIENCE_SECONDS = 30
GRAB = request(Packet.GRAB_JOB)
PRE_SLEEP = request(Packet.PRE_SLEEP)
CLOSING = b"the last"


class Fault(Exception):
    """The server violated the protocol or did not answer, so that there is no result."""


@dataclass(frozen=True, slots=True)
class Load:
    """The parameters of a load."""

    jobs: int
    clients: int = 64
    workers: int = 64
    outstanding: int = 1  # requests that a connection keeps unanswered; in the foreground those of the clients
    payload_bytes: int = 100
    credit: int = 0  # how many jobs a worker lets itself be sent; 0: it asks for each, as plain Gearman has it


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The measurements of a load."""

    seconds: float
    cpu_seconds: float | None
    latencies_seconds: list[float]


class JobLedger:
    """The state of every job, with checks: no handle twice, no job assigned twice, every result to its submitter."""

    def __init__(self, load: Load, kind: Packet, first: int = 0) -> None:
        if load.payload_bytes < NUMBER_BYTES:
            raise ValueError(f"a payload of {load.payload_bytes} bytes has no room for the number of its job")
        self.jobs = load.jobs
        self.tail = b"x" * (load.payload_bytes - NUMBER_BYTES)
        size = len(FUNCTION) + 1 + 36 + 1 + load.payload_bytes
        head = struct.pack(">4sII", b"\0REQ", kind, size) + FUNCTION
        self.heads = [b"%b\0%036d\0%012d" % (head, first + number, number) for number in range(load.jobs)]
        self.handles: set[bytes] = set()
        self.handed_out = bytearray(load.jobs)
        self.taken = 0
        self.answered = 0
        self.latencies_seconds: list[float] = []

    def packets(self, numbers: Sequence[int]) -> bytes:
        tail, heads = self.tail, self.heads
        return b"".join([heads[number] + tail for number in numbers])

    def created(self, handle: bytes) -> None:
        if handle in self.handles:
            raise Fault(f"two jobs have the handle {handle!r}")
        self.handles.add(handle)

    def take(self, handle: bytes, payload: bytes) -> bytes:
        """Check a job that was assigned to a worker; returns the result to send."""
        text = payload[:NUMBER_BYTES]
        if not text.isdigit() or int(text) >= self.jobs or payload[NUMBER_BYTES:] != self.tail:
            raise Fault(f"{handle!r} has a payload that nobody sent")
        number = int(text)
        if self.handed_out[number]:
            raise Fault(f"job {number} was handed out twice")
        self.handed_out[number] = 1
        self.taken += 1
        return text


class LoadConnection(ABC):
    """One connection to the server."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", PATIENCE_SECONDS, 0))
        self._decoder = response_decoder()
        self.is_closed_out = False  # the closing echo is back

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def packets(self) -> list[tuple[int, bytes]]:
        data = self.socket.recv(RECEIVE_BYTES)
        packets = self._decoder.feed(data)
        if not data or self._decoder.failure is not None:
            raise Fault("the server hung up" if not data else f"the server sent {self._decoder.failure}")
        return packets

    @abstractmethod
    def start(self) -> None:
        """Send the first requests, when the clock runs."""

    @abstractmethod
    def receive(self) -> None:
        """Read and handle the bytes that have arrived."""

    def on_unexpected(self, kind: int, body: bytes) -> None:
        if kind == Packet.ECHO_RES and body == CLOSING:
            self.is_closed_out = True
            return
        raise Fault(f"the server sent packet {kind}: {body[:80]!r}")

    def close_out(self) -> None:
        """Send an echo, whose answer shows that everything sent before is handled."""
        self.send(request(Packet.ECHO_REQ, CLOSING))


class Submitter(LoadConnection):
    """A client of the load."""

    def __init__(
        self, port: int, ledger: JobLedger, numbers: Sequence[int], outstanding: int, is_waiting: bool
    ) -> None:
        super().__init__(port)
        self._ledger = ledger
        self._numbers = numbers
        self._next = 0
        self._outstanding = outstanding
        self._is_waiting = is_waiting  # for results, not only for handles
        self._unanswered: deque[tuple[int, float]] = deque()
        self._expected: dict[bytes, tuple[int, float]] = {}

    def start(self) -> None:
        self._submit(self._outstanding)

    def _submit(self, count: int) -> None:
        numbers = self._numbers[self._next : self._next + count]
        if not numbers:
            return
        self._next += len(numbers)
        now = time.perf_counter()
        self._unanswered.extend([(number, now) for number in numbers])
        self.send(self._ledger.packets(numbers))

    def receive(self) -> None:
        answered = 0
        ledger = self._ledger
        for kind, body in self.packets():
            if kind == Packet.JOB_CREATED and self._unanswered:
                number, sent = self._unanswered.popleft()
                ledger.created(body)
                if self._is_waiting:
                    self._expected[body] = (number, sent)
                else:
                    answered += 1
                    ledger.latencies_seconds.append(time.perf_counter() - sent)
            elif kind == Packet.WORK_COMPLETE:
                self._ended(body)
                answered += 1
            else:
                self.on_unexpected(kind, body)
        ledger.answered += answered
        if answered:
            self._submit(answered)

    def _ended(self, body: bytes) -> None:
        handle, _, result = body.partition(b"\0")
        number, sent = self._expected.pop(handle, (-1, 0.0))
        if not result.isdigit() or int(result) != number:
            raise Fault(f"the result of {handle!r} came to one who does not wait for it")
        self._ledger.latencies_seconds.append(time.perf_counter() - sent)


class Grabber(LoadConnection):
    """A worker of the plain protocol; in the foreground it sleeps, is woken, and grabs."""

    def __init__(self, port: int, ledger: JobLedger, outstanding: int, is_sleeping: bool) -> None:
        super().__init__(port)
        self._ledger = ledger
        self._outstanding = outstanding
        self._is_sleeping = is_sleeping
        self.send(request(Packet.CAN_DO, FUNCTION) + (PRE_SLEEP if is_sleeping else b""))

    def start(self) -> None:
        if not self._is_sleeping:
            self.send(GRAB * self._outstanding)

    def receive(self) -> None:
        answers: list[bytes] = []
        for kind, body in self.packets():
            if kind == Packet.JOB_ASSIGN:
                handle, _, payload = body.split(b"\0", 2)
                result = self._ledger.take(handle, payload)
                answers += (request(Packet.WORK_COMPLETE, handle, result), GRAB)
            elif kind == Packet.NOOP:
                answers.append(GRAB)
            elif kind == Packet.NO_JOB:
                if self._is_sleeping:
                    answers.append(PRE_SLEEP)
            else:
                self.on_unexpected(kind, body)
        if answers:
            self.send(b"".join(answers))


class PushedWorker(LoadConnection):
    """A worker that grants credit, so that the server pushes jobs."""

    def __init__(self, port: int, ledger: JobLedger, credit: int) -> None:
        super().__init__(port)
        self._ledger = ledger
        self._credit = credit
        self.send(request(Packet.OPTION_REQ, b"switchgear") + request(Packet.CAN_DO, FUNCTION))

    def start(self) -> None:
        self.send(request(Packet.CREDIT, b"%d" % self._credit, b"0"))

    def receive(self) -> None:
        answers: list[bytes] = []
        for kind, body in self.packets():
            if kind == Packet.JOB_PUSH:
                handle, *_, payload = body.split(b"\0", 7)
                result = self._ledger.take(handle, payload)
                answers.append(request(Packet.WORK_COMPLETE, handle, result))
            elif kind != Packet.OPTION_RES:
                self.on_unexpected(kind, body)
        if answers:
            self.send(b"".join(answers) + request(Packet.CREDIT, b"%d" % len(answers), b"0"))


def submit(port: int, load: Load, cpu_seconds: Callable[[], float | None], already: int = 0) -> LoadResult:
    """Submit background jobs, until each is acknowledged; none is run.  `already` is how many are queued before."""
    ledger = JobLedger(load, Packet.SUBMIT_JOB_BG, first=already)
    connections = _submitters(port, ledger, load, is_waiting=False)
    outcome = _run(connections, ledger, lambda: ledger.answered == load.jobs, cpu_seconds)
    _check_queue(port, already + load.jobs)
    return outcome


def drain(port: int, load: Load, cpu_seconds: Callable[[], float | None]) -> LoadResult:
    """Run queued jobs, until the server has the last result."""
    ledger = JobLedger(load, Packet.SUBMIT_JOB_BG)
    connections: list[LoadConnection] = []
    for _ in range(load.workers):
        connections.append(
            PushedWorker(port, ledger, load.credit) if load.credit else Grabber(port, ledger, load.outstanding, False)
        )
    outcome = _run(connections, ledger, lambda: ledger.taken == load.jobs, cpu_seconds)
    _check_queue(port, 0)
    return outcome


def round_trips(port: int, load: Load, cpu_seconds: Callable[[], float | None]) -> LoadResult:
    """Run foreground jobs, from the submission to the result."""
    ledger = JobLedger(load, Packet.SUBMIT_JOB)
    connections = _submitters(port, ledger, load, is_waiting=True)
    for _ in range(load.workers):
        connections.insert(
            0, PushedWorker(port, ledger, load.credit) if load.credit else Grabber(port, ledger, 1, True)
        )
    outcome = _run(connections, ledger, lambda: ledger.answered == load.jobs, cpu_seconds)
    _check_queue(port, 0)
    return outcome


def _submitters(port: int, ledger: JobLedger, load: Load, is_waiting: bool) -> list[LoadConnection]:
    return [
        Submitter(port, ledger, range(number, load.jobs, load.clients), load.outstanding, is_waiting)
        for number in range(load.clients)
    ]


def _run(
    connections: list[LoadConnection],
    ledger: JobLedger,
    is_done: Callable[[], bool],
    cpu_seconds: Callable[[], float | None],
) -> LoadResult:
    with selectors.DefaultSelector() as selector:
        try:
            for connection in connections:
                selector.register(connection.socket, selectors.EVENT_READ, connection)
            _close_out(selector, connections, ledger)  # all are connected, and what they announced is known
            before, start = cpu_seconds(), time.perf_counter()
            for connection in connections:
                connection.start()
            while not is_done():
                _receive(selector, ledger)
            _close_out(selector, connections, ledger)
            seconds, after = time.perf_counter() - start, cpu_seconds()
        except OSError as error:
            raise Fault(f"the connection broke: {error}") from error
        finally:
            for connection in connections:
                connection.socket.close()
    used = None if before is None or after is None else after - before
    return LoadResult(seconds, used, ledger.latencies_seconds)


def _receive(selector: selectors.BaseSelector, ledger: JobLedger) -> None:
    ready = selector.select(PATIENCE_SECONDS)
    if not ready:
        done = max(ledger.answered, ledger.taken)
        raise Fault(f"nothing came for {PATIENCE_SECONDS} s; {done:,} of {ledger.jobs:,} jobs were done")
    for key, _ in ready:
        key.data.receive()


def _close_out(selector: selectors.BaseSelector, connections: Sequence[LoadConnection], ledger: JobLedger) -> None:
    for connection in connections:
        connection.is_closed_out = False
        connection.close_out()
    while not all(connection.is_closed_out for connection in connections):
        _receive(selector, ledger)


def _check_queue(port: int, expected: int) -> None:
    """Check that the server has exactly the jobs that it should; raises Fault."""
    with socket.create_connection((HOST, port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(b"status\n")
        answer = b""
        while not answer.endswith(b".\n"):
            piece = connection.recv(RECEIVE_BYTES)
            if not piece:
                raise Fault("the server hung up on `status`")
            answer += piece
    rows = [connection.split(b"\t") for connection in answer.splitlines()]
    held = sum(int(row[1]) for row in rows if row[0] == FUNCTION)
    if held != expected:
        raise Fault(f"the server holds {held:,} jobs, and should hold {expected:,}")
