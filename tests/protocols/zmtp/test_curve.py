"""CurveZMQ, step by step against a client that is written from the specification."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.protocols.zmtp.curve import CurveServerHandshake
from switchgear.protocols.zmtp.server_protocol import ZmtpProtocol
from tests.protocols.zmtp.curve_client import CURVE_GREETING, CurveClient, key_pair
from tests.protocols.zmtp.wire import frame, metadata, ready

SERVER = key_pair()
GREETING_BYTES = 64


class Connection:
    """A client and the server that it talks to."""

    def __init__(
        self,
        server_key: bytes = SERVER[0],
        is_admitted: Callable[[bytes], bool] = lambda key: True,
        own: tuple[bytes, bytes] | None = None,
    ) -> None:
        self.client = CurveClient(server_key, own)
        handshake = CurveServerHandshake(SERVER[1], SERVER[0], is_admitted)
        self.server = ZmtpProtocol(1000, b"\0\0\0\0\1", "CURVE", handshake)
        assert len(self.say(CURVE_GREETING)) == GREETING_BYTES

    def say(self, data: bytes) -> bytes:
        """What the server answers; the client must not have said a message."""
        assert self.server.receive(data) == []
        return self.answer()

    def answer(self) -> bytes:
        answer = b"".join(self.server.outgoing)
        self.server.outgoing.clear()
        return answer

    def begin(self) -> None:
        self.client.hear_welcome(self.say(self.client.hello()))

    def open(self) -> None:
        self.begin()
        told = self.client.hear_ready(self.say(self.client.initiate()))
        assert told == metadata(Socket_Type=b"ROUTER", Identity=b"", X_Switchgear=b"extensions")
        assert self.server.is_ready

    @property
    def failure(self) -> str:
        return str(self.server.failure or "")


def test_a_client_that_knows_the_servers_key_comes_in_and_messages_go_both_ways() -> None:
    connection = Connection()
    connection.open()
    said = connection.client.message(b"", 1) + connection.client.message(b"hello" * 100)
    assert connection.server.receive(said) == [[b"me", b"", b"hello" * 100]]
    out: list[bytes] = []
    connection.server.encode([b"me", b"", b"answer" * 100], out)
    assert connection.client.read(b"".join(out)) == [(1, b""), (0, b"answer" * 100)]


def test_slicing_does_not_matter() -> None:
    for slice_bytes in (1, 3, 64, 100):
        connection = Connection()
        connection.open()
        said = connection.client.message(b"a", 1) + connection.client.message(b"b" * 300)
        messages = []
        for start in range(0, len(said), slice_bytes):
            messages += connection.server.receive(said[start : start + slice_bytes])
        assert messages == [[b"me", b"a", b"b" * 300]]


def test_a_ping_is_encrypted_like_a_message() -> None:
    connection = Connection()
    connection.open()
    connection.say(connection.client.message(b"\4PING\0\0context", 2))  # its answer was read by `say`
    connection.server.receive(connection.client.message(b"\4PING\0\0context", 2))
    assert connection.client.read(connection.answer()) == [(2, b"\4PONGcontext")]
    connection.server.ping()
    assert connection.client.read(connection.answer()) == [(2, b"\4PING\0\0")]


def test_a_client_with_another_servers_key_gets_no_answer() -> None:
    connection = Connection(key_pair()[0])
    assert connection.say(connection.client.hello()) == b""
    assert "keys do not fit" in connection.failure


def test_only_admitted_keys_come_in_and_others_are_told_so() -> None:
    alice = key_pair()
    inside = Connection(is_admitted=lambda key: key == alice[0], own=alice)
    inside.open()
    outside = Connection(is_admitted=lambda key: key == alice[0])
    outside.begin()
    assert outside.say(outside.client.initiate()) == frame(b"\5ERROR\x03400", 4)
    assert "not among those that are admitted" in outside.failure


def test_who_claims_a_key_must_have_its_secret_half() -> None:
    alice = key_pair()
    thief = Connection(is_admitted=lambda key: key == alice[0], own=(alice[0], key_pair()[1]))
    thief.begin()
    assert thief.say(thief.client.initiate()) == b""
    assert "keys do not fit" in thief.failure


@pytest.mark.parametrize("wrong", [(key_pair()[0], SERVER[0]), (b"", SERVER[0])])
def test_a_vouch_holds_for_one_connection_only(wrong: tuple[bytes, bytes]) -> None:
    connection = Connection()
    connection.begin()
    connection.client.vouched = wrong
    assert connection.say(connection.client.initiate()) == b""
    assert connection.failure


def test_a_vouch_holds_for_one_server_only() -> None:
    connection = Connection()
    connection.begin()
    connection.client.vouched = (connection.client.public, key_pair()[0])
    connection.say(connection.client.initiate())
    assert "another server" in connection.failure


def test_the_cookie_must_come_back() -> None:
    connection = Connection()
    connection.begin()
    connection.client.cookie = bytes(96)
    connection.say(connection.client.initiate())
    assert "another cookie" in connection.failure


def test_the_cookie_of_another_connection_is_of_no_use() -> None:
    first, second = Connection(), Connection()
    first.begin()
    second.begin()
    second.client.cookie = first.client.cookie
    second.say(second.client.initiate())
    assert "another cookie" in second.failure


def test_initiate_has_a_larger_number_than_hello() -> None:
    connection = Connection()
    connection.begin()
    connection.client.nonce = 0
    connection.say(connection.client.initiate())
    assert "INITIATE was repeated" in connection.failure


def test_a_message_that_is_sent_again_is_refused() -> None:
    connection = Connection()
    connection.open()
    said = connection.client.message(b"once")
    assert connection.server.receive(said) == [[b"me", b"once"]]
    assert connection.server.receive(said) == []
    assert "repeated" in connection.failure


def test_a_message_that_was_changed_on_the_way_is_refused() -> None:
    connection = Connection()
    connection.open()
    said = bytearray(connection.client.message(b"1 euro"))
    said[-1] ^= 1
    assert connection.server.receive(bytes(said)) == []
    assert "cannot be decrypted" in connection.failure


def test_nothing_is_taken_unencrypted() -> None:
    for said in (frame(b"hello"), frame(b"\4PING\0\0", 4), frame(b"\7MESSAGE" + bytes(10))):
        connection = Connection()
        connection.open()
        assert connection.say(said) == b""
        assert "an encrypted MESSAGE was expected" in connection.failure


def test_the_limit_of_a_message_is_that_of_what_is_inside() -> None:
    connection = Connection()
    connection.open()
    assert connection.server.receive(connection.client.message(bytes(1000))) == [[b"me", bytes(1000)]]
    assert connection.server.receive(connection.client.message(bytes(1001))) == []
    assert "more than 1000 bytes" in connection.failure


@pytest.mark.parametrize(
    "said",
    [
        ready(),
        frame(b"\5HELLO\1\0", 4),
        frame(b"\5HELLO\2\0" + bytes(192), 4),
        frame(b"\5HELLO\1\0" + bytes(192), 4),
        frame(b"\5HELLO\1\0" + b"\xff" * 192, 4),
        frame(bytes(200), 4),
    ],
)
def test_what_is_no_hello_ends_the_handshake(said: bytes) -> None:
    connection = Connection()
    assert connection.say(said) == b""
    assert connection.failure


@pytest.mark.parametrize("said", [frame(b"\x08INITIATE", 4), frame(b"\x08INITIATE" + bytes(300), 4), ready()])
def test_what_is_no_initiate_ends_the_handshake(said: bytes) -> None:
    connection = Connection()
    connection.begin()
    assert connection.say(said) == b""
    assert connection.failure


def test_metadata_are_looked_at_as_without_encryption() -> None:
    connection = Connection()
    connection.begin()
    connection.client.metadata = metadata(Socket_Type=b"SUB")
    connection.say(connection.client.initiate())
    assert "its socket type is SUB" in connection.failure
