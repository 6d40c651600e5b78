"""The declaration of HTTP for the registry of protocols."""

from __future__ import annotations

from typing import Final

from switchgear.protocol_registry import ListenerKind, ProtocolPage, ProtocolPlugin, UrlOption

__all__ = ["PLUGIN"]

PLUGIN: Final = ProtocolPlugin(
    scheme="http",
    title="HTTP",
    default_port=4740,
    kind=ListenerKind.TCP,
    factory="switchgear.protocols.http.listener:HttpSessionFactory",
    summary="curl, programs in any language without a client library, and the Python library where only HTTP passes",
    pages=(ProtocolPage("HTTP", "docs/protocols/http.md"),),
    reconnects=True,
    options={
        "api": UrlOption(
            "switchgear",
            "the requests that are understood: those of this server, or those of gearmand's module (gearmand -r http)",
            choices=("switchgear", "gearmand"),
        ),
        "hosts": UrlOption("", "names, separated by commas, by which clients call this server besides its addresses"),
        "dashboard": UrlOption("yes", "whether browsers get the dashboard at this address: yes or no", "flag"),
    },
)
