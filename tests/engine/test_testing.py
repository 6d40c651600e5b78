"""The helpers that are shipped: a clock that stands still, a peer that writes down, a look at all tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear import testing
from switchgear.engine.deadlines import DeadlineKind
from switchgear.model import DONE, READY, SECOND_US, EdgePolicy, Job
from switchgear.net.clock import SystemClock
from switchgear.testing import BrokenInvariant, FakeClock, RecordingPeer, check_engine
from tests.engine.harness import Harness
from tests.engine.sweeping import sweep


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
    harness = Harness()
    peer = RecordingPeer()
    worker = harness.worker(peer=peer)
    harness.engine.sleep(worker)
    job = harness.submit(watcher=peer)
    harness.engine.grant(worker, 1)
    harness.engine.progress(worker, job.id, 1, 2, 3)
    harness.engine.data(worker, job.id, b"data")
    harness.engine.warning(worker, job.id, b"warning")
    harness.engine.release(worker, job.id)
    harness.engine.take(worker)
    harness.engine.cancel(job)
    assert peer.words() == ["wake", "assign", "progress", "data", "warning", "revoke", "finished"]
    assert peer.take_heard()[:3] == [
        ("wake", worker.id),
        ("assign", worker.id, job.id),
        ("progress", job.id, 1, 2, 3),
    ]
    assert peer.heard == []


def test_a_recording_peer_hears_what_becomes_of_a_worker_that_waits() -> None:
    harness = Harness()
    peer = RecordingPeer()
    worker = harness.worker(peer=peer)
    harness.engine.renew_lease(worker, 2 * SECOND_US)
    ticket = harness.engine.grant_until(worker, harness.at(1))
    harness.pass_seconds(2)
    assert peer.heard == [("waited in vain", worker.id, ticket), ("expired", worker.id)]


# --- the look at all tables ---


def crowded_harness() -> tuple[Harness, Job]:
    """An engine with something in every table, and a ready job in it."""
    harness = Harness()
    client = RecordingPeer()
    harness.submit(b"one", name=b"Anna", watcher=client)
    worker = harness.worker(b"one", b"two", timeout_seconds=5)
    harness.engine.renew_lease(worker, SECOND_US)
    harness.engine.take(worker)
    job = harness.submit(b"three", unique=b"k", watcher=client, expires_us=harness.at(9))
    harness.submit(b"three", after=(job,))
    harness.submit(b"three", run_at_us=harness.at(5))
    harness.engine.cancel(harness.submit(b"three"))
    harness.engine.sleep(harness.worker(b"two"))
    harness.submit(b"three", after=(job,), edges=bytes([EdgePolicy.FAIL]))
    harness.engine.complete_unowned(harness.submit(b"three", unique=b"held", unique_for_us=SECOND_US))
    harness.submit(b"three")
    pushed = harness.worker(b"four")
    harness.engine.grant(pushed, 2)
    harness.engine.grant_until(pushed, harness.at(7))
    check_engine(harness.engine)
    return harness, job


def lose_edge(harness: Harness, job: Job) -> None:
    harness.engine.dependencies.successors.clear()


def misplace(harness: Harness, job: Job) -> None:
    job.function.queues[1].remove(job)


def double(harness: Harness, job: Job) -> None:
    job.function.queues[1].append(job)


def miscount_total(harness: Harness, job: Job) -> None:
    job.function.total += 1


def miscount_ready(harness: Harness, job: Job) -> None:
    job.function.ready -= 1


def miscount_running(harness: Harness, job: Job) -> None:
    harness.function(b"one").running = 0


def miscount_waiting(harness: Harness, job: Job) -> None:
    job.function.waiting += 1


def stand_in_disorder(harness: Harness, job: Job) -> None:
    job.function.queues[1].reverse()


def go_ahead_by_rank_alone(harness: Harness, job: Job) -> None:
    list(job.function.queues[1])[-1].rank = -1


def have_less_than_no_credit(harness: Harness, job: Job) -> None:
    next(iter(harness.engine.workers.values())).credits = -1


def have_a_ticket_without_credit(harness: Harness, job: Job) -> None:
    worker = next(iter(harness.function(b"four").workers))
    harness.engine.settings.jobs_per_worker = worker.credits = 0
    harness.function(b"four").pushers.clear()


def wait_for_ever(harness: Harness, job: Job) -> None:
    sweep(harness.engine.deadlines, lambda entry: entry[2] is not DeadlineKind.WAIT_TIMEOUT)


def stand_in_another_order(harness: Harness, job: Job) -> None:
    job.function.queues[1].reverse()


def miscount_blockers(harness: Harness, job: Job) -> None:
    harness.engine.dependencies.waiting_for(job.id)[0].blockers = 2


def lose_unique(harness: Harness, job: Job) -> None:
    del job.function.uniques[b"k"]


def keep_name(harness: Harness, job: Job) -> None:
    harness.engine.names[b"Bob"] = job


def finish_silently(harness: Harness, job: Job) -> None:
    job.state = DONE


def make_ready_twice(harness: Harness, job: Job) -> None:
    next(iter(harness.engine.workers.values())).running.popitem()[1].state = READY


def lose_deadlines(harness: Harness, job: Job) -> None:
    sweep(harness.engine.deadlines, lambda entry: False)


def miscount_stale(harness: Harness, job: Job) -> None:
    job.expires_us = harness.at(10)


def lose_sleeper(harness: Harness, job: Job) -> None:
    harness.function(b"two").sleepers.clear()


def lose_pusher(harness: Harness, job: Job) -> None:
    harness.function(b"four").pushers.clear()


def lose_watcher(harness: Harness, job: Job) -> None:
    job.subscribers = None


def overspend(harness: Harness, job: Job) -> None:
    job.attempts = 99


def be_lost_too_often(harness: Harness, job: Job) -> None:
    job.attempts = job.losses = job.crash_limit = 3


def hold_no_more(harness: Harness, job: Job) -> None:
    job.function.uniques[b"held"].unique_until_us = 0


def hold_for_ever(harness: Harness, job: Job) -> None:
    sweep(harness.engine.deadlines, lambda entry: entry[2] is not DeadlineKind.KEY_HELD)


def hold_without_a_key(harness: Harness, job: Job) -> None:
    harness.engine.dependencies.waiting_for(job.id)[0].unique_until_us = harness.at(5)


def take_anothers_key(harness: Harness, job: Job) -> None:
    job.function.uniques[b"another"] = job


def mind_nothing(harness: Harness, job: Job) -> None:
    harness.engine.dependencies.has_failure_policy.clear()


def mind_what_nobody_waits_for(harness: Harness, job: Job) -> None:
    harness.engine.dependencies.has_failure_policy.add(999)


def have_too_few_edges(harness: Harness, job: Job) -> None:
    harness.engine.dependencies.waiting_for(job.id)[1].edges = b"\1\1"


def go_on_in_spite_of_doom(harness: Harness, job: Job) -> None:
    failed = next(iter(harness.engine.dependencies.unsuccessful))
    harness.submit(b"three", predecessors=(failed,), edges=bytes([EdgePolicy.FAIL]))
    sweep(harness.engine.deadlines, lambda entry: entry[2] is not DeadlineKind.FAILED_DEPENDENCY)


def forget_job(harness: Harness, job: Job) -> None:
    harness.engine.jobs.remove(job.id)


FAULTS: list[Callable[[Harness, Job], None]] = [
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
def test_every_contradiction_between_tables_is_found(fault: Callable[[Harness, Job], None]) -> None:
    harness, job = crowded_harness()
    fault(harness, job)
    with pytest.raises(BrokenInvariant):
        check_engine(harness.engine)
