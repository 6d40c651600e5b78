"""`ClusterCycles`: finds out whether a job would wait for itself by way of jobs of several nodes.

The engine of a node finds the cycles among its own jobs. An edge of another node is in the row of the job that waits,
so the search goes on in the database, from the jobs that are to be waited for to those that they wait for, a portion at
a time. A new job cannot close a cycle; only `wait_for`, `spawn` and `explain` search, and the first portion is usually
the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from switchgear.model import FINAL_STATES, WAITING, Job
from switchgear.net.hub import Hub
from switchgear.net.owners.foreign_edges import JobHeads
from switchgear.protocols.pending_read import Reading, awaited

__all__ = ["MOST_SEARCHED", "ClusterCycles"]

# So many jobs are read at a time, and looked at in all: behind so many a cycle is not looked for.
READ_AT_ONCE: Final = 500
MOST_SEARCHED: Final = 100_000


class ClusterCycles:
    """Searches the jobs of all nodes."""

    def __init__(self, hub: Hub, store: Callable[[], JobHeads]) -> None:
        self._hub = hub
        self._store = store

    def path_to(self, job_id: int, first: Sequence[int]) -> Reading[list[int]]:
        """The path by which these jobs wait for the job: one of them, …, the job. Empty if there is none."""
        return (yield from self._search(first, lambda job: job.id == job_id))

    def path_to_successor(self, job_id: int, first: Sequence[int]) -> Reading[list[int]]:
        """The path by which these jobs wait for a job that waits for this one."""
        return (yield from self._search(first, lambda job: job.state is WAITING and job_id in job.predecessors))

    def _search(self, first: Sequence[int], is_wanted: Callable[[Job], bool]) -> Reading[list[int]]:
        came_from: dict[int, int] = dict.fromkeys(first, 0)
        pending = list(came_from)
        while pending and len(came_from) <= MOST_SEARCHED:
            some, pending = pending[:READ_AT_ONCE], pending[READ_AT_ONCE:]
            jobs: list[Job] = yield from self._jobs(some)
            for job in jobs:
                if job.state in FINAL_STATES:
                    continue
                if is_wanted(job):
                    return list(path(job.id, came_from))
                if job.state is WAITING:  # of others all predecessors are done
                    for each in job.predecessors:
                        if each not in came_from:
                            came_from[each] = job.id
                            pending.append(each)
        return []

    def _jobs(self, job_ids: Iterable[int]) -> Reading[list[Job]]:
        """These jobs: those of this node as they are, and others as they are stored."""
        engine = self._hub.engine
        found: list[Job] = []
        unknown: list[int] = []
        for job_id in job_ids:
            job = engine.look_at(job_id) if engine.foreign_predecessors.is_own(job_id) else None
            if job is None:
                unknown.append(job_id)
            else:
                found.append(job)
        if unknown:
            found += yield from awaited(self._hub.reads.start(self._store().read_heads(unknown)))
        return found


def path(job_id: int, came_from: dict[int, int]) -> Iterator[int]:
    """The jobs from one of the first to this one, each of which waits for the next."""
    reverse: list[int] = []
    while job_id:
        reverse.append(job_id)
        job_id = came_from[job_id]
    return reversed(reverse)
