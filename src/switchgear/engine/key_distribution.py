"""`KeyDistribution`: changes the limits of a function, and moves ready jobs to the queues of their keys, or back."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from switchgear.engine.limiters import Limiters
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.model import BEST_FIRST, Function, Job, KeyQueue, Limiter, QueueGroup
from switchgear.model.job import place_of
from switchgear.model.long_lists import promote_new_objects
from switchgear.model.segments import ObjectSegment
from switchgear.policy import Policy

__all__ = ["KeyDistribution"]

# More key queues than fit into memory.
INDEX_BITS: Final = 40
INDEX_MASK: Final = (1 << INDEX_BITS) - 1
# Jobs whose segments may be new objects at a time: a collection of the youngest objects visits each of them.
MOST_IN_NEW_SEGMENTS: Final = 8192


class KeyDistribution:
    """Lets ready queues follow the limits of their function, in steps, because there may be very many jobs and keys."""

    def __init__(self, limiters: Limiters, queues: ReadyQueues) -> None:
        self._limiters = limiters
        self._queues = queues
        self._entries = queues.entries
        self.most_in_new_segments = MOST_IN_NEW_SEGMENTS

    def use_policy(self, function: Function, policy: Policy) -> Iterator[None]:
        """Change the limits of a function, which apply at once; the steps of the rest of the work are to be done.

        Ready jobs keep their places. If keys are distinguished from now on, the steps move the jobs to the queues of
        their keys; if they were before, they review these queues.
        """
        limiter = function.limiter
        steps: Iterator[None] = iter(())
        if limiter is None or limiter.key_queues is None:
            self._limiters.replace(function, policy)  # the queues are the same
        else:
            steps = self._limiters.change(limiter, policy)
        limiter = function.limiter
        return iter(()) if limiter is None else self._steps_of_change(limiter, limiter.revision, steps)

    def _steps_of_change(self, limiter: Limiter, revision: int, review: Iterator[None]) -> Iterator[None]:
        yield from review
        if limiter.function.limiter is not limiter or limiter.revision != revision:
            return  # the limits were changed again, and the steps of that change follow
        if limiter.is_draining:
            yield from self._gather(limiter)
        elif limiter.key_queues is not None:
            yield from self._limiters.count_running(limiter)
            yield from self._distribute(limiter)

    def _distribute(self, limiter: Limiter) -> Iterator[None]:
        """Move jobs to the queues of their keys, one by one, best priority first and in the order of their places.

        Meanwhile those that were moved may be handed out, and new ones go behind those that were not.
        """
        function = limiter.function
        for group in limiter.groups.copy():
            ready_queue = group.queue
            for priority in BEST_FIRST:
                while (
                    function.limiter is limiter
                    and group.key_queues is not None
                    and not group.is_draining
                    and ready_queue.queues[priority]
                ):
                    job = ready_queue.queues[priority].popleft()
                    if not ready_queue.queues[priority] and ready_queue.is_segmented:
                        self._entries.refill(ready_queue, priority)
                    key_queue = self._limiters.key_queue_of(limiter, group, job.key)
                    self._queues.join_key_queue(limiter, key_queue, job, ahead=False)
                    yield

    def _gather(self, limiter: Limiter) -> Iterator[None]:
        """Move the jobs of key queues to the queue of their group, one by one: keys are not distinguished any more.

        The last job goes first, to the front of that queue, so that the order is right at any time.
        """
        revision = limiter.revision
        for group in limiter.groups.copy():
            for priority in BEST_FIRST:
                while limiter.revision == revision and group.is_draining and len(group.order[priority]):
                    yield from self._gather_priority(limiter, group, priority, revision)
        self._limiters.end_draining(limiter)

    def _gather_priority(self, limiter: Limiter, group: QueueGroup, priority: int, revision: int) -> Iterator[None]:
        # A heap of numbers: the negative place of the last job of a key queue, and the index of the key queue in
        # `key_queues`.
        lasts: list[int] = []
        key_queues: list[KeyQueue | None] = []
        assert group.key_queues is not None
        if len(group.key_queues) > self._limiters.long:
            promote_new_objects()  # these lists
        for portion in group.key_queues.portions():
            for key_queue in portion:
                job = _last_job(key_queue, priority)
                if job is not None:
                    heappush(lasts, (-place_of(job) << INDEX_BITS) + len(key_queues))
                    key_queues.append(key_queue)
                yield
            if limiter.revision != revision:
                break
        moved = 0
        while lasts and limiter.revision == revision and group.is_draining:
            last = heappop(lasts)
            index = last & INDEX_MASK
            listed = key_queues[index]
            assert listed is not None
            job = _last_job(listed, priority)
            if job is not None and -place_of(job) == last >> INDEX_BITS and self._entries.try_remove(listed, job):
                self._queues.left_key_queue(limiter, listed, priority)
                if not listed.owner.ready:
                    self._limiters.review(limiter, listed.owner)
                self._entries.prepend(group.queue, job)
                moved += 1
                if moved % self.most_in_new_segments == 0:
                    promote_new_objects()
                job = _last_job(listed, priority)
            if job is not None:
                heappush(lasts, (-place_of(job) << INDEX_BITS) + index)
            else:
                key_queues[index] = None
            yield
        while key_queues:  # freeing a long list takes as long as a turn
            key_queues.pop()
            yield


def _last_job(key_queue: KeyQueue, priority: int) -> Job | None:
    """The last job of this priority of a key, which no segment has packed."""
    rest = key_queue.segmented[priority]
    if rest is not None:
        if rest.tail:
            return rest.tail[-1]
        if rest.segments:
            segment = rest.segments[-1]
            assert isinstance(segment, ObjectSegment)
            return segment.jobs[-1]
    queue = key_queue.queues[priority]
    return queue[-1] if queue else None
