"""What a client says to Redis, word for word; and what its user sees.  Both kinds of clients, a real Redis."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from redis import asyncio as redis_asyncio

from switchgear.client.gearmonkey import (
    HIGH,
    OPT_BLOCKING,
    OPT_ROLLCALL,
    SCHEDULED,
    AsyncGearMonkeyClient,
    GearMonkeyClient,
    GearMonkeyWorker,
    JobNotFinished,
    LostWhileWaiting,
    NoWorkers,
    UnknownJob,
)
from switchgear.errors import ConfigError, ServerRefused, ServerUnreachable
from tests.client.gearmonkey.harness import FACES, QUICK, Client, beside, lines
from tests.support.redis_server import Overheard, RedisServer, running_redis
from tests.support.servers import free_port
from tests.support.threads import working_beside
from tests.support.waiting import DEADLINE_SECONDS, eventually


def test_creating_a_job(client: Client, overheard: Overheard) -> None:
    assert client.run("resize", b"photo") == 1
    assert overheard.commands() == lines(
        """
        INCR uid:resize
        HMSET job:resize:1 status idle input photo
        PUBLISH channel:resize create:1
        LPUSH queue:resize:normal 1
        """
    )


@pytest.mark.parametrize("prio", ["high", "normal", "low"])
def test_each_priority_has_a_queue(client: Client, overheard: Overheard, prio: str) -> None:
    client.run("resize", b"photo", prio)
    assert overheard.commands()[-1] == f"LPUSH queue:resize:{prio} 1"


def test_creating_a_scheduled_job(client: Client, overheard: Overheard) -> None:
    assert client.run("resize", b"photo", SCHEDULED, scheduled=2_000_000_000) == 1
    assert overheard.commands() == lines(
        """
        INCR uid:resize
        HMSET job:resize:1 status idle input photo
        PUBLISH channel:resize create:1
        ZADD queue:resize:scheduled 2000000000 1
        """
    )


def test_creating_a_job_with_a_roll_call(client: Client, store: redis.Redis, overheard: Overheard) -> None:
    store.set("count:resize", 2)
    assert client.run("resize", b"photo", HIGH, OPT_ROLLCALL) == 1
    assert overheard.commands() == lines(
        """
        SET count:resize 2                        -- by this test
        GET count:resize
        INCR uid:resize
        HMSET job:resize:1 status idle input photo
        PUBLISH channel:resize create:1
        LPUSH queue:resize:high 1
        """
    )


@pytest.mark.parametrize("count", [None, "0", "-1", "many", "1.5", ""])
def test_a_roll_call_that_finds_nobody_creates_nothing(
    client: Client, store: redis.Redis, overheard: Overheard, count: str | None
) -> None:
    if count is not None:
        store.set("count:resize", count)
    with pytest.raises(NoWorkers, match="no worker is registered for 'resize'"):
        client.run("resize", b"photo", options=OPT_ROLLCALL)
    assert overheard.commands()[-1] == "GET count:resize"


def test_a_count_that_is_no_text_at_all_is_an_error_too(client: Client, store: redis.Redis) -> None:
    store.lpush("count:resize", "1")
    with pytest.raises(ServerRefused) as refused:
        client.run("resize", b"photo", options=OPT_ROLLCALL)
    assert refused.value.code == "WRONGTYPE"


def test_creating_a_job_and_waiting_for_its_end(client: Client, store: redis.Redis, overheard: Overheard) -> None:
    store.lpush("lock:resize:1", "OK")  # as the worker does when it is finished
    assert client.run("resize", b"photo", options=OPT_BLOCKING, timeout=3) == 1
    assert overheard.commands() == lines(
        """
        LPUSH lock:resize:1 OK                    -- by this test
        INCR uid:resize
        HMSET job:resize:1 status idle input photo
        PUBLISH channel:resize create:1
        LPUSH queue:resize:normal 1
        BRPOP lock:resize:1 3
        """
    )


def test_asking_for_a_job(client: Client, overheard: Overheard) -> None:
    job_id = client.run("resize", "größer")
    job = client.get("resize", job_id)
    assert overheard.commands()[-1] == "HGETALL job:resize:1"
    assert (job.status, job.input, job.output) == ("idle", "größer".encode(), None)
    assert job.raw == {b"status": b"idle", b"input": "größer".encode()}


def test_asking_for_a_job_that_is_not_there(client: Client) -> None:
    with pytest.raises(UnknownJob, match="no job 5 of 'resize'"):
        client.get("resize", 5)
    with pytest.raises(UnknownJob):
        client.wait("resize", 5)


def test_bytes_stay_as_they_are(client: Client) -> None:
    everything = bytes(range(256)) * 3
    assert client.get("resize", client.run("resize", everything)).input == everything


# --- waiting ---


def test_a_timeout_that_passes_is_an_error_with_the_id_and_the_job_stays(
    client: Client, store: redis.Redis, overheard: Overheard
) -> None:
    with pytest.raises(JobNotFinished, match=r"job 1 of 'resize' was not finished within 0.05 s") as late:
        client.run("resize", b"photo", options=OPT_BLOCKING, timeout=0.05)
    assert overheard.commands()[-2:] == ["BRPOP lock:resize:1 0.05", "HGET job:resize:1 status"]
    assert client.get("resize", late.value.job_id).status == "idle"
    assert store.lrange("queue:resize:normal", 0, -1) == ["1"]


@pytest.mark.parametrize("kind", list(FACES))
@pytest.mark.parametrize("status", ["success", "error"])
def test_a_client_that_has_missed_its_token_finds_the_end_in_the_hash(
    server: RedisServer, store: redis.Redis, kind: str, status: str
) -> None:
    client = FACES[kind](f"{server.url}?socket_timeout=0.2")  # so one slice is 0.1 s
    with beside(lambda: client.run("resize", b"", options=OPT_BLOCKING)) as running:
        eventually(lambda: store.llen("queue:resize:normal"), "the job is queued")
        store.hset("job:resize:1", mapping={"status": status, "output": "late"})
        assert running.result(DEADLINE_SECONDS) == 1
    client.close()


@pytest.mark.parametrize("kind", list(FACES))
def test_a_job_that_vanishes_is_not_waited_for_for_ever(server: RedisServer, store: redis.Redis, kind: str) -> None:
    client = FACES[kind](f"{server.url}?socket_timeout=0.2")
    with beside(lambda: client.run("resize", b"", options=OPT_BLOCKING)) as running:
        eventually(lambda: store.llen("queue:resize:normal"), "the job is queued")
        store.flushall()
        with pytest.raises(UnknownJob):
            running.result(DEADLINE_SECONDS)
    client.close()


def test_waiting_for_a_job_that_was_created_earlier(client: Client, server: RedisServer) -> None:
    job_id = client.run("upper", b"text")
    worker = GearMonkeyWorker(server.url, lambda data: data.upper(), timing=QUICK)
    worker.accept("upper")
    with working_beside(worker):
        client.wait("upper", job_id, timeout=DEADLINE_SECONDS)
    client.wait("upper", job_id, timeout=1)  # it has ended, and its token was taken; the hash says so
    assert client.get("upper", job_id).output == b"TEXT"


@pytest.mark.parametrize("kind", list(FACES))
def test_a_redis_that_goes_away_during_the_wait_leaves_the_id_in_hand(kind: str) -> None:
    with running_redis("--appendonly", "yes") as server:
        client = FACES[kind](server.url)
        with server.client() as store, beside(lambda: client.run("upper", b"x", options=OPT_BLOCKING)) as running:
            eventually(lambda: _is_blocked(store), "the client waits")
            server.stop()
            with pytest.raises(LostWhileWaiting, match="job 1 of 'upper' was created, then") as lost:
                running.result(DEADLINE_SECONDS)
        server.start()
        worker = GearMonkeyWorker(server.url, lambda data: data.upper(), timing=QUICK)
        worker.accept("upper")
        with working_beside(worker):
            client.wait("upper", lost.value.job_id, timeout=DEADLINE_SECONDS)
        assert client.get("upper", lost.value.job_id).output == b"X"
        client.close()


def _is_blocked(store: redis.Redis) -> bool:
    return bool(store.info("clients")["blocked_clients"] == 1)


# --- failing ---


@pytest.mark.parametrize("kind", list(FACES))
def test_without_a_redis_no_job_is_created(kind: str) -> None:
    client = FACES[kind](f"redis://127.0.0.1:{free_port()}")
    with pytest.raises(ServerUnreachable, match="Redis cannot be reached"):
        client.run("resize", b"photo")
    client.close()


def test_a_refusal_ends_the_creation(client: Client, store: redis.Redis, overheard: Overheard) -> None:
    store.set("uid:resize", "not a number")
    with pytest.raises(ServerRefused, match="not an integer") as refused:
        client.run("resize", b"photo")
    assert refused.value.code == "ERR"
    assert overheard.commands()[-1] == "INCR uid:resize"


class GivesNoId:
    """A Redis that answers everything, and says nothing."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        assert args[0] == "INCR", "nothing may follow"
        return None


