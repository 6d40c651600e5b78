"""The declaration of the bridge to a Redis that holds GearMonkey's keys."""

from __future__ import annotations

from typing import Final

from switchgear.protocol_registry import OUTGOING_TLS_OPTIONS, ListenerKind, ProtocolPage, ProtocolPlugin, UrlOption

__all__ = ["PLUGIN"]

PLUGIN: Final = ProtocolPlugin(
    scheme="redis",
    title="the GearMonkey bridge",
    default_port=6379,
    kind=ListenerKind.OUTGOING,
    factory="switchgear.net.bridge.bridge_factory:BridgeFactory",
    summary="GearMonkey clients and workers that keep their Redis",
    pages=(ProtocolPage("GearMonkey, Redis", "docs/howto/gearmonkey-bridge.md"),),
    extra="redis",
    options={
        "functions": UrlOption("", "take only jobs of these functions, separated by commas; default: all with workers"),
        "outbound": UrlOption(
            "auto",
            "functions whose jobs GearMonkey workers get if the server has no worker for them:"
            " those with registered GearMonkey workers (`auto`), none (`never`), or these, separated by commas",
        ),
        "lease": UrlOption(
            "30", "seconds after the last heartbeat of a server until its jobs are available to others", "seconds"
        ),
        "claim": UrlOption(
            "100", "the maximum number of jobs of a function that are taken ahead of their workers", "count"
        ),
        "push": UrlOption(
            "1000",
            "the maximum number of jobs that are in Redis at once, waiting or with GearMonkey workers",
            "count",
        ),
        "busy": UrlOption(
            "600",
            "seconds without progress after which a job of a GearMonkey worker is lost; 0: never",
            "seconds",
        ),
        "user": UrlOption("", "the user name for the login"),
        "password_file": UrlOption("", "a file with the password"),
        **OUTGOING_TLS_OPTIONS,
    },
)
