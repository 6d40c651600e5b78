"""A worker whose Redis goes away and comes back, and a worker that is told to end by a signal."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from switchgear.client import ReconnectBackoff
from switchgear.client.gearmonkey import OPT_ROLLCALL, GearMonkeyClient, GearMonkeyWorker, WorkerTiming
from switchgear.client.gearmonkey.commands import SCRIPT
from switchgear.errors import ServerRefused
from tests.client.gearmonkey.harness import QUICK, lines
from tests.support.redis_server import Overheard, RedisServer, running_redis
from tests.support.threads import working_beside
from tests.support.waiting import DEADLINE_SECONDS, eventually

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


class Held:
    """Work that is not done before the test says so."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, data: bytes) -> bytes:
        self.begun.set()
        assert self.may_end.wait(DEADLINE_SECONDS)
        return data.upper()


def worker_on(server: RedisServer, work: Any, timing: WorkerTiming = QUICK) -> GearMonkeyWorker:
    worker = GearMonkeyWorker(server.url, work, timing=timing)
    worker.accept("upper")
    return worker


# --- Redis goes away ---


def test_a_job_in_hand_survives_a_restart_of_redis_and_the_worker_goes_on() -> None:
    work = Held()
    with running_redis(*DURABLE) as server, GearMonkeyClient(server.url) as client:
        client.run("upper", b"in hand")
        client.run("upper", b"queued")
        worker = worker_on(server, work)
        with working_beside(worker):
            assert work.begun.wait(DEADLINE_SECONDS)
            server.stop()
            worker.update(1, 2)  # is not told, and nothing breaks
            work.may_end.set()
            server.start()
            client.wait("upper", 1, timeout=DEADLINE_SECONDS)
            client.wait("upper", 2, timeout=DEADLINE_SECONDS)
            assert client.run("upper", b"new", options=OPT_ROLLCALL) == 3
            client.wait("upper", 3, timeout=DEADLINE_SECONDS)
            with server.client() as store:
                assert store.get("count:upper") == "1"  # it was kept, so nobody counted again
        assert [client.get("upper", job_id).output for job_id in (1, 2, 3)] == [b"IN HAND", b"QUEUED", b"NEW"]
        with server.client() as store:
            assert store.get("count:upper") == "0"


def test_an_idle_worker_survives_a_restart_that_loses_everything() -> None:
    with running_redis() as server, GearMonkeyClient(server.url) as client:
        workers = [worker_on(server, bytes.upper) for _ in range(2)]
        with working_beside(*workers):
            _until_counted(server)
            server.kill()
            server.start()
            _until_counted(server)
            client.wait("upper", client.run("upper", b"again"), timeout=DEADLINE_SECONDS)
        with server.client() as store:
            assert store.get("count:upper") == "0"


def test_a_worker_may_be_started_before_its_redis() -> None:
    with running_redis() as server, GearMonkeyClient(server.url) as client:
        server.stop()
        with working_beside(worker_on(server, bytes.upper)):
            server.start()
            client.wait("upper", client.run("upper", b"text"), timeout=DEADLINE_SECONDS)
            assert client.get("upper", 1).output == b"TEXT"


def test_a_worker_that_is_stopped_while_redis_is_away_gives_up_after_its_farewell(
    logged: pytest.LogCaptureFixture,
) -> None:
    work = Held()
    timing = WorkerTiming(block_seconds=0.05, farewell_seconds=0.05, backoff=ReconnectBackoff(first_seconds=0.01))
    with running_redis() as server, GearMonkeyClient(server.url) as client:
        client.run("upper", b"text")
        worker = worker_on(server, work, timing)
        with working_beside(worker):
            assert work.begun.wait(DEADLINE_SECONDS)
            server.kill()
            worker.stop()
            work.may_end.set()
    assert "job 1 of 'upper' is lost" in logged.text
    assert "could not deregister from the count of 'upper'" in logged.text


def test_a_worker_without_redis_can_be_stopped() -> None:
    with running_redis() as server:
        server.kill()
        worker = worker_on(
            server, bytes.upper, WorkerTiming(backoff=ReconnectBackoff(first_seconds=3600.0, most_seconds=3600.0))
        )
        with working_beside(worker):
            pass


