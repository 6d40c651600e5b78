"""Work of the engine that is too much for one turn of its owner's event loop.

One command may concern a million jobs: a client with many foreground jobs leaves, a worker that holds thousands dies, a
job is done that many wait for.  Such work is an iterator that does one unit between two steps.  What fits into the turn
is done at once.  The rest stays in the backlog, and `Engine.advance` does a part of it in each of the following turns;
until it is done `Engine.next_deadline_us` says that there is something to do now.

Units must stand for themselves: other commands come between two of them, so each looks again whether its job is still
where it was.  A crash on the way loses nothing, because what is left over is seen by a restart: jobs of a worker that
is gone, jobs that wait for nothing any more, and foreground jobs, of which nothing is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from typing import Final

from switchgear.model import Job

__all__ = ["UNITS_PER_TURN", "Backlog"]

# So many jobs in one turn take some five milliseconds, compiled, and some twenty, interpreted.
UNITS_PER_TURN: Final = 1_000


class Backlog:
    """Iterators that are not exhausted, worked off in turn."""

    def __init__(self) -> None:
        self.units_per_turn = UNITS_PER_TURN
        self._left = UNITS_PER_TURN  # units that may still be done in this turn
        self._pending: deque[Iterator[None]] = deque()
        # Jobs that ended without success, of which those hear that wait for them; and those that must end for it.
        self.failed: deque[Job] = deque()
        self.to_be_told: list[Job] | None = None  # those that wait for the first of these, the next one last
        self.reserved_names: list[Container[bytes]] = []  # of jobs that are about to be submitted, batch by batch

    def __len__(self) -> int:
        return len(self._pending)

    def is_reserved(self, name: bytes) -> bool:
        """Whether a job of this name is about to be submitted."""
        for names in self.reserved_names:  # noqa: SIM110  (a generator would take longer than all the rest)
            if name in names:
                return True
        return False

    def begin_turn(self) -> None:
        """Allow as many units as one turn may have, and do as many of those that are pending."""
        self._left = self.units_per_turn
        pending = self._pending
        share = max(1, self._left // (len(pending) or 1))
        for _ in range(len(pending)):
            if self._left <= 0:
                break
            work = pending.popleft()
            if not self._exhaust(work, min(share, self._left)):
                pending.append(work)

    def start(self, work: Iterator[None]) -> None:
        """Do this now as far as the turn allows, and the rest in the turns to come."""
        if self._left <= 0 or not self._exhaust(work, self._left):
            self._pending.append(work)

    def finish(self) -> None:
        """Do everything now."""
        while self._pending:
            self._exhaust(self._pending.popleft(), -1)

    def clear(self) -> None:
        """Forget everything."""
        self._pending.clear()
        self.failed.clear()
        self.to_be_told = None

    def _exhaust(self, work: Iterator[None], most: int) -> bool:
        """Do at most so many units (below zero: all); whether that was the end of it."""
        done = 0
        try:
            for _ in work:
                done += 1
                if done == most:
                    return False
        finally:
            self._left -= done
        return True
