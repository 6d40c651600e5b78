"""Authentication of requests: by a bearer token, a cookie, or the client certificate of the connection.

A browser exchanges its token for a cookie (`POST /v1/session`), which scripts of a page cannot read, and which requests
from other sites do not carry. `switchgear dashboard` has the server make a login code for the browser that it opens
(`POST /v1/session/codes`); the page sends it to `POST /v1/session` in place of a token.
"""

from __future__ import annotations

from typing import Any, Final

from switchgear.access.browser_sessions import CODE_SECONDS, LIFETIME_SECONDS, BrowserSessions
from switchgear.access.permissions import Permissions
from switchgear.model import SECOND_US
from switchgear.protocols.http.messages import SAFE_METHODS, RequestHead
from switchgear.protocols.http.problems import AUTHENTICATE, HttpProblem
from switchgear.protocols.http.routing import RouteCall, RoutePlan
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.session import Session
from switchgear.verbs.access import Role

__all__ = [
    "bearer_permissions",
    "check_request",
    "on_begin_session",
    "on_end_session",
    "on_get_session",
    "on_make_login_code",
    "session_end_us",
]

BEARER: Final = b"bearer "


# --- every request ---


def check_request(session: HttpSession, head: RequestHead, plan: RoutePlan) -> None:
    """Find out who makes a request, and whether they may; raises HttpProblem or Refused."""
    route = plan.route
    assert route is not None
    found = code_permissions(session, head) if route.handler is on_begin_session else None
    session.identify(found or permissions_of(session, head))
    if not session.is_guarded or route.is_public:
        return
    name = f"{route.method} {route.path}"
    function = plan.path.get("function")
    session.require(name, route.roles, function)
    if not session.permissions.globs or function is not None or route.is_scoped:
        return
    if "handle" in plan.path:
        # A job that has ended is checked when it is found.
        job = session.engine.look_at(session.job_id(plan.path["handle"]))
        if job is not None:
            session.require_job(name, route.roles, job.function.told_name)
    else:
        raise session.access_refusal(session.permissions.refusal_of_all(name))


def permissions_of(session: HttpSession, head: RequestHead) -> Permissions:
    """The permissions for one request; raises HttpProblem."""
    found = bearer_permissions(session, head)
    if found is not None:
        return found
    cookie = cookie_of(session, head)
    if cookie:
        found = browsers(session).find(cookie, session.engine.now_us)
        if found is not None:
            if head.method not in SAFE_METHODS and not {b"sec-fetch-site", b"origin"} & head.headers.keys():
                text = "a request with a cookie needs the header Sec-Fetch-Site or Origin"
                raise HttpProblem(403, "cross_site", text)
            return found
    return session.transport.permissions


def bearer_permissions(session: Session, head: RequestHead) -> Permissions | None:
    """The permissions of the bearer of a token; `None` if the request has no token. Raises HttpProblem."""
    header = head.headers.get(b"authorization")
    if header is None:
        return None
    found = None
    if header[: len(BEARER)].lower() == BEARER:
        found = session.transport.access.by_token(header[len(BEARER) :].strip())
    if found is None:
        session.context.count_authentication_failed(session)
        headers = {"WWW-Authenticate": f'{AUTHENTICATE}, error="invalid_token"'}
        raise HttpProblem(401, "invalid_token", "no identity has this token", headers=headers)
    return found


def code_permissions(session: HttpSession, head: RequestHead) -> Permissions | None:
    """The permissions of the bearer of a login code, which is used up; `None` if the request has none that is valid."""
    header = head.headers.get(b"authorization", b"")
    if header[: len(BEARER)].lower() != BEARER:
        return None
    found = browsers(session).use_code(header[len(BEARER) :].strip(), session.engine.now_us)
    if found is not None:
        session.identify(found)
        session.context.audit(session, "use login code", found.name)
    return found


def cookie_of(session: HttpSession, head: RequestHead) -> bytes:
    """The cookie of a session, if the request has one."""
    header = head.headers.get(b"cookie")
    if header is not None:
        for pair in header.replace(b",", b";").split(b";"):  # several headers are joined by commas
            name, _, value = pair.partition(b"=")
            if name.strip() == session.setup.cookie_name:
                return value.strip()
    return b""


def session_end_us(session: HttpSession, head: RequestHead) -> int:
    """When the browser session ends that a request is made in; 0 if it is made in none."""
    if session.is_open or head.headers.get(b"authorization") is not None:
        return 0
    cookie = cookie_of(session, head)
    return browsers(session).end_us(cookie) if cookie else 0


def browsers(session: HttpSession) -> BrowserSessions:
    sessions: BrowserSessions = session.setup.shared.browsers
    return sessions


# --- sessions of browsers ---


def described(session: HttpSession) -> dict[str, Any]:
    """Who the request is from, and what they may do."""
    permissions = session.permissions
    return {
        "identity": permissions.name,
        "roles": [role.value for role in Role if role in permissions.roles],
        "functions": list(permissions.globs),
    }


def on_get_session(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/session"""
    session.respond_json(200, described(session))


def on_begin_session(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/session"""
    permissions = session.permissions
    headers = b""
    expires_at: float | None = None
    if not permissions.is_anonymous:
        now_us = session.engine.now_us
        value = browsers(session).begin(permissions, now_us)
        headers = cookie_line(session, value, LIFETIME_SECONDS)
        expires_at = now_us / SECOND_US + LIFETIME_SECONDS
    elif not session.transport.access.is_open:
        raise session.access_refusal("POST /v1/session needs a token: Authorization: Bearer TOKEN")
    session.respond_json(200, {**described(session), "expires_at": expires_at}, headers)


def on_make_login_code(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/session/codes"""
    # Not for a cookie: a page could otherwise keep its session for ever.
    permissions = bearer_permissions(session, call.request.head) or session.transport.permissions
    code: str | None = None
    expires_at: float | None = None
    if not permissions.is_anonymous:
        now_us = session.engine.now_us
        code = browsers(session).make_code(permissions, now_us)
        expires_at = now_us / SECOND_US + CODE_SECONDS
        session.context.audit(session, "make login code", permissions.name)
    elif not session.transport.access.is_open:
        raise session.access_refusal("POST /v1/session/codes needs a token: Authorization: Bearer TOKEN")
    answer = {"identity": permissions.name, "code": code, "expires_at": expires_at}
    session.respond_json(201, answer, b"Cache-Control: no-store\r\n")


def on_end_session(session: HttpSession, call: RouteCall) -> None:
    """DELETE /v1/session"""
    cookie = cookie_of(session, call.request.head)
    if cookie:
        browsers(session).end(cookie)
    session.respond(204, headers=cookie_line(session, "", 0))


def cookie_line(session: HttpSession, value: str, seconds: int) -> bytes:
    secure = "; Secure" if session.transport.is_encrypted else ""
    text = f"{session.setup.cookie_name.decode()}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    return f"Set-Cookie: {text}\r\nCache-Control: no-store\r\n".encode()
