"""Jobs that are gone when the server is: only a job log of those that finished last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest
from typing import Final

from switchgear.model import FINAL_STATES, RUNNING, Function, Job
from switchgear.storage.base import JobQuery, Snapshot, Store

__all__ = ["DEFAULT_KEEP_COUNT", "MemoryStore"]

DEFAULT_KEEP_COUNT: Final = 10_000

# Ten thousand jobs are nothing to hold, unless each came with megabytes.
DEFAULT_KEEP_BYTES: Final = 256 * 1024 * 1024


class MemoryStore(Store):
    """A ring of finished jobs, the very objects that the engine is done with; unfinished ones are the engine's.

    `keep_bytes` bounds what the payloads, results and words of those jobs may take together.  A job that is retried stays in
    the ring until it finishes again, but is not shown: only the engine knows how it fares.
    """

    durable = False
    url = "memory:"

    def __init__(self, keep_count: int = DEFAULT_KEEP_COUNT, keep_bytes: int = DEFAULT_KEEP_BYTES) -> None:
        self._keep_count = keep_count
        self._keep_bytes = keep_bytes
        self._ring: OrderedDict[int, tuple[Job, int]] = OrderedDict()  # job and size by id, first finished first
        self._bytes = 0

    def open(self) -> None:
        """Nothing to do."""

    def load(self, function_named: Callable[[bytes], Function]) -> Snapshot:
        """Nothing survived."""
        return Snapshot()

    def stage(self, jobs: Iterable[Job], functions: Iterable[Function] = (), next_job_id: int = 0) -> None:
        """Put the finished ones of these into the ring."""
        ring = self._ring
        total_bytes = self._bytes
        for job in jobs:
            if job.state > RUNNING:
                job_id = job.id
                size_bytes = len(job.payload or b"") + len(job.result) + len(job.error or b"") + len(job.warnings)
                if job.chunks:
                    size_bytes += sum(map(len, job.chunks))
                if job_id in ring:
                    total_bytes -= ring.pop(job_id)[1]
                ring[job_id] = (job, size_bytes)
                total_bytes += size_bytes
        while len(ring) > self._keep_count or total_bytes > self._keep_bytes:
            total_bytes -= ring.popitem(last=False)[1][1]
        self._bytes = total_bytes

    def unstage(self, jobs: Iterable[Job]) -> None:
        """Take these out of the ring."""
        for job in jobs:
            self._bytes -= self._ring.pop(job.id, (job, 0))[1]

    async def commit(self) -> Sequence[int]:
        """Nothing to wait for, and nothing to refuse."""
        return ()

    def read_payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        """The payloads of finished jobs; an unfinished one has its own."""
        found = (self.get(job_id) for job_id in job_ids)
        return {job.id: job.payload for job in found if job is not None and job.payload is not None}

    def get(self, job_id: int) -> Job | None:
        """One finished job."""
        entry = self._ring.get(job_id)
        return entry[0] if entry is not None and entry[0].state in FINAL_STATES else None

    def find(self, query: JobQuery) -> list[Job]:
        """Finished jobs that match, newest first; being the engine's own objects, they have their payloads."""
        matching = (job for job, _ in self._ring.values() if job.state in FINAL_STATES and _matches(job, query))
        return nlargest(query.limit, matching, key=lambda job: job.id)

    async def drop_finished(self, before_us: int, keep_count: int, spare: frozenset[int] = frozenset()) -> int:
        """Forget jobs that finished before a time, and the oldest beyond `keep_count`; returns how many."""
        finished = [job for job, _ in self._ring.values() if job.state in FINAL_STATES]
        excess = max(0, len(finished) - keep_count)
        dropped = [
            job
            for place, job in enumerate(finished)
            if (place < excess or job.finished_us < before_us) and job.id not in spare
        ]
        self.unstage(dropped)
        return len(dropped)

    async def close(self) -> None:
        """Forget everything."""
        self._ring.clear()
        self._bytes = 0


def _matches(job: Job, query: JobQuery) -> bool:
    return (
        (query.function is None or job.function.name == query.function)
        and (not query.states or job.state in query.states)
        and (query.unique is None or job.unique == query.unique)
        and (query.name is None or job.name == query.name)
        and (not query.since_us or job.created_us >= query.since_us)
        and (not query.until_us or job.created_us < query.until_us)
        and (not query.before_id or job.id < query.before_id)
    )
