"""Apps with a stock gearmand: what it can do works, and what it cannot is said."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from switchgear import App, ExtensionRequired, TaskFailed
from tests.app.harness import hand_worker, url_of, working
from tests.support.servers import Server
from tests.support.waiting import DEADLINE_SECONDS

pytestmark = [pytest.mark.system, pytest.mark.interop]

WAIT = DEADLINE_SECONDS


@pytest.fixture
def plain(plain_server: Server) -> Iterator[App]:
    with App(url_of(plain_server)) as app:
        yield app


def test_results_and_failures_come_back(plain: App) -> None:
    @plain.task
    def halve(number: int) -> float:
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number / 2

    with working(plain):
        assert halve.submit(4).result(WAIT) == 2.0
        with pytest.raises(TaskFailed, match="ValueError: 3 is odd"):
            halve.submit(3).result(WAIT)
        assert list(halve.map(range(0, 20, 2))) == [float(number) for number in range(10)]

        async def main() -> float:
            return await (await halve.submit_async(8))

        assert asyncio.run(main()) == 4.0


def test_priorities_and_unique_keys(plain: App, plain_server: Server) -> None:
    @plain.task(unique=lambda path: path)
    def index(path: str) -> str:
        return path

    low = index.options(priority="low").submit("low")
    high = index.options(priority="high").submit("high")
    twin = index.submit("high")
    assert twin.handle == high.handle
    with hand_worker(plain_server, index) as worker:
        handles = []
        for _ in range(2):
            handle, _ = worker.grab()
            handles.append(handle.decode())
            worker.complete(handle, b'"done"')
    assert handles == [high.handle, low.handle]
    assert [job.result(WAIT) for job in (low, high, twin)] == ["done"] * 3


def test_a_durable_job_is_for_the_background(plain: App, plain_server: Server) -> None:
    @plain.task(durable=True)
    def note(text: str) -> None: ...

    job = note.submit("a")
    with pytest.raises(ExtensionRequired, match="the result of a background job needs a Switchgear server"):
        job.result(WAIT)
    jobs = note.submit_many(["b", "c"])
    with hand_worker(plain_server, note) as worker:
        taken = [worker.grab() for _ in range(3)]
        for handle, _ in taken:
            worker.complete(handle, b"null")
    assert [handle.decode() for handle, _ in taken] == [job.handle, *jobs.handles]


def test_a_job_for_later(plain: App, plain_server: Server) -> None:
    @plain.task
    def note(text: str) -> None: ...

    job = note.options(at=time.time() - 10).submit("a")
    with hand_worker(plain_server, note) as worker:
        handle, payload = worker.grab()
        worker.complete(handle, b"null")
    assert (handle.decode(), payload) == (job.handle, b'{"text":"a"}')


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"retries": 3}, "retries need"),
        ({"expires": 60}, "expires needs"),
        ({"unique": True, "unique_policy": "reject"}, "unique_policy needs"),
        ({"key": "k"}, "key needs"),
        ({"retention": 5, "crash_limit": 1}, "crash_limit and retention need"),
        ({"delay": 60, "priority": "high"}, "a job for later of high priority needs"),
    ],
    ids=["retries", "expires", "unique policy", "key", "several", "later and high"],
)
def test_what_it_cannot_do(plain: App, plain_server: Server, options: dict[str, Any], what: str) -> None:
    @plain.task
    def note(text: str) -> None: ...

    with pytest.raises(ExtensionRequired) as caught:
        note.options(**options).submit("a")
    server = f"gearman://127.0.0.1:{plain_server.port}"
    assert str(caught.value) == f"{what} a Switchgear server; {server} is a plain Gearman server"


def test_what_it_cannot_be_asked(plain: App) -> None:
    @plain.task
    def note(text: str) -> None: ...

    job = note.submit("a")
    asks = (job.status, job.cancel, job.retry, job.explain, plain.functions, plain.workers, plain.server)
    for ask in (*asks, plain.job(job.handle).result, lambda: note.submit(job.as_argument)):  # type: ignore[arg-type]
        with pytest.raises(ExtensionRequired, match="is a plain Gearman server"):
            ask()
