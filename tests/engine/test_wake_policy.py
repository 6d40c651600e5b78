"""Who gets a job is the operator's choice: a policy sees jobs that are next and workers that fit, and names some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from switchgear.engine.wake_policy import MOST_CANDIDATES
from switchgear.model import EXPIRED, HIGH, NORMAL, Job, Worker
from switchgear.policy import Policy as Limits
from switchgear.testing import RecordingPeer
from switchgear.testing.invariants import check_engine
from tests.engine.house import House, ids, peer_of, state_of

GIGA = 10**9 * 1000  # amounts are thousandths
MakeHouse = Callable[..., House]


class Policy:
    """Chooses as told, and remembers what it was asked."""

    def __init__(self, choose: Callable[[Job, Sequence[Worker]], Iterable[Worker]]) -> None:
        self.choose = choose
        self.asked: list[tuple[int, list[int]]] = []  # job, workers

    def __call__(self, job: Job, workers: Sequence[Worker]) -> Iterable[Worker]:
        self.asked.append((job.id, [worker.id for worker in workers]))
        return self.choose(job, workers)


def needs_memory(job: Job, workers: Sequence[Worker]) -> Iterable[Worker]:
    """The payload says how much the job needs."""
    return [worker for worker in workers if worker.headers.get("memory", 0) >= int(job.payload or b"0")]


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


def test_it_is_asked_about_one_job_after_the_other_in_the_order_in_which_they_come(house: House) -> None:
    policy = house.engine.wake_policy = Policy(lambda job, workers: ())
    first, second = house.submit(), house.submit()
    asleep(house)
    assert [job_id for job_id, _ in policy.asked] == [first.id, second.id]
    policy.asked.clear()
    urgent = house.submit(priority=HIGH)
    assert [job_id for job_id, _ in policy.asked] == [urgent.id, first.id, second.id]


def test_a_job_for_which_it_names_nobody_does_not_block_those_behind_it(house: House) -> None:
    house.engine.wake_policy = needs_memory
    for _ in range(MOST_CANDIDATES - 1):
        house.submit(payload=b"64")
    fits = house.submit(payload=b"1")
    worker = house.worker()
    worker.headers = {"memory": 4}
    assert not house.engine.sleep(worker)
    assert house.engine.take(worker) is fits
    assert house.engine.take(worker) is None


def test_it_is_asked_about_so_many_jobs_and_no_more(house: House) -> None:
    policy = house.engine.wake_policy = Policy(lambda job, workers: ())
    for _ in range(3 * MOST_CANDIDATES):
        house.submit()
    asleep(house)
    assert len(policy.asked) == MOST_CANDIDATES


def test_candidates_of_a_long_queue_are_those_that_come_first(house: House) -> None:
    house.engine.packed_queues.pack_from, house.engine.packed_queues.head_jobs = 8, 2
    house.engine.packed_queues.segment_jobs = 3
    policy = house.engine.wake_policy = Policy(lambda job, workers: workers if job.id == 2 else ())
    jobs = [house.submit() for _ in range(20)]
    worker = house.worker()
    assert house.engine.take(worker) is jobs[1]
    policy.choose = lambda job, workers: workers
    assert house.drain_with(worker) == ids(jobs[0], *jobs[2:])


def test_jobs_that_no_worker_fits_are_none_of_them(house: House) -> None:
    policy = house.engine.wake_policy = Policy(lambda job, workers: workers)
    for _ in range(2 * MOST_CANDIDATES):
        house.submit(requires=b"memory=64G")
    fits = house.submit(requires=b"memory=1G")
    worker = house.worker()
    house.engine.describe_worker(worker, resources={b"memory": 4 * GIGA})
    assert not house.engine.sleep(worker)
    assert house.engine.take(worker) is fits
    assert policy.asked == [(fits.id, [worker.id])]


def test_a_worker_is_given_the_job_that_it_was_woken_for(house: House) -> None:
    house.engine.wake_policy = needs_memory
    small = asleep(house, memory=1)
    large = asleep(house, memory=4)
    four = house.submit(payload=b"4")
    one = house.submit(payload=b"1")
    assert woken(small, large) == [True, True]
    house.engine.wake_policy = lambda job, workers: workers  # and not what it would choose now
    assert house.engine.take(small) is one
    assert house.engine.take(large) is four


def test_for_each_job_somebody_is_woken(house: House) -> None:
    house.engine.wake_policy = lambda job, workers: workers[:1]
    workers = [asleep(house) for _ in range(3)]
    jobs = [house.submit() for _ in range(3)]
    assert woken(*workers) == [True, True, True]
    assert [house.engine.take(worker) for worker in reversed(workers)] == jobs[::-1]


def test_if_another_has_taken_that_job_it_is_asked_about_the_others(house: House) -> None:
    house.engine.wake_policy = needs_memory
    small = asleep(house, memory=1)
    house.submit(payload=b"4")
    one = house.submit(payload=b"1")
    puller = house.worker()
    puller.headers = {"memory": 1}
    assert house.engine.take(puller) is one
    assert house.engine.take(small) is None
    assert small.woken_job is None


def test_if_a_woken_worker_is_gone_another_is_woken_for_its_job(house: House) -> None:
    house.engine.wake_policy = lambda job, workers: workers[:1]
    first, second = asleep(house), asleep(house)
    job = house.submit()
    house.engine.remove_worker(first)
    assert woken(second) == [True]
    assert house.engine.take(second) is job
    check_engine(house.engine)


def test_if_a_woken_worker_does_not_come_it_is_asked_again_about_that_job(house: House) -> None:
    policy = house.engine.wake_policy = Policy(lambda job, workers: workers[:1])
    hung, other = asleep(house), asleep(house)
    job = house.submit()
    house.pass_seconds(1)
    assert policy.asked == [(job.id, [hung.id, other.id]), (job.id, [other.id])]
    assert woken(other) == [True]


def test_a_woken_worker_that_no_longer_fits_is_not_given_that_job(house: House) -> None:
    house.engine.wake_policy = lambda job, workers: workers
    worker = house.worker()
    house.engine.describe_worker(worker, resources={b"memory": 4 * GIGA})
    assert house.engine.sleep(worker)
    house.submit(requires=b"memory=4G")
    assert woken(worker) == [True]
    house.engine.describe_worker(worker, resources={b"memory": 2 * GIGA})
    assert house.engine.take(worker) is None


def test_limits_hold_for_a_job_that_somebody_was_woken_for(house: House) -> None:
    house.engine.set_policy(house.function(), Limits(key_concurrency=1))
    house.engine.wake_policy = lambda job, workers: workers[:1]
    first, second = asleep(house), asleep(house)
    jobs = [house.submit(key=b"a"), house.submit(key=b"a")]
    assert woken(first, second) == [True, True]
    assert house.engine.take(first) is jobs[0]
    assert house.engine.take(second) is None
    check_engine(house.engine)


def test_of_several_functions_the_one_that_has_a_job_for_the_worker_is_served(house: House) -> None:
    house.engine.wake_policy = needs_memory
    house.submit(b"mail", payload=b"64")
    fits = house.submit(b"resize", payload=b"1")
    worker = house.worker(b"mail", b"resize")
    worker.headers = {"memory": 4}
    assert house.engine.take(worker) is fits


def test_it_is_asked_about_one_that_came_back_too(house: House) -> None:
    house.function().released_first = True
    first, second = house.submit(), house.submit()
    other = house.submit(b"other")
    house.engine.add_predecessors(second, (other.id,))
    policy = house.engine.wake_policy = Policy(lambda job, workers: workers)
    worker = house.worker()
    house.engine.pause(house.function())
    assert house.engine.sleep(worker)
    house.engine.complete_unowned(other)
    house.engine.resume(house.function())
    assert policy.asked == [(second.id, [worker.id])]
    assert house.drain_with(worker) == ids(second, first)


def test_it_has_a_say_in_what_a_worker_gets_that_asks_or_has_granted_credit(house: House) -> None:
    policy = house.engine.wake_policy = Policy(lambda job, workers: ())
    first = house.submit()
    puller, pushed, other = house.worker(), house.worker(b"other"), house.worker(b"other")
    assert house.engine.take(puller) is None
    for worker in (pushed, other):
        house.engine.grant(worker, 1)
    second = house.submit(b"other")
    assert second.worker is None
    check_engine(house.engine)
    policy.choose = lambda job, workers: workers[-1:]
    assert house.engine.take(puller) is first
    assert house.submit(b"other").worker is None  # the second was pushed, because it came first
    assert second.worker is other
    check_engine(house.engine)


def test_those_with_credit_are_thought_of_again_a_moment_later(house: House) -> None:
    policy = house.engine.wake_policy = Policy(lambda job, workers: ())
    worker = house.worker()
    house.engine.grant(worker, 2)
    job = house.submit()
    policy.choose = lambda job, workers: workers
    house.pass_seconds(1)
    assert job.worker is worker


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
    assert [job_id for job_id, _ in policy.asked[:3]] == [1, 2, 3]  # and then about others, in vain
    assert len(policy.asked) == MOST_CANDIDATES


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


@pytest.mark.parametrize("answer", [None, 7, [[]], "nobody", [None], {1: 2}], ids=repr)
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


# --- jobs whose payloads are in the store alone ---


def test_the_payload_of_a_job_is_wanted_for_a_worker_that_does_not_take_the_jobs_before_it(house: House) -> None:
    house.engine.wake_policy = lambda job, workers: []
    house.submit(priority=HIGH)
    job = house.submit()
    house.engine.wake_policy = lambda job, workers: workers
    job.payload = None  # spilled
    worker = house.engine.add_worker(RecordingPeer(), "test")
    house.engine.can_do(worker, house.function(), 0, (NORMAL,))
    assert house.engine.take(worker) is None
    house.engine.take_wanted_payloads()
    house.engine.payload_arrivals.want_again(house.function())  # as if the read had failed
    assert house.engine.sleep(worker)
    house.pass_seconds(2)
    assert house.engine.take_wanted_payloads() == [job]


def test_a_job_that_is_being_read_does_not_hold_up_workers_that_it_does_not_fit(house: House) -> None:
    house.engine.wake_policy = lambda job, workers: []
    slow = house.submit(requires=b"gpu")
    quick = house.submit()
    slow.payload = None
    able, other = house.worker(), house.worker()
    house.engine.describe_worker(able, frozenset({b"gpu"}))
    assert house.engine.sleep(able)
    assert house.engine.sleep(other)
    policy = house.engine.wake_policy = Policy(lambda job, workers: workers)
    house.pass_seconds(2)
    assert (quick.id, [other.id]) in policy.asked
    assert woken(other) == [True]


def test_a_job_that_has_expired_is_not_pushed_by_a_check_that_is_due_as_well(house: House) -> None:
    house.engine.wake_policy = lambda job, workers: []
    worker = house.worker()
    house.engine.grant(worker, 1)
    job = house.submit(expires_us=house.at(3))
    house.engine.wake_policy = lambda job, workers: workers
    house.pass_seconds(3600)  # the check that was due after a moment comes late, and so does the expiry
    assert state_of(job) is EXPIRED
    assert not worker.running


def test_a_key_whose_turn_it_is_does_not_wait_for_another_that_is_being_read(house: House) -> None:
    """In which order jobs of several keys come is not the order in which they were submitted."""
    house.engine.wake_policy = lambda job, workers: []
    house.engine.set_policy(house.function(), Limits(fair=True))
    first, second = house.submit(key=b"a"), house.submit(key=b"a", requires=b"gpu")
    third = house.submit(key=b"b")
    worker = house.worker()
    house.engine.describe_worker(worker, frozenset({b"gpu"}))
    house.engine.wake_policy = lambda job, workers: workers
    assert house.engine.take(worker) is first
    second.payload = None
    assert house.engine.take(worker) is third
