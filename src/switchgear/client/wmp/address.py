"""Addresses of WMP managers: `wmp://HOST:PORT`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from switchgear.client.address import Address
from switchgear.errors import ConfigError
from switchgear.protocols.wmp.plugin import PLUGIN

__all__ = ["DEFAULT_PORT", "DEFAULT_URL", "ManagerAddress", "manager_addresses"]

DEFAULT_PORT: Final = PLUGIN.default_port
DEFAULT_URL: Final = f"wmp://127.0.0.1:{DEFAULT_PORT}"


@dataclass(frozen=True, slots=True)
class ManagerAddress(Address):
    """The host and port of a manager, or of a device on the way to one."""

    scheme: ClassVar[str] = "wmp"
    other_schemes: ClassVar[tuple[str, ...]] = ("tcp",)
    default_port: ClassVar[int] = DEFAULT_PORT
    rule: ClassVar[str] = "managers are at wmp:// (or tcp://)"

    port: int = DEFAULT_PORT


def manager_addresses(urls: str | Iterable[str]) -> list[ManagerAddress]:
    """The addresses without duplicates: a second connection of the same identity would replace the first.  Raises
    ConfigError."""
    addresses = [ManagerAddress.parse(url) for url in ([urls] if isinstance(urls, str) else urls)]
    if not addresses:
        raise ConfigError("no manager is named")
    for address in addresses:
        if addresses.count(address) > 1:
            raise ConfigError(f"the manager {address} is named twice")
    return addresses
