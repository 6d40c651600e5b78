"""A line that is used for long, by many, and at bad moments: nobody waits for ever, and nothing piles up."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from switchgear import App, ArgumentError, ServerRefused, ServerUnreachable, Task
from switchgear.app import server_connection
from switchgear.app.chosen_values import short_key
from switchgear.app.server_locations import ServerLocation
from switchgear.client.address import ServerAddress
from switchgear.client.gearman.job_subscriber import JobSubscriber
from switchgear.client.gearman.subscriptions import JobSubscribers
from tests.app.harness import hand_worker, url_of
from tests.support.proxy import cuttable
from tests.support.servers import Server, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Kind

pytestmark = pytest.mark.system

WAIT = DEADLINE_SECONDS


def task_of(app: App, name: str, durable: bool | None = None) -> Task[[int], int]:
    def same(a: int, /) -> int:
        return a

    return app.task(name=name, durable=durable)(same)


@pytest.fixture
def other_thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


# --- nobody waits for ever ---


class BrokenPlace(ServerLocation):
    """As a place is that has a defect."""

    url = "broken:"

    def address(self) -> ServerAddress:
        raise KeyError("an oversight")


def test_a_defect_of_a_place_is_told_to_whoever_asked() -> None:
    with App("gearman://127.0.0.1:1", connect_seconds=0.1) as app:
        app.locations[:] = [BrokenPlace()]
        with pytest.raises(ServerUnreachable, match="broken:: 'an oversight'"):
            app.server()


def test_a_server_that_falls_silent_is_given_up(
    live_server: Server, other_thread: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_connection, "SILENCE_SECONDS", 0.2)
    with cuttable(live_server.port) as network, App(network.url, connect_seconds=0.2) as app:
        task = task_of(app, "silence")
        job = task.submit(1)
        network.hold_answers()
        with pytest.raises(ServerUnreachable, match="the job may have been taken or not"):
            other_thread.submit(task.submit, 2).result(WAIT)
        network.release_answers()
        app.cancel_all(task=task)
        assert job.wait(WAIT) == "cancelled"


def test_silence_is_no_matter_while_nothing_was_asked(live_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "SILENCE_SECONDS", 0.05)
    with cuttable(live_server.port) as network, App(network.url) as app:
        task = task_of(app, "quiet")
        job = task.submit(1)
        with pytest.raises(TimeoutError):
            job.result(0.3)
        assert network.connections_total == 1
        job.cancel()


def test_a_number_that_nobody_could_read_does_not_cost_the_connection(live_server: Server) -> None:
    with cuttable(live_server.port) as network, App(network.url) as app:
        task = task_of(app, "figures")
        job = task.submit(1)
        with hand_worker(live_server, task) as worker:
            handle, _ = worker.grab()
            worker.wire.send(Kind.WORK_STATUS, handle, b"9" * 5000, b"10")
            progress = next(iter(job.updates()))
            worker.complete(handle, b"7")
        assert (job.result(WAIT), progress.done, progress.total) == (7, 10**18 - 1, 10)
        assert network.connections_total == 1


def test_too_much_for_the_server_is_refused_without_harm_to_others() -> None:
    with running_switchgear("--set", "limits.packet_bytes=1MiB") as server, App(url_of(server)) as app:
        small = task_of(app, "small", durable=False)

        @app.task(name="large")
        def large(text: str) -> None: ...

        job = small.submit(1)
        text = r"the arguments take 1048587 bytes, and .* takes at most 1048576 \(limits.packet_bytes\); .* blob store"
        with pytest.raises(ServerRefused, match=text):
            large.submit("x" * 1024 * 1024)
        with hand_worker(server, small) as worker:
            worker.complete(worker.grab()[0], b"1")
        assert job.result(WAIT) == 1  # that it is not durable: a cut would have lost it


# --- nothing piles up ---


def test_an_app_that_is_thrown_away_takes_its_thread_with_it(live_server: Server) -> None:
    def lines() -> int:
        return sum(thread.name == "switchgear-line" for thread in threading.enumerate())

    before = lines()
    apps = [App(url_of(live_server)) for _ in range(3)]
    for app in apps:
        assert app.server().version
    assert lines() == before + 3
    del app
    apps.clear()
    gc.collect()
    eventually(lambda: lines() == before, "the threads have ended")


def test_waiting_again_and_again_leaves_nothing_behind(app: App) -> None:
    task = task_of(app, "patience")

    async def wait_often() -> None:
        job = await task.submit_async(1)
        for _ in range(100):
            with pytest.raises(TimeoutError):
                await job.result_async(0)
        follower = job._subscriber
        assert follower is not None
        assert len(follower.future._done_callbacks) == 0  # type: ignore[attr-defined]
        await job.cancel_async()

    asyncio.run(wait_often())


def test_an_audience_forgets_those_who_have_left() -> None:
    audience = JobSubscribers()
    stays = JobSubscriber()
    audience.add(stays, adds_copy=False)
    for _ in range(100):
        audience.add(JobSubscriber(), adds_copy=False)
    assert len(audience._members) < 20
    assert audience.members() == [stays]


def test_two_threads_that_use_an_app_first_share_its_transport(live_server: Server) -> None:
    with App(url_of(live_server)) as app, ThreadPoolExecutor(8) as threads:
        first_uses: list[None] = []
        app._lazy_transport._on_first_use = lambda: first_uses.append(None)  # type: ignore[method-assign]
        barrier = threading.Barrier(8)

        def use() -> object:
            barrier.wait()
            return app.transport

        assert (
            len({id(transport) for transport in [each.result() for each in [threads.submit(use) for _ in range(8)]]})
            == 1
        )
        assert len(first_uses) == 1


FORKS = """
import os, sys
from switchgear import App
app = App(sys.argv[1])
app.server()
child = os.fork()
if child == 0:
    sys.exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_that_only_was_forked_ends_in_peace(live_server: Server) -> None:
    """With the name of a host, which has to be looked up."""
    url = f"gearman://localhost:{live_server.port}"
    assert subprocess.run([sys.executable, "-c", FORKS, url], timeout=60, check=False).returncode == 0


