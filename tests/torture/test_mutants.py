"""Servers that break a promise on purpose are found out, so a suite that finds nothing has looked."""

from __future__ import annotations

import shutil
import time

import pytest

from tests.support.peers import require_program
from torture.mutants import MUTANTS
from torture.play import play
from torture.run import Plan
from torture.server import ServerStarter

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SECONDS = 60.0
# A broken promise need not show in every run.
RUNS = 10


def found(scenario: str, starter: ServerStarter, *arguments: str) -> set[str]:
    """The kinds of violations that were found, in as many runs as it takes."""
    deadline = time.monotonic() + SECONDS
    for seed in range(RUNS):
        try:
            run = play(scenario, seed, Plan(deadline, arguments), starter)
        finally:
            starter.close()
        if run.tally.violations:
            shutil.rmtree(run.directory)  # a failure that was wanted need not be kept
            return {violation.kind for violation in run.tally.violations}
    return set()


@pytest.mark.parametrize(
    ("mutant", "kinds"),
    [
        ("acknowledges-early", {"lost", "run again"}),
        ("forgets-ends", {"run again"}),
        ("forgets-starts", {"attempts", "lost"}),  # a start that is kept together with its submission
    ],
)
def test_a_broken_server_is_found_out_by_kills(mutant: str, kinds: set[str]) -> None:
    assert found("kills", ServerStarter(("torture.mutants", mutant))) & kinds


@pytest.mark.xdist_group("postgresql")
def test_nodes_without_a_fence_are_found_out() -> None:
    """One that was frozen goes on as if nobody had taken its place."""
    require_program("initdb")
    assert found("cluster", ServerStarter(("torture.mutants", "forgets-fence"))) & {"lost", "run again", "stuck"}


def test_every_mutant_is_tried() -> None:
    assert set(MUTANTS) == {"acknowledges-early", "forgets-ends", "forgets-fence", "forgets-starts"}


def test_a_server_that_does_not_sync_is_found_out_by_power_failures() -> None:
    """`--sync normal` says that it may lose the last moments before a power failure.  A kill it survives."""
    require_program("cc")
    assert "lost" in found("power", ServerStarter(), "--sync", "normal")
