"""Requests about the server itself, and the session of the caller."""

from typing import Any, Final

from switchgear.protocols.http import (
    identity,
    schemas,
    server_requests,
)
from switchgear.protocols.http import operator_requests as operators
from switchgear.protocols.http.routes.shared_parts import (
    NO_CONTENT,
    READ,
    json,
    verb_parameter,
    verb_roles,
)
from switchgear.protocols.http.routing import QueryParameter, Route, RouteAnswer
from switchgear.verbs import answers
from switchgear.verbs.access import ALL_ROLES
from switchgear.verbs.kinds import PlainText
from switchgear.verbs.table import VERBS

__all__ = ["SERVER_ROUTES"]

SERVER_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        "/livez",
        ALL_ROLES,
        "Tell that the server runs.",
        server_requests.on_livez,
        (json(200, "It does.", schemas.LiveAnswer),),
        tag="server",
        is_public=True,
    ),
    Route(
        "GET",
        "/readyz",
        ALL_ROLES,
        "Tell whether the server takes and hands out jobs; it does not while it shuts down or its store fails.",
        server_requests.on_readyz,
        (json(200, "It does.", schemas.ReadyAnswer), json(503, "It does not.", schemas.ReadyAnswer)),
        tag="server",
        is_public=True,
    ),
    Route(
        "GET",
        "/metrics",
        READ,
        "Give the figures of the server to a monitoring system (OpenMetrics, or the text format of Prometheus).",
        server_requests.on_get_metrics,
        (
            RouteAnswer(200, "The figures.", media="text/plain"),
            RouteAnswer(200, "The same, for a client that prefers it.", media="application/openmetrics-text"),
        ),
        tag="server",
    ),
    Route(
        "GET",
        "/openapi.json",
        ALL_ROLES,
        "Describe this interface (OpenAPI 3.1).",
        server_requests.on_get_openapi,
        (json(200, "The description.", dict[str, Any]),),
        tag="server",
        is_public=True,
    ),
    Route(
        "GET",
        "/v1/server",
        verb_roles("server"),
        VERBS["server"].help,
        server_requests.on_get_server,
        (json(200, "The state of the server.", answers.ServerAnswer),),
        tag="server",
        is_scoped=True,
    ),
    Route(
        "GET",
        "/v1/nodes",
        verb_roles("nodes"),
        VERBS["nodes"].help,
        server_requests.on_list_nodes,
        (json(200, "The servers.", list[answers.NodeAnswer]),),
        tag="server",
    ),
    Route(
        "GET",
        "/v1/audit",
        verb_roles("audit"),
        VERBS["audit"].help,
        operators.on_get_audit,
        (json(200, "A page of entries.", schemas.HttpAuditPage),),
        query=(
            verb_parameter("audit", "since"),
            verb_parameter("audit", "limit"),
            QueryParameter("cursor", PlainText(), "The `next` of the page before."),
        ),
        tag="server",
    ),
    Route(
        "GET",
        "/v1/session",
        ALL_ROLES,
        "Return the identity of the caller, with its roles and functions.",
        identity.on_get_session,
        (json(200, "The identity.", schemas.SessionAnswer),),
        tag="server",
        is_public=True,
    ),
    Route(
        "POST",
        "/v1/session",
        ALL_ROLES,
        "Exchange a token or a login code for a cookie, so that a page need not keep the token.",
        identity.on_begin_session,
        (json(200, "The identity; `Set-Cookie` has the cookie.", schemas.SessionBegun),),
        tag="server",
        is_scoped=True,
    ),
    Route(
        "POST",
        "/v1/session/codes",
        ALL_ROLES,
        "Make a login code, which a browser can exchange for a cookie once, within a minute.",
        identity.on_make_login_code,
        (json(201, "The code, to be sent to `POST /v1/session` in place of a token.", schemas.LoginCode),),
        tag="server",
        is_scoped=True,
    ),
    Route(
        "DELETE",
        "/v1/session",
        ALL_ROLES,
        "End the session of a cookie.",
        identity.on_end_session,
        (NO_CONTENT,),
        tag="server",
        is_public=True,
    ),
)
