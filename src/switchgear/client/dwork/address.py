"""The address of a dwork server: `dwork://HOST:PORT`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from switchgear.client.address import Address
from switchgear.protocols.dwork.plugin import PLUGIN

__all__ = ["DEFAULT_PORT", "DEFAULT_URL", "DworkAddress"]

DEFAULT_PORT: Final = PLUGIN.default_port
DEFAULT_URL: Final = f"dwork://127.0.0.1:{DEFAULT_PORT}"


@dataclass(frozen=True, slots=True)
class DworkAddress(Address):
    """A server's host and port; `tcp://` is what dquery's users write."""

    scheme: ClassVar[str] = "dwork"
    other_schemes: ClassVar[tuple[str, ...]] = ("tcp",)
    default_port: ClassVar[int] = DEFAULT_PORT
    rule: ClassVar[str] = "dwork servers are at dwork:// (or tcp://)"

    port: int = DEFAULT_PORT
