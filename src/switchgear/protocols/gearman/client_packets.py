"""Handlers of the packets that clients send: submissions, GET_STATUS, ECHO_REQ, OPTION_REQ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import PeerError
from switchgear.model import FINAL_STATES, NORMAL, RUNNING, SECOND_US, Delivery, Job
from switchgear.numbers import leading_number
from switchgear.protocols.gearman.codec import HEADER, RESPONSE, JobPackets, response
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.session import GearmanSession, first_argument, split
from switchgear.protocols.gearman.watch_and_credit import check_watching, follow, held_end_told, tell_held_end
from switchgear.protocols.pending_read import Step
from switchgear.protocols.submitted_unique_key import UNIQUE_BYTES, unique_key

__all__ = [
    "on_echo",
    "on_get_status",
    "on_get_status_unique",
    "on_long_echo",
    "on_option",
    "on_submit_epoch",
    "on_submit_reduce",
    "on_submit_reduce_background",
    "submit",
    "submit_epoch",
    "submit_in_steps",
    "submit_long",
    "submit_reduce",
    "submit_with_options",
]

LATEST_SECONDS: Final = 253_402_300_799  # the last second of the year 9999: later times cannot be shown
WAIT: Final = int(Delivery.WAIT)
CREATED: Final = JobPackets(Packet.JOB_CREATED)


def submit(session: GearmanSession, kind: int, body: bytes, priority: int, delivery: int) -> None:
    """Handle one of the six plain submit packets. Optimised, because every job passes here."""
    # Most peers submit to the same function repeatedly, with keys of the same length.
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
    submit_to_last(session, unique, payload, priority, delivery)


def submit_long(session: GearmanSession, arguments: list[bytes], priority: int, delivery: int) -> None:
    """Handle a long submit packet, whose payload is already a separate object."""
    name, unique, payload = arguments
    session.last_function = session.name_of(name)
    session.last_name = name + b"\0"
    session.unique_bytes = len(unique)
    submit_to_last(session, unique, payload, priority, delivery)


def submit_to_last(session: GearmanSession, unique: bytes, payload: bytes, priority: int, delivery: int) -> None:
    """Submit a job to the session's last function."""
    if len(unique) > UNIQUE_BYTES or unique == b"-":
        unique = unique_key(session.engine, unique, payload)
    waits = delivery == WAIT
    job = session.engine.submit(session.last_function, unique, payload, priority, delivery, session if waits else None)
    session.out.append(b"%b%d" % (CREATED.start(session.prefix, job.id, 0), job.id))
    if waits and unique and job.state in FINAL_STATES:
        tell_held_end(session, job)


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
    """Handle the rarer submit packets, which need options."""
    watcher = session if delivery is Delivery.WAIT else None
    if watch:
        check_watching(session)
    key = unique_key(session.engine, unique, payload)
    job = session.engine.submit(session.name_of(function), key, payload, priority, delivery, watcher, options)
    if tell_submitted(session, job, delivery, watch):
        tell_held_end(session, job)


def submit_in_steps(
    session: GearmanSession,
    function: bytes,
    unique: bytes,
    payload: bytes,
    priority: int,
    delivery: Delivery,
    options: SubmitOptions,
    watch: bool,
) -> Iterator[Step]:
    """The same for a job of very many predecessors."""
    watcher = session if delivery is Delivery.WAIT else None
    if watch:
        check_watching(session)
    key = unique_key(session.engine, unique, payload)
    name = session.name_of(function)
    job = yield from session.engine.submit_wide(name, key, payload, priority, delivery, watcher, options)
    if tell_submitted(session, job, delivery, watch):
        yield from held_end_told(session, job)


