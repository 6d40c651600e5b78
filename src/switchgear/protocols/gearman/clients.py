"""What clients ask: submit a job, how is it, echo, options."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import PeerError
from switchgear.model import FINAL_STATES, NORMAL, PAYLOAD_KEY, RUNNING, SECOND_US, Delivery, Job
from switchgear.numbers import leading_number
from switchgear.protocols.gearman.codec import ResponseMaker, response
from switchgear.protocols.gearman.extensions import check_watching, follow, tell_held_end
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.session import GearmanSession, first_argument, split

__all__ = [
    "on_echo",
    "on_get_status",
    "on_get_status_unique",
    "on_option",
    "on_submit_epoch",
    "on_submit_reduce",
    "on_submit_reduce_background",
    "submit",
    "submit_with_options",
]

UNIQUE_BYTES: Final = 64
LATEST_SECONDS: Final = 253_402_300_799  # the last second of the year 9999: nobody can show a later one
WAIT: Final = int(Delivery.WAIT)
CREATED: Final = ResponseMaker(Packet.JOB_CREATED)


def unique_key(session: GearmanSession, unique: bytes, payload: bytes) -> bytes:
    """The key that decides which submissions share a job."""
    if unique == b"-":
        # Equal payloads share a job; an empty one says nothing, so it gets a key that no other job will have.
        words = blake2b(payload, digest_size=16).digest() if payload else b"\0%d" % session.engine.next_job_id
        return PAYLOAD_KEY + words
    if len(unique) > UNIQUE_BYTES:
        raise PeerError("Unique value too large", code="ARGUMENT_TOO_LARGE")
    return unique


def submit(session: GearmanSession, kind: int, body: bytes, priority: int, delivery: int) -> None:
    """One of the six plain submit packets.  Written for speed: every job passes here."""
    # Most peers submit to the same function again and again, with keys of the same length.
    start = len(session.last_name)
    end = start + session.unique_bytes
    unique = body[start:end]
    if end < len(body) and not body[end] and body.startswith(session.last_name) and 0 not in unique:
        payload = body[end + 1 :]
    else:
        name, unique, payload = split(body, Packet(kind))
        if len(name) > session.setup.name_bytes:
            session.name_of(name)  # raises
        session.last_name = name + b"\0"
        session.last_function = name
        session.unique_bytes = len(unique)
    if len(unique) > UNIQUE_BYTES or unique == b"-":
        unique = unique_key(session, unique, payload)
    waits = delivery == WAIT
    job = session.engine.submit(session.last_function, unique, payload, priority, delivery, session if waits else None)
    session.out.append(CREATED.packet(b"%b%d" % (session.prefix, job.id)))
    if waits:
        if unique and job.state in FINAL_STATES:
            tell_held_end(session, job)
    elif session.keeps:
        session.pledge_job(job)


def submit_with_options(
    session: GearmanSession,
    function: bytes,
    unique: bytes,
    payload: bytes,
    priority: int,
    delivery: Delivery,
    options: SubmitOptions,
    *,
    watch: bool = False,
) -> None:
    """The slower way, for the rarer submit packets."""
    watcher = session if delivery is Delivery.WAIT else None
    if watch:
        check_watching(session)
    key = unique_key(session, unique, payload)
    job = session.engine.submit(session.name_of(function), key, payload, priority, delivery, watcher, options)
    session.send(response(Packet.JOB_CREATED, session.handle(job)))
    session.pledge_job(job)
    if job.state in FINAL_STATES:
        if watch or watcher is not None:
            tell_held_end(session, job)
    elif watch:
        if session.keeps and not job.kept and job.id not in session.watching:
            session.followed.add(job.id)
        follow(session, job)


def on_submit_epoch(session: GearmanSession, body: bytes) -> None:
    function, unique, epoch, payload = split(body, Packet.SUBMIT_JOB_EPOCH)
    seconds = leading_number(epoch)
    if seconds > LATEST_SECONDS:
        raise PeerError("epoch is too far away", code="ARGUMENT_TOO_LARGE")
    options = SubmitOptions(run_at_us=seconds * SECOND_US)
    submit_with_options(session, function, unique, payload, NORMAL, Delivery.HANDLE, options)


def on_submit_reduce(session: GearmanSession, body: bytes) -> None:
    submit_reduce(session, split(body, Packet.SUBMIT_REDUCE_JOB), Delivery.WAIT)


def on_submit_reduce_background(session: GearmanSession, body: bytes) -> None:
    submit_reduce(session, split(body, Packet.SUBMIT_REDUCE_JOB_BACKGROUND), Delivery.HANDLE)


def submit_reduce(session: GearmanSession, arguments: list[bytes], delivery: Delivery) -> None:
    function, unique, reducer, _unused, payload = arguments
    if len(reducer) > UNIQUE_BYTES:
        raise PeerError("Unique value too large", code="ARGUMENT_TOO_LARGE")
    options = SubmitOptions(reducer=reducer)
    submit_with_options(session, function, unique, payload, NORMAL, delivery, options)


def on_get_status(session: GearmanSession, body: bytes) -> None:
    handle = first_argument(body)
    job = session.engine.look_at(session.job_id(handle))
    session.send(response(Packet.STATUS_RES, handle, *status_fields(job)))


def unfinished_holder(session: GearmanSession, unique: bytes) -> Job | None:
    """The job with this key.  One that has ended may still hold its key; by its handle it would be unknown too."""
    for function in session.engine.functions.values():
        holder = session.engine.look_at_holder(function, unique)
        if holder is not None and holder.state not in FINAL_STATES:
            return holder
    return None


def on_get_status_unique(session: GearmanSession, body: bytes) -> None:
    unique = first_argument(body)
    job = unfinished_holder(session, unique)
    waiting = len(job.watchers or ()) if job is not None else 0
    session.send(response(Packet.STATUS_RES_UNIQUE, unique, *status_fields(job), b"%d" % waiting))


def status_fields(job: Job | None) -> tuple[bytes, bytes, bytes, bytes]:
    if job is None:
        return b"0", b"0", b"0", b"0"
    running = b"1" if job.state is RUNNING else b"0"
    return b"1", running, b"%d" % job.numerator, b"%d" % job.denominator


def on_option(session: GearmanSession, body: bytes) -> None:
    option = body.lower()
    if option == b"packet_bytes":  # whoever knows what we take need not find out by being hung up on
        session.send(response(Packet.OPTION_RES, option, b"%d" % session.setup.packet_bytes))
        return
    if option not in (b"exceptions", b"switchgear"):
        session.send_error("UNKNOWN_OPTION", "Server does not recognize given option")
        return
    session.exceptions = True
    if option == b"switchgear":
        session.extended = True
    session.send(response(Packet.OPTION_RES, body))


def on_echo(session: GearmanSession, body: bytes) -> None:
    session.send(response(Packet.ECHO_RES, body))
