"""`switchgear export` and `switchgear import`: move the jobs of a stopped server to another store."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Iterator
from typing import BinaryIO

import click

from switchgear.cli.progress import ProgressBar
from switchgear.text import printable

__all__ = ["export_jobs", "import_jobs"]

_EPILOG = """\b
Examples:
  switchgear export sqlite:jobs.db > jobs.jsonl
  switchgear export sqlite:jobs.db | switchgear import postgresql://jobs@db/jobs
"""


@click.command("export", epilog=_EPILOG)
@click.argument("store")
@click.option("--output", type=click.File("wb", lazy=False), default="-", help="Write to this file.")
def export_jobs(store: str, output: BinaryIO) -> None:
    """Write all jobs, schedules and settings of functions in STORE as lines of JSON.

    STORE is a URL as in `serve --store`. Its server must be stopped. The store is not changed.
    """
    from switchgear.storage.open import open_store
    from switchgear.storage.transfer import TransferCounts, exported

    counts = TransferCounts()

    async def run() -> None:
        source = open_store(store)
        try:
            with ProgressBar("exported") as bar:
                total = await source.count_jobs() if bar.is_shown else 0
                async for line in exported(source, counts):
                    output.write(line)
                    bar.show(counts.jobs, total)
        finally:
            await source.close()
        output.flush()

    asyncio.run(run())
    _say(f"exported {counts.jobs} jobs, {counts.functions} functions with settings, {counts.schedules} schedules")


@click.command("import", epilog=_EPILOG)
@click.argument("store")
@click.option("--input", "source", type=click.File("rb"), default="-", help="Read this file.")
def import_jobs(store: str, source: BinaryIO) -> None:
    """Read the output of `switchgear export` into STORE, which must be empty.

    STORE is a URL as in `serve --store`.
    """
    from switchgear.storage.open import open_store
    from switchgear.storage.transfer import import_lines

    size = _size_of(source)

    async def run() -> str:
        target = open_store(store)
        try:
            with ProgressBar("imported", size, in_bytes=size > 0) as bar:
                counts = await import_lines(target, _shown(source, bar))
        finally:
            await target.close()
        return f"imported {counts.jobs} jobs, {counts.functions} functions with settings, {counts.schedules} schedules"

    _say(asyncio.run(run()))


def _size_of(source: BinaryIO) -> int:
    """The size of a file; 0 if it is a pipe, which does not tell how much will come."""
    try:
        status = os.fstat(source.fileno())
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _shown(lines: BinaryIO, bar: ProgressBar) -> Iterator[bytes]:
    """The same lines; the bar shows how much of them was read, in bytes, or else how many."""
    done = 0
    for line in lines:
        yield line
        done += len(line) if bar.in_bytes else 1
        bar.show(done)


def _say(text: str) -> None:
    click.echo(printable(text), file=sys.stderr)
