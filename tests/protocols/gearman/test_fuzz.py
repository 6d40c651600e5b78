"""Attacks that a server withstands: some hundred by chance here, any number with the program.

python -m tests.protocols.gearman.fuzz --seconds 30 --seed 1
"""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.testing import check_engine
from tests.protocols.gearman import fuzz
from tests.protocols.gearman.harness import LINE_BYTES, PACKET_BYTES, Harness


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_damaged_conversations(seed: int) -> None:
    fuzz.attack(seed)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.binary(max_size=60), max_size=20))
def test_any_bytes(pieces: list[bytes]) -> None:
    harness = Harness()
    undisturbed = fuzz.Undisturbed(harness)
    stranger = harness.talker("stranger")
    for piece in pieces:
        if not stranger.wire.is_closed:
            stranger.send(piece)
        assert stranger.session.buffered_bytes <= max(PACKET_BYTES + 12, LINE_BYTES)
    undisturbed.finish()
    check_engine(harness.engine)


@pytest.mark.parametrize("damage", fuzz.DAMAGES, ids=lambda damage: damage.__name__)
def test_every_kind_of_damage_is_done(damage: object) -> None:
    """The fuzzer must not go blunt: each of its tools does something to a usual conversation."""
    random = Random(1)
    data = b"".join(fuzz.said(random) for _ in range(10))
    assert callable(damage)
    assert any(damage(random, data) != data for _ in range(10))


def test_the_fuzzer_runs_by_itself() -> None:
    command = [sys.executable, "-m", "tests.protocols.gearman.fuzz", "--seconds", "0", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 attacks withstood, seeds 7 to 7\n"
