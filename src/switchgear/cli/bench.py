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
    help="Go round so often, however long it takes; the best round is shown. Default: up to 3, within a minute.",
)
@click.option("--quick", is_flag=True, help="One round with a tenth of the jobs: for seeing that it works.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="Keep the databases of the durable parts here meanwhile. Default: the directory for temporary files.",
)
@click.option(
    "--json",
    "file",
    callback=reading(_file),
    metavar="FILE",
    help="Write all readings there as JSON, besides.",
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
    """Measure how fast the server is on this machine, in about a minute.

    Servers are started for it on free ports of this machine, one for each measurement, and stopped again; no other
    server is touched.  Clients and workers are this program's own, and check that no job is lost, doubled or mixed up.

    The figure that holds still is the server's processor time per job (all threads, user and system).  Rates and times
    depend on what else the machine does, and on the load, which is written in Python and shares it.

    x1 and x32: how many requests each connection keeps unanswered; 64 clients and 64 workers with 100 bytes of payload
    where nothing else is said.  SPREAD: how far the worst round lay above the best, which is shown: that with the
    least processor time, and for durable and tasks that with the highest rate.

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
