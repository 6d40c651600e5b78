"""Jobs that one node stores for the owners of others, and functions that two nodes use for the first time at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import psycopg
import pytest

from switchgear.model import Function
from switchgear.partitions import partition_of
from switchgear.storage.postgres_partition_store import PartitionStore
from tests.storage.support import new_job, run
from tests.support.postgres import Cluster

pytestmark = pytest.mark.xdist_group("postgresql")

PARTITION = partition_of(b"resize")


@pytest.fixture
def url(postgres: Cluster) -> str:
    return postgres.new_url()


@asynccontextmanager
async def store_at(url: str, name: str) -> AsyncIterator[PartitionStore]:
    store = PartitionStore(url, name=name, lease_seconds=30.0)
    await store.prepare()
    await store.join("localhost:1")
    try:
        yield store
    finally:
        await store.close()


def with_stores(url: str, story: Callable[[PartitionStore, PartitionStore], Awaitable[None]]) -> None:
    """Run a story of two nodes, of which the second owns all partitions."""

    async def play() -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(store_at(url, "ada"))
            second = await stack.enter_async_context(store_at(url, "bob"))
            await second.claim(range(64))
            await story(first, second)

    run(play())


def function_rows(url: str) -> list[tuple[int, bytes]]:
    with psycopg.connect(url) as connection:
        return [(number, bytes(name)) for number, name in connection.execute("SELECT id, name FROM sg_function")]


def test_jobs_and_their_row_of_the_inbox_are_stored_together(url: str) -> None:
    async def story(entry: PartitionStore, owner: PartitionStore) -> None:
        jobs = [new_job(number, Function(b"resize")) for number in (7, 8)]
        entry.for_owners = {7, 8}
        entry.stage(jobs)
        await entry.commit()
        assert (await entry.look()).inbox == []
        [row] = (await owner.look()).inbox
        assert (row.partition, row.jobs) == (PARTITION, [7, 8])
        assert sorted(await owner.read_jobs(row.jobs)) == [7, 8]
        await owner.empty_inbox([row.id], {})
        assert (await owner.look()).inbox == []

    with_stores(url, story)


def test_jobs_of_another_partition_go_into_its_row(url: str) -> None:
    async def story(entry: PartitionStore, owner: PartitionStore) -> None:
        entry.for_owners = {7}
        entry.stage([new_job(7, Function(b"resize"))])
        await entry.commit()
        [row] = (await owner.look()).inbox
        await owner.empty_inbox([row.id], {(PARTITION + 1) % 64: [7]})
        [moved] = (await owner.look()).inbox
        assert (moved.partition, moved.jobs) == ((PARTITION + 1) % 64, [7])

    with_stores(url, story)


def test_a_later_change_of_such_a_job_needs_no_row(url: str) -> None:
    async def story(entry: PartitionStore, owner: PartitionStore) -> None:
        job = new_job(7, Function(b"resize"))
        for _ in range(2):
            entry.stage([job])
            await entry.commit()
            entry.for_owners = {7}
        assert (await owner.look()).inbox == []

    with_stores(url, story)


def test_a_function_that_two_nodes_use_first_at_once_has_one_id(url: str) -> None:
    async def story(first: PartitionStore, second: PartitionStore) -> None:
        first.stage([new_job(7, Function(b"resize")), new_job(9, Function(b"other"))])
        second.stage([new_job(8, Function(b"resize"))])
        await first.commit()
        await second.commit()
        second.stage([new_job(10, Function(b"resize"))])
        await second.commit()
        found = await second.read_jobs([7, 8, 9, 10])
        assert [found[number].function.name for number in (7, 8, 9, 10)] == [b"resize", b"resize", b"other", b"resize"]
        assert sorted(name for _, name in function_rows(url)) == [b"other", b"resize"]

    with_stores(url, story)
