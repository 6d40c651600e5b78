"""ZMTP frames: bytes to frames and back, for ZMTP 3.x, 2.0 and 1.0 (rfc.zeromq.org/spec/37, 15 and 13).

A frame is decoded as its flags and its body. The flags are those of ZMTP 3 without the one for a long length: `MORE`
(the message continues) and `COMMAND`. ZMTP 1.0 has another layout, and is decoded to the same flags.

A read of 64 KiB may hold 32,768 empty frames.  So at most `FRAMES_AT_ONCE` are decoded in one call, and `has_more`
tells that the next call finds more without new bytes.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from switchgear.errors import PeerError
from switchgear.protocols.framing import Message as Frame
from switchgear.protocols.framing import StreamDecoder

__all__ = [
    "COMMAND",
    "FRAMES_AT_ONCE",
    "MORE",
    "Frame",
    "FrameDecoder",
    "append_frame",
    "append_frame_1_0",
    "command_frame",
]

MORE: Final = 1
LONG: Final = 2
COMMAND: Final = 4

FRAMES_AT_ONCE: Final = 1_000

SHORTEST_HEADER: Final = 2
LONG_HEADER: Final = 9
LONG_HEADER_1_0: Final = 10
MOST_SHORT: Final = 255  # bytes of a body whose length is one byte
MOST_SHORT_1_0: Final = 253  # there the length includes the flags, and 255 announces a long one

# The headers of short frames, by the length of the body: without and with MORE.
_LAST_HEADERS: Final = [bytes((0, size)) for size in range(MOST_SHORT + 1)]
_MORE_HEADERS: Final = [bytes((MORE, size)) for size in range(MOST_SHORT + 1)]


class FrameDecoder(StreamDecoder):
    """Decodes a stream of bytes into ZMTP frames."""

    def __init__(self, packet_bytes: int, *, is_version_1: bool = False) -> None:
        super().__init__(packet_bytes)
        self.is_version_1 = is_version_1
        self.frames_at_once = FRAMES_AT_ONCE
        self.has_more = False  # `feed(b"")` finds more frames

    def _decode(self, data: bytes) -> list[Frame]:
        self.has_more = False
        if self.is_version_1:
            return self._decode_1_0(data)
        frames: list[Frame] = []
        position: i64 = 0
        end: i64 = len(data)
        while end - position >= SHORTEST_HEADER:
            flags: i64 = data[position]
            if flags > COMMAND + LONG or flags == COMMAND + MORE:
                break  # `_keep` reports the error
            start: i64 = position + SHORTEST_HEADER
            size: i64 = data[position + 1]
            if flags & LONG:
                if end - position < LONG_HEADER or size:
                    break  # no accepted frame needs the highest byte of its length
                start = position + LONG_HEADER
                size = int.from_bytes(data[position + 1 : start], "big")
            stop: i64 = start + size
            if stop > end or size > self.packet_bytes:
                break
            position = stop
            frames.append((flags & (MORE | COMMAND), data[start:stop]))
            if len(frames) == self.frames_at_once and position < end:
                return self._rest_later(frames, data[position:])
        if position < end:
            self._keep(data[position:])
        return frames

    def _rest_later(self, frames: list[Frame], rest: bytes) -> list[Frame]:
        """Leave the rest to the next call."""
        self._held += rest
        self._need = 1
        self.has_more = True
        return frames

    def _keep(self, rest: bytes) -> None:
        """Hold the beginning of an unfinished frame, unless it can never be valid."""
        flags = rest[0]
        self._need = SHORTEST_HEADER
        if flags > COMMAND + LONG or flags == COMMAND + MORE:
            self.failure = PeerError(f"a frame cannot have the flags {flags}", code="MALFORMED", framing_lost=True)
            return
        if flags & LONG and len(rest) < LONG_HEADER:
            self._need = LONG_HEADER
        elif len(rest) >= SHORTEST_HEADER:
            start = LONG_HEADER if flags & LONG else SHORTEST_HEADER
            size = int.from_bytes(rest[1:start], "big")
            if not self._is_taken(size):
                return
            if size >= self.long_bytes:
                self._begin_long(flags & (MORE | COMMAND), rest[start:], size)
                return
            self._need = start + size
        self._held += rest

    def _is_taken(self, size: int) -> bool:
        """Whether a frame may be this long; if not, no further input is decoded."""
        if size > self.packet_bytes:
            text = f"frame of {size} bytes, at most {self.packet_bytes} are taken"
            self.failure = PeerError(text, code="TOO_LARGE", framing_lost=True)
        return size <= self.packet_bytes

    # --- ZMTP 1.0: length (of flags and body), flags, body ---

    def _decode_1_0(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        position = 0
        end = len(data)
        while end - position >= SHORTEST_HEADER:
            start = position + (LONG_HEADER_1_0 if data[position] == MOST_SHORT else SHORTEST_HEADER)
            if start > end:
                break
            length = data[position]
            if length == MOST_SHORT:
                length = int.from_bytes(data[position + 1 : position + LONG_HEADER], "big")
            stop = start + length - 1
            if not length or stop > end or length - 1 > self.packet_bytes:
                break
            position = stop
            frames.append((data[start - 1] & MORE, data[start:stop]))
            if len(frames) == self.frames_at_once and position < end:
                return self._rest_later(frames, data[position:])
        if position < end:
            self._keep_1_0(data[position:])
        return frames

    def _keep_1_0(self, rest: bytes) -> None:
        self._need = SHORTEST_HEADER
        length = rest[0]
        start = LONG_HEADER_1_0 if length == MOST_SHORT else SHORTEST_HEADER
        if length == MOST_SHORT:
            self._need = LONG_HEADER_1_0
            length = int.from_bytes(rest[1:LONG_HEADER], "big") if len(rest) >= start else 1
        if not length:
            self.failure = PeerError("a frame of length 0", code="MALFORMED", framing_lost=True)
            return
        if len(rest) >= start:
            if not self._is_taken(length - 1):
                return
            if length > self.long_bytes:
                self._begin_long(rest[start - 1] & MORE, rest[start:], length - 1)
                return
            self._need = start + length - 1
        self._held += rest


def append_frame(out: list[bytes], body: bytes, more: bool) -> None:
    """Append an encoded frame of ZMTP 2.0 or 3.x to the output; header and body are separate, to avoid a copy."""
    size = len(body)
    if size <= MOST_SHORT:
        out.append(_MORE_HEADERS[size] if more else _LAST_HEADERS[size])
        if size:
            out.append(body)
    else:
        out.append((b"\3" if more else b"\2") + size.to_bytes(8, "big"))
        out.append(body)


def append_frame_1_0(out: list[bytes], body: bytes, more: bool) -> None:
    """Append an encoded frame to the output, in the format of ZMTP 1.0."""
    size = len(body)
    flags = b"\1" if more else b"\0"
    if size <= MOST_SHORT_1_0:
        out.append(bytes((size + 1,)) + flags)
    else:
        out.append(b"\xff" + (size + 1).to_bytes(8, "big") + flags)
    out.append(body)


def command_frame(body: bytes) -> bytes:
    """An encoded frame with a ZMTP command."""
    size = len(body)
    if size <= MOST_SHORT:
        return bytes((COMMAND, size)) + body
    return bytes((COMMAND | LONG,)) + size.to_bytes(8, "big") + body
