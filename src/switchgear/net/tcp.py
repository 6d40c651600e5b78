"""TCP connections: bytes between a socket and a session, and nobody's memory without bound.

Reading stops while a peer does not take what it is sent; so a peer that asks without listening slows down only itself.
What waits for it is bounded in size and in time.

Memory.  After each read and each write a connection counts what it holds of unfinished input and unread output in the
server's `MemoryAccount`.  When all connections together hold more than their share, the one that holds most is closed,
and then the next, until there is room.  Output below the transport's high-water mark (64 KiB) is not counted.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, cast

from switchgear.config import LimitsConfig, ListenUrl
from switchgear.errors import ConfigError
from switchgear.net.hub import Hub
from switchgear.net.peer_user import is_same_user, user_behind
from switchgear.protocols.base import Context, Session, Wire

__all__ = ["Connection", "TcpDoor"]

log = logging.getLogger("switchgear")

# A peer with more than its share waiting is given this long to take some of it.  A large result on a slow line is not
# an offence, so it is not size alone that counts.
PATIENCE_SECONDS: Final = 2.0

# From here on, joining what is sent costs more than handing it over in pieces.
LONG_BYTES: Final = 65_536

# One read may bring many thousand short requests.  So much of it is handled before others have their turn, unless it is
# part of a long one.
PIECE_BYTES: Final = 32_768

# So long may peers take for what they are still to be told when the server stops.
LAST_WORDS_SECONDS: Final = 2.0


class TcpDoor:
    """One listening address: accepts, within limits, and looks after what it has accepted."""

    def __init__(
        self,
        url: ListenUrl,
        hub: Hub,
        limits: LimitsConfig,
        make_session: Callable[[Context, Wire], Session],
        doors: list[TcpDoor] | None = None,
    ) -> None:
        self.url = url
        self.hub = hub
        self.limits = limits
        self.make_session = make_session
        self.doors = [self] if doors is None else doors  # all of the house, which share the limits
        self.is_private = False  # only processes of the server's own user, and of root, may connect
        self.connections: set[Connection] = set()
        self.by_host: Counter[str] = Counter()
        self._server: asyncio.Server | None = None
        self._all_gone: asyncio.Future[None] | None = None  # while closing

    async def open(self) -> None:
        """Start listening."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._accept, self.url.host, self.url.port, backlog=self.limits.backlog, reuse_address=True
            )
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConfigError(f"cannot listen on {self.url}: {reason}") from error

    def _accept(self) -> asyncio.Protocol:
        # It is no subclass of what event loops ask for, so that it can be compiled, but has all that they call.
        return cast(asyncio.Protocol, Connection(self))

    @property
    def addresses(self) -> list[str]:
        """Where it listens, as a user would write it."""
        found = []
        server: Any = self._server  # its sockets are in a tuple or in a list, depending on the event loop
        for listener in server.sockets if server is not None else ():
            host, port = listener.getsockname()[:2]
            found.append(str(ListenUrl(self.url.scheme, host, port)))
        return found

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()

    def stop_listening_to_peers(self) -> None:
        """Handle nothing more of what they send, and hang up on each when it has been told everything."""
        for connection in self.connections:
            if connection.session is not None:
                connection.session.put_off.clear()
                connection.session.closing = True

    async def hang_up(self, patience_seconds: float) -> None:
        """Let go of all connections, and wait a moment for the peers to do the same.  Until then what they send is
        read and thrown away, because a socket that is closed with unread bytes takes the last answer down with it."""
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
        # A peer that does not read its last bytes must not keep the server from stopping.
        await self._wait_until_all_are_gone(LAST_WORDS_SECONDS)
        for connection in list(self.connections):
            connection.abort()

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)
        self.by_host[connection.host] -= 1
        if not self.by_host[connection.host]:
            del self.by_host[connection.host]
        if self._all_gone is not None and not self.connections and not self._all_gone.done():
            self._all_gone.set_result(None)

    def refusal_for(self, connection: Connection) -> str:
        """Why this connection cannot be taken, or nothing."""
        if sum(len(door.connections) for door in self.doors) >= self.limits.connections:
            return f"there are {self.limits.connections} connections already"
        limit = self.limits.connections_per_address
        if limit and not connection.is_loopback and sum(door.by_host[connection.host] for door in self.doors) >= limit:
            return f"it has {limit} connections already"
        return ""

    def look_after(self) -> None:
        """Once a second: hang up on peers that do not read."""
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            connection.check_reader(now)

    # --- memory ---

    @property
    def input_bytes(self) -> int:
        """What the connections of this listener hold of messages that are not complete."""
        return sum(connection.input_bytes for connection in self.connections)

    @property
    def output_bytes(self) -> int:
        """What waits for the peers of this listener to be read."""
        return sum(connection.output_bytes for connection in self.connections)

    def describe(self) -> dict[str, Any]:
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
        return [connection for door in self.doors for connection in door.connections]


