"""Bytes to packets of the 2005 draft, and back; the same for both directions.

Nothing is reserved because a header announces it: an unfinished packet takes the bytes that have arrived.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from switchgear.errors import PeerError
from switchgear.protocols.gearman_draft.messages import ErrorCode

__all__ = ["MAGIC", "Decoder", "Message", "packet"]

MAGIC: Final = b"\0JOB"
HEADER: Final = Struct(">4sBI")
HEADER_BYTES: Final = 9

Message = tuple[int, bytes]
"""A packet type and its body."""


def packet(kind: int, body: bytes = b"") -> bytes:
    """A whole packet."""
    return HEADER.pack(MAGIC, kind, len(body)) + body


class Decoder:
    """Cuts a stream into packets, however it was sliced on the way."""

    def __init__(self, packet_bytes: int) -> None:
        self.packet_bytes = packet_bytes
        self.failure: PeerError | None = None  # framing is lost; what came before it was still decoded
        self._held = bytearray()  # the beginning of an unfinished packet
        self._need = 1  # bytes of it before another look is worth while

    @property
    def buffered_bytes(self) -> int:
        """What an unfinished packet makes us hold."""
        return len(self._held)

    def feed(self, data: bytes) -> list[Message]:
        """The packets that are complete now.  After `failure` is set nothing more is understood."""
        if self.failure is not None:
            return []
        if self._held:
            if len(self._held) + len(data) < self._need:
                self._held += data
                return []
            data = b"".join((self._held, data))
            self._held = bytearray()
        messages: list[Message] = []
        position = 0
        end = len(data)
        while end - position >= HEADER_BYTES:
            magic, kind, size = HEADER.unpack_from(data, position)
            start = position + HEADER_BYTES
            if magic != MAGIC or size > self.packet_bytes or start + size > end:
                break
            position = start + size
            messages.append((kind, data[start:position]))
        if position < end:
            self._keep(data[position:])
        return messages

    def _keep(self, rest: bytes) -> None:
        """Hold the beginning of an unfinished packet, if it may ever be finished."""
        if not MAGIC.startswith(rest[: len(MAGIC)]):
            text = "the magic bytes of a packet were expected"
            self.failure = PeerError(text, code=ErrorCode.BAD_MAGIC.name, framing_lost=True)
            return
        if len(rest) < len(MAGIC):
            self._need = len(rest) + 1  # a wrong byte is told at once
        elif len(rest) < HEADER_BYTES:
            self._need = HEADER_BYTES
        else:
            size = HEADER.unpack_from(rest)[2]
            if size > self.packet_bytes:
                text = f"packet of {size} bytes, at most {self.packet_bytes} are taken"
                self.failure = PeerError(text, code=ErrorCode.TOO_LARGE.name, framing_lost=True)
                return
            self._need = HEADER_BYTES + size
        self._held += rest
