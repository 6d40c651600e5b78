"""The wall clock is set, forwards and backwards, by seconds or by days.  The monotonic one is not.

No job may be lost for it, nobody's lease may end for it, and nothing may run before its time.
"""

from __future__ import annotations

import asyncio

from torture.peers.load import Load
from torture.run import Run, everybody
from torture.server import ServerProcess
from torture.shim import Shim

LIVES_PER_RUN = 3
JUMPS_PER_LIFE = 6
JUMPS_SECONDS = (-86_400, -3_600, -30, -2, 2, 30, 3_600, 86_400)
# The server looks at the wall clock once a second.
PAUSE_SECONDS = 0.7


async def clock(run: Run) -> None:
    run.draw_settings()
    shim = Shim(run.directory, run.store.parent)
    run.environment = shim.environment()
    try:
        for _ in range(LIVES_PER_RUN):
            if run.plan.is_over() or run.is_failed:
                break
            server = await run.start()
            run.compare()
            load = run.load()
            load.wall_offset = run.wall_offset
            try:
                await load.run(everybody(run.chance), until=jump_and_kill(run, load, server, shim))
            finally:
                load.close()
            run.gone("kills")
        await run.drain()
    finally:
        shim.close()


async def jump_and_kill(run: Run, load: Load, server: ServerProcess, shim: Shim) -> None:
    for _ in range(JUMPS_PER_LIFE):
        await asyncio.sleep(2 * PAUSE_SECONDS * run.chance.random())
        if run.plan.is_over():
            break
        run.wall_offset += run.chance.choice(JUMPS_SECONDS)
        load.wall_offset = run.wall_offset
        run.history.record("clock", run.wall_offset)
        shim.set_clock(run.wall_offset)
        run.tally.counts["jumps"] += 1
    server.kill()
