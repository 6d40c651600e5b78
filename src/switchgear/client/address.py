"""Where a server is: `gearman://HOST:PORT`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from switchgear.errors import ConfigError

__all__ = ["DEFAULT_PORT", "DEFAULT_URL", "ServerAddress"]

DEFAULT_PORT = 4730
DEFAULT_URL = f"gearman://127.0.0.1:{DEFAULT_PORT}"
_LARGEST_PORT = 65_535

_URL = re.compile(
    r"(?:(?P<scheme>[a-z][a-z0-9+.-]*)://)?(?:\[(?P<six>[0-9a-f:.%\w]+)\]|(?P<host>[\w.-]+))(?::(?P<port>[0-9]+))?/?",
    re.I,
)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server's host and port; written as a URL, or as HOST or HOST:PORT by those who are in a hurry."""

    host: str  # a name or an address, IPv6 without its brackets
    port: int = DEFAULT_PORT

    @classmethod
    def parse(cls, text: str) -> ServerAddress:
        """Read a URL; raises ConfigError."""
        match = _URL.fullmatch(text.strip())
        if match is None:
            raise ConfigError(f'"{text}" is not of the form gearman://HOST:PORT')
        if (match["scheme"] or "gearman").lower() != "gearman":
            raise ConfigError(f'"{text}": clients and workers speak gearman://, not {match["scheme"]}://')
        port = int(match["port"] or DEFAULT_PORT)
        if not 0 < port <= _LARGEST_PORT:
            raise ConfigError(f'"{text}" has the port {port}; ports are 1 to {_LARGEST_PORT}')
        return cls(match["six"] or match["host"], port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"gearman://{host}:{self.port}"
