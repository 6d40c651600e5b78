"""Keys and sockets of those who speak over ZeroMQ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.auth

from switchgear.client import AsyncDworkClient, CurveKeys, DworkClient, PingPongClient, PingPongWorker, WmpWorker
from switchgear.client.zeromq_sockets import SocketSettings, check_identity, dealer
from switchgear.errors import ConfigError

# Written down, not drawn: they are in the names of tests, which have to be the same in every process.
SERVER = b"@QW50P>*vJIeEo[+XD5vw.=GnEeVUP@(Gl%F)GHj"
OTHER = b"==+kp*<8m[J/lZz+6]7^Fa=WJZ27bY@mrD(Te}Rb"
PAIR = (b"^.0.NX/Y@+XXSK/*eS9RymNHjuu<0*qS6-3tDnDp", b">0!Mc.fH)yIl9Y<91+uQxJv4N}GIOqTKtl[r0A<e")


# --- keys ---


def test_keys_are_bytes_or_text() -> None:
    keys = CurveKeys.of(SERVER, PAIR)
    assert keys == CurveKeys((SERVER,), *PAIR)
    assert keys == CurveKeys.of(SERVER.decode(), (PAIR[0].decode(), PAIR[1].decode()))
    assert keys == CurveKeys.of([SERVER.decode()], PAIR)


def test_without_keys_of_our_own_new_ones_are_made() -> None:
    one, other = CurveKeys.of(SERVER), CurveKeys.of(SERVER)
    assert one.secret_key != other.secret_key
    assert zmq.curve_public(one.secret_key) == one.public_key


def test_keys_are_read_from_files(tmp_path: Path) -> None:
    for name in ("one", "two", "me"):
        zmq.auth.create_certificates(tmp_path, name)
    files = [tmp_path / "one.key", tmp_path / "two.key"]
    one, two = (zmq.auth.load_certificate(file)[0] for file in files)
    mine = zmq.auth.load_certificate(tmp_path / "me.key_secret")
    keys = CurveKeys.load(files, tmp_path / "me.key_secret")
    assert ((one, two), *mine) == (keys.server_keys, keys.public_key, keys.secret_key)
    assert CurveKeys.load(str(files[0])).server_keys == (one,)


def test_one_key_is_for_all_servers_and_several_are_for_one_each() -> None:
    assert [CurveKeys.of([SERVER, OTHER]).server_key(number) for number in (0, 1)] == [SERVER, OTHER]
    assert [CurveKeys.of(SERVER).server_key(number) for number in (0, 1)] == [SERVER, SERVER]


def test_a_secret_is_not_shown() -> None:
    assert PAIR[1].decode() not in repr(CurveKeys.of(SERVER, PAIR))


@pytest.mark.parametrize(
    ("server_keys", "pair", "words"),
    [
        ("short", None, "40 characters, not 5"),
        ("", None, "40 characters, not 0"),
        ([], PAIR, "server's public key is missing"),
        ([SERVER, b""], None, "40 characters, not 0"),
        (SERVER, ("short", PAIR[1]), "40 characters, not 5"),
        (SERVER, (PAIR[0], b"\0" * 40), "character that no key has"),
        (SERVER, ("#" * 40, PAIR[1]), "number too large"),
    ],
)
def test_what_is_no_key(server_keys: Any, pair: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CurveKeys.of(server_keys, pair)


def test_files_without_keys(tmp_path: Path) -> None:
    zmq.auth.create_certificates(tmp_path, "one")
    public = tmp_path / "one.key"
    (tmp_path / "nonsense").write_text("nonsense")
    for file in ("nowhere", "nonsense", ""):
        with pytest.raises(ConfigError, match=f"cannot read a key from {tmp_path / file}"):
            CurveKeys.load([public, tmp_path / file])
    with pytest.raises(ConfigError, match=r"one\.key has no secret key; name the file that ends in \.key_secret"):
        CurveKeys.load(public, public)
    with pytest.raises(ConfigError, match="server's public key is missing"):
        CurveKeys.load((), tmp_path / "one.key_secret")


@pytest.mark.parametrize(
    "make",
    [
        lambda keys: DworkClient(keys=keys),
        lambda keys: AsyncDworkClient(keys=keys),
        lambda keys: PingPongClient(keys=keys),
        lambda keys: PingPongWorker(bytes.upper, keys=keys),
        lambda keys: WmpWorker(roles={"f": lambda job: job.payload}, keys=keys),
    ],
    ids=["dwork", "dwork with asyncio", "pingpong client", "pingpong worker", "wmp"],
)
def test_one_server_has_one_key(make: Callable[[CurveKeys], object]) -> None:
    with pytest.raises(ConfigError, match="2 public keys for 1"):
        make(CurveKeys.of([SERVER, OTHER]))


# --- sockets ---


def test_a_socket_has_the_limits_that_were_asked_for() -> None:
    settings = SocketSettings(
        message_bytes=1000,
        messages_waiting=7,
        heartbeat_seconds=2,
        reconnect_first_seconds=0.3,
        reconnect_most_seconds=4,
    )
    wanted = {
        zmq.MAXMSGSIZE: 1000,
        zmq.SNDHWM: 7,
        zmq.RCVHWM: 7,
        zmq.HEARTBEAT_IVL: 2000,
        zmq.HEARTBEAT_TIMEOUT: 6000,
        zmq.RECONNECT_IVL: 300,
        zmq.RECONNECT_IVL_MAX: 4000,
        zmq.LINGER: 0,
        zmq.ROUTING_ID: b"me",
        zmq.MECHANISM: zmq.CURVE,
    }
    with zmq.Context() as context, dealer(context, settings, CurveKeys.of(SERVER), identity=b"me") as socket:
        assert {option: socket.get(option) for option in wanted} == wanted


def test_a_socket_without_limits() -> None:
    settings = SocketSettings(message_bytes=0, messages_waiting=0, heartbeat_seconds=0)
    wanted = {zmq.MAXMSGSIZE: -1, zmq.SNDHWM: 0, zmq.RCVHWM: 0, zmq.HEARTBEAT_IVL: 0, zmq.MECHANISM: zmq.NULL}
    with zmq.Context() as context, dealer(context, settings) as socket:
        assert {option: socket.get(option) for option in wanted} == wanted


def test_limits_that_zeromq_does_not_take() -> None:
    with zmq.Context() as context, pytest.raises(ConfigError, match="cannot make such a connection: Invalid argument"):
        dealer(context, SocketSettings(messages_waiting=-2))


@pytest.mark.parametrize("identity", [b"", b"\0abc", b"x" * 256], ids=["empty", "zero", "long"])
def test_identities_that_cannot_be(identity: bytes) -> None:
    with pytest.raises(ValueError, match="1 to 255 bytes"):
        check_identity(identity)


def test_a_server_that_cannot_be_connected_to_leaves_nothing_open() -> None:
    with pytest.raises(ConfigError, match="cannot connect to dwork://-x:6125: Invalid argument"):
        DworkClient("dwork://-x")
