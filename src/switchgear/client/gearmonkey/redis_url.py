"""Addresses of a Redis, or of a GearMonkey listener of this package's server, as redis-py takes them.

A `gearmonkey://` address is spoken to as if it were a Redis, `gearmonkeys://` with TLS. A token in the environment is
sent to these only: another Redis does not know it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from switchgear.client.address import ServerAddress
from switchgear.client.connection_security import ConnectionSecurity
from switchgear.protocols.gearmonkey.plugin import PLUGIN

__all__ = ["GearMonkeyServerAddress", "redis_url"]

_AUTHORITY: Final = re.compile(r"[^/?#]*")


@dataclass(frozen=True, slots=True)
class GearMonkeyServerAddress(ServerAddress):
    """A GearMonkey listener of this package's server; `gearmonkeys://` with TLS."""

    scheme: ClassVar[str] = PLUGIN.scheme
    tls_scheme: ClassVar[str] = f"{PLUGIN.scheme}s"
    other_schemes: ClassVar[tuple[str, ...]] = (f"{PLUGIN.scheme}s",)
    default_port: ClassVar[int] = PLUGIN.default_port
    rule: ClassVar[str] = "a GearMonkey listener is at gearmonkey:// or gearmonkeys://"


def redis_url(url: str) -> tuple[str, dict[str, Any]]:
    """A URL as redis-py takes it, and settings for which its own options have precedence; raises ConfigError."""
    scheme, _, rest = url.strip().partition("://")
    if scheme.lower() == "rediss":
        return url, _tls_settings(ConnectionSecurity.from_environment())
    if scheme.lower() not in (GearMonkeyServerAddress.scheme, GearMonkeyServerAddress.tls_scheme):
        return url, {}
    match = _AUTHORITY.match(rest)
    authority = match[0] if match else ""
    user, at, place = authority.rpartition("@")
    address = GearMonkeyServerAddress.parse(f"{scheme}://{place}")
    settings = _tls_settings(address.security) if address.uses_tls else {}
    if not at and address.token:
        settings["password"] = address.token
    place = str(address).partition("://")[2]
    return f"{'rediss' if address.uses_tls else 'redis'}://{user}{at}{place}{rest[len(authority) :]}", settings


def _tls_settings(security: ConnectionSecurity) -> dict[str, Any]:
    security.tls_context()  # problems with the files are told now, and not at every attempt to connect
    return {
        "ssl_ca_certs": security.ca_file or None,
        "ssl_certfile": security.cert_file or None,
        "ssl_keyfile": security.key_file or None,
        "ssl_check_hostname": True,  # not the default of old versions of redis-py
    }
