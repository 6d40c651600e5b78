"""`QueueEntries`: how jobs enter and leave one ready queue, whether it is short or divided into segments.

A long queue has a head, segments of bounded size, and a tail (`model.segments`). Its jobs are sorted by their places,
so a job that leaves from the middle is found by bisection, and only its segment changes.
"""

from __future__ import annotations

from collections import deque

from switchgear.engine.packed_queues import PackedQueues
from switchgear.model import HIGH, LOW, NORMAL, NOT_SEGMENTED, URGENT, Function, Job, ReadyQueue, SegmentedQueue
from switchgear.model.segments import ObjectSegment, remove_from

__all__ = ["QueueEntries"]


class QueueEntries:
    """Adds jobs to ready queues and removes them; whose queue it is, and which job comes next, is decided elsewhere."""

    def __init__(self, packed: PackedQueues) -> None:
        self._packed = packed

    def append(self, ready_queue: ReadyQueue, job: Job) -> None:
        """Add a job behind all others; its place must be the highest."""
        priority = job.priority
        rest = ready_queue.segmented[priority]
        if rest is not None:
            rest.append(job, self._packed.segment_jobs)
            return
        queue = ready_queue.queues[priority]
        queue.append(job)
        if len(queue) >= self._packed.pack_from:
            self.divide(ready_queue, priority)

    def prepend(self, ready_queue: ReadyQueue, job: Job) -> None:
        """Add a job before all others; its place must be the lowest."""
        priority = job.priority
        queue = ready_queue.queues[priority]
        queue.appendleft(job)
        if len(queue) >= self._packed.pack_from:
            self.divide(ready_queue, priority)

    def divide(self, ready_queue: ReadyQueue, priority: int) -> None:
        """Divide all but the head of a long queue into segments."""
        queue = ready_queue.queues[priority]
        size = self._packed.segment_jobs
        rest = ready_queue.segmented[priority]
        if rest is None:
            jobs: deque[Job] = deque()
            while len(queue) > self._packed.head_jobs:
                jobs.appendleft(queue.pop())
            rest = self.begin_segments(ready_queue, priority)
            for job in jobs:
                rest.append(job, size)
            return
        while len(queue) > self._packed.head_jobs + size:
            jobs = deque()
            while len(jobs) < size:
                jobs.appendleft(queue.pop())
            rest.appendleft(ObjectSegment(jobs))

    def begin_segments(self, ready_queue: ReadyQueue, priority: int) -> SegmentedQueue:
        """Give this queue a list of segments, empty at first."""
        if ready_queue.segmented is NOT_SEGMENTED:
            ready_queue.segmented = [None, None, None, None]
        rest = ready_queue.segmented[priority] = SegmentedQueue()
        ready_queue.is_segmented = True
        return rest

    def refill(self, ready_queue: ReadyQueue, priority: int) -> None:
        """Replace the exhausted head of this queue by the next segment, or by the tail."""
        rest = ready_queue.segmented[priority]
        while rest is not None and not ready_queue.queues[priority]:
            if rest.segments:
                ready_queue.queues[priority] = self._packed.unpack(rest.popleft())
            else:
                ready_queue.queues[priority] = rest.tail
                self.end_segments(ready_queue, priority)
                rest = None

    def end_segments(self, ready_queue: ReadyQueue, priority: int) -> None:
        """Remove the empty list of segments of this queue."""
        segmented = ready_queue.segmented
        segmented[priority] = None
        if segmented[URGENT] is segmented[HIGH] is segmented[NORMAL] is segmented[LOW] is None:
            ready_queue.is_segmented = False
            ready_queue.segmented = NOT_SEGMENTED
            if isinstance(ready_queue, Function):
                self._packed.forget(ready_queue)

    def remove(self, ready_queue: ReadyQueue, job: Job) -> None:
        """Remove a job, wherever it is in this queue."""
        if not self.try_remove(ready_queue, job):
            self.search_and_remove(ready_queue, job)

    def try_remove(self, ready_queue: ReadyQueue, job: Job) -> bool:
        """Remove a job from where its place says; returns whether it was there."""
        priority = job.priority
        queue = ready_queue.queues[priority]
        rest = ready_queue.segmented[priority]
        if (rest is None or not rest.remove(job)) and not remove_from(queue, job):
            return False
        if not queue and ready_queue.is_segmented:
            self.refill(ready_queue, priority)
        return True

    def search_and_remove(self, ready_queue: ReadyQueue, job: Job) -> None:
        """Remove a job that is not where its place says.

        This happens if more than `RANKS_BETWEEN` jobs went to the end between two submissions.
        """
        priority = job.priority
        rest = ready_queue.segmented[priority]
        jobs = [other for other in self.unpacked(ready_queue, priority) if other is not job]
        if rest is not None:
            self.end_segments(ready_queue, priority)
        ready_queue.queues[priority] = deque(jobs)

    def unpacked(self, ready_queue: ReadyQueue, priority: int) -> list[Job]:
        """All jobs of a queue, in order; no segment of it is packed afterwards."""
        jobs = list(ready_queue.queues[priority])
        rest = ready_queue.segmented[priority]
        if rest is not None:
            while rest.segments:
                jobs.extend(self._packed.unpack(rest.popleft()))
            jobs.extend(rest.tail)
        return jobs
