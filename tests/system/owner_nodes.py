"""Nodes of a cluster in the mode `owners`, and workers that share no code with ours."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from switchgear.client.gearman.blocking import Client
from switchgear.partitions import partition_of, preferred_node
from tests.matrix.addresses import Addresses
from tests.support.servers import HOST, answers_version, free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually

NAMES = ("ada", "bob", "cleo")
LEASE_SECONDS = 1.0
PING_FUNCTION = "f0"  # the function of the PING/PONG listeners
DWORK_FUNCTION = "tasks"  # that of the dwork listeners


class OwnerNode:
    """One server of a cluster, started again and again at the same address."""

    def __init__(
        self,
        name: str,
        store: str,
        place: Path,
        *settings: str,
        lease_seconds: float = LEASE_SECONDS,
        joblog: str = "off",
        listen: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.port, self.http_port, self.pingpong_port, self.workers_port, self.wmp_port, self.redis_port = (
            free_port() for _ in range(6)
        )
        self.dwork_port = free_port()
        self._log = place / f"{name}.log"
        self._command = [sys.executable, "-m", "switchgear", "serve", "--store", store, "--joblog", joblog]
        self._command += ["--listen", f"gearman://{HOST}:{self.port}", "--listen", f"http://{HOST}:{self.http_port}"]
        self._command += [
            "--listen",
            f"pingpong://{HOST}:{self.pingpong_port}?workers={self.workers_port}&function={PING_FUNCTION}",
        ]
        self._command += ["--listen", f"wmp://{HOST}:{self.wmp_port}"]
        self._command += ["--listen", f"gearmonkey://{HOST}:{self.redis_port}"]
        self._command += ["--listen", f"dwork://{HOST}:{self.dwork_port}?function={DWORK_FUNCTION}"]
        for url in listen:
            self._command += ["--listen", url]
        usual = ("cluster.enabled=true", "cluster.mode=owners", "cluster.allow_async=true", f"cluster.name={name}")
        for setting in (*usual, f"cluster.lease_seconds={lease_seconds}", *settings):
            self._command += ["--set", setting]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_until_it_answers(self) -> None:
        eventually(lambda: self.is_over() or answers_version(self.port), f"{self.name} answers: {self.output()}", 60)
        assert not self.is_over(), self.output()

    def is_over(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(DEADLINE_SECONDS)

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def output(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def client(self) -> Client:
        return Client(f"gearman://{HOST}:{self.port}")

    def addresses(self, function: str) -> Addresses:
        """Where clients and workers of each protocol find this node."""
        return Addresses(
            function=function,
            gearman=f"gearman://{HOST}:{self.port}",
            wmp=f"wmp://{HOST}:{self.wmp_port}",
            gearmonkey=f"redis://{HOST}:{self.redis_port}",
            redis="",
            http=f"http://{HOST}:{self.http_port}",
            pingpong_clients=f"tcp://{HOST}:{self.pingpong_port}",
            pingpong_workers=f"tcp://{HOST}:{self.workers_port}",
        )

    def partitions(self) -> dict[str, int]:
        """How many partitions each node owns, as this one sees it."""
        with self.client() as client:
            return {node["name"]: node["partitions"] for node in client.control("nodes")}


@contextmanager
def running(nodes: list[OwnerNode]) -> Iterator[None]:
    """Start these nodes, and let each partition find its node."""
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.end)
            node.start()
        for node in nodes:
            node.wait_until_it_answers()
        settled(nodes)
        yield


def settled(nodes: list[OwnerNode]) -> None:
    """Wait until each partition is at the node that it belongs to."""
    for node in nodes:
        eventually(partial(has_partitions, node, shares(nodes)), "the partitions have found their nodes", 60)


def shares(nodes: list[OwnerNode]) -> dict[str, int]:
    """How many partitions belong to each of these nodes."""
    names = [node.name for node in nodes]
    wanted: dict[str, int] = dict.fromkeys(names, 0)
    for partition in range(64):
        wanted[preferred_node(partition, names)] += 1
    return wanted


def has_partitions(node: OwnerNode, wanted: dict[str, int]) -> bool:
    return node.partitions() == wanted


def function_of(owner: OwnerNode, number: int = 0, names: tuple[str, ...] = NAMES) -> str:
    """A function that this node owns when all of these are there."""
    found = (
        name
        for name in (f"f{n}" for n in range(10_000))
        if preferred_node(partition_of(name.encode()), names) == owner.name
    )
    for _ in range(number):
        next(found)
    return next(found)


def packet(kind: int, *arguments: bytes) -> bytes:
    body = b"\0".join(arguments)
    return b"\0REQ" + struct.pack(">II", kind, len(body)) + body


class PlainWorker:
    """A Gearman worker of a few lines: grabs, sleeps, answers in capitals. It connects again, as workers do: its node
    closes the connection if it cannot say whether a report is stored."""

    def __init__(self, node: OwnerNode, function: str) -> None:
        self.payloads: list[bytes] = []
        self.handles: list[bytes] = []
        self._node = node
        self._function = function
        self._is_over = threading.Event()
        self._socket = self._connected()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> PlainWorker:
        return self

    def __exit__(self, *_: Any) -> None:
        self._is_over.set()
        with suppress(OSError):  # it may be closed already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(DEADLINE_SECONDS)
        self._socket.close()

    def _connected(self) -> socket.socket:
        connection = socket.create_connection((HOST, self._node.port))
        connection.sendall(packet(1, self._function.encode()) + packet(9))
        return connection

    def _run(self) -> None:
        while not self._is_over.is_set():
            with suppress(OSError):
                self._talk()
            if not self._is_over.wait(0.1):
                self._socket.close()
                with suppress(OSError):  # the node is not there yet
                    self._socket = self._connected()

    def _talk(self) -> None:
        held = b""
        while data := self._socket.recv(65_536):
            held += data
            while len(held) >= 12:
                kind, size = struct.unpack_from(">4xII", held)
                if len(held) < 12 + size:
                    break
                body, held = held[12 : 12 + size], held[12 + size :]
                self._handle(kind, body)

    def _handle(self, kind: int, body: bytes) -> None:
        if kind == 6:  # NOOP
            self._socket.sendall(packet(9))
        elif kind == 10:  # NO_JOB
            self._socket.sendall(packet(4))
        elif kind == 11:  # JOB_ASSIGN
            handle, _, payload = body.split(b"\0", 2)
            self.payloads.append(payload)
            self.handles.append(handle)
            self._socket.sendall(packet(13, handle, payload.upper()) + packet(9))
