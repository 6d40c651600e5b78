"""Jobs of ours that nobody in the engine serves, run by GearMonkey workers."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.model import CANCELLED, DONE, FAILED, HIGH, LOW, NORMAL, READY, RUNNING, SECOND_US, URGENT, Job
from tests.net.bridge.harness import PREFIX, BridgeHarness, bridge_url, bridged, in_loop, queue, soon
from tests.support.redis_server import RedisServer, overhearing, running_redis

QUEUE = "queue:shout:normal"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def finish(store: Any, job_id: int, status: str = "success", output: str = "OUT", function: str = "shout") -> None:
    """Do what a GearMonkey worker does at the end."""
    store.hset(f"job:{function}:{job_id}", mapping={"status": status, "output": output})
    store.expire(f"job:{function}:{job_id}", 90000)
    store.publish(f"channel:{function}", f"finish:{job_id}")


def begin(store: Any, job_id: int) -> None:
    """Do what a GearMonkey worker does at the beginning."""
    assert store.rpop(QUEUE) == str(job_id)
    store.publish("channel:shout", f"start:{job_id}")
    store.hset(f"job:shout:{job_id}", mapping={"status": "busy"})


async def pushed(harness: BridgeHarness, store: Any, count: int = 1) -> None:
    await soon(lambda: len(harness.bridge.outbound.by_id) == count, f"{count} jobs are pushed")


@in_loop
async def test_a_job_is_pushed_as_the_document_says_and_its_result_fetched(server: RedisServer, store: Any) -> None:
    store.set("count:shout", 1)
    with overhearing(server, in_scripts=True) as overheard:
        async with bridged(server) as harness:
            job = harness.submit("shout", b"hello")
            await pushed(harness, store)
            origin = f"{PREFIX.decode()}{job.id}@{job.created_us}"
            commands = overheard.commands()
            at = commands.index(f"HMSET job:shout:1 status idle input hello origin {origin}")
            assert commands[at + 1 : at + 3] == ["PUBLISH channel:shout create:1", f"LPUSH {QUEUE} 1"]
            assert job.state is RUNNING
            begin(store, 1)
            finish(store, 1, output="HELLO")
            await soon(lambda: job.state is DONE, "the job is done")
            assert job.result == b"HELLO"
            await soon(lambda: not store.keys("switchgear:pushed:*"), "the mark is removed")


@in_loop
async def test_a_job_takes_its_trace_context_along(server: RedisServer, store: Any) -> None:
    async with bridged(server, outbound="shout") as harness:
        harness.submit("shout")
        traced = harness.submit("shout")
        traced.trace = TRACE.encode()
        await pushed(harness, store, 2)
        assert [store.hget(f"job:shout:{number}", "traceparent") for number in (1, 2)] == [None, TRACE]


@in_loop
async def test_an_error_is_a_failed_job(server: RedisServer, store: Any) -> None:
    async with bridged(server, outbound="shout") as harness:
        job = harness.submit("shout")
        await pushed(harness, store)
        begin(store, 1)
        finish(store, 1, "error", "ValueError: no")
        await soon(lambda: job.state is FAILED, "the job has failed")
        assert job.error == b"ValueError: no"


@in_loop
async def test_an_end_that_nobody_heard_of_is_seen_by_looking(server: RedisServer, store: Any) -> None:
    async with bridged(server, outbound="shout") as harness:
        job = harness.submit("shout")
        await pushed(harness, store)
        store.hset("job:shout:1", mapping={"status": "success", "output": "quiet"})
        await soon(lambda: job.state is DONE, "the job is done")


@in_loop
async def test_progress_is_passed_on(server: RedisServer, store: Any) -> None:
    async with bridged(server, outbound="shout", busy=1) as harness:
        job = harness.submit("shout")
        await pushed(harness, store)
        begin(store, 1)
        store.hset("job:shout:1", mapping={"status:dividend": 2, "status:divisor": 5})
        await soon(lambda: (job.numerator, job.denominator) == (2, 5), "progress is told")


@pytest.mark.parametrize(("priority", "key"), [(HIGH, "queue:shout:high"), (NORMAL, QUEUE), (LOW, "queue:shout:low")])
def test_each_priority_has_its_queue(server: RedisServer, store: Any, priority: int, key: str) -> None:
    @in_loop
    async def check() -> None:
        async with bridged(server, outbound="shout") as harness:
            harness.submit("shout", b"x", priority)
            await soon(lambda: store.lrange(key, 0, -1) == ["1"], "it is in its queue")

    check()


@in_loop
async def test_a_job_whose_time_has_come_goes_to_the_schedule(server: RedisServer, store: Any) -> None:
    async with bridged(server, outbound="shout") as harness:
        job = harness.submit("shout", b"x", URGENT)
        await soon(lambda: store.zrange("queue:shout:scheduled", 0, -1) == ["1"], "it is in the schedule")
        assert store.zscore("queue:shout:scheduled", 1) * SECOND_US <= harness.engine.now_us
        harness.hub.begin_turn()
        harness.engine.cancel(job)
        await soon(lambda: store.zcard("queue:shout:scheduled") == 0, "it is withdrawn")


# --- which functions ---


@pytest.mark.parametrize(
    ("count", "servers", "options", "expected"),
    [
        (1, 0, {}, True),
        (0, 0, {}, False),
        (2, 2, {}, False),  # bridges count themselves, but cannot do the job
        (3, 2, {}, True),
        (1, 0, {"outbound": "never"}, False),
        (0, 0, {"outbound": "shout"}, True),
        (1, 0, {"outbound": "sing"}, False),
    ],
)
def test_who_is_eligible(
    server: RedisServer, store: Any, count: int, servers: int, options: dict[str, Any], expected: bool
) -> None:
    @in_loop
    async def check() -> None:
        store.set("count:shout", count)
        for number in range(servers):
            store.zadd("switchgear:counted:shout", {f"server{number}": 9e15})
        store.set("count:always", 1)
        always: dict[str, Any] = {}
        if options.get("outbound", "never") != "never":
            always["outbound"] = f"always,{options['outbound']}"
        async with bridged(server, **(options | always)) as harness:
            job = harness.submit("shout")
            if options.get("outbound") == "never":
                await soon(lambda: harness.bridge.shared.is_connected, "the bridge works")
            else:
                harness.submit("always")
                await soon(lambda: store.llen("queue:always:normal") == 1, "all functions were looked at")
                if expected:
                    await soon(lambda: job.state is RUNNING, "the job is given to the bridge")
            assert (job.state is RUNNING) is expected

    check()


@in_loop
async def test_the_engines_own_workers_go_first(server: RedisServer, store: Any) -> None:
    async with bridged(server, outbound="shout,always") as harness:
        worker = harness.worker("shout")
        job = harness.submit("shout")
        harness.submit("always")
        await soon(lambda: store.llen("queue:always:normal") == 1, "all functions were looked at")
        assert harness.take(worker) is job


@in_loop
async def test_when_workers_come_to_the_engine_what_waits_in_redis_comes_back(server: RedisServer, store: Any) -> None:
    async with bridged(server, outbound="shout") as harness:
        begun, waiting = harness.submit("shout", b"1"), harness.submit("shout", b"2")
        await pushed(harness, store, 2)
        begin(store, 1)
        worker = harness.worker("shout")
        assert await harness.taken(worker) is waiting
        assert waiting.attempts == 1, "nothing was attempted in Redis"
        assert store.exists("job:shout:2") == store.llen(QUEUE) == 0
        assert begun.state is RUNNING
        finish(store, 1)
        await soon(lambda: begun.state is DONE, "what was begun ends where it was begun")


@in_loop
async def test_when_the_last_gearmonkey_worker_leaves_what_waits_comes_back(server: RedisServer, store: Any) -> None:
    store.set("count:shout", 1)
    async with bridged(server) as harness:
        job = harness.submit("shout")
        await pushed(harness, store)
        store.decr("count:shout")
        await soon(lambda: job.state is READY, "it waits for other workers")
        assert store.llen(QUEUE) == 0


@in_loop
async def test_a_job_that_was_left_in_redis_comes_back_when_the_engine_can_do_it(
    server: RedisServer, store: Any
) -> None:
    store.set("count:shout", 1)
    async with bridged(server) as harness:
        job = harness.submit("shout")
        await pushed(harness, store)
        store.rpop(QUEUE)  # so that it cannot be withdrawn when the GearMonkey worker leaves
        store.decr("count:shout")
        await soon(lambda: not harness.bridge.outbound.worker.order, "the function is left")
        store.rpush(QUEUE, 1)
        worker = harness.worker("shout")
        assert await harness.taken(worker) is job


@in_loop
async def test_a_server_that_stops_takes_back_what_nobody_has_begun(server: RedisServer, store: Any) -> None:
    async with bridged(server, outbound="shout") as harness:
        begun, waiting = harness.submit("shout", b"1"), harness.submit("shout", b"2")
        await pushed(harness, store, 2)
        begin(store, 1)
        harness.hub.begin_turn()
        harness.engine.drain()
        harness.bridge.stop_accepting()
        await soon(lambda: waiting.state is READY, "it waits for the next server")
        assert begun.state is RUNNING
    assert store.llen(QUEUE) == 0
    assert store.keys("switchgear:pushed:*") == [f"switchgear:pushed:shout:{PREFIX.decode()}1@{begun.created_us}"]


# --- trouble ---


@in_loop
async def test_a_cancelled_job_is_withdrawn(server: RedisServer, store: Any) -> None:
    async with bridged(server, outbound="shout", push=1) as harness:
        first, second = harness.submit("shout"), harness.submit("shout")
        await pushed(harness, store)
        harness.hub.begin_turn()
        harness.engine.cancel(first)
        assert first.state is CANCELLED
        await soon(lambda: store.lrange(QUEUE, 0, -1) == ["2"], "the other one has its location")
        assert store.exists("job:shout:1") == 0
        assert second.state is RUNNING


@in_loop
async def test_a_job_that_makes_no_progress_is_lost_and_pushed_again(server: RedisServer, store: Any) -> None:
    async with bridged(server, outbound="shout", busy=1) as harness:
        job = harness.submit("shout")
        await pushed(harness, store)
        begin(store, 1)
        await soon(lambda: store.lrange(QUEUE, 0, -1) == ["2"], "it is pushed under another id")
        assert job.attempts == 2
        assert store.hget("job:shout:1", "status") == "busy"
        begin(store, 2)
        finish(store, 1, output="too late")
        finish(store, 2, output="second")
        await soon(lambda: job.state is DONE, "it is done")
        assert job.result == b"second"


@in_loop
async def test_a_job_taken_by_a_worker_that_died_at_once_is_lost(server: RedisServer, store: Any) -> None:
    async with bridged(server, outbound="shout", busy=1) as harness:
        harness.submit("shout")
        await pushed(harness, store)
        assert store.rpop(QUEUE) == "1"  # and never says that it has begun
        await soon(lambda: store.lrange(QUEUE, 0, -1) == ["2"], "it is pushed again")


@in_loop
async def test_a_job_may_wait_longer_than_it_may_be_silent(server: RedisServer, store: Any) -> None:
    async with bridged(server, outbound="shout", busy=1) as harness:
        job = harness.submit("shout")
        await pushed(harness, store)
        pushed_us = harness.engine.now_us
        await soon(lambda: harness.engine.now_us > pushed_us + 1.6 * SECOND_US, "more than that has passed")
        assert store.lrange(QUEUE, 0, -1) == ["1"]
        assert job.attempts == 1


@in_loop
async def test_what_was_pushed_before_is_not_pushed_again(server: RedisServer, store: Any) -> None:
    async with bridged(server, outbound="shout") as harness:
        job = harness.submit("shout")
        store.set(f"switchgear:pushed:shout:{PREFIX.decode()}{job.id}@{job.created_us}", 77)
        store.hset("job:shout:77", mapping={"status": "success", "output": "before"})
        await soon(lambda: job.state is DONE, "the result is found")
        assert job.result == b"before"
        assert store.llen(QUEUE) == 0


@in_loop
async def test_a_job_that_redis_has_lost_is_pushed_again() -> None:
    with running_redis() as server, server.client() as store:
        async with bridged(server, outbound="shout") as harness:
            job = harness.submit("shout")
            await pushed(harness, store)
            server.kill()
            await soon(lambda: harness.telemetry.counts["bridge_lost"] == 1, "the bridge notices")
            server.start()
            await soon(lambda: store.lrange(QUEUE, 0, -1) == ["1"], "it is pushed again")
            await pushed(harness, store)
            finish(store, 1)
            await soon(lambda: job.state is DONE, "it is done")
            assert job.attempts == 1


@in_loop
async def test_while_redis_is_away_others_may_do_the_jobs() -> None:
    with running_redis() as server, server.client() as store:
        async with bridged(server, outbound="shout") as harness:
            harness.submit("shout", b"pushed")
            await pushed(harness, store)
            server.kill()
            await soon(lambda: harness.telemetry.counts["bridge_lost"] == 1, "the bridge notices")
            job = harness.submit("shout", b"not pushed")
            assert job.state is READY
            assert harness.take(harness.worker("shout")) is job


@in_loop
async def test_the_silence_of_a_redis_that_is_away_is_not_held_against_a_job() -> None:
    with running_redis() as server, server.client() as store:
        async with bridged(server, outbound="shout", busy=1) as harness:
            job = harness.submit("shout")
            await pushed(harness, store)
            server.kill()
            await soon(lambda: harness.telemetry.counts["bridge_lost"] == 1, "the bridge notices")
            lost_us = harness.engine.now_us

            def much_later() -> bool:
                harness.bridge.look_after()
                return harness.engine.now_us > lost_us + 1.5 * SECOND_US

            await soon(much_later, "more time has passed than it may be silent")
            assert (job.state, job.attempts) == (RUNNING, 1)


@in_loop
async def test_a_key_of_another_kind_gives_the_job_back(server: RedisServer, store: Any) -> None:
    store.set("uid:shout", "not a number")
    async with bridged(server, outbound="shout") as harness:
        job = harness.submit("shout")
        await soon(lambda: harness.telemetry.counts["bridge_refused"] == 1, "Redis refuses")
        assert job.state is READY
        worker = harness.worker("shout")
        assert await harness.taken(worker) is job


# --- loops ---


@in_loop
async def test_a_server_does_not_take_its_own_job_for_somebody_elses(server: RedisServer, store: Any) -> None:
    async with bridged(server, outbound="shout") as harness:
        job = harness.submit("shout")
        await pushed(harness, store)
        worker = harness.worker("shout")
        harness.bridge.inbound.tick()  # and claims what is in the queue, before it is withdrawn
        assert await harness.taken(worker) is job
        assert list(harness.engine.jobs.values()) == [job]
        harness.complete(worker, job)
        await soon(lambda: store.keys("job:shout:*") == [], "nothing of it is left in Redis")
        assert store.zcard("switchgear:claimed:shout") == store.llen(QUEUE) == 0


@in_loop
async def test_a_gearmonkey_job_is_never_pushed_but_given_back(server: RedisServer, store: Any) -> None:
    async with bridged(server, outbound="shout", lease=30) as harness:
        worker = harness.worker("shout")
        queue(store, "shout", b"x")
        await soon(lambda: store.zcard("switchgear:claimed:shout") == 1, "it is claimed")
        harness.leave(worker)
        await soon(lambda: store.lrange(QUEUE, 0, -1) == ["1"], "it is back in its queue")
        await soon(lambda: not harness.engine.jobs, "the engine has forgotten it")
        assert store.keys("job:shout:*") == ["job:shout:1"]
        assert store.hgetall("job:shout:1") == {"status": "idle", "input": "x"}


@in_loop
async def test_two_bridges_do_not_take_each_other_for_workers(server: RedisServer, store: Any) -> None:
    with running_redis() as other, other.client() as there:
        queue(store, "shout", b"x")
        there.set("count:shout", 1)
        store.set("count:shout", 1)
        async with bridged(server) as harness:
            harness.add_bridge(bridge_url(other))
            job: Job = harness.submit("shout")
            await soon(lambda: job.state is RUNNING, "one of them has it")
            assert store.zcard("switchgear:claimed:shout") == there.zcard("switchgear:claimed:shout") == 0
            assert len(harness.engine.jobs) == 1


@in_loop
@pytest.mark.parametrize("count", ["--5", "9" * 5000, "1_000", "²", "-", ""])
async def test_a_count_that_is_no_number_counts_as_none(
    server: RedisServer, store: Any, count: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.set("count:shout", count)
    async with bridged(server) as harness:
        job = harness.submit("shout")
        harness.submit("other")
        store.set("count:other", 1)
        await pushed(harness, store)
        assert job.state is READY
    assert "internal error" not in caplog.text


@in_loop
async def test_progress_and_origins_that_are_no_numbers_are_ignored(
    server: RedisServer, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with bridged(server, outbound="shout") as harness:
        job = harness.submit("shout")
        await pushed(harness, store)
        begin(store, 1)
        store.hset("job:shout:1", mapping={"status:dividend": "9" * 5000, "status:divisor": "²"})
        await soon(lambda: next(iter(harness.bridge.outbound.jobs.values())).is_busy, "it is seen to be busy")
        store.hset("job:shout:1", mapping={"status:dividend": "3", "status:divisor": "4"})
        await soon(lambda: (job.numerator, job.denominator) == (3, 4), "its progress is understood")
        for number in ("9" * 5000, "²", "9" * 19, "", "-1"):
            origin = PREFIX + number.encode() + b"@1"
            keys = next(iter(harness.bridge.outbound.jobs.values())).keys
            assert not harness.bridge.outbound.is_own(keys, b"7", origin)
    assert "internal error" not in caplog.text
