"""GearMonkey clients' jobs, run by the workers of the engine."""

from __future__ import annotations

import time
from typing import Any

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.model import Job
from switchgear.net.bridge import inbound
from tests.net.bridge.harness import INPUT_BYTES, BridgeHarness, bridged, in_loop, queue, soon
from tests.net.harness import ScriptedStore
from tests.support.redis_server import RedisServer, overhearing, running_redis

CLAIMED = "switchgear:claimed:shout"
HOLDERS = "switchgear:holders:shout"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def nothing_is_held(store: Any) -> bool:
    return bool(store.zcard(CLAIMED) == 0 and store.hlen(HOLDERS) == 0)


@in_loop
async def test_a_job_is_run_and_told_of_in_the_order_of_the_document(server: RedisServer, store: Any) -> None:
    async with bridged(server) as harness:
        worker = harness.worker("shout")
        await soon(lambda: store.get("count:shout") == "1", "the server is counted")
        with overhearing(server, in_scripts=True) as overheard:
            queue(store, "shout", b"hello")
            job = await harness.taken(worker)
            assert job.payload == b"hello"
            await soon(lambda: store.hget("job:shout:1", "status") == "busy", "it has begun")
            harness.complete(worker, job, b"HELLO")
            await soon(lambda: store.hget("job:shout:1", "status") == "success", "it has ended")
            commands = overheard.commands()
        begun = commands.index("PUBLISH channel:shout start:1")
        assert commands[begun + 1] == "HMSET job:shout:1 status busy"
        ended = commands.index("HMSET job:shout:1 status success output HELLO")
        assert commands[ended + 1 : ended + 7] == [
            "EXPIRE job:shout:1 90000",
            "PUBLISH channel:shout finish:1",
            "LPUSH lock:shout:1 OK",
            "EXPIRE lock:shout:1 10",
            f"HDEL {HOLDERS} 1",
            f"ZREM {CLAIMED} 1",
        ]
        assert nothing_is_held(store)


@in_loop
async def test_a_job_brings_its_trace_context_if_it_is_valid(server: RedisServer, store: Any) -> None:
    async with bridged(server) as harness:
        worker = harness.worker("shout")
        for number, trace in ((1, TRACE), (2, "mine"), (3, "")):
            store.hset(f"job:shout:{number}", "traceparent", trace)
            assert queue(store, "shout") == number
            job = await harness.taken(worker)
            assert job.trace.decode() == (trace if trace == TRACE else "")


@in_loop
async def test_jobs_are_taken_in_the_order_of_a_gearmonkey_worker(server: RedisServer, store: Any) -> None:
    past, future = int(time.time()) - 10, int(time.time()) + 1000
    for priority in ("low", "normal", "high"):
        for number in (1, 2):
            queue(store, "shout", f"{priority}{number}".encode(), priority)
    queue(store, "shout", b"due", "scheduled", past)
    early = queue(store, "shout", b"early", "scheduled", future)
    async with bridged(server) as harness:
        taken = await harness.run(harness.worker("shout"), 7)
        assert taken == [b"due", b"high1", b"high2", b"normal1", b"normal2", b"low1", b"low2"]
        await soon(lambda: nothing_is_held(store), "all results are written")
        assert store.zrange("queue:shout:scheduled", 0, -1) == [str(early)]


@in_loop
async def test_a_scheduled_job_is_taken_when_its_time_has_come(server: RedisServer, store: Any) -> None:
    async with bridged(server) as harness:
        worker = harness.worker("shout")
        at = int(time.time()) + 1
        queue(store, "shout", b"later", "scheduled", at)
        job = await harness.taken(worker)
        assert job.payload == b"later"
        assert time.time() >= at


@in_loop
async def test_progress_reaches_the_client(server: RedisServer, store: Any) -> None:
    queue(store, "shout")
    async with bridged(server) as harness:
        worker = harness.worker("shout")
        job = await harness.taken(worker)
        harness.hub.begin_turn()
        harness.engine.progress(worker, job.id, 3, 7)
        await soon(
            lambda: store.hmget("job:shout:1", "status:dividend", "status:divisor") == ["3", "7"], "progress is told"
        )
        harness.complete(worker, job)


