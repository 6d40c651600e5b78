"""The asyncio connection of a client: carries the bytes of a `ClientProtocol`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from switchgear.client.gearman.client_protocol import ClientProtocol
from switchgear.client.sockets import describe_os_error, enable_keepalive
from switchgear.errors import ServerUnreachable

__all__ = ["ClientStream"]


class ClientStream(asyncio.Protocol):
    """One connection to one server, from `loop.create_connection` to its end."""

    def __init__(
        self,
        server: str,
        *,
        greets: bool = False,
        silence_seconds: float = 0.0,
        token: str = "",
        on_lost: Callable[[ClientStream, ServerUnreachable], None] | None = None,
    ) -> None:
        """`greets` asks for the kind of the server first.  A server that neither answers nor takes what is sent for
        `silence_seconds` counts as gone; 0: never.  Without `on_lost` the protocol is told of the lost connection."""
        loop = asyncio.get_running_loop()
        self.server = server
        self.greeted: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.protocol = ClientProtocol(server, self._on_greeted)
        self.problem: ServerUnreachable | None = None  # why the connection is over
        self.is_over = False
        self._greets = greets
        self._token = token
        self._silence_seconds = silence_seconds
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._silence_timer: asyncio.TimerHandle | None = None  # runs while there are requests without answers
        self._has_received = False  # since the timer was started
        self._unsent_bytes = 0  # when the timer was started

    def flush(self) -> None:
        """Send what the protocol has to send."""
        if self.protocol.outgoing and self._transport is not None:
            self._transport.write(self.protocol.take_outgoing())
            if self._silence_seconds and self._silence_timer is None and self.protocol.unanswered:
                self._start_silence_timer()

    def abort(self, problem: ServerUnreachable | None = None) -> None:
        """Close the connection at once, for this reason if there is not one already."""
        self.problem = self.problem or problem
        self.is_over = True
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of another class
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            enable_keepalive(sock)
        if self._token:
            self.protocol.authenticate(self._token)
        if self._greets:
            self.protocol.greet()
        self.flush()

    def data_received(self, data: bytes) -> None:
        self._has_received = True
        try:
            self.protocol.receive(data)
        except ServerUnreachable as error:
            self.abort(ServerUnreachable(f"{self.server}: {error}", is_lasting=error.is_lasting))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.is_over = True
        if self._silence_timer is not None:
            self._silence_timer.cancel()
        if self.problem is None and isinstance(error, OSError):
            self.problem = ServerUnreachable(f"the connection to {self.server} was lost: {describe_os_error(error)}")
        if self.problem is None:
            self.problem = ServerUnreachable(f"{self.server} closed the connection")
        if not self.greeted.done():
            self.greeted.set_exception(self.problem)
            self.greeted.exception()  # mark it as retrieved: there may be no waiter
        if self._on_lost is not None:
            self._on_lost(self, self.problem)
        else:
            self.protocol.connection_lost(self.problem)
        if not self.closed.done():
            self.closed.set_result(None)

    def _on_greeted(self) -> None:
        if not self.greeted.done():
            self.greeted.set_result(None)

    # --- a server that has fallen silent ---

    def _start_silence_timer(self) -> None:
        assert self._transport is not None
        self._has_received = False
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._silence_timer = asyncio.get_running_loop().call_later(self._silence_seconds, self._check_silence)

    def _check_silence(self) -> None:
        """Close the connection if nothing was received or accepted for too long; TCP alone may take 15 minutes."""
        self._silence_timer = None
        if self._transport is None or not self.protocol.unanswered:
            return
        if self._has_received or self._transport.get_write_buffer_size() != self._unsent_bytes:
            self._start_silence_timer()
        else:
            self.abort(ServerUnreachable(f"{self.server} has not answered for {self._silence_seconds:g} s"))
