"""`switchgear worker`: a command of the shell as a worker."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import suppress
from typing import Any, Final

import click

from switchgear.cli.main import ExitCode
from switchgear.cli.output import duration_option, json_option, lasting, printable, servers_option
from switchgear.cli.signals import on_signals
from switchgear.client.address import ServerAddress
from switchgear.client.link import WorkerJob, WorkerObserver
from switchgear.client.shell import ShellCommand
from switchgear.client.worker import DEFAULT_DRAIN_SECONDS, Worker
from switchgear.errors import ServerRefused

__all__ = ["worker"]

_EPILOG = """\b
Examples:
  switchgear worker reverse --exec rev
  switchgear worker resize --exec 'convert - -resize 50% -' --jobs 4 --timeout 60
  switchgear worker mail sms --exec './notify "$SWITCHGEAR_FUNCTION"' \\
      --server gearman://jobs1.example --server gearman://jobs2.example
  switchgear worker report --exec ./report --count 1

\b
What the command sees:
  standard input    the job's payload
  SWITCHGEAR_HANDLE, SWITCHGEAR_FUNCTION, SWITCHGEAR_UNIQUE
What it says:
  standard output   the result
  exit status       0: done; anything else: failed, with the last lines of standard error as reason
  standard error    warnings, sent as they come; but a line such as
                      progress: 3/10
                      progress: 30%
                    tells how far the job is

\b
Signals:
  TERM, INT   take no more jobs; running ones may finish, up to --drain-timeout; a second one kills them
              Jobs that were not finished are run again elsewhere, or fail if their attempts are spent.

\b
Exit codes:
    0  stopped by TERM or after --count jobs, whether those were done or failed
    1  stopped by TERM with jobs unfinished
  130  stopped by INT
"""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@click.command(epilog=_EPILOG)
@click.argument("functions", metavar="FUNCTION...", nargs=-1, required=True)
@click.option("--exec", "command", required=True, metavar="COMMAND", help="Run this with /bin/sh for each job.")
@click.option(
    "--jobs",
    "slots",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Run so many at once, over all servers.",
)
@duration_option("--timeout", "Stop a command that runs for longer than this: TERM, then KILL. Its job fails.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="Stop after so many jobs.")
@duration_option(
    "--drain-timeout",
    f"How long running commands may take to finish after a signal. Default: {DEFAULT_DRAIN_SECONDS:g}.",
    default=f"{DEFAULT_DRAIN_SECONDS:g}",
)
@click.option("--name", default="", help="What `switchgear workers` shows. Default: HOST/PID.")
@click.option("--quiet", "-q", is_flag=True, help="Report problems only.")
@servers_option
@json_option("Report on standard output, one JSON object on each line.")
@click.pass_context
def worker(
    ctx: click.Context,
    functions: tuple[str, ...],
    command: str,
    slots: int,
    timeout: float | None,
    count: int | None,
    drain_timeout: float,
    name: str,
    quiet: bool,
    servers: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run a command for each job of the FUNCTIONs.

    A server that cannot be reached is tried again until it can be; if the connection is lost, commands whose jobs came
    over it are stopped, because the server gives those jobs to other workers.
    """
    shell = ShellCommand(command, timeout_seconds=timeout or 0.0)
    reporter = _Reporter(quiet=quiet, as_json=as_json)
    handlers = dict.fromkeys(functions, shell)
    ctx.exit(
        asyncio.run(
            _work(
                Worker(servers, handlers, slots, jobs_total=count or 0, name=name, observer=reporter),
                shell,
                reporter,
                drain_timeout,
            )
        )
    )


async def _work(worker: Worker, shell: ShellCommand, reporter: _Reporter, drain_seconds: float) -> ExitCode:
    received: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        if received:
            shell.kill_at_once()
            worker.stop(0.0)
        else:
            reporter.stopping(number, drain_seconds)
            worker.stop(drain_seconds)
        received.append(number)

    with on_signals(_SIGNALS, on_signal):
        await worker.run()
    if signal.SIGINT in received:
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED if received and reporter.dropped_at_stop else ExitCode.SUCCESS


class _Reporter(WorkerObserver):
    """Tells people on standard error, or programs on standard output, what the worker does."""

    def __init__(self, *, quiet: bool, as_json: bool) -> None:
        self._quiet = quiet
        self._as_json = as_json
        self._is_stopping = False
        self.dropped_at_stop = 0

    def connected(self, server: ServerAddress) -> None:
        self._say(f"connected to {server}", event="connected", server=str(server))

    def disconnected(self, server: ServerAddress, problem: str, retry_seconds: float) -> None:
        text = f"{server}: {problem}; next attempt in {lasting(retry_seconds)}"
        fields: dict[str, Any] = {"server": str(server), "problem": problem, "retry_seconds": retry_seconds}
        self._say(text, is_problem=True, event="disconnected", **fields)

    def refused(self, server: ServerAddress, error: ServerRefused) -> None:
        text = f"{server} answered with an error: {error}"
        self._say(text, is_problem=True, event="refused", server=str(server), code=error.code, error=error.text)

    def job_started(self, job: WorkerJob) -> None:
        self._say(f"{job.handle} ({job.function}) started", event="started", handle=job.handle, function=job.function)

    def job_ended(self, job: WorkerJob, failure: str | None, seconds: float) -> None:
        fields: dict[str, Any] = {"handle": job.handle, "function": job.function, "seconds": round(seconds, 6)}
        about = f"{job.handle} ({job.function})"
        if failure is None:
            self._say(f"{about} done in {lasting(seconds)}", event="done", **fields)
        else:
            text = f"{about} failed in {lasting(seconds)}: {failure}"
            self._say(text, is_problem=True, event="failed", error=failure, **fields)

    def job_dropped(self, job: WorkerJob) -> None:
        self.dropped_at_stop += self._is_stopping
        text = f"{job.handle} ({job.function}) stopped before its end"
        self._say(text, is_problem=True, event="dropped", handle=job.handle, function=job.function)

    def stopping(self, number: signal.Signals, drain_seconds: float) -> None:
        self._is_stopping = True
        text = f"{number.name}: running jobs may finish within {lasting(drain_seconds)}; the next signal kills them"
        self._say(text, event="stopping", signal=number.name, drain_seconds=drain_seconds)

    def _say(self, text: str, *, is_problem: bool = False, event: str, **fields: object) -> None:
        if self._quiet and not is_problem:
            return
        with suppress(OSError):  # nobody reads it; the jobs matter more
            if self._as_json:
                click.echo(json.dumps({"event": event, "at": round(time.time(), 6), **fields}))
            else:
                click.echo(f"switchgear worker: {printable(text)}", err=True)
