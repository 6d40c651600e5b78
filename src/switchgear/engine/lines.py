"""One line of ready jobs: who stands where in it, and who is only a ghost.  See engine.queues for what that means."""

from __future__ import annotations

from collections import deque
from typing import Final

from switchgear.model import READY, Function, Job, Line

__all__ = [
    "LEAST_GHOSTS_FOR_SWEEP",
    "RANKS_BETWEEN",
    "first_of",
    "forget_ghosts",
    "is_ahead",
    "leave_ghost",
    "place_of",
]

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
    if ghosts > LEAST_GHOSTS_FOR_SWEEP and ghosts * 2 > line.entries_of(priority):
        sweep(line, priority)


def sweep(line: Line, priority: int) -> None:
    """Rebuild a queue without its ghosts."""
    ahead: set[Job] = set()
    line.queues[priority] = deque([job for job in line.queues[priority] if not lets_go_ghost(job, ahead)])
    rack = line.racks[priority] if isinstance(line, Function) else None
    if rack is not None:
        for shelf in rack.shelves:
            objects = shelf.objects
            for place in sorted(objects):
                job = objects[place]
                if job is not None and lets_go_ghost(job, ahead):
                    objects[place] = None
                    rack.entries -= 1
        rack.tail = deque([job for job in rack.tail if not lets_go_ghost(job, ahead)])
    line.ghosts[priority] = 0


def lets_go_ghost(job: Job, ahead: set[Job]) -> bool:
    """Whether this entry of a job is a ghost, which is swept; in the order of entries."""
    if not job.ghosts:
        return False
    if job not in ahead and is_ahead(job):
        ahead.add(job)  # the entries of it that follow are its ghosts
        return False
    job.ghosts -= 1
    return True


def forget_ghosts(job: Job) -> None:
    """The queue in which the job has ghosts is no more."""
    if job.ghosts:  # or it would be given details that say nothing
        job.ghosts = 0


def is_ahead(job: Job) -> bool:
    """Whether the job stands in its queue before all its ghosts there."""
    return job.rank < 0 and job.state is READY


def place_of(job: Job) -> int:
    """Where a job stands among those that wait for the same."""
    return job.rank or job.id * RANKS_BETWEEN
