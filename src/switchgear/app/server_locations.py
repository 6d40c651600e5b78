"""Where the servers of an app are: at an address that is known, or wherever the engine of a directory lives now."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from switchgear.client.address import ServerAddress

__all__ = ["EMBEDDED_SCHEME", "FixedLocation", "ServerLocation", "place_at"]

EMBEDDED_SCHEME: Final = "embedded:"


class ServerLocation(ABC):
    """Where one server can be reached."""

    directory: Path | None = None  # where its jobs are, if it is that of a directory
    start_seconds: float = 0.0  # how long `address` may take where the server has to be started first

    @abstractmethod
    def address(self) -> ServerAddress:
        """Where it is now; raises ServerUnreachable.

        Asked before every attempt to connect, because it may have moved.  This may block for a moment, and may start
        the server in this process, so it is not for the thread of an event loop.
        """

    def close(self) -> None:  # noqa: B027 - most places have nothing to let go of
        """This process needs the server no more."""

    @property
    @abstractmethod
    def url(self) -> str:
        """As a user would write it."""


class FixedLocation(ServerLocation):
    """A server that somebody runs."""

    def __init__(self, url: str) -> None:
        self._address = ServerAddress.parse(url)

    def address(self) -> ServerAddress:
        return self._address

    @property
    def url(self) -> str:
        return str(self._address)


def place_at(url: str) -> ServerLocation:
    """The place that a user means by `gearman://HOST:PORT` or `embedded:PATH`; raises ConfigError."""
    if url.strip().startswith(EMBEDDED_SCHEME):
        from switchgear.app.embedded_location import EmbeddedLocation  # with a server of one's own comes more to import

        return EmbeddedLocation(url.strip())
    return FixedLocation(url)
