"""What has to be kept, what is undone if it cannot be, and how an engine goes on after a restart."""

from __future__ import annotations

import pytest

from switchgear.errors import Refused
from switchgear.model import (
    CANCELLED,
    DONE,
    EXPIRED,
    FAILED,
    READY,
    RUNNING,
    SCHEDULED,
    SECOND_US,
    WAITING,
    Cause,
    Delivery,
    Job,
    JobState,
    UniquePolicy,
)
from switchgear.refusals import REFUSED_STORAGE
from switchgear.testing import RecordingPeer, check_engine
from tests.engine.house import House, causes, ids, state_of


def changes(house: House) -> list[Job]:
    return house.engine.take_changes()[0]


# --- changes ---


def test_every_move_of_a_durable_job_has_to_be_kept(house: House) -> None:
    first = house.submit(b"other")
    job = house.submit(after=(first,), run_at_us=house.at(1))
    assert changes(house) == [first, job]
    house.engine.complete_unowned(first)
    assert sorted(ids(*changes(house))) == ids(first, job)
    house.pass_seconds(1)
    assert changes(house) == [job]
    worker = house.worker()
    house.engine.take(worker)
    assert changes(house) == [job]
    house.engine.release(worker, job.id)
    assert changes(house) == [job]
    house.engine.take(worker)
    house.engine.retry_later(worker, job.id, 0)
    assert changes(house) == [job]  # each once, however often it moved
    assert changes(house) == []


def test_what_a_worker_says_on_the_way_need_not_be_kept(house: House) -> None:
    worker, job = house.running()
    changes(house)
    house.engine.progress(worker, job.id, 1, 2)
    house.engine.data(worker, job.id, b"part")
    assert changes(house) == []


def test_of_a_job_that_somebody_waits_for_only_the_end_is_kept(house: House) -> None:
    worker, job = house.running(delivery=Delivery.WAIT, watcher=RecordingPeer())
    assert changes(house) == []
    house.engine.complete(worker, job.id, b"")
    assert changes(house) == [job]


def test_without_a_store_that_keeps_only_ends_are_reported() -> None:
    house = House(keeps=False)
    worker, job = house.running()
    assert changes(house) == []
    house.engine.complete(worker, job.id, b"")
    assert changes(house) == [job]
    assert changes(house) == []


# --- what could not be kept ---


@pytest.mark.parametrize("state", [WAITING, SCHEDULED, READY])
def test_a_submission_can_be_undone_as_if_it_had_never_been_made(house: House, state: JobState) -> None:
    after = (house.submit(b"other"),) if state is WAITING else ()
    run_at_us = house.at(5) if state is SCHEDULED else 0
    submission = {"unique": b"k", "name": b"Anna", "after": after, "run_at_us": run_at_us, "expires_us": house.at(9)}
    job = house.submit(**submission)  # type: ignore[arg-type]
    assert house.engine.withdraw(job)
    assert job.withdrawn
    assert job not in changes(house)
    assert (house.function().total, house.function().submitted, house.function().ready) == (0, 0, 0)
    house.engine.complete_unowned(after[0]) if after else house.pass_seconds(10)
    assert house.engine.take(house.worker()) is None
    assert house.submit(**submission) is not job  # type: ignore[arg-type]
    assert not house.engine.withdraw(job)


def test_a_job_that_a_worker_has_cannot_be_undone(house: House) -> None:
    _, job = house.running()
    assert not house.engine.withdraw(job)
    assert state_of(job) is RUNNING


def test_a_job_that_was_kept_cannot_be_undone(house: House) -> None:
    job = house.submit()
    job.kept = True
    assert not house.engine.withdraw(job)


def test_a_job_that_has_replaced_another_cannot_be_undone(house: House) -> None:
    old = house.submit(unique=b"k")
    new = house.submit(unique=b"k", unique_policy=UniquePolicy.REPLACE)
    assert not house.engine.withdraw(new)
    assert (state_of(old), state_of(new)) == (CANCELLED, READY)


