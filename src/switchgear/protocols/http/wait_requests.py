"""The handler of requests that wait for many jobs at once: for the end, or new progress, of any of them.

A client says what it has seen of each job.  So nothing is remembered between two requests, and what happens between
them is told by the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET

from switchgear.errors import Refused
from switchgear.json_bytes import plain, told
from switchgear.model import DONE, FINAL_STATES, SECOND_US, Job
from switchgear.protocols.handles import number_in_handle
from switchgear.protocols.http.http_wait import HttpWait
from switchgear.protocols.http.job_error import told_error
from switchgear.protocols.http.long_answers import respond_json_in_steps
from switchgear.protocols.http.problems import validation_problem
from switchgear.protocols.http.redaction import MARK
from switchgear.protocols.http.routing import RouteCall
from switchgear.protocols.http.schemas import awaited_decoder
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.pending_read import Step
from switchgear.refusals import REFUSED_LIMIT
from switchgear.verbs.access import Role

__all__ = ["on_wait_for_jobs"]

JOBS_PER_STEP: Final = 50
# What a job takes that a waiting client has named, besides its subscription.
SEEN_BYTES: Final = 250
# Results beyond this are left to the next request.
MOST_RESULT_BYTES = 8 * 1024 * 1024


class SeenJob:
    """A job that a client waits for, and what it has seen of it."""

    __slots__ = ("elsewhere", "handle", "job_id", "seen")

    def __init__(self, handle: str, job_id: int, seen: tuple[int, int, str] | None) -> None:
        self.handle = handle
        self.job_id = job_id  # 0 if there never was such a job
        self.seen = seen
        self.elsewhere: Job | None = None  # stands for the job, which another node has

    def is_new(self, job: Job) -> bool:
        """Whether the client has not seen the progress of an unfinished job."""
        return self.seen is None or self.seen != (
            job.numerator,
            job.denominator,
            job.message.decode("utf-8", "replace"),
        )


def on_wait_for_jobs(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/jobs/wait"""
    try:
        wanted: Any = awaited_decoder.decode(call.body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise validation_problem(error) from None
    awaited: list[SeenJob] = []
    for each in wanted.jobs:
        raw = each.handle.encode()
        number = number_in_handle(raw, session.prefix) or number_in_handle(raw, b"")
        if not 0 < number < session.engine.ids_end:
            number = 0
        awaited.append(SeenJob(each.handle, number, None if each.seen is UNSET else each.seen))
    session.work_off(tell_changed(session, awaited, call.option("wait")))


def tell_changed(session: HttpSession, awaited: list[SeenJob], wait_seconds: int) -> Iterator[Step]:
    """Answer with what the client has not seen; if there is nothing, as soon as there is."""
    answers: list[dict[str, Any]] = []
    result_bytes = 0
    redaction = session.redaction(exempt=Role.SUBMIT)  # submitters get the results of their jobs here
    for number, each in enumerate(awaited, 1):
        if number % JOBS_PER_STEP == 0:
            yield False
        job = session.engine.look_at(each.job_id)
        if job is None and each.job_id:
            job = yield from session.ended_job(each.job_id)
            if job is None:
                job = each.elsewhere = yield from session.job_elsewhere(each.job_id)
        if job is None or (session.is_guarded and not session.permissions.covers(job.function.told_name)):
            answers.append(unknown_job(each))
        elif job.state in FINAL_STATES:
            answer = ended_job(session, each, job)
            if redaction is not None and job.state is DONE:
                shown = redaction.redacted(job.function.told_name, job.whole_result)
                answer["result"] = MARK if shown is None else told(shown)
                yield False
            answers.append(answer)
            result_bytes += len(job.whole_result) if job.state is DONE else 0
            if result_bytes > MOST_RESULT_BYTES:
                break
        elif each.is_new(job):
            answers.append(unfinished_job(each, job))
    if answers or not wait_seconds:
        yield from respond_json_in_steps(session, 200, {"jobs": answers})
    else:
        yield from begin_to_wait(session, awaited, wait_seconds)


def begin_to_wait(session: HttpSession, awaited: list[SeenJob], wait_seconds: int) -> Iterator[Step]:
    """Subscribe to all jobs.  If one of them changes meanwhile, answer after the loop."""
    engine = session.engine
    engine.refuse_subscription()
    if not engine.memory.has_room(len(awaited) * SEEN_BYTES):
        raise Refused(REFUSED_LIMIT, "the server holds as much as it may; try again later")
    engine.set_timer(session, engine.now_us + wait_seconds * SECOND_US)
    session.wait = wait = JobsWait(session, awaited)
    for number, each in enumerate(awaited, 1):
        if number % JOBS_PER_STEP == 0:
            yield False
        job = engine.job(each.job_id) or each.elsewhere
        if job is None or job.state in FINAL_STATES or each.is_new(job):
            wait.has_changes = True
            break
        engine.subscribe(job, session)
    wait.is_complete = True
    if wait.has_changes:
        session.wait = None
        wait.end(session)
        engine.unsubscribe(session)
        yield from tell_changed(session, awaited, 0)


class JobsWait(HttpWait):
    """A request that waits for any of some jobs."""

    def __init__(self, session: HttpSession, awaited: list[SeenJob]) -> None:
        self.job = None
        self.is_of_new_job = False
        self.awaited = awaited
        self.is_complete = False  # all subscriptions are made
        self.has_changes = False
        # Messages that the client has seen are at most as long as its request.
        self._held_bytes = sum([SEEN_BYTES + (len(each.seen[2]) if each.seen else 0) for each in awaited])
        session.engine.memory.draft_bytes += self._held_bytes

    def end(self, session: HttpSession) -> None:
        session.engine.memory.draft_bytes -= self._held_bytes
        self._held_bytes = 0

    def job_finished(self, session: HttpSession, job: Job) -> None:
        self._answer(session)

    def job_event(self, session: HttpSession, job: Job, kind: str, data: bytes) -> None:
        if kind == "progress":
            self._answer(session)

    def timed_out(self, session: HttpSession) -> None:
        self._answer(session)

    def _answer(self, session: HttpSession) -> None:
        self.has_changes = True
        if self.is_complete:
            self.end(session)
            session.continue_with(partial(tell_changed, session, self.awaited, 0))


# --- answers: `schemas.JobNow` ---


def unknown_job(each: SeenJob) -> dict[str, Any]:
    return described(each.handle, "unknown")


def ended_job(session: HttpSession, each: SeenJob, job: Job) -> dict[str, Any]:
    error = told_error(job, session.handle_text)
    answer = described(each.handle, job.state.name.lower())
    answer["cause"] = job.log[-1][0].name.lower() if job.log else ""
    answer["error"] = None if error is None else plain(error)
    answer["result"] = told(job.whole_result) if job.state is DONE else None
    return answer


def unfinished_job(each: SeenJob, job: Job) -> dict[str, Any]:
    answer = described(each.handle, job.state.name.lower())
    answer["numerator"] = job.numerator
    answer["denominator"] = job.denominator
    answer["message"] = plain(job.message)
    return answer


def described(handle: str, state: str) -> dict[str, Any]:
    return {
        "handle": handle,
        "state": state,
        "cause": "",
        "error": None,
        "result": None,
        "numerator": 0,
        "denominator": 0,
        "message": "",
    }
