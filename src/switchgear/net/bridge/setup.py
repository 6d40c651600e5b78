"""What a bridge is told by its address."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from switchgear.config import ListenUrl
from switchgear.errors import ConfigError
from switchgear.numbers import whole_number

__all__ = ["BridgeSetup", "Place"]

LEAST_LEASE_SECONDS: Final = 0.2
LEAST_BUSY_SECONDS: Final = 1.0
POLL_SECONDS: Final = 1.0
MOST_DATABASES: Final = 10**6
AUTO: Final = "auto"
NEVER: Final = "never"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the Redis is, and how to be let in."""

    host: str
    port: int
    database: int = 0
    has_tls: bool = False
    user: str = ""
    password: str = ""
    ca_file: str = ""

    def __repr__(self) -> str:
        return f"Place({self.host!r}, {self.port}, {self.database})"  # never the password


@dataclass(frozen=True, slots=True)
class BridgeSetup:
    """How a bridge goes about its work."""

    place: Place
    functions: frozenset[bytes] | None = None  # inbound only these; None: all that have workers
    outbound: frozenset[bytes] | None = frozenset()  # always these; None: those that GearMonkey workers are counted for
    lease_seconds: float = 30.0
    claim: int = 100
    push: int = 1000
    busy_seconds: float = 600.0

    @property
    def poll_seconds(self) -> float:
        """How often pushed jobs are looked at: often enough to see that one is not lost."""
        return min(POLL_SECONDS, self.busy_seconds / 4) if self.busy_seconds else POLL_SECONDS

    @classmethod
    def read(cls, url: ListenUrl) -> BridgeSetup:
        """What the URL says; raises ConfigError."""
        lease_seconds = url.seconds("lease")
        if lease_seconds < LEAST_LEASE_SECONDS:
            raise ConfigError(f"listen: {url}: lease is at least {LEAST_LEASE_SECONDS} seconds")
        busy_seconds = url.seconds("busy")
        if 0 < busy_seconds < LEAST_BUSY_SECONDS:
            raise ConfigError(f"listen: {url}: busy is 0 or at least {LEAST_BUSY_SECONDS:g} second")
        functions = _names(url.text("functions"))
        outbound = url.text("outbound")
        return cls(
            place=_place(url),
            functions=functions or None,
            outbound=None if outbound == AUTO else frozenset() if outbound == NEVER else _names(outbound),
            lease_seconds=lease_seconds,
            claim=int(url.option("claim")),
            push=int(url.option("push")),
            busy_seconds=busy_seconds,
        )


def _place(url: ListenUrl) -> Place:
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
    if url.text("tls") not in ("yes", "no"):
        raise ConfigError(f"listen: {url}: tls is yes or no")
    ca_file = url.text("ca_file")
    if ca_file and not Path(ca_file).is_file():
        raise ConfigError(f"listen: {url}: there is no file {ca_file}")
    return Place(
        host=url.host,
        port=url.port,
        database=number,
        has_tls=url.text("tls") == "yes",
        user=url.text("user"),
        password=password,
        ca_file=ca_file,
    )


def _names(text: str) -> frozenset[bytes]:
    return frozenset(name.strip().encode() for name in text.split(",") if name.strip())
