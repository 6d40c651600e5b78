"""The declaration of GearMonkey over RESP: this server in the place of GearMonkey's Redis."""

from __future__ import annotations

from typing import Final

from switchgear.protocol_registry import ListenerKind, ProtocolPage, ProtocolPlugin

__all__ = ["PLUGIN"]

PLUGIN: Final = ProtocolPlugin(
    scheme="gearmonkey",
    title="GearMonkey",
    default_port=6380,
    kind=ListenerKind.TCP,
    factory="switchgear.protocols.gearmonkey.listener:GearMonkeySessionFactory",
    summary="GearMonkey clients and workers without a Redis server",
    pages=(ProtocolPage("GearMonkey", "docs/protocols/gearmonkey.md"),),
)
