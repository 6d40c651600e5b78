"""Where to listen, written as a URL: `gearman://HOST:PORT?key=value`.

A scheme names what is spoken there.  Adding a protocol to the server adds a row to `SCHEMES`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import parse_qsl

__all__ = ["SCHEMES", "ListenUrl", "Scheme"]

MAX_PORT = 65_535

_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://"
    r"(?P<host>\[[^\[\]]*\]|[^\[\]:/?#@]*)"
    r"(?::(?P<port>[0-9]*))?"
    r"/?"
    r"(?:\?(?P<query>[^#]*))?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Scheme:
    """What a listener's URL may say."""

    default_port: int
    options: frozenset[str] = frozenset()  # names allowed after the question mark


SCHEMES: Mapping[str, Scheme] = {
    "gearman": Scheme(default_port=4730),
}


@dataclass(frozen=True, slots=True)
class ListenUrl:
    """One listening address and what is spoken there.  Port 0 asks the system for a free one."""

    scheme: str
    host: str  # an address or a name; IPv6 without its brackets
    port: int
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> ListenUrl:
        """Read a URL; raises ValueError that says what is wrong with it."""
        match = _URL.fullmatch(text.strip())
        if match is None:
            raise ValueError(f'"{text}" is not of the form SCHEME://HOST:PORT')
        name = match["scheme"].lower()
        scheme = SCHEMES.get(name)
        if scheme is None:
            known = ", ".join(SCHEMES)
            raise ValueError(f'"{text}" has the unknown scheme {name}{_perhaps(name, SCHEMES)} (known: {known})')
        port = int(match["port"]) if match["port"] else scheme.default_port
        if port > MAX_PORT:
            raise ValueError(f'"{text}" has the port {port}; the largest is {MAX_PORT}')
        return cls(name, _host(match["host"], text), port, _options(match["query"] or "", scheme, text))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect.  A name that is not `localhost` may mean any address: no."""
        if self.host.lower() == "localhost" or self.host.lower().endswith(".localhost"):
            return True
        try:
            address = ipaddress.ip_address(self.host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            return address.ipv4_mapped.is_loopback
        return address.is_loopback

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        query = "&".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.scheme}://{host}:{self.port}" + (f"?{query}" if query else "")

    def __hash__(self) -> int:
        return hash(str(self))


def _host(written: str, url: str) -> str:
    host = written.removeprefix("[").removesuffix("]")
    if host in ("", "*"):
        # Guessing "everywhere" would open a port to the world by a slip of the pen.
        raise ValueError(f'"{url}" names no address; every address is 0.0.0.0 (IPv4) or [::] (IPv6)')
    if written.startswith("["):
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError(f'"{url}" has brackets around {host}, which is not an IPv6 address') from None
    elif re.fullmatch(r"[\w.-]+", host) is None:
        raise ValueError(f'"{url}" has the host {host!r}, which is neither an address nor a name')
    return host


def _options(query: str, scheme: Scheme, url: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in scheme.options:
            raise ValueError(f'"{url}" has the unknown option {key}{_perhaps(key, scheme.options)}')
        if key in options:
            raise ValueError(f'"{url}" gives the option {key} twice')
        options[key] = value
    return options


def _perhaps(word: str, known: Mapping[str, object] | frozenset[str]) -> str:
    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
