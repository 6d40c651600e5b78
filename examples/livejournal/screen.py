"""What people see: a line for each task, and tables.  On a terminal the lines change in place."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Self

from rich.columns import Columns
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.livejournal.application import Job

__all__ = ["LiveScreen", "PlainScreen", "Screens", "open_screen"]

STYLES = {"created": "dim", "running": "cyan", "done": "green", "failed": "bold red", "duplicate": "yellow"}
# Wider than anything: lines that are not read by eyes are never cut.
UNLIMITED_COLUMNS = 10_000


def progress_words(job: Job) -> str:
    """Such as `3/12, 4 s left`."""
    if job.status is None:
        return ""
    left = f", {job.status.seconds_left} s left" if job.status.seconds_left else ""
    return f"{job.status.numerator}/{job.status.denominator}{left}"


class PlainScreen:
    """A line for each piece of news."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def show(self, job: Job) -> None:
        details = progress_words(job) if job.state == "running" else job.remark
        line = f"{job.order.label:<28} {job.order.type_words:<13} {job.state:<10} {details}"
        self.say(line.rstrip())

    def say(self, text: str) -> None:
        print(text, flush=True)

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """The first column is words, the others are figures."""
        console = Console(width=UNLIMITED_COLUMNS, highlight=False)
        with console.capture() as capture:
            console.print(_table(heads, rows))
        for line in capture.get().splitlines():
            self.say(line.rstrip())


class LiveScreen:
    """A line for each task that changes as it goes on."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._jobs: dict[Job, None] = {}
        self._live = Live(console=console, get_renderable=self._picture, refresh_per_second=10)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def show(self, job: Job) -> None:
        self._jobs[job] = None

    def say(self, text: str) -> None:
        self._console.print(Text(text))

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """The first column is words, the others are figures."""
        self._console.print(_table(heads, rows))

    def _picture(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        for job in list(self._jobs):
            state = Text(job.state, STYLES.get(job.state, ""))
            table.add_row(job.order.label, job.order.type_words, state, _details(job))
        return table


Screens = PlainScreen | LiveScreen


def open_screen() -> Screens:
    """What suits where the output goes."""
    return LiveScreen(Console()) if sys.stdout.isatty() else PlainScreen()


def _details(job: Job) -> Columns | Text:
    if job.state != "running" or job.status is None:
        return Text(job.remark)
    bar = ProgressBar(job.status.denominator, job.status.numerator, width=20)
    return Columns([bar, Text(progress_words(job))])


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
