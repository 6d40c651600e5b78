"""ZeroMQ listeners, with the sockets of ZeroMQ's own library as peers."""

from __future__ import annotations

from functools import partial

import pytest
import zmq

from switchgear.config import LimitsConfig, ListenUrl, ZeromqConfig
from switchgear.errors import ConfigError, StorageError
from switchgear.net.connections.zmtp_listener import ZmtpListener, ZmtpSession
from switchgear.protocols.multipart import Message
from switchgear.protocols.zmtp.codec import FRAMES_AT_ONCE
from switchgear.protocols.zmtp.server_protocol import MOST_FRAMES
from tests.net.echo_server import Echo, EchoServer, echo_server, run, until


@pytest.mark.parametrize(
    "frames", [[b""], [b"x"], [b"", b""], [b"", b"job"], [b"a", b"b", b"", b"c"], [b"x" * 100_000]]
)
def test_every_message_arrives_whole_with_who_sent_it_and_is_answered(frames: list[bytes]) -> None:
    async def test() -> None:
        async with echo_server() as server:
            client = server.client(ROUTING_ID=b"me")
            client.send_multipart(frames)
            assert await server.hears(client) == frames
            assert server.echo.seen == [[b"me", *frames]]

    run(test)


def test_a_message_of_any_shape_does_not_spoil_the_next() -> None:
    async def test() -> None:
        async with echo_server() as server:
            one, other = server.client(ROUTING_ID=b"one"), server.client(ROUTING_ID=b"other")
            for _ in range(50):
                one.send_multipart([b""])
                other.send_multipart([b"", b"job", b"more", b"and more"])
                one.send_multipart([b"x", b"y"])
            assert await until(lambda: len(server.echo.seen) == 150)
            shapes = {(message[0], len(message)) for message in server.echo.seen}
            assert shapes == {(b"one", 2), (b"one", 3), (b"other", 5)}

    run(test)


def test_a_flood_is_answered_to_the_last_message() -> None:
    async def test() -> None:
        async with echo_server(ZeromqConfig(messages_per_peer=10_000)) as server:
            clients = [server.client(SNDHWM=0, RCVHWM=0) for _ in range(3)]
            each = 2 * FRAMES_AT_ONCE
            for number in range(each):
                for client in clients:
                    client.send(b"%d" % number)
            for client in clients:
                for number in range(each):
                    assert await server.hears(client) == [b"%d" % number]

    run(test)


def test_a_request_that_arrives_while_something_is_sent_is_not_forgotten() -> None:
    async def test() -> None:
        async with echo_server() as server:
            client = server.client(zmq.REQ)
            for number in range(300):
                client.send(b"%d" % number)
                assert await server.hears(client) == [b"%d" % number]

    run(test)


def test_what_is_for_a_peer_that_is_gone_comes_back_to_the_session() -> None:
    async def test() -> None:
        async with echo_server() as server:
            server.echo.answer = lambda message: [b"nobody", b"", b"for you"]
            server.client().send(b"x")
            assert await until(lambda: server.echo.lost)
            assert server.echo.lost == [[b"nobody", b"", b"for you"]]
            assert server.telemetry.counts["peer_unreachable"] == 1

    run(test)


def test_a_peer_that_takes_nothing_counts_as_gone_and_the_others_go_on() -> None:
    async def test() -> None:
        async with echo_server(ZeromqConfig(messages_per_peer=1)) as server:
            server.echo.answer = lambda message: [b"stuck", bytes(1_000_000)]
            stuck = server.client(ROUTING_ID=b"stuck", RCVHWM=1, RCVBUF=4096)
            stuck.send(b"here")
            other = server.client(ROUTING_ID=b"other")
            assert await until(lambda: server.echo.seen)

            def send_and_look() -> bool:
                other.send(b"x")
                return bool(server.echo.lost)

            assert await until(send_and_look)
            server.echo.answer = lambda message: message if message[0] == b"other" else None

            def is_served() -> bool:
                other.send(b"y")
                return bool(other.poll(0))

            assert await until(is_served)

    run(test)


def test_a_message_over_the_limit_ends_the_connection_and_nothing_of_it_is_seen() -> None:
    async def test() -> None:
        async with echo_server(limits=LimitsConfig(packet_bytes=1000)) as server:
            rude = server.client(ROUTING_ID=b"rude")
            rude.send(bytes(1001))
            polite = server.client(ROUTING_ID=b"polite")
            polite.send(bytes(1000))
            assert await server.hears(polite) == [bytes(1000)]
            assert [message[0] for message in server.echo.seen] == [b"polite"]

    run(test)


