"""Invariants: the memory account counts what jobs, schedules, limiters, functions and workers hold."""

from __future__ import annotations

from collections.abc import Iterable

from switchgear.engine.engine import Engine
from switchgear.engine.functions import FUNCTION_BYTES
from switchgear.engine.limiters import KEY_QUEUE_BYTES
from switchgear.engine.packed_queues import PACKED_JOB_BYTES
from switchgear.engine.requirements import GROUP_BYTES
from switchgear.engine.schedules import held_bytes
from switchgear.engine.unsuccessful_jobs import NAMED_BYTES, UNSUCCESSFUL_BYTES
from switchgear.engine.workers import ABILITY_BYTES, WORKER_BYTES
from switchgear.model import Job, PackedSegment
from switchgear.testing.invariants.broken_invariant import broken

__all__ = ["check_memory"]


def check_memory(engine: Engine, unstored: Iterable[Job] | None) -> None:
    """The bytes counted for jobs, schedules, limiters, functions and workers are what they hold."""
    check_registrations(engine)
    check_failures(engine)
    held = 0
    for job in engine.jobs.values():
        if not job.entry_bytes:
            broken(f"the contents of {job} are not counted")
        held += job.entry_bytes + job.content_bytes
    held += packed_bytes(engine)
    counted = engine.memory.job_bytes
    if unstored is None:
        if counted < held:
            broken(f"{counted} bytes are counted for jobs, and unfinished ones hold {held}")
        return
    ended = (job for job in unstored if job.entry_bytes and engine.jobs.get(job.id) is not job)
    held += sum(job.entry_bytes + job.content_bytes for job in ended)
    if counted != held:
        broken(f"{counted} bytes are counted for jobs, which hold {held}")


def check_registrations(engine: Engine) -> None:
    """The bytes counted for functions and workers; protocols may have added data of their peers."""
    memory = engine.memory
    held = sum(FUNCTION_BYTES + len(name) for name in engine.functions)
    held += sum(WORKER_BYTES + ABILITY_BYTES * len(worker.timeouts_us) for worker in engine.workers.values())
    if memory.registration_bytes < held:
        broken(f"{memory.registration_bytes} bytes are counted for functions and workers, which take {held}")
    held = sum(map(held_bytes, engine.schedules.values()))
    if memory.schedule_bytes != held:
        broken(f"{memory.schedule_bytes} bytes are counted for schedules, which take {held}")
    held = 0
    for function in engine.functions.values():
        if function.limiter is not None:
            for group in function.limiter.groups:
                if group.key_queues is not None:
                    held += sum(KEY_QUEUE_BYTES + len(key) for key, _ in group.key_queues.items())
            held += sum(GROUP_BYTES + len(requires) for requires in function.limiter.requiring)
    if memory.limiter_bytes != held:
        broken(f"{memory.limiter_bytes} bytes are counted for the queues of keys, which take {held}")


def check_failures(engine: Engine) -> None:
    """The bytes counted for jobs that ended without success."""
    jobs = engine.unsuccessful_jobs
    held = UNSUCCESSFUL_BYTES * len(jobs) + sum(NAMED_BYTES + len(name) for name in jobs.kept_names())
    held += engine.transitions.recent_causes.held_bytes
    if engine.memory.failure_bytes != held:
        broken(f"{engine.memory.failure_bytes} bytes are counted for unsuccessful jobs, which take {held}")


def packed_bytes(engine: Engine) -> int:
    """The bytes counted for packed jobs."""
    size = PACKED_JOB_BYTES * engine.packed_queues.job_count
    for function in engine.packed_queues.functions:
        for rest in function.segmented:
            if rest is not None:
                packed = [segment for segment in rest.segments if isinstance(segment, PackedSegment)]
                size += sum(segment.packed_key_bytes() for segment in packed)
    return size
