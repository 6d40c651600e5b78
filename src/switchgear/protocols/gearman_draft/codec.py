"""The codec of the 2005 draft: bytes to packets and back; both directions have the same format."""

from __future__ import annotations

from struct import Struct
from typing import Final

from switchgear.errors import PeerError
from switchgear.protocols.framing import Message, StreamDecoder
from switchgear.protocols.gearman_draft.messages import ErrorCode

__all__ = ["MAGIC", "DraftDecoder", "Message", "packet"]

MAGIC: Final = b"\0JOB"
HEADER: Final = Struct(">4sBI")
HEADER_BYTES: Final = 9


def packet(kind: int, body: bytes = b"") -> bytes:
    """An encoded packet."""
    return HEADER.pack(MAGIC, kind, len(body)) + body


class DraftDecoder(StreamDecoder):
    """Decodes a stream of bytes into packets."""

    def _decode(self, data: bytes) -> list[Message]:
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
        """Hold the beginning of an unfinished packet, unless it can never be valid."""
        if not MAGIC.startswith(rest[: len(MAGIC)]):
            text = "the magic bytes of a packet were expected"
            self.failure = PeerError(text, code=ErrorCode.BAD_MAGIC.name, framing_lost=True)
            return
        if len(rest) < len(MAGIC):
            self._need = len(rest) + 1  # a wrong byte is reported at once
        elif len(rest) < HEADER_BYTES:
            self._need = HEADER_BYTES
        else:
            _, kind, size = HEADER.unpack_from(rest)
            if size > self.packet_bytes:
                text = f"packet of {size} bytes, at most {self.packet_bytes} are taken"
                self.failure = PeerError(text, code=ErrorCode.TOO_LARGE.name, framing_lost=True)
                return
            if size >= self.long_bytes:
                self._begin_long(kind, rest[HEADER_BYTES:], size)
                return
            self._need = HEADER_BYTES + size
        self._held += rest
