"""The workers of the demo: a context manager for each protocol, with a worker in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final

from switchgear.cli import demo_resp
from switchgear.cli.demo_addresses import FUNCTION, SCHEME_OF, DemoAddresses

if TYPE_CHECKING:
    from switchgear.client import WorkerJob
    from switchgear.client.draft import DraftTask
    from switchgear.client.wmp import WmpJob

__all__ = ["WORKERS", "Do", "workers_at"]

STOP_SECONDS: Final = 2.0
STEAL_SECONDS: Final = 0.05

Do = Callable[[bytes], bytes]
"""The work on a payload."""


@contextmanager
def _beside(run: Callable[[], object], stop: Callable[[], object]) -> Iterator[None]:
    """Run a function in a thread, and stop it at the end of the context."""
    # A daemon: a server that is stopped in the middle of its demo does not wait for it.
    thread = threading.Thread(target=run, name="demo-worker", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join(STOP_SECONDS)


@contextmanager
def by_gearman(addresses: DemoAddresses, do: Do) -> Iterator[None]:
    from switchgear.client import Worker

    loop = asyncio.new_event_loop()

    async def handle(job: WorkerJob) -> bytes:
        return do(job.payload)

    worker = Worker(addresses.at("gearman"), {FUNCTION: handle}, slots=10)

    def live() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(worker.run())

    with _beside(live, lambda: loop.call_soon_threadsafe(worker.stop)):
        yield


@contextmanager
def by_draft(addresses: DemoAddresses, do: Do) -> Iterator[None]:
    from switchgear.client.draft import DraftTiming, DraftWorker

    def handle(task: DraftTask) -> bytes:
        return do(task.args)

    worker = DraftWorker(addresses.at("gearman"), {FUNCTION: handle}, timing=DraftTiming(sleep_threshold_seconds=0))
    with _beside(worker.run, worker.stop):
        yield


@contextmanager
def by_pingpong(addresses: DemoAddresses, do: Do) -> Iterator[None]:
    from switchgear.client import PingPongWorker

    worker = PingPongWorker(do, addresses.at("pingpong", "workers"), keys=addresses.keys)
    with _beside(lambda: worker.run(handle_signals=False), worker.stop):
        yield


@contextmanager
def by_wmp(addresses: DemoAddresses, do: Do) -> Iterator[None]:
    from switchgear.client import WmpWorker

    def handle(job: WmpJob) -> bytes:
        return do(job.payload)

    worker = WmpWorker(addresses.at("wmp"), {FUNCTION: handle}, keys=addresses.keys)
    with _beside(lambda: worker.run(handle_signals=False), worker.stop):
        yield


@contextmanager
def by_dwork(addresses: DemoAddresses, do: Do) -> Iterator[None]:
    from switchgear.client import DworkClient

    stopping = threading.Event()

    def live() -> None:
        with DworkClient(addresses.at("dwork"), location=FUNCTION, keys=addresses.keys) as client:
            while not stopping.is_set():
                for task in client.steal(1, STEAL_SECONDS):
                    do(task.name.encode(errors="surrogateescape"))
                    client.complete(task.name)
            client.exit()

    with _beside(live, stopping.set):
        yield


@contextmanager
def by_gearmonkey(addresses: DemoAddresses, do: Do) -> Iterator[None]:
    address = addresses.host("gearmonkey"), addresses.listeners["gearmonkey"].port

    def live() -> None:
        try:
            demo_resp.work(connection, do)
        except OSError:
            pass  # the connection was closed, which ends the worker

    with demo_resp.RespConnection(address, 2 * STOP_SECONDS) as connection, _beside(live, connection.close):
        yield


@contextmanager
def by_http(addresses: DemoAddresses, do: Do) -> Iterator[None]:
    import http.client

    connection = http.client.HTTPConnection(addresses.host("http"), addresses.listeners["http"].port)
    stopping = threading.Event()

    def ask(method: str, target: str, body: bytes = b"", attempt: str = "") -> tuple[http.client.HTTPResponse, bytes]:
        connection.request(method, target, body, {"Switchgear-Attempt": attempt} if attempt else {})
        answer = connection.getresponse()
        return answer, answer.read()

    def live() -> None:
        try:
            while not stopping.is_set():
                answer, payload = ask("POST", f"/v1/functions/{FUNCTION}/take?wait=1")
                if answer.status == 200:
                    job, attempt = answer.headers["Switchgear-Job"], answer.headers["Switchgear-Attempt"]
                    ask("PUT", f"/v1/jobs/{job}/result", do(payload), attempt)
        except (OSError, http.client.HTTPException):
            pass  # the server has stopped
        finally:
            connection.close()

    with _beside(live, stopping.set):
        yield


@contextmanager
def by_python(addresses: DemoAddresses, do: Do) -> Iterator[None]:
    from switchgear.app.app import App
    from switchgear.app.worker.background_worker import start_background
    from switchgear.app.worker.observer import AppWorkerObserver

    def work(payload: bytes) -> bytes:
        return do(payload)

    app = App(addresses.at("gearman"))
    app.task(name=FUNCTION)(work)
    worker = start_background(app, observer=AppWorkerObserver())
    try:
        yield
    finally:
        worker.stop(STOP_SECONDS)
        app.close()


WORKERS: Final[dict[str, Callable[[DemoAddresses, Do], AbstractContextManager[None]]]] = {
    "Gearman": by_gearman,
    "2005 draft": by_draft,
    "PING/PONG": by_pingpong,
    "WMP": by_wmp,
    "dwork": by_dwork,
    "GearMonkey": by_gearmonkey,
    "HTTP": by_http,
    "Python API": by_python,
}


def workers_at(addresses: DemoAddresses) -> list[str]:
    """The workers whose protocols the server speaks."""
    return [name for name in WORKERS if addresses.speaks(SCHEME_OF[name])]
