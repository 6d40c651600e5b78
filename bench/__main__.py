"""Switchgear beside others on this machine, in one run: each round visits every cell, and the best of each is shown.

    .venv/bin/python -m bench                            everything, ten minutes; longer only if one round takes longer
    .venv/bin/python -m bench --quick                    one round, fewer jobs
    .venv/bin/python -m bench --only gearman,durable --rounds 5
    .venv/bin/python -m bench --write-docs               also the tables and charts of docs/benchmarks.md
    .venv/bin/python -m bench --from bench/results/latest.json --write-docs

Exit status: 0 all well, 1 a measurement failed (lost, doubled or refused jobs among them), 2 wrong usage, or something
that is to be measured is missing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import docs, servers, targets
from switchgear.bench import machine, workloads
from switchgear.bench.results import Cell, one_line, run_cells, to_document, write_json
from switchgear.bench.server import how_started
from switchgear.bench.table import HEADS, rows_of
from switchgear.cli.output import Column, print_table

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
RESULTS = HERE / "results" / "latest.json"
# Where the cells of each group are; all have `cells(quick)`.  Those with targets come first: a late round may be cut.
MODULES = {
    "gearman": "bench.gearman",
    "durable": "bench.durable",
    "tasks": "bench.tasks",
    "dwork": "bench.dwork",
    "beanstalk": "bench.beanstalk",
    "payloads": "bench.payloads",
    "depth": "bench.depth",
    "crowds": "bench.crowds",
    "zeromq": "bench.zeromq",
    "gearmonkey": "bench.gearmonkey",
    "http": "bench.http_api",
    "api": "bench.api",
}
GROUPS = (*MODULES, "memory")
LAST_CELL_SECONDS = 25.0  # what the cell that runs when the time is up may still take
BUSY_LOAD = 1.5
STYLES = {"FAILED": "bold red", "met": "green", "missed": "bold red"}


def cells_of(groups: list[str], quick: bool) -> list[Cell]:
    """A peer that cannot be started is an error here, before the first measurement, and never left out."""
    found: list[Cell] = []
    for group in groups:
        if group == "memory":
            found += with_versions(workloads.cells(("memory",), quick, BUILD))
        else:
            make: Callable[[bool], list[Cell]] = importlib.import_module(MODULES[group]).cells
            found += make(quick)
    return found


def with_versions(cells: list[Cell]) -> list[Cell]:
    for cell in cells:
        cell.settings = how_started(cell.settings)
    return cells


def measured(options: argparse.Namespace, groups: list[str]) -> dict[str, Any]:
    about = machine.describe(BUILD)
    for name, value in about.items():
        print(f"{name + ':':20}{value}")
    if options.write_docs and float(about["load at the start"]) > BUSY_LOAD:
        print(f"bench: the machine is busy (load above {BUSY_LOAD}), and the page will say so", file=sys.stderr)
    cells = cells_of(groups, options.quick)
    for group, peer, settings in dict.fromkeys((cell.group, cell.peer, cell.settings) for cell in cells):
        print(f"{group + ', ' + peer + ':':42} {settings}")
    rounds = options.rounds or (1 if options.quick else 3)
    began = time.monotonic()
    limit = None if options.rounds else options.minutes * 60 - LAST_CELL_SECONDS

    def tell(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", flush=True)

    run_cells(cells, rounds, tell, limit, is_exact=options.rounds is not None)
    counts = [len(cell.readings) for cell in cells]
    number = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else str(max(counts))
    about["readings of each"] = f"{number}, in rounds that visit everything; the best is shown"
    return {**to_document(cells, about), "quick": options.quick}


def read_document(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text())
    if not isinstance(document, dict) or not {"machine", "rows"} <= document.keys():
        raise ValueError(f"{path} has not the results of a run")
    return document


def unfit_for_the_page(document: dict[str, Any]) -> str:
    """Why a run must not become the page; empty if it may."""
    groups = {row["group"] for row in document["rows"]}
    if missing := [group for group in GROUPS if group not in groups]:
        return f"the run has no {', '.join(missing)}"
    if document.get("quick", True):  # one that does not say is too old to be shown as today's
        return "the run was quick, or does not say that it was not"
    if all(len(row["readings"]) < 2 for row in document["rows"]):
        return "the run has one reading of each: --rounds 2 takes as long as that takes"
    return ""


def show(document: dict[str, Any]) -> None:
    for group in dict.fromkeys(row["group"] for row in document["rows"]):
        print(f"\n{group}")
        rows = [row for row in document["rows"] if row["group"] == group]
        print_table([Column(*head) for head in HEADS], rows_of({"rows": rows}), STYLES)
    verdicts = [verdict for verdict in targets.judge(document) if verdict.value is not None]
    if verdicts:
        print("\ntargets")
        heads = [Column("TARGET"), Column("WANTED", True), Column("FOUND", True), Column("")]
        print_table(heads, [[v.target.text, v.wanted, v.found, v.word] for v in verdicts], STYLES)
    for row in document["rows"]:
        if row["fault"]:
            print(
                f"FAILED: {row['group']}, {row['workload']}, {row['peer']}: {one_line(row['fault'])}", file=sys.stderr
            )


def options_from(words: list[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        "python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="A,B", help=f"some of {', '.join(GROUPS)}")
    parser.add_argument("--minutes", type=float, default=10.0, help="begin nothing new after so long (default: 10)")
    parser.add_argument(
        "--rounds", type=int, help="so many of everything, however long it takes (default: up to 3, in time)"
    )
    parser.add_argument("--quick", action="store_true", help="one round, fewer jobs: to see that it works")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help=f"all readings (default: {RESULTS})")
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help=f"write tables and charts into {docs.PAGE}, and the summary into {docs.README}",
    )
    parser.add_argument(
        "--from", dest="earlier", type=Path, metavar="FILE", help="measure nothing: show an earlier run"
    )
    options = parser.parse_args(words)
    if options.earlier and (options.only is not None or options.quick or options.rounds is not None):
        parser.error("--from: measures nothing, so without --only, --quick and --rounds")
    only = ",".join(GROUPS) if options.only is None else options.only
    groups = list(dict.fromkeys(word.strip() for word in only.split(",") if word.strip()))
    if not groups:
        parser.error(f"--only: there are {', '.join(GROUPS)}")
    if unknown := [group for group in groups if group not in GROUPS]:
        parser.error(f"--only: there is no {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds: at least one")
    if options.minutes <= 0:
        parser.error("--minutes: more than none")
    if options.write_docs and not options.earlier and (options.quick or set(groups) != set(GROUPS)):
        parser.error("--write-docs: figures of one page are of one whole run; without --only and --quick")
    if options.write_docs and options.rounds == 1:
        parser.error("--write-docs: one round has no spread; at least two")
    return options, groups


def main(words: list[str] | None = None) -> int:
    options, groups = options_from(words)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # crowds are connections
    BUILD.mkdir(exist_ok=True)
    servers.end_on_termination()
    try:
        if options.earlier:
            document = read_document(options.earlier)
        else:
            document = measured(options, groups)
            write_json(options.json, document)
    except (OSError, ValueError, RuntimeError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    show(document)
    if options.write_docs:
        if reason := unfit_for_the_page(document):
            print(f"bench: --write-docs: {reason}; nothing is written", file=sys.stderr)
            return 2
        docs.write(document)
        docs.write_summary(document)
    return 1 if any(row["fault"] for row in document["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
