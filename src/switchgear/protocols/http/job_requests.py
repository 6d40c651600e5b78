"""Handlers of requests about jobs: lists; one job with its contents, attempts and neighbours; its changes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import msgspec

from switchgear.access.permissions import EVERYBODY
from switchgear.json_bytes import plain
from switchgear.model import DONE, FINAL_STATES, Job
from switchgear.model.job import lost_payload_text
from switchgear.protocols.http.http_wait import HttpWait
from switchgear.protocols.http.messages import BYTES
from switchgear.protocols.http.problems import HttpProblem, field_problem, validation_problem
from switchgear.protocols.http.request_problems import no_such_job
from switchgear.protocols.http.routing import RouteCall, replace_cursor
from switchgear.protocols.http.schemas import change_decoder, given_fields
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.http.submitting import end_headers, not_done_problem
from switchgear.protocols.http.verb_answers import use_verb, verb_answer
from switchgear.protocols.pending_read import Reading, Step

__all__ = [
    "MOST_NODES",
    "on_cancel_job",
    "on_change_job",
    "on_explain_job",
    "on_get_attempts",
    "on_get_graph",
    "on_get_job",
    "on_get_payload",
    "on_get_result",
    "on_list_jobs",
    "on_retry_job",
]

MOST_NODES: Final = 300
REDACTED_LINE: Final = b"Switchgear-Redacted: yes\r\n"  # some fields of the body are
MOST_NEIGHBOURS: Final = 100  # of one job that are looked at


# --- lists ---


def on_list_jobs(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/jobs"""
    given = dict(call.plan.given)
    replace_cursor(given)
    if "state" in given and "states" in given:
        raise field_problem("parameter", "states", "it is another name of state; give one of them")
    for name, argument in (("state", "states"), ("q", "contains")):
        if name in given:
            given[argument] = given.pop(name)
    session.work_off(list_jobs(session, given))


def list_jobs(session: HttpSession, arguments: dict[str, Any]) -> Iterator[Step]:
    page = yield from verb_answer(session, "jobs", arguments)
    before_id = page["next_before_id"]
    answer = {
        "jobs": page["jobs"],
        "next": None if before_id is None else str(before_id),
        "complete": before_id is None,
        "searched_to": before_id or 0,
    }
    session.respond_json(200, answer, session.incomplete_lines)


# --- one job ---


