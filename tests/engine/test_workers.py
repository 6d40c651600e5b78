"""Three ways to ask for jobs: pull, sleep and be woken, be pushed to; and workers that were woken and do not come."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.model import READY, RUNNING, SECOND_US, Job, Worker
from switchgear.testing import RecordingPeer
from tests.engine.harness import Harness, ids, peer_of, state_of

MakeHarness = Callable[..., Harness]


def asleep(harness: Harness, *functions: bytes) -> Worker:
    worker = harness.worker(*functions)
    assert harness.engine.sleep(worker)
    return worker


def woken(*workers: Worker) -> list[bool]:
    return [peer_of(worker).words() == ["wake"] for worker in workers]


# --- pull ---


def test_a_worker_that_asks_is_given_a_job_or_nothing(harness: Harness) -> None:
    worker = harness.worker()
    assert harness.engine.take(worker) is None
    job = harness.submit()
    assert harness.engine.take(worker) is job
    assert (job.state, job.worker, job.attempts) == (RUNNING, worker, 1)
    assert worker.running == {job.id: job}
    assert (harness.function().ready, harness.function().running) == (0, 1)
    assert harness.engine.take(worker) is None


def test_it_gets_only_jobs_that_it_can_do(harness: Harness) -> None:
    harness.submit(b"other")
    assert harness.engine.take(harness.worker(b"mail")) is None


def test_it_may_hold_several_and_finish_them_in_any_order(harness: Harness) -> None:
    worker = harness.worker()
    jobs = [harness.submit() for _ in range(3)]
    assert [harness.engine.take(worker) for _ in jobs] == jobs
    for job in reversed(jobs):
        assert harness.engine.complete(worker, job.id, b"") is job


def test_it_may_not_hold_more_than_the_limit(make_harness: MakeHarness) -> None:
    harness = make_harness(jobs_per_worker=2)
    worker = harness.worker()
    jobs = [harness.submit() for _ in range(3)]
    assert [harness.engine.take(worker) for _ in jobs] == [jobs[0], jobs[1], None]
    harness.engine.complete(worker, jobs[0].id, b"")
    assert harness.engine.take(worker) is jobs[2]


def test_no_limit_is_zero(make_harness: MakeHarness) -> None:
    harness = make_harness(jobs_per_worker=0)
    harness.submit()
    assert harness.engine.take(harness.worker()) is not None


def test_a_function_it_gave_up_is_not_served_but_a_running_job_stays(harness: Harness) -> None:
    worker, job = harness.running()
    harness.submit()
    harness.engine.cannot_do(worker, harness.function())
    harness.engine.cannot_do(worker, harness.function())
    assert harness.engine.take(worker) is None
    assert harness.function().workers == {}
    assert harness.engine.complete(worker, job.id, b"") is job


def test_a_function_registered_twice_counts_once(harness: Harness) -> None:
    worker = harness.worker(b"mail", b"mail")
    assert worker.order == [harness.function()]
    assert list(harness.function().workers) == [worker]


# --- sleep and be woken ---


def test_a_sleeper_is_woken_once_and_has_to_ask(harness: Harness) -> None:
    worker = asleep(harness)
    job = harness.submit()
    harness.submit()
    assert peer_of(worker).heard == [("wake", worker.id)]
    assert not worker.asleep
    assert state_of(job) is READY
    assert harness.engine.take(worker) is job


def test_one_who_wants_to_sleep_while_there_is_a_job_is_told_so(harness: Harness) -> None:
    harness.submit()
    worker = harness.worker()
    assert not harness.engine.sleep(worker)
    assert not worker.asleep
    harness.engine.take(worker)
    assert harness.engine.sleep(worker)


def test_one_who_asks_is_not_asleep_any_more(harness: Harness) -> None:
    worker = asleep(harness)
    assert harness.engine.take(worker) is None
    harness.submit()
    assert peer_of(worker).heard == []


def test_the_one_asleep_longest_is_woken(harness: Harness) -> None:
    first, second, third = (asleep(harness) for _ in range(3))
    harness.submit()
    assert woken(first, second, third) == [True, False, False]
    harness.submit()
    assert woken(first, second, third) == [True, True, False]


def test_going_to_sleep_twice_does_not_change_ones_turn(harness: Harness) -> None:
    first, second = asleep(harness), asleep(harness)
    harness.engine.sleep(first)
    harness.submit()
    assert woken(first, second) == [True, False]


@pytest.mark.parametrize(("wakeups", "expected"), [(1, 1), (2, 2), (0, 3)])
def test_the_setting_says_how_many_are_woken_for_a_job(make_harness: MakeHarness, wakeups: int, expected: int) -> None:
    harness = make_harness(wakeups=wakeups)
    workers = [asleep(harness) for _ in range(3)]
    harness.submit()
    assert sum(woken(*workers)) == expected


def test_one_who_sleeps_for_several_functions_is_woken_for_any_and_then_for_none(harness: Harness) -> None:
    worker, other = asleep(harness, b"one", b"two"), asleep(harness, b"one")
    harness.submit(b"two")
    assert woken(worker, other) == [True, False]
    harness.submit(b"one")
    assert woken(worker, other) == [True, True]


def test_one_who_learns_something_while_asleep_is_woken_for_what_is_there(harness: Harness) -> None:
    worker = asleep(harness, b"other")
    harness.submit(b"mail")
    harness.engine.can_do(worker, harness.function(b"mail"))
    assert woken(worker) == [True]


def test_one_who_learns_something_while_asleep_is_woken_for_what_comes(harness: Harness) -> None:
    worker = asleep(harness, b"other")
    harness.engine.can_do(worker, harness.function(b"mail"))
    harness.submit(b"mail")
    assert woken(worker) == [True]


def test_one_who_forgot_a_function_is_not_woken_for_it(harness: Harness) -> None:
    worker = asleep(harness, b"one", b"two")
    harness.engine.cannot_do(worker, harness.function(b"one"))
    harness.submit(b"one")
    assert woken(worker) == [False]
    harness.submit(b"two")
    assert woken(worker) == [True]


def test_a_requeued_job_wakes_a_sleeper(harness: Harness) -> None:
    worker, _ = harness.running()
    sleeper = asleep(harness)
    harness.engine.remove_worker(worker)
    assert woken(sleeper) == [True]


# --- woken, but not for long ---


def test_if_the_one_who_was_woken_leaves_another_is_woken(harness: Harness) -> None:
    first, second = asleep(harness), asleep(harness)
    harness.submit()
    harness.engine.remove_worker(first)
    assert woken(second) == [True]


def test_if_the_one_who_was_woken_gives_up_the_function_another_is_woken(harness: Harness) -> None:
    first, second = asleep(harness), asleep(harness)
    harness.submit()
    harness.engine.forget_functions(first)
    assert woken(second) == [True]


@pytest.mark.parametrize("order", ["fair", "registration", "round-robin"])
def test_if_the_one_who_was_woken_takes_another_job_another_is_woken(make_harness: MakeHarness, order: str) -> None:
    harness = make_harness(function_order=order)
    first, second = asleep(harness, b"mail", b"other"), asleep(harness, b"mail")
    harness.submit(b"mail")
    urgent = harness.submit(b"other", priority=0)
    assert woken(first, second) == [True, False]
    assert harness.engine.take(first) is urgent
    assert woken(second) == [True]


def test_one_who_holds_too_much_may_sleep_and_is_woken_when_it_may_have_room(make_harness: MakeHarness) -> None:
    harness = make_harness(jobs_per_worker=1)
    worker, job = harness.running()
    waiting = harness.submit()
    assert harness.engine.sleep(worker)
    harness.engine.complete(worker, job.id, b"")
    harness.pass_seconds(1)
    assert woken(worker) == [True]
    assert harness.engine.take(worker) is waiting


def test_those_who_hold_too_much_do_not_wake_each_other(make_harness: MakeHarness) -> None:
    harness = make_harness(jobs_per_worker=1)
    (first, _), (second, _) = harness.running(), harness.running()
    harness.submit()
    assert harness.engine.sleep(first)
    assert harness.engine.sleep(second)
    assert harness.engine.take(first) is None
    assert woken(first, second) == [False, False]


def test_one_with_credit_who_learns_something_while_asleep_is_sent_it_and_sleeps_on(harness: Harness) -> None:
    worker = asleep(harness, b"other")
    harness.engine.grant(worker, 1)
    job = harness.submit(b"mail")
    harness.engine.can_do(worker, harness.function(b"mail"))
    assert peer_of(worker).heard == [("assign", worker.id, job.id)]
    assert worker.asleep


def test_if_the_one_who_was_woken_does_not_come_everybody_is_woken(harness: Harness) -> None:
    hung, second, third = (asleep(harness) for _ in range(3))
    harness.submit()
    harness.pass_seconds(0.999999)
    assert woken(hung, second, third) == [True, False, False]
    harness.pass_seconds(0.000001)
    assert woken(hung, second, third) == [True, True, True]


def test_nobody_is_woken_needlessly_if_the_job_was_taken(harness: Harness) -> None:
    first, second = asleep(harness), asleep(harness)
    harness.submit()
    harness.engine.take(first)
    harness.pass_seconds(60)
    assert woken(second) == [False]
    assert harness.engine.next_deadline_us is None


def test_as_long_as_jobs_are_taken_one_more_is_woken_at_a_time(harness: Harness) -> None:
    workers = [asleep(harness) for _ in range(6)]
    jobs = [harness.submit() for _ in range(4)]  # the four who are woken for these do not come
    busy = harness.worker()
    for number_woken in (5, 6):
        harness.pass_seconds(0.5)
        assert harness.engine.take(busy) in jobs
        harness.pass_seconds(0.499999)
        assert sum(woken(*workers)) == number_woken - 1
        harness.pass_seconds(0.000001)
        assert sum(woken(*workers)) == number_woken


def test_neglect_of_a_paused_function_is_no_neglect(harness: Harness) -> None:
    hung, second = asleep(harness), asleep(harness)
    harness.submit()
    harness.engine.pause(harness.function())
    harness.pass_seconds(5)
    assert woken(hung, second) == [True, False]
    harness.engine.resume(harness.function())
    assert woken(hung, second) == [True, True]


# --- be pushed to ---


def test_a_worker_with_credit_is_sent_what_is_there_and_what_comes(harness: Harness) -> None:
    first, second = harness.submit(), harness.submit()
    worker = harness.worker()
    harness.engine.grant(worker, 3)
    third, fourth = harness.submit(), harness.submit()
    assert peer_of(worker).heard == [("assign", worker.id, job.id) for job in (first, second, third)]
    assert worker.credits == 0
    assert state_of(fourth) is READY
    harness.engine.grant(worker, 1)
    assert list(worker.running) == ids(first, second, third, fourth)


def test_the_best_job_is_pushed(harness: Harness) -> None:
    worker = harness.worker(b"one", b"two")
    harness.submit(b"one")
    high = harness.submit(b"two", priority=0)
    harness.engine.grant(worker, 1)
    assert list(worker.running) == [high.id]


def test_workers_with_credit_take_turns(harness: Harness) -> None:
    first, second = harness.worker(), harness.worker()
    harness.engine.grant(first, 2)
    harness.engine.grant(second, 2)
    jobs = [harness.submit() for _ in range(4)]
    assert list(first.running) == ids(jobs[0], jobs[2])
    assert list(second.running) == ids(jobs[1], jobs[3])


def test_credit_is_for_all_functions_together(harness: Harness) -> None:
    worker = harness.worker(b"one", b"two")
    harness.engine.grant(worker, 1)
    pushed, left = harness.submit(b"one"), harness.submit(b"two")
    assert (pushed.state, left.state) == (RUNNING, READY)


def test_credit_is_used_for_a_function_that_is_learnt_later(harness: Harness) -> None:
    job = harness.submit(b"mail")
    worker = harness.worker(b"other")
    harness.engine.grant(worker, 2)
    harness.engine.can_do(worker, harness.function(b"mail"))
    later = harness.submit(b"mail")
    assert list(worker.running) == ids(job, later)


def test_credit_that_was_taken_back_is_not_used(harness: Harness) -> None:
    worker = harness.worker(b"one", b"two")
    harness.engine.grant(worker, 5)
    harness.engine.withdraw_credit(worker)
    assert state_of(harness.submit(b"one")) is READY
    assert state_of(harness.submit(b"two")) is READY


@pytest.mark.parametrize(("asked", "taken"), [(0, 0), (2, 2), (3, 3), (5, 3), (-1, 0)])
def test_some_credit_is_taken_back_but_never_more_than_there_is(harness: Harness, asked: int, taken: int) -> None:
    worker = harness.worker(b"one", b"two")
    harness.engine.grant(worker, 3)
    assert harness.engine.take_back_credit(worker, asked) == taken
    jobs = [harness.submit(b"one") for _ in range(4)]
    assert list(worker.running) == ids(*jobs[: 3 - taken])


def test_credit_may_be_taken_back_by_a_peer_that_is_being_assigned_a_job(harness: Harness) -> None:
    worker = harness.worker()
    peer = peer_of(worker)

    class Modest(RecordingPeer):
        def assign(self, worker: Worker, job: Job) -> None:
            harness.engine.take_back_credit(worker, worker.credits)

    worker.peer = Modest()
    jobs = [harness.submit() for _ in range(3)]
    harness.engine.grant(worker, 3)
    assert list(worker.running) == ids(jobs[0])
    harness.engine.grant(worker, 0)
    harness.engine.complete(worker, jobs[0].id, b"")
    harness.engine.grant(worker, 5)
    assert list(worker.running) == ids(jobs[1])
    worker.peer = peer


def test_one_with_credit_is_preferred_to_a_sleeper(harness: Harness) -> None:
    sleeper, pushed = asleep(harness), harness.worker()
    harness.engine.grant(pushed, 1)
    job = harness.submit()
    assert job.worker is pushed
    assert woken(sleeper) == [False]


def test_a_job_that_was_pushed_is_lost_and_pushed_to_the_next(harness: Harness) -> None:
    first, second = harness.worker(), harness.worker()
    harness.engine.grant(first, 1)
    harness.engine.grant(second, 1)
    job = harness.submit()
    harness.engine.remove_worker(first)
    assert peer_of(second).heard == [("assign", second.id, job.id)]


def test_a_dead_workers_credit_is_not_used(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.grant(worker, 1)
    harness.engine.remove_worker(worker)
    assert state_of(harness.submit()) is READY


def test_credit_has_the_limit_of_what_a_worker_may_hold(make_harness: MakeHarness) -> None:
    harness = make_harness(jobs_per_worker=2)
    worker = harness.worker()
    harness.engine.grant(worker, 1_000_000)
    assert worker.credits == 2
    jobs = [harness.submit() for _ in range(3)]
    harness.engine.grant(worker, 1)
    assert list(worker.running) == ids(*jobs[:2])
    harness.engine.complete(worker, jobs[0].id, b"")
    harness.engine.grant(worker, 1)
    assert list(worker.running) == ids(*jobs[1:])


# --- several workers behind one peer ---


def test_one_connection_may_speak_for_several_workers(harness: Harness) -> None:
    peer = RecordingPeer()
    first, second = harness.worker(peer=peer), harness.worker(peer=peer)
    harness.engine.grant(first, 1)
    harness.engine.grant(second, 1)
    jobs = [harness.submit(), harness.submit()]
    assert peer.heard == [("assign", first.id, jobs[0].id), ("assign", second.id, jobs[1].id)]
    harness.engine.renew_lease(first, SECOND_US)
    harness.pass_seconds(1)
    assert not first.alive
    assert second.alive
