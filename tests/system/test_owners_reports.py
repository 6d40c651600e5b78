"""What a worker of another node reports is acknowledged when the owner has stored it, and never before."""

from __future__ import annotations

import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from switchgear.client.gearman.blocking import Client
from tests.support.postgres import Cluster
from tests.support.proxy import Proxy, cuttable
from tests.support.servers import HOST
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.system.owner_nodes import OwnerNode, function_of, packet, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(120)]

NAMES = ("ada", "bob")
# Nobody is to be replaced while a test holds the answers of the database.
LEASE_SECONDS = 10.0
QUIET_SECONDS = 0.5
CAN_DO, NOOP, GRAB_JOB, NO_JOB, JOB_ASSIGN, WORK_COMPLETE, PRE_SLEEP = 1, 6, 9, 10, 11, 13, 4


class Worker:
    """A Gearman worker that speaks when it is told to."""

    def __init__(self, port: int, function: str) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=DEADLINE_SECONDS)
        self.socket.sendall(packet(CAN_DO, function.encode()))

    def send(self, *packets: bytes) -> None:
        self.socket.sendall(b"".join(packets))

    def receive(self) -> tuple[int, bytes]:
        header = self._exactly(12)
        kind, size = struct.unpack(">II", header[4:])
        return kind, self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("closed")
            data += piece
        return data

    def grab(self) -> bytes:
        """The handle of a job, waited for."""
        while True:
            self.send(packet(GRAB_JOB))
            kind, body = self.receive()
            while kind == NOOP:
                kind, body = self.receive()
            if kind == JOB_ASSIGN:
                return body.split(b"\0", 1)[0]
            assert kind == NO_JOB
            self.send(packet(PRE_SLEEP))
            assert self.receive()[0] == NOOP

    def is_quiet(self) -> bool:
        """Whether nothing comes for a while."""
        self.socket.settimeout(QUIET_SECONDS)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
            return False
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(DEADLINE_SECONDS)


class Stage:
    """An owner behind a database connection that can be held, and another node with the worker."""

    def __init__(self, postgres: Cluster, place: Path, stack: ExitStack) -> None:
        self.network: Proxy = stack.enter_context(cuttable(postgres.port))
        far = postgres.new_url(self.network.port)
        near = far.replace(f":{self.network.port}/", f":{postgres.port}/")
        self.owner = OwnerNode("ada", far, place, lease_seconds=LEASE_SECONDS)
        self.other = OwnerNode("bob", near, place, lease_seconds=LEASE_SECONDS)
        self.nodes = [self.owner, self.other]
        for node in self.nodes:
            stack.callback(node.end)
            node.start()
            node.wait_until_it_answers()
        settled(self.nodes)
        self.function = function_of(self.owner, names=NAMES)
        self.worker = Worker(self.other.port, self.function)
        stack.callback(self.worker.socket.close)

    def submit(self) -> str:
        with self.owner.client() as client:
            return client.submit(self.function, b"x", background=True).handle


@pytest.fixture
def stage(postgres: Cluster, tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(postgres, tmp_path, stack)


def test_the_next_answer_waits_for_the_owner_to_store_the_report(stage: Stage) -> None:
    stage.submit()
    handle = stage.worker.grab()
    stage.network.hold_answers()
    stage.worker.send(packet(WORK_COMPLETE, handle, b"done"), packet(GRAB_JOB))
    assert stage.worker.is_quiet(), stage.worker.receive()
    stage.network.release_answers()
    assert stage.worker.receive()[0] == NO_JOB


def test_a_report_that_the_owner_may_not_have_stored_is_not_acknowledged(stage: Stage) -> None:
    stage.submit()
    grabbed = stage.worker.grab()
    stage.network.hold_answers()
    stage.worker.send(packet(WORK_COMPLETE, grabbed, b"done"), packet(GRAB_JOB))
    assert stage.worker.is_quiet()
    stage.owner.signal(signal.SIGKILL)
    with pytest.raises(ConnectionError):
        stage.worker.receive()


def runs_at(client: Client) -> list[tuple[str, int]]:
    return [(each["node"], each["running"]) for each in client.control("functions") if each["total"]]


def test_a_run_goes_on_at_the_next_owner(stage: Stage) -> None:
    """The other node takes over, and its worker has never stopped."""
    stage.submit()
    handle = stage.worker.grab()
    stage.owner.signal(signal.SIGKILL)
    stage.owner.wait()
    with stage.other.client() as client:
        eventually(lambda: runs_at(client) == [("bob", 1)], "the other node owns the job", 60)
        stage.worker.send(packet(WORK_COMPLETE, handle, b"done"), packet(GRAB_JOB))
        assert stage.worker.receive()[0] == NO_JOB
        assert client.control("job", handle=handle.decode())["attempts"] == 1


def test_a_report_without_an_owner_counts_at_the_next_one(stage: Stage) -> None:
    """The node that takes over is that of the worker. It cannot acknowledge what was reported before that."""
    stage.submit()
    handle = stage.worker.grab()
    stage.owner.signal(signal.SIGKILL)
    stage.owner.wait()
    stage.other.partitions()  # it has read the end of its link before it answers this
    stage.worker.send(packet(WORK_COMPLETE, handle, b"done"), packet(GRAB_JOB))
    with pytest.raises(ConnectionError):
        stage.worker.receive()

    def state_and_attempts(client: Client) -> tuple[str, int]:
        described = client.control("job", handle=handle.decode())
        return described["state"], described["attempts"]

    with stage.other.client() as client:
        eventually(lambda: state_and_attempts(client) == ("done", 1), "the report counts")
