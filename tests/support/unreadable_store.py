"""`UnreadableStore`: a store that cannot be read.

It is a class of its own, because compiled code calls the methods of a class, whatever is set in the object.
"""

from __future__ import annotations

from collections.abc import Sequence

from switchgear.errors import StorageError
from switchgear.model import Job, JobState
from switchgear.storage.base import JobQuery
from switchgear.storage.memory import MemoryStore

__all__ = ["UnreadableStore"]


class UnreadableStore(MemoryStore):
    """Every read of finished jobs fails."""

    async def read_jobs(self, job_ids: Sequence[int]) -> dict[int, Job]:
        raise StorageError("disk broken")

    async def read_states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        raise StorageError("disk broken")

    async def find(self, query: JobQuery) -> list[Job]:
        raise StorageError("disk broken")
