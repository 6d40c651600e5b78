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
from tests.engine.house import House, causes, ids, peer_of, state_of

MakeHouse = Callable[..., House]

# --- delayed start ---


def test_a_job_is_not_handed_out_before_its_time(house: House) -> None:
    job = house.submit(run_at_us=house.at(10))
    worker = house.worker()
    house.pass_seconds(9.999999)
    assert state_of(job) is SCHEDULED
    assert house.engine.take(worker) is None
    house.pass_seconds(0.000001)
    assert house.engine.take(worker) is job


def test_the_engine_says_when_it_next_has_something_to_do(house: House) -> None:
    assert house.engine.next_deadline_us is None
    assert house.engine.earliest_deadline_us == NEVER_US
    late, early = house.at(10), house.at(5)
    house.submit(run_at_us=late)
    house.submit(run_at_us=early)
    assert house.engine.next_deadline_us == house.engine.earliest_deadline_us == early
    house.pass_seconds(5)
    assert house.engine.next_deadline_us == house.engine.earliest_deadline_us == late


def test_jobs_become_ready_in_the_order_of_their_times(house: House) -> None:
    jobs = [house.submit(run_at_us=house.at(seconds)) for seconds in (3, 1, 2, 1)]
    house.pass_seconds(60)
    assert house.drain_with(house.worker()) == ids(jobs[1], jobs[3], jobs[2], jobs[0])


def test_a_time_that_has_passed_is_no_reason_to_wait(house: House) -> None:
    assert house.submit(run_at_us=house.at(0)).state is READY
    assert house.submit(run_at_us=house.at(-5)).state is READY


def test_a_job_whose_time_has_come_wakes_a_sleeper(house: House) -> None:
    worker = house.worker()
    house.submit(run_at_us=house.at(1))
    assert house.engine.sleep(worker)
    house.pass_seconds(1)
    assert peer_of(worker).words() == ["wake"]


def test_time_does_not_run_backwards_by_itself(house: House) -> None:
    house.engine.advance(house.now_us - SECOND_US)
    assert house.engine.now_us == house.now_us


# --- expiry ---


@pytest.mark.parametrize("state", [WAITING, SCHEDULED, READY])
def test_a_job_that_was_not_started_in_time_expires(house: House, state: int) -> None:
    client = RecordingPeer()
    after = (house.submit(b"other"),) if state is WAITING else ()
    run_at_us = house.at(9) if state is SCHEDULED else 0
    job = house.submit(after=after, run_at_us=run_at_us, expires_us=house.at(5), watcher=client)
    house.pass_seconds(4.999999)
    assert state_of(job) is state
    house.pass_seconds(0.000001)
    assert state_of(job) is EXPIRED
    assert client.heard == [("finished", job.id, EXPIRED)]
    assert house.observer.heard[-1] == ("expired", job.id)
    assert house.function().expired == 1


def test_a_job_that_runs_does_not_expire(house: House) -> None:
    worker, job = house.running(expires_us=house.at(5))
    house.pass_seconds(6)
    assert state_of(job) is RUNNING
    house.engine.complete(worker, job.id, b"")
    assert state_of(job) is DONE


@pytest.mark.parametrize("loss", ["worker lost", "timed out", "given back", "retry later"])
def test_a_job_is_not_started_again_after_its_expiry(house: House, loss: str) -> None:
    worker, job = house.running(expires_us=house.at(5), timeout_us=10 * SECOND_US)
    house.pass_seconds(6)
    if loss == "worker lost":
        house.engine.remove_worker(worker)
    elif loss == "timed out":
        house.pass_seconds(4)
    elif loss == "given back":
        house.engine.release(worker, job.id)
    else:
        house.engine.retry_later(worker, job.id, 1)
    assert state_of(job) is EXPIRED
    assert house.function().ready == 0


def test_a_job_that_is_requeued_before_its_expiry_still_expires(house: House) -> None:
    worker, job = house.running(expires_us=house.at(5))
    house.engine.remove_worker(worker)
    house.pass_seconds(5)
    assert state_of(job) is EXPIRED


def test_its_expiry_survives_a_rebuilding_of_the_index_while_it_runs(house: House) -> None:
    worker, job = house.running(expires_us=house.at(5))
    make_stale(house, 2 * LEAST_STALE_FOR_SWEEP)
    house.engine.release(worker, job.id)
    house.pass_seconds(5)
    assert state_of(job) is EXPIRED


def test_a_job_is_not_started_if_its_time_and_its_expiry_have_both_passed(house: House) -> None:
    pushed = house.worker()
    house.engine.grant(pushed, 1)
    job = house.submit(run_at_us=house.at(1), expires_us=house.at(2))
    house.pass_seconds(3600)  # the machine slept
    assert state_of(job) is EXPIRED
    assert peer_of(pushed).heard == []


