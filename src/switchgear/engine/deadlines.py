"""`Deadlines`: a time-ordered index of leases, time limits, delays and everything else that happens by itself.

Entries are not removed when they become stale (a job finished before its time limit); they are recognised when they
come up. So that a long limit on many short jobs does not fill the memory, callers count the stale entries (rather too
many than too few), and when these are the majority the index is swept, which costs a constant amount per entry over
time. An entry keeps its job in memory, but not the job's contents: see `EngineState.drop_contents`.

The index consists of heaps of bounded size, below a heap of their first entries. So it can be swept one heap at a time,
and no call takes longer because there are many entries.

Some deadlines measure a time span from an event, others name a time of the calendar. Each kind has its own index. Spans
are relative to an offset that moves when the wall clock is set, so no entry has to change then.

Spans that a message of a peer would have renewed or ended (leases, time limits) are in a third index. When the process
has stood still, they wait until the messages that arrived meanwhile can have been read: see `time_stood_still`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Final

from switchgear.memory import MemoryAccount
from switchgear.model import SECOND_US, Function, Job, KeyQueue, Limiter, Schedule, Timer, Worker

__all__ = [
    "HELD_KEY_BYTES",
    "LEAST_STALE_FOR_SWEEP",
    "NEVER_US",
    "Deadline",
    "DeadlineIndex",
    "DeadlineKind",
    "Deadlines",
]

Subject = Job | Worker | Function | Limiter | KeyQueue | Schedule | Timer


class DeadlineKind(IntEnum):
    """The kinds of deadlines: what happens to the subject when the time has come."""

    DUE = 0  # a scheduled job becomes ready
    EXPIRY = 1  # a job expires if it has not started
    RUN_LIMIT = 2  # an attempt has reached its time limit
    LEASE = 3  # a worker's lease expires
    UNANSWERED_WAKEUP = 4  # a woken worker should have asked for its job
    WAIT_TIMEOUT = 5  # a worker's wait for a job times out
    LIMITER = 6  # a limiter of a function, or of one of its keys, may open; see engine.limiters
    KEY_HELD = 7  # a unique key that outlived its job becomes free
    FAILED_DEPENDENCY = 8  # a job ends in the next turn because a predecessor did not succeed
    TICK = 9  # a tick of a schedule
    TIMER = 10  # a timer of a peer fires


KEY_HELD: Final = DeadlineKind.KEY_HELD
# The approximate memory of a finished job that is kept for its unique key.
HELD_KEY_BYTES: Final = 1024

# Kinds that measure how long a peer has been silent: a message of it may have arrived that was not read yet.
SILENCES: Final = frozenset(
    {
        DeadlineKind.RUN_LIMIT,
        DeadlineKind.LEASE,
        DeadlineKind.UNANSWERED_WAKEUP,
        DeadlineKind.TIMER,
    }
)
# Other kinds that measure a span from an event; the rest name a time of the calendar.
SPANS: Final = frozenset({DeadlineKind.WAIT_TIMEOUT, DeadlineKind.LIMITER, DeadlineKind.FAILED_DEPENDENCY})

# After a standstill, silent peers get this much time, in which the messages are read that have arrived meanwhile.
GRACE_US: Final = 1 * SECOND_US
# Several standstills in a row put deadlines off by no more than this. Otherwise a process that stands still again and
# again would never notice that a worker is gone.
MOST_GRACE_US: Final = 5 * SECOND_US

Deadline = tuple[int, int, DeadlineKind, Subject, int]
"""Time, serial number (so that equal times keep their order), kind, subject, and a token that identifies stale
entries."""

# Later than every deadline.  Compiled, an integer below 2**62 is not an object.
NEVER_US: Final = 2**62 - 1
# A smaller index is not swept.
LEAST_STALE_FOR_SWEEP: Final = 1024
# Sweeping a heap of this size, and freeing its jobs, takes one to three milliseconds, compiled.
HEAP_ENTRIES: Final = 2048


def precedes(one: Deadline, other: Deadline) -> bool:
    """Whether this entry is earlier than the other one."""
    return one[0] < other[0] or (one[0] == other[0] and one[1] < other[1])


class DeadlineHeap:
    """One of the heaps that a `DeadlineIndex` consists of."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[Deadline] = []


