"""The bridge to a Redis Cluster."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from redis.cluster import RedisCluster

from switchgear.model import DONE, Job
from tests.net.bridge.house import bridged, in_loop, queue, soon
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
        async with bridged(cluster[0], outbound="{sing},{hum}") as house:
            for function in ("{shout}", "{whisper}"):  # in different places
                worker = house.worker(function)
                queue(store, function, b"in")
                assert await house.run(worker, 1) == [b"in"]
                await soon(partial(has, store, function, "status", "success"), "it is told")
            for function in ("{sing}", "{hum}"):
                job = house.submit(function, b"out")
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
        async with bridged(cluster[0]) as house:
            house.worker("shout")
            tagged = house.worker("{yell}")
            await soon(lambda: b"{yell}" in house.bridge.inbound.served, "the other one is served")
            queue(store, "{yell}", b"x")
            assert await house.run(tagged, 1) == [b"x"]
            assert b"shout" not in house.bridge.inbound.served
            assert house.telemetry.counts["bridge_function_skipped"] == 1

    store: Any = RedisCluster(host=HOST, port=cluster[0].port, decode_responses=True)
    try:
        check()
    finally:
        store.close()
