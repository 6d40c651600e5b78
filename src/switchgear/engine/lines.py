"""One line of ready jobs: who stands where in it, and who is only a ghost.  See engine.queues for what that means."""

from __future__ import annotations

from collections import deque
from typing import Final

from switchgear.model import READY, Job, Line

__all__ = ["LEAST_GHOSTS_FOR_SWEEP", "RANKS_BETWEEN", "first_of", "is_ahead", "leave_ghost", "place_of"]

# So many jobs may go to the end between two submissions without a restart confusing their order with those of jobs
# submitted later.
RANKS_BETWEEN: Final = 1 << 20

# Sweeping a short queue is not worth the trouble.
LEAST_GHOSTS_FOR_SWEEP: Final = 256


def first_of(line: Line, priority: int) -> Job | None:
    """The job at the head of this queue, when the ghosts before it are gone."""
    queue = line.queues[priority]
    while queue:
        job = queue[0]
        if not job.ghosts or is_ahead(job):
            return job
        queue.popleft()
        job.ghosts -= 1
        line.ghosts[priority] -= 1
    return None


def leave_ghost(line: Line, job: Job) -> None:
    """The job's entry, wherever it is in its queue, does not count any more."""
    priority = job.priority
    job.special = True
    job.ghosts += 1
    if job.rank:
        job.rank = 0
    line.ghosts[priority] += 1
    ghosts = line.ghosts[priority]
    if ghosts > LEAST_GHOSTS_FOR_SWEEP and ghosts * 2 > len(line.queues[priority]):
        sweep(line, priority)


def sweep(line: Line, priority: int) -> None:
    """Rebuild a queue without its ghosts."""
    kept: deque[Job] = deque()
    ahead: set[Job] = set()
    for job in line.queues[priority]:
        if job.ghosts and (job in ahead or not is_ahead(job)):
            job.ghosts -= 1
            continue
        if job.ghosts:
            ahead.add(job)  # the entries of it that follow are its ghosts
        kept.append(job)
    line.queues[priority] = kept
    line.ghosts[priority] = 0


def is_ahead(job: Job) -> bool:
    """Whether the job stands in its queue before all its ghosts there."""
    return job.rank < 0 and job.state is READY


def place_of(job: Job) -> int:
    """Where a job stands among those that wait for the same."""
    return job.rank or job.id * RANKS_BETWEEN
