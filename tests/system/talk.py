"""What the tests in this directory say to a server again and again."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from tests.support.servers import HOST, Server, free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Kind, Packet, Wire

CONTROL = 1001  # an extension of this server: a verb, and arguments as JSON
CONTROL_RES = 1002
MIB = 1024 * 1024


def submit(wire: Wire, function: bytes, payload: bytes, kind: Kind = Kind.SUBMIT_JOB_BG, unique: bytes = b"") -> Packet:
    """One submission and the answer to it."""
    wire.send(kind, function, unique, payload)
    return wire.receive_packet()


def acknowledged(wire: Wire, function: bytes, payload: bytes, kind: Kind = Kind.SUBMIT_JOB_BG) -> bytes:
    """The handle of a job that is taken."""
    answer = submit(wire, function, payload, kind)
    assert answer.type == Kind.JOB_CREATED, answer
    return answer.body


def grab(worker: Wire) -> tuple[bytes, bytes] | None:
    """Handle and payload of the job that the worker is given, if there is one."""
    worker.send(Kind.GRAB_JOB)
    answer = worker.receive_packet()
    while answer.type == Kind.NOOP:
        answer = worker.receive_packet()
    if answer.type == Kind.NO_JOB:
        return None
    assert answer.type == Kind.JOB_ASSIGN, answer
    handle, _, payload = answer.body.split(b"\0", 2)
    return handle, payload


def run_all(server: Server, functions: Iterable[bytes]) -> list[bytes]:
    """Complete every job that waits; their payloads, in the order in which they came."""
    payloads = []
    with Wire(server.address) as worker:
        for function in functions:
            worker.send(Kind.CAN_DO, function)
        while job := grab(worker):
            payloads.append(job[1])
            worker.send(Kind.WORK_COMPLETE, job[0], b"")
        worker.expect_nothing()  # the answer says that all completions are kept
    return payloads


def unfinished(server: Server) -> list[bytes]:
    """The handles of all unfinished jobs."""
    with Wire(server.address) as wire:
        return [line.partition(b"\t")[0] for line in wire.ask("show jobs")[:-1]]


def control(wire: Wire, verb: str, **arguments: Any) -> Any:
    """An operator's question."""
    wire.send(CONTROL, verb.encode(), json.dumps(arguments).encode())
    answer = wire.receive_packet()
    assert answer.type == CONTROL_RES, answer
    return json.loads(answer.body)


def events(server: Server) -> dict[str, int]:
    """How often what has happened, by the names of the log."""
    with Wire(server.address) as wire:
        counts: dict[str, int] = control(wire, "server")["events"]
    return counts


def lines_with(server: Server, words: str) -> list[str]:
    """The lines of the server's log that contain these words."""
    return [line for line in server.output().splitlines() if words in line]


def wait_for_line(server: Server, words: str) -> str:
    """The first line of the log with these words, once it is there."""
    return eventually(lambda: lines_with(server, words), f"the log says {words!r}")[0]


def failing_start(*args: str, store: str) -> tuple[int, list[str]]:
    """Exit status and lines on standard error of a server that cannot start."""
    listener = f"gearman://{HOST}:{free_port()}"
    command = [sys.executable, "-m", "switchgear", "serve", "--listen", listener, "--store", store, *args]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    return ended.returncode, ended.stderr.splitlines()


def resident_bytes(server: Server) -> int:
    """The memory that the server uses."""
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


class Deaf:
    """A peer that sends and never reads."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(0.2)
        self._socket.connect(server.address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> bool:
        """As much of it as the server takes; whether that was all."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True
