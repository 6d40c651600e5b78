"""The server's side of ZMTP: whole conversations as they go over the wire, in slices of every size."""

from __future__ import annotations

import struct

import pytest

from switchgear.protocols.zmtp.codec import FRAMES_AT_ONCE
from switchgear.protocols.zmtp.server_protocol import FRAME_OVERHEAD, MOST_FRAMES, ZmtpProtocol, may_be_zmtp
from tests.protocols.zmtp.wire import (
    GREETING,
    GREETING_2_0,
    SERVER_GREETING,
    SERVER_READY,
    SIGNATURE,
    frame,
    frame_1_0,
    message,
    play,
    ready,
)

GIVEN = b"\0\0\0\0\1"
LIMIT = 1000
LONG = bytes(range(256)) * 3

# A conversation, the messages that the server understands, and what it answers.
CONVERSATIONS = {
    "3.0 with a name": (
        GREETING + ready() + message(b"", b"hello") + message(b"x"),
        [[b"me", b"", b"hello"], [b"me", b"x"]],
        SERVER_GREETING + SERVER_READY,
    ),
    "3.1 without a name": (
        GREETING.replace(b"\3\0", b"\3\1", 1) + ready(identity=b"") + message(b"x"),
        [[GIVEN, b"x"]],
        SERVER_GREETING + SERVER_READY,
    ),
    "4.2, a version yet to come": (
        GREETING.replace(b"\3\0", b"\4\2", 1) + ready() + message(b"x"),
        [[b"me", b"x"]],
        SERVER_GREETING + SERVER_READY,
    ),
    "names of properties in another case, and one more": (
        GREETING
        + frame(b"\5READY\x0bSOCKET-TYPE\0\0\0\3REQ\x08identity\0\0\0\1r\x05X-Foo\0\0\0\0", 4)
        + message(b"", b"x"),
        [[b"r", b"", b"x"]],
        SERVER_GREETING + SERVER_READY,
    ),
    "long frames": (
        GREETING + ready() + message(LONG, b"", LONG[:200]),
        [[b"me", LONG, b"", LONG[:200]]],
        SERVER_GREETING + SERVER_READY,
    ),
    "a long frame of few bytes": (
        GREETING + ready() + b"\2" + struct.pack(">Q", 3) + b"abc",
        [[b"me", b"abc"]],
        SERVER_GREETING + SERVER_READY,
    ),
    "PING in the middle of a message": (
        GREETING + ready() + frame(b"a", 1) + frame(b"\4PING\0\x1econtext", 4) + frame(b"b"),
        [[b"me", b"a", b"b"]],
        SERVER_GREETING + SERVER_READY + frame(b"\4PONGcontext", 4),
    ),
    "PONG and commands that mean nothing here": (
        GREETING + ready() + frame(b"\4PONG", 4) + frame(b"\x09SUBSCRIBEx", 4) + frame(b"", 4) + message(b"x"),
        [[b"me", b"x"]],
        SERVER_GREETING + SERVER_READY,
    ),
    "2.0": (
        GREETING_2_0 + frame(b"old") + message(b"", b"x") + message(LONG),
        [[b"old", b"", b"x"], [b"old", LONG]],
        SERVER_GREETING[:11] + b"\6" + b"\0\0",
    ),
    "2.0 without a name": (
        GREETING_2_0 + frame(b"") + message(b"x"),
        [[GIVEN, b"x"]],
        SERVER_GREETING[:11] + b"\6" + b"\0\0",
    ),
    "1.0": (
        frame_1_0(b"older") + frame_1_0(b"", True) + frame_1_0(b"x") + frame_1_0(LONG),
        [[b"older", b"", b"x"], [b"older", LONG]],
        b"\1\0",
    ),
    "1.0 without a name": (frame_1_0(b"") + frame_1_0(b"x"), [[GIVEN, b"x"]], b"\1\0"),
    "1.0 with the longest name": (
        frame_1_0(b"n" * 255) + frame_1_0(b"x"),
        [[b"n" * 255, b"x"]],
        b"\1\0",
    ),
    "1.0 from a peer that knows versions": (
        SIGNATURE + b"\0\3" + frame_1_0(b"r") + frame_1_0(b"", True) + frame_1_0(b"x"),
        [[b"r", b"", b"x"]],
        SERVER_GREETING[:11] + b"\6" + b"\1\0",
    ),
}


