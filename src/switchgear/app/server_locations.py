"""`ServerLocation`: where an app finds its server: at an address, at the nodes of a cluster, or in a directory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from switchgear.client.address import ServerAddress, server_address
from switchgear.client.cluster_nodes import NODE_SEPARATOR, ClusterNodes
from switchgear.errors import ConfigError

__all__ = ["EMBEDDED_SCHEME", "ClusterLocation", "FixedLocation", "ServerLocation", "location_of", "locations_of"]

EMBEDDED_SCHEME: Final = "embedded:"


class ServerLocation(ABC):
    """The location of one server, which may move."""

    directory: Path | None = None  # where its jobs are, if it is that of a directory
    start_seconds: float = 0.0  # how long `address` may take where the server has to be started first
    addresses_count: int = 1  # how many different ones `address` may give, one after the other

    @abstractmethod
    def address(self) -> ServerAddress:
        """The address of the server now; raises ServerUnreachable.

        Called before every attempt to connect, because the server may have moved.  This may block for a moment, and
        may start the server in this process, so it is not for the thread of an event loop.
        """

    def close(self) -> None:  # noqa: B027 - most locations have nothing to close
        """Release the server, which this process no longer needs."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL of the location, as users write it."""


class FixedLocation(ServerLocation):
    """A server at a fixed address."""

    def __init__(self, url: str, token: str | None = None) -> None:
        address = server_address(url)
        self._address = address.secured_by(address.security.with_token(token))

    def address(self) -> ServerAddress:
        return self._address

    @property
    def url(self) -> str:
        return str(self._address)


class ClusterLocation(ServerLocation):
    """A cluster, at any of its nodes."""

    def __init__(self, url: str, token: str | None = None) -> None:
        nodes = ClusterNodes.parse(url)
        self._nodes = nodes.secured_by(nodes.security.with_token(token))
        self.addresses_count = len(nodes.nodes)

    def address(self) -> ServerAddress:
        return self._nodes.address()

    @property
    def url(self) -> str:
        return str(self._nodes)


def location_of(url: str, token: str | None = None) -> ServerLocation:
    """The location of a URL, `gearman://HOST:PORT`, `http://HOST:PORT`, either with TLS, or `embedded:PATH`;
    raises ConfigError.

    `gearman://HOST:PORT+HOST:PORT` is a cluster. `token` identifies the client; default: that of the environment.
    """
    if url.strip().startswith(EMBEDDED_SCHEME):
        from switchgear.app.embedded_location import EmbeddedLocation  # with a server of one's own comes more to import

        return EmbeddedLocation(url.strip())
    return ClusterLocation(url, token) if NODE_SEPARATOR in url else FixedLocation(url, token)


def locations_of(urls: str | Iterable[str], token: str | None) -> list[ServerLocation]:
    """The servers of an app; raises ConfigError."""
    listed = [urls] if isinstance(urls, str) else list(urls) if isinstance(urls, Iterable) else [urls]
    if not all(isinstance(url, str) for url in listed):
        raise ConfigError(f"urls is the URL of a server, or a list of them, not {urls!r}")
    if not listed:
        raise ConfigError("an app needs the URL of a server")
    return [location_of(url, token) for url in listed]
