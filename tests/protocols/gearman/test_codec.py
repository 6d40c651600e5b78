"""The decoder: packets, lines, limits, and what is neither."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.protocols.gearman.codec import (
    FOREIGN_MAGIC,
    LONG,
    LONG_START,
    REQUEST,
    RESPONSE,
    TEXT,
    GearmanDecoder,
    JobPackets,
    request,
    response,
)
from switchgear.protocols.gearman.messages import BEFORE_PAYLOAD, Packet
from tests.support import wire

PACKET_BYTES = 100
LINE_BYTES = 40

Message = tuple[int, bytes]


@dataclass(frozen=True)
class Decoded:
    messages: list[Message]
    failure: tuple[str, str] | None  # code and text
    held: int = 0


def decode(*pieces: bytes, magic: int = REQUEST) -> Decoded:
    decoder = GearmanDecoder(magic, PACKET_BYTES, LINE_BYTES)
    messages = []
    for piece in pieces:
        messages += decoder.feed(piece)
        assert decoder.buffered_bytes < max(PACKET_BYTES + 12, LINE_BYTES)
    failure = decoder.failure
    if failure is not None:
        assert failure.framing_lost
        assert decoder.buffered_bytes == 0
    return Decoded(messages, (failure.code, str(failure)) if failure else None, decoder.buffered_bytes)


def header(magic: bytes, kind: int, size: int) -> bytes:
    return struct.pack(">4sII", magic, kind, size)


# --- writing ---


@pytest.mark.parametrize("arguments", [(), (b"",), (b"f", b"", b"pay\0load")])
def test_packets_are_written_as_others_write_them(arguments: tuple[bytes, ...]) -> None:
    assert request(Packet.SUBMIT_JOB, *arguments) == wire.request(7, *arguments)
    assert response(Packet.JOB_CREATED, *arguments) == wire.request(8, *arguments, magic=wire.RES)


def test_the_header_to_the_byte() -> None:
    assert request(Packet.ECHO_REQ, b"a", b"b") == b"\0REQ\0\0\0\x10\0\0\0\x03a\0b"
    assert response(Packet.NOOP) == b"\0RES\0\0\0\x06\0\0\0\0"


# Around powers of ten, where ids become longer, up to the largest that a store can hold.
JOB_IDS = st.one_of(
    st.integers(1, 2**63 - 1),
    st.tuples(st.integers(0, 18), st.integers(-1, 1)).map(lambda pair: max(1, 10 ** pair[0] + pair[1])),
    st.just(2**63 - 1),
)


@given(st.lists(st.tuples(st.sampled_from([b"H:a:", b"H:another:"]), JOB_IDS, st.binary(max_size=20)), max_size=10))
@settings(deadline=None)  # how long it takes says more about the machine
def test_packets_about_jobs_begin_with_their_size_and_handle(packets: list[tuple[bytes, int, bytes]]) -> None:
    maker = JobPackets(Packet.WORK_COMPLETE)
    for prefix, job_id, result in packets:
        start = maker.start(prefix, job_id, len(result) + 1)
        handle = b"%b%d" % (prefix, job_id)
        assert b"%b%d\0%b" % (start, job_id, result) == wire.request(13, handle, result, magic=wire.RES)


# --- packets ---


@pytest.mark.parametrize("kind", [*Packet, 0, 43, 2**31, 2**32 - 1], ids=str)
@pytest.mark.parametrize("body", [b"", b"f", b"f\0u\0data", b"\0\0\0", b"x" * PACKET_BYTES])
def test_any_type_and_body_is_a_packet(kind: int, body: bytes) -> None:
    stream = header(wire.REQ, kind, len(body)) + body
    assert decode(stream) == Decoded([(kind, body)], None)
    assert decode(stream + stream) == Decoded([(kind, body)] * 2, None)
    assert decode(stream, magic=RESPONSE) == Decoded([(FOREIGN_MAGIC, b"")], None)


def test_the_same_decoder_reads_answers() -> None:
    stream = wire.request(8, b"H:1", magic=wire.RES) + b"OK\r\n" + wire.request(6, magic=wire.REQ)
    assert decode(stream, magic=RESPONSE) == Decoded([(8, b"H:1"), (TEXT, b"OK"), (FOREIGN_MAGIC, b"")], None)


def test_a_packet_that_goes_the_other_way_is_skipped_with_its_body() -> None:
    stream = wire.request(16, b"x\ny\0", magic=wire.RES) + wire.request(16, b"z")
    assert decode(stream) == Decoded([(FOREIGN_MAGIC, b""), (16, b"z")], None)


# --- lines ---


@pytest.mark.parametrize(
    ("stream", "lines"),
    [
        (b"status\n", [b"status"]),
        (b"status\r\n", [b"status"]),
        (b"\n", [b""]),
        (b"\r\n", [b""]),
        (b"\r\r\n", [b"\r"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"a\0b\n", [b"a\0b"]),
        (b"\xff\n", [b"\xff"]),
        (b" one \n\ttwo\n", [b" one ", b"\ttwo"]),
        (b"x" * (LINE_BYTES - 1) + b"\n", [b"x" * (LINE_BYTES - 1)]),
        (b"a\nb\nc\n" * 20, [b"a", b"b", b"c"] * 20),
    ],
)
def test_lines(stream: bytes, lines: list[bytes]) -> None:
    assert decode(stream) == Decoded([(TEXT, line) for line in lines], None)


def test_lines_and_packets_in_one_stream() -> None:
    stream = b"status\n" + wire.request(9) + b"\n" + wire.request(16, b"a\nb") + b"version\r\n"
    assert decode(stream) == Decoded(
        [(TEXT, b"status"), (9, b""), (TEXT, b""), (16, b"a\nb"), (TEXT, b"version")], None
    )


# --- what is not whole yet ---


@pytest.mark.parametrize(
    "stream",
    [
        b"\0",
        b"\0R",
        b"\0RE",
        b"\0REQ",
        b"\0RES",
        b"\0REQ\0\0\0\x10\0\0\0",
        b"sta",
        b"status\r",
        wire.request(16, b"x")[:-1],
    ],
)
@pytest.mark.parametrize("before", [b"", b"version\n", wire.request(9)])
def test_the_beginning_of_a_message_is_held(before: bytes, stream: bytes) -> None:
    decoded = decode(before, stream)
    assert decode(before + stream) == decoded
    assert decoded.failure is None
    assert decoded.held == len(stream)
    assert len(decoded.messages) == bool(before)


def test_nothing_is_reserved_for_what_is_only_announced() -> None:
    decoder = GearmanDecoder(REQUEST, 2**32, 100)
    assert decoder.feed(header(wire.REQ, 16, 2**32 - 1) + b"begin") == []
    assert decoder.failure is None
    assert decoder.buffered_bytes == 5  # of the body of a long packet; the header is understood


def test_a_large_packet_in_many_pieces() -> None:
    body = bytes(range(256)) * 4000
    decoder = GearmanDecoder(REQUEST, len(body))
    stream = wire.request(16, body)
    messages = []
    for start in range(0, len(stream), 1000):
        messages += decoder.feed(stream[start : start + 1000])
    assert messages == [(16, body)]
    assert decoder.buffered_bytes == 0


# --- long packets, of which the payload is not copied again ---


def long_decoder(packet_bytes: int = 10_000) -> GearmanDecoder:
    """As the server has it, but for which everything from 20 bytes on is long."""
    decoder = GearmanDecoder(REQUEST, packet_bytes, LINE_BYTES, BEFORE_PAYLOAD)
    decoder.long_bytes = 20
    return decoder


@pytest.mark.parametrize("cut", range(1, 12 + 40))
def test_a_long_packet_is_its_arguments_and_its_payload(cut: int) -> None:
    stream = wire.request(18, b"name", b"key", b"pay\0load" * 4)
    decoder = long_decoder()
    messages = decoder.feed(stream[:cut]) + decoder.feed(stream[cut:] + wire.request(16, b"z"))
    if cut < 12 + len(b"name\0key\0"):  # the rest of it is there before it is known to be long
        assert messages == [(18, b"name\0key\0" + b"pay\0load" * 4), (16, b"z")]
    else:
        assert messages == [(LONG_START, b"name\0key\0"), (LONG - 18, b"pay\0load" * 4), (16, b"z")]
    assert decoder.buffered_bytes == 0


def test_what_a_long_packet_misses_is_known() -> None:
    stream = wire.request(18, b"name", b"key", bytes(1000))
    decoder = long_decoder()
    assert decoder.feed(stream[:500]) == []
    assert decoder.awaited_bytes == len(stream) - 500
    assert decoder.buffered_bytes == 500 - 12
    assert len(decoder.feed(stream[500:])) == 2
    assert decoder.awaited_bytes == 0


def test_a_long_packet_without_a_payload_is_one_message() -> None:
    stream = wire.request(1, b"name" * 10)
    decoder = long_decoder()
    assert [*decoder.feed(stream[:30]), *decoder.feed(stream[30:])] == [(1, b"name" * 10)]


def test_a_long_packet_that_goes_the_other_way_is_skipped() -> None:
    stream = wire.request(18, b"name" * 10, magic=wire.RES)
    decoder = long_decoder()
    assert [*decoder.feed(stream[:30]), *decoder.feed(stream[30:])] == [(FOREIGN_MAGIC, b"")]


def test_what_is_no_payload_may_not_be_very_long() -> None:
    for kind in (1, 1001):
        decoder = long_decoder(2**30)
        assert decoder.feed(header(wire.REQ, kind, 6 * 2**20) + b"begin") == []
        assert decoder.failure is not None
        assert decoder.failure.code == "ARGUMENT_TOO_LARGE"
        assert decoder.buffered_bytes == 0


def test_arguments_before_a_payload_may_not_be_very_long() -> None:
    decoder = long_decoder(2**30)
    assert decoder.feed(header(wire.REQ, 18, 2**29)) == []
    for _ in range(11):
        assert decoder.feed(b"x" * 2**20) == []
    assert decoder.failure is not None
    assert decoder.failure.code == "ARGUMENT_TOO_LARGE"


# --- what is no message ---


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (b"\0X", "INVALID_MAGIC"),
        (b"\0\0", "INVALID_MAGIC"),
        (b"\0REX", "INVALID_MAGIC"),
        (b"\0req", "INVALID_MAGIC"),
        (b"\0XXX" + bytes(8), "INVALID_MAGIC"),
        (b"\0\0\0\0\x03\0\0\0\x04resize", "INVALID_MAGIC"),  # the draft of 2005
        (header(wire.REQ, 16, PACKET_BYTES + 1), "ARGUMENT_TOO_LARGE"),
        (header(wire.REQ, 16, PACKET_BYTES + 1) + bytes(PACKET_BYTES + 1), "ARGUMENT_TOO_LARGE"),
        (header(wire.RES, 16, PACKET_BYTES + 1) + bytes(PACKET_BYTES + 1), "ARGUMENT_TOO_LARGE"),
        (header(wire.REQ, 16, 2**32 - 1), "ARGUMENT_TOO_LARGE"),
        (b"x" * LINE_BYTES, "LINE_TOO_LONG"),
        (b"x" * LINE_BYTES + b"\n", "LINE_TOO_LONG"),
        (b"x" * LINE_BYTES * 3, "LINE_TOO_LONG"),
        # The length was one too short, so what follows is no beginning of a message.
        (header(wire.REQ, 7, 3) + b"f\0u\0data", "INVALID_MAGIC"),
    ],
)
@pytest.mark.parametrize("before", [b"", b"version\n", wire.request(9)])
def test_where_framing_is_lost(before: bytes, stream: bytes, code: str) -> None:
    whole = decode(before + stream)
    assert whole.failure is not None
    assert whole.failure[0] == code
    assert len(whole.messages) >= bool(before)
    assert decode(*(bytes([byte]) for byte in before + stream)) == whole


def test_after_a_failure_nothing_is_understood() -> None:
    decoder = GearmanDecoder(REQUEST, PACKET_BYTES, LINE_BYTES)
    decoder.feed(b"\0XXX")
    failure = decoder.failure
    assert failure is not None
    assert decoder.feed(b"version\n" + wire.request(9)) == []
    assert decoder.failure is failure
    assert decoder.buffered_bytes == 0


def test_what_came_before_a_failure_in_the_same_piece_was_still_decoded() -> None:
    assert decode(wire.request(16, b"x") + b"version\n\0XXX").messages == [(16, b"x"), (TEXT, b"version")]


# --- slicing ---

bodies = st.binary(max_size=30) | st.binary(min_size=PACKET_BYTES - 1, max_size=PACKET_BYTES + 1)
packets = st.builds(
    lambda kind, body, magic: header(magic, kind, len(body)) + body,
    st.integers(0, 45) | st.integers(0, 2**32 - 1),
    bodies,
    st.sampled_from([wire.REQ, wire.REQ, wire.REQ, wire.RES]),
)
liars = st.builds(
    lambda body, size: header(wire.REQ, 16, size) + body, st.binary(max_size=20), st.integers(0, PACKET_BYTES + 2)
)
lines = st.builds(
    lambda text, end: text.replace(b"\n", b"") + end,
    st.binary(min_size=1, max_size=LINE_BYTES + 2).map(lambda text: text.lstrip(b"\0") or b"x"),
    st.sampled_from([b"\n", b"\r\n"]),
)
garbage = st.binary(max_size=20) | st.sampled_from([b"\0", b"\0R", b"\0RE", b"\0X", b"\0REQ", b"\r", b""])
streams = st.lists(st.one_of(packets, packets, lines, lines, liars, garbage), max_size=12).map(b"".join)


@settings(max_examples=400, deadline=None)
@given(streams, st.randoms(use_true_random=False))
def test_slicing_never_matters(stream: bytes, random: Random) -> None:
    whole = decode(stream)
    assert decode(*(stream[i : i + 1] for i in range(len(stream)))) == whole
    cuts = sorted(random.randint(0, len(stream)) for _ in range(random.randint(0, 6)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)])]
    assert decode(*pieces) == whole


@settings(max_examples=200, deadline=None)
@given(st.lists(packets.filter(lambda packet: packet[1:4] == b"REQ" and len(packet) <= 12 + PACKET_BYTES), max_size=10))
def test_what_is_written_is_read(stream: list[bytes]) -> None:
    decoded = decode(b"".join(stream))
    assert [header(wire.REQ, kind, len(body)) + body for kind, body in decoded.messages] == stream
    assert decoded.failure is None
    assert decoded.held == 0
