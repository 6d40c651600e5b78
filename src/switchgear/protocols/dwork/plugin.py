"""The declaration of the dwork protocol for the registry."""

from __future__ import annotations

from typing import Final

from switchgear.protocol_registry import ListenerKind, ProtocolPage, ProtocolPlugin, UrlOption

__all__ = ["PLUGIN"]

PLUGIN: Final = ProtocolPlugin(
    scheme="dwork",
    title="dwork",
    default_port=6125,
    kind=ListenerKind.ZEROMQ,
    factory="switchgear.protocols.dwork.listener:DworkSessionFactory",
    summary="graphs of tasks, a million of them or more; `switchgear dwork run FILE` is a parallel make in one command",
    pages=(ProtocolPage("dwork", "docs/protocols/dwork.md"),),
    options={
        "function": UrlOption("dwork", "the function whose jobs are the tasks"),
        "lease": UrlOption(
            "3600",
            "seconds of silence after which the tasks of a worker are assigned to others; 0: never",
            "seconds",
        ),
    },
)
