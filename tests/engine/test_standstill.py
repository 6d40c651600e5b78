"""A process that has stood still: the silence of peers meanwhile means nothing until their messages were read."""

from __future__ import annotations

import pytest

from switchgear.engine.deadlines import DeadlineKind, Deadlines
from switchgear.model import READY, RUNNING, SECOND_US, Cause, Function
from switchgear.policy import Policy
from switchgear.testing import RecordingPeer
from tests.engine.harness import Harness, causes, peer_of, state_of

SUBJECT = Function(b"mail")


def stand_still(harness: Harness, seconds: float) -> None:
    """The process does not run for so long."""
    harness.engine.time_stood_still(harness.clock.advance(seconds))
    harness.engine.advance(harness.now_us)


def test_a_lease_that_ended_meanwhile_can_be_renewed_for_a_second(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.renew_lease(worker, 5 * SECOND_US)
    stand_still(harness, 60)
    assert worker.alive
    assert harness.engine.next_deadline_us == harness.at(1)
    harness.pass_seconds(0.9)
    harness.engine.renew_lease(worker, 5 * SECOND_US)
    harness.pass_seconds(4.9)
    assert state_of(job) is RUNNING
    harness.pass_seconds(0.1)
    assert causes(job)[-1] is Cause.WORKER_LOST


def test_a_worker_that_was_silent_before_and_is_silent_afterwards_is_lost_a_second_later(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.renew_lease(worker, 5 * SECOND_US)
    stand_still(harness, 5)
    harness.pass_seconds(0.999999)
    assert worker.alive
    harness.pass_seconds(0.000001)
    assert not worker.alive
    assert state_of(job) is READY
    assert peer_of(worker).heard == [("expired", worker.id)]


def test_the_report_of_a_job_whose_time_ended_meanwhile_still_counts(harness: Harness) -> None:
    worker, job = harness.running(timeout_us=5 * SECOND_US)
    stand_still(harness, 60)
    assert harness.engine.complete(worker, job.id, b"in time") is job


def test_a_job_without_a_report_times_out_a_second_later(harness: Harness) -> None:
    _, job = harness.running(timeout_us=5 * SECOND_US)
    stand_still(harness, 60)
    assert state_of(job) is RUNNING
    harness.pass_seconds(1)
    assert causes(job)[-1] is Cause.TIMED_OUT


def test_timers_of_peers_are_put_off_too(harness: Harness) -> None:
    peer = RecordingPeer()
    timer = harness.engine.set_timer(peer, harness.at(5))
    stand_still(harness, 5)
    assert peer.heard == []
    harness.pass_seconds(1)
    assert peer.heard == [("timer", timer)]


def test_what_no_peer_could_have_prevented_happens_at_once(harness: Harness) -> None:
    due, expiring = harness.submit(run_at_us=harness.at(3)), harness.submit(b"other", expires_us=harness.at(3))
    harness.engine.set_policy(harness.function(b"limited"), Policy(rate=(1, SECOND_US)))
    limited = [harness.submit(b"limited") for _ in range(2)]
    worker = harness.worker(b"limited")
    harness.engine.grant(worker, 2)
    assert [state_of(job) for job in limited] == [RUNNING, READY]
    stand_still(harness, 5)
    assert state_of(due) is READY
    assert causes(expiring)[-1] is Cause.EXPIRED
    assert [state_of(job) for job in limited] == [RUNNING, RUNNING]


def test_a_lease_that_ends_after_the_standstill_has_its_time(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.renew_lease(worker, 65 * SECOND_US)
    stand_still(harness, 60)
    harness.pass_seconds(4.999999)
    assert worker.alive
    harness.pass_seconds(0.000001)
    assert not worker.alive


def test_no_deadline_is_put_off_that_had_passed_before(harness: Harness) -> None:
    """Otherwise a process that stands still every other second would never lose a worker."""
    worker = harness.worker()
    harness.engine.renew_lease(worker, 5 * SECOND_US)
    stand_still(harness, 5)
    stand_still(harness, 2)
    assert not worker.alive


def test_short_standstills_in_a_row_put_off_a_deadline_by_five_seconds_at_most(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.renew_lease(worker, 5 * SECOND_US)
    stand_still(harness, 5)
    for _ in range(9):
        stand_still(harness, 0.5)
        assert worker.alive
    stand_still(harness, 0.5)
    assert not worker.alive


def test_a_second_standstill_begins_the_second_again(harness: Harness) -> None:
    first, second = harness.worker(), harness.worker()
    harness.engine.renew_lease(first, 5 * SECOND_US)
    harness.engine.renew_lease(second, round(6.2 * SECOND_US))
    stand_still(harness, 6)
    stand_still(harness, 0.5)
    harness.pass_seconds(0.9)
    assert first.alive
    assert second.alive
    harness.pass_seconds(0.1)
    assert not first.alive
    assert not second.alive


@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_clock_that_is_set_meanwhile_changes_nothing(harness: Harness, step: float) -> None:
    worker = harness.worker()
    harness.engine.renew_lease(worker, 5 * SECOND_US)
    stand_still(harness, 5)
    harness.set_clock(step)
    harness.pass_seconds(0.999999)
    assert worker.alive
    harness.pass_seconds(0.000001)
    assert not worker.alive


def test_other_deadlines_are_met_in_their_order_while_some_are_put_off() -> None:
    deadlines = Deadlines()
    for at_us, kind in ((1, DeadlineKind.LEASE), (2, DeadlineKind.DUE), (3, DeadlineKind.LIMITER)):
        deadlines.add(at_us, kind, SUBJECT)
    deadlines.time_stood_still(0, 10)
    deadlines.add(4, DeadlineKind.LEASE, SUBJECT)
    assert deadlines.next_us == 2
    met = []
    while (entry := deadlines.pop_due(10)) is not None:
        met.append(entry[0])
    assert met == [2, 3]
    assert deadlines.next_us == 10 + SECOND_US
    assert len(deadlines) == 2
    assert [deadlines.pop_due(10 + SECOND_US), deadlines.pop_due(10 + SECOND_US)] == [
        (1, 1, DeadlineKind.LEASE, SUBJECT, 0),
        (4, 4, DeadlineKind.LEASE, SUBJECT, 0),
    ]
    assert deadlines.next_us is None
