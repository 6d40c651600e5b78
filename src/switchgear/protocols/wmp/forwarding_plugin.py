"""The declaration of forwarding from WMP: the server as a worker of another one."""

from __future__ import annotations

from typing import Final

from switchgear.protocol_registry import (
    FORWARDING_OPTIONS,
    ListenerKind,
    ProtocolPage,
    ProtocolPlugin,
    UrlOption,
)

__all__ = ["PLUGIN"]

PLUGIN: Final = ProtocolPlugin(
    scheme="wmp-worker",
    title="forwarding from WMP",
    default_port=5714,
    kind=ListenerKind.OUTGOING,
    factory="switchgear.forwarding.wmp_source:WmpSourceFactory",
    summary="jobs of another WMP manager",
    pages=(ProtocolPage("forwarding", "docs/howto/forwarding.md"),),
    options={
        **FORWARDING_OPTIONS,
        "server_key_file": UrlOption("", "the public key of a manager that encrypts, a file that ends in .key"),
        "key_file": UrlOption("", "the key by which the manager knows the server, a file that ends in .key_secret"),
    },
    can_submit=False,  # jobs come from clients of the other server, and are run by workers of this one
    can_work=False,
)
