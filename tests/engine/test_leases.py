"""How long a job may run and a worker be silent: time limits, runs that are renewed, leases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from switchgear.model import READY, RUNNING, SECOND_US, Cause, Delivery, Job, Worker
from switchgear.telemetry import Telemetry
from tests.engine.harness import Harness, causes, peer_of, state_of

MakeHarness = Callable[..., Harness]

# --- run limits ---


def test_an_attempt_that_takes_too_long_is_given_to_another(harness: Harness) -> None:
    worker, job = harness.running(timeout_us=5 * SECOND_US)
    harness.pass_seconds(5)
    assert state_of(job) is READY
    assert causes(job)[-1] is Cause.TIMED_OUT
    assert peer_of(worker).heard == [("revoke", worker.id, job.id)]
    assert harness.observer.heard[-1] == ("requeued", job.id, Cause.TIMED_OUT)
    assert harness.engine.take(harness.worker()) is job


@pytest.mark.parametrize(("ending", "attempt"), [("timeout", 1), ("release", 1), ("loss", 1)])
def test_the_log_names_the_attempt_that_ended_though_the_next_has_begun(
    make_harness: MakeHarness, caplog: pytest.LogCaptureFixture, ending: str, attempt: int
) -> None:
    """Another worker may be given the job at once."""
    harness = make_harness()
    caplog.set_level("INFO", "switchgear")
    harness.engine._state.observer = Telemetry(lambda: 0.0)
    worker, job = harness.running(timeout_us=5 * SECOND_US)
    harness.engine.grant(harness.worker(), 1)
    if ending == "timeout":
        harness.pass_seconds(5)
    elif ending == "release":
        harness.engine.release(worker, job.id)
    else:
        harness.engine.remove_worker(worker)
    assert job.state is RUNNING
    assert [line for line in caplog.messages if f"(attempt {attempt})" in line], caplog.messages


def test_the_late_report_of_a_job_that_timed_out_is_not_taken(harness: Harness) -> None:
    worker, job = harness.running(timeout_us=SECOND_US)
    harness.pass_seconds(1)
    assert harness.engine.complete(worker, job.id, b"late") is None
    assert state_of(job) is READY


def test_the_worker_may_have_a_limit_for_each_function(harness: Harness) -> None:
    worker = harness.worker(timeout_seconds=5)
    own_limit, workers_limit = harness.submit(timeout_us=9 * SECOND_US), harness.submit()
    harness.engine.take(worker)
    harness.engine.take(worker)
    harness.pass_seconds(5)
    assert (own_limit.state, workers_limit.state) == (RUNNING, READY)
    harness.pass_seconds(4)
    assert own_limit.state is READY


def test_a_limit_given_again_replaces_the_first(harness: Harness) -> None:
    worker = harness.worker(timeout_seconds=5)
    harness.engine.can_do(worker, harness.function(), 0)
    job = harness.submit()
    harness.engine.take(worker)
    harness.pass_seconds(60)
    assert job.state is RUNNING


def test_a_worker_can_end_the_limits_that_it_gave_itself(harness: Harness) -> None:
    worker = harness.worker(timeout_seconds=5)
    job, limited_by_submitter = harness.submit(), harness.submit(timeout_us=9 * SECOND_US)
    for expected in (job, limited_by_submitter):
        assert harness.engine.take(worker) is expected
    harness.engine.end_own_limits(worker)
    harness.pass_seconds(8)
    assert (job.state, limited_by_submitter.state) == (RUNNING, RUNNING)
    harness.pass_seconds(2)
    assert (job.state, limited_by_submitter.state) == (RUNNING, READY)
    later = harness.submit()
    taken = [harness.engine.take(worker), harness.engine.take(worker)]
    assert later in taken
    harness.pass_seconds(6)
    assert later.state is READY  # the limit of a job that is taken later applies


def test_the_limit_of_a_job_that_is_not_sent_yet_stays(make_harness: MakeHarness) -> None:
    """The time begins when the job is sent, after its start is stored, so there is nothing to end before."""
    harness = make_harness()
    harness.engine.reports_changes = harness.engine.is_durable = True
    worker = harness.worker(timeout_seconds=5)
    job = harness.submit(delivery=Delivery.HANDLE, attempts_limit=2)
    assert harness.engine.take(worker) is job
    harness.engine.end_own_limits(worker)
    harness.engine.start_is_kept(job)
    harness.pass_seconds(6)
    assert job.state is READY


def test_each_attempt_has_the_whole_time(harness: Harness) -> None:
    worker, job = harness.running(timeout_us=5 * SECOND_US)
    harness.pass_seconds(4)
    harness.engine.release(worker, job.id)
    assert harness.engine.take(worker) is job
    harness.pass_seconds(4)
    assert state_of(job) is RUNNING
    harness.pass_seconds(1)
    assert state_of(job) is READY


def test_a_job_that_always_takes_too_long_dies(make_harness: MakeHarness) -> None:
    harness = make_harness(attempts=2)
    worker, job = harness.running(timeout_us=SECOND_US)
    harness.pass_seconds(1)
    harness.engine.take(worker)
    harness.pass_seconds(1)
    assert job.is_dead
    assert job.error == b"timed out in attempt 2, the last one"


# --- a run that is renewed ---


def leased_job(harness: Harness, seconds: float = 5, **submission: Any) -> tuple[Worker, Job]:
    """A worker that gives itself so many seconds for each job, and one that it runs."""
    worker = harness.worker(timeout_seconds=seconds)
    job = harness.submit(**submission)
    assert harness.engine.take(worker) is job
    return worker, job


def test_a_worker_that_says_it_is_still_at_it_has_its_whole_time_again(harness: Harness) -> None:
    worker, job = leased_job(harness)
    for _ in range(10):
        harness.pass_seconds(4)
        assert harness.engine.renew_run(worker, job.id) is job
    harness.pass_seconds(4.999999)
    assert state_of(job) is RUNNING
    harness.pass_seconds(0.000001)
    assert causes(job)[-1] is Cause.TIMED_OUT
    assert peer_of(worker).heard == [("revoke", worker.id, job.id)]


def test_renewing_does_not_move_a_limit_of_the_submitter(harness: Harness) -> None:
    worker, job = leased_job(harness, timeout_us=5 * SECOND_US)
    harness.pass_seconds(4)
    assert harness.engine.renew_run(worker, job.id) is job
    harness.pass_seconds(1)
    assert causes(job)[-1] is Cause.TIMED_OUT


def test_where_there_is_no_limit_there_is_nothing_to_renew(harness: Harness) -> None:
    worker, job = harness.running()
    assert harness.engine.renew_run(worker, job.id) is job
    harness.pass_seconds(86_400)
    assert state_of(job) is RUNNING
    assert harness.engine.next_deadline_us is None


def test_a_run_is_renewed_by_the_limit_that_holds_now(harness: Harness) -> None:
    worker, job = leased_job(harness)
    harness.engine.can_do(worker, harness.function(), 9 * SECOND_US)
    harness.engine.renew_run(worker, job.id)
    harness.pass_seconds(8.999999)
    assert state_of(job) is RUNNING
    harness.pass_seconds(0.000001)
    assert state_of(job) is READY


def test_a_worker_may_say_for_how_long_it_renews(harness: Harness) -> None:
    worker, job = leased_job(harness)
    harness.engine.cannot_do(worker, harness.function())
    harness.engine.renew_run(worker, job.id, 60 * SECOND_US)
    harness.pass_seconds(59.999999)
    assert state_of(job) is RUNNING
    harness.pass_seconds(0.000001)
    assert state_of(job) is READY


def test_one_who_gave_up_the_function_keeps_the_time_that_was_left(harness: Harness) -> None:
    worker, job = leased_job(harness)
    harness.pass_seconds(3)
    harness.engine.cannot_do(worker, harness.function())
    harness.engine.renew_run(worker, job.id)
    harness.pass_seconds(1.999999)
    assert state_of(job) is RUNNING
    harness.pass_seconds(0.000001)
    assert state_of(job) is READY


LOSSES: dict[str, Callable[[Harness, Worker, Job], object]] = {
    "handed back": lambda harness, worker, job: harness.engine.release(worker, job.id),
    "lost": lambda harness, worker, job: harness.engine.remove_worker(worker),
    "timed out": lambda harness, worker, job: harness.pass_seconds(60),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_renewal_is_for_one_attempt_only(harness: Harness, loss: str) -> None:
    worker, job = leased_job(harness, 60)
    harness.engine.renew_run(worker, job.id)
    LOSSES[loss](harness, worker, job)
    assert state_of(job) is READY
    second = harness.worker(timeout_seconds=5)
    assert harness.engine.take(second) is job
    harness.pass_seconds(5)
    assert state_of(job) is READY
    assert peer_of(second).heard == [("revoke", second.id, job.id)]


def test_renewing_a_run_does_not_fill_the_index(harness: Harness) -> None:
    worker, job = leased_job(harness)
    for _ in range(100):
        harness.engine.renew_run(worker, job.id)
        harness.pass_seconds(0.1)
    assert len(harness.engine.deadlines) == 1


def test_what_comes_due_before_the_end_of_a_renewed_run_happens_before_it(harness: Harness) -> None:
    worker, job = leased_job(harness, 3)
    harness.pass_seconds(2)
    harness.engine.renew_run(worker, job.id)
    harness.engine.renew_lease(worker, 2 * SECOND_US)
    harness.pass_seconds(60)
    assert causes(job)[-1] is Cause.WORKER_LOST


@pytest.mark.parametrize("hours", [1, -1])
def test_a_renewed_run_is_a_span_too(harness: Harness, hours: int) -> None:
    worker, job = leased_job(harness)
    harness.pass_seconds(4)
    harness.engine.renew_run(worker, job.id)
    harness.set_clock(hours * 3600)
    harness.pass_seconds(4.999999)
    assert state_of(job) is RUNNING
    harness.pass_seconds(0.000001)
    assert state_of(job) is READY


def test_a_renewed_run_moves_with_the_clock_once_though_two_workers_list_the_job(harness: Harness) -> None:
    first, job = harness.running()
    harness.engine.cancel(job)  # and the worker does not say that it has stopped
    harness.engine.retry(job)
    second = harness.worker(timeout_seconds=5)
    assert harness.engine.take(second) is job
    harness.engine.renew_run(second, job.id)
    harness.set_clock(3600)
    harness.pass_seconds(5)
    assert state_of(job) is READY
    assert first.running == {job.id: job}


# --- leases ---


def test_a_worker_that_gives_no_sign_of_life_loses_its_jobs_and_is_told(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.renew_lease(worker, 5 * SECOND_US)
    harness.pass_seconds(5)
    assert not worker.alive
    assert state_of(job) is READY
    assert causes(job)[-1] is Cause.WORKER_LOST
    assert peer_of(worker).heard == [("expired", worker.id)]
    assert harness.observer.heard[-1] == ("worker expired", worker.id)


def test_one_who_leaves_is_not_told_that_its_lease_is_over(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.renew_lease(worker, 5 * SECOND_US)
    harness.engine.remove_worker(worker)
    harness.pass_seconds(5)
    assert peer_of(worker).heard == []


def test_while_a_lease_is_suspended_no_sign_of_life_is_expected(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.renew_lease(worker, 5 * SECOND_US)
    harness.engine.suspend_lease(worker)
    harness.pass_seconds(86_400)
    assert state_of(job) is RUNNING
    harness.engine.renew_lease(worker, 5 * SECOND_US)
    harness.pass_seconds(4.999999)
    assert worker.alive
    harness.pass_seconds(0.000001)
    assert peer_of(worker).heard == [("expired", worker.id)]


def test_a_lease_suspended_and_renewed_at_once_ends_once(harness: Harness) -> None:
    worker = harness.worker()
    for _ in range(3):
        harness.engine.renew_lease(worker, 5 * SECOND_US)
        harness.engine.suspend_lease(worker)
    harness.engine.renew_lease(worker, 5 * SECOND_US)
    harness.pass_seconds(1)
    harness.engine.renew_lease(worker, 5 * SECOND_US)
    harness.pass_seconds(4)
    assert worker.alive
    harness.pass_seconds(1)
    assert peer_of(worker).heard == [("expired", worker.id)]


def test_suspending_what_was_never_given_is_harmless(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.suspend_lease(worker)
    harness.engine.remove_worker(worker)
    harness.engine.suspend_lease(worker)
    assert harness.engine.deadlines.stale == 0


def test_a_lease_can_be_renewed_any_number_of_times(harness: Harness) -> None:
    worker, job = harness.running()
    for _ in range(10):
        harness.engine.renew_lease(worker, 5 * SECOND_US)
        harness.pass_seconds(4)
    assert worker.alive
    harness.pass_seconds(1)
    assert state_of(job) is READY


def test_renewing_does_not_fill_the_index(harness: Harness) -> None:
    worker = harness.worker()
    for _ in range(100):
        harness.engine.renew_lease(worker, 5 * SECOND_US)
        harness.pass_seconds(0.1)
    assert len(harness.engine.deadlines) == 1


def test_a_lease_can_be_made_shorter(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.renew_lease(worker, 60 * SECOND_US)
    harness.engine.renew_lease(worker, 5 * SECOND_US)
    harness.pass_seconds(5)
    assert not worker.alive


def test_what_comes_due_before_the_end_of_a_renewed_lease_happens_before_it(harness: Harness) -> None:
    worker, job = harness.running(timeout_us=5 * SECOND_US)
    harness.engine.renew_lease(worker, 3 * SECOND_US)
    harness.engine.renew_lease(worker, 6 * SECOND_US)
    harness.pass_seconds(60)
    assert causes(job)[-1] is Cause.TIMED_OUT
    assert not worker.alive


def test_a_worker_that_left_has_no_lease(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.renew_lease(worker, 5 * SECOND_US)
    harness.engine.remove_worker(worker)
    harness.engine.renew_lease(worker, 5 * SECOND_US)
    harness.pass_seconds(60)
    assert harness.observer.heard == [("function", b"mail")]
