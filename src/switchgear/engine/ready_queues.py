"""`ReadyQueues`: which job of a function comes next, and how jobs enter and leave.

Each function has one queue per priority. The jobs of a queue are sorted by their places (`model.job.place_of`), and
the cost of entering and of leaving, even from the middle, does not grow with the queue (`engine.queue_entries`).

Order. A queue is first in, first out, and a job that returns goes to its end. In a function with `released_first`, a
job that waited for predecessors or for its run-at time goes to the front when it becomes ready, and so does a job whose
worker was lost or took too long; the last to go to the front is assigned first. A graph is then processed depth first.
A job that was released by its worker or retried goes to the end there, too.

A job whose place is not that of its submission has a `rank`: negative if it went to the front; if it went to the end,
or began to wait again, a number between those of two submissions. The rank is stored with the job, and operations on
several jobs process them in the order of their places, so that a restart restores the same order.

Payloads. A payload may be in the store only. A job without its payload is not taken out: it stays first, no job behind
it is assigned, and the owner is told (`EngineState.wanted_payloads`). `Function.unloaded` refers to that job, so that
workers are not woken for it; it is only a hint, which `awaits_payload` verifies.

A function with limits for each key has such queues for each key (`engine.limiters`), and all of this applies to each of
them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from switchgear.engine.limiters import Limiters
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.queue_entries import QueueEntries
from switchgear.engine.requirements import groups_for
from switchgear.engine.state import EngineState
from switchgear.model import (
    BEST_FIRST,
    HIGH,
    LOW,
    NO_JOBS,
    NORMAL,
    NOT_SEGMENTED,
    URGENT,
    Function,
    Job,
    KeyQueue,
    Limiter,
    QueueGroup,
    ReadyQueue,
    Worker,
)
from switchgear.model.job import RANKS_BETWEEN

__all__ = ["ReadyQueues"]


class ReadyQueues:
    """Adds ready jobs to their queues, and takes them out in the order of assignment."""

    def __init__(self, state: EngineState, packed: PackedQueues, limiters: Limiters) -> None:
        self._state = state
        self._packed = packed
        self._limiters = limiters
        self.entries = QueueEntries(packed)
        self._first_rank = 0  # the rank of the last job that went to the front
        self._last_rank = 0  # the rank of the last job that went to the end

    # --- places ---

    def rank_last(self, job: Job) -> None:
        """Give this job the last rank of those that wait for the same worker, time or job."""
        job.has_details = True
        job.rank = self._last_rank = max(self._last_rank, (self._state.next_job_id - 1) * RANKS_BETWEEN) + 1

    def rank_first(self, job: Job) -> None:
        """Give this job the first rank."""
        job.has_details = True
        self._first_rank -= 1
        job.rank = self._first_rank

    def remember_ranks(self, jobs: list[Job]) -> None:
        """After these jobs were restored: jobs that go to the front or the end must pass all of them."""
        for job in jobs:
            self._first_rank = min(self._first_rank, job.rank)
            self._last_rank = max(self._last_rank, job.rank)

    # --- entering ---

    def append(self, job: Job) -> None:
        """Append a ready job of a function without limits to its queue; its place must be the highest."""
        function = job.function
        function.ready += 1
        if function.is_segmented:
            self.entries.append(function, job)
            return
        queue = function.queues[job.priority]
        queue.append(job)
        if function.ready >= self._packed.pack_from and len(queue) >= self._packed.pack_from:
            self.entries.divide(function, job.priority)

    def prepend(self, job: Job) -> None:
        """Insert a ready job of a function without limits at the front of its queue; its place must be the lowest."""
        job.function.ready += 1
        self.entries.prepend(job.function, job)

    def join_limited(self, limiter: Limiter, job: Job, *, ahead: bool) -> bool:
        """Add a ready job of a function with limits to the end or the front of its queue.

        Returns whether to tell workers: False if enough were told of earlier jobs that limits hold back.
        """
        function = limiter.function
        self._limiters.end_draining(limiter)
        if function.limiter is None:
            if ahead:
                self.prepend(job)
            else:
                self.append(job)
            return True
        function.ready += 1
        group = _group_of(limiter, job)
        if group.key_queues is None or (group.is_draining and not ahead):
            if ahead:
                self.entries.prepend(group.queue, job)
            else:
                self.entries.append(group.queue, job)
            room = self._limiters.room(function)
            # Perhaps no worker fits the jobs before it, or their payloads are not in memory, so that nobody was told.
            were_others_told = not limiter.requiring and function.unloaded is None
            return room == function.ready or (room > 0 and not were_others_told)
        if limiter.is_counting() and ahead:
            self.entries.prepend(group.queue, job)
            return False
        if limiter.is_counting() or (not ahead and group.queue.queues[job.priority]):
            self.entries.append(group.queue, job)  # behind those that `_distribute` has not moved yet
            return False
        key_queue = self._limiters.key_queue_of(limiter, group, job.key)
        self.join_key_queue(limiter, key_queue, job, ahead=ahead)
        return key_queue.owner.is_open

    def join_key_queue(self, limiter: Limiter, key_queue: KeyQueue, job: Job, *, ahead: bool) -> None:
        priority = job.priority
        if key_queue.queues[priority] is NO_JOBS:
            key_queue.queues[priority] = deque((job,))
        elif ahead:
            self.entries.prepend(key_queue, job)
        else:
            self.entries.append(key_queue, job)
        self._limiters.note_joined(limiter, key_queue, priority)

    # --- leaving in order ---

    def pop(self, function: Function, worker: Worker) -> Job | None:
        """Remove and return the first job of the best priority that this worker may get, if any."""
        if function.limiter is not None:
            return self._pop_limited(function.limiter, BEST_FIRST, worker)
        queues = function.queues
        # `_pop_first` for each of BEST_FIRST, inlined, because every job passes here.
        queue = queues[URGENT] or queues[HIGH] or queues[NORMAL] or queues[LOW]
        if not queue:
            return None
        job = queue.popleft()
        if job.payload is None:
            queue.appendleft(job)
            self.want_payload(function, job)
            return None
        if not queue and function.is_segmented:
            self.entries.refill(function, job.priority)
        function.ready -= 1
        return job

    def pop_of(self, function: Function, priority: int, worker: Worker) -> Job | None:
        """Remove and return the first job of this priority, if this worker may get it."""
        if function.limiter is not None:
            return self._pop_limited(function.limiter, (priority,), worker)
        return self._pop_first(function, function, priority)

    def _pop_limited(self, limiter: Limiter, priorities: tuple[int, ...], worker: Worker) -> Job | None:
        if not self._limiters.is_open(limiter.function):
            return None
        groups = groups_for(limiter, worker)
        for priority in priorities:
            group = self._limiters.next_group(limiter, priority, groups)
            if group is not None:
                return self.pop_from(limiter, group, priority)
        return None

    def pop_from(self, limiter: Limiter, group: QueueGroup, priority: int) -> Job | None:
        """Remove and return the first job of this priority of a group; the function must be open."""
        function = limiter.function
        if group.serves_own_queue(priority):
            return self._pop_first(function, group.queue, priority)
        key_queue = self._limiters.next_key_queue(group, priority)
        if key_queue is None:
            return None
        queue = key_queue.queues[priority]
        if queue[0].payload is None:
            self.want_payload(function, queue[0])
            return None
        self._limiters.note_served(limiter, key_queue, priority)
        job = queue.popleft()
        self.left_key_queue(limiter, key_queue, priority)
        function.ready -= 1
        return job

    def _pop_first(self, function: Function, ready_queue: ReadyQueue, priority: int) -> Job | None:
        queue = ready_queue.queues[priority]
        if not queue:
            return None
        if queue[0].payload is None:
            self.want_payload(function, queue[0])
            return None
        job = queue.popleft()
        if not queue and ready_queue.is_segmented:
            self.entries.refill(ready_queue, priority)
        function.ready -= 1
        return job

    def left_key_queue(self, limiter: Limiter, key_queue: KeyQueue, priority: int) -> None:
        if not key_queue.queues[priority]:
            if key_queue.is_segmented:
                self.entries.refill(key_queue, priority)
            if not key_queue.queues[priority]:
                key_queue.queues[priority] = NO_JOBS
        self._limiters.note_left(limiter, key_queue, priority)

    def first(self, function: Function, worker: Worker | None = None) -> Job | None:
        """The job that `pop` would take for this worker; without a worker, for one that fits all jobs."""
        limiter = function.limiter
        if limiter is None:
            queues = function.queues
            queue = queues[URGENT] or queues[HIGH] or queues[NORMAL] or queues[LOW]
            return queue[0] if queue else None
        if self._limiters.is_open(function):
            groups = limiter.groups if worker is None else groups_for(limiter, worker)
            for priority in BEST_FIRST:
                job = self.first_of_groups(limiter, priority, groups)
                if job is not None:
                    return job
        return None

    def first_of_groups(self, limiter: Limiter, priority: int, groups: list[QueueGroup]) -> Job | None:
        """The job of this priority whose turn it is among those of some groups."""
        group = self._limiters.next_group(limiter, priority, groups)
        return None if group is None else self._head(limiter, group, priority)

    def heads(self, function: Function) -> list[Job]:
        """The first job of each group, in the order in which a worker that fits all would get them."""
        limiter = function.limiter
        if limiter is None:
            job = self.first(function)
            return [] if job is None else [job]
        if not self._limiters.is_open(function):
            return []
        heads: list[Job] = []
        groups = limiter.groups
        for priority in BEST_FIRST:
            of_priority: list[tuple[int, int, Job]] = []
            others: list[QueueGroup] = []
            for group in groups:
                turn = self._limiters.turn_of(limiter, group, priority)
                if turn is None:
                    others.append(group)
                else:
                    job = self._head(limiter, group, priority)
                    of_priority.append((turn, job.id, job))
            of_priority.sort()
            heads += [job for _, _, job in of_priority]
            groups = others
        return heads

    def _head(self, limiter: Limiter, group: QueueGroup, priority: int) -> Job:
        if group.serves_own_queue(priority):
            return group.queue.queues[priority][0]
        key_queue = self._limiters.next_key_queue(group, priority)
        assert key_queue is not None
        return key_queue.queues[priority][0]

    def want_payload(self, function: Function, job: Job) -> None:
        """Note that this job is next, and needs its payload before it can be assigned."""
        function.unloaded = job
        self._state.wanted_payloads.append(job)

    def awaits_payload(self, function: Function, worker: Worker | None = None) -> bool:
        """Whether the next job cannot be assigned yet, because its payload is not in memory.

        For a worker, this is the next job for it; otherwise, if jobs require something, the next job of each group.
        """
        if function.unloaded is None:
            return False
        limiter = function.limiter
        if limiter is not None and limiter.requiring and worker is None:
            return self._all_await_payloads(function)
        job = self.first(function, worker)
        if job is None:  # there is no job, or limits hold it back
            return False
        if job.payload is not None:
            if function.by_priority is None and (limiter is None or not limiter.requiring):
                function.unloaded = None  # otherwise the job may still be next for some workers
            return False
        if job is not function.unloaded:
            self.want_payload(function, job)
        return True

    def _all_await_payloads(self, function: Function) -> bool:
        """Whether the next job of each group awaits its payload."""
        heads = self.heads(function)
        for job in heads:
            if job.payload is not None:
                return False
        for job in heads:
            self.want_payload(function, job)
        return bool(heads)

    def awaits_payload_of(self, group: QueueGroup) -> bool:
        """Whether the next job of a group cannot be assigned yet, because its payload is not in memory."""
        limiter = group.function.limiter
        assert limiter is not None
        for priority in BEST_FIRST:
            if self._limiters.next_group(limiter, priority, [group]) is not None:
                job = self._head(limiter, group, priority)
                if job.payload is None:
                    self.want_payload(group.function, job)
                    return True
                return False
        return False

    # --- leaving from anywhere ---

    def remove(self, job: Job) -> None:
        """Take a ready job out of its queue, wherever it is."""
        self._take_out(job)
        if job.has_details and job.rank:
            job.rank = 0

    def pop_job(self, job: Job) -> None:
        """Take this job out to be handed out, whichever others come before it.  Limits and its payload allow that."""
        limiter = job.function.limiter
        key_queues = None if limiter is None else _group_of(limiter, job).key_queues
        if limiter is not None and key_queues is not None:
            key_queue = key_queues.get(job.key)  # None if the job has not been moved to the queue of its key yet
            if key_queue is not None:
                self._limiters.note_served(limiter, key_queue, job.priority)
        self._take_out(job)

    def is_key_closed(self, job: Job) -> bool:
        """Whether the limits of its key let no other job run."""
        limiter = job.function.limiter
        if limiter is None or limiter.key_queues is None:
            return False
        key_queue = limiter.key_queues.get(job.key)
        return key_queue is not None and not key_queue.is_open

    def _take_out(self, job: Job) -> None:
        function = job.function
        function.ready -= 1
        if function.unloaded is job:
            self._state.wanted_payloads.append(job)  # no longer wanted: the owner offers the job behind it
        limiter = function.limiter
        if limiter is None:
            self.entries.remove(function, job)
        else:
            group = _group_of(limiter, job)
            if group.key_queues is None:
                self.entries.remove(group.queue, job)
            elif not self.entries.try_remove(group.queue, job):
                self._remove_from_key_queue(limiter, group, job)
                self._limiters.end_draining(limiter)

    def _remove_from_key_queue(self, limiter: Limiter, group: QueueGroup, job: Job) -> None:
        assert group.key_queues is not None
        priority = job.priority
        key_queue = group.key_queues.get(job.key)
        if key_queue is None or not self.entries.try_remove(key_queue, job):
            ready = group.ready_of(priority)
            if group.queue.queues[priority]:
                self.entries.search_and_remove(group.queue, job)
            if key_queue is None or group.ready_of(priority) < ready:
                return  # it had not been moved to the queue of its key
            self.entries.search_and_remove(key_queue, job)
        self.left_key_queue(limiter, key_queue, priority)
        if not key_queue.owner.ready:
            self._limiters.review(limiter, key_queue.owner)

    # --- all jobs ---

    def ready_jobs(self, function: Function) -> Iterator[Job]:
        """Each ready job of the function, about in the order of its queues; of packed ones a copy.

        The engine must not be called meanwhile.
        """
        for ready_queue in function.ready_queues():
            for priority in BEST_FIRST:
                yield from ready_queue.queues[priority]
                rest = ready_queue.segmented[priority]
                if rest is not None:
                    yield from rest.jobs_in_order()

    def next_ids(self, function: Function, priority: int, most: int) -> list[int]:
        """The ids of up to `most` jobs of a priority that come next.

        Where jobs have keys or require tags, those of one queue after those of another: which comes next depends on
        the worker.
        """
        ids: list[int] = []
        for ready_queue in function.ready_queues():
            for job in ready_queue.queues[priority]:
                if len(ids) >= most:
                    return ids
                ids.append(job.id)
            rest = ready_queue.segmented[priority]
            if rest is not None:
                for job in rest.jobs_in_order():
                    if len(ids) >= most:
                        return ids
                    ids.append(job.id)
        return ids

    def _take_all(self, function: Function) -> list[Job]:
        """Remove and return the jobs of all queues of a function."""
        jobs: list[Job] = []
        for ready_queue in function.ready_queues():
            for priority in BEST_FIRST:
                jobs.extend(self.entries.unpacked(ready_queue, priority))
                ready_queue.queues[priority] = deque()
                if ready_queue.segmented[priority] is not None:
                    self.entries.end_segments(ready_queue, priority)
        return jobs

    def discard(self, function: Function) -> None:
        """Remove all jobs and the limiter of a function that is forgotten."""
        self._take_all(function)
        self._limiters.forget(function)

    def pack(self, functions: Iterable[Function]) -> int:
        """Pack plain jobs of these functions, whose jobs were stored.

        Returns how many bytes of counted payloads were freed.
        """
        freed_bytes = 0
        for function in functions:
            if function.is_segmented and self._packed.can_pack(function):
                freed_bytes += self._packed.pack(function)
        return freed_bytes

    def clear(self) -> None:
        """Forget all jobs."""
        for function in self._state.functions.values():
            function.queues = [deque() for _ in BEST_FIRST]
            function.segmented = NOT_SEGMENTED
            function.is_segmented = False
            function.packed_keys = []
            function.limiter = None
        self._packed.clear()


def _group_of(limiter: Limiter, job: Job) -> QueueGroup:
    """The group of the job when it is ready."""
    return limiter.requiring[job.requires] if job.has_details and job.requires else limiter
