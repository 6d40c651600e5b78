"""The random simulation notices if the engine forgets to hold what a peer is told until it is stored."""

from __future__ import annotations

import pytest

from switchgear.testing.simulation import SimulationFailed, simulate
from tests.protocols.hold_mutants import MUTANTS, ONLY_PLAIN_SOURCES, mutated

pytestmark = ONLY_PLAIN_SOURCES

MOST_SEEDS = 150
# A hold of sessions, which the simulation does not have, is left to the scenarios of `test_every_hold`.
LEFT_TO_SCENARIOS = {"an end that was read elsewhere"}


def first_failure(seeds: int) -> str:
    for seed in range(seeds):
        try:
            simulate(seed, check_every=50)
        except SimulationFailed as failure:
            return str(failure)
    return ""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [kind for kind in MUTANTS if kind not in LEFT_TO_SCENARIOS])
def test_a_hold_that_is_forgotten_is_noticed(kind: str) -> None:
    with mutated(kind):
        assert "a peer was told of" in first_failure(MOST_SEEDS)
