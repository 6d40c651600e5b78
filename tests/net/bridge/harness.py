"""A hub and a bridge in the test's own process, and a real Redis.

async with bridged(server, lease=1) as harness:
    worker = harness.worker("shout")
    job = await harness.taken(worker)     # when the bridge has brought it
    harness.complete(worker, job, b"DONE")
    await soon(lambda: store.hget("job:shout:1", "status") == "success", "the result is written")
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

from switchgear.config import ListenUrl
from switchgear.engine.engine import Engine, EngineSettings, SubmitOptions
from switchgear.model import NORMAL, Delivery, Job, Worker
from switchgear.net.bridge.bridge import Bridge
from switchgear.net.bridge.settings import BridgeSettings
from switchgear.net.clock import SystemClock
from switchgear.net.hub import Hub
from switchgear.storage.base import Store
from switchgear.storage.memory import MemoryStore
from switchgear.telemetry import Telemetry
from switchgear.testing import RecordingPeer
from tests.support.redis_server import RedisServer
from tests.support.servers import HOST
from tests.support.waiting import DEADLINE_SECONDS, NeverHappenedError

P = ParamSpec("P")
T = TypeVar("T")

PREFIX = b"H:test:"
LOOK_SECONDS = 0.005
INPUT_BYTES = 10_000


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an asynchronous test."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def soon(condition: Callable[[], T], what: str) -> T:
    """Ask again and again until it is true, and let the bridge work meanwhile."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise NeverHappenedError(f"not within {DEADLINE_SECONDS:g} s: {what} (last seen: {value!r})")
        await asyncio.sleep(LOOK_SECONDS)
    return value


class BridgeHarness:
    """All parts, connected."""

    def __init__(self, url: ListenUrl, store: Store, settings: EngineSettings | None) -> None:
        self.telemetry = Telemetry(asyncio.get_running_loop().time)
        self.engine = Engine(settings, self.telemetry)
        self.hub = Hub(self.engine, store, SystemClock(), self.telemetry)
        self.bridge_workers: set[Worker] = set()
        self.bridges: list[Bridge] = []
        self.url = url

    async def open(self) -> None:
        await self.hub.load()
        self.add_bridge(self.url)

    def add_bridge(self, url: ListenUrl) -> None:
        bridge = Bridge(url, self.hub, BridgeSettings.read(url), PREFIX, INPUT_BYTES, self.bridge_workers)
        bridge.open()
        self.bridges.append(bridge)

    @property
    def bridge(self) -> Bridge:
        return self.bridges[0]

    async def close(self) -> None:
        for bridge in self.bridges:
            await bridge.close()
        await self.hub.close()

    # --- those who work ---

    def worker(self, function: str) -> Worker:
        self.hub.begin_turn()
        worker = self.engine.add_worker(RecordingPeer(), "test")
        self.engine.can_do(worker, self.engine.function_named(function.encode()))
        return worker

    def leave(self, worker: Worker) -> None:
        self.hub.begin_turn()
        self.engine.remove_worker(worker)

    def take(self, worker: Worker) -> Job | None:
        self.hub.begin_turn()
        return self.engine.take(worker)

    async def taken(self, worker: Worker) -> Job:
        job = await soon(lambda: self.take(worker), "there is a job")
        assert job is not None
        return job

    def complete(self, worker: Worker, job: Job, result: bytes = b"") -> None:
        self.hub.begin_turn()
        self.engine.complete(worker, job.id, result)

    async def run(self, worker: Worker, count: int) -> list[bytes]:
        """Run so many jobs; their payloads in the order in which they came."""
        payloads = []
        for _ in range(count):
            job = await self.taken(worker)
            payloads.append(job.payload or b"")
            self.complete(worker, job, b"done")
        return payloads

    # --- those who submit ---

    def submit(self, function: str, payload: bytes = b"data", priority: int = NORMAL, timeout_us: int = 0) -> Job:
        self.hub.begin_turn()
        options = SubmitOptions(timeout_us=timeout_us) if timeout_us else None
        return self.engine.submit(function.encode(), b"", payload, priority, Delivery.HANDLE, None, options)


def bridge_url(server: RedisServer, **options: object) -> ListenUrl:
    query = "&".join(f"{key}={value}" for key, value in {"lease": 30, **options}.items())
    return ListenUrl.parse(f"redis://{HOST}:{server.port}/0?{query}")


@asynccontextmanager
async def bridged(
    server: RedisServer, *, kept: Store | None = None, settings: EngineSettings | None = None, **options: object
) -> AsyncIterator[BridgeHarness]:
    harness = BridgeHarness(bridge_url(server, **options), kept or MemoryStore(), settings)
    await harness.open()
    try:
        yield harness
    finally:
        await harness.close()


def queue(store: Any, function: str, data: bytes = b"data", priority: str = "normal", at: int = 0) -> int:
    """Do what a GearMonkey client does."""
    job_id: int = store.incr(f"uid:{function}")
    store.hset(f"job:{function}:{job_id}", mapping={"status": "idle", "input": data})
    store.publish(f"channel:{function}", f"create:{job_id}")
    if priority == "scheduled":
        store.zadd(f"queue:{function}:scheduled", {str(job_id): at})
    else:
        store.lpush(f"queue:{function}:{priority}", job_id)
    return job_id
