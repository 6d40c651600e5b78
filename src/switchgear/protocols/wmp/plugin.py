"""The declaration of WMP, the ZeroMQ Worker-Manager Protocol."""

from __future__ import annotations

from typing import Final

from switchgear.protocol_registry import ListenerKind, ProtocolPage, ProtocolPlugin, UrlOption

__all__ = ["PLUGIN"]

PLUGIN: Final = ProtocolPlugin(
    scheme="wmp",
    title="WMP",
    default_port=5714,
    kind=ListenerKind.ZEROMQ,
    factory="switchgear.protocols.wmp.listener:WmpSessionFactory",
    summary="many workers and many managers, with devices in between",
    pages=(ProtocolPage("WMP", "docs/protocols/wmp.md"),),
    can_submit=False,  # the document has workers and managers; jobs come from elsewhere
    options={
        "identity": UrlOption(
            "", "the identity of the manager, different from those of other managers; default: host name and port"
        ),
        "timeout": UrlOption(
            "600",
            "seconds after which a job goes to another worker, if its worker promises no heartbeats; 0: never",
            "seconds",
        ),
    },
)