def test_a_lost_job_is_not_started_if_its_expiry_has_passed_too(house: House) -> None:
    _, job = house.running(timeout_us=SECOND_US, expires_us=house.at(2))
    house.engine.grant(house.worker(), 1)
    house.pass_seconds(3600)
    assert causes(job)[-2:] == [Cause.TIMED_OUT, Cause.EXPIRED]


# --- a clock that is set ---


@pytest.mark.parametrize("hours", [1, -1])
def test_spans_do_not_change_when_the_clock_is_set(house: House, hours: int) -> None:
    worker, job = house.running(timeout_us=5 * SECOND_US)
    leased = house.worker()
    house.engine.renew_lease(leased, 8 * SECOND_US)
    house.pass_seconds(3)
    house.set_clock(hours * 3600)
    assert state_of(job) is RUNNING
    house.pass_seconds(1.999999)
    assert state_of(job) is RUNNING
    house.pass_seconds(0.000001)
    assert state_of(job) is READY
    house.pass_seconds(2.999999)
    assert leased.alive
    house.pass_seconds(0.000001)
    assert not leased.alive
    assert worker.alive


def test_neglect_is_a_span_too(house: House) -> None:
    first, second = house.worker(), house.worker()
    house.engine.sleep(first)
    house.engine.sleep(second)
    house.submit()
    assert peer_of(first).words() == ["wake"]
    house.set_clock(-3600)
    house.pass_seconds(0.999999)
    assert peer_of(second).words() == []
    house.pass_seconds(0.000001)
    assert peer_of(second).words() == ["wake"]


def test_moments_come_when_the_clock_shows_them(house: House) -> None:
    later, expires = house.submit(run_at_us=house.at(3600)), house.submit(b"other", expires_us=house.at(3600))
    house.set_clock(3599)
    assert (later.state, expires.state) == (SCHEDULED, READY)
    house.set_clock(1)
    assert (later.state, expires.state) == (READY, EXPIRED)


def test_moments_are_farther_away_when_the_clock_is_set_back(house: House) -> None:
    job = house.submit(run_at_us=house.at(10))
    house.set_clock(-3600)
    house.pass_seconds(3609)
    assert state_of(job) is SCHEDULED
    house.pass_seconds(1)
    assert state_of(job) is READY


def test_an_expiry_that_passed_while_the_job_ran_counts_again_when_the_clock_is_set_back(house: House) -> None:
    worker, job = house.running(expires_us=house.at(5))
    house.pass_seconds(6)
    house.set_clock(-10)
    house.engine.release(worker, job.id)
    assert state_of(job) is READY
    house.pass_seconds(9)
    assert state_of(job) is EXPIRED


def test_what_is_due_happens_before_the_clock_is_set_back(house: House) -> None:
    job = house.submit(run_at_us=house.at(1))
    house.clock.advance(2)
    house.engine.now_us = house.now_us  # the time has come, and nobody has looked yet
    house.engine.clock_moved(-3600 * SECOND_US)
    assert state_of(job) is READY


# --- the index stays small ---


def make_stale(house: House, count: int) -> None:
    """Many short jobs with a long limit: each leaves a deadline behind that has lost its meaning."""
    worker = house.worker(b"short", timeout_seconds=86_400)
    for _ in range(count):
        house.submit(b"short", delivery=Delivery.THROW_AWAY)
        house.drain_with(worker)
        house.pass_seconds(0.000001)


def test_long_limits_on_many_short_jobs_do_not_fill_the_index(house: House) -> None:
    for _ in range(4):
        make_stale(house, LEAST_STALE_FOR_SWEEP)
        assert len(house.engine.deadlines) <= 2 * LEAST_STALE_FOR_SWEEP


@pytest.mark.parametrize("kind", ["due", "expiry", "lease"])
def test_other_deadlines_that_lost_their_meaning_do_not_fill_it_either(house: House, kind: str) -> None:
    for _ in range(4 * LEAST_STALE_FOR_SWEEP):
        if kind == "due":
            house.engine.cancel(house.submit(run_at_us=house.at(86_400)))
        elif kind == "expiry":
            house.engine.cancel(house.submit(expires_us=house.at(86_400)))
        else:
            worker = house.engine.add_worker(RecordingPeer(), "test")
            house.engine.renew_lease(worker, 86_400 * SECOND_US)
            house.engine.remove_worker(worker)
        house.pass_seconds(0)
        assert len(house.engine.deadlines) <= 2 * LEAST_STALE_FOR_SWEEP


def test_rebuilding_keeps_what_has_meaning(house: House) -> None:
    scheduled, expiring = house.submit(run_at_us=house.at(60)), house.submit(b"other", expires_us=house.at(60))
    _, running = house.running(b"third", timeout_us=60 * SECOND_US)
    leased = house.worker(b"fourth")
    house.engine.renew_lease(leased, 60 * SECOND_US)
    make_stale(house, 2 * LEAST_STALE_FOR_SWEEP)
    house.pass_seconds(60)
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
