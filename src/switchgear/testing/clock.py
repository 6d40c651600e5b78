"""`FakeClock`: a clock that stands still until a test advances it."""

from __future__ import annotations

from typing import Final

from switchgear.model import SECOND_US
from switchgear.net.clock import SystemClock

__all__ = ["START_US", "FakeClock"]

START_US: Final = 1_700_000_000 * SECOND_US  # some moment in November 2023


class FakeClock(SystemClock):
    """Replaces `SystemClock` in tests."""

    def __init__(self, start_us: int = START_US) -> None:
        self._now_us = start_us
        self._set_by_us = 0

    def now_us(self) -> int:
        return self._now_us

    def advance(self, seconds: float) -> int:
        """Advance by this many seconds; returns the new time."""
        if seconds < 0:
            raise ValueError(f"time does not run backwards: {seconds} s; `set_wall_clock` sets it back")
        self._now_us += round(seconds * SECOND_US)
        return self._now_us

    def set_wall_clock(self, seconds: float) -> None:
        """Set the system clock forward, or back, by this much; `follow_wall_clock` reports it."""
        self._set_by_us += round(seconds * SECOND_US)

    def follow_wall_clock(self) -> int:
        delta_us, self._set_by_us = self._set_by_us, 0
        self._now_us += delta_us
        return delta_us
