"""Converts jobs to rows of the `jobs` table, and back.

Staging runs in the event loop's thread for every change of every job, and so does half of binding, so this file counts
nanoseconds.  What was measured (Python 3.11, per value):

- sqlite3 binds exact ints, strs and bytearrays at 50 ns, but sends anything else, *bytes and None included*, through
  its adaption protocol first: 200 ns and more.  So blobs are bytearrays, and what is often missing is 0 or empty; the
  copy that makes a bytearray costs less than half of what it saves.
- Encoding nine fields with msgspec takes 80 ns, asking each whether it has its default value 400.  So `extra` is always
  encoded, and compared with the encoding of a job without any. Only a job that `has_details` can have the later fields.
"""

from __future__ import annotations

from functools import lru_cache
from sys import intern
from typing import Any, Final, TypeAlias

import msgspec

from switchgear.model import KEPT, RUNNING, Cause, Delivery, Function, Job, JobState
from switchgear.policy import Policy
from switchgear.storage.sqlite_extra import Extra

__all__ = [
    "ATTEMPTS",
    "CREATED_US",
    "DELIVERY",
    "ERROR",
    "EXTRA",
    "FINISHED_US",
    "FUNCTION_ID",
    "ID",
    "INLINE_PAYLOAD_BYTES",
    "KEEP_UNTIL_US",
    "LONG_VALUE_BYTES",
    "MOVES",
    "NAME",
    "PAYLOAD",
    "PRIORITY",
    "RESULT",
    "RESULT_CODE",
    "REVISION",
    "RUN_AT_US",
    "STATE",
    "UNIQUE",
    "UNIQUE_UNTIL_US",
    "JobRow",
    "clamped",
    "decode_policy",
    "encode",
    "has_key",
    "is_exhausted",
    "job_from_row",
    "job_row",
]

JobRow: TypeAlias = tuple[Any, ...]  # in the order of sqlite_schema.COLUMNS, then the payload

ID: Final = 0
FUNCTION_ID: Final = 1
STATE: Final = 2
PRIORITY: Final = 3
DELIVERY: Final = 4
CREATED_US: Final = 5
RUN_AT_US: Final = 6
FINISHED_US: Final = 7
ATTEMPTS: Final = 8
RESULT_CODE: Final = 9
REVISION: Final = 10
UNIQUE: Final = 11
NAME: Final = 12
EXTRA: Final = 13
MOVES: Final = 14
RESULT: Final = 15
ERROR: Final = 16
KEEP_UNTIL_US: Final = 17
UNIQUE_UNTIL_US: Final = 18
PAYLOAD: Final = 19

# From this size on a copy costs more than it saves, and a value is bound as bytes.
LONG_VALUE_BYTES: Final = 65_536

# Longer payloads go to a separate table. A page (4096 bytes) is the least that SQLite writes, so while a few rows fit
# into one, writing the payload again with its row costs nothing.
INLINE_PAYLOAD_BYTES: Final = 1024

EMPTY: Final = bytearray()
INTEGER_MAX: Final = 2**63 - 1

STATES: Final = tuple(JobState)
DELIVERIES: Final = tuple(Delivery)


encode = msgspec.msgpack.Encoder().encode
decode_policy = msgspec.msgpack.Decoder(Policy).decode
decode_extra = lru_cache(maxsize=256)(msgspec.msgpack.Decoder(Extra).decode)  # most jobs of a queue have the same
decode_moves = msgspec.msgpack.Decoder(list[int]).decode

OF_ANY_JOB: Final = 12  # the number of fields that any job may set; the others only if it `has_details`
NOTHING: Final = (encode(msgspec.structs.astuple(Extra())[:OF_ANY_JOB]), encode(Extra()))


def is_exhausted(moves: bytes) -> bool:
    """Whether the last move of a row is that no attempt was left."""
    return bool(moves) and decode_moves(moves)[-2] == Cause.EXHAUSTED


def has_key(extra: bytes, key: bytes) -> bool:
    """Whether the job of a row has this key."""
    return (decode_extra(extra).key if extra else b"") == key


