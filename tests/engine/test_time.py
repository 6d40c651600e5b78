"""What happens by itself: delayed starts, expiry, run limits, leases, and a clock that is set."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.engine.deadlines import LEAST_STALE_FOR_SWEEP, NEVER_US, DeadlineKind, Deadlines
from switchgear.model import (
    DONE,
    EXPIRED,
    READY,
    RUNNING,
    SCHEDULED,
    SECOND_US,
    WAITING,
    Cause,
    Delivery,
    Function,
)
from switchgear.testing import RecordingPeer
from tests.engine.harness import Harness, causes, ids, peer_of, state_of

MakeHarness = Callable[..., Harness]

# --- delayed start ---


def test_a_job_is_not_handed_out_before_its_time(harness: Harness) -> None:
    job = harness.submit(run_at_us=harness.at(10))
    worker = harness.worker()
    harness.pass_seconds(9.999999)
    assert state_of(job) is SCHEDULED
    assert harness.engine.take(worker) is None
    harness.pass_seconds(0.000001)
    assert harness.engine.take(worker) is job


def test_the_engine_says_when_it_next_has_something_to_do(harness: Harness) -> None:
    assert harness.engine.next_deadline_us is None
    assert harness.engine.earliest_deadline_us == NEVER_US
    late, early = harness.at(10), harness.at(5)
    harness.submit(run_at_us=late)
    harness.submit(run_at_us=early)
    assert harness.engine.next_deadline_us == harness.engine.earliest_deadline_us == early
    harness.pass_seconds(5)
    assert harness.engine.next_deadline_us == harness.engine.earliest_deadline_us == late


def test_jobs_become_ready_in_the_order_of_their_times(harness: Harness) -> None:
    jobs = [harness.submit(run_at_us=harness.at(seconds)) for seconds in (3, 1, 2, 1)]
    harness.pass_seconds(60)
    assert harness.drain_with(harness.worker()) == ids(jobs[1], jobs[3], jobs[2], jobs[0])


def test_a_time_that_has_passed_is_no_reason_to_wait(harness: Harness) -> None:
    assert harness.submit(run_at_us=harness.at(0)).state is READY
    assert harness.submit(run_at_us=harness.at(-5)).state is READY


def test_a_job_whose_time_has_come_wakes_a_sleeper(harness: Harness) -> None:
    worker = harness.worker()
    harness.submit(run_at_us=harness.at(1))
    assert harness.engine.sleep(worker)
    harness.pass_seconds(1)
    assert peer_of(worker).words() == ["wake"]


def test_time_does_not_run_backwards_by_itself(harness: Harness) -> None:
    harness.engine.advance(harness.now_us - SECOND_US)
    assert harness.engine.now_us == harness.now_us


# --- expiry ---


@pytest.mark.parametrize("state", [WAITING, SCHEDULED, READY])
def test_a_job_that_was_not_started_in_time_expires(harness: Harness, state: int) -> None:
    client = RecordingPeer()
    after = (harness.submit(b"other"),) if state is WAITING else ()
    run_at_us = harness.at(9) if state is SCHEDULED else 0
    job = harness.submit(after=after, run_at_us=run_at_us, expires_us=harness.at(5), watcher=client)
    harness.pass_seconds(4.999999)
    assert state_of(job) is state
    harness.pass_seconds(0.000001)
    assert state_of(job) is EXPIRED
    assert client.heard == [("finished", job.id, EXPIRED)]
    assert harness.observer.heard[-1] == ("expired", job.id)
    assert harness.function().expired == 1


def test_a_job_that_runs_does_not_expire(harness: Harness) -> None:
    worker, job = harness.running(expires_us=harness.at(5))
    harness.pass_seconds(6)
    assert state_of(job) is RUNNING
    harness.engine.complete(worker, job.id, b"")
    assert state_of(job) is DONE


@pytest.mark.parametrize("loss", ["worker lost", "timed out", "given back", "retry later"])
def test_a_job_is_not_started_again_after_its_expiry(harness: Harness, loss: str) -> None:
    worker, job = harness.running(expires_us=harness.at(5), timeout_us=10 * SECOND_US)
    harness.pass_seconds(6)
    if loss == "worker lost":
        harness.engine.remove_worker(worker)
    elif loss == "timed out":
        harness.pass_seconds(4)
    elif loss == "given back":
        harness.engine.release(worker, job.id)
    else:
        harness.engine.retry_later(worker, job.id, 1)
    assert state_of(job) is EXPIRED
    assert harness.function().ready == 0


def test_a_job_that_is_requeued_before_its_expiry_still_expires(harness: Harness) -> None:
    worker, job = harness.running(expires_us=harness.at(5))
    harness.engine.remove_worker(worker)
    harness.pass_seconds(5)
    assert state_of(job) is EXPIRED


def test_its_expiry_survives_a_rebuilding_of_the_index_while_it_runs(harness: Harness) -> None:
    worker, job = harness.running(expires_us=harness.at(5))
    make_stale(harness, 2 * LEAST_STALE_FOR_SWEEP)
    harness.engine.release(worker, job.id)
    harness.pass_seconds(5)
    assert state_of(job) is EXPIRED


def test_a_job_is_not_started_if_its_time_and_its_expiry_have_both_passed(harness: Harness) -> None:
    pushed = harness.worker()
    harness.engine.grant(pushed, 1)
    job = harness.submit(run_at_us=harness.at(1), expires_us=harness.at(2))
    harness.pass_seconds(3600)  # the machine slept
    assert state_of(job) is EXPIRED
    assert peer_of(pushed).heard == []


def test_a_lost_job_is_not_started_if_its_expiry_has_passed_too(harness: Harness) -> None:
    _, job = harness.running(timeout_us=SECOND_US, expires_us=harness.at(2))
    harness.engine.grant(harness.worker(), 1)
    harness.pass_seconds(3600)
    assert causes(job)[-2:] == [Cause.TIMED_OUT, Cause.EXPIRED]


# --- a clock that is set ---


@pytest.mark.parametrize("hours", [1, -1])
def test_spans_do_not_change_when_the_clock_is_set(harness: Harness, hours: int) -> None:
    worker, job = harness.running(timeout_us=5 * SECOND_US)
    leased = harness.worker()
    harness.engine.renew_lease(leased, 8 * SECOND_US)
    harness.pass_seconds(3)
    harness.set_clock(hours * 3600)
    assert state_of(job) is RUNNING
    harness.pass_seconds(1.999999)
    assert state_of(job) is RUNNING
    harness.pass_seconds(0.000001)
    assert state_of(job) is READY
    harness.pass_seconds(2.999999)
    assert leased.alive
    harness.pass_seconds(0.000001)
    assert not leased.alive
    assert worker.alive


def test_neglect_is_a_span_too(harness: Harness) -> None:
    first, second = harness.worker(), harness.worker()
    harness.engine.sleep(first)
    harness.engine.sleep(second)
    harness.submit()
    assert peer_of(first).words() == ["wake"]
    harness.set_clock(-3600)
    harness.pass_seconds(0.999999)
    assert peer_of(second).words() == []
    harness.pass_seconds(0.000001)
    assert peer_of(second).words() == ["wake"]


def test_moments_come_when_the_clock_shows_them(harness: Harness) -> None:
    later, expires = harness.submit(run_at_us=harness.at(3600)), harness.submit(b"other", expires_us=harness.at(3600))
    harness.set_clock(3599)
    assert (later.state, expires.state) == (SCHEDULED, READY)
    harness.set_clock(1)
    assert (later.state, expires.state) == (READY, EXPIRED)


def test_moments_are_farther_away_when_the_clock_is_set_back(harness: Harness) -> None:
    job = harness.submit(run_at_us=harness.at(10))
    harness.set_clock(-3600)
    harness.pass_seconds(3609)
    assert state_of(job) is SCHEDULED
    harness.pass_seconds(1)
    assert state_of(job) is READY


def test_an_expiry_that_passed_while_the_job_ran_counts_again_when_the_clock_is_set_back(harness: Harness) -> None:
    worker, job = harness.running(expires_us=harness.at(5))
    harness.pass_seconds(6)
    harness.set_clock(-10)
    harness.engine.release(worker, job.id)
    assert state_of(job) is READY
    harness.pass_seconds(9)
    assert state_of(job) is EXPIRED


def test_what_is_due_happens_before_the_clock_is_set_back(harness: Harness) -> None:
    job = harness.submit(run_at_us=harness.at(1))
    harness.clock.advance(2)
    harness.engine.now_us = harness.now_us  # the time has come, and nobody has looked yet
    harness.engine.clock_moved(-3600 * SECOND_US)
    assert state_of(job) is READY


# --- the index stays small ---


def make_stale(harness: Harness, count: int) -> None:
    """Many short jobs with a long limit: each leaves a deadline behind that has lost its meaning."""
    worker = harness.worker(b"short", timeout_seconds=86_400)
    for _ in range(count):
        harness.submit(b"short", delivery=Delivery.THROW_AWAY)
        harness.drain_with(worker)
        harness.pass_seconds(0.000001)


def test_long_limits_on_many_short_jobs_do_not_fill_the_index(harness: Harness) -> None:
    for _ in range(4):
        make_stale(harness, LEAST_STALE_FOR_SWEEP)
        assert len(harness.engine.deadlines) <= 2 * LEAST_STALE_FOR_SWEEP


@pytest.mark.parametrize("kind", ["due", "expiry", "lease"])
def test_other_deadlines_that_lost_their_meaning_do_not_fill_it_either(harness: Harness, kind: str) -> None:
    for _ in range(4 * LEAST_STALE_FOR_SWEEP):
        if kind == "due":
            harness.engine.cancel(harness.submit(run_at_us=harness.at(86_400)))
        elif kind == "expiry":
            harness.engine.cancel(harness.submit(expires_us=harness.at(86_400)))
        else:
            worker = harness.engine.add_worker(RecordingPeer(), "test")
            harness.engine.renew_lease(worker, 86_400 * SECOND_US)
            harness.engine.remove_worker(worker)
        harness.pass_seconds(0)
        assert len(harness.engine.deadlines) <= 2 * LEAST_STALE_FOR_SWEEP


def test_rebuilding_keeps_what_has_meaning(harness: Harness) -> None:
    scheduled, expiring = harness.submit(run_at_us=harness.at(60)), harness.submit(b"other", expires_us=harness.at(60))
    _, running = harness.running(b"third", timeout_us=60 * SECOND_US)
    leased = harness.worker(b"fourth")
    harness.engine.renew_lease(leased, 60 * SECOND_US)
    make_stale(harness, 2 * LEAST_STALE_FOR_SWEEP)
    harness.pass_seconds(60)
    assert [job.state for job in (scheduled, expiring, running)] == [READY, EXPIRED, READY]
    assert not leased.alive


def test_equal_times_keep_their_order() -> None:
    deadlines = Deadlines()
    subjects = [Function(b"%d" % number) for number in range(5)]
    for subject in subjects:
        deadlines.add(7, DeadlineKind.UNANSWERED_WAKEUP, subject)
    assert deadlines.pop_due(6) is None
    popped = [deadlines.pop_due(7) for _ in subjects]
    assert [entry[3] for entry in popped if entry is not None] == subjects
    assert deadlines.pop_due(7) is None
