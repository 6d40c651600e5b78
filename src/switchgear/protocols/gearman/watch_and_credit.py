"""Handlers of the extension packets WATCH, CREDIT, WORK_PROGRESS, RETRY_LATER, HAND_BACK and RESUME_JOB.

Clients
WATCH          handle                                     -> WATCH_RES handle, state; then the news, and at last the end
Workers
CREDIT         number to add, lease in ms                 -> JOB_PUSH, as many as there are jobs and credit
WORK_PROGRESS  handle, numerator, denominator, message
RETRY_LATER    handle, delay in ms, attempts limit, error
HAND_BACK      handle
RESUME_JOB     handle, attempt                            -> RESUME_RES handle, resumed or refused
WORKER_TAGS    tags with commas; none: it has no tags
WORKER_RESOURCES  amounts with commas, such as memory=64G,cores=8; none: it has none

Held credit. A worker may grant more than it reads. When much output is unread, the rest of its credit is taken back
from the engine and held here until the worker has read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from switchgear.access.permissions import EVERYBODY
from switchgear.errors import PeerError, Refused
from switchgear.model import FINAL_STATES, RUNNING, Job, Worker
from switchgear.numbers import whole_number
from switchgear.protocols.gearman.codec import response
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.session import GearmanSession, first_argument, split
from switchgear.protocols.gearman.worker_packets import worker_of
from switchgear.protocols.pending_read import PendingRead, Step, awaited
from switchgear.resources import resource_amounts
from switchgear.tags import tag_set

__all__ = [
    "check_watching",
    "follow",
    "held_end_told",
    "on_credit",
    "on_hand_back",
    "on_resume_job",
    "on_retry_later",
    "on_watch",
    "on_work_progress",
    "on_worker_resources",
    "on_worker_tags",
    "tell_held_end",
]

UNKNOWN: Final = b"unknown"
MESSAGE_BYTES: Final = 1024  # how much of a worker's message is kept; it is for people to read
USUAL_BYTES: Final = 32
MOST_CREDIT: Final = 1_000_000_000
MOST_STATUS_BYTES: Final = 4096
LARGEST_CONTROL: Final = 10**15
LONGEST_LEASE_MS: Final = 7 * 24 * 3600 * 1000
LONGEST_DELAY_MS: Final = 100 * 366 * 24 * 3600 * 1000
MOST_ATTEMPTS: Final = 1_000_000
MOST_ATTEMPTS_MADE: Final = 10**15
# Each keeps its job in memory, wherever that is in its queue, until the job or the connection ends.
MOST_WATCHED = 100_000
MOST_FIGURE: Final = 10**18


# --- clients ---


def on_watch(session: GearmanSession, body: bytes) -> None:
    handle = first_argument(body)
    job_id = session.job_id(handle)
    job = session.engine.job(job_id)
    if job is not None:
        check_watching(session, job_id)
        session.send(response(Packet.WATCH_RES, handle, state_word(job)))
        follow(session, job)
        return
    session.work_off(watch_ended(session, handle, job_id))


def watch_ended(session: GearmanSession, handle: bytes, job_id: int) -> Iterator[Step]:
    """Send the end of a finished job, if it is known."""
    job = yield from session.ended_job(job_id)
    if job is not None:
        session.require_job("WATCH", EVERYBODY, job.function.told_name)
    if job is None and session.engine.has_job(job_id):
        on_watch(session, handle)  # retried meanwhile
    elif job is None:
        yield from watch_elsewhere(session, handle, job_id)
    else:
        session.send(response(Packet.WATCH_RES, handle, state_word(job)))
        tell_end(session, job)


def watch_elsewhere(session: GearmanSession, handle: bytes, job_id: int) -> Iterator[Step]:
    """Subscribe the session to a job of another node, if there is one."""
    job = yield from session.job_elsewhere(job_id)
    if job is None:
        session.send(response(Packet.WATCH_RES, handle, UNKNOWN))
        return
    session.require_job("WATCH", EVERYBODY, job.function.told_name)
    if job.state in FINAL_STATES:
        session.send(response(Packet.WATCH_RES, handle, state_word(job)))
        tell_end(session, job)
        return
    check_watching(session, job_id)
    session.send(response(Packet.WATCH_RES, handle, state_word(job)))
    follow(session, job)


def state_word(job: Job) -> bytes:
    return job.state.name.lower().encode()


def check_watching(session: GearmanSession, job_id: int = 0) -> None:
    """Check whether the connection may watch one more job; raises PeerError."""
    session.engine.refuse_subscription()
    if len(session.subscriptions) >= MOST_WATCHED and job_id not in session.subscriptions:
        raise PeerError(f"a connection may watch {MOST_WATCHED} jobs", code="ARGUMENT_TOO_LARGE")


def follow(session: GearmanSession, job: Job) -> None:
    """Subscribe the session to an unfinished job, and send its present progress; only once, however often it asks."""
    if job.id in session.subscriptions:
        return
    session.engine.subscribe(job, session)
    if job.state is not RUNNING:
        return
    for data in job.chunks or ():
        session.note_long_answer(len(data))
        session.job_data(job, data)
    if job.numerator or job.denominator or job.message:
        session.job_progress(job)


def tell_held_end(session: GearmanSession, job: Job) -> None:
    """Send the end of a finished job that a submission joined, because it still holds its unique key."""
    session.work_off(held_end_told(session, job))


def held_end_told(session: GearmanSession, held: Job) -> Iterator[Step]:
    job = yield from session.held_end(held)
    tell_end(session, job)


def tell_end(session: GearmanSession, job: Job) -> None:
    """Send the last packet of a job that ended before the request."""
    packet = session.last_packet(job)
    session.note_long_answer(len(packet))
    session.send(packet)


# --- workers ---


def on_credit(session: GearmanSession, body: bytes) -> None:
    credit, lease_us = credit_of(body) if len(body) <= USUAL_BYTES else parse_credit(body)
    if session.worker is None:
        worker_of(session)
    session.takes_pushes = True
    if lease_us != session.lease_us:  # otherwise the input has just renewed it
        session.use_lease(lease_us)
    if credit >= 0:
        session.grant(credit)
    else:
        session.take_back_credit(-credit)


def parse_credit(body: bytes) -> tuple[int, int]:
    """The number to add, and the lease in microseconds."""
    number_text, lease_text = split(body, Packet.CREDIT)
    credit = number(number_text.removeprefix(b"-"), MOST_CREDIT, "CREDIT: the number to add")
    lease_ms = number(lease_text, LONGEST_LEASE_MS, "CREDIT: the lease")
    return (-credit if number_text.startswith(b"-") else credit), lease_ms * 1000


credit_of = lru_cache(maxsize=256)(parse_credit)  # a worker repeats the same values


def on_work_progress(session: GearmanSession, body: bytes) -> None:
    handle, numerator, denominator, message = split(body, Packet.WORK_PROGRESS)
    figures = [number(text, MOST_FIGURE, "WORK_PROGRESS: a figure") for text in (numerator, denominator)]
    job_id = session.job_id(handle)
    worker = session.reporter(job_id)
    job = None
    if worker is not None:
        job = session.engine.progress(worker, job_id, figures[0], figures[1], message=message[:MESSAGE_BYTES])
    if job is None:
        not_found(session)


def on_retry_later(session: GearmanSession, body: bytes) -> None:
    handle, delay_text, limit_text, error = split(body, Packet.RETRY_LATER)
    delay_ms = number(delay_text, LONGEST_DELAY_MS, "RETRY_LATER: the delay")
    limit = number(limit_text, MOST_ATTEMPTS, "RETRY_LATER: the attempts limit") if limit_text else -1
    job_id = session.job_id(handle)
    worker = session.reporter(job_id)
    job = None
    if worker is not None:
        job = session.engine.retry_later(worker, job_id, delay_ms * 1000, error, attempts_limit=limit)
    if job is None:
        not_found(session)


def on_hand_back(session: GearmanSession, body: bytes) -> None:
    job_id = session.job_id(first_argument(body))
    if session.revoked and session.confirm_revocation(job_id):
        return
    worker = session.worker
    job = None
    if worker is not None:
        job = session.engine.release(worker, job_id)
    if job is None:
        not_found(session)


def on_resume_job(session: GearmanSession, body: bytes) -> None:
    handle, attempt_text = split(body, Packet.RESUME_JOB)
    attempt = number(attempt_text, MOST_ATTEMPTS_MADE, "RESUME_JOB: the attempt")
    session.takes_pushes = True  # it knows REVOKE
    worker, job_id = worker_of(session), session.job_id(handle)
    job = session.engine.resume_attempt(worker, job_id, attempt)
    if job is None and session.engine.placement is not None:
        session.work_off(resume_elsewhere(session, handle, worker, job_id, attempt))
        return
    send_resumed(session, handle, goes_on=job is not None)


def resume_elsewhere(
    session: GearmanSession, handle: bytes, worker: Worker, job_id: int, attempt: int
) -> Iterator[Step]:
    """Let a worker go on with a job of another node."""
    engine = session.engine
    placement = engine.placement
    try:
        job = yield from session.stored_elsewhere(job_id)
    except Refused:
        job = None
    goes_on = engine.resume_attempt(worker, job_id, attempt) is not None  # it may have come here meanwhile
    if not goes_on and placement is not None and job is not None and worker.alive:
        answer = PendingRead()
        placement.resume_run(worker, job, attempt, answer.finish)
        goes_on = yield from awaited(answer)
    send_resumed(session, handle, goes_on=goes_on)


def send_resumed(session: GearmanSession, handle: bytes, *, goes_on: bool) -> None:
    session.send(response(Packet.RESUME_RES, handle, b"resumed" if goes_on else b"refused"))


def on_worker_tags(session: GearmanSession, body: bytes) -> None:
    try:
        tags = tag_set(first_argument(body).decode())
    except UnicodeDecodeError as error:
        raise PeerError("WORKER_TAGS: tags are UTF-8", code="INVALID_ARGUMENT") from error
    except ValueError as error:
        raise PeerError(f"WORKER_TAGS: {error}", code="INVALID_ARGUMENT") from error
    session.engine.describe_worker(worker_of(session), tags)


def on_worker_resources(session: GearmanSession, body: bytes) -> None:
    try:
        resources = resource_amounts(first_argument(body).decode())
    except UnicodeDecodeError as error:
        raise PeerError("WORKER_RESOURCES: resources are UTF-8", code="INVALID_ARGUMENT") from error
    except ValueError as error:
        raise PeerError(f"WORKER_RESOURCES: {error}", code="INVALID_ARGUMENT") from error
    session.engine.describe_worker(worker_of(session), resources=resources)


def on_worker_status(session: GearmanSession, body: bytes) -> None:
    answered_text, status = split(body, Packet.WORKER_STATUS)
    answered = number(answered_text, LARGEST_CONTROL, "WORKER_STATUS: the number of the answered WORKER_CONTROL")
    if len(status) > MOST_STATUS_BYTES:
        raise PeerError(
            f"WORKER_STATUS: a status of {len(status)} bytes, {MOST_STATUS_BYTES} are taken", code="TOO_LARGE"
        )
    worker = worker_of(session)
    worker.status = status
    worker.answered_control = answered


def not_found(session: GearmanSession) -> None:
    session.send_error("JOB_NOT_FOUND", "Job given in work result not found")


def number(text: bytes, most: int, name: str) -> int:
    """A whole number in decimal digits; raises PeerError."""
    found = whole_number(text, most)
    if found is None:
        raise PeerError(f"{name} is a whole number up to {most}", code="INVALID_ARGUMENT")
    return found