def fail_with_words(harness: BridgeHarness, worker: Any, job: Job) -> None:
    harness.engine.fail(worker, job.id, 1, b"no such file")


def fail_with_code(harness: BridgeHarness, worker: Any, job: Job) -> None:
    harness.engine.fail(worker, job.id, 7)


def fail_with_result(harness: BridgeHarness, worker: Any, job: Job) -> None:
    harness.engine.fail(worker, job.id, 1, None, b"half")


def cancel(harness: BridgeHarness, worker: Any, job: Job) -> None:
    harness.engine.cancel(job)


@pytest.mark.parametrize(
    ("end", "output"),
    [
        (fail_with_words, "no such file"),
        (fail_with_code, "failed with code 7"),
        (fail_with_result, "half"),
        (cancel, "cancelled"),
    ],
)
def test_a_job_that_does_not_succeed_ends_with_status_error(
    server: RedisServer, store: Any, end: Any, output: str
) -> None:
    @in_loop
    async def check() -> None:
        queue(store, "shout")
        async with bridged(server) as harness:
            worker = harness.worker("shout")
            job = await harness.taken(worker)
            harness.hub.begin_turn()
            end(harness, worker, job)
            await soon(lambda: store.hmget("job:shout:1", "status", "output") == ["error", output], "it has ended")
            await soon(lambda: nothing_is_held(store), "it is let go of")

    check()


@in_loop
async def test_parts_of_a_result_are_put_together(server: RedisServer, store: Any) -> None:
    queue(store, "shout")
    async with bridged(server) as harness:
        worker = harness.worker("shout")
        job = await harness.taken(worker)
        harness.hub.begin_turn()
        harness.engine.data(worker, job.id, b"one ")
        harness.engine.data(worker, job.id, b"two ")
        harness.complete(worker, job, b"three")
        await soon(lambda: store.hget("job:shout:1", "output") == "one two three", "it is written")


# --- counting ---


@in_loop
async def test_a_server_is_counted_once_while_it_has_workers(server: RedisServer, store: Any) -> None:
    async with bridged(server) as harness:
        workers = [harness.worker("shout"), harness.worker("shout")]
        await soon(lambda: store.get("count:shout") == "1", "the server is counted")
        for worker in workers:
            harness.leave(worker)
        await soon(lambda: store.get("count:shout") == "0", "the server is not counted any more")


@in_loop
async def test_a_server_that_stops_counts_itself_out(server: RedisServer, store: Any) -> None:
    async with bridged(server) as harness:
        harness.worker("shout")
        await soon(lambda: store.get("count:shout") == "1", "the server is counted")
    assert store.get("count:shout") == "0"


@in_loop
async def test_what_dead_servers_have_left_in_the_count_is_taken_back(server: RedisServer, store: Any) -> None:
    store.set("count:shout", 5)  # two GearMonkey workers, two dead servers, and one that is alive
    now_ms = int(time.time() * 1000)
    store.zadd("switchgear:counted:shout", {"dead": now_ms - 1, "dead too": now_ms - 5000, "alive": now_ms + 60_000})
    async with bridged(server) as harness:
        harness.worker("shout")
        await soon(lambda: store.zcard("switchgear:counted:shout") == 2, "the dead are seen")
        assert store.get("count:shout") == "4"


@in_loop
async def test_a_lost_count_comes_back(server: RedisServer, store: Any) -> None:
    async with bridged(server, lease=0.5) as harness:
        harness.worker("shout")
        await soon(lambda: store.get("count:shout") == "1", "the server is counted")
        store.delete("count:shout")
        await soon(lambda: store.get("count:shout") == "1", "it is counted again")


# --- claiming ---


@in_loop
async def test_no_more_is_claimed_than_the_workers_can_use_soon(server: RedisServer, store: Any) -> None:
    for _ in range(50):
        queue(store, "shout")
    async with bridged(server) as harness:
        worker = harness.worker("shout")
        await soon(lambda: store.zcard(CLAIMED), "something is claimed")
        assert store.zcard(CLAIMED) == 1
        await harness.taken(worker)
        await soon(lambda: store.zcard(CLAIMED) == 2, "one runs, and one waits")
        for _ in range(3):
            harness.bridge.inbound.tick()
        assert store.zcard(CLAIMED) == 2