class Connection(Wire):
    """One accepted connection."""

    def __init__(self, door: TcpDoor) -> None:
        self.door = door
        self.hub = door.hub
        self.memory = door.hub.engine.memory
        self.input_bytes = 0  # counted in the memory account, like the next
        self.output_bytes = 0
        self.transport: asyncio.Transport | None = None
        self._stalled_since = 0.0  # 0: the peer reads
        self._stalled_bytes = 0  # what would wait for it now, had it taken nothing since the last look
        self._waits_for_store = False  # and is not read from
        self._rest = b""  # of what was read, to be handled in the next turns; until then nothing more is read
        self._go_on: Callable[[], None] | None = None  # what is to be done when the peer has taken what it was sent
        self._ended = False  # the peer will send no more
        self._is_given_up = False  # it is being closed for what it made the server hold
        self._lingering: asyncio.TimerHandle | None = None  # until it is hung up on for good

    # --- the event loop calls these ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        peer = transport.get_extra_info("peername") or ("", 0)
        self.host, self.port = peer[0], peer[1]
        self.is_loopback = ipaddress.ip_address(self.host.partition("%")[0]).is_loopback if self.host else False
        reason = self.door.refusal_for(self) or self._refusal_of_user()
        if reason:
            self.hub.telemetry.emit("connection_refused", host=self.host, reason=reason)
            transport.abort()
            return
        sock: socket.socket = transport.get_extra_info("socket")
        self.descriptor = sock.fileno()
        set_keepalive(sock, self.door.limits)
        self.door.connections.add(self)
        self.door.by_host[self.host] += 1
        self.session = self.door.make_session(self.hub, self)
        self.hub.telemetry.emit("connection_made", host=self.host, port=self.port)

    def _refusal_of_user(self) -> str:
        """Why this connection is not taken at a door for one user, or nothing."""
        if self.door.is_private and not self.is_of_same_user():
            return "it is not of the server's own user"
        return ""

    def data_received(self, data: bytes) -> None:
        session = self.session
        if session is None or session.closing:
            return
        if len(data) > PIECE_BYTES and self.transport is not None and session.buffered_bytes <= PIECE_BYTES:
            self._rest = data[PIECE_BYTES:]
            data = data[:PIECE_BYTES]
            self.transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._receive_rest)
        self._receive(session, data)

    def _receive_rest(self) -> None:
        """Handle the next piece of what was read, unless an earlier request has to be answered first."""
        session = self.session
        if not self._rest or session is None or session.put_off or session.operation is not None:
            return
        piece, self._rest = self._rest[:PIECE_BYTES], self._rest[PIECE_BYTES:]
        if not session.closing:
            self._receive(session, piece)
        if self._rest:
            asyncio.get_running_loop().call_soon(self._receive_rest)
        elif not self._stalled_since:
            self._read_again()

    def _receive(self, session: Session, data: bytes) -> None:
        if not self.hub.turn_open:
            self.hub.begin_turn()
        try:
            session.receive(data)
        except Exception as error:
            self._end_badly(session, error)
            return
        if self.input_bytes != self.unhandled_bytes:
            self._count_input()
        if session.pledges and self.hub.storage_error is not None and self.transport is not None:
            # Its answers wait for the store to work again, and must not become more and more meanwhile.
            self._waits_for_store = True
            self._stop_reading(self.transport)

    def _end_badly(self, session: Session, error: Exception) -> None:
        """A defect of ours must not take down the others: this conversation ends, the rest goes on."""
        log.exception("defect while serving %s:%s", self.host, self.port)
        fields = {"protocol": session.protocol, "host": self.host, "port": self.port}
        self.hub.telemetry.emit("internal_error", text=repr(error), **fields)
        self.abort()

    def eof_received(self) -> bool:
        self._ended = True
        if self._lingering is not None:
            self.end()
        elif self.session is not None:
            self.hub.begin_turn()
            self.session.eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._release_memory()
        if self._lingering is not None:
            self._lingering.cancel()
        if self in self.door.connections:
            self._leave()
            self.door.forget(self)
            self.hub.telemetry.emit("connection_lost", host=self.host, port=self.port)

    def _leave(self) -> None:
        """The conversation is over."""
        if self.session is not None:
            self.hub.begin_turn()
            self.session.closed()
            self.session = None

    def pause_writing(self) -> None:
        self._stalled_since = asyncio.get_running_loop().time()
        if self.transport is not None:
            self._stalled_bytes = self.transport.get_write_buffer_size()
            self._stop_reading(self.transport)
            self._count_output(self._stalled_bytes)

    def resume_writing(self) -> None:
        self._stalled_since = 0.0
        self._count_output(0)
        if self._go_on is not None:
            asyncio.get_running_loop().call_soon(self._continue)
        else:
            self._read_again()

    def _stop_reading(self, transport: asyncio.Transport) -> None:
        transport.pause_reading()
        if self.session is not None:
            self.session.not_read()

    def _read_again(self) -> None:
        if self._rest:
            asyncio.get_running_loop().call_soon(self._receive_rest)
        elif self.transport is not None and not self.transport.is_closing() and not self._waits_for_store:
            self.transport.resume_reading()
            if self.session is not None:
                self.hub.begin_turn()
                self.session.read_again()

    def _continue(self) -> None:
        """The peer has taken what it was sent: handle what was put off until then."""
        go_on, self._go_on = self._go_on, None
        session = self.session
        if go_on is None or session is None or self.transport is None:
            return
        self.hub.begin_turn()
        try:
            go_on()
        except Exception as error:
            self._end_badly(session, error)
            return
        if self.input_bytes != self.unhandled_bytes:
            self._count_input()
        if not session.put_off and session.operation is None:
            self._read_again()

    # --- the hub calls these ---

    def write(self, out: list[bytes]) -> None:
        transport = self.transport
        if transport is None or self._lingering is not None:
            return
        size = 0
        for piece in out:
            size += len(piece)
        if self._stalled_since:
            pending = transport.get_write_buffer_size()
            if self._is_too_slow(pending):
                return
            self._stalled_bytes += size
            self._count_output(pending + size)
            if self._is_given_up:
                return
        if len(out) == 1:
            transport.write(out[0])
        elif size < LONG_BYTES:
            transport.write(b"".join(out))
        else:
            transport.writelines(out)

    def close(self) -> None:
        """Hang up.  The peer hears of it at once, but what it is still sending is thrown away for a moment: a socket
        that is closed with unread bytes takes the last answer down with it."""
        transport = self.transport
        if transport is None or transport.is_closing() or self._lingering is not None:
            return
        if self._ended or not transport.can_write_eof():
            self.end()
            return
        self._lingering = asyncio.get_running_loop().call_later(LAST_WORDS_SECONDS, self.end)
        self._leave()
        self._rest = b""
        transport.resume_reading()
        transport.write_eof()

    def end(self) -> None:
        """Hang up for good, once everything written has been sent."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()

    def is_of_same_user(self) -> bool:
        if self.transport is None or not self.is_loopback:
            return False
        local = self.transport.get_extra_info("sockname") or ("", 0)
        return is_same_user(user_behind((self.host, self.port), (local[0], local[1])))

    def when_taken(self, go_on: Callable[[], None]) -> None:
        if self.transport is None:
            return
        self._go_on = go_on
        self._stop_reading(self.transport)
        if not self._stalled_since:
            asyncio.get_running_loop().call_soon(self._continue)

    # --- looking after it ---

    @property
    def unhandled_bytes(self) -> int:
        """What was received and not handled: the beginning of a message, and messages that were put off."""
        session = self.session
        if session is None:
            return 0
        if session.put_off:
            return session.buffered_bytes + len(self._rest) + sum([len(body) for _, body in session.put_off])
        return session.buffered_bytes + len(self._rest)

    @property
    def held_bytes(self) -> int:
        """What the server holds for this connection."""
        return self.input_bytes + self.output_bytes

    def describe(self) -> dict[str, Any]:
        """Who the peer is and what is held for it, for operators."""
        return {"address": f"{self.host}:{self.port}", "input": self.input_bytes, "output": self.output_bytes}

    def _count_input(self) -> None:
        """Enter what is held of the peer's input now, and make room if that is too much for all together."""
        if self._is_given_up:
            return
        memory = self.memory
        held_bytes = self.unhandled_bytes
        memory.input_bytes += held_bytes - self.input_bytes
        self.input_bytes = held_bytes
        if memory.limit_bytes and memory.input_bytes > memory.connection_limit_bytes:
            self.door.free_input()

    def _count_output(self, pending_bytes: int) -> None:
        """Enter what waits for the peer now, and make room if that is too much for all together."""
        if self._is_given_up:
            return
        memory = self.memory
        memory.output_bytes += pending_bytes - self.output_bytes
        self.output_bytes = pending_bytes
        if memory.limit_bytes and memory.output_bytes > memory.connection_limit_bytes:
            self.door.free_output()

    def _release_memory(self) -> None:
        """The connection is gone, or will be in a moment: nothing is held for it any more."""
        self._is_given_up = True
        self.memory.input_bytes -= self.input_bytes
        self.memory.output_bytes -= self.output_bytes
        self.input_bytes = self.output_bytes = 0

    @property
    def unsent_bytes(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport is not None else 0

    def give_up_on_slow_reader(self, waiting_bytes: int) -> None:
        self.give_up("slow_reader_closed", waiting_bytes)

    def _is_too_slow(self, pending: int) -> bool:
        """Before more is written: hang up if much waits for a peer that takes nothing, or far too much for any peer."""
        limits = self.door.limits
        stalled_seconds = asyncio.get_running_loop().time() - self._stalled_since
        if pending > limits.slow_reader_bytes and (
            stalled_seconds > PATIENCE_SECONDS or pending > limits.slow_reader_bytes + 2 * limits.packet_bytes
        ):
            self.give_up("slow_reader_closed", pending)
            return True
        return False

    def check_reader(self, now: float) -> None:
        """Once a second: hang up if the peer takes nothing, or if too much for it waits for a failing store."""
        if self._waits_for_store and self.hub.storage_error is None:
            self._waits_for_store = False
            if not self._stalled_since:
                self.resume_writing()
        held = self._held_bytes()
        pending = 0
        if self._stalled_since and self.transport is not None:
            pending = self.transport.get_write_buffer_size()
            if pending < self._stalled_bytes:
                self._stalled_since = now
            elif now - self._stalled_since > self.door.limits.slow_reader_seconds:
                self.give_up("slow_reader_closed", pending)
            self._stalled_bytes = pending
        if held + pending != self.output_bytes:
            self._count_output(held + pending)
        limits = self.door.limits
        if held > limits.slow_reader_bytes + 2 * limits.packet_bytes:
            self.give_up("held_output_closed", held)

    def _held_bytes(self) -> int:
        """Output that waits for a failing store; events of jobs may go on coming in for the peer meanwhile."""
        session = self.session
        if session is None or self.hub.storage_error is None or not (session.waiting or session.held):
            return 0
        return session.unsent_bytes

    def give_up(self, event: str, pending: int) -> None:
        self.hub.telemetry.emit(event, host=self.host, port=self.port, pending=pending)
        self._release_memory()
        self.abort()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


def set_keepalive(sock: socket.socket, limits: LimitsConfig) -> None:
    """Notice a peer whose machine has vanished, without a word in the protocol."""
    if not limits.keepalive_idle_seconds:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", limits.keepalive_idle_seconds),
        ("TCP_KEEPINTVL", limits.keepalive_interval_seconds),
        ("TCP_KEEPCNT", limits.keepalive_count),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
