"""Handlers of hash commands (HMSET, HGET, HGETALL): a job is the hash `job:{FN}:{ID}`.

Clients write one before they push its id, workers report by writing to it, and both read it.  Behind it is the engine's
job; until the push it is a draft.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from switchgear.errors import PeerError
from switchgear.model import CANCELLED, DONE, EXPIRED, FINAL_STATES, RUNNING, Job, Worker
from switchgear.numbers import whole_number
from switchgear.protocols.gearmonkey.drafts import Draft, Fields
from switchgear.protocols.gearmonkey.keys import (
    BUSY,
    ERROR,
    IDLE,
    INPUT,
    KEEP_US,
    STATUS,
    SUCCESS,
    TRACE,
    Key,
    KeyKind,
    wrong_type,
)
from switchgear.protocols.gearmonkey.listener_state import PROTOCOL
from switchgear.protocols.gearmonkey.messages import Pieces
from switchgear.protocols.gearmonkey.resp import OK, Command, integer
from switchgear.protocols.gearmonkey.session import MOST_ANSWER_BYTES, GearMonkeySession
from switchgear.states import LateReport
from switchgear.verbs.access import Role

__all__ = ["find_job", "hidden_from_us", "on_hget", "on_hgetall", "on_hmget", "on_hmset", "on_hset"]

SUBMIT: Final = frozenset({Role.SUBMIT})
WORK: Final = frozenset({Role.WORK})

OUTPUT: Final = b"output"
DIVIDEND: Final = b"status:dividend"
DIVISOR: Final = b"status:divisor"
KNOWN: Final = frozenset({STATUS, INPUT, DIVIDEND, DIVISOR})

ENDS: Final = {SUCCESS, ERROR}
STATES: Final = {IDLE, BUSY, *ENDS}
SERVER_WORDS: Final = {CANCELLED: b"cancelled", EXPIRED: b"expired"}


# --- reading ---


def job_key(session: GearMonkeySession, text: bytes) -> Key:
    key = session.key(text)
    if key.kind is not KeyKind.JOB:
        raise wrong_type()
    return key


def hidden_from_us(session: GearMonkeySession, job: Job) -> int:
    """When a finished job is no longer shown: after 25 hours, unless it leaves the history earlier."""
    kept_us = job.retention_us if job.retention_us > 0 else session.engine.settings.retention_us
    if not kept_us or not session.context.is_durable:
        kept_us = KEEP_US
    return session.setup.hidden.get(job.id, job.finished_us + min(KEEP_US, kept_us))


def find_job(session: GearMonkeySession, key: Key) -> Job | None:
    """The job of a key, if it is to be shown; data of the store must have been read (`GearMonkeySession.must_read`)."""
    job = session.found_job(key.number)
    if job is None or job.function.told_name != key.function:
        return None
    if job.state in FINAL_STATES and hidden_from_us(session, job) <= session.engine.now_us:
        return None
    return job


def status_of(job: Job) -> bytes:
    if job.state in FINAL_STATES:
        return SUCCESS if job.state is DONE else ERROR
    return BUSY if job.state is RUNNING else IDLE


def output_of(job: Job) -> bytes:
    """The output of a finished job."""
    if job.state in SERVER_WORDS:
        return SERVER_WORDS[job.state]
    # A worker of another protocol may have sent parts of a result before it failed: the error is more useful.
    return job.whole_result if job.error is None else job.error


def input_of(session: GearMonkeySession, job: Job) -> bytes:
    """The payload of the job; raises PeerError."""
    if job.payload is not None or session.engine.jobs.get(job.id) is not job:
        return job.payload or b""
    return session.payload_of(job)


def value_of(session: GearMonkeySession, job: Job, field: bytes) -> bytes | None:
    """One field of a job's hash."""
    if field == STATUS:
        return status_of(job)
    if field == INPUT:
        return input_of(session, job)
    if field in (DIVIDEND, DIVISOR):
        if not (job.numerator or job.denominator):
            return None
        return b"%d" % (job.numerator if field == DIVIDEND else job.denominator)
    if field == OUTPUT and job.state in FINAL_STATES:
        return output_of(job)
    if field == TRACE and job.trace:
        return job.trace
    return session.setup.extras.of(job.id).get(field)


def usual_fields(job: Job) -> list[bytes]:
    """The names of the fields that the server has for a job in its state."""
    fields = [STATUS, INPUT]
    if job.numerator or job.denominator:
        fields += (DIVIDEND, DIVISOR)
    if job.state in FINAL_STATES:
        fields.append(OUTPUT)
    if job.trace:
        fields.append(TRACE)
    return fields


