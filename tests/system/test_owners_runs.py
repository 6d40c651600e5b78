"""What workers run goes on when another node takes over: limits count it, and it does not run again.

TEST_TAKEOVERS says how often the owner is killed.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.support.postgres import Cluster
from tests.support.servers import HOST
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.system.owner_nodes import NAMES, OwnerNode, function_of, packet, settled
from tests.system.test_owners_reports import GRAB_JOB, NO_JOB, WORK_COMPLETE, Worker

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(900)]

TAKEOVERS = int(os.environ.get("TEST_TAKEOVERS", "2"))
CONCURRENCY = 5
WORKERS_PER_NODE = 5
RESUME_JOB, RESUME_RES = 1017, 1018


@pytest.fixture
def nodes(postgres: Cluster, tmp_path: Path) -> Iterator[list[OwnerNode]]:
    store = postgres.new_url()
    made = [OwnerNode(name, store, tmp_path) for name in NAMES]
    with ExitStack() as stack:
        for node in made:
            stack.callback(node.end)
            node.start()
            node.wait_until_it_answers()
        settled(made)
        yield made


class Runs:
    """Which runs all workers have at each moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0
        self.times: Counter[bytes] = Counter()

    def begin(self, payload: bytes) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            self.times[payload] += 1

    def end(self) -> None:
        with self._lock:
            self._now -= 1

    def count(self) -> int:
        with self._lock:
            return sum(self.times.values())

    def is_beyond(self, count: int) -> bool:
        return self.count() > count


class BusyWorker:
    """A Gearman worker whose jobs take some time; it finishes what it has begun, whatever happens to its connection."""

    def __init__(self, node: OwnerNode, function: str, runs: Runs, seed: int) -> None:
        self._node = node
        self._function = function
        self._runs = runs
        self._random = random.Random(seed)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(DEADLINE_SECONDS)

    def _run(self) -> None:
        while not self._is_over.wait(0.05):
            with suppress(OSError), socket.create_connection((HOST, self._node.port)) as connection:
                connection.settimeout(0.2)
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        connection.sendall(packet(1, self._function.encode()) + packet(9))
        held = b""
        while not self._is_over.is_set():
            with suppress(TimeoutError):
                data = connection.recv(65_536)
                if not data:
                    return
                held += data
            while len(held) >= 12:
                kind, size = struct.unpack_from(">4xII", held)
                if len(held) < 12 + size:
                    break
                body, held = held[12 : 12 + size], held[12 + size :]
                if kind == 6:  # NOOP
                    connection.sendall(packet(9))
                elif kind == 10:  # NO_JOB
                    connection.sendall(packet(4))
                elif kind == 11:  # JOB_ASSIGN
                    handle, _, payload = body.split(b"\0", 2)
                    self._runs.begin(payload)
                    self._is_over.wait(self._random.uniform(0.5, 6.0))  # the work
                    self._runs.end()
                    connection.sendall(packet(13, handle, payload.upper()) + packet(9))


@pytest.mark.parametrize("background", [True, False])
def test_a_concurrency_limit_is_kept_through_takeovers(nodes: list[OwnerNode], *, background: bool) -> None:
    """The owner is killed and comes back, and the workers of the other nodes are busy all the time."""
    ada, *others = nodes
    function = function_of(ada)
    runs = Runs()
    with ExitStack() as stack:
        with others[0].client() as client:
            client.control("limit", function=function, concurrency=CONCURRENCY)
        for number in range(WORKERS_PER_NODE):
            for node in others:
                stack.callback(BusyWorker(node, function, runs, number).close)
        submitter = stack.enter_context(socket.create_connection((HOST, others[0].port)))
        kind = 18 if background else 7
        submitted = 40 * TAKEOVERS
        for number in range(submitted):
            submitter.sendall(packet(kind, function.encode(), b"", b"job %d" % number))
        eventually(lambda: runs.most == CONCURRENCY, "as many run as may", 60)
        for _ in range(TAKEOVERS):
            ada.signal(signal.SIGKILL)
            ada.wait()
            wait_for_takeover(ada, others[0])
            begun = runs.count()
            eventually(partial(runs.is_beyond, begun + 3), "the work goes on", 60)
            ada.start()
            ada.wait_until_it_answers()
            settled(nodes)
    assert runs.most == CONCURRENCY
    # A report may be on its way when the owner is killed; then the job runs again.
    assert sum(times - 1 for times in runs.times.values()) <= TAKEOVERS * CONCURRENCY


def wait_for_takeover(owner: OwnerNode, other: OwnerNode) -> None:
    eventually(lambda: other.partitions().get(owner.name) is None, "another node has taken over", 60)


@pytest.mark.parametrize("place", [1, 2])
def test_a_worker_of_the_lost_node_goes_on_at_any_other_one(nodes: list[OwnerNode], place: int) -> None:
    """One of the others is the next owner, and the worker may have come to either."""
    ada, bob, _ = nodes
    function = function_of(ada)
    with ExitStack() as stack:
        worker = Worker(ada.port, function)
        stack.callback(worker.socket.close)
        with bob.client() as client:
            handle = client.submit(function, b"x", background=True).handle.encode()
        assert worker.grab() == handle
        ada.signal(signal.SIGKILL)
        ada.wait()
        back = Worker(nodes[place].port, function)
        stack.callback(back.socket.close)
        back.send(packet(RESUME_JOB, handle, b"1"))
        assert back.receive() == (RESUME_RES, handle + b"\0resumed")
        wait_for_takeover(ada, bob)
        back.send(packet(WORK_COMPLETE, handle, b"r"), packet(GRAB_JOB))
        assert back.receive()[0] == NO_JOB
        with bob.client() as client:
            described = client.control("job", handle=handle.decode())
        assert (described["state"], described["attempts"]) == ("done", 1)


@pytest.mark.parametrize("attempt", [b"2", b"1"])
def test_a_worker_that_has_lost_its_attempt_is_told_so(nodes: list[OwnerNode], attempt: bytes) -> None:
    """Nobody has begun attempt 2, and the job of attempt 1 is done."""
    ada, bob, _ = nodes
    function = function_of(ada)
    with bob.client() as client:
        handle = client.submit(function, b"x", background=True).handle.encode()
    with ExitStack() as stack:
        worker, stranger = Worker(ada.port, function), Worker(bob.port, function)
        stack.callback(worker.socket.close)
        stack.callback(stranger.socket.close)
        assert worker.grab() == handle
        if attempt == b"1":
            worker.send(packet(WORK_COMPLETE, handle, b"r"), packet(GRAB_JOB))
            assert worker.receive()[0] == NO_JOB
        stranger.send(packet(RESUME_JOB, handle, attempt))
        assert stranger.receive() == (RESUME_RES, handle + b"\0refused")
