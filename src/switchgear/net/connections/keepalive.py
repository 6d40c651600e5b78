"""TCP keepalive of connections, which detects peers whose machines have vanished."""

from __future__ import annotations

import socket

from switchgear.config import LimitsConfig

__all__ = ["set_keepalive"]


def set_keepalive(sock: socket.socket, limits: LimitsConfig) -> None:
    """Enable TCP keepalive, to detect a peer whose machine has vanished."""
    if not limits.keepalive_idle_seconds:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", limits.keepalive_idle_seconds),
        ("TCP_KEEPINTVL", limits.keepalive_interval_seconds),
        ("TCP_KEEPCNT", limits.keepalive_count),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
