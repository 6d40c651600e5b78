"""The blocking and the asynchronous classes behind one face, so that tests are written once."""

from __future__ import annotations

import asyncio
import queue
import random
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Literal, Self, TypeVar

from switchgear.client import ServerAddress
from switchgear.client.draft import (
    AsyncDraftClient,
    AsyncDraftHandler,
    AsyncDraftWorker,
    DraftClient,
    DraftHandler,
    DraftResult,
    DraftStatus,
    DraftTask,
    DraftTiming,
    DraftWorker,
    DraftWorkerObserver,
    JobRecord,
    JobType,
)
from switchgear.client.draft.worker_flow import TaskValue
from switchgear.errors import ServerRefused
from tests.support.servers import Server
from tests.support.waiting import DEADLINE_SECONDS

T = TypeVar("T")
Kind = Literal["blocking", "asyncio"]
KINDS: tuple[Kind, ...] = ("blocking", "asyncio")


def url_of(server: Server) -> str:
    return f"gearman://{server.address[0]}:{server.address[1]}"


class EventLoopThread:
    """An event loop that others may give work to."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        self._stopped = asyncio.Event()
        await self._stopped.wait()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(lambda: self._stopped.set())
        self._thread.join(DEADLINE_SECONDS)


class AsyncFace:
    """An `AsyncDraftClient`, used as if it were blocking."""

    def __init__(self, urls: list[str], **options: Any) -> None:
        self._thread = EventLoopThread()
        self.client = self._do(self._make(urls, options))

    async def _make(self, urls: list[str], options: dict[str, Any]) -> AsyncDraftClient:
        return AsyncDraftClient(urls, **options)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.do(work)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._do(self.client.close())
        self._thread.close()

    @property
    def unfinished(self) -> list[JobRecord]:
        return self.client.unfinished

    def submit(self, name: str, args: bytes = b"", **options: Any) -> JobRecord:
        return self._do(self.client.submit(name, args, **options))

    def statuses(self, record: JobRecord, timeout_seconds: float | None = None) -> list[DraftStatus]:
        async def listed() -> list[DraftStatus]:
            return [status async for status in self.client.statuses(record, timeout_seconds)]

        return self._do(listed())

    def wait(
        self, record: JobRecord, timeout_seconds: float | None = None, *, poll_seconds: float = 0.02
    ) -> DraftResult:
        return self._do(self.client.wait(record, timeout_seconds, poll_seconds=poll_seconds))

    def status(self, record: JobRecord) -> DraftStatus:
        return self._do(self.client.status(record))

    def complete(self, record: JobRecord) -> DraftResult | None:
        return self._do(self.client.complete(record))

    def recreate(self, record: JobRecord) -> JobRecord:
        return self._do(self.client.recreate(record))

    def recreate_unfinished(self) -> list[tuple[JobRecord, JobRecord]]:
        return self._do(self.client.recreate_unfinished())


Face = DraftClient | AsyncFace


@contextmanager
def client_of(kind: Kind, *servers: Server) -> Iterator[Face]:
    """An application of either kind."""
    urls = [url_of(server) for server in servers]
    make = DraftClient if kind == "blocking" else AsyncFace
    with make(urls, timeout_seconds=DEADLINE_SECONDS, rng=random.Random(1)) as client:
        yield client


class Recorder(DraftWorkerObserver):
    """Keeps what it hears until somebody waits for it; from any thread."""

    def __init__(self) -> None:
        self.heard: queue.Queue[tuple[str, Any]] = queue.Queue()

    def connected(self, server: ServerAddress) -> None:
        self.heard.put(("connected", server.port))

    def disconnected(self, server: ServerAddress, problem: str, retry_seconds: float) -> None:
        self.heard.put(("disconnected", server.port))

    def refused(self, server: ServerAddress, error: ServerRefused) -> None:
        self.heard.put(("refused", error.code))

    def task_started(self, task: DraftTask) -> None:
        self.heard.put(("started", task.args))

    def task_ended(self, task: DraftTask, code: int, seconds: float) -> None:
        self.heard.put(("ended", code))

    def task_dropped(self, task: DraftTask) -> None:
        self.heard.put(("dropped", task.args))

    def sleeping(self) -> None:
        self.heard.put(("sleeping", None))

    def woken(self, server: ServerAddress | None) -> None:
        self.heard.put(("woken", server and server.port))

    def until(self, event: str) -> Any:
        """Waits for this event, and skips what comes before it."""
        while True:
            name, about = self.heard.get(timeout=DEADLINE_SECONDS)
            if name == event:
                return about


def asynchronous(handler: DraftHandler) -> AsyncDraftHandler:
    """The handler for an asynchronous worker, in a thread of its own because it may wait for the test."""

    async def handle(task: DraftTask) -> TaskValue:
        return await asyncio.to_thread(handler, task)

    return handle


@contextmanager
def working(
    kind: Kind,
    servers: list[Server],
    handlers: Mapping[str, DraftHandler],
    timing: DraftTiming | None = None,
    adapt: Callable[[DraftHandler], AsyncDraftHandler] = asynchronous,
) -> Iterator[Recorder]:
    """A worker of either kind in a thread of its own, connected to its servers."""
    recorder = Recorder()
    urls = [url_of(server) for server in servers]
    stoppers: queue.Queue[Callable[[], object]] = queue.Queue()

    def work_blocking() -> None:
        worker = DraftWorker(urls, handlers, timing=timing, observer=recorder)
        stoppers.put(worker.stop)
        worker.run()

    async def work_async() -> None:
        adapted = {name: adapt(handler) for name, handler in handlers.items()}
        worker = AsyncDraftWorker(urls, adapted, timing=timing, observer=recorder)
        loop = asyncio.get_running_loop()

        def stop() -> None:
            with suppress(RuntimeError):  # the worker has stopped by itself, and its loop is closed
                loop.call_soon_threadsafe(worker.stop)

        stoppers.put(stop)
        await worker.run()

    target = work_blocking if kind == "blocking" else lambda: asyncio.run(work_async())
    thread = threading.Thread(target=target)
    thread.start()
    stop = stoppers.get(timeout=DEADLINE_SECONDS)
    try:
        for _ in servers:
            recorder.until("connected")
        yield recorder
    finally:
        stop()
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()


def reverse(task: DraftTask) -> bytes:
    """A handler."""
    return task.args[::-1]


SYNC_WAIT, ASYNC_HANDLE, ASYNC_THROW_AWAY = JobType
