"""`ListenUrl`: a listening address as a URL, `gearman://HOST:PORT?key=value`.

The scheme names the protocol, whose default port and options are in the registry (switchgear/protocol_registry.py).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import parse_qsl

from switchgear.numbers import whole_number
from switchgear.protocol_registry import (
    ACCESS_KINDS,
    MAX_PORT,
    OPEN,
    OUTGOING_TLS_OPTIONS,
    ProtocolPlugin,
    access_kinds,
    built_in_protocols,
    find_protocol,
    protocol_named,
)
from switchgear.text import without_secrets

__all__ = ["ListenUrl", "is_protected", "tls_problem"]

_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://"
    r"(?P<host>\[[^\[\]]*\]|[^\[\]:/?#@]*)"
    r"(?::(?P<port>[0-9]*))?"
    r"(?P<path>/[^?#]*)?"
    r"(?:\?(?P<query>[^#]*))?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ListenUrl:
    """One listening address and what is spoken there.  Port 0 asks the system for a free one."""

    scheme: str
    host: str  # an address or a name; IPv6 without its brackets
    port: int
    options: Mapping[str, str] = field(default_factory=dict)
    path: str = ""  # after the port, for schemes with a path

    @classmethod
    def parse(cls, text: str) -> ListenUrl:
        """Parse a URL; raises ValueError that says what is wrong with it."""
        match = _URL.fullmatch(text.strip())
        text = without_secrets(text)  # as it is shown from here on
        if match is None and "@" in text:
            # Not shown: there may be a password in it.
            raise ValueError(
                "a URL with a user or password before its host is not of the form SCHEME://HOST:PORT;"
                " it is shown in logs, so for redis:// there are the options user and password_file"
            )
        if match is None:
            raise ValueError(f'"{text}" is not of the form SCHEME://HOST:PORT')
        name = match["scheme"].lower()
        protocol = find_protocol(name)
        if protocol is None:
            schemes = built_in_protocols()
            known = ", ".join(schemes)
            raise ValueError(f'"{text}" has the unknown scheme {name}{_perhaps(name, schemes)} (known: {known})')
        port = whole_number(match["port"].encode(), MAX_PORT) if match["port"] else protocol.default_port
        if port is None:
            raise ValueError(f'"{text}" has the port {match["port"]}; the largest is {MAX_PORT}')
        path = (match["path"] or "").removesuffix("/")
        if path and not protocol.is_outgoing:
            raise ValueError(f'"{text}" is not of the form SCHEME://HOST:PORT')
        return cls(name, _host(match["host"], text), port, _options(match["query"] or "", protocol, text), path)

    def option(self, name: str) -> str | float | int:
        """The value of an option in the URL, or its default."""
        option = protocol_named(self.scheme).options[name]
        text = self.options.get(name, option.default)
        return option.read(text) if text else text

    def text(self, name: str) -> str:
        return str(self.option(name))

    def seconds(self, name: str) -> float:
        return float(self.option(name))

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted by TLS."""
        return self.options.get("tls", "no").lower() == "yes"

    @property
    def access(self) -> frozenset[str]:
        """The kinds of credentials that are accepted, or only `open`; see `access_kinds`."""
        return access_kinds(self.options.get("access", "") or ",".join(ACCESS_KINDS))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect; False for names other than `localhost`, which may mean any address."""
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
        return f"{self.scheme}://{host}:{self.port}{self.path}" + (f"?{query}" if query else "")

    def __hash__(self) -> int:
        return hash(str(self))


def _host(written: str, url: str) -> str:
    host = written.removeprefix("[").removesuffix("]")
    if host in ("", "*"):
        # Guessing "everywhere" would open a port to the world by a typing error.
        raise ValueError(f'"{url}" names no address; every address is 0.0.0.0 (IPv4) or [::] (IPv6)')
    if written.startswith("["):
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError(f'"{url}" has brackets around {host}, which is not an IPv6 address') from None
    elif re.fullmatch(r"[\w.-]+", host) is None:
        raise ValueError(f'"{url}" has the host {host!r}, which is neither an address nor a name')
    return host


def _options(query: str, protocol: ProtocolPlugin, url: str) -> dict[str, str]:
    options: dict[str, str] = {}
    if any(key == "password" for key, _ in parse_qsl(query)) and "password_file" in protocol.options:
        raise ValueError(f'"{url}" has a password in it, and is shown in logs; put it in a file: password_file=FILE')
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in protocol.options:
            raise ValueError(f'"{url}" has the unknown option {key}{_perhaps(key, protocol.options)}')
        if key in options:
            raise ValueError(f'"{url}" gives the option {key} twice')
        try:
            protocol.options[key].read(value)
        except ValueError as error:
            raise ValueError(f'"{url}", option {key}: {error}') from None
        options[key] = value
    return options


def tls_problem(url: ListenUrl) -> str:
    """What is wrong with the TLS and access options of a URL; empty if nothing is."""
    if protocol_named(url.scheme).is_outgoing:
        return _outgoing_tls_problem(url)
    if url.uses_tls and not url.options.get("cert"):
        return f"{url} has tls=yes and names no certificate: cert=FILE"
    named = [name for name in ("cert", "key", "client_ca") if url.options.get(name)]
    if named and not url.uses_tls:
        return f"{url} has {named[0]}, and no tls=yes"
    if url.access == {"certificate"} and not url.options.get("client_ca"):
        return f"{url} accepts only client certificates, and names no authority for them: client_ca=FILE"
    return ""


def _outgoing_tls_problem(url: ListenUrl) -> str:
    if "tls" not in protocol_named(url.scheme).options:
        return ""
    named = [name for name in OUTGOING_TLS_OPTIONS if name != "tls" and url.options.get(name)]
    if named and not url.uses_tls:
        return f"{url} has {named[0]}, and no tls=yes"
    if "key_file" in named and "cert_file" not in named:
        return f"{url} has key_file, and no cert_file"
    return ""


def is_protected(url: ListenUrl, *, has_identities: bool) -> bool:
    """Whether a TCP listener is encrypted, and knows who connects."""
    return url.uses_tls and (bool(url.options.get("client_ca")) or (has_identities and OPEN not in url.access))


def _perhaps(word: str, known: Mapping[str, object]) -> str:
    if word.endswith("s") and word[:-1] in ("gearman", "gearmonkey", "http"):  # as clients write it
        return f"; did you mean {word[:-1]} with the options tls=yes, cert and key?"
    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
