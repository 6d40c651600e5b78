"""Several engines on one database: some histories of freezing, dying and disconnected nodes, and defects that must be
noticed.

SWITCHGEAR_SIMULATION_SEEDS sets how many histories, SWITCHGEAR_SIMULATION_FIRST where to begin.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from switchgear.testing.simulation import SimulationFailed
from switchgear.testing.simulation.__main__ import main
from switchgear.testing.simulation.simulated_nodes import SimulatedNodes, simulate_nodes

SEEDS = int(os.environ.get("SWITCHGEAR_SIMULATION_SEEDS", "1000")) // 50
FIRST = int(os.environ.get("SWITCHGEAR_SIMULATION_FIRST", "1"))


@pytest.mark.timeout(0)
def test_nothing_goes_wrong_in_any_history() -> None:
    for seed in range(FIRST, FIRST + max(4, SEEDS)):
        simulate_nodes(seed)


def forget_the_fence(world: SimulatedNodes) -> None:
    world.database.checks_fence = False


def ignore_the_lapse(world: SimulatedNodes) -> None:
    world.ignores_lapse = True


def evict_too_early(world: SimulatedNodes) -> None:
    world.impatience_s = 2.5


def reuse_epochs(world: SimulatedNodes) -> None:
    world.reuses_epoch = True


def reuse_ids(world: SimulatedNodes) -> None:
    world.reuses_ids = True


def forget_new_owners(world: SimulatedNodes) -> None:
    world.forgets_owners = True


def trust_in_ignorance(world: SimulatedNodes) -> None:
    world.trusts_in_ignorance = True


def accept_too_early(world: SimulatedNodes) -> None:
    world.accepts_too_early = True


def acknowledge_reports_too_early(world: SimulatedNodes) -> None:
    world.reports_too_early = True


def forget_which_start_a_report_is_about(world: SimulatedNodes) -> None:
    world.forgets_starts = True


# Each with a seed from which on it is soon noticed.
DEFECTS = [
    (forget_the_fence, 0),
    (ignore_the_lapse, 0),
    (evict_too_early, 0),
    (reuse_epochs, 0),
    (reuse_ids, 100),
    (forget_new_owners, 1120),
    (trust_in_ignorance, 0),
    (accept_too_early, 0),
    (acknowledge_reports_too_early, 0),
    (forget_which_start_a_report_is_about, 0),
]


@pytest.mark.parametrize(("defect", "first"), DEFECTS)
def test_a_defect_is_noticed(defect: Callable[[SimulatedNodes], None], first: int) -> None:
    assert "--verbose --nodes" in noticed(defect, first)


def noticed(defect: Callable[[SimulatedNodes], None], first: int) -> str:
    for seed in range(first, first + 100):
        try:
            simulate_nodes(seed, defect=defect)
        except SimulationFailed as failure:
            return str(failure)
    pytest.fail("in no history was it noticed")


def test_nodes_run_each_others_jobs() -> None:
    assert sum(simulate_nodes(seed).reported for seed in range(20)) > 20


def tale(seed: int) -> list[str]:
    told: list[str] = []
    simulate_nodes(seed, say=told.append)
    return told


def test_the_same_seed_gives_the_same_history() -> None:
    assert tale(7) == tale(7)
    assert tale(7) != tale(8)


def test_a_history_is_replayed_by_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nodes", "--seed", "3", "--steps", "60", "--verbose"]) == 0
    output = capsys.readouterr().out
    assert "joins" in output
    assert "nothing amiss: 1 × 60 steps" in output
