"""Who is let in: what cannot be tried out over loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from switchgear.config import LimitsConfig, ListenUrl
from switchgear.engine.engine import Engine
from switchgear.errors import AddressInUse, StorageError
from switchgear.net.connections.tcp_connection import LOST_AT_ONCE, WRITE_BYTES, Connection, set_keepalive
from switchgear.net.connections.tcp_listener import TcpListener
from switchgear.net.hub import Hub
from switchgear.protocols.gearman.session import GearmanSession
from switchgear.storage.memory import MemoryStore
from switchgear.telemetry import Telemetry
from switchgear.testing.clock import FakeClock
from tests.net.harness import HubHarness, in_turns, open_harness
from tests.support.wire import Kind, request


def listener_with(limits: LimitsConfig) -> TcpListener:
    telemetry = Telemetry(asyncio.get_running_loop().time)
    hub = Hub(Engine(), MemoryStore(), FakeClock(), telemetry)  # nobody gets so far

    def make_session(*_: object) -> None:
        raise AssertionError

    return TcpListener(ListenUrl("gearman", "127.0.0.1", 0), hub, limits, make_session)  # type: ignore[arg-type]


def arriving(listener: TcpListener, host: str, *, is_loopback: bool = False) -> str:
    """What a connection from there is told; one that is let in stays."""

    arrival = Connection(listener)
    arrival.host = host
    arrival.is_loopback = is_loopback
    reason = listener.refusal_for(arrival)
    if not reason:
        listener.connections.add(arrival)
        listener.by_host[host] += 1
    return reason


@in_turns
async def test_of_two_that_bind_an_address_one_can_listen() -> None:
    """Between binding an address and listening there, another program may do the same.  Who lost can try again."""
    first = listener_with(LimitsConfig())
    await first.bind()
    second = listener_with(LimitsConfig())
    second.url = ListenUrl("gearman", *first.endpoints[0])
    await second.bind()
    await first.start()
    with pytest.raises(AddressInUse, match=r"cannot listen on gearman://127\.0\.0\.1:\d+: Address already in use"):
        await second.start()
    await first.close()
    await second.start()
    assert second.endpoints == [(second.url.host, second.url.port)]
    await second.close()


@in_turns
async def test_one_address_has_a_limit_of_its_own() -> None:
    listener = listener_with(LimitsConfig(connections_per_address=2))
    answers = [arriving(listener, "192.0.2.1") for _ in range(3)]
    assert answers == ["", "", "it has 2 connections already"]
    assert arriving(listener, "192.0.2.2") == ""


@in_turns
async def test_loopback_has_none() -> None:
    listener = listener_with(LimitsConfig(connections_per_address=2))
    assert not any(arriving(listener, "127.0.0.1", is_loopback=True) for _ in range(10))


@in_turns
async def test_all_together_have_a_limit() -> None:
    listener = listener_with(LimitsConfig(connections=3, connections_per_address=0))
    answers = [arriving(listener, "192.0.2.1") for _ in range(4)]
    assert answers == ["", "", "", "there are 3 connections already"]


@in_turns
async def test_an_address_whose_connections_are_gone_is_forgotten() -> None:
    listener = listener_with(LimitsConfig(connections_per_address=1))
    arriving(listener, "192.0.2.1")
    listener.forget(listener.connections.copy().pop())
    assert not listener.by_host
    assert arriving(listener, "192.0.2.1") == ""


@in_turns
async def test_all_listeners_together_have_one_limit() -> None:
    limits = LimitsConfig(connections=3, connections_per_address=2)
    front = listener_with(limits)
    back = listener_with(limits)
    front.listeners = back.listeners = [front, back]
    assert [arriving(front, "192.0.2.1"), arriving(back, "192.0.2.1")] == ["", ""]
    assert arriving(front, "192.0.2.1") == "it has 2 connections already"
    assert arriving(back, "192.0.2.2") == ""
    assert arriving(front, "192.0.2.3") == "there are 3 connections already"


class Pipe:
    """A transport to a peer that reads when the test says so."""

    def __init__(self) -> None:
        self.pending = 0
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.pending += len(data)

    def get_write_buffer_size(self) -> int:
        return self.pending

    def pause_reading(self) -> None:
        """Nobody sends anything."""

    def resume_reading(self) -> None:
        """Nobody sends anything."""

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


@in_turns
async def test_a_peer_that_reads_more_slowly_than_it_is_written_to_is_not_stuck() -> None:
    harness = await open_harness()
    listener = listener_with(LimitsConfig(slow_reader_seconds=3))
    listener.hub = harness.hub
    connection = Connection(listener)
    connection.host, connection.port = "192.0.2.1", 4711
    pipe = Pipe()
    connection.transport = pipe  # type: ignore[assignment]
    connection.write([b"x" * 100_000])
    connection.pause_writing()
    for _ in range(10):
        connection.write([b"x" * 3000])
        pipe.pending -= 2000
        await harness.pass_time(1)
        connection.check_reader(harness.loop.time())
    assert not pipe.is_aborted
    for _ in range(5):
        connection.write([b"x" * 3000])
        await harness.pass_time(1)
        connection.check_reader(harness.loop.time())
    assert pipe.is_aborted


class Reset(Pipe):
    """A transport to a peer that was gone before it was let in."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self.sock = sock

    def get_extra_info(self, name: str) -> object:
        return None if name == "peername" else self.sock


