"""Equal unique keys in one function share one unfinished job; and who hears of its end."""

from __future__ import annotations

import pytest

from switchgear.errors import Refused
from switchgear.model import CANCELLED, DONE, READY, Cause, Delivery
from switchgear.refusals import REFUSED_CONFLICT
from switchgear.testing import RecordingPeer
from tests.engine.house import House, causes, state_of

WAIT = Delivery.WAIT


def test_a_second_submission_joins_the_unfinished_job(house: House) -> None:
    job = house.submit(unique=b"k", payload=b"first")
    assert house.submit(unique=b"k", payload=b"second") is job
    assert job.payload == b"first"
    assert house.function().total == house.function().submitted == 1


def test_a_running_job_is_joined_too(house: House) -> None:
    _, job = house.running(unique=b"k")
    assert house.submit(unique=b"k") is job


def test_keys_are_shared_within_a_function_only(house: House) -> None:
    assert house.submit(b"one", unique=b"k") is not house.submit(b"two", unique=b"k")


def test_jobs_without_a_key_are_never_joined(house: House) -> None:
    assert house.submit() is not house.submit()


def test_a_finished_job_is_not_joined(house: House) -> None:
    job = house.ended(DONE, unique=b"k")
    assert house.submit(unique=b"k") is not job


def test_a_name_is_its_jobs_own_among_all_unfinished_ones(house: House) -> None:
    job = house.submit(b"one", name=b"Anna")
    with pytest.raises(Refused, match="unfinished job named b'Anna'") as refused:
        house.submit(b"two", name=b"Anna")
    assert refused.value.reason == REFUSED_CONFLICT
    assert dict(house.engine.names.items()) == {b"Anna": job}
    house.engine.cancel(job)
    assert house.submit(b"two", name=b"Anna") is not job


# --- watchers ---


def test_everybody_who_joined_hears_of_the_end_once(house: House) -> None:
    clients = [RecordingPeer() for _ in range(3)]
    for client in clients:
        job = house.submit(unique=b"k", delivery=WAIT, watcher=client)
    house.drain_with(house.worker())
    for client in clients:
        assert client.heard == [("finished", job.id, DONE)]
        assert client.subscriptions == {}


def test_a_client_that_submitted_twice_is_told_twice(house: House) -> None:
    client = RecordingPeer()
    job = house.submit(unique=b"k", delivery=WAIT, watcher=client)
    house.submit(unique=b"k", delivery=WAIT, watcher=client)
    house.engine.cancel(job)
    assert client.heard == [("finished", job.id, CANCELLED)] * 2


def test_watchers_hear_what_the_worker_says_on_the_way(house: House) -> None:
    submitter, onlooker = RecordingPeer(), RecordingPeer()
    worker, job = house.running(delivery=WAIT, watcher=submitter)
    house.engine.progress(worker, job.id, 1, 4, 30)
    house.engine.subscribe(job, onlooker)
    house.engine.data(worker, job.id, b"part")
    house.engine.warning(worker, job.id, b"careful")
    house.engine.complete(worker, job.id, b"rest")
    later = [("data", job.id, b"part"), ("warning", job.id, b"careful"), ("finished", job.id, DONE)]
    assert submitter.heard == [("progress", job.id, 1, 4, 30), *later]
    assert onlooker.heard == later


def test_one_who_left_hears_nothing_more(house: House) -> None:
    gone, stays = RecordingPeer(), RecordingPeer()
    for client in (gone, stays, gone):
        house.submit(unique=b"k", delivery=WAIT, watcher=client)
    house.engine.unsubscribe(gone)
    house.drain_with(house.worker())
    assert gone.heard == []
    assert stays.words() == ["finished"]


# --- a job that is only for somebody who left ---


def test_a_queued_job_that_was_only_for_one_who_left_is_abandoned(house: House) -> None:
    client = RecordingPeer()
    jobs = [
        house.submit(delivery=WAIT, watcher=client),
        house.submit(delivery=WAIT, watcher=client, run_at_us=house.at(9)),
        house.submit(delivery=WAIT, watcher=client, after=(house.submit(b"other"),)),
    ]
    house.engine.unsubscribe(client)
    for job in jobs:
        assert state_of(job) is CANCELLED
        assert causes(job)[-1] is Cause.ABANDONED
    assert house.function().total == 0


