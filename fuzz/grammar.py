"""How inputs are cut into parts and put together again, so that a mutated input is still mostly well-formed.

Random changes of bytes nearly always break a length or a header first, and what comes after is never read.  A `Level`
knows one kind of framing: it cuts bytes into parts and joins parts with the right lengths.  Targets name several
levels, from the outside in: the steps of a script, the packets of what one peer sends, the arguments of a packet.

Cutting never fails: what does not fit is one raw part, which is joined as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

__all__ = [
    "DRAFT_PACKETS",
    "FRAMES",
    "GEARMAN_PACKETS",
    "LINES",
    "MSGPACK_MAP",
    "NUL_FIELDS",
    "PROTOBUF",
    "RESP_COMMANDS",
    "RESP_WORDS",
    "STEPS",
    "WORDS",
    "ZMTP_FRAMES",
    "Level",
    "Part",
]


class Part:
    """A piece of an input; the length of its body is written when parts are joined.

    Inputs share parts, so no part is ever changed.  Very many are made, and a compiled class takes a tenth of the time
    of a tuple with names.
    """

    __slots__ = ("body", "head", "is_raw")

    def __init__(self, head: bytes, body: bytes, is_raw: bool = False) -> None:
        self.head: Final = head
        self.body: Final = body
        self.is_raw: Final = is_raw

    def with_body(self, body: bytes) -> Part:
        return Part(self.head, body, self.is_raw)

    def with_head(self, head: bytes) -> Part:
        return Part(head, self.body, self.is_raw)


class Level(Protocol):
    """One kind of framing."""

    def cut(self, data: bytes) -> list[Part]:
        """The parts of this."""

    def join(self, parts: Sequence[Part]) -> bytes:
        """The bytes that are cut into these parts."""


class SizedRecords:
    """Records of a head of fixed length, the length of the body, and the body.  A body that ends too early is taken as
    far as it goes, so that every input is some list of records."""

    def __init__(self, head_bytes: int, size_bytes: int) -> None:
        self._head_bytes: Final = head_bytes
        self._size_bytes: Final = size_bytes

    def cut(self, data: bytes) -> list[Part]:
        parts: list[Part] = []
        position, end = 0, len(data)
        head_bytes, size_bytes = self._head_bytes, self._size_bytes
        while position + head_bytes + size_bytes <= end:
            body = position + head_bytes
            start = body + size_bytes
            size = int.from_bytes(data[body:start], "big")
            parts.append(Part(data[position:body], data[start : start + size]))
            position = start + size
        return parts

    def join(self, parts: Sequence[Part]) -> bytes:
        head_bytes, size_bytes = self._head_bytes, self._size_bytes
        most = 256**size_bytes - 1
        out: list[bytes] = []
        for part in parts:
            out.append(part.head.ljust(head_bytes, b"\0")[:head_bytes])
            out.append(min(len(part.body), most).to_bytes(size_bytes, "big"))
            out.append(part.body[:most])
        return b"".join(out)


class Packets:
    """A stream of packets that begin with NUL, with lines of text in between."""

    def __init__(self, magics: Sequence[bytes], head_bytes: int, has_lines: bool) -> None:
        self._magics = tuple(magics)
        self._head_bytes = head_bytes  # without the length
        self._has_lines = has_lines

    def cut(self, data: bytes) -> list[Part]:
        parts: list[Part] = []
        position = 0
        while position < len(data):
            start = position + self._head_bytes + 4
            if data.startswith(self._magics, position) and start <= len(data):
                size = int.from_bytes(data[start - 4 : start], "big")
                parts.append(Part(data[position : start - 4], data[start : start + size]))
                position = start + size
                continue
            stop = data.find(b"\n", position) + 1 if self._has_lines and data[position] else 0
            stop = stop or len(data)
            parts.append(Part(b"", data[position:stop], True))
            position = stop
        return parts

    def join(self, parts: Sequence[Part]) -> bytes:
        return b"".join(
            [part.body if part.is_raw else part.head + len(part.body).to_bytes(4, "big") + part.body for part in parts]
        )


class Separated:
    """Pieces with one separator between them."""

    def __init__(self, separator: bytes) -> None:
        self._separator = separator

    def cut(self, data: bytes) -> list[Part]:
        return [Part(b"", piece, True) for piece in data.split(self._separator)]

    def join(self, parts: Sequence[Part]) -> bytes:
        return self._separator.join([part.body for part in parts])


class RespCommands:
    """Commands of RESP, each a raw part, and lines as somebody types them."""

    def cut(self, data: bytes) -> list[Part]:
        parts: list[Part] = []
        position = 0
        while position < len(data):
            found = _resp_words(data, position)
            stop = found[1] if found is not None else (data.find(b"\n", position) + 1 or len(data))
            parts.append(Part(b"", data[position:stop], True))
            position = stop
        return parts

    def join(self, parts: Sequence[Part]) -> bytes:
        return b"".join([part.body for part in parts])


class RespWords:
    """The words of one command."""

    def cut(self, data: bytes) -> list[Part]:
        found = _resp_words(data, 0)
        if found is None or found[1] != len(data):
            return [Part(b"", data, True)]
        return [Part(b"$", word) for word in found[0]]

    def join(self, parts: Sequence[Part]) -> bytes:
        if len(parts) == 1 and parts[0].is_raw:
            return parts[0].body
        words = [b"$%d\r\n%b\r\n" % (len(part.body), part.body) for part in parts]
        return b"*%d\r\n%b" % (len(words), b"".join(words))


def _resp_words(data: bytes, position: int) -> tuple[list[bytes], int] | None:
    """The words of the command that begins here, and where it ends."""
    line, _, _ = data[position : position + 16].partition(b"\r\n")
    if not line.startswith(b"*") or not line[1:].isdigit() or int(line[1:]) > 1000:
        return None
    words: list[bytes] = []
    position += len(line) + 2
    for _ in range(int(line[1:])):
        size, _, _ = data[position : position + 16].partition(b"\r\n")
        if not size.startswith(b"$") or not size[1:].isdigit():
            return None
        start = position + len(size) + 2
        position = start + int(size[1:]) + 2
        words.append(data[start : position - 2])
    return (words, position) if position <= len(data) else None


class Protobuf:
    """The fields of a message; those with a length have it written anew."""

    def cut(self, data: bytes) -> list[Part]:
        parts: list[Part] = []
        position = 0
        while position < len(data):
            tag, start = _varint(data, position)
            kind = tag & 7
            if kind == 2:
                size, body = _varint(data, start)
                parts.append(Part(data[position:start], data[body : body + size]))
                position = body + size
                continue
            after = {0: _varint(data, start)[1], 1: start + 8, 5: start + 4}.get(kind, len(data))
            parts.append(Part(b"", data[position:after], True))
            position = after
        return parts

    def join(self, parts: Sequence[Part]) -> bytes:
        return b"".join(
            [part.body if part.is_raw else part.head + _written_varint(len(part.body)) + part.body for part in parts]
        )


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for place in range(10):
        byte = data[position + place] if position + place < len(data) else 0
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number, position + place + 1
    return number, position + 10


def _written_varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


class MsgpackMap:
    """The entries of a map: the key is the head of a part, the value its body, both encoded."""

    def cut(self, data: bytes) -> list[Part]:
        try:
            found: Any = msgspec.msgpack.decode(data)
            if isinstance(found, dict):
                return [Part(msgspec.msgpack.encode(key), msgspec.msgpack.encode(found[key])) for key in found]
        except (msgspec.MsgspecError, ValueError, RecursionError, TypeError):
            pass
        return [Part(b"", data, True)]

    def join(self, parts: Sequence[Part]) -> bytes:
        if len(parts) == 1 and parts[0].is_raw:
            return parts[0].body
        count = len(parts)
        header = bytes([0x80 | count]) if count < 16 else b"\xde" + count.to_bytes(2, "big")
        return header + b"".join([part.head + part.body for part in parts])


class ZmtpFrames:
    """The greeting of a ZMTP peer, as a raw part, and its frames.  The head of a frame is its flags; with a byte before
    them it is a frame of ZMTP 1.0."""

    def cut(self, data: bytes) -> list[Part]:
        greeting_bytes, is_version_1 = _zmtp_greeting(data)
        parts = [Part(b"", data[:greeting_bytes], True)] if greeting_bytes else []
        position = greeting_bytes
        while position < len(data):
            found = _zmtp_frame_1_0(data, position) if is_version_1 else _zmtp_frame(data, position)
            if found is None:
                parts.append(Part(b"", data[position:], True))
                break
            head, start, position = found
            parts.append(Part(head, data[start:position]))
        return parts

    def join(self, parts: Sequence[Part]) -> bytes:
        return b"".join(
            [part.body if part.is_raw else _zmtp_header(part.head, len(part.body)) + part.body for part in parts]
        )


def _zmtp_greeting(data: bytes) -> tuple[int, bool]:
    """The length of a peer's greeting, and whether frames of ZMTP 1.0 follow."""
    if data[:1] != b"\xff" or len(data) < 11 or not data[9] & 1:
        return 0, True
    return (64, False) if data[10] >= 3 else (12, not data[10])


