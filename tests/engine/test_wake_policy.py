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
from tests.engine.harness import Harness, ids, peer_of, state_of

GIGA = 10**9 * 1000  # amounts are thousandths
MakeHarness = Callable[..., Harness]


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


def asleep(harness: Harness, *functions: bytes, **headers: Any) -> Worker:
    worker = harness.worker(*functions)
    worker.headers = headers
    assert harness.engine.sleep(worker)
    return worker


def woken(*workers: Worker) -> list[bool]:
    return [peer_of(worker).words() == ["wake"] for worker in workers]


def test_without_a_policy_the_one_asleep_longest_is_woken(harness: Harness) -> None:
    assert harness.engine.wake_policy is None
    workers = [asleep(harness) for _ in range(3)]
    harness.submit()
    assert woken(*workers) == [True, False, False]


def test_a_policy_sees_the_job_and_those_who_sleep_the_one_asleep_longest_first(harness: Harness) -> None:
    policy = harness.engine.wake_policy = Policy(lambda job, workers: workers[:1])
    first, _other, second = asleep(harness), asleep(harness, b"other"), asleep(harness)
    job = harness.submit()
    assert policy.asked == [(job.id, [first.id, second.id])]


def test_those_that_it_names_are_woken_in_the_order_in_which_it_names_them(harness: Harness) -> None:
    calls: list[int] = []
    harness.engine.wake_policy = lambda job, workers: [workers[2], workers[0], workers[2]]
    workers = [asleep(harness) for _ in range(3)]
    for worker in workers:
        peer_of(worker).wake = lambda worker: calls.append(worker.id)  # type: ignore[method-assign]
    harness.submit()
    assert calls == [workers[2].id, workers[0].id]
    assert [worker.asleep for worker in workers] == [False, True, False]


def test_all_may_be_woken(harness: Harness) -> None:
    harness.engine.wake_policy = lambda job, workers: workers
    workers = [asleep(harness) for _ in range(3)]
    harness.submit()
    assert woken(*workers) == [True, True, True]


def test_it_may_go_by_what_workers_say_of_themselves(harness: Harness) -> None:
    harness.engine.wake_policy = lambda job, workers: [w for w in workers if w.headers.get("gpu") == job.payload]
    plain, old, new = asleep(harness), asleep(harness, gpu=b"old"), asleep(harness, gpu=b"new")
    harness.submit(payload=b"new")
    assert woken(plain, old, new) == [False, False, True]


def test_it_is_asked_about_one_job_after_the_other_in_the_order_in_which_they_come(harness: Harness) -> None:
    policy = harness.engine.wake_policy = Policy(lambda job, workers: ())
    first, second = harness.submit(), harness.submit()
    asleep(harness)
    assert [job_id for job_id, _ in policy.asked] == [first.id, second.id]
    policy.asked.clear()
    urgent = harness.submit(priority=HIGH)
    assert [job_id for job_id, _ in policy.asked] == [urgent.id, first.id, second.id]


def test_a_job_for_which_it_names_nobody_does_not_block_those_behind_it(harness: Harness) -> None:
    harness.engine.wake_policy = needs_memory
    for _ in range(MOST_CANDIDATES - 1):
        harness.submit(payload=b"64")
    fits = harness.submit(payload=b"1")
    worker = harness.worker()
    worker.headers = {"memory": 4}
    assert not harness.engine.sleep(worker)
    assert harness.engine.take(worker) is fits
    assert harness.engine.take(worker) is None


def test_it_is_asked_about_so_many_jobs_and_no_more(harness: Harness) -> None:
    policy = harness.engine.wake_policy = Policy(lambda job, workers: ())
    for _ in range(3 * MOST_CANDIDATES):
        harness.submit()
    asleep(harness)
    assert len(policy.asked) == MOST_CANDIDATES


def test_candidates_of_a_long_queue_are_those_that_come_first(harness: Harness) -> None:
    harness.engine.packed_queues.pack_from, harness.engine.packed_queues.head_jobs = 8, 2
    harness.engine.packed_queues.segment_jobs = 3
    policy = harness.engine.wake_policy = Policy(lambda job, workers: workers if job.id == 2 else ())
    jobs = [harness.submit() for _ in range(20)]
    worker = harness.worker()
    assert harness.engine.take(worker) is jobs[1]
    policy.choose = lambda job, workers: workers
    assert harness.drain_with(worker) == ids(jobs[0], *jobs[2:])


def test_jobs_that_no_worker_fits_are_none_of_them(harness: Harness) -> None:
    policy = harness.engine.wake_policy = Policy(lambda job, workers: workers)
    for _ in range(2 * MOST_CANDIDATES):
        harness.submit(requires=b"memory=64G")
    fits = harness.submit(requires=b"memory=1G")
    worker = harness.worker()
    harness.engine.describe_worker(worker, resources={b"memory": 4 * GIGA})
    assert not harness.engine.sleep(worker)
    assert harness.engine.take(worker) is fits
    assert policy.asked == [(fits.id, [worker.id])]


