"""Payload reads in the simulation: payloads are spilled, and read later, fail, or are lost."""

from __future__ import annotations

from switchgear.model import QUEUED_STATES, READY, Job
from switchgear.model.job import lost_payload_text
from switchgear.testing.invariants import broken
from switchgear.testing.simulation.random_picks import some
from switchgear.testing.simulation.simulated_cluster import SimulatedCluster

__all__ = ["payload_is_lost", "payload_is_spilled", "read_ends", "read_fails"]


def payload_is_spilled(world: SimulatedCluster) -> None:
    """Spill a payload that the store has."""
    jobs = [job for job in world.engine.jobs.values() if job.kept and job.state in QUEUED_STATES]
    job = some(world, [job for job in jobs if job.payload is not None and job.id in world.store.committed])
    if job is not None and job.payload is not None:
        world.tell(f"{job} has its payload in the store alone")
        world.engine.memory.job_bytes -= len(job.payload)
        job.payload = None


def read_ends(world: SimulatedCluster) -> None:
    """End one of the reads in progress; later ones may end first."""
    job = _ended_read(world)
    if job is not None:
        payload = world.store.payload_of(job.id) if job.state is READY else b"too late"
        if payload is None:
            broken(f"{job} is ready, and the store has no payload")
        world.engine.payload_arrivals.arrived(job, payload or b"")
        world.engine.payload_arrivals.offer(job.function, 1)


def read_fails(world: SimulatedCluster) -> None:
    """Fail a read; the next request starts it again."""
    job = _ended_read(world)
    if job is not None:
        world.engine.payload_arrivals.want_again(job.function)
        world.engine.payload_arrivals.offer(job.function, 1)


def payload_is_lost(world: SimulatedCluster) -> None:
    """Lose a payload that the store should have."""
    job = _ended_read(world)
    if job is not None:
        world.engine.payload_arrivals.lost(job, lost_payload_text(job.id).encode())
        world.engine.payload_arrivals.offer(job.function, 1)


def _ended_read(world: SimulatedCluster) -> Job | None:
    world.begin_reads()
    job = some(world, list(world.reads.values()))
    if job is not None:
        del world.reads[job.id]
        world.tell(f"the read for {job} ends")
    return job
