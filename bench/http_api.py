"""What submitting and working over HTTP costs the server, beside the same over Gearman at the same server.

    .venv/bin/python bench/http_api.py                    40,000 jobs, in memory
    .venv/bin/python bench/http_api.py --jobs 100000

One connection submits jobs of 100 bytes, and waits for the answers to so many before it sends the next ones: `x1`, one
at a time; `x32`, 32 in one write.  `http` sends each payload as a body, `http-json` an object with a unique key, as
Gearman's submissions have.  `take, result` takes jobs and reports on them: over Gearman with GRAB_JOB and
WORK_COMPLETE; `http` with a request for each job and each result; `http-poll` as a registered worker that asks for as
many jobs at a time.  What is measured is the CPU time of the server, all threads together.
"""

from __future__ import annotations

import argparse
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
WORKERS: Final = ("gearman", "http", "http-poll")
HANDLE: Final = {
    "gearman": re.compile(rb"\0RES\0\0\0\x0b....([^\0]+)", re.DOTALL),
    "http": re.compile(rb"Switchgear-Job: (\S+)"),
    "http-poll": re.compile(rb'"handle":"([^"]+)"'),
}
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


def submit_all(
    peer: str, address: tuple[str, int], numbers: range, outstanding: int, tls: ssl.SSLContext | None = None
) -> None:
    """Submit jobs with these numbers, and check the answers; raises RuntimeError."""
    sign = sign_of(peer)
    with ExitStack() as stack:
        connection: socket.socket = stack.enter_context(socket.create_connection(address, PATIENCE_SECONDS))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            connection = stack.enter_context(tls.wrap_socket(connection))
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


def http_request(method: bytes, target: bytes, body: bytes = b"", lines: bytes = b"") -> bytes:
    head = b"%b %b HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\n%bContent-Length: %d\r\n\r\n%b"
    return head % (method, target, lines, len(body), body)


class JobWorker:
    """Takes jobs on one connection, some at a time, and reports on them; raises RuntimeError."""

    def __init__(self, peer: str, address: tuple[str, int]) -> None:
        self.peer = peer
        self.connection = socket.create_connection(address, PATIENCE_SECONDS)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.id = b""
        if peer == "gearman":
            self.connection.sendall(request(Packet.CAN_DO, b"work"))
        elif peer == "http-poll":
            body = b'{"functions": ["work"]}'
            answer = self._answers(http_request(b"POST", b"/v1/workers", body), re.compile(rb'"lease":'), 1)
            self.id = answer.partition(b"Location: /v1/workers/")[2].partition(b"\r\n")[0]

    def work(self, count: int) -> None:
        """Take so many jobs, which must be there, and report on them."""
        take = request(Packet.GRAB_JOB) * count
        if self.peer == "http":
            take = http_request(b"POST", b"/v1/functions/work/take") * count
        elif self.peer == "http-poll":
            take = http_request(b"POST", b"/v1/workers/%b/poll?max=%d" % (self.id, count))
        handle = HANDLE[self.peer]
        handles = handle.findall(self._answers(take, handle, count))
        if self.peer == "gearman":
            self.connection.sendall(b"".join([request(Packet.WORK_COMPLETE, each, b"done") for each in handles]))
            self._answers(request(Packet.ECHO_REQ, b"so far"), re.compile(b"so far"), 1)
        else:
            reports = [
                http_request(b"PUT", b"/v1/jobs/%b/result" % each, b"done", b"Switchgear-Attempt: 1\r\n")
                for each in handles
            ]
            self._answers(b"".join(reports), re.compile(rb"HTTP/1.1 204 No Content\r\n"), count)

    def _answers(self, data: bytes, sign: re.Pattern[bytes], count: int) -> bytes:
        """What is answered to some requests: until so many signs were seen, and the end of an answer."""
        self.connection.sendall(data)
        answers = b""
        while len(sign.findall(answers)) < count or not self._is_whole(answers):
            piece = self.connection.recv(1_000_000)
            answers += piece
            if not piece or len(answers) > 2_000 * count + 10_000:
                raise RuntimeError(f"expected {count} answers, got {answers[:500]!r}")
        return answers

    def _is_whole(self, answers: bytes) -> bool:
        return self.peer == "gearman" or answers.endswith((b"\r\n\r\n", b"}", b"]}", PAYLOAD))


def cpu_seconds_of(process: subprocess.Popen[str]) -> float:
    """The CPU time of a process, all threads together."""
    return time.clock_gettime((~process.pid << 3) | 2)


def measure(peer: str, outstanding: int, jobs: int) -> Reading:
    """The server's CPU time per submission."""
    with running_server() as (process, addresses):
        address = addresses["gearman" if peer == "gearman" else "http"]
        submit_all(peer, address, range(1_000), outstanding)  # so that what is made once has been made
        cpu_seconds, began = cpu_seconds_of(process), time.monotonic()
        submit_all(peer, address, range(1_000, 1_000 + jobs), outstanding)
        cpu_us = (cpu_seconds_of(process) - cpu_seconds) / jobs * 1e6
        return Reading(jobs, time.monotonic() - began, cpu_us)


def measure_work(peer: str, outstanding: int, jobs: int) -> Reading:
    """The server's CPU time to hand out a job and to take its result."""
    with running_server() as (process, addresses):
        submit_all("gearman", addresses["gearman"], range(1_024 + jobs), 256)
        worker = JobWorker(peer, addresses["gearman" if peer == "gearman" else "http"])
        for _ in range(1_024 // outstanding):
            worker.work(outstanding)
        cpu_seconds, began = cpu_seconds_of(process), time.monotonic()
        for _ in range(jobs // outstanding):
            worker.work(outstanding)
        cpu_us = (cpu_seconds_of(process) - cpu_seconds) / (jobs // outstanding * outstanding) * 1e6
        return Reading(jobs, time.monotonic() - began, cpu_us)


def cells(quick: bool) -> list[Cell]:
    """Each way to submit, one at a time and 32 at a time."""
    settings = how_started(f"switchgear serve --store memory: --log-level error {' '.join(LISTENERS)}")
    jobs = QUICK_JOBS if quick else JOBS
    return [
        Cell("http", f"submit x{outstanding}", peer, settings, partial(measure, peer, outstanding, jobs))
        for outstanding in (1, 32)
        for peer in PEERS
    ] + [
        Cell(
            "http", f"take, result x{outstanding}", peer, settings, partial(measure_work, peer, outstanding, jobs // 2)
        )
        for outstanding in (1, 32)
        for peer in WORKERS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    best: dict[tuple[str, int, str], float] = {}
    for _ in range(options.rounds):
        for what, peers, measured in (("submit", PEERS, measure), ("take, result", WORKERS, measure_work)):
            for outstanding in (1, 32):
                for peer in peers:
                    cpu_us = measured(peer, outstanding, options.jobs).cpu_us or 0.0
                    key = what, outstanding, peer
                    best[key] = min(cpu_us, best.get(key, cpu_us))
    for (what, outstanding, peer), cpu_us in best.items():
        ratio = cpu_us / best[what, outstanding, "gearman"]
        print(f"{what:12} x{outstanding:<3} {peer:10} {cpu_us:6.1f} µs of CPU, {ratio:.2f} of Gearman's")


if __name__ == "__main__":
    main()
