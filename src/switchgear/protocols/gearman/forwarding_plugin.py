"""The declaration of forwarding from Gearman: the server as a worker of another one."""

from __future__ import annotations

from typing import Final

from switchgear.protocol_registry import (
    FORWARDING_OPTIONS,
    OUTGOING_TLS_OPTIONS,
    ListenerKind,
    ProtocolPage,
    ProtocolPlugin,
    UrlOption,
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
    options={
        **FORWARDING_OPTIONS,
        **OUTGOING_TLS_OPTIONS,
        "token_file": UrlOption("", "a file with the token by which the other server knows this one"),
    },
    can_submit=False,  # jobs come from clients of the other server, and are run by workers of this one
    can_work=False,
)
