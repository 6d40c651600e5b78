"""Short words for what tests of limits do most."""

from __future__ import annotations

from typing import Any

from switchgear.model import Job, Limiter, Worker
from switchgear.policy import Policy
from tests.engine.harness import Harness


def limit(harness: Harness, **limits: Any) -> None:
    harness.engine.set_policy(harness.function(), Policy(**limits))


def limiter_of(harness: Harness) -> Limiter:
    limiter = harness.function().limiter
    assert limiter is not None
    return limiter


def submit_each(harness: Harness, *keys: bytes, **options: Any) -> list[Job]:
    return [harness.submit(key=key, **options) for key in keys]


def taken(harness: Harness, worker: Worker, most: int = 1000) -> list[Job]:
    """All that the worker can get, and it keeps them."""
    jobs: list[Job] = []
    while len(jobs) < most and (job := harness.engine.take(worker)) is not None:
        jobs.append(job)
    return jobs


def keys_of(jobs: list[Job]) -> str:
    return "".join(job.key.decode() or "-" for job in jobs)
