"""`Published`: messages to subscribers, encoded once and shared; `Pieces`: other long answers.

A message may go to any number of connections, and to one connection once for each of its patterns. So it is encoded
once for all of them, and a long one is a separate piece of output that all share.
"""

from __future__ import annotations

from typing import Final

from switchgear.protocols.gearmonkey.resp import bulk, null

__all__ = ["Pieces", "Published"]

# A longer message is not copied into its frames.
LONG_BYTES: Final = 4096

END: Final = b"\r\n"


class Pieces:
    """An answer of several values. A long value is a separate piece: it may be requested many times at once."""

    def __init__(self, start: bytes) -> None:
        self._short = [start]  # the values of the current piece
        self._pieces: list[bytes] = []

    def add(self, value: bytes | None, version: int = 2) -> None:
        if value is None:
            self._short.append(null(version))
        elif len(value) <= LONG_BYTES:
            self._short.append(bulk(value))
        else:
            self._short.append(b"$%d\r\n" % len(value))
            self._pieces += (b"".join(self._short), value)
            self._short = [END]

    def whole(self) -> list[bytes]:
        return [*self._pieces, b"".join(self._short)]


class Published:
    """A message to subscribers."""

    def __init__(self, name: bytes, message: bytes) -> None:
        self._message = message
        self._start = bulk(name) + b"$%d\r\n" % len(message)  # between the pattern and the message
        self._is_long = len(message) > LONG_BYTES
        self._rest = b"" if self._is_long else self._start + message + END
        self._rest_bytes = len(self._start) + len(message) + len(END)
        self._encoded: dict[int, list[bytes]] = {}  # by version of RESP

    @property
    def message_bytes(self) -> int:
        """Its size for a subscriber of the channel."""
        return len(_opening(2, 3, b"message")) + self._rest_bytes

    def message(self, version: int) -> list[bytes]:
        """The pieces for all subscribers of the channel."""
        pieces = self._encoded.get(version)
        if pieces is None:
            opening = _opening(version, 3, b"message")
            pieces = [opening + self._start, self._message, END] if self._is_long else [opening + self._rest]
            self._encoded[version] = pieces
        return pieces

    def pattern_messages_bytes(self, patterns: list[bytes]) -> int:
        """Its size for a connection with these patterns, once for each."""
        return len(patterns) * (len(_opening(2, 4, b"pmessage")) + self._rest_bytes) + sum(map(len, patterns))

    def pattern_messages(self, version: int, patterns: list[bytes]) -> list[bytes]:
        """The message once for each of these encoded patterns."""
        opening = _opening(version, 4, b"pmessage")
        if not self._is_long:
            return [opening + (self._rest + opening).join(patterns) + self._rest]
        pieces: list[bytes] = []
        for pattern in patterns:
            pieces += (opening + pattern + self._start, self._message, END)
        return pieces


def _opening(version: int, words: int, kind: bytes) -> bytes:
    return b"%b%d\r\n%b" % (b">" if version == 3 else b"*", words, bulk(kind))
