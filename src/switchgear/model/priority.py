"""The priorities of jobs, as numbers, and the order in which they are served."""

from __future__ import annotations

from typing import Final

__all__ = ["BEST_FIRST", "HIGH", "LOW", "NORMAL", "URGENT"]

HIGH: Final = 0
NORMAL: Final = 1
LOW: Final = 2
URGENT: Final = 3  # before high; for jobs that became due, where a protocol wants that
BEST_FIRST: Final = (URGENT, HIGH, NORMAL, LOW)
