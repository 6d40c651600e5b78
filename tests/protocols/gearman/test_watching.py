"""Clients that ask for the news of a job, whoever submitted it."""

from __future__ import annotations

import pytest

from tests.protocols.gearman.transcript import MANNERS, Transcript, load, play


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("transcript", load("watching"), ids=str)
def test_conversations(transcript: Transcript, manner: str) -> None:
    play(transcript, manner)