@in_turns
async def test_a_peer_of_whom_nothing_is_known_is_not_taken_for_a_local_one() -> None:
    harness = await open_harness()
    listener = listener_with(LimitsConfig(keepalive_idle_seconds=0))
    listener.hub = harness.hub
    listener.make_session = lambda context, transport: GearmanSession(context, transport, harness.setup)
    connection = Connection(listener)
    with socket.socket() as sock:
        connection.connection_made(Reset(sock))  # type: ignore[arg-type]
    assert not connection.is_loopback


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such option")
@pytest.mark.parametrize(("slow_reader_seconds", "seconds"), [(10, 7 + 3 * 5), (100.5, 101)])
def test_a_peer_that_vanishes_is_noticed_though_output_is_on_its_way(slow_reader_seconds: float, seconds: int) -> None:
    """While output is not acknowledged the system sends no probes: it would repeat the output for 15 minutes."""
    limits = LimitsConfig(
        keepalive_idle_seconds=7,
        keepalive_interval_seconds=3,
        keepalive_count=5,
        slow_reader_seconds=slow_reader_seconds,
    )
    with socket.socket() as sock:
        set_keepalive(sock, limits)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1000 * seconds


@in_turns
async def test_news_for_a_peer_that_waits_for_a_broken_store_are_bounded() -> None:
    harness = await open_harness()
    limits = LimitsConfig(slow_reader_bytes=2000, packet_bytes=1000)
    listener = listener_with(limits)
    listener.hub = harness.hub
    connection = Connection(listener)
    connection.host, connection.port = "192.0.2.1", 4711
    pipe = Pipe()
    connection.transport = pipe  # type: ignore[assignment]
    session = connection.session = GearmanSession(harness.hub, connection, harness.setup)
    session.waiting = True
    session.out = [b"x" * 1000] * 5
    connection.check_reader(harness.loop.time())
    assert not pipe.is_aborted  # the store works: the commit under way will send it
    harness.hub.commits.storage_error = StorageError("disk full")
    session.out = [b"x" * 1000] * 4
    connection.check_reader(harness.loop.time())
    assert not pipe.is_aborted  # as much as a slow reader may have waiting
    session.out.append(b"x")
    connection.check_reader(harness.loop.time())
    assert pipe.is_aborted
    assert harness.hub.telemetry.counts["held_output_closed"] == 1
    harness.hub.commits.storage_error = None


# --- the account of memory ---