def test_a_running_one_may_finish(house: House) -> None:
    client = RecordingPeer()
    worker, job = house.running(delivery=WAIT, watcher=client)
    house.engine.unsubscribe(client)
    assert house.engine.complete(worker, job.id, b"") is job
    assert state_of(job) is DONE


@pytest.mark.parametrize("end", ["worker lost", "timed out", "given back", "retry later"])
def test_a_running_one_is_not_run_again(house: House, end: str) -> None:
    client = RecordingPeer()
    worker, job = house.running(delivery=WAIT, watcher=client, timeout_us=1_000_000)
    house.engine.unsubscribe(client)
    if end == "worker lost":
        house.engine.remove_worker(worker)
    elif end == "timed out":
        house.pass_seconds(1)
    elif end == "given back":
        house.engine.release(worker, job.id)
    else:
        house.engine.retry_later(worker, job.id, 1)
    assert causes(job)[-1] is Cause.ABANDONED


def test_a_job_that_others_wait_for_is_not_abandoned(house: House) -> None:
    gone, stays = RecordingPeer(), RecordingPeer()
    job = house.submit(unique=b"k", delivery=WAIT, watcher=gone)
    house.submit(unique=b"k", delivery=WAIT, watcher=stays)
    house.engine.unsubscribe(gone)
    assert state_of(job) is READY


def test_a_job_that_may_be_asked_for_later_is_not_abandoned(house: House) -> None:
    client = RecordingPeer()
    job = house.submit(delivery=Delivery.HANDLE, watcher=client)
    house.engine.unsubscribe(client)
    assert state_of(job) is READY


# --- how much a job is worth keeping ---


@pytest.mark.parametrize("delivery", [Delivery.HANDLE, Delivery.THROW_AWAY])
def test_a_job_becomes_worth_keeping_when_somebody_relies_on_it(house: House, delivery: Delivery) -> None:
    client = RecordingPeer()
    job = house.submit(unique=b"k", delivery=WAIT, watcher=client)
    assert not job.durable
    assert house.engine.take_changes() == ([], [])
    house.submit(unique=b"k", delivery=delivery)
    assert job.delivery == delivery
    assert job.durable
    assert house.engine.take_changes() == ([job], [])
    house.engine.unsubscribe(client)
    assert state_of(job) is READY


def test_it_does_not_become_worth_less(house: House) -> None:
    job = house.submit(unique=b"k", delivery=Delivery.THROW_AWAY)
    house.submit(unique=b"k", delivery=WAIT, watcher=RecordingPeer())
    house.submit(unique=b"k", delivery=Delivery.HANDLE)
    assert job.delivery == Delivery.THROW_AWAY


def test_what_a_durable_job_waits_for_becomes_durable(house: House) -> None:
    client = RecordingPeer()
    first = house.submit(delivery=WAIT, watcher=client)
    second = house.submit(delivery=WAIT, watcher=client, after=(first,))
    assert house.engine.take_changes() == ([], [])
    third = house.submit(after=(second,))
    assert house.engine.take_changes()[0] == [second, first, third]
    house.engine.unsubscribe(client)
    assert house.drain_with(house.worker()) == [first.id, second.id, third.id]


def test_joining_makes_durable_what_the_job_waits_for(house: House) -> None:
    client = RecordingPeer()
    first = house.submit(delivery=WAIT, watcher=client)
    house.submit(unique=b"k", delivery=WAIT, watcher=client, after=(first,))
    house.submit(unique=b"k")
    assert first.durable


def test_a_predecessor_added_to_a_durable_job_becomes_durable(house: House) -> None:
    first = house.submit(delivery=WAIT, watcher=RecordingPeer())
    house.engine.add_predecessors(house.submit(), (first.id,))
    assert first.durable
