"""Target: rows of the store as a damaged file may have them.  A row that means nothing is told as one, and nothing else
happens: the reader of the store turns what is raised here into a StorageError."""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable
from typing import Any, Final

import msgspec

from fuzz.grammar import FRAMES, Part
from fuzz.target import Target, must
from switchgear.model import Function, Job
from switchgear.storage.sqlite_rows import clamped, decode_policy, is_exhausted, job_from_row, job_row
from switchgear.storage.sqlite_schedules import schedule_from_row, schedule_row

__all__ = ["ROWS", "as_read", "row_of", "row_written"]

# What `Reader._reading` takes for a row that means nothing.
MEANINGLESS: Final = (sqlite3.Error, OSError, msgspec.MsgspecError, LookupError, TypeError, ValueError)
JOB_COLUMNS: Final = 20
SCHEDULE_COLUMNS: Final = 16

# SQLite gives back these types, whatever the column is declared as.
NULL, INTEGER, REAL, TEXT, BLOB = range(5)


def value_of(data: bytes) -> Any:
    """A value of a column: the first byte is its type."""
    kind, rest = data[:1], data[1:]
    match kind[0] % 5 if kind else NULL:
        case 1:
            return int.from_bytes(rest[:8], "big", signed=True)
        case 2:
            return float(int.from_bytes(rest[:6], "big", signed=True)) / 1000
        case 3:
            return rest.decode("utf-8", "replace")
        case 4:
            return rest
    return None


def row_of(data: bytes, columns: int) -> tuple[Any, ...]:
    values = [value_of(part.body) for part in FRAMES.cut(data)][:columns]
    return (*values, *[None] * (columns - len(values)))


def row_written(row: tuple[Any, ...]) -> bytes:
    """The input that is read as this row; for seeds."""
    parts = []
    for value in row:
        if value is None:
            body = bytes([NULL])
        elif isinstance(value, int):
            body = bytes([INTEGER]) + int(value).to_bytes(8, "big", signed=True)
        elif isinstance(value, str):
            body = bytes([TEXT]) + value.encode()
        else:
            body = bytes([BLOB]) + bytes(value)
        parts.append(Part(b"", body))
    return FRAMES.join(parts)


def run_job_row(data: bytes) -> Hashable:
    row = row_of(data, JOB_COLUMNS)
    kinds: list[Hashable] = []
    try:
        is_exhausted(row[14])
        decode_policy(row[13])
    except MEANINGLESS as error:
        kinds.append(type(error).__name__)
    try:
        job = job_from_row(row, Function(b"f"))
    except MEANINGLESS as error:
        return (*kinds, type(error).__name__, str(error)[:24])
    if is_sound(job):
        again = job_from_row(as_read(clamped(job_row(job, 1))), Function(b"f"))
        must(job_row(again, 1) == job_row(job, 1), "a row does not survive", row)
        kinds.append("sound")
    return (*kinds, job.state, job.has_details)


def is_sound(job: Job) -> bool:
    """Whether the row has the types that a store writes; SQLite does not insist on them."""
    texts = (job.unique, job.name, job.payload, job.result)
    numbers: list[Any] = [job.id, job.priority, job.created_us, job.run_at_us, job.attempts, job.result_code]
    numbers += [job.finished_us, job.unique_until_us, job.revision]
    return (
        all(type(text) is bytes for text in texts)
        and all(type(number) is int and abs(number) < 2**62 for number in numbers)
        and (job.error is None or type(job.error) is bytes)
        and len(job.payload or b"") <= 1024
        and 0 <= job.priority < 4
    )


def as_read(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row as SQLite gives it back: bytes, and an error that is missing as NULL."""
    values = [bytes(value) if isinstance(value, bytearray) else value for value in row]
    if values[16] == 0:
        values[16] = None
    return tuple(values)


def run_schedule_row(data: bytes) -> Hashable:
    row = row_of(data, SCHEDULE_COLUMNS)
    try:
        schedule = schedule_from_row(row)
    except MEANINGLESS as error:
        return type(error).__name__, str(error)[:24]
    again = schedule_from_row(schedule_row(schedule))
    must(schedule_row(again) == schedule_row(schedule), "a row does not survive", row)
    return "read"


def packed(*values: object) -> bytes:
    return bytes([BLOB]) + msgspec.msgpack.encode(values)


ROW_WORDS: Final = (
    bytes([NULL]),
    bytes([INTEGER]) + bytes(8),
    bytes([INTEGER]) + b"\xff" * 8,
    bytes([INTEGER]) + b"\x7f" + b"\xff" * 7,
    bytes([TEXT]) + b"every 60 s",
    bytes([TEXT]) + b"0 0 * * *",
    bytes([TEXT]) + b"Europe/Berlin",
    bytes([BLOB]),
    bytes([BLOB]) + b"\x90",
    packed(1, 2, 3),
    packed("gearman", -1, 0, 0, b"", 0, 0, -1, b"", b"", (1, 2)),
    packed(1, 0, 0, -1, -1, -1, b"k"),
)

ROWS: Final = (
    Target("job-rows", run_job_row, ("storage.sqlite_rows", "storage.sqlite_extra"), (FRAMES,), ROW_WORDS),
    Target("schedule-rows", run_schedule_row, ("storage.sqlite_schedules",), (FRAMES,), ROW_WORDS),
)
