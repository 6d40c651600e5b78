"""The address of a peer whose connection a standby node forwards: a header of the PROXY protocol, version 2.

Before anything else the standby sends the header, which tells the owner of the jobs who the peer is. Anybody could send
such a header, so it has a code that only nodes can compute: an HMAC over the addresses and the number of the owner's
process, with a secret that is in the database. It is sent only to an owner that says that it reads it.

The owner does not wait for a header, since some protocols begin with bytes of the server: a connection begins with the
address of the standby, and gets the address of the peer with the first bytes that arrive.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Final, NamedTuple, cast

if TYPE_CHECKING:
    from switchgear.net.connections.tcp_connection import Connection

__all__ = ["SIGNATURE", "ForwardedConnection", "HeaderError", "PeerHeader", "forwarding_header", "read_header"]

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
PREFIX: Final = struct.Struct("!12sBBH")  # signature, version and command, family, length of the rest
PROXY: Final = 0x21  # version 2, and a connection on behalf of somebody else
OVER_TCP: Final = {4: 0x11, 6: 0x21}
ADDRESS_BYTES: Final = {0x11: 4, 0x21: 16}
PORTS: Final = struct.Struct("!HH")
TYPE_AND_LENGTH: Final = struct.Struct("!BH")
CODE_TYPE: Final = 0xE0  # the first of those that the protocol leaves to its users
CODE_BYTES: Final = 32
# No header of ours is as long.
MOST_HEADER_BYTES: Final = 256


class HeaderError(ValueError):
    """The header is not valid, or not of another node."""


class PeerHeader(NamedTuple):
    """The address in a parsed header, and the length of the header in bytes."""

    host: str
    port: int
    size: int


def forwarding_header(host: str, port: int, secret: bytes, owner: int) -> bytes:
    """The header for a peer at this address; empty if it has none."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return b""
    family = OVER_TCP[address.version]
    unspecified = bytes(len(address.packed))  # the address that it connected to is of no interest
    told = address.packed + unspecified + PORTS.pack(port, 0)
    size = len(told) + TYPE_AND_LENGTH.size + CODE_BYTES
    start = PREFIX.pack(SIGNATURE, PROXY, family, size) + told + TYPE_AND_LENGTH.pack(CODE_TYPE, CODE_BYTES)
    return start + _code(start, secret, owner)


def read_header(data: bytes, secret: bytes, owner: int) -> PeerHeader | None:
    """The header that the data begins with; None if more is needed. Raises HeaderError."""
    if len(data) < PREFIX.size:
        return None
    _, command, family, size = PREFIX.unpack_from(data)
    whole = PREFIX.size + size
    if command != PROXY or family not in ADDRESS_BYTES or whole > MOST_HEADER_BYTES:
        raise HeaderError("a header of the PROXY protocol that no node sends")
    if len(data) < whole:
        return None
    length = ADDRESS_BYTES[family]
    end = PREFIX.size + 2 * length + PORTS.size + TYPE_AND_LENGTH.size
    if whole != end + CODE_BYTES:
        raise HeaderError("a header of the PROXY protocol without the code of a node")
    if not hmac.compare_digest(data[end:whole], _code(data[:end], secret, owner)):
        raise HeaderError("a header of the PROXY protocol with a wrong code")
    packed = data[PREFIX.size : PREFIX.size + length]
    host = str(IPv4Address(packed) if length == len(IPv4Address(0).packed) else IPv6Address(packed))
    return PeerHeader(host, PORTS.unpack_from(data, PREFIX.size + 2 * length)[0], whole)


def _code(text: bytes, secret: bytes, owner: int) -> bytes:
    return hmac.digest(secret, owner.to_bytes(8, "big") + text, hashlib.sha256)


class ForwardedConnection(asyncio.Protocol):
    """Reads the header of a connection, if there is one, and leaves the rest to the connection."""

    def __init__(self, secret: bytes, owner: int, connection: Connection) -> None:
        self._secret = secret
        self._owner = owner
        self._connection = connection
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        early = self._early = self._early + data
        start = early[: len(SIGNATURE)]
        if not SIGNATURE.startswith(start):
            self._end_header(early)
        elif len(start) == len(SIGNATURE):
            try:
                header = read_header(early, self._secret, self._owner)
            except HeaderError as error:
                self._connection.refuse(str(error))
                return
            if header is not None and self._connection.forwarded_for(header.host, header.port):
                self._end_header(early[header.size :])

    def _end_header(self, rest: bytes) -> None:
        """The event loop calls the connection from now on."""
        self._early = b""
        self._transport.set_protocol(cast(asyncio.Protocol, self._connection))
        if rest:
            self._connection.data_received(rest)

    def eof_received(self) -> bool:
        if self._early:
            self._end_header(self._early)
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)