def test_a_worker_is_given_the_job_that_it_was_woken_for(harness: Harness) -> None:
    harness.engine.wake_policy = needs_memory
    small = asleep(harness, memory=1)
    large = asleep(harness, memory=4)
    four = harness.submit(payload=b"4")
    one = harness.submit(payload=b"1")
    assert woken(small, large) == [True, True]
    harness.engine.wake_policy = lambda job, workers: workers  # and not what it would choose now
    assert harness.engine.take(small) is one
    assert harness.engine.take(large) is four


def test_for_each_job_somebody_is_woken(harness: Harness) -> None:
    harness.engine.wake_policy = lambda job, workers: workers[:1]
    workers = [asleep(harness) for _ in range(3)]
    jobs = [harness.submit() for _ in range(3)]
    assert woken(*workers) == [True, True, True]
    assert [harness.engine.take(worker) for worker in reversed(workers)] == jobs[::-1]


def test_if_another_has_taken_that_job_it_is_asked_about_the_others(harness: Harness) -> None:
    harness.engine.wake_policy = needs_memory
    small = asleep(harness, memory=1)
    harness.submit(payload=b"4")
    one = harness.submit(payload=b"1")
    puller = harness.worker()
    puller.headers = {"memory": 1}
    assert harness.engine.take(puller) is one
    assert harness.engine.take(small) is None
    assert small.woken_job is None


def test_if_a_woken_worker_is_gone_another_is_woken_for_its_job(harness: Harness) -> None:
    harness.engine.wake_policy = lambda job, workers: workers[:1]
    first, second = asleep(harness), asleep(harness)
    job = harness.submit()
    harness.engine.remove_worker(first)
    assert woken(second) == [True]
    assert harness.engine.take(second) is job
    check_engine(harness.engine)


def test_if_a_woken_worker_does_not_come_it_is_asked_again_about_that_job(harness: Harness) -> None:
    policy = harness.engine.wake_policy = Policy(lambda job, workers: workers[:1])
    hung, other = asleep(harness), asleep(harness)
    job = harness.submit()
    harness.pass_seconds(1)
    assert policy.asked == [(job.id, [hung.id, other.id]), (job.id, [other.id])]
    assert woken(other) == [True]


def test_a_woken_worker_that_no_longer_fits_is_not_given_that_job(harness: Harness) -> None:
    harness.engine.wake_policy = lambda job, workers: workers
    worker = harness.worker()
    harness.engine.describe_worker(worker, resources={b"memory": 4 * GIGA})
    assert harness.engine.sleep(worker)
    harness.submit(requires=b"memory=4G")
    assert woken(worker) == [True]
    harness.engine.describe_worker(worker, resources={b"memory": 2 * GIGA})
    assert harness.engine.take(worker) is None


def test_limits_hold_for_a_job_that_somebody_was_woken_for(harness: Harness) -> None:
    harness.engine.set_policy(harness.function(), Limits(key_concurrency=1))
    harness.engine.wake_policy = lambda job, workers: workers[:1]
    first, second = asleep(harness), asleep(harness)
    jobs = [harness.submit(key=b"a"), harness.submit(key=b"a")]
    assert woken(first, second) == [True, True]
    assert harness.engine.take(first) is jobs[0]
    assert harness.engine.take(second) is None
    check_engine(harness.engine)


def test_of_several_functions_the_one_that_has_a_job_for_the_worker_is_served(harness: Harness) -> None:
    harness.engine.wake_policy = needs_memory
    harness.submit(b"mail", payload=b"64")
    fits = harness.submit(b"resize", payload=b"1")
    worker = harness.worker(b"mail", b"resize")
    worker.headers = {"memory": 4}
    assert harness.engine.take(worker) is fits


def test_it_is_asked_about_one_that_came_back_too(harness: Harness) -> None:
    harness.function().released_first = True
    first, second = harness.submit(), harness.submit()
    other = harness.submit(b"other")
    harness.engine.add_predecessors(second, (other.id,))
    policy = harness.engine.wake_policy = Policy(lambda job, workers: workers)
    worker = harness.worker()
    harness.engine.pause(harness.function())
    assert harness.engine.sleep(worker)
    harness.engine.complete_unowned(other)
    harness.engine.resume(harness.function())
    assert policy.asked == [(second.id, [worker.id])]
    assert harness.drain_with(worker) == ids(second, first)