def on_get_job(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/jobs/{handle}"""
    job_id = session.job_id(call.argument("handle"))
    has_contents = bool(call.option("contents"))
    job = session.engine.job(job_id)
    wait_seconds = call.option("wait")
    if job is not None and wait_seconds:
        session.wait_for_end(JobWait(has_contents), job, wait_seconds)
    else:
        session.work_off(show_job(session, job_id, has_contents))


def show_job(session: HttpSession, job_id: int, has_contents: bool) -> Iterator[Step]:
    arguments = {"handle": session.handle_text(job_id), "contents": has_contents}
    yield from use_verb(session, "job", arguments)


class JobWait(HttpWait):
    """A request for a job whose client waits for its end."""

    def __init__(self, has_contents: bool) -> None:
        self.job = None
        self.is_of_new_job = False
        self.has_contents = has_contents

    def job_finished(self, session: HttpSession, job: Job) -> None:
        session.continue_with(partial(show_job, session, job.id, self.has_contents))

    def timed_out(self, session: HttpSession) -> None:
        assert self.job is not None
        session.continue_with(partial(show_job, session, self.job.id, self.has_contents))


def on_explain_job(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/jobs/{handle}/explain"""
    job_id = session.job_id(call.argument("handle"))
    session.work_off(use_verb(session, "explain", {"handle": session.handle_text(job_id)}))


def on_get_attempts(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/jobs/{handle}/attempts"""
    session.work_off(show_attempts(session, session.job_id(call.argument("handle"))))


def show_attempts(session: HttpSession, job_id: int) -> Iterator[Step]:
    answer = yield from verb_answer(session, "job", {"handle": session.handle_text(job_id), "workers": True})
    attempts = {"handle": answer["handle"], "state": answer["state"], "attempts": answer["attempt_history"]}
    session.respond_json(200, attempts, session.incomplete_lines)


def found_job(session: HttpSession, job_id: int) -> Reading[Job]:
    """A job, unfinished or not; raises HttpProblem."""
    job = yield from session.context.find_job(job_id)
    if job is None:
        raise no_such_job()
    session.require_job("a request about a job", EVERYBODY, job.function.told_name)
    return job


# --- contents ---


def on_get_payload(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/jobs/{handle}/payload"""
    session.work_off(send_payload(session, session.job_id(call.argument("handle"))))


def send_payload(session: HttpSession, job_id: int) -> Iterator[Step]:
    job = yield from found_job(session, job_id)
    payload = job.payload
    if payload is None:
        payload = (yield from session.context.read_payloads([job_id])).get(job_id)
    if payload is None:
        raise HttpProblem(404, "payload_lost", lost_payload_text(job_id))
    respond_contents(session, job.function.told_name, payload, end_headers(session, job))


def on_get_result(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/jobs/{handle}/result"""
    job_id = session.job_id(call.argument("handle"))
    job = session.engine.job(job_id)
    if job is None:
        session.work_off(send_result(session, job_id, call.option("wait")))
    elif call.option("wait"):
        session.wait_for_end(ResultWait(), job, call.option("wait"))
    else:
        raise not_finished(session, job)


def not_finished(session: HttpSession, job: Job) -> HttpProblem:
    text = f"the job is {job.state.name.lower()}; it has no result yet"
    return HttpProblem(409, "job_unfinished", text, headers={"Retry-After": "1"})


def send_result(session: HttpSession, job_id: int, wait_seconds: int) -> Iterator[Step]:
    job = yield from session.ended_job(job_id)
    if job is None:
        job = yield from session.job_elsewhere(job_id)
    if job is None:
        raise no_such_job()
    session.require_job("a request about a job", EVERYBODY, job.function.told_name)
    if wait_seconds and job.state not in FINAL_STATES and not session.engine.has_job(job_id):
        session.wait_for_end(ResultWait(), job, wait_seconds)
        return
    if job.state not in FINAL_STATES:  # it was retried meanwhile
        raise not_finished(session, job)
    tell_end(session, job)


def respond_contents(session: HttpSession, function: bytes, data: bytes, headers: bytes) -> None:
    """Answer with a payload or result as bytes, redacted; raises HttpProblem if all of it is hidden."""
    redaction = session.redaction()
    if redaction is not None:
        shown = redaction.redacted(function, data)
        if shown is None:
            text = "the setting http.redact hides it; identities with the role admin can read it"
            raise HttpProblem(403, "redacted", text)
        if shown is not data:
            data = shown
            headers += REDACTED_LINE
    session.respond(200, data, BYTES, headers)


def tell_end(session: HttpSession, job: Job) -> None:
    if job.state is DONE:
        respond_contents(session, job.function.told_name, job.whole_result, end_headers(session, job))
    else:
        session.answer_problem(not_done_problem(session, job, 409))


class ResultWait(HttpWait):
    """A request for a result whose client waits for it."""

    def job_finished(self, session: HttpSession, job: Job) -> None:
        try:
            tell_end(session, job)
        except HttpProblem as problem:
            session.answer_problem(problem)

    def timed_out(self, session: HttpSession) -> None:
        assert self.job is not None
        session.answer_problem(not_finished(session, self.job))


# --- neighbours ---


def on_get_graph(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/jobs/{handle}/graph"""
    session.work_off(show_graph(session, session.job_id(call.argument("handle")), call.option("depth")))


def show_graph(session: HttpSession, job_id: int, depth: int) -> Iterator[Step]:
    """The jobs around one, up to a distance: what they wait for, finished or not, and what waits for them."""
    job = yield from found_job(session, job_id)
    found: dict[int, tuple[Job, int]] = {job_id: (job, 0)}
    edges: dict[tuple[int, int], None] = {}
    is_complete = True
    border = [job]
    for distance in range(1, depth + 1):
        wanted: dict[int, None] = {}
        for each in border:
            before = each.predecessors
            after = session.engine.successors(each.id, MOST_NEIGHBOURS + 1)
            is_complete = is_complete and max(len(before), len(after)) <= MOST_NEIGHBOURS
            for other_id in before[:MOST_NEIGHBOURS]:
                edges[other_id, each.id] = None
                wanted[other_id] = None
            for other in after[:MOST_NEIGHBOURS]:
                edges[each.id, other.id] = None
                wanted[other.id] = None
        new = [other_id for other_id in wanted if other_id not in found]
        if len(found) + len(new) > MOST_NODES:
            is_complete = False
            new = new[: MOST_NODES - len(found)]
        jobs = yield from session.context.find_jobs(new)
        border = [
            jobs[each] for each in new if each in jobs and session.permissions.covers(jobs[each].function.told_name)
        ]
        found.update({each.id: (each, distance) for each in border})
    answer = {
        "nodes": [node(session, each, distance) for each, distance in found.values()],
        "edges": [
            (session.handle_text(before_id), session.handle_text(after_id))
            for before_id, after_id in edges
            if before_id in found and after_id in found
        ],
        "complete": is_complete,
    }
    session.respond_json(200, answer)


def node(session: HttpSession, job: Job, distance: int) -> dict[str, Any]:
    return {
        "handle": session.handle_text(job.id),
        "function": plain(job.function.told_name),
        "name": plain(job.name),
        "state": job.state.name.lower(),
        "distance": distance,
    }


# --- changing ---


def on_cancel_job(session: HttpSession, call: RouteCall) -> None:
    """DELETE /v1/jobs/{handle}"""
    job_id = session.job_id(call.argument("handle"))
    session.work_off(cancel_job(session, job_id, bool(call.option("cascade"))))


def cancel_job(session: HttpSession, job_id: int, cascade: bool) -> Iterator[Step]:
    job = yield from found_job(session, job_id)
    if job.state in FINAL_STATES:
        raise HttpProblem(409, "job_ended", f"the job is {job.state.name.lower()}: there is nothing to cancel")
    yield from use_verb(session, "cancel", {"handle": session.handle_text(job_id), "cascade": cascade})


def on_retry_job(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/jobs/{handle}/retry"""
    job_id = session.job_id(call.argument("handle"))
    session.work_off(use_verb(session, "retry", {"handle": session.handle_text(job_id)}))


def on_change_job(session: HttpSession, call: RouteCall) -> None:
    """PATCH /v1/jobs/{handle}"""
    job_id = session.job_id(call.argument("handle"))
    try:
        change = given_fields(change_decoder.decode(call.body))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise validation_problem(error) from None
    if not change:
        raise field_problem("pointer", "", "there is nothing to change: give priority, run_at, or both")
    if change.get("run_at", 0) is None:
        change["run_at"] = 0
    session.work_off(change_job(session, job_id, change))


def change_job(session: HttpSession, job_id: int, change: dict[str, Any]) -> Iterator[Step]:
    job = yield from found_job(session, job_id)
    if job.state in FINAL_STATES:
        raise HttpProblem(409, "job_ended", f"the job is {job.state.name.lower()}: it cannot be changed")
    yield from use_verb(session, "change", {"handle": session.handle_text(job_id), **change})
