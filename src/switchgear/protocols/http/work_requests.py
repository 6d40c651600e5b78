"""Handlers of workers' requests: take a job, report on it; register, poll, deregister."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET

from switchgear.access.permissions import EVERYBODY
from switchgear.errors import Refused
from switchgear.json_bytes import bytes_of
from switchgear.model import SECOND_US, Job
from switchgear.numbers import whole_number
from switchgear.protocols.handles import number_in_handle
from switchgear.protocols.http.long_answers import respond_json_in_steps
from switchgear.protocols.http.polled_jobs import has_long_payload, polled_jobs, polled_jobs_json
from switchgear.protocols.http.problems import HttpProblem, field_problem, validation_problem
from switchgear.protocols.http.routing import RouteCall
from switchgear.protocols.http.schemas import (
    fail_decoder,
    given_fields,
    poll_decoder,
    progress_decoder,
    registration_decoder,
)
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.http.submitting import function_name
from switchgear.protocols.http.workers import HttpWorker, HttpWorkers, WorkerAddress, WorkerWait
from switchgear.protocols.pending_read import Step
from switchgear.resources import resource_amounts
from switchgear.states import LateReport
from switchgear.tags import tag_set

__all__ = [
    "MOST_LEASE_SECONDS",
    "on_deregister_worker",
    "on_fail_job",
    "on_poll",
    "on_put_result",
    "on_register_worker",
    "on_release_job",
    "on_report_progress",
    "on_take",
]

MOST_LEASE_SECONDS: Final = 7 * 86_400
MESSAGE_BYTES: Final = 1024
MOST_POLLED_BYTES: Final = 8 * 1024 * 1024
# Reports of an earlier server's workers are believed on their word, under a name that no worker has.
NOBODY: Final = "http"


def workers_of(session: HttpSession) -> HttpWorkers:
    workers = session.setup.workers
    assert workers is not None
    return workers


# --- taking ---


def on_take(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/functions/{function}/take"""
    function = function_name(session, call.argument("function"), "parameter", "function")
    plan = call.plan
    if plan.lease_us < 0:
        plan.lease_us = int(call.option("lease") * SECOND_US)
    peer = workers_of(session).taker(session, function, plan.lease_us)
    ask(session, TakeWait(peer), call.option("wait"))


def ask(session: HttpSession, wait: WorkerWait, wait_seconds: int) -> None:
    """Answer with a job, now or as soon as there is one."""
    engine = session.engine
    peer = wait.peer
    worker = peer.worker
    assert worker is not None
    peer.session = session
    session.wait = wait
    engine.renew_lease(worker, peer.lease_us + wait_seconds * SECOND_US)
    if wait_seconds:
        engine.grant_until(worker, engine.now_us + wait_seconds * SECOND_US)
        return
    job = engine.take(worker)
    if job is not None:
        wait.give(session, job)
        return
    pending = session.context.awaited_payload(worker)
    if pending is None:
        wait.timed_out(session)
    else:
        session.work_off(give_when_read(session, wait, pending))


def give_when_read(session: HttpSession, wait: WorkerWait, pending: Any) -> Iterator[Step]:
    worker = wait.peer.worker
    job = None if worker is None else (yield from session.take_when_read(worker, pending))
    if job is not None:
        wait.give(session, job)
    else:
        wait.timed_out(session)


class TakeWait(WorkerWait):
    """A request for one job, whose payload is the body of the answer."""

    def __init__(self, peer: HttpWorker) -> None:
        super().__init__(peer)
        self.given_id = 0  # the job in the answer

    def give_back(self) -> None:
        self.peer.workers.take_back(self.peer, [self.given_id])

    def give(self, session: HttpSession, job: Job) -> None:
        peer = self.peer
        peer.workers.give(peer, job)
        self.given_id = job.id
        session.give_back_if_unsent(self)
        peer.session = None
        trace = job.trace if job.has_details else b""
        session.give_job(job.id, job.start_number, job.payload or b"", trace)

    def timed_out(self, session: HttpSession) -> None:
        peer = self.peer
        peer.session = None
        session.context.soon(partial(peer.workers.remove, peer))
        session.respond(204)


