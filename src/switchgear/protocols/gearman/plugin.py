"""The declaration of the Gearman protocol, with the 2005 draft that shares its listeners."""

from __future__ import annotations

from typing import Final

from switchgear.protocol_registry import ListenerKind, ProtocolPage, ProtocolPlugin

__all__ = ["PLUGIN"]

PLUGIN: Final = ProtocolPlugin(
    scheme="gearman",
    title="Gearman",
    default_port=4730,
    kind=ListenerKind.TCP,
    factory="switchgear.protocols.gearman.listener:GearmanSessionFactory",
    summary="clients and workers in any language; only the host name changes",
    pages=(
        ProtocolPage("Gearman", "docs/protocols/gearman.md"),
        ProtocolPage("2005 draft", "docs/protocols/gearman-draft.md"),
    ),
)
