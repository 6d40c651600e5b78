"""Handlers of requests for statistics: overview, series, errors, stream, storage, graph, and the event stream."""

from __future__ import annotations

from switchgear.numbers import whole_number
from switchgear.protocols.http.identity import session_end_us
from switchgear.protocols.http.live_feed import MOST_JOBS_WATCHED, MOST_STREAMS, NEW, TOPICS, LiveFeed
from switchgear.protocols.http.messages import EVENT_STREAM
from switchgear.protocols.http.problems import HttpProblem, field_problem
from switchgear.protocols.http.routing import RouteCall
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.http.verb_answers import use_verb

__all__ = [
    "on_get_errors",
    "on_get_flows",
    "on_get_groups",
    "on_get_overview",
    "on_get_past",
    "on_get_runs",
    "on_get_series",
    "on_get_storage",
    "on_get_stream",
    "on_get_times",
    "on_list_connections",
    "on_list_keys",
    "on_watch",
]


def on_get_overview(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/overview"""
    session.work_off(use_verb(session, "overview", {}))


def on_get_flows(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/flows"""
    session.work_off(use_verb(session, "flows", {}))


def on_get_series(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/series"""
    session.work_off(use_verb(session, "series", dict(call.plan.given)))


def on_get_errors(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/errors"""
    session.work_off(use_verb(session, "errors", dict(call.plan.given)))


def on_get_stream(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/stream"""
    session.work_off(use_verb(session, "stream", dict(call.plan.given)))


def on_get_past(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/at"""
    if "t" not in call.plan.given:
        raise field_problem("parameter", "t", "it is missing: a time in seconds since the epoch")
    session.work_off(use_verb(session, "at", dict(call.plan.given)))


def on_get_runs(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/runs"""
    for name in ("since", "until"):
        if name not in call.plan.given:
            raise field_problem("parameter", name, "it is missing: a time in seconds since the epoch")
    session.work_off(use_verb(session, "runs", dict(call.plan.given)))


def on_get_storage(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/storage"""
    session.work_off(use_verb(session, "storage", {}))


def on_list_connections(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/connections"""
    session.work_off(use_verb(session, "connections", dict(call.plan.given)))


def on_get_groups(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/graph"""
    session.work_off(use_verb(session, "graph", dict(call.plan.given)))


def on_get_times(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/functions/{function}/times"""
    session.work_off(use_verb(session, "times", {"function": call.text("function")}))


def on_list_keys(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/functions/{function}/keys"""
    session.work_off(use_verb(session, "keys", {"function": call.text("function"), **call.plan.given}))


# --- the stream of events ---


def on_watch(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/events"""
    topics = wanted_topics(session, call.option("topics"))
    if call.request.head.method == "HEAD":  # there would be no end of it
        session.respond(200, b"", EVENT_STREAM)
        return
    if session.setup.streams >= MOST_STREAMS:
        text = f"there are {MOST_STREAMS} event streams already"
        raise HttpProblem(429, "too_many_streams", text, headers={"Retry-After": "5"})
    seen = whole_number(call.request.header(b"last-event-id"))
    feed: LiveFeed = session.setup.shared.feed
    feed.join(session, topics, NEW if seen is None else seen, session_end_us(session, call.request.head))


def wanted_topics(session: HttpSession, text: str) -> tuple[str, ...]:
    """The topics of a request, each once; raises HttpProblem."""
    topics: dict[str, None] = {}
    jobs = 0
    for word in text.split(","):
        name = word.strip()
        if name.startswith("job:"):
            name = f"job:{session.job_id(name[4:].encode())}"
            jobs += name not in topics
        elif name not in TOPICS:
            there_are = ", ".join(TOPICS)
            raise field_problem(
                "parameter", "topics", f"there is no topic {name[:100]!r}; there are {there_are}, job:HANDLE"
            )
        topics[name] = None
    if jobs > MOST_JOBS_WATCHED:
        raise field_problem("parameter", "topics", f"at most {MOST_JOBS_WATCHED} jobs can be watched at once")
    return tuple(topics)
