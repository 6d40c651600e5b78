"""The codec of the Gearman protocol: bytes to packets and back.

A stream may mix binary packets, which start with a NUL byte, and lines of the text protocol, which do not; the first
byte of each message distinguishes them. The same decoder serves both ends of a connection: `magic` is the direction
that it reads.

Memory: nothing is reserved for announced bytes. An unfinished message takes the bytes that have arrived.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from switchgear.errors import PeerError
from switchgear.protocols.framing import Message, StreamDecoder

__all__ = [
    "FOREIGN_MAGIC",
    "HEADER",
    "LONG",
    "LONG_START",
    "REQUEST",
    "RESPONSE",
    "TEXT",
    "GearmanDecoder",
    "JobPackets",
    "request",
    "response",
]

HEADER: Final = Struct(">III")
HEADER_BYTES: Final = 12
MAGIC_BYTES: Final = 4
LOWER_HALF: Final = 0xFFFFFFFF
BEYOND_INT32: Final = 1 << 32
LARGEST_INT64: Final = (1 << 63) - 1
MOST_ID_DIGITS: Final = 19  # as many as that has
REQUEST: Final = 0x00524551  # \0REQ
RESPONSE: Final = 0x00524553  # \0RES

TEXT: Final = -1  # in place of a packet type: a line of the text protocol
FOREIGN_MAGIC: Final = -2  # in place of a packet type: a packet of the other direction
# A long packet with a payload is decoded as two messages, so that the payload need not be copied: the arguments before
# the payload, each with its NUL, and then the payload, whose type is this number minus the packet's.
LONG_START: Final = -3
LONG: Final = -4

# The maximum length of the part without payload: JSON of 4 MiB, and names.
MOST_START_BYTES: Final = 5 * 1024 * 1024


def request(kind: int, *arguments: bytes) -> bytes:
    """An encoded request packet, as clients and workers send it."""
    body = b"\0".join(arguments)
    return HEADER.pack(REQUEST, kind, len(body)) + body


def response(kind: int, *arguments: bytes) -> bytes:
    """An encoded response packet, as servers send it."""
    body = b"\0".join(arguments)
    return HEADER.pack(RESPONSE, kind, len(body)) + body


class JobPackets:
    """Encodes how the packets of one type begin whose first argument is the handle of a job.

    Every job needs some. Most are as long as the one before, and begin with the same bytes. Since these are known
    before the body, a packet is built in one piece and not copied behind its header.
    """

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._prefix = b""
        self._size: i64 = 0  # of the body without the prefix
        self._start = HEADER.pack(RESPONSE, kind, 0)
        self._digits: i64 = 0  # of the ids from this one on, below that one
        self._from_id: i64 = 0
        self._below_id: i64 = 0

    def start(self, prefix: bytes, job_id: i64, more_bytes: i64) -> bytes:
        """The header and the prefix of a handle; the id of the job and this many more bytes follow."""
        if job_id >= self._below_id or job_id < self._from_id:
            self._count_digits(job_id)
        size = self._digits + more_bytes
        if size != self._size or prefix is not self._prefix:
            self._size = size
            self._prefix = prefix
            self._start = HEADER.pack(RESPONSE, self._kind, len(prefix) + size) + prefix
        return self._start

    def _count_digits(self, job_id: i64) -> None:
        self._digits = 1
        self._from_id = 0
        self._below_id = 10
        while job_id >= self._below_id and self._digits < MOST_ID_DIGITS:
            self._digits += 1
            self._from_id = self._below_id
            self._below_id = self._below_id * 10 if self._digits < MOST_ID_DIGITS else LARGEST_INT64


class GearmanDecoder(StreamDecoder):
    """Decodes a stream into packets and lines."""

    def __init__(
        self, magic: int, packet_bytes: int, line_bytes: int = 8192, payloads: Mapping[int, int] | None = None
    ) -> None:
        """`payloads`: by packet type, how many arguments precede the payload. Long packets of these types are
        decoded as `LONG_START` and `LONG`, and those of other types are refused above 5 MiB. With None, long packets
        are decoded like all others."""
        super().__init__(packet_bytes)
        self.magic = magic
        self.line_bytes = line_bytes
        self._payloads = payloads
        self._start = b""  # of a long packet: the arguments before its payload

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
                size += BEYOND_INT32  # the number is unsigned
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
        """Decode a message that is not a packet in the expected direction; returns the position of the next one."""
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
        """Hold the beginning of an unfinished message, unless it can never be valid."""
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
            magic, kind, size = HEADER.unpack_from(rest)
            if size > self.packet_bytes:
                self._fail_too_large(f"packet of {size} bytes, at most {self.packet_bytes} are taken")
                return
            self._need = HEADER_BYTES + size
            if size >= self.long_bytes:
                if magic != self.magic:
                    kind = FOREIGN_MAGIC
                if self._is_collected(kind, rest, size):
                    return
        self._held += rest

    def _fail_too_large(self, text: str) -> None:
        self.failure = PeerError(text, code="ARGUMENT_TOO_LARGE", framing_lost=True)

    def _is_collected(self, kind: int, rest: bytes, size: int) -> bool:
        """Whether nothing of a long packet is held here, because its body is collected from now on, or refused."""
        arguments = 0
        if self._payloads is not None:
            arguments = self._payloads.get(kind, -1)
        if arguments < 0:
            if size > MOST_START_BYTES:
                self._fail_too_large(f"packet of {size} bytes without a payload, at most {MOST_START_BYTES} are taken")
                return True
            self._begin_long(kind, rest[HEADER_BYTES:], size)
            return True
        start = HEADER_BYTES
        for _ in range(arguments):
            start = rest.find(b"\0", start) + 1
            if not start:
                if len(rest) > MOST_START_BYTES:
                    self._fail_too_large(f"arguments of more than {MOST_START_BYTES} bytes before the payload")
                    return True
                self._need = min(self._need, 2 * len(rest))
                return False
        self._start = rest[HEADER_BYTES:start]
        self._begin_long(kind, rest[start:], HEADER_BYTES + size - start)
        return True

    def _long_messages(self, kind: int, body: bytes) -> list[Message]:
        if kind == FOREIGN_MAGIC:
            return [(kind, b"")]
        if self._payloads is None or kind not in self._payloads:
            return [(kind, body)]
        start, self._start = self._start, b""
        return [(LONG_START, start), (LONG - kind, body)]

    @property
    def buffered_bytes(self) -> int:
        return super().buffered_bytes + len(self._start)
