"""Bytes to packets of the 2005 draft, and back; the same for both directions."""

from __future__ import annotations

from struct import Struct
from typing import Final

from switchgear.errors import PeerError
from switchgear.protocols.framing import Message, StreamDecoder
from switchgear.protocols.gearman_draft.messages import ErrorCode

__all__ = ["MAGIC", "Decoder", "Message", "packet"]

MAGIC: Final = b"\0JOB"
HEADER: Final = Struct(">4sBI")
HEADER_BYTES: Final = 9


def packet(kind: int, body: bytes = b"") -> bytes:
    """A whole packet."""
    return HEADER.pack(MAGIC, kind, len(body)) + body


class Decoder(StreamDecoder):
    """Cuts a stream into packets."""

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
