"""Runs that were begun under another engine go on under the one that takes their functions over."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import Engine
from switchgear.engine.handover import HandedOver
from switchgear.model import CANCELLED, DONE, FAILED, NORMAL, READY, RUNNING, SECOND_US, Delivery, Job, Worker
from switchgear.policy import Policy
from switchgear.testing import RecordingPeer, check_engine
from switchgear.testing.simulation.store import Row
from tests.engine.harness import Harness, state_of

CLAIMABLE_US = SECOND_US
FIVE = Policy(concurrency=5)


def adopted(harness: Harness, *jobs: Job, policy: Policy | None = None) -> tuple[Harness, list[Job]]:
    """Another engine that has taken over from the first one, which is gone."""
    again = Harness(clock=harness.clock)
    copies = [Row(job).to_job(again.function(job.function.name)) for job in jobs]
    if policy is not None:
        for function in {job.function for job in copies}:
            again.engine.set_policy(function, policy)
    steps = again.engine.restore_in_portions(copies, {}, harness.engine.next_job_id, claimable_us=CLAIMABLE_US)
    portion = None
    while True:
        try:
            steps.send(portion)
        except StopIteration:
            break
    check_engine(again.engine)
    return again, copies


def claimed(
    harness: Harness, job: Job, *, worker: Worker | None = None, attempt: int = 1, start: int = 1
) -> Job | None:
    found = harness.engine.resume_attempt(worker or harness.worker(job.function.name), job.id, attempt, start)
    check_engine(harness.engine)
    return found


def pass_seconds(harness: Harness, seconds: float) -> None:
    harness.pass_seconds(seconds)
    check_engine(harness.engine)


def test_a_claimed_run_goes_on_as_the_same_start_of_the_same_attempt(harness: Harness) -> None:
    _, job = harness.running()
    again, (copy,) = adopted(harness, job)
    assert state_of(copy) == RUNNING
    moves = list(copy.moves or ())
    worker = again.worker()
    assert claimed(again, copy, worker=worker) is copy
    assert (copy.attempts, copy.start_number, copy.moves) == (1, 1, moves)
    pass_seconds(again, 2)
    assert (state_of(copy), copy.worker) == (RUNNING, worker)
    assert again.engine.complete(worker, copy.id, b"r", copy.start_number) is copy
    assert state_of(copy) == DONE
    check_engine(again.engine)


def test_an_unclaimed_run_is_requeued_when_the_time_is_over(harness: Harness) -> None:
    _, job = harness.running()
    again, (copy,) = adopted(harness, job)
    pass_seconds(again, 0.9)
    assert again.engine.take(again.worker()) is None
    pass_seconds(again, 0.2)
    assert (state_of(copy), copy.function.running) == (READY, 0)
    assert claimed(again, copy) is copy  # nobody was faster
    assert copy.attempts == 1


def test_the_time_for_claims_begins_when_everything_is_restored(harness: Harness) -> None:
    """A million queued jobs take longer than runs can wait, and until then no other node is asked."""
    _, job = harness.running()
    again = Harness(clock=harness.clock)
    copy = Row(job).to_job(again.function(job.function.name))
    steps = again.engine.restore_in_portions([copy], {}, harness.engine.next_job_id, claimable_us=CLAIMABLE_US)
    while not next(steps):
        pass  # until plain jobs can come
    row = (copy.id + 1, copy.function, NORMAL, Delivery.HANDLE, copy.created_us, b"")
    steps.send([row])
    assert state_of(copy) == RUNNING
    again.pass_seconds(5)
    assert state_of(copy) == RUNNING
    for _ in steps:
        pass
    pass_seconds(again, 0.9)
    assert claimed(again, copy) is copy
    pass_seconds(again, 0.2)
    assert state_of(copy) == RUNNING


def test_without_memory_for_a_timer_nobody_is_waited_for(harness: Harness) -> None:
    _, job = harness.running()
    again = Harness(clock=harness.clock)
    copy = Row(job).to_job(again.function(job.function.name))
    memory = again.engine.memory
    memory.limit_bytes = 1_000
    memory.registration_bytes += memory.registration_limit_bytes
    for _ in again.engine.restore_in_portions([copy], {}, 0, claimable_us=CLAIMABLE_US):
        pass
    assert state_of(copy) == READY
    assert again.engine.take(again.worker()) is copy


def test_a_run_that_another_worker_has_by_now_is_not_claimed(harness: Harness) -> None:
    _, job = harness.running()
    again, (copy,) = adopted(harness, job)
    pass_seconds(again, 1.1)
    other = again.worker()
    assert again.engine.take(other) is copy
    assert claimed(again, copy) is None
    assert copy.worker is other


def test_a_run_is_claimed_once(harness: Harness) -> None:
    _, job = harness.running()
    again, (copy,) = adopted(harness, job)
    first = again.worker()
    assert claimed(again, copy, worker=first) is copy
    assert claimed(again, copy) is None
    assert copy.worker is first


def test_the_last_attempt_is_not_over_while_its_worker_may_be_alive(harness: Harness) -> None:
    _, job = harness.running(crash_limit=1)
    again, (copy,) = adopted(harness, job)
    worker = again.worker()
    assert claimed(again, copy, worker=worker) is copy
    assert again.engine.complete(worker, copy.id, b"") is copy
    _, job = harness.running(crash_limit=1)
    again, (copy,) = adopted(harness, job)
    pass_seconds(again, 1.1)
    assert state_of(copy) == FAILED


def test_an_earlier_attempt_or_start_claims_nothing(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.release(worker, job.id)
    assert harness.engine.take(worker) is job
    harness.engine.remove_worker(worker)
    assert harness.engine.take(harness.worker()) is job
    again, (copy,) = adopted(harness, job)
    assert (copy.attempts, copy.start_number) == (2, 3)
    assert claimed(again, copy, attempt=1, start=3) is None
    assert claimed(again, copy, attempt=2, start=2) is None
    assert claimed(again, copy, attempt=2, start=3) is copy


@pytest.mark.parametrize("key", [b"", b"k"])
def test_limits_count_runs_before_and_after_they_are_claimed(harness: Harness, key: bytes) -> None:
    policy = Policy(key_concurrency=5) if key else FIVE
    harness.engine.set_policy(harness.function(), policy)
    jobs = [harness.submit(key=key) for _ in range(8)]
    workers = [harness.worker() for _ in range(5)]
    for worker in workers:
        assert harness.engine.take(worker) is not None
    again, copies = adopted(harness, *jobs, policy=policy)
    idle = again.worker()
    assert again.engine.take(idle) is None
    claimers = [again.worker() for _ in range(2)]
    for worker, copy in zip(claimers, copies, strict=False):
        assert claimed(again, copy, worker=worker) is copy
        assert again.engine.take(idle) is None
    pass_seconds(again, 1.1)  # three are requeued, and five may run
    taken = [again.engine.take(again.worker()) for _ in range(4)]
    assert [job is not None for job in taken] == [True, True, True, False]
    assert again.engine.complete(claimers[0], copies[0].id, b"") is copies[0]
    assert again.engine.take(idle) is not None
    check_engine(again.engine)


def test_the_limit_of_a_run_counts_from_its_start(harness: Harness) -> None:
    _, job = harness.running(timeout_us=10 * SECOND_US)
    harness.clock.advance(4)
    again, (copy,) = adopted(harness, job)
    again.engine.advance(again.now_us)
    assert claimed(again, copy) is copy
    pass_seconds(again, 5.9)
    assert state_of(copy) == RUNNING
    pass_seconds(again, 0.2)
    assert state_of(copy) == READY


def test_a_job_that_is_cancelled_meanwhile_is_not_claimed(harness: Harness) -> None:
    _, job = harness.running()
    again, (copy,) = adopted(harness, job)
    again.engine.cancel(copy)
    check_engine(again.engine)
    assert claimed(again, copy) is None
    pass_seconds(again, 1.1)


def test_a_function_may_go_on_to_a_third_engine_meanwhile(harness: Harness) -> None:
    _, job = harness.running()
    again, (copy,) = adopted(harness, job)
    for _ in again.engine.hand_over([copy.function], HandedOver()):
        check_engine(again.engine)
    pass_seconds(again, 1.1)
    assert not again.engine.functions


def run_of(engine: Engine, function: bytes = b"mail") -> Job:
    return Job(1_000, engine.function_named(function), b"", b"", 1, Delivery.WAIT, engine.now_us)


def test_a_run_whose_submitter_waits_is_entered_and_found_by_the_repeated_submission(harness: Harness) -> None:
    harness.engine.set_policy(harness.function(), Policy(concurrency=1))
    worker, job = harness.worker(), run_of(harness.engine)
    harness.engine.adopted_runs.enter(job, worker)
    check_engine(harness.engine)
    harness.submit()
    assert harness.engine.take(harness.worker()) is None
    peer = RecordingPeer()
    harness.engine.subscribe(job, peer)
    assert harness.engine.complete(worker, job.id, b"r") is job
    check_engine(harness.engine)
    assert [heard[0] for heard in peer.heard] == ["finished"]
    assert harness.engine.take(harness.worker()) is not None


def test_a_copy_is_taken_out_without_a_word_to_its_worker(harness: Harness) -> None:
    peer = RecordingPeer()
    worker, job = harness.worker(peer=peer), run_of(harness.engine)
    subscriber = RecordingPeer()
    harness.engine.borrow(job, subscriber)
    assert harness.engine.take(worker) is job
    assert harness.engine.adopted_runs.take_out(job) is worker
    check_engine(harness.engine)
    assert not harness.engine.has_job(job.id)
    assert (peer.heard, subscriber.heard) == ([], [])
    harness.engine.adopted_runs.end_aside(job, worker)
    assert worker.running == {}
    assert harness.engine.complete(worker, job.id, b"") is None


@pytest.mark.parametrize("report", ["complete", "fail", "release"])
def test_what_a_worker_reports_before_the_job_is_restored_is_passed_on(harness: Harness, report: str) -> None:
    subscriber = RecordingPeer()
    worker, job = harness.worker(), run_of(harness.engine)
    harness.engine.borrow(job, subscriber)
    assert harness.engine.take(worker) is job
    assert harness.engine.adopted_runs.take_out(job) is worker
    restored = run_of(harness.engine)
    harness.engine.adopted_runs.enter(restored, harness.worker())
    harness.engine.data(worker, job.id, b"part")
    harness.engine.warning(worker, job.id, b"look")
    if report == "complete":
        assert harness.engine.complete(worker, job.id, b"r") is job
        assert (state_of(job), job.result) == (DONE, b"r")
    elif report == "fail":
        assert harness.engine.fail(worker, job.id, 7, b"e", b"r") is job
        assert (state_of(job), job.result_code, job.error, job.result) == (FAILED, 7, b"e", b"r")
    else:
        assert harness.engine.release(worker, job.id) is job
        assert state_of(job) == CANCELLED
    assert [heard[0] for heard in subscriber.heard] == ["data", "warning", "finished"]
    assert worker.running == {}
    assert state_of(restored) == RUNNING
    harness.engine.adopted_runs.end_aside(job, worker)
    check_engine(harness.engine)


def test_a_worker_goes_on_with_a_job_of_a_function_that_it_does_not_serve_any_more(harness: Harness) -> None:
    worker, job = harness.worker(), run_of(harness.engine)
    worker.has_timeouts = True
    harness.engine.forget_functions(worker)
    subscriber = RecordingPeer()
    harness.engine.adopted_runs.enter_copy(job, worker, subscriber)
    check_engine(harness.engine)
    assert harness.engine.complete(worker, job.id, b"r") is job
    assert [heard[0] for heard in subscriber.heard] == ["finished"]
