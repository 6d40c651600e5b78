"""Who is let in: what cannot be tried out over loopback."""

from __future__ import annotations

import asyncio
import socket

from switchgear.config import LimitsConfig, ListenUrl
from switchgear.engine.engine import Engine
from switchgear.errors import StorageError
from switchgear.net.hub import Hub
from switchgear.net.tcp import Connection, TcpDoor
from switchgear.protocols.gearman.session import GearmanSession
from switchgear.storage.memory import MemoryStore
from switchgear.telemetry import Telemetry
from switchgear.testing.clock import FakeClock
from tests.net.house import HubHouse, in_turns, open_house
from tests.support.wire import Kind, request


def door_with(limits: LimitsConfig) -> TcpDoor:
    telemetry = Telemetry(asyncio.get_running_loop().time)
    hub = Hub(Engine(), MemoryStore(), FakeClock(), telemetry)  # nobody gets so far

    def make_session(*_: object) -> None:
        raise AssertionError

    return TcpDoor(ListenUrl("gearman", "127.0.0.1", 0), hub, limits, make_session)  # type: ignore[arg-type]


def arriving(door: TcpDoor, host: str, *, is_loopback: bool = False) -> str:
    """What a connection from there is told; one that is let in stays."""

    arrival = Connection(door)
    arrival.host = host
    arrival.is_loopback = is_loopback
    reason = door.refusal_for(arrival)
    if not reason:
        door.connections.add(arrival)
        door.by_host[host] += 1
    return reason


@in_turns
async def test_one_address_has_a_limit_of_its_own() -> None:
    door = door_with(LimitsConfig(connections_per_address=2))
    answers = [arriving(door, "192.0.2.1") for _ in range(3)]
    assert answers == ["", "", "it has 2 connections already"]
    assert arriving(door, "192.0.2.2") == ""


@in_turns
async def test_loopback_has_none() -> None:
    door = door_with(LimitsConfig(connections_per_address=2))
    assert not any(arriving(door, "127.0.0.1", is_loopback=True) for _ in range(10))


@in_turns
async def test_all_together_have_a_limit() -> None:
    door = door_with(LimitsConfig(connections=3, connections_per_address=0))
    answers = [arriving(door, "192.0.2.1") for _ in range(4)]
    assert answers == ["", "", "", "there are 3 connections already"]


@in_turns
async def test_an_address_whose_connections_are_gone_is_forgotten() -> None:
    door = door_with(LimitsConfig(connections_per_address=1))
    arriving(door, "192.0.2.1")
    door.forget(door.connections.copy().pop())
    assert not door.by_host
    assert arriving(door, "192.0.2.1") == ""


@in_turns
async def test_all_doors_together_have_one_limit() -> None:
    limits = LimitsConfig(connections=3, connections_per_address=2)
    front = door_with(limits)
    back = door_with(limits)
    front.doors = back.doors = [front, back]
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
    house = await open_house()
    door = door_with(LimitsConfig(slow_reader_seconds=3))
    door.hub = house.hub
    connection = Connection(door)
    connection.host, connection.port = "192.0.2.1", 4711
    pipe = Pipe()
    connection.transport = pipe  # type: ignore[assignment]
    connection.write([b"x" * 100_000])
    connection.pause_writing()
    for _ in range(10):
        connection.write([b"x" * 3000])
        pipe.pending -= 2000
        await house.pass_time(1)
        connection.check_reader(house.loop.time())
    assert not pipe.is_aborted
    for _ in range(5):
        connection.write([b"x" * 3000])
        await house.pass_time(1)
        connection.check_reader(house.loop.time())
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
    house = await open_house()
    door = door_with(LimitsConfig(keepalive_idle_seconds=0))
    door.hub = house.hub
    door.make_session = lambda context, wire: GearmanSession(context, wire, house.setup)
    connection = Connection(door)
    with socket.socket() as sock:
        connection.connection_made(Reset(sock))  # type: ignore[arg-type]
    assert not connection.is_loopback


@in_turns
async def test_news_for_a_peer_that_waits_for_a_broken_store_are_bounded() -> None:
    house = await open_house()
    limits = LimitsConfig(slow_reader_bytes=2000, packet_bytes=1000)
    door = door_with(limits)
    door.hub = house.hub
    connection = Connection(door)
    connection.host, connection.port = "192.0.2.1", 4711
    pipe = Pipe()
    connection.transport = pipe  # type: ignore[assignment]
    session = connection.session = GearmanSession(house.hub, connection, house.setup)
    session.waiting = True
    session.out = [b"x" * 1000] * 5
    connection.check_reader(house.loop.time())
    assert not pipe.is_aborted  # the store works: the commit under way will send it
    house.hub.storage_error = StorageError("disk full")
    session.out = [b"x" * 1000] * 4
    connection.check_reader(house.loop.time())
    assert not pipe.is_aborted  # as much as a slow reader may have waiting
    session.out.append(b"x")
    connection.check_reader(house.loop.time())
    assert pipe.is_aborted
    assert house.hub.telemetry.counts["held_output_closed"] == 1
    house.hub.storage_error = None


