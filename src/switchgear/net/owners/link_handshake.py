"""The beginning of a link, in which both nodes prove that they know the cluster's secret; and `Sealing` of the rest.

The node that connects sends `Hello`, the other one `Challenge`, and then the first one `Proof`. The proofs are
HMAC-SHA-256 of everything that was said: the ids of both nodes, a nonce of each, and the certificate of the accepting
node if the link is encrypted. So a proof is of no use in another connection, in the other direction, or behind a
certificate of somebody else. From the same come the keys of both directions, with which each record that follows is
authenticated together with its number: nobody can change, repeat, leave out or insert one.

Everything here is without I/O.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from struct import Struct as BinaryStruct
from typing import Any, Final

import msgspec

from switchgear.net.owners.messages import Message, encoded, messages_in

__all__ = ["Accepting", "Challenge", "HandshakeError", "Hello", "Opening", "Proof", "Sealing", "first_frame", "framed"]

PROTOCOL_VERSION: Final = 1
NONCE_BYTES: Final = 32
# All that a peer can make a node hold before it has proven that it is one.
LONGEST_FRAME: Final = 1_000

LENGTH: Final = BinaryStruct(">I")
SEAL_BYTES: Final = 16
NUMBER: Final = BinaryStruct(">Q")
# Several messages are sealed together; the record is full when it has so many bytes.
RECORD_BYTES: Final = 1 << 20
# One message may be as long as a listener takes, which is far less.
LONGEST_RECORD: Final = 1 << 30

OPENS, ACCEPTS, FROM_OPENER, FROM_ACCEPTER = b"opens", b"accepts", b"from opener", b"from accepter"


class HandshakeError(ValueError):
    """The peer is not a node of this cluster, or not the one that it should be."""


class Hello(msgspec.Struct, array_like=True, tag="switchgear link"):
    """Who opens the link, and to which node."""

    version: int
    node_id: int
    name: str
    to_node_id: int
    nonce: bytes


class Challenge(msgspec.Struct, array_like=True):
    """The answer, with the proof of the node that accepts the link."""

    nonce: bytes
    proof: bytes


class Proof(msgspec.Struct, array_like=True):
    """The proof of the node that opens the link."""

    proof: bytes


def framed(message: Any) -> bytes:
    """A message of the handshake with its length before it."""
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body


def first_frame(held: bytearray) -> bytes | None:
    """Take the first frame of the handshake from these bytes; `None` if it is not complete. Raises HandshakeError."""
    if len(held) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack_from(held)
    if length > LONGEST_FRAME:
        raise HandshakeError("its first bytes are not those of a link")
    end = LENGTH.size + length
    if len(held) < end:
        return None
    frame = bytes(held[LENGTH.size : end])
    del held[:end]
    return frame


class _Secrets:
    """What both nodes compute from the secret and from what was said."""

    def __init__(self, secret: bytes, hello: Hello, nonce: bytes, certificate: bytes) -> None:
        self._secret = secret
        self._said = msgspec.msgpack.encode([msgspec.structs.astuple(hello), nonce, certificate])

    def derive(self, purpose: bytes) -> bytes:
        return hmac.digest(self._secret, LENGTH.pack(len(purpose)) + purpose + self._said, "sha256")

    def verify(self, purpose: bytes, proof: bytes) -> None:
        if not hmac.compare_digest(self.derive(purpose), proof):
            raise HandshakeError("it does not know the secret of the cluster")


class Opening:
    """The handshake of the node that opens a link."""

    def __init__(self, secret: bytes, node_id: int, name: str, to_node_id: int) -> None:
        self.to_node_id = to_node_id
        self._secret = secret
        self._hello = Hello(PROTOCOL_VERSION, node_id, name, to_node_id, secrets.token_bytes(NONCE_BYTES))
        self.sealing: Sealing | None = None  # of the records that follow, when the handshake is complete

    def begin(self) -> bytes:
        """The first bytes of the link."""
        return framed(self._hello)

    def receive(self, frame: bytes, certificate: bytes) -> bytes:
        """Handle the answer, and return the proof; raises HandshakeError.

        `certificate` is the digest of the other node's certificate; empty if the link is not encrypted.
        """
        challenge = decoded(frame, Challenge)
        found = _Secrets(self._secret, self._hello, challenge.nonce, certificate)
        found.verify(ACCEPTS, challenge.proof)
        self.sealing = Sealing(found.derive(FROM_OPENER), found.derive(FROM_ACCEPTER))
        return framed(Proof(found.derive(OPENS)))


class Accepting:
    """The handshake of the node that accepts a link."""

    def __init__(self, secret: bytes, node_id: int) -> None:
        self._secret = secret
        self._node_id = node_id
        self._found: _Secrets | None = None
        self.hello: Hello
        self.sealing: Sealing | None = None  # of the records that follow, when the handshake is complete

    def receive(self, frame: bytes, certificate: bytes) -> bytes:
        """Handle what the other node says, and return the answer; raises HandshakeError.

        `certificate` is the digest of this node's certificate; empty if the link is not encrypted.
        """
        if self._found is None:
            self.hello = hello = decoded(frame, Hello)
            if hello.version != PROTOCOL_VERSION:
                raise HandshakeError(f"it speaks version {hello.version} of the protocol of links")
            if hello.to_node_id != self._node_id:
                raise HandshakeError("it wants to connect to another node")
            nonce = secrets.token_bytes(NONCE_BYTES)
            self._found = _Secrets(self._secret, hello, nonce, certificate)
            return framed(Challenge(nonce, self._found.derive(ACCEPTS)))
        self._found.verify(OPENS, decoded(frame, Proof).proof)
        self.sealing = Sealing(self._found.derive(FROM_ACCEPTER), self._found.derive(FROM_OPENER))
        return b""


def decoded(frame: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.msgpack.decode(frame, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HandshakeError("its first bytes are not those of a link") from error


class Sealing:
    """Authenticates the records of a link in both directions."""

    def __init__(self, sending_key: bytes, receiving_key: bytes) -> None:
        self._sending = blake2b(key=sending_key, digest_size=SEAL_BYTES)
        self._receiving = blake2b(key=receiving_key, digest_size=SEAL_BYTES)
        self._sent = 0
        self._received = 0
        self._held = bytearray()

    def seal(self, messages: Sequence[Message]) -> list[bytes]:
        """The messages as pieces of records, each after its length and its seal."""
        pieces: list[bytes] = []
        record: list[bytes] = []
        size = 0
        for message in messages:
            each = encoded(message)
            if record and size + len(each) > RECORD_BYTES:
                self._add_record(pieces, record, size)
                record, size = [], 0
            record.append(each)
            size += len(each)
        if record:
            self._add_record(pieces, record, size)
        return pieces

    def _add_record(self, pieces: list[bytes], record: list[bytes], size: int) -> None:
        seal = self._sending.copy()
        seal.update(NUMBER.pack(self._sent))
        self._sent += 1
        for each in record:
            seal.update(each)
        pieces += (LENGTH.pack(size), seal.digest(), *record)

    def feed(self, data: bytes, decode: Callable[[Any], Any]) -> Iterator[Any]:
        """The messages of the records that are complete now; raises ValueError for bytes that are none, or that the
        other node has not sealed."""
        held = self._held
        held += data
        at = 0
        try:
            while len(held) - at >= LENGTH.size + SEAL_BYTES:
                (size,) = LENGTH.unpack_from(held, at)
                if size > LONGEST_RECORD:
                    raise ValueError(f"a record of {size} bytes")
                start = at + LENGTH.size + SEAL_BYTES
                if start + size > len(held):
                    break
                given = bytes(held[at + LENGTH.size : start])
                body = bytes(held[start : start + size])
                at = start + size
                seal = self._receiving.copy()
                seal.update(NUMBER.pack(self._received))
                seal.update(body)
                self._received += 1
                if not hmac.compare_digest(seal.digest(), given):
                    raise ValueError("a record that the other node has not sealed")
                yield from messages_in(body, decode)
        finally:
            del held[:at]
