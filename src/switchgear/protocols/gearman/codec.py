"""Bytes to packets and back.

A stream may mix binary packets, which start with a NUL byte, and lines of the text protocol, which do not; each
message is told apart by its first byte.  The same decoder serves both ends of a connection: `magic` says which
direction it reads.

Memory: nothing is reserved because a header announces it.  An unfinished message takes the bytes that have arrived,
in however many pieces they came.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from switchgear.errors import PeerError
from switchgear.protocols.framing import Message, StreamDecoder

__all__ = ["FOREIGN_MAGIC", "HEADER", "REQUEST", "RESPONSE", "TEXT", "Decoder", "ResponseMaker", "request", "response"]

HEADER: Final = Struct(">III")
HEADER_BYTES: Final = 12
MAGIC_BYTES: Final = 4
LOWER_HALF: Final = 0xFFFFFFFF
BEYOND_INT32: Final = 1 << 32
REQUEST: Final = 0x00524551  # \0REQ
RESPONSE: Final = 0x00524553  # \0RES

TEXT: Final = -1  # in place of a packet type: a line of the text protocol
FOREIGN_MAGIC: Final = -2  # in place of a packet type: a packet that goes the other way


def request(kind: int, *arguments: bytes) -> bytes:
    """A packet to a server."""
    body = b"\0".join(arguments)
    return HEADER.pack(REQUEST, kind, len(body)) + body


def response(kind: int, *arguments: bytes) -> bytes:
    """A packet from a server."""
    body = b"\0".join(arguments)
    return HEADER.pack(RESPONSE, kind, len(body)) + body


class ResponseMaker:
    """Makes the packets of one kind that every job needs.  Most are as long as the one before, and share its header."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._size = 0
        self._header = HEADER.pack(RESPONSE, kind, 0)

    def packet(self, body: bytes) -> bytes:
        return self.beginning(body, 0)

    def beginning(self, start: bytes, more_bytes: int) -> bytes:
        """The packet up to and with the start of its body, of which so many more bytes follow."""
        size = len(start) + more_bytes
        if size != self._size:
            self._size = size
            self._header = HEADER.pack(RESPONSE, self._kind, size)
        return self._header + start


class Decoder(StreamDecoder):
    """Cuts a stream into packets and lines."""

    def __init__(self, magic: int, packet_bytes: int, line_bytes: int = 8192) -> None:
        super().__init__(packet_bytes)
        self.magic = magic
        self.line_bytes = line_bytes

    def _decode(self, data: bytes) -> list[Message]:
        messages: list[Message] = []
        position: i64 = 0
        end: i64 = len(data)
        magic_expected: i64 = self.magic
        limit: i64 = self.packet_bytes
        while end - position >= HEADER_BYTES:
            magic_and_kind: i64 = read_i64_be(data, position)
            size = i64(read_i32_be(data, position + 8))
            if size < 0:
                size += BEYOND_INT32  # the number has no sign
            if magic_and_kind >> 32 == magic_expected:
                start = position + HEADER_BYTES
                if size > end - start or size > limit:
                    break
                position = start + size
                kind: int = magic_and_kind & LOWER_HALF
                messages.append((kind, data[start:position]))
            else:
                after = self._odd(data, position, magic_and_kind >> 32, size, messages)
                if after == position:
                    break
                position = after
        if position < end and self.failure is None:
            self._keep(data, position, messages)
        return messages

    def _odd(self, data: bytes, position: int, magic: int, size: int, messages: list[Message]) -> int:
        """A message that is not a packet in the expected direction; returns where the next one starts."""
        if data[position]:
            return self._line(data, position, messages)
        if magic not in (REQUEST, RESPONSE):
            self.failure = PeerError("unknown magic bytes", code="INVALID_MAGIC", framing_lost=True)
            return position
        after = position + HEADER_BYTES + size
        if after > len(data) or size > self.packet_bytes:
            return position
        messages.append((FOREIGN_MAGIC, b""))
        return after

    def _line(self, data: bytes, position: int, messages: list[Message]) -> int:
        stop = data.find(b"\n", position, position + self.line_bytes)
        if stop < 0:
            if len(data) - position >= self.line_bytes:
                text = f"no end of line within {self.line_bytes} bytes"
                self.failure = PeerError(text, code="LINE_TOO_LONG", framing_lost=True)
            return position
        messages.append((TEXT, data[position:stop].removesuffix(b"\r")))
        return stop + 1

    def _keep(self, data: bytes, position: int, messages: list[Message]) -> None:
        """Hold the beginning of an unfinished message, if it may ever be finished."""
        while position < len(data) and data[position]:
            after = self._line(data, position, messages)
            if after == position:
                break
            position = after
        if self.failure is not None or position == len(data):
            return
        rest = data[position:]
        if rest[0]:
            self._need = 1
        elif len(rest) < HEADER_BYTES:
            self._need = HEADER_BYTES if len(rest) >= MAGIC_BYTES else len(rest) + 1
            if rest[:MAGIC_BYTES] not in (b"\0REQ"[: len(rest)], b"\0RES"[: len(rest)]):
                self.failure = PeerError("unknown magic bytes", code="INVALID_MAGIC", framing_lost=True)
                return
        else:
            size = HEADER.unpack_from(rest)[2]
            if size > self.packet_bytes:
                text = f"packet of {size} bytes, at most {self.packet_bytes} are taken"
                self.failure = PeerError(text, code="ARGUMENT_TOO_LARGE", framing_lost=True)
                return
            self._need = HEADER_BYTES + size
        self._held += rest
