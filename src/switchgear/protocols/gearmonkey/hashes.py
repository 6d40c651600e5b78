"""The job as a hash: `job:{FN}:{ID}`.

Clients write one before they push its id, workers report by writing to it, and both read it.  Behind it is the engine's
job; until the push it is a draft.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from switchgear.errors import PeerError
from switchgear.model import CANCELLED, DONE, EXPIRED, FINAL_STATES, READY, RUNNING, SECOND_US, Cause, Job, Worker
from switchgear.numbers import whole_number
from switchgear.protocols.gearmonkey.drafts import Draft, Fields
from switchgear.protocols.gearmonkey.keys import (
    BUSY,
    ERROR,
    IDLE,
    INPUT,
    JOB_SECONDS,
    STATUS,
    SUCCESS,
    Key,
    Kind,
    wrong_type,
)
from switchgear.protocols.gearmonkey.messages import Pieces
from switchgear.protocols.gearmonkey.resp import OK, Command, integer
from switchgear.protocols.gearmonkey.session import MOST_ANSWER_BYTES, GearMonkeySession

__all__ = ["find_job", "hidden_from_us", "on_hget", "on_hgetall", "on_hmget", "on_hmset", "on_hset"]

OUTPUT: Final = b"output"
DIVIDEND: Final = b"status:dividend"
DIVISOR: Final = b"status:divisor"
KNOWN: Final = frozenset({STATUS, INPUT, DIVIDEND, DIVISOR})

ENDS: Final = {SUCCESS, ERROR}
STATES: Final = {IDLE, BUSY, *ENDS}
STOPS: Final = {Cause.SERVER_LOST, Cause.GIVEN_BACK}
SERVER_WORDS: Final = {CANCELLED: b"cancelled", EXPIRED: b"expired"}

# How long a finished job is shown, as the document has workers say it: 25 hours.
KEEP_US: Final = JOB_SECONDS * SECOND_US


# --- reading ---


def job_key(session: GearMonkeySession, text: bytes) -> Key:
    key = session.key(text)
    if key.kind is not Kind.JOB:
        raise wrong_type()
    return key


def hidden_from_us(session: GearMonkeySession, job: Job) -> int:
    """When a finished job is shown no more."""
    return session.setup.hidden.get(job.id, job.finished_us + KEEP_US)


def find_job(session: GearMonkeySession, key: Key) -> Job | None:
    """The job behind a key, if it is to be shown; raises Refused."""
    job = session.engine.job(key.number) or session.context.find_job(key.number)
    if job is None or job.function.name != key.function:
        return None
    if job.state in FINAL_STATES and hidden_from_us(session, job) <= session.engine.now_us:
        return None
    return job


def status_of(job: Job) -> bytes:
    if job.state in FINAL_STATES:
        return SUCCESS if job.state is DONE else ERROR
    return BUSY if job.state is RUNNING else IDLE


def output_of(job: Job) -> bytes:
    """What a job has come to that has ended."""
    if job.state in SERVER_WORDS:
        return SERVER_WORDS[job.state]
    # A worker of another protocol may have sent parts of a result before it failed: the reason is worth more.
    return job.whole_result if job.error is None else job.error


def input_of(session: GearMonkeySession, job: Job) -> bytes:
    """What the job is to work on; raises Refused or PeerError."""
    if job.payload is not None or session.engine.jobs.get(job.id) is not job:
        return job.payload or b""
    try:
        return session.context.payload(job)
    except LookupError as lost:
        text = str(lost.args[0])
        if job.worker is not None and session.is_held(job):
            session.engine.could_not_be_sent(job.worker, job.id, lost=text.encode())
        raise PeerError(text, code="ERR") from lost


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
    return session.setup.extras.of(job.id).get(field)


def usual_fields(job: Job) -> list[bytes]:
    """The names of the fields of a job's hash, as the conversation of the document would have put them there."""
    fields = [STATUS, INPUT]
    if job.numerator or job.denominator:
        fields += (DIVIDEND, DIVISOR)
    if job.state in FINAL_STATES:
        fields.append(OUTPUT)
    return fields


