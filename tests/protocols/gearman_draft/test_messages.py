"""Packets: their numbers, their bodies, and the table of who takes what."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.errors import PeerError
from switchgear.protocols.gearman_draft import messages
from switchgear.protocols.gearman_draft.codec import DraftDecoder, packet
from switchgear.protocols.gearman_draft.messages import (
    FROM_SERVER,
    WITHOUT_BODY,
    Assignment,
    Completion,
    ErrorReport,
    JobRequest,
    JobType,
    Packet,
    Progress,
    Result,
    join_names,
    split_names,
)
from switchgear.protocols.gearman_draft.session import ON_PACKET
from tests.protocols.gearman_draft.harness import MixedHarness
from tests.support import draft_wire
from tests.support.draft_wire import ErrorCode, Kind

DOCUMENT = Path(__file__).parents[3] / "docs" / "protocols" / "gearman-draft.md"

numbers = st.integers(0, 2**32 - 1)
codes = st.integers(0, 255)
words = st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=20).map(str.encode)
binary = st.binary(max_size=40)


def test_the_numbers_are_those_of_the_document() -> None:
    assert {kind.name.lower(): int(kind) for kind in Packet} == {kind.name: int(kind) for kind in Kind}
    assert {code.name.lower(): int(code) for code in messages.ErrorCode} == {code.name: int(code) for code in ErrorCode}
    assert [int(job_type) for job_type in JobType] == [draft_wire.WAIT, draft_wire.HANDLE, draft_wire.THROW_AWAY]


def test_the_document_lists_every_packet_and_every_error() -> None:
    text = DOCUMENT.read_text()
    for kind in Packet:
        assert f"| 0x{kind:02X} | {kind.name.lower()} |" in text
    for code in messages.ErrorCode:
        assert f"| {code} | {code.name.lower().replace('_', ' ')} |" in text


@pytest.mark.parametrize("kind", Packet, ids=lambda kind: kind.name)
def test_every_packet_is_taken_or_comes_from_a_server(kind: Packet) -> None:
    assert (kind in ON_PACKET) != (kind in FROM_SERVER)


def test_the_tables_know_no_other_packets() -> None:
    assert set(ON_PACKET) | FROM_SERVER == set(Packet)
    assert set(Packet) >= WITHOUT_BODY


@pytest.mark.parametrize("kind", range(256))
def test_no_type_goes_without_an_answer_or_an_effect(kind: int) -> None:
    harness = MixedHarness()
    peer = harness.talker("peer")
    peer.send(draft_wire.packet(kind, b"x"))
    answers = peer.packets()
    if kind == Kind.worker_connect:  # the one that a body of one letter suits
        assert not answers
        assert [worker.protocol for worker in harness.engine.workers.values()] == ["gearman-draft"]
    else:
        assert [answer.kind for answer in answers] == [Kind.error]
    assert not peer.wire.is_closed


def test_the_header_is_nine_bytes() -> None:
    assert packet(Packet.NOOP) == b"\0JOB\0\0\0\0\0"
    assert packet(Packet.JOB_COMPLETE_RES, b"x" * 258) == b"\0JOB\x0d\0\0\x01\x02" + b"x" * 258


@given(
    st.one_of(
        st.builds(JobRequest, words, words | st.just(b""), st.sampled_from(JobType), binary, codes),
        st.builds(Assignment, words, binary),
        st.builds(Progress, numbers, numbers, numbers),
        st.builds(Result, codes, binary),
        st.builds(Completion, numbers, codes, binary),
        st.builds(ErrorReport, codes, words.map(bytes.decode)),
    )
)
def test_what_is_packed_is_unpacked(message: Any) -> None:
    assert type(message).unpack(message.pack()) == message


@given(st.lists(words, unique=True, max_size=5))
def test_names_are_joined_and_split(names: list[bytes]) -> None:
    assert split_names(join_names(names), 1000) == names


@pytest.mark.parametrize(
    "unpack",
    [Assignment.unpack, Completion.unpack, ErrorReport.unpack, JobRequest.unpack, Progress.unpack, Result.unpack],
)
@given(data=st.binary(max_size=14))
def test_nothing_but_a_peer_error_comes_of_any_body(unpack: Callable[[bytes], object], data: bytes) -> None:
    with suppress(PeerError):
        unpack(data)


def test_figures_are_kept_within_what_four_bytes_hold() -> None:
    assert Progress(2**40, -1, 2**32).pack() == b"\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff"
    assert Completion(2**40, 1, b"x").pack() == b"\xff\xff\xff\xff\x01x"


def test_a_result_code_is_one_byte() -> None:
    with pytest.raises(ValueError, match="0 to 255, not 256"):
        Result(256).pack()


@given(st.lists(st.tuples(codes, binary), max_size=6), st.data())
def test_the_decoder_finds_the_packets_in_any_slices(wanted: list[tuple[int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(packet(kind, body) for kind, body in wanted)
    decoder = DraftDecoder(100)
    found = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += decoder.feed(stream[:size])
        stream = stream[size:]
    assert found == wanted
    assert decoder.failure is None
    assert decoder.buffered_bytes == 0


def test_the_decoder_holds_no_more_than_it_was_given() -> None:
    decoder = DraftDecoder(2**32 - 1)
    assert decoder.feed(b"\0JOB\x04\xff\xff\xff\xff") == []
    for _ in range(1000):
        assert decoder.feed(b"x") == []
    assert decoder.buffered_bytes == 1000  # the header is understood


def test_the_decoder_understands_nothing_after_a_failure() -> None:
    decoder = DraftDecoder(100)
    assert decoder.feed(b"nonsense") == []
    assert decoder.failure is not None
    assert decoder.feed(packet(Packet.NOOP)) == []


def test_very_many_names_are_refused_before_they_are_told_apart() -> None:
    assert len(split_names(b"a\0b\0c\0", 3)) == len(split_names(b"a\0b\0c", 3)) == 3
    with pytest.raises(PeerError, match="more than 1000 job names"):
        split_names(b"ab\0" * 20_000_000, 1000)
