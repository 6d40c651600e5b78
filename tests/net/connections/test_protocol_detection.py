"""Several protocols at one listener, told apart by the first bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from switchgear.errors import Refused
from switchgear.net.connections.foreign_protocols import DRAFT, GEARMAN, HTTP
from switchgear.net.connections.protocol_detection import DetectingSession
from switchgear.protocols.context import Context
from switchgear.protocols.session import ByteSession
from switchgear.protocols.session_factory import ProtocolByPrefix, ProtocolDetector, SessionMaker
from switchgear.protocols.transport import PeerTransport
from tests.protocols.gearman.harness import FakeTransport, Harness
from tests.protocols.gearman_draft.harness import MixedHarness
from tests.support.draft_wire import ASK


class Speaker(ByteSession):
    """Remembers what it was told."""

    def __init__(self, context: Context, transport: PeerTransport, protocol: str) -> None:
        super().__init__(context, transport)
        self.protocol = protocol
        self.heard: list[bytes] = []
        self.is_closed = False

    def handle_data(self, data: bytes) -> None:
        self.heard.append(data)

    def closed(self) -> None:
        self.is_closed = True

    def refusal(self, refused: Refused) -> bytes:
        return self.protocol.encode()


class DetectingListener:
    """A connection at which three protocols are spoken."""

    def __init__(self) -> None:
        self.speakers: list[Speaker] = []
        detector = ProtocolDetector(
            self._maker("usual"),
            (ProtocolByPrefix(b"\0JOB", self._maker("job")), ProtocolByPrefix(b"\0JAM!", self._maker("jam"))),
        )
        self.harness = Harness()
        self.wire = FakeTransport(self.harness, 1)
        self.wire.session = DetectingSession(self.harness, self.wire, detector)

    def _maker(self, protocol: str) -> SessionMaker:
        def make(context: Context, transport: PeerTransport) -> ByteSession:
            self.speakers.append(Speaker(context, transport, protocol))
            return self.speakers[-1]

        return make

    @property
    def session(self) -> ByteSession:
        assert isinstance(self.wire.session, ByteSession)
        return self.wire.session

    def receive(self, data: bytes) -> None:
        self.session.receive(data)


@pytest.mark.parametrize(
    ("data", "protocol"),
    [
        (b"\0JOB\6", "job"),
        (b"\0JOB", "job"),
        (b"\0JAM!x", "jam"),
        (b"\0REQ", "usual"),
        (b"status\n", "usual"),
        (b"J", "usual"),
        (b"\0JOX", "usual"),
        (b"\0JAMS", "usual"),
        (b"\0\0", "usual"),
    ],
)
def test_the_first_bytes_tell_in_whatever_slices_they_come(data: bytes, protocol: str) -> None:
    for size in range(1, len(data) + 1):
        listener = DetectingListener()
        slices = [data[i : i + size] for i in range(0, len(data), size)]
        for piece in slices:
            listener.receive(piece)
        speaker = listener.session
        assert isinstance(speaker, Speaker), slices
        assert speaker.protocol == protocol
        assert b"".join(speaker.heard) == data
        assert [other.is_closed for other in listener.speakers if other is not speaker] in ([], [True])


@pytest.mark.parametrize("start", [b"\0", b"\0J", b"\0JO", b"\0JA", b"\0JAM"])
def test_who_has_not_said_enough_is_not_judged(start: bytes) -> None:
    listener = DetectingListener()
    listener.receive(start)
    assert [speaker.protocol for speaker in listener.speakers] == ["usual"]
    assert listener.speakers[0].heard == []
    assert listener.session.protocol == "usual"
    assert listener.session.refusal(Refused("full", "")) == b"usual"
    listener.session.closed()
    assert listener.speakers[0].is_closed


def test_later_data_goes_straight_to_the_session() -> None:
    listener = DetectingListener()
    listener.receive(b"\0JOB")
    session = listener.session
    listener.receive(b"\0REQ")
    assert listener.session is session
    assert listener.speakers[-1].heard == [b"\0JOB", b"\0REQ"]


def test_a_connection_that_has_said_nothing_is_shown_where_connections_are_listed() -> None:
    harness = MixedHarness()
    peer = harness.talker("peer")
    for piece in (b"", ASK[:1], ASK[1:3]):
        peer.send(piece)
        (listed,) = harness.setup.sessions
        assert listed.transport is peer.wire
    peer.send(ASK[3:])
    assert list(harness.setup.sessions) == [peer.draft]
    assert peer.session.protocol == "gearman-draft"
    peer.leave()
    assert not harness.setup.sessions


def test_a_connection_that_leaves_without_a_word() -> None:
    harness = MixedHarness()
    harness.talker("peer").leave()
    harness.talker("other").send(b"\0J")
    harness.talker("other").leave()
    assert not harness.setup.sessions


# --- who is not welcome ---

# Those that are told by a fixed number of bytes, in which there may be a line's end, or a NUL first; and some of HTTP.
BEGINNINGS = [
    b"\0\0\0\x08\x04\xd2\x16\x2f",  # PostgreSQL
    b"\xff\0\0\0\0\0\0\0\x0a\x7f",  # ZeroMQ, with a name of nine bytes
    b"\x80\x0a\x01\x03\x01",  # SSL 2
    b"GET \nhost:1 H",
    b"OPTIONS *\nmore\n",
    b"OPTIONS *more\n",
    b"\0E HTTP/1.1\r\n",
]


@pytest.mark.parametrize("data", BEGINNINGS, ids=repr)
def test_who_is_not_welcome_is_told_the_same_in_whatever_slices_it_comes(data: bytes) -> None:
    def said(size: int) -> tuple[bytes, list[tuple[str, str]]]:
        harness = MixedHarness()
        harness.detector = replace(harness.detector, name="Gearman", own=frozenset({GEARMAN, DRAFT}))
        peer = harness.talker("peer")
        for position in range(0, len(data), size):
            if not peer.wire.is_closed:
                peer.send(data[position : position + size])
        return peer.take_bytes(), harness.bad_input

    whole = said(len(data))
    assert len(whole[1]) == 1
    assert [said(size) for size in range(1, len(data))] == [whole] * (len(data) - 1)


class GuardedListener(DetectingListener):
    """A connection whose first line must be `begin`, and where HTTP is not spoken."""

    def __init__(self) -> None:
        super().__init__()
        detector = ProtocolDetector(
            self._maker("usual"),
            name="Usual",
            own=frozenset({GEARMAN, DRAFT}),
            refuse_line=lambda line: b"" if line == b"begin" else b"no such command\n",
        )
        self.speakers.clear()
        self.wire.session = DetectingSession(self.harness, self.wire, detector)

    @property
    def said(self) -> bytes:
        return b"".join(self.session.out)

    @property
    def heard(self) -> bytes:
        return b"".join(self.speakers[0].heard)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_first_line_that_is_a_command_opens_the_conversation(size: int) -> None:
    listener = GuardedListener()
    data = b"begin\r\nanything\n"
    for start in range(0, len(data), size):
        listener.receive(data[start : start + size])
    assert listener.heard == data
    assert not listener.session.closing


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("first", "answer"),
    [(b"GET / HTTP/1.1\r\n", b"HTTP/1.1 400 "), (b"hallo\n", b"no such command\n"), (b"\n", b"no ")],
)
def test_after_anything_else_nothing_is_heard(first: bytes, answer: bytes, size: int) -> None:
    listener = GuardedListener()
    data = first + b"begin\nanything\n"
    for start in range(0, len(data), size):
        listener.receive(data[start : start + size])
    assert listener.said.startswith(answer)
    assert listener.session.closing
    assert listener.heard == b""
    assert len(listener.harness.bad_input) == 1


def test_a_first_line_without_end_is_held_up_to_a_limit() -> None:
    listener = GuardedListener()
    listener.receive(b"x" * 8000)
    assert listener.session.buffered_bytes == 8000
    assert not listener.session.closing
    listener.receive(b"x" * 200)
    assert listener.session.closing
    assert (listener.said, listener.heard, listener.session.buffered_bytes) == (b"", b"", 0)


def test_packets_are_not_held() -> None:
    listener = GuardedListener()
    listener.receive(b"\0")
    assert listener.heard == b"\0"


@pytest.mark.parametrize("start", [b"\0REQ\0\0\0\1", b"\0JOB\0\0"])
def test_gearman_at_a_port_of_another_protocol_is_told_so_in_whatever_slices_it_comes(start: bytes) -> None:
    for size in range(1, len(start) + 1):
        harness = MixedHarness()
        harness.detector = replace(harness.detector, name="HTTP", own=frozenset({HTTP}), others=())
        peer = harness.talker("peer")
        for place in range(0, len(start), size):
            if not peer.wire.is_closed:
                peer.send(start[place : place + size])
        assert [code for _, code in harness.bad_input] == ["FOREIGN_PROTOCOL"], size
