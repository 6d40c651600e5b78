"""Which node owns which partitions in PostgreSQL: claims, handing over, evicting, and what a fenced node cannot do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psycopg
import pytest

from switchgear.errors import Fenced, StorageError
from switchgear.model import Function
from switchgear.partitions import FREE, PARTITIONS, NodeLease, NodeWatch, preferred_node
from switchgear.postgresql import connection_parameters
from switchgear.storage.postgres import PostgresStore
from switchgear.storage.postgres_connection import PostgresConnection, PostgresRefusal
from switchgear.storage.postgres_partition_store import PartitionStore
from switchgear.storage.postgres_partitions import PostgresPartitions
from switchgear.storage.postgres_rows import bigint
from switchgear.storage.postgres_schema import MIGRATIONS, STATEMENTS, migrate
from switchgear.storage.postgres_writer import PostgresWriter, StagedRows
from switchgear.storage.sqlite_rows import job_row
from tests.storage.support import close, commit, new_job, run
from tests.storage.test_postgres import execute, opened
from tests.support.postgres import Cluster

pytestmark = pytest.mark.xdist_group("postgresql")

LEASE_SECONDS = 3.0


@pytest.fixture
def url(postgres: Cluster) -> str:
    url = postgres.new_url()
    migrate(connection_parameters(url, "store"), url)
    return url


@asynccontextmanager
async def node_at(url: str, name: str, lease_seconds: float = LEASE_SECONDS) -> AsyncIterator[PostgresPartitions]:
    connection = PostgresConnection(url, connection_parameters(url, "store"))
    await connection.open()
    try:
        node = PostgresPartitions(connection, url, lease_seconds, name)
        await node.join()
        yield node
    finally:
        connection.close()


def with_nodes(url: str, count: int, story: Callable[..., Awaitable[None]]) -> None:
    """Run a story of several nodes."""

    async def play() -> None:
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(node_at(url, f"node{number}")) for number in range(count)]
            await story(*nodes)

    run(play())


async def lease_of(node: PostgresPartitions, other: PostgresPartitions) -> NodeLease:
    return next(lease for lease in (await node.look()).nodes if lease.id == other.node_id)


def owners(url: str) -> list[int]:
    return [node for (node,) in execute(url, "SELECT node FROM sg_partition ORDER BY id")]


def test_at_first_all_partitions_are_free(url: str) -> None:
    async def story(ada: PostgresPartitions) -> None:
        view = await ada.look()
        assert [owner.node_id for owner in view.partitions] == [FREE] * PARTITIONS
        assert [(node.id, node.name, node.epoch, node.is_leaving) for node in view.nodes] == [
            (ada.node_id, "node0", 1, False)
        ]
        assert view.nodes[0].lease_seconds == LEASE_SECONDS
        assert view.overrides == {}

    with_nodes(url, 1, story)


def test_a_node_that_stands_by_is_not_one_that_could_own_partitions(url: str) -> None:
    execute(url, "INSERT INTO sg_node (id, name, address, version, is_owner, beat) VALUES (7, 'old', '', '', 0, 1)")

    async def story(ada: PostgresPartitions) -> None:
        assert [node.id for node in (await ada.look()).nodes] == [ada.node_id]

    with_nodes(url, 1, story)


def test_of_two_that_claim_the_same_each_partition_has_one(url: str) -> None:
    async def story(*nodes: PostgresPartitions) -> None:
        claims = await asyncio.gather(*(node.claim(range(PARTITIONS)) for node in nodes))
        assert sorted(number for claim in claims for number in claim) == list(range(PARTITIONS))
        for node, claim in zip(nodes, claims):
            assert node.owned == claim
            assert all(epoch == 1 for epoch in claim.values())

    with_nodes(url, 4, story)


def test_claims_of_random_sets_never_wait_for_each_other(url: str) -> None:
    """Locks are always taken in the same order."""

    async def trade(node: PostgresPartitions, step: int) -> None:
        for turn in range(15):
            numbers = [(number * step + turn) % PARTITIONS for number in range(20)]
            taken = await node.claim(reversed(numbers))
            await asyncio.sleep(0)
            await node.hand_over(list(taken))

    async def story(*nodes: PostgresPartitions) -> None:
        await asyncio.gather(*(trade(node, step) for node, step in zip(nodes, (1, 3, 5, 7))))

    with_nodes(url, 4, story)
    assert owners(url) == [FREE] * PARTITIONS


def test_a_partition_that_is_handed_over_has_a_new_epoch(url: str) -> None:
    async def story(ada: PostgresPartitions, bob: PostgresPartitions) -> None:
        assert await ada.claim([3, 4]) == {3: 1, 4: 1}
        assert await bob.claim([3]) == {}
        await ada.hand_over([3])
        assert ada.owned == {4: 1}
        assert await bob.claim([3]) == {3: 3}
        with pytest.raises(PostgresRefusal):
            await ada.hand_over([3, 4])
        assert ada.owned == {4: 1}

    with_nodes(url, 2, story)


def test_the_last_changes_and_the_end_of_ownership_are_one_transaction(url: str) -> None:
    async def story(ada: PostgresPartitions, bob: PostgresPartitions) -> None:
        await ada.claim([3])
        owned = (bigint(3), bigint(ada.node_id))
        change = (STATEMENTS["put_place"], (b"f", *owned, bigint(5)))
        broken = (STATEMENTS["put_place"], (b"g", *owned, bigint(5000)))
        with pytest.raises(PostgresRefusal):
            await ada.hand_over([3], [change, broken])
        view = await ada.look()
        assert (view.overrides, view.partitions[3].node_id) == ({}, ada.node_id)
        await ada.hand_over([3], [change])
        view = await bob.look()
        assert (view.overrides, view.partitions[3].node_id) == ({b"f": 5}, FREE)

    with_nodes(url, 2, story)


class TestADeadNode:
    def test_is_evicted_and_can_do_nothing_more(self, url: str) -> None:
        async def story(ada: PostgresPartitions, bob: PostgresPartitions) -> None:
            await bob.claim([1, 2, 3])
            assert await ada.evict(await lease_of(ada, bob))
            assert owners(url) == [FREE] * PARTITIONS
            attempts: list[Callable[[], Awaitable[object]]] = [
                bob.beat,
                bob.renew,
                lambda: bob.claim([5]),
                lambda: bob.hand_over([1]),
            ]
            for attempt in attempts:
                with pytest.raises(Fenced):
                    await attempt()
                assert bob.has_lapsed()
            assert await ada.claim([1]) == {1: 3}

        with_nodes(url, 2, story)

    def test_is_not_evicted_if_it_gave_a_sign_of_life_meanwhile(self, url: str) -> None:
        async def story(ada: PostgresPartitions, bob: PostgresPartitions) -> None:
            for sign in (bob.beat, bob.renew, lambda: bob.claim([1])):
                seen = await lease_of(ada, bob)
                await sign()
                assert not await ada.evict(seen)
            assert bob.owned == {1: 1}

        with_nodes(url, 2, story)

    def test_two_that_evict_each_other_do_not_wait_for_each_other(self, url: str) -> None:
        async def story(ada: PostgresPartitions, bob: PostgresPartitions) -> None:
            seen_ada, seen_bob = await lease_of(bob, ada), await lease_of(ada, bob)
            results = await asyncio.gather(ada.evict(seen_bob), bob.evict(seen_ada), return_exceptions=True)
            assert [type(result) for result in results if result is not True] == [Fenced]
            assert len((await ada.look()).nodes) == 1

        with_nodes(url, 2, story)

    def test_an_evicted_node_evicts_nobody(self, url: str) -> None:
        async def story(ada: PostgresPartitions, bob: PostgresPartitions, cleo: PostgresPartitions) -> None:
            seen = await lease_of(bob, cleo)
            assert await ada.evict(await lease_of(ada, bob))
            with pytest.raises(Fenced):
                await bob.evict(seen)
            assert len((await ada.look()).nodes) == 2

        with_nodes(url, 3, story)

    def test_frozen_in_the_middle_of_a_commit_its_session_is_ended(self, url: str) -> None:
        async def story(ada: PostgresPartitions, bob: PostgresPartitions) -> None:
            await bob.claim([1])
            seen = await lease_of(ada, bob)
            with psycopg.connect(url) as frozen:
                frozen.execute(b"UPDATE sg_node SET beat = beat + 1 WHERE id = %s", [bob.node_id])
                assert await ada.evict(seen)
                with pytest.raises(psycopg.OperationalError):
                    frozen.execute(b"SELECT 1")
            assert owners(url)[1] == FREE

        with_nodes(url, 2, story)

    def test_a_commit_of_its_own_that_was_left_behind_fails(self, url: str) -> None:
        """The connection was lost, and what was sent over it may still arrive."""

        async def story(ada: PostgresPartitions) -> None:
            left_behind = ada.fence()
            await ada.renew()
            with pytest.raises(PostgresRefusal, match="division by zero"):
                await ada._connection.run([left_behind])
            await ada.beat()

        with_nodes(url, 1, story)


def test_ids_of_nodes_are_never_the_same_and_later_ones_are_higher(url: str) -> None:
    async def story(*nodes: PostgresPartitions) -> None:
        firsts = await asyncio.gather(*(node.reserve_ids(100) for node in nodes for _ in range(5)))
        assert sorted(firsts) == list(range(1, 1501, 100))
        assert await nodes[0].reserve_ids(1) == 1501
        assert await nodes[1].evict(await lease_of(nodes[1], nodes[0]))
        with pytest.raises(Fenced):
            await nodes[0].reserve_ids(1)
        assert await nodes[1].reserve_ids(1) == 1502

    with_nodes(url, 3, story)


def test_one_server_cannot_own_everything_while_nodes_own_a_part(url: str) -> None:
    async def story(ada: PostgresPartitions) -> None:
        store = PostgresStore(url, lease_seconds=0.3)
        await store.prepare()
        with pytest.raises(StorageError, match="own a part of the jobs"):
            await store.lease.acquire()
        await ada.leave()
        await store.lease.acquire()
        with pytest.raises(StorageError, match="owns all jobs"):
            await ada.join()
        await store.close()

    with_nodes(url, 1, story)


def test_a_node_that_leaves_frees_what_it_has(url: str) -> None:
    async def story(ada: PostgresPartitions, bob: PostgresPartitions) -> None:
        await bob.claim([1, 2])
        await bob.announce_leaving()
        assert (await lease_of(ada, bob)).is_leaving
        await bob.leave()
        assert owners(url) == [FREE] * PARTITIONS
        assert [node.id for node in (await ada.look()).nodes] == [ada.node_id]
        await bob.leave()

    with_nodes(url, 2, story)


def test_the_owner_of_a_partition_places_its_functions(url: str) -> None:
    async def story(ada: PostgresPartitions, bob: PostgresPartitions) -> None:
        await ada.claim([3, 7])
        await bob.claim([9])
        await ada.place(b"resize", 3, 7, by_name=False)
        await ada.place(b"mail", 3, 7, by_name=False)
        await ada.place(b"resize", 7, 9, by_name=False)
        await ada.place(b"mail", 7, 3, by_name=True)
        assert (await ada.look()).overrides == {b"resize": 9}
        for by_name in (False, True):  # the partition that it leaves is another node's
            with pytest.raises(StorageError, match="does not own partition 9"):
                await ada.place(b"resize", 9, 3, by_name=by_name)
        assert (await bob.look()).overrides == {b"resize": 9}
        await bob.evict(await lease_of(bob, ada))
        with pytest.raises(Fenced):
            await ada.place(b"mail", 3, 7, by_name=False)
        assert (await bob.look()).overrides == {b"resize": 9}

    with_nodes(url, 2, story)


def test_commits_of_jobs_are_fenced_by_the_node(url: str) -> None:
    async def story(ada: PostgresPartitions, bob: PostgresPartitions) -> None:
        def staged(job_id: int) -> StagedRows:
            rows = StagedRows()
            job = new_job(job_id)
            job.revision = 1
            rows.new[job_id] = job_row(job, 1)
            return rows

        writer = PostgresWriter(bob._connection, bob)
        assert await writer.put(staged(1)) == []
        assert await ada.evict(await lease_of(ada, bob))
        with pytest.raises(Fenced):
            await writer.put(staged(2))

    with_nodes(url, 2, story)
    assert execute(url, "SELECT id FROM sg_job") == [(1,)]


def test_nodes_that_follow_their_plans_share_the_partitions(url: str) -> None:
    """Three join, one dies and one leaves; every partition gets to the node that it belongs to."""
    now_s = 0.0

    async def look(node: PostgresPartitions, watch: NodeWatch) -> None:
        view = await node.look()
        watch.look(view.nodes, now_s)
        plan = watch.plan(node.node_id, view.nodes, view.partitions, now_s)
        for dead in plan.evict:
            await node.evict(dead)
        if plan.claim:
            await node.claim(plan.claim)
        if plan.hand_over:
            await node.hand_over(plan.hand_over)

    async def story(*nodes: PostgresPartitions) -> None:
        nonlocal now_s
        live = {node: NodeWatch() for node in nodes[:1]}

        async def settle() -> None:
            nonlocal now_s
            for _ in range(30):
                now_s += LEASE_SECONDS / 4
                for node, watch in live.items():
                    await node.beat()
                    await look(node, watch)
            names = {node.name: node.node_id for node in live}
            assert owners(url) == [names[preferred_node(each, names)] for each in range(PARTITIONS)]

        for node in nodes[1:]:
            await node.leave()  # they join later
        await settle()
        for node in nodes[1:]:
            await node.join()
            live[node] = NodeWatch()
            await settle()
        del live[nodes[0]]  # it dies
        await settle()
        await nodes[1].announce_leaving()
        for _ in range(3):
            await look(nodes[1], live[nodes[1]])
        assert nodes[1].owned == {}
        del live[nodes[1]]
        await settle()
        for node in live:
            assert sorted(node.owned) == [each for each, owner in enumerate(owners(url)) if owner == node.node_id]

    with_nodes(url, 3, story)


def test_an_older_layout_is_migrated_while_other_servers_look_at_it(postgres: Cluster) -> None:
    url = postgres.new_url()
    first: dict[int, str] = {1: MIGRATIONS[1]}
    store: PostgresStore = opened(url, migrations=first)
    commit(store, [new_job(1)])
    execute(url, "INSERT INTO sg_node (id, name, address, version, is_owner, beat) VALUES (7, 'old', '', '', 0, 1)")
    close(store)
    parameters: dict[str, Any] = connection_parameters(url, "store")

    async def story() -> None:
        async def announce() -> None:
            for _ in range(50):
                await asyncio.to_thread(execute, url, "UPDATE sg_node SET beat = beat + 1")

        announcing = asyncio.create_task(announce())
        await asyncio.to_thread(migrate, parameters, url)
        await announcing

    run(story())
    assert execute(url, "SELECT count(*), max(epoch) FROM sg_partition") == [(PARTITIONS, 0)]
    assert execute(url, "SELECT epoch, lease_ms FROM sg_node") == [(0, 0)]
    store = opened(url)
    commit(store, [new_job(2)])
    close(store)


def test_nodes_that_use_a_new_function_at_the_same_time(url: str) -> None:
    """Each gives it an id, and the one that is stored first counts."""

    async def story() -> None:
        ada, bob = (PartitionStore(url, lease_seconds=LEASE_SECONDS, name=name) for name in ("ada", "bob"))
        for store in (ada, bob):
            await store.join("")
        ada.stage([new_job(1, Function(b"new"))])
        bob.stage([new_job(2, Function(b"new")), new_job(3, Function(b"another"))])
        await asyncio.gather(ada.commit(), bob.commit())
        bob.stage([new_job(4, Function(b"new"))])
        await bob.commit()
        found = await ada.read_jobs([1, 2, 3, 4])
        assert {number: job.function.name for number, job in found.items()} == {
            1: b"new",
            2: b"new",
            3: b"another",
            4: b"new",
        }
        for store in (ada, bob):
            await store.close()

    asyncio.run(story())


def test_a_node_that_has_read_the_id_of_a_new_function_before_it_stores_its_own(url: str) -> None:
    """What is staged already has the node's own id, whatever it has read meanwhile."""

    async def story() -> None:
        ada, bob = (PartitionStore(url, lease_seconds=LEASE_SECONDS, name=name) for name in ("ada", "bob"))
        for store in (ada, bob):
            await store.join("")
        ada.stage([new_job(1, Function(b"new"))])
        function = Function(b"new")
        function.paused = True
        bob.stage([new_job(2, function), new_job(3, Function(b"another"))], [function])
        await ada.commit()
        await bob.claim([1, 2])  # reads the functions
        function.paused = False
        bob.stage([new_job(4, function)], [function])
        await bob.commit()
        found = await ada.read_jobs([1, 2, 3, 4])
        assert {number: job.function.name for number, job in found.items()} == {
            1: b"new",
            2: b"new",
            3: b"another",
            4: b"new",
        }
        known: dict[bytes, Function] = {}
        await ada.load_functions(lambda name: name == b"new", lambda name: known.setdefault(name, Function(name)), 0)
        assert not known[b"new"].paused  # the settings that were staged last
        for store in (ada, bob):
            await store.close()

    asyncio.run(story())


def test_nodes_that_are_started_at_the_same_moment_on_an_empty_database(postgres: Cluster) -> None:
    """All of them join, although each wants to migrate the tables and ends sessions that keep it waiting."""
    url = postgres.new_url()

    async def story() -> None:
        stores = [PartitionStore(url, lease_seconds=LEASE_SECONDS, name=f"node{number}") for number in range(8)]
        assert await asyncio.gather(*(store.join("") for store in stores)) == [None] * 8
        assert {node.name for node in (await stores[0].look()).nodes} == {f"node{number}" for number in range(8)}
        for store in stores:
            await store.close()

    asyncio.run(story())