# --- the account of memory ---


class Peers:
    """Connections to one server, whose limit of memory is small."""

    def __init__(self, house: HubHouse, limit_bytes: int) -> None:
        self.house = house
        self.memory = house.hub.engine.memory
        self.memory.limit_bytes = limit_bytes
        self.door = door_with(LimitsConfig())
        self.door.hub = house.hub
        self.door.make_session = lambda context, wire: GearmanSession(context, wire, house.setup)

    def connect(self) -> tuple[Connection, Pipe]:
        connection = Connection(self.door)
        connection.host, connection.port = "192.0.2.1", 4711
        pipe = Pipe()
        connection.transport = pipe  # type: ignore[assignment]
        connection.session = GearmanSession(self.house.hub, connection, self.house.setup)
        self.door.connections.add(connection)
        return connection, pipe


def beginning(size: int) -> bytes:
    """The first bytes of a packet that is larger than that."""
    return b"\0REQ" + (18).to_bytes(4, "big") + (1_000_000).to_bytes(4, "big") + b"x" * (size - 12)


@in_turns
async def test_every_read_is_counted_and_the_largest_unfinished_packet_makes_room() -> None:
    house = await open_house()
    peers = Peers(house, limit_bytes=40_000)  # of which a quarter is for input
    (first, first_pipe), (second, second_pipe), (third, third_pipe) = (peers.connect() for _ in range(3))
    first.data_received(beginning(3000))
    second.data_received(beginning(4000))
    second.data_received(b"x" * 1000)
    assert peers.memory.input_bytes == 8000
    assert peers.door.input_bytes == 8000
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
    assert house.hub.telemetry.counts["intake_closed"] == 1


@in_turns
async def test_a_packet_that_is_complete_is_input_no_longer() -> None:
    house = await open_house()
    peers = Peers(house, limit_bytes=40_000)
    connection, _ = peers.connect()
    packet = request(Kind.ECHO_REQ, b"x" * 500)
    connection.data_received(packet[:400])
    assert peers.memory.input_bytes == 400
    connection.data_received(packet[400:])
    assert peers.memory.input_bytes == 0


@in_turns
async def test_every_write_to_a_peer_that_does_not_read_is_counted_and_the_largest_makes_room() -> None:
    house = await open_house()
    peers = Peers(house, limit_bytes=40_000)
    (first, first_pipe), (second, second_pipe) = (peers.connect() for _ in range(2))
    for connection, size in ((first, 3000), (second, 4000)):
        connection.write([b"x" * size])
        connection.pause_writing()
    assert peers.memory.output_bytes == 7000
    second.write([b"x" * 2000])
    assert peers.memory.output_bytes == 9000
    assert peers.door.output_bytes == 9000
    first.write([b"x" * 1001])
    assert second_pipe.is_aborted
    assert not first_pipe.is_aborted
    assert peers.memory.output_bytes == 4001
    first_pipe.pending = 0
    first.resume_writing()
    assert peers.memory.output_bytes == 0


@in_turns
async def test_what_waits_for_a_failing_store_is_counted_until_the_store_works() -> None:
    house = await open_house()
    peers = Peers(house, limit_bytes=1_000_000)
    connection, _ = peers.connect()
    assert connection.session is not None
    connection.session.waiting = True
    connection.session.out = [b"x" * 1000] * 5
    house.hub.storage_error = StorageError("disk full")
    connection.check_reader(house.loop.time())
    assert peers.memory.output_bytes == 5000
    house.hub.storage_error = None
    connection.check_reader(house.loop.time())
    assert peers.memory.output_bytes == 0


@in_turns
async def test_a_session_knows_what_its_peer_has_not_taken_and_can_give_it_up() -> None:
    house = await open_house()
    door = door_with(LimitsConfig())
    door.hub = house.hub
    connection = Connection(door)
    connection.host, connection.port = "192.0.2.1", 4711
    assert connection.unsent_bytes == 0
    pipe = Pipe()
    connection.transport = pipe  # type: ignore[assignment]
    connection.write([b"x" * 1000])
    assert connection.unsent_bytes == 1000
    connection.give_up_on_slow_reader(5000)
    assert pipe.is_aborted
    assert house.hub.telemetry.counts["slow_reader_closed"] == 1
