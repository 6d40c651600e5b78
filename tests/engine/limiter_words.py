"""Short words for what tests of limits do most."""

from __future__ import annotations

from typing import Any

from switchgear.model import Job, Limiter, Worker
from switchgear.policy import Policy
from tests.engine.house import House


def limit(house: House, **limits: Any) -> None:
    house.engine.set_policy(house.function(), Policy(**limits))


def limiter_of(house: House) -> Limiter:
    limiter = house.function().limiter
    assert limiter is not None
    return limiter


def submit_each(house: House, *keys: bytes, **options: Any) -> list[Job]:
    return [house.submit(key=key, **options) for key in keys]


def taken(house: House, worker: Worker, most: int = 1000) -> list[Job]:
    """All that the worker can get, and it keeps them."""
    jobs: list[Job] = []
    while len(jobs) < most and (job := house.engine.take(worker)) is not None:
        jobs.append(job)
    return jobs


def keys_of(jobs: list[Job]) -> str:
    return "".join(job.key.decode() or "-" for job in jobs)
