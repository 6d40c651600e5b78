"""What a task of a dwork graph costs the server: CPU per task, and memory.

    .venv/bin/python bench/dwork.py                       10,000 tasks, in memory
    .venv/bin/python bench/dwork.py --tasks 1000000       a large graph; some minutes
    .venv/bin/python bench/dwork.py --store sqlite        kept in a file of its own

The server is a process of its own, and what is measured is its CPU time, all threads together.  Every task waits for
three others, in layers of a thousand, so that there is always about a layer ready.  The original server needs 12 µs for
a steal and a completion with 500 workers on one socket, and 1.7 µs to create a task in batches of 1,000 (C++, -O2).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import zmq

from switchgear.bench.results import Cell, Reading
from switchgear.bench.server import how_started, listen_addresses
from switchgear.protocols.dwork.codec import decode_reply, encode
from switchgear.protocols.dwork.messages import Query, QueryType, Task

LAYER = 1000
WORKERS = 500
ORIGIN = b"bench"
OK = encode(Query(QueryType.OK))
NOTHING_READY = encode(Query(QueryType.NOT_FOUND))
PATIENCE_MS = 60_000


class Server:
    """A running server, and a way to it."""

    def __init__(self, process: subprocess.Popen[str], address: str, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.process = process
        self.address = address
        self._context = context

    @property
    def cpu_seconds(self) -> float:
        return time.clock_gettime((~self.process.pid << 3) | 2)  # the CPU clock of another process

    @property
    def resident_bytes(self) -> int:
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def connect(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set(zmq.RCVTIMEO, PATIENCE_MS)
        socket.set(zmq.SNDHWM, 0)
        socket.set(zmq.RCVHWM, 0)
        socket.connect(self.address)
        return socket


@contextmanager
def running_server(store: str) -> Iterator[Server]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with tempfile.TemporaryDirectory(prefix="dwork-bench-") as place:
        url = f"sqlite:{Path(place) / 'jobs.db'}" if store == "sqlite" else "memory:"
        listeners = ["--listen", "gearman://127.0.0.1:0", "--listen", "dwork://127.0.0.1:0"]
        command = [sys.executable, "-m", "switchgear", "serve", "--store", url, "--log-level", "error", *listeners]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            _, url = listen_addresses(process, 2)
            yield Server(process, f"tcp://{urlsplit(url).netloc}", context)
        finally:
            process.kill()
            process.wait()
            context.destroy(0)


# --- the graph ---


def name_of(number: int) -> bytes:
    return b"task-%07d" % number


def task(number: int) -> Task:
    """A task that waits for three of the layer before its own."""
    layer, place = divmod(number, LAYER)
    start = (layer - 1) * LAYER
    before = [name_of(start + (place + step) % LAYER) for step in range(3)] if layer else []
    return Task(name_of(number), ORIGIN, before)


def creations(tasks: int, batch: int) -> Iterator[bytes]:
    for start in range(0, tasks, batch):
        numbers = range(start, min(start + batch, tasks))
        yield encode(Query(QueryType.CREATE, [task(number) for number in numbers]))


def create(server: Server, tasks: int, batch: int) -> None:
    """One request after the other, as a REQ socket does."""
    socket = server.connect(zmq.REQ)
    for request in creations(tasks, batch):
        socket.send(request)
        if (answer := socket.recv()) != OK:
            raise SystemExit(f"create was answered {decode_reply(answer)}")


# --- work ---


def names_in(answer: bytes) -> list[bytes]:
    return [task.name for task in decode_reply(answer).tasks]


def completion(names: list[bytes], location: bytes) -> bytes:
    return encode(Query(QueryType.COMPLETE, [Task(name, ORIGIN) for name in names], location=location))


def work_alone(server: Server, tasks: int, batch: int) -> None:
    """One worker steals and completes so many at a time."""
    socket = server.connect(zmq.REQ)
    stealing = encode(Query(QueryType.STEAL, location=b"alone", n=batch if batch > 1 else None))
    done = 0
    while done < tasks:
        socket.send(stealing)
        names = names_in(socket.recv())
        socket.send(completion(names, b"alone"))
        if socket.recv() != OK:
            raise SystemExit("a completion was refused")
        done += len(names)


def work_in_a_crowd(server: Server, tasks: int) -> None:
    """Workers that share a socket, each with one request in flight, told apart by a frame of the envelope."""
    socket = server.connect(zmq.DEALER)
    locations = [b"node%03d" % number for number in range(WORKERS)]
    stealing = [encode(Query(QueryType.STEAL, location=location)) for location in locations]
    for number in range(WORKERS):
        socket.send_multipart([b"%d" % number, b"", stealing[number]])
    completed = 0
    send, receive = socket.send, socket.recv  # frame by frame, since the load must not be slower than the server
    while completed < tasks:
        tag = receive()
        receive()
        answer = receive()
        number = int(tag)
        send(tag, zmq.SNDMORE)
        send(b"", zmq.SNDMORE)
        if answer == OK:
            completed += 1
            send(stealing[number])
        elif answer == NOTHING_READY:
            send(stealing[number])
        else:
            send(completion_of(answer, locations[number]))
    socket.close(0)  # those who have a task keep it


def completion_of(answer: bytes, location: bytes) -> bytes:
    """The completion of the one task in an answer, whose name has nine to 99 bytes: put together, not encoded."""
    name = answer[6 : 6 + answer[5]]
    described = b"\x0a" + bytes([len(name)]) + name + b"\x12\x05bench"
    return b"\x08\x02\x12" + bytes([len(described)]) + described + b"\x32" + bytes([len(location)]) + location


# --- measuring ---


def cpu_us_per_task(server: Server, tasks: int, work: Callable[[], None]) -> float:
    before = server.cpu_seconds
    work()
    return (server.cpu_seconds - before) / tasks * 1e6


def measure(store: str, tasks: int, rounds: int) -> list[tuple[str, float, str]]:
    """Each row of the table: what was done, the best figure, and its unit."""
    results: dict[str, list[float]] = {}
    for _ in range(rounds):
        for what, figure in one_round(store, tasks):
            results.setdefault(what, []).append(figure)
    return [(what, min(figures), "B" if what.startswith("memory") else "µs") for what, figures in results.items()]


def one_round(store: str, tasks: int) -> Iterator[tuple[str, float]]:
    few = min(tasks // 5, 2_000)
    some = tasks * 2 // 5
    with running_server(store) as server:
        yield "create, 1 in a message", cpu_us_per_task(server, few, lambda: create(server, few, 1))
    with running_server(store) as server:
        yield "create, 100 in a message", cpu_us_per_task(server, some, lambda: create(server, some, 100))
    with running_server(store) as server:
        empty_bytes = server.resident_bytes
        yield "create, 1,000 in a message", cpu_us_per_task(server, tasks, lambda: create(server, tasks, 1000))
        yield "memory of a task that is not done", (server.resident_bytes - empty_bytes) / tasks
        yield "steal 1, complete 1, alone", cpu_us_per_task(server, few, lambda: work_alone(server, few, 1))
        yield "steal 100, complete 100", cpu_us_per_task(server, some, lambda: work_alone(server, some, 100))
        rest = tasks - few - some - 2 * LAYER  # towards the end there is not enough to do for all
        used = cpu_us_per_task(server, rest, lambda: work_in_a_crowd(server, rest))
        yield f"steal 1, complete 1, {WORKERS} workers", used


# --- cells of the benchmark ---

CELL_TASKS = 10_000


def cells(quick: bool) -> list[Cell]:
    """Each way to go through a graph in memory, with a server of its own."""
    tasks = CELL_TASKS // 2 if quick else CELL_TASKS
    rest = tasks - 2 * LAYER  # towards the end there is not enough to do for all

    def creating() -> Reading:
        with running_server("memory") as server:
            empty_bytes = server.resident_bytes
            reading = timed(server, tasks, lambda: create(server, tasks, 1000))
            grown = server.resident_bytes - empty_bytes
        return replace(reading, memory_bytes=grown, notes={"bytes per task": grown / tasks})

    def stealing(some: int, work: Callable[[Server], None]) -> Callable[[], Reading]:
        def measure() -> Reading:
            with running_server("memory") as server:
                create(server, tasks, 1000)
                return timed(server, some, lambda: work(server))

        return measure

    few = tasks // 5
    flags = "serve --store memory: --log-level error --listen gearman:// --listen dwork://"
    settings = f"{how_started(flags)}; a graph of {tasks:,} tasks"
    return [
        Cell("dwork", workload, "switchgear", settings, measure)
        for workload, measure in (
            ("create, 1,000 in a message", creating),
            ("steal 100, complete 100", stealing(tasks, lambda server: work_alone(server, tasks, 100))),
            ("steal 1, complete 1, alone", stealing(few, lambda server: work_alone(server, few, 1))),
            (f"steal 1, complete 1, {WORKERS} workers", stealing(rest, lambda server: work_in_a_crowd(server, rest))),
        )
    ]


def timed(server: Server, tasks: int, work: Callable[[], None]) -> Reading:
    start = time.perf_counter()
    used_us = cpu_us_per_task(server, tasks, work)
    return Reading(tasks, time.perf_counter() - start, used_us)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10_000, help="how large the graph is; at least 5,000")
    parser.add_argument("--store", choices=("memory", "sqlite"), default="memory")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many is shown")
    options = parser.parse_args()
    if options.tasks < 5_000:
        parser.error("fewer than 5,000 tasks tell nothing")
    rows = measure(options.store, options.tasks, options.rounds)
    print(f"{options.tasks:,} tasks, store {options.store}, best of {options.rounds}, CPU of the server per task")
    for what, figure, unit in rows:
        print(f"  {what:40} {figure:8.1f} {unit}")


if __name__ == "__main__":
    main()
