"""Worker classes of all protocols, blocking and asyncio: they run jobs, report failures, and stop alike.

The servers are those of this package, over real sockets; GearMonkey's is a real Redis as well.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from switchgear import (
    AsyncDworkWorker,
    AsyncGearMonkeyWorker,
    AsyncPingPongWorker,
    AsyncWmpWorker,
    DworkHub,
    DworkWorker,
    GearMonkeyServer,
    GearMonkeyWorker,
    JobFailed,
    PingPongBroker,
    WmpManager,
)
from switchgear.client.gearmonkey import OPT_BLOCKING, AsyncGearMonkeyClient, JobNotFinished
from switchgear.client.signals import STOP_SIGNALS
from switchgear.client.wmp import GiveBack, WmpJob
from switchgear.errors import JobCancelled, ServerUnreachable
from tests.support.redis_server import running_redis
from tests.support.servers import free_port
from tests.support.waiting import DEADLINE_SECONDS

ANY_WMP = "wmp://127.0.0.1:0"
ANY_PINGPONG = "pingpong://127.0.0.1:0?workers=0"
ANY_DWORK = "dwork://127.0.0.1:0"
ANY_GEARMONKEY = "gearmonkey://127.0.0.1:0"


async def shout(job: WmpJob) -> bytes:
    if job.payload == b"bad":
        raise ValueError("no such word")
    return job.payload.upper()


# --- WMP ---


def test_an_asyncio_wmp_worker_runs_several_jobs_at_once_and_reports_failures() -> None:
    async def play() -> None:
        together = asyncio.Barrier(3)

        async def meet(job: WmpJob) -> bytes:
            job.progress(1, 2)
            async with asyncio.timeout(DEADLINE_SECONDS):
                await together.wait()
            return b"met"

        async with (
            WmpManager(ANY_WMP) as manager,
            AsyncWmpWorker(manager.address, {"shout": shout, "meet": meet}, slots=3),
        ):
            jobs = [manager.submit("meet") for _ in range(3)]
            assert await asyncio.gather(*jobs) == [b"met"] * 3
            assert jobs[0].progress is not None
            with pytest.raises(JobFailed, match="ValueError: no such word"):
                await manager.submit("shout", b"bad")
            assert await manager.submit("shout", b"good") == b"GOOD"

    asyncio.run(play())


def test_a_job_of_an_asyncio_wmp_worker_is_cancelled_with_its_coroutine() -> None:
    async def play() -> None:
        started, ended = asyncio.Event(), asyncio.Event()

        async def wait(job: WmpJob) -> bytes:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return b""

        async with WmpManager(ANY_WMP) as manager, AsyncWmpWorker(manager.address, {"wait": wait, "shout": shout}):
            job = manager.submit("wait")
            await asyncio.wait_for(started.wait(), DEADLINE_SECONDS)
            job.cancel()
            with pytest.raises(JobCancelled):
                await job
            await asyncio.wait_for(ended.wait(), DEADLINE_SECONDS)
            assert await manager.submit("shout", b"free again") == b"FREE AGAIN"

    asyncio.run(play())


def test_an_asyncio_wmp_worker_gives_back_what_it_is_not_to_finish() -> None:
    async def play() -> None:
        started = asyncio.Event()
        calls = 0

        async def wait(job: WmpJob) -> bytes:
            nonlocal calls
            calls += 1
            started.set()
            if calls == 1:
                await asyncio.Event().wait()
            if calls == 2:
                raise GiveBack
            return b"done by another"

        async with WmpManager(ANY_WMP) as manager:
            job = manager.submit("wait", attempts_limit=1)
            worker = AsyncWmpWorker(manager.address, {"wait": wait})
            running = asyncio.create_task(worker.run())
            await asyncio.wait_for(started.wait(), DEADLINE_SECONDS)
            worker.stop(0.0)
            await asyncio.wait_for(running, DEADLINE_SECONDS)
            async with AsyncWmpWorker(manager.address, {"wait": wait}):
                assert await job == b"done by another"

    asyncio.run(play())


# --- PING/PONG ---


def test_an_asyncio_pingpong_worker_runs_jobs_and_a_failure_is_tried_again() -> None:
    async def play() -> None:
        calls: list[bytes] = []

        async def work(job: bytes) -> bytes:
            calls.append(job)
            await asyncio.sleep(0)
            if len(calls) == 1:
                raise ValueError("the first time")
            return job.upper()

        async with (
            PingPongBroker(ANY_PINGPONG) as broker,
            AsyncPingPongWorker(work, broker.workers_address),
        ):
            assert await broker.submit(b"one").result_async(DEADLINE_SECONDS) == b"ONE"
            assert calls == [b"one", b"one"]
            assert await broker.submit(b"two") == b"TWO"

    asyncio.run(play())


# --- GearMonkey ---


@contextmanager
def redis_or_ours(kind: str) -> Iterator[str]:
    if kind == "redis":
        with running_redis() as server:
            yield server.url
    else:
        with GearMonkeyServer(ANY_GEARMONKEY) as ours:
            yield ours.address


@pytest.mark.parametrize("kind", ["redis", "ours"])
def test_an_asyncio_gearmonkey_worker_runs_jobs_and_reports_failures(kind: str) -> None:
    async def play(url: str) -> None:
        async def work(data: bytes) -> bytes:
            if data == b"bad":
                raise ValueError("no such word")
            await worker.update(1, 2)
            assert worker.current is not None
            return data.upper()

        worker = AsyncGearMonkeyWorker(url, work)
        worker.accept("shout")
        async with AsyncGearMonkeyClient(url) as client, worker:
            done = await client.run("shout", b"hello", options=OPT_BLOCKING, timeout=DEADLINE_SECONDS)
            job = await client.get("shout", done)
            assert (job.status, job.output, job.dividend, job.divisor) == ("success", b"HELLO", 1, 2)
            failed = await client.run("shout", b"bad", options=OPT_BLOCKING, timeout=DEADLINE_SECONDS)
            job = await client.get("shout", failed)
            assert (job.status, job.output) == ("error", b"ValueError: no such word")
        async with AsyncGearMonkeyClient(url) as client:
            with pytest.raises(JobNotFinished):
                await client.run("shout", b"nobody", options=OPT_BLOCKING, timeout=0.1)

    with redis_or_ours(kind) as url:
        asyncio.run(play(url))


def test_an_asyncio_gearmonkey_worker_waits_for_a_redis_that_is_away() -> None:
    async def play() -> None:
        with running_redis("--appendonly", "yes", "--appendfsync", "always") as server:

            async def work(data: bytes) -> bytes:
                server.kill()
                server.start()
                return data.upper()

            worker = AsyncGearMonkeyWorker(server.url, work)
            worker.accept("shout")
            async with worker:
                async with AsyncGearMonkeyClient(server.url) as client:
                    await client.run("shout", b"hello")
                async with asyncio.timeout(DEADLINE_SECONDS):
                    while (await asyncio.to_thread(_output, server.url)) is None:  # noqa: ASYNC110 - Redis tells nobody
                        await asyncio.sleep(0.02)
            assert _output(server.url) == b"HELLO"

    asyncio.run(play())


def _output(url: str) -> bytes | None:
    import redis

    try:
        found: Any = redis.Redis.from_url(url).hget("job:shout:1", "output")
    except redis.RedisError:
        return None
    return found  # type: ignore[no-any-return]


# --- dwork ---


@asynccontextmanager
async def hub_with_tasks() -> AsyncIterator[DworkHub]:
    async with DworkHub(ANY_DWORK) as hub:
        await hub.submit("compile").handle_async()
        await hub.submit("link", after="compile").handle_async()
        yield hub


def test_an_asyncio_dwork_worker_ends_when_all_tasks_are_done() -> None:
    async def play() -> None:
        done: list[str] = []

        async def work(name: str) -> None:
            done.append(name)

        async with hub_with_tasks() as hub:
            await asyncio.wait_for(AsyncDworkWorker(work, hub.address).run(), DEADLINE_SECONDS)
            assert done == ["compile", "link"]

    asyncio.run(play())


def test_a_dwork_worker_reports_what_its_function_raises() -> None:
    threads: set[int] = set()

    def work(name: str) -> None:
        threads.add(threading.get_ident())
        if name == "bad":
            raise ValueError("no such task")

    with DworkHub(ANY_DWORK) as hub:
        good, bad = hub.submit("good"), hub.submit("bad")
        with DworkWorker(work, hub.address, waits_for_more=True):
            assert good.result(DEADLINE_SECONDS) == b""
            with pytest.raises(JobFailed, match="ValueError: no such task"):
                bad.result(DEADLINE_SECONDS)
            assert hub.submit("later").result(DEADLINE_SECONDS) == b""
        assert threading.get_ident() not in threads


def test_a_dwork_worker_gives_back_what_it_is_not_to_finish() -> None:
    async def play() -> None:
        started = asyncio.Event()

        async def wait(name: str) -> None:
            started.set()
            await asyncio.Event().wait()

        async def work(name: str) -> None:
            pass

        async with DworkHub(ANY_DWORK) as hub:
            job = hub.submit("task")
            worker = AsyncDworkWorker(wait, hub.address)
            running = asyncio.create_task(worker.run())
            await asyncio.wait_for(started.wait(), DEADLINE_SECONDS)
            worker.stop_at_once()
            await asyncio.wait_for(running, DEADLINE_SECONDS)
            async with AsyncDworkWorker(work, hub.address):
                assert await job.result_async(DEADLINE_SECONDS) == b""

    asyncio.run(play())


def test_a_dwork_worker_gives_up_a_server_that_is_not_there() -> None:
    worker = DworkWorker(print, f"dwork://127.0.0.1:{free_port()}", patience_seconds=0.2)
    with pytest.raises(ServerUnreachable):
        worker.run()


# --- all of them stop alike ---


# Each program says READY inside of its first job, and finishes it when it reads a line.
PROGRAMS = {
    "AsyncWmpWorker": """
        async def work(job):
            return (await hold()).encode()
        asyncio.run(AsyncWmpWorker(url, {"f": work}).run())
    """,
    "WmpWorker": """
        WmpWorker(url, {"f": lambda job: hold_blocking().encode()}).run()
    """,
    "AsyncPingPongWorker": """
        async def work(job):
            return (await hold()).encode()
        asyncio.run(AsyncPingPongWorker(work, url).run())
    """,
    "PingPongWorker": """
        PingPongWorker(lambda job: hold_blocking().encode(), url).run()
    """,
    "AsyncGearMonkeyWorker": """
        async def work(data):
            return await hold()
        worker = AsyncGearMonkeyWorker(url, work)
        worker.accept("f")
        asyncio.run(worker.run())
    """,
    "GearMonkeyWorker": """
        worker = GearMonkeyWorker(url, lambda data: hold_blocking())
        worker.accept("f")
        worker.run()
    """,
    "AsyncDworkWorker": """
        async def work(name):
            await hold()
        asyncio.run(AsyncDworkWorker(work, url, waits_for_more=True).run())
    """,
    "DworkWorker": """
        DworkWorker(lambda name: hold_blocking(), url, waits_for_more=True).run()
    """,
}

START = """
import asyncio, os, sys
from switchgear import *
url = sys.argv[1]
def hold_blocking():
    os.write(1, b"READY\\n")
    return os.read(0, 5).decode()
