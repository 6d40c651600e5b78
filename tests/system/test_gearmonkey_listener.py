"""The GearMonkey listener at a real server: lost workers, crashes, stops, limits, and strangers."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from switchgear.client import Client
from tests.client.background import url_of
from tests.support.gearmonkey_server import MonkeyServer, running_monkey_server
from tests.support.resp_wire import OK, Error, NullArray, RespWire
from tests.support.servers import HOST, free_port
from tests.support.waiting import eventually
from tests.support.wire import Wire
from tests.system.talk import control, events, wait_for_line

pytestmark = pytest.mark.system

TRIO = ("queue:f:high", "queue:f:normal", "queue:f:low")
SHA = "5231827cd49b540660ef44969b38cc858f157824"


def store_in(folder: Path) -> str:
    return f"sqlite:{folder / 'jobs.db'}"


def write_job(client: RespWire, data: str) -> int:
    """An id, and a hash for it."""
    job_id: int = client.ask("INCR", "uid:f")
    assert client.ask("HMSET", f"job:f:{job_id}", "status", "idle", "input", data) == OK
    return job_id


def push(client: RespWire, data: str, priority: str = "normal") -> int:
    job_id = write_job(client, data)
    assert isinstance(client.ask("LPUSH", f"queue:f:{priority}", job_id), int)
    return job_id


def pop(worker: RespWire, seconds: float = 5) -> int:
    """The id of a job; 0 if there is none."""
    reply = worker.ask("BRPOP", *TRIO, seconds)
    return 0 if reply == NullArray() else int(reply[1])


def finish(worker: RespWire, job_id: int, output: str = "done") -> Any:
    return worker.ask("HMSET", f"job:f:{job_id}", "status", "success", "output", output)


def read_to_the_end(wire: RespWire) -> int:
    """How many replies come before the server is gone."""
    for count in itertools.count():
        try:
            wire.receive()
        except ConnectionError:
            return count
    raise AssertionError


# --- workers ---

POPS_AND_HANGS = """
    import socket, sys
    sock = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    sock.sendall(b"BRPOP queue:f:high queue:f:normal queue:f:low 0\\r\\n")
    print(sock.recv(1000).split(b"\\r\\n")[-2].decode(), flush=True)
    sys.stdin.read()
