"""Whole conversations, in both versions of RESP, and in every way they can be cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchgear.protocols.gearmonkey.command_table import VERBS
from tests.protocols.gearmonkey.transcript import FOLDER, MANNERS, Transcript, load, play

MANUAL = Path(__file__).parents[3] / "docs" / "protocols" / "gearmonkey.md"
FILES = ("document", "here", "differences")
TRANSCRIPTS = [transcript for name in FILES for transcript in load(name)]
TEXT = "".join((FOLDER / f"{name}.txt").read_text() for name in FILES)


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=str)
def test_conversation(transcript: Transcript, version: int, manner: str) -> None:
    play(transcript, manner, version)


@pytest.mark.parametrize("name", sorted(VERBS.keys() - {b"INFO"}))  # which is no part of any conversation
def test_every_command_is_spoken_in_some_conversation(name: bytes) -> None:
    assert f"> {name.decode()}" in TEXT


@pytest.mark.parametrize("name", sorted(VERBS))
def test_every_command_is_in_the_manual(name: bytes) -> None:
    assert name.decode() in MANUAL.read_text()
