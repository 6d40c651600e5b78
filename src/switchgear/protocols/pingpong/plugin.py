"""The declaration of the PING/PONG protocol for the registry."""

from __future__ import annotations

from typing import Final

from switchgear.protocol_registry import ListenerKind, ProtocolPage, ProtocolPlugin, UrlOption

__all__ = ["PLUGIN"]

PLUGIN: Final = ProtocolPlugin(
    scheme="pingpong",
    title="PING/PONG",
    default_port=5562,
    kind=ListenerKind.ZEROMQ,
    factory="switchgear.protocols.pingpong.listener:PingPongSessionFactory",
    summary="the simplest ZeroMQ workers: one job in, one result out",
    pages=(ProtocolPage("PING/PONG", "docs/protocols/pingpong.md"),),
    options={
        "workers": UrlOption("5563", "the port for workers", "port"),
        "function": UrlOption("pingpong", "the function of the jobs"),
        "expire": UrlOption(
            "3",
            "WORKER_EXPIRE_SECONDS: seconds of silence after which an idle worker gets no job; 0: never",
            "seconds",
        ),
        "resend": UrlOption(
            "0",
            "seconds after which a job is sent to another worker, though its worker is connected; 0: never",
            "seconds",
        ),
    },
)
