"""Clients and workers that keep their jobs in a Redis, by the GearMonkey document.

Needs redis-py: `pip install 'switchgear[redis]'`.
"""

try:
    import redis as _redis
except ImportError as error:
    raise ImportError(
        f"GearMonkey needs another package: pip install 'switchgear[redis]' ({error})", name="redis"
    ) from None

from switchgear.client.gearmonkey.aio import AsyncGearMonkeyClient
from switchgear.client.gearmonkey.aio_worker import AsyncGearMonkeyWorker, AsyncWork
from switchgear.client.gearmonkey.blocking import GearMonkeyClient
from switchgear.client.gearmonkey.commands import (
    HIGH,
    LOW,
    NORMAL,
    OPT_BLOCKING,
    OPT_ROLLCALL,
    SCHEDULED,
    CreateOptions,
    Priority,
)
from switchgear.client.gearmonkey.errors import JobNotFinished, LostWhileWaiting, NoWorkers, UnknownJob
from switchgear.client.gearmonkey.records import BUSY, ERROR, IDLE, SUCCESS, GearMonkeyJob
from switchgear.client.gearmonkey.retrying_connection import WorkerTiming
from switchgear.client.gearmonkey.worker import GearMonkeyCurrentJob, GearMonkeyWorker, Output, Work

del _redis

__all__ = [
    "BUSY",
    "ERROR",
    "HIGH",
    "IDLE",
    "LOW",
    "NORMAL",
    "OPT_BLOCKING",
    "OPT_ROLLCALL",
    "SCHEDULED",
    "SUCCESS",
    "AsyncGearMonkeyClient",
    "AsyncGearMonkeyWorker",
    "AsyncWork",
    "CreateOptions",
    "GearMonkeyClient",
    "GearMonkeyCurrentJob",
    "GearMonkeyJob",
    "GearMonkeyWorker",
    "JobNotFinished",
    "LostWhileWaiting",
    "NoWorkers",
    "Output",
    "Priority",
    "UnknownJob",
    "Work",
    "WorkerTiming",
]
