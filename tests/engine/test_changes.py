"""An operator changes the priority or the run-at time of a job that waits."""

from __future__ import annotations

import pytest

from switchgear.errors import Refused
from switchgear.model import (
    FINAL_STATES,
    HIGH,
    LOW,
    NORMAL,
    READY,
    SCHEDULED,
    SECOND_US,
    WAITING,
    Cause,
    Delivery,
    Job,
    JobState,
    Peer,
)
from switchgear.model.job import DETAILS_BYTES
from switchgear.policy import Policy
from switchgear.refusals import REFUSED_CONFLICT, REFUSED_RUNNING
from switchgear.testing import RecordingPeer, check_engine
from tests.engine.harness import Harness, causes, ids, peer_of, state_of
from tests.engine.test_packed_queues import Side

# --- priority ---


def test_a_ready_job_goes_to_the_end_of_the_queue_of_its_new_priority(harness: Harness) -> None:
    first, second, third = harness.submit(), harness.submit(), harness.submit()
    urgent = harness.submit(priority=HIGH)
    harness.engine.change(third, priority=HIGH)
    harness.engine.change(first, priority=LOW)
    assert harness.drain_with(harness.worker()) == ids(urgent, third, second, first)


def test_the_priority_is_reported_to_the_store(harness: Harness) -> None:
    job = harness.submit()
    harness.engine.take_changes()
    harness.engine.change(job, priority=LOW)
    assert harness.engine.take_changes()[0] == [job]
    assert job.priority == LOW


def test_a_change_to_what_is_changes_nothing(harness: Harness) -> None:
    job, other = harness.submit(), harness.submit()
    harness.engine.take_changes()
    harness.engine.change(job, priority=NORMAL)
    harness.engine.change(job, run_at_us=0)
    assert harness.engine.take_changes()[0] == []
    assert harness.drain_with(harness.worker()) == ids(job, other)


def test_a_sleeping_worker_that_takes_only_a_priority_is_woken(harness: Harness) -> None:
    job = harness.submit()
    worker = harness.engine.add_worker(RecordingPeer(), "test")
    harness.engine.can_do(worker, harness.function(), 0, (HIGH,))
    assert harness.engine.sleep(worker)
    harness.engine.change(job, priority=HIGH)
    assert peer_of(worker).heard == [("wake", worker.id)]
    assert harness.engine.take(worker) is job


def test_a_waiting_job_gets_its_new_priority_when_it_is_ready(harness: Harness) -> None:
    worker, before = harness.running()
    job, other = harness.submit(after=(before,)), harness.submit()
    harness.engine.change(job, priority=HIGH)
    assert state_of(job) is WAITING
    harness.engine.complete(worker, before.id, b"")
    assert harness.drain_with(worker) == ids(job, other)


@pytest.mark.parametrize("policy", [Policy(concurrency=1), Policy(key_concurrency=1), Policy(fair=True)])
def test_jobs_behind_limits_change_their_queue(harness: Harness, policy: Policy) -> None:
    harness.engine.set_policy(harness.function(), policy)
    jobs = [harness.submit(key=b"k%d" % (number % 2)) for number in range(4)]
    harness.engine.change(jobs[3], priority=HIGH)
    harness.engine.change(jobs[0], priority=LOW)
    order = harness.drain_with(harness.worker())
    assert order[0] == jobs[3].id
    assert order[-1] == jobs[0].id
    assert sorted(order) == ids(*jobs)


def test_a_job_that_requires_something_stays_in_its_group(harness: Harness) -> None:
    plain = harness.submit()
    job = harness.submit(requires=b"gpu", priority=LOW)
    harness.engine.change(job, priority=HIGH)
    assert harness.drain_with(harness.worker()) == [plain.id]
    assert state_of(job) is READY


def test_packed_jobs_are_found_and_survive_a_crash_as_they_were_changed() -> None:
    side = Side(segment_jobs=4, head_jobs=2)
    job_ids = side.fill(60)
    assert not {job_ids[20], job_ids[30]} & {job.id for job in side.engine.jobs.values()}
    for job_id, change in ((job_ids[20], {"priority": HIGH}), (job_ids[30], {"run_at_us": side.engine.now_us + 5})):
        copy = side.engine.look_at(job_id)
        assert copy is not None
        assert side.engine.change(copy, **change).id == job_id
    check_engine(side.engine)
    side.commit()
    side.crash()
    check_engine(side.engine)
    assert side.drain() == [job_ids[20], *job_ids[:20], *job_ids[21:30], *job_ids[31:]]
    side.clock.advance(1)
    side.engine.advance(side.clock.now_us())
    assert side.drain() == [job_ids[30]]


def test_what_a_change_makes_a_plain_job_hold_is_counted(harness: Harness) -> None:
    job = harness.submit()
    before = harness.engine.memory.job_bytes
    for priority in (HIGH, LOW, HIGH):
        harness.engine.change(job, priority=priority)
    assert harness.engine.memory.job_bytes == before + DETAILS_BYTES
    harness.drain_with(harness.worker())
    for ended in harness.engine.take_changes()[0]:
        harness.engine.drop_contents(ended)
    assert harness.engine.memory.job_bytes == 0


# --- the run-at time ---


