"""The address of a peer behind a standby node: told by a header that only nodes can write."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from switchgear.config import LimitsConfig, ListenUrl
from switchgear.engine.engine import Engine
from switchgear.net.clock import SystemClock
from switchgear.net.connections.tcp_listener import TcpListener
from switchgear.net.forwarded_address import SIGNATURE, ForwardedConnection, HeaderError, forwarding_header, read_header
from switchgear.net.hub import Hub
from switchgear.net.service import new_event_loop
from switchgear.protocols.gearman.admin import on_line
from switchgear.protocols.gearman.packet_dispatch import handle_messages
from switchgear.protocols.gearman.session import GearmanSession, GearmanSetup
from switchgear.storage.memory import MemoryStore
from switchgear.telemetry import Telemetry

HOST = "127.0.0.1"
SECRET = b"secret of the nodes"
OWNER = 2**62 + 7


@pytest.mark.parametrize(("host", "port"), [("203.0.113.9", 40_001), ("2001:db8::9", 1), ("fe80::1%eth0", 65_535)])
def test_what_is_written_is_read(host: str, port: int) -> None:
    header = forwarding_header(host, port, SECRET, OWNER)
    found = read_header(header + b"and more", SECRET, OWNER)
    assert found == (host.partition("%")[0], port, len(header))


def test_a_header_in_pieces() -> None:
    header = forwarding_header("203.0.113.9", 1, SECRET, OWNER)
    for size in range(len(header)):
        assert read_header(header[:size], SECRET, OWNER) is None


def test_a_peer_without_an_address_has_no_header() -> None:
    assert forwarding_header("", 0, SECRET, OWNER) == b""


def test_every_changed_byte_is_noticed() -> None:
    header = forwarding_header("203.0.113.9", 40_001, SECRET, OWNER)
    for place in range(len(SIGNATURE), len(header)):
        changed = bytearray(header)
        changed[place] ^= 1
        try:
            assert read_header(bytes(changed), SECRET, OWNER) is None  # it would be longer
        except HeaderError:
            continue
        assert place in (14, 15)


@pytest.mark.parametrize(("secret", "owner"), [(b"another", OWNER), (SECRET, OWNER + 1)])
def test_a_header_of_somebody_else(secret: bytes, owner: int) -> None:
    with pytest.raises(HeaderError):
        read_header(forwarding_header("203.0.113.9", 1, secret, owner), SECRET, OWNER)


class Peer:
    """A raw connection to a listener of an owner."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._connection, data)

    async def receive(self) -> bytes:
        async with asyncio.timeout(20):
            return await asyncio.get_running_loop().sock_recv(self._connection, 1000)

    async def is_closed(self) -> bool:
        try:
            return not await self.receive()
        except ConnectionError:
            return True

    def close(self) -> None:
        self._connection.close()


@asynccontextmanager
async def owner_with_peers(count: int = 1, **limits: int) -> AsyncIterator[tuple[TcpListener, list[Peer]]]:
    hub = Hub(Engine(), MemoryStore(), SystemClock(), Telemetry(asyncio.get_running_loop().time))
    setup = GearmanSetup(b"H:t:", "test", handle_messages, on_line)
    listener = TcpListener(
        ListenUrl("gearman", HOST, 0),
        hub,
        LimitsConfig(**limits),
        lambda context, transport: GearmanSession(context, transport, setup),
    )
    listener.read_forwarded = partial(ForwardedConnection, SECRET, OWNER)
    await listener.open()
    peers = []
    try:
        for _ in range(count):
            connection = socket.socket()
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, listener.endpoints[0])
            peers.append(Peer(connection))
        yield listener, peers
    finally:
        for peer in peers:
            peer.close()
        await listener.close()


def hosts(listener: TcpListener) -> list[str]:
    return sorted(connection.host for connection in listener.connections)


@pytest.fixture(params=[asyncio.new_event_loop, new_event_loop])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner


@pytest.mark.parametrize("piece_bytes", [1, 7, 1000])
def test_the_owner_knows_the_peer(runner: asyncio.Runner, piece_bytes: int) -> None:
    async def go() -> None:
        async with owner_with_peers() as (listener, (peer,)):
            data = forwarding_header("203.0.113.9", 40_001, SECRET, OWNER) + b"version\n"
            for start in range(0, len(data), piece_bytes):
                await peer.send(data[start : start + piece_bytes])
                await asyncio.sleep(0)
            assert (await peer.receive()).startswith(b"OK")
            ((host, port),) = {(connection.host, connection.port) for connection in listener.connections}
            assert (host, port) == ("203.0.113.9", 40_001)
            assert dict(listener.by_host) == {"203.0.113.9": 1}
            peer.close()
            while listener.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert not listener.by_host

    runner.run(go())


@pytest.mark.parametrize("data", [b"version\n", b"\r\nversion\n", b"\r\n\r\nversion\n"])
def test_others_are_served_as_ever(runner: asyncio.Runner, data: bytes) -> None:
    async def go() -> None:
        async with owner_with_peers() as (listener, (peer,)):
            for place in range(len(data)):
                await peer.send(data[place : place + 1])
            answer = b""
            while b"OK" not in answer:
                answer += await peer.receive()
            assert hosts(listener) == [HOST]

    runner.run(go())


@pytest.mark.parametrize(
    "data",
    [
        forwarding_header("203.0.113.9", 1, b"a guess", OWNER),
        SIGNATURE + b"\x20\x00\x00\x00",  # a health check of a load balancer
        SIGNATURE + b"\x21\x11\xff\xff",
        SIGNATURE + bytes(300),
    ],
)
def test_a_header_of_nobody_closes_the_connection(runner: asyncio.Runner, data: bytes) -> None:
    async def go() -> None:
        async with owner_with_peers() as (_, (peer,)):
            await peer.send(data + b"version\n")
            assert await peer.is_closed()

    runner.run(go())


def test_a_peer_on_the_machine_of_the_standby_has_the_address_of_the_standby(runner: asyncio.Runner) -> None:
    """Its own would be that of this machine, whose peers may do more."""

    async def go() -> None:
        async with owner_with_peers() as (listener, (peer,)):
            await peer.send(forwarding_header("127.0.0.3", 1, SECRET, OWNER) + b"version\n")
            await peer.receive()
            assert hosts(listener) == [HOST]

    runner.run(go())


def test_a_limit_of_connections_is_one_for_each_peer(runner: asyncio.Runner) -> None:
    async def go() -> None:
        async with owner_with_peers(4, connections_per_address=2) as (listener, peers):
            for peer, host in zip(peers, ("203.0.113.9", "203.0.113.9", "203.0.113.8", "203.0.113.9")):
                await peer.send(forwarding_header(host, 1, SECRET, OWNER) + b"version\n")
                assert await peer.is_closed() is (peer is peers[3])
            assert hosts(listener) == ["203.0.113.8", "203.0.113.9", "203.0.113.9"]

    runner.run(go())
