"""Which jobs wait for which: edges, and the search for circles.

Edges are kept by the id of the predecessor, not on its job, so that they outlive it: a predecessor that failed is no
longer in the engine's table, but its successors still wait, and go on if it is retried and done.

Most jobs have few successors, and a tuple is the smallest home for them.  Some have very many, and each of those must
still be able to come and leave at once; so a long tuple becomes a table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from switchgear.errors import CycleRefused
from switchgear.model import Job, JobState

__all__ = ["Graph"]

# Looking through this many costs no more than a table.
MOST_IN_TUPLE: Final = 16

# A server that runs for months must not remember every failure.  Only jobs submitted later can ask for one of them, and
# seldom for an old one: beyond the first number they are forgotten down to the second.
MOST_UNSUCCESSFUL: Final = 200_000
KEPT_UNSUCCESSFUL: Final = 100_000


class Graph:
    """Edges from unfinished or unsuccessful predecessors to waiting jobs."""

    def __init__(self) -> None:
        self.successors: dict[int, tuple[Job, ...] | dict[int, Job]] = {}
        self.unsuccessful: dict[int, JobState] = {}  # finished jobs that were not done, as long as it may matter
        self._prune_above = MOST_UNSUCCESSFUL

    def blockers_among(self, job_ids: Iterable[int], unfinished: dict[int, Job]) -> list[int]:
        """Those that are not done.  An id that nobody knows is taken for done: it was once, and is forgotten."""
        unsuccessful = self.unsuccessful
        blockers = []
        for job_id in job_ids:
            if job_id in unfinished or job_id in unsuccessful:
                blockers.append(job_id)
        return blockers

    def waiting_for(self, job_id: int) -> list[Job]:
        """The jobs that wait for this one, in the order in which they began to."""
        waiting = self.successors.get(job_id, ())
        return list(waiting.values() if isinstance(waiting, dict) else waiting)

    def add(self, job: Job, blockers: list[int]) -> None:
        """Let the job wait for these."""
        if not job.blockers:
            job.function.waiting += 1
        job.blockers += len(blockers)
        successors = self.successors
        for job_id in blockers:
            waiting = successors.get(job_id)
            if waiting is None:
                successors[job_id] = (job,)
            elif isinstance(waiting, dict):
                waiting[job.id] = job
            elif len(waiting) < MOST_IN_TUPLE:
                successors[job_id] = (*waiting, job)
            else:
                successors[job_id] = {other.id: other for other in (*waiting, job)}

    def release(self, job_id: int) -> list[Job]:
        """This job is done: those that now wait for nothing more."""
        released: list[Job] = []
        waiting = self.successors.pop(job_id, None)
        if waiting is None:
            return released
        for job in waiting.values() if isinstance(waiting, dict) else waiting:
            job.blockers -= 1
            if not job.blockers:
                job.function.waiting -= 1
                released.append(job)
        return released

    def remove(self, job: Job) -> None:
        """The job waits for nothing any more, because it ended itself."""
        for job_id in job.predecessors:
            waiting = self.successors.get(job_id)
            if isinstance(waiting, dict):
                waiting.pop(job.id, None)
            elif waiting is not None:
                self.successors[job_id] = waiting = tuple([other for other in waiting if other is not job])
            if waiting is not None and not waiting:
                del self.successors[job_id]
        if job.blockers:
            job.blockers = 0
            job.function.waiting -= 1

    def remember_unsuccessful(self, job_id: int, state: JobState) -> None:
        """This job ended and was not done: whoever waits for it waits on."""
        self.unsuccessful[job_id] = state
        if len(self.unsuccessful) > self._prune_above:
            self._forget_old_ones()

    def awaited_in_vain(self) -> frozenset[int]:
        """The unsuccessful jobs that others wait for: few, however large the graph is."""
        return frozenset(self.unsuccessful.keys() & self.successors.keys())

    def _forget_old_ones(self) -> None:
        """Keep the newest, and those that are still waited for."""
        old = len(self.unsuccessful) - KEPT_UNSUCCESSFUL
        self.unsuccessful = {
            job_id: state
            for place, (job_id, state) in enumerate(self.unsuccessful.items())
            if place >= old or job_id in self.successors
        }
        # Those waited for may be many, and going through them must stay rare.
        self._prune_above = max(MOST_UNSUCCESSFUL, len(self.unsuccessful) + KEPT_UNSUCCESSFUL)

    def refuse_cycle(self, job: Job, blockers: list[int]) -> None:
        """Raise CycleRefused if waiting for these would make the job wait for itself.

        Only a job that others already wait for can close a circle, so the usual case, a new job, costs nothing.
        """
        if job.id in blockers:
            raise CycleRefused([label(job), label(job)])
        if job.id not in self.successors:
            return
        targets = set(blockers)
        came_from: dict[int, Job] = {}
        pending = [job]
        while pending:
            current = pending.pop()
            for successor in self.waiting_for(current.id):
                if successor.id in came_from:
                    continue
                came_from[successor.id] = current
                if successor.id in targets:
                    raise CycleRefused(trace(successor, job, came_from))
                pending.append(successor)


def label(job: Job) -> str:
    return job.name.decode("utf-8", "replace") if job.name else f"job {job.id}"


def trace(last: Job, first: Job, came_from: dict[int, Job]) -> list[str]:
    """The circle in words, in the order of waiting: first waits for last, which waits for … first."""
    path = [label(first), label(last)]
    current = last
    while current is not first:
        current = came_from[current.id]
        path.append(label(current))
    return path