def fields_of(session: GearMonkeySession, job: Job) -> list[bytes]:
    """The names of all fields of a job's hash."""
    usual = usual_fields(job)
    return usual + [name for name in session.setup.extras.of(job.id) if name not in usual]


def read(
    session: GearMonkeySession, command: Command, wanted: list[bytes] | None = None
) -> list[tuple[bytes, bytes | None]] | None:
    """These fields of a hash with their values, or all of them; `None` if the store has to be read first."""
    key = job_key(session, command[1])
    draft = session.setup.drafts.get(key.number, key.function)
    known: Mapping[bytes, bytes | None] = {}
    if draft is not None:
        known = draft.fields
        names = list(known) if wanted is None else wanted
    elif must_read(session, command, key):
        return None
    elif (job := find_job(session, key)) is not None:
        names = fields_of(session, job) if wanted is None else wanted
        known = {name: value_of(session, job, name) for name in dict.fromkeys(names)}
    else:
        names = wanted or []
    if sum(len(known.get(name) or b"") for name in names) > MOST_ANSWER_BYTES:
        raise PeerError(f"the answer would have more than {MOST_ANSWER_BYTES} bytes", code="ERR")
    return [(name, known.get(name)) for name in names]


def must_read(session: GearMonkeySession, command: Command, key: Key) -> bool:
    """Whether the store has to be read first for the job of a key."""
    job = session.engine.job(key.number)
    return (job is None or job.payload is None) and session.must_read(command, (key,), with_payloads=True)


def on_hgetall(session: GearMonkeySession, command: Command) -> None:
    found = read(session, command)
    if found is None:
        return
    fields = [(name, value) for name, value in found if value is not None]
    answer = Pieces(b"%%%d\r\n" % len(fields) if session.version == 3 else b"*%d\r\n" % (2 * len(fields)))
    for name, value in fields:
        answer.add(name)
        answer.add(value)
    session.send_pieces(answer.whole())


def on_hget(session: GearMonkeySession, command: Command) -> None:
    found = read(session, command, command[2:])
    if found is None:
        return
    ((_, value),) = found
    answer = Pieces(b"")
    answer.add(value, session.version)
    session.send_pieces(answer.whole())


def on_hmget(session: GearMonkeySession, command: Command) -> None:
    found = read(session, command, command[2:])
    if found is None:
        return
    answer = Pieces(b"*%d\r\n" % len(found))
    for _, value in found:
        answer.add(value, session.version)
    session.send_pieces(answer.whole())


# --- writing ---


def on_hmset(session: GearMonkeySession, command: Command) -> None:
    write(session, command, counts=False)


def on_hset(session: GearMonkeySession, command: Command) -> None:
    write(session, command, counts=True)


def write(session: GearMonkeySession, command: Command, *, counts: bool) -> None:
    """Write fields of a hash; HSET answers with the number of new fields, HMSET with OK."""
    if len(command) % 2:
        name = "hset" if counts else "hmset"
        raise PeerError(f"wrong number of arguments for '{name}' command", code="ERR")
    key = job_key(session, command[1])
    fields = dict(zip(command[2::2], command[3::2], strict=True))
    draft = session.setup.drafts.get(key.number, key.function)
    job = session.engine.job(key.number)
    if draft is not None:
        session.require("HMSET of a new job", SUBMIT)
        new = sum(name not in draft.fields for name in fields)
        write_draft(session, draft, fields)
    elif (job is None or INPUT in fields) and session.must_read(command, (key,), with_payloads=True):
        return
    elif job is not None and job.function.told_name == key.function:
        session.require("HMSET of a job that was pushed", WORK)
        usual, extras = usual_fields(job), session.setup.extras.of(job.id)
        new = sum(name not in usual and name not in extras for name in fields)
        report(session, job, Report.read(session, job, fields))
    else:
        session.require("HMSET of a job that has ended", WORK)
        new = 0
        write_ended(session, key, fields)
    session.send(integer(new) if counts else OK)


def write_draft(session: GearMonkeySession, draft: Draft, fields: Fields) -> None:
    if fields.get(STATUS, IDLE) != IDLE:
        raise PeerError("a job that is not pushed yet is idle", code="ERR")
    session.setup.drafts.write(draft, fields)


