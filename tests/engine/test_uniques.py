"""Equal unique keys in one function share one unfinished job; and who hears of its end."""

from __future__ import annotations

import pytest

from switchgear.errors import Refused
from switchgear.model import CANCELLED, DONE, READY, Cause, Delivery
from switchgear.refusals import REFUSED_CONFLICT
from switchgear.testing import RecordingPeer
from tests.engine.harness import Harness, causes, state_of

WAIT = Delivery.WAIT


def test_a_second_submission_joins_the_unfinished_job(harness: Harness) -> None:
    job = harness.submit(unique=b"k", payload=b"first")
    assert harness.submit(unique=b"k", payload=b"second") is job
    assert job.payload == b"first"
    assert harness.function().total == harness.function().submitted == 1


def test_a_running_job_is_joined_too(harness: Harness) -> None:
    _, job = harness.running(unique=b"k")
    assert harness.submit(unique=b"k") is job


def test_keys_are_shared_within_a_function_only(harness: Harness) -> None:
    assert harness.submit(b"one", unique=b"k") is not harness.submit(b"two", unique=b"k")


def test_jobs_without_a_key_are_never_joined(harness: Harness) -> None:
    assert harness.submit() is not harness.submit()


def test_a_finished_job_is_not_joined(harness: Harness) -> None:
    job = harness.ended(DONE, unique=b"k")
    assert harness.submit(unique=b"k") is not job


def test_a_name_is_its_jobs_own_among_all_unfinished_ones(harness: Harness) -> None:
    job = harness.submit(b"one", name=b"Anna")
    with pytest.raises(Refused, match="unfinished job named b'Anna'") as refused:
        harness.submit(b"two", name=b"Anna")
    assert refused.value.reason == REFUSED_CONFLICT
    assert dict(harness.engine.names.items()) == {b"Anna": job}
    harness.engine.cancel(job)
    assert harness.submit(b"two", name=b"Anna") is not job


# --- watchers ---


def test_everybody_who_joined_hears_of_the_end_once(harness: Harness) -> None:
    clients = [RecordingPeer() for _ in range(3)]
    for client in clients:
        job = harness.submit(unique=b"k", delivery=WAIT, watcher=client)
    harness.drain_with(harness.worker())
    for client in clients:
        assert client.heard == [("finished", job.id, DONE)]
        assert client.subscriptions == {}


def test_a_client_that_submitted_twice_is_told_twice(harness: Harness) -> None:
    client = RecordingPeer()
    job = harness.submit(unique=b"k", delivery=WAIT, watcher=client)
    harness.submit(unique=b"k", delivery=WAIT, watcher=client)
    harness.engine.cancel(job)
    assert client.heard == [("finished", job.id, CANCELLED)] * 2


def test_watchers_hear_what_the_worker_says_on_the_way(harness: Harness) -> None:
    submitter, onlooker = RecordingPeer(), RecordingPeer()
    worker, job = harness.running(delivery=WAIT, watcher=submitter)
    harness.engine.progress(worker, job.id, 1, 4, 30)
    harness.engine.subscribe(job, onlooker)
    harness.engine.data(worker, job.id, b"part")
    harness.engine.warning(worker, job.id, b"careful")
    harness.engine.complete(worker, job.id, b"rest")
    later = [("data", job.id, b"part"), ("warning", job.id, b"careful"), ("finished", job.id, DONE)]
    assert submitter.heard == [("progress", job.id, 1, 4, 30), *later]
    assert onlooker.heard == later


def test_one_who_left_hears_nothing_more(harness: Harness) -> None:
    gone, stays = RecordingPeer(), RecordingPeer()
    for client in (gone, stays, gone):
        harness.submit(unique=b"k", delivery=WAIT, watcher=client)
    harness.engine.unsubscribe(gone)
    harness.drain_with(harness.worker())
    assert gone.heard == []
    assert stays.words() == ["finished"]


# --- a job that is only for somebody who left ---


