"""How long a job may run and a worker be silent: time limits, runs that are renewed, leases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from switchgear.model import READY, RUNNING, SECOND_US, Cause, Delivery, Job, Worker
from switchgear.telemetry import Telemetry
from tests.engine.house import House, causes, peer_of, state_of

MakeHouse = Callable[..., House]

# --- run limits ---


def test_an_attempt_that_takes_too_long_is_given_to_another(house: House) -> None:
    worker, job = house.running(timeout_us=5 * SECOND_US)
    house.pass_seconds(5)
    assert state_of(job) is READY
    assert causes(job)[-1] is Cause.TIMED_OUT
    assert peer_of(worker).heard == [("revoke", worker.id, job.id)]
    assert house.observer.heard[-1] == ("requeued", job.id, Cause.TIMED_OUT)
    assert house.engine.take(house.worker()) is job


@pytest.mark.parametrize(("ending", "attempt"), [("timeout", 1), ("release", 1), ("loss", 1)])
def test_the_log_names_the_attempt_that_ended_though_the_next_has_begun(
    make_house: MakeHouse, caplog: pytest.LogCaptureFixture, ending: str, attempt: int
) -> None:
    """Another worker may be given the job at once."""
    house = make_house()
    caplog.set_level("INFO", "switchgear")
    house.engine._state.observer = Telemetry(lambda: 0.0)
    worker, job = house.running(timeout_us=5 * SECOND_US)
    house.engine.grant(house.worker(), 1)
    if ending == "timeout":
        house.pass_seconds(5)
    elif ending == "release":
        house.engine.release(worker, job.id)
    else:
        house.engine.remove_worker(worker)
    assert job.state is RUNNING
    assert [line for line in caplog.messages if f"(attempt {attempt})" in line], caplog.messages


def test_the_late_report_of_a_job_that_timed_out_is_not_taken(house: House) -> None:
    worker, job = house.running(timeout_us=SECOND_US)
    house.pass_seconds(1)
    assert house.engine.complete(worker, job.id, b"late") is None
    assert state_of(job) is READY


def test_the_worker_may_have_a_limit_for_each_function(house: House) -> None:
    worker = house.worker(timeout_seconds=5)
    own_limit, workers_limit = house.submit(timeout_us=9 * SECOND_US), house.submit()
    house.engine.take(worker)
    house.engine.take(worker)
    house.pass_seconds(5)
    assert (own_limit.state, workers_limit.state) == (RUNNING, READY)
    house.pass_seconds(4)
    assert own_limit.state is READY


def test_a_limit_given_again_replaces_the_first(house: House) -> None:
    worker = house.worker(timeout_seconds=5)
    house.engine.can_do(worker, house.function(), 0)
    job = house.submit()
    house.engine.take(worker)
    house.pass_seconds(60)
    assert job.state is RUNNING


def test_a_worker_can_end_the_limits_that_it_gave_itself(house: House) -> None:
    worker = house.worker(timeout_seconds=5)
    job, limited_by_submitter = house.submit(), house.submit(timeout_us=9 * SECOND_US)
    for expected in (job, limited_by_submitter):
        assert house.engine.take(worker) is expected
    house.engine.end_own_limits(worker)
    house.pass_seconds(8)
    assert (job.state, limited_by_submitter.state) == (RUNNING, RUNNING)
    house.pass_seconds(2)
    assert (job.state, limited_by_submitter.state) == (RUNNING, READY)
    later = house.submit()
    taken = [house.engine.take(worker), house.engine.take(worker)]
    assert later in taken
    house.pass_seconds(6)
    assert later.state is READY  # the limit of a job that is taken later applies


def test_the_limit_of_a_job_that_is_not_sent_yet_stays(make_house: MakeHouse) -> None:
    """The time begins when the job is sent, after its start is stored, so there is nothing to end before."""
    house = make_house()
    house.engine.reports_changes = house.engine.is_durable = True
    worker = house.worker(timeout_seconds=5)
    job = house.submit(delivery=Delivery.HANDLE, attempts_limit=2)
    assert house.engine.take(worker) is job
    house.engine.end_own_limits(worker)
    house.engine.start_is_kept(job)
    house.pass_seconds(6)
    assert job.state is READY


def test_each_attempt_has_the_whole_time(house: House) -> None:
    worker, job = house.running(timeout_us=5 * SECOND_US)
    house.pass_seconds(4)
    house.engine.release(worker, job.id)
    assert house.engine.take(worker) is job
    house.pass_seconds(4)
    assert state_of(job) is RUNNING
    house.pass_seconds(1)
    assert state_of(job) is READY


def test_a_job_that_always_takes_too_long_dies(make_house: MakeHouse) -> None:
    house = make_house(attempts=2)
    worker, job = house.running(timeout_us=SECOND_US)
    house.pass_seconds(1)
    house.engine.take(worker)
    house.pass_seconds(1)
    assert job.is_dead
    assert job.error == b"timed out in attempt 2, the last one"


# --- a run that is renewed ---


def leased_job(house: House, seconds: float = 5, **submission: Any) -> tuple[Worker, Job]:
    """A worker that gives itself so many seconds for each job, and one that it runs."""
    worker = house.worker(timeout_seconds=seconds)
    job = house.submit(**submission)
    assert house.engine.take(worker) is job
    return worker, job


def test_a_worker_that_says_it_is_still_at_it_has_its_whole_time_again(house: House) -> None:
    worker, job = leased_job(house)
    for _ in range(10):
        house.pass_seconds(4)
        assert house.engine.renew_run(worker, job.id) is job
    house.pass_seconds(4.999999)
    assert state_of(job) is RUNNING
    house.pass_seconds(0.000001)
    assert causes(job)[-1] is Cause.TIMED_OUT
    assert peer_of(worker).heard == [("revoke", worker.id, job.id)]


def test_renewing_does_not_move_a_limit_of_the_submitter(house: House) -> None:
    worker, job = leased_job(house, timeout_us=5 * SECOND_US)
    house.pass_seconds(4)
    assert house.engine.renew_run(worker, job.id) is job
    house.pass_seconds(1)
    assert causes(job)[-1] is Cause.TIMED_OUT


def test_where_there_is_no_limit_there_is_nothing_to_renew(house: House) -> None:
    worker, job = house.running()
    assert house.engine.renew_run(worker, job.id) is job
    house.pass_seconds(86_400)
    assert state_of(job) is RUNNING
    assert house.engine.next_deadline_us is None


def test_a_run_is_renewed_by_the_limit_that_holds_now(house: House) -> None:
    worker, job = leased_job(house)
    house.engine.can_do(worker, house.function(), 9 * SECOND_US)
    house.engine.renew_run(worker, job.id)
    house.pass_seconds(8.999999)
    assert state_of(job) is RUNNING
    house.pass_seconds(0.000001)
    assert state_of(job) is READY


def test_a_worker_may_say_for_how_long_it_renews(house: House) -> None:
    worker, job = leased_job(house)
    house.engine.cannot_do(worker, house.function())
    house.engine.renew_run(worker, job.id, 60 * SECOND_US)
    house.pass_seconds(59.999999)
    assert state_of(job) is RUNNING
    house.pass_seconds(0.000001)
    assert state_of(job) is READY


def test_one_who_gave_up_the_function_keeps_the_time_that_was_left(house: House) -> None:
    worker, job = leased_job(house)
    house.pass_seconds(3)
    house.engine.cannot_do(worker, house.function())
    house.engine.renew_run(worker, job.id)
    house.pass_seconds(1.999999)
    assert state_of(job) is RUNNING
    house.pass_seconds(0.000001)
    assert state_of(job) is READY


LOSSES: dict[str, Callable[[House, Worker, Job], object]] = {
    "handed back": lambda house, worker, job: house.engine.release(worker, job.id),
    "lost": lambda house, worker, job: house.engine.remove_worker(worker),
    "timed out": lambda house, worker, job: house.pass_seconds(60),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_renewal_is_for_one_attempt_only(house: House, loss: str) -> None:
    worker, job = leased_job(house, 60)
    house.engine.renew_run(worker, job.id)
    LOSSES[loss](house, worker, job)
    assert state_of(job) is READY
    second = house.worker(timeout_seconds=5)
    assert house.engine.take(second) is job
    house.pass_seconds(5)
    assert state_of(job) is READY
    assert peer_of(second).heard == [("revoke", second.id, job.id)]


def test_renewing_a_run_does_not_fill_the_index(house: House) -> None:
    worker, job = leased_job(house)
    for _ in range(100):
        house.engine.renew_run(worker, job.id)
        house.pass_seconds(0.1)
    assert len(house.engine.deadlines) == 1


def test_what_comes_due_before_the_end_of_a_renewed_run_happens_before_it(house: House) -> None:
    worker, job = leased_job(house, 3)
    house.pass_seconds(2)
    house.engine.renew_run(worker, job.id)
    house.engine.renew_lease(worker, 2 * SECOND_US)
    house.pass_seconds(60)
    assert causes(job)[-1] is Cause.WORKER_LOST


@pytest.mark.parametrize("hours", [1, -1])
def test_a_renewed_run_is_a_span_too(house: House, hours: int) -> None:
    worker, job = leased_job(house)
    house.pass_seconds(4)
    house.engine.renew_run(worker, job.id)
    house.set_clock(hours * 3600)
    house.pass_seconds(4.999999)
    assert state_of(job) is RUNNING
    house.pass_seconds(0.000001)
    assert state_of(job) is READY


def test_a_renewed_run_moves_with_the_clock_once_though_two_workers_list_the_job(house: House) -> None:
    first, job = house.running()
    house.engine.cancel(job)  # and the worker does not say that it has stopped
    house.engine.retry(job)
    second = house.worker(timeout_seconds=5)
    assert house.engine.take(second) is job
    house.engine.renew_run(second, job.id)
    house.set_clock(3600)
    house.pass_seconds(5)
    assert state_of(job) is READY
    assert first.running == {job.id: job}


# --- leases ---


def test_a_worker_that_gives_no_sign_of_life_loses_its_jobs_and_is_told(house: House) -> None:
    worker, job = house.running()
    house.engine.renew_lease(worker, 5 * SECOND_US)
    house.pass_seconds(5)
    assert not worker.alive
    assert state_of(job) is READY
    assert causes(job)[-1] is Cause.WORKER_LOST
    assert peer_of(worker).heard == [("expired", worker.id)]
    assert house.observer.heard[-1] == ("worker expired", worker.id)


def test_one_who_leaves_is_not_told_that_its_lease_is_over(house: House) -> None:
    worker = house.worker()
    house.engine.renew_lease(worker, 5 * SECOND_US)
    house.engine.remove_worker(worker)
    house.pass_seconds(5)
    assert peer_of(worker).heard == []


def test_while_a_lease_is_suspended_no_sign_of_life_is_expected(house: House) -> None:
    worker, job = house.running()
    house.engine.renew_lease(worker, 5 * SECOND_US)
    house.engine.suspend_lease(worker)
    house.pass_seconds(86_400)
    assert state_of(job) is RUNNING
    house.engine.renew_lease(worker, 5 * SECOND_US)
    house.pass_seconds(4.999999)
    assert worker.alive
    house.pass_seconds(0.000001)
    assert peer_of(worker).heard == [("expired", worker.id)]


def test_a_lease_suspended_and_renewed_at_once_ends_once(house: House) -> None:
    worker = house.worker()
    for _ in range(3):
        house.engine.renew_lease(worker, 5 * SECOND_US)
        house.engine.suspend_lease(worker)
    house.engine.renew_lease(worker, 5 * SECOND_US)
    house.pass_seconds(1)
    house.engine.renew_lease(worker, 5 * SECOND_US)
    house.pass_seconds(4)
    assert worker.alive
    house.pass_seconds(1)
    assert peer_of(worker).heard == [("expired", worker.id)]


def test_suspending_what_was_never_given_is_harmless(house: House) -> None:
    worker = house.worker()
    house.engine.suspend_lease(worker)
    house.engine.remove_worker(worker)
    house.engine.suspend_lease(worker)
    assert house.engine.deadlines.stale == 0


def test_a_lease_can_be_renewed_any_number_of_times(house: House) -> None:
    worker, job = house.running()
    for _ in range(10):
        house.engine.renew_lease(worker, 5 * SECOND_US)
        house.pass_seconds(4)
    assert worker.alive
    house.pass_seconds(1)
    assert state_of(job) is READY


def test_renewing_does_not_fill_the_index(house: House) -> None:
    worker = house.worker()
    for _ in range(100):
        house.engine.renew_lease(worker, 5 * SECOND_US)
        house.pass_seconds(0.1)
    assert len(house.engine.deadlines) == 1


def test_a_lease_can_be_made_shorter(house: House) -> None:
    worker = house.worker()
    house.engine.renew_lease(worker, 60 * SECOND_US)
    house.engine.renew_lease(worker, 5 * SECOND_US)
    house.pass_seconds(5)
    assert not worker.alive


def test_what_comes_due_before_the_end_of_a_renewed_lease_happens_before_it(house: House) -> None:
    worker, job = house.running(timeout_us=5 * SECOND_US)
    house.engine.renew_lease(worker, 3 * SECOND_US)
    house.engine.renew_lease(worker, 6 * SECOND_US)
    house.pass_seconds(60)
    assert causes(job)[-1] is Cause.TIMED_OUT
    assert not worker.alive


def test_a_worker_that_left_has_no_lease(house: House) -> None:
    worker = house.worker()
    house.engine.renew_lease(worker, 5 * SECOND_US)
    house.engine.remove_worker(worker)
    house.engine.renew_lease(worker, 5 * SECOND_US)
    house.pass_seconds(60)
    assert house.observer.heard == [("function", b"mail")]
