"""ZeroMQ listeners: real sockets on both sides, in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.auth

from switchgear.config import LimitsConfig, ListenUrl, ZeromqConfig
from switchgear.engine.engine import Engine
from switchgear.errors import ConfigError, StorageError
from switchgear.net.clock import SystemClock
from switchgear.net.hub import Hub
from switchgear.net.zeromq import MESSAGES_PER_TURN, MOST_FRAMES, ZmqDoor, ZmqHouse
from switchgear.protocols.base import Context, Message, MessageSession, Wire
from switchgear.storage.memory import MemoryStore
from switchgear.telemetry import Telemetry

URL = ListenUrl.parse("dwork://127.0.0.1:0")
DEADLINE_SECONDS = 20.0


class Echo(MessageSession):
    """Sends everything back, or what it is told to."""

    def __init__(self, context: Context, wire: Wire) -> None:
        super().__init__(context, wire)
        self.protocol = "echo"
        self.seen: list[Message] = []
        self.lost: list[Message] = []
        self.turns = 0
        self.answer: Callable[[Message], Message | None] = lambda message: message

    def receive_message(self, message: Message) -> None:
        self.seen.append(message)
        if message[-1] == b"raise":
            raise RuntimeError("on purpose")
        answer = self.answer(message)
        if answer is not None:
            self.send(answer)

    def unreachable(self, message: Message) -> None:
        self.lost.append(message)


class Lobby:
    """A door with an echo behind it, and clients that connect to it."""

    def __init__(self, config: ZeromqConfig, limits: LimitsConfig) -> None:
        self.telemetry = Telemetry(asyncio.get_running_loop().time)
        self.hub = Hub(Engine(None, self.telemetry), MemoryStore(), SystemClock(), self.telemetry)
        self.house = ZmqHouse(config)
        self.door = ZmqDoor(URL, 0, self.hub, self.house, limits, Echo)
        self.door.open()
        assert isinstance(self.door.messages, Echo)
        self.echo = self.door.messages
        self.clients = zmq.Context()
        self.sockets: list[zmq.Socket[bytes]] = []  # one that nobody refers to is closed

    def client(self, kind: int = zmq.DEALER, **options: Any) -> zmq.Socket[bytes]:
        socket = self.clients.socket(kind)
        self.sockets.append(socket)
        socket.set(zmq.LINGER, 0)
        for name, value in options.items():
            socket.set(getattr(zmq, name), value)
        socket.connect(f"tcp://127.0.0.1:{self.door.bound_port}")
        return socket

    async def hears(self, client: zmq.Socket[bytes], within_seconds: float = DEADLINE_SECONDS) -> list[bytes]:
        assert await until(lambda: bool(client.poll(0)), within_seconds), "nothing came"
        return client.recv_multipart()

    def close(self) -> None:
        self.clients.destroy(0)
        self.door.close()
        self.house.close()


async def until(condition: Callable[[], object], within_seconds: float = DEADLINE_SECONDS) -> bool:
    """Let the event loop turn until the condition holds; false if it never does."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_seconds
    while not condition():
        if loop.time() > end:
            return False
        await asyncio.sleep(0.001)
    return True


@asynccontextmanager
async def open_lobby(config: ZeromqConfig | None = None, limits: LimitsConfig | None = None) -> AsyncIterator[Lobby]:
    lobby = Lobby(config or ZeromqConfig(), limits or LimitsConfig())
    try:
        yield lobby
    finally:
        lobby.close()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


@pytest.mark.parametrize(
    "frames", [[b""], [b"x"], [b"", b""], [b"", b"job"], [b"a", b"b", b"", b"c"], [b"x" * 100_000]]
)
def test_every_message_arrives_whole_with_who_sent_it_and_is_answered(frames: list[bytes]) -> None:
    async def test() -> None:
        async with open_lobby() as lobby:
            client = lobby.client(ROUTING_ID=b"me")
            client.send_multipart(frames)
            assert await lobby.hears(client) == frames
            assert lobby.echo.seen == [[b"me", *frames]]

    run(test)


def test_a_message_of_any_shape_does_not_spoil_the_next() -> None:
    async def test() -> None:
        async with open_lobby() as lobby:
            one, other = lobby.client(ROUTING_ID=b"one"), lobby.client(ROUTING_ID=b"other")
            for _ in range(50):
                one.send_multipart([b""])
                other.send_multipart([b"", b"job", b"more", b"and more"])
                one.send_multipart([b"x", b"y"])
            assert await until(lambda: len(lobby.echo.seen) == 150)
            shapes = {(message[0], len(message)) for message in lobby.echo.seen}
            assert shapes == {(b"one", 2), (b"one", 3), (b"other", 5)}

    run(test)


