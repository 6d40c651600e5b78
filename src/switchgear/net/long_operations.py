"""`LongOperations`: runs long operations a slice per turn of the event loop, round robin.

An operation is an iterator. Each step does a small part of the work, some tenths of a millisecond. The first step runs
at once, so that small operations end at once. The rest gets a slice of every turn, which all operations share; so each
turn stays short however many operations there are.

An operation that yields True pauses: its owner resumes it, for example when the peer has read its output so far. An
operation that yields a `PendingRead` continues when the read has ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from switchgear.protocols.pending_read import PendingRead, Step

__all__ = ["LongOperations"]

log = logging.getLogger("switchgear")

# How long the slices of one turn may take together, and how many steps they may have.
SLICE_SECONDS: Final = 0.002
STEPS_PER_TURN: Final = 1_000
LAST_SECONDS: Final = 1.0


class LongOperations:
    """Runs operations that take longer than one turn may."""

    def __init__(self, begin_turn: Callable[[], None], is_held_up: Callable[[], bool] = lambda: False) -> None:
        self.steps_per_turn = STEPS_PER_TURN
        self.slice_seconds = SLICE_SECONDS
        self._begin_turn = begin_turn
        self._is_held_up = is_held_up  # paused until `wake` is called
        self._loop = asyncio.get_running_loop()
        self._pending: deque[Iterator[Step]] = deque()
        self._is_armed = False

    def __len__(self) -> int:
        return len(self._pending)

    def start(self, operation: Iterator[Step]) -> None:
        """Run the first step now, and the others in the next turns."""
        if self._step(operation):
            self.resume(operation)

    def resume(self, operation: Iterator[Step]) -> None:
        """Continue an operation in the next turn."""
        self._pending.append(operation)
        self.wake()

    def wake(self) -> None:
        """Schedule a slice in the next turn, if an operation is pending."""
        if self._pending and not self._is_armed:
            self._is_armed = True
            self._loop.call_soon(self._work)

    def finish(self) -> None:
        """Called when the server stops: run operations for a moment, and abandon the rest. None of these was
        confirmed."""
        end = time.perf_counter() + LAST_SECONDS
        while self._pending and time.perf_counter() < end:
            operation = self._pending.popleft()
            if self._step(operation):
                self._pending.append(operation)
        self._pending.clear()

    def _work(self) -> None:
        """Run the slice of this turn."""
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

    def _step(self, operation: Iterator[Step]) -> bool:
        """Run one step; returns whether the operation can continue in this turn."""
        try:
            step = next(operation)
            if isinstance(step, PendingRead):
                step.when_done(partial(self.resume, operation))
                return False
            return not step
        except StopIteration:
            return False
        except Exception:
            log.exception("internal error in an operation of several turns")  # continue with the other operations
            return False
