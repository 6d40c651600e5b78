"""`BridgeFactory`: makes a bridge for each `redis://` URL; the bridges share one set of their workers."""

from __future__ import annotations

from switchgear.config import ListenUrl
from switchgear.model import Worker
from switchgear.net.bridge.bridge import Bridge
from switchgear.net.bridge.settings import BridgeSettings
from switchgear.net.hub import Hub
from switchgear.protocols.session_factory import ServerEnvironment, SessionFactory

__all__ = ["BridgeFactory"]


class BridgeFactory(SessionFactory):
    """Makes bridges to Redis; all bridges of a server share the set of their workers."""

    def __init__(self, server: ServerEnvironment) -> None:
        super().__init__(server)
        self._bridge_workers: set[Worker] = set()

    def connect(self, url: ListenUrl, hub: Hub) -> Bridge:
        """Make a bridge to the Redis that the URL names; raises ConfigError."""
        return Bridge(
            url,
            hub,
            BridgeSettings.read(url),
            self.server.handle_prefix,
            self.server.config.limits.packet_bytes,
            self._bridge_workers,
        )
