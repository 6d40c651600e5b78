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
from tests.engine.harness import Harness, causes, ids, state_of


def changes(harness: Harness) -> list[Job]:
    return harness.engine.take_changes()[0]


# --- changes ---


def test_every_move_of_a_durable_job_has_to_be_kept(harness: Harness) -> None:
    first = harness.submit(b"other")
    job = harness.submit(after=(first,), run_at_us=harness.at(1))
    assert changes(harness) == [first, job]
    harness.engine.complete_unowned(first)
    assert sorted(ids(*changes(harness))) == ids(first, job)
    harness.pass_seconds(1)
    assert changes(harness) == [job]
    worker = harness.worker()
    harness.engine.take(worker)
    assert changes(harness) == [job]
    harness.engine.release(worker, job.id)
    assert changes(harness) == [job]
    harness.engine.take(worker)
    harness.engine.retry_later(worker, job.id, 0)
    assert changes(harness) == [job]  # each once, however often it moved
    assert changes(harness) == []


def test_what_a_worker_says_on_the_way_need_not_be_kept(harness: Harness) -> None:
    worker, job = harness.running()
    changes(harness)
    harness.engine.progress(worker, job.id, 1, 2)
    harness.engine.data(worker, job.id, b"part")
    assert changes(harness) == []


def test_of_a_job_that_somebody_waits_for_only_the_end_is_kept(harness: Harness) -> None:
    worker, job = harness.running(delivery=Delivery.WAIT, watcher=RecordingPeer())
    assert changes(harness) == []
    harness.engine.complete(worker, job.id, b"")
    assert changes(harness) == [job]


def test_without_a_store_that_keeps_only_ends_are_reported() -> None:
    harness = Harness(keeps=False)
    worker, job = harness.running()
    assert changes(harness) == []
    harness.engine.complete(worker, job.id, b"")
    assert changes(harness) == [job]
    assert changes(harness) == []


# --- what could not be kept ---


@pytest.mark.parametrize("state", [WAITING, SCHEDULED, READY])
def test_a_submission_can_be_undone_as_if_it_had_never_been_made(harness: Harness, state: JobState) -> None:
    after = (harness.submit(b"other"),) if state is WAITING else ()
    run_at_us = harness.at(5) if state is SCHEDULED else 0
    submission = {"unique": b"k", "name": b"Anna", "after": after, "run_at_us": run_at_us, "expires_us": harness.at(9)}
    job = harness.submit(**submission)  # type: ignore[arg-type]
    assert harness.engine.withdraw(job)
    assert job.withdrawn
    assert job not in changes(harness)
    assert (harness.function().total, harness.function().submitted, harness.function().ready) == (0, 0, 0)
    harness.engine.complete_unowned(after[0]) if after else harness.pass_seconds(10)
    assert harness.engine.take(harness.worker()) is None
    assert harness.submit(**submission) is not job  # type: ignore[arg-type]
    assert not harness.engine.withdraw(job)


def test_a_job_that_a_worker_has_cannot_be_undone(harness: Harness) -> None:
    _, job = harness.running()
    assert not harness.engine.withdraw(job)
    assert state_of(job) is RUNNING


def test_a_job_that_was_kept_cannot_be_undone(harness: Harness) -> None:
    job = harness.submit()
    job.kept = True
    assert not harness.engine.withdraw(job)


def test_a_job_that_has_replaced_another_cannot_be_undone(harness: Harness) -> None:
    old = harness.submit(unique=b"k")
    new = harness.submit(unique=b"k", unique_policy=UniquePolicy.REPLACE)
    assert not harness.engine.withdraw(new)
    assert (state_of(old), state_of(new)) == (CANCELLED, READY)


def test_a_job_that_was_retried_before_the_store_heard_of_it_cannot_be_undone(harness: Harness) -> None:
    job = harness.ended(CANCELLED)
    harness.engine.retry(job)
    assert not harness.engine.withdraw(job)