def test_a_defect_in_a_session_ends_nothing_but_the_handling_of_one_message() -> None:
    async def test() -> None:
        async with echo_server() as server:
            client = server.client()
            client.send(b"raise")
            client.send(b"go on")
            assert await server.hears(client) == [b"go on"]
            assert server.telemetry.counts["internal_error"] == 1

    run(test)


def test_one_who_comes_back_takes_over_the_name_of_its_dead_connection() -> None:
    async def test() -> None:
        async with echo_server() as server:
            first = server.client(ROUTING_ID=b"worker")
            first.send(b"1")
            assert await server.hears(first) == [b"1"]
            second = server.client(ROUTING_ID=b"worker")
            second.send(b"2")
            assert await server.hears(second) == [b"2"]

    run(test)


def test_a_complaint_names_the_address_of_the_peer_that_it_is_about() -> None:
    async def test() -> None:
        async with echo_server() as server:
            hosts: list[str] = []

            def complain(message: Message) -> None:
                hosts.append(server.router.host)

            server.echo.answer = complain
            server.client().send(b"x")
            assert await until(lambda: hosts)
            assert hosts == ["127.0.0.1"]
            assert server.router.host == ""  # when nobody is being spoken to

    run(test)


def test_while_the_store_fails_promises_do_not_pile_up_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchgear.net.connections.zmtp_listener.DELAYED_BYTES", 1000)

    async def test() -> None:
        async with echo_server() as server:
            server.hub.is_durable = server.hub.engine.is_durable = True
            server.hub.commits.storage_error = StorageError("disk full")

            def answer_when_stored(message: Message) -> Message:
                server.echo.await_commit()
                return message

            server.echo.answer = answer_when_stored
            client = server.client(ROUTING_ID=b"c")
            client.send(bytes(2000))
            assert await until(lambda: server.echo.delayed)
            client.send(b"waits")
            assert not await until(lambda: len(server.echo.seen) > 1, within_seconds=0.1)
            server.hub.commits.storage_error = None
            server.echo.answer = lambda message: message
            server.listener.look_after()
            while await server.hears(client) != [b"waits"]:
                pass  # what was promised comes first

    run(test)


def test_a_message_of_absurdly_many_frames_is_counted_and_dropped_and_the_next_is_whole() -> None:
    async def test() -> None:
        async with echo_server() as server:
            client = server.client(ROUTING_ID=b"c")
            client.send_multipart([b"x"] * MOST_FRAMES)
            client.send_multipart([b"x"] * (MOST_FRAMES - 1))
            assert await server.hears(client) == [b"x"] * (MOST_FRAMES - 1)
            assert len(server.echo.seen) == 1
            assert server.telemetry.counts["bad_input"] == 1

    run(test)


def test_what_a_session_says_when_its_listener_closes_is_still_sent() -> None:
    async def test() -> None:
        async with echo_server() as server:
            client = server.client(ROUTING_ID=b"c")
            client.send(b"hello")
            assert await server.hears(client) == [b"hello"]
            server.echo.closed = lambda: server.echo.send([b"c", b"goodbye"])  # type: ignore[method-assign]
            await server.listener.close()
            assert await server.hears(client) == [b"goodbye"]

    run(test)


def test_an_answer_that_cannot_be_encoded_is_not_sent_in_part_and_does_not_spoil_the_next() -> None:
    async def test() -> None:
        async with echo_server() as server:
            client = server.client(ROUTING_ID=b"c")
            server.echo.answer = lambda message: [b"c", b"fine", None, b"never"]  # type: ignore[list-item]
            client.send(b"1")
            assert await until(lambda: server.echo.seen)
            server.echo.answer = lambda message: message
            client.send(b"2")
            assert await server.hears(client) == [b"2"]

    run(test)


def test_a_session_that_fails_over_one_lost_message_hears_of_the_others() -> None:
    async def test() -> None:
        async with echo_server() as server:
            heard: list[bytes] = []

            def unreachable(message: Message) -> None:
                heard.append(message[0])
                raise RuntimeError("on purpose")

            def answer_two(message: Message) -> None:
                server.echo.send([b"one", b""])
                server.echo.send([b"two", b""])

            server.echo.unreachable = unreachable  # type: ignore[method-assign]
            server.echo.answer = answer_two
            server.client().send(b"x")
            assert await until(lambda: len(heard) == 2)

    run(test)


