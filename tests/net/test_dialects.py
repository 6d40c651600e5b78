"""Several protocols at one door, told apart by the first bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from switchgear.errors import Refused
from switchgear.net.dialects import Dialect, Dialects, SessionMaker
from switchgear.net.foreign import DRAFT, GEARMAN
from switchgear.protocols.base import Context, Session, Wire
from tests.protocols.gearman.house import FakeWire, House
from tests.protocols.gearman_draft.house import MixedHouse
from tests.support.draft_wire import ASK


class Speaker(Session):
    """Remembers what it was told."""

    def __init__(self, context: Context, wire: Wire, protocol: str) -> None:
        super().__init__(context, wire)
        self.protocol = protocol
        self.heard: list[bytes] = []
        self.is_closed = False

    def receive(self, data: bytes) -> None:
        self.heard.append(data)

    def closed(self) -> None:
        self.is_closed = True

    def refusal(self, refused: Refused) -> bytes:
        return self.protocol.encode()


class Door:
    """A connection at which three protocols are spoken."""

    def __init__(self) -> None:
        self.speakers: list[Speaker] = []
        dialects = Dialects(
            self._maker("usual"), (Dialect(b"\0JOB", self._maker("job")), Dialect(b"\0JAM!", self._maker("jam")))
        )
        self.house = House()
        self.wire = FakeWire(1)
        self.wire.session = dialects(self.house, self.wire)

    def _maker(self, protocol: str) -> SessionMaker:
        def make(context: Context, wire: Wire) -> Session:
            self.speakers.append(Speaker(context, wire, protocol))
            return self.speakers[-1]

        return make

    @property
    def session(self) -> Session:
        assert self.wire.session is not None
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
        door = Door()
        slices = [data[i : i + size] for i in range(0, len(data), size)]
        for piece in slices:
            door.receive(piece)
        speaker = door.session
        assert isinstance(speaker, Speaker), slices
        assert speaker.protocol == protocol
        assert b"".join(speaker.heard) == data
        assert [other.is_closed for other in door.speakers if other is not speaker] in ([], [True])


@pytest.mark.parametrize("start", [b"\0", b"\0J", b"\0JO", b"\0JA", b"\0JAM"])
def test_who_has_not_said_enough_is_not_judged(start: bytes) -> None:
    door = Door()
    door.receive(start)
    assert [speaker.protocol for speaker in door.speakers] == ["usual"]
    assert door.speakers[0].heard == []
    assert door.session.protocol == "usual"
    assert door.session.refusal(Refused("full", "")) == b"usual"
    door.session.closed()
    assert door.speakers[0].is_closed


def test_later_data_goes_straight_to_the_session() -> None:
    door = Door()
    door.receive(b"\0JOB")
    session = door.session
    door.receive(b"\0REQ")
    assert door.session is session
    assert door.speakers[-1].heard == [b"\0JOB", b"\0REQ"]


def test_a_connection_that_has_said_nothing_is_shown_where_connections_are_listed() -> None:
    house = MixedHouse()
    peer = house.talker("peer")
    for piece in (b"", ASK[:1], ASK[1:3]):
        peer.send(piece)
        (listed,) = house.setup.sessions
        assert listed.wire is peer.wire
    peer.send(ASK[3:])
    assert list(house.setup.sessions) == [peer.draft]
    assert peer.session.protocol == "gearman-draft"
    peer.leave()
    assert not house.setup.sessions


def test_a_connection_that_leaves_without_a_word() -> None:
    house = MixedHouse()
    house.talker("peer").leave()
    house.talker("other").send(b"\0J")
    house.talker("other").leave()
    assert not house.setup.sessions


# --- who is not welcome ---

# Those that are told by a fixed number of bytes, in which there may be a line's end, or a NUL first; and some of HTTP.
BEGINNINGS = [
    b"\0\0\0\x08\x04\xd2\x16\x2f",  # PostgreSQL
    b"\xff\0\0\0\0\0\0\0\x0a\x7f",  # ZeroMQ, with a name of nine bytes
    b"\x80\x0a\x01\x03\x01",  # SSL 2
    b"GET \nhost:1 H",
    b"OPTIONS *\nmore\n",
    b"OPTIONS *more\n",
]


@pytest.mark.parametrize("data", BEGINNINGS, ids=repr)
def test_who_is_not_welcome_is_told_the_same_in_whatever_slices_it_comes(data: bytes) -> None:
    def said(size: int) -> tuple[bytes, list[tuple[str, str]]]:
        house = MixedHouse()
        house.dialects = replace(house.dialects, spoken="Gearman", own=frozenset({GEARMAN, DRAFT}))
        peer = house.talker("peer")
        for position in range(0, len(data), size):
            if not peer.wire.is_closed:
                peer.send(data[position : position + size])
        return peer.take_bytes(), house.bad_input

    whole = said(len(data))
    assert len(whole[1]) == 1
    assert [said(size) for size in range(1, len(data))] == [whole] * (len(data) - 1)


class GuardedDoor(Door):
    """A connection whose first line must be `begin`, and where HTTP is not spoken."""

    def __init__(self) -> None:
        super().__init__()
        dialects = Dialects(
            self._maker("usual"),
            spoken="Usual",
            refuse_line=lambda line: b"" if line == b"begin" else b"no such command\n",
        )
        self.speakers.clear()
        self.wire.session = dialects(self.house, self.wire)

    @property
    def said(self) -> bytes:
        return b"".join(self.session.out)

    @property
    def heard(self) -> bytes:
        return b"".join(self.speakers[0].heard)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_first_line_that_is_a_command_opens_the_conversation(size: int) -> None:
    door = GuardedDoor()
    data = b"begin\r\nanything\n"
    for start in range(0, len(data), size):
        door.receive(data[start : start + size])
    assert door.heard == data
    assert not door.session.closing


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("first", "answer"),
    [(b"GET / HTTP/1.1\r\n", b"HTTP/1.1 400 "), (b"hallo\n", b"no such command\n"), (b"\n", b"no ")],
)
def test_after_anything_else_nothing_is_heard(first: bytes, answer: bytes, size: int) -> None:
    door = GuardedDoor()
    data = first + b"begin\nanything\n"
    for start in range(0, len(data), size):
        door.receive(data[start : start + size])
    assert door.said.startswith(answer)
    assert door.session.closing
    assert door.heard == b""
    assert len(door.house.bad_input) == 1


def test_a_first_line_without_end_is_held_up_to_a_limit() -> None:
    door = GuardedDoor()
    door.receive(b"x" * 8000)
    assert door.session.buffered_bytes == 8000
    assert not door.session.closing
    door.receive(b"x" * 200)
    assert door.session.closing
    assert (door.said, door.heard, door.session.buffered_bytes) == (b"", b"", 0)


def test_packets_are_not_held() -> None:
    door = GuardedDoor()
    door.receive(b"\0")
    assert door.heard == b"\0"
