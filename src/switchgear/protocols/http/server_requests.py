"""Handlers of requests about the server: health checks, metrics, its state, and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from switchgear.numbers import real_number
from switchgear.protocols.http.routing import RouteCall
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.http.verb_answers import use_verb
from switchgear.protocols.pending_read import Step

__all__ = ["on_get_metrics", "on_get_openapi", "on_get_server", "on_list_nodes", "on_livez", "on_readyz"]


PROMETHEUS_TEXT: Final = b"text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = b"application/openmetrics-text; version=1.0.0; charset=utf-8"
PIECE_BYTES: Final = 65_536


def on_livez(session: HttpSession, call: RouteCall) -> None:
    """GET /livez"""
    answer_about_server(session, 200, {"live": True})


def on_readyz(session: HttpSession, call: RouteCall) -> None:
    """GET /readyz"""
    engine = session.engine
    reason = ""
    if engine.refusal is not None:
        reason = engine.refusal.reason
    elif not engine.handing_out:
        reason = "draining"
    lag_seconds = round(session.context.loop_lag_seconds(), 6)
    answer = {"ready": not reason, "reason": reason, "loop_lag_seconds": lag_seconds}
    answer_about_server(session, 503 if reason else 200, answer)


def answer_about_server(session: HttpSession, status: int, answer: dict[str, Any]) -> None:
    """Answer also while this server does not know whether it still owns the jobs: whoever watches it must not take it
    for dead."""
    is_next = session.about_server == len(session.out)
    session.respond_json(status, answer)
    if is_next:
        session.about_server = len(session.out)


def on_get_openapi(session: HttpSession, call: RouteCall) -> None:
    """GET /openapi.json"""
    session.respond(200, session.setup.shared.openapi())


def on_get_metrics(session: HttpSession, call: RouteCall) -> None:
    """GET /metrics"""
    is_open = prefers_openmetrics(call.request.header(b"accept"))
    session.work_off(send_metrics(session, is_open))


def send_metrics(session: HttpSession, is_open: bool) -> Iterator[Step]:
    """Send the figures piece by piece; a peer that does not read them makes the server hold one piece."""
    session.begin_stream(200, OPEN_METRICS if is_open else PROMETHEUS_TEXT)
    if not session.has_no_body:
        pieces: list[bytes] = []
        size = 0
        requests = {route: counts.by_status() for route, counts in session.setup.request_counts.items()}
        for piece in session.context.metrics(is_open, requests):
            if piece:
                pieces.append(piece)
                size += len(piece)
            if size < PIECE_BYTES:
                yield False
                continue
            session.send_piece(b"".join(pieces))
            session.note_long_answer(size)
            pieces = []
            size = 0
            yield True  # until the peer has taken it
        if pieces:
            session.send_piece(b"".join(pieces))
    session.end_stream()


def prefers_openmetrics(accept: bytes) -> bool:
    """Whether a client wants OpenMetrics 1.0 rather than Prometheus's own format, by its header Accept."""
    best: dict[bool, float] = {True: 0.0, False: 0.0}
    for choice in accept.lower().split(b","):
        media, *parameters = [part.strip() for part in choice.split(b";")]
        given = dict.fromkeys([b"q"], b"1") | {
            name.strip(): value.strip(b' "') for name, _, value in (each.partition(b"=") for each in parameters)
        }
        quality = real_number(given[b"q"]) or 0.0
        if media == b"application/openmetrics-text" and given.get(b"version", b"1.0.0") in (b"1.0.0", b"0.0.1"):
            best[True] = max(best[True], quality)
        elif media in (b"text/plain", b"text/*", b"*/*") and given.get(b"version", b"0.0.4") == b"0.0.4":
            best[False] = max(best[False], quality)
    return best[True] > 0 and best[True] >= best[False]


def on_get_server(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/server"""
    session.work_off(use_verb(session, "server", {}))


def on_list_nodes(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/nodes"""
    session.work_off(use_verb(session, "nodes", {}))
