"""Whole conversations, in every way they can be cut."""

from __future__ import annotations

import pytest

from switchgear.testing.invariants import check_engine
from tests.protocols.gearman_draft.transcript import FOLDER, MANNERS, Transcript, load, play
from tests.support.draft_wire import ErrorCode, Kind

FILES = ("applications", "workers", "framing", "mixed")
TRANSCRIPTS = [transcript for name in FILES for transcript in load(name)]
TEXT = "".join((FOLDER / f"{name}.txt").read_text() for name in FILES)


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=str)
def test_conversation(transcript: Transcript, manner: str) -> None:
    check_engine(play(transcript, manner).engine)


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
def test_every_packet_is_spoken_in_some_conversation(kind: Kind) -> None:
    assert f"> {kind.name}" in TEXT or f"< {kind.name}" in TEXT


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_every_error_is_heard_in_some_conversation(code: ErrorCode) -> None:
    assert f"< error {code.name}" in TEXT
