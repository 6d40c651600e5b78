"""Workers as processes of their own, which do what a test tells them and can be killed.

    python -m tests.matrix.nursery SOCKET

One process has everything imported; each connection to its socket makes a child of it, which is one worker of this
package.  The connection carries lines of JSON: an `Order` first, then what the worker has to tell, and what the test
tells it to do with the job in hand.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Final

import msgspec

from switchgear import App, current_job
from switchgear.app.worker.background_worker import start_background
from switchgear.app.worker.worker import WorkerSettings
from switchgear.client import DraftWorker, DworkClient, GearMonkeyWorker, PingPongWorker, WmpWorker, Worker
from switchgear.client.draft import DraftTask, DraftTiming
from switchgear.client.gearman.worker import WorkerJob
from switchgear.client.gearmonkey import WorkerTiming
from switchgear.client.wmp import WmpJob, WmpTiming
from switchgear.errors import JobFailed
from tests.matrix.addresses import Addresses
from tests.support.http_client import HttpClient

__all__ = ["Order", "Said"]

Progress = Callable[[int, int], None]
LONGER_THAN_ANY_TEST_SECONDS: Final = 3600.0


class Order(msgspec.Struct):
    """What kind of worker is wanted, and where."""

    kind: str
    addresses: Addresses
    lease_seconds: float


class Said(msgspec.Struct):
    """Something that either side says.

    The worker: born (with its process id), job (with its payload), cancelled.
    The test: progress, complete, fail, stop.
    """

    word: str
    data: bytes = b""
    numbers: tuple[int, int] = (0, 0)


class Strings:
    """What the worker hangs on: the connection to its test."""

    def __init__(self, line: socket.socket, order: Order) -> None:
        self.order = order
        self.addresses = order.addresses
        self.function = order.addresses.function
        self.stop: Callable[[], object] = lambda: os._exit(0)
        self.stopping = threading.Event()
        self._line = line
        self._lock = threading.Lock()
        self._told: SimpleQueue[Said] = SimpleQueue()

    def say(self, word: str, data: bytes = b"", numbers: tuple[int, int] = (0, 0)) -> None:
        with self._lock:
            self._line.sendall(msgspec.json.encode(Said(word, data, numbers)) + b"\n")

    def listen(self, lines: Iterator[bytes]) -> None:
        """Until the test says stop, or is gone."""
        for line in lines:
            said = msgspec.json.decode(line, type=Said)
            if said.word == "stop":
                self.stopping.set()
                self.stop()
                self._told.put(
                    Said("fail", b"the worker was stopped")
                )  # should a job be in hand, as in a test that failed
                return
            self._told.put(said)
        os._exit(1)

    def do(self, payload: bytes, progress: Progress) -> bytes:
        """Do a job as the test says: returns its result, or raises its failure."""
        self.say("job", payload)
        while True:
            said = self._told.get()
            match said.word:
                case "progress":
                    progress(*said.numbers)
                case "complete":
                    return said.data
                case "fail":
                    raise JobFailed(said.data.decode(), said.data)

    @contextmanager
    def watching(self, wait_cancelled: Callable[[float], bool]) -> Iterator[None]:
        """Tell the test when the job is cancelled."""

        def watch() -> None:
            if wait_cancelled(LONGER_THAN_ANY_TEST_SECONDS):
                self.say("cancelled")

        threading.Thread(target=watch, daemon=True).start()
        yield


# --- one of each ---


def no_progress(numerator: int, denominator: int) -> None:
    raise NotImplementedError


def gearman(strings: Strings) -> None:
    async def live() -> None:
        loop = asyncio.get_running_loop()

        async def work(job: WorkerJob) -> bytes:
            def progress(numerator: int, denominator: int) -> None:
                loop.call_soon_threadsafe(job.progress, numerator, denominator)

            return await asyncio.to_thread(strings.do, job.payload, progress)

        worker = Worker(strings.addresses.gearman, {strings.function: work})
        strings.stop = lambda: loop.call_soon_threadsafe(worker.stop)
        if not strings.stopping.is_set():
            await worker.run()

    asyncio.run(live())


def draft(strings: Strings) -> None:
    def work(task: DraftTask) -> bytes | tuple[int, bytes]:
        return strings.do(task.args, task.progress)

    worker = DraftWorker(
        strings.addresses.gearman, {strings.function: work}, timing=DraftTiming(sleep_threshold_seconds=0)
    )
    strings.stop = worker.stop
    worker.run()


def pingpong(strings: Strings) -> None:
    worker = PingPongWorker(lambda job: strings.do(job, no_progress), strings.addresses.pingpong_workers)
    strings.stop = worker.stop
    worker.run()


def wmp(strings: Strings) -> None:
    def work(job: WmpJob) -> bytes:
        with strings.watching(job.cancelled.wait):
            return strings.do(job.payload, job.progress)

    timing = WmpTiming(lease_seconds=strings.order.lease_seconds or 10.0)
    worker = WmpWorker(strings.addresses.wmp, {strings.function: work}, timing=timing)
    strings.stop = worker.stop
    worker.run()


def dwork(strings: Strings) -> None:
    lease_seconds = strings.order.lease_seconds
    strings.stop = lambda: None
    with DworkClient(strings.addresses.dwork, location=f"worker {os.getpid()}") as client:
        while not strings.stopping.is_set():
            for task in client.steal(1, wait_seconds=0.1, lease_seconds=lease_seconds):
                try:
                    strings.do(task.name.encode(), no_progress)
                except JobFailed as failure:
                    client.complete(task.name, failure.error)
                else:
                    client.complete(task.name)
        client.exit()


def gearmonkey(strings: Strings) -> None:
    _gearmonkey(strings, strings.addresses.gearmonkey)


def redis(strings: Strings) -> None:
    _gearmonkey(strings, strings.addresses.redis)


def _gearmonkey(strings: Strings, url: str) -> None:
    def work(data: bytes) -> bytes:
        return strings.do(data, worker.update)

    worker = GearMonkeyWorker(url, work, timing=WorkerTiming(block_seconds=0.05))  # soon to be stopped
    worker.accept(strings.function)
    strings.stop = worker.stop
    worker.run()


def http(strings: Strings) -> None:
    strings.stop = lambda: None
    client, reporter = HttpClient(strings.addresses.http), HttpClient(strings.addresses.http)
    lease_seconds = strings.order.lease_seconds or 60.0

    while not strings.stopping.is_set():
        taken = client.call("POST", f"/v1/functions/{strings.function}/take?wait=1&lease={lease_seconds}")
        if taken.status == 204:
            continue
        job = f"/v1/jobs/{taken.headers['Switchgear-Job']}"
        attempt = {"Switchgear-Attempt": taken.headers["Switchgear-Attempt"]}

        def wait_cancelled(seconds: float, job: str = job, attempt: dict[str, str] = attempt) -> bool:
            for _ in range(round(seconds / 0.05)):
                answer = reporter.call("POST", f"{job}/progress", b"", attempt)
                if answer.status != 200 or answer.json["cancelled"]:
                    return answer.status == 200
                time.sleep(0.05)
            return False

        def progress(numerator: int, denominator: int, job: str = job, attempt: dict[str, str] = attempt) -> None:
            figures = {"numerator": numerator, "denominator": denominator}
            client.call("POST", f"{job}/progress", msgspec.json.encode(figures), attempt)

        with strings.watching(wait_cancelled):
            try:
                result = strings.do(taken.body, progress)
            except JobFailed as failure:
                client.call("POST", f"{job}/fail", msgspec.json.encode({"error": failure.error.decode()}), attempt)
            else:
                client.call("PUT", f"{job}/result", result, attempt)


def python(strings: Strings) -> None:
    run_app(strings, strings.addresses.gearman)


def python_http(strings: Strings) -> None:
    run_app(strings, strings.addresses.http)


def run_app(strings: Strings, url: str) -> None:
    app = App(url)

    def work(payload: bytes) -> bytes:
        job = current_job()
        with strings.watching(job.wait_cancelled):
            return strings.do(payload, job.progress)

    app.task(name=strings.function)(work)
    strings.stop = lambda: None
    with start_background(app, slots=1, settings=WorkerSettings(lease_seconds=strings.order.lease_seconds or 15.0)):
        strings.stopping.wait()


KINDS: Final[dict[str, Callable[[Strings], None]]] = {
    function.__name__: function
    for function in (gearman, draft, pingpong, wmp, dwork, gearmonkey, redis, http, python, python_http)
}


# --- the nursery ---


def be_a_worker(line: socket.socket) -> None:
    lines = iter(line.makefile("rb"))
    strings = Strings(line, msgspec.json.decode(next(lines), type=Order))
    strings.say("born", numbers=(os.getpid(), 0))
    threading.Thread(target=strings.listen, args=(lines,), daemon=True).start()
    KINDS[strings.order.kind](strings)


def main(path: str) -> None:
    """Make workers until whoever started us hangs up."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{path}.new")
        door.listen()
        os.rename(f"{path}.new", path)  # not there before somebody listens
        while True:
            readable, _, _ = select.select([door, sys.stdin], [], [])
            if sys.stdin in readable:
                return
            line, _ = door.accept()
            if os.fork():
                line.close()
                continue
            status = 1
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                door.close()
                be_a_worker(line)
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1])