def test_a_ready_job_is_put_off(harness: Harness) -> None:
    job = harness.submit()
    worker = harness.worker()
    harness.engine.change(job, run_at_us=harness.at(5))
    assert state_of(job) is SCHEDULED
    assert causes(job) == [Cause.SUBMITTED, Cause.RESCHEDULED]
    assert harness.engine.take(worker) is None
    harness.pass_seconds(5)
    assert harness.engine.take(worker) is job


def test_a_scheduled_job_runs_now(harness: Harness) -> None:
    job = harness.submit(run_at_us=harness.at(3600))
    worker = harness.worker()
    assert harness.engine.sleep(worker)
    harness.engine.change(job, run_at_us=0)
    assert peer_of(worker).heard == [("wake", worker.id)]
    assert harness.engine.take(worker) is job
    assert causes(job) == [Cause.SUBMITTED_EARLY, Cause.DUE, Cause.TAKEN]
    harness.pass_seconds(4000)  # the old time comes, and nothing happens
    assert causes(job)[-1] is Cause.TAKEN


@pytest.mark.parametrize("seconds", [2, 20])
def test_a_scheduled_job_gets_an_earlier_or_a_later_time(harness: Harness, seconds: int) -> None:
    job = harness.submit(run_at_us=harness.at(10))
    harness.engine.change(job, run_at_us=harness.at(seconds))
    harness.pass_seconds(seconds - 1)
    assert state_of(job) is SCHEDULED
    harness.pass_seconds(1)
    assert state_of(job) is READY


def test_a_time_that_is_changed_back_comes_once(harness: Harness) -> None:
    at_us = harness.at(10)
    job = harness.submit(run_at_us=at_us)
    for _ in range(3):
        harness.engine.change(job, run_at_us=harness.at(20))
        harness.engine.change(job, run_at_us=at_us)
    harness.pass_seconds(10)
    assert state_of(job) is READY
    assert harness.drain_with(harness.worker()) == [job.id]


def test_a_waiting_job_waits_for_its_new_time_as_well(harness: Harness) -> None:
    worker, before = harness.running()
    job = harness.submit(after=(before,))
    harness.engine.change(job, run_at_us=harness.at(5))
    harness.engine.complete(worker, before.id, b"")
    assert state_of(job) is SCHEDULED
    harness.pass_seconds(5)
    assert harness.engine.take(worker) is job


def test_a_pause_before_the_next_attempt_is_cut_short(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.retry_later(worker, job.id, 3600 * SECOND_US, b"not now")
    harness.engine.change(job, run_at_us=0)
    assert harness.engine.take(worker) is job


def test_a_ready_job_stays_ready_when_the_clock_was_set_back_before_its_time(harness: Harness) -> None:
    job = harness.submit(run_at_us=harness.at(1))
    harness.pass_seconds(1)
    harness.set_clock(-3600)
    harness.engine.change(job, priority=HIGH, run_at_us=0)
    assert state_of(job) is READY
    assert harness.engine.take(harness.worker()) is job


def test_both_change_at_once(harness: Harness) -> None:
    job, other = harness.submit(priority=LOW), harness.submit()
    harness.engine.change(job, priority=HIGH, run_at_us=harness.at(1))
    harness.pass_seconds(1)
    assert harness.drain_with(harness.worker()) == ids(job, other)


# --- what cannot be changed ---


def test_a_running_job_is_refused(harness: Harness) -> None:
    _, job = harness.running()
    refused(harness, job, "job 1 is running: it cannot be changed", REFUSED_RUNNING)
    assert job.priority == NORMAL


@pytest.mark.parametrize("end", sorted(FINAL_STATES))
def test_an_ended_job_is_refused(harness: Harness, end: JobState) -> None:
    refused(harness, harness.ended(end), f"job 1 is {end.name.lower()}: it cannot be changed")


def test_a_foreground_job_can_be_changed_and_is_not_stored(harness: Harness) -> None:
    job = harness.submit(delivery=Delivery.WAIT, watcher=RecordingPeer())
    other = harness.submit()
    harness.engine.take_changes()
    harness.engine.change(job, priority=LOW)
    assert harness.engine.take_changes()[0] == []
    assert harness.drain_with(harness.worker()) == ids(other, job)


def refused(harness: Harness, job: Job, text: str, reason: str = REFUSED_CONFLICT) -> None:
    with pytest.raises(Refused) as caught:
        harness.engine.change(job, priority=HIGH, run_at_us=harness.at(5))
    assert caught.value.reason == reason
    assert str(caught.value) == text


# --- the store ---


def test_the_peer_that_asks_waits_for_the_store(harness: Harness) -> None:
    job = harness.submit()
    harness.engine.is_durable = True
    speaker = Peer()
    harness.engine.speaker = speaker
    harness.engine.change(job, priority=HIGH)
    assert speaker.unstored_batch == harness.engine.batch


def test_an_unstored_job_that_was_changed_is_not_withdrawn(harness: Harness) -> None:
    job = harness.submit()
    harness.engine.change(job, priority=HIGH)
    assert not harness.engine.withdraw(job)
    assert state_of(job) is READY


def test_the_next_job_is_pushed_when_one_that_is_being_read_goes_behind_it(harness: Harness) -> None:
    slow, quick = harness.submit(priority=HIGH), harness.submit()
    slow.payload = None  # it is in the store alone
    worker = harness.worker()
    harness.engine.grant(worker, 1)
    assert harness.engine.take_wanted_payloads() == [slow]
    harness.engine.change(slow, priority=LOW)
    assert list(worker.running.values()) == [quick]
