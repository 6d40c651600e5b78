"""Power failures: the server's writes are journalled, and servers are started on what its disk may have held at random
moments.  Each must have all that was acknowledged by then.

One in three runs also has syncs and writes that fail, after which the system may have forgotten pages.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from itertools import islice
from pathlib import Path

from torture.disk_image import Disk, Record, read_journal
from torture.history import History, replayed
from torture.ledger import Event, read_ledger
from torture.run import Run, everybody
from torture.shim import ERRORS, SYNC, WRITE, Shim

LIVES_PER_RUN = 4
IMAGES_PER_LIFE = 8
LIFE_SECONDS = 0.8


async def power(run: Run) -> None:
    run.draw_settings()
    shim = Shim(run.directory, run.store.parent)
    has_errors = run.chance.random() < 0.33
    try:
        for life in range(LIVES_PER_RUN):
            if run.plan.is_over() or run.is_failed:
                break
            await one_life(run, shim, life, has_errors=has_errors)
        run.environment = {}
        if not run.is_failed:
            await run.drain()
    finally:
        shim.close()


async def one_life(run: Run, shim: Shim, life: int, *, has_errors: bool) -> None:
    """Load a server, kill it, look at some moments before that; the next life has what the disk held at the end."""
    disk = Disk(run.store.parent)
    journal = run.directory / f"journal-{life}"
    run.environment = shim.environment(journal)
    begun_ns = run.history.now_ns
    server = await run.start()
    run.compare()
    load = run.load()
    if has_errors:
        run.history.record("faults", True)
        shim.fail(run.chance.choice((SYNC, SYNC, WRITE)), run.chance.choice(ERRORS), run.chance.randrange(60), 3)

    async def until() -> None:
        await asyncio.sleep(LIFE_SECONDS * run.chance.random())
        server.kill()

    try:
        await load.run(everybody(run.chance), until=until())
    finally:
        load.close()
    shim.heal()
    run.tally.counts["injected_errors"] += shim.failed
    run.gone("kills")
    run.environment = {}
    await check_images(run, disk, journal, begun_ns)
    journal.unlink()


async def check_images(run: Run, disk: Disk, journal: Path, begun_ns: int) -> None:
    records = list(read_journal(journal))
    run.flush_ledger()
    events = list(read_ledger(run.ledger_path))
    end_ns = records[-1].ended_ns
    moments = sorted(run.chance.randint(begun_ns, end_ns) for _ in range(IMAGES_PER_LIFE))
    position = 0
    for moment_ns in moments:
        if run.plan.is_over():
            break
        position = advance(disk, records, position, moment_ns)
        await check_image(run, disk, moment_ns, events)
        if run.is_failed:
            return
    for record in islice(records, position, None):
        disk.apply(record)
    replace_store(run.store.parent, disk, run.chance)


def advance(disk: Disk, records: list[Record], position: int, moment_ns: int) -> int:
    """Make the calls that were over at that moment; returns how many there are."""
    while position < len(records) and records[position].ended_ns <= moment_ns:
        disk.apply(records[position])
        position += 1
    return position


async def check_image(run: Run, disk: Disk, moment_ns: int, events: list[Event]) -> None:
    """Start a server on one of the states that the disk may have been in, and compare."""
    directory = run.directory / "image"
    directory.mkdir()
    disk.write_image(directory, run.chance)
    shutil.copytree(directory, run.directory / "image-as-it-was")
    then = replayed(events, moment_ns)
    store, run.store = run.store, directory / "jobs.db"
    now, run.history = run.history, then
    try:
        if has_database(then, run.store):
            await run.start()
            run.compare()
            run.stop_quietly()
    finally:
        run.store, run.history = store, now
    run.tally.counts["images"] += 1
    run.tally.violations += [v._replace(text=f"image of {moment_ns}: {v.text}") for v in then.violations]
    if not then.violations:
        shutil.rmtree(directory)
        shutil.rmtree(run.directory / "image-as-it-was")


def has_database(then: History, store: Path) -> bool:
    """Before anything was acknowledged there need not be one."""
    return store.exists() or bool(then.counts["acknowledged"])


def replace_store(directory: Path, disk: Disk, chance: random.Random) -> None:
    """The power has gone, and comes back."""
    shutil.rmtree(directory)
    directory.mkdir()
    disk.write_image(directory, chance)
