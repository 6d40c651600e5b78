"""`SlicedWork`: work on very many jobs that is done in slices, over several turns of the owner's event loop.

One command may concern a million jobs: a client with many foreground jobs disconnects, a worker that holds thousands
dies, a job is done that many wait for.  Such work is an iterator that does one unit between two steps.  What fits into
the turn is done at once.  The rest is kept, and `Engine.advance` does a part of it in each of the
following turns; until it is done `Engine.next_deadline_us` says that there is something to do now.

Units must not depend on each other: other commands come between two of them, so each checks again whether its job is
still where it was.  A crash on the way loses nothing, because a restart sees what is left over: jobs of a worker that
is gone, jobs that wait for nothing any more, and foreground jobs, which are not stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

__all__ = ["UNITS_PER_TURN", "SlicedKind", "SlicedWork"]

# This many jobs in one turn take half a millisecond to one and a half, compiled, and some five, interpreted.
UNITS_PER_TURN: Final = 250


class SlicedKind(IntEnum):
    """The kinds of such work, and what is not done yet while it is pending."""

    UNSUBSCRIBE = 0  # a peer that is gone is still a subscriber of jobs
    REQUEUE = 1  # a worker that is gone still has jobs
    UNLINK = 2  # a job that has ended, or was given up, still waits for predecessors
    UNBLOCK = 3  # jobs still wait for a job that is done
    LIMITS = 4  # a function has new limits, and its key queues are being filled, reviewed, counted or emptied
    OFFER = 5  # jobs of a function may run again, and not all workers were told; no subject: of any function
    WAKE_ALL = 6  # nobody has asked for a job of a function, and not all sleepers were woken
    FREE = 7  # objects that nothing refers to are freed
    LINK = 8  # a job was given predecessors, and is not linked to all of them


Pending = tuple[Iterator[None], SlicedKind, object]  # the work, its kind, and what it is about


class SlicedWork:
    """Iterators that are not exhausted, each given a share of every turn."""

    def __init__(self) -> None:
        self.units_per_turn = UNITS_PER_TURN
        self._left = UNITS_PER_TURN  # units that may still be done in this turn
        self._pending: deque[Pending] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def is_pending(self, kind: SlicedKind, subject: object) -> bool:
        """Whether work of this kind about this subject, or about any, is not done yet. It looks at all of it."""
        return any(each is kind and about in (subject, None) for _, each, about in self._pending)

    def begin_turn(self) -> None:
        """Allow as many units as one turn may have, and do as many of those that are pending."""
        self.allow_turn()
        pending = self._pending
        share = max(1, self._left // (len(pending) or 1))
        for _ in range(len(pending)):
            if self._left <= 0:
                break
            entry = pending.popleft()
            if not self._exhaust(entry[0], min(share, self._left)):
                pending.append(entry)

    def allow_turn(self) -> None:
        """Allow as many units as one turn may have. The simulation does this apart from pending work."""
        self._left = self.units_per_turn

    def start(self, work: Iterator[None], kind: SlicedKind, subject: object) -> None:
        """Do this now as far as the turn allows, and the rest in the turns to come."""
        if self._left <= 0 or not self._exhaust(work, self._left):
            self._pending.append((work, kind, subject))

    def finish(self) -> None:
        """Do all pending work now, in one turn, however long that takes."""
        while self._pending:
            self._exhaust(self._pending.popleft()[0], -1)

    def clear(self) -> None:
        """Forget everything."""
        self._pending.clear()

    def _exhaust(self, work: Iterator[None], most: int) -> bool:
        """Do at most this many units (below zero: all); returns whether the iterator is exhausted."""
        done = 0
        try:
            for _ in work:
                done += 1
                if done == most:
                    return False
        finally:
            self._left -= done
        return True