def test_a_flood_is_answered_to_the_last_message_although_the_descriptor_tells_only_of_changes() -> None:
    async def test() -> None:
        async with open_lobby(ZeromqConfig(messages_per_peer=10_000)) as lobby:
            clients = [lobby.client(SNDHWM=0, RCVHWM=0) for _ in range(3)]
            each = 2 * MESSAGES_PER_TURN
            for number in range(each):
                for client in clients:
                    client.send(b"%d" % number)
            for client in clients:
                for number in range(each):
                    assert await lobby.hears(client) == [b"%d" % number]

    run(test)


def test_a_request_that_arrives_while_something_is_sent_is_not_forgotten() -> None:
    async def test() -> None:
        async with open_lobby() as lobby:
            client = lobby.client(zmq.REQ)
            for number in range(300):
                client.send(b"%d" % number)
                assert await lobby.hears(client) == [b"%d" % number]

    run(test)


def test_what_is_for_a_peer_that_is_gone_comes_back_to_the_session() -> None:
    async def test() -> None:
        async with open_lobby() as lobby:
            lobby.echo.answer = lambda message: [b"nobody", b"", b"for you"]
            lobby.client().send(b"x")
            assert await until(lambda: lobby.echo.lost)
            assert lobby.echo.lost == [[b"nobody", b"", b"for you"]]
            assert lobby.telemetry.counts["peer_unreachable"] == 1

    run(test)


def test_a_peer_that_takes_nothing_counts_as_gone_and_the_others_go_on() -> None:
    async def test() -> None:
        async with open_lobby(ZeromqConfig(messages_per_peer=1)) as lobby:
            lobby.echo.answer = lambda message: [b"stuck", bytes(1_000_000)]
            stuck = lobby.client(ROUTING_ID=b"stuck", RCVHWM=1, RCVBUF=4096)
            stuck.send(b"here")
            other = lobby.client(ROUTING_ID=b"other")
            assert await until(lambda: lobby.echo.seen)

            def send_and_look() -> bool:
                other.send(b"x")
                return bool(lobby.echo.lost)

            assert await until(send_and_look)
            lobby.echo.answer = lambda message: message if message[0] == b"other" else None

            def is_served() -> bool:
                other.send(b"y")
                return bool(other.poll(0))

            assert await until(is_served)

    run(test)


def test_a_message_over_the_limit_ends_the_connection_and_nothing_of_it_is_seen() -> None:
    async def test() -> None:
        async with open_lobby(limits=LimitsConfig(packet_bytes=1000)) as lobby:
            rude = lobby.client(ROUTING_ID=b"rude")
            rude.send(bytes(1001))
            polite = lobby.client(ROUTING_ID=b"polite")
            polite.send(bytes(1000))
            assert await lobby.hears(polite) == [bytes(1000)]
            assert [message[0] for message in lobby.echo.seen] == [b"polite"]

    run(test)


def test_a_defect_in_a_session_ends_nothing_but_the_handling_of_one_message() -> None:
    async def test() -> None:
        async with open_lobby() as lobby:
            client = lobby.client()
            client.send(b"raise")
            client.send(b"go on")
            assert await lobby.hears(client) == [b"go on"]
            assert lobby.telemetry.counts["internal_error"] == 1

    run(test)


def test_one_who_comes_back_takes_over_the_name_of_its_dead_connection() -> None:
    async def test() -> None:
        async with open_lobby() as lobby:
            first = lobby.client(ROUTING_ID=b"worker")
            first.send(b"1")
            assert await lobby.hears(first) == [b"1"]
            second = lobby.client(ROUTING_ID=b"worker")
            second.send(b"2")
            assert await lobby.hears(second) == [b"2"]

    run(test)


def test_a_complaint_names_the_address_of_the_peer_that_it_is_about() -> None:
    async def test() -> None:
        async with open_lobby() as lobby:
            hosts: list[str] = []

            def complain(message: Message) -> None:
                hosts.append(lobby.door.host)

            lobby.echo.answer = complain
            lobby.client().send(b"x")
            assert await until(lambda: hosts)
            assert hosts == ["127.0.0.1"]
            assert lobby.door.host == ""  # when nobody is being spoken to

    run(test)


