"""Workers that run beside a test, and something to hear what they do."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from switchgear.client import Handler, ServerAddress, Worker, WorkerJob, WorkerObserver
from switchgear.errors import ServerRefused
from tests.support.servers import Server
from tests.support.waiting import DEADLINE_SECONDS


def url_of(server: Server) -> str:
    return f"gearman://{server.address[0]}:{server.address[1]}"


class Recorder(WorkerObserver):
    """Keeps what it hears until somebody waits for it; from any thread."""

    def __init__(self) -> None:
        self.heard: queue.Queue[tuple[str, Any]] = queue.Queue()

    def connected(self, server: ServerAddress) -> None:
        self.heard.put(("connected", server.port))

    def disconnected(self, server: ServerAddress, problem: str, retry_seconds: float) -> None:
        self.heard.put(("disconnected", problem))

    def refused(self, server: ServerAddress, error: ServerRefused) -> None:
        self.heard.put(("refused", error.code))

    def job_started(self, job: WorkerJob) -> None:
        self.heard.put(("started", job.handle))

    def job_ended(self, job: WorkerJob, failure: str | None, seconds: float) -> None:
        self.heard.put(("ended", failure))

    def job_dropped(self, job: WorkerJob) -> None:
        self.heard.put(("dropped", job.handle))

    def until(self, event: str) -> Any:
        """Waits for this event, and skips what comes before it."""
        while True:
            name, about = self.heard.get(timeout=DEADLINE_SECONDS)
            if name == event:
                return about

    async def until_async(self, event: str) -> Any:
        return await asyncio.to_thread(self.until, event)


@contextmanager
def working(urls: str | list[str], handlers: Mapping[str, Handler], slots: int = 1) -> Iterator[Recorder]:
    """A worker in a thread of its own, connected to its servers."""
    recorder = Recorder()
    started: queue.Queue[tuple[asyncio.AbstractEventLoop, Worker]] = queue.Queue()

    async def work() -> None:
        worker = Worker(urls, handlers, slots, observer=recorder)
        started.put((asyncio.get_running_loop(), worker))
        await worker.run()

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    loop, worker = started.get(timeout=DEADLINE_SECONDS)
    try:
        for _ in [urls] if isinstance(urls, str) else urls:
            recorder.until("connected")
        yield recorder
    finally:
        loop.call_soon_threadsafe(worker.stop, 0.0)
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()


async def reverse(job: WorkerJob) -> bytes:
    """A handler."""
    return job.payload[::-1]
