"""Invariants: each ready job is in its queue once, and queues are in the order of places."""

from __future__ import annotations

from switchgear.engine.engine import Engine
from switchgear.model import READY, Function, Job, KeyQueue, ReadyQueue
from switchgear.model.job import place_of
from switchgear.testing.invariants.broken_invariant import broken
from switchgear.testing.invariants.limiters import check_limiter
from switchgear.testing.invariants.packed_queues import check_segments

__all__ = ["check_queues"]


def check_queues(function: Function, engine: Engine) -> None:
    """Each ready job is in its queue once, and queues are in the order of places."""
    queued: list[int] = []
    for ready_queue in function.ready_queues():
        queued += check_ready_queue(ready_queue, function, engine)
    ready = sorted(job.id for job in engine.unfinished_jobs() if job.state is READY and job.function is function)
    if sorted(queued) != ready or function.ready != len(ready):
        broken(f"{function} counts {function.ready} ready, has {sorted(queued)} queued; ready are {ready}")
    if function.limiter is not None:
        check_limiter(function.limiter, engine)


def check_ready_queue(ready_queue: ReadyQueue, function: Function, engine: Engine) -> list[int]:
    """Check one queue; returns the ids of its jobs."""
    if ready_queue.is_segmented != any(rest is not None for rest in ready_queue.segmented):
        broken(f"{ready_queue} is segmented, and has no segments, or the other way round")
    ids: list[int] = []
    for priority, head in enumerate(ready_queue.queues):
        rest = ready_queue.segmented[priority]
        queue = [*head, *(rest.jobs_in_order() if rest is not None else ())]
        if rest is not None:
            check_segments(rest, priority, ready_queue, function, engine)
        for job in queue:
            if job.state is not READY or not is_listed(engine, job):
                broken(f"{job} is in queue {priority} of {ready_queue}")
            if job.priority != priority or job.function is not function:
                broken(f"{job} is in queue {priority} of {ready_queue}")
            if isinstance(ready_queue, KeyQueue) and job.key != ready_queue.key:
                broken(f"{job} of {job.key!r} is in {ready_queue}")
        places = [place_of(job) for job in queue]
        if places != sorted(set(places)):  # a restart must restore this order
            broken(f"{queue} stand in this order, and their places are {places}")
        if not isinstance(ready_queue, Function) and ready_queue.ready_of(priority) != len(queue):
            broken(f"{ready_queue} counts {ready_queue.ready_of(priority)} jobs of priority {priority}; it has {queue}")
        ids += [job.id for job in queue]
    return ids


def is_listed(engine: Engine, job: Job) -> bool:
    """Whether this is an unfinished job, or the copy of a packed one."""
    return engine.jobs.get(job.id) is job or (job.id not in engine.jobs and engine.has_job(job.id))
