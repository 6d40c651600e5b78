"""Workers that take only jobs of some priorities of a function: they are handed these, and woken for these."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from switchgear.model import HIGH, LOW, NORMAL, READY, URGENT, Job, Worker
from switchgear.policy import Policy
from switchgear.testing import RecordingPeer, check_engine
from tests.engine.harness import Harness, peer_of, state_of

MakeHarness = Callable[..., Harness]


def limited_worker(harness: Harness, *priorities: int, function: bytes = b"mail") -> Worker:
    worker = harness.engine.add_worker(RecordingPeer(), "test")
    harness.engine.can_do(worker, harness.function(function), 0, priorities)
    return worker


def test_it_pulls_only_jobs_of_its_priorities_the_best_first(harness: Harness) -> None:
    normal, low, high = (harness.submit(priority=priority) for priority in (NORMAL, LOW, HIGH))
    worker = limited_worker(harness, LOW, NORMAL)
    assert harness.engine.take(worker) is normal
    assert harness.engine.take(worker) is low
    assert harness.engine.take(worker) is None
    assert state_of(high) is READY


def test_a_worker_with_credit_is_pushed_only_jobs_of_its_priorities(harness: Harness) -> None:
    worker = limited_worker(harness, HIGH)
    harness.engine.grant(worker, 2)
    normal, high = harness.submit(priority=NORMAL), harness.submit(priority=HIGH)
    assert peer_of(worker).heard == [("assign", worker.id, high.id)]
    assert state_of(normal) is READY
    assert worker.credits == 1
    check_engine(harness.engine)


def test_it_waits_until_a_time_as_others_do(harness: Harness) -> None:
    worker = limited_worker(harness, HIGH)
    ticket = harness.engine.grant_until(worker, harness.at(5))
    harness.submit(priority=LOW)
    harness.pass_seconds(5)
    assert peer_of(worker).heard == [("waited in vain", worker.id, ticket)]
    check_engine(harness.engine)


def test_it_sleeps_while_there_are_only_other_jobs_and_is_woken_for_its_own(harness: Harness) -> None:
    harness.submit(priority=NORMAL)
    worker = limited_worker(harness, HIGH)
    assert harness.engine.sleep(worker)
    harness.submit(priority=LOW)
    harness.pass_seconds(10)
    assert peer_of(worker).heard == []
    harness.submit(priority=HIGH)
    assert peer_of(worker).heard == [("wake", worker.id)]
    check_engine(harness.engine)


def test_it_does_not_sleep_while_there_is_a_job_for_it(harness: Harness) -> None:
    harness.submit(priority=HIGH)
    assert not harness.engine.sleep(limited_worker(harness, HIGH, LOW))


def test_it_comes_before_workers_that_take_every_priority(harness: Harness) -> None:
    all_of_them, high_only = harness.worker(), limited_worker(harness, HIGH)
    for worker in (all_of_them, high_only):
        harness.engine.grant(worker, 1)
    assert harness.submit(priority=HIGH).worker is high_only
    assert harness.submit(priority=HIGH).worker is all_of_them


def test_for_one_job_one_worker_is_woken(harness: Harness) -> None:
    all_of_them, high_only = harness.worker(), limited_worker(harness, HIGH)
    for worker in (all_of_them, high_only):
        assert harness.engine.sleep(worker)
    harness.submit(priority=HIGH)
    assert (peer_of(high_only).words(), peer_of(all_of_them).words()) == (["wake"], [])
    harness.submit(priority=NORMAL)
    assert (peer_of(high_only).words(), peer_of(all_of_them).words()) == (["wake"], ["wake"])


def test_if_it_does_not_ask_others_are_woken_a_moment_later(harness: Harness) -> None:
    all_of_them, high_only, low_only = harness.worker(), limited_worker(harness, HIGH), limited_worker(harness, LOW)
    for worker in (all_of_them, high_only, low_only):
        assert harness.engine.sleep(worker)
    harness.submit(priority=HIGH)
    harness.pass_seconds(1)
    assert (peer_of(all_of_them).words(), peer_of(low_only).words()) == (["wake"], [])


def test_those_of_one_priority_are_served_in_the_order_in_which_they_began_to_wait(harness: Harness) -> None:
    workers = [limited_worker(harness, *priorities) for priorities in ((HIGH,), (LOW, HIGH), (HIGH,))]
    for worker in workers:
        harness.engine.grant(worker, 1)
    assert [harness.submit(priority=HIGH).worker for _ in range(4)] == [*workers, None]
    check_engine(harness.engine)


def test_the_best_priority_of_all_its_functions_comes_first(harness: Harness) -> None:
    worker = limited_worker(harness, LOW, NORMAL)
    harness.engine.can_do(worker, harness.function(b"other"))
    low, other = harness.submit(priority=LOW), harness.submit(b"other", priority=HIGH)
    harness.submit(priority=HIGH)
    assert harness.engine.take(worker) is other
    assert harness.engine.take(worker) is low
    assert harness.engine.take(worker) is None


def test_what_it_takes_can_change_while_it_waits(harness: Harness) -> None:
    worker = limited_worker(harness, HIGH)
    harness.engine.grant(worker, 2)
    normal, low = harness.submit(priority=NORMAL), harness.submit(priority=LOW)
    harness.engine.can_do(worker, harness.function(), 0, (NORMAL,))
    assert peer_of(worker).heard == [("assign", worker.id, normal.id)]
    check_engine(harness.engine)
    harness.engine.can_do(worker, harness.function())
    assert peer_of(worker).heard[1:] == [("assign", worker.id, low.id)]
    check_engine(harness.engine)


@pytest.mark.parametrize("leaves", ["function", "server"])
def test_when_it_leaves_nothing_is_left_of_it(harness: Harness, leaves: str) -> None:
    worker = limited_worker(harness, HIGH, LOW)
    harness.engine.grant(worker, 1)
    harness.engine.sleep(worker)
    if leaves == "function":
        harness.engine.cannot_do(worker, harness.function())
    else:
        harness.engine.remove_worker(worker)
    assert harness.function().by_priority is None
    assert worker.priorities is None
    assert state_of(harness.submit(priority=HIGH)) is READY
    check_engine(harness.engine)


def test_a_paused_function_gives_it_what_has_gathered_when_it_is_resumed(harness: Harness) -> None:
    pusher, sleeper = limited_worker(harness, HIGH), limited_worker(harness, LOW)
    harness.engine.pause(harness.function())
    harness.engine.grant(pusher, 5)
    harness.engine.sleep(sleeper)
    for priority in (HIGH, NORMAL, LOW, HIGH):
        harness.submit(priority=priority)
    harness.engine.resume(harness.function())
    assert (peer_of(pusher).words(), peer_of(sleeper).words()) == (["assign", "assign"], ["wake"])
    check_engine(harness.engine)


def test_limits_hold_for_it_too(harness: Harness) -> None:
    harness.engine.set_policy(harness.function(), Policy(concurrency=1))
    worker = limited_worker(harness, HIGH)
    harness.engine.grant(worker, 3)
    first, second = harness.submit(priority=HIGH), harness.submit(priority=HIGH)
    assert (first.worker, second.worker) == (worker, None)
    harness.engine.complete(worker, first.id, b"")
    assert second.worker is worker
    check_engine(harness.engine)


def test_a_wake_policy_is_shown_it_for_its_own_jobs_only(harness: Harness) -> None:
    shown: list[list[Worker]] = []

    def all_of_these(job: Job, workers: Sequence[Worker]) -> Sequence[Worker]:
        shown.append(list(workers))
        return workers

    harness.engine.wake_policy = all_of_these
    all_of_them, high_only = harness.worker(), limited_worker(harness, HIGH)
    for worker in (all_of_them, high_only):
        harness.engine.sleep(worker)
    harness.submit(priority=NORMAL)
    assert shown == [[all_of_them]]
    assert peer_of(high_only).heard == []


def test_a_job_that_is_due_goes_to_those_that_take_urgent_ones(harness: Harness) -> None:
    worker = limited_worker(harness, URGENT)
    harness.engine.grant(worker, 1)
    job = harness.submit(priority=URGENT, run_at_us=harness.at(5))
    harness.pass_seconds(5)
    assert job.worker is worker


def test_explain_says_that_nobody_takes_the_priority(harness: Harness) -> None:
    limited_worker(harness, HIGH)
    (reason,) = harness.engine.explain(harness.submit(priority=LOW))
    assert (reason.word, reason.data["priority"]) == ("no_worker", LOW)
