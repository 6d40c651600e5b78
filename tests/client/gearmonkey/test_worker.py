"""What a worker says to Redis, word for word; and what becomes of jobs."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest
import redis

from switchgear.client.gearmonkey import (
    OPT_BLOCKING,
    GearMonkeyClient,
    GearMonkeyCurrentJob,
    GearMonkeyWorker,
    WorkerTiming,
)
from switchgear.errors import JobFailed, ServerRefused
from tests.client.gearmonkey.harness import NOW, QUICK, SHA, beside, lines, said_by_worker, worker_for
from tests.support.redis_server import Overheard, RedisServer
from tests.support.threads import working_beside
from tests.support.waiting import DEADLINE_SECONDS, eventually


@pytest.fixture
def client(server: RedisServer) -> GearMonkeyClient:
    return GearMonkeyClient(server.url)


# --- conversations ---


def test_start_job_and_exit(server: RedisServer, client: GearMonkeyClient, overheard: Overheard) -> None:
    job_id = client.run("upper", b"text")
    worker = worker_for(server.url, lambda data: data.upper())
    worker.accept("upper")
    worker.run()
    assert said_by_worker(overheard) == lines(
        f"""
        INCR count:upper
        EVALSHA {SHA} 1 queue:upper:scheduled {NOW}
        BRPOP queue:upper:high queue:upper:normal queue:upper:low 1
        HGETALL job:upper:1                       -- the document does not say how the input is read
        PUBLISH channel:upper start:1
        HMSET job:upper:1 status busy
        HMSET job:upper:1 status success output TEXT
        EXPIRE job:upper:1 90000
        PUBLISH channel:upper finish:1
        LPUSH lock:upper:1 OK
        EXPIRE lock:upper:1 10
        DECR count:upper
        """
    )
    job = client.get("upper", job_id)
    assert (job.status, job.input, job.output) == ("success", b"text", b"TEXT")


def test_a_scheduled_job_comes_without_a_pop(
    server: RedisServer, client: GearMonkeyClient, overheard: Overheard
) -> None:
    client.run("upper", b"text", "scheduled", scheduled=NOW)
    worker = worker_for(server.url, lambda data: data.upper())
    worker.accept("upper")
    worker.run()
    assert said_by_worker(overheard)[:4] == lines(
        f"""
        INCR count:upper
        EVALSHA {SHA} 1 queue:upper:scheduled {NOW}
        HGETALL job:upper:1
        PUBLISH channel:upper start:1
        """
    )


def test_updates(server: RedisServer, client: GearMonkeyClient, overheard: Overheard) -> None:
    seen: list[object] = []

    def work(data: bytes) -> bytes:
        worker.update(1, 3)
        worker.update(2, 3)
        job = client.get("slow", 1)
        seen.append((job.status, job.dividend, job.divisor, worker.current))
        return b"done"

    worker = worker_for(server.url, work)
    worker.accept("slow")
    client.run("slow")
    worker.run()
    said = said_by_worker(overheard)
    assert said[said.index("HMSET job:slow:1 status busy") + 1 :][:4] == lines(
        """
        HMSET job:slow:1 status:dividend 1 status:divisor 3
        HMSET job:slow:1 status:dividend 2 status:divisor 3
        HGETALL job:slow:1                        -- by this test
        HMSET job:slow:1 status success output done
        """
    )
    assert seen == [("busy", 2, 3, GearMonkeyCurrentJob("slow", 1))]
    assert worker.current is None


@pytest.mark.parametrize(
    ("error", "output"),
    [
        (ValueError("no photo"), b"ValueError: no photo"),
        (KeyError(), b"KeyError"),
        (JobFailed("bad", b"\xff raw words"), b"\xff raw words"),
        (JobFailed("no photo"), b"no photo"),
    ],
    ids=repr,
)
def test_an_error_is_an_outcome_and_the_worker_goes_on(
    server: RedisServer, client: GearMonkeyClient, error: Exception, output: bytes
) -> None:
    def work(data: bytes) -> bytes:
        if data == b"bad":
            raise error
        return b"done"

    worker = worker_for(server.url, work, jobs_total=2)
    worker.accept("upper")
    client.run("upper", b"bad")
    client.run("upper", b"good")
    worker.run()
    assert [(client.get("upper", job_id).status, client.get("upper", job_id).output) for job_id in (1, 2)] == [
        ("error", output),
        ("success", b"done"),
    ]


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        (None, ("success", b"")),
        ("größer", ("success", "größer".encode())),
        (bytearray(b"\0\xff"), ("success", b"\0\xff")),
        (5, ("error", b"TypeError: an output is bytes or str, not int")),
    ],
    ids=repr,
)
def test_what_a_working_function_may_return(
    server: RedisServer, client: GearMonkeyClient, value: Any, outcome: tuple[str, bytes]
) -> None:
    worker = worker_for(server.url, lambda data: value)
    worker.accept("upper")
    client.run("upper")
    worker.run()
    job = client.get("upper", 1)
    assert (job.status, job.output) == outcome


def test_an_idle_worker_that_is_stopped(server: RedisServer, overheard: Overheard, store: redis.Redis) -> None:
    worker = GearMonkeyWorker(server.url, bytes.upper, now=lambda: NOW)
    worker.accept("upper")
    with working_beside(worker):
        eventually(lambda: store.info("clients")["blocked_clients"], "the worker waits for a job")
    assert said_by_worker(overheard) == lines(
        f"""
        INCR count:upper
        EVALSHA {SHA} 1 queue:upper:scheduled {NOW}
        BRPOP queue:upper:high queue:upper:normal queue:upper:low 1
        DECR count:upper
        """
    )


def test_an_exception_that_ends_the_process_ends_the_job_too(
    server: RedisServer, client: GearMonkeyClient, overheard: Overheard, store: redis.Redis
) -> None:
    def work(data: bytes) -> bytes:
        raise SystemExit("enough")

    worker = GearMonkeyWorker(server.url, work, now=lambda: NOW)
    worker.accept("upper")
    client.run("upper")
    with pytest.raises(SystemExit, match="enough"):
        worker.run()
    assert said_by_worker(overheard)[-6:] == lines(
        """
        HMSET job:upper:1 status error output SystemExit: enough
        EXPIRE job:upper:1 90000
        PUBLISH channel:upper finish:1
        LPUSH lock:upper:1 OK
        EXPIRE lock:upper:1 10
        DECR count:upper
        """
    )
    assert store.get("count:upper") == "0"


def test_a_refusal_for_good_ends_the_worker_which_is_counted_out(server: RedisServer, store: redis.Redis) -> None:
    store.set("queue:upper:normal", "no list")
    worker = GearMonkeyWorker(server.url, bytes.upper)
    worker.accept("upper")
    with pytest.raises(ServerRefused) as refused:
        worker.run()
    assert refused.value.code == "WRONGTYPE"
    assert store.get("count:upper") == "0"


def test_the_time_to_live_of_what_is_left(server: RedisServer, client: GearMonkeyClient, store: redis.Redis) -> None:
    worker = worker_for(server.url, bytes.upper)
    worker.accept("upper")
    client.run("upper")
    assert store.ttl("job:upper:1") == -1  # an unfinished job is kept for ever
    worker.run()
    assert 25 * 3600 - 60 < store.ttl("job:upper:1") <= 25 * 3600
    assert 0 < store.ttl("lock:upper:1") <= 10


# --- misuse, and rubbish in the queue ---


def test_a_worker_needs_work_and_a_function(server: RedisServer) -> None:
    with pytest.raises(ValueError, match=r"has to accept\(\) a function"):
        GearMonkeyWorker(server.url, bytes.upper).run()
    idle = GearMonkeyWorker(server.url)
    idle.accept("upper")
    with pytest.raises(TypeError, match="needs a function to work with"):
        idle.run()
    idle.accept("upper", bytes.upper)
    idle.stop()
    idle.run()


def test_updates_are_for_jobs_and_are_numbers(server: RedisServer, client: GearMonkeyClient) -> None:
    worker = worker_for(server.url, lambda data: worker.update(0.5, 1))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"inside of work\(\)"):
        worker.update(1, 2)
    worker.accept("upper")
    client.run("upper")
    worker.run()
    assert client.get("upper", 1).output == b"TypeError: dividend and divisor are integers; got 0.5 and 1"


@pytest.mark.parametrize(("timeout", "block"), [("0.5", 1), ("1", 1), ("15", 0)])
def test_a_connection_has_to_be_more_patient_than_a_pop(server: RedisServer, timeout: str, block: float) -> None:
    with pytest.raises(ValueError, match="below the connection's socket_timeout"):
        GearMonkeyWorker(
            f"{server.url}?socket_timeout={timeout}", bytes.upper, timing=WorkerTiming(block_seconds=block)
        )


def test_jobs_that_are_none_are_skipped(
    server: RedisServer, client: GearMonkeyClient, store: redis.Redis, logged: pytest.LogCaptureFixture
) -> None:
    store.lpush("queue:upper:normal", "98", "rubbish", "99")
    store.set("job:upper:99", "no hash")
    done: list[bytes] = []
    worker = worker_for(server.url, done.append)
    worker.accept("upper")
    client.run("upper", b"real")
    worker.run()
    assert done == [b"real"]
    text = logged.text
    assert "job 98 of 'upper' has no hash any more; skipped" in text
    assert "b'rubbish' in a queue of 'upper' is not a job id; skipped" in text
    assert "job 99 of 'upper' is lost: WRONGTYPE" in text
    assert not store.exists("job:upper:98")


# --- signals and threads ---


def test_handlers_of_signals_are_given_back(server: RedisServer) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    seen = []

    def work(data: bytes) -> None:
        seen.append(signal.getsignal(signal.SIGTERM) != before[0])

    for handle_signals in (True, False):
        worker = worker_for(server.url, work)
        worker.accept("upper")
        GearMonkeyClient(server.url).run("upper")
        worker.run(handle_signals=handle_signals)
    assert seen == [True, False]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_clients_and_workers_side_by_side(server: RedisServer, store: redis.Redis) -> None:
    """Every job runs once, each client gets the answer to its own."""
    ran: list[bytes] = []
    lock = threading.Lock()

    def work(data: bytes) -> bytes:
        with lock:
            ran.append(data)
        return data[::-1]

    workers = [GearMonkeyWorker(server.url, work, timing=QUICK) for _ in range(3)]
    for worker in workers:
        worker.accept("reverse")

    def ask(name: str) -> list[tuple[bytes, bytes | None]]:
        with GearMonkeyClient(server.url) as client:
            inputs = [f"{name} {number}".encode() for number in range(20)]
            ids = [client.run("reverse", data, options=OPT_BLOCKING) for data in inputs]
            return [(data, client.get("reverse", job_id).output) for data, job_id in zip(inputs, ids)]

    with working_beside(*workers), beside(lambda: ask("one")) as one, beside(lambda: ask("two")) as two:
        answers = one.result(DEADLINE_SECONDS) + two.result(DEADLINE_SECONDS)
    assert all(output == data[::-1] for data, output in answers)
    assert sorted(ran) == sorted(data for data, _ in answers)
    assert store.get("count:reverse") == "0"
