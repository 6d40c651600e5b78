"""`StandbyGateway`: forwards the bytes of a standby node's connections to the node that owns the jobs.

It understands no protocol, so every protocol works at every node. A connection is accepted at once. While no owner
answers, because the last one has just ended, the connection waits. It is closed when the owner changes, as if the
server had been restarted, and its peer connects again.

What was received on one side and is not sent on the other yet counts in the memory account: as input on its way to the
owner, as output on its way to the peer. One side is not read while the other does not take what it is sent, so that a
connection holds little; if all together hold too much, those that hold most are closed.
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
from switchgear.memory import MemoryAccount
from switchgear.net.connections.file_descriptors import permitted_limits
from switchgear.net.connections.tcp_connection import set_keepalive
from switchgear.net.connections.tcp_listener import TcpListener
from switchgear.net.forwarded_address import SIGNATURE, forwarding_header
from switchgear.telemetry import Telemetry

__all__ = ["READS_HEADERS", "OwnerAddress", "StandbyGateway"]

OwnerAddress: TypeAlias = tuple[str, str, int]  # scheme, host and port of one of the owner's listeners

# Among the addresses of an owner: it reads the header that tells the address of the peer.
READS_HEADERS: Final[OwnerAddress] = ("proxy", "", 2)

CONNECT_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 0.1
# A connection for which no owner is found is closed after so long.
PATIENCE_SECONDS: Final = 15.0
# One to the peer and one to the owner.
DESCRIPTORS_PER_CONNECTION: Final = 2


class StandbyGateway:
    """Accepts connections at the addresses of this node's listeners."""

    def __init__(
        self,
        listeners: Sequence[TcpListener],
        limits: LimitsConfig,
        memory: MemoryAccount,
        telemetry: Telemetry,
        secret: bytes = b"",
    ) -> None:
        """The secret is that of all nodes."""
        self._secret = secret
        self._listeners = list(listeners)
        self.limits = permitted_limits(limits, telemetry, DESCRIPTORS_PER_CONNECTION)
        self.memory = memory
        self.telemetry = telemetry
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
                self._servers.append(await loop.create_server(make, sock=copy, backlog=self.limits.backlog))

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

    def header_for(self, host: str, port: int, place: int) -> bytes:
        """The header with the address of a peer, for the owner; empty if the owner does not read such headers."""
        if READS_HEADERS not in self._addresses:
            return b""
        return forwarding_header(host, port, self._secret, self._owner)

    def refusal_for(self, host: str) -> str:
        """Why a connection from this host is refused; empty if it is not."""
        if len(self.connections) >= self.limits.connections:
            return f"there are {self.limits.connections} connections already"
        limit = self.limits.connections_per_address
        if limit and self.by_host[host] >= limit and not _is_loopback(host):
            return f"it has {limit} connections already"
        return ""

    def free_memory(self) -> None:
        """Close connections, those that hold most first, until all fit into their shares of memory."""
        memory = self.memory
        limit_bytes = memory.connection_limit_bytes
        while limit_bytes and self.connections and memory.input_bytes > limit_bytes:
            largest = max(self.connections, key=lambda connection: connection.input_bytes)
            largest.give_up("intake_closed", largest.input_bytes)
        while limit_bytes and self.connections and memory.output_bytes > limit_bytes:
            largest = max(self.connections, key=lambda connection: connection.output_bytes)
            largest.give_up("slow_reader_closed", largest.output_bytes)

    def _drop_all(self) -> None:
        for connection in list(self.connections):
            connection.abort()