def test_a_result_waits_for_room_in_a_full_redis(
    server: RedisServer, store: redis.Redis, logged: pytest.LogCaptureFixture
) -> None:
    work = Held()
    with GearMonkeyClient(server.url) as client:
        client.run("upper", b"text")
        with working_beside(worker_on(server, work)):
            assert work.begun.wait(DEADLINE_SECONDS)
            store.config_set("maxmemory", 1)
            try:
                work.may_end.set()
                eventually(lambda: "OOM" in logged.text, "the result is refused")
                with pytest.raises(ServerRefused, match="OOM"):
                    client.run("upper", b"more")
            finally:
                store.config_set("maxmemory", 0)
            client.wait("upper", 1, timeout=DEADLINE_SECONDS)
            assert client.get("upper", 1).output == b"TEXT"


def _until_counted(server: RedisServer) -> None:
    with server.client() as store:
        eventually(lambda: int(store.get("count:upper") or 0) >= 1, "the workers are counted")


# --- signals ---

PROGRAM = """
    import sys
    import redis
    from switchgear.client.gearmonkey import GearMonkeyWorker, WorkerTiming

    url = sys.argv[1]
    gate = redis.Redis.from_url(url, socket_timeout=None)

    def work(data):
        gate.blpop("gate", 30)
        return data.upper()

    worker = GearMonkeyWorker(url, work, timing=WorkerTiming(block_seconds=0.1), now=lambda: 0)
    worker.accept("upper")
    worker.run()
    print("returned")
"""


@contextmanager
def program(server: RedisServer, place: Path) -> Iterator[subprocess.Popen[str]]:
    (place / "program.py").write_text(textwrap.dedent(PROGRAM))
    process = subprocess.Popen([sys.executable, "program.py", server.url], cwd=place, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_worker_after_its_job(
    server: RedisServer, store: redis.Redis, overheard: Overheard, tmp_path: Path, number: signal.Signals
) -> None:
    client = GearMonkeyClient(server.url)
    client.run("upper", b"in hand")
    client.run("upper", b"queued")
    with program(server, tmp_path) as process:
        eventually(lambda: client.get("upper", 1).status == "busy", "the job runs")
        process.send_signal(number)
        store.rpush("gate", "open")
        output, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, output) == (0, "returned\n")
    assert [client.get("upper", job_id).status for job_id in (1, 2)] == ["success", "idle"]
    own = [command for command in overheard.commands() if not command.startswith(("HGETALL", "BLPOP", "RPUSH"))]
    assert own[own.index(f"SCRIPT LOAD {SCRIPT.decode()}") + 1 :] == lines(
        """
        INCR count:upper
        EVALSHA 5231827cd49b540660ef44969b38cc858f157824 1 queue:upper:scheduled 0
        BRPOP queue:upper:high queue:upper:normal queue:upper:low 0.1
        PUBLISH channel:upper start:1
        HMSET job:upper:1 status busy
        HMSET job:upper:1 status success output IN HAND
        EXPIRE job:upper:1 90000
        PUBLISH channel:upper finish:1
        LPUSH lock:upper:1 OK
        EXPIRE lock:upper:1 10
        DECR count:upper
        """
    )


def test_a_signal_ends_an_idle_worker(server: RedisServer, store: redis.Redis, tmp_path: Path) -> None:
    with program(server, tmp_path) as process:
        eventually(lambda: store.get("count:upper") == "1", "the worker is there")
        process.terminate()
        output, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, output) == (0, "returned\n")
    assert store.get("count:upper") == "0"


def test_a_second_signal_interrupts_the_job(server: RedisServer, store: redis.Redis, tmp_path: Path) -> None:
    client = GearMonkeyClient(server.url)
    client.run("upper", b"in hand")
    with program(server, tmp_path) as process:
        eventually(lambda: client.get("upper", 1).status == "busy", "the job is taken")
        eventually(lambda: store.info("clients")["blocked_clients"], "the job waits at the gate")
        process.send_signal(signal.SIGINT)
        process.terminate()  # another number: two of the same may arrive as one
        output, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, output) == (128 + signal.SIGTERM, "")
    job = client.get("upper", 1)
    assert (job.status, job.output) == ("error", b"SystemExit: 143")
    assert store.get("count:upper") == "0"
