"""Every store, by name.

A new store is added to the list it belongs to, and has to pass the tests as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from switchgear.storage.base import Store
from switchgear.storage.memory import MemoryStore
from switchgear.storage.postgres import PostgresStore
from switchgear.storage.sqlite import SqliteStore
from switchgear.testing import SlowStore
from tests.storage.support import close
from tests.support.postgres import POSTGRESQL

# Each makes a store, not yet open, of what lies at a place.
DURABLE: dict[str, Callable[[str], Store]] = {
    "sqlite": lambda place: SqliteStore(Path(place) / "jobs.db", "normal"),
    "slow sqlite": lambda place: SlowStore(SqliteStore(Path(place) / "jobs.db", "normal")),
    "postgresql": PostgresStore,
}
ALL: dict[str, Callable[[str], Store]] = {
    "memory": lambda place: MemoryStore(),
    "slow memory": lambda place: SlowStore(MemoryStore()),
    **DURABLE,
}


def parameters(stores: Iterable[str]) -> list[Any]:
    return [POSTGRESQL if name == "postgresql" else name for name in stores]


class Durable:
    """A durable store that can be closed and opened again, as when the server restarts."""

    def __init__(self, make: Callable[[], Store]) -> None:
        self._make = make
        self.store = make()
        self.store.open()

    def reopen(self) -> Store:
        close(self.store)
        self.store = self._make()
        self.store.open()
        return self.store
