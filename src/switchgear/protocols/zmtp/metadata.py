"""ZMTP metadata: the properties that peers exchange in the handshake, such as Socket-Type and Identity."""

from __future__ import annotations

from typing import Final

from switchgear.errors import PeerError

__all__ = [
    "EXTENSIONS_PROPERTY",
    "LONGEST_IDENTITY",
    "ROUTER_METADATA",
    "SOCKET_TYPES_2_0",
    "check_identity",
    "check_socket_type",
    "parse_metadata",
]

LONGEST_IDENTITY: Final = 255

# The socket types by their numbers in ZMTP 2.0, and those that a ROUTER socket accepts.
SOCKET_TYPES_2_0: Final = (
    b"PAIR",
    b"PUB",
    b"SUB",
    b"REQ",
    b"REP",
    b"DEALER",
    b"ROUTER",
    b"PULL",
    b"PUSH",
    b"XPUB",
    b"XSUB",
)
_SPOKEN_TO: Final = (b"REQ", b"DEALER", b"ROUTER")


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value


# With this property a peer can tell that this ROUTER socket understands the extensions of the protocol spoken on it.
# libzmq shows it to applications as metadata of every message.
EXTENSIONS_PROPERTY: Final = "X-Switchgear"
ROUTER_METADATA: Final = (
    _property(b"Socket-Type", b"ROUTER")
    + _property(b"Identity", b"")
    + _property(EXTENSIONS_PROPERTY.encode(), b"extensions")
)


def parse_metadata(data: bytes) -> dict[bytes, bytes]:
    """The properties by name, in lower case because the names are compared without case; raises PeerError."""
    found: dict[bytes, bytes] = {}
    position = 0
    end = len(data)
    while position < end:
        name_end = position + 1 + data[position]
        value_start = name_end + 4
        if name_end == position + 1 or value_start > end:
            raise PeerError("malformed metadata", code="MALFORMED", framing_lost=True)
        value_end = value_start + int.from_bytes(data[name_end:value_start], "big")
        if value_end > end:
            raise PeerError("malformed metadata", code="MALFORMED", framing_lost=True)
        found[data[position + 1 : name_end].lower()] = data[value_start:value_end]
        position = value_end
    return found


def check_socket_type(socket_type: bytes) -> None:
    """Raises PeerError for a socket type that a ROUTER socket does not accept."""
    if socket_type not in _SPOKEN_TO:
        shown = socket_type.decode("utf-8", "replace") or "none"
        text = f"its socket type is {shown}, and REQ, DEALER and ROUTER are served here"
        raise PeerError(text, code="BAD_SOCKET_TYPE", framing_lost=True)


def check_identity(identity: bytes) -> None:
    """Raises PeerError for an invalid routing id. Those that begin with a zero byte are chosen by the server."""
    if len(identity) > LONGEST_IDENTITY or identity.startswith(b"\0"):
        text = f"an identity has at most {LONGEST_IDENTITY} bytes and does not begin with a zero byte"
        raise PeerError(text, code="BAD_IDENTITY", framing_lost=True)
