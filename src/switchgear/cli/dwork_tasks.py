"""`switchgear dwork create`, `addfile`, `status` and `lookup`."""

from __future__ import annotations

import os
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from switchgear.cli.dwork_options import DworkServer, link_options
from switchgear.cli.main import ExitCode
from switchgear.cli.output import complain, json_option, moment, print_json, printable
from switchgear.client.dwork.records import TaskRecord
from switchgear.client.dwork.taskfile import TaskFile, UnknownPredecessor, in_order, parse_task_lines, read_task_file
from switchgear.errors import ConfigError, CycleRefused
from switchgear.json_bytes import plain

if TYPE_CHECKING:
    from switchgear.client.dwork.blocking import DworkClient

__all__ = ["COMMA_HINT", "addfile", "create", "lookup", "ordered", "read_file", "source_of", "status"]

STANDARD_INPUT = "standard input"
COMMA_HINT = (
    "commas separate the fields of a line: a command that has one is written in double quotes, and quotes inside it"
    ' twice, as in "echo ""a, b"""'
)
MOST_LOOKED_THROUGH: Final = 10_000  # tasks, for the names of those that one waits for


def read_file(name: str) -> TaskFile:
    """The tasks of a file, or of standard input for a dash; raises ConfigError."""
    try:
        return parse_task_lines(sys.stdin.buffer, STANDARD_INPUT) if name == "-" else read_task_file(Path(name))
    except OSError as error:
        raise ConfigError(f"{source_of(name)}: {error.strerror or error}") from None


def source_of(name: str) -> str:
    """The name of a file in messages: `standard input` for a dash."""
    return STANDARD_INPUT if name == "-" else name


def ordered(tasks: TaskFile, name: str) -> list[str]:
    """All tasks of a file, each after those that it waits for; raises ConfigError if some wait for each other."""
    try:
        return in_order(tasks.tasks)
    except CycleRefused as error:
        raise ConfigError(f"{source_of(name)}: tasks wait for each other: {' -> '.join(error.path)}") from None


@click.command(
    epilog="""\b
Examples:
  switchgear dwork create fetch
  switchgear dwork create index fetch unpack         index waits for both

\b
Exit codes:
  0  the server has the task
  1  the server refused it, for example because it would wait for itself
  3  no answer
"""
)
@click.argument("task")
@click.argument("predecessors", metavar="[DEP...]", nargs=-1)
@json_option("Write one JSON object.")
@link_options
def create(task: str, predecessors: tuple[str, ...], as_json: bool, link: DworkServer) -> None:
    """Create a TASK that waits for others, the DEPs.

    A DEP that the server does not know counts as done, so create it first. Of a task that is there already, only
    dependencies are added.
    """
    with link.client() as client:
        client.create(os.fsencode(task), after=[os.fsencode(name) for name in predecessors])
    if as_json:
        print_json({"created": 1})
    else:
        after = f", after {', '.join(predecessors)}" if predecessors else ""
        click.echo(f"created {printable(task + after)}")


@click.command(
    epilog="""\b
Examples:
  switchgear dwork addfile tasks.txt
  ./make-tasks | switchgear dwork addfile -

\b
Exit codes:
  0  the server has all of them
  1  the server refused some; those before them are created
  2  there is something wrong with the file; nothing was created
  3  no answer; some may be created, and it does no harm to add the file again before they are done
"""
)
@click.argument("file", metavar="FILE")
@json_option("Write one JSON object.")
@link_options
def addfile(file: str, as_json: bool, link: DworkServer) -> None:
    """Create all tasks of a FILE, which has one line for each: task,dep,dep...

    Each is created after those that it waits for, wherever they are in the file. A dependency that is not in the file
    is left to the server, where an unknown task counts as done. FILE may be - for standard input.
    """
    tasks = read_file(file)
    _warn_of_unknown(list(tasks.unknown_predecessors()), source_of(file))
    pairs = ((name, tasks.tasks[name]) for name in ordered(tasks, file))
    with link.client() as client:
        created = client.create(pairs)
    if as_json:
        print_json({"created": created, "comments": tasks.comments})
    else:
        skipped = f", and skipped {tasks.comments} {_plural('comment', tasks.comments)}" if tasks.comments else ""
        click.echo(f"created {created} {_plural('task', created)}{skipped}")


