"""`StandbyGateway`: forwards the bytes of a standby node's connections to the node that owns the jobs.

It understands no protocol, so every protocol works at every node. A connection is accepted at once. While no owner
answers, because the last one has just ended, the connection waits. It is closed when the owner changes, as if the
server had been restarted, and its peer connects again.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Any, Final, TypeAlias, cast

from switchgear.config import LimitsConfig
from switchgear.net.tcp import TcpListener
from switchgear.net.tcp_connection import set_keepalive

__all__ = ["OwnerAddress", "StandbyGateway"]

OwnerAddress: TypeAlias = tuple[str, str, int]  # scheme, host and port of one of the owner's listeners

CONNECT_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 0.1
# A connection for which no owner is found is closed after so long.
PATIENCE_SECONDS: Final = 15.0


class StandbyGateway:
    """Accepts connections at the addresses of this node's listeners."""

    def __init__(self, listeners: Sequence[TcpListener], limits: LimitsConfig) -> None:
        self._listeners = list(listeners)
        self._limits = limits
        self._servers: list[asyncio.Server] = []
        self.connections: set[PassedConnection] = set()
        self.by_host: Counter[str] = Counter()
        self._owner = 0
        self._addresses: list[OwnerAddress] = []

    async def start(self) -> None:
        """Accept connections. The listening sockets stay with their listeners."""
        loop = asyncio.get_running_loop()
        for place, listener in enumerate(self._listeners):
            for bound in listener.sockets():
                copy = socket.socket(fileno=os.dup(bound.fileno()))
                copy.setblocking(False)
                make = cast(Any, partial(PassedConnection, self, place))
                self._servers.append(await loop.create_server(make, sock=copy, backlog=self._limits.backlog))

    def close(self) -> None:
        """Stop, and close all connections."""
        for server in self._servers:
            server.close()
        self._servers = []
        self._drop_all()

    def owner_is(self, holder: int, addresses: list[OwnerAddress]) -> None:
        """Note which node owns the jobs, and where it listens."""
        if holder != self._owner:
            if self._owner:
                self._drop_all()
            self._owner = holder
        self._addresses = addresses

    def address_for(self, place: int) -> tuple[str, int] | None:
        """Where the owner has the listener that corresponds to this node's; None if there is none."""
        if not self._owner or place >= len(self._addresses):
            return None
        scheme, host, port = self._addresses[place]
        return (host, port) if scheme == self._listeners[place].url.scheme else None

    def refuses(self, host: str) -> bool:
        """Whether there are too many connections already, of all or of this host."""
        if len(self.connections) >= self._limits.connections:
            return True
        limit = self._limits.connections_per_address
        return bool(limit) and self.by_host[host] >= limit and not _is_loopback(host)

    def _drop_all(self) -> None:
        for connection in list(self.connections):
            connection.abort()


class PassedConnection(asyncio.Protocol):
    """A connection of a client or worker, and the one to the owner that belongs to it."""

    def __init__(self, gateway: StandbyGateway, place: int) -> None:
        self._gateway = gateway
        self._place = place
        self._host = ""
        self._transport: asyncio.Transport | None = None
        self._owner: OwnerConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._early: list[bytes] = []  # what came before there was a connection to the owner
        self._has_ended = False  # the peer will send nothing more

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        peer = transport.get_extra_info("peername")
        self._host = str(peer[0]) if peer else ""
        if self._gateway.refuses(self._host):
            transport.abort()
            return
        self._gateway.connections.add(self)
        self._gateway.by_host[self._host] += 1
        set_keepalive(transport.get_extra_info("socket"), self._gateway._limits)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + PATIENCE_SECONDS
        while loop.time() < until_s:
            address = self._gateway.address_for(self._place)
            if address is not None:
                with suppress(OSError, TimeoutError):
                    make = partial(OwnerConnection, self)
                    async with asyncio.timeout(CONNECT_SECONDS):
                        _, self._owner = await loop.create_connection(make, *address)
                    set_keepalive(self._owner.transport.get_extra_info("socket"), self._gateway._limits)
                    self._pass_early_input(self._owner)
                    return
            await asyncio.sleep(RETRY_SECONDS)
        self.abort()

    def _pass_early_input(self, owner: OwnerConnection) -> None:
        owner.transport.writelines(self._early)
        self._early = []
        if self._has_ended:
            owner.transport.write_eof()
        self.pause(False)

    def data_received(self, data: bytes) -> None:
        if self._owner is not None:
            self._owner.transport.write(data)
        else:
            # Only the first of it: the rest stays with the system until the owner can take it. A pause before anything
            # was read has no effect in uvloop.
            self._early.append(data)
            self.pause(True)

    def eof_received(self) -> bool:
        self._has_ended = True
        if self._owner is not None and self._owner.transport.can_write_eof():
            self._owner.transport.write_eof()
        return True  # the answer may still come

    def pause_writing(self) -> None:
        if self._owner is not None:
            self._owner.pause(True)

    def resume_writing(self) -> None:
        if self._owner is not None:
            self._owner.pause(False)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self in self._gateway.connections:
            self._gateway.connections.discard(self)
            self._gateway.by_host[self._host] -= 1
            if not self._gateway.by_host[self._host]:
                del self._gateway.by_host[self._host]
        if self._owner is not None:
            self._owner.transport.close()

    def pass_back(self, data: bytes) -> None:
        """Write bytes of the owner to the peer."""
        if self._transport is not None:
            self._transport.write(data)

    def pause(self, is_paused: bool) -> None:
        """Pause or resume reading from the peer, because the owner does not read."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            if is_paused:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def end_output(self) -> None:
        """Close the sending side towards the peer, because the owner has closed its own."""
        if self._transport is not None and self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    def close(self) -> None:
        """Close after what was passed on is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, on both sides."""
        if self._transport is not None:
            self._transport.abort()
        if self._owner is not None:
            self._owner.transport.abort()


class OwnerConnection(asyncio.Protocol):
    """The connection to the owner."""

    transport: asyncio.Transport

    def __init__(self, client: PassedConnection) -> None:
        self._client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._client.pass_back(data)

    def eof_received(self) -> bool:
        self._client.end_output()
        return True

    def pause_writing(self) -> None:
        self._client.pause(True)

    def resume_writing(self) -> None:
        self._client.pause(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.close()

    def pause(self, is_paused: bool) -> None:
        """Stop to read from the owner, or go on: the peer does not take it."""
        if not self.transport.is_closing():
            if is_paused:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
