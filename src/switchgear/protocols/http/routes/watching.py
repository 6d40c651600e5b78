"""Requests that look at what the server does: snapshots, series, events."""

from typing import Final

from switchgear.protocols.http import (
    live_feed,
    statistics_requests,
)
from switchgear.protocols.http.routes.shared_parts import EVENTS, json, verb_parameter, verb_roles
from switchgear.protocols.http.routing import QueryParameter, Route, RouteAnswer
from switchgear.verbs import answers, live_answers
from switchgear.verbs.kinds import PlainText
from switchgear.verbs.table import VERBS

__all__ = ["WATCHING_ROUTES"]

WATCHING_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        "/v1/overview",
        verb_roles("overview"),
        VERBS["overview"].help,
        statistics_requests.on_get_overview,
        (json(200, "The overview.", live_answers.OverviewAnswer),),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/events",
        verb_roles("overview"),
        "Watch the server: snapshots, then what changes, as server-sent events named like their topics.",
        statistics_requests.on_watch,
        (RouteAnswer(200, "Server-sent events.", media=EVENTS),),
        query=(
            QueryParameter(
                "topics",
                PlainText(),
                f"What to watch, with commas between: {', '.join(live_feed.TOPICS)}, or job:HANDLE.",
                "overview",
            ),
        ),
        headers={"Last-Event-ID": "The last event id of an earlier connection."},
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/flows",
        verb_roles("flows"),
        VERBS["flows"].help,
        statistics_requests.on_get_flows,
        (json(200, "The pairs of protocols.", live_answers.FlowsAnswer),),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/series",
        verb_roles("series"),
        VERBS["series"].help,
        statistics_requests.on_get_series,
        (json(200, "The points.", live_answers.SeriesAnswer),),
        query=tuple(verb_parameter("series", argument.name) for argument in VERBS["series"].arguments),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/errors",
        verb_roles("errors"),
        VERBS["errors"].help,
        statistics_requests.on_get_errors,
        (json(200, "The groups.", live_answers.ErrorsAnswer),),
        query=tuple(verb_parameter("errors", argument.name) for argument in VERBS["errors"].arguments),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/stream",
        verb_roles("stream"),
        VERBS["stream"].help,
        statistics_requests.on_get_stream,
        (json(200, "The attempts.", live_answers.StreamAnswer),),
        query=tuple(verb_parameter("stream", name) for name in ("since", "cursor", "limit")),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/at",
        verb_roles("at"),
        VERBS["at"].help,
        statistics_requests.on_get_past,
        (json(200, "What is known.", live_answers.PastAnswer),),
        query=(verb_parameter("at", "t"),),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/runs",
        verb_roles("runs"),
        VERBS["runs"].help,
        statistics_requests.on_get_runs,
        (json(200, "The attempts.", live_answers.RunsAnswer),),
        query=tuple(verb_parameter("runs", argument.name) for argument in VERBS["runs"].arguments),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/storage",
        verb_roles("storage"),
        VERBS["storage"].help,
        statistics_requests.on_get_storage,
        (json(200, "The store.", live_answers.StorageAnswer),),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/connections",
        verb_roles("connections"),
        VERBS["connections"].help,
        statistics_requests.on_list_connections,
        (json(200, "The connections.", answers.ConnectionsAnswer),),
        query=(verb_parameter("connections", "limit"),),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/graph",
        verb_roles("graph"),
        VERBS["graph"].help,
        statistics_requests.on_get_groups,
        (json(200, "The groups.", live_answers.GraphAnswer),),
        query=tuple(verb_parameter("graph", argument.name) for argument in VERBS["graph"].arguments),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/functions/{function}/times",
        verb_roles("times"),
        VERBS["times"].help,
        statistics_requests.on_get_times,
        (json(200, "The durations.", live_answers.TimesAnswer),),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/functions/{function}/keys",
        verb_roles("keys"),
        VERBS["keys"].help,
        statistics_requests.on_list_keys,
        (json(200, "The keys.", live_answers.KeysAnswer),),
        query=(verb_parameter("keys", "limit"),),
        tag="watch",
    ),
)
