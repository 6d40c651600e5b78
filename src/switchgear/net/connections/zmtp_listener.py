"""`ZmtpListener`: a ZeroMQ listener without libzmq; one session serves all its peers, as over a ROUTER socket.

Connections are TCP connections like those of the other listeners, with the same limits, the same memory account and the
same treatment of peers that do not read (net/connections/tcp_connection.py). Each has a `ZmtpSession`, which speaks
ZMTP (protocols/zmtp). It passes whole messages to the one `MessageSession` of the listener, and receives messages for
its peer from the `ZmtpRouter`.

Routing. A peer is identified by its routing id: the identity that it announced, or five bytes that the server chose. A
new connection with the routing id of an existing one replaces it, and the old connection is closed.

Output. While a peer does not read, messages for it are queued, up to `zeromq.messages_per_peer` messages and
`limits.slow_reader_bytes` bytes. A message that does not fit, or whose peer is not connected, is returned to the
session, and so is every queued message of a lost connection.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from typing import Final

from switchgear.access.identities import OPEN_ACCESS, ListenerAccess
from switchgear.config import LimitsConfig, ListenUrl, ZeromqConfig
from switchgear.net.connections.foreign_protocols import ZMTP, foreign_protocol, foreign_refusal
from switchgear.net.connections.protocol_detection import MOST_FIRST_LINE_BYTES
from switchgear.net.connections.tcp_connection import LAST_WORDS_SECONDS, Connection
from switchgear.net.connections.tcp_listener import TcpListener
from switchgear.net.hub import Hub
from switchgear.protocols.context import Context
from switchgear.protocols.multipart import Message
from switchgear.protocols.session import ByteSession
from switchgear.protocols.session_factory import MessageSessionMaker
from switchgear.protocols.transport import PeerTransport
from switchgear.protocols.zmtp.mechanism import ServerHandshake
from switchgear.protocols.zmtp.server_protocol import MOST_FRAMES, ZmtpProtocol, may_be_zmtp

__all__ = ["HandshakeMaker", "ZmtpListener", "ZmtpRouter", "ZmtpSession"]

log = logging.getLogger("switchgear")

HandshakeMaker = Callable[[], ServerHandshake]

# While the store fails, this many bytes of messages may wait for it; beyond that, connections are not read.
DELAYED_BYTES = 64 * 1024 * 1024

# How many queued bytes are written to a peer at once, after it has read what was written before.
BATCH_BYTES: Final = 65_536
MESSAGE_OVERHEAD: Final = 128  # bytes that a queued message takes besides its frames
SILENT_BEATS: Final = 3  # how many PINGs may remain unanswered
OWN_PROTOCOLS: Final = frozenset({ZMTP})
MOST_BINARY_START: Final = 16  # after this many bytes, input that is neither text nor ZMTP is recognised as foreign
SPACE: Final = 32


class ZmtpListener(TcpListener):
    """One listening address whose connections speak ZMTP."""

    def __init__(
        self,
        url: ListenUrl,
        hub: Hub,
        limits: LimitsConfig,
        make: MessageSessionMaker,
        config: ZeromqConfig,
        make_handshake: HandshakeMaker | None = None,
        listeners: list[TcpListener] | None = None,
        access: ListenerAccess = OPEN_ACCESS,
    ) -> None:
        super().__init__(url, hub, limits, self._begin_session, listeners, access)
        self.config = config
        self.make_handshake = make_handshake  # None for the NULL mechanism
        self.router = ZmtpRouter(hub, make, access)
        self.in_handshake: set[ZmtpSession] = set()
        self.sessions_with_ttl: set[ZmtpSession] = set()  # sessions whose peers announced a time to live
        self._next_id = secrets.randbits(32)  # a random start, so that routing ids from before a restart name no peer
        self._beats: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        await super().start()
        if self.config.heartbeat_seconds:
            self._beats = asyncio.get_running_loop().call_later(self.config.heartbeat_seconds, self._beat)

    @property
    def bound_port(self) -> int:
        """The port of the socket, even if the URL has port 0."""
        endpoints = self.endpoints
        return endpoints[0][1] if endpoints else self.url.port

    def _begin_session(self, context: Context, transport: PeerTransport) -> ByteSession:
        assert isinstance(transport, Connection)
        return ZmtpSession(context, transport, self)

    def new_protocol(self) -> ZmtpProtocol:
        """The protocol state of a new connection."""
        self._next_id = (self._next_id + 1) & 0xFFFFFFFF
        given_id = b"\0" + self._next_id.to_bytes(4, "big")
        if self.make_handshake is None:
            return ZmtpProtocol(self.limits.packet_bytes, given_id)
        return ZmtpProtocol(self.limits.packet_bytes, given_id, "CURVE", self.make_handshake())

    async def close(self) -> None:
        self.stop_accepting()
        if self._beats is not None:
            self._beats.cancel()
        self.hub.begin_turn()
        self.router.send_last_messages()
        await self.hang_up(LAST_WORDS_SECONDS)
        await super().close()

    def look_after(self) -> None:
        """Once a second: also close connections whose handshake takes too long or whose time to live has expired."""
        super().look_after()
        now = asyncio.get_running_loop().time()
        for session in list(self.in_handshake):
            if now - session.begun_at > self.config.handshake_seconds:
                session.fail_handshake(f"it took longer than {self.config.handshake_seconds:g} s")
        for session in list(self.sessions_with_ttl):
            if now > session.lives_until:
                session.close_silent()

    def _beat(self) -> None:
        """Send a heartbeat to silent peers, and close the connections of those that did not answer the last ones."""
        self._beats = asyncio.get_running_loop().call_later(self.config.heartbeat_seconds, self._beat)
        for session in list(self.router.peers.values()):
            session.beat()


class ZmtpRouter(PeerTransport):
    """The transport of a listener's `MessageSession`: sends each message to the peer that its first frame names."""

    def __init__(self, hub: Hub, make: MessageSessionMaker, access: ListenerAccess = OPEN_ACCESS) -> None:
        self.hub = hub
        self.access = access
        self.permissions = access.anonymous()
        self.peers: dict[bytes, ZmtpSession] = {}  # sessions by routing id
        self._undelivered: list[Message] = []
        self._is_closing = False
        self.messages = make(hub, self)

    def register(self, session: ZmtpSession) -> bool:
        """Add a peer whose handshake is complete; it replaces an older connection with the same routing id.

        False if that is a connection of another identity, which would lose its messages to the new one.
        """
        routing_id = session.zmtp.routing_id
        old = self.peers.get(routing_id)
        if old is not None and old.permissions is not session.permissions:
            return False
        self.peers[routing_id] = session
        self.messages.peer_identified(routing_id, session.permissions)
        if old is not None:
            old.close_replaced()
        return True

    def forget(self, session: ZmtpSession) -> None:
        """Remove a closed connection, and tell the session that its peer is gone."""
        routing_id = session.zmtp.routing_id
        if self.peers.get(routing_id) is session:
            del self.peers[routing_id]
            if not self._is_closing:
                self.messages.peer_gone(routing_id)
            self.messages.forget_peer(routing_id)

    def deliver(self, connection: Connection, messages: list[Message]) -> None:
        """Let the session handle messages of a peer."""
        self.host = connection.host
        self.port = connection.port
        receiver = self.messages
        for message in messages:
            try:
                receiver.receive_message(message)
            except Exception as error:
                log.exception("internal error while serving %s:%s", connection.host, connection.port)
                fields = {"protocol": receiver.protocol, "host": connection.host, "port": connection.port}
                self.hub.telemetry.emit("internal_error", text=repr(error), **fields)
        self.host = ""
        self.port = 0

    def write(self, out: list[Message]) -> None:
        written: list[ZmtpSession] = []
        for message in out:
            session = self.peers.get(message[0])
            if session is None:
                self._report_later(message)
                continue
            begun = len(session.out)
            try:
                if not session.take(message):
                    self._report_later(message)
                elif not begun and session.out:
                    written.append(session)
            except Exception:
                log.exception("internal error while sending to %s", message[0].hex())
                del session.out[begun:]
        for session in written:
            session.flush()

    def close(self) -> None:
        """Do nothing: a message session does not close connections."""

    def send_last_messages(self) -> None:
        """Let the session send its last messages: the listener is being closed."""
        self._is_closing = True
        self.messages.closed()
        out, self.messages.out = self.messages.out, []
        self.write(out)

    # --- undeliverable messages ---

    def _report_later(self, message: Message) -> None:
        if not self._undelivered:
            self.hub.soon(self._report_undelivered)
        self._undelivered.append(message)

    def _report_undelivered(self) -> None:
        undelivered, self._undelivered = self._undelivered, []
        self.put_back(undelivered)

    def put_back(self, messages: list[Message]) -> None:
        """Tell the session that these messages were not delivered."""
        for message in messages:
            self.hub.telemetry.emit("peer_unreachable", protocol=self.messages.protocol, identity=message[0].hex())
            try:
                self.messages.unreachable(message)
            except Exception:
                log.exception("internal error after a peer was lost")  # report the other messages all the same


