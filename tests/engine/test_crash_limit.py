"""A job that kills its workers: losses are counted apart from attempts, and have a limit of their own."""

from __future__ import annotations

import pytest

from switchgear.model import DONE, FAILED, READY, SCHEDULED, SECOND_US, Cause, Job, Worker
from switchgear.testing import check_engine
from tests.engine.house import House, causes, state_of
from tests.engine.restarts import restarted


def lose(house: House, job: Job) -> None:
    """A worker takes the job, and is gone."""
    worker = house.worker()
    assert house.engine.take(worker) is job
    house.engine.remove_worker(worker)
    check_engine(house.engine)


def time_out(house: House, job: Job, own_seconds: int = 0) -> None:
    """A worker takes the job, and takes too long: longer than the job may, or longer than it gave itself."""
    worker = house.worker(timeout_seconds=own_seconds)
    assert house.engine.take(worker) is job
    house.pass_seconds(1)
    house.engine.remove_worker(worker)


def taken(house: House, job: Job) -> Worker:
    worker = house.worker()
    assert house.engine.take(worker) is job
    return worker


# --- the limit ---


def test_without_a_crash_limit_a_loss_is_an_attempt(house: House) -> None:
    job = house.submit(attempts_limit=2)
    lose(house, job)
    assert (job.attempts, job.losses) == (1, 0)
    lose(house, job)
    assert job.is_dead
    assert job.error == b"worker lost in attempt 2, the last one"


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_job_is_dead_when_it_was_lost_so_often(house: House, limit: int) -> None:
    job = house.submit(attempts_limit=1, crash_limit=limit)
    for count in range(1, limit):
        lose(house, job)
        assert (state_of(job), job.attempts, job.losses) == (READY, count, count)
    lose(house, job)
    assert job.is_dead
    times = b"once" if limit == 1 else b"%d times" % limit
    assert job.error == b"worker lost in attempt %d; lost %b, the most allowed" % (limit, times)
    assert job.result_code == 255
    assert house.observer.heard[-1] == ("died", job.id)


def test_a_limit_of_none_lets_it_be_lost_for_ever(house: House) -> None:
    job = house.submit(attempts_limit=1, crash_limit=0)
    for _ in range(50):
        lose(house, job)
    assert (state_of(job), job.losses) == (READY, 50)


def test_losses_leave_the_attempts_alone(house: House) -> None:
    job = house.submit(attempts_limit=2, crash_limit=9)
    lose(house, job)
    house.engine.retry_later(taken(house, job), job.id, 1, b"once")
    house.pass_seconds(1)
    lose(house, job)
    assert state_of(job) is READY
    house.engine.retry_later(taken(house, job), job.id, 1, b"twice")
    assert (state_of(job), causes(job)[-1], job.error) == (FAILED, Cause.ENDED_BADLY, b"twice")
    assert (job.attempts, job.losses) == (4, 2)


def test_taking_longer_than_the_submitter_allows_is_an_attempt(house: House) -> None:
    job = house.submit(attempts_limit=2, crash_limit=9, timeout_us=SECOND_US)
    time_out(house, job)
    assert (state_of(job), job.losses) == (READY, 0)
    time_out(house, job)
    assert job.is_dead
    assert job.error == b"timed out in attempt 2, the last one"


def test_taking_longer_than_the_worker_gave_itself_is_a_loss(house: House) -> None:
    """Workers without a connection are missed when they have been silent for too long."""
    job = house.submit(attempts_limit=1, crash_limit=2)
    time_out(house, job, own_seconds=1)
    assert (state_of(job), job.losses) == (READY, 1)
    time_out(house, job, own_seconds=1)
    assert job.is_dead
    assert job.error == b"timed out in attempt 2; lost 2 times, the most allowed"


def test_being_handed_back_is_neither(house: House) -> None:
    job = house.submit(attempts_limit=1, crash_limit=1)
    house.engine.release(taken(house, job), job.id)
    assert (job.attempts, job.losses) == (0, 0)


def test_a_retry_forgets_the_losses(house: House) -> None:
    job = house.submit(attempts_limit=1, crash_limit=2)
    for _ in range(2):
        lose(house, job)
    house.engine.retry(job)
    lose(house, job)
    assert (state_of(job), job.losses) == (READY, 1)


def test_a_server_that_stopped_is_a_loss(house: House) -> None:
    job = house.submit(attempts_limit=1, crash_limit=2)
    taken(house, job)
    again, copies = restarted(house, job)
    assert (state_of(copies[job.id]), copies[job.id].losses) == (READY, 1)
    taken(again, copies[job.id])
    again, copies = restarted(again, copies[job.id])
    assert copies[job.id].is_dead
    assert copies[job.id].error == b"server stopped in attempt 2; lost 2 times, the most allowed"


# --- whether the hand-out must be remembered first ---


def test_the_last_run_is_the_one_whose_loss_kills_the_job(house: House) -> None:
    """Only then must a server that dies remember that it was begun."""
    job = house.submit(attempts_limit=1, crash_limit=3)
    seen = []
    for _ in range(3):
        worker = taken(house, job)
        seen.append(house.engine.is_last_attempt(job))
        house.engine.remove_worker(worker)
    assert seen == [False, False, True]


@pytest.mark.parametrize(("crash_limit", "expected"), [(-1, True), (0, False), (1, True), (2, False)])
def test_the_only_attempt_is_the_last_run_unless_losses_count_apart(
    house: House, crash_limit: int, expected: bool
) -> None:
    job = house.submit(attempts_limit=1, crash_limit=crash_limit)
    taken(house, job)
    assert house.engine.is_last_attempt(job) is expected


# --- what the worker knows ---


def test_the_worker_may_say_how_many_attempts_a_job_has(house: House) -> None:
    job = house.submit()
    for count in range(1, 5):
        house.engine.retry_later(taken(house, job), job.id, 1, b"no", attempts_limit=5)
        assert (state_of(job), job.attempts, job.attempts_limit) == (SCHEDULED, count, 5)
        house.pass_seconds(1)
    house.engine.retry_later(taken(house, job), job.id, 1, b"no", attempts_limit=5)
    assert (state_of(job), causes(job)[-1]) == (FAILED, Cause.ENDED_BADLY)


def test_it_has_no_say_if_the_submitter_had(house: House) -> None:
    job = house.submit(attempts_limit=2)
    house.engine.retry_later(taken(house, job), job.id, 1, attempts_limit=9)
    assert job.attempts_limit == 2


def test_its_word_holds_for_losses_too(house: House) -> None:
    job = house.submit()
    house.engine.retry_later(taken(house, job), job.id, 1, attempts_limit=2)
    house.pass_seconds(1)
    lose(house, job)
    assert job.is_dead


# --- what it says for people ---


def test_a_message_is_the_last_one_of_this_run(house: House) -> None:
    worker, job = house.running()
    house.engine.progress(worker, job.id, 1, 4, message=b"resizing")
    assert job.message == b"resizing"
    house.engine.progress(worker, job.id, 2, 4, message=b"sharpening")
    assert job.message == b"sharpening"
    house.engine.remove_worker(worker)
    assert (job.message, job.numerator) == (b"", 0)


def test_progress_without_a_message_takes_it_back(house: House) -> None:
    worker, job = house.running()
    house.engine.progress(worker, job.id, 1, 4, message=b"resizing")
    house.engine.progress(worker, job.id, 2, 4)
    assert job.message == b""
    house.engine.complete(worker, job.id, b"")
    assert state_of(job) is DONE
