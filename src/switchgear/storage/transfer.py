"""Moves everything from one store to another, as lines of JSON: first a header, then functions, schedules and jobs.

Jobs come in portions, newest first, so that neither side needs memory for all of them. The last line says how many jobs
there were: an export that was cut off is not mistaken for a whole one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import msgspec

from switchgear.errors import StorageError
from switchgear.model import Function, Job, Limiter, Schedule
from switchgear.policy import Policy
from switchgear.storage.base import JobQuery, Store
from switchgear.storage.sqlite_rows import ERROR, decode_policy, encode, job_from_row, job_row
from switchgear.storage.sqlite_schedules import schedule_from_row, schedule_row

__all__ = ["TransferCounts", "exported", "import_lines"]

FORMAT: Final = 1
JOBS_AT_ONCE: Final = 200


class ExportHeader(msgspec.Struct, tag="switchgear-export", frozen=True):
    """The first line of an export: the format version and the next job id."""

    format: int
    next_job_id: int


class ExportedFunction(msgspec.Struct, tag="function", frozen=True):
    """The settings of a function."""

    name: bytes
    paused: bool
    limits: list[int]  # for high, normal and low priority
    policy: bytes | None  # policy.Policy as a msgpack map


class ExportedSchedule(msgspec.Struct, tag="schedule", frozen=True):
    """A schedule, in the order of `sqlite_schedules.schedule_row`."""

    name: bytes
    function: bytes
    spec: str
    timezone: str
    numbers: list[int]
    options: bytes
    payload: bytes


class ExportedJob(msgspec.Struct, tag="job", frozen=True, omit_defaults=True):
    """A job, in the order of `sqlite_rows.job_row`."""

    id: int
    function: bytes
    state: int
    priority: int
    delivery: int
    created_us: int
    run_at_us: int = 0
    finished_us: int = 0
    attempts: int = 0
    result_code: int = 0
    revision: int = 0
    unique: bytes = b""
    name: bytes = b""
    extra: bytes = b""
    moves: bytes = b""
    result: bytes = b""
    error: bytes | None = None
    keep_until_us: int = 0
    unique_until_us: int = 0
    payload: bytes = b""


class ExportEnd(msgspec.Struct, tag="end", frozen=True):
    """The last line of an export; without it the export is incomplete."""

    jobs: int


class TransferCounts(msgspec.Struct):
    """The number of jobs, functions and schedules that were moved."""

    jobs: int = 0
    functions: int = 0
    schedules: int = 0


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[ExportHeader | ExportedFunction | ExportedSchedule | ExportedJob | ExportEnd] = (
    msgspec.json.Decoder(ExportHeader | ExportedFunction | ExportedSchedule | ExportedJob | ExportEnd)
)


async def exported(store: Store, counts: TransferCounts) -> AsyncIterator[bytes]:
    """The lines of an export of an open store, each with its end."""
    functions: dict[bytes, Function] = {}
    snapshot = await store.load_apart(lambda name: functions.setdefault(name, Function(name)))
    if snapshot.plain is not None:
        await snapshot.plain.aclose()
    yield _line(ExportHeader(FORMAT, snapshot.next_job_id))
    for function in functions.values():
        if function.paused or any(function.limits) or function.limiter is not None:
            policy = encode(function.limiter.policy) if function.limiter is not None else None
            yield _line(ExportedFunction(function.name, function.paused, list(function.limits), policy))
            counts.functions += 1
    for schedule in snapshot.schedules:
        name, of, spec, timezone, *numbers, options, payload = schedule_row(schedule)
        yield _line(ExportedSchedule(name, of, spec, timezone, numbers, options, payload))
        counts.schedules += 1
    del snapshot
    before_id = 0
    while True:
        found = await store.find(JobQuery(before_id=before_id, limit=JOBS_AT_ONCE))
        if not found:
            break
        before_id = found[-1].id
        jobs = await store.read_jobs([job.id for job in found])
        for job_id in sorted(jobs, reverse=True):
            yield _line(_exported_job(jobs[job_id]))
        counts.jobs += len(jobs)
    yield _line(ExportEnd(counts.jobs))


def _line(record: msgspec.Struct) -> bytes:
    return _encoder.encode(record) + b"\n"


def _exported_job(job: Job) -> ExportedJob:
    row = job_row(job, 0)
    values: list[Any] = [bytes(value) if isinstance(value, bytearray) else value for value in row]
    values[1] = job.function.name
    values[ERROR] = job.error
    values[-1] = job.payload or b""
    return ExportedJob(*values)


async def import_lines(store: Store, lines: Iterable[bytes]) -> TransferCounts:
    """Put an export into an open store, which must be empty; raises StorageError if the export is not whole.

    Everything is committed in portions. After an error the store has a part of it, and the error says so.
    """
    snapshot = await store.load_apart(Function)
    if snapshot.plain is not None:
        await snapshot.plain.aclose()
    if snapshot.next_job_id != 1 or snapshot.schedules or await store.find(JobQuery(limit=1)):
        raise StorageError(f"{store.url} is not empty; import into a new store")
    counts = TransferCounts()
    try:
        await _import_lines(store, lines, counts)
    except StorageError as error:
        part = f"{store.url} has a part of the jobs now: delete it, or import into another one"
        raise StorageError(f"{error}; {part}" if counts.jobs else str(error)) from error
    return counts


async def _import_lines(store: Store, lines: Iterable[bytes], counts: TransferCounts) -> None:
    functions: dict[bytes, Function] = {}
    jobs: list[Job] = []
    has_header = False
    is_whole = False
    for number, line in enumerate(lines, 1):
        record = _record(line, number)
        if isinstance(record, ExportHeader) == has_header or is_whole:
            raise StorageError(f"line {number} of the export is in the wrong place")
        if isinstance(record, ExportHeader):
            has_header = True
            if record.format > FORMAT:
                raise StorageError(f"the export has format {record.format}; this program knows formats up to {FORMAT}")
            store.stage((), (), record.next_job_id)
        elif isinstance(record, ExportedFunction):
            store.stage((), [_function(record, functions)])
            counts.functions += 1
        elif isinstance(record, ExportedSchedule):
            store.stage((), (), 0, [_schedule(record, number)])
            counts.schedules += 1
        elif isinstance(record, ExportedJob):
            jobs.append(_job(record, functions, number))
            counts.jobs += 1
            if len(jobs) >= JOBS_AT_ONCE:
                store.stage(jobs)
                await store.commit()
                jobs = []
        else:
            is_whole = True
            if record.jobs != counts.jobs:
                raise StorageError(f"the export says that it has {record.jobs} jobs; {counts.jobs} were found")
    store.stage(jobs)
    await store.commit()
    if not is_whole:
        raise StorageError("the export is cut off: its last line is missing")


def _record(line: bytes, number: int) -> ExportHeader | ExportedFunction | ExportedSchedule | ExportedJob | ExportEnd:
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StorageError(f"line {number} is not of an export: {error}") from None


def _function(record: ExportedFunction, functions: dict[bytes, Function]) -> Function:
    function = functions.setdefault(record.name, Function(record.name))
    function.paused = record.paused
    function.limits = [*record.limits, 0, 0, 0][:3]
    policy: Policy | None = decode_policy(record.policy) if record.policy is not None else None
    function.limiter = Limiter(function, policy) if policy else None
    return function


def _schedule(record: ExportedSchedule, number: int) -> Schedule:
    row = (record.name, record.function, record.spec, record.timezone, *record.numbers, record.options, record.payload)
    try:
        return schedule_from_row(row)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise StorageError(f"line {number} is not of an export: {error}") from None


def _job(record: ExportedJob, functions: dict[bytes, Function], number: int) -> Job:
    function = functions.setdefault(record.function, Function(record.function))
    row = list(msgspec.structs.astuple(record))
    try:
        job = job_from_row(tuple(row), function)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        raise StorageError(f"line {number} is not of an export: {error}") from None
    job.revision = max(0, record.revision - 1)  # staging adds one
    return job
