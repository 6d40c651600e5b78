"""A request that takes several turns: its connection waits and is read from again, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import functools
import json
import struct
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

import pytest

from switchgear.config import LimitsConfig, ListenUrl
from switchgear.engine.engine import Engine
from switchgear.model import NORMAL, Delivery
from switchgear.net.clock import SystemClock
from switchgear.net.connections import tcp_connection
from switchgear.net.connections.tcp_listener import TcpListener
from switchgear.net.hub import Hub
from switchgear.net.operations import unfinished_jobs
from switchgear.net.operations.dispatcher import Operations
from switchgear.protocols.gearman.admin import on_line
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.packet_dispatch import handle_messages
from switchgear.protocols.gearman.session import GearmanSession, GearmanSetup
from switchgear.storage.memory import MemoryStore
from switchgear.telemetry import Telemetry
from tests.support.wire import Kind, request

P = ParamSpec("P")

JOBS = 300
CONTROL = int(Packet.CONTROL)


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Server:
    """A hub with one listener, and some jobs."""

    async def __aenter__(self) -> Server:
        self.peers: list[Peer] = []
        engine = Engine()
        self.hub = Hub(engine, MemoryStore(), SystemClock(), Telemetry(asyncio.get_running_loop().time))
        operations = Operations(self.hub, "H:t:")
        self.hub.operator = operations.in_steps
        self.hub.long_operations.steps_per_turn = 1
        setup = GearmanSetup(b"H:t:", "test", handle_messages, on_line)
        limits = LimitsConfig()
        self.listener = TcpListener(
            ListenUrl("gearman", "127.0.0.1", 0),
            self.hub,
            limits,
            lambda context, transport: GearmanSession(context, transport, setup),
        )
        await self.listener.open()
        self.hub.begin_turn()
        for _ in range(JOBS):
            engine.submit(b"f", b"", b"", NORMAL, Delivery.HANDLE)
        return self

    async def __aexit__(self, *_: object) -> None:
        for peer in self.peers:
            peer.writer.close()
            await peer.writer.wait_closed()
        await self.listener.close()
        await self.hub.close()

    async def connect(self) -> Peer:
        port = int(self.listener.addresses[0].rpartition(":")[2])
        self.peers.append(Peer(*await asyncio.open_connection("127.0.0.1", port)))
        return self.peers[-1]


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def receive(self) -> tuple[int, bytes]:
        header = await asyncio.wait_for(self.reader.readexactly(12), 20)
        kind, size = struct.unpack(">II", header[4:])
        return kind, await self.reader.readexactly(size)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished_jobs, "SCANNED_PER_STEP", 5)


def listing() -> bytes:
    return request(CONTROL, b"jobs", json.dumps({"key": "none"}).encode())


@in_a_loop
async def test_a_connection_is_read_from_again_after_a_long_request() -> None:
    async with Server() as server:
        peer = await server.connect()
        for _ in range(3):
            peer.writer.write(listing())
            assert json.loads((await peer.receive())[1])["jobs"] == []


@in_a_loop
async def test_requests_behind_a_long_one_are_answered_in_their_order_and_others_before() -> None:
    async with Server() as server:
        slow, quick = await server.connect(), await server.connect()
        slow.writer.write(listing() + request(Kind.ECHO_REQ, b"1") + listing() + request(Kind.ECHO_REQ, b"2"))
        while not len(server.hub.long_operations):  # noqa: ASYNC110  (it is the turns of the loop that are waited for)
            await asyncio.sleep(0)
        quick.writer.write(request(Kind.ECHO_REQ, b"quick"))
        assert (await quick.receive())[1] == b"quick"
        assert len(server.hub.long_operations) == 1  # the other is still at its first
        answers = [(await slow.receive())[1] for _ in range(4)]
        assert [answers[1], answers[3]] == [b"1", b"2"]


@in_a_loop
async def test_a_peer_that_hangs_up_behind_a_long_request_gets_its_answers() -> None:
    async with Server() as server:
        peer = await server.connect()
        peer.writer.write(listing() + b"show jobs\n")
        peer.writer.write_eof()
        data = await asyncio.wait_for(peer.reader.read(), 20)
        assert data.endswith(b".\n")
        assert data.count(b"\n") == JOBS + 1


@in_a_loop
async def test_a_long_read_is_handled_in_pieces_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_connection, "PIECE_BYTES", 100)
    async with Server() as server:
        peer = await server.connect()
        peer.writer.write(b"".join(request(Kind.ECHO_REQ, b"%d" % number) for number in range(2000)))
        assert [(await peer.receive())[1] for _ in range(2000)] == [b"%d" % number for number in range(2000)]


@in_a_loop
async def test_a_long_text_answer_is_made_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchgear.protocols.gearman.admin.LINES_AT_ONCE", 7)
    monkeypatch.setattr("switchgear.protocols.gearman.admin.MOST_UNREAD_BYTES", 50)
    async with Server() as server:
        peer = await server.connect()
        for _ in range(2):
            peer.writer.write(b"show jobs\n")
            lines = [await asyncio.wait_for(peer.reader.readline(), 20) for _ in range(JOBS + 1)]
            assert lines == [b"H:t:%d\t0\t0\t1\n" % number for number in range(1, JOBS + 1)] + [b".\n"]


@in_a_loop
async def test_a_packet_that_cannot_be_understood_is_answered_behind_the_long_answers_before_it() -> None:
    async with Server() as server:
        peer = await server.connect()
        peer.writer.write(b"show jobs\n\0BAD")
        data = await asyncio.wait_for(peer.reader.read(), 20)
        lines, end, error = data.partition(b".\n")
        assert lines.count(b"\n") == JOBS
        assert end
        assert error.startswith(b"\0RES")
        assert error.endswith(b"INVALID_MAGIC\0unknown magic bytes")
