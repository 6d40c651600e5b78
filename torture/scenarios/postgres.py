"""A store in PostgreSQL, which is restarted, killed and disconnected, while the server is killed, stopped and paused.

The server may refuse while PostgreSQL is away, and must go on by itself; what it has acknowledged must be there.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence

from tests.support.postgres import Cluster, ReplicatedPostgres, running_postgres, running_standby

from torture.run import Run, everybody
from torture.scenarios.io_errors import recovery
from torture.scenarios.kills import kill_under_load, kill_while_starting, stop_under_load
from torture.server import ServerProcess

LIVES_PER_RUN = 30
FAULTS_PER_LIFE = 3
FAIL_OVERS_PER_LIFE = 2


async def postgres(run: Run) -> None:
    run.draw_settings()
    with running_postgres() as cluster:
        run.database = cluster.new_url()
        for _ in range(LIVES_PER_RUN):
            if run.plan.is_over() or run.is_failed:
                break
            await kill_while_starting(run)
            server = await run.start()
            run.compare()
            draw = run.chance.random()
            if draw < 0.4:
                await kill_under_load(run, server)
            elif draw < 0.5:
                await stop_under_load(run, server)
            else:
                await faults_under_load(run, server, cluster)
        await run.drain()


async def postgres_failover(run: Run) -> None:
    """The primary is killed, and its synchronous standby goes on."""
    run.draw_settings()
    with running_postgres() as primary, running_standby(primary) as standby:
        pair = ReplicatedPostgres(primary, standby)
        run.database = pair.new_url()
        for _ in range(LIVES_PER_RUN):
            if run.plan.is_over() or run.is_failed:
                break
            server = await run.start()
            run.compare()
            if run.chance.random() < 0.3:
                await kill_under_load(run, server)
            else:
                await fail_overs_under_load(run, server, pair)
        await run.drain()


async def faults_under_load(run: Run, server: ServerProcess, cluster: Cluster) -> None:
    faults = (
        cluster.hang_up,
        lambda: restart(cluster, signal.SIGINT),
        lambda: restart(cluster, signal.SIGQUIT),
        lambda: restart(cluster, signal.SIGKILL),
    )
    await under_load(run, server, faults, "database_faults", FAULTS_PER_LIFE)


async def fail_overs_under_load(run: Run, server: ServerProcess, pair: ReplicatedPostgres) -> None:
    await under_load(run, server, (pair.fail_over,), "fail_overs", FAIL_OVERS_PER_LIFE)


async def under_load(
    run: Run, server: ServerProcess, faults: Sequence[Callable[[], object]], counted_as: str, count: int
) -> None:
    load = run.load(direct=False)
    run.history.record("faults", True)

    async def until() -> None:
        for _ in range(count):
            await asyncio.sleep(0.3 * run.chance.random())
            fault = run.chance.choice(faults)
            await asyncio.to_thread(fault)
            run.tally.counts[counted_as] += 1
            if run.chance.random() < 0.3:
                server.pause()
                await asyncio.sleep(run.chance.choice((0.1, 1.2, 4.0)))
                server.resume()
                run.tally.counts["pauses"] += 1
            if run.chance.random() < 0.5:
                await recovery(run, server)
            if not server.is_running():
                run.violate("stuck", f"the server has ended by itself:\n{server.output()[-2000:]}")
                break
        server.kill()

    try:
        await load.run(everybody(run.chance), until=until())
    finally:
        load.close()
    run.gone("kills")


def restart(cluster: Cluster, how: signal.Signals) -> None:
    cluster.stop(how)
    cluster.start()