def test_a_port_in_use_is_told_in_words() -> None:
    async def test() -> None:
        async with echo_server() as server:
            taken = ListenUrl.parse(f"dwork://127.0.0.1:{server.listener.bound_port}")
            other = ZmtpListener(taken, server.hub, LimitsConfig(), Echo, ZeromqConfig())
            with pytest.raises(ConfigError, match=r"cannot listen on dwork://.*in use"):
                await other.open()

    run(test)


def test_a_router_socket_is_served_as_well() -> None:
    async def test() -> None:
        async with echo_server() as server:
            client = server.client(zmq.ROUTER, ROUTING_ID=b"router", CONNECT_ROUTING_ID=b"server", ROUTER_MANDATORY=1)

            def is_sent() -> bool:
                try:
                    client.send_multipart([b"server", b"", b"x"], zmq.NOBLOCK)
                except zmq.ZMQError:  # it is not connected yet
                    return False
                return True

            assert await until(is_sent)
            assert await server.hears(client) == [b"server", b"", b"x"]

    run(test)


def test_a_socket_that_lost_its_connection_comes_back_under_its_name() -> None:
    async def test() -> None:
        async with echo_server() as server:
            client = server.client(ROUTING_ID=b"c", RECONNECT_IVL=10)
            for number in range(5):
                client.send(b"%d" % number)
                assert await server.hears(client) == [b"%d" % number]
                session = server.router.peers[b"c"]
                session.connection.abort()
                assert await until(partial(has_another, server, session))

    run(test)


def has_another(server: EchoServer, old: ZmtpSession) -> bool:
    """Whether the peer of a connection has come back."""
    return server.router.peers.get(b"c", old) is not old


def test_a_socket_that_asks_for_signs_of_life_gets_them() -> None:
    async def test() -> None:
        async with echo_server() as server:
            client = server.client(
                ROUTING_ID=b"c", HEARTBEAT_IVL=20, HEARTBEAT_TIMEOUT=200, HEARTBEAT_TTL=1000, RECONNECT_IVL=-1
            )
            assert await until(lambda: b"c" in server.router.peers)
            session = server.router.peers[b"c"]
            signs = set()

            def has_given_signs() -> bool:
                signs.add(session.lives_until)
                return len(signs) > 20  # more than the timeout allows for without an answer

            assert await until(has_given_signs)
            assert server.router.peers[b"c"] is session
            client.send(b"x")
            assert await server.hears(client) == [b"x"]

    run(test)


def test_a_socket_gives_signs_of_life_when_it_is_asked() -> None:
    async def test() -> None:
        async with echo_server(ZeromqConfig(heartbeat_seconds=0.03)) as server:
            client = server.client(ROUTING_ID=b"c", RECONNECT_IVL=-1)
            client.send(b"x")
            assert await server.hears(client) == [b"x"]
            assert not await until(lambda: not server.listener.connections, within_seconds=0.5)

    run(test)


def test_large_messages_go_both_ways_and_hold_up_nobody() -> None:
    async def test() -> None:
        async with echo_server() as server:
            large, small = server.client(), server.client()
            body = bytes(range(256)) * 100_000
            large.send_multipart([b"", body, b"end"])
            small.send(b"x")
            assert await server.hears(small) == [b"x"]
            assert await server.hears(large) == [b"", body, b"end"]
            assert server.hub.engine.memory.input_bytes == 0

    run(test)


def test_a_listener_shows_what_its_connections_hold() -> None:
    async def test() -> None:
        async with echo_server() as server:
            client = server.client()
            client.send(b"x")
            await server.hears(client)
            described = server.listener.describe()
            assert described == {
                "url": f"dwork://127.0.0.1:{server.listener.bound_port}",
                "connections": 1,
                "input": 0,
                "output": 0,
                "largest": None,
            }

    run(test)


def test_the_session_is_told_when_a_peer_has_closed_its_connection_for_good() -> None:
    async def test() -> None:
        async with echo_server() as server:
            client = server.client(ROUTING_ID=b"c")
            client.send(b"x")
            await server.hears(client)
            other = server.client(ROUTING_ID=b"c")
            other.send(b"y")
            await server.hears(other)
            assert server.echo.gone == []  # another connection has taken over the name
            client.close(0)
            other.close(0)
            assert await until(lambda: server.echo.gone == [b"c"])

    run(test)
