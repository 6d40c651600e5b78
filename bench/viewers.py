"""What it costs a server to be looked at: a dashboard on each view, beside a million jobs and a thousand workers.

    python -m bench.viewers [--jobs 1000000] [--workers 1000] [--rounds 4] [--only cpu,pages]

Starts a server of its own, fills it, and measures, each time without and with viewers in turn (ABAB), so that what else
the machine does concerns both:

- `cpu`: CPU time of the server per job, while 64 clients and 64 workers do round trips as fast as they can;
- `trips`: the 99th percentile of the round trips of one client and one worker that have the server for themselves;
- `crowd`: the same CPU time with one viewer of everything, and with ten;
- `idle`: CPU time of the server in a second without jobs: before anybody has looked, with a viewer, and afterwards;
- `pages`: how long each list takes that a view asks for, the shortest of some tries;
- `first`: how soon a view is there in a real browser with an empty cache, the median of some tries.

A viewer is a connection that reads `GET /v1/events` with the topics of a view, as the page subscribes to them, in a
process of its own; it renders nothing.  How long a tick of each topic keeps the event loop is measured by
`python -m bench.verb_stalls --only events,jobs,functions,workers`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import servers
from bench.generators import Load, blast, build
from bench.servers import HOST, Server, free_port, running
from bench.stalls import Connection, packet

FUNCTIONS: Final = 100
# The topics that each live view of the page subscribes to; the other views have `overview` alone.
VIEWS: Final = {
    "other views": "overview",
    "overview, functions": "overview,functions",
    "workers": "overview,workers",
    "task stream": "overview,stream",
    "job": "overview,job:1",
    "all": "overview,functions,workers,stream",
}
LISTS: Final = (
    "/v1/overview",
    "/v1/functions",
    "/v1/functions/queued7",
    "/v1/functions/queued7/times",
    "/v1/workers",
    "/v1/connections?limit=100",
    "/v1/jobs?limit=100",
    "/v1/jobs?limit=100&state=ready",
    "/v1/jobs?limit=100&state=running",
    "/v1/jobs?limit=100&function=queued7",
    "/v1/jobs?limit=100&function=queued7&state=waiting",
    "/v1/jobs?limit=100&unique=nobody",
    "/v1/jobs?limit=100&name=nobody",
    "/v1/jobs?limit=100&dead=yes",
    "/v1/errors",
    "/v1/flows",
    "/v1/schedules",
    "/v1/storage",
    "/v1/series",
    "/v1/graph?function=queued7",
)
BATCH: Final = 500
TRIPS: Final = 2_000
LOAD_JOBS: Final = 40_000
IDLE_SECONDS: Final = 4.0
TRIES: Final = 5
FIRST_VIEWS: Final = ("overview", "jobs", "stream?span=60", "functions", "workers", "why")
SCENARIO: Final = Path(__file__).parents[1] / "tests" / "dashboard" / "browser" / "first_view.mjs"
# Bars: how much dearer it may be with a viewer.
MOST_CPU, MOST_TRIP, MOST_TEN, MOST_PAGE_MS, MOST_FIRST_MS = 1.05, 1.10, 1.01, 50.0, 1_000.0

CAN_DO, PRE_SLEEP, GRAB, SUBMIT_BG, SUBMIT, COMPLETE, CLIENT_ID = 1, 4, 9, 18, 7, 13, 22


# --- those who look ---


def watch(port: int, topics: str, count: int, is_open: Any, is_over: Any) -> None:
    """Read so many event streams, and drop what they say."""
    selector = selectors.DefaultSelector()
    streams = []
    for _ in range(count):
        stream = socket.create_connection((HOST, port))
        stream.sendall(b"GET /v1/events?topics=%b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % topics.encode())
        if not stream.recv(65_536).startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the server does not show {topics}")
        selector.register(stream, selectors.EVENT_READ)
        streams.append(stream)
    is_open.set()
    while not is_over.is_set():
        for key, _ in selector.select(0.1):
            if not key.fileobj.recv(1 << 20):  # type: ignore[union-attr]
                raise RuntimeError("the server has closed a stream")
    for stream in streams:
        stream.close()


@contextmanager
def viewers(port: int, topics: str, count: int) -> Iterator[None]:
    """Let so many look at these topics."""
    context = multiprocessing.get_context("spawn")
    is_open, is_over = context.Event(), context.Event()
    process = context.Process(target=watch, args=(port, topics, count, is_open, is_over), daemon=True)
    process.start()
    try:
        if count and not is_open.wait(60):
            raise RuntimeError("the viewers do not come")
        time.sleep(1)  # for the snapshots, which are not what is measured
        yield
    finally:
        is_over.set()
        process.join(10)
        if process.exitcode:
            raise RuntimeError("a viewer was lost")


# --- what they look at ---


def fill(port: int, jobs: int) -> None:
    """Queue so many jobs of functions that nobody does."""
    connection = Connection(port)
    for first in range(0, jobs, BATCH):
        numbers = range(first, min(jobs, first + BATCH))
        connection.send(
            *(packet(SUBMIT_BG, b"queued%d" % (number % FUNCTIONS), b"u%d" % number, b"x" * 100) for number in numbers)
        )
        for _ in numbers:
            connection.receive()
    connection.close()


def sleeping_workers(port: int, count: int) -> list[Connection]:
    """Workers that wait for jobs which never come."""
    found = []
    for number in range(count):
        worker = Connection(port)
        worker.send(packet(CLIENT_ID, b"worker-%d" % number))
        worker.send(*(packet(CAN_DO, b"idle%d" % (each % FUNCTIONS)) for each in range(number, number + 3)))
        worker.send(packet(PRE_SLEEP))
        found.append(worker)
    return found


@dataclass
class Bench:
    """A server that has much to show."""

    server: Server
    http_port: int
    rounds: int
    views: dict[str, str]

    def cpu_us(self) -> float:
        """CPU time of the server per job, under load."""
        raw = blast(self.server, Load("foreground", LOAD_JOBS))
        if raw.get("fault"):
            raise RuntimeError(raw["fault"])
        return float(raw["server_cpu_us_per_job"])

    def trip_p99_us(self) -> float:
        """The 99th percentile of lone round trips."""
        client, worker = Connection(self.server.port), Connection(self.server.port)
        worker.send(packet(CAN_DO, b"trip"))
        times = []
        for number in range(TRIPS):
            worker.send(packet(PRE_SLEEP))
            began = time.perf_counter()
            client.ask(packet(SUBMIT, b"trip", b"%d" % number, b"x"))
            worker.receive()  # NOOP
            assigned = worker.ask(packet(GRAB))
            worker.send(packet(COMPLETE, assigned.partition(b"\0")[0], b"y"))
            client.receive()
            times.append((time.perf_counter() - began) * 1e6)
        client.close()
        worker.close()
        return statistics.quantiles(times, n=100)[98]

    def idle_share(self) -> float:
        """The share of a processor that the server takes while nothing happens."""
        began, cpu_seconds = time.monotonic(), self.server.cpu_seconds
        time.sleep(IDLE_SECONDS)
        return (self.server.cpu_seconds - cpu_seconds) / (time.monotonic() - began)

    def abab(self, measure: Callable[[], float], without: tuple[str, int], with_: tuple[str, int]) -> list[float]:
        """A figure with others looking and without in turn: the best of each, and the median of the ratios."""
        readings: list[tuple[float, float]] = []
        for _ in range(self.rounds):
            pair = []
            for topics, count in (without, with_):
                with viewers(self.http_port, topics, count):
                    pair.append(measure())
            readings.append((pair[0], pair[1]))
        ratio = statistics.median(after / before for before, after in readings)
        return [min(each[0] for each in readings), min(each[1] for each in readings), ratio]

    def page_ms(self, path: str) -> tuple[float, int]:
        """The shortest time that a request took, and the size of its answer."""
        connection = http.client.HTTPConnection(HOST, self.http_port, timeout=60)
        times = []
        for _ in range(TRIES):
            began = time.perf_counter()
            connection.request("GET", path, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            body = answer.read()
            times.append((time.perf_counter() - began) * 1000)
            if answer.status != 200:
                raise RuntimeError(f"{path}: {answer.status} {body[:200]!r}")
        connection.close()
        return min(times), len(body)


# --- the tables ---


def verdict(ratio: float, most: float) -> str:
    return f"{ratio:.3f} {'' if ratio <= most else '**missed**'}".strip()


def show_ratios(bench: Bench, title: str, unit: str, measure: Callable[[], float], most: float) -> None:
    print(
        f"\n{title}; at most {most:.2f}\n\n| view | without, {unit} | with | ratio |\n|---|---:|---:|---:|", flush=True
    )
    for view, topics in bench.views.items():
        before, after, ratio = bench.abab(measure, ("", 0), (topics, 1))
        print(f"| {view} | {before:.1f} | {after:.1f} | {verdict(ratio, most)} |", flush=True)


def show_crowd(bench: Bench) -> None:
    topics = VIEWS["all"]
    one, ten, ratio = bench.abab(bench.cpu_us, (topics, 1), (topics, 10))
    print(f"\nTen viewers beside one, µs of CPU per job: {one:.1f}, {ten:.1f}, ratio {verdict(ratio, MOST_TEN)}")


def show_idle(bench: Bench) -> None:
    before = bench.idle_share()
    with viewers(bench.http_port, VIEWS["all"], 1):
        during = bench.idle_share()
    time.sleep(1)
    after = bench.idle_share()
    print(f"\nShare of a processor: {before:.2%} before, {during:.2%} with a viewer of all, {after:.2%} after")


def show_pages(bench: Bench) -> None:
    print(f"\nLists; at most {MOST_PAGE_MS:g} ms\n\n| request | ms | answer, kB |\n|---|---:|---:|", flush=True)
    for path in LISTS:
        took_ms, size = bench.page_ms(path)
        late = "" if took_ms <= MOST_PAGE_MS else " **missed**"
        print(f"| `GET {path}` | {took_ms:.1f}{late} | {size / 1000:.1f} |", flush=True)


def show_first(bench: Bench) -> None:
    node, chromium = shutil.which("node"), shutil.which("chromium")
    if node is None or chromium is None:
        raise RuntimeError("node and chromium are needed: make peers")
    command = [node, str(SCENARIO), f"http://{HOST}:{bench.http_port}/", *(FIRST_VIEWS * TRIES)]
    environment = {**os.environ, "CHROMIUM": chromium}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    times: dict[str, list[float]] = {}
    for reading in map(json.loads, output.splitlines()):
        times.setdefault(reading["view"], []).append(reading["ms"])
    print(f"\nFirst view; at most {MOST_FIRST_MS:g} ms\n\n| view | ms | longest |\n|---|---:|---:|", flush=True)
    for view, some in times.items():
        late = "" if statistics.median(some) <= MOST_FIRST_MS else " **missed**"
        print(f"| {view} | {statistics.median(some):.0f}{late} | {max(some):.0f} |", flush=True)


PARTS: Final[dict[str, Callable[[Bench], None]]] = {
    "pages": show_pages,
    "cpu": lambda bench: show_ratios(bench, "CPU time per job", "µs", bench.cpu_us, MOST_CPU),
    "trips": lambda bench: show_ratios(bench, "99th percentile of round trips", "µs", bench.trip_p99_us, MOST_TRIP),
    "crowd": show_crowd,
    "idle": show_idle,
    "first": show_first,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--views", default=";".join(VIEWS), help=f"some of {'; '.join(VIEWS)}")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}")
    views = {view.strip(): VIEWS[view.strip()] for view in options.views.split(";")}
    build("gearblast")
    servers.end_on_termination()
    servers.require_connections(options.workers)
    http_port = free_port()
    peer = servers.SWITCHGEAR.with_options(f"--listen http://{HOST}:{http_port} --set limits.memory_bytes=0")
    with running(peer) as server, ExitStack() as stack:
        began = time.monotonic()
        fill(server.port, options.jobs)
        for worker in sleeping_workers(server.port, options.workers):
            stack.callback(worker.close)
        print(f"{peer.settings}\n{options.jobs:,} jobs and {options.workers:,} workers, made in"
              f" {time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
        for part in wanted:
            PARTS[part](Bench(server, http_port, options.rounds, views))
    return 0


if __name__ == "__main__":
    sys.exit(main())