def test_it_has_a_say_in_what_a_worker_gets_that_asks_or_has_granted_credit(harness: Harness) -> None:
    policy = harness.engine.wake_policy = Policy(lambda job, workers: ())
    first = harness.submit()
    puller, pushed, other = harness.worker(), harness.worker(b"other"), harness.worker(b"other")
    assert harness.engine.take(puller) is None
    for worker in (pushed, other):
        harness.engine.grant(worker, 1)
    second = harness.submit(b"other")
    assert second.worker is None
    check_engine(harness.engine)
    policy.choose = lambda job, workers: workers[-1:]
    assert harness.engine.take(puller) is first
    assert harness.submit(b"other").worker is None  # the second was pushed, because it came first
    assert second.worker is other
    check_engine(harness.engine)


def test_those_with_credit_are_thought_of_again_a_moment_later(harness: Harness) -> None:
    policy = harness.engine.wake_policy = Policy(lambda job, workers: ())
    worker = harness.worker()
    harness.engine.grant(worker, 2)
    job = harness.submit()
    policy.choose = lambda job, workers: workers
    harness.pass_seconds(1)
    assert job.worker is worker


# --- if it names nobody ---


def test_it_is_asked_again_a_moment_later_for_as_long_as_somebody_sleeps(harness: Harness) -> None:
    policy = harness.engine.wake_policy = Policy(lambda job, workers: ())
    worker = asleep(harness)
    job = harness.submit()
    for times in (1, 2, 3):
        assert policy.asked == [(job.id, [worker.id])] * times
        harness.pass_seconds(1)
    policy.choose = lambda job, workers: workers
    harness.pass_seconds(1)
    assert woken(worker) == [True]
    asked = len(policy.asked)
    harness.pass_seconds(60)
    assert len(policy.asked) == asked


def test_it_is_asked_about_one_who_wants_to_sleep(harness: Harness) -> None:
    policy = harness.engine.wake_policy = Policy(lambda job, workers: [w for w in workers if w.headers])
    job = harness.submit()
    unfit, fit = harness.worker(), harness.worker()
    fit.headers = {"gpu": b"new"}
    assert harness.engine.sleep(unfit)
    assert not harness.engine.sleep(fit)
    assert policy.asked == [(job.id, [unfit.id]), (job.id, [fit.id])]
    assert peer_of(unfit).heard == []


def test_one_who_sleeps_though_there_is_a_job_is_thought_of_a_moment_later(harness: Harness) -> None:
    policy = harness.engine.wake_policy = Policy(lambda job, workers: ())
    harness.submit()
    worker = harness.worker()
    assert harness.engine.sleep(worker)
    policy.choose = lambda job, workers: workers
    harness.pass_seconds(0.999999)
    assert woken(worker) == [False]
    harness.pass_seconds(0.000001)
    assert woken(worker) == [True]


def test_one_who_learns_something_while_asleep_is_woken_if_it_suits(harness: Harness) -> None:
    harness.engine.wake_policy = lambda job, workers: [w for w in workers if w.headers]
    unfit, fit = asleep(harness, b"other"), asleep(harness, b"other", gpu=b"new")
    harness.submit(b"mail")
    for worker in (unfit, fit):
        harness.engine.can_do(worker, harness.function(b"mail"))
    assert woken(unfit, fit) == [False, True]


def test_those_that_were_woken_and_do_not_come_are_not_a_reason_to_wake_everybody(harness: Harness) -> None:
    harness.engine.wake_policy = lambda job, workers: [w for w in workers if w.headers]
    hung, unfit = asleep(harness, gpu=b"new"), asleep(harness)
    harness.submit()
    harness.pass_seconds(60)
    assert woken(hung, unfit) == [True, False]


def test_the_call_is_passed_on_to_whom_it_names_next(harness: Harness) -> None:
    harness.engine.wake_policy = lambda job, workers: [w for w in workers if w.headers][:1]
    first, unfit, second = asleep(harness, gpu=b"a"), asleep(harness), asleep(harness, gpu=b"b")
    harness.submit()
    harness.engine.remove_worker(first)
    assert woken(unfit, second) == [False, True]


def test_resuming_asks_for_each_job_until_nobody_more_is_named(harness: Harness) -> None:
    policy = harness.engine.wake_policy = Policy(lambda job, workers: [w for w in workers if w.headers][:1])
    harness.engine.pause(harness.function())
    for _ in range(50):
        harness.submit()
    fit, unfit = [asleep(harness, gpu=b"a") for _ in range(3)], [asleep(harness) for _ in range(30)]
    policy.asked.clear()
    harness.engine.resume(harness.function())
    assert woken(*fit, *unfit) == [True] * 3 + [False] * 30
    assert [job_id for job_id, _ in policy.asked[:3]] == [1, 2, 3]  # and then about others, in vain
    assert len(policy.asked) == MOST_CANDIDATES


# --- if it is wrong ---


