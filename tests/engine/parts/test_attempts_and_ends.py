"""`Attempts`, `UniqueKeys`, `Dependencies`, `Transitions` and `JobSubscriptions`: how jobs run, wait and end."""

from __future__ import annotations

import pytest

from switchgear.engine.deadlines import DeadlineKind
from switchgear.engine.predecessor_error import RootCause, error_told, predecessor_error
from switchgear.errors import CycleRefused
from switchgear.model import CANCELLED, DONE, FAILED, READY, RUNNING, WAITING, Cause, Delivery, Job, Worker
from switchgear.testing import RecordingPeer
from tests.engine.harness import state_of
from tests.engine.parts.parts import Parts, heard


def started(parts: Parts, timeout_us: int = 0) -> tuple[Job, Worker]:
    job, worker = parts.job(), parts.worker(timeout_us=timeout_us)
    parts.attempts.start(job, worker)
    return job, worker


# --- Attempts ---


def test_a_start_counts_an_attempt_and_its_time_limit() -> None:
    parts = Parts()
    job, worker = started(parts, timeout_us=500)
    assert (job.state, job.attempts, job.worker, parts.function().running) == (RUNNING, 1, worker, 1)
    assert parts.due(500) == [(DeadlineKind.RUN_LIMIT, job)]
    assert parts.attempts.limit_reached(job, parts.state.now_us + 500)


def test_a_limit_that_was_renewed_is_not_reached() -> None:
    parts = Parts()
    job, worker = started(parts, timeout_us=500)
    parts.state.now_us += 300
    parts.attempts.renew(job, worker, 0)
    assert not parts.attempts.limit_reached(job, parts.state.now_us + 200)
    assert parts.attempts.limit_reached(job, parts.state.now_us + 500)


def test_a_job_that_is_detached_is_nobodys() -> None:
    parts = Parts()
    job, worker = started(parts, timeout_us=500)
    parts.attempts.detach(job)
    assert (job.worker, worker.running, parts.function().running, job.run_limit) == (None, {}, 0, 0)


def test_a_worker_is_told_of_a_job_that_is_taken_from_it() -> None:
    parts = Parts()
    job, worker = started(parts)
    parts.attempts.revoke(job, Cause.HELD_BACK)
    assert (heard(worker), worker.running) == ([("revoke", worker.id, job.id)], {})


def test_attempts_are_spent_by_losses() -> None:
    parts = Parts(attempts=2)
    job, _ = started(parts)
    assert not parts.attempts.are_spent(job)
    assert not parts.attempts.is_dead_after(job, Cause.WORKER_LOST)
    job.attempts = 2
    assert parts.attempts.are_spent(job)
    assert parts.attempts.is_dead_after(job, Cause.WORKER_LOST)
    assert job.error == b"worker lost in attempt 2, the last one"


def test_a_start_must_be_kept_if_a_limit_counts_it() -> None:
    assert Parts(attempts=3).attempts.start_must_be_kept(Parts().job())
    assert not Parts(attempts=0).attempts.start_must_be_kept(Parts().job())


# --- UniqueKeys ---


def test_a_key_is_freed_by_the_job_that_has_it() -> None:
    parts = Parts()
    job = parts.job(unique=b"k")
    assert parts.keys.owns(job)
    parts.keys.free(job)
    assert not parts.keys.owns(job)
    parts.keys.take_again(job)
    assert parts.keys.owns(job)


def test_a_job_whose_key_another_has_goes_on_without_one() -> None:
    parts = Parts()
    first = parts.job(unique=b"k")
    parts.keys.free(first)
    second = parts.job(unique=b"k")
    parts.keys.take_again(first)
    assert (first.unique, parts.keys.owns(second)) == (b"", True)


# --- Dependencies ---


def test_a_job_waits_until_all_are_done() -> None:
    parts = Parts()
    first, second, job = parts.job(), parts.job(), parts.job()
    job.predecessors = (first.id, second.id)
    parts.dependencies.wait_for(job, parts.dependencies.blockers_among(job.predecessors))
    assert (job.blockers, parts.function().waiting) == (2, 1)
    assert parts.dependencies.waiting_for(first.id) == [job]
    assert parts.dependencies.unblock_successors(first.id) == []
    assert parts.dependencies.unblock_successors(second.id) == [job]
    assert (len(parts.dependencies.successors), parts.function().waiting) == (0, 0)


