"""Time is one index: everything that happens by itself at some moment is an entry in one heap.

Entries are not removed when they lose their meaning (a job finished before its time limit); they are recognised as
stale when they come up.  So that a long limit on many short jobs does not fill memory, the owner counts the stale ones
(rather too many than too few) and the heap is rebuilt when they are the majority, which costs a constant amount per
entry over time.  An entry keeps its job in memory, but not what the job held: see `Core.drop_contents`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Final

from switchgear.memory import MemoryAccount
from switchgear.model import Function, Gate, Job, Lane, Schedule, Worker

__all__ = ["HELD_KEY_BYTES", "Deadline", "Deadlines", "Kind"]

Subject = Job | Worker | Function | Gate | Lane | Schedule


class Kind(IntEnum):
    """What a deadline is about."""

    DUE = 0  # a scheduled job's time has come
    EXPIRY = 1  # a job is no longer wanted if it has not started
    RUN_LIMIT = 2  # an attempt has run long enough
    LEASE = 3  # a worker should have given a sign of life
    NEGLECT = 4  # a woken worker should have come for its job
    PATIENCE = 5  # a worker has waited long enough to be given a job
    GATE = 6  # a function, or one key of it, may hand out a job again; see engine.gates
    KEY_HELD = 7  # a unique key that outlived its job is free again
    DOOM = 8  # a job waits for one that did not succeed, and its edge says what becomes of it: in the next turn
    TICK = 9  # a schedule makes a job


KEY_HELD: Final = Kind.KEY_HELD
# What a job takes about that ended and is remembered for its unique key.
HELD_KEY_BYTES: Final = 1024

# Kinds that measure a span from some event; the others name a moment on the calendar.
SPANS: Final = frozenset({Kind.RUN_LIMIT, Kind.LEASE, Kind.NEGLECT, Kind.PATIENCE, Kind.GATE, Kind.DOOM})

Deadline = tuple[int, int, Kind, Subject, int]
"""Time, serial number (so that equal times keep their order), kind, subject, and a token that tells stale entries."""

# Rebuilding a small heap is not worth the trouble.
LEAST_STALE_FOR_REBUILD: Final = 1024


class Deadlines:
    """A heap of deadlines."""

    def __init__(self, memory: MemoryAccount | None = None) -> None:
        self.stale = 0
        self.holds = 0  # entries that are about a unique key, stale ones too
        self._memory = memory or MemoryAccount()  # in which what these hold is counted
        self._heap: list[Deadline] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Deadline]:
        """Every entry, stale ones too, in no order."""
        return iter(self._heap)

    def add(self, at_us: int, kind: Kind, subject: Subject, token: int = 0) -> None:
        self._serial += 1
        heappush(self._heap, (at_us, self._serial, kind, subject, token))
        if kind is KEY_HELD:
            self._count_holds(self.holds + 1)

    def _count_holds(self, holds: int) -> None:
        self.holds = holds
        self._memory.key_bytes = holds * HELD_KEY_BYTES

    @property
    def next_us(self) -> int | None:
        """When something next happens by itself, or None."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_us: int) -> Deadline | None:
        """The earliest entry whose time has come, if any."""
        if not self._heap or self._heap[0][0] > now_us:
            return None
        deadline = heappop(self._heap)
        if deadline[2] is KEY_HELD:
            self._count_holds(self.holds - 1)
        return deadline

    def forget_stale(self, is_live: Callable[[Deadline], bool]) -> None:
        """Rebuild without the stale entries, if they are the majority."""
        if self.stale < LEAST_STALE_FOR_REBUILD or self.stale * 2 < len(self._heap):
            return
        self._heap = [entry for entry in self._heap if is_live(entry)]
        heapify(self._heap)
        self.stale = 0
        self._count_holds(sum(entry[2] is KEY_HELD for entry in self._heap))

    def shift_spans(self, delta_us: int) -> None:
        """The clock was set: what measures a span moves along, what names a moment stays."""
        self._heap = [
            (at_us + delta_us if kind in SPANS else at_us, serial, kind, subject, token)
            for at_us, serial, kind, subject, token in self._heap
        ]
        heapify(self._heap)
