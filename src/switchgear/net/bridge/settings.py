"""`BridgeSettings`: the settings of a bridge, read from its `redis://` URL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from switchgear.config import ListenUrl
from switchgear.errors import ConfigError
from switchgear.numbers import whole_number

__all__ = ["BridgeSettings", "RedisLocation"]

LEAST_LEASE_SECONDS: Final = 0.2
LEAST_BUSY_SECONDS: Final = 1.0
POLL_SECONDS: Final = 1.0
MOST_DATABASES: Final = 10**6
AUTO: Final = "auto"
NEVER: Final = "never"


@dataclass(frozen=True, slots=True)
class RedisLocation:
    """The address of a Redis, and how to log in there."""

    host: str
    port: int
    database: int = 0
    has_tls: bool = False
    user: str = ""
    password: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def __repr__(self) -> str:
        return f"RedisLocation({self.host!r}, {self.port}, {self.database})"  # without the password


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """Where Redis is, which functions are bridged in each direction, and limits and times."""

    location: RedisLocation
    functions: frozenset[bytes] | None = None  # functions to bridge inbound; None: all that have workers
    # Functions to push in any case; None: those that have GearMonkey workers.
    outbound: frozenset[bytes] | None = frozenset()
    lease_seconds: float = 30.0
    claim: int = 100
    push: int = 1000
    busy_seconds: float = 600.0

    @property
    def poll_seconds(self) -> float:
        """How often pushed jobs are polled: often enough to see progress before a job counts as lost."""
        return min(POLL_SECONDS, self.busy_seconds / 4) if self.busy_seconds else POLL_SECONDS

    @classmethod
    def read(cls, url: ListenUrl) -> BridgeSettings:
        """Read the options of the URL; raises ConfigError."""
        lease_seconds = url.seconds("lease")
        if lease_seconds < LEAST_LEASE_SECONDS:
            raise ConfigError(f"listen: {url}: lease is at least {LEAST_LEASE_SECONDS} seconds")
        busy_seconds = url.seconds("busy")
        if 0 < busy_seconds < LEAST_BUSY_SECONDS:
            raise ConfigError(f"listen: {url}: busy is 0 or at least {LEAST_BUSY_SECONDS:g} second")
        functions = _names(url.text("functions"))
        outbound = url.text("outbound")
        return cls(
            location=_location(url),
            functions=functions or None,
            outbound=None if outbound == AUTO else frozenset() if outbound == NEVER else _names(outbound),
            lease_seconds=lease_seconds,
            claim=int(url.option("claim")),
            push=int(url.option("push")),
            busy_seconds=busy_seconds,
        )


def _location(url: ListenUrl) -> RedisLocation:
    database = url.path.strip("/") or "0"
    number = whole_number(database.encode(), MOST_DATABASES)
    if number is None:
        raise ConfigError(f"listen: {url}: the number of a database is expected after the port, as in /0")
    password = ""
    path = url.text("password_file")
    if path:
        try:
            password = Path(path).read_text(encoding="utf-8").strip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"listen: {url}: cannot read the password: {error}") from error
    ca_file, cert_file, key_file = files = [url.text(name) for name in ("ca_file", "cert_file", "key_file")]
    for file in files:
        if file and not Path(file).is_file():
            raise ConfigError(f"listen: {url}: there is no file {file}")
    return RedisLocation(
        host=url.host,
        port=url.port,
        database=number,
        has_tls=url.uses_tls,
        user=url.text("user"),
        password=password,
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
    )


def _names(text: str) -> frozenset[bytes]:
    return frozenset(name.strip().encode() for name in text.split(",") if name.strip())
