"""Targets: ZMTP, ZeroMQ's own protocol, as a server reads it: frames, whole conversations, and CURVE.

`zmtp-session`, where peers speak it to a whole server, is with the other sessions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import partial
from typing import Final, NamedTuple

from tests.protocols.zmtp.curve_client import CURVE_GREETING, CurveClient, key_pair

from fuzz.grammar import STEPS, ZMTP_FRAMES
from fuzz.stream_codecs import LEAST_LONG_BYTES, decoded, pieces
from fuzz.target import Defect, Target, must
from switchgear.errors import PeerError
from switchgear.protocols.framing import LONG_BYTES
from switchgear.protocols.multipart import Message
from switchgear.protocols.zmtp import codec
from switchgear.protocols.zmtp.curve import CurveServerHandshake
from switchgear.protocols.zmtp.server_protocol import FRAME_OVERHEAD, MOST_FRAMES, MOST_HANDSHAKE_BYTES, ZmtpProtocol

__all__ = ["ZMTP", "ZMTP_WORDS"]

PACKET_BYTES: Final = 300
HEADER_BYTES: Final = 10  # the longest, which is that of ZMTP 1.0
FRAMES_AT_ONCE: Final = 3
GIVEN_ID: Final = b"\0\0\0\0\1"
LONGEST_BYTES: Final = 1200

# A frame is held until it is whole, beside the frames of its message that came before: a message and a frame at most.
MOST_HELD_BYTES: Final = max(
    MOST_HANDSHAKE_BYTES + HEADER_BYTES, 2 * PACKET_BYTES + HEADER_BYTES + MOST_FRAMES * FRAME_OVERHEAD
)
ENCRYPTION_BYTES: Final = 64  # that CURVE adds to a frame, at most
# The greeting and what a handshake is answered with.  A PONG is no longer than its PING.
MOST_ANSWER_BYTES: Final = 400


# --- frames ---


class DrainedDecoder:
    """A decoder that is asked for more as long as it has more."""

    def __init__(self, is_version_1: bool, long_bytes: int = LONG_BYTES) -> None:
        self._decoder = codec.FrameDecoder(PACKET_BYTES, is_version_1=is_version_1)
        self._decoder.frames_at_once = FRAMES_AT_ONCE
        self._decoder.long_bytes = long_bytes

    @property
    def failure(self) -> PeerError | None:
        return self._decoder.failure

    @property
    def buffered_bytes(self) -> int:
        return self._decoder.buffered_bytes

    def feed(self, data: bytes) -> list[codec.Frame]:
        frames = self._decoder.feed(data)
        if len(frames) > FRAMES_AT_ONCE + 1:  # one more behind a long one
            raise Defect(f"too many frames at once: {len(frames)}")
        while self._decoder.has_more:
            more = self._decoder.feed(b"")
            must(len(more) <= FRAMES_AT_ONCE, "too many frames at once", len(more))
            frames += more
        return frames


def frames_of(data: bytes) -> tuple[list[codec.Frame], str]:
    """The frames of ZMTP 2.0 and 3.x, read step by step, and the code of the error that ends them."""
    frames: list[codec.Frame] = []
    while data:
        flags = data[0]
        if flags not in (0, 1, 2, 3, 4, 6):
            return frames, "MALFORMED"
        start = 9 if flags & 2 else 2
        if len(data) < start:
            break
        size = int.from_bytes(data[1:start], "big")
        if size > PACKET_BYTES:
            return frames, "TOO_LARGE"
        if len(data) < start + size:
            break
        frames.append((flags & 5, data[start : start + size]))
        data = data[start + size :]
    return frames, ""


def frames_of_1_0(data: bytes) -> tuple[list[codec.Frame], str]:
    frames: list[codec.Frame] = []
    while data:
        if data[0] == 0:
            return frames, "MALFORMED"
        start = 10 if data[0] == 255 else 2
        if len(data) < start:
            break
        length = int.from_bytes(data[1:9], "big") if start == 10 else data[0]
        if length == 0:
            return frames, "MALFORMED"
        if length - 1 > PACKET_BYTES:
            return frames, "TOO_LARGE"
        if len(data) < start + length - 1:
            break
        frames.append((data[start - 1] & 1, data[start : start + length - 1]))
        data = data[start + length - 1 :]
    return frames, ""


def run_zmtp_codec(data: bytes) -> Hashable:
    """Frames of both kinds: a second reader agrees, and what is read is written and read again as the same."""
    kinds: list[Hashable] = []
    cut = pieces(data)
    for is_version_1 in (False, True):
        make = partial(DrainedDecoder, is_version_1)
        found = decoded(make, data, PACKET_BYTES + HEADER_BYTES, cut)
        expected = frames_of_1_0(data) if is_version_1 else frames_of(data)
        must(found == expected, "the reference reads something else", found)
        long = decoded(partial(DrainedDecoder, is_version_1, LEAST_LONG_BYTES), data, PACKET_BYTES + HEADER_BYTES, cut)
        must(found == long, "long frames are read as something else", found, long)
        frames, code = found
        must(make().feed(written(frames, is_version_1)) == frames, "frames do not survive being written and read")
        kinds.append((tuple((flags, len(body) > 255) for flags, body in frames[:4]), code))
    return tuple(kinds)


def written(frames: Iterable[codec.Frame], is_version_1: bool) -> bytes:
    out: list[bytes] = []
    for flags, body in frames:
        if flags & codec.COMMAND:
            out.append(codec.command_frame(body))
        elif is_version_1:
            codec.append_frame_1_0(out, body, bool(flags & codec.MORE))
        else:
            codec.append_frame(out, body, bool(flags & codec.MORE))
    return b"".join(out)


# --- conversations ---


class Conversation(NamedTuple):
    """What a server made of what a peer said."""

    messages: list[Message]
    answered: bytes
    failure: str
    version: str
    routing_id: bytes
    skipped_messages: int


def hear(protocol: ZmtpProtocol, data: Iterable[bytes]) -> list[Message]:
    """The messages of a stream; what is held is looked at after each piece."""
    messages: list[Message] = []
    for piece in data:
        messages += protocol.receive(piece)
        while protocol.has_more and protocol.failure is None:
            messages += protocol.receive(b"")
        held_bytes = protocol.buffered_bytes
        must(
            protocol.failure is not None or held_bytes <= MOST_HELD_BYTES + ENCRYPTION_BYTES,
            "too much is held",
            held_bytes,
        )
    return messages


def converse(data: Iterable[bytes]) -> Conversation:
    protocol = ZmtpProtocol(PACKET_BYTES, GIVEN_ID)
    messages = hear(protocol, data)
    must(protocol.is_ready or not messages, "messages before the handshake is over", messages)
    for message in messages:
        must(message[0] == protocol.routing_id and len(message) > 1, "a message of nobody or of nothing", message)
        must(len(message) <= MOST_FRAMES, "a message of too many frames", len(message))
        must(sum(map(len, message[1:])) <= PACKET_BYTES, "a message that is too long", message)
    must(len(protocol.routing_id) <= 255, "a name that is too long", protocol.routing_id)
    for message in messages:
        out: list[bytes] = []
        protocol.encode(message, out)
        frames = DrainedDecoder(protocol.version == "1.0").feed(b"".join(out))
        must([body for _, body in frames] == message[1:], "a message does not survive being sent", message)
    if protocol.failure is not None:
        must(protocol.receive(b"\0\1x") == [], "something is understood after the end")
    return Conversation(
        messages,
        b"".join(protocol.outgoing),
        str(protocol.failure or ""),
        protocol.version,
        protocol.routing_id,
        protocol.skipped_messages,
    )


def run_zmtp_peer(data: bytes) -> Hashable:
    """A peer without encryption, in one piece and in many."""
    whole = converse([data] if data else [])
    split = converse(pieces(data))
    must(whole == split, "in pieces, something else comes out", whole, split)
    must(len(whole.answered) <= len(data) + MOST_ANSWER_BYTES, "a long answer", len(whole.answered))
    sizes = tuple(len(message) for message in whole.messages[:3])
    return whole.version[:3], whole.failure[:24], sizes, whole.routing_id == GIVEN_ID, len(whole.answered) > 110


# --- CURVE ---

SERVER_KEYS: Final = key_pair()
WELCOME: Final = b"\4\xa8\7WELCOME"


class CurveScript:
    """A client of CURVE that does what the steps of an input say: it takes the steps of a handshake in any order, says
    anything within its encryption, and anything without it."""

    def __init__(self, in_pieces: bool) -> None:
        handshake = CurveServerHandshake(SERVER_KEYS[1], SERVER_KEYS[0], lambda key: True)
        self.server = ZmtpProtocol(PACKET_BYTES, GIVEN_ID, "CURVE", handshake)
        self.client = CurveClient(SERVER_KEYS[0])
        self.messages: list[Message] = []
        self.sent_bytes = 0
        self.answered_bytes = 0
        self._in_pieces = in_pieces

    def take(self, step: int, body: bytes) -> None:
        client = self.client
        has_key = bool(client.connection_key)
        if step == 0:
            self._say(body)
        elif step == 1:
            self._say(CURVE_GREETING)
        elif step == 2:
            self._say(client.hello())
        elif step == 3 and has_key:
            client.metadata = body
            self._say(client.initiate())
        elif step in (4, 5, 6) and has_key:  # a message, a part of one, a command
            self._say(client.message(body, step - 4))
        elif step == 7 and has_key:  # changed on the way
            said = bytearray(client.message(body))
            said[(body[0] if body else 0) % len(said)] ^= 1
            self._say(bytes(said))

    def _say(self, data: bytes) -> None:
        self.sent_bytes += len(data)
        self.messages += hear(self.server, pieces(data) if self._in_pieces else [data] if data else [])
        answer = b"".join(self.server.outgoing)
        self.server.outgoing.clear()
        self.answered_bytes += len(answer)
        if answer.startswith(WELCOME):
            self.client.hear_welcome(answer)


def run_zmtp_curve(data: bytes) -> Hashable:
    """A peer with encryption, in one piece and in many."""
    whole, split = CurveScript(False), CurveScript(True)
    for script in (whole, split):
        for part in STEPS.cut(data):
            script.take(part.head[0] & 7, part.body)
        must(script.server.is_ready or not script.messages, "messages before the handshake is over", script.messages)
        longest = max((sum(map(len, message[1:])) for message in script.messages), default=0)
        must(longest <= PACKET_BYTES, "a message that is too long", longest)
        must(script.answered_bytes <= script.sent_bytes + MOST_ANSWER_BYTES, "a long answer", script.answered_bytes)
    must(whole.messages == split.messages, "in pieces, other messages come out", whole.messages, split.messages)
    failure = str(whole.server.failure)
    must(failure == str(split.server.failure), "in pieces, another error comes out", failure, split.server.failure)
    must(whole.answered_bytes == split.answered_bytes, "in pieces, another answer comes out", whole.answered_bytes)
    return whole.server.is_ready, failure[:30], tuple(len(message) for message in whole.messages[:3])


ZMTP_WORDS: Final = (
    b"\xff\0\0\0\0\0\0\0\1\x7f", b"\3\0NULL", b"\3\1", b"\1\5", b"NULL", b"CURVE", b"\5READY", b"\5ERROR",
    b"\x0bSocket-Type\0\0\0\6DEALER", b"\x08Identity\0\0\0\2me", b"\4PING\0\x1e", b"\4PONG", b"\4\0", b"\1\0", b"\0\0",
    b"\2\0\0\0\0\0\0\1\x2c", b"\xff\0\0\0\0\0\0\1\x2d\0", b"\1\0" * 101, b"\2" + b"\xff" * 8,
)  # fmt: skip

ZMTP: Final = (
    Target(
        "zmtp-codec",
        run_zmtp_codec,
        ("protocols.zmtp.codec", "protocols.framing"),
        (ZMTP_FRAMES,),
        ZMTP_WORDS,
        LONGEST_BYTES,
    ),
    Target(
        "zmtp-peer",
        run_zmtp_peer,
        ("protocols.zmtp.server_protocol", "protocols.zmtp.mechanism", "protocols.zmtp.metadata"),
        (ZMTP_FRAMES,),
        ZMTP_WORDS,
        LONGEST_BYTES,
    ),
    Target(
        "zmtp-curve",
        run_zmtp_curve,
        ("protocols.zmtp.curve", "protocols.zmtp.server_protocol", "protocols.zmtp.metadata"),
        (STEPS,),
        ZMTP_WORDS,
        LONGEST_BYTES,
    ),
)
