"""`NameTable`: a dictionary by name that never stops the server while it grows.

When a dictionary of a million entries grows, all of them are inserted again, which takes a tenth of a second. So the
entries are in many small dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

__all__ = ["TABLES", "NameTable"]

Value = TypeVar("Value")

TABLES: Final = 256


class NameTable(Generic[Value]):
    """A mapping from names to values. One that stays small can have a single dictionary."""

    def __init__(self, tables: int = TABLES) -> None:
        self._count = tables
        self._tables: list[dict[bytes, Value]] = [{} for _ in range(tables)]

    def __len__(self) -> int:
        return sum(map(len, self._tables))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, bytes) and name in self._tables[hash(name) % self._count]

    def get(self, name: bytes) -> Value | None:
        return self._tables[hash(name) % self._count].get(name)

    def __getitem__(self, name: bytes) -> Value:
        return self._tables[hash(name) % self._count][name]

    def __setitem__(self, name: bytes, value: Value) -> None:
        self._tables[hash(name) % self._count][name] = value

    def __delitem__(self, name: bytes) -> None:
        del self._tables[hash(name) % self._count][name]

    def items(self) -> Iterator[tuple[bytes, Value]]:
        """All entries, in no order."""
        for table in self._tables:
            yield from table.items()

    def clear(self) -> None:
        for table in self._tables:
            table.clear()
