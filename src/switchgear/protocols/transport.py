"""`PeerTransport`: the connection of a session, as sessions see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mypy_extensions import mypyc_attr

from switchgear.access.identities import OPEN_ACCESS, ListenerAccess
from switchgear.access.permissions import FULL_PERMISSIONS, Permissions

if TYPE_CHECKING:
    from switchgear.protocols.session import ByteSession

__all__ = ["PeerTransport"]


@mypyc_attr(allow_interpreted_subclasses=True)
class PeerTransport(ABC):
    """The connection of a session. Sessions read its properties; only the hub writes to it."""

    session: ByteSession | None = None  # the session that uses it; another may replace it
    host: str = ""
    port: int = 0
    descriptor: int = -1
    is_loopback: bool = True
    access: ListenerAccess = OPEN_ACCESS  # which identities its listener accepts
    permissions: Permissions = FULL_PERMISSIONS  # of the peer, by its certificate or key, or of everybody
    is_encrypted: bool = False

    @abstractmethod
    def write(self, out: list[Any]) -> None:
        """Send the output of a session: pieces of bytes, or whole messages where the transport carries those."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection, after everything written was sent."""

    def is_of_same_user(self) -> bool:
        """Whether the peer is a process of this machine that runs as the server's own user or as root."""
        return False

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were written, and the peer has not read."""
        return 0

    def give_up_on_slow_reader(self, waiting_bytes: int) -> None:
        """Close the connection at once: too much output would be unread."""
        self.close()

    def when_taken(self, go_on: Callable[[], None]) -> None:
        """Call this when the peer has read most of its output; read no input until then."""
        go_on()