class Report(NamedTuple):
    """The parsed report in the fields written to an unfinished job."""

    status: bytes | None
    output: bytes | None
    progress: tuple[int, int] | None
    extras: Fields  # fields that the engine does not use

    @classmethod
    def read(cls, session: GearMonkeySession, job: Job, fields: Fields) -> Report:
        """Parse and check all fields before anything is done; raises PeerError or Refused."""
        status = fields.get(STATUS)
        if status is not None and status not in STATES:
            raise PeerError("status is one of idle, busy, success, error", code="ERR")
        if INPUT in fields and fields[INPUT] != input_of(session, job):
            raise PeerError(f"job {job.id} is pushed already: its input cannot be changed", code="ERR")
        if TRACE in fields and job.trace and fields[TRACE] != job.trace:
            raise PeerError(f"job {job.id} is pushed already: its {TRACE.decode()} cannot be changed", code="ERR")
        progress = None
        if DIVIDEND in fields or DIVISOR in fields:
            progress = (
                number(fields[DIVIDEND]) if DIVIDEND in fields else job.numerator,
                number(fields[DIVISOR]) if DIVISOR in fields else job.denominator,
            )
        extras = {name: value for name, value in fields.items() if name not in KNOWN}
        if job.trace:
            extras.pop(TRACE, None)
        output = None
        if status in ENDS:
            output = extras.pop(OUTPUT, None)
            extras.clear()  # they could not be read any more
        elif extras:
            session.setup.extras.check_room(job.id, extras)
        return cls(status, output, progress, extras)


def number(text: bytes) -> int:
    """A non-negative whole number; raises PeerError."""
    found = whole_number(text)
    if found is None:
        raise PeerError("value is not an integer or out of range", code="ERR")
    return found


def report(session: GearMonkeySession, job: Job, said: Report) -> None:
    """Apply a report on an unfinished job."""
    worker = job.worker if session.is_held(job) and not session.is_late(job) else None
    if said.status == IDLE and job.state is RUNNING:
        raise PeerError(f"job {job.id} is busy", code="ERR")
    if worker is None and (said.status == BUSY or said.progress is not None):
        raise not_taken(job)
    if said.status in ENDS and worker is None:
        report_late(session, job, said)
        return
    if worker is not None and said.progress is not None:
        session.engine.progress(worker, job.id, *said.progress)
    session.setup.extras.write(job.id, said.extras)
    if worker is not None and said.status in ENDS:
        end(session, worker, job, said)


def output_in(session: GearMonkeySession, job: Job, said: Report) -> bytes:
    """The output, which may have been written before the status."""
    return session.setup.extras.of(job.id).get(OUTPUT, b"") if said.output is None else said.output


def end(session: GearMonkeySession, worker: Worker, job: Job, said: Report) -> None:
    """Apply a worker's report of the end of its job, on its own connection or on another."""
    channels = session.setup.channels
    output = output_in(session, job, said)
    channels.spoken_for = job.id
    if said.status == SUCCESS:
        session.engine.complete(worker, job.id, output)
    else:
        session.engine.fail(worker, job.id, 1, output or None, output)
    channels.spoken_for = 0
    note_end(session, job)


def report_late(session: GearMonkeySession, job: Job, said: Report) -> None:
    """Apply a report of the end of a job that no worker of this protocol has, or not the one that reports.

    The engine knows whether a worker of this protocol had the job; then the first result counts.
    """
    result = output_in(session, job, said) if said.status == SUCCESS else None
    session.setup.channels.spoken_for = job.id
    verdict = session.engine.report_late(job.id, PROTOCOL, 0, result)
    session.setup.channels.spoken_for = 0
    if verdict is LateReport.UNKNOWN:
        raise not_taken(job)
    if result is None:
        raise PeerError(f"job {job.id} was taken from its worker and will be tried again", code="ERR")
    if verdict is LateReport.DROPPED:
        raise not_taken(job)
    note_end(session, job)


def note_end(session: GearMonkeySession, job: Job) -> None:
    session.setup.extras.forget(job.id)
    session.setup.locks.job_ended(job.id, job.function.told_name, job.finished_us)


def write_ended(session: GearMonkeySession, key: Key, fields: Fields) -> None:
    """Handle a write to a job that has ended, or never existed.

    A worker whose job was ended meanwhile may write anything. And a report that is repeated, because its answer was
    lost, is not an error.
    """
    for worker in session.workers.values():
        if key.number in worker.running:
            if fields.get(STATUS) in ENDS:
                session.engine.complete(worker, key.number, b"")
            return
    job = find_job(session, key)
    if job is None:
        raise PeerError(f"there is no job {key.number}: an id comes from INCR uid:, and is written to soon", code="ERR")
    if job.state not in FINAL_STATES:
        if session.is_elsewhere(job):
            raise not_taken(job)
        session.await_commit()  # its end is being stored, so this report is a repetition
    elif any(value_of(session, job, name) != value for name, value in fields.items()):
        raise PeerError(f"job {job.id} has ended", code="ERR")


def not_taken(job: Job) -> PeerError:
    return PeerError(f"job {job.id} was not taken from its queue here", code="ERR")
