"""`FairQueue`: gives connections with long input or output equal shares of each turn of the event loop.

A turn of the event loop reads every readable connection. Short reads are handled at once. Longer input waits here, and
all of it together gets a few milliseconds of each turn. So a client with one request waits for one such share, and not
for the input of all others; and connections that send much are served equally.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["FairQueue"]

# How long the pieces of one turn may take together. At least one piece is handled.
TURN_SECONDS: Final = 0.005


class FairQueue:
    """Pending callbacks of connections, each called at most once per turn."""

    def __init__(self) -> None:
        self.turn_seconds = TURN_SECONDS
        self._loop = asyncio.get_running_loop()
        self._pending: deque[Callable[[], None]] = deque()
        self._is_armed = False

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, action: Callable[[], None]) -> None:
        """Call this in one of the next turns, after everything that was added before."""
        self._pending.append(action)
        if not self._is_armed:
            self._is_armed = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Run the share of this turn. Callbacks added meanwhile belong to the next turn."""
        pending = self._pending
        end = time.perf_counter() + self.turn_seconds
        try:
            for _ in range(len(pending)):
                pending.popleft()()
                if time.perf_counter() >= end:
                    break
        finally:  # if one fails, the others still run
            if pending:
                self._loop.call_soon(self._serve)
            else:
                self._is_armed = False
