"""`StreamDecoder`: base class of decoders that cut a stream into messages and hold the beginning of an incomplete one.

No memory is reserved for announced bytes: an unfinished message takes the bytes that have arrived.

A long message is written into one buffer as it arrives, and that buffer becomes its body without a copy. A copy of 30
MiB would block the server for 20 ms and more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import BytesIO
from typing import Final

from switchgear.errors import PeerError

__all__ = ["LONG_BYTES", "LongBody", "Message", "StreamDecoder"]

Message = tuple[int, bytes]
"""A packet type and its body."""

# From this length on a message is collected in its own buffer.
LONG_BYTES: Final = 65_536


class LongBody:
    """The body of a long message, of which `missing` bytes have not arrived yet."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.missing = size
        self._buffer = BytesIO()  # returns its contents without copying them

    def take(self, data: bytes) -> bytes:
        """Add received bytes; returns those behind the end of the message."""
        missing = self.missing
        if len(data) <= missing:
            self._buffer.write(data)
            self.missing = missing - len(data)
            return b""
        self._buffer.write(memoryview(data)[:missing])
        self.missing = 0
        return data[missing:]

    def whole(self) -> bytes:
        """The bytes of the body that were added: all of it when it is complete."""
        return self._buffer.getvalue()


class StreamDecoder(ABC):
    """Decodes a stream into messages, independent of how it is sliced."""

    def __init__(self, packet_bytes: int) -> None:
        self.packet_bytes = packet_bytes
        self.long_bytes = LONG_BYTES
        self.failure: PeerError | None = None  # framing is lost; earlier messages were still decoded
        self._held = bytearray()  # the beginning of an unfinished message
        self._need = 1  # how many bytes of it are needed for the next attempt
        self._long: LongBody | None = None  # an unfinished message that is long
        self._long_kind = 0

    @property
    def buffered_bytes(self) -> int:
        """The bytes that an unfinished message holds."""
        long = self._long
        return len(self._held) if long is None else long.size - long.missing

    @property
    def awaited_bytes(self) -> int:
        """How many bytes of a long message are missing."""
        long = self._long
        return 0 if long is None else long.missing

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now. After `failure` is set no more are decoded."""
        if self.failure is not None:
            return []
        if self._long is not None:
            return self._feed_long(self._long, data)
        if self._held:
            if len(self._held) + len(data) < self._need:
                self._held += data
                return []
            data = b"".join((self._held, data))
            self._held = bytearray()
        return self._decode(data)

    def _feed_long(self, long: LongBody, data: bytes) -> list[Message]:
        rest = long.take(data)
        if long.missing:
            return []
        self._long = None
        messages = self._long_messages(self._long_kind, long.whole())
        if rest:
            messages += self._decode(rest)
        return messages

    def _begin_long(self, kind: int, start: bytes, size: int) -> None:
        """Begin a long body of this many bytes, whose end has not arrived."""
        self._long = LongBody(size)
        self._long_kind = kind
        self._long.take(start)

    def _long_messages(self, kind: int, body: bytes) -> list[Message]:
        """The messages for a complete long body."""
        return [(kind, body)]

    @abstractmethod
    def _decode(self, data: bytes) -> list[Message]:
        """Decode complete messages; the rest goes to `_held`, with `_need` set, or to `_begin_long`."""
