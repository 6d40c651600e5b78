"""`switchgear dwork steal`, `complete`, `transfer` and `exit`: the steps of a worker, for shell scripts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from switchgear.cli.dwork_options import DworkServer, host_name, link_options
from switchgear.cli.main import ExitCode
from switchgear.cli.output import (
    Column,
    complain,
    duration_option,
    fit_for,
    json_option,
    moment,
    print_json,
    print_table,
    printable,
)
from switchgear.client.dwork.records import Stolen, bytes_of
from switchgear.json_bytes import plain

__all__ = ["complete", "exit_", "steal", "transfer"]

HOST_HELP = "The name of the worker. Default: that of this host."
NO_TASK = "No task"


@click.command(
    epilog="""\b
Examples:
  switchgear dwork steal
  switchgear dwork steal -n 10 node7
\b
  while task=$(switchgear dwork steal -q --wait 10); do
    if sh -c "$task"; then switchgear dwork complete "$task"
    else switchgear dwork complete --error "exit status $?" "$task"; fi
  done

\b
Exit codes:
  0  a task was taken
  1  there is no task: nothing is left to do, or all tasks wait for failed ones; or, without --wait, none is ready now
  3  no answer
  4  with --wait: none became ready in that time
"""
)
@click.option("-n", "number", type=click.IntRange(1), default=1, metavar="N", help="Take up to this many. Default: 1.")
@click.option("-q", "--quiet", is_flag=True, help=f'Write the name and nothing else, or "{NO_TASK}".')
@duration_option(
    "--wait",
    "Wait up to this long for a task, even if none has been created yet. A dhub server does not support this.",
    "0",
)
@click.argument("host", required=False)
@json_option("Write one JSON object: tasks, all_done, and stuck: how many wait for tasks that failed.")
@link_options
@click.pass_context
def steal(
    ctx: click.Context, number: int, quiet: bool, wait: float, host: str | None, as_json: bool, link: DworkServer
) -> None:
    """Take tasks that are ready, for the worker HOST.

    They are that worker's until it completes or transfers them, or exits, or its lease ends. Names are written one to a
    line, and what cannot be shown in a line is escaped, except with -q.
    """
    if quiet and number != 1:
        raise click.UsageError("-q takes one task.")
    with link.client(host or host_name()) as client:
        stolen = client.steal(number, wait_seconds=wait)
    if as_json:
        tasks = [
            {"name": plain(bytes_of(task.name)), "origin": task.origin, "stolen": task.stolen_us / 1e6}
            for task in stolen
        ]
        print_json({"tasks": tasks, "all_done": stolen.all_done and not stolen.stuck, "stuck": stolen.stuck})
    elif quiet:
        click.echo(fit_for(sys.stdout, bytes_of(stolen.tasks[0].name)) if stolen.tasks else NO_TASK)
    else:
        _print_stolen(stolen)
    if stolen.tasks:
        return
    ctx.exit(ExitCode.TIMED_OUT if wait and not stolen.all_done else ExitCode.FAILED)


def _print_stolen(stolen: Stolen) -> None:
    if stolen.tasks:
        rows = [(task.name, task.origin, moment(task.stolen_us / 1e6, "milliseconds")) for task in stolen]
        print_table((Column("TASK", wrap=True), Column("ORIGIN", wrap=True), Column("STOLEN")), rows)
    elif stolen.stuck:
        tasks = "1 task waits" if stolen.stuck == 1 else f"{stolen.stuck} tasks wait"
        complain(f"nothing can be done now: {tasks} for tasks that failed")
    else:
        complain("nothing is left to do" if stolen.all_done else "no task is ready")


@click.command(
    epilog="""\b
Examples:
  switchgear dwork complete fetch
  switchgear dwork complete --host node7 fetch unpack
  switchgear dwork complete --error "disk full" fetch

\b
Exit codes:
  0  the server knows it now
  1  the server does not know some of the tasks, or they cannot be complete yet
  3  no answer
"""
)
@click.argument("tasks", metavar="TASK...", nargs=-1, required=True)
@click.option("--host", help=HOST_HELP)
@click.option(
    "--error",
    metavar="TEXT",
    help="Report the tasks as failed, with this reason. A dhub server does not support this and takes them as done.",
)
@json_option("Write one JSON object: not_found, an array of names.")
@link_options
@click.pass_context
def complete(
    ctx: click.Context, tasks: tuple[str, ...], host: str | None, error: str | None, as_json: bool, link: DworkServer
) -> None:
    """Report TASKs as done, so that the tasks that wait for them become ready."""
    reason = None if error is None else os.fsencode(error)
    with link.client(host or host_name()) as client:
        unknown = client.complete([os.fsencode(task) for task in tasks], error=reason)
    _report_unknown(ctx, unknown, "the server has no such task to complete", as_json)


@click.command(
    epilog="""\b
Examples:
  switchgear dwork transfer fetch
  switchgear dwork transfer fetch login                fetch has to wait for login after all

\b
Exit codes:
  0  the server has the task back
  1  the worker does not have it
  3  no answer
"""
)
@click.argument("task")
@click.argument("predecessors", metavar="[DEP...]", nargs=-1)
@click.option("--host", help=HOST_HELP)
@json_option("Write one JSON object: not_found, an array of names.")
@link_options
@click.pass_context
def transfer(
    ctx: click.Context, task: str, predecessors: tuple[str, ...], host: str | None, as_json: bool, link: DworkServer
) -> None:
    """Release a stolen TASK; any worker can get it after the DEPs are done."""
    with link.client(host or host_name()) as client:
        unknown = client.transfer(os.fsencode(task), after=[os.fsencode(name) for name in predecessors])
    _report_unknown(ctx, unknown, "the worker does not have this task", as_json)


def _report_unknown(ctx: click.Context, names: Sequence[str], text: str, as_json: bool) -> None:
    if as_json:
        print_json({"not_found": [plain(bytes_of(name)) for name in names]})
    else:
        for name in names:
            complain(f"{name}: {text}")
    ctx.exit(ExitCode.FAILED if names else ExitCode.SUCCESS)


@click.command(
    "exit",
    epilog="""\b
Examples:
  switchgear dwork exit                                the worker that has the name of this host
  switchgear dwork exit node7:4711

\b
Exit codes:
  0  the tasks of the worker are ready for others
  1  the server knows of no such worker
  3  no answer
""",
)
@click.argument("host", required=False)
@json_option("Write one JSON object: known.")
@link_options
@click.pass_context
def exit_(ctx: click.Context, host: str | None, as_json: bool, link: DworkServer) -> None:
    """Deregister the worker HOST: all its tasks become ready again."""
    name = host or host_name()
    with link.client(name) as client:
        known = client.exit()
    if as_json:
        print_json({"known": known})
    elif known:
        click.echo(f"the tasks of {printable(name)} are ready again")
    else:
        complain(f"the server knows of no worker {name}")
    ctx.exit(ExitCode.SUCCESS if known else ExitCode.FAILED)