class PassedConnection(asyncio.Protocol):
    """A connection of a client or worker, and the one to the owner that belongs to it."""

    def __init__(self, gateway: StandbyGateway, place: int) -> None:
        self._gateway = gateway
        self.place = place
        self._host = ""
        self._port = 0
        self.input_bytes = 0  # received, and not passed on to the owner yet
        self.output_bytes = 0  # sent by the owner, and not passed on to the peer yet
        self._transport: asyncio.Transport | None = None
        self._owner: OwnerConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._early: list[bytes] = []  # what came before there was a connection to the owner
        self._has_sent = False
        self._has_ended = False  # the peer will send nothing more
        self._owner_is_full = False  # it does not read what it is sent
        self._patience: asyncio.TimerHandle | None = None  # with a peer that does not read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        peer = transport.get_extra_info("peername")
        if peer:
            self._host, self._port = str(peer[0]), int(peer[1])
        refusal = self._gateway.refusal_for(self._host)
        if refusal:
            self._gateway.telemetry.emit("connection_refused", host=self._host, reason=refusal)
            transport.abort()
            return
        self._gateway.connections.add(self)
        self._gateway.by_host[self._host] += 1
        transport.set_write_buffer_limits(high=0)  # so that all that waits is known, and nothing is read meanwhile
        set_keepalive(transport.get_extra_info("socket"), self._gateway.limits)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + PATIENCE_SECONDS
        while loop.time() < until_s:
            address = self._gateway.address_for(self.place)
            if address is not None:
                with suppress(OSError, TimeoutError):
                    make = partial(OwnerConnection, self)
                    async with asyncio.timeout(CONNECT_SECONDS):
                        _, self._owner = await loop.create_connection(make, *address)
                    set_keepalive(self._owner.transport.get_extra_info("socket"), self._gateway.limits)
                    self._pass_early_input(self._owner)
                    return
            await asyncio.sleep(RETRY_SECONDS)
        self.abort()

    def _pass_early_input(self, owner: OwnerConnection) -> None:
        header = self._gateway.header_for(self._host, self._port, self.place)
        owner.transport.writelines([header, *self._early] if header else self._early)
        self._early = []
        if self._has_ended:
            owner.transport.write_eof()
        self.count()
        if not self._owner_is_full:
            self.pause(False)

    def data_received(self, data: bytes) -> None:
        is_first, self._has_sent = not self._has_sent, True
        if is_first and data.startswith(SIGNATURE):
            # Another standby still takes this node for the owner. Its header is not for whoever owns the jobs now, who
            # would take it for what the peer says.
            self.abort()
        elif self._owner is not None:
            self._owner.transport.write(data)
            self.count()
        else:
            # Only the first of it: the rest stays with the system until the owner can take it. A pause before anything
            # was read has no effect in uvloop.
            self._early.append(data)
            self.pause(True)
            self.count()

    def eof_received(self) -> bool:
        self._has_ended = True
        if self._owner is not None and self._owner.transport.can_write_eof():
            self._owner.transport.write_eof()
        return True  # the answer may still come

    def pause_writing(self) -> None:
        if self._owner is not None:
            self._owner.pause(True)
        self._expect_reading()

    def resume_writing(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self.count()
        if self._owner is not None:
            self._owner.pause(False)

    def _expect_reading(self) -> None:
        """From time to time, check that the peer reads some of what waits for it. The owner notices if a peer does not
        read, but its connection is not read meanwhile, and so its end would not be noticed."""
        seconds = self._gateway.limits.slow_reader_seconds
        waiting_bytes = self._transport.get_write_buffer_size() if self._transport is not None else 0
        self._patience = asyncio.get_running_loop().call_later(seconds, self._check_reader, waiting_bytes)

    def _check_reader(self, waiting_bytes: int) -> None:
        if self._transport is not None and self._transport.get_write_buffer_size() < waiting_bytes:
            self._expect_reading()
        else:
            self.give_up("slow_reader_closed", waiting_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._patience is not None:
            self._patience.cancel()
        self._leave()
        if self._owner is not None:
            self._owner.transport.close()

    def _leave(self) -> None:
        """Stop counting the connection and what it holds."""
        gateway = self._gateway
        if self in gateway.connections:
            gateway.connections.discard(self)
            gateway.by_host[self._host] -= 1
            if not gateway.by_host[self._host]:
                del gateway.by_host[self._host]
            gateway.memory.input_bytes -= self.input_bytes
            gateway.memory.output_bytes -= self.output_bytes
            self.input_bytes = self.output_bytes = 0

    def count(self) -> None:
        """Count what is held now in both directions, and make room if all connections hold too much."""
        if self not in self._gateway.connections:
            return
        input_bytes = sum(map(len, self._early))
        if self._owner is not None:
            input_bytes += self._owner.transport.get_write_buffer_size()
        output_bytes = self._transport.get_write_buffer_size() if self._transport is not None else 0
        memory = self._gateway.memory
        memory.input_bytes += input_bytes - self.input_bytes
        memory.output_bytes += output_bytes - self.output_bytes
        is_more = input_bytes > self.input_bytes or output_bytes > self.output_bytes
        self.input_bytes, self.output_bytes = input_bytes, output_bytes
        if is_more:
            self._gateway.free_memory()

    def give_up(self, event: str, waiting_bytes: int) -> None:
        """Close the connection because of what it holds."""
        self._gateway.telemetry.emit(event, host=self._host, port=self._port, pending=waiting_bytes)
        self._leave()
        self.abort()

    def pass_back(self, data: bytes) -> None:
        """Write bytes of the owner to the peer."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            self.count()

    def owner_is_full(self, is_full: bool) -> None:
        """Stop to read from the peer, or go on: the owner does not read what it is sent, or reads again."""
        self._owner_is_full = is_full
        self.count()
        self.pause(is_full)

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
            self._close_within_patience()

    def close(self) -> None:
        """Close after what was passed on is sent."""
        if self._transport is not None:
            self._transport.close()
            self._close_within_patience()

    def _close_within_patience(self) -> None:
        """The owner has ended the connection: a peer that neither reads nor closes must not keep it for ever."""
        if self in self._gateway.connections:
            if self._patience is not None:
                self._patience.cancel()
            seconds = self._gateway.limits.slow_reader_seconds
            self._patience = asyncio.get_running_loop().call_later(seconds, self.abort)

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
        self.transport.set_write_buffer_limits(high=0)

    def data_received(self, data: bytes) -> None:
        self._client.pass_back(data)

    def eof_received(self) -> bool:
        self._client.end_output()
        return True

    def pause_writing(self) -> None:
        self._client.owner_is_full(True)

    def resume_writing(self) -> None:
        self._client.owner_is_full(False)

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