@in_loop
async def test_only_the_named_functions_are_served(server: RedisServer, store: Any) -> None:
    async with bridged(server, functions="shout,whisper") as harness:
        harness.worker("sing")
        harness.worker("shout")
        await soon(lambda: store.get("count:shout") == "1", "shout is served")
        assert store.get("count:sing") is None


@in_loop
async def test_a_paused_function_is_left_alone(server: RedisServer, store: Any) -> None:
    async with bridged(server) as harness:
        worker = harness.worker("shout")
        function = harness.engine.functions[b"shout"]
        harness.engine.pause(function)
        await soon(lambda: store.get("count:shout") == "1", "the server is counted")
        queue(store, "shout")
        await soon(lambda: harness.bridge.inbound.served[b"shout"].is_wanted, "it has been looked for")
        assert store.llen("queue:shout:normal") == 1
        harness.engine.resume(function)
        await harness.taken(worker)


@in_loop
async def test_create_is_published_before_the_job_is_there(
    server: RedisServer, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbound, "POLL_SECONDS", 3600.0)
    async with bridged(server) as harness:
        worker = harness.worker("shout")
        await soon(lambda: store.get("count:shout") == "1", "the server is counted")
        await soon(lambda: store.pubsub_numsub("channel:shout")[0][1] == 1, "the bridge listens")
        store.hset("job:shout:1", mapping={"status": "idle", "input": "x"})
        store.publish("channel:shout", "create:1")
        await soon(lambda: harness.bridge.inbound.served[b"shout"].look_stage > 0, "the first look was too early")
        store.lpush("queue:shout:normal", 1)
        await harness.taken(worker)


@in_loop
async def test_an_id_that_is_queued_twice_is_run_once(server: RedisServer, store: Any) -> None:
    queue(store, "shout", b"first")
    store.lpush("queue:shout:normal", 1)
    queue(store, "shout", b"second")
    async with bridged(server) as harness:
        workers = [harness.worker("shout") for _ in range(3)]
        jobs = [await harness.taken(worker) for worker in workers[:2]]
        assert {job.payload for job in jobs} == {b"first", b"second"}
        assert harness.take(workers[2]) is None


@pytest.mark.parametrize("hash_of", [{}, {"status": "success", "input": "x"}, {"status": "error"}])
def test_an_id_without_a_job_to_be_done_is_dropped(server: RedisServer, store: Any, hash_of: dict[str, str]) -> None:
    @in_loop
    async def check() -> None:
        if hash_of:
            store.hset("job:shout:99", mapping=hash_of)
        store.lpush("queue:shout:normal", 99)
        queue(store, "shout", b"next")
        async with bridged(server) as harness:
            job = await harness.taken(harness.worker("shout"))
            assert job.payload == b"next"
            await soon(lambda: store.zrange(CLAIMED, 0, -1) == ["1"], "the other one is forgotten")
            assert store.hgetall("job:shout:99") == hash_of

    check()


@in_loop
async def test_something_else_in_the_place_of_a_job_holds_up_nobody(server: RedisServer, store: Any) -> None:
    store.set("job:shout:99", "not a hash")
    store.lpush("queue:shout:normal", 99)
    queue(store, "shout", b"next")
    async with bridged(server) as harness:
        job = await harness.taken(harness.worker("shout"))
        assert job.payload == b"next"
        await soon(lambda: store.zrange(CLAIMED, 0, -1) == ["1"], "the other one is forgotten")
        assert harness.telemetry.counts["bridge_refused"] == 1


@in_loop
async def test_an_input_that_is_too_long_is_an_error(server: RedisServer, store: Any) -> None:
    queue(store, "shout", b"x" * (INPUT_BYTES + 1))
    async with bridged(server) as harness:
        harness.worker("shout")
        await soon(lambda: store.hget("job:shout:1", "status") == "error", "it is refused")
        assert str(INPUT_BYTES) in store.hget("job:shout:1", "output")
        assert nothing_is_held(store)


