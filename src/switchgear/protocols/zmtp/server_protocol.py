"""`ZmtpProtocol`: the server's side of one ZMTP connection, without a socket.

Input goes into `receive`, which returns the complete messages; output is collected in `outgoing`. It supports ZMTP 3.x
with the server's mechanism, and ZMTP 2.0 and 1.0, which have no encryption, if the server uses none.

The server sends nothing before the peer does. So the first bytes decide the version, and a peer of another protocol can
be answered in that protocol.

Bounds.  A message has at most `MOST_FRAMES` frames and as many bytes as `message_bytes`.  A message with more frames is
skipped, which takes no memory, one with more bytes ends the connection.  Each frame of an unfinished message counts
`FRAME_OVERHEAD` bytes besides its own, so that empty ones are not held for nothing.
"""

from __future__ import annotations

from typing import Final

from switchgear.errors import PeerError
from switchgear.protocols.multipart import Message
from switchgear.protocols.zmtp.codec import (
    COMMAND,
    FRAMES_AT_ONCE,
    MORE,
    Frame,
    FrameDecoder,
    append_frame,
    append_frame_1_0,
    command_frame,
)
from switchgear.protocols.zmtp.mechanism import FrameCipher, MechanismRefusal, NullHandshake, ServerHandshake
from switchgear.protocols.zmtp.metadata import (
    SOCKET_TYPES_2_0,
    check_identity,
    check_socket_type,
)

__all__ = ["FRAME_OVERHEAD", "MOST_FRAMES", "ZmtpProtocol", "may_be_zmtp"]

# No protocol has messages of this many frames; the routing id counts as one.
MOST_FRAMES: Final = 100
FRAME_OVERHEAD: Final = 64
ENCRYPTION_BYTES: Final = 64  # more than any mechanism adds to a frame

# The maximum size of handshake frames: metadata are some names.
MOST_HANDSHAKE_BYTES: Final = 8192
MOST_CONTEXT_BYTES: Final = 16  # of a PING, which are sent back in the PONG

SIGNATURE: Final = b"\xff\0\0\0\0\0\0\0\1\x7f"
SIGNATURE_BYTES: Final = 10
GREETING_BYTES_2_0: Final = 12
GREETING_BYTES: Final = 64
MECHANISM_START: Final = 12
MECHANISM_END: Final = 32
MAJOR_VERSION: Final = 3
MINOR_VERSION: Final = 1
ROUTER_2_0: Final = b"\6"  # the type of the server's socket

PING: Final = b"\4PING"
PONG: Final = b"\4PONG"
PING_CONTEXT: Final = len(PING) + 2  # behind the time to live

GREETING: Final = 0
HANDSHAKE: Final = 1
READY: Final = 2


def may_be_zmtp(start: bytes) -> bool:
    """Whether input that begins like this can be ZMTP: a signature, or the short identity of ZMTP 1.0."""
    return start[0] == 0xFF or (start[0] != 0 and (len(start) == 1 or start[1] == 0))