class DeadlineIndex:
    """Deadlines in the order of their times, in heaps of bounded size."""

    def __init__(self, heap_entries: int = HEAP_ENTRIES) -> None:
        self._heap_entries = heap_entries
        self._count = 0
        self._open = DeadlineHeap()  # the heap that gets new entries
        self._heaps: dict[DeadlineHeap, None] = {self._open: None}  # all heaps, in the order of sweeping
        # A heap of their first entries: time, serial number, a unique number, heap. An entry that is no longer the
        # first of its heap is ignored.
        self._firsts: list[tuple[int, int, int, DeadlineHeap]] = []
        self._listed = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Deadline]:
        """Iterate over all entries in no order, including stale ones."""
        for heap in self._heaps:
            yield from heap.entries

    def add(self, deadline: Deadline) -> None:
        """Add an entry."""
        heap = self._open
        if len(heap.entries) >= self._heap_entries:
            heap = self._open = DeadlineHeap()
            self._heaps[heap] = None
        heappush(heap.entries, deadline)
        self._count += 1
        if heap.entries[0][1] == deadline[1]:  # not `is`: compiled, a tuple has no identity
            self._list_first(heap)

    def first(self) -> Deadline | None:
        """The earliest entry, or `None`."""
        heap = self._earliest()
        return heap.entries[0] if heap is not None else None

    def pop(self) -> None:
        """Remove the earliest entry."""
        heap = self._earliest()
        assert heap is not None
        heappop(heap.entries)
        self._count -= 1
        if heap.entries:
            self._list_first(heap)
        elif heap is not self._open:
            del self._heaps[heap]

    def sweep_one(self, is_live: Callable[[Deadline], bool]) -> tuple[int, list[Deadline]]:
        """Remove the stale entries of the heap that was swept longest ago.

        Returns the number of remaining entries, and the removed ones.
        """
        heap = next(iter(self._heaps))
        del self._heaps[heap]
        live: list[Deadline] = []
        stale: list[Deadline] = []
        for entry in heap.entries:
            (live if is_live(entry) else stale).append(entry)
        self._count -= len(stale)
        target = self._open
        if heap is target or len(live) + len(target.entries) > self._heap_entries:
            target = heap
            heap.entries = live
        else:  # the remains of several heaps are merged
            target.entries.extend(live)
            heap.entries = []
        heapify(target.entries)
        if target is heap and (heap.entries or heap is self._open):
            self._heaps[heap] = None
        if target.entries:
            self._list_first(target)
        return len(live), stale

    @property
    def heap_count(self) -> int:
        """How many heaps there are."""
        return len(self._heaps)

    def _list_first(self, heap: DeadlineHeap) -> None:
        """Note the first entry of a heap in the upper heap."""
        if len(self._firsts) > 2 * len(self._heaps) + 64:
            self._firsts = []
            for other in self._heaps:
                if other.entries and other is not heap:
                    self._push_first(other)
        self._push_first(heap)

    def _push_first(self, heap: DeadlineHeap) -> None:
        first = heap.entries[0]
        self._listed += 1
        heappush(self._firsts, (first[0], first[1], self._listed, heap))

    def _earliest(self) -> DeadlineHeap | None:
        """The heap whose first entry is the earliest of all."""
        firsts = self._firsts
        while firsts:
            _, serial, _, heap = firsts[0]
            if heap.entries and heap.entries[0][1] == serial:
                return heap
            heappop(firsts)
        return None