async def hold():
    return await asyncio.to_thread(hold_blocking)
"""


@contextmanager
def server_for(program: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A server for the workers of a program: their address, and a function that submits a job."""
    if "Wmp" in program:
        with WmpManager(ANY_WMP) as manager:
            yield manager.address, lambda: manager.submit("f", attempts_limit=1)
    elif "PingPong" in program:
        with PingPongBroker(ANY_PINGPONG) as broker:
            yield broker.workers_address, lambda: broker.submit(b"f", attempts_limit=1)
    elif "GearMonkey" in program:
        with GearMonkeyServer(ANY_GEARMONKEY) as server:
            yield server.address, lambda: server.submit("f", attempts_limit=1)
    else:
        with DworkHub(ANY_DWORK) as hub:
            yield hub.address, lambda: hub.submit("f")


@contextmanager
def running_program(program: str, url: str) -> Iterator[subprocess.Popen[bytes]]:
    source = START + textwrap.dedent(PROGRAMS[program])
    process = subprocess.Popen([sys.executable, "-c", source, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", STOP_SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_signal_lets_a_worker_finish_its_job_and_end(program: str, number: signal.Signals) -> None:
    with server_for(program) as (url, submit), running_program(program, url) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        job = submit()
        assert process.stdout.readline() == b"READY\n"
        os.kill(process.pid, number)
        later = submit()  # not for a worker that leaves
        process.stdin.write(b"fine\n")
        process.stdin.flush()
        assert job.result(2 * DEADLINE_SECONDS) in (b"fine\n", b"")
        assert process.wait(2 * DEADLINE_SECONDS) == 0
        assert "Dwork" in program or not later.is_done


def test_the_programs_are_all_worker_classes_of_the_library() -> None:
    import switchgear

    assert set(PROGRAMS) == {name for name in switchgear.__all__ if name.endswith("Worker")} - {"Worker"}
    assert GearMonkeyWorker.__doc__
