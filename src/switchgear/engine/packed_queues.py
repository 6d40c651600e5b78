"""`PackedQueues`: stores plain jobs in the middle of a long queue as numbers in arrays, and finds them there.

A queue has a head and, when it is long, a `SegmentedQueue`: segments, and behind them a tail to which new jobs are
appended.  When the head is used up the next segment takes its place, and after the last segment the tail does.  So the
head is empty only if the queue is.

Packing. The owner calls `pack` with the functions whose jobs were stored. The segments of a long queue then become
`PackedSegment`s. A job is plain if it only waits for its first start, was submitted without options, has no
subscribers, and is completely in the store; its payload is freed. Plain jobs leave `EngineState.jobs` and become
numbers in arrays; all others stay objects, at their index in the segment. The queue of a key (`engine.limiters`) has
segments, but they are not packed: its jobs have a key, and are not plain.

Finding. `EngineState.jobs` and `Function.uniques` have objects only. To get a job by its id call `job`, by its unique
key `holder`: both unpack the job, which stays an object at its place in the segment. The ids in the arrays of a queue
are ascending, since plain jobs are in the order of their submissions. Unique keys are found by Python's hash, which
peers cannot foresee. Of two jobs whose keys have the same hash the second stays an object. A packed job does not
change, so a copy for reading (`look_at`, `newest_first`) is valid as long as the engine is not called. `cancel`
recognises a copy; no other command accepts one. Any plain job may be packed after the next commit; to follow a job,
subscribe to it or ask again.

None of this can be observed: jobs come in the same order, and are found, listed, cancelled and counted as without
packing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import merge
from typing import Final

from switchgear.engine.state import EngineState
from switchgear.model import BEST_FIRST, READY, RESIDENT, Function, Job, JobState, PackedSegment, SegmentedQueue
from switchgear.model.job import RANKS_BETWEEN, place_of
from switchgear.model.job_details import NO_DETAILS
from switchgear.model.segments import FIRST_REVISION, SOURCE_SHIFT, ObjectSegment, QueueSegment

__all__ = ["MOST_KEY_BYTES", "PACKED_JOB_BYTES", "PackedQueues"]

# Unpacking a segment takes about half a millisecond; an empty segment takes some hundred bytes.
SEGMENT_JOBS: Final = 512
# The number of objects at the front of a queue.
HEAD_JOBS: Final = 1024
# A shorter queue has no segments.
PACK_FROM: Final = 8192
# The packed keys of a function are in this many tables: a single one would stop the server while it grows.
KEY_TABLES: Final = 256
# The approximate memory of a packed job besides its key.
PACKED_JOB_BYTES: Final = 150
# A longer unique key is not packed.
MOST_KEY_BYTES: Final = 1024


class PackedQueues:
    """Packs and unpacks jobs, and finds unfinished jobs whether they are packed or not."""

    def __init__(self, state: EngineState) -> None:
        self.segment_jobs = SEGMENT_JOBS
        self.head_jobs = HEAD_JOBS
        self.pack_from = PACK_FROM
        self.key_mask = -1  # which bits of a hash are used
        self.job_count = 0  # packed jobs, which are not in `EngineState.jobs`
        self.functions: dict[Function, None] = {}  # functions that may have packed jobs
        self._state = state

    # --- finding ---

    def job(self, job_id: int) -> Job | None:
        """The unfinished job of this id, or None."""
        job = self._state.jobs.get(job_id)
        if job is None and self.job_count:
            segment = self._segment_of(job_id)
            if segment is not None:
                job = self._make_object(segment, segment.index_of_id(job_id))
        return job

    def look_at(self, job_id: int) -> Job | None:
        """The unfinished job of this id, or a copy of it for reading, or None."""
        job = self._state.jobs.get(job_id)
        if job is None and self.job_count:
            segment = self._segment_of(job_id)
            if segment is not None:
                job = segment.job_at(segment.index_of_id(job_id))
        return job

    def has_job(self, job_id: int) -> bool:
        """Whether there is an unfinished job of this id."""
        return job_id in self._state.jobs or (self.job_count > 0 and self._segment_of(job_id) is not None)

    def state_of(self, job_id: int) -> JobState | None:
        """The state of the unfinished job of this id, or None."""
        job = self._state.jobs.get(job_id)
        if job is not None:
            return job.state
        return READY if self.job_count and self._segment_of(job_id) is not None else None

    def unfinished_count(self) -> int:
        """How many unfinished jobs there are."""
        return len(self._state.jobs) + self.job_count

    def holder(self, function: Function, unique: bytes) -> Job | None:
        """The job that has this unique key, or None."""
        job = function.uniques.get(unique)
        if job is None and function.packed_keys:
            segment = self._segment_with_key(function, unique)
            if segment is not None:
                job = self._make_object(segment, segment.index_of_key(unique))
        return job

    def look_at_holder(self, function: Function, unique: bytes) -> Job | None:
        """The job that has this unique key, or a copy of it for reading, or None."""
        job = function.uniques.get(unique)
        if job is None and function.packed_keys:
            segment = self._segment_with_key(function, unique)
            if segment is not None:
                job = segment.job_at(segment.index_of_key(unique))
        return job

    def has_holder(self, function: Function, unique: bytes) -> bool:
        """Whether some job has this unique key."""
        if unique in function.uniques:
            return True
        return bool(function.packed_keys) and self._segment_with_key(function, unique) is not None

    def unfinished_jobs(self, from_id: int = 0) -> Iterator[Job]:
        """Every unfinished job by id, from one id on; of packed ones a copy.

        The engine must not be called meanwhile.
        """
        packed = [_copies_in_order(rest, from_id) for rest in self._segmented()]
        yield from merge(self._state.jobs.values(from_id), *packed, key=_id)

    def newest_first(
        self, before_id: int = 0, function: Function | None = None, with_packed: bool = True
    ) -> Iterator[Job]:
        """Unfinished jobs from the newest on, or from the newest below an id; of packed ones a copy.

        Of packed ones only those of `function`, or none.  The engine must not be called meanwhile.
        """
        packed: list[Iterator[Job]] = []
        if with_packed:
            segmented = self._segmented() if function is None else function.segmented
            packed = [_copies(rest, before_id) for rest in segmented if rest is not None]
        yield from merge(self._state.jobs.newest_first(before_id), *packed, key=_minus_id)

    def _segmented(self) -> Iterator[SegmentedQueue]:
        for function in self.functions:
            for rest in function.segmented:
                if rest is not None:
                    yield rest

    def _segment_of(self, job_id: int) -> PackedSegment | None:
        """The segment in which this job is packed, or None."""
        for rest in self._segmented():
            segment = rest.segment_for(job_id)
            if segment is not None and segment.index_of_id(job_id) >= 0:
                return segment
        return None

    def _segment_with_key(self, function: Function, unique: bytes) -> PackedSegment | None:
        """The segment in which the job with this key is packed, or None."""
        digest = hash(unique) & self.key_mask
        segment = function.packed_keys[digest % KEY_TABLES].get(digest)
        return segment if segment is not None and segment.index_of_key(unique) >= 0 else None

    def _make_object(self, segment: PackedSegment, index: int) -> Job:
        """Unpack one job in its place."""
        job = segment.objects[index] = segment.job_at(index)
        self._list_again(segment.function, job)
        return job

    def _list_again(self, function: Function, job: Job) -> None:
        """Enter a job that was packed into the tables."""
        self.job_count -= 1
        self._state.memory.job_bytes -= PACKED_JOB_BYTES + len(job.unique)
        self._state.count_contents(job)
        self._state.jobs.add(job)
        unique = job.unique
        if unique:
            digest = hash(unique) & self.key_mask
            del function.packed_keys[digest % KEY_TABLES][digest]
            function.uniques[unique] = job

    # --- packing ---

    def pack(self, function: Function) -> int:
        """Pack plain jobs in the long queues of a function; the newest jobs stay objects.

        Returns how many bytes of counted payloads were freed.
        """
        freed_bytes = 0
        for priority in BEST_FIRST:
            rest = function.segmented[priority]
            if rest is not None:
                freed_bytes += self.pack_segments(function, priority, rest)
        return freed_bytes

    def can_pack(self, function: Function) -> bool:
        """Whether jobs of this function may be packed at all."""
        if function.limiter is not None and function.limiter.key_queues is not None:
            return False
        return self._state.functions.get(function.name) is function

    def pack_segments(self, function: Function, priority: int, rest: SegmentedQueue) -> int:
        """Pack the segments of one queue that are stored; returns the number of freed bytes."""
        freed_bytes = 0
        while len(rest.to_pack) > 1:
            last = rest.to_pack[0].jobs[-1]
            if last.delivery and not last.kept:
                break  # not stored yet
            freed_bytes += self._pack_next(function, priority, rest)
        return freed_bytes

    def _pack_next(self, function: Function, priority: int, rest: SegmentedQueue) -> int:
        """Pack the jobs of the first segment that was not tried yet."""
        unpacked = rest.to_pack[0]
        segment = PackedSegment(function, priority)
        ids: list[int] = []
        created_us: list[int] = []
        deliveries: list[int] = []
        uniques: list[bytes] = []
        freed_bytes = 0
        last_id = rest.last_id
        self._prepare(function)
        for index, job in enumerate(unpacked.jobs):
            unique = job.unique
            if job.id > last_id and self._is_plain(job) and (not unique or self._move_key(job, segment)):
                last_id = job.id
                self._state.jobs.remove(last_id)
                if job.kept == RESIDENT:
                    freed_bytes += len(job.payload or b"")
                self._state.uncount_contents(job)
            else:
                segment.objects[index] = job
                last_id = max(last_id, place_of(job) // RANKS_BETWEEN)
                unique = b""
            ids.append(last_id)
            created_us.append(job.created_us)
            deliveries.append(job.delivery | job.source << SOURCE_SHIFT)
            uniques.append(unique)
        if len(segment.objects) == len(ids):  # all are objects: nothing to gain
            unpacked.first_id = rest.last_id + 1
            rest.pack_next(unpacked)
            return 0
        segment.fill(ids, created_us, deliveries, uniques)
        segment.first_place = unpacked.first_place
        self._count(rest, segment)
        rest.pack_next(segment)
        return freed_bytes

    def add_packed(self, rest: SegmentedQueue, segment: PackedSegment) -> None:
        """Append a filled segment to a queue that has no tail."""
        segment.first_place = segment.ids[0] * RANKS_BETWEEN
        self._prepare(segment.function)
        self._count(rest, segment)
        rest.segments.append(segment)
        rest.entries += segment.entries

    def _count(self, rest: SegmentedQueue, segment: PackedSegment) -> None:
        """Count the packed jobs of a new segment, and index them by id."""
        ids = segment.ids
        before_id = rest.last_id
        segment.first_id = before_id + 1
        for job_id in ids:
            if job_id > before_id:
                segment.first_id = job_id
                break
        rest.last_id = max(before_id, ids[-1])
        packed = len(ids) - len(segment.objects)
        self.job_count += packed
        self._state.memory.job_bytes += PACKED_JOB_BYTES * packed + segment.packed_key_bytes()

    def _prepare(self, function: Function) -> None:
        """Create the tables for the packed keys of this function."""
        if function not in self.functions:
            self.functions[function] = None
            function.packed_keys = [{} for _ in range(KEY_TABLES)]

    def _is_plain(self, job: Job) -> bool:
        """Whether the arrays of a segment and the store together hold everything about this job."""
        return (
            job.details is NO_DETAILS
            and not job.has_details
            and job.state is READY
            and job.kept > 0
            and job.revision == FIRST_REVISION
            and job.subscribers is None
            and job.history is None
            and job.started_us < 0
            and not job.attempts
            and job.delivery > 0
            and self._state.jobs.get(job.id) is job
            and job not in self._state.changed
        )

    def _move_key(self, job: Job, segment: PackedSegment) -> bool:
        """Move the unique key of a job to the packed keys; returns whether that is possible."""
        unique = job.unique
        function = segment.function
        if function.uniques.get(unique) is not job or not self.note_key(unique, segment):
            return False
        del function.uniques[unique]
        return True

    def note_key(self, unique: bytes, segment: PackedSegment) -> bool:
        """Note in which segment a key is; False if the key is too long or has the hash of another."""
        if len(unique) > MOST_KEY_BYTES:
            return False
        self._prepare(segment.function)
        digest = hash(unique) & self.key_mask
        table = segment.function.packed_keys[digest % KEY_TABLES]
        if digest in table:
            return False
        table[digest] = segment
        return True

    # --- unpacking ---

    def unpack(self, segment: QueueSegment) -> deque[Job]:
        """Unpack the jobs of a segment that has left its queue."""
        if isinstance(segment, ObjectSegment):
            return segment.jobs
        assert isinstance(segment, PackedSegment)
        queue: deque[Job] = deque()
        function = segment.function
        objects = segment.objects
        jobs = self._state.jobs
        for index in range(len(segment.ids)):
            job = objects.get(index)
            if job is None:
                if index in objects:
                    continue
                job = segment.job_at(index)  # then `_list_again`, inlined
                self._state.memory.job_bytes -= PACKED_JOB_BYTES + len(job.unique)
                self._state.count_contents(job)
                jobs.add(job)
                unique = job.unique
                if unique:
                    digest = hash(unique) & self.key_mask
                    del function.packed_keys[digest % KEY_TABLES][digest]
                    function.uniques[unique] = job
                self.job_count -= 1
            queue.append(job)
        return queue

    def forget(self, function: Function) -> None:
        """Note that the queues of this function no longer have segments."""
        if function in self.functions:
            del self.functions[function]
            function.packed_keys = []

    def clear(self) -> None:
        """Forget everything."""
        self.functions.clear()
        self.job_count = 0


def _packed_segments(rest: SegmentedQueue) -> list[PackedSegment]:
    """The segments that have packed jobs.

    Segments in which all jobs are objects are skipped at once: there may be thousands of them.
    """
    return [
        segment
        for segment in rest.segments
        if isinstance(segment, PackedSegment) and len(segment.objects) < len(segment.ids)
    ]


def _copies(rest: SegmentedQueue, before_id: int) -> Iterator[Job]:
    """Copies of the packed jobs, the newest first."""
    for segment in reversed(_packed_segments(rest)):
        if not before_id or segment.first_id < before_id:
            objects = segment.objects
            for index in range(len(segment.ids) - 1, -1, -1):
                if index not in objects and (not before_id or segment.ids[index] < before_id):
                    yield segment.job_at(index)


def _copies_in_order(rest: SegmentedQueue, from_id: int) -> Iterator[Job]:
    """Copies of the packed jobs, the oldest first, from an id on."""
    for segment in _packed_segments(rest):
        if segment.ids[-1] >= from_id:
            objects = segment.objects
            for index in range(len(segment.ids)):
                if index not in objects and segment.ids[index] >= from_id:
                    yield segment.job_at(index)


def _minus_id(job: Job) -> int:
    return -job.id


def _id(job: Job) -> int:
    return job.id
