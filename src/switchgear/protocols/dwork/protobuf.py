"""The wire format of protocol buffers: numbers, tags, fields to be skipped, and the errors of malformed ones."""

from __future__ import annotations

from typing import Final

from switchgear.errors import PeerError

__all__ = [
    "FIXED32",
    "FIXED64",
    "LARGEST_TAG",
    "LARGEST_UNSIGNED",
    "LENGTH",
    "VARINT",
    "cut_short",
    "int32",
    "int64",
    "malformed",
    "read_tag",
    "read_varint",
    "refuse_unknown",
    "skip",
    "varint",
]

# Wire types.
VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5

MOST_VARINT_BYTES: Final = 10
LARGEST_TAG: Final = 2**32 - 1
LARGEST_UNSIGNED: Final = 2**64 - 1


def malformed(text: str) -> PeerError:
    return PeerError(text, code="MALFORMED")


def cut_short() -> PeerError:
    return malformed("the message ends in the middle of a field")


def refuse_unknown(tag: int, strict: bool, where: str) -> None:
    if not 1 << 3 <= tag <= LARGEST_TAG:
        raise malformed(f"there is no field {tag >> 3}")
    if strict:
        raise malformed(f"{where} has a field {tag >> 3} of wire type {tag & 7}, which does not belong there")


def skip(data: bytes, at: int, tag: int, strict: bool, where: str) -> int:
    """Skip an unknown field, after its tag; returns the position of the next one."""
    refuse_unknown(tag, strict, where)
    wire_type = tag & 7
    if wire_type == VARINT:
        return read_varint(data, at)[1]
    if wire_type == LENGTH:
        size, at = read_varint(data, at)
    elif wire_type == FIXED64:
        size = 8
    elif wire_type == FIXED32:
        size = 4
    else:
        raise malformed(f"{where} has a field of wire type {wire_type}")
    if at + size > len(data):
        raise cut_short()
    return at + size


def read_tag(data: bytes, at: int) -> tuple[int, int]:
    """The number and wire type of a field, and the position of its value."""
    tag, after = read_varint(data, at)
    if data[after - 1] == 0 and after > at + 1:  # non-canonical: each tag shall have one form
        raise malformed("a field whose number is written longer than it need be")
    return tag, after


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of up to 64 bits, and the position behind it; raises IndexError at the end of the data."""
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    number = byte & 127
    for place in range(1, MOST_VARINT_BYTES):
        byte = data[at + place]
        number |= (byte & 127) << 7 * place
        if byte < 128:
            if number > LARGEST_UNSIGNED:
                break
            return number, at + place + 1
    raise malformed("a number of more than 64 bits")


def int32(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >= 1 << 31 else number


def int64(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def varint(number: int) -> bytes:
    """Encode a number; a negative one takes ten bytes."""
    if 0 <= number < 128:
        return SHORT[number]
    number &= LARGEST_UNSIGNED
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


SHORT: Final = [bytes([number]) for number in range(128)]