def test_a_job_that_ended_cannot_be_undone(harness: Harness) -> None:
    assert not harness.engine.withdraw(harness.ended(CANCELLED))


def test_a_job_that_somebody_waits_for_cannot_be_undone(harness: Harness) -> None:
    client = RecordingPeer()
    job = harness.submit(unique=b"k", delivery=Delivery.WAIT, watcher=client)
    harness.submit(unique=b"k")  # the submission that could not be kept
    assert not harness.engine.withdraw(job)
    harness.drain_with(harness.worker())
    assert client.words() == ["finished"]


def test_of_jobs_that_wait_for_each_other_the_newest_is_undone_first(harness: Harness) -> None:
    first = harness.submit()
    second = harness.submit(after=(first,))
    assert not harness.engine.withdraw(first)
    assert harness.engine.withdraw(second)
    assert harness.engine.withdraw(first)


def test_while_the_store_fails_nothing_is_taken(harness: Harness) -> None:
    harness.engine.refusal = Refused(REFUSED_STORAGE, "storage failed: disk full")
    with pytest.raises(Refused, match="disk full") as refused:
        harness.submit()
    assert refused.value.reason == REFUSED_STORAGE


# --- after a restart ---


def restarted(
    harness: Harness, *jobs: Job, unsuccessful: dict[int, JobState] | None = None, seconds: float = 0
) -> Harness:
    """A new engine that goes on with these jobs, as a store would give them back; the first one is gone."""
    harness.clock.advance(seconds)
    successor = Harness(clock=harness.clock)
    copies = [copy_of(job, successor) for job in jobs]
    successor.engine.restore(copies, unsuccessful or {}, harness.engine.next_job_id)
    check_engine(successor.engine)
    return successor


