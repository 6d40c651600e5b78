"""`switchgear export` and `switchgear import`: move the jobs of a stopped server to another store."""

from __future__ import annotations

import asyncio
import sys
from typing import BinaryIO

import click

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
            async for line in exported(source, counts):
                output.write(line)
        finally:
            await source.close()
        output.flush()

    asyncio.run(run())
    _say(f"exported {counts.jobs} jobs, {counts.functions} functions with settings, {counts.schedules} schedules")


@click.command("import", epilog=_EPILOG)
@click.argument("store")
@click.option("--input", "source", type=click.File("rb"), default="-", help="Read this file.")
def import_jobs(store: str, source: BinaryIO) -> None:
    """Put what `switchgear export` wrote into STORE, which must be empty.

    STORE is a URL as in `serve --store`.
    """
    from switchgear.storage.open import open_store
    from switchgear.storage.transfer import import_lines

    async def run() -> str:
        target = open_store(store)
        try:
            counts = await import_lines(target, source)
        finally:
            await target.close()
        return f"imported {counts.jobs} jobs, {counts.functions} functions with settings, {counts.schedules} schedules"

    _say(asyncio.run(run()))


def _say(text: str) -> None:
    click.echo(printable(text), file=sys.stderr)
