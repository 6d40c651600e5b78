"""Flows over sockets, in the thread that calls."""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from switchgear.client.connection import keep_alive, words_of
from switchgear.client.draft.flow_steps import (
    CloseStep,
    DraftConnection,
    Flow,
    OpenStep,
    Runnable,
    RunStep,
    SendStep,
    Step,
    WaitStep,
)
from switchgear.client.flow_runner import perform
from switchgear.client.waker import Waker
from switchgear.protocols.gearman_draft.messages import Result

__all__ = ["BlockingDriver"]

T = TypeVar("T")

READ_BYTES: Final = 256 * 1024
SEND_SECONDS: Final = 30.0  # that the server may take for the next piece of what is sent

AddressInfo = tuple[int, int, int, str, Any]


class Call(NamedTuple):
    """An attempt to connect: the line, and the addresses of the server that are still to be tried."""

    line: DraftConnection
    others: list[AddressInfo]


class BlockingDriver:
    """Takes the steps of flows, one flow at a time, in the thread that calls."""

    def __init__(self, run: Callable[[Runnable], Result] | None = None) -> None:
        self._run = run
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[DraftConnection, socket.socket] = {}
        self._nudge = Waker()
        self._selector.register(self._nudge, selectors.EVENT_READ)

    def perform(self, flow: Flow[T]) -> T:
        """Go through with a flow; returns or raises what it does."""
        return perform(flow, self._take)

    def nudge(self) -> None:
        """Have conditions looked at again; from any thread, or a signal handler."""
        self._nudge()

    def close(self) -> None:
        """Hang up everywhere."""
        for line in list(self._sockets):
            self._shut(line, "the connection was closed from here")
        self._selector.close()
        self._nudge.close()

    def _take(self, step: Step) -> Any:
        match step:
            case WaitStep(condition, deadline):
                return self._until(condition, deadline)
            case SendStep(line, data):
                return self.send(line, data)
            case OpenStep(line):
                return self._open(line)
            case CloseStep(line, problem):
                return self._shut(line, problem)
            case RunStep(task):
                assert self._run is not None
                return self._run(task)

    def _until(self, condition: Callable[[], bool], deadline: float | None) -> bool:
        while not condition():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            for key, _ in self._selector.select(left):
                self._on_ready(key)
            if left == 0.0:
                return condition()
        return True

    def send(self, line: DraftConnection, data: bytes) -> None:
        """Send all of it, if there is a connection."""
        sock = self._sockets.get(line)
        if sock is None or not line.is_open:
            return
        rest = memoryview(data)
        try:
            sock.settimeout(SEND_SECONDS)
            while rest:
                rest = rest[sock.send(rest) :]
            sock.setblocking(False)
        except OSError as error:
            self._shut(line, f"the connection to {line.address} was lost: {words_of(error)}")

    # --- connecting ---

    def _open(self, line: DraftConnection) -> None:
        line.opening()
        host, port = line.address.host, line.address.port
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            line.lost(f"cannot connect to {line.address}: {words_of(error)}")
            return
        self._call(Call(line, list(addresses)), 0)

    def _call(self, call: Call, last_error: int) -> None:
        """Begin to connect to the next address of the server."""
        line, others = call
        while others:
            family, kind, protocol, _, address = others.pop(0)
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            last_error = sock.connect_ex(address)
            if last_error in (0, errno.EINPROGRESS):
                self._sockets[line] = sock
                self._selector.register(sock, selectors.EVENT_WRITE, call)
                return
            sock.close()
        line.lost(f"cannot connect to {line.address}: {words_of(OSError(last_error, ''))}")

    def _on_called(self, sock: socket.socket, call: Call) -> None:
        self._selector.unregister(sock)
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            del self._sockets[call.line]
            sock.close()
            self._call(call, error)
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(sock)
        self._selector.register(sock, selectors.EVENT_READ, call.line)
        self.send(call.line, call.line.opened())

    # --- listening ---

    def _on_ready(self, key: selectors.SelectorKey) -> None:
        sock = key.fileobj
        if isinstance(sock, Waker):
            sock.clear()
            return
        assert isinstance(sock, socket.socket)
        if isinstance(key.data, Call):
            if self._sockets.get(key.data.line) is sock:
                self._on_called(sock, key.data)
        elif self._sockets.get(key.data) is sock:
            self._read(sock, key.data)

    def _read(self, sock: socket.socket, line: DraftConnection) -> None:
        try:
            data = sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._shut(line, f"the connection to {line.address} was lost: {words_of(error)}")
            return
        if not data:
            self._shut(line, f"{line.address} closed the connection")
            return
        line.receive(data)
        if not line.is_open:
            self._shut(line, str(line.problem))

    def _shut(self, line: DraftConnection, problem: str) -> None:
        sock = self._sockets.pop(line, None)
        if sock is not None:
            self._selector.unregister(sock)
            sock.close()
        line.lost(problem)
