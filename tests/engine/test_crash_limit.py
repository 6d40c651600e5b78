"""A job that kills its workers: losses are counted apart from attempts, and have a limit of their own."""

from __future__ import annotations

import pytest

from switchgear.model import DONE, FAILED, READY, SCHEDULED, SECOND_US, Cause, Job, Worker
from switchgear.testing import check_engine
from tests.engine.harness import Harness, causes, state_of
from tests.engine.restarts import restarted


def lose(harness: Harness, job: Job) -> None:
    """A worker takes the job, and is gone."""
    worker = harness.worker()
    assert harness.engine.take(worker) is job
    harness.engine.remove_worker(worker)
    check_engine(harness.engine)


def time_out(harness: Harness, job: Job, own_seconds: int = 0) -> None:
    """A worker takes the job, and takes too long: longer than the job may, or longer than it gave itself."""
    worker = harness.worker(timeout_seconds=own_seconds)
    assert harness.engine.take(worker) is job
    harness.pass_seconds(1)
    harness.engine.remove_worker(worker)


def taken(harness: Harness, job: Job) -> Worker:
    worker = harness.worker()
    assert harness.engine.take(worker) is job
    return worker


# --- the limit ---


def test_without_a_crash_limit_a_loss_is_an_attempt(harness: Harness) -> None:
    job = harness.submit(attempts_limit=2)
    lose(harness, job)
    assert (job.attempts, job.losses) == (1, 0)
    lose(harness, job)
    assert job.is_dead
    assert job.error == b"worker lost in attempt 2, the last one"


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_job_is_dead_when_it_was_lost_so_often(harness: Harness, limit: int) -> None:
    job = harness.submit(attempts_limit=1, crash_limit=limit)
    for count in range(1, limit):
        lose(harness, job)
        assert (state_of(job), job.attempts, job.losses) == (READY, count, count)
    lose(harness, job)
    assert job.is_dead
    times = b"once" if limit == 1 else b"%d times" % limit
    assert job.error == b"worker lost in attempt %d; lost %b, the most allowed" % (limit, times)
    assert job.result_code == 255
    assert harness.observer.heard[-1] == ("died", job.id)


def test_a_limit_of_none_lets_it_be_lost_for_ever(harness: Harness) -> None:
    job = harness.submit(attempts_limit=1, crash_limit=0)
    for _ in range(50):
        lose(harness, job)
    assert (state_of(job), job.losses) == (READY, 50)


def test_losses_leave_the_attempts_alone(harness: Harness) -> None:
    job = harness.submit(attempts_limit=2, crash_limit=9)
    lose(harness, job)
    harness.engine.retry_later(taken(harness, job), job.id, 1, b"once")
    harness.pass_seconds(1)
    lose(harness, job)
    assert state_of(job) is READY
    harness.engine.retry_later(taken(harness, job), job.id, 1, b"twice")
    assert (state_of(job), causes(job)[-1], job.error) == (FAILED, Cause.ENDED_BADLY, b"twice")
    assert (job.attempts, job.losses) == (4, 2)


def test_taking_longer_than_the_submitter_allows_is_an_attempt(harness: Harness) -> None:
    job = harness.submit(attempts_limit=2, crash_limit=9, timeout_us=SECOND_US)
    time_out(harness, job)
    assert (state_of(job), job.losses) == (READY, 0)
    time_out(harness, job)
    assert job.is_dead
    assert job.error == b"timed out in attempt 2, the last one"


def test_taking_longer_than_the_worker_gave_itself_is_a_loss(harness: Harness) -> None:
    """Workers without a connection are missed when they have been silent for too long."""
    job = harness.submit(attempts_limit=1, crash_limit=2)
    time_out(harness, job, own_seconds=1)
    assert (state_of(job), job.losses) == (READY, 1)
    time_out(harness, job, own_seconds=1)
    assert job.is_dead
    assert job.error == b"timed out in attempt 2; lost 2 times, the most allowed"


def test_being_handed_back_is_neither(harness: Harness) -> None:
    job = harness.submit(attempts_limit=1, crash_limit=1)
    harness.engine.release(taken(harness, job), job.id)
    assert (job.attempts, job.losses) == (0, 0)


def test_a_retry_forgets_the_losses(harness: Harness) -> None:
    job = harness.submit(attempts_limit=1, crash_limit=2)
    for _ in range(2):
        lose(harness, job)
    harness.engine.retry(job)
    lose(harness, job)
    assert (state_of(job), job.losses) == (READY, 1)


def test_a_server_that_stopped_is_a_loss(harness: Harness) -> None:
    job = harness.submit(attempts_limit=1, crash_limit=2)
    taken(harness, job)
    again, copies = restarted(harness, job)
    assert (state_of(copies[job.id]), copies[job.id].losses) == (READY, 1)
    taken(again, copies[job.id])
    again, copies = restarted(again, copies[job.id])
    assert copies[job.id].is_dead
    assert copies[job.id].error == b"server stopped in attempt 2; lost 2 times, the most allowed"


# --- which loss kills the job ---


def test_the_last_run_is_the_one_whose_loss_kills_the_job(harness: Harness) -> None:
    job = harness.submit(attempts_limit=1, crash_limit=3)
    seen = []
    for _ in range(3):
        worker = taken(harness, job)
        harness.engine.remove_worker(worker)
        seen.append(job.is_dead)
    assert seen == [False, False, True]


@pytest.mark.parametrize(("crash_limit", "expected"), [(-1, True), (0, False), (1, True), (2, False)])
def test_the_only_attempt_is_the_last_run_unless_losses_count_apart(
    harness: Harness, crash_limit: int, expected: bool
) -> None:
    job = harness.submit(attempts_limit=1, crash_limit=crash_limit)
    harness.engine.remove_worker(taken(harness, job))
    assert job.is_dead is expected


# --- what the worker knows ---


def test_the_worker_may_say_how_many_attempts_a_job_has(harness: Harness) -> None:
    job = harness.submit()
    for count in range(1, 5):
        harness.engine.retry_later(taken(harness, job), job.id, 1, b"no", attempts_limit=5)
        assert (state_of(job), job.attempts, job.attempts_limit) == (SCHEDULED, count, 5)
        harness.pass_seconds(1)
    harness.engine.retry_later(taken(harness, job), job.id, 1, b"no", attempts_limit=5)
    assert (state_of(job), causes(job)[-1]) == (FAILED, Cause.ENDED_BADLY)


def test_it_has_no_say_if_the_submitter_had(harness: Harness) -> None:
    job = harness.submit(attempts_limit=2)
    harness.engine.retry_later(taken(harness, job), job.id, 1, attempts_limit=9)
    assert job.attempts_limit == 2


def test_its_word_holds_for_losses_too(harness: Harness) -> None:
    job = harness.submit()
    harness.engine.retry_later(taken(harness, job), job.id, 1, attempts_limit=2)
    harness.pass_seconds(1)
    lose(harness, job)
    assert job.is_dead


# --- what it says for people ---


def test_a_message_is_the_last_one_of_this_run(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.progress(worker, job.id, 1, 4, message=b"resizing")
    assert job.message == b"resizing"
    harness.engine.progress(worker, job.id, 2, 4, message=b"sharpening")
    assert job.message == b"sharpening"
    harness.engine.remove_worker(worker)
    assert (job.message, job.numerator) == (b"", 0)


def test_progress_without_a_message_takes_it_back(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.progress(worker, job.id, 1, 4, message=b"resizing")
    harness.engine.progress(worker, job.id, 2, 4)
    assert job.message == b""
    harness.engine.complete(worker, job.id, b"")
    assert state_of(job) is DONE
