"""`IdSet`: a set of job ids that never stops the server while it grows. One of a million takes 50 ms to grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["IdSet"]

TABLES: Final = 64
# With more ids a set is divided.
MOST_IN_ONE: Final = 2048
FREED_PER_STEP: Final = 20


class IdSet:
    """Job ids. `count` is their number."""

    def __init__(self) -> None:
        self.count = 0
        self._mask = 0
        self._tables: list[set[int]] = [set()]

    def __len__(self) -> int:
        return self.count

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._tables[job_id & self._mask]

    def __iter__(self) -> Iterator[int]:
        """All ids, in no order. None may be added or removed meanwhile."""
        for table in self._tables:
            yield from table

    def add(self, job_id: int) -> bool:
        """Add an id; returns whether it is new."""
        table = self._tables[job_id & self._mask]
        if job_id in table:
            return False
        table.add(job_id)
        self.count += 1
        if not self._mask and self.count > MOST_IN_ONE:
            self._divide()
        return True

    def _divide(self) -> None:
        tables: list[set[int]] = [set() for _ in range(TABLES)]
        for job_id in self._tables[0]:
            tables[job_id & (TABLES - 1)].add(job_id)
        self._tables = tables
        self._mask = TABLES - 1

    def update(self, job_ids: Iterable[int]) -> None:
        """Add ids."""
        for job_id in job_ids:
            self.add(job_id)

    def discard(self, job_id: int) -> None:
        """Remove an id, if it is there."""
        table = self._tables[job_id & self._mask]
        if job_id in table:
            table.remove(job_id)
            self.count -= 1

    def free(self) -> Iterator[None]:
        """Remove all ids, some per step, because freeing a million at once takes 40 ms."""
        self.count = 0
        for table in self._tables:
            while table:
                for _ in range(min(len(table), FREED_PER_STEP)):
                    table.pop()
                yield

    def clear(self) -> None:
        """Remove all ids."""
        self.count = 0
        self._mask = 0
        self._tables = [set()]
