"""Finished jobs by their names, and the history by ids, wherever a job's end is on its way to the store."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import Refused, StorageError
from switchgear.model import DONE, NORMAL, Delivery, Job
from switchgear.net.hub import Hub
from switchgear.storage.base import JobQuery, Store
from switchgear.storage.memory import MemoryStore
from switchgear.storage.sqlite import SqliteStore
from tests.net.test_hub_find_job import commit, finish, with_hub
from tests.support.reads import awaited


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "jobs.db")


def submit(hub: Hub, name: bytes) -> Job:
    hub.begin_turn()
    return hub.engine.submit(b"f", b"", name, NORMAL, Delivery.HANDLE, None, SubmitOptions(name=name))


async def names_found(hub: Hub, *names: bytes, since_us: int = 0) -> dict[bytes, int]:
    found = await awaited(hub.find_named(frozenset(names), since_us))
    return {name: job.id for name, job in found.items()}


def test_a_finished_job_is_found_at_every_moment(store: Store) -> None:
    async def test(hub: Hub) -> None:
        job = submit(hub, b"a")
        assert await names_found(hub, b"a", b"b") == {}  # it is not finished
        finish(hub, job)
        assert await names_found(hub, b"a", b"b") == {b"a": job.id}  # in the very turn in which it ended
        await hub.flush()
        assert await names_found(hub, b"a", b"b") == {b"a": job.id}
        await commit(hub)
        assert await names_found(hub, b"a", b"b") == {b"a": job.id}
        assert (await awaited(hub.find_named(frozenset([b"a"]))))[b"a"].state is DONE

    with_hub(store, test)


@pytest.mark.parametrize("is_kept", [False, True])
def test_the_newest_of_a_name_is_found_and_only_if_none_is_unfinished(store: Store, is_kept: bool) -> None:
    async def test(hub: Hub) -> None:
        finish(hub, submit(hub, b"a"))
        await commit(hub)
        second = submit(hub, b"a")
        assert await names_found(hub, b"a") == {}
        finish(hub, second)
        if is_kept:
            await commit(hub)
        assert await names_found(hub, b"a") == {b"a": second.id}

    with_hub(store, test)


@pytest.mark.parametrize("is_kept", [False, True])
def test_only_jobs_created_since_are_found(store: Store, is_kept: bool) -> None:
    async def test(hub: Hub) -> None:
        job = submit(hub, b"a")
        finish(hub, job)
        if is_kept:
            await commit(hub)
        assert await names_found(hub, b"a", since_us=job.created_us) == {b"a": job.id}
        assert await names_found(hub, b"a", since_us=job.created_us + 1) == {}

    with_hub(store, test)


def test_the_history_is_given_from_an_id_downwards(store: Store) -> None:
    async def test(hub: Hub) -> None:
        for number in range(5):
            finish(hub, submit(hub, b"%d" % number))
        await commit(hub)
        assert [job.id for job in (await awaited(hub.find_kept(5, 3)))] == [4, 3, 2]
        assert [job.id for job in (await awaited(hub.find_kept(100, 2)))] == [5, 4]
        assert (await awaited(hub.find_kept(1, 10))) == []

    with_hub(store, test)


class Unreadable(SqliteStore):
    async def find(self, query: JobQuery) -> list[Job]:
        raise StorageError("the disk is gone")

    async def find_named(self, names: Collection[bytes], since_us: int = 0) -> dict[bytes, Job]:
        raise StorageError("the disk is gone")


def test_a_store_that_cannot_be_read_is_a_refusal(tmp_path: Path) -> None:
    async def test(hub: Hub) -> None:
        with pytest.raises(Refused, match="the disk is gone"):
            await awaited(hub.find_named(frozenset([b"a"])))
        with pytest.raises(Refused, match="the disk is gone"):
            (await awaited(hub.find_kept(1, 1)))

    with_hub(Unreadable(tmp_path / "jobs.db"), test)
