"""A store made of copies: what was staged, what a commit is just keeping, and what is kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from switchgear.engine.engine import Engine
from switchgear.model import FINAL_STATES, Function, Gate, Job, JobState, PlainJob, Schedule
from switchgear.policy import Policy
from switchgear.testing.invariants import BrokenInvariant

__all__ = ["SimulatedStore"]

# What a job is, apart from what a restart forgets: who runs it, who watches it, and how many it waits for.
KEPT_FIELDS: Final = (
    "state",
    "name",
    "origin",
    "run_at_us",
    "expires_us",
    "timeout_us",
    "attempts",
    "attempts_limit",
    "result_code",
    "result",
    "error",
    "finished_us",
    "predecessors",
    "key",
    "losses",
    "losses_limit",
    "edges",
    "unique_scope",
    "unique_until_us",
    "retention_us",
    "schedule",
    "message",
    "rank",
    "revision",
)

FunctionRow = tuple[bool, list[int], Policy]

# What they are in a job that has nothing but what it was submitted with, and was kept once.
PLAIN_FIELDS: Final = {field: getattr(Job(0, Function(b""), b"", b"", 0, 0, 0), field) for field in KEPT_FIELDS} | {
    "revision": 1
}

# A restart skips at most this many ids, as with a store that reserves them in blocks.
RESERVED_IDS: Final = 1000


class Row:
    """A job as it was when it was staged."""

    def __init__(self, job: Job) -> None:
        self.id = job.id
        self.function_name = job.function.name
        self.born = (job.unique, job.payload, job.priority, job.delivery, job.created_us)
        self.fields: dict[str, Any] = {field: getattr(job, field) for field in KEPT_FIELDS}
        self.moves = None if job.moves is None else list(job.moves)

    def put_payload(self, payload: bytes | None) -> None:
        """Only the store has it."""
        self.born = (self.born[0], payload, *self.born[2:])

    @property
    def is_plain(self) -> bool:
        """Whether this is a ready job that has nothing but what it was submitted with."""
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
        """Whether this is a job that ended, and whose unique key is still its own."""
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
    """Rows on their way into the store, and the jobs they were copied from."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.jobs: dict[int, Job] = {}
        self.ended: list[Job] = []  # as above, and also those of which a newer copy was staged since
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
    """Keeps what was committed, through any crash."""

    def __init__(self) -> None:
        self.committed: dict[int, Row] = {}
        self.functions: dict[bytes, FunctionRow] = {}
        self.schedules: dict[bytes, Schedule] = {}
        self.made_by: dict[bytes, set[int]] = {}  # the jobs of each schedule that were ever kept
        self.next_job_id = 1
        self.staged = Batch()
        self.in_flight: Batch | None = None

    # --- as a server uses it ---

    def stage(self, engine: Engine) -> list[Job]:
        """Copy what changed; returns those jobs."""
        jobs, functions = engine.take_changes()
        for job in jobs:
            job.revision += 1
            row = Row(job)
            if job.payload is None:
                row.put_payload(self._payload_of(job.id))
            self.staged.put(row, job)
            if job.finished_us:
                self.staged.ended.append(job)
        for schedule in engine.take_changed_schedules():
            self.staged.schedules[schedule.name] = None if schedule.removed else replace(schedule)
        for function in functions:
            policy = function.gate.policy if function.gate is not None else Policy()
            self.staged.functions[function.name] = (function.paused, list(function.limits), policy)
        if engine.next_job_id + RESERVED_IDS // 2 > max(self.next_job_id, self.staged.next_job_id):
            self.staged.next_job_id = engine.next_job_id + RESERVED_IDS
        return jobs

    def _payload_of(self, job_id: int) -> bytes | None:
        for rows in (self.staged.rows, self.in_flight.rows if self.in_flight else {}, self.committed):
            if job_id in rows:
                return rows[job_id].born[1]
        raise BrokenInvariant(f"job {job_id} has no payload, and was never kept")

    def recent_jobs(self) -> list[Job]:
        """Those that changed and are not kept yet, the newest changes last."""
        in_flight = self.in_flight.jobs.values() if self.in_flight else ()
        return [*in_flight, *self.staged.jobs.values()]

    def unstored_ends(self) -> list[Job]:
        """Jobs that ended, and that is not kept yet."""
        return [*(self.in_flight.ended if self.in_flight else ()), *self.staged.ended]

    def unstage(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self.staged.rows.pop(job.id, None)
            self.staged.jobs.pop(job.id, None)

    def begin_commit(self) -> None:
        self.in_flight, self.staged = self.staged, Batch()

    def end_commit(self, engine: Engine) -> list[Row]:
        """What was in flight is kept now."""
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
        """Nothing of what was in flight is kept; it is staged again, under what came since."""
        batch, self.in_flight = self.in_flight, None
        assert batch is not None
        batch.update(self.staged)
        self.staged = batch

    def get(self, job_id: int, engine: Engine) -> Job | None:
        """The newest copy of a job, as somebody who looks it up gets it."""
        for rows in (self.staged.rows, self.in_flight.rows if self.in_flight else {}, self.committed):
            if job_id in rows:
                row = rows[job_id]
                return row.to_job(engine.function_named(row.function_name))
        return None

    def forget(self, job_ids: Iterable[int]) -> None:
        """Drop finished jobs from the log."""
        for job_id in job_ids:
            del self.committed[job_id]

    def finished(self) -> list[Row]:
        return [row for row in self.committed.values() if row.state in FINAL_STATES]

    # --- as a crash leaves it ---

    def crash(self, *, in_flight_is_kept: bool) -> list[Row]:
        """The server is gone.  A commit that was under way has happened or has not; returns what it kept."""
        batch, self.in_flight = self.in_flight, None
        self.staged = Batch()
        if batch is None or not in_flight_is_kept:
            return []
        self._apply(batch)
        return list(batch.rows.values())

    def load(self, engine: Engine, *, plain_apart: bool) -> tuple[list[Job], dict[int, int]]:
        """Let a new engine go on where the last one was; returns its jobs, and how long their logs were."""
        for name, (paused, limits, policy) in self.functions.items():
            function = engine.function_named(name)
            function.paused = paused
            function.limits = list(limits)
            function.gate = Gate(function, policy) if policy else None
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
