"""Segments of a long ready queue: `ObjectSegment` holds jobs, `PackedSegment` holds most of them as numbers in arrays.

A queue of bounded segments lets a job leave from the middle in bounded time: its place determines its segment, and only
that segment is searched and changed, however long the queue is.

A queued job that is completely in the store can be found by its id, its key and its place; an object is ten times as
large. `engine.packed_queues` says which jobs are packed and when they are unpacked again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from switchgear.model.job import KEPT, RANKS_BETWEEN, Job, place_of

if TYPE_CHECKING:
    from switchgear.model.function import Function

__all__ = [
    "FIRST_REVISION",
    "SOURCE_SHIFT",
    "ObjectSegment",
    "PackedSegment",
    "QueueSegment",
    "SegmentedQueue",
    "remove_from",
]

FIRST_REVISION: Final = 1  # of a job that was stored once, and has not changed since

# A delivery takes two bits of its byte.
SOURCE_SHIFT: Final = 2
DELIVERY_BITS: Final = (1 << SOURCE_SHIFT) - 1

# Higher than every id: the first id of a segment behind all packed jobs.
BEYOND_ALL_IDS: Final = 1 << 62


def remove_from(queue: deque[Job], job: Job) -> bool:
    """Remove a job from jobs that are sorted by their places; returns whether it was there."""
    if not queue:
        return False
    if queue[0] is job:
        queue.popleft()
        return True
    index = bisect_left(queue, place_of(job), key=place_of)
    if index < len(queue) and queue[index] is job:
        del queue[index]
        return True
    return False


class QueueSegment:
    """Some hundred jobs of one queue in their order."""

    __slots__ = ("entries", "first_id", "first_place")

    def __init__(self) -> None:
        self.entries = 0  # jobs in this segment
        self.first_place = 0  # no job in this or a later segment has a lower place
        self.first_id = BEYOND_ALL_IDS  # no packed job of this or a later segment has a lower id

    def remove(self, job: Job) -> bool:
        """Remove a job; returns whether it was there."""
        raise NotImplementedError

    def jobs_in_order(self) -> Iterator[Job]:
        """All jobs; packed ones as copies."""
        raise NotImplementedError


class ObjectSegment(QueueSegment):
    """A segment whose jobs are objects."""

    __slots__ = ("jobs",)

    def __init__(self, jobs: deque[Job]) -> None:
        super().__init__()
        self.jobs = jobs
        self.entries = len(jobs)
        self.first_place = place_of(jobs[0])

    def remove(self, job: Job) -> bool:
        """Remove a job; returns whether it was there."""
        if not remove_from(self.jobs, job):
            return False
        self.entries -= 1
        return True

    def jobs_in_order(self) -> Iterator[Job]:
        """All jobs, in the order in which they are assigned."""
        yield from self.jobs


class PackedSegment(QueueSegment):
    """A segment whose plain jobs are numbers and keys in arrays."""

    __slots__ = ("created_us", "deliveries", "function", "ids", "key_ends", "keys", "objects", "priority")

    def __init__(self, function: Function, priority: int) -> None:
        super().__init__()
        self.function = function
        self.priority = priority
        # Ascending. For an object that was never packed it is the id that corresponds to its place.
        self.ids = array("q")
        self.created_us = array("q")
        self.deliveries = b""  # and, from the third bit on, the numbers of the protocols by which they were submitted
        self.keys = b""
        self.key_ends = array("I")
        # By index, jobs that are objects: not plain, or unpacked on request. None: removed.
        self.objects: dict[int, Job | None] = {}

    def fill(self, ids: list[int], created_us: list[int], deliveries: list[int], uniques: list[bytes]) -> None:
        """Pack these jobs; the values for objects do not matter, as long as the ids ascend."""
        self.ids = array("q", ids)
        self.created_us = array("q", created_us)
        self.deliveries = bytes(deliveries)
        self.keys = b"".join(uniques)
        self.key_ends = array("I", accumulate(map(len, uniques)))
        self.entries = len(ids)

    def packed_key_bytes(self) -> int:
        """The length of all unique keys of the packed jobs."""
        size = len(self.keys)
        for index in self.objects:
            size -= len(self.unique_at(index))
        return size

    def unique_at(self, index: int) -> bytes:
        """The unique key of the job at this index."""
        ends = self.key_ends
        return self.keys[ends[index - 1] if index else 0 : ends[index]]

    def job_at(self, index: int) -> Job:
        """A new object for the packed job at this index. The caller ensures that there is no other."""
        job = Job(
            self.ids[index],
            self.function,
            self.unique_at(index),
            None,
            self.priority,
            self.deliveries[index] & DELIVERY_BITS,
            self.created_us[index],
        )
        job.source = self.deliveries[index] >> SOURCE_SHIFT
        job.kept = KEPT
        job.revision = FIRST_REVISION
        return job

    def index_of_id(self, job_id: int) -> int:
        """The index of the packed job with this id; -1 if the job is not here or is an object."""
        ids = self.ids
        index = bisect_left(ids, job_id)
        while index < len(ids) and ids[index] == job_id:
            if index not in self.objects:
                return index
            index += 1
        return -1

    def index_of_key(self, unique: bytes) -> int:
        """The index of the packed job with this unique key; -1 if the job is not here or is an object."""
        ends = self.key_ends
        start = self.keys.find(unique)
        while start >= 0:
            end = start + len(unique)
            index = bisect_left(ends, end)  # jobs without a key end where the one before them does
            if ends[index] == end and index not in self.objects and self.unique_at(index) == unique:
                return index
            start = self.keys.find(unique, start + 1)
        return -1

    def remove(self, job: Job) -> bool:
        """Remove a job that is an object; returns whether it was there."""
        ids = self.ids
        objects = self.objects
        id_of_place = place_of(job) // RANKS_BETWEEN
        index = bisect_left(ids, id_of_place)
        while index < len(ids) and ids[index] == id_of_place:
            if objects.get(index) is job:
                objects[index] = None
                self.entries -= 1
                return True
            index += 1
        return False

    def jobs_in_order(self) -> Iterator[Job]:
        """All jobs; packed ones as copies."""
        objects = self.objects
        for index in range(len(self.ids)):
            job = objects[index] if index in objects else self.job_at(index)
            if job is not None:
                yield job


class SegmentedQueue:
    """The part of a long queue behind its head: segments, and a tail to which new jobs are appended."""

    __slots__ = ("entries", "last_id", "segments", "tail", "to_pack")

    def __init__(self) -> None:
        self.segments: deque[QueueSegment] = deque()
        self.to_pack: deque[ObjectSegment] = deque()  # the last segments, which were not packed yet
        self.tail: deque[Job] = deque()
        self.entries = 0  # jobs in the segments
        self.last_id = 0  # the highest id of a packed job

    def append(self, job: Job, segment_jobs: int) -> None:
        """Append a job; a tail of this many jobs becomes a segment."""
        tail = self.tail
        tail.append(job)
        if len(tail) >= segment_jobs:
            segment = ObjectSegment(tail)
            self.segments.append(segment)
            self.to_pack.append(segment)
            self.entries += segment.entries
            self.tail = deque()

    def appendleft(self, segment: ObjectSegment) -> None:
        """Insert a segment at the front. It is not packed if a segment behind it was, or was tried: ids of packed jobs
        ascend."""
        if len(self.to_pack) == len(self.segments):
            self.to_pack.appendleft(segment)
        else:
            segment.first_id = 0
        self.segments.appendleft(segment)
        self.entries += segment.entries

    def popleft(self) -> QueueSegment:
        """Remove and return the first segment."""
        segment = self.segments.popleft()
        self.entries -= segment.entries
        self._forget(segment)
        return segment

    def remove(self, job: Job) -> bool:
        """Remove a job that is an object; returns whether it was there."""
        place = place_of(job)
        if self.tail and place >= place_of(self.tail[0]):
            return remove_from(self.tail, job)
        index = bisect_right(self.segments, place, key=_first_place) - 1
        if index < 0:
            return False
        segment = self.segments[index]
        if not segment.remove(job):
            return False
        self.entries -= 1
        if not segment.entries:
            del self.segments[index]
            self._forget(segment)
        return True

    def pack_next(self, packed: QueueSegment) -> None:
        """Replace the first of `to_pack` by this packed segment."""
        self.segments[len(self.segments) - len(self.to_pack)] = packed
        self.to_pack.popleft()

    def _forget(self, segment: QueueSegment) -> None:
        if self.to_pack and isinstance(segment, ObjectSegment) and segment.first_id == BEYOND_ALL_IDS:
            self.to_pack.remove(segment)

    def segment_for(self, job_id: int) -> PackedSegment | None:
        """The segment in which the packed job of this id is, if it is in this queue."""
        if job_id > self.last_id:
            return None
        index = bisect_right(self.segments, job_id, key=_first_id) - 1
        if index < 0:
            return None
        segment = self.segments[index]
        return segment if isinstance(segment, PackedSegment) else None

    def jobs_in_order(self) -> Iterator[Job]:
        """All jobs; packed ones as copies."""
        for segment in self.segments:
            yield from segment.jobs_in_order()
        yield from self.tail


def _first_place(segment: QueueSegment) -> int:
    return segment.first_place


def _first_id(segment: QueueSegment) -> int:
    return segment.first_id
