"""What ten thousand ZeroMQ workers cost the server: CPU per PING, and per READY–DONE cycle.

    .venv/bin/python bench/zeromq.py                    10,000 workers
    .venv/bin/python bench/zeromq.py --workers 1000     fewer

The server is a process of its own, and what is measured is its CPU time, all threads together.  PING/PONG workers are
10,000 TCP connections that speak ZeroMQ's wire protocol (ZMTP 3.0) by themselves, since so many ZeroMQ sockets in one
process would be more than the load generator can bear.  WMP workers sit behind ten devices, a thousand behind each, so
there are ten connections and 10,000 paths.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import msgspec
import zmq

from switchgear.bench.results import Cell, Reading
from switchgear.bench.server import how_started, listen_addresses
from switchgear.client import Client

ROUNDS = 5
WORKERS = 10_000
QUICK_WORKERS = 1_000
PING = b"\x01\x00\x00\x04PING"
PONG = b"\x01\x00\x00\x04PONG"


class Server:
    """A server with every listener on a free port."""

    def __init__(self, process: subprocess.Popen[str], urls: dict[str, str]) -> None:
        self.process = process
        self.urls = urls

    def port(self, scheme: str) -> int:
        return urlsplit(self.urls[scheme]).port or 0

    @property
    def cpu_seconds(self) -> float:
        return time.clock_gettime((~self.process.pid << 3) | 2)  # the CPU clock of another process

    @property
    def resident_bytes(self) -> int:
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def running_server(expire_seconds: int) -> Iterator[Server]:
    listeners = ["gearman://127.0.0.1:0", "wmp://127.0.0.1:0?timeout=0"]
    listeners.append(f"pingpong://127.0.0.1:0?workers=0&expire={expire_seconds}")
    options = [word for url in listeners for word in ("--listen", url)]
    command = [sys.executable, "-m", "switchgear", "serve", "--store", "memory:", "--log-level", "error", *options]
    process = subprocess.Popen([*command, "--set", "limits.connections=50000"], stdout=subprocess.PIPE, text=True)
    try:
        urls = listen_addresses(process, len(listeners))
        yield Server(process, {urlsplit(url).scheme: url for url in urls})
    finally:
        process.kill()  # there is nothing to keep, and it would wait for jobs that a broken run left at their workers
        process.communicate()


# --- PING/PONG ---


GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)  # version 3.0, no security


def connect(port: int, identity: bytes) -> socket.socket:
    """Connect as a DEALER socket does: greet, then tell one's type and name, and hear the same from the other side."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(GREETING)
    connection.recv(64, socket.MSG_WAITALL)
    properties = b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
    properties += b"\x08Identity" + struct.pack(">I", len(identity)) + identity
    body = b"\x05READY" + properties
    connection.sendall(b"\x04" + bytes([len(body)]) + body)
    _, length = connection.recv(2, socket.MSG_WAITALL)
    connection.recv(length, socket.MSG_WAITALL)
    return connection


class PingWorkers:
    """Many connections in one thread."""

    def __init__(self, port: int, count: int) -> None:
        self.selector = selectors.EpollSelector()
        self.sockets: list[socket.socket] = []
        for number in range(count):
            connection = connect(port, b"w%d" % number)
            self.sockets.append(connection)
            self.selector.register(connection, selectors.EVENT_READ)

    def ping_all(self) -> None:
        """A PING on every connection, and wait for every PONG."""
        for connection in self.sockets:
            connection.sendall(PING)
        self.await_pongs()

    def await_pongs(self) -> None:
        missing = len(self.sockets)
        while missing:
            ready = self.selector.select(30)
            if not ready:
                raise SystemExit(f"{missing} PONGs did not come")
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                missing -= key.fileobj.recv(65_536).count(PONG)

    def close(self) -> None:
        for connection in self.sockets:
            connection.close()


def measure_pings(server: Server, workers: int, count: int = ROUNDS) -> tuple[Reading, float]:
    """A PING and its PONG, best of some rounds; and memory per worker in bytes."""
    port = int(server.urls["pingpong"].rpartition("workers=")[2].partition("&")[0])
    empty_bytes = server.resident_bytes
    crowd = PingWorkers(port, workers)
    crowd.ping_all()  # the first also makes them known
    memory = (server.resident_bytes - empty_bytes) / workers
    rounds = []
    for _ in range(count):
        rounds.append(timed(server, workers, crowd.ping_all))
    crowd.close()
    return cheapest(rounds), memory


def timed(server: Server, count: int, work: Callable[[], None]) -> Reading:
    before, start = server.cpu_seconds, time.perf_counter()
    work()
    return Reading(count, time.perf_counter() - start, (server.cpu_seconds - before) / count * 1e6)


def cheapest(rounds: list[Reading]) -> Reading:
    return min(rounds, key=lambda reading: reading.cpu_us or 0.0)


# --- WMP ---