def test_a_queued_job_that_was_only_for_one_who_left_is_abandoned(harness: Harness) -> None:
    client = RecordingPeer()
    jobs = [
        harness.submit(delivery=WAIT, watcher=client),
        harness.submit(delivery=WAIT, watcher=client, run_at_us=harness.at(9)),
        harness.submit(delivery=WAIT, watcher=client, after=(harness.submit(b"other"),)),
    ]
    harness.engine.unsubscribe(client)
    for job in jobs:
        assert state_of(job) is CANCELLED
        assert causes(job)[-1] is Cause.ABANDONED
    assert harness.function().total == 0


def test_a_running_one_may_finish(harness: Harness) -> None:
    client = RecordingPeer()
    worker, job = harness.running(delivery=WAIT, watcher=client)
    harness.engine.unsubscribe(client)
    assert harness.engine.complete(worker, job.id, b"") is job
    assert state_of(job) is DONE


@pytest.mark.parametrize("end", ["worker lost", "timed out", "given back", "retry later"])
def test_a_running_one_is_not_run_again(harness: Harness, end: str) -> None:
    client = RecordingPeer()
    worker, job = harness.running(delivery=WAIT, watcher=client, timeout_us=1_000_000)
    harness.engine.unsubscribe(client)
    if end == "worker lost":
        harness.engine.remove_worker(worker)
    elif end == "timed out":
        harness.pass_seconds(1)
    elif end == "given back":
        harness.engine.release(worker, job.id)
    else:
        harness.engine.retry_later(worker, job.id, 1)
    assert causes(job)[-1] is Cause.ABANDONED


def test_a_job_that_others_wait_for_is_not_abandoned(harness: Harness) -> None:
    gone, stays = RecordingPeer(), RecordingPeer()
    job = harness.submit(unique=b"k", delivery=WAIT, watcher=gone)
    harness.submit(unique=b"k", delivery=WAIT, watcher=stays)
    harness.engine.unsubscribe(gone)
    assert state_of(job) is READY


def test_a_job_that_may_be_asked_for_later_is_not_abandoned(harness: Harness) -> None:
    client = RecordingPeer()
    job = harness.submit(delivery=Delivery.HANDLE, watcher=client)
    harness.engine.unsubscribe(client)
    assert state_of(job) is READY


# --- how much a job is worth keeping ---


@pytest.mark.parametrize("delivery", [Delivery.HANDLE, Delivery.THROW_AWAY])
def test_a_job_becomes_worth_keeping_when_somebody_relies_on_it(harness: Harness, delivery: Delivery) -> None:
    client = RecordingPeer()
    job = harness.submit(unique=b"k", delivery=WAIT, watcher=client)
    assert not job.durable
    assert harness.engine.take_changes() == ([], [])
    harness.submit(unique=b"k", delivery=delivery)
    assert job.delivery == delivery
    assert job.durable
    assert harness.engine.take_changes() == ([job], [])
    harness.engine.unsubscribe(client)
    assert state_of(job) is READY


def test_it_does_not_become_worth_less(harness: Harness) -> None:
    job = harness.submit(unique=b"k", delivery=Delivery.THROW_AWAY)
    harness.submit(unique=b"k", delivery=WAIT, watcher=RecordingPeer())
    harness.submit(unique=b"k", delivery=Delivery.HANDLE)
    assert job.delivery == Delivery.THROW_AWAY


def test_what_a_durable_job_waits_for_becomes_durable(harness: Harness) -> None:
    client = RecordingPeer()
    first = harness.submit(delivery=WAIT, watcher=client)
    second = harness.submit(delivery=WAIT, watcher=client, after=(first,))
    assert harness.engine.take_changes() == ([], [])
    third = harness.submit(after=(second,))
    assert harness.engine.take_changes()[0] == [second, first, third]
    harness.engine.unsubscribe(client)
    assert harness.drain_with(harness.worker()) == [first.id, second.id, third.id]


def test_joining_makes_durable_what_the_job_waits_for(harness: Harness) -> None:
    client = RecordingPeer()
    first = harness.submit(delivery=WAIT, watcher=client)
    harness.submit(unique=b"k", delivery=WAIT, watcher=client, after=(first,))
    harness.submit(unique=b"k")
    assert first.durable


def test_a_predecessor_added_to_a_durable_job_becomes_durable(harness: Harness) -> None:
    first = harness.submit(delivery=WAIT, watcher=RecordingPeer())
    harness.engine.add_predecessors(harness.submit(), (first.id,))
    assert first.durable
