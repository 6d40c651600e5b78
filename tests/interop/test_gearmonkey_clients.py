"""Other people's libraries for Redis, and our own for GearMonkey, take this server for their Redis."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio

from switchgear.client import Client, WorkerJob
from switchgear.client.gearmonkey import (
    OPT_BLOCKING,
    OPT_ROLLCALL,
    SCHEDULED,
    AsyncGearMonkeyClient,
    GearMonkeyClient,
    GearMonkeyWorker,
    NoWorkers,
)
from tests.client.background import url_of, working
from tests.protocols.gearmonkey.transcript import SCRIPT, SHA
from tests.support.gearmonkey_server import MonkeyServer, running_monkey_server
from tests.support.peers import require_node_script, require_program
from tests.support.servers import HOST
from tests.support.threads import working_beside
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Wire
from tests.system.talk import events

pytestmark = pytest.mark.interop

TRIO = ["queue:f:high", "queue:f:normal", "queue:f:low"]


@pytest.fixture(scope="module")
def server() -> Iterator[MonkeyServer]:
    with running_monkey_server() as running:
        yield running
        assert "internal_error" not in events(running.server)


# --- redis-cli ---


def redis_cli(server: MonkeyServer, *words: str, stdin: str = "") -> list[str]:
    """What the command prints, line by line."""
    command = [require_program("redis-cli"), "-h", HOST, "-p", str(server.port), *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=True)
    assert not done.stderr
    return done.stdout.splitlines()


def test_redis_cli_with_words(server: MonkeyServer) -> None:
    (job_id,) = redis_cli(server, "INCR", "uid:cli")
    assert redis_cli(server, "HMSET", f"job:cli:{job_id}", "status", "idle", "input", "a b") == ["OK"]
    assert redis_cli(server, "LPUSH", "queue:cli:normal", job_id) == ["1"]
    assert redis_cli(server, "HGETALL", f"job:cli:{job_id}") == ["status", "idle", "input", "a b"]
    assert redis_cli(server, "-3", "HGETALL", f"job:cli:{job_id}") == ["status idle", "input a b"]
    assert redis_cli(server, "NONSENSE")[0].startswith("ERR unknown command 'NONSENSE'")


@pytest.mark.parametrize("flags", [(), ("-3",)])
def test_redis_cli_with_lines(server: MonkeyServer, flags: tuple[str, ...]) -> None:
    lines = ["PING", f"EVALSHA {SHA} 1 queue:cli:scheduled 1", "BRPOP queue:none:high 0.01", 'ECHO "a b"']
    assert redis_cli(server, *flags, stdin="\n".join(lines)) == ["PONG", "", "", "a b"]


def test_redis_cli_with_a_file_of_commands(server: MonkeyServer) -> None:
    """`--pipe` sends everything at once and ends with an ECHO that it waits for."""
    commands = "".join(f"INCR count:pipe{number}\r\n" for number in range(500))
    assert redis_cli(server, "--pipe", stdin=commands)[-1] == "errors: 0, replies: 500"


# --- redis-py ---


@contextmanager
def redis_py(server: MonkeyServer, version: int) -> Iterator[redis.Redis]:
    with redis.Redis(HOST, server.port, protocol=version, decode_responses=True, client_name="judge") as client:
        yield client


@pytest.mark.parametrize("version", [2, 3])
def test_redis_py_does_the_whole_conversation(server: MonkeyServer, version: int) -> None:
    with redis_py(server, version) as client, redis_py(server, version) as worker:
        script: Any = worker.register_script(SCRIPT)
        assert script(["queue:f:scheduled"], [1700000000]) is None
        assert worker.script_load(SCRIPT) == SHA
        assert worker.incr("count:f") == 1
        job_id = client.incr("uid:f")
        key = f"job:f:{job_id}"
        pipeline = client.pipeline()  # a transaction
        pipeline.hset(key, mapping={"status": "idle", "input": "hällo"})
        pipeline.publish("channel:f", f"create:{job_id}")
        pipeline.lpush("queue:f:high", job_id)
        assert pipeline.execute() == [2, 0, 1]
        assert worker.brpop(TRIO, 1) == pair(version, "queue:f:high", str(job_id))
        assert worker.hgetall(key) == {"status": "busy", "input": "hällo"}
        plain = worker.pipeline(transaction=False)
        plain.hset(key, mapping={"status:dividend": 1, "status:divisor": 2})
        plain.hset(key, mapping={"status": "success", "output": "done"})
        plain.expire(key, 90000)
        plain.lpush(f"lock:f:{job_id}", "OK")
        plain.expire(f"lock:f:{job_id}", 10)
        assert plain.execute() == [2, 1, True, 1, True]
        assert client.brpop(f"lock:f:{job_id}", 5) == pair(version, f"lock:f:{job_id}", "OK")
        assert client.hmget(key, "status", "output", "nonsense") == ["success", "done", None]
        assert client.ttl(key) == 90000
        assert client.brpop(TRIO, 0.01) is None
        assert client.exists(key, "job:f:99999") == 1
        assert worker.decr("count:f") == 0
        with pytest.raises(redis.ResponseError, match="unknown command 'SET'"):
            client.set("a", "b")


def pair(version: int, key: str, value: str) -> Any:
    return [key, value] if version == 3 else (key, value)


def pubsub(client: Any) -> Any:  # which has no types
    return client.pubsub()


@pytest.mark.parametrize("version", [2, 3])
def test_redis_py_subscribes(server: MonkeyServer, version: int) -> None:
    with redis_py(server, version) as client, pubsub(client) as listener:
        listener.subscribe("channel:g")
        listener.psubscribe("channel:h*")
        heard = []

        def messages() -> list[Any]:
            message = listener.get_message(ignore_subscribe_messages=True, timeout=0.01)
            if message is not None:
                heard.append((message["type"], message["channel"], message["data"]))
            return heard

        eventually(
            lambda: messages() is not None and client.publish("channel:g", "one") == 1, "the subscription is there"
        )
        eventually(lambda: client.publish("channel:harness", "two") == 1, "and the pattern")
        eventually(lambda: len(messages()) == 2, "both messages")
        assert heard == [("message", "channel:g", "one"), ("pmessage", "channel:harness", "two")]
        listener.ping()


@pytest.mark.parametrize("version", [2, 3])
def test_redis_py_with_asyncio(server: MonkeyServer, version: int) -> None:
    async def talk() -> None:
        async with redis.asyncio.Redis(host=HOST, port=server.port, protocol=version) as client:
            trio = ["queue:a:high", "queue:a:normal", "queue:a:low"]
            waiting: asyncio.Future[Any] = asyncio.ensure_future(client.brpop(trio, 5))
            job_id = await client.incr("uid:a")
            await client.hset(f"job:a:{job_id}", mapping={"status": "idle", "input": b"\0\xff"})
            await client.lpush("queue:a:low", job_id)
            _, popped = await waiting
            assert int(popped) == job_id
            # On whatever connection of its pool: the one that has popped is another.
            await client.hset(f"job:a:{job_id}", mapping={"status": "success", "output": b"\r\n"})
            assert await client.hget(f"job:a:{job_id}", "output") == b"\r\n"

    asyncio.run(asyncio.wait_for(talk(), DEADLINE_SECONDS))


# --- Node ---


@pytest.mark.parametrize(("library", "version"), [("ioredis", 2), ("@redis/client", 2), ("@redis/client", 3)])
def test_libraries_for_node(library: str, version: int) -> None:
    script = require_node_script("conversation.mjs")
    with running_monkey_server() as server:
        command = [*script, library, str(version), str(server.port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=3 * DEADLINE_SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        assert json.loads(done.stdout) == {
            "messages": ["create", "finish"],
            "rollCall": [None, 1],
            "script": SHA,
            "created": ["OK", 1, 1, "error: ERR unknown command 'NONSENSE', with args beginning with: ", "PONG"],
            "popped": ["queue:node:normal", True],
            "input": "häll\r\nö",
            "finished": ["OK", "OK", 1, 1, 1, 0],
            "lock": "OK",
            "job": {
                "status": "success",
                "input": "häll\r\nö",
                "status:dividend": "1",
                "status:divisor": "2",
                "output": "done",
            },
            "nothing": [None, None, None],
            "left": 0,
        }
        assert "internal_error" not in events(server.server)


def test_a_library_that_ignores_a_refused_database_does_nothing_in_this_one() -> None:
    script = require_node_script("database.mjs")
    with running_monkey_server() as server:
        command = [*script, str(server.port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=3 * DEADLINE_SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        refused = "ERR database 1 was selected, and there is only database 0 here; nothing is done before SELECT 0"
        assert json.loads(done.stdout) == {
            "heard": ["ERR DB index is out of range"],
            "answer": f"error: {refused}",
        }
        assert redis_cli(server, "GET", "count:node") == [""]


# --- our own library ---


@contextmanager
def monkey_working(server: MonkeyServer, name: str, work: Any) -> Iterator[GearMonkeyWorker]:
    """A worker of our library, in a thread of its own."""
    worker = GearMonkeyWorker(server.url, work)
    worker.accept(name)
    with working_beside(worker):
        yield worker


def test_our_library_works_with_no_redis_at_all(server: MonkeyServer) -> None:
    def work(data: bytes) -> bytes:
        if data == b"bad":
            raise ValueError("bad input")
        return data.upper()

    with GearMonkeyClient(server.url) as client:
        with pytest.raises(NoWorkers):
            client.run("lib", b"x", options=OPT_ROLLCALL)
        with monkey_working(server, "lib", work):
            eventually(lambda: redis_cli(server, "GET", "count:lib") == ["1"], "the worker is registered")
            job_id = client.run("lib", b"hello", "high", OPT_BLOCKING | OPT_ROLLCALL, timeout=5)
            job = client.get("lib", job_id)
            assert (job.status, job.output) == ("success", b"HELLO")
            job_id = client.run("lib", b"bad", options=OPT_BLOCKING, timeout=5)
            assert client.get("lib", job_id).status == "error"
            job_id = client.run("lib", b"later", SCHEDULED, scheduled=1)
            eventually(lambda: client.get("lib", job_id).status == "success", "the scheduled job is done")
        eventually(lambda: redis_cli(server, "GET", "count:lib") == ["0"], "and is registered no more")


def test_our_asynchronous_client(server: MonkeyServer) -> None:
    async def ask() -> bytes | None:
        async with AsyncGearMonkeyClient(server.url) as client:
            job_id = await client.run("async", b"hello", options=OPT_BLOCKING, timeout=5)
            return (await client.get("async", job_id)).output

    with monkey_working(server, "async", bytes.upper):
        assert asyncio.run(ask()) == b"HELLO"


def test_a_gearmonkey_client_and_a_gearman_worker(server: MonkeyServer) -> None:
    async def handler(job: WorkerJob) -> bytes:
        if job.payload == b"bad":
            raise ValueError("bad input")
        job.data(b"<")
        return job.payload.upper() + b">"

    with working(url_of(server.server), {"mixed": handler}), GearMonkeyClient(server.url) as client:
        job_id = client.run("mixed", b"hello", options=OPT_BLOCKING | OPT_ROLLCALL, timeout=5)
        job = client.get("mixed", job_id)
        assert (job.status, job.output) == ("success", b"<HELLO>")
        job_id = client.run("mixed", b"bad", options=OPT_BLOCKING, timeout=5)
        job = client.get("mixed", job_id)
        assert job.status == "error"
        assert b"bad input" in (job.output or b"")


def test_a_gearman_client_and_a_gearmonkey_worker(server: MonkeyServer) -> None:
    def work(data: bytes) -> bytes:
        worker.update(1, 2)
        return data.upper()

    with Client(url_of(server.server)) as client, monkey_working(server, "other", work) as worker:
        updates = [(update.kind, update.numerator, update.data) for update in client.submit("other", b"x").updates(5)]
        assert updates == [("status", 1, b""), ("complete", 0, b"X")]
        with Wire(server.server.address) as admin:
            (line,) = [line for line in admin.ask("status") if line.startswith(b"other\t")]
            assert line == b"other\t0\t0\t1\n"