def fields_of(session: GearMonkeySession, job: Job) -> list[bytes]:
    """The names of all fields of a job's hash."""
    usual = usual_fields(job)
    return usual + [name for name in session.setup.extras.of(job.id) if name not in usual]


def read(session: GearMonkeySession, key: Key, wanted: list[bytes] | None = None) -> list[tuple[bytes, bytes | None]]:
    """These fields of a hash with their values, or all of them."""
    draft = session.setup.drafts.get(key.number, key.function)
    known: Mapping[bytes, bytes | None] = {}
    if draft is not None:
        known = draft.fields
        names = list(known) if wanted is None else wanted
    elif (job := find_job(session, key)) is not None:
        names = fields_of(session, job) if wanted is None else wanted
        known = {name: value_of(session, job, name) for name in dict.fromkeys(names)}
    else:
        names = wanted or []
    if sum(len(known.get(name) or b"") for name in names) > MOST_ANSWER_BYTES:
        raise PeerError(f"the answer would have more than {MOST_ANSWER_BYTES} bytes", code="ERR")
    return [(name, known.get(name)) for name in names]


def on_hgetall(session: GearMonkeySession, command: Command) -> None:
    found = read(session, job_key(session, command[1]))
    fields = [(name, value) for name, value in found if value is not None]
    answer = Pieces(b"%%%d\r\n" % len(fields) if session.version == 3 else b"*%d\r\n" % (2 * len(fields)))
    for name, value in fields:
        answer.add(name)
        answer.add(value)
    session.send_pieces(answer.whole())


def on_hget(session: GearMonkeySession, command: Command) -> None:
    ((_, value),) = read(session, job_key(session, command[1]), command[2:])
    answer = Pieces(b"")
    answer.add(value, session.version)
    session.send_pieces(answer.whole())


def on_hmget(session: GearMonkeySession, command: Command) -> None:
    found = read(session, job_key(session, command[1]), command[2:])
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
    """Write fields of a hash; HSET is answered with the number of those that are new, HMSET with OK."""
    if len(command) % 2:
        name = "hset" if counts else "hmset"
        raise PeerError(f"wrong number of arguments for '{name}' command", code="ERR")
    key = job_key(session, command[1])
    fields = dict(zip(command[2::2], command[3::2], strict=True))
    draft = session.setup.drafts.get(key.number, key.function)
    job = session.engine.job(key.number)
    if draft is not None:
        new = sum(name not in draft.fields for name in fields)
        write_draft(session, draft, fields)
    elif job is not None and job.function.name == key.function:
        usual, extras = usual_fields(job), session.setup.extras.of(job.id)
        new = sum(name not in usual and name not in extras for name in fields)
        report(session, job, Report.read(session, job, fields))
        if job.delivery and job.state in FINAL_STATES:
            session.pledge()
    else:
        new = 0
        write_ended(session, key, fields)
    session.send(integer(new) if counts else OK)


def write_draft(session: GearMonkeySession, draft: Draft, fields: Fields) -> None:
    if fields.get(STATUS, IDLE) != IDLE:
        raise PeerError("a job that is not pushed yet is idle", code="ERR")
    session.setup.drafts.write(draft, fields)


class Report(NamedTuple):
    """What is written to the hash of an unfinished job, understood."""

    status: bytes | None
    output: bytes | None
    progress: tuple[int, int] | None
    extras: Fields  # what the engine has no use for

    @classmethod
    def read(cls, session: GearMonkeySession, job: Job, fields: Fields) -> Report:
        """Check all before anything is done; raises PeerError or Refused."""
        status = fields.get(STATUS)
        if status is not None and status not in STATES:
            raise PeerError("status is one of idle, busy, success, error", code="ERR")
        if INPUT in fields and fields[INPUT] != input_of(session, job):
            raise PeerError(f"job {job.id} is pushed already: its input cannot be changed", code="ERR")
        progress = None
        if DIVIDEND in fields or DIVISOR in fields:
            progress = (
                number(fields[DIVIDEND]) if DIVIDEND in fields else job.numerator,
                number(fields[DIVISOR]) if DIVISOR in fields else job.denominator,
            )
        extras = {name: value for name, value in fields.items() if name not in KNOWN}
        output = None
        if status in ENDS:
            output = extras.pop(OUTPUT, None)
            extras.clear()  # nobody could read them any more
        elif extras:
            session.setup.extras.check_room(job.id, extras)
        return cls(status, output, progress, extras)


