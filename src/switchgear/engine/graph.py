"""Which jobs wait for which: edges, and the search for circles.

Edges are kept by the id of the predecessor, not on its job, so that they outlive it: a predecessor that failed is no
longer in the engine's table, but its successors still wait, and go on if it is retried and done.

What becomes of a job when one that it waits for ends without success is the edge's own matter (`model.EdgePolicy`).  An
edge that says WAIT stays; any other is used up by that end.  So of the edges from jobs that were not done only those
that say WAIT are left, and, for a moment, those of jobs that are about to end for it.

Most jobs have few successors, and a tuple is the smallest home for them.  Some have very many, and each of those must
still be able to come and leave at once; so a long tuple becomes a table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from switchgear.errors import CycleRefused
from switchgear.model import EdgePolicy, Job, JobState, JobTable

__all__ = ["Graph", "check_edges", "has_policies", "policy_of", "without_repetitions"]

WAIT: Final = int(EdgePolicy.WAIT)
RUN: Final = int(EdgePolicy.RUN)

# Looking through this many costs no more than a table.
MOST_IN_TUPLE: Final = 16

# A server that runs for months must not remember every failure.  Only jobs submitted later can ask for one of them, and
# seldom for an old one: beyond the first number they are forgotten down to the second.
MOST_UNSUCCESSFUL = 200_000
KEPT_UNSUCCESSFUL = 100_000


class Graph:
    """Edges from unfinished or unsuccessful predecessors to waiting jobs."""

    def __init__(self) -> None:
        self.successors: dict[int, tuple[Job, ...] | dict[int, Job]] = {}
        self.unsuccessful: dict[int, JobState] = {}  # finished jobs that were not done, as long as it may matter
        self.minded: set[int] = set()  # those whose end without success is more to somebody than a longer wait
        # Unfinished jobs that are not kept, and that others have waited for which are not kept either.
        self.waited_for: set[int] = set()
        self._prune_above = MOST_UNSUCCESSFUL

    def blockers_among(self, job_ids: Iterable[int], unfinished: JobTable, edges: bytes = b"") -> list[int]:
        """Those that are not done, or do not count as done.  An id that nobody knows was done once, and is forgotten.

        `edges` has the policy for each; without it, all are waited for.
        """
        unsuccessful = self.unsuccessful
        blockers = []
        if edges:
            for job_id, policy in zip(job_ids, edges):
                if job_id in unfinished or (job_id in unsuccessful and policy != RUN):
                    blockers.append(job_id)
            return blockers
        for job_id in job_ids:
            if job_id in unfinished or job_id in unsuccessful:
                blockers.append(job_id)
        return blockers

    def waiting_for(self, job_id: int) -> list[Job]:
        """The jobs that wait for this one, in the order in which they began to."""
        waiting = self.successors.get(job_id, ())
        return list(waiting.values() if isinstance(waiting, dict) else waiting)

    def successor_count(self, job_id: int) -> int:
        """How many jobs wait for this one."""
        waiting = self.successors.get(job_id)
        return len(waiting) if waiting is not None else 0

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
        if job.edges:
            policies = dict(zip(job.predecessors, job.edges))
            self.minded.update(job_id for job_id in blockers if policies[job_id] != WAIT)

    def release(self, job_id: int) -> list[Job]:
        """This job is done: those that now wait for nothing more."""
        released: list[Job] = []
        waiting = self.successors.pop(job_id, None)
        if waiting is None:
            return released
        if self.minded:
            self.minded.discard(job_id)
        for job in waiting.values() if isinstance(waiting, dict) else waiting:
            job.blockers -= 1
            if not job.blockers:
                job.function.waiting -= 1
                released.append(job)
        return released

    def remove(self, job: Job) -> None:
        """The job waits for nothing any more, because it ended itself."""
        for job_id in job.predecessors:
            self._remove_edge(job_id, job)
        if job.blockers:
            job.blockers = 0
            job.function.waiting -= 1

    def _remove_edge(self, job_id: int, job: Job) -> None:
        waiting = self.successors.get(job_id)
        if isinstance(waiting, dict):
            waiting.pop(job.id, None)
        elif waiting is not None:
            self.successors[job_id] = waiting = tuple([other for other in waiting if other is not job])
        if waiting is not None and not waiting:
            del self.successors[job_id]
            self.minded.discard(job_id)

    def use_up_edge(self, job_id: int, job: Job) -> bool:
        """The job waits for this one no longer; whether it waits for nothing more.  Nothing happens if it did not."""
        if not self.has_edge(job_id, job):
            return False
        self._remove_edge(job_id, job)
        job.blockers -= 1
        if job.blockers:
            return False
        job.function.waiting -= 1
        return True

    def has_edge(self, job_id: int, job: Job) -> bool:
        """Whether the job waits for this one."""
        waiting = self.successors.get(job_id)
        if isinstance(waiting, dict):
            return job.id in waiting
        return waiting is not None and job in waiting

    def disappoint(self, job_id: int, waiting: list[Job]) -> tuple[list[Job], list[Job]]:
        """This job ended and was not done: of those that wait for it, those that now wait for nothing more, and those
        that must not go on."""
        self.minded.discard(job_id)
        released: list[Job] = []
        doomed: list[Job] = []
        for job in waiting:
            if not self.has_edge(job_id, job):
                continue  # it has ended meanwhile
            policy = policy_of(job, job_id)
            if policy == RUN:
                if self.use_up_edge(job_id, job):
                    released.append(job)
            elif policy != WAIT:
                doomed.append(job)
        return released, doomed

    def doom_of(self, job: Job) -> int:
        """The first job for whose end without success this one must not go on, or 0."""
        for job_id, policy in zip(job.predecessors, job.edges):
            if policy != WAIT and policy != RUN and job_id in self.unsuccessful:
                return job_id
        return 0

    def remember_unsuccessful(self, job_id: int, state: JobState) -> None:
        """This job ended and was not done: whoever waits for it waits on."""
        self.unsuccessful[job_id] = state
        if len(self.unsuccessful) > self._prune_above:
            self._forget_old_ones()

    def forget_unsuccessful(self, job_id: int) -> None:
        """This job is tried again, and whoever still waits for it may mind how it ends then."""
        self.unsuccessful.pop(job_id, None)
        if job_id in self.successors:
            self.minded.add(job_id)

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


def check_edges(edges: bytes, predecessors: tuple[int, ...]) -> None:
    """Raise ValueError unless there is a policy for each of the predecessors."""
    if len(edges) != len(predecessors):
        raise ValueError(f"{len(edges)} edges for {len(predecessors)} predecessors")
    if max(edges) > RUN:
        raise ValueError(f"there is no edge policy {max(edges)}")


def has_policies(edges: bytes) -> bool:
    """Whether some of the edges say anything but WAIT."""
    return edges.count(WAIT) < len(edges)


def without_repetitions(predecessors: tuple[int, ...], edges: bytes) -> tuple[tuple[int, ...], bytes]:
    """Each predecessor once, with the policy that it was first named with."""
    if not edges:
        return tuple(dict.fromkeys(predecessors)), b""
    policies: dict[int, int] = {}
    for job_id, policy in zip(predecessors, edges):
        policies.setdefault(job_id, policy)
    return tuple(policies), bytes(policies.values())


def policy_of(job: Job, predecessor_id: int) -> int:
    """What becomes of the job if this one, which it waits for, ends without success."""
    edges = job.edges
    if not edges:
        return WAIT
    if edges.count(edges[0]) == len(edges):  # most often they are all alike
        return edges[0]
    return edges[job.predecessors.index(predecessor_id)]


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
