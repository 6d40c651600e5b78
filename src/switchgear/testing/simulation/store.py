"""`SimulatedStore`: a store of copies that can fail or crash at any moment of a commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from switchgear.engine.engine import Engine
from switchgear.job_options import JOB_OPTIONS, Kept
from switchgear.model import FINAL_STATES, Function, Job, JobState, Limiter, PlainJob, Schedule
from switchgear.policy import Policy
from switchgear.testing.invariants import BrokenInvariant

__all__ = ["SimulatedStore"]

# Set at construction, and the field that replaces another.
ALWAYS_KEPT: Final = ("priority", "delivery", "unique_for_us")
# The fields that a restart restores: not the worker, the subscribers and the number of blockers.
KEPT_FIELDS: Final = (
    "state",
    *(option.field for option in JOB_OPTIONS if option.kept is not Kept.NOT and option.field not in ALWAYS_KEPT),
    "unique_until_us",
    "origin",
    "attempts",
    "result_code",
    "result",
    "error",
    "finished_us",
    "losses",
    "schedule",
    "message",
    "rank",
    "revision",
)

FunctionRow = tuple[bool, list[int], Policy]

# Their values in a plain job that was stored once.
PLAIN_FIELDS: Final = {field: getattr(Job(0, Function(b""), b"", b"", 0, 0, 0), field) for field in KEPT_FIELDS} | {
    "revision": 1
}

# A restart skips at most this many ids, as with a store that reserves them in blocks.
RESERVED_IDS: Final = 1000


class Row:
    """A staged copy of a job."""

    def __init__(self, job: Job) -> None:
        self.id = job.id
        self.function_name = job.function.name
        self.born = (job.unique, job.payload, job.priority, job.delivery, job.created_us)
        self.fields: dict[str, Any] = {field: getattr(job, field) for field in KEPT_FIELDS}
        self.moves = None if job.moves is None else list(job.moves)

    def put_payload(self, payload: bytes | None) -> None:
        """Set the payload, which the job in memory no longer has."""
        self.born = (self.born[0], payload, *self.born[2:])

    @property
    def is_plain(self) -> bool:
        """Whether this is a plain ready job."""
        return (
            self.moves is None
            and bool(self.born[3])
            and all(self.fields[field] == value for field, value in PLAIN_FIELDS.items())
        )

    @property
    def state(self) -> JobState:
        state: JobState = self.fields["state"]
        return state

    def holds_key(self, now_us: int) -> bool:
        """Whether this is a finished job that still holds its unique key."""
        return self.state in FINAL_STATES and bool(self.fields["unique_until_us"] > now_us)

    def to_job(self, function: Function) -> Job:
        """A new job object, as after a restart."""
        job = Job(self.id, function, *self.born)
        for field, value in self.fields.items():
            setattr(job, field, value)
        job.moves = None if self.moves is None else list(self.moves)
        job.kept = True
        return job


def _born(job: Job) -> PlainJob:
    return job.id, job.function, job.priority, job.delivery, job.created_us, job.unique


class Batch:
    """Rows to be stored, and the jobs from which they were copied."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.jobs: dict[int, Job] = {}
        self.ended: list[Job] = []  # as above, including those with a newer copy
        self.functions: dict[bytes, FunctionRow] = {}
        self.schedules: dict[bytes, Schedule | None] = {}  # None: it was removed
        self.next_job_id = 0

    def __bool__(self) -> bool:
        return bool(self.rows or self.functions or self.schedules or self.next_job_id)

    def update(self, newer: Batch) -> None:
        for job_id, row in newer.rows.items():
            self.put(row, newer.jobs[job_id])
        self.ended += newer.ended
        self.functions.update(newer.functions)
        self.schedules.update(newer.schedules)
        self.next_job_id = max(self.next_job_id, newer.next_job_id)

    def put(self, row: Row, job: Job) -> None:
        self.rows.pop(row.id, None)  # so that the newest change is the last
        self.jobs.pop(row.id, None)
        self.rows[row.id] = row
        self.jobs[row.id] = job


