"""`switchgear bench`: starts servers, puts them under load, and reports how fast they are."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import click

from switchgear.bench import machine, workloads
from switchgear.bench.results import one_line, run_cells, to_document, write_json
from switchgear.bench.table import HEADS, rows_of
from switchgear.cli.main import ExitCode
from switchgear.cli.output import Column, complain, print_table, reading

__all__ = ["bench"]

MINUTE = 55.0  # no new round after this many seconds
IN_MEMORY = ("tmpfs", "ramfs")
STYLES = {"FAILED": "bold red"}
# What a narrow screen can do without: see `Column.drop`.
DROPPED = {"PART": 3, "SERVER": 1, "JOBS": 4, "SPREAD": 6, "p50 µs": 2, "ALSO": 5}


def _print_results(rows: list[list[str]]) -> None:
    heads = [("PART", False), *HEADS]
    columns = [Column(title, right, wrap=not right, drop=DROPPED.get(title, 0)) for title, right in heads]
    print_table(columns, rows, STYLES)


def _groups(text: str) -> tuple[str, ...]:
    wanted = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    unknown = [word for word in wanted if word not in workloads.GROUPS]
    if unknown or not wanted:
        raise ValueError(f"there is no {', '.join(unknown) or 'empty part'}; there are {', '.join(workloads.GROUPS)}")
    return wanted


def _file(text: str) -> Path:
    """Check early that a file can be written, and not after a minute of measuring."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{path} cannot be written")
    return path


@click.command(
    epilog="""\b
Examples:
  switchgear bench
  switchgear bench --quick
  switchgear bench --only submit,drain --rounds 5
  switchgear bench --only durable --dir /var/lib --json durable.json
"""
)
@click.option(
    "--only",
    metavar="PART,...",
    callback=reading(_groups),
    help=f"Measure these alone: {', '.join(workloads.GROUPS)}.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    help="The number of rounds; the best round is shown. Default: up to 3, within a minute.",
)
@click.option("--quick", is_flag=True, help="Run one round with a tenth of the jobs, to check that it works.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="The directory for temporary databases. Default: the system's directory for temporary files.",
)
@click.option(
    "--json",
    "file",
    callback=reading(_file),
    metavar="FILE",
    help="Also write all measurements to this file as JSON.",
)
@click.pass_context
def bench(
    ctx: click.Context,
    only: tuple[str, ...] | None,
    rounds: int | None,
    quick: bool,
    directory: Path | None,
    file: Path | None,
) -> None:
    """Measure the speed of the server on this machine, in about a minute.

    The command starts a server on a free port for each measurement, and stops it afterwards; it does not touch other
    servers. Its own clients and workers check that no job is lost, duplicated or mixed up.

    The most stable figure is the processor time of the server per job (all threads, user and system). Rates and
    durations depend on other programs on the machine, and on the load generator, which is written in Python.

    x1 and x32 are the numbers of unanswered requests per connection. Unless stated otherwise, there are 64 clients and
    64 workers, and payloads of 100 bytes. The table shows the best round: that with the least processor time, and for
    durable and tasks the one with the highest rate. SPREAD is the difference between the worst and the best round.

    Exits with 1 if a measurement failed.
    """
    place = directory or Path(tempfile.gettempdir())
    about = machine.describe(place)
    for name, value in about.items():
        click.echo(f"{name + ':':20}{value}")
    if about["file system"] in IN_MEMORY:
        click.echo(f"{place} lies in memory, where a sync costs nothing: durable figures say little; see --dir")
    cells = workloads.cells(only or workloads.GROUPS, quick, directory)
    for peer, settings in dict.fromkeys((cell.peer, cell.settings) for cell in cells):
        click.echo(f"{peer + ':':20}switchgear {settings}")
    count = rounds or (1 if quick else 3)
    run_cells(cells, count, _tell, None if rounds else MINUTE, is_exact=rounds is not None)
    if sys.stderr.isatty():
        _tell("")
    document = to_document(cells, about)
    click.echo()
    groups = [row["group"] for row in document["rows"]]
    rows = [[group, *row] for group, row in zip(groups, rows_of(document), strict=True)]
    _print_results(rows)
    if quick and "memory" in groups:
        click.echo(
            "memory: with so few jobs most of the growth is not theirs; without --quick there are ten times more"
        )
    if file is not None:
        write_json(file, document)
    failed = [cell for cell in cells if cell.fault]
    for cell in failed:
        complain(f"{cell.workload} at {cell.peer} failed: {one_line(cell.fault)}")
    ctx.exit(ExitCode.FAILED if failed else ExitCode.SUCCESS)


def _tell(text: str) -> None:
    """Show on standard error what is being measured."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{text[:79]}", err=True, nl=False)
    else:
        click.echo(text, err=True)
