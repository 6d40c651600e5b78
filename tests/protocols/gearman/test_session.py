"""One connection: what it makes of its stream, and that nothing depends on how the stream was cut."""

from __future__ import annotations

import struct
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.protocols.gearman.messages import ARGUMENTS, EXTENSIONS, NOT_REQUESTS, Packet
from switchgear.protocols.gearman.packet_dispatch import ON_REQUEST
from switchgear.protocols.gearman.session import split
from tests.protocols.gearman.conversations import Said, cut, listen, sayings
from tests.protocols.gearman.harness import LINE_BYTES, PACKET_BYTES, Harness
from tests.protocols.gearman.transcript import FOLDER, MANNERS, Transcript, load, play
from tests.support.wire import Kind, Line, request
from tests.support.wire import Packet as Heard


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("transcript", load("framing"), ids=str)
def test_what_is_no_packet(transcript: Transcript, manner: str) -> None:
    play(transcript, manner)


# --- the table of packets ---


@pytest.mark.parametrize("packet", Packet, ids=lambda packet: packet.name)
def test_every_packet_is_a_request_or_listed_as_none(packet: Packet) -> None:
    is_request = packet in ON_REQUEST
    assert is_request != (packet in NOT_REQUESTS)
    assert is_request == (packet in ARGUMENTS)


def test_the_tables_know_no_other_packets() -> None:
    assert set(ON_REQUEST) | NOT_REQUESTS == set(Packet)
    assert {packet for packet in Packet if packet >= 1000} == EXTENSIONS


def test_the_numbers_are_those_of_gearmand() -> None:
    ours = {packet.name: int(packet) for packet in Packet if packet not in EXTENSIONS}
    assert ours == {kind.name: int(kind) for kind in Kind}


@pytest.mark.parametrize("packet", Packet, ids=lambda packet: packet.name)
def test_every_packet_is_said_in_some_conversation(packet: Packet) -> None:
    said = {line.split()[2] for path in FOLDER.glob("*.txt") for line in path.read_text().splitlines() if " > " in line}
    assert packet.name in said


@pytest.mark.parametrize("packet", [packet for packet, count in ARGUMENTS.items() if count > 1], ids=str)
def test_arguments_are_counted(packet: Packet) -> None:
    count = ARGUMENTS[packet]
    words = [b"%d" % n for n in range(count)]
    assert split(b"\0".join(words) + b"\0last has NULs\0", packet) == [*words[:-1], words[-1] + b"\0last has NULs\0"]
    harness = Harness()
    talker = harness.talker("peer")
    talker.send(request(packet, *words[:-1]))
    (error,) = talker.heard()
    assert isinstance(error, Heard)
    assert error.type == Kind.ERROR
    assert error.body.startswith(b"INVALID_PACKET\0")
    assert harness.bad_input == [("peer", "INVALID_PACKET")]


# --- bad input is counted, and the rest is not disturbed ---


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        (b"\0XXX", ["INVALID_MAGIC"]),
        (struct.pack(">4sII", b"\0REQ", 16, PACKET_BYTES + 1), ["ARGUMENT_TOO_LARGE"]),
        (b"x" * LINE_BYTES, ["LINE_TOO_LONG"]),
        (request(Kind.ECHO_REQ, magic=b"\0RES"), ["INVALID_MAGIC"]),
        (request(Kind.NOOP) + request(77), ["INVALID_COMMAND", "INVALID_COMMAND"]),
        (request(Kind.SUBMIT_JOB, b"f"), ["INVALID_PACKET"]),
        (request(Kind.SUBMIT_JOB, b"f", b"u" * 65, b""), ["ARGUMENT_TOO_LARGE"]),
        (b"one two three four five six\n", ["TOO_MANY_WORDS"]),
        (b"nonsense\n", ["UNKNOWN_COMMAND"]),
        (b"create function %b\n" % (b"n" * 65), ["ARGUMENT_TOO_LARGE"]),
    ],
)
def test_bad_input_is_counted(data: bytes, codes: list[str]) -> None:
    harness = Harness()
    harness.talker("stranger").send(data)
    assert harness.bad_input == [("stranger", code) for code in codes]


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        (request(Kind.GET_STATUS, b"unknown"), []),
        (request(Kind.OPTION_REQ, b"unknown"), []),
        (request(Kind.WORK_COMPLETE, b"unknown", b""), []),
        (b"show nothing\n", []),
    ],
)
def test_what_may_happen_to_anybody_is_not_counted_as_bad_input(data: bytes, codes: list[str]) -> None:
    harness = Harness()
    harness.talker("peer").send(data)
    assert harness.bad_input == []