def _zmtp_frame(data: bytes, position: int) -> tuple[bytes, int, int] | None:
    """The head of the frame that begins here, and where its body begins and ends."""
    flags = data[position]
    start = position + (9 if flags & 2 else 2)
    stop = start + int.from_bytes(data[position + 1 : start], "big")
    return (bytes((flags,)), start, stop) if stop <= len(data) else None


def _zmtp_frame_1_0(data: bytes, position: int) -> tuple[bytes, int, int] | None:
    is_long = data[position] == 255
    start = position + (10 if is_long else 2)
    length = int.from_bytes(data[position + 1 : start - 1], "big") if is_long else data[position]
    stop = start + length - 1
    return (b"1" + data[start - 1 : start], start, stop) if start <= stop <= len(data) else None


def _zmtp_header(head: bytes, size: int) -> bytes:
    if len(head) == 2:
        return (b"\xff" + (size + 1).to_bytes(8, "big") if size > 253 else bytes((size + 1,))) + head[1:]
    flags = head[0] if head else 0
    if size > 255 or flags & 2:
        return bytes((flags | 2,)) + size.to_bytes(8, "big")
    return bytes((flags, size))


STEPS: Final = SizedRecords(1, 2)  # the steps of a script: see script.py
FRAMES: Final = SizedRecords(0, 2)  # the frames of a message
GEARMAN_PACKETS: Final = Packets((b"\0REQ", b"\0RES"), 8, True)
DRAFT_PACKETS: Final = Packets((b"\0JOB",), 5, False)
NUL_FIELDS: Final = Separated(b"\0")
LINES: Final = Separated(b"\n")
WORDS: Final = Separated(b" ")
RESP_COMMANDS: Final = RespCommands()
RESP_WORDS: Final = RespWords()
PROTOBUF: Final = Protobuf()
MSGPACK_MAP: Final = MsgpackMap()
ZMTP_FRAMES: Final = ZmtpFrames()
