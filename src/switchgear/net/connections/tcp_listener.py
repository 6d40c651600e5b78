"""`TcpListener`: accepts connections at one address, and closes those that hold too much memory.

Each connection is a `Connection` (`net/connections/tcp_connection.py`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from switchgear.access.identities import OPEN_ACCESS, ListenerAccess
from switchgear.access.permissions import Permissions
from switchgear.config import LimitsConfig, ListenUrl
from switchgear.errors import AddressInUse, ConfigError
from switchgear.net.connections.burst_acceptor import BurstAcceptor
from switchgear.net.connections.tcp_connection import LAST_WORDS_SECONDS, Connection
from switchgear.net.connections.tls import ServerTls
from switchgear.net.hub import Hub
from switchgear.protocols.context import Context
from switchgear.protocols.session import ByteSession
from switchgear.protocols.transport import PeerTransport
from switchgear.verbs.answers import ListenerFigures

__all__ = ["TcpListener"]

log = logging.getLogger("switchgear")


class TcpListener:
    """One listening address: accepts connections, within limits, and checks them once a second."""

    def __init__(
        self,
        url: ListenUrl,
        hub: Hub,
        limits: LimitsConfig,
        make_session: Callable[[Context, PeerTransport], ByteSession],
        listeners: list[TcpListener] | None = None,
        access: ListenerAccess = OPEN_ACCESS,
        tls: ServerTls | None = None,
    ) -> None:
        self.url = url
        self.access = access
        self.tls = tls  # None: connections are not encrypted
        self.tls_handshakes: dict[Connection, float] = {}  # those that are not complete, and when they began
        self.hub = hub
        self.limits = limits
        self.make_session = make_session
        self.listeners = (
            [self] if listeners is None else listeners
        )  # all listeners of the server, which share the limits
        self.is_private = False  # only processes of the server's own user and of root may connect
        self.exempt_hosts: frozenset[str] = frozenset()  # other nodes, which pass on connections of many hosts
        # In a cluster, what reads the address of a peer whose connection another node forwards.
        self.read_forwarded: Callable[[Connection], asyncio.Protocol] | None = None
        self.connections: set[Connection] = set()
        self.by_host: Counter[str] = Counter()
        self._server: asyncio.Server | None = None
        self._others: BurstAcceptor | None = None
        self._all_gone: asyncio.Future[None] | None = None  # while closing

    async def open(self) -> None:
        """Bind the address and start to accept connections; raises ConfigError."""
        await self.bind()
        await self.start()

    async def bind(self) -> None:
        """Bind the address, without accepting connections yet; raises ConfigError."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._accept,
                self.url.host,
                self.url.port,
                backlog=self.limits.backlog,
                reuse_address=True,
                start_serving=False,
            )
        except OSError as error:
            raise self._cannot_listen(error) from error

    async def listen(self) -> None:
        """Let the system complete connections, which wait until `start` is called; raises ConfigError.

        Two servers can bind one address, and only one of them can listen.
        """
        if self._server is None:
            await self.bind()
        server: Any = self._server
        try:
            for bound in server.sockets:
                # An event loop lends no socket that can be told to listen, so this is done with a copy.
                with socket.socket(fileno=os.dup(bound.fileno())) as copy:
                    copy.listen(self.limits.backlog)
        except OSError as error:
            server.close()
            self._server = None  # it cannot be used again
            raise self._cannot_listen(error) from error

    async def start(self) -> None:
        """Start to accept connections, after binding the address if that is not done; raises ConfigError."""
        if self._server is None:
            await self.bind()
        assert self._server is not None
        try:
            await self._server.start_serving()
            if not isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop):  # it is uvloop's
                server: Any = self._server
                self._others = BurstAcceptor(list(server.sockets), self._make_connection)
        except OSError as error:
            self._server.close()
            self._server = None  # it cannot be started again
            raise self._cannot_listen(error) from error

    def _cannot_listen(self, error: OSError) -> ConfigError:
        if error.errno == errno.EADDRINUSE:
            return AddressInUse(f"cannot listen on {self.url}: {os.strerror(error.errno)}")
        if isinstance(error, socket.gaierror):  # whose numbers are not those of other errors
            reason = f"{self.url.host} does not resolve to an address: {error.strerror}"
        else:
            reason = os.strerror(error.errno) if error.errno else str(error)
        return ConfigError(f"cannot listen on {self.url}: {reason}")

    def _accept(self) -> asyncio.Protocol:
        if self._others is not None:
            self._others.look_soon()
        return self._make_connection()

    def _make_connection(self) -> asyncio.Protocol:
        # This is not a subclass of asyncio's protocol classes, so that it can be compiled, but it has all the methods
        # that event loops call.
        connection = Connection(self)
        return cast(asyncio.Protocol, connection) if self.read_forwarded is None else self.read_forwarded(connection)

    def sockets(self) -> list[socket.socket]:
        """The listening sockets; none before `bind` and after `close`."""
        server: Any = self._server  # sockets are a tuple or a list, depending on the event loop
        return list(server.sockets) if server is not None else []

    @property
    def endpoints(self) -> list[tuple[str, int]]:
        """The hosts and ports of the listening sockets."""
        server: Any = self._server  # sockets are a tuple or a list, depending on the event loop
        return [listener.getsockname()[:2] for listener in server.sockets] if server is not None else []

    @property
    def addresses(self) -> list[str]:
        """The listening addresses, as a user would write them."""
        options = {"tls": "yes"} if self.tls is not None else {}
        return [str(ListenUrl(self.url.scheme, host, port, options)) for host, port in self.endpoints]

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._others is not None:
            self._others.close()

    def stop_listening_to_peers(self) -> None:
        """Ignore further input, and close each connection when its output is sent."""
        for connection in self.connections:
            if connection.session is not None:
                connection.session.deferred.clear()
                connection.session.closing = True

    def answer_waiting(self) -> bool:
        """Let sessions answer requests that wait, because the server stops; whether some have more to do."""
        is_missing = False
        for connection in list(self.connections):
            if connection.session is not None and connection.session.server_stops():
                is_missing = True
        return is_missing

    async def hang_up(self, patience_seconds: float) -> None:
        """Close all connections, and wait a moment for the peers to close theirs. Input that arrives meanwhile is
        read and discarded, because closing a socket with unread input would also discard the last answer."""
        for connection in list(self.connections):
            connection.close()
        await self._wait_until_all_are_gone(patience_seconds)

    async def _wait_until_all_are_gone(self, patience_seconds: float) -> None:
        if self.connections:
            self._all_gone = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_gone], timeout=patience_seconds)

    async def close(self) -> None:
        self.stop_accepting()
        for connection in list(self.connections):
            connection.end()
        # A peer that does not read its last output must not keep the server from stopping.
        await self._wait_until_all_are_gone(LAST_WORDS_SECONDS)
        for connection in list(self.connections):
            connection.abort()

    def close_identities(self, reduced: list[Permissions]) -> int:
        """Close the connections of peers that may do less from now on; returns how many."""
        count = 0
        for connection in list(self.connections):
            session = connection.session
            if session is not None and session.permissions in reduced:
                connection.abort()
                count += 1
        return count

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self.connections.discard(connection)
        self.tls_handshakes.pop(connection, None)
        self.by_host[connection.host] -= 1
        if not self.by_host[connection.host]:
            del self.by_host[connection.host]
        if self._all_gone is not None and not self.connections and not self._all_gone.done():
            self._all_gone.set_result(None)

    def refusal_for(self, connection: Connection) -> str:
        """Why this connection is refused; empty if it is not."""
        if sum(len(listener.connections) for listener in self.listeners) >= self.limits.connections:
            return f"there are {self.limits.connections} connections already"
        refusal = self._refusal_for_host(connection.host, connection.is_loopback)
        if refusal:
            return refusal
        if len(self.tls_handshakes) >= self.limits.tls_handshakes:
            return f"{len(self.tls_handshakes)} TLS handshakes are not complete"
        return ""

    def _refusal_for_host(self, host: str, is_loopback: bool) -> str:
        limit = self.limits.connections_per_address
        if (
            limit
            and not is_loopback
            and host not in self.exempt_hosts
            and sum(listener.by_host[host] for listener in self.listeners) >= limit
        ):
            return f"it has {limit} connections already"
        return ""

    def change_host(self, connection: Connection, host: str, port: int) -> str:
        """Count the connection for the host of its peer, in place of the node that forwards it; returns why it is
        refused, empty if it is not."""
        refusal = self._refusal_for_host(host, is_loopback=False)
        self.by_host[connection.host] -= 1
        if not self.by_host[connection.host]:
            del self.by_host[connection.host]
        connection.host, connection.port = host, port
        connection.is_loopback = False
        self.by_host[host] += 1
        return refusal

    def look_after(self) -> None:
        """Once a second: close the connections of peers that do not read, or are silent for too long."""
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            connection.check_reader(now)
            connection.check_silence(now)
        for connection, begun in list(self.tls_handshakes.items()):
            if now - begun > self.limits.tls_handshake_seconds:
                connection.fail_handshake(f"it took longer than {self.limits.tls_handshake_seconds:g} s")

    # --- memory ---

    @property
    def input_bytes(self) -> int:
        """Bytes of incomplete messages that the connections of this listener hold."""
        return sum(connection.input_bytes for connection in self.connections)

    @property
    def output_bytes(self) -> int:
        """Bytes of output that the peers of this listener have not read."""
        return sum(connection.output_bytes for connection in self.connections)

    def describe(self) -> ListenerFigures:
        """What this listener's connections hold, for operators."""
        largest = max(self.connections, key=lambda connection: connection.held_bytes, default=None)
        return {
            "url": ", ".join(self.addresses),
            "connections": len(self.connections),
            "input": self.input_bytes,
            "output": self.output_bytes,
            "largest": largest.describe() if largest is not None and largest.held_bytes else None,
        }

    def free_input(self) -> None:
        """Close connections, those with the most unfinished input first, until all fit into their share of memory."""
        memory = self.hub.engine.memory
        while memory.input_bytes > memory.connection_limit_bytes:
            largest = max(self._all_connections(), key=lambda connection: connection.input_bytes)
            if not largest.input_bytes:
                break
            largest.give_up("intake_closed", largest.input_bytes)

    def free_output(self) -> None:
        """Close connections, those with the most unread output first, until all fit into their share of memory."""
        memory = self.hub.engine.memory
        while memory.output_bytes > memory.connection_limit_bytes:
            largest = max(self._all_connections(), key=lambda connection: connection.output_bytes)
            if not largest.output_bytes:
                break
            largest.give_up("slow_reader_closed", largest.output_bytes)

    def _all_connections(self) -> list[Connection]:
        return [connection for listener in self.listeners for connection in listener.connections]