def test_a_line_that_is_too_long_gets_no_packet_in_answer() -> None:
    harness = Harness()
    talker = harness.talker("peer")
    talker.send(b"version\n" + b"x" * LINE_BYTES)
    assert talker.heard() == [Line(b"OK test\n")]
    assert talker.wire.is_closed


def test_nothing_is_understood_after_the_end_of_the_conversation() -> None:
    harness = Harness()
    talker = harness.talker("peer")
    talker.send(b"\0XXX")
    talker.take_bytes()
    talker.session.receive(request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x") + b"version\n")
    assert not talker.session.out
    assert not harness.engine.jobs


def test_five_thousand_requests_in_one_piece_are_answered_in_order() -> None:
    harness = Harness()
    talker = harness.talker("peer")
    talker.send(*(request(Kind.ECHO_REQ, b"%d" % n) for n in range(5000)))
    assert talker.heard() == [Heard(Kind.ECHO_RES, b"%d" % n) for n in range(5000)]


# --- answers that are longer than the requests ---

ALL = [
    transcript
    for name in ("clients", "workers", "admin", "framing", "credits", "watching")
    for transcript in load(name)
]


@pytest.mark.parametrize("transcript", ALL, ids=str)
def test_requests_that_are_put_off_are_answered_all_the_same(transcript: Transcript) -> None:
    play(transcript, long_bytes=1, long_answer_bytes=1)


@pytest.mark.parametrize("question", [b"show jobs\n", request(1001, b"jobs", b"{}"), request(Kind.GRAB_JOB)])
def test_small_questions_cannot_fill_the_memory_with_answers(question: bytes) -> None:
    harness = Harness(long_bytes=50_000)
    harness.talker("client").send(*[request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x" * 5_000)] * 100)
    peer = harness.talker("peer")
    harness.peers_read = False
    peer.send(request(Kind.CAN_DO, b"f"), *[question] * 300, request(Kind.ECHO_REQ, b"last"))
    assert 0 < len(peer.wire.written) < 50_000 + 2 * 100_000
    assert peer.session.deferred
    harness.peers_read = True
    peer.session.go_on()
    harness.end_turn()
    assert peer.take_bytes().endswith(b"last")
    assert not peer.session.deferred


def test_who_stops_sending_gets_the_answers_that_were_put_off() -> None:
    harness = Harness(long_bytes=1)
    peer = harness.talker("peer")
    harness.peers_read = False
    peer.send(b"version\nversion\nversion\n")
    peer.stop_sending()
    assert peer.take_bytes() == b"OK test\n"
    assert not peer.wire.is_closed
    harness.peers_read = True
    peer.session.go_on()
    harness.end_turn()
    assert peer.take_bytes() == b"OK test\nOK test\n"
    assert peer.wire.is_closed


def test_a_session_leaves_nothing_behind() -> None:
    harness = Harness()
    talker = harness.talker("both")
    talker.send(request(Kind.CAN_DO, b"f"), request(Kind.SUBMIT_JOB, b"f", b"key", b"x"), request(Kind.GRAB_JOB))
    talker.send(request(Kind.SUBMIT_JOB, b"f", b"other", b"x"), request(Kind.PRE_SLEEP))
    talker.leave()
    assert not harness.setup.sessions
    assert not harness.engine.workers
    assert not harness.engine.jobs
    assert not talker.session.subscriptions


# --- slicing ---


@settings(max_examples=150, deadline=None)
@given(st.lists(sayings, max_size=30), st.randoms(use_true_random=False))
def test_slicing_never_matters(conversation: list[Said], random: Random) -> None:
    whole = listen((who, [data]) for who, data in conversation)
    single_bytes = listen((who, [data[i : i + 1] for i in range(len(data))]) for who, data in conversation)
    assert single_bytes == whole
    assert listen(cut(conversation, random)) == whole
