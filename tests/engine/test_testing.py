"""The helpers that are shipped: a clock that stands still, a peer that writes down, a look at all tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear import testing
from switchgear.engine.deadlines import DeadlineKind
from switchgear.model import DONE, READY, SECOND_US, EdgePolicy, Job
from switchgear.net.clock import SystemClock
from switchgear.testing import BrokenInvariant, FakeClock, RecordingPeer, check_engine
from tests.engine.house import House


def test_the_public_names_are_explained() -> None:
    for name in testing.__all__:
        assert name in (testing.__doc__ or "")
        assert getattr(testing, name).__doc__


# --- the clock ---


def test_time_stands_still_until_it_is_moved() -> None:
    clock = FakeClock()
    start_us = clock.now_us()
    assert clock.now_us() == start_us
    assert clock.advance(1.5) == clock.now_us() == start_us + 3 * SECOND_US // 2


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        FakeClock().advance(-1)


def test_a_wall_clock_that_was_set_is_seen_by_those_who_follow_it() -> None:
    clock = FakeClock(start_us=1000)
    assert isinstance(clock, SystemClock)
    assert clock.follow_wall_clock() == 0
    clock.set_wall_clock(-0.0005)
    assert clock.now_us() == 1000
    assert clock.follow_wall_clock() == -500
    assert clock.now_us() == 500
    assert clock.follow_wall_clock() == 0


# --- the peer ---


def test_a_recording_peer_writes_down_all_that_it_hears() -> None:
    house = House()
    peer = RecordingPeer()
    worker = house.worker(peer=peer)
    house.engine.sleep(worker)
    job = house.submit(watcher=peer)
    house.engine.grant(worker, 1)
    house.engine.progress(worker, job.id, 1, 2, 3)
    house.engine.data(worker, job.id, b"data")
    house.engine.warning(worker, job.id, b"warning")
    house.engine.release(worker, job.id)
    house.engine.take(worker)
    house.engine.cancel(job)
    assert peer.words() == ["wake", "assign", "progress", "data", "warning", "revoke", "finished"]
    assert peer.take_heard()[:3] == [
        ("wake", worker.id),
        ("assign", worker.id, job.id),
        ("progress", job.id, 1, 2, 3),
    ]
    assert peer.heard == []


def test_a_recording_peer_hears_what_becomes_of_a_worker_that_waits() -> None:
    house = House()
    peer = RecordingPeer()
    worker = house.worker(peer=peer)
    house.engine.renew_lease(worker, 2 * SECOND_US)
    ticket = house.engine.grant_until(worker, house.at(1))
    house.pass_seconds(2)
    assert peer.heard == [("waited in vain", worker.id, ticket), ("expired", worker.id)]


# --- the look at all tables ---


def crowded_house() -> tuple[House, Job]:
    """An engine with something in every table, and a ready job in it."""
    house = House()
    client = RecordingPeer()
    house.submit(b"one", name=b"Anna", watcher=client)
    worker = house.worker(b"one", b"two", timeout_seconds=5)
    house.engine.renew_lease(worker, SECOND_US)
    house.engine.take(worker)
    job = house.submit(b"three", unique=b"k", watcher=client, expires_us=house.at(9))
    house.submit(b"three", after=(job,))
    house.submit(b"three", run_at_us=house.at(5))
    house.engine.cancel(house.submit(b"three"))
    house.engine.sleep(house.worker(b"two"))
    house.submit(b"three", after=(job,), edges=bytes([EdgePolicy.FAIL]))
    house.engine.complete_unowned(house.submit(b"three", unique=b"held", unique_for_us=SECOND_US))
    house.submit(b"three")
    pushed = house.worker(b"four")
    house.engine.grant(pushed, 2)
    house.engine.grant_until(pushed, house.at(7))
    check_engine(house.engine)
    return house, job


def lose_edge(house: House, job: Job) -> None:
    house.engine.dependencies.successors.clear()


def misplace(house: House, job: Job) -> None:
    job.function.queues[1].remove(job)


def double(house: House, job: Job) -> None:
    job.function.queues[1].append(job)


def miscount_total(house: House, job: Job) -> None:
    job.function.total += 1


def miscount_ready(house: House, job: Job) -> None:
    job.function.ready -= 1


def miscount_running(house: House, job: Job) -> None:
    house.function(b"one").running = 0


def miscount_waiting(house: House, job: Job) -> None:
    job.function.waiting += 1


def stand_in_disorder(house: House, job: Job) -> None:
    job.function.queues[1].reverse()


def go_ahead_by_rank_alone(house: House, job: Job) -> None:
    list(job.function.queues[1])[-1].rank = -1


def have_less_than_no_credit(house: House, job: Job) -> None:
    next(iter(house.engine.workers.values())).credits = -1


def have_a_ticket_without_credit(house: House, job: Job) -> None:
    worker = next(iter(house.function(b"four").workers))
    house.engine.settings.jobs_per_worker = worker.credits = 0
    house.function(b"four").pushers.clear()


def wait_for_ever(house: House, job: Job) -> None:
    house.engine.deadlines.sweep_all(lambda entry: entry[2] is not DeadlineKind.WAIT_TIMEOUT)


def stand_in_another_order(house: House, job: Job) -> None:
    job.function.queues[1].reverse()


def miscount_blockers(house: House, job: Job) -> None:
    house.engine.dependencies.waiting_for(job.id)[0].blockers = 2


def lose_unique(house: House, job: Job) -> None:
    del job.function.uniques[b"k"]


def keep_name(house: House, job: Job) -> None:
    house.engine.names[b"Bob"] = job


def finish_silently(house: House, job: Job) -> None:
    job.state = DONE


def make_ready_twice(house: House, job: Job) -> None:
    next(iter(house.engine.workers.values())).running.popitem()[1].state = READY


def lose_deadlines(house: House, job: Job) -> None:
    house.engine.deadlines.sweep_all(lambda entry: False)


def miscount_stale(house: House, job: Job) -> None:
    job.expires_us = house.at(10)


def lose_sleeper(house: House, job: Job) -> None:
    house.function(b"two").sleepers.clear()


def lose_pusher(house: House, job: Job) -> None:
    house.function(b"four").pushers.clear()


def lose_watcher(house: House, job: Job) -> None:
    job.subscribers = None


def overspend(house: House, job: Job) -> None:
    job.attempts = 99


def be_lost_too_often(house: House, job: Job) -> None:
    job.attempts = job.losses = job.crash_limit = 3


def hold_no_more(house: House, job: Job) -> None:
    job.function.uniques[b"held"].unique_until_us = 0


def hold_for_ever(house: House, job: Job) -> None:
    house.engine.deadlines.sweep_all(lambda entry: entry[2] is not DeadlineKind.KEY_HELD)


def hold_without_a_key(house: House, job: Job) -> None:
    house.engine.dependencies.waiting_for(job.id)[0].unique_until_us = house.at(5)


def take_anothers_key(house: House, job: Job) -> None:
    job.function.uniques[b"another"] = job


def mind_nothing(house: House, job: Job) -> None:
    house.engine.dependencies.has_failure_policy.clear()


def mind_what_nobody_waits_for(house: House, job: Job) -> None:
    house.engine.dependencies.has_failure_policy.add(999)


def have_too_few_edges(house: House, job: Job) -> None:
    house.engine.dependencies.waiting_for(job.id)[1].edges = b"\1\1"


def go_on_in_spite_of_doom(house: House, job: Job) -> None:
    failed = next(iter(house.engine.dependencies.unsuccessful))
    house.submit(b"three", predecessors=(failed,), edges=bytes([EdgePolicy.FAIL]))
    house.engine.deadlines.sweep_all(lambda entry: entry[2] is not DeadlineKind.FAILED_DEPENDENCY)


def forget_job(house: House, job: Job) -> None:
    house.engine.jobs.remove(job.id)


FAULTS: list[Callable[[House, Job], None]] = [
    lose_edge,
    misplace,
    double,
    miscount_total,
    miscount_ready,
    miscount_running,
    miscount_waiting,
    stand_in_disorder,
    go_ahead_by_rank_alone,
    have_less_than_no_credit,
    have_a_ticket_without_credit,
    wait_for_ever,
    stand_in_another_order,
    miscount_blockers,
    lose_unique,
    keep_name,
    finish_silently,
    make_ready_twice,
    lose_deadlines,
    miscount_stale,
    lose_sleeper,
    lose_pusher,
    lose_watcher,
    overspend,
    be_lost_too_often,
    hold_no_more,
    hold_for_ever,
    hold_without_a_key,
    take_anothers_key,
    mind_nothing,
    mind_what_nobody_waits_for,
    have_too_few_edges,
    go_on_in_spite_of_doom,
    forget_job,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_every_contradiction_between_tables_is_found(fault: Callable[[House, Job], None]) -> None:
    house, job = crowded_house()
    fault(house, job)
    with pytest.raises(BrokenInvariant):
        check_engine(house.engine)
