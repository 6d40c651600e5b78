"""A job by its number, wherever it is: with the engine, on its way to the store, or in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from switchgear.engine.engine import Engine
from switchgear.errors import Refused, StorageError
from switchgear.model import DONE, FINAL_STATES, NORMAL, READY, Delivery, Job, JobState, Peer
from switchgear.net.hub import Hub
from switchgear.net.operations.dispatcher import Operations
from switchgear.storage.base import Store
from switchgear.storage.memory import MemoryStore
from switchgear.storage.sqlite import SqliteStore
from switchgear.telemetry import Telemetry
from switchgear.testing import FakeClock
from switchgear.verbs.table import VERBS
from tests.support.reads import awaited


def with_hub(store: Store, test: Callable[[Hub], Awaitable[None]]) -> None:
    async def run() -> None:
        store.open()
        hub = Hub(Engine(), store, FakeClock(), Telemetry(lambda: 0.0))
        await hub.load()
        try:
            await test(hub)
        finally:
            await hub.close()
            await store.close()

    asyncio.run(run())


def submit(hub: Hub, delivery: Delivery) -> Job:
    hub.begin_turn()
    watcher = Peer() if delivery is Delivery.WAIT else None
    return hub.engine.submit(b"f", b"", b"x", NORMAL, delivery, watcher)


def finish(hub: Hub, job: Job) -> None:
    worker = hub.engine.add_worker(Peer(), "test")
    hub.engine.can_do(worker, job.function)
    assert hub.engine.take(worker) is job
    hub.engine.complete(worker, job.id, b"done")


async def commit(hub: Hub) -> None:
    hub.commits.start()
    await hub.flush()


def test_a_job_that_is_completed_without_a_run_is_shown_as_done(tmp_path: Path) -> None:
    """The store still has it as it was before."""

    async def test(hub: Hub) -> None:
        job = submit(hub, Delivery.HANDLE)
        await commit(hub)
        hub.begin_turn()
        arguments = {"handle": str(job.id), "result": b""}
        answer = await awaited(Operations(hub, "H:t:").answered_here(VERBS["complete"], arguments))
        assert answer["state"] == "done"

    with_hub(SqliteStore(tmp_path / "jobs.db"), test)


def test_without_a_durable_store_a_job_is_found_at_every_moment() -> None:
    async def test(hub: Hub) -> None:
        job = submit(hub, Delivery.HANDLE)
        assert (await awaited(hub.find_job(job.id))) is job
        finish(hub, job)
        assert (await awaited(hub.find_job(job.id))) is job  # in the very turn in which it ended
        await hub.flush()
        assert (await awaited(hub.find_job(job.id))) is job

    with_hub(MemoryStore(), test)


def test_a_kept_job_shows_its_end_when_that_is_kept(tmp_path: Path) -> None:
    async def test(hub: Hub) -> None:
        job = submit(hub, Delivery.HANDLE)
        await commit(hub)
        finish(hub, job)
        for _ in range(2):
            found = await awaited(hub.find_job(job.id))
            assert found is not None
            assert found.state is READY
            await hub.flush()  # the turn is over, and nothing is kept yet
        await commit(hub)
        found = await awaited(hub.find_job(job.id))
        assert found is not None
        assert (found.state, found.result) == (DONE, b"done")

    with_hub(SqliteStore(tmp_path / "jobs.db"), test)


def test_a_job_of_which_the_store_has_not_heard_is_found_on_its_way(tmp_path: Path) -> None:
    async def test(hub: Hub) -> None:
        job = submit(hub, Delivery.WAIT)
        await commit(hub)
        finish(hub, job)
        assert (await awaited(hub.find_job(job.id))) is job
        await hub.flush()
        assert (await awaited(hub.find_job(job.id))) is job
        await commit(hub)
        found = await awaited(hub.find_job(job.id))
        assert found is not None
        assert found is not job
        assert found.state in FINAL_STATES

    with_hub(SqliteStore(tmp_path / "jobs.db"), test)


def test_an_end_that_is_not_kept_yet_is_found_until_it_is(tmp_path: Path) -> None:
    async def test(hub: Hub) -> None:
        jobs = [submit(hub, Delivery.HANDLE) for _ in range(3)]
        await commit(hub)
        for job in jobs:
            assert hub.find_unkept_end(job.id) is None
            finish(hub, job)
            assert hub.find_unkept_end(job.id) is job
            await hub.flush()  # it is staged
            assert hub.find_unkept_end(job.id) is job
        hub.commits.start()
        assert [hub.find_unkept_end(job.id) for job in jobs] == jobs
        await hub.flush()
        assert [hub.find_unkept_end(job.id) for job in jobs] == [None] * 3

    with_hub(SqliteStore(tmp_path / "jobs.db"), test)


def test_states_of_many_are_found_wherever_the_jobs_are(tmp_path: Path) -> None:
    async def test(hub: Hub) -> None:
        jobs = [submit(hub, delivery) for delivery in (Delivery.HANDLE, Delivery.WAIT, Delivery.HANDLE)]
        await commit(hub)
        finish(hub, jobs[0])
        await commit(hub)
        finish(hub, jobs[1])  # of which the store has not heard
        assert (await awaited(hub.find_states([1, 2, 3, 0, 4, -1, 10**30]))) == {1: DONE, 2: DONE, 3: READY}

    with_hub(SqliteStore(tmp_path / "jobs.db"), test)


@pytest.mark.parametrize("job_id", [-1, 0, 2, 10**30])
def test_a_number_that_was_never_given_is_not_looked_for(job_id: int) -> None:
    class Deaf(MemoryStore):
        async def read_jobs(self, job_ids: Sequence[int]) -> dict[int, Job]:
            raise AssertionError("the store was asked")

    async def test(hub: Hub) -> None:
        submit(hub, Delivery.HANDLE)
        assert (await awaited(hub.find_job(job_id))) is None

    with_hub(Deaf(), test)


def test_a_log_that_cannot_be_read_is_a_refusal() -> None:
    class Broken(MemoryStore):
        async def read_jobs(self, job_ids: Sequence[int]) -> dict[int, Job]:
            raise StorageError("unreadable")

        async def read_states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
            raise StorageError("unreadable")

    async def test(hub: Hub) -> None:
        job = submit(hub, Delivery.HANDLE)
        finish(hub, job)
        with pytest.raises(Refused, match="unreadable"):
            (await awaited(hub.find_job(job.id)))
        with pytest.raises(Refused, match="unreadable"):
            (await awaited(hub.find_states([job.id])))

    with_hub(Broken(), test)
