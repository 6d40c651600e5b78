"""A few bytes of requests must not fill the server's memory with answers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.servers import running_switchgear

pytestmark = pytest.mark.system

FUNCTIONS = 2000
NAME_BYTES = 200
REQUESTS = 300  # of 400 kB each: 120 MB of answers to 2 kB of requests
MOST_GROWTH_KB = 48 * 1024


def most_memory_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def read_until(peer: socket.socket, end: bytes, count: int) -> None:
    tail = b""
    while count:
        data = peer.recv(1 << 20)
        assert data, "the server hung up"
        seen = tail + data
        count -= seen.count(end) - tail.count(end)
        tail = seen[-len(end) + 1 :]


@pytest.mark.parametrize("closes", [False, True], ids=["stays", "closes its side after asking"])
def test_many_long_answers_are_made_as_they_are_taken(closes: bool) -> None:
    with (
        running_switchgear(store="memory:") as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as peer,
    ):
        names = (b"%0*d" % (NAME_BYTES, number) for number in range(FUNCTIONS))
        peer.sendall(b"".join(b"create function %b\r\n" % name for name in names))
        read_until(peer, b"OK\r\n", FUNCTIONS)
        before_kb = most_memory_kb(server.process.pid)
        peer.sendall(b"status\n" * REQUESTS)
        if closes:
            peer.shutdown(socket.SHUT_WR)
        read_until(peer, b"\n.\n", REQUESTS)
        assert most_memory_kb(server.process.pid) - before_kb < MOST_GROWTH_KB