# --- reports ---


def attempt_of(call: RouteCall) -> int:
    """The attempt that a report is about; raises HttpProblem."""
    head = call.request.head
    first = head.alike or head
    if first.attempt > 0:
        return first.attempt
    header = call.request.header(b"switchgear-attempt")
    if not header:
        text = "a report needs the header Switchgear-Attempt, with the value that came with the job"
        raise HttpProblem(428, "attempt_missing", text, errors=[("header", "Switchgear-Attempt", "it is missing")])
    attempt = whole_number(header)
    if not attempt:
        raise field_problem("header", "Switchgear-Attempt", "it is a number", status=400)
    first.attempt = attempt
    return attempt


def held(session: HttpSession, call: RouteCall) -> tuple[HttpWorker, int]:
    """The worker that has the job of a report, and the job's id; raises HttpProblem."""
    job_id = session.job_id(call.argument("handle"))
    peer = workers_of(session).holder(job_id, attempt_of(call))
    if peer is None:
        raise not_held()
    return peer, job_id


def not_held() -> HttpProblem:
    text = "this attempt is over: the lease has expired, the job was reported on, or it was given to another worker"
    return HttpProblem(409, "not_held", text)


def is_unwanted(peer: HttpWorker, job_id: int) -> bool:
    """Whether the job was taken from its worker, such as by cancelling it, and the worker does not know yet."""
    worker = peer.worker
    job = worker.running.get(job_id) if worker is not None else None
    return job is None or job.worker is not worker


def end_report(session: HttpSession, peer: HttpWorker, job_id: int, is_late: bool) -> None:
    """Answer to a report after which the worker does not have the job any more."""
    if not peer.is_single:
        peer.renew()
    peer.workers.reported(peer, job_id, session)
    if is_late:
        raise HttpProblem(409, "cancelled", "the job was cancelled or timed out: the report has no effect")
    session.respond_no_content()


def on_put_result(session: HttpSession, call: RouteCall) -> None:
    """PUT /v1/jobs/{handle}/result"""
    job_id = session.job_id(call.argument("handle"))
    attempt = attempt_of(call)
    peer = workers_of(session).holder(job_id, attempt)
    if peer is None or peer.worker is None:
        # The work of an earlier server's worker is not lost, unless somebody else has begun it.
        if session.engine.report_late(job_id, NOBODY, attempt, call.body) is not LateReport.ACCEPTED:
            raise not_held()
        session.respond(204)
        return
    is_late = is_unwanted(peer, job_id)
    session.engine.complete(peer.worker, job_id, call.body, attempt)
    end_report(session, peer, job_id, is_late)


