"""`switchgear dwork graph`: counts tasks by state, shows the critical path and stuck tasks, and draws the graph."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click

from switchgear.cli.dwork_options import DworkServer, link_options
from switchgear.cli.dwork_show import path_text, shown
from switchgear.cli.dwork_tasks import ordered, read_file
from switchgear.cli.output import complain, json_option, print_json, printable
from switchgear.client.dwork.drawing import MOST_DRAWN, dot_of, svg_of
from switchgear.client.dwork.graph_analysis import GraphTask, TaskGraph
from switchgear.client.dwork.records import bytes_of
from switchgear.json_bytes import plain
from switchgear.units import short_duration

__all__ = ["graph"]

_EPILOG = f"""\b
Examples:
  switchgear dwork graph
  switchgear dwork graph --svg graph.svg
  switchgear dwork graph --file commands.txt --dot - | dot -Tpdf > graph.pdf

A picture shows up to {MOST_DRAWN} tasks; DOT, for Graphviz and other programs, has no limit.

\b
Exit codes:
  0  here it is
  1  it cannot be drawn: too many tasks (DOT is written all the same), or the server cannot list them
  2  something is wrong with the file
  3  no answer
"""

MOST_NAMED: Final = 20


@click.command(epilog=_EPILOG)
@click.option("--file", metavar="FILE", help="Show the tasks of a file, not of a server.")
@click.option("--dot", metavar="FILE", type=click.Path(dir_okay=False), help="Write DOT; - for standard output.")
@click.option("--svg", metavar="FILE", type=click.Path(dir_okay=False), help="Draw SVG; - for standard output.")
@json_option("Write one JSON object: counts, critical_path, critical_seconds, unsuccessful.")
@link_options
@click.pass_context
def graph(
    ctx: click.Context, file: str | None, dot: str | None, svg: str | None, as_json: bool, link: DworkServer
) -> None:
    """Show the task graph of a server: the number of tasks in each state, the critical path, and stuck tasks.

    The critical path is the chain of tasks that took longest until now. Stuck is what waits, directly or not, for a
    task that failed. Finished tasks are shown as long as the server remembers them.
    """
    if "-" in (dot, svg) and (as_json or dot == svg):
        raise click.UsageError("Only one thing can be written to standard output.")
    tasks = _graph_of_file(file) if file is not None else _graph_of_server(link)
    if dot is not None:
        _write(dot, dot_of(tasks))
    fits = len(tasks.tasks) <= MOST_DRAWN
    if svg is not None and fits:
        _write(svg, svg_of(tasks))
    if as_json:
        print_json(_object(tasks))
    elif "-" not in (dot, svg):
        _print(tasks)
    if svg is not None and not fits:
        more = "" if dot is not None else "; --dot has no limit"
        complain(f"{len(tasks.tasks)} tasks are too many for a picture, which has room for {MOST_DRAWN}{more}")
        ctx.exit(1)


def _graph_of_file(name: str) -> TaskGraph:
    file = read_file(name)
    ordered(file, name)  # raises if that cannot be
    return TaskGraph.of_file(file)


def _graph_of_server(link: DworkServer) -> TaskGraph:
    with link.client() as client:
        records = list(client.tasks())
    return TaskGraph.of_records(records, time.time_ns() // 1000)


def _write(path: str, text: str) -> None:
    if path == "-":
        click.echo(text, nl=False)
    else:
        Path(path).write_text(text, encoding="utf-8")


def _print(tasks: TaskGraph) -> None:
    counts = ", ".join(f"{number} {state}" for state, number in tasks.counts().items())
    click.echo(f"{len(tasks.tasks)} {'task' if len(tasks.tasks) == 1 else 'tasks'}{': ' + counts if counts else ''}")
    path = tasks.critical_path()
    if path:
        seconds = sum(task.seconds for task in path)
        click.echo(f"critical path: {short_duration(seconds)}, {path_text([task.name for task in path])}")
    unsuccessful = tasks.unsuccessful()
    for task in unsuccessful[:MOST_NAMED]:
        click.echo(f"{task.state}: {_about(tasks, task)}")
    if len(unsuccessful) > MOST_NAMED:
        click.echo(f"… and {len(unsuccessful) - MOST_NAMED} more")


def _about(tasks: TaskGraph, task: GraphTask) -> str:
    error = f": {printable(task.error)}" if task.error else ""
    stuck = len(tasks.all_behind([task.id]))
    return f"{shown(task.name)}{error}" + (f" ({stuck} stuck behind it)" if stuck else "")


def _object(tasks: TaskGraph) -> dict[str, object]:
    path = tasks.critical_path()
    return {
        "tasks": len(tasks.tasks),
        "counts": tasks.counts(),
        "critical_path": [plain(bytes_of(task.name)) for task in path],
        "critical_seconds": round(sum(task.seconds for task in path), 6),
        "unsuccessful": [
            {
                "task": plain(bytes_of(task.name)),
                "state": task.state,
                "error": task.error,
                "stuck": len(tasks.all_behind([task.id])),
            }
            for task in tasks.unsuccessful()
        ],
    }
