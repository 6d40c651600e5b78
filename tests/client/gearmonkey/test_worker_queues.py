"""Where a worker's jobs come from: the schedule and its script, priorities, several functions; and the roll."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from switchgear.client.gearmonkey import OPT_BLOCKING, GearMonkeyClient, GearMonkeyWorker, WorkerTiming
from switchgear.errors import ServerRefused
from tests.client.gearmonkey.harness import LOAD, NOW, QUICK, SHA, lines, said_by_worker, worker_for
from tests.support.redis_server import Overheard, RedisServer
from tests.support.threads import working_beside
from tests.support.waiting import DEADLINE_SECONDS, eventually


@pytest.fixture
def client(server: RedisServer) -> GearMonkeyClient:
    return GearMonkeyClient(server.url)


# --- the script ---


def test_a_script_that_redis_has_forgotten_is_loaded_again(
    server: RedisServer, client: GearMonkeyClient, overheard: Overheard, store: redis.Redis
) -> None:
    def work(data: bytes) -> None:
        store.script_flush()

    worker = worker_for(server.url, work, jobs_total=2)
    worker.accept("upper")
    client.run("upper", b"1", "scheduled", scheduled=NOW)
    client.run("upper", b"2", "scheduled", scheduled=NOW)
    worker.run()
    said = said_by_worker(overheard)
    again = said.index("SCRIPT FLUSH") + said[said.index("SCRIPT FLUSH") :].index(LOAD)
    assert said[again - 1 : again + 3] == [
        f"EVALSHA {SHA} 1 queue:upper:scheduled {NOW}",
        LOAD,
        f"EVALSHA {SHA} 1 queue:upper:scheduled {NOW}",
        "HGETALL job:upper:2",
    ]
    assert client.get("upper", 2).status == "success"


class SaysAnotherDigest:
    def execute_command(self, *args: Any, **options: Any) -> Any:
        assert args[0] == "SCRIPT LOAD", "nothing may follow"
        return "0" * 40


def test_a_digest_that_is_not_the_documents_ends_the_worker() -> None:
    worker = GearMonkeyWorker(SaysAnotherDigest(), bytes.upper)
    worker.accept("upper")
    with pytest.raises(ServerRefused, match=f"the script's SHA-1 is {SHA}, but Redis answers '0000"):
        worker.run()


# --- the order of jobs ---


def test_due_jobs_go_first_then_by_priority_and_age(server: RedisServer, client: GearMonkeyClient) -> None:
    client.run("upper", b"low", "low")
    client.run("upper", b"normal", "normal")
    client.run("upper", b"high 1", "high")
    client.run("upper", b"high 2", "high")
    client.run("upper", b"due", "scheduled", scheduled=NOW)
    client.run("upper", b"long due", "scheduled", scheduled=5)
    client.run("upper", b"not due", "scheduled", scheduled=NOW + 1)
    done: list[bytes] = []
    worker = worker_for(server.url, done.append, jobs_total=6)
    worker.accept("upper")
    worker.run()
    assert done == [b"long due", b"due", b"high 1", b"high 2", b"normal", b"low"]


def test_a_scheduled_job_runs_when_its_time_comes(server: RedisServer, client: GearMonkeyClient) -> None:
    now = [NOW]
    done: list[bytes] = []
    worker = GearMonkeyWorker(server.url, done.append, timing=QUICK, now=lambda: now[0])
    worker.accept("upper")
    client.run("upper", b"later", "scheduled", scheduled=NOW + 60)
    with working_beside(worker):
        client.run("upper", b"at once", options=OPT_BLOCKING)
        assert done == [b"at once"]
        now[0] = NOW + 60
        client.wait("upper", 1, timeout=DEADLINE_SECONDS)
    assert done == [b"at once", b"later"]


# --- several functions ---


def test_several_functions_are_asked_for_with_one_pop(
    server: RedisServer, client: GearMonkeyClient, overheard: Overheard
) -> None:
    worker = worker_for(server.url, bytes.upper)
    for function in ("a", "b", "a"):
        worker.accept(function)
    client.run("b")
    worker.run()
    said = said_by_worker(overheard)
    assert said[:5] == lines(
        f"""
        INCR count:a
        INCR count:b
        EVALSHA {SHA} 1 queue:a:scheduled {NOW}
        EVALSHA {SHA} 1 queue:b:scheduled {NOW}
        BRPOP queue:a:high queue:a:normal queue:a:low queue:b:high queue:b:normal queue:b:low 1
        """
    )
    assert sorted(said[-2:]) == ["DECR count:a", "DECR count:b"]


@pytest.mark.parametrize("prio", ["high", "scheduled"])
def test_a_function_with_much_to_do_does_not_starve_another(
    server: RedisServer, client: GearMonkeyClient, prio: str
) -> None:
    scheduled = 5 if prio == "scheduled" else None
    for number in range(4):
        client.run("busy", f"busy {number}", prio, scheduled=scheduled)
    client.run("quiet", b"quiet 0", "low")
    client.run("quiet", b"quiet 1", "low")
    done: list[bytes] = []
    worker = worker_for(server.url, done.append, jobs_total=6)
    worker.accept("busy")
    worker.accept("quiet")
    worker.run()
    assert done == [b"busy 0", b"quiet 0", b"busy 1", b"quiet 1", b"busy 2", b"busy 3"]


def test_each_function_may_have_work_of_its_own(server: RedisServer, client: GearMonkeyClient) -> None:
    worker = GearMonkeyWorker(server.url, bytes.upper, timing=QUICK)
    worker.accept("upper")
    worker.accept("lower", bytes.lower)
    with working_beside(worker):
        outputs = [
            client.get(name, client.run(name, b"Text", options=OPT_BLOCKING)).output for name in ("upper", "lower")
        ]
    assert outputs == [b"TEXT", b"text"]


def test_a_function_may_be_accepted_by_a_job(server: RedisServer, client: GearMonkeyClient, store: redis.Redis) -> None:
    def work(data: bytes) -> None:
        if data:
            worker.accept(data.decode())

    worker = GearMonkeyWorker(server.url, work, timing=QUICK)
    worker.accept("learn")
    with working_beside(worker):
        client.run("learn", b"new", options=OPT_BLOCKING)
        client.run("new", options=OPT_BLOCKING)
        assert store.get("count:new") == "1"
    assert [store.get(f"count:{name}") for name in ("learn", "new")] == ["0", "0"]


def test_work_may_be_a_method(server: RedisServer, client: GearMonkeyClient) -> None:
    class Upper(GearMonkeyWorker):
        def work(self, input: bytes) -> bytes:
            self.update(1, 2)
            return input.upper()

    worker = Upper(server.url, timing=QUICK)
    worker.accept("upper")
    with working_beside(worker):
        job = client.get("upper", client.run("upper", b"text", options=OPT_BLOCKING))
    assert (job.output, job.dividend, job.divisor) == (b"TEXT", 1, 2)


# --- the roll of workers ---


def test_a_lost_count_is_put_right(server: RedisServer, store: redis.Redis) -> None:
    timing = WorkerTiming(block_seconds=0.02, count_check_seconds=0.0)
    workers = [GearMonkeyWorker(server.url, bytes.upper, timing=timing) for _ in range(2)]
    for worker in workers:
        worker.accept("upper")
    with working_beside(*workers):
        eventually(lambda: store.get("count:upper") == "2", "both are counted")
        store.delete("count:upper")
        eventually(lambda: store.get("count:upper"), "the roll is kept again")
        store.set("count:upper", "-3")
        eventually(lambda: store.get("count:upper") in ("1", "2"), "the roll is right again")
    assert store.get("count:upper") == "0"


def test_a_count_that_is_no_number_is_left_alone(
    server: RedisServer, client: GearMonkeyClient, store: redis.Redis, logged: pytest.LogCaptureFixture
) -> None:
    def work(data: bytes) -> None:
        store.set("count:upper", "many")

    worker = worker_for(server.url, work, jobs_total=2, timing=WorkerTiming(count_check_seconds=0.0))
    worker.accept("upper")
    client.run("upper")
    client.run("upper")
    worker.run()
    assert "the count of 'upper' is not a number" in logged.text
    assert store.get("count:upper") == "many"


def test_a_worker_that_nobody_counted_leaves_no_negative_count(
    server: RedisServer, client: GearMonkeyClient, store: redis.Redis
) -> None:
    def work(data: bytes) -> None:
        store.delete("count:upper")

    worker = worker_for(server.url, work)
    worker.accept("upper")
    client.run("upper")
    worker.run()
    assert store.get("count:upper") == "0"
