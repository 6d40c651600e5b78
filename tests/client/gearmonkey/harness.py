"""What tests of GearMonkey share: clients of both kinds with one face, workers beside the test, transcripts."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from switchgear.client import ReconnectBackoff
from switchgear.client.gearmonkey import (
    AsyncGearMonkeyClient,
    GearMonkeyClient,
    GearMonkeyJob,
    GearMonkeyWorker,
    WorkerTiming,
)
from switchgear.client.gearmonkey.commands import SCRIPT
from tests.support.redis_server import Overheard

T = TypeVar("T")

NOW = 1_700_000_000
SHA = "5231827cd49b540660ef44969b38cc858f157824"
LOAD = f"SCRIPT LOAD {SCRIPT.decode()}"
QUICK = WorkerTiming(block_seconds=0.05, backoff=ReconnectBackoff(first_seconds=0.02, most_seconds=0.05))


class Client(Protocol):
    """What both kinds of clients can do."""

    def run(
        self,
        fn: str,
        input: bytes | str = b"",
        prio: str = "normal",
        options: int = 0,
        timeout: float = 0,
        scheduled: float | None = None,
    ) -> int: ...

    def get(self, fn: str, job_id: int) -> GearMonkeyJob: ...

    def wait(self, fn: str, job_id: int, timeout: float = 0) -> None: ...

    def close(self) -> None: ...


class AsyncFace:
    """The client for asyncio, in an event loop of its own that runs while it is asked something."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncGearMonkeyClient(url)

    def _await(self, doing: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(doing)

    def run(
        self,
        fn: str,
        input: bytes | str = b"",
        prio: str = "normal",
        options: int = 0,
        timeout: float = 0,
        scheduled: float | None = None,
    ) -> int:
        return self._await(self._client.run(fn, input, prio, options, timeout, scheduled))

    def get(self, fn: str, job_id: int) -> GearMonkeyJob:
        return self._await(self._client.get(fn, job_id))

    def wait(self, fn: str, job_id: int, timeout: float = 0) -> None:
        self._await(self._client.wait(fn, job_id, timeout))

    def close(self) -> None:
        self._await(self._client.close())
        self._runner.close()


FACES: dict[str, Callable[[str], Client]] = {"blocking": GearMonkeyClient, "asyncio": AsyncFace}


def lines(transcript: str) -> list[str]:
    """The commands of a transcript; what stands behind two dashes is for the reader."""
    commands = (line.partition(" -- ")[0].strip() for line in textwrap.dedent(transcript).splitlines())
    return [command for command in commands if command]


def said_by_worker(overheard: Overheard) -> list[str]:
    """Everything after a worker's first words, which are the script."""
    commands = overheard.commands()
    return commands[commands.index(LOAD) + 1 :]


@contextmanager
def beside(doing: Callable[[], T]) -> Iterator[Future[T]]:
    """Something that takes its time, in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(doing)


def worker_for(
    url: str, work: Callable[[bytes], bytes | str | None], jobs_total: int = 1, timing: WorkerTiming | None = None
) -> GearMonkeyWorker:
    """A worker that stops after so many jobs, so that all it says is known beforehand; its clock stands at NOW."""
    left = [jobs_total]

    def counted(data: bytes) -> bytes | str | None:
        left[0] -= 1
        if not left[0]:
            worker.stop()
        return work(data)

    worker = GearMonkeyWorker(url, counted, timing=timing, now=lambda: NOW)
    return worker