def on_fail_job(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/jobs/{handle}/fail"""
    report: Any = decoded(fail_decoder, call.body)
    error = report.error
    try:
        text = error.encode() if isinstance(error, str) else bytes_of({"base64": error.base64}, "error")
    except ValueError as mistake:
        raise field_problem("pointer", "/error", str(mistake).removeprefix("error: ")) from None
    peer, job_id = held(session, call)
    is_late = is_unwanted(peer, job_id)
    assert peer.worker is not None
    if report.retry_in is None:
        session.engine.fail(peer.worker, job_id, 1, text)
    else:
        limit = -1 if report.attempts_limit is UNSET else report.attempts_limit
        session.engine.retry_later(peer.worker, job_id, int(report.retry_in * SECOND_US), text, attempts_limit=limit)
    end_report(session, peer, job_id, is_late)


def on_release_job(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/jobs/{handle}/release"""
    peer, job_id = held(session, call)
    is_late = is_unwanted(peer, job_id)
    assert peer.worker is not None
    session.engine.release(peer.worker, job_id)
    end_report(session, peer, job_id, is_late)


def on_report_progress(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/jobs/{handle}/progress"""
    given = given_fields(decoded(progress_decoder, call.body))
    peer, job_id = held(session, call)
    assert peer.worker is not None
    job = peer.worker.running.get(job_id)
    if given and job is not None:
        message = given["message"].encode()[:MESSAGE_BYTES] if "message" in given else job.message
        numerator, denominator = given.get("numerator", job.numerator), given.get("denominator", job.denominator)
        session.engine.progress(peer.worker, job_id, numerator, denominator, message=message)
    peer.renew()
    answer = {"cancelled": is_unwanted(peer, job_id), "lease": peer.lease_us / SECOND_US}
    session.respond_json(200, answer)


def decoded(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """A JSON body, or nothing in place of an empty object; raises HttpProblem."""
    try:
        return decoder.decode(body.strip() or b"{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise validation_problem(error) from None


# --- registered workers ---


def on_register_worker(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/workers"""
    wanted: Any = decoded(registration_decoder, call.body)
    functions = [
        function_name(session, name.encode(), "pointer", f"/functions/{place}")
        for place, name in enumerate(dict.fromkeys(wanted.functions))
    ]
    for function in functions:
        session.require("a worker", EVERYBODY, function)
    if b"" in functions:
        raise field_problem("pointer", f"/functions/{functions.index(b'')}", "it is empty")
    try:
        tags = tag_set(",".join(wanted.tags)) if wanted.tags else frozenset()
    except ValueError as error:
        raise field_problem("pointer", "/tags", str(error)) from None
    try:
        resources = resource_amounts(wanted.resources)
    except ValueError as error:
        raise field_problem("pointer", "/resources", str(error)) from None
    workers = workers_of(session)
    lease_us = int(wanted.lease * SECOND_US)
    timeouts_us = {name.encode(): round(seconds * SECOND_US) for name, seconds in wanted.timeouts.items()}
    peer = workers.add(session, functions, lease_us, wanted.name.encode(), timeouts_us, is_single=False)
    if tags or resources:
        assert peer.worker is not None
        try:
            session.engine.describe_worker(peer.worker, tags, resources)
        except Refused:
            workers.remove(peer)  # its client will never know its id
            raise
    location = b"Location: /v1/workers/%b\r\n" % peer.id.encode()
    session.respond_json(201, {"id": peer.id, "lease": wanted.lease}, location)


def worker_named(session: HttpSession, call: RouteCall) -> HttpWorker:
    peer = workers_of(session).by_id.get(call.text("id"))
    is_own = peer is not None and (not session.is_guarded or peer.owner is session.permissions)
    if peer is None or peer.worker is None or not peer.worker.alive or not is_own:
        raise HttpProblem(404, "worker_not_found", "there is no such worker, or its lease has expired; register again")
    return peer


def on_deregister_worker(session: HttpSession, call: RouteCall) -> None:
    """DELETE /v1/workers/{id}"""
    peer = worker_named(session, call)
    waiting, peer.session = peer.session, None
    workers_of(session).remove(peer)
    if waiting is not None and waiting.wait is not None:
        waiting.wait.timed_out(waiting)
    session.respond(204)


def on_poll(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/workers/{id}/poll"""
    peer = worker_named(session, call)
    worker = peer.worker
    assert worker is not None
    wanted: Any = decoded(poll_decoder, call.body)
    peer.transport = WorkerAddress(session)  # it may ask from another address than before
    supersede(session, peer)
    if wanted.held is not UNSET:
        take_back_lost(session, peer, wanted.held)
    limit = session.engine.settings.jobs_per_worker
    most = call.option("max")
    if limit and most:
        most = min(most, limit - len(peer.job_ids))
        if most <= 0:
            text = f"this worker has {limit} jobs that it has not reported on (limits.jobs_per_worker)"
            raise HttpProblem(429, "too_many_jobs", text)
    peer.session = session
    jobs: list[Job] = []
    size = 0
    while len(jobs) < most and size < MOST_POLLED_BYTES:
        job = session.engine.take(worker)
        if job is None:
            break
        jobs.append(job)
        size += len(job.payload or b"")
    wait = PollWait(peer)
    if jobs or peer.revoked:
        peer.renew()
        give_jobs(session, wait, jobs)
    elif most:
        ask(session, wait, call.option("wait"))
    else:
        wait_without_room(session, wait, call.option("wait"))


def supersede(session: HttpSession, peer: HttpWorker) -> None:
    """Answer an earlier request of the worker that still waits: its connection may be lost, which nobody knows yet."""
    waiting = peer.session
    if waiting is None:
        return
    if waiting.operation is not None:  # a job is being read for it
        raise HttpProblem(409, "already_polling", "another request of this worker is about to be given a job")
    peer.session = None
    if peer.worker is not None:
        session.engine.withdraw_credit(peer.worker)
    if waiting.wait is not None:
        waiting.wait.timed_out(waiting)


def take_back_lost(session: HttpSession, peer: HttpWorker, held_now: list[Any]) -> None:
    """Take back jobs whose answer was lost on its way to the worker, which has only these."""
    workers = workers_of(session)
    known = {(number_in_handle(each.handle.encode(), session.prefix), each.attempt) for each in held_now}
    for job_id in list(peer.job_ids):
        entry = workers.by_job.get(job_id)
        if entry is not None and entry[0] is peer and (job_id, entry[1]) not in known:
            workers.take_back(peer, [job_id])


def wait_without_room(session: HttpSession, wait: PollWait, wait_seconds: int) -> None:
    """Keep the lease of a worker that has no room for a job, and tell it if one of its jobs is to be stopped."""
    engine = session.engine
    worker = wait.peer.worker
    assert worker is not None
    engine.renew_lease(worker, wait.peer.lease_us + wait_seconds * SECOND_US)
    session.wait = wait
    if wait_seconds:
        engine.set_timer(session, engine.now_us + wait_seconds * SECOND_US)
    else:
        wait.timed_out(session)


def give_jobs(session: HttpSession, wait: PollWait, jobs: list[Job]) -> None:
    """Respond to a poll with these jobs, and with those that the worker is to stop."""
    peer = wait.peer
    for job in jobs:
        peer.workers.give(peer, job)
        wait.given_ids.append(job.id)
    if jobs:
        session.give_back_if_unsent(wait)
    if peer.session is session:
        peer.session = None
    revoked, peer.revoked = peer.revoked, {}
    stopped = [
        {"handle": session.handle_text(job_id), "attempt": attempt, "reason": cause.name.lower()}
        for (job_id, attempt), cause in revoked.items()
    ]
    timeouts_us = peer.worker.timeouts_us if peer.worker is not None else {}
    setup = session.setup
    if has_long_payload(jobs):
        answer = {"jobs": polled_jobs(setup.handle_text, jobs, timeouts_us), "revoked": stopped}
        session.continue_with(partial(respond_json_in_steps, session, 200, answer, may_refuse=False))
    else:
        jobs_json = polled_jobs_json(setup.handle_json, jobs, timeouts_us)
        stopped_json = msgspec.json.encode(stopped) if stopped else b"[]"
        session.respond(200, b"".join([b'{"jobs":', jobs_json, b',"revoked":', stopped_json, b"}"]))


class PollWait(WorkerWait):
    """A registered worker's request for jobs."""

    def __init__(self, peer: HttpWorker) -> None:
        super().__init__(peer)
        self.given_ids: list[int] = []  # the jobs in the answer

    def give_back(self) -> None:
        self.peer.workers.take_back(self.peer, self.given_ids)

    def give(self, session: HttpSession, job: Job) -> None:
        give_jobs(session, self, [job])

    def job_revoked(self, session: HttpSession) -> None:
        session.continue_with(partial(tell_revoked, session, self))

    def timed_out(self, session: HttpSession) -> None:
        if self.peer.session is session:
            self.peer.session = None
        if self.peer.worker is not None:
            session.context.soon(self.peer.renew)
        session.respond_json(200, {"jobs": [], "revoked": []})


def tell_revoked(session: HttpSession, wait: PollWait) -> Iterator[Step]:
    """Answer the waiting request of a worker with the jobs that it is to stop."""
    peer = wait.peer
    if peer.session is session and peer.worker is not None:
        session.engine.withdraw_credit(peer.worker)
    peer.renew()
    give_jobs(session, wait, [])
    yield False
