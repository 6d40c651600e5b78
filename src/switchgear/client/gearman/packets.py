"""Reading and writing packets, for both cores: names, fields, numbers, options, and the limits of what is read."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from switchgear.errors import PeerError
from switchgear.numbers import whole_number
from switchgear.protocols.gearman.codec import RESPONSE, GearmanDecoder, request
from switchgear.protocols.gearman.messages import Packet

__all__ = [
    "LARGEST_PACKET_BYTES",
    "PACKET_BYTES_OPTION",
    "SWITCHGEAR_OPTION",
    "TRACES_OPTION",
    "control_packet",
    "name_bytes",
    "name_text",
    "response_decoder",
    "split_fields",
    "validated_name",
    "wire_number",
]

# A client trusts its server with the size of answers; the decoder reserves nothing in advance anyway.
LARGEST_PACKET_BYTES: Final = 2**32 - 1
LONGEST_LINE_BYTES: Final = 1024 * 1024  # `workers` has one line per connection with all its functions

SWITCHGEAR_OPTION: Final = b"switchgear"  # OPTION_REQ: only a server of ours agrees to it
TRACES_OPTION: Final = b"traces"  # OPTION_REQ: a server of ours pushes the traces of jobs with them
PACKET_BYTES_OPTION: Final = b"packet_bytes"  # OPTION_REQ: a server of ours tells the largest packet that it takes


def response_decoder() -> GearmanDecoder:
    """A decoder for what a server sends: packets, and lines of the text protocol."""
    return GearmanDecoder(RESPONSE, LARGEST_PACKET_BYTES, LONGEST_LINE_BYTES)


def name_bytes(text: str) -> bytes:
    """A name, handle or reason as it is sent; the inverse of `name_text`."""
    return text.encode(errors="surrogateescape")


def name_text(data: bytes) -> str:
    """A name or handle as text; bytes that are not UTF-8 come back unchanged through `name_bytes`."""
    return data.decode(errors="surrogateescape")


def validated_name(value: str | bytes, what: str) -> bytes:
    """A name of the caller as an argument of a packet; raises ValueError, which calls it `what`."""
    encoded = name_bytes(value) if isinstance(value, str) else value
    if b"\0" in encoded:
        raise ValueError(f"a {what} cannot contain a NUL byte")
    return encoded


def split_fields(body: bytes, count: int) -> list[bytes]:
    """The `count` fields of a packet; raises PeerError if there are fewer."""
    fields = body.split(b"\0", count - 1)
    if len(fields) != count:
        raise PeerError(f"a packet of {len(fields)} fields where there should be {count}")
    return fields


def wire_number(text: bytes) -> int:
    """A number in a field; raises PeerError."""
    if text == b"0":
        return 0
    number = whole_number(text)
    if number is None:
        raise PeerError(f"{text[:100]!r} where there should be a number")
    return number


def control_packet(verb: str, arguments: dict[str, Any]) -> bytes:
    """A CONTROL packet; arguments of None are left out."""
    given = {name: value for name, value in arguments.items() if value is not None}
    return request(Packet.CONTROL, validated_name(verb, "verb"), msgspec.json.encode(given))
