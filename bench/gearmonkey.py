"""What GearMonkey costs: the listener beside a real Redis, and the bridge in both directions.

    .venv/bin/python bench/gearmonkey.py                 everything, about half a minute
    .venv/bin/python bench/gearmonkey.py --jobs 2000     fewer jobs

Listener and Redis get the same commands from the same program, in one run; what is compared is the CPU time of the
server's process.  `queue` is LPUSH by a client and the BRPOP of a worker that waits for it; `job` is all that the
document has client and worker say about one job.  Beside it, the bridge: from the first job in one queue to the last
result, with workers that do nothing, and the CPU time of our server alone.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis

from switchgear.bench.results import Cell, Reading
from switchgear.bench.server import how_started
from switchgear.client import Client

HOST = "127.0.0.1"
FUNCTION = "shout"
WORKERS = 16
CREATED, GRAB_JOB, NO_JOB, JOB_ASSIGN, COMPLETE, PRE_SLEEP, NOOP, CAN_DO = 8, 9, 10, 11, 13, 4, 6, 1


@dataclass
class Server:
    """A process under measurement."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def cpu_seconds(self) -> float:
        return time.clock_gettime((~self.process.pid << 3) | 2)  # the CPU clock of another process


@contextmanager
def running(command: Callable[[int], list[str]], answers: Callable[[int], bool]) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(command(port), stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while not answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command(port)[0]} does not answer")
            time.sleep(0.02)
        yield Server(process, port)
    finally:
        process.kill()  # there is nothing to keep
        process.wait()


def pongs(port: int) -> bool:
    try:
        with redis.Redis(HOST, port) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def redis_server() -> Iterator[Server]:
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("redis-server is missing (Debian: apt-get install redis-server)")
    with tempfile.TemporaryDirectory() as place:
        flags = ["--bind", HOST, "--save", "", "--dir", place]
        with running(lambda port: [program, "--port", str(port), *flags], pongs) as server:
            yield server


def redis_settings() -> str:
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("redis-server is missing (Debian: apt-get install redis-server)")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    version = next((word[2:] for word in said.split() if word.startswith("v=")), "of unknown version")
    return f"{version}: --save '', nothing on disk"


def ours(*listeners: str) -> Callable[[int], list[str]]:
    """The first listener gets the free port."""
    command = [sys.executable, "-m", "switchgear", "serve", "--store", "memory:", "--log-level", "error"]
    return lambda port: [
        *command,
        *(word for url in listeners for word in ("--listen", url.replace("PORT", str(port)))),
    ]


# --- the listener beside a Redis ---


def queue_cycles(client: Any, worker: Any, count: int, measured: Callable[[], None]) -> None:
    """LPUSH and BRPOP alone; the jobs were made before."""
    ids = []
    for _ in range(count):
        ids.append(client.incr(f"uid:{FUNCTION}"))
        client.execute_command("HMSET", f"job:{FUNCTION}:{ids[-1]}", "status", "idle", "input", "x" * 100)
    measured()
    for job_id in ids:
        client.execute_command("LPUSH", f"queue:{FUNCTION}:normal", job_id)
        popped = worker.execute_command("BRPOP", *queues(), 1)
        assert int(popped[1]) == job_id
    measured()
    for job_id in ids:
        finish(worker, job_id)


def whole_jobs(client: Any, worker: Any, count: int, measured: Callable[[], None]) -> None:
    measured()
    for _ in range(count):
        job_id = client.incr(f"uid:{FUNCTION}")
        client.execute_command("HMSET", f"job:{FUNCTION}:{job_id}", "status", "idle", "input", "x" * 100)
        client.publish(f"channel:{FUNCTION}", f"create:{job_id}")
        client.execute_command("LPUSH", f"queue:{FUNCTION}:normal", job_id)
        worker.execute_command("BRPOP", *queues(), 1)
        worker.execute_command("HGETALL", f"job:{FUNCTION}:{job_id}")
        worker.publish(f"channel:{FUNCTION}", f"start:{job_id}")
        worker.execute_command("HMSET", f"job:{FUNCTION}:{job_id}", "status", "busy")
        finish(worker, job_id)
    measured()


def finish(worker: Any, job_id: int) -> None:
    worker.execute_command("HMSET", f"job:{FUNCTION}:{job_id}", "status", "success", "output", "y" * 100)
    worker.expire(f"job:{FUNCTION}:{job_id}", 90_000)
    worker.publish(f"channel:{FUNCTION}", f"finish:{job_id}")
    worker.execute_command("LPUSH", f"lock:{FUNCTION}:{job_id}", "OK")
    worker.expire(f"lock:{FUNCTION}:{job_id}", 10)


def queues() -> list[str]:
    return [f"queue:{FUNCTION}:{priority}" for priority in ("high", "normal", "low")]


Commands = Callable[[Any, Any, int, Callable[[], None]], None]
COMMANDS: tuple[tuple[str, Commands], ...] = (("queue", queue_cycles), ("job", whole_jobs))


def commands_at(server: Server, load: Commands, count: int) -> Reading:
    marks: list[tuple[float, float]] = []
    with redis.Redis(HOST, server.port, protocol=2) as client, redis.Redis(HOST, server.port, protocol=2) as worker:
        worker.incr(f"count:{FUNCTION}")
        load(client, worker, count, lambda: marks.append((time.perf_counter(), server.cpu_seconds)))
    (begun, before), (ended, after) = marks
    return Reading(count, ended - begun, (after - before) / count * 1e6)


def measure_commands(name: str, server: Server, count: int) -> None:
    for row, load in COMMANDS:
        print(f"{name:12} {row:6} {commands_at(server, load, count).cpu_us:8.1f} µs of CPU a cycle")


