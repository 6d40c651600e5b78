"""Any job at all comes back from a durable store as it was."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.model import FINAL_STATES, Cause, Delivery, Job, JobState, UniqueScope
from switchgear.model.job_details import NO_DETAILS
from switchgear.storage.base import JobQuery
from switchgear.storage.sqlite import SqliteStore
from switchgear.storage.sqlite_extra import Extra
from switchgear.storage.sqlite_rows import INLINE_PAYLOAD_BYTES, OF_ANY_JOB, encode, job_from_row, job_row
from tests.storage.support import close, commit, facts, find, finish, function, get, ids, loaded, new_job, read_payloads

EXTRA, ERROR = 13, 16  # where they are in a row

INTEGERS = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(0, 2**62)
COUNTS = st.integers(0, 2**40)
SMALL_COUNTS = st.integers(0, 2**31 - 100)  # as wide as the fields of a job
ABOUT_INLINE = st.integers(INLINE_PAYLOAD_BYTES - 1, INLINE_PAYLOAD_BYTES + 2).map(
    lambda size: (b"\0\xff" * size)[:size]
)
SOME_BYTES = st.binary(max_size=20) | ABOUT_INLINE
# Text as it may come from anywhere, except what UTF-8 cannot say.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
MOVES = st.none() | st.lists(st.tuples(st.sampled_from(Cause), TIMES), min_size=1, max_size=6).map(
    lambda moves: [number for move in moves for number in move]
)

FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "unique": SOME_BYTES,
        "payload": SOME_BYTES,
        "priority": st.sampled_from((0, 1, 2)),
        "delivery": st.sampled_from(Delivery),
        "created_us": TIMES,
        "state": st.sampled_from(JobState),
        "name": SOME_BYTES,
        "reducer": SOME_BYTES,
        "label": SOME_BYTES,
        "origin": TEXTS,
        "run_at_us": TIMES,
        "expires_us": TIMES,
        "timeout_us": TIMES,
        "attempts": SMALL_COUNTS,
        "attempts_limit": INTEGERS,
        "numerator": INTEGERS,
        "denominator": INTEGERS,
        "time_left_s": INTEGERS,
        "progress_text": SOME_BYTES,
        "result_code": st.integers(0, 255),
        "result": SOME_BYTES,
        "chunks": st.none() | st.lists(SOME_BYTES, max_size=3),
        "error": st.none() | SOME_BYTES,
        "warnings": SOME_BYTES,
        "finished_us": TIMES,
        "predecessors": st.lists(st.integers(1, 2**62), max_size=5).map(tuple),
        "rank": INTEGERS,
        "key": SOME_BYTES,
        "losses": COUNTS,
        "crash_limit": INTEGERS,
        "edges": st.binary(max_size=5),
        "unique_scope": st.sampled_from(UniqueScope),
        "unique_until_us": TIMES,
        "retention_us": st.integers(-1, 2**62),
        "schedule": SOME_BYTES,
        "message": SOME_BYTES,
        "moves": MOVES,
        "revision": SMALL_COUNTS,
    },
)
# The engine gives these only to jobs that it marks as special.
LATER_FIELDS = {"unique_until_us", *Extra.__struct_fields__[OF_ANY_JOB:]}
JOBS = st.dictionaries(st.integers(1, 2**62), st.tuples(FIELDS, st.binary(max_size=5)), min_size=1, max_size=6)


def job_of(job_id: int, fields: dict[str, Any], function_name: bytes) -> Job:
    return new_job(job_id, function(function_name), has_details=bool(LATER_FIELDS & fields.keys()), **fields)


@settings(max_examples=80, deadline=None)
@given(jobs=JOBS, changes=st.lists(st.tuples(st.integers(0, 5), FIELDS), max_size=4))
def test_stage_commit_close_open_load(
    jobs: dict[int, tuple[dict[str, Any], bytes]], changes: list[tuple[int, dict[str, Any]]]
) -> None:
    kept = [job_of(job_id, fields, name) for job_id, (fields, name) in sorted(jobs.items())]
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "jobs.db"
        store = SqliteStore(path, "normal")
        store.open()
        assert list(commit(store, kept)) == []
        for place, fields in changes:
            change(kept[place % len(kept)], fields)
            assert list(commit(store, [kept[place % len(kept)]])) == []
        close(store)

        store = SqliteStore(path, "normal")
        store.open()
        try:
            unfinished = [facts(job) for job in kept if job.state not in FINAL_STATES]
            assert [facts(job) for job in loaded(store).jobs] == unfinished
            for job in kept:
                found = get(store, job.id)
                assert found is not None
                assert facts(found) == facts(job)
            assert ids(find(store, JobQuery())) == ids(reversed(kept))
            assert read_payloads(store, ids(kept)) == {job.id: job.payload for job in kept}
        finally:
            close(store)


def change(job: Job, fields: dict[str, Any]) -> None:
    """Let happen to the job what may happen to one: it stays who it is."""
    for field, value in fields.items():
        if field not in ("payload", "created_us", "name", "revision"):
            setattr(job, field, value)
    job.has_details = job.has_details or bool(LATER_FIELDS & fields.keys())


@settings(max_examples=50, deadline=None)
@given(
    numbers=st.fixed_dictionaries(
        {name: st.integers() for name in ("numerator", "denominator", "time_left_s", "run_at_us", "expires_us", "rank")}
    ),
    origin=st.text(st.characters(), max_size=10),
)
def test_a_job_beyond_all_measure_does_not_keep_the_others_from_being_kept(
    numbers: dict[str, Any], origin: str
) -> None:
    """Strangers choose some of these values, and a commit that can never succeed would stop the server."""
    with tempfile.TemporaryDirectory() as home:
        store = SqliteStore(Path(home) / "jobs.db", "normal")
        store.open()
        try:
            strange = new_job(2, origin=origin, **numbers)
            commit(store, [new_job(1), strange, new_job(3)])
            jobs = loaded(store).jobs
            assert ids(jobs) == [1, 2, 3]
            for name, value in numbers.items():
                if abs(value) < 2**63:
                    assert getattr(jobs[1], name) == value
            commit(store, [finish(job) for job in jobs])
            assert loaded(store).jobs == []
        finally:
            close(store)


@pytest.mark.parametrize("fields", range(len(Extra.__struct_fields__) + 1))
def test_a_row_from_before_the_last_fields_were_added_is_read(fields: int) -> None:
    """An older version wrote fewer of the rarer fields; the others have their default."""
    values: tuple[Any, ...] = ("origin", 5, 6, 7, b"reducer", 8, 9, 10, b"text", b"warnings", (3, 4), -11)
    values += (b"key", 12, 13, b"\1\3", 1, 14, b"schedule", b"message")
    written = dict(zip(Extra.__struct_fields__, values[:fields]))
    row = list(job_row(new_job(1), 1))
    row[EXTRA] = encode(values[:fields])
    row[ERROR] = None
    read = (bytes(value) if isinstance(value, bytearray) else value for value in row)  # as SQLite gives it back
    job = job_from_row(tuple(read), function())
    for field in Extra.__struct_fields__:
        assert getattr(job, field) == written.get(field, getattr(NO_DETAILS, field))