class Deadlines:
    """All deadlines of an engine."""

    def __init__(self, memory: MemoryAccount | None = None) -> None:
        # The time of the earliest entry, or NEVER_US. It is read several times in a turn, and changes rarely.
        self.earliest_us = NEVER_US
        self.stale = 0  # entries that may be stale
        self.holds = 0  # entries about unique keys, including stale ones
        self._memory = memory or MemoryAccount()  # counts the jobs that the entries hold
        self._moments = DeadlineIndex()
        self._spans = DeadlineIndex()  # their times are lower than the true ones by `_offset_us`
        self._silences = DeadlineIndex()  # likewise
        self._offset_us = 0
        # The silences that have ended since the first of these times are met at the second one (0: at their own time).
        self._grace_from_us = 0
        self._grace_until_us = 0
        self._grace_ends_us = 0  # the second time is never later than this one
        self._serial = 0
        self._moments_to_sweep = 0  # heaps left to sweep in this pass
        self._spans_to_sweep = 0
        self._silences_to_sweep = 0
        self._stale_before = 0  # how many of `stale` this pass will remove

    def __len__(self) -> int:
        return len(self._moments) + len(self._spans) + len(self._silences)

    def __iter__(self) -> Iterator[Deadline]:
        """Iterate over all entries in no order, including stale ones."""
        yield from self._moments
        for entry in self._spans:
            yield self._at_true_time(entry)
        for entry in self._silences:
            yield self._at_true_time(entry)

    def add(self, at_us: int, kind: DeadlineKind, subject: Subject, token: int = 0) -> None:
        """Add a deadline."""
        self._serial += 1
        if kind in SILENCES:
            self._silences.add((at_us - self._offset_us, self._serial, kind, subject, token))
            self.earliest_us = min(self.earliest_us, self._met_at(at_us))
            return
        if at_us < self.earliest_us:
            self.earliest_us = at_us
        if kind in SPANS:
            self._spans.add((at_us - self._offset_us, self._serial, kind, subject, token))
            return
        self._moments.add((at_us, self._serial, kind, subject, token))
        if kind is KEY_HELD:
            self._count_holds(1)

    def _count_holds(self, more: int) -> None:
        self.holds += more
        self._memory.key_bytes = self.holds * HELD_KEY_BYTES

    def note_stale(self, count: int = 1) -> None:
        """Count this many entries as stale."""
        self.stale += count

    @property
    def next_us(self) -> int | None:
        """The time of the earliest entry, or `None`."""
        return self.earliest_us if self.earliest_us != NEVER_US else None

    def time_stood_still(self, since_us: int, now_us: int) -> None:
        """Put off the silences that have ended since the first of these times.

        The process stood still, so messages of the peers may have arrived that were not read. Each deadline is put off
        once, or several times if the process stands still again meanwhile.
        """
        if now_us >= self._grace_until_us:
            self._grace_from_us = since_us
            self._grace_ends_us = now_us + MOST_GRACE_US
        self._grace_until_us = min(now_us + GRACE_US, self._grace_ends_us)
        self._find_earliest()

    def _met_at(self, at_us: int) -> int:
        """When a silence is met that ends at this time."""
        return max(at_us, self._grace_until_us) if at_us > self._grace_from_us else at_us

    def _find_earliest(self) -> None:
        """Look up the time of the earliest entry, after entries were removed or moved."""
        moment, span, silence = self._moments.first(), self._spans.first(), self._silences.first()
        earliest_us = moment[0] if moment is not None else NEVER_US
        if span is not None:
            earliest_us = min(earliest_us, span[0] + self._offset_us)
        if silence is not None:
            earliest_us = min(earliest_us, self._met_at(silence[0] + self._offset_us))
        self.earliest_us = earliest_us

    def pop_due(self, now_us: int) -> Deadline | None:
        """Remove and return the earliest entry that is due, if any."""
        if self.earliest_us > now_us:
            return None
        first, index = self._moments.first(), self._moments
        span = self._spans.first()
        if span is not None:
            span = self._at_true_time(span)
            if first is None or precedes(span, first):
                first, index = span, self._spans
        silence = self._silences.first()
        if silence is not None:
            silence = self._at_true_time(silence)
            # The first silence may be put off while others are due, but then all silences after it are put off too.
            if self._met_at(silence[0]) <= now_us and (first is None or precedes(silence, first)):
                first, index = silence, self._silences
        assert first is not None  # its time is the earliest
        index.pop()
        self._find_earliest()
        if first[2] is KEY_HELD:
            self._count_holds(-1)
        return first

    def note_stale_popped(self) -> None:
        """Stop counting the popped entry as stale."""
        self.stale = max(0, self.stale - 1)
        self._stale_before = max(0, self._stale_before - 1)

    def sweep_some(self, is_live: Callable[[Deadline], bool]) -> None:
        """Remove some stale entries, if these are the majority or a pass through all heaps is in progress."""
        if not self._is_sweeping:
            if self.stale < LEAST_STALE_FOR_SWEEP or self.stale * 2 < len(self):
                return
            self._begin_pass()
        looked_at = 0
        while self._is_sweeping and looked_at < HEAP_ENTRIES:
            looked_at += self._sweep_next(is_live)

    @property
    def _is_sweeping(self) -> bool:
        return self._spans_to_sweep > 0 or self._moments_to_sweep > 0 or self._silences_to_sweep > 0

    def _begin_pass(self) -> None:
        self._stale_before = self.stale
        self._moments_to_sweep = self._moments.heap_count
        self._spans_to_sweep = self._spans.heap_count
        self._silences_to_sweep = self._silences.heap_count

    def _sweep_next(self, is_live: Callable[[Deadline], bool]) -> int:
        """Sweep one heap; returns how many entries it had."""
        if self._silences_to_sweep:
            self._silences_to_sweep -= 1
            live_count, stale = self._silences.sweep_one(lambda entry: is_live(self._at_true_time(entry)))
        elif self._spans_to_sweep:
            self._spans_to_sweep -= 1
            live_count, stale = self._spans.sweep_one(lambda entry: is_live(self._at_true_time(entry)))
        else:
            self._moments_to_sweep -= 1
            live_count, stale = self._moments.sweep_one(is_live)
            for entry in stale:
                if entry[2] is KEY_HELD:
                    self._count_holds(-1)
        if not self._is_sweeping:
            self.stale -= self._stale_before
            self._stale_before = 0
        self._find_earliest()
        return live_count + len(stale)

    def shift_spans(self, delta_us: int) -> None:
        """Move all spans by this much, because the wall clock was set; times of the calendar stay."""
        self._offset_us += delta_us
        self._grace_from_us += delta_us
        self._grace_until_us += delta_us
        self._grace_ends_us += delta_us
        self._find_earliest()

    def clear(self) -> None:
        """Forget everything."""
        self.stale = 0
        self._count_holds(-self.holds)
        self._moments = DeadlineIndex()
        self._spans = DeadlineIndex()
        self._silences = DeadlineIndex()
        self.earliest_us = NEVER_US
        self._moments_to_sweep = self._spans_to_sweep = self._silences_to_sweep = self._stale_before = 0

    def _at_true_time(self, entry: Deadline) -> Deadline:
        """The entry with the offset of the clock added to its time."""
        if not self._offset_us:
            return entry
        at_us, serial, kind, subject, token = entry
        return at_us + self._offset_us, serial, kind, subject, token
