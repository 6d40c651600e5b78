"""`Connection`: passes bytes between one socket and its session, with bounded memory for the peer.

While a peer does not read its output, its input is not read; so a peer that sends requests without reading answers
slows down only itself. Its unread output is bounded in size and in time.

Memory. After each read and each write a connection counts its unfinished input and unread output in the server's
`MemoryAccount`. When all connections together hold more than their share, the one that holds most is closed, and then
the next, until there is room (`net/connections/tcp_listener.py`). Output below the transport's high-water mark (64 KiB)
is not counted.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING, Final, cast

from switchgear.config import LimitsConfig
from switchgear.net.connections.foreign_protocols import unencrypted_refusal
from switchgear.net.connections.long_output import LongOutput
from switchgear.net.connections.peer_user import is_same_user, user_behind
from switchgear.net.connections.tls import TlsFailure, TlsStream
from switchgear.protocols.session import ByteSession
from switchgear.protocols.transport import PeerTransport
from switchgear.verbs.answers import HeldConnection

if TYPE_CHECKING:
    from switchgear.net.connections.tcp_listener import TcpListener

__all__ = ["Connection", "set_keepalive"]

log = logging.getLogger("switchgear")

# How long a peer with more unread output than its share may take to read some of it. A large result on a slow network
# is legitimate, so size alone does not decide.
PATIENCE_SECONDS: Final = 2.0

# From this size on, joining chunks costs more than writing them one by one.
LONG_BYTES: Final = 65_536

# How many bytes are passed to the system at a time, which copies them; other connections are served before the rest.
WRITE_BYTES: Final = 262_144

# One read may bring many thousand short requests. This many bytes of it are handled before other connections are
# served, unless they are part of a long request; and this many bytes of all connections are handled in the turn in
# which they were read.
PIECE_BYTES: Final = 8_192
# How much encrypted input is decrypted at a time. That may be 300 changes of the key, of which each takes as long as a
# short request.
ENCRYPTED_BYTES: Final = 8_192
# A read of at most this size is handled at once, however much others send.
SHORT_BYTES: Final = 1_024

# How many lost connections are handled in one turn; each may leave thousands of jobs and registrations behind.
LOST_AT_ONCE: Final = 4

# The longest time that the system can be told to repeat output.
LONGEST_USER_TIMEOUT_MS: Final = 2**31 - 1

# How long peers may take to read their last output when the server stops.
LAST_WORDS_SECONDS: Final = 2.0


class Connection(PeerTransport):
    """A TCP connection that a listener has accepted."""

    def __init__(self, listener: TcpListener) -> None:
        self.listener = listener
        self.hub = listener.hub
        self.memory = listener.hub.engine.memory
        self.input_bytes = 0  # counted in the memory account, like `output_bytes`
        self.output_bytes = 0
        self.queued_bytes = 0  # held by the session until the peer has read earlier output; see `count_queued`
        self.received_bytes = 0  # since the connection was made
        self.is_costly = False  # even a short read takes long to handle: the keys of an encrypted connection do
        self.transport: asyncio.Transport | None = None
        self.tls: TlsStream | None = None
        self._stalled_since = 0.0  # 0: the peer reads
        self._stalled_bytes = 0  # what would be unread now, if the peer had read nothing since the last check
        self._waits_for_store = False  # input is not read meanwhile
        self._rest = b""  # input to be handled in the next turns; until then no more is read
        self._rest_start = 0  # how much of `_rest` was handled
        self._encrypted = b""  # input of TLS that was not decrypted yet; likewise
        self._unwritten = LongOutput()  # output that is written in the next turns
        self._closes_when_written = False
        self._go_on: Callable[[], None] | None = None  # called when the peer has read its output
        self._awaited = 0  # what the session awaited from the peer when that was last checked, and since when
        self._awaited_since = 0.0
        self._ended = False  # the peer has closed its side
        self._is_given_up = False  # the connection is being closed because it holds too much
        self._lingering: asyncio.TimerHandle | None = None  # closes the connection for good

    # --- called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transport of uvloop does not inherit from asyncio's.
        self.transport = transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.host, self.port = peer[0], peer[1]
        self.is_loopback = ipaddress.ip_address(self.host.partition("%")[0]).is_loopback if self.host else False
        reason = self.listener.refusal_for(self) or self._refusal_of_user()
        if reason:
            self.hub.telemetry.emit("connection_refused", host=self.host, reason=reason)
            transport.abort()
            return
        sock: socket.socket = transport.get_extra_info("socket")
        self.descriptor = sock.fileno()
        set_keepalive(sock, self.listener.limits)
        self.listener.connections.add(self)
        self.listener.by_host[self.host] += 1
        self.access = self.listener.access
        self.permissions = self.access.anonymous()
        self.hub.telemetry.emit("connection_made", host=self.host, port=self.port)
        if self.listener.tls is None:
            self.session = self.listener.make_session(self.hub, self)
        else:
            self.is_encrypted = True
            self.tls = self.listener.tls.begin()
            self.listener.tls_handshakes[self] = asyncio.get_running_loop().time()

    def _refusal_of_user(self) -> str:
        """Why this connection is refused at a listener for one user; empty if it is not."""
        if self.listener.is_private and not self.is_of_same_user():
            return "it is not of the server's own user"
        return ""

    def forwarded_for(self, host: str, port: int) -> bool:
        """Note the address of the peer for which another node made this connection; returns whether it may stay.

        A loopback address of the other node's machine would mean nothing here, so the node's address stays.
        """
        if not ipaddress.ip_address(host).is_loopback:
            reason = self.listener.change_host(self, host, port)
            if reason:
                self.refuse(reason)
                return False
        return True

    def refuse(self, reason: str) -> None:
        """Close the connection, and report why."""
        self.hub.telemetry.emit("connection_refused", host=self.host, reason=reason)
        self.abort()

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        if self.tls is None:
            self._plain_received(data)
        elif self._lingering is not None:
            pass  # after its goodbye, TLS decrypts nothing
        elif self.tls.is_ready and len(data) <= SHORT_BYTES and not self._encrypted:
            self._encrypted_received(self.tls, data)
        elif self.transport is not None:
            # A handshake takes a millisecond, and so do some forty changes of the key. Hundreds of peers that connect
            # at once, or one that sends nothing but changes of the key, must not stop the others.
            self._encrypted += data
            self.transport.pause_reading()
            self._count_input()
            self.hub.fair_queue.add(self._decrypt_more)

    # --- TLS ---

    def _decrypt_more(self) -> None:
        """Go on with the handshake, or with a piece of encrypted input, unless an earlier request has to be answered
        first."""
        tls, transport, session = self.tls, self.transport, self.session
        data = self._encrypted
        if not data or tls is None or transport is None or transport.is_closing() or self._lingering is not None:
            return
        if self._rest or self.is_stalled or self._waits_for_store or self._will_go_on():
            return
        if session is not None and (session.deferred or session.operation is not None):
            return
        self._encrypted = data[ENCRYPTED_BYTES:]
        self._encrypted_received(tls, data[:ENCRYPTED_BYTES])
        if not self._will_go_on():
            self._read_again()

    def _encrypted_received(self, tls: TlsStream, data: bytes) -> None:
        try:
            plain = tls.receive(data)
        except TlsFailure as failure:
            self.fail_handshake(str(failure))
            return
        outgoing = tls.take_outgoing()
        if outgoing and self.transport is not None:
            self.transport.write(outgoing)
        if self in self.listener.tls_handshakes and tls.is_ready:
            self._begin_session(tls)
        if plain:
            self._plain_received(plain)
        if tls.has_ended and not self._ended:
            self.eof_received()

    def _begin_session(self, tls: TlsStream) -> None:
        """The handshake is complete: who is the peer?"""
        del self.listener.tls_handshakes[self]
        if not self.access.is_open:
            certificate = tls.certificate()
            found = self.access.by_certificate(certificate) if certificate is not None else None
            if found is not None:
                self.permissions = found
        self.session = self.listener.make_session(self.hub, self)

    def fail_handshake(self, reason: str) -> None:
        """Close a connection whose encryption failed, and report it."""
        fields = {"protocol": self.listener.url.scheme, "host": self.host, "port": self.port}
        self.hub.telemetry.emit("handshake_failed", reason=reason, **fields)
        if self.tls is not None and self.transport is not None:
            # An alert says why; a peer that does not speak TLS would not understand it.
            self.transport.write(unencrypted_refusal(self.tls.start) or self.tls.take_outgoing())
            self.transport.close()

    # --- input ---

    def _plain_received(self, data: bytes) -> None:
        session = self.session
        size = len(data)
        if session is None or session.closing:
            return
        hub = self.hub
        if not hub.turn_open:
            hub.begin_turn()
        if size > SHORT_BYTES or self.is_costly:
            hub.handled_bytes += size
            if (hub.handled_bytes > PIECE_BYTES or self.is_costly) and self.transport is not None:
                self._rest = data
                self._rest_start = 0
                self.transport.pause_reading()
                self._count_input()
                hub.fair_queue.add(self._receive_rest)
                return
        self._receive(session, data)

    def _receive_rest(self) -> None:
        """Handle the next piece of input, unless an earlier request has to be answered first."""
        session = self.session
        data = self._rest
        if not data or session is None or session.deferred or session.operation is not None or self._will_go_on():
            return
        start = self._rest_start
        end = start + max(PIECE_BYTES, session.awaited_bytes)
        if end < len(data):
            self._rest_start = end
        else:
            end = len(data)
            self._rest = b""
        if not session.closing:
            self._receive(session, data[start:end])
        if not self._will_go_on():
            self._read_again()

    def _receive(self, session: ByteSession, data: bytes) -> None:
        if not self.hub.turn_open:
            self.hub.begin_turn()
        try:
            session.receive(data)
        except Exception as error:
            self._close_after_defect(session, error)
            return
        if self.input_bytes != self.unhandled_bytes:
            self._count_input()
        if self.hub.must_wait_for_store and session.awaits_store and self.transport is not None:
            # Answers wait until the store works again or catches up; their number must not grow meanwhile.
            self._waits_for_store = True
            self._stop_reading(self.transport)

    def _close_after_defect(self, session: ByteSession, error: Exception) -> None:
        """Close the connection after an internal error; other connections continue."""
        log.exception("internal error while serving %s:%s", self.host, self.port)
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
        self._unwritten.take_all()
        self._release_memory()
        if self._lingering is not None:
            self._lingering.cancel()
        if self in self.listener.connections:
            self.listener.forget(self)
            self.hub.telemetry.emit("connection_lost", host=self.host, port=self.port)
            self._leave_soon()

    def _leave_soon(self) -> None:
        """End the session now or, if very many connections are lost at once, in one of the next turns."""
        hub = self.hub
        if not hub.turn_open:
            hub.begin_turn()
        hub.lost_connections += 1
        if hub.lost_connections <= LOST_AT_ONCE:
            self._leave()
        else:
            hub.fair_queue.add(self._leave)

    def _leave(self) -> None:
        """Tell the session that the peer is gone."""
        if self.session is not None:
            self.hub.begin_turn()
            self.session.closed()
            self.hub.forget_output(self.session)
            self.session = None

    def pause_writing(self) -> None:
        self._stalled_since = asyncio.get_running_loop().time()
        if self.transport is not None:
            self._stalled_bytes = self.unsent_bytes
            self._stop_reading(self.transport)
            self._count_output(self._stalled_bytes + self.queued_bytes)

    def resume_writing(self) -> None:
        self._stalled_since = 0.0
        self._count_output(self._unwritten.size + self.queued_bytes)
        if self._unwritten.size:
            self.hub.fair_queue.add(self._write_more)
        else:
            self._all_taken()

    def _all_taken(self) -> None:
        """Whether the peer has read all output, except for what is in the system's buffers."""
        if self._closes_when_written:
            self._closes_when_written = False
            self.close()
        elif self._go_on is not None:
            self.hub.fair_queue.add(self._continue)
        else:
            self._read_again()

    def _stop_reading(self, transport: asyncio.Transport) -> None:
        transport.pause_reading()
        if self.session is not None:
            self.session.not_read()

    def _read_again(self) -> None:
        if self.is_stalled:
            return  # until the peer has read its output
        if self._rest:
            self.hub.fair_queue.add(self._receive_rest)
        elif self._encrypted:
            self.hub.fair_queue.add(self._decrypt_more)
        elif self.transport is not None and not self.transport.is_closing() and not self._waits_for_store:
            self.transport.resume_reading()
            if self.session is not None:
                self.hub.begin_turn()
                self.session.read_again()

    def _continue(self) -> None:
        """Continue after the peer has read its output: handle deferred input."""
        go_on, self._go_on = self._go_on, None
        session = self.session
        if go_on is None or session is None or self.transport is None:
            return
        self.hub.begin_turn()
        try:
            go_on()
        except Exception as error:
            self._close_after_defect(session, error)
            return
        if self.input_bytes != self.unhandled_bytes:
            self._count_input()
        if not self._will_go_on() and not session.deferred and session.operation is None:
            self._read_again()

    def _will_go_on(self) -> bool:
        """Whether there is something to do before input is read again; `go_on` may have requested it."""
        return self._go_on is not None

    # --- called by the hub ---

    def write(self, out: list[bytes]) -> None:
        transport = self.transport
        if transport is None or self._lingering is not None:
            return
        size = 0
        for piece in out:
            size += len(piece)
        if self._stalled_since:
            pending = self.unsent_bytes
            if self.is_too_slow(pending):
                return
            self._stalled_bytes += size
            self._count_output(pending + size + self.queued_bytes)
            if self._is_given_up:
                return
        if size > WRITE_BYTES or self._unwritten.size:
            self._write_later(transport, out, size)
        elif self.tls is not None:
            transport.write(self.tls.encrypt(out))
        elif len(out) == 1:
            transport.write(out[0])
        elif size < LONG_BYTES:
            transport.write(b"".join(out))
        else:
            transport.writelines(out)

    def _write_later(self, transport: asyncio.Transport, out: list[bytes], size: int) -> None:
        """Write this in the next turns, and read no input until then."""
        if not self._unwritten.size:
            self._stop_reading(transport)
            if not self._stalled_since:
                self.hub.fair_queue.add(self._write_more)
        self._unwritten.add(out, size)
        if not self._stalled_since:
            self._count_output(self._unwritten.size + self.queued_bytes)

    def _write_more(self) -> None:
        """Write the next piece of a long output."""
        transport = self.transport
        unwritten = self._unwritten
        if transport is None or self._stalled_since or not unwritten.size:
            return
        batch = unwritten.take(WRITE_BYTES)
        if self.tls is None:
            transport.writelines(batch)
        else:
            transport.write(self.tls.encrypt(batch))
        if self._is_stalled_now():
            return  # `resume_writing` continues
        self._count_output(unwritten.size + self.queued_bytes)
        if unwritten.size:
            self.hub.fair_queue.add(self._write_more)
        else:
            self._all_taken()

    def _is_stalled_now(self) -> bool:
        """Whether the peer has not read the output that was just written."""
        return self._stalled_since != 0.0

    def close(self) -> None:
        """Close the connection. The peer notices at once, but its input is read and discarded for a moment, because
        closing a socket with unread input would also discard the last answer."""
        transport = self.transport
        if transport is None or transport.is_closing() or self._lingering is not None:
            return
        if self._unwritten.size:
            self._closes_when_written = True
            return
        if self._ended or not transport.can_write_eof():
            self.end()
            return
        self._lingering = asyncio.get_running_loop().call_later(LAST_WORDS_SECONDS, self.end)
        self._leave()
        self._rest = self._encrypted = b""
        try:
            if self.tls is not None:
                transport.write(self.tls.goodbye())
            transport.write_eof()
        except OSError:  # the peer has reset the connection, and asyncio has not reported it yet
            transport.abort()
            return
        transport.resume_reading()  # reading may be paused, in the middle of a long read

    def end(self) -> None:
        """Close the connection for good, after all output was sent."""
        if self.transport is not None and not self.transport.is_closing():
            if self._unwritten.size:
                unwritten = self._unwritten.take_all()
                if self.tls is None:
                    self.transport.writelines(unwritten)
                else:
                    self.transport.write(self.tls.encrypt(unwritten))
            if self.tls is not None and self._lingering is None:  # otherwise it was said, and the output has ended
                self.transport.write(self.tls.goodbye())
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
        if not self.is_stalled:
            self.hub.fair_queue.add(self._continue)

    # --- memory and slow peers ---

    @property
    def unhandled_bytes(self) -> int:
        """Bytes received and not handled: the beginning of a message, and deferred messages."""
        session = self.session
        if session is None:
            return len(self._encrypted)
        held_bytes = session.buffered_bytes + len(self._rest) + len(self._encrypted)
        if session.deferred:
            held_bytes += sum([len(body) for _, body in session.deferred])
        return held_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes that the server holds for this connection."""
        return self.input_bytes + self.output_bytes

    def describe(self) -> HeldConnection:
        """The peer, and what is held for it, for operators."""
        return {"address": f"{self.host}:{self.port}", "input": self.input_bytes, "output": self.output_bytes}

    def _count_input(self) -> None:
        """Count the input that is held now, and make room if all connections hold too much."""
        if self._is_given_up:
            return
        memory = self.memory
        held_bytes = self.unhandled_bytes
        memory.input_bytes += held_bytes - self.input_bytes
        self.input_bytes = held_bytes
        if memory.limit_bytes and memory.input_bytes > memory.connection_limit_bytes:
            self.listener.free_input()

    def _count_output(self, pending_bytes: int) -> None:
        """Count the output that is unread now, and make room if all connections hold too much."""
        if self._is_given_up:
            return
        memory = self.memory
        memory.output_bytes += pending_bytes - self.output_bytes
        self.output_bytes = pending_bytes
        if memory.limit_bytes and memory.output_bytes > memory.connection_limit_bytes:
            self.listener.free_output()

    def _release_memory(self) -> None:
        """Stop counting what is held: the connection is closed, or about to be."""
        self._is_given_up = True
        self.memory.input_bytes -= self.input_bytes
        self.memory.output_bytes -= self.output_bytes
        self.input_bytes = self.output_bytes = 0

    @property
    def unsent_bytes(self) -> int:
        return self.transport.get_write_buffer_size() + self._unwritten.size if self.transport is not None else 0

    def give_up_on_slow_reader(self, waiting_bytes: int) -> None:
        self.give_up("slow_reader_closed", waiting_bytes)

    @property
    def is_stalled(self) -> bool:
        """Whether the peer has not read all that was written."""
        return self._stalled_since != 0.0 or self._unwritten.size > 0

    def count_queued(self, queued_bytes: int) -> None:
        """Count output that the session holds until the peer has read earlier output."""
        self.queued_bytes = queued_bytes
        self._count_output(self.unsent_bytes + queued_bytes)

    def is_too_slow(self, pending: int) -> bool:
        """Before more is written: close the connection if a peer that reads nothing has much unread output, or any
        peer far too much."""
        limits = self.listener.limits
        stalled_seconds = asyncio.get_running_loop().time() - self._stalled_since if self._stalled_since else 0.0
        if pending > limits.slow_reader_bytes and (
            stalled_seconds > PATIENCE_SECONDS or pending > limits.slow_reader_bytes + 2 * limits.packet_bytes
        ):
            self.give_up("slow_reader_closed", pending)
            return True
        return False

    def check_reader(self, now: float) -> None:
        """Once a second: close the connection if the peer reads nothing, or if too much output waits for a failing
        store."""
        if self._waits_for_store and not self.hub.must_wait_for_store:
            self._waits_for_store = False
            if not self._stalled_since:
                self.resume_writing()
        held = self._held_bytes() + self.queued_bytes
        pending = self._unwritten.size
        if self._stalled_since and self.transport is not None:
            pending = self.unsent_bytes
            if pending < self._stalled_bytes:
                self._stalled_since = now
            elif now - self._stalled_since > self.listener.limits.slow_reader_seconds:
                self.give_up("slow_reader_closed", pending)
            self._stalled_bytes = pending
        if held + pending != self.output_bytes:
            self._count_output(held + pending)
        limits = self.listener.limits
        if held > limits.slow_reader_bytes + 2 * limits.packet_bytes:
            self.give_up("held_output_closed", held)

    def check_silence(self, now: float) -> None:
        """Once a second: tell the session if the peer has not sent in time what it has to send."""
        session = self.session
        if session is None or self._lingering is not None:
            return
        awaited, seconds = session.awaited_input()
        is_reading = not (self._rest or self._waits_for_store or self.is_stalled)
        if awaited != self._awaited or not seconds or not is_reading:
            self._awaited = awaited
            self._awaited_since = now
        elif now - self._awaited_since > seconds:
            self._awaited_since = now
            self.hub.begin_turn()
            session.silence_timed_out()

    def _held_bytes(self) -> int:
        """Bytes of output that wait for a failing store; events of jobs may continue to arrive for the peer."""
        session = self.session
        if session is None or self.hub.storage_error is None or not (session.waiting or session.held or session.unsaid):
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
    """Enable TCP keepalive, to detect a peer whose machine has vanished.

    The system sends no probes while output is not acknowledged. It repeats the output instead, for 15 minutes unless
    it is told how long.
    """
    if not limits.keepalive_idle_seconds:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    probing_seconds = limits.keepalive_idle_seconds + limits.keepalive_interval_seconds * limits.keepalive_count
    seconds = max(probing_seconds, ceil(limits.slow_reader_seconds))  # a peer may read as slowly as the setting permits
    for name, value in (
        ("TCP_KEEPIDLE", limits.keepalive_idle_seconds),
        ("TCP_KEEPINTVL", limits.keepalive_interval_seconds),
        ("TCP_KEEPCNT", limits.keepalive_count),
        ("TCP_USER_TIMEOUT", min(1000 * seconds, LONGEST_USER_TIMEOUT_MS)),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