class ZmtpSession(ByteSession):
    """One connection that speaks ZMTP. Messages that wait for the store are held by the `MessageSession`."""

    def __init__(self, context: Context, connection: Connection, listener: ZmtpListener) -> None:
        super().__init__(context, connection)
        self.connection = connection
        self.listener = listener
        self.router = listener.router
        self.protocol = listener.router.messages.protocol
        self.zmtp = listener.new_protocol()
        self.begun_at = asyncio.get_running_loop().time()
        self.lives_until = 0.0
        self.queued: deque[Message] = deque()
        self._queued_bytes = 0
        self._start = b""  # the first bytes, until they show whether this is ZMTP
        self._has_spoken = False
        self._is_known = False  # whether the router has this session
        self._is_read = True
        self._was_heard = True  # whether the peer has sent anything since the last heartbeat
        self._silent_beats = 0
        listener.in_handshake.add(self)
        # Its keys take a tenth of a millisecond each; hundreds of peers that connect at once must not stop the others.
        connection.is_costly = listener.make_handshake is not None

    @property
    def buffered_bytes(self) -> int:
        return len(self._start) + self.zmtp.buffered_bytes

    @property
    def awaited_bytes(self) -> int:
        return self.zmtp.awaited_bytes

    @property
    def awaits_store(self) -> bool:
        return self.router.messages.delayed_bytes > DELAYED_BYTES

    # --- input ---

    def handle_data(self, data: bytes) -> None:
        self._was_heard = True
        if not self._has_spoken:
            data = self._begin(data)
            if not data:
                return
        self._hear(data)

    def _begin(self, data: bytes) -> bytes:
        """The first bytes, once they are known to be ZMTP; empty if they are not, or if there are too few of them."""
        start = self._start + data
        self._start = b""
        if may_be_zmtp(start):
            if len(start) == 1 and start[0] != 0xFF:
                self._start = start
                return b""
            self._has_spoken = True
            return start
        foreign = foreign_protocol(start, OWN_PROTOCOLS)
        if foreign is not None:
            self.listener.in_handshake.discard(self)
            text = f"it speaks {foreign}, and ZeroMQ is spoken here"
            self.context.count_bad_input(self, "FOREIGN_PROTOCOL", text)
            self.out.append(foreign_refusal(foreign, "ZeroMQ"))
            self._hang_up()
        elif (start[0] < SPACE and len(start) >= MOST_BINARY_START) or (
            start[0] >= SPACE and (b"\n" in start or len(start) >= MOST_FIRST_LINE_BYTES)
        ):
            self.fail_handshake("it does not speak ZeroMQ")
        else:
            self._start = start
        return b""

    def _hear(self, data: bytes) -> None:
        zmtp = self.zmtp
        messages = zmtp.receive(data)
        if not self._is_known and zmtp.is_ready and not self._get_known():
            return
        if zmtp.outgoing:
            self.out += zmtp.outgoing
            zmtp.outgoing = []
            self.flush()
        if messages:
            self.router.deliver(self.connection, messages)
        if zmtp.skipped_messages:
            zmtp.skipped_messages = 0
            self.context.count_bad_input(self, "TOO_LARGE", f"a message of {MOST_FRAMES} frames or more")
        if zmtp.peer_lives_seconds:
            self.listener.sessions_with_ttl.add(self)
            self.lives_until = asyncio.get_running_loop().time() + zmtp.peer_lives_seconds
        if zmtp.failure is not None:
            self._fail()
        elif zmtp.has_more:
            self.connection.when_taken(self.go_on)

    def _get_known(self) -> bool:
        """Let the router have this session, whose handshake is complete; False if the peer is refused."""
        access = self.listener.access
        if not access.is_open:
            permissions = access.by_curve_key(self.zmtp.peer_key) if self.zmtp.peer_key else None
            self.identify(permissions or access.anonymous())
            if not self.permissions.roles:
                self.fail_handshake("its key belongs to no identity, and others may do nothing here")
                return False
        if not self.router.register(self):
            self.fail_handshake("another identity is connected with the same routing id")
            return False
        self._is_known = True
        self.connection.is_costly = False
        self.listener.in_handshake.discard(self)
        return True

    def _fail(self) -> None:
        """Close the connection after input that violates the protocol."""
        failure = self.zmtp.failure
        if not self._is_known:
            self.fail_handshake(str(failure))
        elif failure is not None:
            self.context.count_bad_input(self, failure.code, str(failure))
            self._hang_up()

    def fail_handshake(self, reason: str) -> None:
        """Close a connection whose handshake failed, and report it, so that an operator can find out why the peer is
        missing.
        """
        self._report_failure(reason)
        self._hang_up()

    def _report_failure(self, reason: str) -> None:
        self.listener.in_handshake.discard(self)
        fields = {"protocol": self.protocol, "host": self.connection.host, "port": self.connection.port}
        self.listener.hub.telemetry.emit("handshake_failed", reason=reason, **fields)

    def _hang_up(self) -> None:
        self.closing = True
        self.flush()
        self.connection.close()

    def eof(self) -> None:
        self._tell_if_in_handshake()
        self.closing = True
        self.connection.close()

    def _tell_if_in_handshake(self) -> None:
        if self._has_spoken and not self.closing and self in self.listener.in_handshake:
            self._report_failure("it closed the connection before that")

    def not_read(self) -> None:
        self._is_read = False

    def read_again(self) -> None:
        self._is_read = True
        self._was_heard = True

    def closed(self) -> None:
        self.listener.sessions_with_ttl.discard(self)
        self._tell_if_in_handshake()
        self.listener.in_handshake.discard(self)
        if self._is_known:
            self._is_known = False
            self.router.forget(self)
            self._put_back_queued()

    # --- output ---

    def take(self, message: Message) -> bool:
        """Send a message, or queue it while the peer does not read; False if it cannot be delivered."""
        if self.queued or self.connection.is_stalled:
            return self._queue(message)
        self.zmtp.encode(message, self.out)
        return True

    def _queue(self, message: Message) -> bool:
        size = MESSAGE_OVERHEAD
        for frame in message:
            size += len(frame)
        listener = self.listener
        queued_bytes = self._queued_bytes + size
        if self.queued and (
            len(self.queued) >= listener.config.messages_per_peer or queued_bytes > listener.limits.slow_reader_bytes
        ):
            if self.connection.is_stalled:
                self.connection.is_too_slow(self.connection.unsent_bytes + self._queued_bytes)
            return False
        if not self.queued:
            self.connection.when_taken(self.go_on)
        self.queued.append(message)
        self._count_queued(queued_bytes)
        return True

    def _count_queued(self, queued_bytes: int) -> None:
        self._queued_bytes = queued_bytes
        self.connection.count_queued(queued_bytes)

    def go_on(self) -> None:
        """Continue after the peer has read its output: send the next queued messages, and handle deferred input."""
        queued = self.queued
        if queued:
            left_bytes = self._queued_bytes
            batch_bytes = 0
            while queued and batch_bytes < BATCH_BYTES:
                message = queued.popleft()
                size = MESSAGE_OVERHEAD
                for frame in message:
                    size += len(frame)
                batch_bytes += size
                self.zmtp.encode(message, self.out)
            self._count_queued(left_bytes - batch_bytes)
            self.flush()
            if queued:
                self.connection.when_taken(self.go_on)
        if self.zmtp.has_more:
            self._hear(b"")

    def flush(self) -> None:
        """Write the pending output."""
        out = self.out
        if out:
            self.out = []
            self.connection.write(out)

    def _put_back_queued(self) -> None:
        queued = list(self.queued)
        self.queued.clear()
        self._queued_bytes = 0
        self.router.put_back(queued)

    def close_replaced(self) -> None:
        """Close the connection: a newer one has the same routing id."""
        self._is_known = False
        self._put_back_queued()
        self.connection.abort()

    # --- heartbeats ---

    def beat(self) -> None:
        """Send a PING if the peer was silent since the last heartbeat."""
        if self._was_heard or not self._is_read or not self.zmtp.answers_pings:
            self._was_heard = False
            self._silent_beats = 0
            return
        self._silent_beats += 1
        if self._silent_beats > SILENT_BEATS:
            self.close_silent()
            return
        self.zmtp.ping()
        self.out += self.zmtp.outgoing
        self.zmtp.outgoing = []
        self.flush()

    def close_silent(self) -> None:
        """Close the connection of a peer that counts as dead."""
        self.listener.sessions_with_ttl.discard(self)
        fields = {"protocol": self.protocol, "host": self.connection.host, "port": self.connection.port}
        self.listener.hub.telemetry.emit("silent_peer_closed", **fields)
        self.connection.abort()