# --- interrupted in the middle ---


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "asyncio"])
def test_what_was_on_its_way_when_the_arguments_failed_is_told(app: App, is_async: bool) -> None:
    task = task_of(app, f"interrupted {is_async}")

    def numbers() -> Iterator[Any]:
        yield from range(1200)
        yield "a word"

    submit: Callable[[], object]
    if is_async:
        submit = lambda: asyncio.run(task.submit_many_async(numbers()))  # noqa: E731 - one of two
    else:
        submit = lambda: task.submit_many(numbers())  # noqa: E731
    with pytest.raises(ArgumentError) as caught:
        submit()
    known = set(caught.value.submitted.handles)  # type: ignore[attr-defined]
    assert known == {info.handle for info in app.jobs(task=task, limit=None)}
    assert len(known) == 1000  # whole batches
    assert app.cancel_all(task=task)


def test_a_map_that_is_cancelled_while_it_submits_leaves_no_jobs(live_server: Server) -> None:
    with cuttable(live_server.port) as network, App(network.url) as distant, App(url_of(live_server)) as near:
        task = task_of(distant, "abandoned")
        distant.server()

        async def give_up() -> None:
            network.hold_answers()
            results = task.amap(range(10))
            first = asyncio.ensure_future(anext(results))
            await asyncio.to_thread(eventually, lambda: len(list(near.jobs(task="abandoned"))) == 10, "they are there")
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            network.release_answers()

        asyncio.run(give_up())
        eventually(
            lambda: {info.state for info in near.jobs(task="abandoned")} == {"cancelled"}, "all of them are cancelled"
        )


def test_a_map_that_is_interrupted_cancels_the_job_it_waits_for(app: App) -> None:
    task = task_of(app, "stopped map")

    async def give_up() -> None:
        first = asyncio.ensure_future(anext(task.amap(range(3))))
        await asyncio.to_thread(eventually, lambda: len(list(app.jobs(task=task))) == 3, "they are there")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(give_up())
    eventually(lambda: {info.state for info in app.jobs(task=task)} == {"cancelled"}, "all of them are cancelled")


# --- names and keys ---


def test_a_key_of_any_text(app: App) -> None:
    @app.task(name="odd keys", unique=lambda path: path)
    def read(path: str) -> None: ...

    odd = os.fsdecode(b"caf\xe9")
    with pytest.raises(ArgumentError):  # no JSON
        read.submit(odd)
    assert [len(short_key(text)) for text in (odd, "\ud800")] == [32, 32]


def test_a_name_that_no_server_could_be_told(app: App) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a task"):
        app.task(name="\ud800")(lambda: None)
