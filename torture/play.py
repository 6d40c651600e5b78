"""Plays one run of a scenario."""

from __future__ import annotations

import asyncio

from torture.run import Plan, Run
from torture.scenarios import SCENARIOS
from torture.server import DidNotStart, ServerStarter


def play(scenario: str, seed: int, plan: Plan, starter: ServerStarter) -> Run:
    """The run when it is over; its tally has what was found."""
    with Run(scenario, seed, plan, starter) as run:
        try:
            asyncio.run(SCENARIOS[scenario].play(run))
        except (DidNotStart, OSError, TimeoutError) as error:
            run.violate("stuck", f"{type(error).__name__}: {error}")
        except AssertionError as error:  # PostgreSQL, say: what was found until then counts all the same
            run.violate("test failed", f"{type(error).__name__}: {error}")
    return run
