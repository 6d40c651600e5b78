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
from tests.engine.house import House, causes, ids, peer_of, state_of
from tests.engine.test_packed_queues import Side

# --- priority ---


def test_a_ready_job_goes_to_the_end_of_the_queue_of_its_new_priority(house: House) -> None:
    first, second, third = house.submit(), house.submit(), house.submit()
    urgent = house.submit(priority=HIGH)
    house.engine.change(third, priority=HIGH)
    house.engine.change(first, priority=LOW)
    assert house.drain_with(house.worker()) == ids(urgent, third, second, first)


def test_the_priority_is_reported_to_the_store(house: House) -> None:
    job = house.submit()
    house.engine.take_changes()
    house.engine.change(job, priority=LOW)
    assert house.engine.take_changes()[0] == [job]
    assert job.priority == LOW


def test_a_change_to_what_is_changes_nothing(house: House) -> None:
    job, other = house.submit(), house.submit()
    house.engine.take_changes()
    house.engine.change(job, priority=NORMAL)
    house.engine.change(job, run_at_us=0)
    assert house.engine.take_changes()[0] == []
    assert house.drain_with(house.worker()) == ids(job, other)


def test_a_sleeping_worker_that_takes_only_a_priority_is_woken(house: House) -> None:
    job = house.submit()
    worker = house.engine.add_worker(RecordingPeer(), "test")
    house.engine.can_do(worker, house.function(), 0, (HIGH,))
    assert house.engine.sleep(worker)
    house.engine.change(job, priority=HIGH)
    assert peer_of(worker).heard == [("wake", worker.id)]
    assert house.engine.take(worker) is job


def test_a_waiting_job_gets_its_new_priority_when_it_is_ready(house: House) -> None:
    worker, before = house.running()
    job, other = house.submit(after=(before,)), house.submit()
    house.engine.change(job, priority=HIGH)
    assert state_of(job) is WAITING
    house.engine.complete(worker, before.id, b"")
    assert house.drain_with(worker) == ids(job, other)


@pytest.mark.parametrize("policy", [Policy(concurrency=1), Policy(key_concurrency=1), Policy(fair=True)])
def test_jobs_behind_limits_change_their_queue(house: House, policy: Policy) -> None:
    house.engine.set_policy(house.function(), policy)
    jobs = [house.submit(key=b"k%d" % (number % 2)) for number in range(4)]
    house.engine.change(jobs[3], priority=HIGH)
    house.engine.change(jobs[0], priority=LOW)
    order = house.drain_with(house.worker())
    assert order[0] == jobs[3].id
    assert order[-1] == jobs[0].id
    assert sorted(order) == ids(*jobs)


def test_a_job_that_requires_something_stays_in_its_group(house: House) -> None:
    plain = house.submit()
    job = house.submit(requires=b"gpu", priority=LOW)
    house.engine.change(job, priority=HIGH)
    assert house.drain_with(house.worker()) == [plain.id]
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


def test_what_a_change_makes_a_plain_job_hold_is_counted(house: House) -> None:
    job = house.submit()
    before = house.engine.memory.job_bytes
    for priority in (HIGH, LOW, HIGH):
        house.engine.change(job, priority=priority)
    assert house.engine.memory.job_bytes == before + DETAILS_BYTES
    house.drain_with(house.worker())
    for ended in house.engine.take_changes()[0]:
        house.engine.drop_contents(ended)
    assert house.engine.memory.job_bytes == 0


# --- the run-at time ---


def test_a_ready_job_is_put_off(house: House) -> None:
    job = house.submit()
    worker = house.worker()
    house.engine.change(job, run_at_us=house.at(5))
    assert state_of(job) is SCHEDULED
    assert causes(job) == [Cause.SUBMITTED, Cause.RESCHEDULED]
    assert house.engine.take(worker) is None
    house.pass_seconds(5)
    assert house.engine.take(worker) is job


def test_a_scheduled_job_runs_now(house: House) -> None:
    job = house.submit(run_at_us=house.at(3600))
    worker = house.worker()
    assert house.engine.sleep(worker)
    house.engine.change(job, run_at_us=0)
    assert peer_of(worker).heard == [("wake", worker.id)]
    assert house.engine.take(worker) is job
    assert causes(job) == [Cause.SUBMITTED_EARLY, Cause.DUE, Cause.TAKEN]
    house.pass_seconds(4000)  # the old time comes, and nothing happens
    assert causes(job)[-1] is Cause.TAKEN


