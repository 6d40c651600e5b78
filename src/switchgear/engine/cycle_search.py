"""`CycleSearch`: whether a job would wait for itself if it waited for some others too.

The search goes from both ends: from the job to those that wait for it, and from the others to those that they wait for.
It is over as soon as one side has seen all that there is. Usually one side is short: a job that begins to wait for a
new one may be the root of a million others, but the new one waits for nothing.

Where both are long, the search takes several turns, in which other commands may change the graph. Jobs that end, or are
submitted, close no cycle. A job that was there and gets another predecessor may; then the search begins again. A job
may be linked to very many predecessors some time after it got them (`linked_later`): those count as linked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchgear.engine.state import EngineState
from switchgear.engine.waiting_jobs import WaitingJobs
from switchgear.errors import CycleRefused, Refused
from switchgear.model import Job
from switchgear.model.id_set import IdSet
from switchgear.model.id_table import IdTable
from switchgear.refusals import REFUSED_CONFLICT

__all__ = ["CycleSearch", "label"]

# So many edges are followed on one side, and then on the other, and so many rounds are one step. A job without edges
# counts as one.
EDGES_PER_ROUND: Final = 128
ROUNDS_PER_STEP: Final = 8
MOST_BEGINNINGS: Final = 10
# So many blockers are entered in one step at the beginning.
BLOCKERS_PER_STEP: Final = 2_000
# So many jobs of a cycle are named at each end of a long one.
NAMED_AT_AN_END: Final = 10

Successors = IdTable[tuple[Job, ...] | WaitingJobs]


class CycleSearch:
    """Searches the jobs that wait for `job` and those that `blockers` wait for until they meet."""

    def __init__(
        self,
        state: EngineState,
        successors: Successors,
        linked_later: Mapping[Job, IdSet],
        job: Job,
        blockers: Sequence[int],
    ) -> None:
        self._state: Final = state
        self._successors: Final = successors
        self._linked_later: Final = linked_later
        self._job: Final = job
        self._blockers: Final = blockers
        # The ids of jobs that were reached, each with the id of the job from which it was.
        self._above = IdTable[int]()  # those that the blockers wait for, directly or indirectly
        self._below = IdTable[int]()  # those that wait for the job

    def steps(self) -> Iterator[None]:
        """Search; raises CycleRefused, or Refused if the graph changes all the time."""
        for start in range(0, len(self._blockers), BLOCKERS_PER_STEP):
            if start:
                yield
            if self._job.id in self._blockers[start : start + BLOCKERS_PER_STEP]:
                raise CycleRefused([label(self._job), label(self._job)])
        for _ in range(MOST_BEGINNINGS):
            # Only a job that others already wait for can close a cycle, so the usual case, a new job, costs nothing.
            if self._job.id not in self._successors and not self._waiting_later(self._job.id):
                return
            changes = self._state.edge_changes
            yield from self._begin()
            rounds = 0
            meeting = self._round()
            while not meeting and not self._is_over:
                rounds += 1
                if rounds % ROUNDS_PER_STEP == 0:
                    yield
                    if self._state.edge_changes != changes:
                        break
                meeting = self._round()
            else:
                if not meeting:
                    return
                path = self._path(meeting)
                if self._is_still(path):  # jobs may have ended since their edges were followed
                    raise CycleRefused(self._told(path))
        raise Refused(REFUSED_CONFLICT, "others change the jobs that wait for {} all the time; try again", self._job.id)

    def _begin(self) -> Iterator[None]:
        self._is_over = False
        yield from self.free()
        self._above = IdTable[int]()
        self._below = IdTable[int]()
        self._pending_above: list[int] = []
        for start in range(0, len(self._blockers), BLOCKERS_PER_STEP):
            if start:
                yield
            for job_id in self._blockers[start : start + BLOCKERS_PER_STEP]:
                self._above[job_id] = job_id
                self._pending_above.append(job_id)
        self._below[self._job.id] = self._job.id
        self._pending_below: list[int] = [self._job.id]
        # The edges that are being followed, from whose, and how many were.
        self._predecessors: tuple[int, ...] = ()
        self._waiting: Iterator[Job] = iter(())
        self._origin_above = self._origin_below = 0
        self._place_above = 0

    def free(self) -> Iterator[None]:
        """Forget in steps what the search has found."""
        yield from self._above.free()
        yield from self._below.free()

    def _round(self) -> int:
        """Follow some edges on each side; returns the id of the job where both meet, or 0."""
        return self._go_up() or (0 if self._is_over else self._go_down())

    def _go_up(self) -> int:
        for _ in range(EDGES_PER_ROUND):
            if self._place_above == len(self._predecessors):
                if not self._pending_above:
                    self._is_over = True
                    return 0
                self._origin_above = self._pending_above.pop()
                origin = self._state.jobs.get(self._origin_above)
                self._predecessors = () if origin is None else origin.predecessors
                self._place_above = 0
                if not self._predecessors:
                    continue
            job_id = self._predecessors[self._place_above]
            self._place_above += 1
            if self._above.get(job_id) is None and self._has_edge(job_id, self._origin_above):
                self._above[job_id] = self._origin_above
                if self._below.get(job_id) is not None:
                    return job_id
                self._pending_above.append(job_id)
        return 0

    def _go_down(self) -> int:
        for _ in range(EDGES_PER_ROUND):
            job = next(self._waiting, None)
            if job is None:
                if not self._pending_below:
                    self._is_over = True
                    return 0
                self._origin_below = self._pending_below.pop()
                self._waiting = self._waiting_for(self._origin_below)
                job = next(self._waiting, None)
                if job is None:
                    continue
            job_id = job.id
            if self._below.get(job_id) is None:
                self._below[job_id] = self._origin_below
                if self._above.get(job_id) is not None:
                    return job_id
                self._pending_below.append(job_id)
        return 0

    def _waiting_for(self, job_id: int) -> Iterator[Job]:
        """The jobs that wait for this one, one by one, because the table may change between two steps."""
        waiting = self._successors.get(job_id)
        if isinstance(waiting, WaitingJobs):
            yield from waiting.jobs()
        elif waiting is not None:
            yield from waiting
        if self._linked_later:
            yield from self._waiting_later(job_id)

    def _has_edge(self, job_id: int, successor_id: int) -> bool:
        waiting = self._successors.get(job_id)
        if isinstance(waiting, WaitingJobs):
            if waiting.has(successor_id):
                return True
        elif waiting is not None and any(job.id == successor_id for job in waiting):
            return True
        return any(job.id == successor_id and job_id in ids for job, ids in self._linked_later.items())

    def _waiting_later(self, job_id: int) -> list[Job]:
        """The jobs that wait for this one and may not be linked to it yet."""
        return [job for job, ids in self._linked_later.items() if job_id in ids]

    # --- the cycle that was found ---

    def _path(self, meeting: int) -> list[int]:
        """The ids of the cycle in the order of waiting: the job, which would wait for a blocker, which waits for …"""
        to_blocker = way_to(self._above, meeting)
        to_blocker.reverse()
        return [self._job.id, *to_blocker, *way_to(self._below, meeting)[1:]]

    def _is_still(self, path: Sequence[int]) -> bool:
        """Whether each job of the path still waits for the next one; the job itself does not yet."""
        return all(self._has_edge(path[place + 1], path[place]) for place in range(1, len(path) - 1))

    def _told(self, path: list[int]) -> list[str]:
        left_out = len(path) - 2 * NAMED_AT_AN_END
        if left_out < 2:
            return [self._label(job_id) for job_id in path]
        ends = [self._label(job_id) for job_id in (*path[:NAMED_AT_AN_END], *path[-NAMED_AT_AN_END:])]
        return [*ends[:NAMED_AT_AN_END], f"({left_out} others)", *ends[NAMED_AT_AN_END:]]

    def _label(self, job_id: int) -> str:
        job = self._job if job_id == self._job.id else self._state.jobs.get(job_id)
        return f"job {job_id}" if job is None else label(job)


def way_to(reached: IdTable[int], job_id: int) -> list[int]:
    """This job, the one from which it was reached, and so on, to the one where the search began."""
    way = [job_id]
    while (origin := reached.get(job_id)) is not None and origin != job_id:
        way.append(origin)
        job_id = origin
    return way


def label(job: Job) -> str:
    """How errors name a job."""
    return job.name.decode("utf-8", "replace") if job.name else f"job {job.id}"
