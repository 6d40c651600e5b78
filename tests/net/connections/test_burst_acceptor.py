"""Very many peers that connect at once: the last of them does not wait for a turn of the event loop for each other."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from switchgear.config import LimitsConfig, ListenUrl
from switchgear.engine.engine import Engine
from switchgear.net.clock import SystemClock
from switchgear.net.connections.burst_acceptor import ACCEPTED_PER_TURN, BurstAcceptor
from switchgear.net.connections.tcp_listener import TcpListener
from switchgear.net.hub import Hub
from switchgear.protocols.gearman.admin import on_line
from switchgear.protocols.gearman.packet_dispatch import handle_messages
from switchgear.protocols.gearman.session import GearmanSession, GearmanSetup
from switchgear.storage.memory import MemoryStore
from switchgear.telemetry import Telemetry
from tests.support.wire import Kind, request

PEERS = 200


class Turns:
    """Counts the turns of the running event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._is_counting = True
        self._next()

    def stop(self) -> None:
        self._is_counting = False

    def _next(self) -> None:
        if self._is_counting:
            self.count += 1
            self._loop.call_soon(self._next)


async def story() -> None:
    hub = Hub(Engine(), MemoryStore(), SystemClock(), Telemetry(asyncio.get_running_loop().time))
    setup = GearmanSetup(b"H:t:", "test", handle_messages, on_line)
    listener = TcpListener(
        ListenUrl("gearman", "127.0.0.1", 0),
        hub,
        LimitsConfig(),
        lambda context, transport: GearmanSession(context, transport, setup),
    )
    await listener.bind()
    await listener.listen()
    host, port = listener.endpoints[0]
    peers = [socket.create_connection((host, port)) for _ in range(PEERS)]
    for peer in peers:
        peer.sendall(request(Kind.ECHO_REQ, b"hello"))
    peers[7].close()
    turns = Turns()
    await listener.start()
    while len(listener.connections) < PEERS - 1 and turns.count < 10 * PEERS:  # noqa: ASYNC110  (turns are counted)
        await asyncio.sleep(0)
    needed = turns.count
    turns.stop()
    del peers[7]
    loop = asyncio.get_running_loop()
    for peer in peers:
        peer.setblocking(False)
        assert (await loop.sock_recv(peer, 100)).endswith(b"hello")
        peer.close()
    while listener.connections:  # noqa: ASYNC110
        await asyncio.sleep(0)
    listener.stop_accepting()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, port)
    await listener.close()
    await hub.close()
    assert needed <= PEERS // ACCEPTED_PER_TURN + 10


@pytest.mark.parametrize("new_event_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_all_are_accepted_within_a_few_turns(new_event_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(asyncio.wait_for(story(), 30))


class Accepted(asyncio.Protocol):
    """Counts connections."""

    count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Accepted.count += 1
        transport.close()


async def sharing() -> None:
    """Floods at three listeners: none waits for another one, and a turn accepts no more than for one listener."""
    Accepted.count = 0
    listening = [socket.create_server(("127.0.0.1", 0), backlog=100) for _ in range(3)]
    peers = [socket.create_connection(each.getsockname()) for each in listening for _ in range(50)]
    acceptors = [BurstAcceptor([each], Accepted) for each in listening]
    for acceptor in acceptors:
        acceptor.look_soon()
        acceptor.look_soon()  # once more changes nothing
    most = turns = 0
    while Accepted.count < len(peers) and turns < 1_000:
        before = Accepted.count
        await asyncio.sleep(0)
        most = max(most, Accepted.count - before)
        turns += 1
    for acceptor in acceptors:
        acceptor.look_soon()
        acceptor.close()
    await asyncio.sleep(0)
    for each in [*peers, *listening]:
        each.close()
    assert Accepted.count == len(peers)
    assert most <= ACCEPTED_PER_TURN


@pytest.mark.parametrize("new_event_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_listeners_share_a_turn(new_event_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(asyncio.wait_for(sharing(), 30))
