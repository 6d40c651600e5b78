"""`IdTable`: a dictionary by job id that never stops the server while it grows, as `NameTable` is one by name.

When a dictionary of 700,000 entries grows, all of them are inserted again, which takes 20 ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

__all__ = ["IdTable"]

Value = TypeVar("Value")

TABLES: Final = 256
# With more entries a table gets several dictionaries. Inserting so many again takes less than half a millisecond.
MOST_IN_ONE: Final = 2048
FREED_PER_STEP: Final = 20


class IdTable(Generic[Value]):
    """A mapping from job ids to values. `count` is the number of entries."""

    def __init__(self) -> None:
        self.count = 0
        self._mask = 0
        self._tables: list[dict[int, Value]] = [{}]

    def __len__(self) -> int:
        return self.count

    def __contains__(self, job_id: object) -> bool:
        return isinstance(job_id, int) and job_id in self._tables[job_id & self._mask]

    def __iter__(self) -> Iterator[int]:
        """All ids, in no order. None may be added or removed meanwhile."""
        for table in self._tables:
            yield from table

    def get(self, job_id: int) -> Value | None:
        return self._tables[job_id & self._mask].get(job_id)

    def __setitem__(self, job_id: int, value: Value) -> None:
        table = self._tables[job_id & self._mask]
        before = len(table)
        table[job_id] = value
        self.count += len(table) - before
        if not self._mask and len(table) > MOST_IN_ONE:
            self._divide()

    def _divide(self) -> None:
        tables: list[dict[int, Value]] = [{} for _ in range(TABLES)]
        for job_id, value in self._tables[0].items():
            tables[job_id & (TABLES - 1)][job_id] = value
        self._tables = tables
        self._mask = TABLES - 1

    def pop(self, job_id: int) -> Value | None:
        """Remove an entry, if there is one; returns its value."""
        value = self._tables[job_id & self._mask].pop(job_id, None)
        if value is not None:
            self.count -= 1
        return value

    def free(self) -> Iterator[None]:
        """Remove all entries, some per step, because freeing a million at once takes 40 ms."""
        self.count = 0
        for table in self._tables:
            while table:
                for _ in range(min(len(table), FREED_PER_STEP)):
                    table.popitem()
                yield

    def clear(self) -> None:
        self.count = 0
        self._mask = 0
        self._tables = [{}]
