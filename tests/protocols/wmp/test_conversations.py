"""Whole conversations."""

from __future__ import annotations

import pytest

from switchgear.protocols.wmp import codec
from tests.protocols.wmp.transcript import FOLDER, Transcript, load, play

FILES = ("description", "many_jobs", "load_balancing", "exceptions", "extensions", "routing", "bounds")
TRANSCRIPTS = [transcript for name in FILES for transcript in load(name)]
TEXT = "".join((FOLDER / f"{name}.txt").read_text() for name in FILES)


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=str)
def test_conversation(transcript: Transcript) -> None:
    play(transcript)


def test_every_file_is_played() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(FILES)


@pytest.mark.parametrize("command", codec.FRAMES, ids=bytes.decode)
def test_every_command_is_spoken_in_some_conversation(command: bytes) -> None:
    sign = ">" if command in (codec.READY, codec.GIVE, codec.DONE, codec.STATUS) else "<"
    assert f"{sign} {command.decode()}" in TEXT


@pytest.mark.parametrize("status", codec.STATUSES[1:])
def test_every_end_is_reported_in_some_conversation(status: str) -> None:
    assert f"status={status}" in TEXT
