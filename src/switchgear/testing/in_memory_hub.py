"""`InMemoryHub`: a server without sockets, threads or event loop: engine, store in memory, Gearman sessions.

Each input of a peer is a turn, and when the call returns, the output of the server is in the inboxes of the peers
concerned. Time passes only when a test says so.
"""

from __future__ import annotations

from typing import Final, cast

from switchgear.net.hub import Hub
from switchgear.net.operations.dispatcher import Operations
from switchgear.protocols.gearman.admin import on_line
from switchgear.protocols.gearman.packet_dispatch import handle_messages
from switchgear.protocols.gearman.session import GearmanSession, GearmanSetup
from switchgear.protocols.transport import PeerTransport
from switchgear.testing.clock import FakeClock
from switchgear.testing.in_memory_context import InMemoryContext
from switchgear.version import VERSION

__all__ = ["InMemoryConnection", "InMemoryHub"]

_PREFIX: Final = "H:memory:"
_PACKET_BYTES: Final = 2**32 - 1  # no peer is untrusted here


class InMemoryHub(InMemoryContext):
    """The hub of Gearman sessions in memory, with operator verbs."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.operator = Operations(cast(Hub, self), _PREFIX)
        self.setup = GearmanSetup(_PREFIX.encode(), f"switchgear-{VERSION}", handle_messages, on_line)
        self.setup.packet_bytes = _PACKET_BYTES

    def connect(self) -> InMemoryConnection:
        """Make a new connection."""
        return InMemoryConnection(self)


class InMemoryConnection(PeerTransport):
    """The client's end of a connection to an `InMemoryHub`."""

    def __init__(self, hub: InMemoryHub) -> None:
        self.host = "memory"
        self.hub = hub
        self._inbox: list[bytes] = []
        self.session: GearmanSession = GearmanSession(hub, self, hub.setup)

    def send(self, data: bytes) -> None:
        """Send bytes to the server; the answer can be read when the call returns."""
        if data:
            self.hub.turn(lambda: self.session.receive(data))

    def read(self) -> bytes:
        """What the server has sent since the last call."""
        data, self._inbox = b"".join(self._inbox), []
        return data

    def leave(self) -> None:
        """Close the connection, as a peer does that leaves."""
        self.hub.turn(self.session.closed)

    # --- the hub's end ---

    def write(self, out: list[bytes]) -> None:
        self._inbox += out

    def close(self) -> None:
        """Do nothing: the server does not close connections in memory."""
