"""Random picks of the simulation: jobs, ids, edges, times."""

from __future__ import annotations

from typing import TypeVar

from switchgear.model import SECOND_US, EdgePolicy, Job
from switchgear.testing.simulation.simulated_cluster import SimulatedCluster

__all__ = ["some", "some_edges", "some_ids", "some_job", "soon_us"]

T = TypeVar("T")


def some(world: SimulatedCluster, things: list[T]) -> T | None:
    return world.rng.choice(things) if things else None


def some_job(world: SimulatedCluster) -> Job | None:
    job = some(world, list(world.engine.unfinished_jobs()))
    return world.engine.job(job.id) if job is not None else None


def some_ids(world: SimulatedCluster) -> tuple[int, ...]:
    """Ids of present and past jobs; in a graph most edges are to recent jobs."""
    rng = world.rng
    newest = world.engine.next_job_id - 1
    known = [job_id for job_id in (newest - rng.randrange(12) for _ in range(rng.choice((1, 1, 2, 4)))) if job_id > 0]
    return tuple(job_id for job_id in known if world.store.get(job_id, world.engine) or world.engine.has_job(job_id))


def some_edges(world: SimulatedCluster, job_ids: tuple[int, ...]) -> bytes:
    return bytes(world.rng.choices(list(EdgePolicy), k=len(job_ids))) if world.rng.random() < 0.7 else b""


def soon_us(world: SimulatedCluster) -> int:
    """A time in the near past, or in the near or far future."""
    return world.now_us + round(world.rng.choice((-0.1, 0.05, 0.5, 3, 60)) * SECOND_US)
