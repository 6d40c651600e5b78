"""Workers that take only jobs of some priorities of a function: they are handed these, and woken for these."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from switchgear.model import HIGH, LOW, NORMAL, READY, URGENT, Job, Worker
from switchgear.policy import Policy
from switchgear.testing import RecordingPeer, check_engine
from tests.engine.house import House, peer_of, state_of

MakeHouse = Callable[..., House]


def limited_worker(house: House, *priorities: int, function: bytes = b"mail") -> Worker:
    worker = house.engine.add_worker(RecordingPeer(), "test")
    house.engine.can_do(worker, house.function(function), 0, priorities)
    return worker


def test_it_pulls_only_jobs_of_its_priorities_the_best_first(house: House) -> None:
    normal, low, high = (house.submit(priority=priority) for priority in (NORMAL, LOW, HIGH))
    worker = limited_worker(house, LOW, NORMAL)
    assert house.engine.take(worker) is normal
    assert house.engine.take(worker) is low
    assert house.engine.take(worker) is None
    assert state_of(high) is READY


def test_a_worker_with_credit_is_pushed_only_jobs_of_its_priorities(house: House) -> None:
    worker = limited_worker(house, HIGH)
    house.engine.grant(worker, 2)
    normal, high = house.submit(priority=NORMAL), house.submit(priority=HIGH)
    assert peer_of(worker).heard == [("assign", worker.id, high.id)]
    assert state_of(normal) is READY
    assert worker.credits == 1
    check_engine(house.engine)


def test_it_waits_until_a_time_as_others_do(house: House) -> None:
    worker = limited_worker(house, HIGH)
    ticket = house.engine.grant_until(worker, house.at(5))
    house.submit(priority=LOW)
    house.pass_seconds(5)
    assert peer_of(worker).heard == [("waited in vain", worker.id, ticket)]
    check_engine(house.engine)


def test_it_sleeps_while_there_are_only_other_jobs_and_is_woken_for_its_own(house: House) -> None:
    house.submit(priority=NORMAL)
    worker = limited_worker(house, HIGH)
    assert house.engine.sleep(worker)
    house.submit(priority=LOW)
    house.pass_seconds(10)
    assert peer_of(worker).heard == []
    house.submit(priority=HIGH)
    assert peer_of(worker).heard == [("wake", worker.id)]
    check_engine(house.engine)


def test_it_does_not_sleep_while_there_is_a_job_for_it(house: House) -> None:
    house.submit(priority=HIGH)
    assert not house.engine.sleep(limited_worker(house, HIGH, LOW))


def test_it_comes_before_workers_that_take_every_priority(house: House) -> None:
    all_of_them, high_only = house.worker(), limited_worker(house, HIGH)
    for worker in (all_of_them, high_only):
        house.engine.grant(worker, 1)
    assert house.submit(priority=HIGH).worker is high_only
    assert house.submit(priority=HIGH).worker is all_of_them


def test_for_one_job_one_worker_is_woken(house: House) -> None:
    all_of_them, high_only = house.worker(), limited_worker(house, HIGH)
    for worker in (all_of_them, high_only):
        assert house.engine.sleep(worker)
    house.submit(priority=HIGH)
    assert (peer_of(high_only).words(), peer_of(all_of_them).words()) == (["wake"], [])
    house.submit(priority=NORMAL)
    assert (peer_of(high_only).words(), peer_of(all_of_them).words()) == (["wake"], ["wake"])


def test_if_it_does_not_ask_others_are_woken_a_moment_later(house: House) -> None:
    all_of_them, high_only, low_only = house.worker(), limited_worker(house, HIGH), limited_worker(house, LOW)
    for worker in (all_of_them, high_only, low_only):
        assert house.engine.sleep(worker)
    house.submit(priority=HIGH)
    house.pass_seconds(1)
    assert (peer_of(all_of_them).words(), peer_of(low_only).words()) == (["wake"], [])


def test_those_of_one_priority_are_served_in_the_order_in_which_they_began_to_wait(house: House) -> None:
    workers = [limited_worker(house, *priorities) for priorities in ((HIGH,), (LOW, HIGH), (HIGH,))]
    for worker in workers:
        house.engine.grant(worker, 1)
    assert [house.submit(priority=HIGH).worker for _ in range(4)] == [*workers, None]
    check_engine(house.engine)


def test_the_best_priority_of_all_its_functions_comes_first(house: House) -> None:
    worker = limited_worker(house, LOW, NORMAL)
    house.engine.can_do(worker, house.function(b"other"))
    low, other = house.submit(priority=LOW), house.submit(b"other", priority=HIGH)
    house.submit(priority=HIGH)
    assert house.engine.take(worker) is other
    assert house.engine.take(worker) is low
    assert house.engine.take(worker) is None


def test_what_it_takes_can_change_while_it_waits(house: House) -> None:
    worker = limited_worker(house, HIGH)
    house.engine.grant(worker, 2)
    normal, low = house.submit(priority=NORMAL), house.submit(priority=LOW)
    house.engine.can_do(worker, house.function(), 0, (NORMAL,))
    assert peer_of(worker).heard == [("assign", worker.id, normal.id)]
    check_engine(house.engine)
    house.engine.can_do(worker, house.function())
    assert peer_of(worker).heard[1:] == [("assign", worker.id, low.id)]
    check_engine(house.engine)


@pytest.mark.parametrize("leaves", ["function", "server"])
def test_when_it_leaves_nothing_is_left_of_it(house: House, leaves: str) -> None:
    worker = limited_worker(house, HIGH, LOW)
    house.engine.grant(worker, 1)
    house.engine.sleep(worker)
    if leaves == "function":
        house.engine.cannot_do(worker, house.function())
    else:
        house.engine.remove_worker(worker)
    assert house.function().by_priority is None
    assert worker.priorities is None
    assert state_of(house.submit(priority=HIGH)) is READY
    check_engine(house.engine)


def test_a_paused_function_gives_it_what_has_gathered_when_it_is_resumed(house: House) -> None:
    pusher, sleeper = limited_worker(house, HIGH), limited_worker(house, LOW)
    house.engine.pause(house.function())
    house.engine.grant(pusher, 5)
    house.engine.sleep(sleeper)
    for priority in (HIGH, NORMAL, LOW, HIGH):
        house.submit(priority=priority)
    house.engine.resume(house.function())
    assert (peer_of(pusher).words(), peer_of(sleeper).words()) == (["assign", "assign"], ["wake"])
    check_engine(house.engine)


def test_limits_hold_for_it_too(house: House) -> None:
    house.engine.set_policy(house.function(), Policy(concurrency=1))
    worker = limited_worker(house, HIGH)
    house.engine.grant(worker, 3)
    first, second = house.submit(priority=HIGH), house.submit(priority=HIGH)
    assert (first.worker, second.worker) == (worker, None)
    house.engine.complete(worker, first.id, b"")
    assert second.worker is worker
    check_engine(house.engine)


def test_a_wake_policy_is_shown_it_for_its_own_jobs_only(house: House) -> None:
    shown: list[list[Worker]] = []

    def all_of_these(job: Job, workers: Sequence[Worker]) -> Sequence[Worker]:
        shown.append(list(workers))
        return workers

    house.engine.wake_policy = all_of_these
    all_of_them, high_only = house.worker(), limited_worker(house, HIGH)
    for worker in (all_of_them, high_only):
        house.engine.sleep(worker)
    house.submit(priority=NORMAL)
    assert shown == [[all_of_them]]
    assert peer_of(high_only).heard == []


def test_a_job_that_is_due_goes_to_those_that_take_urgent_ones(house: House) -> None:
    worker = limited_worker(house, URGENT)
    house.engine.grant(worker, 1)
    job = house.submit(priority=URGENT, run_at_us=house.at(5))
    house.pass_seconds(5)
    assert job.worker is worker


def test_explain_says_that_nobody_takes_the_priority(house: House) -> None:
    limited_worker(house, HIGH)
    (reason,) = house.engine.explain(house.submit(priority=LOW))
    assert (reason.word, reason.data["priority"]) == ("no_worker", LOW)