class GivesNoIdLater:
    """The same for asyncio."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        return GivesNoId().execute_command(*args)


def test_without_an_id_the_creation_has_failed() -> None:
    with pytest.raises(ServerRefused, match="no id for a job of 'resize'"):
        GearMonkeyClient(GivesNoId()).run("resize", b"photo")
    with pytest.raises(ServerRefused, match="no id for a job of 'resize'"):
        asyncio.run(AsyncGearMonkeyClient(GivesNoIdLater()).run("resize", b"photo"))


def test_a_missing_password_is_a_refusal() -> None:
    with running_redis("--requirepass", "secret") as guarded, pytest.raises(ServerRefused) as refused:
        GearMonkeyClient(guarded.url).run("resize", b"photo")
    assert refused.value.code == "NOAUTH"


@pytest.mark.parametrize("kind", [GearMonkeyClient, AsyncGearMonkeyClient, GearMonkeyWorker])
def test_an_address_of_something_else_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match="the address of the Redis"):
        kind("gearman://127.0.0.1:4730")


# --- other people's connections ---


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode", [False, True])
def test_a_connection_of_the_users_own_is_used_and_left_open(server: RedisServer, protocol: int, decode: bool) -> None:
    options: dict[str, Any] = {"protocol": protocol, "decode_responses": decode, "encoding": "latin-1"}
    own = redis.Redis.from_url(server.url, **options)
    with GearMonkeyClient(own) as client:
        job_id = client.run("größe", b"\xff\xfe")
        worker = GearMonkeyWorker(own, lambda data: data[::-1], timing=QUICK)
        worker.accept("größe")
        with working_beside(worker):
            client.wait("größe", job_id, timeout=DEADLINE_SECONDS)
        assert client.get("größe", job_id).output == b"\xfe\xff"
    assert own.exists("count:größe".encode())
    own.close()


def test_an_asyncio_connection_of_the_users_own_is_used_and_left_open(server: RedisServer) -> None:
    async def talk() -> None:
        own = redis_asyncio.Redis.from_url(server.url, decode_responses=True)
        async with AsyncGearMonkeyClient(own) as client:
            job_id = await client.run("resize", b"\xff\xfe")
            assert (await client.get("resize", job_id)).input == b"\xff\xfe"
        assert await own.get("uid:resize") == "1"
        await own.aclose()

    asyncio.run(talk())
