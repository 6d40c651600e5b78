"""`switchgear dwork run`: runs a file of commands, a number of them at a time, in the order of their dependencies."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import click

from switchgear.cli.dwork_show import RunDisplay, print_summary, summary_object
from switchgear.cli.dwork_tasks import COMMA_HINT, ordered, read_file, source_of
from switchgear.cli.main import ExitCode
from switchgear.cli.output import complain, fit_for, json_option, print_json
from switchgear.cli.signals import on_signals
from switchgear.client.dwork.local_run import LocalRun, RunReport, run_tasks
from switchgear.client.dwork.records import bytes_of
from switchgear.client.dwork.shell_commands import ShellCommands
from switchgear.client.dwork.taskfile import TaskFile, line_of
from switchgear.errors import ConfigError
from switchgear.json_bytes import plain

__all__ = ["run"]

_EPILOG = """\b
Examples:
  switchgear dwork run commands.txt
  switchgear dwork run commands.txt --jobs 8 --keep-going --left again.txt
  switchgear dwork run again.txt

\b
The file has one line for each task, which is a command for /bin/sh, and what it waits for:
  ./fetch
  ./unpack a,./fetch
  "awk '{print $1, $2}' a",./unpack a

\b
Signals:
  INT, TERM, HUP   start nothing more and stop what runs: TERM, and KILL after five seconds, or at a second signal

\b
Exit codes:
    0  all tasks are done
    1  a task failed, or could not be run because another failed
    2  wrong usage, or something is wrong with the file; nothing was run
  130  interrupted
"""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MOST_COMPLAINTS: Final = 10


@click.command(epilog=_EPILOG)
@click.argument("file", metavar="FILE")
@click.option(
    "--jobs", "-j", type=click.IntRange(1), metavar="N", help="Run this many at once. Default: one for each processor."
)
@click.option(
    "--keep-going", "-k", is_flag=True, help="After a failure, continue with tasks that do not wait for the failed one."
)
@click.option(
    "--dry-run", "-n", is_flag=True, help="Run nothing; write the commands in an order in which they may run."
)
@click.option("--ignore-unknown", is_flag=True, help="A predecessor that is not in the file counts as done.")
@click.option(
    "--left",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the tasks that were not done to this file.",
)
@click.option("--quiet", "-q", is_flag=True, help="Write only the output of tasks, and failures.")
@json_option("Report on standard output, one JSON object on each line; what the tasks write goes to standard error.")
@click.pass_context
def run(
    ctx: click.Context,
    file: str,
    jobs: int | None,
    keep_going: bool,
    dry_run: bool,
    ignore_unknown: bool,
    left: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run all tasks of a FILE as commands, up to --jobs at once, each after its predecessors.

    No server is needed, and nothing is stored: to continue after an interruption, see --left. The output of a task is
    passed on when it ends, and not mixed with that of others. After a failure no more tasks are started, except with
    --keep-going. FILE may be - for standard input.
    """
    tasks = read_file(file)
    if not ignore_unknown:
        _refuse_unknown(tasks, source_of(file))
    ordered(tasks, file)  # raises if that cannot be
    local_run = LocalRun(tasks, _now_us(), keep_going=keep_going)
    if dry_run:
        _print_order(local_run, as_json)
        return
    display = RunDisplay(len(tasks.tasks), quiet=quiet, as_json=as_json)
    received = asyncio.run(_run(local_run, jobs or os.cpu_count() or 1, display))
    report = local_run.report(_now_us())
    if as_json:
        print_json(summary_object(report))
    elif not quiet or not report.is_success:
        print_summary(report)
    if left is not None:
        _write_left(left, tasks, report)
    if signal.SIGINT in received:
        ctx.exit(ExitCode.INTERRUPTED)
    ctx.exit(ExitCode.SUCCESS if report.is_success else ExitCode.FAILED)


def _now_us() -> int:
    """Microseconds of a monotonic clock."""
    return time.monotonic_ns() // 1000


def _refuse_unknown(tasks: TaskFile, source: str) -> None:
    """Refuse predecessors that are not in the file: a typing error must not make a task run too early."""
    unknown = list(tasks.unknown_predecessors())
    for problem in unknown[:MOST_COMPLAINTS]:
        complain(f"{source}: {problem}")
    if any(problem.is_torn for problem in unknown):
        complain(COMMA_HINT)
    if unknown:
        more = f"; {len(unknown)} in all" if len(unknown) > MOST_COMPLAINTS else ""
        raise ConfigError(f"predecessors that are not in the file{more}; --ignore-unknown takes them for done")


def _print_order(local_run: LocalRun, as_json: bool) -> None:
    names = []
    while (name := local_run.take(0)) is not None:
        names.append(name)
        local_run.end(name, None, 0)
    if as_json:
        print_json([plain(bytes_of(name)) for name in names])
    else:
        for name in names:
            click.echo(fit_for(sys.stdout, bytes_of(name)))


def _write_left(path: Path, tasks: TaskFile, report: RunReport) -> None:
    """Write a file with the tasks that are not done, without the predecessors that are."""
    left = set(report.left)
    lines = [
        line_of(name, [other for other in predecessors if other in left])
        for name, predecessors in tasks.tasks.items()
        if name in left
    ]
    path.write_bytes("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))


async def _run(local_run: LocalRun, jobs: int, display: RunDisplay) -> list[signal.Signals]:
    """Run all tasks; returns the signals that have ended the run early."""
    commands = ShellCommands(one_stream=display.one_stream)
    running = asyncio.ensure_future(run_tasks(local_run, commands.run, jobs, _now_us, display))
    received: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        if received:
            commands.kill_at_once()
        received.append(number)
        local_run.stop()
        running.cancel()

    with on_signals(_SIGNALS, on_signal), display:
        await asyncio.wait({running})
        if not running.cancelled():
            running.result()  # raises what went wrong with us
    return received
