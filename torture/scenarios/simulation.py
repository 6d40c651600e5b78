"""The deterministic simulation of the engine, with seeds that nobody has tried."""

from __future__ import annotations

import asyncio
import re
import sys

from torture.run import Run

SEEDS_AT_A_TIME = 100
BATCHES_PER_RUN = 10
# Looking at the whole engine takes most of the time; what is seen only now and then is seen in more histories.
CHECK_EVERY = 20


async def simulation(run: Run) -> None:
    first = run.seed * SEEDS_AT_A_TIME * BATCHES_PER_RUN
    for batch in range(BATCHES_PER_RUN):
        if (batch and run.plan.is_over()) or run.is_failed:
            break
        command = ["--seed", str(first + batch * SEEDS_AT_A_TIME), "--seeds", str(SEEDS_AT_A_TIME)]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "switchgear.testing.simulation", *command, "--check-every", str(CHECK_EVERY)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        told = (await process.communicate())[0].decode()
        counted = re.search(r"(\d+) events", told)
        if counted is None:
            run.violate("simulation", told or f"it ended with {process.returncode} and said nothing")
            return
        run.tally.counts["simulated_events"] += int(counted[1])