# --- the bridge ---


async def idle_worker(port: int, count: list[int]) -> None:
    """A Gearman worker that does nothing, as fast as it can."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(packet(CAN_DO, FUNCTION.encode()) + packet(GRAB_JOB))
    while count[0] > 0:
        _, kind, size = struct.unpack(">4sII", await reader.readexactly(12))
        body = await reader.readexactly(size)
        if kind == JOB_ASSIGN:
            count[0] -= 1
            writer.write(packet(COMPLETE, body.split(b"\0", 1)[0] + b"\0") + packet(GRAB_JOB))
        elif kind == NO_JOB:
            writer.write(packet(PRE_SLEEP))
        elif kind == NOOP:
            writer.write(packet(GRAB_JOB))
    await writer.drain()


def packet(kind: int, body: bytes = b"") -> bytes:
    return struct.pack(">4sII", b"\0REQ", kind, len(body)) + body


def inbound(server: Server, client: Any, count: int) -> Reading:
    """GearMonkey's jobs, our workers."""
    last = client.incrby(f"uid:{FUNCTION}", count)
    pipeline = client.pipeline(transaction=False)
    for job_id in range(last - count + 1, last + 1):
        pipeline.hset(f"job:{FUNCTION}:{job_id}", mapping={"status": "idle", "input": "x" * 100})
        pipeline.lpush(f"queue:{FUNCTION}:normal", job_id)
    pipeline.execute()
    begun, cpu = time.perf_counter(), server.cpu_seconds

    def await_results() -> None:
        while client.hget(f"job:{FUNCTION}:{last}", "status") != b"success" or client.zcard(
            f"switchgear:claimed:{FUNCTION}"
        ):
            time.sleep(0.01)

    async def work() -> None:
        left = [count]
        workers = [asyncio.create_task(idle_worker(server.port, left)) for _ in range(WORKERS)]
        await asyncio.to_thread(await_results)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    asyncio.run(work())
    return passed(count, begun, cpu, server)


def outbound(server: Server, client: Any, count: int) -> Reading:
    """Our jobs, GearMonkey's workers, which take and finish a hundred at a time."""
    function = "sing"
    with Client(f"gearman://{HOST}:{server.port}") as submitter:
        for _ in range(count):
            submitter.submit(function, b"x" * 100, background=True)
    begun, cpu = time.perf_counter(), server.cpu_seconds
    client.incr(f"count:{function}")
    done = 0
    while done < count:
        ids = client.rpop(f"queue:{function}:normal", 100) or []
        pipeline = client.pipeline(transaction=False)
        for job_id in map(int, ids):
            pipeline.hset(f"job:{function}:{job_id}", mapping={"status": "success", "output": "y" * 100})
            pipeline.publish(f"channel:{function}", f"finish:{job_id}")
        pipeline.execute()
        done += len(ids)
        if not ids:
            time.sleep(0.002)
    while client.keys(f"switchgear:pushed:{function}:*"):
        time.sleep(0.01)
    return passed(count, begun, cpu, server)


def passed(count: int, begun: float, cpu: float, server: Server) -> Reading:
    return Reading(count, time.perf_counter() - begun, (server.cpu_seconds - cpu) / count * 1e6)


@contextmanager
def bridged() -> Iterator[tuple[Server, Any]]:
    """Our server with a bridge to a Redis, and a client of that."""
    with (
        redis_server() as store,
        redis.Redis(HOST, store.port, protocol=2) as client,
        running(ours(f"gearman://{HOST}:PORT", f"redis://{HOST}:{store.port}/0"), connects) as server,
    ):
        yield server, client


# --- cells of the benchmark ---

CELL_JOBS = 2000
NAMES = {"queue": "LPUSH and its BRPOP", "job": "a whole job, all commands"}


def cells(quick: bool) -> list[Cell]:
    """The listener beside a Redis, and the bridge in both directions."""
    jobs = CELL_JOBS // 5 if quick else CELL_JOBS

    def at_redis(load: Commands) -> Reading:
        with redis_server() as server:
            return commands_at(server, load, jobs)

    def at_ours(load: Commands) -> Reading:
        with running(ours(f"gearmonkey://{HOST}:PORT"), pongs) as server:
            return commands_at(server, load, jobs)

    def across(direction: Callable[[Server, Any, int], Reading]) -> Reading:
        with bridged() as (server, client):
            return direction(server, client, jobs)

    plain = redis_settings()
    started = how_started("serve --store memory: --log-level error")
    bridge = f"{started} --listen gearman:// --listen redis://; and a redis-server {plain}"
    found = []
    for row, load in COMMANDS:
        found.append(Cell("gearmonkey", NAMES[row], "redis-server", plain, partial(at_redis, load)))
        found.append(
            Cell("gearmonkey", NAMES[row], "switchgear", f"{started} --listen gearmonkey://", partial(at_ours, load))
        )
    for name, direction in (("bridge from a Redis", inbound), ("bridge to a Redis", outbound)):
        found.append(Cell("gearmonkey", name, "switchgear", bridge, partial(across, direction)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000, help="how many of each kind (default: %(default)s)")
    jobs = parser.parse_args().jobs
    with redis_server() as server:
        measure_commands("redis-server", server, jobs)
    with running(ours(f"gearmonkey://{HOST}:PORT"), pongs) as server:
        measure_commands("switchgear", server, jobs)
    with bridged() as (server, client):
        for name, direction in (("inbound", inbound), ("outbound", outbound)):
            reading = direction(server, client, jobs)
            print(f"{'bridge':12} {name:8} {reading.jobs_per_second:8.0f} jobs/s {reading.cpu_us:8.1f} µs of CPU a job")


if __name__ == "__main__":
    main()