class ZmtpProtocol:
    """The state of one ZMTP connection: greeting, handshake, then messages."""

    def __init__(
        self, message_bytes: int, given_id: bytes, mechanism: str = "NULL", handshake: ServerHandshake | None = None
    ) -> None:
        self.routing_id = given_id  # unless the peer announces an identity
        self.outgoing: list[bytes] = []
        self.failure: PeerError | None = None  # no further input is decoded
        self.is_ready = False  # the handshake is complete
        self.version = ""  # of ZMTP, when it is known
        self.skipped_messages = 0  # messages with too many frames
        self.peer_lives_seconds = 0.0  # the time to live of the peer's last PING; 0: none
        self._message_bytes = message_bytes
        self._mechanism = mechanism
        self._handshake: ServerHandshake = NullHandshake() if handshake is None else handshake
        self._state = GREETING
        self._greeting = b""
        self._decoder = FrameDecoder(MOST_HANDSHAKE_BYTES)
        self._decoder.frames_at_once = 1
        self._cipher: FrameCipher | None = None
        self._has_mechanism = True  # ZMTP 3
        self._is_version_1 = False
        self._message: Message = []  # the unfinished message, which begins with the routing id
        self._partial_bytes = 0  # of its frames so far
        self._is_skipping = False

    @property
    def peer_key(self) -> bytes:
        """The public key that the peer has proved to own; empty without encryption."""
        return self._handshake.peer_key

    @property
    def buffered_bytes(self) -> int:
        """The bytes that an unfinished message holds."""
        held_bytes = len(self._greeting) + self._decoder.buffered_bytes
        frames = len(self._message) - 1
        if frames > 0:
            held_bytes += self._partial_bytes + FRAME_OVERHEAD * frames
        return held_bytes

    @property
    def awaited_bytes(self) -> int:
        """How many bytes of a long frame are missing."""
        return self._decoder.awaited_bytes

    @property
    def has_more(self) -> bool:
        """Whether `receive(b"")` will find more messages without new bytes."""
        return self._decoder.has_more

    def receive(self, data: bytes) -> list[Message]:
        """The messages that are complete now; each begins with the routing id. After `failure` is set no more are
        decoded."""
        if self.failure is not None:
            return []
        try:
            if self._state == READY:
                return self._messages(self._decoder.feed(data))
            if self._state == GREETING:
                data = self._read_greeting(data)
                if self._state == GREETING:
                    return []
            return self._read_handshake(data)
        except PeerError as error:
            self.failure = error
            return []

    # --- greeting ---

    def _read_greeting(self, data: bytes) -> bytes:
        """Read the greeting, and answer each part of it that tells the version; returns the input behind it."""
        told = len(self._greeting)
        self._greeting += data
        greeting = self._greeting
        if greeting[0] != 0xFF:
            return self._begin_1_0(greeting)
        if len(greeting) < SIGNATURE_BYTES:
            return b""
        if not greeting[SIGNATURE_BYTES - 1] & 1:
            return self._begin_1_0(greeting)
        if told < SIGNATURE_BYTES:
            self.outgoing.append(SIGNATURE + bytes((MAJOR_VERSION,)))
        if len(greeting) == SIGNATURE_BYTES:
            return b""
        if greeting[SIGNATURE_BYTES] < MAJOR_VERSION:
            return self._read_greeting_2_0(greeting, told)
        if told <= SIGNATURE_BYTES:
            mechanism = self._mechanism.encode().ljust(MECHANISM_END - MECHANISM_START, b"\0")
            is_server = b"\0" if self._mechanism == "NULL" else b"\1"
            self.outgoing.append(bytes((MINOR_VERSION,)) + mechanism + is_server + bytes(31))
        if len(greeting) < GREETING_BYTES:
            return b""
        self.version = f"{greeting[SIGNATURE_BYTES]}.{greeting[SIGNATURE_BYTES + 1]}"
        wanted = greeting[MECHANISM_START:MECHANISM_END].rstrip(b"\0").decode("utf-8", "replace")
        if wanted != self._mechanism:
            raise MechanismRefusal(f"it wants the mechanism {wanted}, and {self._mechanism} is used here")
        opening = self._handshake.begin()
        if opening:
            self.outgoing.append(opening)
        return self._end_of_greeting(greeting, GREETING_BYTES)

    def _read_greeting_2_0(self, greeting: bytes, told: int) -> bytes:
        """Read the greeting of ZMTP 2.0, or of 1.0 from a peer that knows versions."""
        if told <= SIGNATURE_BYTES:
            self.outgoing.append(ROUTER_2_0)
        if len(greeting) < GREETING_BYTES_2_0:
            return b""
        self.version = "2.0" if greeting[SIGNATURE_BYTES] else "1.0"
        self._without_mechanism()
        number = greeting[GREETING_BYTES_2_0 - 1]
        check_socket_type(SOCKET_TYPES_2_0[number] if number < len(SOCKET_TYPES_2_0) else b"%d" % number)
        if self.version == "1.0":
            self._use_version_1()
        self.outgoing.append(b"\1\0" if self._is_version_1 else b"\0\0")  # our identity: none
        return self._end_of_greeting(greeting, GREETING_BYTES_2_0)

    def _begin_1_0(self, greeting: bytes) -> bytes:
        """Begin ZMTP 1.0, which starts with the peer's identity."""
        self.version = "1.0"
        self._without_mechanism()
        self._use_version_1()
        self.outgoing.append(b"\1\0")  # our identity: none
        return self._end_of_greeting(greeting, 0)

    def _without_mechanism(self) -> None:
        self._has_mechanism = False
        if self._mechanism != "NULL":
            raise MechanismRefusal(f"it speaks ZMTP {self.version}, which cannot encrypt")

    def _use_version_1(self) -> None:
        self._is_version_1 = True
        self._decoder.is_version_1 = True

    def _end_of_greeting(self, greeting: bytes, end: int) -> bytes:
        self._state = HANDSHAKE
        self._greeting = b""
        return greeting[end:]

    # --- handshake ---

    def _read_handshake(self, data: bytes) -> list[Message]:
        """Read the frames of the handshake one by one, since the frames after it have other limits."""
        frames = self._decoder.feed(data)
        while frames:
            if self._state == READY:
                return self._messages(frames)
            flags, body = frames[0]
            if self._has_mechanism:
                self._hear_mechanism(flags, body)
            else:
                self._read_identity(flags, body)
            frames = self._decoder.feed(b"") if self._decoder.has_more else []
        self.failure = self._decoder.failure
        return []

    def _hear_mechanism(self, flags: int, body: bytes) -> None:
        if not flags & COMMAND:
            raise MechanismRefusal("a command was expected")
        try:
            answer = self._handshake.receive(body)
        except MechanismRefusal as refusal:
            if refusal.answer:
                self.outgoing.append(refusal.answer)
            raise
        metadata = self._handshake.metadata
        if metadata is not None:
            check_socket_type(metadata.get(b"socket-type", b""))
            self._begin_messages(metadata.get(b"identity", b""))
            self._cipher = self._handshake.cipher
        if answer:
            self.outgoing.append(answer)

    def _read_identity(self, flags: int, body: bytes) -> None:
        """Read the identity, which is the first message in ZMTP 2.0 and 1.0."""
        if flags:
            raise MechanismRefusal("its identity was expected, in one frame")
        self._begin_messages(body)

    def _begin_messages(self, identity: bytes) -> None:
        check_identity(identity)
        if identity:
            self.routing_id = identity
        self._message = [self.routing_id]
        self._decoder.packet_bytes = self._message_bytes + (ENCRYPTION_BYTES if self._mechanism != "NULL" else 0)
        self._decoder.frames_at_once = FRAMES_AT_ONCE
        self._state = READY
        self.is_ready = True

    # --- messages ---

    def _messages(self, frames: list[Frame]) -> list[Message]:
        """The messages that these frames complete, together with frames of earlier calls."""
        messages: list[Message] = []
        message = self._message
        cipher = self._cipher
        for flags, body in frames:
            if cipher is not None:
                try:
                    flags, body = cipher.decrypt(body)
                except PeerError as error:
                    self.failure = error
                    return messages
            if flags & COMMAND:
                self._handle_command(body)
                continue
            if self._is_skipping:
                pass
            elif len(message) < MOST_FRAMES:
                message.append(body)
            else:
                self._is_skipping = True
                self.skipped_messages += 1
                message = self._message = [self.routing_id]
            if flags & MORE or self._partial_bytes or cipher is not None:
                self._partial_bytes += len(body)
                if self._partial_bytes > self._message_bytes:
                    self._fail_too_large()
                    return messages
            if not flags & MORE:
                self._partial_bytes = 0
                if not self._is_skipping:
                    messages.append(message)
                    message = self._message = [self.routing_id]
                self._is_skipping = False
        if self._decoder.failure is not None:
            self.failure = self._decoder.failure
        return messages

    def _fail_too_large(self) -> None:
        text = f"a message of more than {self._message_bytes} bytes"
        self.failure = PeerError(text, code="TOO_LARGE", framing_lost=True)
        self._message = [self.routing_id]

    def _handle_command(self, command: bytes) -> None:
        """Answer PING, and ignore other commands."""
        if command.startswith(PING) and len(command) >= PING_CONTEXT:
            self.peer_lives_seconds = int.from_bytes(command[len(PING) : PING_CONTEXT], "big") / 10
            self._send_command(PONG + command[PING_CONTEXT : PING_CONTEXT + MOST_CONTEXT_BYTES])

    def ping(self) -> None:
        """Send a PING to a peer of ZMTP 3; any answer is a sign of life."""
        if self.is_ready and self._has_mechanism:
            self._send_command(PING + b"\0\0")

    @property
    def answers_pings(self) -> bool:
        return self._has_mechanism

    def _send_command(self, command: bytes) -> None:
        if self._cipher is None:
            self.outgoing.append(command_frame(command))
        else:
            append_frame(self.outgoing, self._cipher.encrypt(COMMAND, command), False)

    def encode(self, message: Message, out: list[bytes]) -> None:
        """Append an encoded message, without its routing id, to the output."""
        cipher = self._cipher
        last = len(message) - 1
        for index in range(1, last + 1):
            body = message[index]
            more = index < last
            if cipher is not None:
                append_frame(out, cipher.encrypt(MORE if more else 0, body), False)
            elif self._is_version_1:
                append_frame_1_0(out, body, more)
            else:
                append_frame(out, body, more)
