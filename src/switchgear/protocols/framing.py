"""Streams that are cut into messages: holding the beginning of one until its end has arrived.

Nothing is reserved because a header announces it: an unfinished message takes the bytes that have arrived.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from switchgear.errors import PeerError

__all__ = ["Message", "StreamDecoder"]

Message = tuple[int, bytes]
"""A packet type and its body."""


class StreamDecoder(ABC):
    """Cuts a stream into messages, however it was sliced on the way."""

    def __init__(self, packet_bytes: int) -> None:
        self.packet_bytes = packet_bytes
        self.failure: PeerError | None = None  # framing is lost; what came before it was still decoded
        self._held = bytearray()  # the beginning of an unfinished message
        self._need = 1  # bytes of it before another look is worth while

    @property
    def buffered_bytes(self) -> int:
        """What an unfinished message makes us hold."""
        return len(self._held)

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now.  After `failure` is set nothing more is understood."""
        if self.failure is not None:
            return []
        if self._held:
            if len(self._held) + len(data) < self._need:
                self._held += data
                return []
            data = b"".join((self._held, data))
            self._held = bytearray()
        return self._decode(data)

    @abstractmethod
    def _decode(self, data: bytes) -> list[Message]:
        """The complete messages of this; what is left over goes to `_held`, with `_need` set."""
