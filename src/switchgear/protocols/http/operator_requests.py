"""Handlers of operators' requests: functions, workers and schedules.  They use the operator verbs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from switchgear.errors import Refused
from switchgear.protocols.http.problems import HttpProblem, field_problem, validation_problem
from switchgear.protocols.http.routing import RouteCall, replace_cursor
from switchgear.protocols.http.schemas import (
    arguments_decoder,
    control_decoder,
    function_decoder,
    given_fields,
    schedule_decoder,
)
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.http.submitting import function_name
from switchgear.protocols.http.verb_answers import use_verb, verb_answer
from switchgear.protocols.pending_read import Step
from switchgear.refusals import REFUSED_STORAGE
from switchgear.verbs.table import VERBS

__all__ = [
    "on_change_function",
    "on_delete_schedule",
    "on_get_audit",
    "on_get_function",
    "on_get_schedule",
    "on_list_functions",
    "on_list_schedules",
    "on_list_workers",
    "on_put_schedule",
    "on_run_schedule",
    "on_use_verb",
]

# Of arguments of a verb, which may be anything: a million values take 100 ms to decode.
MOST_JSON_VALUES: Final = 100_000


# --- any verb ---


def on_use_verb(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/verbs/{verb}"""
    name = call.text("verb")
    verb = VERBS.get(name)
    if verb is None or verb.is_text_only:
        raise HttpProblem(404, "not_found", f"there is no verb {name[:100]}")
    body = call.body
    if len(body) > MOST_JSON_VALUES and body.count(b",") + body.count(b"[") + body.count(b"{") > MOST_JSON_VALUES:
        raise HttpProblem(413, "too_many_values", f"arguments have at most {MOST_JSON_VALUES} values")
    try:
        arguments = arguments_decoder.decode(body.strip() or b"{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise validation_problem(error) from None
    function = arguments.get("function")
    if isinstance(function, str):
        function_name(session, function.encode(), "pointer", "/function")
    session.work_off(use_verb(session, name, arguments))


# --- the audit log ---


def on_get_audit(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/audit"""
    given = dict(call.plan.given)
    replace_cursor(given)
    session.work_off(show_audit(session, given))


def show_audit(session: HttpSession, arguments: dict[str, Any]) -> Iterator[Step]:
    page = yield from verb_answer(session, "audit", arguments)
    before_id = page["next_before_id"]
    following = None if before_id is None else str(before_id)
    session.respond_json(200, {"entries": page["entries"], "next": following, "stored": page["stored"]})


# --- functions and workers ---


def on_list_functions(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/functions"""
    session.work_off(use_verb(session, "functions", {}))


def on_list_workers(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/workers"""
    session.work_off(use_verb(session, "workers", {}))


def on_control_workers(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/workers/control"""
    try:
        request = given_fields(control_decoder.decode(call.body))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise validation_problem(error) from None
    session.work_off(use_verb(session, "control_workers", request))


def on_get_function(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/functions/{function}"""
    session.work_off(show_function(session, call.text("function")))


def show_function(session: HttpSession, name: str) -> Iterator[Step]:
    absent = f"there is no function {name}: it has no jobs, no workers and no settings"
    yield from show_named(session, "functions", f"function {name}", name, absent)


def show_named(session: HttpSession, verb: str, what: str, name: str, absent: str) -> Iterator[Step]:
    """Answer with the row of this name among those that a verb lists; raises HttpProblem, with the text `absent`."""
    rows = yield from verb_answer(session, verb, {})
    for row in rows:
        if row["name"] == name:
            session.respond_json(200, row, session.incomplete_lines)
            return
    refuse_incomplete(session, what)
    raise HttpProblem(404, "not_found", absent)


def refuse_incomplete(session: HttpSession, what: str) -> None:
    """Raise Refused if a node that has not answered may have what was not found."""
    if session.incomplete_lines:
        raise Refused(REFUSED_STORAGE, f"not all nodes have answered, and those that have know no {what}")


def on_change_function(session: HttpSession, call: RouteCall) -> None:
    """PATCH /v1/functions/{function}"""
    name = call.text("function")
    if len(name.encode()) > session.setup.name_bytes or "\0" in name:
        raise HttpProblem(404, "not_found", "no function can have that name")
    try:
        change = given_fields(function_decoder.decode(call.body))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise validation_problem(error) from None
    if not change:
        raise field_problem("pointer", "", "there is nothing to change: give paused, or limits")
    session.work_off(change_function(session, name, change))


def change_function(session: HttpSession, name: str, change: dict[str, Any]) -> Iterator[Step]:
    paused = change.pop("paused", None)
    if change:
        for rate in ("rate", "key_rate"):
            if rate in change:
                change[rate] = 0 if change[rate] is None else list(change[rate])
        yield from verb_answer(session, "limit", {"function": name, **change})
    if paused is not None:
        yield from verb_answer(session, "pause" if paused else "resume", {"function": name})
    yield from show_function(session, name)


# --- schedules ---


def on_list_schedules(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/schedules"""
    session.work_off(use_verb(session, "schedules", {}))


def on_get_schedule(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/schedules/{name}"""
    name = call.text("name")
    session.work_off(show_named(session, "schedules", f"schedule {name}", name, f"there is no schedule {name}"))


def on_put_schedule(session: HttpSession, call: RouteCall) -> None:
    """PUT /v1/schedules/{name}"""
    try:
        wanted = given_fields(schedule_decoder.decode(call.body))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise validation_problem(error) from None
    session.work_off(put_schedule(session, call.text("name"), wanted))


def put_schedule(session: HttpSession, name: str, wanted: dict[str, Any]) -> Iterator[Step]:
    paused = wanted.pop("paused", None)
    payload = wanted.pop("payload")
    wanted["payload"] = payload if isinstance(payload, str) else {"base64": payload.base64}
    answer = yield from verb_answer(session, "schedule", {"name": name, **wanted})
    if paused is not None:
        verb = "pause_schedule" if paused else "resume_schedule"
        answer = yield from verb_answer(session, verb, {"name": name})
    session.respond_json(200, answer)


def on_delete_schedule(session: HttpSession, call: RouteCall) -> None:
    """DELETE /v1/schedules/{name}"""
    session.work_off(delete_schedule(session, call.text("name")))


def delete_schedule(session: HttpSession, name: str) -> Iterator[Step]:
    yield from verb_answer(session, "unschedule", {"name": name})
    session.respond(204)


def on_run_schedule(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/schedules/{name}/run"""
    session.work_off(run_schedule(session, call.text("name")))


def run_schedule(session: HttpSession, name: str) -> Iterator[Step]:
    answer = yield from verb_answer(session, "run_schedule", {"name": name})
    job_id = session.job_id(answer["handle"].encode())
    session.respond_json(201, {"handle": answer["handle"], "id": job_id, "joined": False})
