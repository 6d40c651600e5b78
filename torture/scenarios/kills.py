"""kill -9 under load at random moments, some of them while the server starts and restores its jobs."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable

from torture.peers import Peer
from torture.peers.load import Load
from torture.run import Run, everybody
from torture.server import ServerProcess

KILLS_PER_RUN = 50
# A server that is not loaded enough to reach the moment drawn for it is killed all the same.
LONGEST_LIFE_SECONDS = 0.4
MOST_ANSWERS = 1500
FEWEST_PEERS = 5


async def kills(run: Run) -> None:
    run.draw_settings()
    for _ in range(KILLS_PER_RUN):
        if run.plan.is_over() or run.is_failed:
            break
        await kill_while_starting(run)
        server = await run.start()
        run.compare()
        if run.chance.random() < 0.05:
            await stop_under_load(run, server)
        else:
            await kill_under_load(run, server)
    await run.drain()


async def kill_while_starting(run: Run) -> None:
    """Now and then, several times in a row."""
    while run.chance.random() < 0.25:
        server = run.launch()
        longest = min(1.0, run.tally.longest_recovery_seconds or 0.3)
        await asyncio.sleep(longest * run.chance.random())
        server.kill()
        run.gone("kills")
        run.tally.counts["kills_while_starting"] += 1


async def kill_under_load(run: Run, server: ServerProcess) -> None:
    load = run.load()
    try:
        await load.run(some_of_everybody(run.chance), until=moment_has_come(load, run.chance, server.kill))
    finally:
        load.close()
    run.gone("kills")


async def stop_under_load(run: Run, server: ServerProcess) -> None:
    load = run.load()

    def begin() -> None:
        run.history.record("stopping")
        server.signal(signal.SIGTERM)

    async def stop() -> None:
        await moment_has_come(load, run.chance, begin)
        await asyncio.to_thread(server.wait)

    try:
        await load.run(some_of_everybody(run.chance), until=stop())
    finally:
        load.close()
    run.gone("stops")


def some_of_everybody(chance: random.Random) -> list[Peer]:
    """Not all, so that some have a server nearly for themselves, and all have one more often."""
    peers = everybody(chance)
    return peers[: chance.randint(FEWEST_PEERS, len(peers))]


async def moment_has_come(load: Load, chance: random.Random, act: Callable[[], None]) -> None:
    """Act after so many answers of the server, of which half of the draws are few; or when it has lived long enough."""
    share = chance.random()
    answers = int(chance.choice((MOST_ANSWERS**share, MOST_ANSWERS * share)))
    life_seconds = LONGEST_LIFE_SECONDS * chance.random()
    has_come = asyncio.Event()

    def come() -> None:
        act()
        has_come.set()

    load.history.alarm_after(answers, come)
    try:
        async with asyncio.timeout(life_seconds):
            await has_come.wait()
    except TimeoutError:
        load.history.alarm_after(0, None)
        act()
