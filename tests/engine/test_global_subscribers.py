"""Global subscribers: peers that are told of every job."""

from __future__ import annotations

from switchgear.model import CANCELLED, DONE, Delivery
from switchgear.testing import RecordingPeer
from tests.engine.harness import Harness


def test_the_audience_hears_of_the_start_and_end_of_every_job(harness: Harness) -> None:
    listener = RecordingPeer()
    harness.engine.global_subscribers.append(listener)
    pulled, pushed, cancelled = harness.submit(), harness.submit(b"other"), harness.submit(b"third")
    worker, other = harness.worker(), harness.worker(b"other")
    harness.engine.take(worker)
    harness.engine.grant(other, 1)
    harness.engine.complete(worker, pulled.id, b"")
    harness.engine.complete_unowned(pushed)
    harness.engine.cancel(cancelled)
    assert listener.heard == [
        ("started", pulled.id),
        ("started", pushed.id),
        ("finished", pulled.id, DONE),
        ("finished", pushed.id, DONE),
        ("finished", cancelled.id, CANCELLED),
    ]


def test_one_who_watches_too_is_told_twice(harness: Harness) -> None:
    listener = RecordingPeer()
    harness.engine.global_subscribers.append(listener)
    job = harness.submit(watcher=listener)
    harness.drain_with(harness.worker())
    assert listener.heard == [("started", job.id)] + [("finished", job.id, DONE)] * 2


def test_an_audience_keeps_no_job_alive(harness: Harness) -> None:
    listener = RecordingPeer()
    harness.engine.global_subscribers.append(listener)
    client = RecordingPeer()
    job = harness.submit(delivery=Delivery.WAIT, watcher=client)
    harness.engine.unsubscribe(client)
    assert listener.heard == [("finished", job.id, CANCELLED)]


def test_one_who_has_left_the_audience_hears_nothing(harness: Harness) -> None:
    listener = RecordingPeer()
    harness.engine.global_subscribers.append(listener)
    harness.engine.global_subscribers.remove(listener)
    harness.submit()
    harness.drain_with(harness.worker())
    assert listener.heard == []
