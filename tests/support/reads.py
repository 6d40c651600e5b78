"""Reads of the store in tests: at once, where there is no event loop, or awaited."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from switchgear.model import Job
from switchgear.net.store_reads import ImmediateReads
from switchgear.protocols.pending_read import PendingRead, Reading
from switchgear.storage.base import Store
from switchgear.testing.in_memory_context import at_once

__all__ = ["at_once", "awaited", "kept_job"]

Result = TypeVar("Result")


async def awaited(reading: Reading[Result]) -> Result:
    """What a read gives, whenever that is."""
    try:
        while True:
            step = next(reading)
            if isinstance(step, PendingRead):
                done = asyncio.Event()
                step.when_done(done.set)
                await done.wait()
    except StopIteration as stop:
        result: Result = stop.value
        return result


def kept_job(store: Store, job_id: int) -> Job | None:
    """One job of a store that answers at once."""
    found: dict[int, Job] = ImmediateReads(store).start(store.read_jobs([job_id])).result
    return found.get(job_id)
