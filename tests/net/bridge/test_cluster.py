"""The bridge to a Redis Cluster."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from redis.cluster import RedisCluster
from redis.crc import key_slot
from redis.exceptions import RedisClusterException, RedisError

from switchgear.model import DONE, Job
from tests.net.bridge.harness import bridged, in_loop, queue, soon
from tests.support.redis_server import RedisServer, running_redis_cluster
from tests.support.servers import HOST


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[RedisServer]]:
    with running_redis_cluster() as servers:
        yield servers


def has(store: Any, function: str, field: str, value: str) -> bool:
    return bool(store.hget(f"job:{function}:1", field) == value)


def is_done(job: Job) -> bool:
    return job.state is DONE


def test_both_directions_work_on_a_cluster_if_the_names_have_hash_tags(cluster: list[RedisServer]) -> None:
    @in_loop
    async def check() -> None:
        async with bridged(cluster[0], outbound="{sing},{hum}") as harness:
            for function in ("{shout}", "{whisper}"):  # in different places
                worker = harness.worker(function)
                queue(store, function, b"in")
                assert await harness.run(worker, 1) == [b"in"]
                await soon(partial(has, store, function, "status", "success"), "it is told")
            for function in ("{sing}", "{hum}"):
                job = harness.submit(function, b"out")
                await soon(partial(has, store, function, "input", "out"), "it is pushed")
                store.hset(f"job:{function}:1", mapping={"status": "success", "output": "OUT"})
                await soon(partial(is_done, job), "it is done")
                assert job.result == b"OUT"

    store: Any = RedisCluster(host=HOST, port=cluster[0].port, decode_responses=True)
    try:
        check()
    finally:
        store.close()


def test_a_function_without_a_hash_tag_is_left_out_and_complained_of_once(cluster: list[RedisServer]) -> None:
    @in_loop
    async def check() -> None:
        async with bridged(cluster[0]) as harness:
            harness.worker("shout")
            tagged = harness.worker("{yell}")
            await soon(lambda: b"{yell}" in harness.bridge.inbound.served, "the other one is served")
            queue(store, "{yell}", b"x")
            assert await harness.run(tagged, 1) == [b"x"]
            assert b"shout" not in harness.bridge.inbound.served
            assert harness.telemetry.counts["bridge_function_skipped"] == 1

    store: Any = RedisCluster(host=HOST, port=cluster[0].port, decode_responses=True)
    try:
        check()
    finally:
        store.close()


def test_the_bridge_goes_on_when_the_node_that_it_was_given_fails_and_a_replica_takes_over() -> None:
    """Its URL names the very node that is lost, with the slots of the function."""
    function = "{b}shout"
    with running_redis_cluster(with_replica=True) as nodes:
        assert key_slot(function.encode()) < 16384 // 3, "the first node has it"
        store: Any = RedisCluster(host=HOST, port=nodes[1].port, decode_responses=True)

        @in_loop
        async def check() -> None:
            async with bridged(nodes[0], outbound="{b}sing") as harness:
                worker = harness.worker(function)
                queue(store, function, b"before")
                assert await harness.run(worker, 1) == [b"before"]
                await soon(partial(has, store, function, "status", "success"), "it is told")
                queue(store, function, b"held")
                held = await harness.taken(worker)
                await soon(lambda: store.hget(f"job:{function}:2", "status") == "busy", "its start is told")
                with nodes[0].client() as first:
                    assert first.wait(1, 10_000) == 1, "the replica has everything"
                nodes[0].kill()
                harness.complete(worker, held, b"HELD")
                await soon(partial(takes_writes, store, function), "the replica has taken over")
                await soon(lambda: store.hget(f"job:{function}:2", "output") == "HELD", "the result is told")
                queue(store, function, b"after")
                assert await harness.run(worker, 1) == [b"after"]
                await soon(lambda: store.hget(f"job:{function}:3", "status") == "success", "that is told, too")
                job = harness.submit("{b}sing", b"out")
                await soon(partial(has, store, "{b}sing", "input", "out"), "it is pushed")
                store.hset("job:{b}sing:1", mapping={"status": "success", "output": "OUT"})
                await soon(partial(is_done, job), "it is done")

        try:
            check()
        finally:
            store.close()


def takes_writes(store: Any, function: str) -> bool:
    try:
        return bool(store.set(f"probe:{function}", "x"))
    except (RedisError, RedisClusterException):
        return False