class Peers:
    """Connections to one server, whose limit of memory is small."""

    def __init__(self, harness: HubHarness, limit_bytes: int) -> None:
        self.harness = harness
        self.memory = harness.hub.engine.memory
        self.memory.limit_bytes = limit_bytes
        self.listener = listener_with(LimitsConfig())
        self.listener.hub = harness.hub
        self.listener.make_session = lambda context, transport: GearmanSession(context, transport, harness.setup)

    def connect(self) -> tuple[Connection, Pipe]:
        connection = Connection(self.listener)
        connection.host, connection.port = "192.0.2.1", 4711
        pipe = Pipe()
        connection.transport = pipe  # type: ignore[assignment]
        connection.session = GearmanSession(self.harness.hub, connection, self.harness.setup)
        self.listener.connections.add(connection)
        return connection, pipe


def beginning(size: int) -> bytes:
    """The first bytes of a packet that is larger than that."""
    return b"\0REQ" + (18).to_bytes(4, "big") + (1_000_000).to_bytes(4, "big") + b"x" * (size - 12)


@in_turns
async def test_every_read_is_counted_and_the_largest_unfinished_packet_makes_room() -> None:
    harness = await open_harness()
    peers = Peers(harness, limit_bytes=40_000)  # of which a quarter is for input
    (first, first_pipe), (second, second_pipe), (third, third_pipe) = (peers.connect() for _ in range(3))
    first.data_received(beginning(3000))
    second.data_received(beginning(4000))
    second.data_received(b"x" * 1000)
    assert peers.memory.input_bytes == 8000
    assert peers.listener.input_bytes == 8000
    third.data_received(beginning(2001))
    assert second_pipe.is_aborted
    assert not first_pipe.is_aborted
    assert not third_pipe.is_aborted
    assert peers.memory.input_bytes == 5001
    second.connection_lost(None)
    assert peers.memory.input_bytes == 5001
    first.connection_lost(None)
    third.connection_lost(None)
    assert peers.memory.input_bytes == 0
    assert harness.hub.telemetry.counts["intake_closed"] == 1


@in_turns
async def test_a_packet_that_is_complete_is_input_no_longer() -> None:
    harness = await open_harness()
    peers = Peers(harness, limit_bytes=40_000)
    connection, _ = peers.connect()
    packet = request(Kind.ECHO_REQ, b"x" * 500)
    connection.data_received(packet[:400])
    assert peers.memory.input_bytes == 400
    connection.data_received(packet[400:])
    assert peers.memory.input_bytes == 0


@in_turns
async def test_every_write_to_a_peer_that_does_not_read_is_counted_and_the_largest_makes_room() -> None:
    harness = await open_harness()
    peers = Peers(harness, limit_bytes=40_000)
    (first, first_pipe), (second, second_pipe) = (peers.connect() for _ in range(2))
    for connection, size in ((first, 3000), (second, 4000)):
        connection.write([b"x" * size])
        connection.pause_writing()
    assert peers.memory.output_bytes == 7000
    second.write([b"x" * 2000])
    assert peers.memory.output_bytes == 9000
    assert peers.listener.output_bytes == 9000
    first.write([b"x" * 1001])
    assert second_pipe.is_aborted
    assert not first_pipe.is_aborted
    assert peers.memory.output_bytes == 4001
    first_pipe.pending = 0
    first.resume_writing()
    assert peers.memory.output_bytes == 0


@in_turns
async def test_what_waits_for_a_failing_store_is_counted_until_the_store_works() -> None:
    harness = await open_harness()
    peers = Peers(harness, limit_bytes=1_000_000)
    connection, _ = peers.connect()
    assert connection.session is not None
    connection.session.waiting = True
    connection.session.out = [b"x" * 1000] * 5
    harness.hub.commits.storage_error = StorageError("disk full")
    connection.check_reader(harness.loop.time())
    assert peers.memory.output_bytes == 5000
    harness.hub.commits.storage_error = None
    connection.check_reader(harness.loop.time())
    assert peers.memory.output_bytes == 0


