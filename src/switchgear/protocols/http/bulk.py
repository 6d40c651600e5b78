"""Handlers of bulk actions: start, list, show and abort actions that cancel or retry all matching jobs.

The verbs `bulk`, `bulk_actions` and `abort_bulk` do the work.  Here are their addresses, and
the pointers of their errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from switchgear.protocols.http.problems import HttpProblem, field_problem, validation_problem
from switchgear.protocols.http.routing import RouteCall
from switchgear.protocols.http.schemas import bulk_decoder, given_fields
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.http.verb_answers import use_verb, verb_answer
from switchgear.protocols.pending_read import Step
from switchgear.verbs.permitted_values import BULK_STATES

__all__ = ["on_abort_bulk", "on_get_bulk", "on_list_bulk", "on_start_bulk"]


def on_start_bulk(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/bulk"""
    try:
        wanted: Any = bulk_decoder.decode(call.body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise validation_problem(error) from None
    given = given_fields(wanted)
    if wanted.action not in BULK_STATES:
        raise field_problem("pointer", "/action", f"it is one of {', '.join(BULK_STATES)}, not {wanted.action!r}")
    if ("filter" in given) == ("handles" in given):
        raise field_problem("pointer", "", "give either a filter or handles")
    arguments = {name: value for name, value in given.items() if name not in ("filter", "handles")}
    if "handles" in given:
        arguments["handles"] = [session.handle_text(job_id) for job_id in named_jobs(session, given["handles"])]
    else:
        arguments.update(selection(wanted.action, given_fields(given["filter"])))
    session.work_off(start(session, arguments))


def named_jobs(session: HttpSession, handles: list[str]) -> Iterator[int]:
    for place, handle in enumerate(handles):
        try:
            yield session.job_id(handle.encode())
        except HttpProblem as problem:
            raise field_problem("pointer", f"/handles/{place}", str(problem)) from None


def selection(action: str, given: dict[str, Any]) -> dict[str, Any]:
    """The filter as arguments of the verb; without states, all jobs that the action can change."""
    if not given:
        raise field_problem("pointer", "/filter", "it is empty; an action on all jobs needs at least one condition")
    possible = BULK_STATES[action]
    name = "states"
    if "state" in given:
        if "states" in given:
            raise field_problem("pointer", "/filter/state", "it is another name of states; give one of them")
        name, states = "state", given["state"]
        given = {key: value for key, value in given.items() if key != "state"}
        given["states"] = [states] if isinstance(states, str) else states
    for place, state in enumerate(given.get("states", ())):
        if state.lower() not in possible:
            detail = f"{action} takes jobs that are {', '.join(possible)}"
            raise field_problem("pointer", f"/filter/{name}/{place}", detail)
    if given.get("dead"):
        return given
    return {"states": list(possible), **given}


def start(session: HttpSession, arguments: dict[str, Any]) -> Iterator[Step]:
    answer = yield from verb_answer(session, "bulk", arguments)
    if answer["dry_run"]:
        session.respond_json(200, answer, session.incomplete_lines)
    else:
        session.respond_json(
            202, answer, b"Location: /v1/bulk/%b\r\n" % answer["id"].encode() + session.incomplete_lines
        )


def on_get_bulk(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/bulk/{id}"""
    session.work_off(show(session, call.text("id")))


def show(session: HttpSession, number: str) -> Iterator[Step]:
    answers = yield from verb_answer(session, "bulk_actions", {"id": number})
    session.respond_json(200, answers[0], session.incomplete_lines)


def on_list_bulk(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/bulk"""
    session.work_off(use_verb(session, "bulk_actions", {}))


def on_abort_bulk(session: HttpSession, call: RouteCall) -> None:
    """DELETE /v1/bulk/{id}"""
    session.work_off(use_verb(session, "abort_bulk", {"id": call.text("id")}))
