"""`LoopLag`: how late the event loop is: what a peer has to wait because of others."""

from __future__ import annotations

import asyncio
from typing import Final

__all__ = ["LoopLag"]

LOOK_SECONDS: Final = 0.1
# The longest delay of this and of the last window is told, so that every one of several monitoring systems sees it.
WINDOW_SECONDS: Final = 15.0


class LoopLag:
    """Looks ten times a second how much later than asked the event loop calls it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
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

    def start(self) -> None:
        """Begin to look."""
        self._window_ends = self._loop.time() + WINDOW_SECONDS
        self._arm()

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self, delay_seconds: float, now_seconds: float) -> None:
        """Note a delay."""
        if now_seconds >= self._window_ends:
            is_next = now_seconds < self._window_ends + WINDOW_SECONDS
            self._longest_before = self._longest if is_next else 0.0
            self._longest = 0.0
            self._window_ends = now_seconds + WINDOW_SECONDS
        self._longest = max(self._longest, delay_seconds)

    def _arm(self) -> None:
        self._due = self._loop.time() + LOOK_SECONDS
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        self.looks += 1
        self.note(max(0.0, now - self._due), now)
        self._arm()
