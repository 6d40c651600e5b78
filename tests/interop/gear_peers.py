"""PyPI's ``gear`` as test peers: a client and a worker that are stopped when the test is over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.peers import require_gear
from tests.support.servers import HOST, Server
from tests.support.waiting import DEADLINE_SECONDS, eventually

# gear has no types: its objects are Any.


@contextmanager
def gear_client(server: Server, name: str = "client") -> Iterator[Any]:
    with _connected(require_gear().Client(name), server) as client:
        yield client


@contextmanager
def gear_worker(server: Server, *functions: str, name: str = "worker") -> Iterator[Any]:
    """A worker that asks for a job only when the test calls ``getJob``."""
    with _connected(require_gear().Worker(name), server) as worker:
        for function in functions:
            worker.registerFunction(function)
        yield worker


@contextmanager
def gear_working(server: Server, handle: Callable[[Any], None], *functions: str) -> Iterator[None]:
    """A worker that asks for jobs in a thread of its own and gives them to ``handle``."""
    with gear_worker(server, *functions) as worker:
        thread = threading.Thread(target=_work, args=(worker, handle))
        thread.start()
        try:
            yield
        finally:
            worker.stopWaitingForJobs()
            worker.shutdown()
            thread.join(DEADLINE_SECONDS)


def new_job(function: str, payload: bytes = b"", unique: str | None = None) -> Any:
    return require_gear().Job(function, payload, unique=unique)


def wait_for_end(job: Any) -> Any:
    eventually(lambda: job.complete, f"{job} ends")
    return job


def admin_answer(client: Any, request: Any) -> bytes:
    client.getConnection().sendAdminRequest(request, timeout=DEADLINE_SECONDS)
    answer: bytes = request.response
    return answer


@contextmanager
def _connected(peer: Any, server: Server) -> Iterator[Any]:
    try:
        peer.addServer(HOST, server.port)
        peer.waitForServer(timeout=DEADLINE_SECONDS)
        yield peer
    finally:
        if peer.running:
            peer.shutdown()


def _work(worker: Any, handle: Callable[[Any], None]) -> None:
    while True:
        try:
            job = worker.getJob()
        except require_gear().InterruptedError:
            return
        handle(job)
