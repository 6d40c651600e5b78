"""Invariants: segments of long queues are in order, and every packed job can be found."""

from __future__ import annotations

from switchgear.engine.engine import Engine
from switchgear.model import Function, PackedSegment, ReadyQueue, SegmentedQueue
from switchgear.model.job import place_of
from switchgear.testing.invariants.broken_invariant import broken

__all__ = ["check_packed_queues", "check_segments"]


def check_segments(
    rest: SegmentedQueue, priority: int, ready_queue: ReadyQueue, function: Function, engine: Engine
) -> None:
    """Segments are in order, every packed job can be found by its id and its key, and the head is not empty."""
    if not ready_queue.queues[priority]:
        broken(f"queue {priority} of {ready_queue} has segments and no head")
    ids: list[int] = []
    for segment in rest.segments:
        jobs = list(segment.jobs_in_order())
        if not jobs or segment.entries != len(jobs) or segment.first_place > place_of(jobs[0]):
            broken(f"a segment of {function} counts {segment.entries} jobs from {segment.first_place}; it has {jobs}")
        if isinstance(segment, PackedSegment):
            if segment.function is not function or segment.priority != priority:
                broken(f"a segment of {segment.function} is among those of {function}")
            ids += check_packed(segment, function, engine)
    firsts = [segment.first_id for segment in rest.segments]
    first_places = [segment.first_place for segment in rest.segments]
    if ids != sorted(set(ids)) or firsts != sorted(firsts) or (ids and ids[-1] > rest.last_id):
        broken(f"the segments of {function} have jobs {ids} up to {rest.last_id}, and begin with {firsts}")
    if first_places != sorted(first_places):
        broken(f"the segments of {function} begin at {first_places}")
    if list(rest.to_pack) != list(rest.segments)[len(rest.segments) - len(rest.to_pack) :]:
        broken(f"the segments of {function} that may be packed are not its last")
    if rest.entries != sum(segment.entries for segment in rest.segments):
        broken(f"the segments of {function} count {rest.entries} jobs")


def check_packed(segment: PackedSegment, function: Function, engine: Engine) -> list[int]:
    """Check a packed segment; returns the ids of its packed jobs."""
    ids = []
    for index, job_id in enumerate(segment.ids):
        if index in segment.objects:
            continue
        ids.append(job_id)
        unique = segment.unique_at(index)
        if job_id < segment.first_id or job_id in engine.jobs or engine.look_at(job_id) is None:
            broken(f"job {job_id} is packed in a segment that begins with {segment.first_id}")
        if unique and (unique in function.uniques or not engine.has_holder(function, unique)):
            broken(f"the unique key of job {job_id} cannot be found, or is another's")
    return ids


def check_packed_queues(engine: Engine) -> None:
    """The number of packed jobs, their functions and their keys are right."""
    packed = 0
    functions: set[Function] = set()
    for function in engine.functions.values():
        keys = 0
        for rest in function.segmented:
            for segment in rest.segments if rest is not None else ():
                if isinstance(segment, PackedSegment):
                    functions.add(function)
                    indexes = [index for index in range(len(segment.ids)) if index not in segment.objects]
                    packed += len(indexes)
                    keys += sum(bool(segment.unique_at(index)) for index in indexes)
        if keys != sum(map(len, function.packed_keys)):
            broken(f"{function} has {keys} packed keys, and lists others")
        if bool(function.packed_keys) != (function in engine.packed_queues.functions):
            broken(f"{function} has tables of keys for nothing, or none")
    if engine.packed_queues.job_count != packed or not functions <= engine.packed_queues.functions.keys():
        broken(f"{packed} jobs of {functions} are packed, not {engine.packed_queues.job_count}")
    if any(not function.is_segmented for function in engine.packed_queues.functions):
        broken(f"of {list(engine.packed_queues.functions)} one has no segments")
    if engine.job_count() != sum(function.total for function in engine.functions.values()):
        broken(f"{engine.job_count()} jobs are counted")
