"""`switchgear worker FUNCTION... --exec COMMAND`: runs a shell command for each job."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Any, Final

from switchgear.cli.main import ExitCode
from switchgear.cli.output import locators
from switchgear.cli.report_writer import ReportWriter
from switchgear.cli.signals import on_signals
from switchgear.client.address import ServerAddress
from switchgear.client.gearman.shell_handler import ShellCommand
from switchgear.client.gearman.worker import Worker, WorkerJob, WorkerObserver
from switchgear.errors import ServerRefused
from switchgear.units import short_duration

__all__ = ["work_by_command"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def work_by_command(
    command: str,
    functions: Sequence[str],
    servers: Sequence[str],
    *,
    slots: int,
    timeout_seconds: float | None,
    count: int | None,
    drain_seconds: float,
    name: str,
    tags: Sequence[str],
    resources: str,
    quiet: bool,
    as_json: bool,
    log_format: str = "text",
) -> ExitCode:
    """Run the command for each job of the functions until stopped."""
    shell = ShellCommand(command, timeout_seconds=timeout_seconds or 0.0)
    reporter = _CommandReporter(ReportWriter("switchgear worker", quiet=quiet, as_json=as_json, log_format=log_format))
    found = locators(servers)

    async def work() -> ExitCode:
        handlers = dict.fromkeys(functions, shell)
        worker = Worker(
            found, handlers, slots, jobs_total=count or 0, name=name, tags=tags, resources=resources, observer=reporter
        )
        return await _work(worker, shell, reporter, drain_seconds)

    return asyncio.run(work())


async def _work(worker: Worker, shell: ShellCommand, reporter: _CommandReporter, drain_seconds: float) -> ExitCode:
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


class _CommandReporter(WorkerObserver):
    """Prints the reports of a worker that runs commands."""

    def __init__(self, writer: ReportWriter) -> None:
        self._writer = writer
        self._is_stopping = False
        self.dropped_at_stop = 0

    def connected(self, server: ServerAddress) -> None:
        self._writer.say(f"connected to {server}", event="connected", server=str(server))

    def disconnected(self, server: ServerAddress, problem: str, retry_seconds: float) -> None:
        text = f"{server}: {problem}; next attempt in {short_duration(retry_seconds)}"
        fields: dict[str, Any] = {"server": str(server), "problem": problem, "retry_seconds": retry_seconds}
        self._writer.say(text, is_problem=True, event="disconnected", **fields)

    def refused(self, server: ServerAddress, error: ServerRefused) -> None:
        text = f"{server} answered with an error: {error}"
        self._writer.say(text, is_problem=True, event="refused", server=str(server), code=error.code, error=error.text)

    def job_started(self, job: WorkerJob) -> None:
        text = f"{job.handle} ({job.function}) started"
        self._writer.say(text, event="started", handle=job.handle, function=job.function)

    def job_ended(self, job: WorkerJob, failure: str | None, seconds: float) -> None:
        fields: dict[str, Any] = {"handle": job.handle, "function": job.function, "seconds": round(seconds, 6)}
        about = f"{job.handle} ({job.function})"
        if failure is None:
            self._writer.say(f"{about} done in {short_duration(seconds)}", event="done", **fields)
        else:
            text = f"{about} failed in {short_duration(seconds)}: {failure}"
            self._writer.say(text, is_problem=True, event="failed", error=failure, **fields)

    def job_dropped(self, job: WorkerJob) -> None:
        self.dropped_at_stop += self._is_stopping
        text = f"{job.handle} ({job.function}) stopped before its end"
        self._writer.say(text, is_problem=True, event="dropped", handle=job.handle, function=job.function)

    def stopping(self, number: signal.Signals, drain_seconds: float) -> None:
        self._is_stopping = True
        text = (
            f"{number.name}: running jobs may finish within {short_duration(drain_seconds)}; the next signal kills them"
        )
        self._writer.say(text, event="stopping", signal=number.name, drain_seconds=drain_seconds)
