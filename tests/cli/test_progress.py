"""The progress bar of long commands: what fits into a line, when it is drawn, and when it is silent."""

from __future__ import annotations

import io
import os
import pty
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from switchgear.cli import progress
from switchgear.cli.progress import ProgressBar, ProgressRate, progress_line
from tests.support.waiting import eventually

LONG = "an-exceedingly-long-word-for-what-happens-" * 5


# --- the line ---


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("label", ["", "cancelled", LONG])
@pytest.mark.parametrize(("done", "total"), [(0, 900_000), (405_000, 900_000), (10**12, 10**12), (7, 0), (9, 3)])
@pytest.mark.parametrize("rate", [None, 0.0, 0.013, 9470.4, 1e9])
def test_it_fits(columns: int, label: str, done: int, total: int, rate: float | None) -> None:
    line = progress_line(label, done, total, rate, columns)
    assert len(line) <= columns
    if columns >= 60 and total:
        assert f"{min(100, 100 * done // total)}%" in line
        assert f"{done:,} of {total:,}" in line
    elif columns >= 60:
        assert f"{done:,}" in line


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (100, "cancelled  ━━━━━━━━━━━━━━━━━──────────────────────   45%  405,000 of 900,000  9,470/s  52 s left"),
        (75, "cancelled  ━━━━━━────────   45%  405,000 of 900,000  9,470/s  52 s left"),
        (60, "cancelled   45%  405,000 of 900,000  9,470/s  52 s left"),
        (50, "cancelled   45%  405,000 of 900,000  52 s left"),
        (30, "cancelled   45%  52 s left"),
        (20, "cancelled   45%"),
        (12, " 45%"),
        (3, ""),
    ],
)
def test_what_does_not_fit_is_left_out(columns: int, line: str) -> None:
    assert progress_line("cancelled", 405_000, 900_000, 9470.4, columns) == line


def test_without_a_total_or_in_bytes_or_ascii() -> None:
    assert progress_line("imported", 12_000, 0, 3000.0, 80) == "imported  12,000  3,000/s"
    assert (
        progress_line("", 3 << 20, 12 << 20, 1 << 20, 60, in_bytes=True, is_ascii=True)
        == "###.........   25%   3 MiB of 12 MiB  1 MiB/s  9 s left"
    )
    assert progress_line("", 1, 4, 0.05, 60).endswith("0.05/s  60 s left")


def test_the_rate_is_that_of_the_last_seconds() -> None:
    rate = ProgressRate()
    assert rate.per_second() is None
    for second in range(100):
        rate.add(float(second), second if second < 50 else 50 + 9 * (second - 50))
    assert rate.per_second() == 9
    rate.add(100.0, 0)  # another one begins
    assert rate.per_second() is None


# --- when it is drawn ---


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_nothing_is_drawn_where_nobody_looks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SILENT_SECONDS", 0)
    threads = threading.active_count()
    for bar in (ProgressBar("x", 10), ProgressBar("x", 10, quiet=True, stream=Terminal())):
        with bar:
            bar.show(5)
            assert threading.active_count() == threads
    monkeypatch.setenv("TERM", "dumb")
    assert not ProgressBar(stream=Terminal()).is_shown
    closed = Terminal()
    closed.close()
    assert not ProgressBar(stream=closed).is_shown
    assert capsys.readouterr().err == ""


def test_what_ends_soon_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with ProgressBar("x", 10, stream=terminal) as bar:
        for done in range(10):
            bar.show(done)
    assert terminal.getvalue() == ""


def test_it_is_drawn_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "SILENT_SECONDS", 0)
    monkeypatch.setattr(progress, "DRAW_SECONDS", 0.001)
    terminal = Terminal()
    with ProgressBar("copied", 10, stream=terminal) as bar:
        bar.show(5)
        eventually(lambda: "50%   5 of 10" in terminal.getvalue(), "it is drawn")
        bar.hide()
        bar.show(6, 12, "moved")
        eventually(lambda: "moved" in terminal.getvalue() and "6 of 12" in terminal.getvalue(), "it goes on")
    assert terminal.getvalue().endswith("\r\x1b[K")
    bar.show(7)  # too late
    assert terminal.getvalue().endswith("\r\x1b[K")


@contextmanager
def terminal_of(columns: int) -> Iterator[tuple[int, int]]:
    leader, follower = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        yield leader, follower
    finally:
        os.close(leader)
        os.close(follower)


def test_its_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "SILENT_SECONDS", 0)
    with terminal_of(60) as (leader, follower), os.fdopen(os.dup(follower), "w", encoding="utf-8") as stream:
        with ProgressBar("copied", 10, stream=stream) as bar:
            bar.show(5)
            seen = os.read(leader, 1000)
        line = seen.decode().partition("\r")[2].partition("\x1b")[0]
        assert 30 < len(line) < 60


def test_a_terminal_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "SILENT_SECONDS", 0)
    drawn = threading.Event()

    class Gone(Terminal):
        def write(self, text: str) -> int:
            drawn.set()
            raise OSError(5, "Input/output error")

    with ProgressBar("copied", 10, stream=Gone()) as bar:
        bar.show(5)
        assert drawn.wait(10)
    assert sys.stderr is not None
