"""Progress display and summary of `switchgear dwork run` and `work`, for people and as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import click

from switchgear.cli.output import printable
from switchgear.cli.progress import ProgressBar
from switchgear.client.dwork.local_run import RunObserver, RunReport
from switchgear.client.dwork.records import bytes_of
from switchgear.client.dwork.shell_commands import CommandResult
from switchgear.json_bytes import plain
from switchgear.units import short_duration

__all__ = ["DworkPrinter", "RunDisplay", "print_summary", "summary_object"]

MOST_NAMED: Final = 20  # of a list in the summary; --json and --left have all of them
PATH_NAMED: Final = 8
NAME_CHARACTERS: Final = 80


def shown(name: str, most: int = NAME_CHARACTERS) -> str:
    """A name that is safe and not too long for a line."""
    name = printable(name)
    return name if len(name) <= most else name[: most - 1] + "…"


class DworkPrinter:
    """Prints the output of tasks, each task's as a whole."""

    def __init__(self, *, as_json: bool) -> None:
        stdout, stderr = sys.stdout.buffer, sys.stderr.buffer
        self._streams = (stderr, stderr) if as_json else (stdout, stderr)
        self.one_stream = as_json or _is_same_file(sys.stdout, sys.stderr)

    def pass_on(self, ended: CommandResult) -> None:
        ended.pass_on(*self._streams)


def _is_same_file(one: Any, other: Any) -> bool:
    """Whether two streams lead to the same terminal, file or pipe, so that the order of output matters."""
    try:
        return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))
    except (OSError, ValueError, AttributeError):
        return False


class RunDisplay(RunObserver[CommandResult]):
    """On a terminal a bar, otherwise a line for each task, and for programs JSON.  All of it goes to standard error, so
    that what the tasks write is all there is on standard output, but for JSON."""

    def __init__(self, total: int, *, quiet: bool, as_json: bool) -> None:
        self._total = total
        self._quiet = quiet
        self._as_json = as_json
        self._output = DworkPrinter(as_json=as_json)
        self._ended = 0
        self._failed = 0
        self._running = 0
        self._bar = ProgressBar("", total, quiet=quiet or as_json)

    @property
    def one_stream(self) -> bool:
        return self._output.one_stream

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.end()

    def started(self, name: str) -> None:
        self._running += 1
        self._update()
        if self._as_json:
            self._tell("started", name)

    def ended(self, name: str, outcome: CommandResult, seconds: float) -> None:
        self._running -= 1
        self._ended += 1
        failure = outcome.failure
        self._failed += failure is not None
        try:
            self._show(name, outcome, failure, seconds)
        finally:
            outcome.close()
        self._update()

    def _show(self, name: str, outcome: CommandResult, failure: str | None, seconds: float) -> None:
        if outcome.has_output or failure is not None:
            self._bar.hide()  # make room
        self._output.pass_on(outcome)
        if self._as_json:
            self._tell("done" if failure is None else "failed", name, seconds=round(seconds, 6), error=failure)
        elif failure is not None:
            self._say(f"failed in {short_duration(seconds)}: {shown(name)}: {printable(failure)}")
        elif not self._bar.is_shown and not self._quiet:
            self._say(f"done in {short_duration(seconds)}: {shown(name)}")

    def _update(self) -> None:
        failed = f", {self._failed} failed" if self._failed else ""
        self._bar.show(self._ended, label=f"{self._running} running{failed}")

    def _say(self, text: str) -> None:
        width = len(str(self._total))
        click.echo(f"[{self._ended:>{width}}/{self._total}] {text}", err=True)

    def _tell(self, event: str, name: str, **fields: object) -> None:
        with suppress(BrokenPipeError):  # the reader has closed the pipe; the tasks matter more
            about = {"event": event, "at": round(time.time(), 6), "task": plain(bytes_of(name)), **fields}
            click.echo(json.dumps(about))


# --- in the end ---


def summary_object(report: RunReport) -> dict[str, object]:
    """The summary as an object for JSON."""

    def names(of: Iterable[str]) -> list[object]:
        return [plain(bytes_of(name)) for name in of]

    return {
        "event": "summary",
        "done": len(report.done),
        "failed": [{"task": plain(bytes_of(name)), "error": why} for name, why in report.failed.items()],
        "interrupted": names(report.interrupted),
        "blocked": names(report.blocked),
        "not_started": names(report.not_started),
        "wall_seconds": round(report.wall_seconds, 6),
        "task_seconds": round(report.task_seconds, 6),
        "critical_path": names(report.critical_path),
        "critical_seconds": round(report.critical_seconds, 6),
    }


def print_summary(report: RunReport) -> None:
    """Print the summary for people."""
    for title, names in (
        ("failed", [f"{shown(name)}: {printable(why)}" for name, why in report.failed.items()]),
        ("interrupted", [shown(name) for name in report.interrupted]),
        ("not run, since a predecessor failed", [shown(name) for name in report.blocked]),
        ("not started", [shown(name) for name in report.not_started]),
    ):
        _print_list(title, names)
    counts = [f"{len(report.done)} done"]
    for names, text in (
        (list(report.failed), "failed"),
        (report.interrupted, "interrupted"),
        (report.blocked, "not run, since a predecessor failed"),
        (report.not_started, "not started"),
    ):
        if names:
            counts.append(f"{len(names)} {text}")
    click.echo(", ".join(counts), err=True)
    if report.wall_seconds and report.task_seconds:
        at_once = report.task_seconds / report.wall_seconds
        took = f"the tasks took {short_duration(report.task_seconds)}, {at_once:.2g} at once"
        click.echo(f"{short_duration(report.wall_seconds)}; {took}", err=True)
        path = path_text(report.critical_path)
        click.echo(f"critical path: {short_duration(report.critical_seconds)}, {path}", err=True)


def path_text(names: list[str]) -> str:
    """A chain of tasks as text; of a long one only both ends."""
    parts = [shown(name, 40) for name in names]
    if len(parts) > PATH_NAMED:
        half = PATH_NAMED // 2
        parts = [*parts[:half], f"… {len(parts) - 2 * half} more …", *parts[-half:]]
    return " -> ".join(parts)


def _print_list(title: str, names: list[str]) -> None:
    if names:
        click.echo(f"{title}:", err=True)
        for name in names[:MOST_NAMED]:
            click.echo(f"  {name}", err=True)
        if len(names) > MOST_NAMED:
            click.echo(f"  … and {len(names) - MOST_NAMED} more", err=True)