def test_while_the_store_fails_promises_do_not_pile_up_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchgear.net.zeromq.PROMISED_BYTES", 1000)

    async def test() -> None:
        async with open_lobby() as lobby:
            lobby.hub.keeps = True
            lobby.hub.storage_error = StorageError("disk full")
            lobby.echo.answer = lambda message: lobby.echo.promise(message)
            client = lobby.client(ROUTING_ID=b"c")
            client.send(bytes(2000))
            assert await until(lambda: lobby.echo.promises.out)
            client.send(b"waits")
            assert not await until(lambda: len(lobby.echo.seen) > 1, within_seconds=0.1)
            lobby.hub.storage_error = None
            lobby.echo.answer = lambda message: message
            lobby.door.look_after()
            while await lobby.hears(client) != [b"waits"]:
                pass  # what was promised comes first

    run(test)


def test_a_message_of_absurdly_many_frames_is_counted_and_dropped_and_the_next_is_whole() -> None:
    async def test() -> None:
        async with open_lobby() as lobby:
            client = lobby.client(ROUTING_ID=b"c")
            client.send_multipart([b"x"] * MOST_FRAMES)
            client.send_multipart([b"x"] * (MOST_FRAMES - 1))
            assert await lobby.hears(client) == [b"x"] * (MOST_FRAMES - 1)
            assert len(lobby.echo.seen) == 1
            assert lobby.telemetry.counts["bad_input"] == 1

    run(test)


def test_what_a_session_says_when_its_listener_closes_is_still_sent() -> None:
    async def test() -> None:
        async with open_lobby() as lobby:
            client = lobby.client(ROUTING_ID=b"c")
            client.send(b"hello")
            assert await lobby.hears(client) == [b"hello"]
            lobby.echo.closed = lambda: lobby.echo.send([b"c", b"goodbye"])  # type: ignore[method-assign]
            lobby.door.close()
            assert await lobby.hears(client) == [b"goodbye"]

    run(test)


def test_a_door_that_waits_for_the_store_sleeps_although_messages_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchgear.net.zeromq.PROMISED_BYTES", 1000)

    async def test() -> None:
        async with open_lobby() as lobby:
            lobby.hub.keeps = True
            lobby.hub.storage_error = StorageError("disk full")
            lobby.echo.answer = lambda message: lobby.echo.promise(message)
            client = lobby.client(ROUTING_ID=b"c")
            client.send(bytes(2000))
            assert await until(lambda: lobby.echo.promises.out)
            calls = 0
            loop = asyncio.get_running_loop()
            call_soon = loop.call_soon

            def count(action: Callable[..., object], *args: Any, **kwargs: Any) -> asyncio.Handle:
                nonlocal calls
                calls += getattr(action, "__name__", "") == "_read"
                return call_soon(action, *args, **kwargs)

            monkeypatch.setattr(loop, "call_soon", count)
            for _ in range(100):
                client.send(b"more")
            assert not await until(lambda: calls > 10, within_seconds=0.2)

    run(test)


def test_a_defect_in_one_message_does_not_spoil_the_next_nor_close_the_door() -> None:
    async def test() -> None:
        async with open_lobby() as lobby:
            client = lobby.client(ROUTING_ID=b"c")
            lobby.echo.answer = lambda message: [b"c", b"fine", None, b"never"]  # type: ignore[list-item]
            client.send(b"1")
            assert await lobby.hears(client) == [b"fine", b""]
            lobby.echo.answer = lambda message: message
            client.send(b"2")
            assert await lobby.hears(client) == [b"2"]

    run(test)


def test_a_session_that_fails_over_one_lost_message_hears_of_the_others() -> None:
    async def test() -> None:
        async with open_lobby() as lobby:
            heard: list[bytes] = []

            def unreachable(message: Message) -> None:
                heard.append(message[0])
                raise RuntimeError("on purpose")

            def answer_two(message: Message) -> None:
                lobby.echo.send([b"one", b""])
                lobby.echo.send([b"two", b""])

            lobby.echo.unreachable = unreachable  # type: ignore[method-assign]
            lobby.echo.answer = answer_two
            lobby.client().send(b"x")
            assert await until(lambda: len(heard) == 2)

    run(test)


def test_a_port_in_use_is_told_in_words() -> None:
    async def test() -> None:
        async with open_lobby() as lobby:
            taken = ListenUrl.parse(f"dwork://127.0.0.1:{lobby.door.bound_port}")
            door = ZmqDoor(taken, taken.port, lobby.hub, lobby.house, LimitsConfig(), Echo)
            with pytest.raises(ConfigError, match=r"cannot listen on dwork://.*in use"):
                door.open()

    run(test)


