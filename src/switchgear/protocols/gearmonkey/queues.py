"""Handlers of list commands on queues and locks: LPUSH, RPOP, BRPOP, ZADD, and the script.

A push is a submission to the engine, and a pop takes a job from it.
"""

from __future__ import annotations

from typing import Final

from switchgear import numbers
from switchgear.engine.engine import SubmitOptions
from switchgear.errors import PeerError, Refused
from switchgear.model import FINAL_STATES, SECOND_US, URGENT, Delivery, Job
from switchgear.numbers import real_number, signed_number
from switchgear.protocols.gearmonkey.blocked_connection import LockWait, QueueWait
from switchgear.protocols.gearmonkey.drafts import Draft
from switchgear.protocols.gearmonkey.keys import (
    INPUT,
    KEEP_US,
    SCRIPT,
    SCRIPT_SHA,
    STATUS,
    TRACE,
    Key,
    KeyKind,
    wrong_type,
)
from switchgear.protocols.gearmonkey.lock_lists import LOCK_US, Ended
from switchgear.protocols.gearmonkey.resp import OK, Command, array, bulk, error, integer, null, null_array
from switchgear.protocols.gearmonkey.session import GearMonkeySession
from switchgear.protocols.handles import number_in_handle
from switchgear.trace_context import is_traceparent

INFINITE: Final = {sign + word: float(sign + word) for sign in (b"", b"+", b"-") for word in (b"inf", b"infinity")}
LATEST_SECONDS: Final = 253_402_300_799  # the last second of the year 9999: later times cannot be shown
LONGEST_WAIT_SECONDS: Final = 10 * 366 * 86_400
MOST_KEYS: Final = 100  # in one command: each may need a read of the store


# --- numbers in Redis notation ---


def whole_number(text: bytes) -> int:
    """A signed number; raises PeerError."""
    number = signed_number(text)
    if number is None:
        raise PeerError("value is not an integer or out of range", code="ERR")
    return number


def score(text: bytes) -> float | None:
    """A number that may be infinite; `None` if it is not a number."""
    return INFINITE.get(text[:10].lower()) or real_number(text)


def end_of_patience_us(session: GearMonkeySession, text: bytes) -> int:
    """The end of a wait; 0: no limit."""
    seconds = real_number(text)
    if seconds is None:
        raise PeerError("timeout is not a float or out of range", code="ERR")
    if seconds < 0:
        raise PeerError("timeout is negative", code="ERR")
    if seconds > LONGEST_WAIT_SECONDS:
        raise PeerError("timeout is out of range", code="ERR")
    return session.engine.now_us + max(1, int(seconds * SECOND_US)) if seconds else 0


# --- pushing ---


def on_lpush(session: GearMonkeySession, command: Command) -> None:
    key = session.key(command[1])
    if key.kind is KeyKind.LOCK:
        # The end of the job has already done this.
        session.send(integer(len(command) - 2))
        return
    if key.kind is not KeyKind.QUEUE or key.number == URGENT:
        raise wrong_type()
    function = session.engine.functions.get(key.function)
    before = function.ready_of(key.number) if function is not None else 0
    ids = command[2:]
    submit(session, key, ids, [0] * len(ids), before + len(ids))


def on_zadd(session: GearMonkeySession, command: Command) -> None:
    key = session.key(command[1])
    if key.kind is not KeyKind.QUEUE or key.number != URGENT:
        raise wrong_type()
    if len(command) % 2:
        raise PeerError("syntax error", code="ERR")
    moments_us = [moment_us(text) for text in command[2::2]]
    submit(session, key, command[3::2], moments_us, len(moments_us))


def moment_us(text: bytes) -> int:
    """The time of a score, which is in seconds since 1970."""
    seconds = score(text)
    if seconds is None:
        raise PeerError("value is not a valid float", code="ERR")
    if abs(seconds) > LATEST_SECONDS:
        raise PeerError("the job is scheduled too far away", code="ERR")
    whole = numbers.whole_number(text)  # more exact
    return max(0, round(seconds * SECOND_US) if whole is None else whole * SECOND_US)


