"""ZeroMQ listeners that encrypt, with the sockets of ZeroMQ's own library as peers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.auth
from zmq.utils.monitor import recv_monitor_message

from switchgear.config import ZeromqConfig
from switchgear.errors import ConfigError
from switchgear.net.connections.curve_keys import CurveServerKeys
from switchgear.protocols.zmtp.curve import CurveServerHandshake
from tests.net.echo_server import echo_server, run, until


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
        async with echo_server(config) as server:
            stranger = server.client(ROUTING_ID=b"stranger")
            stranger.send(b"hello?")
            wrong = server.client(ROUTING_ID=b"wrong", **curve(make_keys(tmp_path, "x")[0], make_keys(tmp_path, "y")))
            wrong.send(b"hello?")
            friend = server.client(ROUTING_ID=b"friend", **curve(server_key, make_keys(tmp_path, "any")))
            friend.send(b"hello")
            assert await server.hears(friend) == [b"hello"]
            assert server.echo.seen == [[b"friend", b"hello"]]
            assert await until(lambda: server.telemetry.counts["handshake_failed"])  # and the operator hears of it

    run(test)


def test_with_a_directory_of_keys_only_their_owners_come_in_and_a_reload_reads_it_again(tmp_path: Path) -> None:
    async def test() -> None:
        server_key, _ = make_keys(tmp_path, "server")
        clients = tmp_path / "clients"
        alice, bob = make_keys(clients, "alice"), make_keys(tmp_path, "bob")
        config = ZeromqConfig(curve_key_file=str(tmp_path / "server.key_secret"), curve_clients_dir=str(clients))
        async with echo_server(config) as server:
            outside = server.client(ROUTING_ID=b"bob", **curve(server_key, bob))
            outside.send(b"let me in")
            inside = server.client(ROUTING_ID=b"alice", **curve(server_key, alice))
            inside.send(b"hello")
            assert await server.hears(inside) == [b"hello"]
            assert server.echo.seen == [[b"alice", b"hello"]]
            (tmp_path / "bob.key").rename(clients / "bob.key")
            assert server.keys is not None
            server.keys.admit_clients()
            again = server.client(ROUTING_ID=b"bob", **curve(server_key, bob))
            again.send(b"and now")
            assert await server.hears(again) == [b"and now"]

    run(test)


def test_a_key_file_that_cannot_be_read_is_an_error_and_those_admitted_before_stay(tmp_path: Path) -> None:
    async def test() -> None:
        server_key, _ = make_keys(tmp_path, "server")
        clients = tmp_path / "clients"
        alice = make_keys(clients, "alice")
        config = ZeromqConfig(curve_key_file=str(tmp_path / "server.key_secret"), curve_clients_dir=str(clients))
        async with echo_server(config) as server:
            (clients / "half.key").write_text("half writ")
            assert server.keys is not None
            with pytest.raises(ConfigError, match="curve_clients_dir"):
                server.keys.admit_clients()
            client = server.client(**curve(server_key, alice))
            client.send(b"still here")
            assert await server.hears(client) == [b"still here"]

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
            CurveServerKeys(config)


def test_every_kind_of_socket_and_message_is_encrypted(tmp_path: Path) -> None:
    async def test() -> None:
        server_key, _ = make_keys(tmp_path, "server")
        config = ZeromqConfig(curve_key_file=str(tmp_path / "server.key_secret"), heartbeat_seconds=0.1)
        keys = curve(server_key, make_keys(tmp_path, "any"))
        async with echo_server(config) as server:
            asking = server.client(zmq.REQ, **keys)
            asking.send(b"request")
            assert await server.hears(asking) == [b"request"]
            living = server.client(ROUTING_ID=b"c", HEARTBEAT_IVL=50, HEARTBEAT_TIMEOUT=2000, **keys)
            message = [b"", b"x" * 254, b"y" * 300, bytes(3_000_000)]
            for _ in range(3):
                living.send_multipart(message)
                assert await server.hears(living) == message
            session = server.router.peers[b"c"]
            assert not await until(lambda: server.router.peers.get(b"c") is not session, within_seconds=0.5)

    run(test)


def test_one_whose_key_is_not_admitted_is_told_so(tmp_path: Path) -> None:
    async def test() -> None:
        server_key, _ = make_keys(tmp_path, "server")
        make_keys(tmp_path / "clients", "alice")
        secret = str(tmp_path / "server.key_secret")
        async with echo_server(
            ZeromqConfig(curve_key_file=secret, curve_clients_dir=str(tmp_path / "clients"))
        ) as server:
            outside = server.client(**curve(server_key, make_keys(tmp_path, "bob")))
            monitor = outside.get_monitor_socket(int(zmq.EVENT_HANDSHAKE_FAILED_AUTH))
            server.sockets.append(monitor)
            assert await until(lambda: bool(monitor.poll(0)))
            assert recv_monitor_message(monitor)["value"] == 400
            outside.disable_monitor()

    run(test)


def test_many_that_connect_at_once_are_let_in_in_turn(tmp_path: Path) -> None:
    """Keys take long to compute, so all handshakes together get a share of each turn."""

    async def test() -> None:
        server_key, _ = make_keys(tmp_path, "server")
        config = ZeromqConfig(curve_key_file=str(tmp_path / "server.key_secret"))
        async with echo_server(config) as server:
            server.hub.fair_queue.turn_seconds = 0  # so that one piece is handled in a turn
            loop = asyncio.get_running_loop()
            turn = 0
            admitted: list[int] = []  # the turns in which somebody was let in

            def next_turn() -> None:
                nonlocal turn
                turn += 1
                loop.call_soon(next_turn)

            def is_admitted(key: bytes) -> bool:
                admitted.append(turn)
                return True

            keys = server.keys
            assert keys is not None
            server.listener.make_handshake = lambda: CurveServerHandshake(keys.secret_key, keys.public_key, is_admitted)
            next_turn()
            peers = [server.client(**curve(server_key, make_keys(tmp_path, f"peer{number}"))) for number in range(12)]
            for peer in peers:
                peer.send(b"hello")
            for peer in peers:
                assert await server.hears(peer) == [b"hello"]
            assert len(admitted) == len(set(admitted)) == 12

    run(test)
