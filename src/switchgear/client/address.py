"""Addresses of servers: `gearman://HOST:PORT`, `http://HOST:PORT/PATH`, and the base class of other addresses."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, Self

from switchgear.client.connection_security import NO_SECURITY, ConnectionSecurity
from switchgear.errors import ConfigError
from switchgear.numbers import whole_number
from switchgear.protocol_registry import MAX_PORT
from switchgear.protocols.gearman.plugin import PLUGIN
from switchgear.text import without_secrets

if TYPE_CHECKING:
    import ssl

__all__ = [
    "DEFAULT_PORT",
    "DEFAULT_URL",
    "Address",
    "HttpServerAddress",
    "Locator",
    "ServerAddress",
    "server_address",
]

DEFAULT_PORT: Final = PLUGIN.default_port
TLS_SCHEME: Final = "gearmans"
DEFAULT_URL: Final = f"gearman://127.0.0.1:{DEFAULT_PORT}"

_URL: Final = re.compile(
    r"(?:(?P<scheme>[a-z][a-z0-9+.-]*)://)?(?:\[(?P<six>[0-9a-f:.%\w]+)\]|(?P<host>[\w.-]+))(?::(?P<port>[0-9]+))?/?",
    re.I,
)


_PATH: Final = re.compile(r"[\w.~!$&'()*,;=:@%/-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port, written as a URL, or as HOST or HOST:PORT."""

    scheme: ClassVar[str]
    other_schemes: ClassVar[tuple[str, ...]] = ()  # synonyms
    default_port: ClassVar[int]
    rule: ClassVar[str]  # the beginning of the error for any other scheme

    host: str  # a name or an address, IPv6 without its brackets
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a URL; raises ConfigError."""
        match = _URL.fullmatch(text.strip())
        text = without_secrets(text)  # as it is shown from here on
        if match is None:
            raise ConfigError(f'"{text}" is not of the form {cls.scheme}://HOST:PORT')
        if (match["scheme"] or cls.scheme).lower() not in (cls.scheme, *cls.other_schemes):
            raise ConfigError(f'"{text}": {cls.rule}, not {match["scheme"]}://')
        port = whole_number(match["port"].encode()) if match["port"] else int(cls.default_port)
        if not port or port > MAX_PORT:
            raise ConfigError(f'"{text}" has the port {match["port"]}; ports are 1 to {MAX_PORT}')
        return cls.of_scheme((match["scheme"] or cls.scheme).lower(), match["six"] or match["host"], port)

    @classmethod
    def of_scheme(cls, scheme: str, host: str, port: int) -> Self:
        """The address of a URL with one of the class's schemes."""
        return cls(host, port)

    @property
    def is_six(self) -> bool:
        """Whether the host is an IPv6 address."""
        return ":" in self.host

    @property
    def endpoint(self) -> str:
        """The address as a ZeroMQ endpoint."""
        return f"tcp://{self._place}"

    @property
    def _place(self) -> str:
        return f"[{self.host}]:{self.port}" if self.is_six else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self._place}"


@dataclass(frozen=True, slots=True)
class ServerAddress(Address):
    """A Gearman server's host and port; `gearmans://` for one that speaks TLS."""

    scheme: ClassVar[str] = "gearman"
    tls_scheme: ClassVar[str] = TLS_SCHEME
    other_schemes: ClassVar[tuple[str, ...]] = (TLS_SCHEME,)
    default_port: ClassVar[int] = DEFAULT_PORT
    rule: ClassVar[str] = "clients and workers speak gearman://, gearmans://, http:// or https://"

    port: int = DEFAULT_PORT
    uses_tls: bool = False
    security: ConnectionSecurity = field(default=NO_SECURITY, compare=False, repr=False)

    @classmethod
    def of_scheme(cls, scheme: str, host: str, port: int) -> Self:
        return cls(host, port, scheme == cls.tls_scheme, ConnectionSecurity.from_environment())

    def secured_by(self, security: ConnectionSecurity) -> Self:
        """The same address with other settings of the client."""
        return replace(self, security=security)

    @property
    def token(self) -> str:
        """The token to send there; raises ConfigError if others could read it on its way."""
        token = self.security.token
        if token and not self.uses_tls and not is_loopback(self.host):
            raise ConfigError(f"the token is not sent to {self}, which is not encrypted; use {self.tls_scheme}://")
        return token

    def tls_context(self) -> ssl.SSLContext | None:
        """What encrypts connections; `None` if they are not. Raises ConfigError."""
        return self.security.tls_context() if self.uses_tls else None

    def __str__(self) -> str:
        return f"{self.tls_scheme if self.uses_tls else self.scheme}://{self._place}"


@dataclass(frozen=True, slots=True)
class HttpServerAddress(ServerAddress):
    """The HTTP interface of a server: host, port, and the path at which a proxy has it; `https://` with TLS."""

    scheme: ClassVar[str] = "http"
    tls_scheme: ClassVar[str] = "https"
    other_schemes: ClassVar[tuple[str, ...]] = ("https",)
    rule: ClassVar[str] = "the HTTP interface is at http:// or https://"

    path: str = ""  # without a slash at its end

    @classmethod
    def parse(cls, text: str) -> Self:
        scheme, _, rest = text.strip().partition("://")
        place, slash, path = rest.partition("/")
        if not re.search(r":[0-9]+$", place):
            place += ":443" if scheme.lower() == cls.tls_scheme else ":80"
        if slash and not _PATH.fullmatch(path):
            raise ConfigError(f'"{without_secrets(text)}" is not of the form http://HOST:PORT/PATH')
        # Not super() without arguments: a class with slots is made a second time.
        address = super(HttpServerAddress, cls).parse(f"{scheme}://{place}")
        path = path.rstrip("/")
        return replace(address, path=f"/{path}" if path else "")

    @property
    def host_header(self) -> str:
        """The value of the header Host."""
        usual = 443 if self.uses_tls else 80
        host = f"[{self.host}]" if self.is_six else self.host
        return host if self.port == usual else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{super(HttpServerAddress, self).__str__()}{self.path}"


def server_address(text: str) -> ServerAddress:
    """The address of a URL, `gearman://`, `gearmans://`, `http://` or `https://`; raises ConfigError."""
    scheme = text.strip().partition("://")[0].lower()
    kind = HttpServerAddress if scheme in (HttpServerAddress.scheme, HttpServerAddress.tls_scheme) else ServerAddress
    return kind.parse(text)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name or address."""
    if host.lower() == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


class Locator(Protocol):
    """Finds the address of a server that may move."""

    def address(self) -> ServerAddress:
        """The address of the server now; may block for a moment.  Raises ServerUnreachable."""