def stumble(job: Job, workers: Sequence[Worker]) -> Iterable[Worker]:
    yield workers[-1]
    raise KeyError("gpu")


@pytest.mark.parametrize(("wakeups", "expected"), [(1, 1), (2, 2), (0, 3)])
def test_if_it_raises_the_usual_choice_is_made_and_the_operator_hears_of_it(
    make_harness: MakeHarness, wakeups: int, expected: int
) -> None:
    harness = make_harness(wakeups=wakeups)
    harness.engine.wake_policy = stumble
    workers = [asleep(harness) for _ in range(3)]
    harness.submit()
    assert woken(*workers) == [True] * expected + [False] * (3 - expected)
    assert harness.observer.heard[-1] == ("wake policy failed", b"mail", "KeyError('gpu')")


def test_if_it_raises_for_one_who_wants_to_sleep_that_one_is_told_to_ask(harness: Harness) -> None:
    harness.engine.wake_policy = stumble
    harness.submit()
    assert not harness.engine.sleep(harness.worker())


@pytest.mark.parametrize("answer", [None, 7, [[]], "nobody", [None], {1: 2}], ids=repr)
def test_an_answer_that_makes_no_sense_is_a_mistake_too(harness: Harness, answer: Any) -> None:
    harness.engine.wake_policy = lambda job, workers: answer
    worker = asleep(harness)
    harness.submit()
    assert woken(worker) == [True]
    assert harness.observer.heard[-1][0] == "wake policy failed"


def test_it_cannot_wake_whom_it_was_not_shown(harness: Harness) -> None:
    awake, stranger, gone = harness.worker(), asleep(harness, b"other"), harness.worker()
    harness.engine.remove_worker(gone)
    harness.engine.wake_policy = lambda job, workers: [awake, stranger, gone, "nobody", *workers]  # type: ignore[list-item]
    shown = asleep(harness)
    harness.submit()
    assert woken(awake, stranger, gone, shown) == [False, False, False, True]
    assert stranger.asleep


# --- jobs whose payloads are in the store alone ---


def test_the_payload_of_a_job_is_wanted_for_a_worker_that_does_not_take_the_jobs_before_it(harness: Harness) -> None:
    harness.engine.wake_policy = lambda job, workers: []
    harness.submit(priority=HIGH)
    job = harness.submit()
    harness.engine.wake_policy = lambda job, workers: workers
    job.payload = None  # spilled
    worker = harness.engine.add_worker(RecordingPeer(), "test")
    harness.engine.can_do(worker, harness.function(), 0, (NORMAL,))
    assert harness.engine.take(worker) is None
    harness.engine.take_wanted_payloads()
    harness.engine.payload_arrivals.want_again(harness.function())  # as if the read had failed
    assert harness.engine.sleep(worker)
    harness.pass_seconds(2)
    assert harness.engine.take_wanted_payloads() == [job]


def test_a_job_that_is_being_read_does_not_hold_up_workers_that_it_does_not_fit(harness: Harness) -> None:
    harness.engine.wake_policy = lambda job, workers: []
    slow = harness.submit(requires=b"gpu")
    quick = harness.submit()
    slow.payload = None
    able, other = harness.worker(), harness.worker()
    harness.engine.describe_worker(able, frozenset({b"gpu"}))
    assert harness.engine.sleep(able)
    assert harness.engine.sleep(other)
    policy = harness.engine.wake_policy = Policy(lambda job, workers: workers)
    harness.pass_seconds(2)
    assert (quick.id, [other.id]) in policy.asked
    assert woken(other) == [True]


def test_a_job_that_has_expired_is_not_pushed_by_a_check_that_is_due_as_well(harness: Harness) -> None:
    harness.engine.wake_policy = lambda job, workers: []
    worker = harness.worker()
    harness.engine.grant(worker, 1)
    job = harness.submit(expires_us=harness.at(3))
    harness.engine.wake_policy = lambda job, workers: workers
    harness.pass_seconds(3600)  # the check that was due after a moment comes late, and so does the expiry
    assert state_of(job) is EXPIRED
    assert not worker.running


def test_a_key_whose_turn_it_is_does_not_wait_for_another_that_is_being_read(harness: Harness) -> None:
    """In which order jobs of several keys come is not the order in which they were submitted."""
    harness.engine.wake_policy = lambda job, workers: []
    harness.engine.set_policy(harness.function(), Limits(fair=True))
    first, second = harness.submit(key=b"a"), harness.submit(key=b"a", requires=b"gpu")
    third = harness.submit(key=b"b")
    worker = harness.worker()
    harness.engine.describe_worker(worker, frozenset({b"gpu"}))
    harness.engine.wake_policy = lambda job, workers: workers
    assert harness.engine.take(worker) is first
    second.payload = None
    assert harness.engine.take(worker) is third
