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

The middle of a very long queue is put away (`engine.shelves`); what is called a queue here is then its head.

A function whose keys are told apart has such queues for each key (`engine.gates`), and all this is true of each.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import chain

from switchgear.engine.core import EngineSettings, Observer
from switchgear.engine.gates import Gates
from switchgear.engine.lines import LEAST_GHOSTS_FOR_SWEEP, RANKS_BETWEEN, first_of, is_ahead, leave_ghost, place_of
from switchgear.engine.shelves import entries_on
from switchgear.model import BEST_FIRST, HIGH, LOW, NORMAL, READY, URGENT, Function, Gate, Job

__all__ = ["LEAST_GHOSTS_FOR_SWEEP", "RANKS_BETWEEN", "Queues", "place_of"]


class Ranks:
    """The ranks that were given out last."""

    __slots__ = ("first", "last")

    def __init__(self) -> None:
        self.first = 0  # to a job that went ahead
        self.last = 0  # to a job that went to the end


class Queues(Gates):
    """The part of the engine in which ready jobs stand in line."""

    def __init__(self, settings: EngineSettings | None = None, observer: Observer | None = None) -> None:
        super().__init__(settings, observer)
        self._ranks = Ranks()

    @abstractmethod
    def _push(self, function: Function) -> None:
        """A job is ready, and somebody has granted credit for it."""

    @abstractmethod
    def _wake(self, function: Function) -> None:
        """A job is ready, and somebody sleeps who can do it."""

    @abstractmethod
    def _offer_one(self, function: Function) -> None:
        """A job is ready, or may be handed out that was held up."""

    # --- standing in line ---

    def _enqueue(self, job: Job) -> None:
        """A job has become ready, and all others of its queue have a lower place."""
        function = job.function
        if function.gate is not None:
            self._enqueue_at_gate(function.gate, job, ahead=False)
            return
        if function.has_racks:
            self._append(function, job)
        else:
            function.queues[job.priority].append(job)
        function.ready += 1
        if function.pushers:
            self._push(function)
        elif function.sleepers:
            self._wake(function)

    def _append(self, function: Function, job: Job) -> None:
        """Stand at the end of a queue that may have a rack."""
        rack = function.racks[job.priority]
        (function.queues[job.priority] if rack is None else rack.tail).append(job)

    def _enqueue_last(self, job: Job) -> None:
        """A job goes to the end, behind those that were submitted after it."""
        self._rank_last(job)
        self._enqueue(job)

    def _enqueue_first(self, job: Job) -> None:
        """A job goes ahead of all others."""
        job.special = True
        self._ranks.first -= 1
        job.rank = self._ranks.first
        function = job.function
        if function.gate is not None:
            self._enqueue_at_gate(function.gate, job, ahead=True)
            return
        function.queues[job.priority].appendleft(job)
        function.ready += 1
        if function.pushers:
            self._push(function)
        elif function.sleepers:
            self._wake(function)

    def _enqueue_at_gate(self, gate: Gate, job: Job, *, ahead: bool) -> None:
        function = job.function
        function.ready += 1
        if gate.lanes is not None:
            lane = self.lane_of(function, gate.lanes, job.key)
            self._join_lane(gate, lane, job, ahead=ahead)
            is_worth_a_call = lane.is_open
        else:
            if ahead:
                function.queues[job.priority].appendleft(job)
            else:
                self._append(function, job)
            is_worth_a_call = self._room(function) == function.ready  # otherwise enough were called for those before it
        if is_worth_a_call or function.pushers:
            self._offer_one(function)

    def _enqueue_again(self, job: Job) -> None:
        """A job that has waited, or was begun in vain, has its turn."""
        if job.function.released_first:
            self._enqueue_first(job)
        else:
            self._enqueue_last(job)

    def _rank_last(self, job: Job) -> None:
        """Among jobs that wait for the same, be it a worker, a time or a job, this one is now the last."""
        job.special = True
        job.rank = self._ranks.last = max(self._ranks.last, (self.next_job_id - 1) * RANKS_BETWEEN) + 1

    def _remember_ranks(self, jobs: list[Job]) -> None:
        """After a restart: whoever goes ahead, or to the end, passes all these."""
        self._ranks.first = min((job.rank for job in jobs if job.rank < 0), default=0)
        self._ranks.last = max((job.rank for job in jobs if job.rank > 0), default=0)

    # --- leaving ---

    def _pop(self, function: Function) -> Job | None:
        """Take the first job of the best priority off its queue, if there is one that may be handed out."""
        if function.gate is not None:
            return self._pop_at_gate(function.gate, BEST_FIRST)
        queues = function.queues
        # `_pop_first` for each of BEST_FIRST, written out, because every job passes here.
        while queue := queues[URGENT] or queues[HIGH] or queues[NORMAL] or queues[LOW]:
            job = queue.popleft()
            if not queue and function.has_racks:
                self._refill(function, job.priority)
            if not job.special or not job.ghosts or is_ahead(job):
                function.ready -= 1
                return job
            job.ghosts -= 1
            function.ghosts[job.priority] -= 1
        return None

    def _pop_of(self, function: Function, priority: int) -> Job | None:
        """Take the first job of this priority off its queue, if it may be handed out."""
        if function.gate is not None:
            return self._pop_at_gate(function.gate, (priority,))
        return self._pop_first(function, priority)

    def _pop_at_gate(self, gate: Gate, priorities: tuple[int, ...]) -> Job | None:
        function = gate.function
        if not self._is_open(function):
            return None
        if gate.lanes is not None:
            job = self._pop_from_lanes(gate, priorities)
            function.ready -= job is not None
            return job
        for priority in priorities:
            job = self._pop_first(function, priority)
            if job is not None:
                return job
        return None

    def _pop_first(self, function: Function, priority: int) -> Job | None:
        job = self._first_of(function, priority)
        if job is not None:
            function.queues[priority].popleft()
            function.ready -= 1
            if function.has_racks:
                self._refill(function, priority)
        return job

    def _first_of(self, function: Function, priority: int) -> Job | None:
        """The job at the head of this queue, when the ghosts before it are gone."""
        job = first_of(function, priority)
        while job is None and function.racks[priority] is not None:
            self._refill(function, priority)
            job = first_of(function, priority)
        return job

    def _first(self, function: Function) -> Job | None:
        """The job that `_pop` would give."""
        gate = function.gate
        if gate is not None:
            if not self._is_open(function):
                return None
            if gate.lanes is not None:
                return self._first_in_lanes(gate, BEST_FIRST)
        for priority in BEST_FIRST:
            job = self._first_of(function, priority)
            if job is not None:
                return job
        return None

    def ready_jobs(self, function: Function) -> Iterator[Job]:
        """Each ready job of the function, about in the order of its queues; of those on shelves a copy.

        The engine must not be called meanwhile.
        """
        seen: set[Job] = set()
        for line in function.lines():
            for priority in BEST_FIRST:
                if line is function:
                    self._first_of(function, priority)  # whoever cancels one after the other passes no ghosts
                for job in chain(line.queues[priority], entries_on(function.racks[priority])):
                    if job.state is READY and job not in seen:
                        if job.ghosts:
                            seen.add(job)
                        yield job

    def _dequeue(self, job: Job) -> None:
        """A ready job leaves its queue from wherever it is."""
        function = job.function
        function.ready -= 1
        gate = function.gate
        if gate is None or gate.lanes is None:
            leave_ghost(function, job)
            if function.has_racks:
                self._refill(function, job.priority)  # if it was swept
            return
        lane = gate.lanes[job.key]
        leave_ghost(lane, job)
        self._left_lane(gate, lane, job.priority)
        if not lane.ready:
            self._review(gate, lane)