@in_turns
async def test_a_session_knows_what_its_peer_has_not_taken_and_can_give_it_up() -> None:
    harness = await open_harness()
    listener = listener_with(LimitsConfig())
    listener.hub = harness.hub
    connection = Connection(listener)
    connection.host, connection.port = "192.0.2.1", 4711
    assert connection.unsent_bytes == 0
    pipe = Pipe()
    connection.transport = pipe  # type: ignore[assignment]
    connection.write([b"x" * 1000])
    assert connection.unsent_bytes == 1000
    connection.give_up_on_slow_reader(5000)
    assert pipe.is_aborted
    assert harness.hub.telemetry.counts["slow_reader_closed"] == 1


# --- much at once ---


class ReadPipe(Pipe):
    """A transport to a peer that reads everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.data = bytearray()
        self.has_ended = False

    def write(self, data: bytes) -> None:
        self.data += data

    def writelines(self, pieces: list[bytes]) -> None:
        self.data += b"".join(pieces)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_ended = True


def connections_to(harness: HubHarness, count: int) -> list[tuple[Connection, ReadPipe]]:
    peers = Peers(harness, limit_bytes=0)
    connections = []
    for _ in range(count):
        connection, _ = peers.connect()
        pipe = ReadPipe()
        connection.transport = pipe  # type: ignore[assignment]
        connections.append((connection, pipe))
    return connections


async def turns(harness: HubHarness) -> AsyncIterator[None]:
    """Turns of the event loop, until nothing waits for another."""
    for _ in range(1000):
        await asyncio.sleep(0)
        yield
        if not harness.hub.fair_queue:
            return


@in_turns
async def test_of_many_connections_that_are_lost_at_once_some_are_dealt_with_in_the_next_turns() -> None:
    harness = await open_harness()
    connections = [connection for connection, _ in connections_to(harness, LOST_AT_ONCE + 3)]
    for connection in connections:
        connection.connection_lost(None)
        assert connection not in connection.listener.connections
    assert sum(connection.session is not None for connection in connections) == 3
    async for _ in turns(harness):
        pass
    assert all(connection.session is None for connection in connections)


@in_turns
async def test_a_short_read_is_handled_at_once_and_long_ones_in_the_next_turns() -> None:
    harness = await open_harness()
    (first, first_pipe), (second, second_pipe), (third, _) = connections_to(harness, 3)
    requests = request(Kind.ECHO_REQ, b"x" * 500) * 20
    first.data_received(requests)
    second.data_received(requests)
    third.data_received(request(Kind.ECHO_REQ, b"short"))
    assert [len(connection.session.out) for connection in (first, second, third) if connection.session] == [0, 0, 1]
    assert first.input_bytes == second.input_bytes == len(requests)
    async for _ in turns(harness):
        pass
    assert first.input_bytes == second.input_bytes == 0
    await asyncio.sleep(0)
    assert len(first_pipe.data) == len(second_pipe.data) == len(requests)


@in_turns
async def test_a_long_answer_is_written_in_pieces_and_nothing_overtakes_it() -> None:
    harness = await open_harness()
    [(connection, pipe)] = connections_to(harness, 1)
    answer = bytes(range(256)) * 5000
    connection.write([b"begin", answer])
    connection.write([b"end"])
    connection.close()
    assert connection.unsent_bytes == connection.output_bytes == len(answer) + 8
    written = [len(pipe.data) async for _ in turns(harness)]
    assert written == [*range(WRITE_BYTES, len(answer), WRITE_BYTES), len(answer) + 8]
    assert bytes(pipe.data) == b"begin" + answer + b"end"
    assert connection.output_bytes == 0
    assert pipe.has_ended


class ResetPipe(ReadPipe):
    """A transport to a peer that has reset the connection, which asyncio has yet to tell."""

    def write_eof(self) -> None:
        raise OSError(107, "Transport endpoint is not connected")


@in_turns
async def test_a_connection_that_its_peer_has_reset_is_closed_without_a_word() -> None:
    harness = await open_harness()
    [(connection, _)] = connections_to(harness, 1)
    pipe = ResetPipe()
    connection.transport = pipe  # type: ignore[assignment]
    connection.close()
    assert pipe.is_aborted
