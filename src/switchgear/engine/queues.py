"""Ready queues: which job of a function comes next.

Each function has one deque per priority.  A job that leaves it from its middle (cancelled, expired, held back) leaves
its entry behind as a ghost, counted on the job and on the queue, and the entry is skipped when it surfaces.  So leaving
costs nothing that grows with the queue.  A queue that is mostly ghosts is swept.

Order.  A queue is first in, first out, and a job that comes back goes to its end.  In a function that is
`released_first`, a job that waited, be it for others or for its time, goes ahead of all when it becomes ready, and so
does one whose worker was lost or took too long; the last to go ahead is the first to be handed out.  A graph is then
worked through in depth, not in breadth.  A job that was handed back or retried goes to the end there, too.

A job that has another place than its submission gave it has a `rank`: below zero if it went ahead, and if it went to
the end, or began to wait once more, a number between those of two submissions.  The rank is kept with the job, and
whatever happens to several jobs at once happens in the order of their places, so that a restart finds the same order.
It also tells a job that is back in its queue from its ghosts there: one that went ahead stands before them all, any
other behind them all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import Final

from switchgear.engine.core import Core, EngineSettings, Observer
from switchgear.model import BEST_FIRST, READY, Function, Job

__all__ = ["Queues", "place_of"]

# So many jobs may go to the end between two submissions without a restart confusing their order with those of jobs
# submitted later.
RANKS_BETWEEN: Final = 1 << 20

# Sweeping a short queue is not worth the trouble.
LEAST_GHOSTS_FOR_SWEEP: Final = 256


class Queues(Core):
    """The part of the engine in which ready jobs stand in line."""

    def __init__(self, settings: EngineSettings | None = None, observer: Observer | None = None) -> None:
        super().__init__(settings, observer)
        self._first_rank = 0  # of the job that went ahead last
        self._last_rank = 0  # of the job that went to the end last

    @abstractmethod
    def _push(self, function: Function) -> None:
        """A job is ready, and somebody has granted credit for it."""

    @abstractmethod
    def _wake(self, function: Function) -> None:
        """A job is ready, and somebody sleeps who can do it."""

    # --- standing in line ---

    def _enqueue(self, job: Job) -> None:
        """A job has become ready, and all others of its queue have a lower place."""
        function = job.function
        function.queues[job.priority].append(job)
        function.ready += 1
        if function.pushers:
            self._push(function)
        elif function.sleepers:
            self._wake(function)

    def _enqueue_last(self, job: Job) -> None:
        """A job goes to the end, behind those that were submitted after it."""
        self._rank_last(job)
        self._enqueue(job)

    def _enqueue_first(self, job: Job) -> None:
        """A job goes ahead of all others."""
        job.special = True
        job.rank = self._first_rank = self._first_rank - 1
        function = job.function
        function.queues[job.priority].appendleft(job)
        function.ready += 1
        if function.pushers:
            self._push(function)
        elif function.sleepers:
            self._wake(function)

    def _enqueue_again(self, job: Job) -> None:
        """A job that has waited, or was begun in vain, has its turn."""
        if job.function.released_first:
            self._enqueue_first(job)
        else:
            self._enqueue_last(job)

    def _rank_last(self, job: Job) -> None:
        """Among jobs that wait for the same, be it a worker, a time or a job, this one is now the last."""
        job.special = True
        job.rank = self._last_rank = max(self._last_rank, (self.next_job_id - 1) * RANKS_BETWEEN) + 1

    def _remember_ranks(self, jobs: list[Job]) -> None:
        """After a restart: whoever goes ahead, or to the end, passes all these."""
        self._first_rank = min((job.rank for job in jobs if job.rank < 0), default=0)
        self._last_rank = max((job.rank for job in jobs if job.rank > 0), default=0)

    # --- leaving ---

    def _pop(self, function: Function) -> Job | None:
        """Take the first job of the best priority off its queue."""
        queues = function.queues
        for priority in BEST_FIRST:
            queue = queues[priority]
            while queue:  # `_first_of`, written out, because every job passes here
                job = queue.popleft()
                if not job.special or not job.ghosts or is_ahead(job):
                    function.ready -= 1
                    return job
                job.ghosts -= 1
                function.ghosts[priority] -= 1
        return None

    def _pop_of(self, function: Function, priority: int) -> Job | None:
        """Take the first job of this priority off its queue."""
        job = self._first_of(function, priority)
        if job is not None:
            function.queues[priority].popleft()
            function.ready -= 1
        return job

    def _first(self, function: Function) -> Job | None:
        """The job that `_pop` would give."""
        for priority in BEST_FIRST:
            job = self._first_of(function, priority)
            if job is not None:
                return job
        return None

    def _first_of(self, function: Function, priority: int) -> Job | None:
        """The job at the head of this queue, when the ghosts before it are gone."""
        queue = function.queues[priority]
        while queue:
            job = queue[0]
            if not job.ghosts or is_ahead(job):
                return job
            queue.popleft()
            job.ghosts -= 1
            function.ghosts[priority] -= 1
        return None

    def _dequeue(self, job: Job) -> None:
        """A ready job leaves its queue from wherever it is."""
        function = job.function
        priority = job.priority
        function.ready -= 1
        job.special = True
        job.ghosts += 1
        if job.rank:
            job.rank = 0
        function.ghosts[priority] += 1
        queue = function.queues[priority]
        if function.ghosts[priority] > LEAST_GHOSTS_FOR_SWEEP and function.ghosts[priority] * 2 > len(queue):
            self._sweep(function, priority)

    def _sweep(self, function: Function, priority: int) -> None:
        """Rebuild a queue without its ghosts."""
        kept: deque[Job] = deque()
        ahead: set[Job] = set()
        for job in function.queues[priority]:
            if job.ghosts and (job in ahead or not is_ahead(job)):
                job.ghosts -= 1
                continue
            if job.ghosts:
                ahead.add(job)  # the entries of it that follow are its ghosts
            kept.append(job)
        function.queues[priority] = kept
        function.ghosts[priority] = 0


def is_ahead(job: Job) -> bool:
    """Whether the job stands in its queue before all its ghosts there."""
    return job.rank < 0 and job.state is READY


def place_of(job: Job) -> int:
    """Where a job stands among those that wait for the same."""
    return job.rank or job.id * RANKS_BETWEEN