def submit(session: GearMonkeySession, key: Key, ids: list[bytes], moments_us: list[int], answer: int) -> None:
    """Submit the jobs of these drafts. All are checked before any is submitted."""
    drafts = {job_id: draft_of(session, key, job_id) for job_id in map(job_number, ids)}
    if len(drafts) != len(ids):
        raise PeerError("an id is pushed twice", code="ERR")
    jobs: list[Job] = []
    promised = len(session.promised_jobs)
    try:
        for (job_id, draft), run_at_us in zip(drafts.items(), moments_us, strict=True):
            jobs.append(submit_draft(session, key, job_id, draft, run_at_us))
    except Refused as refused:
        if not jobs:
            raise
        session.answer_all_since(promised)
        session.send(error(f"ERR {len(jobs)} of {len(ids)} ids were pushed, the others not: {refused}"))
    else:
        session.answer_all_since(promised)
        session.send(integer(answer))


def job_number(text: bytes) -> int:
    number = number_in_handle(text, b"")
    if not number:
        raise PeerError("what is pushed is not an id", code="ERR")
    return number


def draft_of(session: GearMonkeySession, key: Key, job_id: int) -> Draft:
    draft = session.setup.drafts.get(job_id, key.function)
    if draft is not None and draft.fields:
        return draft
    job = session.engine.job(job_id)
    if job is not None and job.function.told_name == key.function:
        raise PeerError(f"job {job_id} is pushed already", code="ERR")
    raise PeerError(f"there is nothing to push: its hash, with the id {job_id}, was not written", code="ERR")


def submit_draft(session: GearMonkeySession, key: Key, job_id: int, draft: Draft, run_at_us: int) -> Job:
    setup = session.setup
    fields = draft.fields
    extras = {name: value for name, value in fields.items() if name not in (STATUS, INPUT)}
    trace = extras.get(TRACE, b"")
    if trace:
        trace = extras.pop(TRACE) if is_traceparent(trace) else b""  # another value is a field like any other
    if extras:
        setup.extras.check_room(job_id, extras)
    options = SubmitOptions(
        job_id=job_id, run_at_us=run_at_us, origin=session.protocol, retention_us=retention_us(session), trace=trace
    )
    memory = session.engine.memory
    memory.draft_bytes -= draft.held_bytes  # the engine counts it from now on, if it accepts the job
    try:
        data = fields.get(INPUT, b"")
        job = session.engine.submit(key.function, b"", data, key.number, Delivery.HANDLE, options=options)
    finally:
        memory.draft_bytes += draft.held_bytes
    setup.drafts.remove(job_id)
    setup.extras.write(job_id, extras)
    for waiting in setup.locks.waiting.get(job_id, ()):
        if isinstance(waiting.blocked, LockWait):
            waiting.blocked.watch(waiting, job)
    return job


def retention_us(session: GearMonkeySession) -> int:
    """How long a job is kept after its end: as long as workers of this protocol expect, unless the server's setting is
    longer.

    A store in memory keeps the last jobs of all, whatever their retention is.
    """
    is_shorter = session.engine.settings.retention_us < KEEP_US
    return KEEP_US if is_shorter and session.context.is_durable else -1


# --- popping ---


def on_brpop(session: GearMonkeySession, command: Command) -> None:
    until_us = end_of_patience_us(session, command[-1])
    keys = command[1:-1]
    if keys[0].startswith(b"lock:"):
        wait_for_end(session, command, until_us)
        return
    plan = session.plan_for(keys)
    job = plan.take(session)
    if job is not None:
        session.give(job)
        return
    plan.check_room(session)
    if session.executing:
        session.send(null_array(session.version))
    else:
        session.block(QueueWait(plan, until_us))


def on_rpop(session: GearMonkeySession, command: Command) -> None:
    count = 1
    if len(command) > 3:
        raise PeerError("wrong number of arguments for 'rpop' command", code="ERR")
    if len(command) == 3:
        wanted = numbers.whole_number(command[2])
        if wanted is None:
            raise PeerError("value is out of range, must be positive", code="ERR")
        count = wanted
    key = session.key(command[1])
    if key.kind is KeyKind.LOCK:
        found = [LockWait.WORD] if count and take_lock(session, key) else []
    else:
        found = pop_ids(session, command[1], count)
    if len(command) == 2:
        session.send(bulk(found[0]) if found else null(session.version))
    else:
        session.send(array([bulk(word) for word in found]) if found else null_array(session.version))


