"""What the tests of the stores share: jobs, and the words to speak about them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from switchgear.model import (
    CANCELLED,
    DONE,
    EXPIRED,
    FAILED,
    FINAL_STATES,
    NORMAL,
    READY,
    Delivery,
    Function,
    Job,
    JobState,
    PlainJob,
)
from switchgear.storage.base import JobQuery, Snapshot, Store
from switchgear.storage.sqlite import SqliteStore

Result = TypeVar("Result")

REPOSITORY = Path(__file__).parents[2]

HOUR_US = 3_600_000_000
NOW_US = 1_700_000_000_000_000

# What a store gives back of a job.  The rest is somebody else's to know, or is worked out again.
KEPT_FIELDS = (
    *("id", "unique", "payload", "priority", "delivery", "created_us", "name", "reducer", "label", "origin"),
    *("state", "run_at_us", "expires_us", "timeout_us", "attempts", "attempts_limit", "predecessors", "moves", "rank"),
    *("numerator", "denominator", "time_left_s", "progress_text", "warnings"),
    *("result_code", "whole_result", "error", "finished_us", "revision"),
    *("key", "losses", "crash_limit", "edges", "unique_scope", "unique_until_us", "retention_us"),
    *("schedule", "message"),
)


def run(work: Coroutine[Any, Any, Result]) -> Result:
    return asyncio.run(work)


def commit(store: Store, jobs: Iterable[Job] = (), functions: Iterable[Function] = ()) -> Sequence[int]:
    """Stage and commit, as one turn of the server would."""
    store.stage(jobs, functions)
    return run(store.commit())


def load(store: Store, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
    return run(store.load(function_named, now_us))


def load_apart(store: Store, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
    return run(store.load_apart(function_named, now_us))


def get(store: Store, job_id: int) -> Job | None:
    return run(store.read_jobs([job_id])).get(job_id)


def find(store: Store, query: JobQuery) -> list[Job]:
    return run(store.find(query))


def read_payloads(store: Store, job_ids: Sequence[int]) -> dict[int, bytes]:
    return run(store.read_payloads(job_ids))


def read_states(store: Store, job_ids: Sequence[int]) -> dict[int, JobState]:
    return run(store.read_states(job_ids))


def search_bound(
    store: Store, before_id: int, count: int, states: frozenset[JobState] = frozenset({FAILED, CANCELLED, EXPIRED})
) -> int:
    return run(store.search_bound(before_id, count, states))


def count_jobs(store: Store, *, only_unfinished: bool = False) -> int:
    return run(store.count_jobs(only_unfinished=only_unfinished))


def plain_portions(snapshot: Snapshot) -> list[Sequence[PlainJob]]:
    """What is apart, read at once."""

    async def read() -> list[Sequence[PlainJob]]:
        return [portion async for portion in snapshot.plain] if snapshot.plain is not None else []

    return run(read())


def close(store: Store) -> None:
    run(store.close())


def function(name: bytes = b"resize") -> Function:
    return Function(name)


def new_job(job_id: int, of: Function | None = None, *, payload: bytes | None = b"payload", **fields: Any) -> Job:
    """A job as a client would have submitted it, a microsecond after the one before."""
    job = Job(job_id, of or function(), b"", payload, NORMAL, Delivery.HANDLE, NOW_US + job_id)
    for name, value in fields.items():
        setattr(job, name, value)
    return job


def finished_job(job_id: int, of: Function | None = None, *, state: JobState = DONE, **fields: Any) -> Job:
    """One that ended an hour after the one before."""
    return new_job(job_id, of, **{"state": state, "finished_us": NOW_US + job_id * HOUR_US} | fields)


def finish(job: Job, state: JobState = DONE) -> Job:
    job.state = state
    job.finished_us = job.created_us + HOUR_US
    return job


def loaded(store: Store) -> Snapshot:
    functions: dict[bytes, Function] = {}
    return load(store, lambda name: functions.setdefault(name, Function(name)))


def facts(job: Job) -> dict[str, Any]:
    """All that a store promises to give back."""
    kept = {name: getattr(job, name) for name in KEPT_FIELDS} | {"function": job.function.name}
    if job.state not in FINAL_STATES:
        kept["finished_us"] = 0
        kept["whole_result"] = job.result
    return kept


def ids(jobs: Iterable[Job]) -> list[int]:
    return [job.id for job in jobs]


def other_copy(job: Job) -> Job:
    """The same job in the hands of another server, which knows nothing of what happens to the first."""
    return new_job(job.id, job.function, payload=job.payload, revision=job.revision)


@contextmanager
def written_to_by_another_program(path: Path) -> Iterator[None]:
    """Nobody else can write to the file meanwhile: a commit waits, and fails when its patience ends."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
    finally:
        connection.close()


def retry(job: Job) -> Job:
    """A person asks for a failed job to run again."""
    job.state = READY
    job.finished_us = 0
    return job


def opened(path: Path, **options: Any) -> SqliteStore:
    store = SqliteStore(path, **options)
    store.open()
    return store


def pragma(path: Path, name: str) -> Any:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]
    finally:
        connection.close()


def in_a_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
