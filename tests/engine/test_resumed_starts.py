"""A worker that lost its connection in the middle of a job comes back, and goes on with the job."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.model import DONE, READY, RUNNING, Job, Worker
from switchgear.testing import check_engine
from tests.engine.harness import Harness, state_of
from tests.engine.limiter_words import limit
from tests.engine.restarts import restarted


def lost(harness: Harness, **submission: Any) -> Job:
    """A job whose worker has lost its connection."""
    worker, job = harness.worker(), harness.submit(**submission)
    assert harness.engine.take(worker) is job
    harness.engine.remove_worker(worker)
    return job


def resumed(harness: Harness, job: Job, attempt: int = 1, worker: Worker | None = None) -> Job | None:
    found = harness.engine.resume_attempt(worker or harness.worker(), job.id, attempt)
    check_engine(harness.engine)
    return found


def test_the_attempt_goes_on(harness: Harness) -> None:
    job = lost(harness)
    back = harness.worker()
    assert resumed(harness, job, worker=back) is job
    assert (state_of(job), job.attempts, job.function.ready) == (RUNNING, 1, 0)
    assert harness.engine.take(harness.worker()) is None
    assert harness.engine.complete(back, job.id, b"r") is job
    assert (state_of(job), job.attempts) == (DONE, 1)


def test_the_loss_is_not_counted(harness: Harness) -> None:
    job = lost(harness, crash_limit=2)
    assert job.losses == 1
    for _ in range(5):
        back = harness.worker()
        assert resumed(harness, job, worker=back) is job
        assert (job.attempts, job.losses) == (1, 0)
        harness.engine.remove_worker(back)
        assert (state_of(job), job.losses) == (READY, 1)


def test_an_attempt_that_another_worker_has_begun_is_not_taken_from_it(harness: Harness) -> None:
    job = lost(harness)
    other = harness.worker()
    assert harness.engine.take(other) is job
    assert resumed(harness, job) is None
    assert job.worker is other


def test_an_attempt_before_the_latest_one_is_over(harness: Harness) -> None:
    job = lost(harness)
    other = harness.worker()
    assert harness.engine.take(other) is job
    harness.engine.remove_worker(other)
    assert resumed(harness, job, attempt=1) is None
    assert resumed(harness, job, attempt=2) is job


@pytest.mark.parametrize("attempt", [0, -1])
def test_attempts_are_counted_from_one(harness: Harness, attempt: int) -> None:
    assert resumed(harness, lost(harness), attempt) is None


def test_a_job_that_has_ended_or_never_was(harness: Harness) -> None:
    job = lost(harness)
    harness.engine.cancel(job)
    assert resumed(harness, job) is None
    assert harness.engine.resume_attempt(harness.worker(), job.id + 1000, 1) is None


def test_only_a_worker_of_its_function(harness: Harness) -> None:
    job = lost(harness)
    assert resumed(harness, job, worker=harness.worker(b"another")) is None
    gone = harness.worker()
    harness.engine.remove_worker(gone)
    assert resumed(harness, job, worker=gone) is None


def test_a_paused_function_lets_running_jobs_go_on(harness: Harness) -> None:
    job = lost(harness)
    harness.engine.pause(job.function)
    assert resumed(harness, job) is job


def test_limits_are_kept(harness: Harness) -> None:
    limit(harness, concurrency=1)
    job = lost(harness)
    back = harness.worker()
    assert resumed(harness, job, worker=back) is job
    other = harness.submit()
    assert harness.engine.take(harness.worker()) is None, "one job runs"
    harness.engine.remove_worker(back)
    busy = harness.worker()
    assert harness.engine.take(busy) in (job, other)
    waiting = other if job.worker is busy else job
    assert resumed(harness, waiting) is None, "another job has its place"


def test_after_a_restart(harness: Harness) -> None:
    job = harness.submit(crash_limit=3)
    assert harness.engine.take(harness.worker()) is job
    again, copies = restarted(harness, job)
    (found,) = copies.values()
    assert (state_of(found), found.losses) == (READY, 1)
    assert resumed(again, found) is found
    assert (state_of(found), found.attempts, found.losses) == (RUNNING, 1, 0)


def test_a_start_that_was_not_stored(harness: Harness) -> None:
    job = harness.submit(crash_limit=3)
    again, copies = restarted(harness, job)
    (found,) = copies.values()
    assert resumed(again, found, attempt=1) is found
    assert (found.attempts, found.losses) == (1, 0)


def test_the_time_limit_begins_again(harness: Harness) -> None:
    job = lost(harness, timeout_us=5_000_000)
    back = harness.worker()
    assert resumed(harness, job, worker=back) is job
    harness.pass_seconds(4)
    assert state_of(job) is RUNNING
    harness.pass_seconds(1)
    assert state_of(job) is READY
