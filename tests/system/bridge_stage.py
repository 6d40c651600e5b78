"""What the tests of the bridge with real processes share: workers and jobs on both sides, and who ran what."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import redis

from switchgear.client import Client, Worker
from switchgear.client.gearman.worker import WorkerJob
from tests.support.redis_server import RedisServer
from tests.support.servers import HOST, Server, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

Work = Callable[[bytes], bytes]
REPOSITORY = Path(__file__).parents[2]
FINAL = ("success", "error")
LOOK_AT = 50


def bridged(
    server: RedisServer, *args: str, store: str = "memory:", **options: object
) -> AbstractContextManager[Server]:
    """A server of ours with a bridge; short times, and no end to attempts."""
    query = "&".join(f"{key}={value}" for key, value in {"lease": 1, "busy": 2, **options}.items())
    url = f"redis://{HOST}:{server.port}/0?{query}"
    never_dead = ("--set", "engine.attempts=0", "--drain-timeout", "0.05s")
    return running_switchgear("--listen", url, *never_dead, *args, store=store)


class Runs:
    """Which payloads were run, how often, by workers of ours in this process."""

    def __init__(self) -> None:
        self.counts: Counter[bytes] = Counter()
        self.by_port: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def repeated(self) -> set[bytes]:
        return {payload for payload, count in self.counts.items() if count > 1}


@contextmanager
def gearman_worker(server: Server, function: str, runs: Runs, slots: int = 20) -> Iterator[None]:
    """A worker of ours in a thread of its own."""
    ready = threading.Event()
    stop: list[Callable[[], object]] = []

    async def work(job: WorkerJob) -> bytes:
        runs.counts[job.payload] += 1
        runs.by_port[server.port] += 1
        return job.payload.upper()

    async def live() -> None:
        worker = Worker(f"gearman://{HOST}:{server.port}", {function: work}, slots)
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(worker.stop, 0.0))
        ready.set()
        await worker.run()

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        stop[0]()
        thread.join()


class GearMonkeyProcess:
    """A GearMonkey worker that can be killed, and the file in which it notes what it runs."""

    def __init__(self, server: RedisServer, function: str, notes: Path) -> None:
        command = [sys.executable, "-m", "tests.system.bridge_worker", server.url, function, str(notes)]
        self.process = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def gearmonkey_worker(server: RedisServer, function: str, notes: Path) -> Iterator[GearMonkeyProcess]:
    worker = GearMonkeyProcess(server, function, notes)
    try:
        yield worker
    finally:
        worker.kill()


def noted(notes: Path) -> Counter[bytes]:
    """What GearMonkey workers have run, and how often."""
    return Counter(notes.read_bytes().split()) if notes.exists() else Counter()


def queue_jobs(client: Any, function: str, payloads: list[bytes], priority: str = "normal") -> list[int]:
    """Do what a GearMonkey client does, for many jobs in one go."""
    last: int = client.incrby(f"uid:{function}", len(payloads))
    ids = list(range(last - len(payloads) + 1, last + 1))
    pipeline = client.pipeline(transaction=False)
    for job_id, payload in zip(ids, payloads, strict=True):
        pipeline.hset(f"job:{function}:{job_id}", mapping={"status": "idle", "input": payload})
        pipeline.publish(f"channel:{function}", f"create:{job_id}")
        pipeline.lpush(f"queue:{function}:{priority}", job_id)
    pipeline.execute()
    return ids


def statuses(client: Any, function: str, ids: list[int]) -> list[str]:
    pipeline = client.pipeline(transaction=False)
    for job_id in ids:
        pipeline.hget(f"job:{function}:{job_id}", "status")
    answers: list[str] = pipeline.execute()
    return answers


def outputs(client: Any, function: str, ids: list[int]) -> list[str]:
    pipeline = client.pipeline(transaction=False)
    for job_id in ids:
        pipeline.hget(f"job:{function}:{job_id}", "output")
    answers: list[str] = pipeline.execute()
    return answers


def all_end(client: Any, function: str, ids: list[int], within_seconds: float = 3 * DEADLINE_SECONDS) -> None:
    """Looks at a few at a time, to leave Redis to those who work."""
    left = list(ids)

    def none_is_left() -> bool:
        try:
            while left and all(status in FINAL for status in statuses(client, function, left[:LOOK_AT])):
                del left[:LOOK_AT]
        except redis.RedisError:
            return False
        return not left

    eventually(none_is_left, f"{len(ids)} jobs of {function} end", within_seconds)


def submit_all(server: Server, function: str, payloads: list[bytes]) -> list[str]:
    """The handles of background jobs of ours."""
    with Client(f"gearman://{HOST}:{server.port}") as client:
        return [client.submit(function, payload, background=True).handle for payload in payloads]


def payloads(count: int) -> list[bytes]:
    return [b"job%d" % number for number in range(count)]
