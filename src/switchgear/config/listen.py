"""`ListenUrl`: a listening address as a URL, `gearman://HOST:PORT?key=value`.

A scheme names what is spoken there.  Adding a protocol to the server adds a row to `SCHEMES`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import parse_qsl

from switchgear.numbers import whole_number
from switchgear.text import without_secrets

__all__ = ["SCHEMES", "ListenUrl", "Option", "Scheme"]

MAX_PORT = 65_535
LONGEST_NAME = 255  # ZeroMQ has no longer names
MAX_SECONDS = 10 * 365 * 86_400
MAX_COUNT = 1_000_000

_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://"
    r"(?P<host>\[[^\[\]]*\]|[^\[\]:/?#@]*)"
    r"(?::(?P<port>[0-9]*))?"
    r"(?P<path>/[^?#]*)?"
    r"(?:\?(?P<query>[^#]*))?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a listening URL, after the question mark."""

    default: str
    help: str
    kind: str = "text"  # or "seconds", "port" or "count"

    def read(self, text: str) -> str | float | int:
        """The value; raises ValueError that says what is wrong with it."""
        if self.kind == "text":
            if not 0 < len(text.encode()) <= LONGEST_NAME:
                raise ValueError(f"it has not between 1 and {LONGEST_NAME} bytes")
            return text
        if self.kind == "port":
            port = whole_number(text.encode(), MAX_PORT)
            if port is None:
                raise ValueError(f"{text!r} is not a port")
            return port
        if self.kind == "count":
            count = whole_number(text.encode(), MAX_COUNT)
            if not count:
                raise ValueError(f"{text!r} is not a number between 1 and {MAX_COUNT}")
            return count
        try:
            seconds = float(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a number of seconds") from None
        if not 0 <= seconds <= MAX_SECONDS:
            raise ValueError(f"{text} is not between 0 and {MAX_SECONDS} seconds")
        return seconds


@dataclass(frozen=True, slots=True)
class Scheme:
    """The scheme of a listening URL, with its default port and options."""

    default_port: int
    options: Mapping[str, Option] = field(default_factory=dict)
    has_curve: bool = False  # can be encrypted and closed to strangers, by the settings of ZeroMQ
    dials: bool = False  # a foreign server that this one connects to; only if it is named


SCHEMES: Mapping[str, Scheme] = {
    "gearman": Scheme(default_port=4730),
    "wmp": Scheme(
        default_port=5714,
        has_curve=True,
        options={
            "identity": Option(
                "", "the identity of the manager, different from those of other managers; default: host name and port"
            ),
            "timeout": Option(
                "600",
                "seconds after which a job goes to another worker, if its worker promises no heartbeats; 0: never",
                "seconds",
            ),
        },
    ),
    "pingpong": Scheme(
        default_port=5562,
        has_curve=True,
        options={
            "workers": Option("5563", "the port for workers", "port"),
            "function": Option("pingpong", "the function of the jobs"),
            "expire": Option(
                "3",
                "WORKER_EXPIRE_SECONDS: seconds of silence after which an idle worker gets no job; 0: never",
                "seconds",
            ),
            "resend": Option(
                "60",
                "seconds after which a job is sent to another worker, if its worker has not answered; 0: never",
                "seconds",
            ),
        },
    ),
    "dwork": Scheme(
        default_port=6125,
        has_curve=True,
        options={
            "function": Option("dwork", "the function whose jobs are the tasks"),
            "lease": Option(
                "3600",
                "seconds of silence after which the tasks of a worker are assigned to others; 0: never",
                "seconds",
            ),
        },
    ),
    "gearmonkey": Scheme(default_port=6380),
    "redis": Scheme(
        default_port=6379,
        dials=True,
        options={
            "functions": Option(
                "", "take only jobs of these functions, separated by commas; default: all with workers"
            ),
            "outbound": Option(
                "auto",
                "functions whose jobs GearMonkey workers get if the server has no worker for them:"
                " those with registered GearMonkey workers (`auto`), none (`never`), or these, separated by commas",
            ),
            "lease": Option(
                "30", "seconds after the last heartbeat of a server until its jobs are available to others", "seconds"
            ),
            "claim": Option(
                "100", "the maximum number of jobs of a function that are taken ahead of their workers", "count"
            ),
            "push": Option(
                "1000",
                "the maximum number of jobs that are in Redis at once, waiting or with GearMonkey workers",
                "count",
            ),
            "busy": Option(
                "600",
                "seconds without progress after which a job of a GearMonkey worker is lost; 0: never",
                "seconds",
            ),
            "user": Option("", "the user name for the login"),
            "password_file": Option("", "a file with the password"),
            "tls": Option("no", "`yes`: the connection is encrypted"),
            "ca_file": Option("", "trusted certificates for `tls=yes`; default: those of the system"),
        },
    ),
}


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
        """Read a URL; raises ValueError that says what is wrong with it."""
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
        scheme = SCHEMES.get(name)
        if scheme is None:
            known = ", ".join(SCHEMES)
            raise ValueError(f'"{text}" has the unknown scheme {name}{_perhaps(name, SCHEMES)} (known: {known})')
        port = whole_number(match["port"].encode(), MAX_PORT) if match["port"] else scheme.default_port
        if port is None:
            raise ValueError(f'"{text}" has the port {match["port"]}; the largest is {MAX_PORT}')
        path = (match["path"] or "").removesuffix("/")
        if path and not scheme.dials:
            raise ValueError(f'"{text}" is not of the form SCHEME://HOST:PORT')
        return cls(name, _host(match["host"], text), port, _options(match["query"] or "", scheme, text), path)

    def option(self, name: str) -> str | float | int:
        """The value of an option in the URL, or its default."""
        option = SCHEMES[self.scheme].options[name]
        text = self.options.get(name, option.default)
        return option.read(text) if text else text

    def text(self, name: str) -> str:
        return str(self.option(name))

    def seconds(self, name: str) -> float:
        return float(self.option(name))

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
    if any(key == "password" for key, _ in parse_qsl(query)) and "password_file" in scheme.options:
        raise ValueError(f'"{url}" has a password in it, and is shown in logs; put it in a file: password_file=FILE')
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in scheme.options:
            raise ValueError(f'"{url}" has the unknown option {key}{_perhaps(key, scheme.options)}')
        if key in options:
            raise ValueError(f'"{url}" gives the option {key} twice')
        try:
            scheme.options[key].read(value)
        except ValueError as error:
            raise ValueError(f'"{url}", option {key}: {error}') from None
        options[key] = value
    return options


def _perhaps(word: str, known: Mapping[str, object]) -> str:
    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
