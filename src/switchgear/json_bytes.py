"""Bytes in JSON: text where they are UTF-8, and otherwise an object with the one key `base64`.

Long bytes.  Writing a payload of 60 MiB as JSON takes a quarter of a second, and up to six times as much memory.  So an
answer may have a `LongBytes` in the place of a value: `encoded_around` encodes the rest of the answer, and `pieces_of`
the value, piece by piece.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator
from typing import Any, Final

import msgspec

__all__ = [
    "LONG_BYTES",
    "LongBytes",
    "bytes_of",
    "decoded_base64",
    "encoded",
    "encoded_around",
    "pieces_of",
    "plain",
    "told",
]

LONG_BYTES: Final = 256 * 1024
# What is encoded at a time: a multiple of 3, so that all pieces in base64 can be joined.
PIECE_BYTES: Final = 96 * 1024
# Stands for a long value while the rest is encoded. Nobody can guess it, so nothing else contains it.
PLACE: Final = os.urandom(16).hex()


class LongBytes:
    """A value that is encoded later, piece by piece."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)


def plain(data: bytes) -> str | dict[str, str]:
    """The bytes as a JSON value."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def told(data: bytes) -> Any:
    """The same, or `LongBytes` of long ones, for an answer that is encoded by `encoded_around`."""
    return plain(data) if len(data) <= LONG_BYTES else LongBytes(data)


def encoded(text: str | None) -> bytes | None:
    """A text as bytes; `None` for no text."""
    return text.encode() if text is not None else None


def bytes_of(value: object, name: str) -> bytes:
    """The bytes of a JSON value that a peer has sent; raises ValueError, whose text names the value."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return decoded_base64(value["base64"])
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"{name}: {error}") from None
    if isinstance(value, LongBytes):
        return value.data
    raise ValueError(f"{name} is a text, or an object with the one key base64")


def decoded_base64(text: str | bytes) -> bytes:
    """What a text in base64 stands for; raises ValueError, also for padding that is missing or too much."""
    if len(text) % 4:
        raise ValueError("Incorrect padding")
    return base64.b64decode(text, validate=True)


def encoded_around(answer: Any) -> tuple[list[bytes], list[LongBytes]]:
    """The JSON of an answer, and the long values that belong between its parts: one less than there are parts."""
    values: list[LongBytes] = []

    def place(value: Any) -> str:
        if not isinstance(value, LongBytes):
            raise TypeError(f"{type(value).__name__} cannot be written as JSON")
        values.append(value)
        return PLACE

    text = msgspec.json.encode(answer, enc_hook=place)
    return (text.split(b'"%b"' % PLACE.encode()) if values else [text]), values


def pieces_of(data: bytes) -> Iterator[bytes]:
    """The JSON of a long value, piece by piece.  The first pieces are empty: it is not known yet whether it is text."""
    ends: list[int] = []
    start = 0
    while start < len(data):
        end = _character_end(data, start + PIECE_BYTES)
        try:
            data[start:end].decode()
        except UnicodeDecodeError:
            yield from _pieces_in_base64(data)
            return
        ends.append(end)
        start = end
        yield b""
    start = 0
    yield b'"'
    for end in ends:
        yield msgspec.json.encode(data[start:end].decode())[1:-1]
        start = end
    yield b'"'


def _character_end(data: bytes, end: int) -> int:
    """Where a character of UTF-8 ends, at this place or a little before."""
    if end >= len(data):
        return len(data)
    for back in range(4):
        if data[end - back] & 0xC0 != 0x80:
            return end - back
    return end  # it is not UTF-8


def _pieces_in_base64(data: bytes) -> Iterator[bytes]:
    yield b'{"base64":"'
    for start in range(0, len(data), PIECE_BYTES):
        yield base64.b64encode(data[start : start + PIECE_BYTES])
    yield b'"}'
