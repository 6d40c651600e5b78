"""The handshake of links, and the seals of what follows: what somebody without the secret can do, which is nothing."""

from __future__ import annotations

import hmac
import struct
from hashlib import blake2b

import msgspec
import pytest

from switchgear.net.owners.link_handshake import (
    LONGEST_FRAME,
    RECORD_BYTES,
    Accepting,
    HandshakeError,
    Opening,
    Sealing,
    first_frame,
    framed,
)
from switchgear.net.owners.messages import Give, Message, ToOwner, Warn, encoded, messages_in

SECRET = b"the secret of the cluster"
OWNER, NODE, OTHER = 7, 8, 9
CERTIFICATE = b"c" * 32

decode = msgspec.msgpack.Decoder(ToOwner).decode


def frame_of(data: bytes) -> bytes:
    frame = first_frame(bytearray(data))
    assert frame is not None
    return frame


def opening(secret: bytes = SECRET, to: int = OWNER, node: int = NODE) -> Opening:
    return Opening(secret, node, "bob", to)


def done(certificate: bytes = CERTIFICATE) -> tuple[Sealing, Sealing]:
    """The two sides of a link."""
    opener, accepter = opening(), Accepting(SECRET, OWNER)
    challenge = accepter.receive(frame_of(opener.begin()), certificate)
    assert accepter.receive(frame_of(opener.receive(frame_of(challenge), certificate)), certificate) == b""
    assert opener.sealing is not None
    assert accepter.sealing is not None
    return opener.sealing, accepter.sealing


def joined(pieces: list[bytes]) -> bytes:
    return b"".join(pieces)


# --- the handshake ---


def test_both_nodes_prove_that_they_know_the_secret() -> None:
    opener, accepter = done()
    assert list(accepter.feed(joined(opener.seal([Give(1, 2)])), decode)) == [Give(1, 2)]
    assert list(opener.feed(joined(accepter.seal([Give(3, 4)])), decode)) == [Give(3, 4)]


def test_the_proofs_are_what_the_page_about_the_protocol_says() -> None:
    """Computed again, with nothing of ours but msgpack."""
    opener, accepter = opening(), Accepting(SECRET, OWNER)
    hello = frame_of(opener.begin())
    said = msgspec.msgpack.decode(hello)
    assert said[:5] == ["switchgear link", 1, NODE, "bob", OWNER]
    nonce, proof = msgspec.msgpack.decode(frame_of(accepter.receive(hello, CERTIFICATE)))
    transcript = msgspec.msgpack.encode([said[1:], nonce, CERTIFICATE])

    def derived(purpose: bytes) -> bytes:
        return hmac.digest(SECRET, struct.pack(">I", len(purpose)) + purpose + transcript, "sha256")

    assert proof == derived(b"accepts")
    (answer,) = msgspec.msgpack.decode(frame_of(opener.receive(frame_of(framed([nonce, proof])), CERTIFICATE)))
    assert answer == derived(b"opens")
    assert opener.sealing is not None
    body = encoded(Give(1, 2))
    seal = blake2b(struct.pack(">Q", 0) + body, key=derived(b"from opener"), digest_size=16).digest()
    assert joined(opener.sealing.seal([Give(1, 2)])) == struct.pack(">I", len(body)) + seal + body


def test_a_node_that_accepts_without_the_secret_is_refused() -> None:
    opener, stranger = opening(), Accepting(b"another secret", OWNER)
    challenge = stranger.receive(frame_of(opener.begin()), b"")
    with pytest.raises(HandshakeError, match="does not know the secret"):
        opener.receive(frame_of(challenge), b"")
    assert opener.sealing is None


def test_a_node_that_opens_without_the_secret_is_refused() -> None:
    stranger, accepter = opening(b"another secret"), Accepting(SECRET, OWNER)
    accepter.receive(frame_of(stranger.begin()), b"")
    for proof in (b"", b"\0" * 32):
        with pytest.raises(HandshakeError, match="does not know the secret"):
            accepter.receive(frame_of(framed([proof])), b"")
    assert accepter.sealing is None


def test_a_recorded_handshake_is_of_no_use() -> None:
    opener, accepter = opening(), Accepting(SECRET, OWNER)
    hello = frame_of(opener.begin())
    challenge = frame_of(accepter.receive(hello, b""))
    proof = frame_of(opener.receive(challenge, b""))
    accepter.receive(proof, b"")
    again = Accepting(SECRET, OWNER)
    again.receive(hello, b"")
    with pytest.raises(HandshakeError):
        again.receive(proof, b"")
    with pytest.raises(HandshakeError):
        opening().receive(challenge, b"")  # of another connection


