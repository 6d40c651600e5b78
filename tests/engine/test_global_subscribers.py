"""Global subscribers: peers that are told of every job."""

from __future__ import annotations

from switchgear.model import CANCELLED, DONE, Delivery
from switchgear.testing import RecordingPeer
from tests.engine.house import House


def test_the_audience_hears_of_the_start_and_end_of_every_job(house: House) -> None:
    listener = RecordingPeer()
    house.engine.global_subscribers.append(listener)
    pulled, pushed, cancelled = house.submit(), house.submit(b"other"), house.submit(b"third")
    worker, other = house.worker(), house.worker(b"other")
    house.engine.take(worker)
    house.engine.grant(other, 1)
    house.engine.complete(worker, pulled.id, b"")
    house.engine.complete_unowned(pushed)
    house.engine.cancel(cancelled)
    assert listener.heard == [
        ("started", pulled.id),
        ("started", pushed.id),
        ("finished", pulled.id, DONE),
        ("finished", pushed.id, DONE),
        ("finished", cancelled.id, CANCELLED),
    ]


def test_one_who_watches_too_is_told_twice(house: House) -> None:
    listener = RecordingPeer()
    house.engine.global_subscribers.append(listener)
    job = house.submit(watcher=listener)
    house.drain_with(house.worker())
    assert listener.heard == [("started", job.id)] + [("finished", job.id, DONE)] * 2


def test_an_audience_keeps_no_job_alive(house: House) -> None:
    listener = RecordingPeer()
    house.engine.global_subscribers.append(listener)
    client = RecordingPeer()
    job = house.submit(delivery=Delivery.WAIT, watcher=client)
    house.engine.unsubscribe(client)
    assert listener.heard == [("finished", job.id, CANCELLED)]


def test_one_who_has_left_the_audience_hears_nothing(house: House) -> None:
    listener = RecordingPeer()
    house.engine.global_subscribers.append(listener)
    house.engine.global_subscribers.remove(listener)
    house.submit()
    house.drain_with(house.worker())
    assert listener.heard == []
