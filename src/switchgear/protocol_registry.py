"""The registry of protocols: the scheme, default port, URL options, roles and session factory of each.

A protocol declares itself in a module `plugin.py` of its folder, as a `ProtocolPlugin` named PLUGIN. All users of the
list of protocols read it here: listening URLs, settings, listeners, `serve --help`, the demo, the tests of every
submitter with every worker, and the tables in the documents.

A declaration imports nothing but this module.  It names the class that makes its sessions as a text, "MODULE:CLASS",
which is imported when a server listens for the protocol.  So a server that listens only for Gearman needs neither the
modules nor the dependencies of other protocols.

Another package adds a protocol with an entry point in the group "switchgear.protocols", whose name is the scheme and
whose value is the ProtocolPlugin.  The server listens for it if a URL says so, and never by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, Final

from switchgear.errors import ConfigError
from switchgear.numbers import whole_number
from switchgear.resources import resource_amounts
from switchgear.tags import tag_set
from switchgear.units import parse_duration

__all__ = [
    "ACCESS_KINDS",
    "ENTRY_POINT_GROUP",
    "FORWARDING_OPTIONS",
    "MAX_PORT",
    "OPEN",
    "OUTGOING_TLS_OPTIONS",
    "ListenerKind",
    "ProtocolPage",
    "ProtocolPlugin",
    "UrlOption",
    "access_kinds",
    "built_in_protocols",
    "find_protocol",
    "load_factory",
    "protocol_named",
]

ENTRY_POINT_GROUP: Final = "switchgear.protocols"
MAX_PORT: Final = 65_535

# In the order of lists and of the default listeners.
_BUILT_IN_PLUGINS: Final = (
    "switchgear.protocols.gearman.plugin",
    "switchgear.protocols.wmp.plugin",
    "switchgear.protocols.pingpong.plugin",
    "switchgear.protocols.dwork.plugin",
    "switchgear.protocols.gearmonkey.plugin",
    "switchgear.protocols.http.plugin",
    "switchgear.protocols.gearmonkey.bridge_plugin",
    "switchgear.protocols.gearman.forwarding_plugin",
    "switchgear.protocols.wmp.forwarding_plugin",
)
_LONGEST_NAME: Final = 255  # the maximum in ZeroMQ
_MAX_SECONDS: Final = 10 * 365 * 86_400
_MAX_COUNT: Final = 1_000_000


class ListenerKind(Enum):
    """How peers of a protocol are connected to the server."""

    TCP = "tcp"  # one session for each TCP connection
    ZEROMQ = "zeromq"  # one session for all peers of a ZeroMQ ROUTER socket; CURVE encrypts it if the settings say so
    OUTGOING = "outgoing"  # the server connects to another server, which the URL names


@dataclass(frozen=True, slots=True)
class UrlOption:
    """An option of a listening URL, after the question mark."""

    default: str
    help: str
    kind: str = "text"  # or "seconds", "port", "count", "flag", "tags", "resources" or "access"
    choices: tuple[str, ...] = ()  # the only values, if there are some

    def read(self, text: str) -> str | float | int:
        """The value; raises ValueError that says what is wrong with it."""
        if self.choices and text not in self.choices:
            raise ValueError(f"{text!r} is none of {', '.join(self.choices)}")
        if self.kind == "text":
            if not 0 < len(text.encode()) <= _LONGEST_NAME:
                raise ValueError(f"it has not between 1 and {_LONGEST_NAME} bytes")
            return text
        if self.kind == "port":
            port = whole_number(text.encode(), MAX_PORT)
            if port is None:
                raise ValueError(f"{text!r} is not a port")
            return port
        if self.kind == "count":
            count = whole_number(text.encode(), _MAX_COUNT)
            if not count:
                raise ValueError(f"{text!r} is not a number between 1 and {_MAX_COUNT}")
            return count
        if self.kind == "flag":
            if text.lower() not in ("yes", "no"):
                raise ValueError(f"{text!r} is neither yes nor no")
            return text.lower()
        if self.kind == "tags":
            tag_set(text)
            return text
        if self.kind == "access":
            access_kinds(text)
            return text
        if self.kind == "resources":
            resource_amounts(text)
            return text
        seconds = parse_duration(text)
        if not 0 <= seconds <= _MAX_SECONDS:
            raise ValueError(f"{text} is not between 0 and {_MAX_SECONDS} seconds")
        return seconds


# The kinds of credentials that a listener may accept, and `open`: every peer may do everything.
ACCESS_KINDS: Final = ("anonymous", "token", "certificate", "curve")
OPEN: Final = "open"


def access_kinds(text: str) -> frozenset[str]:
    """The kinds of credentials in the option `access` of a listening URL; raises ValueError. `open` stands alone."""
    words = [word.strip().lower() for word in text.split(",")]
    for word in words:
        if word not in (OPEN, *ACCESS_KINDS):
            raise ValueError(f"{word!r} is none of {', '.join((OPEN, *ACCESS_KINDS))}")
    if OPEN in words and len(words) > 1:
        raise ValueError("open means that every peer may do everything, and stands alone")
    return frozenset(words)


# Every listener has this option.
ACCESS_OPTION: Final = UrlOption(
    "",
    "with an access file, who may connect: some of anonymous, token, certificate and curve, separated by commas, or"
    " open for everybody; default: all four",
    "access",
)

# Every listener on TCP has these options.
TLS_OPTIONS: Final[Mapping[str, UrlOption]] = {
    "tls": UrlOption("no", "whether connections are encrypted by TLS", "flag"),
    "cert": UrlOption("", "the file with the server's certificate and those between it and the authority (PEM)"),
    "key": UrlOption("", "the file with the private key (PEM); default: it is in the file of the certificate"),
    "client_ca": UrlOption(
        "", "the file with the authorities of client certificates (PEM); without an access file, clients need one"
    ),
}


# Every scheme by which the server is a client of another one over TCP has these options.
OUTGOING_TLS_OPTIONS: Final[Mapping[str, UrlOption]] = {
    "tls": UrlOption("no", "`yes`: the connection is encrypted", "flag"),
    "ca_file": UrlOption("", "trusted certificates for `tls=yes`; default: those of the system"),
    "cert_file": UrlOption("", "the client certificate for `tls=yes` (PEM)"),
    "key_file": UrlOption("", "its private key (PEM); default: it is in the file of the certificate"),
}

# Every listener whose peers can run jobs has these options.
TAGS_OPTION: Final = UrlOption(
    "", "tags of all workers at this address, separated by commas: they also get jobs that require them", "tags"
)


RESOURCES_OPTION: Final = UrlOption(
    "",
    "resources of each worker at this address that does not say its own, such as memory=64G,cores=8: it also gets jobs"
    " that require as much, as far as it is free",
    "resources",
)

# Every scheme by which the server is a worker of another one has these.
FORWARDING_OPTIONS: Final[Mapping[str, UrlOption]] = {
    "functions": UrlOption("", "take only jobs of these functions, separated by commas; default: all with workers"),
    "slots": UrlOption("100", "the maximum number of jobs that are taken from there at once", "count"),
}


@dataclass(frozen=True, slots=True)
class ProtocolPage:
    """A page of the documentation about a protocol."""

    title: str
    path: str  # in the repository


@dataclass(frozen=True, slots=True)
class ProtocolPlugin:
    """The declaration of a protocol."""

    scheme: str
    title: str  # the protocol's own name
    default_port: int
    kind: ListenerKind
    factory: str  # "MODULE:CLASS", a subclass of the factory for its kind in switchgear.protocols.session_factory
    summary: str  # one phrase: when to use it
    pages: tuple[ProtocolPage, ...] = ()
    options: Mapping[str, UrlOption] = field(default_factory=dict)
    can_submit: bool = True  # peers can submit jobs
    can_work: bool = True  # peers can run jobs
    reconnects: bool = False  # peers report on new connections, so these are accepted while the server drains
    extra: str = ""  # the optional dependencies of this package that it needs

    def __post_init__(self) -> None:
        options = dict(self.options)
        if self.can_work and not self.is_outgoing:
            options |= {"tags": TAGS_OPTION, "resources": RESOURCES_OPTION}
        if not self.is_outgoing:
            options["access"] = ACCESS_OPTION
        if self.has_tls:
            options |= TLS_OPTIONS
        object.__setattr__(self, "options", options)

    @property
    def has_curve(self) -> bool:
        """Whether the ZeroMQ settings can encrypt listeners of this protocol and restrict them to known peers."""
        return self.kind is ListenerKind.ZEROMQ

    @property
    def has_tls(self) -> bool:
        """Whether TLS can encrypt listeners of this protocol."""
        return self.kind is ListenerKind.TCP

    @property
    def is_outgoing(self) -> bool:
        """Whether the URL names another server, to which this one connects."""
        return self.kind is ListenerKind.OUTGOING


@cache
def built_in_protocols() -> Mapping[str, ProtocolPlugin]:
    """The protocols of this package, by scheme."""
    plugins: list[ProtocolPlugin] = [import_module(name).PLUGIN for name in _BUILT_IN_PLUGINS]
    return {plugin.scheme: plugin for plugin in plugins}


def find_protocol(scheme: str) -> ProtocolPlugin | None:
    """The protocol with this scheme, of this package or another one; `None` if there is none. Raises ConfigError."""
    plugin = built_in_protocols().get(scheme)
    return plugin if plugin is not None else _find_entry_point(scheme)


def protocol_named(scheme: str) -> ProtocolPlugin:
    """The protocol with a scheme that is known to exist."""
    plugin = find_protocol(scheme)
    if plugin is None:
        raise LookupError(f"no protocol has the scheme {scheme}")
    return plugin


@cache
def _find_entry_point(scheme: str) -> ProtocolPlugin | None:
    """The protocol that another package has registered. Used only for schemes that this package does not have:
    searching all installed packages takes milliseconds."""
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=ENTRY_POINT_GROUP, name=scheme):
        origin = entry_point.dist.name if entry_point.dist is not None else entry_point.value
        try:
            plugin = entry_point.load()
        except Exception as error:  # other packages' code may raise anything
            raise ConfigError(f"the protocol {scheme} of the package {origin} cannot be loaded: {error!r}") from error
        if not isinstance(plugin, ProtocolPlugin) or plugin.scheme != scheme:
            raise ConfigError(f"the package {origin} registers {entry_point.value}, which is not the protocol {scheme}")
        return plugin
    return None


def load_factory(plugin: ProtocolPlugin) -> Any:
    """Import the class that makes the sessions of a protocol; raises ConfigError if a dependency is missing."""
    module, _, name = plugin.factory.partition(":")
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        if not plugin.extra:
            raise
        raise ConfigError(
            f"listen: {plugin.scheme}:// needs another package: pip install 'switchgear[{plugin.extra}]' ({error})"
        ) from None
