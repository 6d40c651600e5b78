"""The hub with jobs whose key outlives them, that are remembered for a time of their own, or end for another's sake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from switchgear.engine.engine import Engine, SubmitOptions
from switchgear.model import DONE, FAILED, NORMAL, SECOND_US, WAITING, Delivery, EdgePolicy, Job, UniqueScope
from switchgear.net.hub import Hub
from switchgear.storage.sqlite import SqliteStore
from switchgear.telemetry import Telemetry
from switchgear.testing import FakeClock, RecordingPeer, check_engine
from tests.engine.harness import state_of
from tests.net.harness import idle, in_turns, open_harness
from tests.support.reads import awaited

HOUR_US = 3600 * SECOND_US


@asynccontextmanager
async def hub_on(path: Path, clock: FakeClock) -> AsyncIterator[Hub]:
    """A server's hub with a real store."""
    store = SqliteStore(path, "normal")
    store.open()
    hub = Hub(Engine(), store, clock, Telemetry(asyncio.get_running_loop().time))
    await hub.load()
    try:
        yield hub
        check_engine(hub.engine)
    finally:
        await hub.close()
        await store.close()


def submit(hub: Hub, **options: object) -> Job:
    hub.begin_turn()
    given = SubmitOptions(**options)  # type: ignore[arg-type]
    return hub.engine.submit(b"mail", b"k", b"payload", NORMAL, Delivery.HANDLE, None, given)


def work(hub: Hub) -> None:
    """Let a worker do all there is."""
    worker = hub.engine.add_worker(RecordingPeer(), "test")
    hub.engine.can_do(worker, hub.engine.function_named(b"mail"))
    while (job := hub.engine.take(worker)) is not None:
        hub.engine.complete(worker, job.id, b"result")
    hub.engine.remove_worker(worker)


async def kept(hub: Hub) -> None:
    await hub.flush()
    hub.commits.start()
    await hub.flush()


def in_lives(*lives: Callable[[Hub], Awaitable[None]]) -> Callable[[Path], None]:
    """One server after another on the same file, an hour apart."""

    async def play(path: Path) -> None:
        clock = FakeClock()
        for life in lives:
            async with hub_on(path, clock) as hub:
                await life(hub)
                await kept(hub)
            clock.advance(3600)

    return lambda path: asyncio.run(play(path))


def test_a_key_outlives_its_job_and_its_server(tmp_path: Path) -> None:
    async def first(hub: Hub) -> None:
        submit(hub, unique_for_us=HOUR_US * 3 // 2)
        work(hub)

    async def second(hub: Hub) -> None:
        job = submit(hub)
        assert (job.id, state_of(job), job.result) == (1, DONE, b"")
        found = await awaited(hub.find_job(1))
        assert found is not None
        assert found.result == b"result"

    async def third(hub: Hub) -> None:
        assert submit(hub).id != 1

    in_lives(first, second, third)(tmp_path / "jobs.db")


def test_only_the_store_has_the_contents_of_a_job_that_holds_its_key(tmp_path: Path) -> None:
    async def life(hub: Hub) -> None:
        job = submit(hub, unique_for_us=HOUR_US)
        work(hub)
        await kept(hub)
        assert (job.payload, job.result) == (None, b"")
        found = await awaited(hub.find_job(job.id))
        assert found is not None
        assert (found.payload, found.result) == (b"payload", b"result")

    in_lives(life)(tmp_path / "jobs.db")


def test_edges_and_crash_limits_survive(tmp_path: Path) -> None:
    async def first(hub: Hub) -> None:
        job = submit(hub, crash_limit=5, unique_scope=UniqueScope.QUEUED, retention_us=7, key=b"tenant")
        options = SubmitOptions(predecessors=(job.id,), edges=bytes([EdgePolicy.FAIL]))
        hub.engine.submit(b"mail", b"", b"", NORMAL, Delivery.HANDLE, None, options)

    async def second(hub: Hub) -> None:
        first, second = hub.engine.jobs.values()
        assert (first.crash_limit, first.unique_scope, first.retention_us, first.key) == (5, 1, 7, b"tenant")
        assert (state_of(second), second.edges) == (WAITING, bytes([EdgePolicy.FAIL]))
        hub.begin_turn()
        hub.engine.cancel(first)
        assert state_of(second) is FAILED

    async def third(hub: Hub) -> None:
        found = await awaited(hub.find_job(2))
        assert found is not None
        assert (found.state, found.error) == (FAILED, b"job 1, which it waited for, was cancelled")

    in_lives(first, second, third)(tmp_path / "jobs.db")


@pytest.mark.parametrize("retention_us", [0, HOUR_US, 2 * HOUR_US])
def test_a_job_is_remembered_for_as_long_as_it_was_to_be(tmp_path: Path, retention_us: int) -> None:
    async def first(hub: Hub) -> None:
        submit(hub, retention_us=retention_us)
        work(hub)

    async def second(hub: Hub) -> None:
        now_us = hub.clock.now_us()
        await hub.store.drop_finished(
            now_us - 24 * HOUR_US, 1000, hub.engine.dependencies.unsuccessful_with_successors, now_us
        )
        assert ((await awaited(hub.find_job(1))) is None) is (retention_us <= HOUR_US)

    in_lives(first, second)(tmp_path / "jobs.db")


@in_turns
async def test_a_job_that_comes_too_late_ends_in_the_turn_after_its_submission() -> None:
    harness = await open_harness(durable=False)
    engine = harness.hub.engine
    harness.hub.begin_turn()
    first = engine.submit(b"f", b"", b"", NORMAL, Delivery.HANDLE)
    engine.cancel(first)
    options = SubmitOptions(predecessors=(first.id,), edges=bytes([EdgePolicy.FAIL]))
    job = engine.submit(b"f", b"", b"", NORMAL, Delivery.HANDLE, None, options)
    harness.hub._end_turn()
    assert state_of(job) is WAITING
    await idle()
    assert state_of(job) is FAILED


@in_turns
async def test_jobs_that_are_let_down_end_turn_by_turn_by_themselves() -> None:
    harness = await open_harness()
    harness.engine.transitions.failures_per_turn = 1
    harness.hub.begin_turn()
    first = last = harness.engine.submit(b"f", b"", b"", NORMAL, Delivery.HANDLE)
    for _ in range(4):
        options = SubmitOptions(predecessors=(last.id,), edges=bytes([EdgePolicy.FAIL]))
        last = harness.engine.submit(b"f", b"", b"", NORMAL, Delivery.HANDLE, None, options)
    harness.engine.cancel(first)
    assert state_of(last) is WAITING
    await idle()
    await idle()
    assert state_of(last) is FAILED
    check_engine(harness.engine)
