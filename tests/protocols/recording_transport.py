"""`RecordingTransport`: the transport of a connection without a socket, which remembers what was written."""

from __future__ import annotations

from collections.abc import Callable

from switchgear.protocols.transport import PeerTransport
from switchgear.testing.in_memory_context import InMemoryContext


class RecordingTransport(PeerTransport):
    """Remembers what was written, and closes the session after it was closed itself."""

    def __init__(self, context: InMemoryContext, host: str = "10.0.0.1") -> None:
        self.context = context
        self.host = host
        self.written = b""
        self.is_closed = False

    def is_read(self) -> bool:
        """Whether the peer reads what it is sent."""
        return True

    def when_taken(self, go_on: Callable[[], None]) -> None:
        if self.is_read():
            self.context.soon(go_on)

    def write(self, out: list[bytes]) -> None:
        data = b"".join(out)
        assert not (data and self.is_closed), "written to after it was closed"
        self.written += data

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            if self.session is not None:
                self.context.soon(self.session.closed)
