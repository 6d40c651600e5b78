"""`drop_finished_jobs`: drops finished jobs from the store when their retention has passed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from switchgear.config import StorageConfig
from switchgear.errors import StorageError
from switchgear.model import SECOND_US
from switchgear.net.hub import Hub
from switchgear.storage.base import KEEP_ALL

__all__ = ["drop_finished_jobs"]

log = logging.getLogger("switchgear")

SWEEP_SECONDS = 30.0  # between two looks at all finished jobs
SHORT_RETENTION_SECONDS = 1.0  # between two looks at those with a retention of their own that has ended


async def drop_finished_jobs(hub: Hub, storage_config: Callable[[], StorageConfig]) -> None:
    """Drop finished jobs for as long as the server runs: all now and then, and those with a short retention in time.

    The configuration is asked each time, because it may have been reloaded.
    """
    monotonic_seconds = asyncio.get_running_loop().time  # the wall clock may be set
    sweep_seconds = monotonic_seconds() + SWEEP_SECONDS
    while True:
        await asyncio.sleep(min(SHORT_RETENTION_SECONDS, SWEEP_SECONDS))
        storage = storage_config()
        now_us = hub.clock.now_us()
        before_us, keep_count = 0, KEEP_ALL
        if monotonic_seconds() >= sweep_seconds:
            sweep_seconds = monotonic_seconds() + SWEEP_SECONDS
            before_us = now_us - int(storage.keep_finished_seconds * SECOND_US)
            keep_count = storage.keep_finished_count
        elif not hub.engine.take_retention_ends(now_us):
            continue
        spare = hub.engine.dependencies.unsuccessful_with_successors
        try:
            count = await hub.store.drop_finished(before_us, keep_count, spare, now_us)
        except StorageError as error:
            log.warning("could not drop finished jobs: %s", error)
            continue
        except Exception:
            log.exception("internal error in dropping finished jobs")
            continue
        if count:
            hub.telemetry.emit("history_dropped", count=count)
