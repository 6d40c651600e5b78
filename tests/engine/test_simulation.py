"""Some thousands of histories of the deterministic simulation; any that fails says how to see it again.

SWITCHGEAR_SIMULATION_SEEDS sets how many, SWITCHGEAR_SIMULATION_FIRST where to begin.  With BRIEF_TESTS a tenth of them
is tried: uncompiled they take minutes, and the engine is the same.
"""

from __future__ import annotations

import os

import pytest

from switchgear.engine.engine import Engine
from switchgear.testing import BrokenInvariant
from switchgear.testing.simulation import SimulationFailed, simulate, simulated_cluster
from switchgear.testing.simulation.__main__ import main

IS_BRIEF = os.environ.get("BRIEF_TESTS", "") not in ("", "0")
SEEDS = int(os.environ.get("SWITCHGEAR_SIMULATION_SEEDS", "300" if IS_BRIEF else "3000"))
FIRST = int(os.environ.get("SWITCHGEAR_SIMULATION_FIRST", "1"))
BLOCKS = 8


@pytest.mark.timeout(0)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_nothing_goes_wrong_in_any_history(block: int) -> None:
    failures = []
    for seed in range(FIRST + block, FIRST + SEEDS, BLOCKS):
        try:
            simulate(seed)
        except SimulationFailed as failure:
            failures.append(str(failure))
            if len(failures) == 3:
                break
    assert not failures, "\n".join(failures)


def test_long_histories_go_well_too() -> None:
    for seed in range(1 if IS_BRIEF else 10):
        simulate(seed, steps=1500)


def tale(seed: int) -> list[str]:
    told: list[str] = []
    simulate(seed, say=told.append)
    return told


def test_the_same_seed_gives_the_same_history() -> None:
    assert tale(7) == tale(7)
    assert tale(7) != tale(8)


def test_a_failing_history_names_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def complain(engine: Engine, unstored: object) -> None:
        if any(function.done for function in engine.functions.values()):
            raise BrokenInvariant("a job was done")

    monkeypatch.setattr(simulated_cluster, "check_engine", complain)
    command = "python -m switchgear.testing.simulation --seed 3 --steps 150 --verbose"
    with pytest.raises(SimulationFailed, match=r"seed 3, step \d+ \([\w ]+\): a job was done") as failed:
        simulate(3)
    assert command in str(failed.value)
    assert main(["--seed", "3"]) == 1
    assert command in capsys.readouterr().err


def test_the_command_replays_a_history_and_searches_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--steps", "20", "--verbose"]) == 0
    told = capsys.readouterr().out
    assert "  20 " in told
    assert "nothing amiss" in told
    assert main(["--seed", "3", "--seeds", "4", "--steps", "20"]) == 0
    assert "4 × 20 steps" in capsys.readouterr().out
