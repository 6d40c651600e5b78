"""What is done once for many jobs: waking an event loop, and telling the server of free slots."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, cast

import pytest

from switchgear.app.app import App
from switchgear.app.server_locations import location_of
from switchgear.app.worker.executor import Attempt, Executor
from switchgear.app.worker.mailbox import Mailbox
from switchgear.app.worker.observer import AppWorkerObserver
from switchgear.app.worker.slot_pool import SlotPool
from switchgear.client.gearman.assigned_job import Complete
from switchgear.client.gearman.worker_protocol import WorkerIntroduction
from switchgear.protocols.gearman.codec import REQUEST, GearmanDecoder, response
from switchgear.protocols.gearman.messages import Packet

URL = "gearman://127.0.0.1:4730"
P = ParamSpec("P")


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


# --- a mailbox ---


@in_a_loop
async def test_all_that_is_put_is_received_in_order() -> None:
    received: list[int] = []
    mailbox = Mailbox(asyncio.get_running_loop(), received.extend)

    def put_all() -> None:
        for number in range(10_000):
            mailbox.put(number)

    await asyncio.to_thread(put_all)
    await asyncio.sleep(0)
    assert received == list(range(10_000))


@in_a_loop
async def test_a_loop_that_has_not_looked_yet_is_woken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    calls: list[Any] = []
    monkeypatch.setattr(loop, "call_soon_threadsafe", calls.append)
    received: list[list[str]] = []
    mailbox: Mailbox[str] = Mailbox(loop, received.append)
    mailbox.put("a")
    mailbox.put("b")
    (look,) = calls
    look()
    mailbox.put("c")
    assert (received, len(calls)) == ([["a", "b"]], 2)


@in_a_loop
async def test_what_is_put_while_the_loop_looks_is_received_as_well() -> None:
    received: list[str] = []

    def receive(items: list[str]) -> None:
        received.extend(items)
        if "a" in items:
            mailbox.put("b")

    mailbox = Mailbox(asyncio.get_running_loop(), receive)
    mailbox.put("a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert received == ["a", "b"]


def test_a_closed_loop_is_an_error() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    mailbox: Mailbox[int] = Mailbox(loop, lambda items: None)
    with pytest.raises(RuntimeError):
        mailbox.put(1)


# --- credits ---


class Held(Executor):
    """Keeps what it is to run."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.attempts: list[Attempt] = []

    def start(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    def cancel(self, attempt: Attempt, *, hard: bool) -> None: ...

    async def close(self) -> bool:
        return True


class Wire:
    """What the worker writes, in pieces."""

    def __init__(self, sock: socket.socket) -> None:
        self.writes: list[list[str]] = []
        self._socket = sock

    def write(self, data: bytes) -> None:
        packets = GearmanDecoder(REQUEST, 10**6).feed(data)
        self.writes.append([f"{Packet(kind).name} {body.decode()}".replace("\0", " ") for kind, body in packets])

    def get_extra_info(self, name: str) -> socket.socket:
        return self._socket


async def connected_pool(executor: Held) -> tuple[SlotPool, Wire]:
    """A pool with a connection to a server that speaks the extensions."""
    app = App(URL)

    @app.task(name="f")
    def f() -> None: ...

    introduction = WorkerIntroduction("me", {"f": 0.0})
    pool = SlotPool(
        "x", executor, app.tasks, [location_of(URL)], introduction, AppWorkerObserver(), lambda finished: None
    )
    pool.open(asyncio.get_running_loop())
    (connection,) = pool.connections
    with socket.socket() as sock:
        wire = Wire(sock)
        connection.connection_made(cast(asyncio.Transport, wire))
    connection.data_received(response(Packet.OPTION_RES, b"switchgear"))
    await asyncio.sleep(0)
    return pool, wire


def push(number: int, attempt: int = 1) -> bytes:
    return response(Packet.JOB_PUSH, f"H:{number}\0f\0\0{attempt}\x000\x000\x000\0{{}}".encode())


@in_a_loop
async def test_jobs_that_end_together_are_reported_in_one_write_with_one_credit() -> None:
    executor = Held(3)
    pool, wire = await connected_pool(executor)
    assert wire.writes.pop()[-1] == "CREDIT 3 15000"
    (connection,) = pool.connections
    connection.data_received(b"".join(map(push, range(3))))
    wire.writes.clear()
    for attempt in executor.attempts[:2]:
        executor._end_from_thread(attempt, Complete(b"null"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert wire.writes == [["WORK_COMPLETE H:0 null", "WORK_COMPLETE H:1 null", "CREDIT 2 15000"]]


@in_a_loop
async def test_progress_of_a_revoked_attempt_is_not_told_as_that_of_the_next() -> None:
    executor = Held(3)
    pool, wire = await connected_pool(executor)
    (connection,) = pool.connections
    connection.data_received(push(0))
    connection.data_received(response(Packet.REVOKE, b"H:0", b"timed_out"))
    connection.data_received(push(0, attempt=2))
    (old, *_) = executor.attempts
    wire.writes.clear()
    old.job.progress(1, 2)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not [packet for write in wire.writes for packet in write if packet.startswith("WORK_PROGRESS")]
