"""SIGSTOP and SIGCONT: the server stands still for a while, as on a machine that swaps; some are killed then."""

from __future__ import annotations

import asyncio

from torture.run import Run, everybody
from torture.server import ServerProcess

LIVES_PER_RUN = 6
PAUSES_PER_LIFE = 6


async def pauses(run: Run) -> None:
    run.draw_settings()
    for _ in range(LIVES_PER_RUN):
        if run.plan.is_over() or run.is_failed:
            break
        server = await run.start()
        run.compare()
        load = run.load()
        try:
            await load.run(everybody(run.chance), until=pause_and_kill(run, server))
        finally:
            load.close()
        run.gone("kills")
    await run.drain()


async def pause_and_kill(run: Run, server: ServerProcess) -> None:
    for _ in range(PAUSES_PER_LIFE):
        await asyncio.sleep(0.3 * run.chance.random())
        server.pause()
        run.tally.counts["pauses"] += 1
        await asyncio.sleep(run.chance.choice((0.01, 0.1, 0.5, 1.2)))
        if run.chance.random() < 0.15 or run.plan.is_over():
            break  # it is killed as it stands
        server.resume()
    server.kill()
