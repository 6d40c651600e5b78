"""ZeroMQ listeners: one session speaks to all peers of a listener, as over a ROUTER socket.

Connections are TCP connections like those of the other listeners, with the same limits, the same account of what they
hold and the same treatment of peers that do not read (net/tcp.py).  Each has a `ZmtpSession`, which speaks ZMTP
(protocols/zmtp).  It hands whole messages to the one `MessageSession` of the listener, and takes from the `ZmtpRouter`
those for its peer.

Routing.  A peer is known by its routing id: the name that it gave itself, or five bytes that it was given.  Whoever
comes with a name that a connection has already takes it over, and the old connection is closed.

Output.  While a peer does not take what was written to it, messages for it are queued, up to
`zeromq.messages_per_peer` of them and `limits.slow_reader_bytes`.  A message that finds no room, or whose peer is not
there, is handed back to the session, and so is every queued message of a connection that is lost.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from typing import Final

from switchgear.config import LimitsConfig, ListenUrl, ZeromqConfig
from switchgear.errors import Refused
from switchgear.net.dialects import MOST_FIRST_LINE_BYTES
from switchgear.net.foreign import ZMTP, foreign_protocol, foreign_refusal
from switchgear.net.hub import Hub
from switchgear.net.tcp import LAST_WORDS_SECONDS, Connection, TcpDoor
from switchgear.protocols.base import Context, Message, MessageSession, Session, Wire
from switchgear.protocols.zmtp.mechanism import ServerHandshake
from switchgear.protocols.zmtp.server_protocol import MOST_FRAMES, ZmtpProtocol, may_be_zmtp

__all__ = ["HandshakeMaker", "MessageSessionMaker", "ZmtpListener", "ZmtpRouter", "ZmtpSession"]

log = logging.getLogger("switchgear")

MessageSessionMaker = Callable[[Context, Wire], MessageSession]
HandshakeMaker = Callable[[], ServerHandshake]

# While the store fails, so many bytes of promises may wait for it; then connections are not read from.
PROMISED_BYTES = 64 * 1024 * 1024

# So much of what is queued for a peer is written at a time, when it has taken what was written before.
BATCH_BYTES: Final = 65_536
MESSAGE_OVERHEAD: Final = 128  # what a queued message takes besides its bytes
SILENT_BEATS: Final = 3  # so many PINGs may go unanswered
OWN_PROTOCOLS: Final = frozenset({ZMTP})
MOST_BINARY_START: Final = 16  # bytes after which a beginning that is neither text nor ZMTP is told from either
SPACE: Final = 32


class ZmtpListener(TcpDoor):
    """One listening address whose connections speak ZMTP."""

    def __init__(
        self,
        url: ListenUrl,
        hub: Hub,
        limits: LimitsConfig,
        make: MessageSessionMaker,
        config: ZeromqConfig,
        make_handshake: HandshakeMaker | None = None,
        doors: list[TcpDoor] | None = None,
    ) -> None:
        super().__init__(url, hub, limits, self._begin_session, doors)
        self.config = config
        self.make_handshake = make_handshake  # None: the mechanism is NULL
        self.router = ZmtpRouter(hub, make)
        self.in_handshake: set[ZmtpSession] = set()
        self.mortal: set[ZmtpSession] = set()  # those whose peers said how long their silence may last
        self._next_id = secrets.randbits(32)  # so that ids from before a restart are nobody's
        self._beats: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        await super().start()
        if self.config.heartbeat_seconds:
            self._beats = asyncio.get_running_loop().call_later(self.config.heartbeat_seconds, self._beat)

    @property
    def bound_port(self) -> int:
        """The port that was found, if any would do."""
        endpoints = self.endpoints
        return endpoints[0][1] if endpoints else self.url.port

    def _begin_session(self, context: Context, wire: Wire) -> Session:
        assert isinstance(wire, Connection)
        return ZmtpSession(context, wire, self)

    def new_protocol(self) -> ZmtpProtocol:
        """For one connection."""
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
        self.router.say_last_words()
        await self.hang_up(LAST_WORDS_SECONDS)
        await super().close()

    def look_after(self) -> None:
        """Once a second: also hang up on peers that do not introduce themselves, or have outlived their time."""
        super().look_after()
        now = asyncio.get_running_loop().time()
        for session in list(self.in_handshake):
            if now - session.begun_at > self.config.handshake_seconds:
                session.fail_handshake(f"it took longer than {self.config.handshake_seconds:g} s")
        for session in list(self.mortal):
            if now > session.lives_until:
                session.give_up_silent()

    def _beat(self) -> None:
        """Ask the silent peers whether they are there, and hang up on those that have not answered."""
        self._beats = asyncio.get_running_loop().call_later(self.config.heartbeat_seconds, self._beat)
        for session in list(self.router.peers.values()):
            session.beat()


class ZmtpRouter(Wire):
    """The wire of a listener's `MessageSession`: carries each message to the peer that its first frame names."""

    def __init__(self, hub: Hub, make: MessageSessionMaker) -> None:
        self.hub = hub
        self.peers: dict[bytes, ZmtpSession] = {}  # by routing id
        self._undelivered: list[Message] = []
        self._is_closing = False
        self.messages = make(hub, self)
        self.session = self.messages

    def register(self, session: ZmtpSession) -> None:
        """A peer has introduced itself."""
        routing_id = session.zmtp.routing_id
        old = self.peers.get(routing_id)
        self.peers[routing_id] = session
        if old is not None:
            old.give_way()

    def forget(self, session: ZmtpSession) -> None:
        """A connection is gone."""
        routing_id = session.zmtp.routing_id
        if self.peers.get(routing_id) is session:
            del self.peers[routing_id]
            if not self._is_closing:
                self.messages.peer_gone(routing_id)

    def deliver(self, connection: Connection, messages: list[Message]) -> None:
        """Let the session handle what a peer has sent."""
        self.host = connection.host
        self.port = connection.port
        receiver = self.messages
        for message in messages:
            try:
                receiver.receive_message(message)
            except Exception as error:
                log.exception("defect while serving %s:%s", connection.host, connection.port)
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
                log.exception("defect while sending to %s", message[0].hex())
                del session.out[begun:]
        for session in written:
            session.flush()

    def close(self) -> None:
        """A message session hangs up on nobody."""

    def say_last_words(self) -> None:
        """The listener is being closed."""
        self._is_closing = True
        self.messages.closed()
        out, self.messages.out = self.messages.out, []
        self.write(out)

    # --- what could not be delivered ---

    def _report_later(self, message: Message) -> None:
        if not self._undelivered:
            self.hub.soon(self._report_undelivered)
        self._undelivered.append(message)

    def _report_undelivered(self) -> None:
        undelivered, self._undelivered = self._undelivered, []
        self.hand_back(undelivered)

    def hand_back(self, messages: list[Message]) -> None:
        """Tell the session that these were not delivered."""
        for message in messages:
            self.hub.telemetry.emit("peer_unreachable", protocol=self.messages.protocol, identity=message[0].hex())
            try:
                self.messages.unreachable(message)
            except Exception:
                log.exception("defect about a peer that is gone")  # and the others are reported all the same