# --- CURVE ---


def make_keys(place: Path, name: str) -> tuple[bytes, bytes]:
    place.mkdir(parents=True, exist_ok=True)
    public, secret = zmq.auth.load_certificate(zmq.auth.create_certificates(place, name)[1])
    assert secret is not None
    return public, secret


def curve(server_key: bytes, own: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"CURVE_SERVERKEY": server_key, "CURVE_PUBLICKEY": own[0], "CURVE_SECRETKEY": own[1]}


def test_with_a_key_the_server_speaks_only_to_those_who_know_it(tmp_path: Path) -> None:
    async def test() -> None:
        server_key, _ = make_keys(tmp_path, "server")
        config = ZeromqConfig(curve_key_file=str(tmp_path / "server.key_secret"))
        async with open_lobby(config) as lobby:
            stranger = lobby.client(ROUTING_ID=b"stranger")
            stranger.send(b"hello?")
            wrong = lobby.client(ROUTING_ID=b"wrong", **curve(make_keys(tmp_path, "x")[0], make_keys(tmp_path, "y")))
            wrong.send(b"hello?")
            friend = lobby.client(ROUTING_ID=b"friend", **curve(server_key, make_keys(tmp_path, "any")))
            friend.send(b"hello")
            assert await lobby.hears(friend) == [b"hello"]
            assert lobby.echo.seen == [[b"friend", b"hello"]]
            assert await until(lambda: lobby.telemetry.counts["handshake_failed"])  # and the operator hears of it

    run(test)


def test_with_a_directory_of_keys_only_their_owners_come_in_and_a_reload_reads_it_again(tmp_path: Path) -> None:
    async def test() -> None:
        server_key, _ = make_keys(tmp_path, "server")
        clients = tmp_path / "clients"
        alice, bob = make_keys(clients, "alice"), make_keys(tmp_path, "bob")
        config = ZeromqConfig(curve_key_file=str(tmp_path / "server.key_secret"), curve_clients_dir=str(clients))
        async with open_lobby(config) as lobby:
            outside = lobby.client(ROUTING_ID=b"bob", **curve(server_key, bob))
            outside.send(b"let me in")
            inside = lobby.client(ROUTING_ID=b"alice", **curve(server_key, alice))
            inside.send(b"hello")
            assert await lobby.hears(inside) == [b"hello"]
            assert lobby.echo.seen == [[b"alice", b"hello"]]
            (tmp_path / "bob.key").rename(clients / "bob.key")
            lobby.house.admit_clients()
            again = lobby.client(ROUTING_ID=b"bob", **curve(server_key, bob))
            again.send(b"and now")
            assert await lobby.hears(again) == [b"and now"]

    run(test)


def test_a_key_file_that_cannot_be_read_is_an_error_and_those_admitted_before_stay(tmp_path: Path) -> None:
    async def test() -> None:
        server_key, _ = make_keys(tmp_path, "server")
        clients = tmp_path / "clients"
        alice = make_keys(clients, "alice")
        config = ZeromqConfig(curve_key_file=str(tmp_path / "server.key_secret"), curve_clients_dir=str(clients))
        async with open_lobby(config) as lobby:
            (clients / "half.key").write_text("half writ")
            with pytest.raises(ConfigError, match="curve_clients_dir"):
                lobby.house.admit_clients()
            client = lobby.client(**curve(server_key, alice))
            client.send(b"still here")
            assert await lobby.hears(client) == [b"still here"]

    run(test)


def test_keys_that_cannot_be_used_are_explained(tmp_path: Path) -> None:
    make_keys(tmp_path, "server")
    secret = str(tmp_path / "server.key_secret")
    (tmp_path / "odd.key_secret").write_text("no key")
    for config, words in (
        (ZeromqConfig(curve_key_file=str(tmp_path / "none")), "there is no file"),
        (ZeromqConfig(curve_key_file=str(tmp_path / "odd.key_secret")), "cannot read a key"),
        (ZeromqConfig(curve_key_file=str(tmp_path / "server.key")), "has no secret key"),
        (ZeromqConfig(curve_key_file=secret, curve_clients_dir=str(tmp_path / "nowhere")), "is not a directory"),
    ):
        with pytest.raises(ConfigError, match=words):
            ZmqHouse(config)