def pop_ids(session: GearMonkeySession, key: bytes, count: int) -> list[bytes]:
    plan = session.plan_for([key])
    found: list[bytes] = []
    while len(found) < count and (job := plan.take(session)) is not None:
        found.append(b"%d" % job.id)
    return found


def wait_for_end(session: GearMonkeySession, command: Command, until_us: int) -> None:
    """Pop from lock lists: when one of the jobs has ended."""
    texts = command[1:-1]
    keys = [session.key(text) for text in texts[:MOST_KEYS]]
    if any(key.kind is not KeyKind.LOCK for key in keys):
        raise wrong_type()
    if len(texts) > MOST_KEYS:
        raise PeerError(f"more than {MOST_KEYS} keys at once", code="ERR")
    if session.must_read(command, keys):
        return
    for text, key in zip(texts, keys, strict=True):
        if take_lock(session, key):
            LockWait.answer(session, text)
            return
    if session.executing:
        session.send(null_array(session.version))
    else:
        session.block(LockWait(dict(zip(keys, texts, strict=True)), until_us))


def take_lock(session: GearMonkeySession, key: Key) -> bool:
    """Whether this connection gets the token in the lock list."""
    lock = find_lock(session, key)
    if lock is None:
        return False
    lock.is_taken = True
    return True


def find_lock(session: GearMonkeySession, key: Key) -> Ended | None:
    """A lock that can be popped; raises Refused. The answer tells of an end, which must be stored first."""
    ended = find_ended(session, key)
    if ended is None or ended.is_taken:
        return None
    session.await_commit()
    return ended


def find_ended(session: GearMonkeySession, key: Key) -> Ended | None:
    """The job of this lock, if it ended less than ten seconds ago; raises Refused."""
    now_us = session.engine.now_us
    locks = session.setup.locks
    ended = locks.find(key.number, key.function, now_us)
    if ended is not None or session.engine.has_job(key.number):
        return ended
    job = session.found_job(key.number)
    if job is None or job.function.told_name != key.function:
        return None
    if job.state not in FINAL_STATES and session.is_elsewhere(job):
        return None
    # The engine no longer has it, so it has ended; if its state is not final, the end is being stored.
    ended_us = job.finished_us if job.state in FINAL_STATES else now_us
    return locks.job_ended(key.number, key.function, ended_us) if now_us < ended_us + LOCK_US else None


# --- the script: scheduled jobs that are due ---


def on_script_load(session: GearMonkeySession, command: Command) -> None:
    check_script(command[2])
    session.send(bulk(SCRIPT_SHA))


def on_script_exists(session: GearMonkeySession, command: Command) -> None:
    session.send(array([integer(sha.lower() == SCRIPT_SHA) for sha in command[2:]]))


def on_script_flush(session: GearMonkeySession, command: Command) -> None:
    session.send(OK)


def check_script(text: bytes) -> None:
    if text != SCRIPT:
        raise PeerError("there is no Lua here; only GearMonkey's script for scheduled jobs is known", code="ERR")


def on_eval(session: GearMonkeySession, command: Command) -> None:
    check_script(command[1])
    take_due(session, command)


def on_evalsha(session: GearMonkeySession, command: Command) -> None:
    if command[1].lower() != SCRIPT_SHA:
        session.send(error("NOSCRIPT No matching script. Please use EVAL."))
        return
    take_due(session, command)


def take_due(session: GearMonkeySession, command: Command) -> None:
    """Run the equivalent of the script. The server's time decides when a job is due, not the worker's."""
    count = whole_number(command[2])
    if count < 0:
        raise PeerError("Number of keys can't be negative", code="ERR")
    if count > len(command) - 3:
        raise PeerError("Number of keys can't be greater than number of args", code="ERR")
    if count != 1 or len(command) != 5:
        raise PeerError("the script takes the key of a queue of scheduled jobs, and the time", code="ERR")
    key = session.key(command[3])
    if key.kind is not KeyKind.QUEUE or key.number != URGENT:
        raise wrong_type()
    if score(command[4]) is None:
        raise PeerError("min or max is not a float", code="ERR")
    function = session.engine.function_named(key.function)
    job = session.engine.take_of(session.worker_for(frozenset((function,))), function, URGENT)
    if job is None:
        session.send(null(session.version))
        return
    session.send(array((bulk(command[3]), bulk(b"%d" % job.id))))
