"""What a job takes in memory: a million of them have to fit."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from switchgear.engine.engine import Engine, SubmitOptions
from switchgear.model import DONE, FAILED, NORMAL, Cause, Delivery, Job, Peer
from switchgear.model.job_details import NO_DETAILS, Details, shared_details

FIELDS = [name for name in dir(Details) if name[0] != "_" and name != "shared" and not callable(getattr(Details, name))]
SHARED: dict[str, Any] = {
    "timeout_us": 11,
    "attempts_limit": 12,
    "crash_limit": 13,
    "retention_us": 14,
    "requires": b"gpu",
}


def done_job(engine: Engine, *, watched: bool) -> Job:
    """A job that nothing out of the ordinary has happened to, from its submission to its end."""
    worker = engine.add_worker(Peer(), "gearman", b"")
    engine.can_do(worker, engine.function_named(b"mail"))
    watcher = Peer() if watched else None
    delivery = Delivery.WAIT if watched else Delivery.HANDLE
    job = engine.submit(b"mail", b"key", b"payload", NORMAL, delivery, watcher)
    assert engine.take(worker) is job
    assert engine.complete(worker, job.id, b"result") is job
    return job


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_plain_job_has_no_details_of_its_own_and_no_list_of_moves(keeps: bool, watched: bool) -> None:
    engine = Engine()
    engine.reports_changes = keeps
    engine.advance(5)
    job = done_job(engine, watched=watched)
    assert job.state is DONE
    assert job.details is NO_DETAILS
    assert job.history is None


def test_moves_that_are_implied_are_shown_like_any_other() -> None:
    engine = Engine()
    engine.advance(5)
    worker = engine.add_worker(Peer(), "gearman", b"")
    engine.can_do(worker, engine.function_named(b"mail"))
    job = engine.submit(b"mail", b"", b"", NORMAL, Delivery.HANDLE)
    assert job.moves is None
    engine.advance(7)
    engine.take(worker)
    assert job.moves == [Cause.TAKEN, 7]
    engine.advance(9)
    engine.complete(worker, job.id, b"")
    assert job.moves == [Cause.TAKEN, 7, Cause.SUCCEEDED, 9]
    assert job.log == [(Cause.SUBMITTED, 5), (Cause.TAKEN, 7), (Cause.SUCCEEDED, 9)]


def test_a_job_that_comes_back_remembers_what_was_implied_before() -> None:
    engine = Engine()
    engine.advance(5)
    worker = engine.add_worker(Peer(), "gearman", b"")
    engine.can_do(worker, engine.function_named(b"mail"))
    job = engine.submit(b"mail", b"", b"", NORMAL, Delivery.HANDLE)
    for at_us in (6, 8):
        engine.advance(at_us)
        assert engine.take(worker) is job
        engine.advance(at_us + 1)
        if at_us == 6:
            engine.release(worker, job.id)
    engine.complete(worker, job.id, b"")
    causes = [Cause.SUBMITTED, Cause.TAKEN, Cause.GIVEN_BACK, Cause.TAKEN, Cause.SUCCEEDED]
    assert job.log == list(zip(causes, [5, 6, 7, 8, 9]))


@pytest.mark.parametrize("field", FIELDS)
def test_a_detail_that_is_set_is_the_jobs_own(field: str) -> None:
    one, other = (Job(number, Engine().function_named(b"f"), b"", b"", NORMAL, 1, 0) for number in (1, 2))
    usual = getattr(other, field)
    value = {bytes: b"x", str: "x", int: 7, bool: True, tuple: (7,), type(None): [b"x"]}[type(usual)]
    if field == "error":
        value = b"x"
    setattr(one, field, value)
    assert getattr(one, field) == value
    assert getattr(other, field) == getattr(NO_DETAILS, field) == usual


@pytest.mark.parametrize("field", FIELDS)
def test_a_detail_that_is_set_leaves_those_that_are_shared_as_they_are(field: str) -> None:
    shared = shared_details(**SHARED)
    one, other = (Job(number, Engine().function_named(b"f"), b"", b"", NORMAL, 1, 0) for number in (1, 2))
    one.details = other.details = shared
    usual = getattr(shared, field)
    value = {bytes: b"x", str: "x", int: 7, bool: True, tuple: (7,), type(None): [b"x"]}[type(usual)]
    setattr(one, field, b"x" if field == "error" else value)
    own = one.details
    assert own is not shared
    assert not own.shared
    assert other.details is shared
    assert getattr(other, field) == usual
    others = [name for name in FIELDS if name != field]
    assert [getattr(own, name) for name in others] == [getattr(shared, name) for name in others]
    one.crash_limit = 99
    assert one.details is own


def test_jobs_that_are_submitted_with_the_same_object_share_its_details() -> None:
    engine = Engine()
    engine.advance(5)
    options = SubmitOptions(attempts_limit=2, details=shared_details(attempts_limit=2))
    worker = engine.add_worker(Peer(), "gearman", b"")
    engine.can_do(worker, engine.function_named(b"mail"))
    jobs = [engine.submit(b"mail", b"", b"", NORMAL, Delivery.HANDLE, None, options) for _ in range(2)]
    assert all(job.details is options.details and job.has_details and job.attempts_limit == 2 for job in jobs)
    assert engine.take(worker) is jobs[0]
    assert engine.complete(worker, jobs[0].id, b"done") is jobs[0]
    assert jobs[0].details is options.details  # nothing has happened that would need its own
    for _ in range(2):
        assert engine.take(worker) is jobs[1]
        engine.retry_later(worker, jobs[1].id, 0, b"no")
        engine.advance(6)
    assert jobs[1].state is FAILED
    assert jobs[0].details is options.details
    assert options.details is not None
    assert options.details.error is None


def test_a_queued_job_is_small() -> None:
    """Without its payload and key; the tables of the engine take about as much again."""
    job = Job(1, Engine().function_named(b"f"), b"", b"", NORMAL, Delivery.HANDLE, 0)
    assert sys.getsizeof(job) <= 200


@pytest.mark.skipif(not hasattr(Engine(), "__dict__"), reason="a compiled engine has no dictionary")
def test_an_engine_has_no_more_attributes_than_cpython_lays_out_well() -> None:
    """With more than 29 it has a dictionary of its own, and was found to be 14 % slower with every job."""
    assert len(vars(Engine())) < 29  # one more is set when it is first needed


def test_time_may_begin_at_zero() -> None:
    engine = Engine()
    worker = engine.add_worker(Peer(), "gearman", b"")
    engine.can_do(worker, engine.function_named(b"mail"))
    job = engine.submit(b"mail", b"", b"", NORMAL, Delivery.HANDLE)
    engine.take(worker)
    engine.complete(worker, job.id, b"")
    assert job.log == [(Cause.SUBMITTED, 0), (Cause.TAKEN, 0), (Cause.SUCCEEDED, 0)]