DEVICES = 10
EMPTY_SECONDS = 30.0


def wmp(command: bytes, headers: dict[str, object], payload: bytes | None = None) -> list[bytes]:
    message = [b"", b"WMP1", command, msgspec.msgpack.encode(headers)]
    return message if payload is None else [*message, payload]


def measure_cycles(server: Server, workers: int, count: int = ROUNDS) -> Reading:
    """READY, WAKE, GIVE, TAKE and DONE, best of some rounds; the submission is not counted."""
    context = zmq.Context()
    devices = []
    for number in range(DEVICES):
        device = context.socket(zmq.DEALER)
        device.set(zmq.ROUTING_ID, b"device%d" % number)
        device.set(zmq.SNDHWM, 0)
        device.set(zmq.RCVHWM, 0)
        device.connect(f"tcp://127.0.0.1:{server.port('wmp')}")
        devices.append(device)
    poller = zmq.Poller()
    for device in devices:
        poller.register(device, zmq.POLLIN)
    rounds = []

    def work() -> None:
        run_round(devices, poller, workers)
        await_empty(server.port("gearman"))

    try:
        with Client(server.urls["gearman"]) as client:
            for _ in range(count):
                for _ in range(workers):
                    client.submit("bench", b"x" * 100, background=True)
                rounds.append(timed(server, workers, work))
    finally:
        context.destroy(0)
    return cheapest(rounds)


def await_empty(port: int) -> None:
    """Wait until the server holds no job: a DONE has no answer, and the last ones may still be under way."""
    deadline = time.monotonic() + EMPTY_SECONDS
    with socket.create_connection(("127.0.0.1", port)) as link, link.makefile("rb") as answers:
        while True:
            link.sendall(b"status\n")
            lines = list(iter(answers.readline, b".\n"))
            left = sum(int(line.split(b"\t")[1]) for line in lines)
            if not left:
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"{left} jobs were not done, though their workers said so")
            time.sleep(0.005)


def run_round(devices: list[zmq.Socket[bytes]], poller: zmq.Poller, workers: int) -> None:
    """Every worker does one job."""
    for number in range(workers):
        path = [b"w%d" % number]
        devices[number % DEVICES].send_multipart(wmp(b"READY", {"path": path, "roles": ["bench"]}))
    done = 0
    while done < workers:
        ready = dict(poller.poll(30_000))
        if not ready:
            raise SystemExit(f"{workers - done} jobs were not handed out")
        for device in ready:
            done += answer(device)


def answer(device: zmq.Socket[bytes]) -> int:
    """Play the workers behind one device; returns how many jobs were done."""
    done = 0
    while True:
        try:
            message = device.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return done
        command = message[2]
        headers = msgspec.msgpack.decode(message[3])
        path = headers["to"]
        if command == b"WAKE":
            device.send_multipart(wmp(b"GIVE", {"path": path, "to": headers["path"]}))
        elif command == b"TAKE":
            about = {"path": path, "to": headers["path"], "job": headers["job"], "manager": headers["manager"]}
            device.send_multipart(wmp(b"DONE", about, message[4]))
            done += 1
        elif command == b"NO":
            raise SystemExit("a woken worker got no job")


# --- cells of the benchmark ---


def cells(quick: bool) -> list[Cell]:
    """Both measurements; a round of the benchmark is one round here."""
    workers = QUICK_WORKERS if quick else WORKERS

    def pings() -> Reading:
        with running_server(expire_seconds=600) as server:
            reading, worker_bytes = measure_pings(server, workers, 1)
        return replace(reading, notes={"bytes per worker": worker_bytes})

    def cycles() -> Reading:
        with running_server(expire_seconds=600) as server:
            return measure_cycles(server, workers, 1)

    started = how_started("serve --store memory: --listen gearman:// --listen wmp:// --listen pingpong://")
    crowd = f"{started} --log-level error --set limits.connections=50000; {workers:,} workers"
    return [
        Cell("zeromq", "PING and PONG", "switchgear", f"{crowd}, a connection each", pings, rounds=2),
        Cell(
            "zeromq",
            "READY, WAKE, GIVE, TAKE, DONE",
            "switchgear",
            f"{crowd} behind {DEVICES} devices",
            cycles,
            rounds=2,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=WORKERS)
    count = parser.parse_args().workers
    with running_server(expire_seconds=600) as server:
        ping, worker_bytes = measure_pings(server, count)
    with running_server(expire_seconds=600) as server:
        cycle = measure_cycles(server, count)
    print(f"{count:,} workers, best of {ROUNDS} rounds, CPU of the server process")
    print(
        f"  PING and PONG                    {ping.cpu_us:8.1f} µs   ({worker_bytes / 1024:.1f} KiB of memory a worker)"
    )
    print(f"  READY, WAKE, GIVE, TAKE, DONE    {cycle.cpu_us:8.1f} µs")


if __name__ == "__main__":
    main()
