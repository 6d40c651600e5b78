"""The declaration of forwarding from Gearman: the server as a worker of another one."""

from __future__ import annotations

from typing import Final

from switchgear.protocol_registry import (
    FORWARDING_OPTIONS,
    ListenerKind,
    ProtocolPage,
    ProtocolPlugin,
)

__all__ = ["PLUGIN"]

PLUGIN: Final = ProtocolPlugin(
    scheme="gearman-worker",
    title="forwarding from Gearman",
    default_port=4730,
    kind=ListenerKind.OUTGOING,
    factory="switchgear.forwarding.gearman_source:GearmanSourceFactory",
    summary="jobs of another Gearman server, such as one that is to be replaced",
    pages=(ProtocolPage("forwarding", "docs/howto/forwarding.md"),),
    options=FORWARDING_OPTIONS,
    can_submit=False,  # jobs come from clients of the other server, and are run by workers of this one
    can_work=False,
)
