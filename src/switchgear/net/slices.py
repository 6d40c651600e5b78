"""Operations that take longer than one turn of the event loop may: they are worked off in slices, in turn.

An operation is an iterator.  Between two steps it does a small part of its work, some tenths of a millisecond.  The
first step is done at once, so that what is small is done at once.  What is left gets a slice of every turn, which all
operations share; so each turn stays short however many there are.

An operation that yields True pauses: its owner hands it in again when it can go on, such as when the peer has read what
was written for it so far.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["Slices"]

log = logging.getLogger("switchgear")

# How long the slices of one turn may take together, and how many steps they may have.
SLICE_SECONDS: Final = 0.004
STEPS_PER_TURN: Final = 1_000
LAST_SECONDS: Final = 1.0


class Slices:
    """The operations that are under way."""

    def __init__(self, begin_turn: Callable[[], None], is_held_up: Callable[[], bool] = lambda: False) -> None:
        self.steps_per_turn = STEPS_PER_TURN
        self.slice_seconds = SLICE_SECONDS
        self._begin_turn = begin_turn
        self._is_held_up = is_held_up  # until `wake` is called
        self._loop = asyncio.get_running_loop()
        self._pending: deque[Iterator[bool]] = deque()
        self._is_armed = False

    def __len__(self) -> int:
        return len(self._pending)

    def start(self, operation: Iterator[bool]) -> None:
        """Do the first step now, and the others in the turns to come."""
        if self._step(operation):
            self.resume(operation)

    def resume(self, operation: Iterator[bool]) -> None:
        """Go on with an operation in the next turn."""
        self._pending.append(operation)
        self.wake()

    def wake(self) -> None:
        """Go on with what there is."""
        if self._pending and not self._is_armed:
            self._is_armed = True
            self._loop.call_soon(self._work)

    def finish(self) -> None:
        """The server stops: do what can be done in a moment, and give the rest up.  Nobody was told that it is done."""
        end = time.perf_counter() + LAST_SECONDS
        while self._pending and time.perf_counter() < end:
            operation = self._pending.popleft()
            if self._step(operation):
                self._pending.append(operation)
        self._pending.clear()

    def _work(self) -> None:
        """One turn's share."""
        self._is_armed = False
        if self._is_held_up():
            return
        self._begin_turn()
        pending = self._pending
        end = time.perf_counter() + self.slice_seconds
        for _ in range(self.steps_per_turn):
            if not pending:
                return
            operation = pending.popleft()
            if self._step(operation):
                pending.append(operation)
            if time.perf_counter() >= end:
                break
        self.wake()

    def _step(self, operation: Iterator[bool]) -> bool:
        """Whether there is more to be done now."""
        try:
            return not next(operation)
        except StopIteration:
            return False
        except Exception:
            log.exception("defect in an operation that was worked off in slices")  # and the others go on
            return False
