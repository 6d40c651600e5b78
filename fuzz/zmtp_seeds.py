"""Inputs to begin with for the targets of ZMTP: conversations of the tests, and one that libzmq has sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.protocols.zmtp.test_server_protocol import BAD, CONVERSATIONS
from tests.protocols.zmtp.wire import GREETING, GREETING_2_0, frame_1_0, message, metadata, ready

from fuzz.grammar import STEPS, ZMTP_FRAMES, Part
from fuzz.script import KEEPS, LITTLE_MEMORY, Action, step, written_script

__all__ = ["curve_scripts", "frame_streams", "peer_streams", "zmtp_scripts"]

# What a DEALER and a REQ socket of libzmq 4.3.5 have sent: the greeting of ZMTP 3.1, READY, a message, PING twice.
LIBZMQ_GREETING: Final = b"\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL" + bytes(48)
LIBZMQ: Final = [
    LIBZMQ_GREETING
    + b"\4)\5READY\x0bSocket-Type\0\0\0\6DEALER\x08Identity\0\0\0\0\1\0\0\5hello\4\7\4PING\0\x1e\4\7\4PING\0\x1e",
    LIBZMQ_GREETING
    + b"\4&\5READY\x0bSocket-Type\0\0\0\3REQ\x08Identity\0\0\0\0\1\0\0\5hello\4\7\4PING\0\x1e\4\7\4PING\0\x1e",
]


def peer_streams() -> list[bytes]:
    """What peers say from the first byte on."""
    good = [said for said, _, _ in CONVERSATIONS.values()]
    return [*LIBZMQ, *good, *(said for said, _ in BAD.values())]


def frame_streams() -> Iterator[bytes]:
    """The frames without the greeting."""
    for stream in peer_streams():
        yield ZMTP_FRAMES.join([part for part in ZMTP_FRAMES.cut(stream) if part.head])


# --- CURVE: what the steps are is in `CurveScript` ---

RAW, GREET, HELLO, INITIATE, MESSAGE, PART, COMMAND, CHANGED = range(8)
DEALER: Final = metadata(Socket_Type=b"DEALER", Identity=b"me")


def curve_script(*steps: tuple[int, bytes]) -> bytes:
    return STEPS.join([Part(bytes((kind,)), body) for kind, body in steps])


def curve_scripts() -> list[bytes]:
    opened = ((GREET, b""), (HELLO, b""), (INITIATE, DEALER))
    ping = b"\4PING\0\x1econtext"
    return [
        curve_script(*opened, (PART, b""), (MESSAGE, b"hello" * 30), (COMMAND, ping), (MESSAGE, b"x")),
        curve_script(*opened, (MESSAGE, b"x" * 300), (MESSAGE, b"x" * 301)),
        curve_script(*opened, (PART, b"x" * 200), (COMMAND, ping), (PART, b"x" * 101)),
        curve_script(*opened, *[(PART, b"")] * 101, (MESSAGE, b"")),
        curve_script(*opened, (CHANGED, b"\x15 changed"), (MESSAGE, b"x")),
        curve_script(*opened, (RAW, message(b"not encrypted"))),
        curve_script((GREET, b""), (HELLO, b""), (INITIATE, metadata(Socket_Type=b"SUB"))),
        curve_script((GREET, b""), (HELLO, b""), (INITIATE, b"\0\0")),
        curve_script((GREET, b""), (HELLO, b""), (HELLO, b"")),
        curve_script((GREET, b""), (HELLO, b""), (MESSAGE, b"too early")),
        curve_script((GREET, b""), (RAW, ready())),
        curve_script((RAW, GREETING), (HELLO, b"")),
        curve_script((RAW, GREETING_2_0), (HELLO, b"")),
        curve_script((RAW, frame_1_0(b"me"))),
    ]


# --- a whole server ---


def zmtp_scripts(conversations: Sequence[Sequence[tuple[str, str, Any]]]) -> Iterator[bytes]:
    """Conversations of dwork in ZMTP of each version, and everything else that peers say."""
    openings = (
        GREETING + ready(),
        GREETING.replace(b"\3\0", b"\3\1", 1) + ready(b"REQ", b""),
        GREETING_2_0 + message(b"old"),
    )
    for number, conversation in enumerate(conversations):
        steps = [step(Action.SEND, peer, opening) for peer, opening in enumerate(openings)]
        for place, (_, what, data) in enumerate(conversation):
            if what == "SEND":
                steps.append(step(Action.SEND, place % 3, message(b"", data)))
        yield written_script([*steps, step(Action.LEAVE, number % 3)], (0, KEEPS, LITTLE_MEMORY)[number % 3])
    for stream in peer_streams():
        yield written_script([step(Action.SEND, 0, stream), step(Action.STOP_SENDING, 0)])
    again = [step(Action.SEND, peer, GREETING + ready() + message(b"", b"\x08\x07")) for peer in (0, 1)]  # one name
    yield written_script([*again, step(Action.TOGGLE_READING, 1), step(Action.SEND, 1, message(b"", b"\x08\x07") * 9)])
    yield written_script([step(Action.SEND, 0, GREETING[:11]), step(Action.PASS_TIME, 0, b"\6")])
    yield written_script([step(Action.SEND, 2, frame_1_0(b"me") + frame_1_0(b"", True) + frame_1_0(b"\x08\x07"))])
