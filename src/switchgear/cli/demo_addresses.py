"""Addresses for the demo's clients and workers, and private listeners, so that the demo disturbs no other jobs.

All jobs of the demo belong to its own function. A PING/PONG or dwork listener has jobs of one function only, so the
demo opens its own, on free ports of this machine: it never takes other jobs, and can show pairs of these two protocols,
whose usual listeners have different functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from switchgear.config import Config, ListenUrl
from switchgear.protocol_registry import ProtocolPlugin, built_in_protocols

if TYPE_CHECKING:
    from switchgear.client.zeromq_sockets import CurveKeys

__all__ = ["FUNCTION", "SCHEME_OF", "DemoAddresses", "with_demo_listeners"]

FUNCTION: Final = "switchgear-demo"

# The listeners at which the submitters and workers of the demo connect, by the names under which they are shown.
SCHEME_OF: Final = {
    page.title: protocol.scheme
    for protocol in built_in_protocols().values()
    if not protocol.is_outgoing
    for page in protocol.pages
} | {"Python API": "gearman"}

_HOST: Final = "127.0.0.1"
# A server that listens on every address is reached at this one.
_REACHABLE: Final = {"0.0.0.0": _HOST, "::": "::1"}


def _has_own_function(protocol: ProtocolPlugin) -> bool:
    """Whether a listener of this protocol serves one function only, which its URL names."""
    return "function" in protocol.options


def _own_listener(protocol: ProtocolPlugin) -> ListenUrl:
    ports = {name: "0" for name, option in protocol.options.items() if option.kind == "port"}
    return ListenUrl(protocol.scheme, _HOST, 0, {**ports, "function": FUNCTION})


def with_demo_listeners(config: Config) -> Config:
    """The configuration with a listener for the demo beside those that are for one function."""
    spoken = {url.scheme for url in config.listen}
    own = [
        _own_listener(protocol)
        for protocol in built_in_protocols().values()
        if protocol.scheme in spoken and _has_own_function(protocol)
    ]
    return replace(config, listen=(*config.listen, *own))


@dataclass(frozen=True, slots=True)
class DemoAddresses:
    """The listeners of a server that the demo uses, by scheme."""

    listeners: Mapping[str, ListenUrl] = field(default_factory=dict)
    keys: CurveKeys | None = None  # for what is spoken over ZeroMQ

    @classmethod
    def of(cls, addresses: Iterable[str], keys: CurveKeys | None = None) -> DemoAddresses:
        """Choose from the addresses that a server listens at."""
        found: dict[str, ListenUrl] = {}
        protocols = built_in_protocols()
        for address in addresses:
            url = ListenUrl.parse(address)
            protocol = protocols.get(url.scheme)
            if protocol is None or protocol.is_outgoing:
                continue
            if not _has_own_function(protocol) or url.text("function") == FUNCTION:
                found.setdefault(url.scheme, url)
        return cls(found, keys)

    def speaks(self, scheme: str) -> bool:
        """Whether there is a listener of this protocol."""
        return scheme in self.listeners

    def at(self, scheme: str, port_option: str = "") -> str:
        """The URL of a listener, for a client; or of another of its ports, which an option has."""
        url = self.listeners[scheme]
        return str(ListenUrl(scheme, self.host(scheme), int(url.option(port_option)) if port_option else url.port))

    def host(self, scheme: str) -> str:
        """The host at which a listener is reached from this machine."""
        host = self.listeners[scheme].host
        return _REACHABLE.get(host, host)

    def without_zeromq(self) -> DemoAddresses:
        """A copy with only the protocols over TCP."""
        protocols = built_in_protocols()
        return replace(self, listeners={k: url for k, url in self.listeners.items() if not protocols[k].has_curve})
