"""`HttpSessionFactory`: makes the sessions of HTTP listeners."""

from __future__ import annotations

from functools import partial

import msgspec

from switchgear.config import Config, ListenUrl
from switchgear.engine.engine import Engine
from switchgear.protocols.http.bulk import BulkActions
from switchgear.protocols.http.guard import BrowserGuard
from switchgear.protocols.http.openapi import openapi_document
from switchgear.protocols.http.routes import ROUTES
from switchgear.protocols.http.routing import Router
from switchgear.protocols.http.session import HttpSession, HttpSetup
from switchgear.protocols.http.workers import HttpWorkers
from switchgear.protocols.protocol_names import HTTP, MEMCACHED
from switchgear.protocols.session_factory import ProtocolDetector, ServerEnvironment, TcpSessionFactory

__all__ = ["HttpSessionFactory", "HttpState"]


class HttpState:
    """What all HTTP listeners of a server share."""

    def __init__(self, engine: Engine) -> None:
        self.workers = HttpWorkers(engine)
        self.bulk = BulkActions()
        self._openapi = b""

    def openapi(self) -> bytes:
        """The OpenAPI document."""
        if not self._openapi:
            self._openapi = msgspec.json.encode(openapi_document(ROUTES))
        return self._openapi


class HttpSessionFactory(TcpSessionFactory):
    """HTTP/1.1; all HTTP listeners of a server share their workers."""

    def __init__(self, server: ServerEnvironment) -> None:
        super().__init__(server)
        self.state = HttpState(server.engine)
        self.setups: list[HttpSetup] = []

    def sessions_at(self, url: ListenUrl) -> ProtocolDetector:
        names = [url.host, *url.text("hosts").split(",")]
        if not url.is_loopback:
            names.append(self.server.host_name)
        limits = self.server.config.limits
        router = Router(ROUTES, BrowserGuard(name.strip() for name in names))
        setup = HttpSetup(router, self.server.handle_prefix, limits.packet_bytes, limits.name_bytes)
        setup.shared = self.state
        setup.idle_seconds = self.server.config.http.idle_seconds
        setup.head_seconds = self.server.config.http.head_seconds
        self.setups.append(setup)
        return ProtocolDetector(
            default=partial(HttpSession, setup=setup),
            name="HTTP",
            own=frozenset({HTTP, MEMCACHED}),  # memcached has a command GET
        )

    def use_config(self, config: Config) -> None:
        for setup in self.setups:
            setup.packet_bytes = config.limits.packet_bytes
            setup.name_bytes = config.limits.name_bytes
            setup.idle_seconds = config.http.idle_seconds
            setup.head_seconds = config.http.head_seconds
