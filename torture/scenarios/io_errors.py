"""I/O errors: the n-th write, sync or open of the store's files fails, once or for a while, also during a start.

The server may refuse then, and must go on when the disk does; what it has acknowledged must be there.
"""

from __future__ import annotations

import asyncio

from torture.run import Run, everybody
from torture.server import DidNotStart, Operator, ServerProcess
from torture.shim import ERRORS, OPEN, SYNC, TRUNCATE, WRITE, Shim

LIVES_PER_RUN = 4
ERRORS_PER_LIFE = 4
RECOVERY_SECONDS = 10.0


async def io_errors(run: Run) -> None:
    run.draw_settings()
    shim = Shim(run.directory, run.store.parent)
    run.environment = shim.environment()
    try:
        for _ in range(LIVES_PER_RUN):
            if run.plan.is_over() or run.is_failed:
                break
            await fail_while_starting(run, shim)
            await one_life(run, shim)
        run.tally.counts["injected_errors"] += shim.failed
        run.environment = {}
        await run.drain()
    finally:
        shim.close()


def break_something(run: Run, shim: Shim, soon: int) -> None:
    """Within so many calls."""
    calls = run.chance.choice((WRITE, WRITE, SYNC, SYNC, OPEN, TRUNCATE))
    failures = run.chance.choice((1, 1, 2, 5, 50))
    error = run.chance.choice(ERRORS)
    shim.fail(calls, error, run.chance.randrange(soon), failures, is_short=run.chance.random() < 0.3)


async def fail_while_starting(run: Run, shim: Shim) -> None:
    """It may start all the same, or say why it does not."""
    if run.chance.random() < 0.5:
        return
    break_something(run, shim, soon=8)
    server = run.launch()
    try:
        await server.answers()
    except DidNotStart:
        if "Traceback" in server.output():
            run.violate("stuck", f"the server did not say why it does not start:\n{server.output()[-2000:]}")
    shim.heal()
    server.kill()
    run.gone("kills")


async def one_life(run: Run, shim: Shim) -> None:
    server = await run.start()
    run.compare()
    load = run.load(direct=False)
    run.history.record("faults", True)

    async def until() -> None:
        for _ in range(ERRORS_PER_LIFE):
            await asyncio.sleep(0.2 * run.chance.random())
            break_something(run, shim, soon=30)
            await asyncio.sleep(0.4 * run.chance.random())
            if not server.is_running():
                break
        if run.chance.random() < 0.5:
            shim.heal()
            await recovery(run, server)
        server.kill()

    try:
        await load.run(everybody(run.chance), until=until())
    finally:
        load.close()
    shim.heal()
    run.gone("kills")


async def recovery(run: Run, server: ServerProcess) -> None:
    """A disk that works again is used again, without anybody's help."""
    loop = asyncio.get_running_loop()
    until = loop.time() + RECOVERY_SECONDS
    while await asyncio.to_thread(storage_error, run):
        if loop.time() > until or not server.is_running():
            text = f"the disk works again, and the server does not:\n{server.output()[-2000:]}"
            run.violate("stuck", text)
            return
        await asyncio.sleep(0.05)


def storage_error(run: Run) -> str:
    """What the server says is wrong with its store, if anything."""
    operator = Operator(run.ports)
    try:
        return str(operator.ask("server").get("storage_error") or "")
    finally:
        operator.close()
