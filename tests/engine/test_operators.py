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
from tests.engine.house import House, causes, ids, peer_of, state_of

MakeHouse = Callable[..., House]

# --- cancel ---


def test_a_queued_job_is_cancelled(house: House) -> None:
    client = RecordingPeer()
    job = house.submit(watcher=client, unique=b"k", name=b"Anna")
    assert house.engine.cancel(job) == [job]
    assert state_of(job) is CANCELLED
    assert client.heard == [("finished", job.id, CANCELLED)]
    assert house.engine.take(house.worker()) is None
    assert dict(house.engine.names.items()) == house.function().uniques == {}
    assert house.function().cancelled == 1


def test_a_running_job_is_cancelled_and_its_worker_told(house: House) -> None:
    client = RecordingPeer()
    worker, job = house.running(watcher=client, timeout_us=SECOND_US)
    assert house.engine.cancel(job) == [job]
    assert peer_of(worker).heard == [("revoke", worker.id, job.id)]
    assert client.heard == [("finished", job.id, CANCELLED)]
    assert house.function().running == 0
    house.pass_seconds(5)
    assert causes(job)[-1] is Cause.CANCELLED


def test_a_finished_job_cannot_be_cancelled(house: House) -> None:
    job = house.ended(DONE)
    assert house.engine.cancel(job) == []
    assert state_of(job) is DONE


def test_cancelling_twice_is_cancelling_once(house: House) -> None:
    job = house.submit()
    assert house.engine.cancel(job) == [job]
    assert house.engine.cancel(job) == []


def test_without_cascade_those_that_wait_go_on_waiting(house: House) -> None:
    first = house.submit()
    second = house.submit(after=(first,))
    assert house.engine.cancel(first) == [first]
    assert state_of(second) is WAITING


def test_a_cascade_ends_all_that_wait_directly_or_not(house: House) -> None:
    first, outside = house.submit(), house.submit()
    left, right = house.submit(after=(first,)), house.submit(after=(first, outside))
    last = house.submit(after=(left, right))
    clients = {job: RecordingPeer() for job in (first, left, right, last)}
    for job, client in clients.items():
        house.engine.subscribe(job, client)
    ended = house.engine.cancel(first, cascade=True)
    assert ended[0] is first
    assert sorted(ids(*ended)) == ids(first, left, right, last)
    for job, client in clients.items():
        assert client.heard == [("finished", job.id, CANCELLED)]
    assert house.drain_with(house.worker()) == [outside.id]


def test_a_cascade_from_a_failed_job_ends_those_it_left_waiting(house: House) -> None:
    failed = house.ended(FAILED)
    waiting = house.submit(after=(failed,))
    assert house.engine.cancel(failed, cascade=True) == [waiting]
    assert (failed.state, waiting.state) == (FAILED, CANCELLED)


def test_a_cascade_through_many_layers_ends_each_job_once(house: House) -> None:
    layer = [house.submit()]
    first = layer[0]
    for _ in range(20):  # a million paths lead from the first to the last
        layer = [house.submit(after=tuple(layer)) for _ in range(2)]
    ended = house.engine.cancel(first, cascade=True)
    assert len(ended) == len(set(ids(*ended))) == 41
    assert not house.engine.jobs


# --- retry ---


@pytest.mark.parametrize("end", [FAILED, CANCELLED, EXPIRED])
def test_a_job_that_was_not_done_can_be_retried(house: House, end: JobState) -> None:
    job = house.ended(end, unique=b"k", name=b"Anna")
    house.engine.retry(job)
    assert state_of(job) is READY
    assert dict(house.engine.names.items()) == {b"Anna": job}
    assert house.function().uniques == {b"k": job}
    assert house.drain_with(house.worker()) == [job.id]
    assert causes(job)[-3:] == [Cause.RETRIED, Cause.TAKEN, Cause.SUCCEEDED]