def copy_of(job: Job, harness: Harness) -> Job:
    copy = Job(
        job.id,
        harness.function(job.function.name),
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


def test_ready_jobs_come_in_the_order_of_their_ids(harness: Harness) -> None:
    jobs = [harness.submit(priority=priority, unique=b"%d" % priority) for priority in (2, 1, 0)]
    again = restarted(harness, *jobs)
    assert again.function().uniques.keys() == {b"0", b"1", b"2"}
    assert again.drain_with(again.worker()) == ids(*reversed(jobs))


def test_new_ids_do_not_repeat_old_ones(harness: Harness) -> None:
    old = harness.submit()
    assert restarted(harness).submit().id > old.id


def test_a_job_that_was_running_is_run_again(harness: Harness) -> None:
    _, job = harness.running()
    again = restarted(harness, job, seconds=3)
    copy = again.engine.jobs[job.id]
    assert (copy.state, copy.attempts) == (READY, 1)
    assert copy.log[-1] == (Cause.SERVER_LOST, again.now_us)
    assert changes(again) == [copy]
    assert again.observer.heard[-1] == ("requeued", job.id, Cause.SERVER_LOST)


def test_a_job_whose_last_attempt_was_running_is_dead(harness: Harness) -> None:
    _, job = harness.running()
    job.attempts = 3
    again = restarted(harness, job)
    (dead,) = changes(again)
    assert dead.is_dead
    assert dead.error == b"server stopped in attempt 3, the last one"
    assert again.engine.dependencies.unsuccessful == {job.id: FAILED}


def test_scheduled_jobs_wait_on_for_their_time(harness: Harness) -> None:
    soon, late = harness.submit(run_at_us=harness.at(5)), harness.submit(run_at_us=harness.at(60))
    again = restarted(harness, soon, late, seconds=10)
    assert [again.engine.jobs[job.id].state for job in (soon, late)] == [READY, SCHEDULED]
    again.pass_seconds(50)
    assert again.drain_with(again.worker()) == ids(soon, late)


def test_what_expired_meanwhile_is_not_run(harness: Harness) -> None:
    ready = harness.submit(expires_us=harness.at(5))
    _, running = harness.running(b"other", expires_us=harness.at(5))
    again = restarted(harness, ready, running, seconds=10)
    assert not again.engine.jobs
    assert [job.state for job in changes(again)] == [EXPIRED, EXPIRED]


def test_waiting_jobs_wait_on_for_what_is_not_done(harness: Harness) -> None:
    failed, unfinished = harness.ended(FAILED), harness.submit()
    waits, waits_in_vain = harness.submit(after=(unfinished,)), harness.submit(after=(failed,))
    again = restarted(harness, unfinished, waits, waits_in_vain, unsuccessful={failed.id: FAILED})
    assert again.drain_with(again.worker()) == ids(unfinished, waits)
    assert again.engine.jobs[waits_in_vain.id].state is WAITING


def test_a_waiting_job_whose_predecessor_is_known_to_nobody_goes_on(harness: Harness) -> None:
    first = harness.submit()
    job = harness.submit(after=(first,))
    again = restarted(harness, job)  # the first was done, and forgotten
    assert causes(again.engine.jobs[job.id])[-1] is Cause.RELEASED


def test_a_job_that_waits_for_a_later_one_is_restored_too(harness: Harness) -> None:
    early, late = harness.submit(), harness.submit()
    harness.engine.add_predecessors(early, (late.id,))
    again = restarted(harness, early, late)
    assert again.drain_with(again.worker()) == ids(late, early)


def test_one_that_waits_for_a_job_that_dies_in_the_restart_stays_waiting(harness: Harness) -> None:
    _, last_try = harness.running(timeout_us=SECOND_US)
    last_try.attempts = 3
    job = harness.submit(after=(last_try,))
    again = restarted(harness, last_try, job)
    assert again.engine.jobs[job.id].state is WAITING


def test_a_failed_job_from_the_store_is_retried_and_releases_those_that_wait(harness: Harness) -> None:
    failed = harness.ended(FAILED)
    job = harness.submit(after=(failed,))
    again = restarted(harness, job, unsuccessful={failed.id: FAILED})
    again.engine.retry(copy_of(failed, again))
    assert again.drain_with(again.worker()) == ids(failed, job)
    assert [change.state for change in changes(again)] == [DONE, DONE]


@pytest.mark.parametrize("expired_first", [True, False])
def test_the_end_of_an_abandoned_job_is_kept_if_others_have_waited_for_it(
    harness: Harness, expired_first: bool
) -> None:
    """One of them may become durable later, as here by a retry; a restart would then take the end for a success."""
    client, other = RecordingPeer(), RecordingPeer()
    first = harness.submit(delivery=Delivery.WAIT, watcher=client)
    second = harness.submit(after=(first,), delivery=Delivery.WAIT, watcher=other, expires_us=harness.at(1))
    if expired_first:
        harness.pass_seconds(2)
    harness.engine.unsubscribe(client)
    harness.pass_seconds(2)
    assert (first.state, second.state) == (CANCELLED, EXPIRED)
    harness.engine.retry(second)
    assert second.state is WAITING
    assert first in changes(harness)
    assert first.durable


def test_a_job_that_has_just_expired_relies_on_what_it_was_told_to_wait_for(harness: Harness) -> None:
    client = RecordingPeer()
    first = harness.submit(b"other", delivery=Delivery.WAIT, watcher=client)
    late = harness.submit(expires_us=harness.at(-1))
    harness.engine.add_predecessors(late, (first.id,))
    assert late.state is EXPIRED
    assert first.durable, "the late one may be retried"


def test_an_abandoned_job_that_nobody_waits_for_leaves_nothing(harness: Harness) -> None:
    client = RecordingPeer()
    job = harness.submit(delivery=Delivery.WAIT, watcher=client)
    harness.engine.unsubscribe(client)
    assert job.state is CANCELLED
    assert changes(harness) == []
