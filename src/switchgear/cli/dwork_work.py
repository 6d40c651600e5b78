"""`switchgear dwork work`: a worker whose tasks are shell commands."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from contextlib import suppress
from typing import Final

import click

from switchgear.cli.dwork_options import DworkServer, host_name, link_options
from switchgear.cli.dwork_show import DworkPrinter, shown
from switchgear.cli.main import ExitCode
from switchgear.cli.output import duration_option, json_option, printable
from switchgear.cli.signals import on_signals
from switchgear.client.dwork.records import bytes_of
from switchgear.client.dwork.shell_commands import CommandResult, ShellCommands
from switchgear.client.dwork.task_stealer import DworkWorkerObserver, TaskStealer
from switchgear.json_bytes import plain
from switchgear.units import short_duration

__all__ = ["work"]

_EPILOG = """\b
Examples:
  switchgear dwork work --jobs 8
  switchgear dwork work -s dwork://head:6125 --host "$(hostname)" --wait

\b
Signals:
  TERM, INT   take no more tasks; those that run may finish
              a second one stops them (TERM, and KILL after five seconds, or at a third signal) and gives them back

\b
Exit codes:
    0  nothing is left to do, or stopped by TERM; whether tasks were done or failed
    1  stopped by TERM with tasks given back
    3  the server was silent for as long as --give-up allows
  130  stopped by INT
"""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@click.command(epilog=_EPILOG)
@click.option("--jobs", "-j", type=click.IntRange(1), default=1, metavar="N", help="Run this many at once. Default: 1.")
@click.option("--host", help="The name of this worker, which no other may have. Default: HOST:PID.")
@click.option("--wait", is_flag=True, help="When nothing is left to do, wait for more.")
@duration_option(
    "--lease", "The server assigns the tasks to other workers after this long without a heartbeat. Default: 60.", "60"
)
@duration_option("--give-up", "How long to retry while the server cannot be reached. Default: 5m.", "5m")
@click.option("--quiet", "-q", is_flag=True, help="Report problems only.")
@json_option("Report on standard output, one JSON object on each line; what the tasks write goes to standard error.")
@link_options
@click.pass_context
def work(
    ctx: click.Context,
    jobs: int,
    host: str | None,
    wait: bool,
    lease: float,
    give_up: float,
    quiet: bool,
    as_json: bool,
    link: DworkServer,
) -> None:
    """Steal tasks and run their names as commands, until no tasks are left.

    A task is done if its command exits with 0. Otherwise it failed, with the last line of its standard error as the
    reason, and its successors keep waiting. The output of a command is passed on when it ends.

    A dhub server has no failures: a failed task then stays with this worker, until `switchgear dwork exit` gives it
    back.
    """
    reporter = _TaskReporter(quiet=quiet, as_json=as_json)
    commands = ShellCommands(one_stream=reporter.output.one_stream)
    location = host or f"{host_name()}:{os.getpid()}"

    async def run() -> ExitCode:
        async with link.async_client(location) as client:
            worker = TaskStealer(
                client,
                commands.run,
                jobs,
                lease_seconds=lease,
                patience_seconds=give_up,
                waits_for_more=wait,
                observer=reporter,
            )
            return await _run(worker, commands, reporter)

    ctx.exit(asyncio.run(run()))


async def _run(worker: TaskStealer[CommandResult], commands: ShellCommands, reporter: _TaskReporter) -> ExitCode:
    received: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        received.append(number)
        if len(received) == 1:
            reporter.stopping(number)
            worker.stop()
        elif len(received) == 2:
            worker.abandon()
        else:
            commands.kill_at_once()

    with on_signals(_SIGNALS, on_signal):
        await worker.run()
    if signal.SIGINT in received:
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED if reporter.any_given_back else ExitCode.SUCCESS


class _TaskReporter(DworkWorkerObserver[CommandResult]):
    """Reports what the worker does: as text to standard error, or as JSON to standard output."""

    def __init__(self, *, quiet: bool, as_json: bool) -> None:
        self._quiet = quiet
        self._as_json = as_json
        self.output = DworkPrinter(as_json=as_json)
        self.any_given_back = False

    def started(self, name: str) -> None:
        self._say("started", "", name)

    def ended(self, name: str, outcome: CommandResult, seconds: float) -> None:
        failure = outcome.failure
        try:
            with suppress(BrokenPipeError):  # the reader has closed the pipe; the tasks matter more
                self.output.pass_on(outcome)
        finally:
            outcome.close()
        if failure is None:
            self._say("done", f"in {short_duration(seconds)}", name, seconds=round(seconds, 6))
        else:
            text = f"in {short_duration(seconds)}: {failure}"
            self._say("failed", text, name, is_problem=True, seconds=round(seconds, 6), error=failure)

    def unreachable(self, problem: str) -> None:
        self._say("unreachable", problem, is_problem=True, problem=problem)

    def given_back(self, name: str) -> None:
        self.any_given_back = True
        self._say("given back", "", name, is_problem=True)

    def refused(self, name: str, problem: str) -> None:
        self._say("refused", f"as ended: {problem}", name, is_problem=True, problem=problem)

    def failure_kept(self, name: str) -> None:
        self._say("kept", "since the server cannot be told that it failed", name, is_problem=True)

    def stopping(self, number: signal.Signals) -> None:
        text = f"{number.name}: running tasks may finish; the next signal stops them and gives them back"
        self._say("stopping", text, signal=number.name)

    def _say(
        self, event: str, text: str, name: str | None = None, *, is_problem: bool = False, **fields: object
    ) -> None:
        if self._quiet and not is_problem:
            return
        with suppress(OSError):  # the reader has closed the pipe; the tasks matter more
            if self._as_json:
                about = {} if name is None else {"task": plain(bytes_of(name))}
                event = event.replace(" ", "_")
                click.echo(json.dumps({"event": event, "at": round(time.time(), 6), **about, **fields}))
            else:
                said = printable(text) if name is None else f"{shown(name)}: {event} {printable(text)}"
                click.echo(f"switchgear dwork: {said}".rstrip(), err=True)
