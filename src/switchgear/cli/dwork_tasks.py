"""Creating tasks, and looking at them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from switchgear.cli.dwork_options import Link, link_options
from switchgear.cli.main import ExitCode
from switchgear.cli.output import complain, json_option, moment, plain, print_json, printable
from switchgear.client.dwork.records import TaskRecord
from switchgear.client.dwork.taskfile import TaskFile, UnknownPredecessor, in_order, parse_task_lines, read_task_file
from switchgear.errors import ConfigError, CycleRefused

__all__ = ["addfile", "create", "lookup", "ordered", "read_file", "status"]

STANDARD_INPUT = "standard input"


def read_file(name: str) -> TaskFile:
    """The tasks of a file, or of standard input for a dash."""
    if name != "-":
        return read_task_file(Path(name))
    return parse_task_lines(sys.stdin.buffer, STANDARD_INPUT)


def ordered(tasks: TaskFile, name: str) -> list[str]:
    """All tasks of a file, each after those that it waits for; raises ConfigError if some wait for each other."""
    try:
        return in_order(tasks.tasks)
    except CycleRefused as error:
        source = STANDARD_INPUT if name == "-" else name
        raise ConfigError(f"{source}: tasks wait for each other: {' -> '.join(error.path)}") from None


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
def create(task: str, predecessors: tuple[str, ...], as_json: bool, link: Link) -> None:
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
def addfile(file: str, as_json: bool, link: Link) -> None:
    """Create all tasks of a FILE, which has one line for each: task,dep,dep...

    Each is created after those that it waits for, wherever they are in the file. A dependency that is not in the file
    is left to the server, for which one that it does not know counts as done. FILE may be - for standard input.
    """
    tasks = read_file(file)
    _warn_of_unknown(list(tasks.unknown_predecessors()))
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


def _warn_of_unknown(unknown: list[UnknownPredecessor]) -> None:
    """They may be on the server.  If not, a slip of the pen makes a task run too early."""
    if unknown:
        others = f", and {len(unknown) - 1} more like this" if len(unknown) > 1 else ""
        complain(f"{unknown[0]}{others}: unless the server has it, it counts as done")


@click.command(
    epilog="""\b
Exit codes:
  0  the server answered
  3  it did not
"""
)
@json_option("Write one JSON object: active, ready, text.")
@link_options
def status(as_json: bool, link: Link) -> None:
    """Show how many tasks are not done, and how many of them could be stolen now."""
    with link.client() as client:
        answer = client.status()
    if as_json:
        print_json({"active": answer.active, "ready": answer.ready, "text": answer.text})
    else:
        click.echo(f"{answer.active} not done, {answer.ready} ready")


@click.command(
    epilog="""\b
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
def lookup(ctx: click.Context, task: str, as_json: bool, link: Link) -> None:
    """Show what the server knows of a TASK: its state, who has it, why it failed.

    A dhub server does not know this question.
    """
    with link.client() as client:
        record = client.lookup(os.fsencode(task))
    if as_json:
        print_json(None if record is None else _object(record))
    elif record is None:
        complain(f"the server knows of no task {task}")
    else:
        _print_record(record)
    ctx.exit(ExitCode.SUCCESS if record is not None else ExitCode.FAILED)


def _object(record: TaskRecord) -> dict[str, object]:
    return {
        "name": _plain(record.name),
        "id": record.id,
        "state": record.state,
        "location": _plain(record.location),
        "error": None if record.error is None else _plain(record.error),
        "after": list(record.after),
        "started": record.started_us / 1e6 or None,
        "ended": record.ended_us / 1e6 or None,
    }


def _plain(text: str) -> str | dict[str, str]:
    return plain(text.encode(errors="surrogateescape"))


def _print_record(record: TaskRecord) -> None:
    rows = (
        ("task", record.name),
        ("state", record.state),
        ("location", record.location),
        ("error", record.error or ""),
        ("started", moment(record.started_us / 1e6, "milliseconds")),
        ("ended", moment(record.ended_us / 1e6, "milliseconds")),
    )
    for title, value in rows:
        if value:
            click.echo(f"{title + ':':<10}{printable(value)}")
