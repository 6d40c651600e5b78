"""GearMonkey on a Redis Cluster: a function's queues have to be in one place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.cluster import RedisCluster
from redis.crc import key_slot

from switchgear.client.gearmonkey import (
    OPT_BLOCKING,
    OPT_ROLLCALL,
    AsyncGearMonkeyClient,
    GearMonkeyClient,
    GearMonkeyWorker,
)
from switchgear.errors import ServerRefused, ServerUnreachable
from tests.client.gearmonkey.harness import QUICK
from tests.support.redis_server import RedisServer, running_redis_cluster
from tests.support.threads import working_beside
from tests.support.waiting import DEADLINE_SECONDS, eventually

# Their tags belong to different nodes, as a test below makes sure.
NAMES = ["{a}upper", "{b}upper", "{c}upper"]


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[RedisServer]]:
    with running_redis_cluster() as servers:
        yield servers


@pytest.fixture
def cluster(nodes: list[RedisServer]) -> Iterator[RedisCluster]:
    connection = RedisCluster.from_url(nodes[0].url)
    yield connection
    connection.close()


def test_the_names_are_in_different_places(cluster: Any) -> None:
    assert len({cluster.get_node_from_key(name).port for name in NAMES}) == 3


@pytest.mark.parametrize("name", NAMES)
def test_a_function_with_a_hash_tag_works(cluster: RedisCluster, name: str) -> None:
    client = GearMonkeyClient(cluster)
    worker = GearMonkeyWorker(cluster, bytes.upper, timing=QUICK)
    worker.accept(name)
    client.run(name, b"due", "scheduled", scheduled=1)
    with working_beside(worker):
        eventually(lambda: cluster.get(f"count:{name}") == b"1", "the worker is counted")
        job_id = client.run(name, b"text", "high", OPT_BLOCKING | OPT_ROLLCALL, timeout=DEADLINE_SECONDS)
        client.wait(name, 1, timeout=DEADLINE_SECONDS)
    assert [client.get(name, each).output for each in (1, job_id)] == [b"DUE", b"TEXT"]
    assert cluster.get(f"count:{name}") == b"0"


def test_the_asyncio_client_works_too(nodes: list[RedisServer], cluster: RedisCluster) -> None:
    async def ask() -> bytes | None:
        async with AsyncRedisCluster.from_url(nodes[0].url) as own, AsyncGearMonkeyClient(own) as client:
            job_id = await client.run("{d}upper", b"text", options=OPT_BLOCKING, timeout=DEADLINE_SECONDS)
            with pytest.raises(ServerRefused, match="hash tag"):
                await client.run("upper", b"text")
            return (await client.get("{d}upper", job_id)).output

    worker = GearMonkeyWorker(cluster, bytes.upper, timing=QUICK)
    worker.accept("{d}upper")
    with working_beside(worker):
        assert asyncio.run(ask()) == b"TEXT"


def test_functions_that_share_a_tag_can_share_a_worker(cluster: RedisCluster) -> None:
    client = GearMonkeyClient(cluster)
    worker = GearMonkeyWorker(cluster, bytes.upper, timing=QUICK)
    for name in ("{media}resize", "{media}crop"):
        worker.accept(name)
    with working_beside(worker):
        for name in ("{media}resize", "{media}crop"):
            client.run(name, b"text", options=OPT_BLOCKING, timeout=DEADLINE_SECONDS)


@pytest.mark.parametrize("name", ["upper", "{}upper", "upper{", "}{a"])
def test_a_function_without_a_hash_tag_is_refused_with_advice(cluster: RedisCluster, name: str) -> None:
    advice = r"CROSSSLOT: the queues of .* on a Redis Cluster all functions of one worker need one hash tag"
    with pytest.raises(ServerRefused, match=advice):
        GearMonkeyClient(cluster).run(name, b"text")
    with pytest.raises(ServerRefused, match=advice):
        GearMonkeyWorker(cluster, bytes.upper).accept(name)


def test_functions_with_different_tags_cannot_share_a_worker(cluster: RedisCluster) -> None:
    worker = GearMonkeyWorker(cluster, bytes.upper)
    worker.accept(NAMES[0])
    with pytest.raises(ServerRefused, match=r"CROSSSLOT: the queues of '\{a\}upper', '\{b\}upper'"):
        worker.accept(NAMES[1])


def test_one_node_is_not_the_cluster(nodes: list[RedisServer]) -> None:
    refusals = []
    for node in nodes:
        try:
            GearMonkeyClient(node.url).run("{a}upper", b"text")
        except ServerRefused as refused:
            refusals.append((refused.code, "give redis.cluster.RedisCluster.from_url(URL)" in refused.text))
    assert refusals == [("MOVED", True)] * 2


def test_a_worker_that_takes_a_node_for_a_redis_is_told_what_to_do(nodes: list[RedisServer]) -> None:
    worker = GearMonkeyWorker(nodes[0].url, bytes.upper)
    worker.accept("x7")
    with pytest.raises(ServerRefused, match=r"^(CROSSSLOT: .* need one hash tag|MOVED: this Redis is part of)"):
        worker.run()


def test_client_and_worker_go_on_when_a_replica_takes_over() -> None:
    name = "{b}upper"
    with running_redis_cluster(with_replica=True) as nodes:
        assert key_slot(name.encode()) < 16384 // 3, "the first node has it"
        clusters = [RedisCluster.from_url(node.url) for node in (nodes[1], nodes[0])]
        client = GearMonkeyClient(clusters[0])
        worker = GearMonkeyWorker(clusters[1], bytes.upper, timing=QUICK)
        worker.accept(name)
        try:
            with working_beside(worker):
                client.run(name, b"before", options=OPT_BLOCKING, timeout=DEADLINE_SECONDS)
                with nodes[0].client() as first:
                    assert first.wait(1, 10_000) == 1, "the replica has everything"
                nodes[0].kill()
                job_id = eventually(lambda: run_or_none(client, name), "a job can be created", within_seconds=40)
                assert job_id is not None
                client.wait(name, job_id, timeout=DEADLINE_SECONDS)
                assert client.get(name, job_id).output == b"AFTER"
                assert client.get(name, 1).output == b"BEFORE"
        finally:
            for cluster in clusters:
                cluster.close()


def run_or_none(client: GearMonkeyClient, name: str) -> int | None:
    """The id of a new job; None while the cluster cannot take one."""
    try:
        return client.run(name, b"after")
    except (ServerUnreachable, ServerRefused):
        return None
