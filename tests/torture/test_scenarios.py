"""A short run of every scenario.  `make torture` runs them for as long as you like."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.support.peers import require_program
from torture.play import play
from torture.report import failure_text
from torture.run import Plan
from torture.scenarios import SCENARIOS
from torture.server import ServerStarter

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SECONDS_PER_SHARE = 2.0 if os.environ.get("BRIEF_TESTS", "") not in ("", "0") else 4.0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_is_lost_and_nothing_runs_again(scenario: str) -> None:
    require_program("cc")
    seed = random.SystemRandom().randrange(10**9)
    starter = ServerStarter()
    plan = Plan(time.monotonic() + SECONDS_PER_SHARE * SCENARIOS[scenario].share)
    try:
        run = play(scenario, seed, plan, starter)
    finally:
        starter.close()
    if run.tally.violations:
        pytest.fail(failure_text(scenario, seed, run), pytrace=False)
