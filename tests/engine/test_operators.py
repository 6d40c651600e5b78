"""What submitters and operators ask for: cancel, with all that wait or not, and retry."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.errors import Refused
from switchgear.model import (
    CANCELLED,
    DONE,
    EXPIRED,
    FAILED,
    READY,
    RUNNING,
    SECOND_US,
    WAITING,
    Cause,
    Delivery,
    JobState,
)
from switchgear.refusals import REFUSED_CONFLICT, REFUSED_DRAINING
from switchgear.testing import RecordingPeer
from tests.engine.harness import Harness, causes, ids, peer_of, state_of

MakeHarness = Callable[..., Harness]

# --- cancel ---


def test_a_queued_job_is_cancelled(harness: Harness) -> None:
    client = RecordingPeer()
    job = harness.submit(watcher=client, unique=b"k", name=b"Anna")
    assert harness.engine.cancel(job) == [job]
    assert state_of(job) is CANCELLED
    assert client.heard == [("finished", job.id, CANCELLED)]
    assert harness.engine.take(harness.worker()) is None
    assert dict(harness.engine.names.items()) == harness.function().uniques == {}
    assert harness.function().cancelled == 1


def test_a_running_job_is_cancelled_and_its_worker_told(harness: Harness) -> None:
    client = RecordingPeer()
    worker, job = harness.running(watcher=client, timeout_us=SECOND_US)
    assert harness.engine.cancel(job) == [job]
    assert peer_of(worker).heard == [("revoke", worker.id, job.id)]
    assert client.heard == [("finished", job.id, CANCELLED)]
    assert harness.function().running == 0
    harness.pass_seconds(5)
    assert causes(job)[-1] is Cause.CANCELLED


def test_a_finished_job_cannot_be_cancelled(harness: Harness) -> None:
    job = harness.ended(DONE)
    assert harness.engine.cancel(job) == []
    assert state_of(job) is DONE


def test_cancelling_twice_is_cancelling_once(harness: Harness) -> None:
    job = harness.submit()
    assert harness.engine.cancel(job) == [job]
    assert harness.engine.cancel(job) == []


def test_without_cascade_those_that_wait_go_on_waiting(harness: Harness) -> None:
    first = harness.submit()
    second = harness.submit(after=(first,))
    assert harness.engine.cancel(first) == [first]
    assert state_of(second) is WAITING


def test_a_cascade_ends_all_that_wait_directly_or_not(harness: Harness) -> None:
    first, outside = harness.submit(), harness.submit()
    left, right = harness.submit(after=(first,)), harness.submit(after=(first, outside))
    last = harness.submit(after=(left, right))
    clients = {job: RecordingPeer() for job in (first, left, right, last)}
    for job, client in clients.items():
        harness.engine.subscribe(job, client)
    ended = harness.engine.cancel(first, cascade=True)
    assert ended[0] is first
    assert sorted(ids(*ended)) == ids(first, left, right, last)
    for job, client in clients.items():
        assert client.heard == [("finished", job.id, CANCELLED)]
    assert harness.drain_with(harness.worker()) == [outside.id]


def test_a_cascade_from_a_failed_job_ends_those_it_left_waiting(harness: Harness) -> None:
    failed = harness.ended(FAILED)
    waiting = harness.submit(after=(failed,))
    assert harness.engine.cancel(failed, cascade=True) == [waiting]
    assert (failed.state, waiting.state) == (FAILED, CANCELLED)


def test_a_cascade_through_many_layers_ends_each_job_once(harness: Harness) -> None:
    layer = [harness.submit()]
    first = layer[0]
    for _ in range(20):  # a million paths lead from the first to the last
        layer = [harness.submit(after=tuple(layer)) for _ in range(2)]
    ended = harness.engine.cancel(first, cascade=True)
    assert len(ended) == len(set(ids(*ended))) == 41
    assert not harness.engine.jobs


# --- retry ---


@pytest.mark.parametrize("end", [FAILED, CANCELLED, EXPIRED])
def test_a_job_that_was_not_done_can_be_retried(harness: Harness, end: JobState) -> None:
    job = harness.ended(end, unique=b"k", name=b"Anna")
    harness.engine.retry(job)
    assert state_of(job) is READY
    assert dict(harness.engine.names.items()) == {b"Anna": job}
    assert harness.function().uniques == {b"k": job}
    assert harness.drain_with(harness.worker()) == [job.id]
    assert causes(job)[-3:] == [Cause.RETRIED, Cause.TAKEN, Cause.SUCCEEDED]


def test_a_dead_job_has_all_its_attempts_again(make_harness: MakeHarness) -> None:
    harness = make_harness(attempts=1)
    worker, job = harness.running(expires_us=harness.at(60))
    harness.engine.warning(worker, job.id, b"careful")
    harness.engine.remove_worker(worker)
    assert job.is_dead
    harness.engine.retry(job)
    assert not job.is_dead
    assert (job.attempts, job.result_code, job.error, job.warnings) == (0, 0, None, b"")
    assert (job.finished_us, job.expires_us, job.run_at_us) == (0, 0, 0)


def test_nothing_is_left_of_the_first_result(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.data(worker, job.id, b"some ")
    harness.engine.fail(worker, job.id, 3, b"bad", b"output")
    assert job.result == b"some output"
    harness.engine.retry(job)
    assert (job.result, job.error, job.result_code, job.collected_bytes) == (b"", None, 0, 0)


@pytest.mark.parametrize("state", [DONE, READY, RUNNING, WAITING])
def test_no_other_job_can_be_retried(harness: Harness, state: JobState) -> None:
    if state is DONE:
        job = harness.ended(DONE)
    elif state is RUNNING:
        job = harness.running()[1]
    else:
        job = harness.submit(after=(harness.submit(b"other"),) if state is WAITING else ())
    with pytest.raises(Refused, match=f"job {job.id} is {state.name.lower()}") as refused:
        harness.engine.retry(job)
    assert refused.value.reason == REFUSED_CONFLICT


def test_an_old_copy_of_a_job_that_was_retried_cannot_be_retried(harness: Harness) -> None:
    job, copy = harness.ended(FAILED), harness.ended(FAILED)
    copy.id = job.id  # as a store gives it that has not kept the retry yet
    harness.engine.retry(job)
    with pytest.raises(Refused, match=f"job {job.id} is ready"):
        harness.engine.retry(copy)


def test_a_job_whose_key_or_name_another_has_cannot_be_retried(harness: Harness) -> None:
    by_key, by_name = harness.ended(FAILED, unique=b"k"), harness.ended(FAILED, name=b"Anna")
    harness.submit(unique=b"k")
    harness.submit(name=b"Anna")
    for job in (by_key, by_name):
        with pytest.raises(Refused, match=f"unique key or name of job {job.id}"):
            harness.engine.retry(job)
        assert state_of(job) is FAILED


def test_nothing_is_retried_while_nothing_is_taken(harness: Harness) -> None:
    job = harness.ended(FAILED)
    harness.engine.drain()
    with pytest.raises(Refused) as refused:
        harness.engine.retry(job)
    assert refused.value.reason == REFUSED_DRAINING


def test_a_retried_job_waits_again_for_what_is_not_done(harness: Harness) -> None:
    first, second = harness.submit(b"other"), harness.submit(b"other")
    job = harness.submit(after=(first, second))
    harness.engine.complete_unowned(first)
    harness.engine.cancel(job)
    harness.engine.retry(job)
    assert (job.state, job.blockers) == (WAITING, 1)
    assert causes(job)[-1] is Cause.RETRIED_WAITING
    harness.engine.complete_unowned(second)
    assert state_of(job) is READY


def test_a_retried_job_waits_for_one_that_failed_too(harness: Harness) -> None:
    first = harness.submit(b"other")
    job = harness.submit(after=(first,))
    harness.engine.cancel(first, cascade=True)
    harness.engine.retry(job)
    assert state_of(job) is WAITING
    harness.engine.retry(first)
    harness.engine.complete_unowned(first)
    assert state_of(job) is READY


def test_a_retried_job_is_not_only_for_one_who_waited(harness: Harness) -> None:
    client = RecordingPeer()
    job = harness.submit(delivery=Delivery.WAIT, watcher=client)
    harness.engine.unsubscribe(client)
    harness.engine.retry(job)
    assert job.delivery == Delivery.HANDLE
    assert harness.engine.take_changes()[0] == [job]


def test_a_retry_wakes_a_sleeper(harness: Harness) -> None:
    job = harness.ended(FAILED)
    worker = harness.worker()
    harness.engine.sleep(worker)
    harness.engine.retry(job)
    assert peer_of(worker).words() == ["wake"]
