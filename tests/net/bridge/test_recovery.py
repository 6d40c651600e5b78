"""What a server that was started again finds of what it held before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from switchgear.model import DONE, NORMAL, Delivery
from switchgear.net.bridge.redis_connection import Command, RedisConnectionLost
from switchgear.net.bridge.scripts import SCRIPTS
from switchgear.storage.base import Store
from switchgear.storage.open import open_store
from tests.net.bridge.harness import bridged, in_loop, queue, soon
from tests.support.reads import awaited
from tests.support.redis_server import RedisServer, running_redis

CLAIMED = "switchgear:claimed:shout"
HOLDERS = "switchgear:holders:shout"
DURABLE_REDIS = ("--appendonly", "yes", "--appendfsync", "always")


def opened(location: Path) -> Store:
    return open_store(f"sqlite:{location / 'jobs.db'}", sync="normal")


@in_loop
async def test_a_job_that_was_claimed_is_run_by_the_next_server(
    server: RedisServer, store: Any, tmp_path: Path
) -> None:
    queue(store, "shout", b"hello")
    kept = opened(tmp_path)
    async with bridged(server, kept=kept) as harness:
        await harness.taken(harness.worker("shout"))
        before = store.hget(HOLDERS, 1)
        await soon(lambda: store.hget("job:shout:1", "status") == "busy", "it has begun")
    await kept.close()
    assert store.hget(HOLDERS, 1) == before, "it is held until the server is back, or its lease has passed"
    kept = opened(tmp_path)
    async with bridged(server, kept=kept) as harness:
        await soon(lambda: store.hget(HOLDERS, 1) not in (before, None), "the server holds it under its new name")
        worker = harness.worker("shout")
        job = await harness.taken(worker)
        assert (job.payload, job.attempts) == (b"hello", 2)
        harness.complete(worker, job, b"HELLO")
        await soon(lambda: store.hget("job:shout:1", "output") == "HELLO", "the result is written")
    await kept.close()


@in_loop
async def test_a_result_that_could_not_be_written_is_written_by_the_next_server(tmp_path: Path) -> None:
    with running_redis(*DURABLE_REDIS) as server, server.client() as store:
        queue(store, "shout", b"hello")
        kept = opened(tmp_path)
        async with bridged(server, kept=kept) as harness:
            worker = harness.worker("shout")
            job = await harness.taken(worker)
            server.kill()
            await soon(lambda: harness.telemetry.counts["bridge_lost"] == 1, "Redis is away")
            harness.complete(worker, job, b"HELLO")
        await kept.close()
        server.start()
        kept = opened(tmp_path)
        async with bridged(server, kept=kept) as harness:
            worker = harness.worker("shout")
            await soon(lambda: store.hget("job:shout:1", "output") == "HELLO", "the result is written")
            assert harness.take(worker) is None
            await soon(lambda: store.zcard(CLAIMED) == store.hlen(HOLDERS) == 0, "it is let go of")
        await kept.close()


@in_loop
async def test_a_job_that_ends_while_the_bridge_looks_for_it_is_not_forgotten(
    server: RedisServer, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(store, "shout", b"hello")
    kept = opened(tmp_path)
    async with bridged(server, kept=kept) as harness:
        await harness.taken(harness.worker("shout"))
        await soon(lambda: store.hget("job:shout:1", "status") == "busy", "it has begun")
    await kept.close()
    kept = opened(tmp_path)
    async with bridged(server, kept=kept) as harness:
        worker = harness.worker("shout")
        connection = harness.bridge._connection
        call_all = connection.call_all

        async def overtaken(commands: Sequence[Command]) -> list[Any]:
            answers = await call_all(commands)
            if commands[0][0] == "HGETALL":  # what is held was asked for, and before it is known the job is done
                job = harness.take(worker)
                assert job is not None
                harness.complete(worker, job, b"quick")
            return answers

        monkeypatch.setattr(connection, "call_all", overtaken)
        await soon(lambda: store.hget("job:shout:1", "output") == "quick", "the result is written")
        await soon(lambda: store.zcard(CLAIMED) == 0, "it is let go of")
    await kept.close()


@in_loop
async def test_a_claim_whose_answer_is_lost_is_found_when_the_line_is_there_again(
    server: RedisServer, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bridged(server) as harness:
        connection = harness.bridge._connection
        call_all = connection.call_all

        async def cut_off(commands: Sequence[Command]) -> list[Any]:
            answers = await call_all(commands)
            for command, answer in zip(commands, answers, strict=True):
                if command[1] is SCRIPTS.claim and answer:
                    monkeypatch.setattr(connection, "call_all", call_all)
                    raise RedisConnectionLost("cut off")
            return answers

        monkeypatch.setattr(connection, "call_all", cut_off)
        worker = harness.worker("shout")
        queue(store, "shout", b"x")
        assert (await harness.taken(worker)).payload == b"x"
        assert (harness.telemetry.counts["bridge_lost"], harness.telemetry.counts["bridge_recovered"]) == (1, 1)


@pytest.mark.parametrize("script", ["finish", "report", "count", "push", "withdraw", "fetch"])
def test_what_is_said_twice_because_an_answer_was_lost_does_no_harm(
    server: RedisServer, store: Any, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    @in_loop
    async def check() -> None:
        async with bridged(server, outbound="sing") as harness:
            connection = harness.bridge._connection
            call_all = connection.call_all

            async def cut_off(commands: Sequence[Command]) -> list[Any]:
                answers = await call_all(commands)
                if any(command[1] is getattr(SCRIPTS, script) for command in commands):
                    monkeypatch.setattr(connection, "call_all", call_all)
                    raise RedisConnectionLost("cut off")
                return answers

            monkeypatch.setattr(connection, "call_all", cut_off)
            worker = harness.worker("shout")
            queue(store, "shout", b"x")
            assert await harness.run(worker, 1) == [b"x"]
            await soon(lambda: store.hget("job:shout:1", "output") == "done", "the result is written")
            withdrawn, done = harness.submit("sing"), harness.submit("sing")
            await soon(lambda: store.llen("queue:sing:normal") == 2, "both are pushed")
            first, second = sorted(store.lrange("queue:sing:normal", 0, -1), key=int)
            harness.hub.begin_turn()
            harness.engine.cancel(withdrawn)
            await soon(lambda: store.lrange("queue:sing:normal", 0, -1) == [second], "one is withdrawn")
            store.hset(f"job:sing:{second}", mapping={"status": "success", "output": "sung"})
            await soon(lambda: done.state is DONE, "the other one is done")
            assert done.attempts == 1
            assert store.llen("lock:shout:1") == 1
            assert store.get("count:shout") == "1"
            await soon(lambda: not store.keys("switchgear:pushed:*"), "nothing is left")
            assert store.exists(f"job:sing:{first}") == store.zcard(CLAIMED) == 0
            await soon(
                lambda: harness.telemetry.counts["bridge_recovered"] == 1, "the connection was lost, and is back"
            )

    check()


@in_loop
async def test_a_job_that_somebody_else_has_by_now_is_not_run_again(
    server: RedisServer, store: Any, tmp_path: Path
) -> None:
    for data in (b"done elsewhere", b"held elsewhere", b"offered again"):
        queue(store, "shout", data)
    kept = opened(tmp_path)
    async with bridged(server, kept=kept) as harness:
        for _ in range(3):
            await harness.taken(harness.worker("shout"))
        await soon(lambda: store.hget("job:shout:3", "status") == "busy", "all have begun")
    await kept.close()
    store.hset("job:shout:1", mapping={"status": "success", "output": "theirs"})
    store.hdel(HOLDERS, "1", "3")
    store.zrem(CLAIMED, "1", "3")
    store.hset(HOLDERS, "2", "other normal")
    kept = opened(tmp_path)
    async with bridged(server, kept=kept) as harness:
        assert len(harness.engine.jobs) == 3
        await soon(lambda: not harness.engine.jobs, "none is ours")
        found = await awaited(harness.hub.find_named(frozenset([unique(store, 1)])))
        done = next(iter(found.values()))
        assert done.result == b"theirs"
        assert store.hgetall(HOLDERS) == {"2": "other normal"}
    await kept.close()


def unique(store: Any, job_id: int) -> bytes:
    return f"gearmonkey:{store.get('switchgear:redis')}:shout:{job_id}".encode()


@in_loop
async def test_a_second_claim_of_a_job_joins_the_first(server: RedisServer, store: Any) -> None:
    async with bridged(server) as harness:
        worker = harness.worker("shout")
        await soon(lambda: store.get("count:shout") == "1", "the server is counted")
        key = unique(store, 1)
        harness.hub.begin_turn()
        first = harness.engine.submit(b"shout", key, b"x", NORMAL, Delivery.HANDLE)
        queue(store, "shout", b"x")
        await soon(lambda: first.id in harness.bridge.inbound.by_job, "the claim is that job's")
        assert await harness.taken(worker) is first
        assert list(harness.engine.jobs) == [first.id]


@in_loop
async def test_what_others_took_over_while_the_line_was_lost_is_not_begun(
    server: RedisServer, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for data in (b"begun", b"waiting"):
        queue(store, "shout", data)
    async with bridged(server, lease=1) as harness:
        worker = harness.worker("shout")
        begun = await harness.taken(worker)
        await soon(lambda: store.zcard(CLAIMED) == 2, "the other one waits for a worker")
        await soon(lambda: len(harness.bridge.inbound.by_job) == 2, "and is in the engine")
        for job_id in ("1", "2"):
            store.hset(HOLDERS, job_id, "other normal")
            store.zadd(CLAIMED, {job_id: 9e15})

        async def lost(commands: Sequence[Command]) -> list[Any]:
            monkeypatch.undo()
            raise RedisConnectionLost("cut off")

        monkeypatch.setattr(harness.bridge._connection, "call_all", lost)
        await soon(lambda: harness.telemetry.counts["bridge_recovered"] == 1, "the connection is there again")
        assert list(harness.engine.jobs) == [begun.id]
        harness.complete(worker, begun, b"first")
        await soon(lambda: store.hget("job:shout:1", "output") == "first", "the first result counts")
        assert store.hgetall(HOLDERS) == {"2": "other normal"}
