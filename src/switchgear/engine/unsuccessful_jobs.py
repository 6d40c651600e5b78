"""`UnsuccessfulJobs`: remembers failed, cancelled and expired jobs that may be named as predecessors.

A job submitted later may name one of them as its predecessor, by id or by name, and must not take it for done. The
store has all of them; the newest, and those that jobs still wait for, are in memory, as many as their share of the
memory account permits. While `is_complete`, a name that is not found here belongs to no such job. Otherwise the owner
has to search the store, and `recall` the job that it finds.

Short names are stored as they are, long ones as digests, so that the memory of an entry is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping
from hashlib import blake2b
from typing import Final

from switchgear.memory import MemoryAccount
from switchgear.model import JobState
from switchgear.model.names import NameTable

__all__ = ["MOST_UNSUCCESSFUL", "NAMED_BYTES", "UNSUCCESSFUL_BYTES", "UnsuccessfulJobs"]

# A server that runs for months must not keep every failure in memory: each takes some 300 bytes, with its name.
MOST_UNSUCCESSFUL: Final = 200_000
# The approximate memory of an entry, and what a name adds besides its length.
UNSUCCESSFUL_BYTES: Final = 150
NAMED_BYTES: Final = 200
# For each failure beyond that, this many of the oldest are examined, and forgotten unless a job waits for them.
LOOKED_AT_PER_FAILURE: Final = 2
LEAST_RETRIED: Final = 1_000

LONGEST_NAME_BYTES: Final = 64  # a digest with its prefix is longer, and so never equal to a name


class UnsuccessfulJobs:
    """Jobs that failed, were cancelled or expired, and were not retried."""

    def __init__(self, memory: MemoryAccount) -> None:
        self.held_bytes = 0
        self._memory = memory
        self.states: dict[int, JobState] = {}
        self.most_jobs = MOST_UNSUCCESSFUL
        self.is_complete = True  # the store has no others
        self._ids = NameTable[int]()  # the newest job of each name
        self._names: dict[int, bytes] = {}  # the names of those that have one, as returned by `_key`
        self._oldest_first: deque[int] = deque()  # the ids of `states`, and some that were forgotten meanwhile

    def __len__(self) -> int:
        return len(self.states)

    @property
    def has_names(self) -> bool:
        """Whether any of them has a name."""
        return bool(self._names)

    def kept_names(self) -> Iterable[bytes]:
        """The names of those that have one; of a long name, its digest."""
        return self._names.values()

    def named(self, name: bytes) -> int:
        """The id of the newest unsuccessful job of this name, or 0."""
        if not self._names:
            return 0
        return self._ids.get(_key(name)) or 0

    def add(self, job_id: int, state: JobState, name: bytes, waited_for: Container[int]) -> None:
        """Add a job that ended without success. Older ones may be forgotten for it, but none that is `waited_for`."""
        self._enter(job_id, state, name)
        if self._are_too_many():
            self._forget_some(waited_for)
        elif len(self._oldest_first) > 2 * len(self.states) + LEAST_RETRIED:  # most of these were retried
            self._oldest_first = deque(self.states)

    def recall(self, job_id: int, state: JobState, name: bytes) -> None:
        """Add a job of the store that was forgotten here and that a submission names."""
        if job_id not in self.states:
            self._enter(job_id, state, name)

    def restore(self, states: Mapping[int, JobState], names: Mapping[int, bytes], *, is_complete: bool) -> None:
        """Add jobs that ended without success before a restart; the store may have more."""
        for job_id, state in states.items():
            self._enter(job_id, state, names.get(job_id, b""))
        self.is_complete = self.is_complete and is_complete

    def remove(self, job_id: int) -> None:
        """Remove a job that is retried."""
        if self.states.pop(job_id, None) is not None:
            self._count(-UNSUCCESSFUL_BYTES)
            self._remove_name(job_id)

    def clear(self) -> None:
        """Forget everything."""
        self.states.clear()
        self._ids.clear()
        self._names.clear()
        self._oldest_first.clear()
        self._count(-self.held_bytes)

    def _count(self, more_bytes: int) -> None:
        self.held_bytes += more_bytes
        self._memory.failure_bytes += more_bytes

    def _are_too_many(self) -> bool:
        return len(self.states) > self.most_jobs or 0 < self._memory.failure_limit_bytes // 2 < self.held_bytes

    def _enter(self, job_id: int, state: JobState, name: bytes) -> None:
        if job_id not in self.states:
            self._count(UNSUCCESSFUL_BYTES)
        self.states[job_id] = state
        self._oldest_first.append(job_id)
        if name:
            self._remove_name(job_id)
            key = self._names[job_id] = _key(name)
            self._count(NAMED_BYTES + len(key))
            if (self._ids.get(key) or 0) < job_id:
                self._ids[key] = job_id

    def _remove_name(self, job_id: int) -> None:
        key = self._names.pop(job_id, None)
        if key is None:
            return
        self._count(-NAMED_BYTES - len(key))
        if self._ids.get(key) == job_id:
            del self._ids[key]

    def _forget_some(self, waited_for: Container[int]) -> None:
        """Forget the oldest entries; those that a job still waits for become the newest."""
        for _ in range(LOOKED_AT_PER_FAILURE):
            if not self._are_too_many():
                break
            job_id = self._oldest_first.popleft()
            if job_id in waited_for and job_id in self.states:
                self._oldest_first.append(job_id)
            elif self.states.pop(job_id, None) is not None:
                self._count(-UNSUCCESSFUL_BYTES)
                self._remove_name(job_id)
                self.is_complete = False


def _key(name: bytes) -> bytes:
    if len(name) <= LONGEST_NAME_BYTES:
        return name
    return b"#" + blake2b(name).digest()
