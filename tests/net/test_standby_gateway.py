"""A standby passes bytes on: what it holds of them is counted and limited, and is not held for ever."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from switchgear.config import LimitsConfig, ListenUrl
from switchgear.memory import MemoryAccount
from switchgear.net.connections.tcp_listener import TcpListener
from switchgear.net.forwarded_address import forwarding_header
from switchgear.net.service import new_event_loop
from switchgear.net.standby_gateway import StandbyGateway
from switchgear.telemetry import Telemetry
from switchgear.units import KIB, MIB

HOST = "127.0.0.1"
LOOPS = [asyncio.new_event_loop, new_event_loop]
SOME_BYTES = 100 * KIB  # more than a transport would take without a word


class BoundSocket:
    """Of a listener, what the gateway uses."""

    def __init__(self) -> None:
        self.url = ListenUrl("gearman", HOST, 0)
        self._socket = socket.create_server((HOST, 0))

    def sockets(self) -> list[socket.socket]:
        return [self._socket]

    @property
    def address(self) -> tuple[str, int]:
        return cast(tuple[str, int], self._socket.getsockname())

    def close(self) -> None:
        self._socket.close()


class Owner:
    """The node that owns the jobs: accepts connections, and reads and writes when it is told to."""

    def __init__(self) -> None:
        self._socket = socket.create_server((HOST, 0))
        self._socket.setblocking(False)
        self.address: tuple[str, int] = self._socket.getsockname()

    async def accept(self) -> socket.socket:
        connection, _ = await asyncio.get_running_loop().sock_accept(self._socket)
        connection.setblocking(False)
        return connection

    def close(self) -> None:
        self._socket.close()


class Standby:
    """A gateway and the owner behind it."""

    def __init__(self, gateway: StandbyGateway, address: tuple[str, int], owner: Owner) -> None:
        self.gateway = gateway
        self.memory = gateway.memory
        self.address = address
        self.owner = owner

    def owner_appears(self) -> None:
        self.gateway.owner_is(7, [("gearman", *self.owner.address)])

    async def connect(self) -> socket.socket:
        peer = socket.socket()
        peer.setblocking(False)
        await asyncio.get_running_loop().sock_connect(peer, self.address)
        return peer


@asynccontextmanager
async def standby(memory_bytes: int = 64 * MIB, **limits: Any) -> AsyncIterator[Standby]:
    telemetry = Telemetry(asyncio.get_running_loop().time)
    bound, owner = BoundSocket(), Owner()
    listeners = [cast(TcpListener, bound)]
    gateway = StandbyGateway(listeners, LimitsConfig(**limits), MemoryAccount(memory_bytes), telemetry)
    await gateway.start()
    try:
        yield Standby(gateway, bound.address, owner)
    finally:
        gateway.close()
        await until(lambda: not gateway.connections, "all connections are gone")
        assert (gateway.memory.input_bytes, gateway.memory.output_bytes) == (0, 0)
        bound.close()
        owner.close()


async def until(is_true: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(20):
            while not is_true():  # noqa: ASYNC110 - the gateway reports to nobody
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"it does not happen that {what}") from None


async def send_what_is_taken(peer: socket.socket, most_bytes: int = 64 * MIB) -> int:
    """Send until nothing is taken for a while; how many bytes were taken."""
    sent = 0
    while sent < most_bytes:
        try:
            sent += peer.send(bytes(256 * KIB))
        except BlockingIOError:
            await asyncio.sleep(0.05)
            try:
                sent += peer.send(bytes(KIB))
            except BlockingIOError:
                break
    return sent


def in_both_loops(test: Callable[[], Coroutine[Any, Any, None]]) -> Any:
    def run(make_loop: Any) -> None:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return pytest.mark.parametrize("make_loop", LOOPS, ids=["asyncio", "installed"])(run)


@in_both_loops
async def test_what_another_standby_forwards_is_not_passed_on() -> None:
    """It takes this node, which has owned the jobs, for the owner still: its header would reach the owner as the first
    command of the peer."""
    loop = asyncio.get_running_loop()
    async with standby() as node:
        early = await node.connect()
        await loop.sock_sendall(early, forwarding_header(HOST, 5, b"secret", 6) + b"version\n")
        assert await ends_with(early, b"never") == b""
        node.owner_appears()
        late, own = await node.connect(), await node.connect()
        accepted = [await node.owner.accept() for _ in range(2)]
        await loop.sock_sendall(late, forwarding_header(HOST, 5, b"secret", 6) + b"version\n")
        assert await ends_with(late, b"never") == b""
        await loop.sock_sendall(own, b"version\n")
        received = sorted([await ends_with(each, b"version\n") for each in accepted])
        assert received == [b"", b"version\n"]
        for each in (early, late, own, *accepted):
            each.close()


async def ends_with(connection: socket.socket, end: bytes) -> bytes:
    """What comes, until it ends with this or the connection has ended."""
    received = b""
    while not received.endswith(end):
        try:
            data = await asyncio.get_running_loop().sock_recv(connection, 1000)
        except ConnectionError:
            break
        if not data:
            break
        received += data
    return received


@in_both_loops
async def test_what_an_owner_does_not_read_is_counted_and_not_taken_from_the_peer() -> None:
    async with standby() as node:
        node.owner_appears()
        peer = await node.connect()
        accepted = await node.owner.accept()
        taken = await send_what_is_taken(peer)
        assert taken < 32 * MIB  # the buffers of the system, and what follows
        assert 0 < node.memory.input_bytes <= 512 * KIB
        while taken:
            taken -= len(await asyncio.get_running_loop().sock_recv(accepted, MIB))
        await until(lambda: node.memory.input_bytes == 0, "nothing is counted any more")
        peer.close()
        accepted.close()


@in_both_loops
async def test_what_comes_before_there_is_an_owner_is_counted_and_more_is_not_taken() -> None:
    async with standby() as node:
        peer = await node.connect()
        await send_what_is_taken(peer)
        assert 0 < node.memory.input_bytes <= 512 * KIB
        node.owner_appears()
        accepted = await node.owner.accept()
        await send_what_is_taken(peer)  # the owner does not read what came early
        assert 0 < node.memory.input_bytes <= KIB * KIB
        peer.close()
        accepted.close()


@in_both_loops
async def test_a_peer_that_does_not_read_is_closed_though_its_owner_says_nothing_more() -> None:
    async with standby(slow_reader_seconds=1.0) as node:
        node.owner_appears()
        peer = await node.connect()
        accepted = await node.owner.accept()
        await send_what_is_taken(accepted)
        assert 0 < node.memory.output_bytes <= 512 * KIB
        await until(lambda: not node.gateway.connections, "the connection is closed")
        assert node.gateway.telemetry.counts["slow_reader_closed"] == 1
        peer.close()
        accepted.close()


@in_both_loops
async def test_a_peer_that_ignores_its_end_is_closed() -> None:
    async with standby(slow_reader_seconds=1.0) as node:
        node.owner_appears()
        peer = await node.connect()
        accepted = await node.owner.accept()
        accepted.close()
        await until(lambda: not node.gateway.connections, "the connection is closed")
        peer.close()


@in_both_loops
async def test_when_all_hold_too_much_those_that_hold_most_are_closed() -> None:
    async with standby(memory_bytes=4 * MIB) as node:
        peers = [await node.connect() for _ in range(20)]  # there is no owner: the first that each sends is held
        for number, peer in enumerate(peers):
            peer.send(bytes(SOME_BYTES if number else 10))
        await until(lambda: node.gateway.telemetry.counts["intake_closed"] > 0, "connections are closed")
        assert node.memory.input_bytes <= node.memory.connection_limit_bytes
        peers[0].send(b"more")
        await asyncio.sleep(0.05)
        with pytest.raises(BlockingIOError):
            peers[0].recv(1)  # one that holds little stays
        for peer in peers:
            peer.close()


@in_both_loops
async def test_a_connection_too_many_is_refused_and_told_of() -> None:
    async with standby(connections=1) as node:
        first = await node.connect()
        await until(lambda: len(node.gateway.connections) == 1, "one is there")
        second = await node.connect()
        await until(lambda: node.gateway.telemetry.counts["connection_refused"] == 1, "the second is refused")
        first.close()
        second.close()
