"""A worker that does as it is told, and other help for tests of the Python API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from switchgear import App, Task
from switchgear.app.worker.background_worker import start_background
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.support.wire import Kind, Packet, Wire


def url_of(server: Server) -> str:
    return f"gearman://{server.address[0]}:{server.address[1]}"


@contextmanager
def working(app: App, *tasks: Task[Any, Any], slots: int = 4) -> Iterator[None]:
    """A worker of the app beside the test."""
    with start_background(app, slots, functions=[task.name for task in tasks] or None) as worker:
        eventually(lambda: worker.connected, "the worker is connected")
        yield


class HandWorker:
    """Takes jobs when told to, and says what it is told to say."""

    def __init__(self, server: Server, task: Task[Any, Any]) -> None:
        self.wire = Wire(server.address)
        self.wire.send(Kind.CAN_DO, task.name.encode())

    def grab(self) -> tuple[bytes, bytes]:
        """Handle and payload of the next job, waited for."""
        packet = eventually(self._maybe_grab, "there is a job")
        assert packet is not None
        handle, _, payload = packet.body.split(b"\0", 2)
        return handle, payload

    def has_nothing_to_do(self) -> bool:
        return self._maybe_grab() is None

    def _maybe_grab(self) -> Packet | None:
        self.wire.send(Kind.GRAB_JOB)
        packet = self.wire.receive_packet()
        return packet if packet.type == Kind.JOB_ASSIGN else None

    def complete(self, handle: bytes, result: bytes) -> None:
        self.wire.send(Kind.WORK_COMPLETE, handle, result)

    def close(self) -> None:
        self.wire.close()


@contextmanager
def hand_worker(server: Server, task: Task[Any, Any]) -> Iterator[HandWorker]:
    worker = HandWorker(server, task)
    try:
        yield worker
    finally:
        worker.close()