@in_loop
async def test_what_the_engine_refuses_goes_back_to_its_queue(server: RedisServer, store: Any) -> None:
    async with bridged(server, settings=EngineSettings(jobs=1)) as harness:
        harness.submit("other")
        worker = harness.worker("shout")
        queue(store, "shout", b"x", "high")
        served = await soon(lambda: harness.bridge.inbound.served.get(b"shout"), "it is served")
        assert served is not None
        await soon(lambda: served.pause_until, "the engine has refused it")
        await soon(lambda: store.lrange("queue:shout:high", 0, -1) == ["1"], "it is back")
        assert nothing_is_held(store)
        harness.engine.settings.jobs = 0
        await harness.taken(worker)


# --- leases ---


@in_loop
async def test_a_job_whose_lease_has_passed_is_offered_again(server: RedisServer, store: Any) -> None:
    for priority in ("high", "scheduled"):
        job_id = queue(store, "shout", priority.encode(), priority)
        store.delete(f"queue:shout:{priority}")
        store.zadd(CLAIMED, {str(job_id): 1})
        store.hset(HOLDERS, str(job_id), f"dead {priority}")
    store.sadd("switchgear:functions", "shout")
    async with bridged(server) as harness:
        await soon(lambda: store.lrange("queue:shout:high", 0, -1) == ["1"], "it is in its queue again")
        assert store.zrange("queue:shout:scheduled", 0, -1) == ["2"]
        assert await harness.run(harness.worker("shout"), 2) == [b"scheduled", b"high"]


@in_loop
async def test_a_lease_is_renewed_as_long_as_the_job_runs(server: RedisServer, store: Any) -> None:
    queue(store, "shout")
    async with bridged(server, lease=0.5) as harness:
        worker = harness.worker("shout")
        job = await harness.taken(worker)
        first_end = store.zscore(CLAIMED, 1)
        await soon(lambda: store.zscore(CLAIMED, 1) > first_end + 1000, "it was renewed more than twice")
        assert store.llen("queue:shout:normal") == 0
        harness.complete(worker, job)
        await soon(lambda: store.hget("job:shout:1", "status") == "success", "it ends")


@in_loop
async def test_the_first_result_counts(server: RedisServer, store: Any) -> None:
    queue(store, "shout")
    async with bridged(server) as harness:
        worker = harness.worker("shout")
        job = await harness.taken(worker)
        await soon(lambda: store.hget("job:shout:1", "status") == "busy", "it has begun")
        store.hset("job:shout:1", mapping={"status": "success", "output": "first"})
        harness.complete(worker, job, b"second")
        await soon(lambda: nothing_is_held(store), "the server is done with it")
        assert store.hget("job:shout:1", "output") == "first"
        assert store.exists("lock:shout:1") == 0


@in_loop
async def test_a_result_that_comes_after_the_lease_ends_the_job_all_the_same(server: RedisServer, store: Any) -> None:
    queue(store, "shout")
    async with bridged(server) as harness:
        worker = harness.worker("shout")
        job = await harness.taken(worker)
        store.delete(CLAIMED, HOLDERS)
        store.rpush("queue:shout:normal", 1)  # somebody has offered it again
        harness.bridge.inbound.served[b"shout"].workers = 0  # and we do not take it ourselves
        harness.complete(worker, job, b"late")
        await soon(lambda: store.hget("job:shout:1", "status") == "success", "the result is written")
        assert store.llen("queue:shout:normal") == 0


@in_loop
async def test_jobs_that_nobody_can_do_any_more_are_given_back(server: RedisServer, store: Any) -> None:
    queue(store, "shout", b"x", "low")
    async with bridged(server, lease=0.3) as harness:
        worker = harness.worker("shout")
        await soon(lambda: store.zcard(CLAIMED) == 1, "it is claimed")
        harness.leave(worker)
        await soon(lambda: store.lrange("queue:shout:low", 0, -1) == ["1"], "it is back")
        await soon(lambda: not harness.engine.jobs, "the engine has forgotten it")
        assert store.hget("job:shout:1", "status") == "idle"


