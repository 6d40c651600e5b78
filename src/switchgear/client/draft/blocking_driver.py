"""`BlockingDriver`: runs the flows of the 2005 draft on sockets, in the calling thread."""

from __future__ import annotations

import errno
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, TypeVar

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
from switchgear.client.sockets import describe_os_error, enable_keepalive
from switchgear.client.waker import Waker
from switchgear.errors import ConfigError
from switchgear.protocols.gearman_draft.messages import Result

__all__ = ["BlockingDriver"]

T = TypeVar("T")

READ_BYTES: Final = 256 * 1024
SEND_SECONDS: Final = 30.0  # that the server may take for the next piece of what is sent

AddressInfo = tuple[int, int, int, str, Any]


class ConnectAttempt(NamedTuple):
    """An attempt to connect, with the addresses of the server that are still to be tried."""

    connection: DraftConnection
    others: list[AddressInfo]


class HandshakeAttempt(NamedTuple):
    """A connection that is being encrypted."""

    connection: DraftConnection


class BlockingDriver:
    """Takes the steps of flows, one flow at a time, in the calling thread."""

    def __init__(self, run: Callable[[Runnable], Result] | None = None) -> None:
        self._run = run
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[DraftConnection, socket.socket] = {}
        self._waker = Waker()
        self._selector.register(self._waker, selectors.EVENT_READ)

    def perform(self, flow: Flow[T]) -> T:
        """Run a flow to its end; returns its result or raises its exception."""
        return perform(flow, self._take)

    def wake(self) -> None:
        """Have the condition of the waiting flow checked again; from any thread, or a signal handler."""
        self._waker()

    def woken_by_signals(self) -> AbstractContextManager[None]:
        """Within this context a signal has the same effect as `wake`."""
        return self._waker.by_signals()

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._sockets):
            self._shut(connection, "the connection was closed from here")
        self._selector.close()
        self._waker.close()

    def _take(self, step: Step) -> Any:
        match step:
            case WaitStep(condition, deadline):
                return self._until(condition, deadline)
            case SendStep(connection, data):
                return self.send(connection, data)
            case OpenStep(connection):
                return self._open(connection)
            case CloseStep(connection, problem):
                return self._shut(connection, problem)
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

    def send(self, connection: DraftConnection, data: bytes) -> None:
        """Send data, if there is a connection."""
        sock = self._sockets.get(connection)
        if sock is None or not connection.is_open:
            return
        rest = memoryview(data)
        try:
            sock.settimeout(SEND_SECONDS)
            while rest:
                rest = rest[sock.send(rest) :]
            sock.setblocking(False)
        except OSError as error:
            self._shut(connection, f"the connection to {connection.address} was lost: {describe_os_error(error)}")

    # --- connecting ---

    def _open(self, connection: DraftConnection) -> None:
        connection.opening()
        host, port = connection.address.host, connection.address.port
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            connection.lost(f"cannot connect to {connection.address}: {describe_os_error(error)}")
            return
        self._start_connecting(ConnectAttempt(connection, list(addresses)), 0)

    def _start_connecting(self, call: ConnectAttempt, last_error: int) -> None:
        """Begin to connect to the next address of the server."""
        connection, others = call
        while others:
            family, kind, protocol, _, address = others.pop(0)
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            last_error = sock.connect_ex(address)
            if last_error in (0, errno.EINPROGRESS):
                self._sockets[connection] = sock
                self._selector.register(sock, selectors.EVENT_WRITE, call)
                return
            sock.close()
        connection.lost(f"cannot connect to {connection.address}: {describe_os_error(OSError(last_error, ''))}")

    def _on_connected(self, sock: socket.socket, call: ConnectAttempt) -> None:
        self._selector.unregister(sock)
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            del self._sockets[call.connection]
            sock.close()
            self._start_connecting(call, error)
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        enable_keepalive(sock)
        if call.connection.address.uses_tls:
            self._start_handshake(sock, call.connection)
        else:
            self._on_opened(sock, call.connection)

    def _start_handshake(self, sock: socket.socket, connection: DraftConnection) -> None:
        del self._sockets[connection]
        try:
            context = connection.address.tls_context()
            assert context is not None
            encrypted = context.wrap_socket(
                sock, server_hostname=connection.address.host, do_handshake_on_connect=False
            )
        except (ConfigError, OSError) as error:
            sock.close()
            problem = describe_os_error(error) if isinstance(error, OSError) else str(error)
            connection.lost(f"cannot connect to {connection.address}: {problem}")
            return
        self._sockets[connection] = encrypted
        self._selector.register(encrypted, selectors.EVENT_WRITE, HandshakeAttempt(connection))

    def _shake_hands(self, sock: ssl.SSLSocket, attempt: HandshakeAttempt) -> None:
        """Continue the handshake; the selector tells when the next part can be read or written."""
        connection = attempt.connection
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            self._selector.modify(sock, selectors.EVENT_READ, attempt)
        except ssl.SSLWantWriteError:
            self._selector.modify(sock, selectors.EVENT_WRITE, attempt)
        except OSError as error:
            self._shut(connection, f"cannot connect to {connection.address}: {describe_os_error(error)}")
        else:
            self._selector.unregister(sock)
            self._on_opened(sock, connection)

    def _on_opened(self, sock: socket.socket, connection: DraftConnection) -> None:
        self._selector.register(sock, selectors.EVENT_READ, connection)
        self.send(connection, connection.opened())

    # --- listening ---

    def _on_ready(self, key: selectors.SelectorKey) -> None:
        sock = key.fileobj
        if isinstance(sock, Waker):
            sock.clear()
            return
        assert isinstance(sock, socket.socket)
        if isinstance(key.data, ConnectAttempt):
            if self._sockets.get(key.data.connection) is sock:
                self._on_connected(sock, key.data)
        elif isinstance(key.data, HandshakeAttempt):
            if self._sockets.get(key.data.connection) is sock:
                assert isinstance(sock, ssl.SSLSocket)
                self._shake_hands(sock, key.data)
        elif self._sockets.get(key.data) is sock:
            self._read(sock, key.data)

    def _read(self, sock: socket.socket, connection: DraftConnection) -> None:
        try:
            data = sock.recv(READ_BYTES)
            # What is decrypted already makes no socket readable.
            while data and isinstance(sock, ssl.SSLSocket) and sock.pending():
                data += sock.recv(READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self._shut(connection, f"the connection to {connection.address} was lost: {describe_os_error(error)}")
            return
        if not data:
            self._shut(connection, f"{connection.address} closed the connection")
            return
        connection.receive(data)
        if not connection.is_open:
            self._shut(connection, str(connection.problem))

    def _shut(self, connection: DraftConnection, problem: str) -> None:
        sock = self._sockets.pop(connection, None)
        if sock is not None:
            self._selector.unregister(sock)
            sock.close()
        connection.lost(problem)
