"""`NameTable`: a dictionary by name that never stops the server while it grows.

When a dictionary of a million entries grows, all of them are inserted again, which takes a tenth of a second. So the
entries of a large table are in many small dictionaries. A small table, of which there may be very many, has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

__all__ = ["NameTable"]

Value = TypeVar("Value")

TABLES: Final = 256
# With more entries a table gets several dictionaries. Inserting so many again takes less than half a millisecond.
MOST_IN_ONE: Final = 2048


class NameTable(Generic[Value]):
    """A mapping from names to values."""

    def __init__(self) -> None:
        self._count = 1
        self._tables: list[dict[bytes, Value]] = [{}]

    def __len__(self) -> int:
        return len(self._tables[0]) if self._count == 1 else sum(map(len, self._tables))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, bytes) and name in self._tables[hash(name) % self._count]

    def get(self, name: bytes) -> Value | None:
        return self._tables[hash(name) % self._count].get(name)

    def __getitem__(self, name: bytes) -> Value:
        return self._tables[hash(name) % self._count][name]

    def __setitem__(self, name: bytes, value: Value) -> None:
        table = self._tables[hash(name) % self._count]
        table[name] = value
        if self._count == 1 and len(table) > MOST_IN_ONE:
            self._divide()

    def _divide(self) -> None:
        # The dictionary stays as it is, because `portions` may be about to list it.
        tables: list[dict[bytes, Value]] = [{} for _ in range(TABLES)]
        for name, value in self._tables[0].items():
            tables[hash(name) % TABLES][name] = value
        self._tables = tables
        self._count = TABLES

    def __delitem__(self, name: bytes) -> None:
        del self._tables[hash(name) % self._count][name]

    def items(self) -> Iterator[tuple[bytes, Value]]:
        """All entries, in no order. None may be added or removed meanwhile."""
        for table in self._tables:
            yield from table.items()

    def values(self) -> Iterator[Value]:
        """All values, in no order. None may be added or removed meanwhile."""
        for table in self._tables:
            yield from table.values()

    def portions(self) -> Iterator[list[Value]]:
        """All values, in lists of bounded length. Values that are added or removed meanwhile may or may not be
        among them."""
        for table in self._tables:
            if table:
                yield list(table.values())

    def discard(self) -> Iterator[None]:
        """Remove all entries, one per step, because freeing a million values at once takes as long as the work on
        them. Nothing else may be done with the table from now on."""
        for table in self._tables:
            while table:
                table.popitem()
                yield

    def clear(self) -> None:
        self._tables = [{}]
        self._count = 1
