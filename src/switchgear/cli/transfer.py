"""`switchgear export` and `import`, which move jobs to another store, and `switchgear backup`."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from switchgear.cli.progress import ProgressBar
from switchgear.errors import ConfigError
from switchgear.text import printable, without_secrets
from switchgear.units import short_bytes

__all__ = ["back_up", "export_jobs", "import_jobs"]

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


@click.command(
    "backup",
    epilog="""\b
Examples:
  switchgear backup sqlite:/var/lib/switchgear/jobs.db /backups/jobs-$(date +%F).db
""",
)
@click.argument("store")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def back_up(store: str, file: Path) -> None:
    """Copy the SQLite database of STORE to FILE, which must not exist. The server may be running.

    STORE is a URL as in `serve --store` or `--joblog`. FILE has the state at the start of the command, and appears
    when it is complete and on disk. To back up PostgreSQL, use pg_dump.
    """
    from switchgear.storage.sqlite_backup import back_up_database

    scheme, _, place = store.partition(":")
    if scheme != "sqlite" or not place or place.startswith("//"):
        raise ConfigError(f"store {without_secrets(store)!r}: expected sqlite:PATH; back up PostgreSQL with pg_dump")
    with ProgressBar("copied", in_bytes=True) as bar:
        size = back_up_database(Path(place).expanduser(), file, bar.show)
    _say(f"copied {short_bytes(size)} to {file}")


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
