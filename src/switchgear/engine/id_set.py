"""`IdSet`: a set of very many job ids. It grows in small parts: to grow a single set of a million takes 50 ms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["IdSet"]

TABLES: Final = 64


class IdSet:
    """Job ids, in many small sets."""

    def __init__(self) -> None:
        self._tables: Final[list[set[int]]] = [set() for _ in range(TABLES)]

    def add(self, job_id: int) -> bool:
        """Add an id; returns whether it is new."""
        table = self._tables[job_id % TABLES]
        if job_id in table:
            return False
        table.add(job_id)
        return True

    def update(self, job_ids: Iterable[int]) -> None:
        """Add ids."""
        for job_id in job_ids:
            self._tables[job_id % TABLES].add(job_id)

    def has(self, job_id: int) -> bool:
        """Whether the id was added."""
        return job_id in self._tables[job_id % TABLES]
