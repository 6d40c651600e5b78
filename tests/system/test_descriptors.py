"""File descriptors: however many connections are made, the server goes on, says so, and rests."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from contextlib import ExitStack, suppress

import pytest

from tests.support.servers import HOST, Server, answers_version, running_switchgear
from tests.support.waiting import eventually
from tests.support.wmp_processes import wmp_url
from tests.system.talk import lines_with, wait_for_line

pytestmark = pytest.mark.system

FEW = 128


def descriptors(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def cpu_seconds(server: Server) -> float:
    return time.clock_gettime((~server.pid << 3) | 2)  # the CPU clock of another process


def crowd(stack: ExitStack, port: int, count: int) -> list[socket.socket]:
    """Connections that say nothing; some may be closed at once."""
    peers = []
    for _ in range(count):
        with suppress(OSError):
            peers.append(stack.enter_context(socket.create_connection((HOST, port), timeout=5)))
    return peers


@pytest.mark.parametrize("scheme", ["gearman", "wmp"])
def test_when_there_are_none_left_new_connections_are_closed_and_the_log_says_why(scheme: str) -> None:
    with running_switchgear("--listen", f"wmp://{HOST}:0") as server, ExitStack() as stack:
        port = server.port if scheme == "gearman" else int(wmp_url(server).rpartition(":")[2])
        permitted = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        limit = descriptors(server) + 10
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (limit, permitted[1]))
        peers = crowd(stack, port, 30)

        def has_none_left() -> bool:
            # One that was counted may have been closed since: that of the question whether the server is ready.
            if descriptors(server) < limit:
                peers.extend(crowd(stack, port, 1))
                return False
            return True

        eventually(has_none_left, "the server has no descriptor left")
        wait_for_line(server, "no file descriptors left")
        before, lines = cpu_seconds(server), len(lines_with(server, "no file descriptors left"))
        eventually(lambda: len(lines_with(server, "no file descriptors left")) > lines, "a second has passed")
        assert cpu_seconds(server) - before < 0.5
        for peer in peers:
            peer.close()
        eventually(lambda: answers_version(server.port), "the server has descriptors again")
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, permitted)


def test_no_more_connections_are_taken_than_there_are_descriptors() -> None:
    with running_switchgear("--listen", f"wmp://{HOST}:0") as server, ExitStack() as stack:
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (FEW, FEW))
        server.process.send_signal(signal.SIGHUP)  # at its start it does the same
        assert f"the system permits {FEW} file descriptors" in wait_for_line(server, "limits.connections is")
        peers = crowd(stack, int(wmp_url(server).rpartition(":")[2]), 2 * FEW)
        wait_for_line(server, "connections already")
        assert descriptors(server) < FEW
        assert not answers_version(server.port)  # and is told so at once, by being closed
        for peer in peers:
            peer.close()
        eventually(lambda: answers_version(server.port), "there is room again")
