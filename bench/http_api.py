"""What a submission over HTTP costs the server, beside the same over Gearman at the same server.

    .venv/bin/python bench/http_api.py                    40,000 jobs, in memory
    .venv/bin/python bench/http_api.py --jobs 100000

One connection submits jobs of 100 bytes, and waits for the answers to so many before it sends the next ones: `x1`, one
at a time; `x32`, 32 in one write.  `http` sends each payload as a body, `http-json` an object with a unique key, as
Gearman's submissions have.  What is measured is the CPU time of the server, all threads together.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from switchgear.bench.results import Cell, Reading
from switchgear.bench.server import environment, how_started, listen_addresses
from switchgear.protocols.gearman.codec import request
from switchgear.protocols.gearman.messages import Packet

JOBS: Final = 40_000
QUICK_JOBS: Final = 4_000
PAYLOAD: Final = b"x" * 100
PATIENCE_SECONDS: Final = 60
PEERS: Final = ("gearman", "http", "http-json")
HEAD: Final = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\nContent-Length: %d\r\n\r\n%b"
END: Final = b'"joined":false}'  # of each answer over HTTP
LISTENERS: Final = ("--listen", "gearman://127.0.0.1:0", "--listen", "http://127.0.0.1:0")


@contextmanager
def running_server() -> Iterator[tuple[subprocess.Popen[str], dict[str, tuple[str, int]]]]:
    """A server, and its addresses by their schemes."""
    command = [sys.executable, "-m", "switchgear", "serve", "--store", "memory:", "--log-level", "error", *LISTENERS]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        urls = [urlsplit(url) for url in listen_addresses(process, 2)]
        yield process, {url.scheme: (url.hostname or "", url.port or 0) for url in urls}
    finally:
        process.kill()
        process.wait()


def submission(peer: str, number: int) -> bytes:
    """The bytes of one submission."""
    if peer == "gearman":
        return request(Packet.SUBMIT_JOB_BG, b"work", b"%036d" % number, PAYLOAD)
    if peer == "http":
        return HEAD % (b"/v1/functions/work/jobs", len(PAYLOAD), PAYLOAD)
    body = b'{"function": "work", "payload": "%b", "unique": "%036d"}' % (PAYLOAD, number)
    return HEAD % (b"/v1/jobs", len(body), body)


def sign_of(peer: str) -> bytes:
    """What each good answer has, once."""
    return b"\0RES\0\0\0\x08" if peer == "gearman" else b"HTTP/1.1 201 Created\r\n"


def submit_all(peer: str, address: tuple[str, int], numbers: range, outstanding: int) -> None:
    """Submit jobs with these numbers, and check the answers; raises RuntimeError."""
    sign = sign_of(peer)
    with socket.create_connection(address, PATIENCE_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for first in range(0, len(numbers), outstanding):
            some = numbers[first : first + outstanding]
            count = len(some)
            connection.sendall(b"".join([submission(peer, number) for number in some]))
            answers = b""
            while answers.count(sign) < count or (peer != "gearman" and answers.count(END) < count):
                piece = connection.recv(1_000_000)
                answers += piece
                if not piece or len(answers) > 1_000 * count:
                    raise RuntimeError(f"expected {count} answers, got {answers[:500]!r}")


def measure(peer: str, outstanding: int, jobs: int) -> Reading:
    """The server's CPU time per submission."""
    with running_server() as (process, addresses):
        address = addresses["gearman" if peer == "gearman" else "http"]
        submit_all(peer, address, range(1_000), outstanding)  # so that what is made once has been made
        clock = (~process.pid << 3) | 2  # the CPU clock of another process
        cpu_seconds, began = time.clock_gettime(clock), time.monotonic()
        submit_all(peer, address, range(1_000, 1_000 + jobs), outstanding)
        cpu_us = (time.clock_gettime(clock) - cpu_seconds) / jobs * 1e6
        return Reading(jobs, time.monotonic() - began, cpu_us)


def cells(quick: bool) -> list[Cell]:
    """Each way to submit, one at a time and 32 at a time."""
    settings = how_started(f"switchgear serve --store memory: --log-level error {' '.join(LISTENERS)}")
    jobs = QUICK_JOBS if quick else JOBS
    return [
        Cell("http", f"submit x{outstanding}", peer, settings, partial(measure, peer, outstanding, jobs))
        for outstanding in (1, 32)
        for peer in PEERS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    best: dict[tuple[int, str], float] = {}
    for _ in range(options.rounds):
        for outstanding in (1, 32):
            for peer in PEERS:
                cpu_us = measure(peer, outstanding, options.jobs).cpu_us or 0.0
                best[outstanding, peer] = min(cpu_us, best.get((outstanding, peer), cpu_us))
    for (outstanding, peer), cpu_us in best.items():
        ratio = cpu_us / best[outstanding, "gearman"]
        print(f"submit x{outstanding:<3} {peer:10} {cpu_us:6.1f} µs of CPU, {ratio:.2f} of Gearman's")


if __name__ == "__main__":
    main()