"""


def test_the_job_of_a_worker_that_is_killed_comes_back() -> None:
    with running_monkey_server() as server, RespWire(server.address) as client, RespWire(server.address) as second:
        job_id = push(client, "x")
        command = [sys.executable, "-c", textwrap.dedent(POPS_AND_HANGS), HOST, str(server.port)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            assert int(worker.stdout.readline()) == job_id
            assert client.ask("HGET", f"job:f:{job_id}", "status") == b"busy"
            second.send("BRPOP", *TRIO, 10)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        assert second.receive() == [b"queue:f:normal", b"%d" % job_id]
        assert finish(second, job_id) == OK
        assert client.ask("HGET", f"job:f:{job_id}", "status") == b"success"


def test_priorities_and_a_scheduled_job_ahead_of_them() -> None:
    with running_monkey_server() as server, RespWire(server.address) as client, RespWire(server.address) as worker:
        low, high = push(client, "low", "low"), push(client, "high", "high")
        due, later = write_job(client, "due"), write_job(client, "later")
        assert client.ask("ZADD", "queue:f:scheduled", 1_600_000_000, due) == 1
        assert client.ask("ZADD", "queue:f:scheduled", time.time() + 0.3, later) == 1
        key = "queue:f:scheduled"
        assert worker.ask("EVALSHA", SHA, 1, key, int(time.time())) == [key.encode(), b"%d" % due]
        assert [pop(worker), pop(worker), pop(worker)] == [high, low, later]


def test_a_worker_that_waits_needs_no_polling() -> None:
    with running_monkey_server() as server, RespWire(server.address) as client, RespWire(server.address) as worker:
        worker.send("BRPOP", *TRIO, 0)
        assert client.ask("PING")
        started = time.monotonic()
        job_id = push(client, "x")
        assert worker.receive() == [b"queue:f:normal", b"%d" % job_id]
        assert time.monotonic() - started < 1


def test_an_expiry_is_met() -> None:
    with running_monkey_server() as server, RespWire(server.address) as client:
        job_id = push(client, "x")
        assert pop(client) == job_id
        assert finish(client, job_id) == OK
        assert client.ask("EXPIRE", f"job:f:{job_id}", 1) == 1
        assert client.ask("EXISTS", f"job:f:{job_id}") == 1
        eventually(lambda: client.ask("EXISTS", f"job:f:{job_id}") == 0, "the job is shown no more")


# --- crashes ---


def test_jobs_ids_and_results_survive_a_crash(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    with running_monkey_server(store=store) as server, RespWire(server.address) as client:
        done, waiting, due = push(client, "1"), push(client, "2"), write_job(client, "3")
        assert client.ask("ZADD", "queue:f:scheduled", 1_600_000_000, due) == 1
        reserved = client.ask("INCR", "uid:f")
        with RespWire(server.address) as worker:
            assert worker.ask("RPOP", "queue:f:normal") == b"%d" % done
            assert finish(worker, done, "result") == OK
            server.server.kill()
    with running_monkey_server(store=store) as server, RespWire(server.address) as client:
        assert client.ask("HMGET", f"job:f:{done}", "status", "input", "output") == [b"success", b"1", b"result"]
        assert client.ask("HMGET", f"job:f:{waiting}", "status", "input") == [b"idle", b"2"]
        assert client.ask("INCR", "uid:f") > reserved
        assert [pop(client), pop(client), pop(client, 0.01)] == [due, waiting, 0]
        assert client.ask("TTL", f"job:f:{done}") in range(89_900, 90_001)


def test_every_push_that_was_answered_is_there_after_a_crash(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    with running_monkey_server(store=store) as server, RespWire(server.address) as client:
        ids = client.ask_all(*[("INCR", "uid:f")] * 300)
        client.ask_all(*[("HMSET", f"job:f:{job_id}", "status", "idle", "input", job_id) for job_id in ids])
        for job_id in ids:
            client.send("LPUSH", "queue:f:normal", job_id)
        answered = 0
        while answered < 100:
            client.receive()
            answered += 1
        server.server.kill()
        answered += read_to_the_end(client)
    with running_monkey_server(store=store) as server, RespWire(server.address) as worker:
        popped = worker.ask("RPOP", "queue:f:normal", 1000)
        assert [int(job_id) for job_id in popped[:answered]] == ids[:answered]


def test_a_worker_that_outlives_the_server_may_report(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    with running_monkey_server(store=store) as server, RespWire(server.address) as client:
        job_id, never_taken = push(client, "x"), push(client, "y")
        assert pop(client) == job_id
        push(client, "z")  # which is kept after the start of the first
        server.server.kill()
    with running_monkey_server(store=store) as server, RespWire(server.address) as worker:
        assert finish(worker, job_id, "result") == OK
        assert worker.ask("HGET", f"job:f:{job_id}", "output") == b"result"
        assert isinstance(finish(worker, never_taken), Error)


# --- stopping ---


def test_a_graceful_stop_waits_for_the_job() -> None:
    with running_monkey_server() as server, RespWire(server.address) as client, RespWire(server.address) as worker:
        job_id, left = push(client, "x"), write_job(client, "y")
        assert pop(worker) == job_id
        with RespWire(server.address) as idle:
            idle.send("BRPOP", *TRIO, 0)
            client.send("BRPOP", f"lock:f:{job_id}", 5)
            with Wire(server.server.address) as admin:
                admin.ask("shutdown graceful")
            wait_for_line(server.server, "draining")
            assert worker.ask("LPUSH", "queue:f:low", left) == Error(b"ERR server is shutting down")
            assert finish(worker, job_id) == OK
            assert client.receive() == [b"lock:f:%d" % job_id, b"OK"]
            with pytest.raises(ConnectionError):
                idle.receive()
        assert server.server.wait_stopped() == 0


# --- beside the others ---


def test_operators_see_jobs_and_workers() -> None:
    with running_monkey_server() as server, RespWire(server.address) as client, RespWire(server.address) as worker:
        assert worker.ask("CLIENT", "SETNAME", "resizer") == OK
        assert client.ask("BRPOP", "lock:f:1", 0.01) == NullArray()
        due = write_job(client, "x")
        assert client.ask("ZADD", "queue:f:scheduled", 1, due) == 1
        assert pop(worker) == due
        with Wire(server.server.address) as admin:
            (job,) = control(admin, "jobs")["jobs"]
            assert (job["function"], job["state"], job["priority"]) == ("f", "running", "urgent")
            assert job["origin"] == "gearmonkey"
            (known,) = [shown for shown in control(admin, "workers") if shown["functions"]]
            assert (known["protocol"], known["name"], known["functions"]) == ("gearmonkey", "resizer", ["f"])
            assert control(admin, "server")["connections"] == 3


def test_listeners_share_their_connections() -> None:
    port = free_port()
    with (
        running_monkey_server("--listen", f"gearmonkey://{HOST}:{port}") as server,
        RespWire(server.address) as client,
        RespWire((HOST, port)) as listener,
    ):
        assert listener.ask("SUBSCRIBE", "channel:f")[0] == b"subscribe"
        assert client.ask("PUBLISH", "channel:f", "x") == 1


def test_a_job_of_a_gearman_client_that_nobody_waits_for_any_more() -> None:
    """A client of GearMonkey that waits for its end is somebody who waits."""
    with running_monkey_server() as server, RespWire(server.address) as waiting, RespWire(server.address) as worker:
        with Client(url_of(server.server)) as client:
            client.submit("f", b"x")
            eventually(lambda: waiting.ask("EXISTS", "queue:f:normal"), "the job is there")
            waiting.send("BRPOP", "lock:f:1", 5)
            eventually(lambda: b"blocked_clients:1\r\n" in worker.ask("INFO", "clients"), "it waits")
        assert pop(worker) == 1
        assert finish(worker, 1) == OK
        assert waiting.receive() == [b"lock:f:1", b"OK"]


# --- strangers, and limits ---


def test_strangers_get_their_answer_and_nobody_else_notices() -> None:
    chance = random.Random(6380)
    starts = (b"", b"*2\r\n$3\r\nGET\r\n", b"*1\r\n", b"BRPOP ", b"*3\r\n$5\r\n", b"HGETALL job:f:1\r\n")
    with running_monkey_server() as server, RespWire(server.address) as client, RespWire(server.address) as worker:
        job_id = push(client, "x")
        assert pop(worker) == job_id
        for number in range(60):
            with RespWire(server.address) as stranger:
                stranger.send_bytes(starts[number % len(starts)] + chance.randbytes(60) + b"\r\n" * 5 + b"*x\r\n")
                read_to_the_end(stranger)
        assert finish(worker, job_id) == OK
        assert events(server.server)["bad_input"] >= 60
        assert "internal_error" not in events(server.server)


def test_a_command_that_is_too_long_is_refused_before_it_comes() -> None:
    with running_monkey_server("--set", "limits.packet_bytes=1000") as server, RespWire(server.address) as stranger:
        stranger.send_bytes(b"*2\r\n$4\r\nECHO\r\n$997\r\n")
        assert stranger.receive().text.startswith(b"ERR Protocol error: invalid bulk length, at most 1000 bytes")
        with pytest.raises(ConnectionError):
            stranger.receive()


def test_limits_are_reloaded(tmp_path: Path) -> None:
    config = tmp_path / "switchgear.toml"
    config.write_text("[limits]\nname_bytes = 10\n")
    with running_monkey_server("--config", str(config)) as server, RespWire(server.address) as client:
        assert isinstance(client.ask("INCR", "uid:" + "n" * 11), Error)
        config.write_text("[limits]\nname_bytes = 11\n")
        server.server.process.send_signal(signal.SIGHUP)
        eventually(lambda: isinstance(client.ask("INCR", "uid:" + "n" * 11), int), "the limit is reloaded")


def test_the_log_names_the_protocol() -> None:
    with running_monkey_server() as server, RespWire(server.address) as client:
        client.ask("NONSENSE", "a\nb")
        line = wait_for_line(server.server, "NONSENSE")
        assert "gearmonkey peer 127.0.0.1:" in line
        assert "'a?b'" in line


def many_wait(server: MonkeyServer, count: int) -> list[RespWire]:
    workers = [RespWire(server.address) for _ in range(count)]
    for worker in workers:
        worker.send("BRPOP", *TRIO, 20)
    return workers


def test_many_workers_wait_and_each_gets_one_job() -> None:
    with running_monkey_server() as server, RespWire(server.address) as client:
        workers = many_wait(server, 100)
        try:
            ids = [push(client, "x") for _ in workers]
            given = [int(worker.receive()[1]) for worker in workers]
            assert sorted(given) == ids
        finally:
            for worker in workers:
                worker.close()
