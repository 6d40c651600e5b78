"""A blocking connection to a Gearman server: bytes or packets out, bytes or packets in."""

from __future__ import annotations

import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from switchgear.client.address import HttpServerAddress, ServerAddress
from switchgear.client.gearman.error_codes import error_in_packet
from switchgear.client.gearman.packets import response_decoder
from switchgear.client.sockets import DEFAULT_TIMEOUT_SECONDS, describe_os_error, enable_keepalive
from switchgear.errors import ServerUnreachable
from switchgear.protocols.framing import Message
from switchgear.protocols.gearman.codec import request
from switchgear.protocols.gearman.messages import Packet

if TYPE_CHECKING:
    from switchgear.client.http.relay_thread import HttpRelay

__all__ = ["GearmanConnection"]

_READ_BYTES: Final = 256 * 1024


class GearmanConnection:
    """One socket.  Not for use by several threads at once."""

    def __init__(
        self,
        host: str,
        port: int,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        *,
        address: ServerAddress | None = None,
    ) -> None:
        """Connect; raises ServerUnreachable, or ServerRefused if the server does not accept the token.

        `address` says whether the connection is encrypted, and by what the client is identified.

        `timeout_seconds` is how long the server may take to accept the connection, to read the next piece of output,
        and to answer. `receive` has its own deadline, for jobs that take longer.
        """
        self.address = address or ServerAddress(host, port)
        self.timeout_seconds = timeout_seconds
        self._decoder = response_decoder()
        self._received: deque[Message] = deque()
        self._relay: HttpRelay | None = None
        if isinstance(self.address, HttpServerAddress):
            from switchgear.client.http.relay_thread import HttpRelay  # few need it

            self._relay = HttpRelay(self.address, timeout_seconds)
            self._socket = self._relay.socket
            return
        try:
            self._socket = self._connected(socket.create_connection((host, port), timeout_seconds))
        except (OSError, UnicodeError) as error:
            raise ServerUnreachable(f"cannot connect to {self.address}: {describe_os_error(error)}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        enable_keepalive(self._socket)
        if self.address.token:
            try:
                self._authenticate()
            except BaseException:
                self.close()
                raise

    @classmethod
    def to(cls, address: ServerAddress, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> Self:
        """Connect to this address; see `__init__`."""
        return cls(address.host, address.port, timeout_seconds, address=address)

    def _connected(self, plain: socket.socket) -> socket.socket:
        context = self.address.tls_context()
        if context is None:
            return plain
        try:
            return context.wrap_socket(plain, server_hostname=self.address.host)
        except BaseException:
            plain.close()
            raise

    def _authenticate(self) -> None:
        self.send(request(Packet.AUTHENTICATE, self.address.token.encode()))
        kind, body = self.receive_answer()
        if kind == Packet.ERROR:
            raise error_in_packet(body)

    def find_user(self) -> int | None:
        """The id of the user whose process has answered, if it is on this machine and the system tells; else None."""
        from switchgear.net.connections.peer_user import (
            user_behind,  # few ask, and a client needs nothing else of the server
        )

        if self._relay is not None:
            return None
        try:
            peer, here = self._socket.getpeername(), self._socket.getsockname()
        except OSError:  # the server has closed the connection
            return None
        return user_behind((peer[0], peer[1]), (here[0], here[1]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection.  May be called again."""
        self._socket.close()
        if self._relay is not None:
            self._relay.wait_closed()

    def send(self, data: bytes) -> None:
        """Send packets or lines; raises ServerUnreachable."""
        # Not sendall: its timeout is for the whole, and a large payload on a slow line is no reason to give up.
        self._socket.settimeout(self.timeout_seconds)
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._socket.send(rest) :]
        except OSError as error:
            raise self._lost(error) from error

    def receive(self, deadline: float | None = None) -> Message:
        """The next packet or line, waited for until `deadline` on the monotonic clock, or for ever.

        Raises TimeoutError, or ServerUnreachable if the connection is lost.
        """
        while not self._received:
            self._received.extend(self._decoder.feed(self.receive_bytes(deadline)))
            if self._decoder.failure is not None and not self._received:
                raise ServerUnreachable(f"{self.address} does not speak Gearman: {self._decoder.failure}")
        return self._received.popleft()

    def receive_answer(self) -> Message:
        """The next packet or line, which the server should send within the timeout; raises ServerUnreachable."""
        try:
            return self.receive(self.answer_deadline())
        except TimeoutError as error:
            raise self.no_answer() from error

    def answer_deadline(self) -> float:
        """When a request that is sent now should have its answer."""
        return time.monotonic() + self.timeout_seconds

    def no_answer(self) -> ServerUnreachable:
        """The error for an answer that did not come by its deadline."""
        return ServerUnreachable(f"{self.address} did not answer within {self.timeout_seconds:g} s")

    def receive_bytes(self, deadline: float | None = None) -> bytes:
        """Whatever comes next; raises TimeoutError, or ServerUnreachable if the connection is lost."""
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"nothing came from {self.address} in time")
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(_READ_BYTES)
            except TimeoutError:
                continue
            except OSError as error:
                raise self._lost(error) from error
            if not data:
                problem = self._relay.problem if self._relay is not None else ""
                raise ServerUnreachable(
                    f"{self.address}: {problem}" if problem else f"{self.address} closed the connection"
                )
            return data

    def _lost(self, error: OSError) -> ServerUnreachable:
        return ServerUnreachable(f"the connection to {self.address} was lost: {describe_os_error(error)}")
