"""Handlers of requests about the server: whether it is well, what it is, and the description of this interface."""

from __future__ import annotations

from switchgear.protocols.http.routing import RouteCall
from switchgear.protocols.http.session import HttpSession

__all__ = ["on_get_openapi", "on_get_server", "on_livez", "on_readyz"]


def on_livez(session: HttpSession, call: RouteCall) -> None:
    """GET /livez"""
    session.respond_json(200, {"live": True})


def on_readyz(session: HttpSession, call: RouteCall) -> None:
    """GET /readyz"""
    engine = session.engine
    if engine.refusal is not None:
        session.respond_json(503, {"ready": False, "reason": engine.refusal.reason})
    elif not engine.handing_out:
        session.respond_json(503, {"ready": False, "reason": "draining"})
    else:
        session.respond_json(200, {"ready": True, "reason": ""})


def on_get_openapi(session: HttpSession, call: RouteCall) -> None:
    """GET /openapi.json"""
    session.respond(200, session.setup.shared.openapi())


def on_get_server(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/server"""
    session.work_off(session.use_verb("server", {}))
