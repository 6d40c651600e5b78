"""`ProgressBar`: how far a long command is, with rate and time left, on standard error if that is a terminal.

Every command that people wait for uses it.  Nothing is shown in the first half second, nor where standard error is not
a terminal; the line is removed at the end, and the command says what it has done.  A thread draws it, so that the time
goes on also while the command waits for something.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, TextIO

from switchgear.units import short_bytes, short_duration

__all__ = ["ProgressBar", "ProgressRate", "progress_line"]

SILENT_SECONDS: Final = 0.5  # what ends sooner needs no bar, which would only flicker
DRAW_SECONDS: Final = 0.2
RATE_SECONDS: Final = 10.0  # the rate is that of so many seconds before
LEAST_BAR: Final = 10  # columns; a shorter bar says less than the percentage beside it
MOST_BAR: Final = 60
PACE_COLUMNS: Final = 10
LEFT_COLUMNS: Final = 10
NARROW_LABEL: Final = 12  # columns of the label, where there are few


class ProgressRate:
    """How many things are done per second, over the last seconds."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque()

    def add(self, at: float, done: int) -> None:
        """Note how many are done at a time."""
        readings = self._readings
        if readings and done < readings[-1][1]:
            readings.clear()  # it began again
        readings.append((at, done))
        while len(readings) > 2 and readings[1][0] <= at - RATE_SECONDS:
            readings.popleft()

    def per_second(self) -> float | None:
        """The rate; None if it is not known yet."""
        if len(self._readings) < 2:
            return None
        (first_at, first), (last_at, last) = self._readings[0], self._readings[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else None


def progress_line(
    label: str,
    done: int,
    total: int,
    rate: float | None,
    columns: int,
    *,
    in_bytes: bool = False,
    is_ascii: bool = False,
) -> str:
    """One line of at most so many columns; a total of 0 is not known.

    What does not fit is left out, the least important first: the bar, the rate, the counts, the time left.  A number is
    never cut.
    """
    number: Callable[[float], str] = short_bytes if in_bytes else (lambda count: f"{count:,.0f}")
    counts = f"{number(done):>{len(number(total))}} of {number(total)}" if total else number(done)
    share = min(1.0, done / total) if total else 0.0
    pace = f"{_pace(rate, number)}/s" if rate else ""
    left = f"{short_duration(_rounded((total - done) / rate))} left" if rate and total > done else ""
    percent = f"{int(share * 100):>3}%" if total else ""
    most = columns // 3 if columns >= 80 else NARROW_LABEL
    label = label if len(label) <= most else label[: most - 1] + "…"
    for parts in (
        [label, percent, counts, pace, left],
        [label, percent, counts, left],
        [label, percent, left],
        [label, percent or counts],
        [percent or counts],
    ):
        text = "  ".join(part for part in parts if part)
        if len(text) <= columns:
            break
    else:
        return ""
    # The bar does not change its length with each digit of the numbers behind it.
    spare = max(0, PACE_COLUMNS - len(pace)) + max(0, LEFT_COLUMNS - len(left))
    room = min(MOST_BAR, columns - len(text) - 2 - spare)
    if not total or len(parts) < 5 or room < LEAST_BAR:
        return text
    full = int(share * room)
    bar = ("#" * full).ljust(room, ".") if is_ascii else ("━" * full).ljust(room, "─")
    return text.replace(percent, f"{bar}  {percent}", 1) if label == "" else f"{label}  {bar}{text[len(label) :]}"


def _pace(rate: float, number: Callable[[float], str]) -> str:
    return f"{rate:.2g}" if rate < 9.95 and number is not short_bytes else number(rate)


def _rounded(seconds: float) -> float:
    """Whole seconds: tenths of a guess are noise."""
    return float(max(1, round(seconds))) if seconds < 120 else seconds


class ProgressBar:
    """A line of standard error that is drawn over and over.

    `show` may be called as often as one likes; `hide` before other output to the same terminal.
    """

    def __init__(
        self,
        label: str = "",
        total: int = 0,
        *,
        in_bytes: bool = False,
        quiet: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self.is_shown = not quiet and _is_terminal(self._stream)
        self._label = label
        self._total = total
        self.in_bytes = in_bytes
        self._done = 0
        self._is_known = False  # something was to be shown
        self._rate = ProgressRate()
        self._lock = threading.Lock()
        self._begun_at = time.monotonic()
        self._drawn = ""
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        encoding = getattr(self._stream, "encoding", "") or ""
        self._is_ascii = not encoding.lower().startswith("utf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def show(self, done: int, total: int | None = None, label: str | None = None) -> None:
        """Note how far it is; it is drawn soon, if at all."""
        if not self.is_shown or self._ending.is_set():
            return
        self._done = done
        self._total = self._total if total is None else total
        self._label = self._label if label is None else label
        self._is_known = True
        if self._thread is None:
            self._rate.add(self._begun_at if done else time.monotonic(), 0 if done else done)
            self._thread = threading.Thread(target=self._draw_on, name="progress", daemon=True)
            self._thread.start()

    def hide(self) -> None:
        """Remove the line until it is drawn again."""
        with self._lock:
            self._erase()

    def end(self) -> None:
        """Remove the line for good."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        self.hide()

    def _draw_on(self) -> None:
        self._ending.wait(max(0.0, self._begun_at + SILENT_SECONDS - time.monotonic()))
        while not self._ending.is_set():
            with self._lock:
                self._draw()
            self._ending.wait(DRAW_SECONDS)

    def _draw(self) -> None:
        self._rate.add(time.monotonic(), self._done)
        rate = self._rate.per_second()
        columns = _columns(self._stream) - 1  # in the last column some terminals begin a new line
        line = progress_line(
            self._label, self._done, self._total, rate, columns, in_bytes=self.in_bytes, is_ascii=self._is_ascii
        )
        if line != self._drawn:
            self._write(f"\r{line}\x1b[K")
            self._drawn = line

    def _erase(self) -> None:
        if self._drawn:
            self._write("\r\x1b[K")
            self._drawn = ""

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the terminal is gone, which is no reason to stop the work
            self._stream.write(text)
            self._stream.flush()


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # it is closed
        return False


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