@pytest.mark.parametrize(("said", "understood", "answered"), CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_slicing_does_not_matter(said: bytes, understood: list[list[bytes]], answered: bytes) -> None:
    for slice_bytes in [*range(1, 80), len(said)]:
        protocol = ZmtpProtocol(LIMIT, GIVEN)
        assert play(said, slice_bytes, protocol) == (understood, answered)
        assert protocol.failure is None
        assert protocol.is_ready
        assert protocol.buffered_bytes == 0


@pytest.mark.parametrize(("said", "understood", "answered"), CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_cut_in_two_anywhere(said: bytes, understood: list[list[bytes]], answered: bytes) -> None:
    for cut in range(1, len(said)):
        protocol = ZmtpProtocol(LIMIT, GIVEN)
        messages = protocol.receive(said[:cut]) + protocol.receive(said[cut:])
        assert messages == understood
        assert b"".join(protocol.outgoing) == answered


def test_each_part_of_the_greeting_is_answered_when_it_has_come() -> None:
    """Older peers wait for the version before they say theirs."""
    protocol = ZmtpProtocol(LIMIT, GIVEN)
    protocol.receive(GREETING[:10])
    assert b"".join(protocol.outgoing) == SERVER_GREETING[:11]
    protocol.receive(GREETING[10:11])
    assert b"".join(protocol.outgoing) == SERVER_GREETING
    protocol.receive(GREETING[11:])
    assert b"".join(protocol.outgoing) == SERVER_GREETING + SERVER_READY


BAD = {
    "another mechanism": (GREETING.replace(b"NULL\0", b"CURVE", 1), "it wants the mechanism CURVE"),
    "no mechanism": (GREETING.replace(b"NULL", b"\0\0\0\0", 1), "it wants the mechanism"),
    "a message instead of READY": (GREETING + frame(b"hello"), "a command was expected"),
    "another command": (GREETING + frame(b"\5HELLO", 4), "READY was expected"),
    "ERROR": (GREETING + frame(b"\5ERROR\x04nope", 4), "it refused: nope"),
    "a PUSH socket": (GREETING + ready(b"PUSH"), "its socket type is PUSH"),
    "no socket type": (GREETING + frame(b"\5READY", 4), "its socket type is none"),
    "metadata without a name": (GREETING + frame(b"\5READY\0\0\0\0\0", 4), "malformed metadata"),
    "metadata cut short": (GREETING + frame(b"\5READY\x0bSocket-Type\0\0", 4), "malformed metadata"),
    "a value longer than the rest": (GREETING + frame(b"\5READY\1x\0\0\0\5abc", 4), "malformed metadata"),
    "a name that is ours to give": (GREETING + ready(identity=b"\0\0\0\0\1"), "does not begin with a zero byte"),
    "a name that is too long": (GREETING + ready(identity=b"n" * 256), "at most 255 bytes"),
    "a long READY": (GREETING + frame(b"\5READY" + bytes(9000), 4), "at most 8192 are taken"),
    "flags that do not exist": (GREETING + ready() + b"\x08\0", "cannot have the flags 8"),
    "a command that goes on": (GREETING + ready() + b"\5\0", "cannot have the flags 5"),
    "a frame that is too long": (GREETING + ready() + frame(bytes(1001)), "frame of 1001 bytes"),
    "a length of 64 bits": (GREETING + ready() + b"\2" + b"\xff" * 8, f"frame of {2**64 - 1} bytes"),
    "a message that is too long": (GREETING + ready() + message(bytes(600), bytes(401)), "more than 1000 bytes"),
    "2.0: a PULL socket": (SIGNATURE + b"\1\7", "its socket type is PULL"),
    "2.0: a socket that does not exist": (SIGNATURE + b"\1\x63", "its socket type is 99"),
    "2.0: a name of two frames": (GREETING_2_0 + frame(b"a", 1), "in one frame"),
    "1.0: a frame of length 0": (frame_1_0(b"n") + b"\0\0", "a frame of length 0"),
    "1.0: a name of 9000 bytes": (frame_1_0(b"n" * 9000), "at most 8192 are taken"),
    "1.0: a frame that is too long": (frame_1_0(b"n") + frame_1_0(bytes(1001)), "frame of 1001 bytes"),
}


@pytest.mark.parametrize(("said", "reason"), BAD.values(), ids=BAD)
def test_what_cannot_be_understood_ends_the_connection(said: bytes, reason: str) -> None:
    for slice_bytes in (1, 7, len(said)):
        protocol = ZmtpProtocol(LIMIT, GIVEN)
        messages, _ = play(said, slice_bytes, protocol)
        assert messages == []
        assert reason in str(protocol.failure)
        assert protocol.receive(message(b"x")) == []


def test_what_came_before_the_mistake_was_understood() -> None:
    protocol = ZmtpProtocol(LIMIT, GIVEN)
    assert protocol.receive(GREETING + ready() + message(b"x") + b"\x08\0") == [[b"me", b"x"]]
    assert protocol.failure is not None


def test_versions_that_cannot_encrypt_are_refused_where_encryption_is_used() -> None:
    for said in (GREETING_2_0, frame_1_0(b"x"), GREETING):
        protocol = ZmtpProtocol(LIMIT, GIVEN, "CURVE")
        protocol.receive(said)
        assert protocol.failure is not None


def opened(limit: int = LIMIT) -> ZmtpProtocol:
    protocol = ZmtpProtocol(limit, GIVEN)
    protocol.receive(GREETING + ready())
    assert protocol.is_ready
    protocol.outgoing.clear()
    return protocol


def test_a_message_with_too_many_frames_is_skipped_and_takes_no_memory() -> None:
    protocol = opened()
    assert protocol.receive(frame(b"", 1) * (MOST_FRAMES - 1)) == []
    assert protocol.buffered_bytes == (MOST_FRAMES - 1) * FRAME_OVERHEAD
    assert protocol.receive(frame(b"", 1) * FRAMES_AT_ONCE) == []
    assert (protocol.buffered_bytes, protocol.skipped_messages) == (0, 1)
    assert protocol.receive(message(b"end") + message(b"next")) == [[b"me", b"next"]]
    assert protocol.skipped_messages == 1


def test_a_message_may_have_as_many_frames_as_are_taken() -> None:
    bodies = [b"x"] * (MOST_FRAMES - 1)
    assert opened().receive(message(*bodies)) == [[b"me", *bodies]]


def test_skipped_frames_count_for_the_length_of_the_message() -> None:
    protocol = opened()
    for _ in range(20):
        protocol.receive(frame(b"x", 1) * 90)
    assert "more than 1000 bytes" in str(protocol.failure)


def test_unfinished_input_counts_with_its_frames() -> None:
    protocol = opened()
    protocol.receive(frame(b"abc", 1) + frame(b"", 1) + b"\0\5ab")
    assert protocol.buffered_bytes == 3 + 2 * FRAME_OVERHEAD + 4
    assert protocol.receive(b"cde") == [[b"me", b"abc", b"", b"abcde"]]
    assert protocol.buffered_bytes == 0


def test_very_many_frames_are_understood_some_at_a_time() -> None:
    protocol = opened()
    messages = protocol.receive(message(b"x") * (2 * FRAMES_AT_ONCE + 1))
    assert (len(messages), protocol.has_more) == (FRAMES_AT_ONCE, True)
    assert len(protocol.receive(message(b"y"))) == FRAMES_AT_ONCE
    assert protocol.receive(b"") == [[b"me", b"x"], [b"me", b"y"]]
    assert not protocol.has_more


@pytest.mark.parametrize("size", [0, 1, 253, 254, 255, 256, 70_000])
def test_what_is_sent_is_framed_as_the_peer_expects(size: int) -> None:
    body = bytes(size)
    out: list[bytes] = []
    opened().encode([b"me", b"", body, b"end"], out)
    assert b"".join(out) == message(b"", body, b"end")
    out = []
    older = ZmtpProtocol(LIMIT, GIVEN)
    older.receive(frame_1_0(b"me"))
    older.encode([b"me", b"", body, b"end"], out)
    assert b"".join(out) == frame_1_0(b"", True) + frame_1_0(body, True) + frame_1_0(b"end")


def test_a_ping_is_for_those_who_know_it() -> None:
    protocol = opened()
    protocol.ping()
    assert protocol.outgoing == [frame(b"\4PING\0\0", 4)]
    older = ZmtpProtocol(LIMIT, GIVEN)
    older.receive(GREETING_2_0 + frame(b""))
    older.outgoing.clear()
    older.ping()
    assert not older.outgoing
    assert not older.answers_pings


def test_a_ping_is_answered_with_its_context_and_may_say_how_long_the_peer_lives() -> None:
    protocol = opened()
    protocol.receive(frame(b"\4PING\0\x1e" + b"c" * 40, 4) + frame(b"\4PING\0", 4))
    assert protocol.outgoing == [frame(b"\4PONG" + b"c" * 16, 4)]
    assert protocol.peer_lives_seconds == 3.0


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (b"\xff", True),
        (b"\xff\0", True),
        (b"\1", True),
        (b"\1\0", True),
        (b"G", True),
        (b"GE", False),
        (b"\0", False),
        (b"\x16\3", False),
    ],
)
def test_the_first_bytes_tell_whether_it_can_be_zmtp(start: bytes, expected: bool) -> None:
    assert may_be_zmtp(start) == expected
