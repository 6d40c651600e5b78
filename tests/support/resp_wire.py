"""RESP written down again, independent of the product's, and a raw socket that speaks it."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import Any, NamedTuple, Self

from tests.support.waiting import DEADLINE_SECONDS


class Simple(NamedTuple):
    """A short text, such as OK."""

    text: bytes


class Error(NamedTuple):
    """An error."""

    text: bytes


class Push(NamedTuple):
    """A message that nobody has asked for."""

    items: list[Any]


class Verbatim(NamedTuple):
    """A text for people."""

    text: bytes


class NullArray(NamedTuple):
    """Nothing, in RESP2, where an array might have been."""


OK = Simple(b"OK")
QUEUED = Simple(b"QUEUED")


def command(*words: str | bytes | int | float) -> bytes:
    """A command as client libraries send it."""
    encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)


def split_reply(data: bytes, position: int = 0) -> tuple[Any, int] | None:
    """The reply that begins at `position`, and where it ends; None when it is not whole yet."""
    stop = data.find(b"\r\n", position)
    if stop < 0:
        return None
    kind, rest = data[position : position + 1], data[position + 1 : stop]
    after = stop + 2
    if kind in b"+-:_":
        return _short(kind, rest), after
    if kind in b"$=":
        size = int(rest)
        if size < 0:
            return None if kind == b"=" else (None, after)
        if len(data) < after + size + 2:
            return None
        assert data[after + size : after + size + 2] == b"\r\n", data[after : after + size + 2]
        text = data[after : after + size]
        return (Verbatim(text[4:]) if kind == b"=" else text), after + size + 2
    assert kind in b"*%>~", f"no reply begins like {data[position : position + 20]!r}"
    count = int(rest)
    if count < 0:
        return NullArray(), after
    return _long(kind, count, data, after)


def _short(kind: bytes, rest: bytes) -> Any:
    if kind == b":":
        return int(rest)
    if kind == b"_":
        return None
    return Simple(rest) if kind == b"+" else Error(rest)


def _long(kind: bytes, count: int, data: bytes, after: int) -> tuple[Any, int] | None:
    items = []
    for _ in range(2 * count if kind == b"%" else count):
        found = split_reply(data, after)
        if found is None:
            return None
        items.append(found[0])
        after = found[1]
    if kind == b"%":
        return dict(zip(items[::2], items[1::2], strict=True)), after
    return (Push(items) if kind == b">" else items), after


def split_replies(data: bytes) -> list[Any]:
    """All replies in `data`, the last of them whole."""
    replies = []
    position = 0
    while position < len(data):
        found = split_reply(data, position)
        assert found is not None, f"half a reply: {data[position:]!r}"
        replies.append(found[0])
        position = found[1]
    return replies


class RespWire:
    """One connection."""

    def __init__(self, address: tuple[str, int], version: int = 2, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._deadline_seconds = deadline_seconds
        self._socket = socket.create_connection(address, timeout=deadline_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self.last_bytes = b""  # of the reply that was received last
        if version == 3:
            self.ask("HELLO", 3)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, *words: str | bytes | int | float) -> None:
        self.send_bytes(command(*words))

    def send_bytes(self, data: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def receive(self, within_seconds: float | None = None) -> Any:
        """The next reply; raises ConnectionError when the other side has hung up."""
        deadline = time.monotonic() + (within_seconds or self._deadline_seconds)
        while True:
            found = split_reply(self._received) if self._received else None
            if found is not None:
                reply, end = found
                self.last_bytes, self._received = self._received[:end], self._received[end:]
                return reply
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError(f"hung up, after {self._received!r}")
            self._received += data

    def ask(self, *words: str | bytes | int | float) -> Any:
        self.send(*words)
        return self.receive()

    def ask_all(self, *commands: tuple[str | bytes | int | float, ...]) -> list[Any]:
        """Send these in one piece; their replies."""
        self.send_bytes(b"".join(command(*words) for words in commands))
        return [self.receive() for _ in commands]
