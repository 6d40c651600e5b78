"""A steady load for as long as there is time.  The server's memory must not grow with what it has done."""

from __future__ import annotations

import asyncio
from statistics import median

from torture.run import Run, everybody

# What a server takes up in its first minutes is not held against it.
WARM_UP_SHARE = 0.4
WARM_UP_SECONDS = 60.0
SAMPLE_SECONDS = 0.5
LONGEST_SECONDS = 600.0
MOST_GROWTH_BYTES = 16 * 1024 * 1024
MOST_GROWTH_SHARE = 0.15


async def soak(run: Run) -> None:
    run.draw_settings()
    server = await run.start()
    load = run.load()
    resident: list[int] = []
    seconds = run.plan.seconds_left(LONGEST_SECONDS)

    async def until() -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while loop.time() < begun + seconds and not run.is_failed:
            await asyncio.sleep(SAMPLE_SECONDS)
            if loop.time() > begun + min(WARM_UP_SECONDS, WARM_UP_SHARE * seconds):
                resident.append(server.resident_bytes())
        server.kill()

    try:
        await load.run(everybody(run.chance), until=until())
    finally:
        load.close()
    run.gone("kills")
    judge(run, resident)
    await run.drain()


def judge(run: Run, resident: list[int]) -> None:
    """Compare the memory at the beginning with that at the end, unless the run has failed before."""
    if run.is_failed:
        return
    tenth = max(1, len(resident) // 10)
    first, last = median(resident[:tenth]), median(resident[-tenth:])
    run.tally.counts["soak_seconds"] += int(len(resident) * SAMPLE_SECONDS)
    if last > first + max(MOST_GROWTH_BYTES, MOST_GROWTH_SHARE * first):
        run.violate("memory", f"the server has grown from {first / 2**20:.1f} to {last / 2**20:.1f} MiB")
