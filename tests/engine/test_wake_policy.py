"""Whom to wake is the operator's choice: a policy sees the next job and the workers that sleep, and names some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from switchgear.model import HIGH, Job, Worker
from tests.engine.house import House, ids, peer_of

MakeHouse = Callable[..., House]


class Policy:
    """Chooses as told, and remembers what it was asked."""

    def __init__(self, choose: Callable[[Job, Sequence[Worker]], Iterable[Worker]]) -> None:
        self.choose = choose
        self.asked: list[tuple[int, list[int]]] = []  # job, workers

    def __call__(self, job: Job, workers: Sequence[Worker]) -> Iterable[Worker]:
        self.asked.append((job.id, [worker.id for worker in workers]))
        return self.choose(job, workers)


def asleep(house: House, *functions: bytes, **headers: Any) -> Worker:
    worker = house.worker(*functions)
    worker.headers = headers
    assert house.engine.sleep(worker)
    return worker


def woken(*workers: Worker) -> list[bool]:
    return [peer_of(worker).words() == ["wake"] for worker in workers]


def test_without_a_policy_the_one_asleep_longest_is_woken(house: House) -> None:
    assert house.engine.wake_policy is None
    workers = [asleep(house) for _ in range(3)]
    house.submit()
    assert woken(*workers) == [True, False, False]


def test_a_policy_sees_the_job_and_those_who_sleep_the_one_asleep_longest_first(house: House) -> None:
    policy = house.engine.wake_policy = Policy(lambda job, workers: workers[:1])
    first, _other, second = asleep(house), asleep(house, b"other"), asleep(house)
    job = house.submit()
    assert policy.asked == [(job.id, [first.id, second.id])]


def test_those_that_it_names_are_woken_in_the_order_in_which_it_names_them(house: House) -> None:
    calls: list[int] = []
    house.engine.wake_policy = lambda job, workers: [workers[2], workers[0], workers[2]]
    workers = [asleep(house) for _ in range(3)]
    for worker in workers:
        peer_of(worker).wake = lambda worker: calls.append(worker.id)  # type: ignore[method-assign]
    house.submit()
    assert calls == [workers[2].id, workers[0].id]
    assert [worker.asleep for worker in workers] == [False, True, False]


def test_all_may_be_woken(house: House) -> None:
    house.engine.wake_policy = lambda job, workers: workers
    workers = [asleep(house) for _ in range(3)]
    house.submit()
    assert woken(*workers) == [True, True, True]


def test_it_may_go_by_what_workers_say_of_themselves(house: House) -> None:
    house.engine.wake_policy = lambda job, workers: [w for w in workers if w.headers.get("gpu") == job.payload]
    plain, old, new = asleep(house), asleep(house, gpu=b"old"), asleep(house, gpu=b"new")
    house.submit(payload=b"new")
    assert woken(plain, old, new) == [False, False, True]


def test_it_is_asked_about_the_job_that_whoever_comes_will_get(house: House) -> None:
    policy = house.engine.wake_policy = Policy(lambda job, workers: ())
    first = house.submit()
    asleep(house)
    house.submit()
    urgent = house.submit(priority=HIGH)
    house.engine.cancel(urgent)
    house.submit()
    assert [job_id for job_id, _ in policy.asked] == [first.id, first.id, urgent.id, first.id]


def test_it_is_asked_about_one_that_came_back_too(house: House) -> None:
    house.function().released_first = True
    first, second = house.submit(), house.submit()
    other = house.submit(b"other")
    house.engine.add_predecessors(second, (other.id,))
    policy = house.engine.wake_policy = Policy(lambda job, workers: workers)
    worker = house.worker()
    house.engine.pause(house.function())
    assert house.engine.sleep(worker)
    house.engine.settle(other)
    house.engine.resume(house.function())
    assert policy.asked == [(second.id, [worker.id])]
    assert house.drain_with(worker) == ids(second, first)


def test_it_has_no_say_in_what_a_worker_gets_that_asks_or_has_granted_credit(house: House) -> None:
    house.engine.wake_policy = lambda job, workers: ()
    first = house.submit()
    puller, pushed = house.worker(), house.worker(b"other")
    assert house.engine.take(puller) is first
    house.engine.grant(pushed, 1)
    assert house.submit(b"other").worker is pushed


# --- if it names nobody ---


def test_it_is_asked_again_a_moment_later_for_as_long_as_somebody_sleeps(house: House) -> None:
    policy = house.engine.wake_policy = Policy(lambda job, workers: ())
    worker = asleep(house)
    job = house.submit()
    for times in (1, 2, 3):
        assert policy.asked == [(job.id, [worker.id])] * times
        house.pass_seconds(1)
    policy.choose = lambda job, workers: workers
    house.pass_seconds(1)
    assert woken(worker) == [True]
    asked = len(policy.asked)
    house.pass_seconds(60)
    assert len(policy.asked) == asked


def test_it_is_asked_about_one_who_wants_to_sleep(house: House) -> None:
    policy = house.engine.wake_policy = Policy(lambda job, workers: [w for w in workers if w.headers])
    job = house.submit()
    unfit, fit = house.worker(), house.worker()
    fit.headers = {"gpu": b"new"}
    assert house.engine.sleep(unfit)
    assert not house.engine.sleep(fit)
    assert policy.asked == [(job.id, [unfit.id]), (job.id, [fit.id])]
    assert peer_of(unfit).heard == []


def test_one_who_sleeps_though_there_is_a_job_is_thought_of_a_moment_later(house: House) -> None:
    policy = house.engine.wake_policy = Policy(lambda job, workers: ())
    house.submit()
    worker = house.worker()
    assert house.engine.sleep(worker)
    policy.choose = lambda job, workers: workers
    house.pass_seconds(0.999999)
    assert woken(worker) == [False]
    house.pass_seconds(0.000001)
    assert woken(worker) == [True]


def test_one_who_learns_something_while_asleep_is_woken_if_it_suits(house: House) -> None:
    house.engine.wake_policy = lambda job, workers: [w for w in workers if w.headers]
    unfit, fit = asleep(house, b"other"), asleep(house, b"other", gpu=b"new")
    house.submit(b"mail")
    for worker in (unfit, fit):
        house.engine.can_do(worker, house.function(b"mail"))
    assert woken(unfit, fit) == [False, True]


def test_those_that_were_woken_and_do_not_come_are_not_a_reason_to_wake_everybody(house: House) -> None:
    house.engine.wake_policy = lambda job, workers: [w for w in workers if w.headers]
    hung, unfit = asleep(house, gpu=b"new"), asleep(house)
    house.submit()
    house.pass_seconds(60)
    assert woken(hung, unfit) == [True, False]


def test_the_call_is_passed_on_to_whom_it_names_next(house: House) -> None:
    house.engine.wake_policy = lambda job, workers: [w for w in workers if w.headers][:1]
    first, unfit, second = asleep(house, gpu=b"a"), asleep(house), asleep(house, gpu=b"b")
    house.submit()
    house.engine.remove_worker(first)
    assert woken(unfit, second) == [False, True]


def test_resuming_asks_for_each_job_until_nobody_more_is_named(house: House) -> None:
    policy = house.engine.wake_policy = Policy(lambda job, workers: [w for w in workers if w.headers][:1])
    house.engine.pause(house.function())
    for _ in range(50):
        house.submit()
    fit, unfit = [asleep(house, gpu=b"a") for _ in range(3)], [asleep(house) for _ in range(30)]
    policy.asked.clear()
    house.engine.resume(house.function())
    assert woken(*fit, *unfit) == [True] * 3 + [False] * 30
    assert len(policy.asked) == 4


# --- if it is wrong ---


def stumble(job: Job, workers: Sequence[Worker]) -> Iterable[Worker]:
    yield workers[-1]
    raise KeyError("gpu")


@pytest.mark.parametrize(("wakeups", "expected"), [(1, 1), (2, 2), (0, 3)])
def test_if_it_raises_the_usual_choice_is_made_and_the_operator_hears_of_it(
    make_house: MakeHouse, wakeups: int, expected: int
) -> None:
    house = make_house(wakeups=wakeups)
    house.engine.wake_policy = stumble
    workers = [asleep(house) for _ in range(3)]
    house.submit()
    assert woken(*workers) == [True] * expected + [False] * (3 - expected)
    assert house.observer.heard[-1] == ("wake policy failed", b"mail", "KeyError('gpu')")


def test_if_it_raises_for_one_who_wants_to_sleep_that_one_is_told_to_ask(house: House) -> None:
    house.engine.wake_policy = stumble
    house.submit()
    assert not house.engine.sleep(house.worker())


@pytest.mark.parametrize("answer", [None, 7, [[]]], ids=repr)
def test_an_answer_that_makes_no_sense_is_a_mistake_too(house: House, answer: Any) -> None:
    house.engine.wake_policy = lambda job, workers: answer
    worker = asleep(house)
    house.submit()
    assert woken(worker) == [True]
    assert house.observer.heard[-1][0] == "wake policy failed"


def test_it_cannot_wake_whom_it_was_not_shown(house: House) -> None:
    awake, stranger, gone = house.worker(), asleep(house, b"other"), house.worker()
    house.engine.remove_worker(gone)
    house.engine.wake_policy = lambda job, workers: [awake, stranger, gone, "nobody", *workers]  # type: ignore[list-item]
    shown = asleep(house)
    house.submit()
    assert woken(awake, stranger, gone, shown) == [False, False, False, True]
    assert stranger.asleep
