"""Addresses of a PING/PONG broker: one for clients, and one for workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from switchgear.client.address import Address
from switchgear.client.zeromq_sockets import SocketSettings
from switchgear.protocols.pingpong.plugin import PLUGIN

__all__ = ["DEFAULT_CLIENTS_URL", "DEFAULT_WORKERS_URL", "SETTINGS", "ClientsAddress", "WorkersAddress"]

CLIENTS_PORT: Final = PLUGIN.default_port
WORKERS_PORT: Final = int(PLUGIN.options["workers"].default)
DEFAULT_CLIENTS_URL: Final = f"tcp://127.0.0.1:{CLIENTS_PORT}"
DEFAULT_WORKERS_URL: Final = f"tcp://127.0.0.1:{WORKERS_PORT}"

# The protocol has its own signs of life, and its workers do not wait longer the more often they failed.
SETTINGS: Final = SocketSettings(message_bytes=0, heartbeat_seconds=0, reconnect_most_seconds=0.1)


@dataclass(frozen=True, slots=True)
class ClientsAddress(Address):
    """The host and port at which a broker listens to clients."""

    scheme: ClassVar[str] = "pingpong"
    other_schemes: ClassVar[tuple[str, ...]] = ("tcp",)
    default_port: ClassVar[int] = CLIENTS_PORT
    rule: ClassVar[str] = "brokers are at tcp:// (or pingpong://)"

    port: int = CLIENTS_PORT


@dataclass(frozen=True, slots=True)
class WorkersAddress(ClientsAddress):
    """The host and port at which a broker listens to workers."""

    default_port: ClassVar[int] = WORKERS_PORT

    port: int = WORKERS_PORT