def tell_submitted(session: GearmanSession, job: Job, delivery: Delivery, watch: bool) -> bool:
    """Answer a submission; returns whether the end of the job has to be told, because it was there and has ended."""
    session.send(response(Packet.JOB_CREATED, session.handle(job)))
    if job.state in FINAL_STATES:
        return watch or delivery is Delivery.WAIT
    if watch:
        if session.is_durable and not job.kept and job.id not in session.subscriptions:
            session.followed.add(job.id)
        follow(session, job)
    return False


def on_submit_epoch(session: GearmanSession, body: bytes) -> None:
    submit_epoch(session, split(body, Packet.SUBMIT_JOB_EPOCH))


def submit_epoch(session: GearmanSession, arguments: list[bytes]) -> None:
    function, unique, epoch, payload = arguments
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
    if job is None and session.engine.placement is not None:
        session.work_off(tell_status_elsewhere(session, handle))
        return
    session.send(response(Packet.STATUS_RES, handle, *status_fields(job)))


def tell_status_elsewhere(session: GearmanSession, handle: bytes) -> Iterator[Step]:
    """Tell the status of a job that another node may have; raises Refused if that node does not answer."""
    answers: list[Any] = []
    fields = status_fields(None)
    try:
        arguments = {"handle": handle.decode("utf-8", "replace"), "contents": False}
        yield from session.context.operate_in_steps("job", arguments, answers)
    except LookupError:
        pass
    else:
        row = answers[0]
        if row["finished_at"] is None:
            running = b"1" if row["state"] == "running" else b"0"
            fields = (b"1", running, b"%d" % row["numerator"], b"%d" % row["denominator"])
    session.send(response(Packet.STATUS_RES, handle, *fields))


def unfinished_holder(session: GearmanSession, unique: bytes) -> Job | None:
    """The unfinished job with this key. A finished job may still hold its key, but its handle would be unknown too."""
    for function in session.engine.functions.values():
        holder = session.engine.look_at_holder(function, unique)
        if holder is not None and holder.state not in FINAL_STATES and session.may_see(function.name):
            return holder
    return None


def on_get_status_unique(session: GearmanSession, body: bytes) -> None:
    unique = first_argument(body)
    job = unfinished_holder(session, unique)
    if job is None and session.engine.placement is not None:
        session.work_off(tell_key_elsewhere(session, unique))
        return
    waiting = len(job.subscribers or ()) if job is not None else 0
    session.send(response(Packet.STATUS_RES_UNIQUE, unique, *status_fields(job), b"%d" % waiting))


def tell_key_elsewhere(session: GearmanSession, unique: bytes) -> Iterator[Step]:
    """Tell the status of a job with this key that another node may have; raises Refused if none has it as far as they
    answer, and one does not."""
    fields: tuple[bytes, ...] = (*status_fields(None), b"0")
    for holder in (yield from session.context.find_key_elsewhere(unique)):
        if session.may_see(holder.function):
            running = b"1" if holder.is_running else b"0"
            fields = (b"1", running, b"%d" % holder.numerator, b"%d" % holder.denominator, b"%d" % holder.subscribers)
            break
    session.send(response(Packet.STATUS_RES_UNIQUE, unique, *fields))


def status_fields(job: Job | None) -> tuple[bytes, bytes, bytes, bytes]:
    if job is None:
        return b"0", b"0", b"0", b"0"
    running = b"1" if job.state is RUNNING else b"0"
    return b"1", running, b"%d" % job.numerator, b"%d" % job.denominator


def on_option(session: GearmanSession, body: bytes) -> None:
    option = body.lower()
    if option == b"packet_bytes":  # a client that knows the limit need not exceed it to find out
        session.send(response(Packet.OPTION_RES, option, b"%d" % session.setup.packet_bytes))
        return
    if option == b"traces":
        session.wants_traces = True
        session.send(response(Packet.OPTION_RES, body))
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


def on_long_echo(session: GearmanSession, arguments: list[bytes]) -> None:
    [body] = arguments
    session.note_long_answer(len(body))
    session.send(HEADER.pack(RESPONSE, Packet.ECHO_RES, len(body)))
    session.send(body)