class SimulatedStore:
    """Keeps committed rows through any crash."""

    def __init__(self) -> None:
        self.committed: dict[int, Row] = {}
        self.functions: dict[bytes, FunctionRow] = {}
        self.schedules: dict[bytes, Schedule] = {}
        self.made_by: dict[bytes, set[int]] = {}  # by schedule, all its jobs that were ever stored
        self.next_job_id = 1
        self.staged = Batch()
        self.in_flight: Batch | None = None

    # --- used by the server ---

    def stage(self, engine: Engine) -> list[Job]:
        """Copy the changes; returns the changed jobs."""
        jobs, functions = engine.take_changes()
        for job in jobs:
            job.revision += 1
            row = Row(job)
            if job.payload is None:
                row.put_payload(self.payload_of(job.id))
            self.staged.put(row, job)
            if job.finished_us:
                self.staged.ended.append(job)
        for schedule in engine.take_changed_schedules():
            self.staged.schedules[schedule.name] = None if schedule.removed else replace(schedule)
        for function in functions:
            policy = function.limiter.policy if function.limiter is not None else Policy()
            self.staged.functions[function.name] = (function.paused, list(function.limits), policy)
        if engine.next_job_id + RESERVED_IDS // 2 > max(self.next_job_id, self.staged.next_job_id):
            self.staged.next_job_id = engine.next_job_id + RESERVED_IDS
        return jobs

    def payload_of(self, job_id: int) -> bytes | None:
        """The payload of a job that was staged."""
        for rows in (self.staged.rows, self.in_flight.rows if self.in_flight else {}, self.committed):
            if job_id in rows:
                return rows[job_id].born[1]
        raise BrokenInvariant(f"job {job_id} has no payload, and was never kept")

    def has_begun_to_store(self, job_id: int) -> bool:
        """Whether the job is stored, or in the commit in progress."""
        return job_id in self.committed or (self.in_flight is not None and job_id in self.in_flight.rows)

    def recent_jobs(self) -> list[Job]:
        """Jobs whose changes are not stored yet, the newest changes last."""
        in_flight = self.in_flight.jobs.values() if self.in_flight else ()
        return [*in_flight, *self.staged.jobs.values()]

    def unstored_ends(self) -> list[Job]:
        """Jobs whose end is not stored yet."""
        return [*(self.in_flight.ended if self.in_flight else ()), *self.staged.ended]

    def unstage(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self.staged.rows.pop(job.id, None)
            self.staged.jobs.pop(job.id, None)

    def begin_commit(self) -> None:
        self.in_flight, self.staged = self.staged, Batch()

    def end_commit(self, engine: Engine) -> list[Row]:
        """Store the commit in progress."""
        batch, self.in_flight = self.in_flight, None
        assert batch is not None
        for job in batch.jobs.values():
            job.kept = True
            if job.unsent and job.id not in self.staged.jobs:
                engine.start_is_kept(job)
        for job in batch.ended:
            if job.finished_us and job not in self.staged.ended:
                engine.drop_contents(job)
        self._apply(batch)
        return list(batch.rows.values())

    def fail_commit(self) -> None:
        """Fail the commit in progress; its rows are staged again, below newer ones."""
        batch, self.in_flight = self.in_flight, None
        assert batch is not None
        batch.update(self.staged)
        self.staged = batch

    def get(self, job_id: int, engine: Engine) -> Job | None:
        """The newest copy of a job, for a reader."""
        for rows in (self.staged.rows, self.in_flight.rows if self.in_flight else {}, self.committed):
            if job_id in rows:
                row = rows[job_id]
                return row.to_job(engine.function_named(row.function_name))
        return None

    def forget(self, job_ids: Iterable[int]) -> None:
        """Delete finished jobs."""
        for job_id in job_ids:
            del self.committed[job_id]

    def finished(self) -> list[Row]:
        return [row for row in self.committed.values() if row.state in FINAL_STATES]

    # --- crashes ---

    def crash(self, *, in_flight_is_kept: bool) -> list[Row]:
        """Crash the server. A commit in progress has succeeded or not; returns the stored rows."""
        batch, self.in_flight = self.in_flight, None
        self.staged = Batch()
        if batch is None or not in_flight_is_kept:
            return []
        self._apply(batch)
        return list(batch.rows.values())

    def load(self, engine: Engine, *, plain_apart: bool) -> tuple[list[Job], dict[int, int]]:
        """Restore a new engine; returns its jobs, and the lengths of their logs."""
        for name, (paused, limits, policy) in self.functions.items():
            function = engine.function_named(name)
            function.paused = paused
            function.limits = list(limits)
            function.limiter = Limiter(function, policy) if policy else None
        rows = sorted(self.committed.values(), key=lambda row: row.id)
        jobs = [row.to_job(engine.function_named(row.function_name)) for row in rows if row.state not in FINAL_STATES]
        ended = [row for row in rows if row.state in FINAL_STATES and row.state is not JobState.DONE]
        ended.sort(key=lambda row: int(row.fields["finished_us"]))
        lengths = {job.id: len(job.moves or ()) for job in jobs}
        held = [row.to_job(engine.function_named(row.function_name)) for row in rows if row.holds_key(engine.now_us)]
        schedules = [replace(kept, wake_us=0, next_us=0, refusal="") for kept in self.schedules.values()]
        plain = [row.id for row in rows if plain_apart and row.is_plain]
        engine.restore(
            [job for job in jobs if job.id not in plain],
            {row.id: row.state for row in ended},
            self.next_job_id,
            schedules,
            held=held,
            plain=([_born(job)] for job in jobs if job.id in plain),
            unsuccessful_names={row.id: row.fields["name"] for row in ended if row.fields["name"]},
        )
        return [engine.look_at(job.id) or job for job in jobs], lengths

    def _apply(self, batch: Batch) -> None:
        for job_id, row in batch.rows.items():
            known = self.committed.get(job_id)
            if known is not None and known.fields["revision"] >= row.fields["revision"]:
                raise BrokenInvariant(f"job {job_id} was kept with revision {row.fields['revision']} a second time")
            self.committed[job_id] = row
            if row.fields["schedule"]:
                self.made_by.setdefault(row.fields["schedule"], set()).add(job_id)
        self.functions.update(batch.functions)
        self.next_job_id = max(self.next_job_id, batch.next_job_id)
        for name, schedule in batch.schedules.items():
            self.schedules.pop(name, None)
            if schedule is not None:
                self.schedules[name] = schedule
        for name, kept in self.schedules.items():
            if kept.fired != len(self.made_by.get(name, ())):
                raise BrokenInvariant(f"{kept} has fired {kept.fired} times, and made {self.made_by.get(name, ())}")
