"""`HttpRelay`: a socket of this process for a blocking client, behind which a thread speaks HTTP with the server."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final, cast

from switchgear.client.address import HttpServerAddress
from switchgear.client.http.stream import HttpStream
from switchgear.client.sockets import describe_os_error
from switchgear.errors import ServerUnreachable

__all__ = ["HttpRelay"]

CLOSE_SECONDS: Final = 3.0


class HttpRelay:
    """Connects a socket to the HTTP interface of a server, until the socket is closed."""

    def __init__(self, address: HttpServerAddress, timeout_seconds: float) -> None:
        """Connect; raises ServerUnreachable or ConfigError."""
        self.problem = ""  # why the server cannot be reached any more
        self._address = address
        self.socket, self._far_end = socket.socketpair()
        self._connected: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="switchgear-http", daemon=True)
        self._thread.start()
        try:
            self._connected.result(timeout_seconds)
        except FutureTimeoutError:
            self.socket.close()
            text = f"cannot connect to {address}: no answer within {timeout_seconds:g} s"
            raise ServerUnreachable(text) from None
        except BaseException:
            self.socket.close()
            raise

    def wait_closed(self) -> None:
        """Wait, but not for long, until the thread has ended."""
        self._thread.join(CLOSE_SECONDS)

    # --- in the thread ---

    def _run(self) -> None:
        with self._far_end:
            asyncio.run(self._carry())

    async def _carry(self) -> None:
        near = NearSide()
        far = FarSide(near)
        loop = asyncio.get_running_loop()
        try:
            stream = await HttpStream.open(lambda: far, self._address)
        except BaseException as error:
            self._connected.set_exception(error)
            return
        near.stream = stream
        await loop.connect_accepted_socket(lambda: near, self._far_end)
        self._connected.set_result(None)
        await asyncio.wait({near.closed, far.closed}, return_when=asyncio.FIRST_COMPLETED)
        self.problem = far.problem
        if near.transport is not None:
            near.transport.close()
        stream.close()
        await stream.wait_closed()


class NearSide(asyncio.Protocol):
    """The end of the socket pair that the client does not have."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.stream: HttpStream | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.stream is not None:
            self.stream.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if not self.closed.done():
            self.closed.set_result(None)


class FarSide(asyncio.Protocol):
    """What the server sends, on its way to the client."""

    def __init__(self, near: NearSide) -> None:
        self.problem = ""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._near = near

    def data_received(self, data: bytes) -> None:
        if self._near.transport is not None:
            self._near.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, OSError):
            self.problem = describe_os_error(error)
        if not self.closed.done():
            self.closed.set_result(None)
