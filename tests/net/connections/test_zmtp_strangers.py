"""What strangers can do to a ZeroMQ listener: raw connections, every bound at once in one process."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter

import pytest

from switchgear.config import LimitsConfig, ZeromqConfig
from switchgear.engine.engine import EngineSettings
from switchgear.protocols.multipart import Message
from switchgear.protocols.zmtp.codec import FRAMES_AT_ONCE
from switchgear.protocols.zmtp.server_protocol import FRAME_OVERHEAD, MOST_FRAMES
from tests.net.connections.test_foreign_protocols import FOREIGN
from tests.net.echo_server import EchoServer, echo_server, run, until
from tests.protocols.zmtp.wire import GREETING, GREETING_2_0, SIGNATURE, frame, frame_1_0, message, metadata, ready

MIB = 1 << 20


async def is_hung_up(reader: asyncio.StreamReader) -> bool:
    """Whether the server ends the conversation, whatever it says before."""
    try:
        async with asyncio.timeout(10):
            await reader.read()
    except ConnectionError:
        return True
    return True


# --- versions ---


@pytest.mark.parametrize(
    ("greeting", "said", "answer"),
    [
        (GREETING_2_0 + frame(b"old"), message(b"", b"x"), message(b"", b"x")),
        (frame_1_0(b"old"), frame_1_0(b"", True) + frame_1_0(b"x"), frame_1_0(b"", True) + frame_1_0(b"x")),
    ],
    ids=["2.0", "1.0"],
)
def test_peers_of_older_versions_are_served(greeting: bytes, said: bytes, answer: bytes) -> None:
    async def test() -> None:
        async with echo_server() as server:
            reader, writer = await server.connect()
            writer.write(greeting + said)
            assert (await reader.readuntil(answer)).endswith(answer)
            assert server.echo.seen == [[b"old", b"", b"x"]]

    run(test)


def test_an_old_peer_waits_for_each_part_of_the_greeting() -> None:
    async def test() -> None:
        async with echo_server() as server:
            reader, writer = await server.connect()
            writer.write(SIGNATURE)
            assert await reader.readexactly(11) == b"\xff\0\0\0\0\0\0\0\1\x7f\3"
            writer.write(b"\1\3")  # 2.0, a REQ socket
            assert await reader.readexactly(3) == b"\6\0\0"
            writer.write(frame(b"") + message(b"", b"x"))
            assert await reader.readexactly(5) == message(b"", b"x")

    run(test)


# --- the first bytes ---


@pytest.mark.parametrize(
    ("start", "name"), [pytest.param(*case, id=key) for key, case in FOREIGN.items() if case[1] != "ZeroMQ"]
)
def test_other_protocols_are_answered_in_their_own_words_and_hung_up_on(start: bytes, name: str) -> None:
    async def test() -> None:
        async with echo_server() as server:
            reader, writer = await server.connect()
            for position in range(min(40, len(start))):
                writer.write(start[position : position + 1])
            writer.write(start[40:])
            answer = await reader.read()
            assert not answer.startswith(b"\xff")
            if name == "HTTP":
                assert answer.startswith(b"HTTP/1.1 400 ")
                assert b"This port speaks ZeroMQ" in answer
            assert server.telemetry.counts["bad_input"] == 1
            assert not server.echo.seen

    run(test)


@pytest.mark.parametrize("start", [b"nonsense\n", b"x" * 9000, b"\0" * 20, b"\1\2" * 10])
def test_what_is_no_protocol_at_all_is_hung_up_on(start: bytes) -> None:
    async def test() -> None:
        async with echo_server() as server:
            reader, writer = await server.connect()
            writer.write(start)
            assert await reader.read() == b""
            assert server.telemetry.counts["handshake_failed"] == 1

    run(test)


# --- handshakes ---


def test_who_does_not_introduce_itself_in_time_is_hung_up_on() -> None:
    async def test() -> None:
        async with echo_server(ZeromqConfig(handshake_seconds=1)) as server:
            silent, _ = await server.connect()
            slow, writer = await server.connect()
            writer.write(GREETING)
            known, other = await server.peer(b"known")
            assert await until(lambda: len(server.listener.connections) == 3)
            for session in server.listener.in_handshake:
                session.begun_at -= 2
            server.listener.look_after()
            assert await is_hung_up(silent)
            assert await is_hung_up(slow)
            assert server.telemetry.counts["handshake_failed"] == 2
            other.write(message(b"x"))
            assert await known.readexactly(3) == message(b"x")

    run(test)


def test_one_that_hangs_up_in_the_middle_of_its_handshake_is_told_of() -> None:
    async def test() -> None:
        async with echo_server() as server:
            _, writer = await server.connect()
            writer.write(GREETING)
            assert await until(lambda: any(session.zmtp.version for session in server.listener.in_handshake))
            writer.close()
            assert await until(lambda: server.telemetry.counts["handshake_failed"])
            assert not server.listener.in_handshake

    run(test)


def test_a_socket_that_a_router_does_not_talk_to_is_refused() -> None:
    async def test() -> None:
        async with echo_server() as server:
            reader, writer = await server.connect()
            writer.write(GREETING + frame(b"\5READY" + metadata(Socket_Type=b"SUB"), 4))
            assert await is_hung_up(reader)
            assert server.telemetry.counts["handshake_failed"] == 1

    run(test)


# --- input ---


def test_an_endless_message_takes_no_memory_and_ends_with_its_connection() -> None:
    async def test() -> None:
        async with echo_server(limits=LimitsConfig(packet_bytes=MIB)) as server:
            _, writer = await server.peer()
            other_reader, other = await server.peer(b"other")
            most = 0
            for _ in range(40):
                writer.write(frame(b"", 1) * 32_768)
                await writer.drain()
                most = max(most, server.listener.input_bytes)
                other.write(message(b"x"))
                assert await other_reader.readexactly(3) == message(b"x")
            assert most < 2 * MIB
            assert server.telemetry.counts["bad_input"] == 1

    run(test)


def test_an_unfinished_message_counts_with_its_frames_until_it_ends() -> None:
    async def test() -> None:
        async with echo_server() as server:
            reader, writer = await server.peer()
            writer.write(frame(b"x", 1) * (MOST_FRAMES - 2))
            expected = (MOST_FRAMES - 2) * (FRAME_OVERHEAD + 1)
            assert await until(lambda: server.listener.input_bytes == expected)
            assert server.hub.engine.memory.input_bytes == expected
            writer.write(frame(b"end"))
            await reader.readuntil(b"end")
            assert server.hub.engine.memory.input_bytes == 0

    run(test)


def test_who_holds_the_most_unfinished_input_is_closed_first_when_memory_is_short() -> None:
    async def test() -> None:
        async with echo_server(settings=EngineSettings(memory_bytes=16 * MIB)) as server:
            large, large_writer = await server.peer(b"large")
            small, small_writer = await server.peer(b"small")
            small_writer.write(b"\2" + struct.pack(">Q", 2 * MIB) + bytes(MIB))
            large_writer.write(b"\2" + struct.pack(">Q", 60 * MIB) + bytes(4 * MIB))
            assert await is_hung_up(large)
            assert server.telemetry.counts["intake_closed"] == 1
            small_writer.write(bytes(MIB))
            assert len(await small.readexactly(2 * MIB + 9)) == 2 * MIB + 9

    run(test)


def test_a_frame_that_is_announced_too_long_ends_the_connection_at_once() -> None:
    async def test() -> None:
        async with echo_server() as server:
            reader, writer = await server.peer()
            writer.write(b"\2" + struct.pack(">Q", 1 << 40))
            assert await is_hung_up(reader)
            assert server.telemetry.counts["bad_input"] == 1

    run(test)


def test_a_flood_of_short_messages_is_handled_in_many_turns() -> None:
    async def test() -> None:
        async with echo_server() as server:
            reader, writer = await server.peer()
            turns: Counter[int] = Counter()

            def note_turn(seen: Message) -> None:
                turns[server.hub.engine.now_us] += 1

            server.echo.answer = note_turn
            writer.write(message(b"") * 100_000)
            assert await until(lambda: len(server.echo.seen) == 100_000)
            assert max(turns.values()) <= 4 * FRAMES_AT_ONCE
            del reader

    run(test)


# --- output ---


async def stuck_peer(server: EchoServer) -> asyncio.StreamReader:
    """A peer that reads nothing, to which much was written."""
    reader, writer = await server.connect(limit_bytes=1024)
    writer.write(GREETING + ready(identity=b"stuck"))
    assert await until(lambda: b"stuck" in server.router.peers)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    session = server.router.peers[b"stuck"]
    while not session.connection.is_stalled:
        server.router.write([[b"stuck", bytes(500_000)]])
        await asyncio.sleep(0)
        assert await until(lambda: not server.hub.fair_queue)  # what is long is written in several turns
    return reader


def test_messages_for_a_peer_that_does_not_read_are_queued_up_to_their_number_and_handed_back_beyond() -> None:
    async def test() -> None:
        async with echo_server(ZeromqConfig(messages_per_peer=5)) as server:
            await stuck_peer(server)
            server.router.write([[b"stuck", b"%d" % number] for number in range(8)])
            assert await until(lambda: server.echo.lost)
            assert server.echo.lost == [[b"stuck", b"%d" % number] for number in (5, 6, 7)]
            assert server.telemetry.counts["peer_unreachable"] == 3

    run(test)


def test_messages_for_a_peer_that_does_not_read_are_queued_up_to_their_bytes_and_handed_back_beyond() -> None:
    async def test() -> None:
        async with echo_server(limits=LimitsConfig(slow_reader_bytes=MIB)) as server:
            await stuck_peer(server)
            server.router.write([[b"stuck", bytes(300_000)] for _ in range(5)])
            assert await until(lambda: server.echo.lost)
            assert len(server.echo.lost) == 2
            assert server.listener.output_bytes > 900_000
            assert server.hub.engine.memory.output_bytes == server.listener.output_bytes

    run(test)


def test_what_was_queued_arrives_in_order_when_the_peer_reads_again() -> None:
    async def test() -> None:
        async with echo_server() as server:
            reader = await stuck_peer(server)
            server.router.write([[b"stuck", b"message %d" % number] for number in range(300)])
            server.listener.look_after()
            transport = server.writers[-1].transport
            transport.resume_reading()  # type: ignore[attr-defined]
            data = b""
            while not data.endswith(b"message 299"):
                data += await reader.read(1 << 20)
            position = -1
            for number in range(300):
                position = data.index(message(b"message %d" % number), position + 1)
            assert not server.echo.lost
            assert await until(lambda: server.listener.output_bytes == 0)

    run(test)


def test_what_was_queued_for_a_peer_that_is_lost_comes_back_to_the_session() -> None:
    async def test() -> None:
        async with echo_server() as server:
            await stuck_peer(server)
            server.router.write([[b"stuck", b"1"], [b"stuck", b"2"]])
            server.writers[-1].transport.abort()
            assert await until(lambda: len(server.echo.lost) == 2)
            assert server.echo.lost == [[b"stuck", b"1"], [b"stuck", b"2"]]
            assert server.hub.engine.memory.output_bytes == 0

    run(test)


def test_a_peer_that_takes_nothing_for_long_is_closed() -> None:
    async def test() -> None:
        async with echo_server() as server:
            await stuck_peer(server)
            connection = server.router.peers[b"stuck"].connection
            connection.check_reader(asyncio.get_running_loop().time())
            connection.check_reader(asyncio.get_running_loop().time() + 60)
            assert await until(lambda: not server.listener.connections)
            assert server.telemetry.counts["slow_reader_closed"] == 1

    run(test)


# --- names ---


def test_who_comes_with_a_name_takes_it_over_and_what_was_queued_for_it_comes_back() -> None:
    async def test() -> None:
        async with echo_server() as server:
            await stuck_peer(server)
            server.router.write([[b"stuck", b"for the old one"]])
            reader, writer = await server.peer(b"stuck")
            assert server.echo.lost == [[b"stuck", b"for the old one"]]
            assert await until(lambda: len(server.listener.connections) == 1)
            writer.write(message(b"x"))
            assert await reader.readexactly(3) == message(b"x")

    run(test)


def test_given_names_are_not_given_twice_and_cannot_be_taken() -> None:
    async def test() -> None:
        async with echo_server() as server:
            for _ in range(3):
                _, writer = await server.peer(b"")
                writer.write(message(b"x"))
            assert await until(lambda: len(server.echo.seen) == 3)
            names = {seen[0] for seen in server.echo.seen}
            assert len(names) == 3
            assert all(len(name) == 5 and name[0] == 0 for name in names)
            reader, writer = await server.connect()
            writer.write(GREETING + ready(identity=names.pop()))
            assert await is_hung_up(reader)
            assert len(server.router.peers) == 3

    run(test)


# --- how many ---


def test_connections_count_for_the_limit_of_all_listeners() -> None:
    async def test() -> None:
        async with echo_server(limits=LimitsConfig(connections=2)) as server:
            await server.connect()
            await server.peer()
            assert await until(lambda: len(server.listener.connections) == 2)
            late, _ = await server.connect()
            assert await is_hung_up(late)
            assert server.telemetry.counts["connection_refused"] == 1
            assert server.listener.describe()["connections"] == 2

    run(test)


def test_a_listener_that_stops_accepting_serves_those_who_are_there() -> None:
    async def test() -> None:
        async with echo_server() as server:
            reader, writer = await server.peer()
            port = server.listener.bound_port
            server.listener.stop_accepting()
            writer.write(message(b"x"))
            assert await reader.readexactly(3) == message(b"x")
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)

    run(test)


# --- signs of life ---


def test_a_silent_peer_is_asked_for_a_sign_of_life_and_closed_when_it_gives_none() -> None:
    async def test() -> None:
        async with echo_server(ZeromqConfig(heartbeat_seconds=0.05)) as server:
            reader, _ = await server.peer()
            data = await reader.read()
            assert data == frame(b"\4PING\0\0", 4) * 3
            assert server.telemetry.counts["silent_peer_closed"] == 1

    run(test)


def test_a_peer_that_answers_is_kept() -> None:
    async def test() -> None:
        async with echo_server(ZeromqConfig(heartbeat_seconds=0.02)) as server:
            reader, writer = await server.peer()
            for _ in range(8):
                assert await reader.readexactly(9) == frame(b"\4PING\0\0", 4)
                writer.write(frame(b"\4PONG", 4))
            assert server.listener.connections

    run(test)


def test_a_peer_that_says_how_long_its_silence_may_last_is_closed_after_that() -> None:
    async def test() -> None:
        async with echo_server() as server:
            reader, writer = await server.peer()
            writer.write(frame(b"\4PING\0\x0aabc", 4))
            assert await reader.readexactly(10) == frame(b"\4PONGabc", 4)
            server.listener.look_after()
            assert server.listener.connections
            server.router.peers[b"me"].lives_until -= 2
            server.listener.look_after()
            assert await is_hung_up(reader)

    run(test)
