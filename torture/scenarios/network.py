"""A bad network between peers and server: delays, single bytes, connections that are cut or closed on one side."""

from __future__ import annotations

import asyncio

from torture.peers.load import Load
from torture.proxy import BadNetwork
from torture.run import Run, everybody

LIVES_PER_RUN = 3
LIFE_SECONDS = 3.0


async def network(run: Run) -> None:
    run.draw_settings()
    for _ in range(LIVES_PER_RUN):
        if run.plan.is_over() or run.is_failed:
            break
        await one_life(run)
    await run.drain()


async def one_life(run: Run) -> None:
    server = await run.start()
    run.compare()
    bad = BadNetwork(run.ports, run.chance)
    await bad.open()
    run.history.record("faults", True)  # a report may come after the loss of the connection that the job was given to
    load = Load(bad.ports, run.history, run.chance, direct=False)

    async def until() -> None:
        await asyncio.sleep(run.plan.seconds_left(LIFE_SECONDS))
        server.kill()

    try:
        await load.run(everybody(run.chance), until=until())
    finally:
        load.close()
        await bad.close()
    run.tally.counts.update(bad.counts)
    run.gone("kills")
