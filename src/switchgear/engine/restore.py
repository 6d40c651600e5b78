"""`Restore`: puts the jobs, functions and schedules of a store back into the engine after a restart.

Most of a long queue is plain jobs (`engine.packed_queues`), of which there may be millions. They arrive one by one and
are packed without becoming objects, apart from those at the head of their queue.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Sequence
from typing import Final, TypeAlias

from switchgear.engine.adopted_runs import AdoptedRuns
from switchgear.engine.attempts import Attempts
from switchgear.engine.deadlines import DeadlineKind, Deadlines
from switchgear.engine.dependencies import ERROR, Dependencies
from switchgear.engine.dispatcher import Dispatcher
from switchgear.engine.foreign_predecessors import ForeignPredecessors
from switchgear.engine.handover import Handover
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.engine.state import EngineState
from switchgear.engine.transitions import Transitions
from switchgear.engine.unique_keys import UniqueKeys
from switchgear.model import (
    BEST_FIRST,
    KEPT,
    RUNNING,
    SCHEDULED,
    WAITING,
    Cause,
    Function,
    Job,
    PackedSegment,
    PlainJob,
    SegmentedQueue,
    Worker,
)
from switchgear.model.job import RANKS_BETWEEN, place_of
from switchgear.model.segments import FIRST_REVISION

__all__ = ["Restore", "Restoring"]

Restoring: TypeAlias = Generator[bool, Sequence[PlainJob] | None, None]
"""Yields True to be sent the next portion of plain jobs, or None if there are no more. Yields False after a part of its
work, so that the owner can do something else."""

# So many jobs are restored between two steps, in some milliseconds.
JOBS_PER_STEP: Final = 256

# By function and priority, at most as many as a segment holds.
Arrived: TypeAlias = dict[Function, list[list[PlainJob]]]


class Restore:
    """Enters the jobs of a store into an engine, which may have jobs of other functions."""

    def __init__(
        self,
        state: EngineState,
        deadlines: Deadlines,
        packed: PackedQueues,
        queues: ReadyQueues,
        keys: UniqueKeys,
        attempts: Attempts,
        dispatcher: Dispatcher,
        dependencies: Dependencies,
        transitions: Transitions,
        handover: Handover,
        foreign: ForeignPredecessors,
        adopted_runs: AdoptedRuns,
    ) -> None:
        self.adopted_runs = adopted_runs
        self.handover = handover  # the way back; `Engine` has as many attributes as it may have
        self.foreign = foreign
        self._state = state
        self._deadlines = deadlines
        self._packed = packed
        self._queues = queues
        self._keys = keys
        self._attempts = attempts
        self._keeper: Worker | None = None  # of the runs that may be claimed
        self._dispatcher = dispatcher
        self._dependencies = dependencies
        self._transitions = transitions

    def restore(self, jobs: list[Job], next_job_id: int, held: Sequence[Job], claimable_us: int = 0) -> Restoring:
        """Restore these jobs, and register those that ended without success. See `Engine.restore_in_portions`."""
        state = self._state
        if claimable_us and any(job.state is RUNNING for job in jobs):
            self._keeper = self.adopted_runs.begin()
        state.next_job_id = max(state.next_job_id, next_job_id)
        state.batch_ids = state.next_job_id
        for number, job in enumerate(jobs):
            if number % JOBS_PER_STEP == 0:
                yield False
            if 0 < job.unique_until_us <= state.now_us:
                job.unique_until_us = 0
            job.entry_bytes = 0  # not counted yet
            self._transitions.list_again(job)
            if job.unique_until_us:
                self._keys.hold_again(job)
        for number, job in enumerate(sorted(held, key=lambda job: job.id, reverse=True)):
            if number % JOBS_PER_STEP == 0:
                yield False
            job.drop_contents()  # the store has them
            self._keys.hold_again(job)
        self._queues.remember_ranks(jobs)
        waiting = yield from self._enqueue_all(sorted(jobs, key=place_of))
        keeper, self._keeper = self._keeper, None
        unblocked: list[Job] = []
        for number, job in enumerate(waiting):  # now that all possible predecessors are known
            if number % JOBS_PER_STEP == 0:
                yield False
            blockers = self._dependencies.blockers_among(job.predecessors, job.edges)
            if ERROR in job.edges:
                self._dependencies.note_earlier_errors(job)
            if blockers:
                self._dependencies.wait_for(job, blockers)
            else:
                unblocked.append(job)
        self._transitions.unblock(unblocked)
        if keeper is not None:  # a restore may take longer than claims have time
            self.adopted_runs.await_claims(keeper, claimable_us)

    def _enqueue_all(self, jobs: list[Job]) -> Generator[bool, Sequence[PlainJob] | None, list[Job]]:
        """Queue the ready jobs in the order of their places; returns those that wait for others."""
        waiting: list[Job] = []
        arrived: Arrived = {}
        rows = yield True
        for number, job in enumerate(jobs):
            if number % JOBS_PER_STEP == 0:
                yield False
            if job.expires_us:
                self._deadlines.add(job.expires_us, DeadlineKind.EXPIRY, job)
            if job.state is WAITING:
                waiting.append(job)
                continue
            if job.state is SCHEDULED:
                self._transitions.await_time(job)
                continue
            place = place_of(job)
            while rows is not None and rows[0][0] * RANKS_BETWEEN < place:
                count = bisect_left(rows, place, key=_place_of_row)
                self._arrive(rows[:count], arrived)
                rows = rows[count:] or (yield True)
            self._enqueue_arrived(job.function, job.priority, arrived)
            if job.state is RUNNING and self._keeper is not None and self._keeper.alive:
                self.adopted_runs.keep(job, self._keeper)
            elif job.state is RUNNING:
                job.function.running += 1
                self._attempts.detach(job)
                self._transitions.requeue(job, Cause.SERVER_LOST, is_restored=True)
            else:
                self._dispatcher.enqueue(job)
        while rows is not None:
            self._arrive(rows, arrived)
            rows = yield True
        for function in arrived:
            for priority in BEST_FIRST:
                self._enqueue_arrived(function, priority, arrived)
        return waiting

    def _arrive(self, rows: Sequence[PlainJob], arrived: Arrived) -> None:
        """Accept the next plain jobs; all others that have arrived are ahead of them."""
        size = self._packed.segment_jobs
        for row in rows:
            function = row[1]
            priority = row[2]
            if row[5] and row[5] in function.uniques:
                self._keys.give_up(function.uniques[row[5]])
            queues = arrived.get(function)
            if queues is None:
                queues = arrived[function] = [[], [], [], []]
            queue = queues[priority]
            queue.append(row)
            if len(queue) >= size:
                self._enqueue_arrived(function, priority, arrived)

    def _enqueue_arrived(self, function: Function, priority: int, arrived: Arrived) -> None:
        """Queue the plain jobs that have arrived so far."""
        queues = arrived.get(function)
        if queues is None or not queues[priority]:
            return
        rows, queues[priority] = queues[priority], []
        rest = function.segmented[priority]
        if (
            rest is None
            and self._packed.can_pack(function)
            and function.own_ready_of(priority) >= self._packed.head_jobs
        ):
            rest = self._queues.entries.begin_segments(function, priority)
        if rest is not None and not rest.tail and not rest.to_pack and len(rows) >= self._packed.segment_jobs:
            self._pack_rows(function, priority, rest, rows)
            return
        for row in rows:
            job = self._object_of(row)
            function.total += 1
            self._dispatcher.enqueue(job)
        if rest is not None:
            self._packed.pack_segments(function, priority, rest)

    def _pack_rows(self, function: Function, priority: int, rest: SegmentedQueue, rows: list[PlainJob]) -> None:
        """Make a packed segment of these rows."""
        segment = PackedSegment(function, priority)
        uniques = [row[5] for row in rows]
        for index, unique in enumerate(uniques):
            if unique and not self._packed.note_key(unique, segment):
                row = rows[index]
                if unique in uniques[:index]:  # cannot happen with an intact store
                    row = (*row[:5], b"")
                segment.objects[index] = self._object_of(row)
        segment.fill([row[0] for row in rows], [row[4] for row in rows], [row[3] for row in rows], uniques)
        self._packed.add_packed(rest, segment)
        function.total += len(rows)
        function.ready += len(rows)

    def _object_of(self, row: PlainJob) -> Job:
        """The job as an object, entered into the tables."""
        job_id, function, priority, delivery, created_us, unique = row
        job = Job(job_id, function, unique, None, priority, delivery, created_us)
        job.kept = KEPT
        job.revision = FIRST_REVISION
        self._state.jobs.add(job)
        self._keys.take_again(job)
        self._state.count_contents(job)
        return job


def _place_of_row(row: PlainJob) -> int:
    return row[0] * RANKS_BETWEEN