class ZmtpSession(Session):
    """One connection that speaks ZMTP.  What it has to say does not wait for the store: `Promises` has done so."""

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
        self._is_known = False  # to the router
        self._is_read = True
        self._was_heard = True  # since the last beat
        self._silent_beats = 0
        listener.in_handshake.add(self)

    @property
    def buffered_bytes(self) -> int:
        return len(self._start) + self.zmtp.buffered_bytes

    @property
    def awaits_store(self) -> bool:
        return self.router.messages.promises.unsent_bytes > PROMISED_BYTES

    # --- what the peer sends ---

    def receive(self, data: bytes) -> None:
        self._was_heard = True
        if not self._has_spoken:
            data = self._begin(data)
            if not data:
                return
        self._hear(data)

    def _begin(self, data: bytes) -> bytes:
        """The first bytes, once it is clear that they are ZMTP; nothing if they are not, or too few."""
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
        if not self._is_known and zmtp.is_ready:
            self._is_known = True
            self.listener.in_handshake.discard(self)
            self.router.register(self)
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
            self.listener.mortal.add(self)
            self.lives_until = asyncio.get_running_loop().time() + zmtp.peer_lives_seconds
        if zmtp.failure is not None:
            self._fail()
        elif zmtp.has_more:
            self.connection.when_taken(self.go_on)

    def _fail(self) -> None:
        """What the peer sends is not understood any more."""
        failure = self.zmtp.failure
        if not self._is_known:
            self.fail_handshake(str(failure))
        elif failure is not None:
            self.context.count_bad_input(self, failure.code, str(failure))
            self._hang_up()

    def fail_handshake(self, reason: str) -> None:
        """Hang up on a peer that has not introduced itself, and tell the operator, who may wonder where it is."""
        self._tell_of_failure(reason)
        self._hang_up()

    def _tell_of_failure(self, reason: str) -> None:
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
            self._tell_of_failure("it hung up before that")

    def not_read(self) -> None:
        self._is_read = False

    def read_again(self) -> None:
        self._is_read = True
        self._was_heard = True

    def closed(self) -> None:
        self.listener.mortal.discard(self)
        self._tell_if_in_handshake()
        self.listener.in_handshake.discard(self)
        if self._is_known:
            self._is_known = False
            self.router.forget(self)
            self._hand_back_queued()

    # --- what the peer is sent ---

    def take(self, message: Message) -> bool:
        """Send a message, now or when the peer has taken what it was sent; False if it cannot be delivered."""
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
        """The peer has taken what it was sent: send the next queued messages, and handle what was not handled yet."""
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
        """Write what there is to be said."""
        out = self.out
        if out:
            self.out = []
            self.connection.write(out)

    def _hand_back_queued(self) -> None:
        queued = list(self.queued)
        self.queued.clear()
        self._queued_bytes = 0
        self.router.hand_back(queued)

    def give_way(self) -> None:
        """Another connection has taken over the routing id."""
        self._is_known = False
        self._hand_back_queued()
        self.connection.abort()

    # --- signs of life ---

    def beat(self) -> None:
        """A heartbeat: ask for a sign of life if there was none since the last one."""
        if self._was_heard or not self._is_read or not self.zmtp.answers_pings:
            self._was_heard = False
            self._silent_beats = 0
            return
        self._silent_beats += 1
        if self._silent_beats > SILENT_BEATS:
            self.give_up_silent()
            return
        self.zmtp.ping()
        self.out += self.zmtp.outgoing
        self.zmtp.outgoing = []
        self.flush()

    def give_up_silent(self) -> None:
        """The peer is taken for dead."""
        self.listener.mortal.discard(self)
        fields = {"protocol": self.protocol, "host": self.connection.host, "port": self.connection.port}
        self.listener.hub.telemetry.emit("silent_peer_closed", **fields)
        self.connection.abort()

    def refusal(self, refused: Refused) -> bytes:
        raise NotImplementedError("a message session refuses in its own words")
