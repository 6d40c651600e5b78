"""A worker beside a test, and something that hears what it does."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from switchgear.app.app import App
from switchgear.app.job import Job
from switchgear.app.server_locations import FixedLocation
from switchgear.app.worker.executor_choice import choose_executors
from switchgear.app.worker.observer import AppWorkerObserver
from switchgear.app.worker.worker import AppWorker, WorkerSettings
from switchgear.backoff import ReconnectBackoff
from switchgear.client.gearman.assigned_job import AssignedJob, Outcome
from tests.app.worker.tasks import make_app
from tests.client.background import url_of
from tests.support.servers import Server
from tests.support.waiting import DEADLINE_SECONDS, eventually

TARGET = "tests.app.worker.tasks:app"
QUICK = ReconnectBackoff(first_seconds=0.02, most_seconds=0.1)


class Recorder(AppWorkerObserver):
    """Keeps what it hears until somebody waits for it."""

    def __init__(self) -> None:
        self.heard: queue.Queue[tuple[str, Any]] = queue.Queue()

    def subscribed(self, server: str, pool: str, *, again: bool, extended: bool) -> None:
        self.heard.put(("subscribed again" if again else "subscribed", pool))

    def disconnected(self, server: str, pool: str, problem: str, retry_seconds: float) -> None:
        self.heard.put(("disconnected", problem))

    def refused(self, server: str, problem: str) -> None:
        self.heard.put(("refused", problem))

    def job_started(self, assignment: AssignedJob) -> None:
        self.heard.put(("started", assignment.handle))

    def job_ended(self, assignment: AssignedJob, outcome: Outcome, seconds: float) -> None:
        self.heard.put(("ended", type(outcome).__name__))

    def job_dropped(self, assignment: AssignedJob, reason: str, seconds: float) -> None:
        self.heard.put(("dropped", reason))

    def note(self, text: str, *, is_problem: bool = False) -> None:
        self.heard.put(("note", text))

    def until(self, event: str) -> Any:
        """Waits for this event, and skips what comes before it."""
        seen: list[tuple[str, Any]] = []
        while True:
            try:
                name, about = self.heard.get(timeout=DEADLINE_SECONDS)
            except queue.Empty:
                raise AssertionError(f"no {event} in {seen}") from None
            if name == event:
                return about
            seen.append((name, about))

    def all_so_far(self) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        with suppress(queue.Empty):
            while True:
                found.append(self.heard.get_nowait())
        return found


class AppWithWorker:
    """An app at a server, and a worker for it."""

    def __init__(self, app: App, worker: AppWorker, recorder: Recorder) -> None:
        self.app = app
        self.worker = worker
        self.recorder = recorder

    def submit(self, task: str, *args: Any, **options: Any) -> Job[Any]:
        return self.app.tasks[task].options(**options).submit(*args)

    def run(self, task: str, *args: Any) -> Any:
        return self.submit(task, *args).result(DEADLINE_SECONDS)


@contextmanager
def working(
    servers: Server | str | Sequence[Server],
    functions: str,
    *,
    slots: int | None = 2,
    processes: int | None = 1,
    app: App | None = None,
    **settings: Any,
) -> Iterator[AppWithWorker]:
    """A worker for these tasks, connected and ready; the app submits to the first server."""
    listed = [servers] if isinstance(servers, Server | str) else servers
    urls = [server if isinstance(server, str) else url_of(server) for server in listed]
    app = app or make_app(urls[0])
    recorder = Recorder()
    executor_choice = choose_executors(app.tasks, slots=slots, processes=processes, only=frozenset(functions.split()))
    worker = AppWorker(
        app,
        executor_choice,
        replace(WorkerSettings(backoff=QUICK, kill_after_seconds=0.05), **settings),
        recorder,
        locations=[FixedLocation(url) for url in urls],
        target=TARGET,
    )
    worker.start()
    try:
        eventually(lambda: worker.connected, "it is connected")
        yield AppWithWorker(app, worker, recorder)
    finally:
        worker.stop(0.0)
        assert worker.wait(DEADLINE_SECONDS)
        app.close()


def lines(place: Path, word: str) -> int:
    """How often a task has noted this word."""
    file = place / word
    return len(file.read_text().splitlines()) if file.exists() else 0


def wait_for(place: Path, word: str, times: int = 1) -> None:
    eventually(lambda: lines(place, word) >= times, f"{word} {times} times")


class Proxy:
    """A line to a server that can be cut."""

    def __init__(self, server: Server) -> None:
        self._server = server.address
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"gearman://127.0.0.1:{self._door.getsockname()[1]}"
        self._lines: list[socket.socket] = []
        self._lock = threading.Lock()
        self.is_open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._door.accept()
                if not self.is_open:
                    near.close()
                    continue
                far = socket.create_connection(self._server)
                with self._lock:
                    self._lines += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Every line that there is now."""
        with self._lock:
            for line in self._lines:
                with suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)
                line.close()
            self._lines.clear()

    def close(self) -> None:
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self.cut()


@contextmanager
def proxy_to(server: Server) -> Iterator[Proxy]:
    proxy = Proxy(server)
    try:
        yield proxy
    finally:
        proxy.close()
