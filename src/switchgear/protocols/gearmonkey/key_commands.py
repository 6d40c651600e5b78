"""Handlers of commands for keys of any kind: INCR, DECR, GET, EXISTS, TTL, EXPIRE and DEL."""

from __future__ import annotations

from typing import Final

from switchgear.errors import PeerError, Refused
from switchgear.model import FINAL_STATES, SECOND_US, URGENT
from switchgear.protocols.gearmonkey.hashes import find_job, hidden_from_us
from switchgear.protocols.gearmonkey.keys import KEEP_US, Key, KeyKind, wrong_type
from switchgear.protocols.gearmonkey.listener_state import remember
from switchgear.protocols.gearmonkey.queues import MOST_KEYS, find_lock, take_lock, whole_number
from switchgear.protocols.gearmonkey.resp import Command, bulk, integer, null
from switchgear.protocols.gearmonkey.session import GearMonkeySession

__all__ = [
    "MISSING",
    "must_read",
    "on_decr",
    "on_decrby",
    "on_del",
    "on_exists",
    "on_expire",
    "on_get",
    "on_incr",
    "on_incrby",
    "on_ttl",
    "seconds_left",
]

MOST_COUNTED = 1000  # functions that one connection registers workers for
MOST_AT_ONCE: Final = 1000  # in one command
LONGEST_SECONDS: Final = 2**63 // 1_000_000

MISSING: Final = -2
FOR_EVER: Final = -1


# --- counters ---


def on_incr(session: GearMonkeySession, command: Command) -> None:
    count(session, session.key(command[1]), 1)


def on_decr(session: GearMonkeySession, command: Command) -> None:
    count(session, session.key(command[1]), -1)


def on_incrby(session: GearMonkeySession, command: Command) -> None:
    count(session, session.key(command[1]), whole_number(command[2]))


def on_decrby(session: GearMonkeySession, command: Command) -> None:
    count(session, session.key(command[1]), -whole_number(command[2]))


def count(session: GearMonkeySession, key: Key, by: int) -> None:
    """Give out an id, or count workers."""
    if key.kind is KeyKind.UID:
        give_id(session, key, by)
    elif key.kind is KeyKind.COUNT:
        counts = session.setup.counts
        if len(session.counted) >= MOST_COUNTED and key.function not in session.counted:
            raise PeerError(f"a connection may register workers for {MOST_COUNTED} functions", code="ERR")
        if abs(by) > MOST_AT_ONCE:
            raise PeerError(f"workers are counted by {MOST_AT_ONCE} at most", code="ERR")
        for _ in range(by):
            counts.add(session, key.function)
        for _ in range(-by):
            counts.subtract(session, key.function)
        session.send(integer(counts.value(key.function) or 0))
    else:
        raise wrong_type()


def give_id(session: GearMonkeySession, key: Key, by: int) -> None:
    if by < 0:
        raise PeerError("ids are only counted up", code="ERR")
    if by != 1:
        raise PeerError("ids are given out one by one", code="ERR")
    refusal = session.engine.refusal
    if refusal is not None:  # nothing could be pushed, and the store may not know that the id was given out
        raise Refused(refusal.reason, str(refusal))
    session.setup.drafts.check_room()
    job_id = session.engine.reserve_id()
    session.setup.drafts.begin(job_id, key.function)
    session.send(integer(job_id))


def on_get(session: GearMonkeySession, command: Command) -> None:
    key = session.key(command[1])
    if key.kind is not KeyKind.COUNT:
        raise PeerError("ids are given out by INCR alone", code="ERR") if key.kind is KeyKind.UID else wrong_type()
    count = session.setup.counts.value(key.function)
    session.send(null(session.version) if count is None else bulk(b"%d" % count))


# --- keys of any kind ---


def keys_in(session: GearMonkeySession, command: Command) -> list[Key]:
    if len(command) - 1 > MOST_KEYS:
        raise PeerError(f"more than {MOST_KEYS} keys at once", code="ERR")
    return [session.key(text) for text in command[1:]]


