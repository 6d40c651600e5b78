"""`HttpSessionFactory`: makes the sessions of HTTP listeners."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b

import msgspec

from switchgear.access.browser_sessions import BrowserSessions
from switchgear.config import Config, ListenUrl
from switchgear.engine.engine import Engine
from switchgear.protocols.http.batch_requests import HandleReservations
from switchgear.protocols.http.browser_guard import BrowserGuard
from switchgear.protocols.http.gearmand_session import GearmandHttpSession
from switchgear.protocols.http.identity import check_request
from switchgear.protocols.http.job_events import EventText
from switchgear.protocols.http.live_feed import LiveFeed
from switchgear.protocols.http.openapi import openapi_document
from switchgear.protocols.http.routes import DASHBOARD_ROUTES, ROUTES
from switchgear.protocols.http.routing import AnswerCounts, Router
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.http.session_setup import COOKIE_NAME, HttpSetup
from switchgear.protocols.http.workers import HttpWorkers
from switchgear.protocols.protocol_names import HTTP, MEMCACHED
from switchgear.protocols.session_factory import ProtocolDetector, ServerEnvironment, SessionMaker, TcpSessionFactory

__all__ = ["HttpSessionFactory", "HttpState"]


class HttpState:
    """What all HTTP listeners of a server share."""

    def __init__(self, engine: Engine) -> None:
        self.workers = HttpWorkers(engine)
        self.reservations = HandleReservations()
        self.browsers = BrowserSessions()
        self.feed = LiveFeed(engine)
        self.event_text = EventText()
        self.request_counts: dict[str, AnswerCounts] = {}
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
        routes = (*ROUTES, *DASHBOARD_ROUTES) if url.text("dashboard") == "yes" else ROUTES
        router = Router(routes, BrowserGuard(name.strip() for name in names))
        setup = HttpSetup(router, self.server.handle_prefix, limits.packet_bytes, limits.name_bytes)
        setup.share(self.state)
        own = blake2b(b"%b %d" % (self.server.handle_prefix, url.port), digest_size=4).hexdigest()
        setup.cookie_name = COOKIE_NAME + b"_" + own.encode()
        setup.idle_seconds = self.server.config.http.idle_seconds
        setup.head_seconds = self.server.config.http.head_seconds
        setup.use_redaction(self.server.config.http.redact)
        setup.check_request = check_request
        setup.request_counts = self.state.request_counts
        self.setups.append(setup)
        if url.text("api") == "gearmand":
            # gearmand has no option for names of the server: a listener for other machines accepts every one.
            any_host = not url.is_loopback and not url.text("hosts")
            make_session: SessionMaker = partial(GearmandHttpSession, setup=setup, any_host=any_host)
        else:
            make_session = partial(HttpSession, setup=setup)
        return ProtocolDetector(
            default=make_session,
            name="HTTP",
            own=frozenset({HTTP, MEMCACHED}),  # memcached has a command GET
        )

    def use_config(self, config: Config) -> None:
        for setup in self.setups:
            setup.packet_bytes = config.limits.packet_bytes
            setup.name_bytes = config.limits.name_bytes
            setup.last_function_text = ""  # it was checked by the earlier limit
            setup.idle_seconds = config.http.idle_seconds
            setup.head_seconds = config.http.head_seconds
            setup.use_redaction(config.http.redact)