def test_an_id_that_is_not_known_was_done_once() -> None:
    parts = Parts()
    assert parts.dependencies.blockers_among([4711]) == []


def test_very_many_successors_are_added_and_removed_one_by_one() -> None:
    parts = Parts()
    first = parts.job()
    jobs = [parts.job() for _ in range(100)]
    for job in jobs:
        job.predecessors = (first.id,)
        parts.dependencies.add(job, [first.id])
    assert parts.dependencies.successor_count(first.id) == 100
    for job in jobs:
        parts.dependencies.remove(job)
    assert not len(parts.dependencies.successors)


def test_a_cycle_is_named() -> None:
    parts = Parts()
    first, second = parts.job(), parts.job()
    second.predecessors = (first.id,)
    parts.dependencies.add(second, [first.id])
    with pytest.raises(CycleRefused, match=f"job {first.id} -> job {second.id} -> job {first.id}"):
        parts.dependencies.refuse_cycle(first, [second.id])


def test_the_text_of_a_failed_dependency_is_told_with_the_names_of_a_protocol() -> None:
    parts = Parts()
    job = parts.job()
    job.error = predecessor_error(RootCause(7, FAILED, b""))
    assert job.error == b"job 7, which it waited for, failed"
    assert error_told(job, "H:{}".format) == job.error  # which is not the reason why this job ended
    job.note_move(Cause.DOOMED, 0)
    assert error_told(job, "H:{}".format) == b"H:7, which it waited for, failed"


# --- Transitions ---


def test_the_end_of_a_job_lets_its_successors_go_on() -> None:
    parts = Parts()
    first, worker = started(parts)
    second = parts.job()
    second.has_details = True
    second.predecessors = (first.id,)
    second.state = WAITING
    second.moves = [Cause.SUBMITTED_WAITING, parts.state.now_us]
    parts.dependencies.wait_for(second, [first.id])
    parts.attempts.detach(first)
    parts.transitions.finish(first, Cause.SUCCEEDED)
    assert (state_of(first), state_of(second)) == (DONE, READY)
    assert parts.dispatcher.take(worker) is second


def test_a_lost_job_goes_back_to_its_queue_until_its_attempts_are_spent() -> None:
    parts = Parts(attempts=2)
    job, worker = started(parts)
    parts.attempts.detach(job)
    parts.transitions.requeue(job, Cause.WORKER_LOST)
    assert parts.dispatcher.take(worker) is job
    parts.attempts.detach(job)
    parts.transitions.requeue(job, Cause.WORKER_LOST)
    assert state_of(job) is FAILED
    assert parts.observer.heard[-1] == ("died", job.id)
    assert job.id not in parts.state.jobs


def test_a_running_job_that_is_ended_is_taken_from_its_worker() -> None:
    parts = Parts()
    job, worker = started(parts)
    parts.transitions.end(job, Cause.CANCELLED)
    assert (state_of(job), heard(worker)) == (CANCELLED, [("revoke", worker.id, job.id)])


# --- JobSubscriptions ---


def test_a_foreground_job_is_abandoned_with_its_last_subscriber() -> None:
    parts = Parts()
    job = parts.job(delivery=Delivery.WAIT)
    parts.dispatcher.enqueue(job)
    first, second = RecordingPeer(), RecordingPeer()
    parts.subscriptions.subscribe(job, first)
    parts.subscriptions.subscribe(job, second)
    parts.subscriptions.unsubscribe(first)
    assert state_of(job) is READY
    parts.subscriptions.unsubscribe_from(second, [job.id, 4711])
    assert (state_of(job), parts.state.memory.job_bytes) == (CANCELLED, 0)


def test_a_background_job_needs_no_subscribers() -> None:
    parts = Parts()
    job = parts.job()
    parts.dispatcher.enqueue(job)
    peer = RecordingPeer()
    parts.subscriptions.subscribe(job, peer)
    parts.subscriptions.unsubscribe(peer)
    assert (job.state, job.subscribers, peer.subscriptions) == (READY, None, {})
