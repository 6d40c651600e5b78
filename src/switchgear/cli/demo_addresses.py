"""Addresses for the demo's clients and workers, and listeners of its own so that it disturbs nobody.

All jobs of the demo belong to a function of its own.  A PING/PONG or dwork listener has jobs of one function only, so
the demo has such listeners of its own, on free ports of this machine: it never takes a job that is not its own, and
pairs of these two protocols can be shown, whose usual listeners are for different functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from switchgear.config import Config, ListenUrl

if TYPE_CHECKING:
    from switchgear.client.zeromq_sockets import CurveKeys

__all__ = ["FUNCTION", "DemoAddresses", "with_demo_listeners"]

FUNCTION: Final = "switchgear-demo"

_HOST: Final = "127.0.0.1"
_OWN_LISTENERS: Final = {
    "pingpong": ListenUrl("pingpong", _HOST, 0, {"workers": "0", "function": FUNCTION}),
    "dwork": ListenUrl("dwork", _HOST, 0, {"function": FUNCTION}),
}
# Who listens everywhere is found here.
_REACHABLE: Final = {"0.0.0.0": _HOST, "::": "::1"}


def with_demo_listeners(config: Config) -> Config:
    """The configuration with a listener for the demo beside those that are for one function."""
    spoken = {url.scheme for url in config.listen}
    return replace(config, listen=(*config.listen, *(url for name, url in _OWN_LISTENERS.items() if name in spoken)))


@dataclass(frozen=True, slots=True)
class DemoAddresses:
    """Addresses by protocol; empty if the server does not speak it."""

    gearman: str = ""
    pingpong_clients: str = ""
    pingpong_workers: str = ""
    wmp: str = ""
    dwork: str = ""
    gearmonkey: tuple[str, int] | None = None
    keys: CurveKeys | None = None  # for what is spoken over ZeroMQ

    @classmethod
    def of(cls, addresses: Iterable[str], keys: CurveKeys | None = None) -> DemoAddresses:
        """The addresses in the list that a server listens at."""
        found: dict[str, ListenUrl] = {}
        for address in addresses:
            url = ListenUrl.parse(address)
            if url.scheme not in _OWN_LISTENERS or url.text("function") == FUNCTION:
                found.setdefault(url.scheme, url)

        def at(scheme: str, port: int | None = None) -> str:
            url = found.get(scheme)
            if url is None:
                return ""
            return str(ListenUrl(scheme, _host(url), url.port if port is None else port))

        pingpong, gearmonkey = found.get("pingpong"), found.get("gearmonkey")
        return cls(
            gearman=at("gearman"),
            pingpong_clients=at("pingpong"),
            pingpong_workers=at("pingpong", int(pingpong.option("workers"))) if pingpong is not None else "",
            wmp=at("wmp"),
            dwork=at("dwork"),
            gearmonkey=(_host(gearmonkey), gearmonkey.port) if gearmonkey is not None else None,
            keys=keys,
        )

    def without_zeromq(self) -> DemoAddresses:
        """A copy with only the protocols over TCP."""
        return replace(self, pingpong_clients="", pingpong_workers="", wmp="", dwork="")


def _host(url: ListenUrl) -> str:
    return _REACHABLE.get(url.host, url.host)
