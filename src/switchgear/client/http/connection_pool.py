"""`HttpConnectionPool`: connections to one server, each for one request at a time, kept for the next."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Final, cast

from switchgear.client.address import HttpServerAddress
from switchgear.client.http.answers import AnswerParser, HttpAnswer
from switchgear.client.sockets import describe_os_error, enable_keepalive
from switchgear.errors import PeerError

__all__ = ["HttpConnectionPool", "NoAnswer"]

# A connection that has been unused for longer is not used again: somebody on the way may be about to close it.
MOST_IDLE_SECONDS: Final = 10.0
MOST_IDLE_CONNECTIONS: Final = 8


class NoAnswer(Exception):
    """A request was not answered."""

    def __init__(self, text: str, *, was_sent: bool, is_stale: bool = False) -> None:
        super().__init__(text)
        self.was_sent = was_sent  # the server may have read it
        self.is_stale = is_stale  # a connection was used again, and was closed before any answer


class HttpConnectionPool:
    """The connections to one server."""

    def __init__(self, address: HttpServerAddress, connect_seconds: float) -> None:
        self._address = address
        self._connect_seconds = connect_seconds
        self._tls: ssl.SSLContext | None = None
        self._idle: list[HttpConnection] = []
        self._all: set[HttpConnection] = set()
        self._is_closed = False

    async def request(self, data: bytes, seconds: float) -> HttpAnswer:
        """Send a request, and return its answer; raises NoAnswer.  `seconds` is how long the server may be silent."""
        connection = self._reusable()
        is_reused = connection is not None
        if connection is None:
            connection = await self._connect()
        try:
            answer = await connection.request(data, seconds)
        except NoAnswer as problem:
            connection.abort()
            problem.is_stale = is_reused and not connection.has_received
            raise
        except BaseException:
            connection.abort()
            raise
        if connection.is_usable and len(self._idle) < MOST_IDLE_CONNECTIONS and not self._is_closed:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        else:
            connection.abort()
        return answer

    def _reusable(self) -> HttpConnection | None:
        """The connection that was used last, if it can be used again."""
        oldest = time.monotonic() - MOST_IDLE_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and connection.idle_since > oldest:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> HttpConnection:
        address = self._address
        loop = asyncio.get_running_loop()
        if address.uses_tls and self._tls is None:
            self._tls = address.tls_context()
        connection = HttpConnection(self._all)
        try:
            async with asyncio.timeout(self._connect_seconds):
                await loop.create_connection(lambda: connection, address.host, address.port, ssl=self._tls)
        except (OSError, UnicodeError) as error:  # a TimeoutError is an OSError
            connection.abort()
            raise NoAnswer(f"cannot connect: {describe_os_error(error)}", was_sent=False) from error
        return connection

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        for connection in list(self._all):
            connection.abort()
        self._idle.clear()


class HttpConnection(asyncio.Protocol):
    """One connection, for one request at a time."""

    def __init__(self, connections: set[HttpConnection]) -> None:
        self.idle_since = 0.0
        self.has_received = False  # part of the answer to the last request
        self._connections = connections
        self._parser = AnswerParser()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer] | None = None

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent."""
        return self._transport is not None and not self._transport.is_closing() and self._parser.keeps_alive

    async def request(self, data: bytes, seconds: float) -> HttpAnswer:
        """Send a request, and return its answer; raises NoAnswer."""
        if self._transport is None or self._transport.is_closing():
            raise NoAnswer("the connection was closed", was_sent=False)
        self._answer = asyncio.get_running_loop().create_future()
        self.has_received = False
        self._transport.write(data)
        unsent, has_received = -1, False
        try:
            while True:
                done, _ = await asyncio.wait({self._answer}, timeout=seconds)
                if done:
                    return self._answer.result()
                # Large bodies take their time: as long as something moves, the server is there.
                left = self._transport.get_write_buffer_size() if self._transport is not None else 0
                if left in (0, unsent) and self.has_received == has_received:
                    raise NoAnswer(f"no answer within {seconds:g} s", was_sent=True)
                unsent, has_received, self.has_received = left, False, False
        finally:
            if self._answer is not None and not self._answer.done():
                self._answer.cancel()
            self._answer = None

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, text: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(NoAnswer(text, was_sent=True))

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of another class
        self._connections.add(self)
        enable_keepalive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        self.has_received = True
        try:
            self._take(self._parser.feed(data))
        except PeerError as error:
            self._fail(str(error))
            self.abort()

    def eof_received(self) -> bool:
        self._take(self._parser.end())
        return False

    def _take(self, answers: list[HttpAnswer]) -> None:
        for answer in answers:
            if self._answer is None or self._answer.done():
                self.abort()  # an answer that nobody has asked for, such as 408 to an idle connection
                return
            self._answer.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._connections.discard(self)
        lost = f": {describe_os_error(error)}" if isinstance(error, OSError) else ""
        self._fail(f"the connection was lost before the answer came{lost}")
