"""Three ways to ask for jobs: pull, sleep and be woken, be pushed to; and workers that were woken and do not come."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.model import READY, RUNNING, SECOND_US, Job, Worker
from switchgear.testing import RecordingPeer
from tests.engine.house import House, ids, peer_of, state_of

MakeHouse = Callable[..., House]


def asleep(house: House, *functions: bytes) -> Worker:
    worker = house.worker(*functions)
    assert house.engine.sleep(worker)
    return worker


def woken(*workers: Worker) -> list[bool]:
    return [peer_of(worker).words() == ["wake"] for worker in workers]


# --- pull ---


def test_a_worker_that_asks_is_given_a_job_or_nothing(house: House) -> None:
    worker = house.worker()
    assert house.engine.take(worker) is None
    job = house.submit()
    assert house.engine.take(worker) is job
    assert (job.state, job.worker, job.attempts) == (RUNNING, worker, 1)
    assert worker.running == {job.id: job}
    assert (house.function().ready, house.function().running) == (0, 1)
    assert house.engine.take(worker) is None


def test_it_gets_only_jobs_that_it_can_do(house: House) -> None:
    house.submit(b"other")
    assert house.engine.take(house.worker(b"mail")) is None


def test_it_may_hold_several_and_finish_them_in_any_order(house: House) -> None:
    worker = house.worker()
    jobs = [house.submit() for _ in range(3)]
    assert [house.engine.take(worker) for _ in jobs] == jobs
    for job in reversed(jobs):
        assert house.engine.complete(worker, job.id, b"") is job


def test_it_may_not_hold_more_than_the_limit(make_house: MakeHouse) -> None:
    house = make_house(jobs_per_worker=2)
    worker = house.worker()
    jobs = [house.submit() for _ in range(3)]
    assert [house.engine.take(worker) for _ in jobs] == [jobs[0], jobs[1], None]
    house.engine.complete(worker, jobs[0].id, b"")
    assert house.engine.take(worker) is jobs[2]


def test_no_limit_is_zero(make_house: MakeHouse) -> None:
    house = make_house(jobs_per_worker=0)
    house.submit()
    assert house.engine.take(house.worker()) is not None


def test_a_function_it_gave_up_is_not_served_but_a_running_job_stays(house: House) -> None:
    worker, job = house.running()
    house.submit()
    house.engine.cannot_do(worker, house.function())
    house.engine.cannot_do(worker, house.function())
    assert house.engine.take(worker) is None
    assert house.function().workers == {}
    assert house.engine.complete(worker, job.id, b"") is job


def test_a_function_registered_twice_counts_once(house: House) -> None:
    worker = house.worker(b"mail", b"mail")
    assert worker.order == [house.function()]
    assert list(house.function().workers) == [worker]


# --- sleep and be woken ---


def test_a_sleeper_is_woken_once_and_has_to_ask(house: House) -> None:
    worker = asleep(house)
    job = house.submit()
    house.submit()
    assert peer_of(worker).heard == [("wake", worker.id)]
    assert not worker.asleep
    assert state_of(job) is READY
    assert house.engine.take(worker) is job


def test_one_who_wants_to_sleep_while_there_is_a_job_is_told_so(house: House) -> None:
    house.submit()
    worker = house.worker()
    assert not house.engine.sleep(worker)
    assert not worker.asleep
    house.engine.take(worker)
    assert house.engine.sleep(worker)


def test_one_who_asks_is_not_asleep_any_more(house: House) -> None:
    worker = asleep(house)
    assert house.engine.take(worker) is None
    house.submit()
    assert peer_of(worker).heard == []


def test_the_one_asleep_longest_is_woken(house: House) -> None:
    first, second, third = (asleep(house) for _ in range(3))
    house.submit()
    assert woken(first, second, third) == [True, False, False]
    house.submit()
    assert woken(first, second, third) == [True, True, False]


def test_going_to_sleep_twice_does_not_change_ones_turn(house: House) -> None:
    first, second = asleep(house), asleep(house)
    house.engine.sleep(first)
    house.submit()
    assert woken(first, second) == [True, False]


@pytest.mark.parametrize(("wakeups", "expected"), [(1, 1), (2, 2), (0, 3)])
def test_the_setting_says_how_many_are_woken_for_a_job(make_house: MakeHouse, wakeups: int, expected: int) -> None:
    house = make_house(wakeups=wakeups)
    workers = [asleep(house) for _ in range(3)]
    house.submit()
    assert sum(woken(*workers)) == expected


def test_one_who_sleeps_for_several_functions_is_woken_for_any_and_then_for_none(house: House) -> None:
    worker, other = asleep(house, b"one", b"two"), asleep(house, b"one")
    house.submit(b"two")
    assert woken(worker, other) == [True, False]
    house.submit(b"one")
    assert woken(worker, other) == [True, True]


def test_one_who_learns_something_while_asleep_is_woken_for_what_is_there(house: House) -> None:
    worker = asleep(house, b"other")
    house.submit(b"mail")
    house.engine.can_do(worker, house.function(b"mail"))
    assert woken(worker) == [True]


def test_one_who_learns_something_while_asleep_is_woken_for_what_comes(house: House) -> None:
    worker = asleep(house, b"other")
    house.engine.can_do(worker, house.function(b"mail"))
    house.submit(b"mail")
    assert woken(worker) == [True]


def test_one_who_forgot_a_function_is_not_woken_for_it(house: House) -> None:
    worker = asleep(house, b"one", b"two")
    house.engine.cannot_do(worker, house.function(b"one"))
    house.submit(b"one")
    assert woken(worker) == [False]
    house.submit(b"two")
    assert woken(worker) == [True]


def test_a_requeued_job_wakes_a_sleeper(house: House) -> None:
    worker, _ = house.running()
    sleeper = asleep(house)
    house.engine.remove_worker(worker)
    assert woken(sleeper) == [True]


# --- woken, but not for long ---


def test_if_the_one_who_was_woken_leaves_another_is_woken(house: House) -> None:
    first, second = asleep(house), asleep(house)
    house.submit()
    house.engine.remove_worker(first)
    assert woken(second) == [True]


def test_if_the_one_who_was_woken_gives_up_the_function_another_is_woken(house: House) -> None:
    first, second = asleep(house), asleep(house)
    house.submit()
    house.engine.forget_functions(first)
    assert woken(second) == [True]


@pytest.mark.parametrize("order", ["fair", "registration", "round-robin"])
def test_if_the_one_who_was_woken_takes_another_job_another_is_woken(make_house: MakeHouse, order: str) -> None:
    house = make_house(function_order=order)
    first, second = asleep(house, b"mail", b"other"), asleep(house, b"mail")
    house.submit(b"mail")
    urgent = house.submit(b"other", priority=0)
    assert woken(first, second) == [True, False]
    assert house.engine.take(first) is urgent
    assert woken(second) == [True]


def test_one_who_holds_too_much_may_sleep_and_is_woken_when_it_may_have_room(make_house: MakeHouse) -> None:
    house = make_house(jobs_per_worker=1)
    worker, job = house.running()
    waiting = house.submit()
    assert house.engine.sleep(worker)
    house.engine.complete(worker, job.id, b"")
    house.pass_seconds(1)
    assert woken(worker) == [True]
    assert house.engine.take(worker) is waiting


def test_those_who_hold_too_much_do_not_wake_each_other(make_house: MakeHouse) -> None:
    house = make_house(jobs_per_worker=1)
    (first, _), (second, _) = house.running(), house.running()
    house.submit()
    assert house.engine.sleep(first)
    assert house.engine.sleep(second)
    assert house.engine.take(first) is None
    assert woken(first, second) == [False, False]


def test_one_with_credit_who_learns_something_while_asleep_is_sent_it_and_sleeps_on(house: House) -> None:
    worker = asleep(house, b"other")
    house.engine.grant(worker, 1)
    job = house.submit(b"mail")
    house.engine.can_do(worker, house.function(b"mail"))
    assert peer_of(worker).heard == [("assign", worker.id, job.id)]
    assert worker.asleep


def test_if_the_one_who_was_woken_does_not_come_everybody_is_woken(house: House) -> None:
    hung, second, third = (asleep(house) for _ in range(3))
    house.submit()
    house.pass_seconds(0.999999)
    assert woken(hung, second, third) == [True, False, False]
    house.pass_seconds(0.000001)
    assert woken(hung, second, third) == [True, True, True]


def test_nobody_is_woken_needlessly_if_the_job_was_taken(house: House) -> None:
    first, second = asleep(house), asleep(house)
    house.submit()
    house.engine.take(first)
    house.pass_seconds(60)
    assert woken(second) == [False]
    assert house.engine.next_deadline_us is None


def test_as_long_as_jobs_are_taken_one_more_is_woken_at_a_time(house: House) -> None:
    workers = [asleep(house) for _ in range(6)]
    jobs = [house.submit() for _ in range(4)]  # the four who are woken for these do not come
    busy = house.worker()
    for number_woken in (5, 6):
        house.pass_seconds(0.5)
        assert house.engine.take(busy) in jobs
        house.pass_seconds(0.499999)
        assert sum(woken(*workers)) == number_woken - 1
        house.pass_seconds(0.000001)
        assert sum(woken(*workers)) == number_woken


def test_neglect_of_a_paused_function_is_no_neglect(house: House) -> None:
    hung, second = asleep(house), asleep(house)
    house.submit()
    house.engine.pause(house.function())
    house.pass_seconds(5)
    assert woken(hung, second) == [True, False]
    house.engine.resume(house.function())
    assert woken(hung, second) == [True, True]


# --- be pushed to ---


def test_a_worker_with_credit_is_sent_what_is_there_and_what_comes(house: House) -> None:
    first, second = house.submit(), house.submit()
    worker = house.worker()
    house.engine.grant(worker, 3)
    third, fourth = house.submit(), house.submit()
    assert peer_of(worker).heard == [("assign", worker.id, job.id) for job in (first, second, third)]
    assert worker.credits == 0
    assert state_of(fourth) is READY
    house.engine.grant(worker, 1)
    assert list(worker.running) == ids(first, second, third, fourth)


def test_the_best_job_is_pushed(house: House) -> None:
    worker = house.worker(b"one", b"two")
    house.submit(b"one")
    high = house.submit(b"two", priority=0)
    house.engine.grant(worker, 1)
    assert list(worker.running) == [high.id]


def test_workers_with_credit_take_turns(house: House) -> None:
    first, second = house.worker(), house.worker()
    house.engine.grant(first, 2)
    house.engine.grant(second, 2)
    jobs = [house.submit() for _ in range(4)]
    assert list(first.running) == ids(jobs[0], jobs[2])
    assert list(second.running) == ids(jobs[1], jobs[3])


def test_credit_is_for_all_functions_together(house: House) -> None:
    worker = house.worker(b"one", b"two")
    house.engine.grant(worker, 1)
    pushed, left = house.submit(b"one"), house.submit(b"two")
    assert (pushed.state, left.state) == (RUNNING, READY)


def test_credit_is_used_for_a_function_that_is_learnt_later(house: House) -> None:
    job = house.submit(b"mail")
    worker = house.worker(b"other")
    house.engine.grant(worker, 2)
    house.engine.can_do(worker, house.function(b"mail"))
    later = house.submit(b"mail")
    assert list(worker.running) == ids(job, later)


def test_credit_that_was_taken_back_is_not_used(house: House) -> None:
    worker = house.worker(b"one", b"two")
    house.engine.grant(worker, 5)
    house.engine.withdraw_credit(worker)
    assert state_of(house.submit(b"one")) is READY
    assert state_of(house.submit(b"two")) is READY


@pytest.mark.parametrize(("asked", "taken"), [(0, 0), (2, 2), (3, 3), (5, 3), (-1, 0)])
def test_some_credit_is_taken_back_but_never_more_than_there_is(house: House, asked: int, taken: int) -> None:
    worker = house.worker(b"one", b"two")
    house.engine.grant(worker, 3)
    assert house.engine.take_back_credit(worker, asked) == taken
    jobs = [house.submit(b"one") for _ in range(4)]
    assert list(worker.running) == ids(*jobs[: 3 - taken])


def test_credit_may_be_taken_back_by_a_peer_that_is_being_assigned_a_job(house: House) -> None:
    worker = house.worker()
    peer = peer_of(worker)

    class Modest(RecordingPeer):
        def assign(self, worker: Worker, job: Job) -> None:
            house.engine.take_back_credit(worker, worker.credits)

    worker.peer = Modest()
    jobs = [house.submit() for _ in range(3)]
    house.engine.grant(worker, 3)
    assert list(worker.running) == ids(jobs[0])
    house.engine.grant(worker, 0)
    house.engine.complete(worker, jobs[0].id, b"")
    house.engine.grant(worker, 5)
    assert list(worker.running) == ids(jobs[1])
    worker.peer = peer


def test_one_with_credit_is_preferred_to_a_sleeper(house: House) -> None:
    sleeper, pushed = asleep(house), house.worker()
    house.engine.grant(pushed, 1)
    job = house.submit()
    assert job.worker is pushed
    assert woken(sleeper) == [False]


def test_a_job_that_was_pushed_is_lost_and_pushed_to_the_next(house: House) -> None:
    first, second = house.worker(), house.worker()
    house.engine.grant(first, 1)
    house.engine.grant(second, 1)
    job = house.submit()
    house.engine.remove_worker(first)
    assert peer_of(second).heard == [("assign", second.id, job.id)]


def test_a_dead_workers_credit_is_not_used(house: House) -> None:
    worker = house.worker()
    house.engine.grant(worker, 1)
    house.engine.remove_worker(worker)
    assert state_of(house.submit()) is READY


def test_credit_has_the_limit_of_what_a_worker_may_hold(make_house: MakeHouse) -> None:
    house = make_house(jobs_per_worker=2)
    worker = house.worker()
    house.engine.grant(worker, 1_000_000)
    assert worker.credits == 2
    jobs = [house.submit() for _ in range(3)]
    house.engine.grant(worker, 1)
    assert list(worker.running) == ids(*jobs[:2])
    house.engine.complete(worker, jobs[0].id, b"")
    house.engine.grant(worker, 1)
    assert list(worker.running) == ids(*jobs[1:])


# --- several workers behind one peer ---


def test_one_connection_may_speak_for_several_workers(house: House) -> None:
    peer = RecordingPeer()
    first, second = house.worker(peer=peer), house.worker(peer=peer)
    house.engine.grant(first, 1)
    house.engine.grant(second, 1)
    jobs = [house.submit(), house.submit()]
    assert peer.heard == [("assign", first.id, jobs[0].id), ("assign", second.id, jobs[1].id)]
    house.engine.renew_lease(first, SECOND_US)
    house.pass_seconds(1)
    assert not first.alive
    assert second.alive