def job_row(job: Job, function_id: int) -> JobRow:
    """The row of the job's present state. A payload that is too long for the row is None in it.

    Facts that other tables have are left out: the number of predecessors that are not done, the subscribers and the
    worker.
    """
    state = job.state
    unique = job.unique
    name = job.name
    moves = job.moves
    result = job.whole_result if state > RUNNING else job.result  # partial results are lost with the attempt
    error = job.error
    payload = job.payload
    fields = _earlier_fields(job)
    keep_until_us = unique_until_us = 0
    if job.has_details:
        fields += _later_fields(job)
        unique_until_us = job.unique_until_us
        if state > RUNNING and job.retention_us >= 0:
            keep_until_us = job.finished_us + job.retention_us
    try:
        extra = encode(fields)
    except (OverflowError, UnicodeEncodeError):
        extra = encode([_tamed(value) for value in fields])
    return (
        job.id,
        function_id,
        int(state),
        int(job.priority),
        int(job.delivery),
        job.created_us,
        job.run_at_us,
        job.finished_us if state > RUNNING else 0,
        job.attempts,
        job.result_code,
        job.revision,
        bytearray(unique) if unique else EMPTY,
        bytearray(name) if name else EMPTY,
        EMPTY if extra in NOTHING else bytearray(extra),
        bytearray(encode(moves)) if moves else EMPTY,
        EMPTY if not result else bytearray(result) if len(result) < LONG_VALUE_BYTES else result,
        # The statement turns 0 into NULL.
        0 if error is None else bytearray(error) if len(error) < LONG_VALUE_BYTES else error,
        keep_until_us,
        unique_until_us,
        # Only the store has the payload of a job without one: the row exists, and the update leaves the payload
        # unchanged.
        EMPTY if not payload else bytearray(payload) if len(payload) <= INLINE_PAYLOAD_BYTES else None,
    )


def _earlier_fields(job: Job) -> tuple[Any, ...]:
    return (
        job.origin,
        job.attempts_limit,
        job.timeout_us,
        job.expires_us,
        job.reducer,
        job.numerator,
        job.denominator,
        job.time_left_s,
        job.progress_text,
        job.warnings,
        job.predecessors,
        job.rank,
    )


def _later_fields(job: Job) -> tuple[Any, ...]:
    return (
        job.key,
        job.losses,
        job.crash_limit,
        job.edges,
        job.unique_scope,
        job.retention_us,
        job.schedule,
        job.message,
        job.requires,
        job.label,
        job.trace,
    )


def _tamed(value: object) -> object:
    """A number or a text that can be encoded: progress figures, for example, come from peers."""
    if isinstance(value, int):
        return _clamped(value)
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


def _clamped(value: int) -> int:
    return max(-INTEGER_MAX, min(INTEGER_MAX, value))


def clamped(row: JobRow) -> JobRow:
    """The row with every number within the range of SQLite."""
    return tuple(_clamped(value) if isinstance(value, int) else value for value in row)


def job_from_row(row: JobRow, function: Function) -> Job:
    """The job of a row that `job_row` made. Fields with their default value are left to the class."""
    (
        job_id,
        _,
        state,
        priority,
        delivery,
        created_us,
        run_at_us,
        finished_us,
        attempts,
        result_code,
        revision,
        unique,
        name,
        extra,
        moves,
        result,
        error,
        _,
        unique_until_us,
        payload,
    ) = row
    job = Job(job_id, function, unique, payload, priority, DELIVERIES[delivery], created_us)
    job.state = STATES[state]
    job.revision = revision
    job.kept = KEPT
    if run_at_us:
        job.run_at_us = run_at_us
    if attempts:
        job.attempts = attempts
    if name:
        job.name = name
    if moves:
        job.moves = decode_moves(moves)
    if unique_until_us:
        job.unique_until_us = unique_until_us
        job.has_details = True
    if extra:
        job.has_details = True
        _set_extra(job, decode_extra(extra))
    if finished_us:
        job.finished_us = finished_us
    if result_code:
        job.result_code = result_code
    if result:
        job.result = result
    if error is not None:
        job.error = error
    return job


def _set_extra(job: Job, extra: Extra) -> None:
    if extra.origin:
        job.origin = intern(extra.origin)  # a handful of protocols, a million jobs
    if extra.attempts_limit != -1:
        job.attempts_limit = extra.attempts_limit
    if extra.timeout_us:
        job.timeout_us = extra.timeout_us
    if extra.expires_us:
        job.expires_us = extra.expires_us
    if extra.reducer:
        job.reducer = extra.reducer
    if extra.numerator:
        job.numerator = extra.numerator
    if extra.denominator:
        job.denominator = extra.denominator
    if extra.time_left_s != -1:
        job.time_left_s = extra.time_left_s
    if extra.progress_text:
        job.progress_text = extra.progress_text
    if extra.warnings:
        job.warnings = extra.warnings
    if extra.predecessors:
        job.predecessors = extra.predecessors
    if extra.rank:
        job.rank = extra.rank
    if extra.key:
        job.key = extra.key
    if extra.losses:
        job.losses = extra.losses
    if extra.crash_limit != -1:
        job.crash_limit = extra.crash_limit
    if extra.edges:
        job.edges = extra.edges
    if extra.unique_scope:
        job.unique_scope = extra.unique_scope
    if extra.retention_us != -1:
        job.retention_us = extra.retention_us
    if extra.schedule:
        job.schedule = extra.schedule
    if extra.message:
        job.message = extra.message
    if extra.requires:
        job.requires = extra.requires
    if extra.label:
        job.label = extra.label
    if extra.trace:
        job.trace = extra.trace