def test_a_dead_job_has_all_its_attempts_again(make_house: MakeHouse) -> None:
    house = make_house(attempts=1)
    worker, job = house.running(expires_us=house.at(60))
    house.engine.warning(worker, job.id, b"careful")
    house.engine.remove_worker(worker)
    assert job.is_dead
    house.engine.retry(job)
    assert not job.is_dead
    assert (job.attempts, job.result_code, job.error, job.warnings) == (0, 0, None, b"")
    assert (job.finished_us, job.expires_us, job.run_at_us) == (0, 0, 0)


def test_nothing_is_left_of_the_first_result(house: House) -> None:
    worker, job = house.running()
    house.engine.data(worker, job.id, b"some ")
    house.engine.fail(worker, job.id, 3, b"bad", b"output")
    assert job.result == b"some output"
    house.engine.retry(job)
    assert (job.result, job.error, job.result_code, job.collected_bytes) == (b"", None, 0, 0)


@pytest.mark.parametrize("state", [DONE, READY, RUNNING, WAITING])
def test_no_other_job_can_be_retried(house: House, state: JobState) -> None:
    if state is DONE:
        job = house.ended(DONE)
    elif state is RUNNING:
        job = house.running()[1]
    else:
        job = house.submit(after=(house.submit(b"other"),) if state is WAITING else ())
    with pytest.raises(Refused, match=f"job {job.id} is {state.name.lower()}") as refused:
        house.engine.retry(job)
    assert refused.value.reason == REFUSED_CONFLICT


def test_an_old_copy_of_a_job_that_was_retried_cannot_be_retried(house: House) -> None:
    job, copy = house.ended(FAILED), house.ended(FAILED)
    copy.id = job.id  # as a store gives it that has not kept the retry yet
    house.engine.retry(job)
    with pytest.raises(Refused, match=f"job {job.id} is ready"):
        house.engine.retry(copy)


def test_a_job_whose_key_or_name_another_has_cannot_be_retried(house: House) -> None:
    by_key, by_name = house.ended(FAILED, unique=b"k"), house.ended(FAILED, name=b"Anna")
    house.submit(unique=b"k")
    house.submit(name=b"Anna")
    for job in (by_key, by_name):
        with pytest.raises(Refused, match=f"unique key or name of job {job.id}"):
            house.engine.retry(job)
        assert state_of(job) is FAILED


def test_nothing_is_retried_while_nothing_is_taken(house: House) -> None:
    job = house.ended(FAILED)
    house.engine.drain()
    with pytest.raises(Refused) as refused:
        house.engine.retry(job)
    assert refused.value.reason == REFUSED_DRAINING


def test_a_retried_job_waits_again_for_what_is_not_done(house: House) -> None:
    first, second = house.submit(b"other"), house.submit(b"other")
    job = house.submit(after=(first, second))
    house.engine.complete_unowned(first)
    house.engine.cancel(job)
    house.engine.retry(job)
    assert (job.state, job.blockers) == (WAITING, 1)
    assert causes(job)[-1] is Cause.RETRIED_WAITING
    house.engine.complete_unowned(second)
    assert state_of(job) is READY


def test_a_retried_job_waits_for_one_that_failed_too(house: House) -> None:
    first = house.submit(b"other")
    job = house.submit(after=(first,))
    house.engine.cancel(first, cascade=True)
    house.engine.retry(job)
    assert state_of(job) is WAITING
    house.engine.retry(first)
    house.engine.complete_unowned(first)
    assert state_of(job) is READY


def test_a_retried_job_is_not_only_for_one_who_waited(house: House) -> None:
    client = RecordingPeer()
    job = house.submit(delivery=Delivery.WAIT, watcher=client)
    house.engine.unsubscribe(client)
    house.engine.retry(job)
    assert job.delivery == Delivery.HANDLE
    assert house.engine.take_changes()[0] == [job]


def test_a_retry_wakes_a_sleeper(house: House) -> None:
    job = house.ended(FAILED)
    worker = house.worker()
    house.engine.sleep(worker)
    house.engine.retry(job)
    assert peer_of(worker).words() == ["wake"]