def number(text: bytes) -> int:
    """A whole number, not negative."""
    found = whole_number(text)
    if found is None:
        raise PeerError("value is not an integer or out of range", code="ERR")
    return found


def report(session: GearMonkeySession, job: Job, said: Report) -> None:
    """What is said of a job that is not over yet."""
    worker = job.worker if session.is_held(job) else None
    if said.status == IDLE and job.state is RUNNING:
        raise PeerError(f"job {job.id} is busy", code="ERR")
    if worker is None and (said.status == BUSY or said.progress is not None):
        raise not_taken(job)
    if said.status in ENDS and worker is None:
        settle(session, job, said)
        return
    if worker is not None and said.progress is not None:
        session.engine.progress(worker, job.id, *said.progress)
    session.setup.extras.write(job.id, said.extras)
    if worker is not None and said.status in ENDS:
        end(session, worker, job, said)


def output_in(session: GearMonkeySession, job: Job, said: Report) -> bytes:
    """The output may have been written ahead of the status."""
    return session.setup.extras.of(job.id).get(OUTPUT, b"") if said.output is None else said.output


def end(session: GearMonkeySession, worker: Worker, job: Job, said: Report) -> None:
    """A worker reports the end of its job, on its own connection or on another."""
    channels = session.setup.channels
    output = output_in(session, job, said)
    channels.spoken_for = job.id
    if said.status == SUCCESS:
        session.engine.complete(worker, job.id, output)
    else:
        session.engine.fail(worker, job.id, 1, output or None, output)
    channels.spoken_for = 0
    holder = worker.peer
    if isinstance(holder, GearMonkeySession):
        holder.popped.discard(job.id)
    note_end(session, job)


def settle(session: GearMonkeySession, job: Job, said: Report) -> None:
    """The end of a job is reported that is nobody's of us.  If it was, and was taken from its worker, who has done it
    all the same, the first result counts."""
    if not was_taken(session, job):
        raise not_taken(job)
    if said.status == ERROR:
        raise PeerError(f"job {job.id} was taken from its worker and will be tried again", code="ERR")
    session.setup.channels.spoken_for = job.id
    is_settled = session.engine.settle(job, output_in(session, job, said))
    session.setup.channels.spoken_for = 0
    if not is_settled:
        raise not_taken(job)
    session.popped.discard(job.id)
    session.setup.lost.pop(job.id, None)
    note_end(session, job)


def was_taken(session: GearMonkeySession, job: Job) -> bool:
    """Whether a worker of ours may have had this job.

    After the server has stopped nobody knows whose it was, so anybody is believed until somebody else has it.
    """
    if job.id in session.popped or job.id in session.setup.lost:
        return True
    return job.state is READY and any(cause in STOPS for cause, _ in job.log)


def note_end(session: GearMonkeySession, job: Job) -> None:
    session.setup.extras.forget(job.id)
    session.setup.locks.job_ended(job.id, job.function.name, job.finished_us)


def write_ended(session: GearMonkeySession, key: Key, fields: Fields) -> None:
    """Something is written to a job that has ended, or never was.

    A worker whose job was ended by somebody else meanwhile may say what it likes.  And a report that is sent again,
    because its answer was lost, is no mistake.
    """
    for worker in session.workers.values():
        if key.number in worker.running:
            if fields.get(STATUS) in ENDS:
                session.engine.complete(worker, key.number, b"")
                session.popped.discard(key.number)
            return
    job = find_job(session, key)
    if job is None:
        raise PeerError(f"there is no job {key.number}: an id comes from INCR uid:, and is written to soon", code="ERR")
    if job.state not in FINAL_STATES:
        session.pledge()  # its end is just being kept, so whoever reports on it now has done so before
    elif any(value_of(session, job, name) != value for name, value in fields.items()):
        raise PeerError(f"job {job.id} has ended", code="ERR")


def not_taken(job: Job) -> PeerError:
    return PeerError(f"job {job.id} was not taken from its queue here", code="ERR")
