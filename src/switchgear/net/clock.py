"""`SystemClock`: the time in microseconds since the epoch, which never runs backwards by itself.

The time is the wall clock at the start plus the time that the monotonic clock has measured since. Setting the system's
clock therefore shortens no time limit. When the two clocks have drifted apart, the owner is told by how much, and the
engine decides what that means for each deadline.
"""

from __future__ import annotations

import time
from typing import Final

from mypy_extensions import mypyc_attr

__all__ = ["SystemClock"]

# Less than this is slewing or measuring noise.
LEAST_STEP_US: Final = 1_000_000


@mypyc_attr(allow_interpreted_subclasses=True)
class SystemClock:
    """The clock of this machine."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_us(self) -> int:
        return (time.monotonic_ns() + self._offset_ns) // 1000

    def follow_wall_clock(self) -> int:
        """Adopt the wall clock's time; returns by how many microseconds it was set, or 0."""
        offset_ns = time.time_ns() - time.monotonic_ns()
        delta_us = (offset_ns - self._offset_ns) // 1000
        if abs(delta_us) < LEAST_STEP_US:
            return 0
        self._offset_ns += delta_us * 1000
        return delta_us