@in_loop
async def test_a_server_that_stops_gives_back_what_nobody_has_begun(server: RedisServer, store: Any) -> None:
    queue(store, "shout", b"x")
    async with bridged(server) as harness:
        harness.worker("shout")
        await soon(lambda: store.zcard(CLAIMED) == 1, "it is claimed")
    assert store.lrange("queue:shout:normal", 0, -1) == ["1"]
    assert nothing_is_held(store)


# --- keeping ---


@in_loop
async def test_nothing_is_told_before_it_is_kept(server: RedisServer, store: Any) -> None:
    kept = ScriptedStore()
    queue(store, "shout")
    async with bridged(server, kept=kept) as harness:
        kept.obedient = False
        try:
            worker = harness.worker("shout")
            job = await harness.taken(worker)
            await soon(lambda: kept.is_committing, "the job is being kept")
            assert store.hget("job:shout:1", "status") == "idle"
            kept.succeed_soon()
            await soon(lambda: store.hget("job:shout:1", "status") == "busy", "it is told that it has begun")
            harness.complete(worker, job, b"done")
            await soon(lambda: kept.is_committing, "the end is being kept")
            assert store.hget("job:shout:1", "status") == "busy"
        finally:
            kept.obedient = True
            if kept.is_committing:
                kept.succeed_soon()
        await soon(lambda: store.hget("job:shout:1", "status") == "success", "it is told that it has ended")


# --- Redis goes away ---


@in_loop
async def test_a_redis_that_has_lost_its_data_is_another_one() -> None:
    with running_redis() as server, server.client() as store:
        queue(store, "shout", b"lost")
        async with bridged(server) as harness:
            worker = harness.worker("shout")
            lost = await harness.taken(worker)
            server.kill()
            await soon(lambda: harness.telemetry.counts["bridge_lost"] == 1, "the bridge notices")
            server.start()
            await soon(lambda: harness.telemetry.counts["bridge_replaced"] == 1, "it is another one")
            queue(store, "shout", b"new")
            harness.complete(worker, lost, b"too late")
            assert await harness.run(worker, 1) == [b"new"]
            await soon(lambda: store.hget("job:shout:1", "output") == "done", "the new job has its own result")
            assert harness.telemetry.counts["bridge_recovered"] == 1


@in_loop
async def test_a_result_that_waits_is_not_written_to_another_redis() -> None:
    with running_redis() as server, server.client() as store:
        queue(store, "shout", b"lost")
        async with bridged(server) as harness:
            worker = harness.worker("shout")
            lost = await harness.taken(worker)
            server.kill()
            await soon(lambda: harness.telemetry.counts["bridge_lost"] == 1, "the bridge notices")
            harness.complete(worker, lost, b"too late")
            await soon(lambda: len(harness.bridge.shared.commands), "it waits for Redis")
            server.start()
            queue(store, "shout", b"new")
            assert await harness.run(worker, 1) == [b"new"]
            await soon(lambda: store.hget("job:shout:1", "status") == "success", "the new job has ended")
            assert store.hget("job:shout:1", "output") == "done"


@in_loop
async def test_a_redis_that_is_not_there_at_the_start_is_waited_for() -> None:
    with running_redis() as server:
        server.kill()
        async with bridged(server) as harness:
            worker = harness.worker("shout")
            await soon(lambda: harness.telemetry.counts["bridge_lost"] == 1, "the bridge notices")
            server.start()
            with server.client() as store:
                queue(store, "shout", b"x")
                assert await harness.run(worker, 1) == [b"x"]
                await soon(lambda: store.hget("job:shout:1", "status") == "success", "it ends")


@in_loop
async def test_scripts_that_redis_has_forgotten_are_loaded_again(server: RedisServer, store: Any) -> None:
    async with bridged(server) as harness:
        worker = harness.worker("shout")
        await soon(lambda: store.get("count:shout") == "1", "the server is counted")
        store.script_flush()
        queue(store, "shout", b"x")
        assert await harness.run(worker, 1) == [b"x"]
        await soon(lambda: store.hget("job:shout:1", "status") == "success", "it ends")