def test_a_job_that_was_retried_before_the_store_heard_of_it_cannot_be_undone(house: House) -> None:
    job = house.ended(CANCELLED)
    house.engine.retry(job)
    assert not house.engine.withdraw(job)


def test_a_job_that_ended_cannot_be_undone(house: House) -> None:
    assert not house.engine.withdraw(house.ended(CANCELLED))


def test_a_job_that_somebody_waits_for_cannot_be_undone(house: House) -> None:
    client = RecordingPeer()
    job = house.submit(unique=b"k", delivery=Delivery.WAIT, watcher=client)
    house.submit(unique=b"k")  # the submission that could not be kept
    assert not house.engine.withdraw(job)
    house.drain_with(house.worker())
    assert client.words() == ["finished"]


def test_of_jobs_that_wait_for_each_other_the_newest_is_undone_first(house: House) -> None:
    first = house.submit()
    second = house.submit(after=(first,))
    assert not house.engine.withdraw(first)
    assert house.engine.withdraw(second)
    assert house.engine.withdraw(first)


def test_while_the_store_fails_nothing_is_taken(house: House) -> None:
    house.engine.refusal = Refused(REFUSED_STORAGE, "storage failed: disk full")
    with pytest.raises(Refused, match="disk full") as refused:
        house.submit()
    assert refused.value.reason == REFUSED_STORAGE


# --- after a restart ---


def restarted(house: House, *jobs: Job, unsuccessful: dict[int, JobState] | None = None, seconds: float = 0) -> House:
    """A new engine that goes on with these jobs, as a store would give them back; the first one is gone."""
    house.clock.advance(seconds)
    successor = House(clock=house.clock)
    copies = [copy_of(job, successor) for job in jobs]
    successor.engine.restore(copies, unsuccessful or {}, house.engine.next_job_id)
    check_engine(successor.engine)
    return successor


def copy_of(job: Job, house: House) -> Job:
    copy = Job(
        job.id,
        house.function(job.function.name),
        job.unique,
        job.payload,
        job.priority,
        job.delivery,
        job.created_us,
    )
    for field in ("state", "name", "run_at_us", "expires_us", "timeout_us", "attempts", "predecessors"):
        setattr(copy, field, getattr(job, field))
    copy.moves = None if job.moves is None else list(job.moves)
    copy.kept = True
    return copy


def test_ready_jobs_come_in_the_order_of_their_ids(house: House) -> None:
    jobs = [house.submit(priority=priority, unique=b"%d" % priority) for priority in (2, 1, 0)]
    again = restarted(house, *jobs)
    assert again.function().uniques.keys() == {b"0", b"1", b"2"}
    assert again.drain_with(again.worker()) == ids(*reversed(jobs))


def test_new_ids_do_not_repeat_old_ones(house: House) -> None:
    old = house.submit()
    assert restarted(house).submit().id > old.id


def test_a_job_that_was_running_is_run_again(house: House) -> None:
    _, job = house.running()
    again = restarted(house, job, seconds=3)
    copy = again.engine.jobs[job.id]
    assert (copy.state, copy.attempts) == (READY, 1)
    assert copy.log[-1] == (Cause.SERVER_LOST, again.now_us)
    assert changes(again) == [copy]
    assert again.observer.heard[-1] == ("requeued", job.id, Cause.SERVER_LOST)


def test_a_job_whose_last_attempt_was_running_is_dead(house: House) -> None:
    _, job = house.running()
    job.attempts = 3
    again = restarted(house, job)
    (dead,) = changes(again)
    assert dead.is_dead
    assert dead.error == b"server stopped in attempt 3, the last one"
    assert again.engine.dependencies.unsuccessful == {job.id: FAILED}


def test_scheduled_jobs_wait_on_for_their_time(house: House) -> None:
    soon, late = house.submit(run_at_us=house.at(5)), house.submit(run_at_us=house.at(60))
    again = restarted(house, soon, late, seconds=10)
    assert [again.engine.jobs[job.id].state for job in (soon, late)] == [READY, SCHEDULED]
    again.pass_seconds(50)
    assert again.drain_with(again.worker()) == ids(soon, late)


