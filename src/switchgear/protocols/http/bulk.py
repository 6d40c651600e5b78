"""Bulk actions: cancel or retry all jobs that match a filter, as an object that is looked at while it goes on.

The jobs are chosen when the action is made, and no others join them later.  The action then goes on by itself, in
steps, whether or not its client stays; it is gone with the server.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from secrets import token_hex
from typing import Any, Final

import msgspec

from switchgear.errors import Refused
from switchgear.model import SECOND_US
from switchgear.protocols.context import Context
from switchgear.protocols.http.problems import HttpProblem, field_problem, validation_problem
from switchgear.protocols.http.routing import RouteCall
from switchgear.protocols.http.schemas import bulk_decoder, given_fields
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.pending_read import Step
from switchgear.verbs.table import MOST_JOBS, UNFINISHED_NAMES, UNSUCCESSFUL_NAMES

__all__ = ["BulkActions", "on_abort_bulk", "on_get_bulk", "on_list_bulk", "on_start_bulk"]

MOST_KEPT = 100  # ended ones make room for new ones
MOST_BULK_JOBS = 1_000_000
MOST_PENDING_JOBS = 2_000_000  # of all actions that go on
MOST_EXAMPLES: Final = 10
# The states of jobs that each action can change.
ACTIONS: Final = {"cancel": UNFINISHED_NAMES, "retry": UNSUCCESSFUL_NAMES}
IN_PROGRESS: Final = "running"


class BulkRun:
    """One bulk action."""

    def __init__(self, number: str, action: str, job_ids: array[int], *, cascade: bool, created_us: int) -> None:
        self.id = number
        self.action = action
        self.job_ids = job_ids
        self.matched = len(job_ids)
        self.cascade = cascade
        self.created_us = created_us
        self.state = IN_PROGRESS
        self.handled = 0
        self.changed = 0

    def progress(self, session: HttpSession, *, dry_run: bool = False) -> dict[str, Any]:
        """How far it is, for its client."""
        return {
            "id": self.id,
            "action": self.action,
            "dry_run": dry_run,
            "state": self.state,
            "matched": self.matched,
            "handled": self.handled,
            "changed": self.changed,
            "examples": [session.handle_text(job_id) for job_id in self.job_ids[:MOST_EXAMPLES]],
            "created_at": self.created_us / SECOND_US,
        }

    def steps(self, context: Context, prefix: str) -> Iterator[Step]:
        """Carry it out; what cannot be changed any more is left as it is."""
        for job_id in self.job_ids:
            if self.state is not IN_PROGRESS:
                break
            arguments: dict[str, Any] = {"handle": f"{prefix}{job_id}"}
            if self.action == "cancel":
                arguments["cascade"] = self.cascade
            answers: list[Any] = []
            try:
                yield from context.operate_in_steps(self.action, arguments, answers)
                self.changed += 1
            except (LookupError, ValueError, Refused):
                pass  # it has ended, was retried or is gone since it was chosen
            self.handled += 1
            yield False
        if self.state is IN_PROGRESS:
            self.state = "done"
        del self.job_ids[MOST_EXAMPLES:]


class BulkActions:
    """The bulk actions of a server."""

    def __init__(self) -> None:
        self.run = token_hex(4)  # tells ids from those of an earlier server
        self.last_number = 0
        self.by_id: dict[str, BulkRun] = {}

    def add(self, action: str, job_ids: array[int], *, cascade: bool, created_us: int) -> BulkRun:
        """A new one; raises HttpProblem if too many go on."""
        pending = sum([len(run.job_ids) for run in self.by_id.values() if run.state is IN_PROGRESS])
        if pending + len(job_ids) > MOST_PENDING_JOBS:
            text = f"bulk actions go on for {pending} jobs already"
            raise HttpProblem(429, "limit", text, headers={"Retry-After": "10"})
        if len(self.by_id) >= MOST_KEPT:
            ended = next((number for number, bulk in self.by_id.items() if bulk.state is not IN_PROGRESS), None)
            if ended is None:
                raise HttpProblem(429, "limit", f"{MOST_KEPT} bulk actions go on already", headers={"Retry-After": "1"})
            del self.by_id[ended]
        self.last_number += 1
        bulk = BulkRun(f"b-{self.run}-{self.last_number}", action, job_ids, cascade=cascade, created_us=created_us)
        self.by_id[bulk.id] = bulk
        return bulk


# --- requests ---


def on_start_bulk(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/bulk"""
    try:
        wanted: Any = bulk_decoder.decode(call.body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise validation_problem(error) from None
    given = given_fields(wanted)
    if wanted.action not in ACTIONS:
        raise field_problem("pointer", "/action", f"it is one of {', '.join(ACTIONS)}, not {wanted.action!r}")
    if ("filter" in given) == ("handles" in given):
        raise field_problem("pointer", "", "give either a filter or handles")
    if wanted.cascade and wanted.action != "cancel":
        raise field_problem("pointer", "/cascade", "only cancel has it")
    if "handles" in given:
        job_ids = array("q", dict.fromkeys(named_jobs(session, given["handles"])))
        start(session, wanted, given, job_ids)
        return
    selection = given_fields(given["filter"])
    if not selection:
        raise field_problem("pointer", "/filter", "it is empty; nobody means all jobs by saying nothing")
    session.work_off(choose(session, wanted, given, selection))


def named_jobs(session: HttpSession, handles: list[str]) -> Iterator[int]:
    for place, handle in enumerate(handles):
        try:
            yield session.job_id(handle.encode())
        except HttpProblem as problem:
            raise field_problem("pointer", f"/handles/{place}", str(problem)) from None


def choose(session: HttpSession, wanted: Any, given: dict[str, Any], selection: dict[str, Any]) -> Iterator[Step]:
    """Find the jobs that match, page by page, and begin."""
    possible = ACTIONS[wanted.action]
    states = selection.setdefault("states", list(possible))
    if selection.get("dead") and wanted.action == "retry":
        selection["states"] = ["failed"]
    for place, state in enumerate(states):
        if state.lower() not in possible:
            detail = f"{wanted.action} takes jobs that are {', '.join(possible)}"
            raise field_problem("pointer", f"/filter/states/{place}", detail)
    job_ids: array[int] = array("q")
    before_id: int | None = 0
    while before_id is not None:
        page = yield from session.verb_answer("jobs", {**selection, "before_id": before_id, "limit": MOST_JOBS})
        job_ids.extend([job["id"] for job in page["jobs"]])
        if len(job_ids) > MOST_BULK_JOBS:
            raise HttpProblem(413, "too_many_jobs", f"more than {MOST_BULK_JOBS} jobs match; choose fewer")
        before_id = page["next_before_id"]
        yield False
    start(session, wanted, given, job_ids)


def start(session: HttpSession, wanted: Any, given: dict[str, Any], job_ids: array[int]) -> None:
    expected = given.get("expect")
    if expected is not None and expected != len(job_ids):
        text = f"{len(job_ids)} jobs match, and {expected} were expected"
        raise HttpProblem(409, "unexpected_count", text, errors=[("pointer", "/expect", text)])
    now_us = session.engine.now_us
    if wanted.dry_run:
        run = BulkRun("", wanted.action, job_ids, cascade=wanted.cascade, created_us=now_us)
        run.state = "done"
        session.respond_json(200, run.progress(session, dry_run=True))
        return
    actions: BulkActions = session.setup.shared.bulk
    run = actions.add(wanted.action, job_ids, cascade=wanted.cascade, created_us=now_us)
    answer = run.progress(session)
    session.context.audit(session, f"bulk {run.action}", f"{run.id}, {run.matched} jobs")
    session.context.work_off(run.steps(session.context, session.handle_text(0)[:-1]))
    session.respond_json(202, answer, b"Location: /v1/bulk/%b\r\n" % run.id.encode())


def bulk_named(session: HttpSession, call: RouteCall) -> BulkRun:
    actions: BulkActions = session.setup.shared.bulk
    run = actions.by_id.get(call.text("id"))
    if run is None:
        raise HttpProblem(404, "not_found", "there is no such bulk action, or it ended long ago")
    return run


def on_get_bulk(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/bulk/{id}"""
    run = bulk_named(session, call)
    session.await_commit()  # what it says to have changed is stored
    session.respond_json(200, run.progress(session))


def on_list_bulk(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/bulk"""
    actions: BulkActions = session.setup.shared.bulk
    session.await_commit()
    session.respond_json(200, [run.progress(session) for run in actions.by_id.values()])


def on_abort_bulk(session: HttpSession, call: RouteCall) -> None:
    """DELETE /v1/bulk/{id}"""
    run = bulk_named(session, call)
    if run.state is IN_PROGRESS:
        run.state = "aborted"
        session.context.audit(session, "bulk abort", run.id)
    session.await_commit()
    session.respond_json(200, run.progress(session))