def test_a_proof_is_not_reflected() -> None:
    """The proof that a node gives cannot be given back to it, in either direction."""
    opener, accepter = opening(), Accepting(SECRET, OWNER)
    challenge = msgspec.msgpack.decode(frame_of(accepter.receive(frame_of(opener.begin()), b"")))
    with pytest.raises(HandshakeError):
        accepter.receive(frame_of(framed([challenge[1]])), b"")
    # A stranger lets the owner itself prove what it is asked, as if the owner had opened the link.
    asked = opening(node=OTHER)
    helper = Accepting(SECRET, OTHER)
    hello = frame_of(opening(to=OTHER, node=OWNER).begin())
    answer = frame_of(helper.receive(hello, b""))
    with pytest.raises(HandshakeError):
        asked.receive(answer, b"")


def test_a_handshake_is_for_one_node_only() -> None:
    with pytest.raises(HandshakeError, match="another node"):
        Accepting(SECRET, OTHER).receive(frame_of(opening().begin()), b"")


def test_whoever_is_between_the_nodes_has_another_certificate() -> None:
    opener, accepter = opening(), Accepting(SECRET, OWNER)
    challenge = accepter.receive(frame_of(opener.begin()), CERTIFICATE)
    with pytest.raises(HandshakeError):
        opener.receive(frame_of(challenge), b"d" * 32)
    with pytest.raises(HandshakeError):
        opener.receive(frame_of(challenge), b"")  # nor is the encryption taken away


def test_a_changed_name_is_noticed() -> None:
    opener, accepter = opening(), Accepting(SECRET, OWNER)
    hello = frame_of(opener.begin()).replace(b"bob", b"eve")
    challenge = accepter.receive(hello, b"")
    with pytest.raises(HandshakeError):
        opener.receive(frame_of(challenge), b"")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc0",
        b"\x91" * 900,
        b"GET / HTTP/1.1\r\n",
        msgspec.msgpack.encode(["switchgear link", 2, 8, "b", 7, b""]),
    ],
)
def test_anything_else_is_refused(frame: bytes) -> None:
    with pytest.raises(HandshakeError):
        Accepting(SECRET, OWNER).receive(frame, b"")
    with pytest.raises(HandshakeError):
        opening().receive(frame, b"")


def test_a_stranger_can_make_a_node_hold_little() -> None:
    assert first_frame(bytearray(struct.pack(">I", LONGEST_FRAME))) is None
    for first in (struct.pack(">I", LONGEST_FRAME + 1), b"\x16\x03\x01\x02", b"GET "):
        with pytest.raises(HandshakeError):
            first_frame(bytearray(first))


# --- what follows ---


def test_records_come_in_pieces_of_any_size() -> None:
    opener, accepter = done()
    messages: list[Message] = [Give(number, 2) for number in range(20)]
    data = joined(opener.seal(messages[:10])) + joined(opener.seal(messages[10:]))
    received = [message for at in range(0, len(data), 7) for message in accepter.feed(data[at : at + 7], decode)]
    assert received == messages


def test_a_long_list_of_messages_is_several_records() -> None:
    opener, accepter = done()
    messages: list[Message] = [Warn(number, b"x" * (RECORD_BYTES // 2)) for number in range(5)]
    pieces = opener.seal(messages)
    assert list(accepter.feed(joined(pieces), decode)) == messages
    assert len(pieces) == 5 * 3  # each with its length and its seal


def test_a_changed_record_is_refused() -> None:
    opener, _ = done()
    data = joined(opener.seal([Warn(1, b"text")]))
    for at in range(4, len(data)):
        opener, accepter = done()
        data = joined(opener.seal([Warn(1, b"text")]))
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(ValueError, match="not sealed"):
            list(accepter.feed(changed, decode))


def test_a_record_is_accepted_once_and_in_its_place() -> None:
    opener, accepter = done()
    first, second = joined(opener.seal([Give(1, 1)])), joined(opener.seal([Give(2, 1)]))
    assert list(accepter.feed(first, decode)) == [Give(1, 1)]
    with pytest.raises(ValueError, match="not sealed"):
        list(accepter.feed(first, decode))
    opener, accepter = done()
    first, second = joined(opener.seal([Give(1, 1)])), joined(opener.seal([Give(2, 1)]))
    with pytest.raises(ValueError, match="not sealed"):
        list(accepter.feed(second, decode))


def test_a_record_is_not_reflected_nor_of_use_in_another_link() -> None:
    opener, _ = done()
    record = joined(opener.seal([Give(1, 1)]))
    with pytest.raises(ValueError, match="not sealed"):
        list(opener.feed(record, decode))
    _, other = done()
    with pytest.raises(ValueError, match="not sealed"):
        list(other.feed(record, decode))


def test_a_record_that_no_node_sends_is_refused() -> None:
    _, accepter = done()
    with pytest.raises(ValueError, match="a record of"):
        list(accepter.feed(b"\xff" * 20, decode))
    for record in (
        b"\0\0",
        struct.pack(">I", 5) + b"x",
        struct.pack(">I", 1) + b"\xc1",
        struct.pack(">I", 900) + b"\x91" * 900,
    ):
        with pytest.raises(ValueError):
            list(messages_in(record, decode))