def test_what_expired_meanwhile_is_not_run(house: House) -> None:
    ready = house.submit(expires_us=house.at(5))
    _, running = house.running(b"other", expires_us=house.at(5))
    again = restarted(house, ready, running, seconds=10)
    assert not again.engine.jobs
    assert [job.state for job in changes(again)] == [EXPIRED, EXPIRED]


def test_waiting_jobs_wait_on_for_what_is_not_done(house: House) -> None:
    failed, unfinished = house.ended(FAILED), house.submit()
    waits, waits_in_vain = house.submit(after=(unfinished,)), house.submit(after=(failed,))
    again = restarted(house, unfinished, waits, waits_in_vain, unsuccessful={failed.id: FAILED})
    assert again.drain_with(again.worker()) == ids(unfinished, waits)
    assert again.engine.jobs[waits_in_vain.id].state is WAITING


def test_a_waiting_job_whose_predecessor_is_known_to_nobody_goes_on(house: House) -> None:
    first = house.submit()
    job = house.submit(after=(first,))
    again = restarted(house, job)  # the first was done, and forgotten
    assert causes(again.engine.jobs[job.id])[-1] is Cause.RELEASED


def test_a_job_that_waits_for_a_later_one_is_restored_too(house: House) -> None:
    early, late = house.submit(), house.submit()
    house.engine.add_predecessors(early, (late.id,))
    again = restarted(house, early, late)
    assert again.drain_with(again.worker()) == ids(late, early)


def test_one_that_waits_for_a_job_that_dies_in_the_restart_stays_waiting(house: House) -> None:
    _, last_try = house.running(timeout_us=SECOND_US)
    last_try.attempts = 3
    job = house.submit(after=(last_try,))
    again = restarted(house, last_try, job)
    assert again.engine.jobs[job.id].state is WAITING


def test_a_failed_job_from_the_store_is_retried_and_releases_those_that_wait(house: House) -> None:
    failed = house.ended(FAILED)
    job = house.submit(after=(failed,))
    again = restarted(house, job, unsuccessful={failed.id: FAILED})
    again.engine.retry(copy_of(failed, again))
    assert again.drain_with(again.worker()) == ids(failed, job)
    assert [change.state for change in changes(again)] == [DONE, DONE]


@pytest.mark.parametrize("expired_first", [True, False])
def test_the_end_of_an_abandoned_job_is_kept_if_others_have_waited_for_it(house: House, expired_first: bool) -> None:
    """One of them may become durable later, as here by a retry; a restart would then take the end for a success."""
    client, other = RecordingPeer(), RecordingPeer()
    first = house.submit(delivery=Delivery.WAIT, watcher=client)
    second = house.submit(after=(first,), delivery=Delivery.WAIT, watcher=other, expires_us=house.at(1))
    if expired_first:
        house.pass_seconds(2)
    house.engine.unsubscribe(client)
    house.pass_seconds(2)
    assert (first.state, second.state) == (CANCELLED, EXPIRED)
    house.engine.retry(second)
    assert second.state is WAITING
    assert first in changes(house)
    assert first.durable


def test_a_job_that_has_just_expired_relies_on_what_it_was_told_to_wait_for(house: House) -> None:
    client = RecordingPeer()
    first = house.submit(b"other", delivery=Delivery.WAIT, watcher=client)
    late = house.submit(expires_us=house.at(-1))
    house.engine.add_predecessors(late, (first.id,))
    assert late.state is EXPIRED
    assert first.durable, "the late one may be retried"


def test_an_abandoned_job_that_nobody_waits_for_leaves_nothing(house: House) -> None:
    client = RecordingPeer()
    job = house.submit(delivery=Delivery.WAIT, watcher=client)
    house.engine.unsubscribe(client)
    assert job.state is CANCELLED
    assert changes(house) == []
