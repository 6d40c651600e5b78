"""Problems of requests, as answers: no such job, a body too long, arguments of verbs, what redaction forbids."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from switchgear.protocols.http.problems import HttpProblem, field_problem
from switchgear.protocols.http.redaction import Redaction
from switchgear.protocols.http.routing import RoutePlan
from switchgear.verbs.answers import Incomplete
from switchgear.verbs.completeness import UNREACHABLE_HEADER, WITHOUT_OWNER_HEADER

__all__ = [
    "MOST_JSON_BYTES",
    "announced_problem",
    "check_length",
    "incomplete_lines",
    "no_such_job",
    "refuse_search",
    "verb_problem",
]

# JSON is read in one step, some milliseconds for each MiB; long payloads and results have bodies of their own.
MOST_JSON_BYTES: Final = 4 * 1024 * 1024
# Arguments of verbs that have other names as parameters of a query.
PARAMETERS: Final = {"states": "state", "contains": "q", "before_id": "cursor"}


def no_such_job() -> HttpProblem:
    """There is no job of that handle."""
    text = "there is no such job, or it finished so long ago that it was dropped from the history"
    return HttpProblem(404, "job_not_found", text)


def check_length(plan: RoutePlan, body_bytes: int) -> None:
    """Raise HttpProblem if a body is too long for what it is to be, although it is not too long for the server."""
    route = plan.route
    if route is None or route.body is None or body_bytes <= MOST_JSON_BYTES:
        return
    if route.has_json:
        text = (
            f"a body has at most {MOST_JSON_BYTES} bytes of JSON; submit a longer payload with "
            "POST /v1/functions/{function}/jobs, whose body it is"
        )
        raise HttpProblem(413, "body_too_large", text)
    most_bytes = route.body.most_bytes
    if most_bytes and body_bytes > most_bytes and not plan.query.get(route.body.longer_with):
        raise HttpProblem(413, "batch_too_large", f"such a batch has at most {most_bytes} bytes")


def announced_problem(plan: RoutePlan, body_bytes: int) -> HttpProblem | None:
    """Why a body of this length need not be sent at all (`Expect: 100-continue`); `None` if it is asked for."""
    try:
        check_length(plan, body_bytes)
    except HttpProblem as problem:
        return problem
    return None


def refuse_search(redaction: Redaction, arguments: dict[str, Any]) -> None:
    """Refuse to search payloads that are hidden: whether there is a text in them would tell what they are."""
    function = arguments.get("function")
    if not isinstance(function, str) or redaction.concerns(function.encode("utf-8", "surrogateescape")):
        text = "the setting http.redact hides payloads; name a function whose payloads are not hidden"
        raise HttpProblem(403, "redacted", f"a search for a text looks into payloads, and {text}")


def verb_problem(plan: RoutePlan | None, arguments: dict[str, Any], text: str) -> HttpProblem:
    """What a verb says is wrong with one of its arguments: with a parameter of the query or the path, or else with a
    field of the body."""
    name, colon, detail = text.partition(": ")
    if colon and name in arguments:
        parameter = PARAMETERS.get(name, name)
        if plan is not None and (parameter in plan.given or parameter in plan.path):
            return field_problem("parameter", parameter, detail)
        return field_problem("pointer", f"/{name}", detail)
    has_body = plan is None or plan.route is None or plan.route.body is not None
    return HttpProblem(422, "invalid_field" if has_body else "invalid_parameter", text)


def incomplete_lines(incomplete: Incomplete) -> bytes:
    """The headers that say which servers did not answer, by their encoded names, and how much no server owns."""
    lines = ""
    if incomplete["unreachable"]:
        lines += f"{UNREACHABLE_HEADER}: {', '.join([quote(name) for name in incomplete['unreachable']])}\r\n"
    if incomplete["partitions_without_owner"]:
        lines += f"{WITHOUT_OWNER_HEADER}: {incomplete['partitions_without_owner']}\r\n"
    return lines.encode()
