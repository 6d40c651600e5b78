"""What does it cost a busy server to be watched: /metrics every second, and an event stream with every topic?

    PYTHONPATH=build/compiled python -m bench.watched [--queued 1000000] [--jobs 60000] [--rounds 5]

Fills a server with jobs that nobody takes, and passes further jobs through it over Gearman, in turns with and without
watchers (ABAB).  Prints the CPU time of the server per job of both, the medians of all rounds.  Then the same is done
once with a server that notes how long each callback of its event loop takes, in CPU time of its thread, which other
programs do not change: that is how long every peer waits.  That server runs on asyncio's own event loop, because
uvloop has no place to look.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bench.http_api import LISTENERS, JobWorker, cpu_seconds_of, http_request, submit_all
from switchgear.bench.server import environment, listen_addresses
from switchgear.protocols.gearman.codec import request
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.http.live_feed import TOPICS

BATCH: Final = 256
OUTSTANDING: Final = 32
FUNCTIONS: Final = 100
NOTED_MS: Final = 1.0
GOAL_GROWTH: Final = 0.05
GOAL_STALL_MS: Final = 10.0

Addresses = dict[str, tuple[str, int]]


@contextmanager
def running_server(notes: Path | None) -> Iterator[tuple[subprocess.Popen[str], Addresses]]:
    """A server, which notes its long callbacks in a file if there is one."""
    module = ["switchgear"] if notes is None else ["bench.watched", "--serve", str(notes)]
    command = [sys.executable, "-m", *module, "serve", "--store", "memory:", "--log-level", "error", *LISTENERS]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        urls = [urlsplit(url) for url in listen_addresses(process, 2)]
        yield process, {url.scheme: (url.hostname or "", url.port or 0) for url in urls}
    finally:
        process.kill()
        process.wait()


def serve_with_notes(notes: Path, arguments: list[str]) -> None:
    """Be a server that notes each long callback: when it ended, its CPU time and its time, in milliseconds."""
    sys.modules["uvloop"] = None  # type: ignore[assignment]
    run = asyncio.Handle._run
    file = notes.open("a", buffering=1)

    def timed(handle: asyncio.Handle) -> None:
        wall, cpu = time.monotonic(), time.thread_time()
        run(handle)
        cpu_ms = (time.thread_time() - cpu) * 1000
        if cpu_ms > NOTED_MS:
            now = time.monotonic()
            name = getattr(handle._callback, "__qualname__", str(handle._callback))  # type: ignore[attr-defined]
            file.write(json.dumps([now, cpu_ms, (now - wall) * 1000, name]) + "\n")

    asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]
    from switchgear.cli.main import main as switchgear

    sys.argv = ["switchgear", *arguments]
    switchgear()


def fill(address: tuple[str, int], jobs: int) -> None:
    """Submit jobs that nobody takes, of many functions."""
    with socket.create_connection(address, 600) as connection:
        for first in range(0, jobs, BATCH):
            count = min(BATCH, jobs - first)
            packets = [
                request(Packet.SUBMIT_JOB_BG, b"queued%d" % (number % FUNCTIONS), b"", b"x" * 100)
                for number in range(first, first + count)
            ]
            connection.sendall(b"".join(packets))
            answers = b""
            while answers.count(b"\0RES\0\0\0\x08") < count:
                answers += connection.recv(1_000_000)


class Watchers:
    """Scrapes the metrics once a second, and reads a stream of all topics, while the block lasts."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.scrapes = self.bytes = 0
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._scrape), threading.Thread(target=self._watch)]

    def __enter__(self) -> Watchers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _scrape(self) -> None:
        with socket.create_connection(self.address, 60) as connection:
            while not self._ended.is_set():
                connection.sendall(http_request(b"GET", b"/metrics"))
                answer = b""
                while not answer.endswith(b"\r\n0\r\n\r\n"):
                    answer += connection.recv(1_000_000)
                self.scrapes += 1
                self._ended.wait(1.0)

    def _watch(self) -> None:
        with socket.create_connection(self.address, 60) as connection:
            connection.settimeout(0.2)
            connection.sendall(http_request(b"GET", b"/v1/events?topics=" + ",".join(TOPICS).encode()))
            while not self._ended.is_set():
                try:
                    self.bytes += len(connection.recv(1_000_000))
                except TimeoutError:
                    continue


class Load:
    """Jobs that pass through the server over Gearman."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.worker = JobWorker("gearman", address)
        self.number = 0

    def run(self, jobs: int) -> None:
        """Submit jobs, take them and report on them, some at a time."""
        for _ in range(jobs // BATCH):
            submit_all("gearman", self.address, range(self.number, self.number + BATCH), OUTSTANDING)
            self.number += BATCH
            for _ in range(BATCH // OUTSTANDING):
                self.worker.work(OUTSTANDING)


def measure_cpu(options: argparse.Namespace) -> None:
    alone: list[float] = []
    watched: list[float] = []
    jobs = options.jobs // BATCH * BATCH
    with running_server(None) as (process, addresses):
        fill(addresses["gearman"], options.queued)
        load = Load(addresses["gearman"])
        load.run(jobs // 4)
        for number in range(2 * options.rounds):
            is_watched = number % 2 == 1
            watchers = Watchers(addresses["http"])
            if is_watched:
                watchers.__enter__()
            time.sleep(1.0)  # a viewer's first snapshot is not what it costs to be watched
            cpu_seconds, began = cpu_seconds_of(process), time.monotonic()
            load.run(jobs)
            seconds = time.monotonic() - began
            cpu_us = (cpu_seconds_of(process) - cpu_seconds) / jobs * 1e6
            (watched if is_watched else alone).append(cpu_us)
            if is_watched:
                watchers.__exit__()
            seen = f", {watchers.scrapes} scrapes, {watchers.bytes:,} bytes of events" if is_watched else ""
            print(f"{'watched' if is_watched else 'alone':8} {cpu_us:7.2f} µs of CPU a job, {seconds:.1f} s{seen}")
    before, after = statistics.median(alone), statistics.median(watched)
    growth = after / before - 1
    verdict = "met" if growth <= GOAL_GROWTH else "missed"
    print(
        f"median   {before:.2f} alone, {after:.2f} watched: {growth:+.1%}; the goal of {GOAL_GROWTH:+.0%} is {verdict}"
    )


def measure_stalls(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder, "notes")
        with running_server(notes) as (_, addresses):
            fill(addresses["gearman"], options.queued)
            load = Load(addresses["gearman"])
            for is_watched in (False, True):
                began = time.monotonic()
                watchers = Watchers(addresses["http"])
                if is_watched:
                    watchers.__enter__()
                load.run(options.jobs)
                if is_watched:
                    watchers.__exit__()
                rows = [json.loads(line) for line in notes.read_text().splitlines()]
                cpu_ms, wall_ms, name = max([row[1:] for row in rows if row[0] > began], default=(0.0, 0.0, "none"))
                verdict = "met" if cpu_ms <= GOAL_STALL_MS else "missed"
                print(
                    f"{'watched' if is_watched else 'alone':8} longest callback {cpu_ms:.1f} ms of CPU"
                    f" ({wall_ms:.1f} ms with what the machine did besides), {name};"
                    f" the goal of {GOAL_STALL_MS:.0f} ms is {verdict}"
                )


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve_with_notes(Path(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queued", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=900_000, help="jobs in one round, which takes several scrapes")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of rounds")
    options = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    measure_cpu(options)
    measure_stalls(options)


if __name__ == "__main__":
    main()