def seconds_left(session: GearMonkeySession, key: Key) -> int:
    """How many seconds a key exists from now on, as TTL answers it."""
    now_us = session.engine.now_us
    if key.kind is KeyKind.JOB:
        draft = session.setup.drafts.get(key.number, key.function)
        if draft is not None:
            return FOR_EVER if draft.fields else MISSING
        job = find_job(session, key)
        if job is None or job.state not in FINAL_STATES:
            return MISSING if job is None else FOR_EVER
        return rounded_seconds(hidden_from_us(session, job) - now_us)
    if key.kind is KeyKind.LOCK:
        lock = find_lock(session, key)
        return MISSING if lock is None else rounded_seconds(lock.until_us - now_us)
    if key.kind is KeyKind.COUNT:
        return MISSING if session.setup.counts.value(key.function) is None else FOR_EVER
    if key.kind is KeyKind.QUEUE:
        return FOR_EVER if is_queued(session, key) else MISSING
    return FOR_EVER if session.engine.next_job_id > 1 else MISSING


def rounded_seconds(span_us: int) -> int:
    return (span_us + SECOND_US // 2) // SECOND_US


def is_queued(session: GearMonkeySession, key: Key) -> bool:
    """Whether a queue has jobs; for that of scheduled jobs, also whether some are scheduled."""
    function = session.engine.functions.get(key.function)
    if function is None:
        return False
    is_scheduled = key.number == URGENT and function.total > function.ready + function.running + function.waiting
    return is_scheduled or function.ready_of(key.number) > 0


def must_read(session: GearMonkeySession, command: Command, keys: list[Key]) -> bool:
    """Whether the store has to be read first for those of the keys that name jobs."""
    return session.must_read(command, [key for key in keys if key.kind in (KeyKind.JOB, KeyKind.LOCK)])


def on_exists(session: GearMonkeySession, command: Command) -> None:
    keys = keys_in(session, command)
    if not must_read(session, command, keys):
        session.send(integer(sum(seconds_left(session, key) != MISSING for key in keys)))


def on_ttl(session: GearMonkeySession, command: Command) -> None:
    key = session.key(command[1])
    if not must_read(session, command, [key]):
        session.send(integer(seconds_left(session, key)))


def on_expire(session: GearMonkeySession, command: Command) -> None:
    if len(command) > 3:
        raise PeerError(f"Unsupported option {command[3][:100].decode('utf-8', 'replace')}", code="ERR")
    key = session.key(command[1])
    if key.kind not in (KeyKind.JOB, KeyKind.LOCK):
        raise everlasting()
    seconds = whole_number(command[2])
    if abs(seconds) > LONGEST_SECONDS:
        raise PeerError("invalid expire time in 'expire' command", code="ERR")
    has_just_ended = (
        key.kind is KeyKind.JOB
        and seconds > 0
        and session.setup.locks.find(key.number, key.function, session.engine.now_us) is not None
    )
    if not has_just_ended and must_read(session, command, [key]):
        return
    if seconds <= 0:
        session.send(integer(forget(session, key)))
    elif has_just_ended:
        # The job has just ended, and may not be stored yet.
        expire_ended(session, key, seconds)
        session.await_commit()
        session.send(integer(1))
    else:
        is_there = seconds_left(session, key) != MISSING
        if is_there and key.kind is KeyKind.JOB and not session.engine.has_job(key.number):
            expire_ended(session, key, seconds)
        session.send(integer(is_there))


def expire_ended(session: GearMonkeySession, key: Key, seconds: int) -> None:
    """Hide a finished job after this time. By default it is shown as long as GearMonkey's document says."""
    hidden = session.setup.hidden
    if seconds * SECOND_US < KEEP_US:
        remember(hidden, key.number, session.engine.now_us + seconds * SECOND_US)
    else:
        hidden.pop(key.number, None)


def on_del(session: GearMonkeySession, command: Command) -> None:
    keys = keys_in(session, command)
    if not must_read(session, command, keys):
        session.send(integer(sum(forget(session, key) for key in keys)))


def forget(session: GearMonkeySession, key: Key) -> bool:
    """Delete a key; returns whether it existed."""
    if key.kind is KeyKind.LOCK:
        return take_lock(session, key)
    if key.kind is not KeyKind.JOB:
        raise everlasting()
    if session.setup.drafts.get(key.number, key.function) is not None:
        session.setup.drafts.remove(key.number)
        return True
    if session.engine.has_job(key.number):
        raise PeerError(f"job {key.number} has not ended", code="ERR")
    is_shown = find_job(session, key) is not None
    if is_shown:
        remember(session.setup.hidden, key.number, session.engine.now_us)
    return is_shown


def everlasting() -> PeerError:
    return PeerError("of GearMonkey's keys only job: and lock: expire, or can be deleted", code="ERR")
