"""A blocking connection to a Gearman server: packets out, packets in."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from typing import Final, Self

from switchgear.client.address import ServerAddress
from switchgear.errors import AlreadySubmitted, JobUnknown, NotFound, ServerRefused, ServerUnreachable
from switchgear.protocols.framing import Message
from switchgear.protocols.gearman.codec import RESPONSE, Decoder

__all__ = [
    "DEFAULT_TIMEOUT_SECONDS",
    "LARGEST_PACKET_BYTES",
    "LONGEST_LINE_BYTES",
    "GearmanConnection",
    "keep_alive",
    "refusal",
    "words_of",
]

DEFAULT_TIMEOUT_SECONDS: Final = 10.0
# Whoever asks a server trusts it with the size of the answer; the decoder reserves nothing in advance anyway.
LARGEST_PACKET_BYTES: Final = 2**32 - 1
LONGEST_LINE_BYTES: Final = 1024 * 1024  # `workers` has one line per connection with all its functions
_READ_BYTES: Final = 256 * 1024
_KEEP_ALIVE_IDLE_SECONDS: Final = 60
_KEEP_ALIVE_INTERVAL_SECONDS: Final = 15
_KEEP_ALIVE_PROBES: Final = 4
# Codes for which there is a more telling class.
_REFUSALS: Final[dict[bytes, type[ServerRefused]]] = {
    b"ALREADY_SUBMITTED": AlreadySubmitted,
    b"JOB_NOT_FOUND": JobUnknown,
    b"NOT_FOUND": NotFound,
}


class GearmanConnection:
    """One socket.  Not for use by several threads at once."""

    def __init__(self, host: str, port: int, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        """Connect; raises ServerUnreachable.

        `timeout_seconds` is how long the server may take to accept the connection, to take the next piece of what is
        sent, and to answer.  How long a job may take is the caller's business: see `receive`.
        """
        self.address = ServerAddress(host, port)
        self.timeout_seconds = timeout_seconds
        self._decoder = Decoder(RESPONSE, LARGEST_PACKET_BYTES, LONGEST_LINE_BYTES)
        self._received: deque[Message] = deque()
        try:
            self._socket = socket.create_connection((host, port), timeout_seconds)
        except (OSError, UnicodeError) as error:
            raise ServerUnreachable(f"cannot connect to {self.address}: {words_of(error)}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(self._socket)

    def find_user(self) -> int | None:
        """The id of the user whose process has answered, if it is on this machine and the system tells; else None."""
        from switchgear.net.peer_user import user_behind  # few ask, and a client needs nothing else of the server

        try:
            peer, here = self._socket.getpeername(), self._socket.getsockname()
        except OSError:  # it has hung up
            return None
        return user_behind((peer[0], peer[1]), (here[0], here[1]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up.  May be called again."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send packets or lines; raises ServerUnreachable."""
        # Not sendall: its timeout is for the whole, and a large payload on a slow line is no reason to give up.
        self._socket.settimeout(self.timeout_seconds)
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._socket.send(rest) :]
        except OSError as error:
            raise self._lost(error) from error

    def receive(self, deadline: float | None = None) -> Message:
        """The next packet or line, waited for until `deadline` on the monotonic clock, or for ever.

        Raises TimeoutError, or ServerUnreachable if the connection is lost.
        """
        while not self._received:
            self._read(deadline)
        return self._received.popleft()

    def receive_answer(self) -> Message:
        """The next packet or line, from a server that has no reason to take long; raises ServerUnreachable."""
        try:
            return self.receive(time.monotonic() + self.timeout_seconds)
        except TimeoutError as error:
            text = f"{self.address} did not answer within {self.timeout_seconds:g} s"
            raise ServerUnreachable(text) from error

    def _read(self, deadline: float | None) -> None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError(f"nothing came from {self.address} in time")
        self._socket.settimeout(left)
        try:
            data = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            return
        except OSError as error:
            raise self._lost(error) from error
        if not data:
            raise ServerUnreachable(f"{self.address} closed the connection")
        self._received.extend(self._decoder.feed(data))
        if self._decoder.failure is not None and not self._received:
            raise ServerUnreachable(f"{self.address} does not speak Gearman: {self._decoder.failure}")

    def _lost(self, error: OSError) -> ServerUnreachable:
        return ServerUnreachable(f"the connection to {self.address} was lost: {words_of(error)}")


def keep_alive(sock: socket.socket) -> None:
    """Notice within some minutes that a silent server is no longer there, for a wait may have no other end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEP_ALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", _KEEP_ALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", _KEEP_ALIVE_PROBES),
    ):
        if hasattr(socket, name):  # not every system has all three
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def refusal(body: bytes) -> ServerRefused:
    """The error that an ERROR packet tells of."""
    code, _, text = body.partition(b"\0")
    kind = _REFUSALS.get(code, ServerRefused)
    return kind(code.decode(errors="replace"), text.decode(errors="replace"))


def words_of(error: OSError | UnicodeError) -> str:
    """What went wrong, without the number."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)  # asyncio puts words of its own beside the number
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