def _plural(word: str, number: int) -> str:
    return word if number == 1 else f"{word}s"


def _warn_of_unknown(unknown: list[UnknownPredecessor], source: str) -> None:
    """Warn of predecessors that are not in the file: if the server lacks them too, a task would run too early."""
    if unknown:
        others = f", and {len(unknown) - 1} more like this" if len(unknown) > 1 else ""
        complain(f"{source}: {unknown[0]}{others}: unless the server has it, it counts as done")
    if any(problem.is_torn for problem in unknown):
        complain(COMMA_HINT)


@click.command(
    epilog="""\b
Examples:
  switchgear dwork status
  switchgear dwork status -s dwork://head:6125 --json

\b
Exit codes:
  0  the server answered
  3  it did not
"""
)
@json_option("Write one JSON object: active, ready, text.")
@link_options
def status(as_json: bool, link: DworkServer) -> None:
    """Show the number of unfinished tasks, and how many of them are ready."""
    with link.client() as client:
        answer = client.status()
    if as_json:
        print_json({"active": answer.active, "ready": answer.ready, "text": answer.text})
    else:
        click.echo(f"{answer.active} not done, {answer.ready} ready")


@click.command(
    epilog="""\b
Examples:
  switchgear dwork lookup fetch
  switchgear dwork lookup './unpack 7' --json

\b
Exit codes:
  0  the server knows the task
  1  it does not
  3  no answer
"""
)
@click.argument("task")
@json_option("Write one JSON object, or null.")
@link_options
@click.pass_context
def lookup(ctx: click.Context, task: str, as_json: bool, link: DworkServer) -> None:
    """Show a TASK: its state, the worker that holds it, and its error.

    A dhub server does not support this.
    """
    with link.client() as client:
        record = client.lookup(os.fsencode(task))
        awaited = [] if record is None or record.state != "waiting" else _awaited(record, client)
    if as_json:
        print_json(None if record is None else _object(record, awaited))
    elif record is None:
        complain(f"the server knows of no task {task}")
    else:
        _print_record(record, awaited)
    ctx.exit(ExitCode.SUCCESS if record is not None else ExitCode.FAILED)


def _awaited(record: TaskRecord, client: DworkClient) -> list[str]:
    """The predecessors that a task still waits for: names if they are found quickly, else their number."""
    wanted = dict.fromkeys(record.after, "")
    done = set()
    missing = set(wanted)
    for other in islice(client.tasks(), MOST_LOOKED_THROUGH):
        if other.id in missing:
            missing.remove(other.id)
            wanted[other.id] = other.name if other.state != "failed" else f"{other.name} (failed)"
            if other.state == "done":
                done.add(other.id)
        if not missing:
            break
    return [name or f"task number {number}" for number, name in wanted.items() if number not in done]


def _object(record: TaskRecord, awaited: list[str]) -> dict[str, object]:
    return {
        "name": _plain(record.name),
        "id": record.id,
        "state": record.state,
        "location": _plain(record.location) if _is_held(record) else None,
        "error": None if record.error is None else _plain(record.error),
        "after": list(record.after),
        "waits_for": [_plain(name) for name in awaited],
        "started": record.started_us / 1e6 or None if _has_begun(record) else None,
        "ended": record.ended_us / 1e6 or None,
    }


def _is_held(record: TaskRecord) -> bool:
    """Whether a worker has the task.  If none has, the server gives itself as its location."""
    return record.state == "running"


def _has_begun(record: TaskRecord) -> bool:
    """Whether the task runs or has run; an earlier start of a task that was given back does not count."""
    return _is_held(record) or bool(record.ended_us)


def _plain(text: str) -> str | dict[str, str]:
    return plain(text.encode(errors="surrogateescape"))


def _print_record(record: TaskRecord, awaited: list[str]) -> None:
    location = record.location if _is_held(record) else "" if record.ended_us else "none yet"
    started_us = record.started_us if _has_begun(record) else 0
    rows = (
        ("task", record.name),
        ("state", record.state),
        ("waits for", ", ".join(awaited)),
        ("location", location),
        ("error", record.error or ""),
        ("started", moment(started_us / 1e6, "milliseconds")),
        ("ended", moment(record.ended_us / 1e6, "milliseconds")),
    )
    for title, value in rows:
        if value:
            click.echo(f"{title + ':':<11}{printable(value)}")
