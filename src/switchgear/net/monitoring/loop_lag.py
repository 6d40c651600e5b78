"""`LoopLag`: measures the delay of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

__all__ = ["LATE_SECONDS", "LoopLag"]

LOOK_SECONDS: Final = 0.1
# The longest delay of this and of the last window is told, so that every one of several monitoring systems sees it.
WINDOW_SECONDS: Final = 15.0
LATE_SECONDS: Final = 0.1  # a delay that peers notice, and that is worth a line in the log


class LoopLag:
    """Looks ten times a second how much later than asked the event loop calls it.

    `on_late` is called with a delay that peers notice, and then not again until there was none for a while: what makes
    the loop late once often does so again, and one line of the log is enough.
    """

    def __init__(self, on_late: Callable[[float], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_late = on_late
        self._is_told = False  # the delay that the figure still shows was told
        self._due = 0.0
        self._window_ends = 0.0
        self._longest = 0.0  # of this window
        self._longest_before = 0.0  # of the last one
        self._timer: asyncio.TimerHandle | None = None
        self.looks = 0  # how often it was called; a loop that hangs does not get further

    @property
    def seconds(self) -> float:
        """The longest delay of the last fifteen to thirty seconds."""
        return max(self._longest, self._longest_before)

    @property
    def is_late(self) -> bool:
        """Whether the event loop was noticeably late within that time."""
        return self.seconds >= LATE_SECONDS

    def start(self) -> None:
        """Start to measure the delay of the event loop."""
        self._window_ends = self._loop.time() + WINDOW_SECONDS
        self._arm()

    def close(self) -> None:
        """Stop measuring; the timer is cancelled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self, delay_seconds: float, now_seconds: float) -> None:
        """Record one measured delay."""
        if now_seconds >= self._window_ends:
            is_next = now_seconds < self._window_ends + WINDOW_SECONDS
            self._longest_before = self._longest if is_next else 0.0
            self._longest = 0.0
            self._window_ends = now_seconds + WINDOW_SECONDS
        self._longest = max(self._longest, delay_seconds)
        if delay_seconds >= LATE_SECONDS:
            if not self._is_told and self._on_late is not None:
                self._on_late(delay_seconds)
            self._is_told = True
        elif self._is_told and not self.is_late:
            self._is_told = False

    def _arm(self) -> None:
        self._due = self._loop.time() + LOOK_SECONDS
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        self.looks += 1
        self.note(max(0.0, now - self._due), now)
        self._arm()