@pytest.mark.parametrize("seconds", [2, 20])
def test_a_scheduled_job_gets_an_earlier_or_a_later_time(house: House, seconds: int) -> None:
    job = house.submit(run_at_us=house.at(10))
    house.engine.change(job, run_at_us=house.at(seconds))
    house.pass_seconds(seconds - 1)
    assert state_of(job) is SCHEDULED
    house.pass_seconds(1)
    assert state_of(job) is READY


def test_a_time_that_is_changed_back_comes_once(house: House) -> None:
    at_us = house.at(10)
    job = house.submit(run_at_us=at_us)
    for _ in range(3):
        house.engine.change(job, run_at_us=house.at(20))
        house.engine.change(job, run_at_us=at_us)
    house.pass_seconds(10)
    assert state_of(job) is READY
    assert house.drain_with(house.worker()) == [job.id]


def test_a_waiting_job_waits_for_its_new_time_as_well(house: House) -> None:
    worker, before = house.running()
    job = house.submit(after=(before,))
    house.engine.change(job, run_at_us=house.at(5))
    house.engine.complete(worker, before.id, b"")
    assert state_of(job) is SCHEDULED
    house.pass_seconds(5)
    assert house.engine.take(worker) is job


def test_a_pause_before_the_next_attempt_is_cut_short(house: House) -> None:
    worker, job = house.running()
    house.engine.retry_later(worker, job.id, 3600 * SECOND_US, b"not now")
    house.engine.change(job, run_at_us=0)
    assert house.engine.take(worker) is job


def test_a_ready_job_stays_ready_when_the_clock_was_set_back_before_its_time(house: House) -> None:
    job = house.submit(run_at_us=house.at(1))
    house.pass_seconds(1)
    house.set_clock(-3600)
    house.engine.change(job, priority=HIGH, run_at_us=0)
    assert state_of(job) is READY
    assert house.engine.take(house.worker()) is job


def test_both_change_at_once(house: House) -> None:
    job, other = house.submit(priority=LOW), house.submit()
    house.engine.change(job, priority=HIGH, run_at_us=house.at(1))
    house.pass_seconds(1)
    assert house.drain_with(house.worker()) == ids(job, other)


# --- what cannot be changed ---


def test_a_running_job_is_refused(house: House) -> None:
    _, job = house.running()
    refused(house, job, "job 1 is running: it cannot be changed", REFUSED_RUNNING)
    assert job.priority == NORMAL


@pytest.mark.parametrize("end", sorted(FINAL_STATES))
def test_an_ended_job_is_refused(house: House, end: JobState) -> None:
    refused(house, house.ended(end), f"job 1 is {end.name.lower()}: it cannot be changed")


def test_a_foreground_job_can_be_changed_and_is_not_stored(house: House) -> None:
    job = house.submit(delivery=Delivery.WAIT, watcher=RecordingPeer())
    other = house.submit()
    house.engine.take_changes()
    house.engine.change(job, priority=LOW)
    assert house.engine.take_changes()[0] == []
    assert house.drain_with(house.worker()) == ids(other, job)


def refused(house: House, job: Job, text: str, reason: str = REFUSED_CONFLICT) -> None:
    with pytest.raises(Refused) as caught:
        house.engine.change(job, priority=HIGH, run_at_us=house.at(5))
    assert caught.value.reason == reason
    assert str(caught.value) == text


# --- the store ---


def test_the_peer_that_asks_waits_for_the_store(house: House) -> None:
    job = house.submit()
    house.engine.is_durable = True
    speaker = Peer()
    house.engine.speaker = speaker
    house.engine.change(job, priority=HIGH)
    assert speaker.unstored_batch == house.engine.batch


def test_an_unstored_job_that_was_changed_is_not_withdrawn(house: House) -> None:
    job = house.submit()
    house.engine.change(job, priority=HIGH)
    assert not house.engine.withdraw(job)
    assert state_of(job) is READY


def test_the_next_job_is_pushed_when_one_that_is_being_read_goes_behind_it(house: House) -> None:
    slow, quick = house.submit(priority=HIGH), house.submit()
    slow.payload = None  # it is in the store alone
    worker = house.worker()
    house.engine.grant(worker, 1)
    assert house.engine.take_wanted_payloads() == [slow]
    house.engine.change(slow, priority=LOW)
    assert list(worker.running.values()) == [quick]
