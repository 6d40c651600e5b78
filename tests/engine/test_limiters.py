"""Limits: how many jobs run, how often one starts, and that nobody idles beside one that may run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from switchgear.engine.engine import SubmitOptions
from switchgear.engine.limiters import Closed
from switchgear.engine.token_bucket import has_tokens_at_us, spent, tokens
from switchgear.model import HIGH, LOW, NORMAL, SECOND_US, Delivery, Job, Worker
from switchgear.policy import Policy
from switchgear.testing import check_engine
from tests.engine.house import House, ids, peer_of
from tests.engine.limiter_words import keys_of, limit, limiter_of, submit_each, taken

MINUTE_US = 60 * SECOND_US


# --- what may be asked for ---


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"concurrency": -1}, "concurrency is a whole number"),
        ({"concurrency": True}, "concurrency is a whole number"),
        ({"key_concurrency": 1.5}, "key_concurrency is a whole number"),
        ({"rate": (0, SECOND_US)}, "rate counts from 1"),
        ({"rate": (1, 0)}, "rate is for a time from a microsecond to a year"),
        ({"key_rate": (1, 400 * 24 * 3600 * SECOND_US)}, "key_rate is for a time"),
        ({"fair": 1}, "fair is true or false"),
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused(asked: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Policy(**asked)


def test_a_policy_without_limits_is_no_gate(house: House) -> None:
    limit(house, concurrency=1)
    limit(house)
    assert house.function().limiter is None


# --- concurrency ---


def test_no_more_run_than_may_whoever_asks(house: House) -> None:
    limit(house, concurrency=2)
    jobs = [house.submit() for _ in range(4)]
    first, second = house.worker(), house.worker()
    assert taken(house, first) == jobs[:2]
    assert taken(house, second) == []
    house.engine.complete(first, jobs[0].id, b"")
    assert taken(house, second) == [jobs[2]]


Leave = Callable[[House, Worker, Job], object]
WAYS_TO_LEAVE: dict[str, Leave] = {
    "complete": lambda house, worker, job: house.engine.complete(worker, job.id, b""),
    "fail": lambda house, worker, job: house.engine.fail(worker, job.id),
    "retry later": lambda house, worker, job: house.engine.retry_later(worker, job.id, SECOND_US),
    "hand back": lambda house, worker, job: house.engine.release(worker, job.id),
    "worker lost": lambda house, worker, job: house.engine.remove_worker(worker),
    "timed out": lambda house, worker, job: house.pass_seconds(30),
    "cancelled": lambda house, worker, job: house.engine.cancel(job),
    "settled": lambda house, worker, job: house.engine.complete_unowned(job, b""),
    "held back": lambda house, worker, job: house.engine.add_predecessors(job, (house.submit(b"other").id,)),
    "abandoned": lambda house, worker, job: leave_alone(house, worker, job),
}
LIMITS: dict[str, dict[str, Any]] = {
    "function": {"concurrency": 1},
    "key": {"key_concurrency": 1},
    "both, fair": {"concurrency": 1, "key_concurrency": 1, "fair": True},
}


def leave_alone(house: House, worker: Worker, job: Job) -> None:
    job.delivery = Delivery.WAIT
    house.engine.remove_worker(worker)


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("way", WAYS_TO_LEAVE.values(), ids=WAYS_TO_LEAVE)
class TestHoweverAJobLeaves:
    """There is room for the next, and somebody is told so."""

    def begin(self, house: House, limits: dict[str, Any]) -> tuple[Worker, Job, Job]:
        limit(house, **limits)
        worker = house.worker()
        job = house.submit(key=b"a", timeout_us=30 * SECOND_US)
        assert house.engine.take(worker) is job
        return worker, job, house.submit(key=b"a")

    def test_one_that_asks_gets_the_next(self, house: House, way: Leave, limits: dict[str, Any]) -> None:
        worker, job, waiting = self.begin(house, limits)
        other = house.worker()
        assert house.engine.take(other) is None
        way(house, worker, job)
        assert house.engine.take(other) is waiting
        assert house.engine.take(other) is None

    def test_one_that_sleeps_is_woken(self, house: House, way: Leave, limits: dict[str, Any]) -> None:
        worker, job, waiting = self.begin(house, limits)
        sleeper = house.worker()
        assert house.engine.sleep(sleeper)
        way(house, worker, job)
        assert peer_of(sleeper).heard[-1] == ("wake", sleeper.id)
        assert house.engine.take(sleeper) is waiting

    def test_one_with_credit_is_given_it(self, house: House, way: Leave, limits: dict[str, Any]) -> None:
        worker, job, waiting = self.begin(house, limits)
        pushed = house.worker()
        house.engine.grant(pushed, 5)
        assert pushed.credits == 5
        way(house, worker, job)
        assert ("assign", pushed.id, waiting.id) in peer_of(pushed).heard
        assert house.function().running == 1

    def test_nothing_is_counted_that_does_not_run(self, house: House, way: Leave, limits: dict[str, Any]) -> None:
        worker, job, waiting = self.begin(house, limits)
        way(house, worker, job)
        house.engine.cancel(job)
        house.engine.cancel(waiting)
        assert house.function().running == 0
        assert not limiter_of(house).key_queues


def test_a_cancelled_job_counts_no_more_although_its_worker_may_be_busy(house: House) -> None:
    limit(house, concurrency=1)
    worker, job = house.running()
    waiting = house.submit()
    house.engine.cancel(job)
    assert house.engine.take(house.worker()) is waiting
    house.engine.complete(worker, job.id, b"late")
    assert house.function().running == 1


def test_only_as_many_sleepers_are_woken_as_may_run(house: House) -> None:
    limit(house, concurrency=2)
    sleepers = [house.worker() for _ in range(5)]
    assert all(house.engine.sleep(worker) for worker in sleepers)
    for _ in range(5):
        house.submit()
    assert [worker.asleep for worker in sleepers] == [False, False, True, True, True]


def test_raising_a_limit_wakes_as_many_more(house: House) -> None:
    limit(house, concurrency=1)
    house.running()
    jobs = [house.submit() for _ in range(3)]
    sleepers = [house.worker() for _ in range(4)]
    assert all(house.engine.sleep(worker) for worker in sleepers)
    limit(house, concurrency=3)
    assert [worker.asleep for worker in sleepers] == [False, False, True, True]
    assert [house.engine.take(worker) for worker in sleepers[:2]] == jobs[:2]


def test_lowering_a_limit_lets_finish_what_runs(house: House) -> None:
    limit(house, concurrency=3)
    worker = house.worker()
    jobs = [house.submit() for _ in range(4)]
    assert taken(house, worker) == jobs[:3]
    limit(house, concurrency=1)
    for job in jobs[:2]:
        house.engine.complete(worker, job.id, b"")
        assert house.engine.take(worker) is None
    house.engine.complete(worker, jobs[2].id, b"")
    assert house.engine.take(worker) is jobs[3]


def test_a_closed_gate_does_not_keep_a_worker_from_its_other_functions(make_house: Callable[..., House]) -> None:
    for order in ("fair", "registration", "round-robin"):
        house = make_house(function_order=order)
        limit(house, concurrency=1)
        house.running()
        house.submit(priority=HIGH)
        other = house.submit(b"other", priority=LOW)
        worker = house.worker(b"other", b"mail")
        assert not house.engine.sleep(worker)
        assert house.engine.take(worker) is other
        assert house.engine.take(worker) is None
        assert house.engine.sleep(worker)


def test_nobody_is_called_to_a_closed_gate_for_being_neglected(house: House) -> None:
    limit(house, concurrency=1)
    house.running()
    house.submit()
    sleeper = house.worker()
    assert house.engine.sleep(sleeper)
    for _ in range(10):
        house.pass_seconds(1)
    assert peer_of(sleeper).heard == []
    assert house.engine.next_deadline_us is None


def test_one_that_was_woken_for_a_gate_and_does_not_come_gets_company(house: House) -> None:
    limit(house, concurrency=1)
    worker, job = house.running()
    waiting = house.submit()
    lazy, eager = house.worker(), house.worker()
    assert house.engine.sleep(lazy)
    assert house.engine.sleep(eager)
    house.engine.complete(worker, job.id, b"")
    assert (lazy.asleep, eager.asleep) == (False, True)
    house.pass_seconds(1)
    assert house.engine.take(eager) is waiting


def test_a_paused_function_stays_paused_when_its_gate_opens(house: House) -> None:
    limit(house, concurrency=1)
    worker, job = house.running()
    waiting = house.submit()
    pushed = house.worker()
    house.engine.grant(pushed, 1)
    house.engine.pause(house.function())
    house.engine.complete(worker, job.id, b"")
    assert pushed.credits == 1
    house.engine.resume(house.function())
    assert waiting.worker is pushed


# --- rates ---


@pytest.mark.parametrize("rate", [(1, SECOND_US), (3, SECOND_US), (7, SECOND_US), (100, 3600 * SECOND_US), (3, 1)])
def test_a_bucket_is_exact(rate: tuple[int, int]) -> None:
    """Whatever the rate: a token is there at the moment that was named for it, and not a microsecond before."""
    count, _ = rate
    now_us = 1_700_000_000_000_000
    bucket = 0
    for left in range(count - 1, -1, -1):
        assert tokens(bucket, rate, now_us) == left + 1
        bucket = spent(bucket, rate, now_us)
    for number in range(1, count + 1):
        at_us = has_tokens_at_us(bucket, rate, number)
        assert tokens(bucket, rate, at_us) >= number > tokens(bucket, rate, at_us - 1)
    assert has_tokens_at_us(bucket, rate, count) == now_us + rate[1]


def test_a_rate_lets_a_burst_through_and_then_one_by_one(house: House) -> None:
    limit(house, rate=(4, SECOND_US))
    worker = house.worker()
    for _ in range(20):
        house.submit()
    started = []
    for _ in range(9):
        started.append(len(house.drain_with(worker)))
        house.pass_seconds(0.125)
    assert started == [4, 0, 1, 0, 1, 0, 1, 0, 1]


def test_a_token_that_comes_back_wakes_and_pushes(house: House) -> None:
    limit(house, rate=(1, SECOND_US))
    worker, job = house.running()
    house.engine.complete(worker, job.id, b"")
    jobs = [house.submit() for _ in range(3)]
    sleeper, pushed = house.worker(), house.worker()
    assert house.engine.sleep(sleeper)
    house.engine.grant(pushed, 1)
    house.pass_seconds(1)
    assert jobs[0].worker is pushed
    assert sleeper.asleep
    house.pass_seconds(1)
    assert not sleeper.asleep
    assert house.engine.take(sleeper) is jobs[1]
    assert house.engine.take(sleeper) is None


def test_each_token_wakes_another_although_the_first_has_not_come(house: House) -> None:
    limit(house, rate=(4, SECOND_US))
    worker = house.worker()
    for _ in range(8):
        house.submit()
    assert len(taken(house, worker)) == 4
    sleepers = [house.worker() for _ in range(3)]
    assert all(house.engine.sleep(sleeper) for sleeper in sleepers)
    asleep = []
    for _ in range(3):
        house.pass_seconds(0.25)
        asleep.append(sum(sleeper.asleep for sleeper in sleepers))
    assert asleep == [2, 1, 0]


def test_a_rate_with_nothing_to_do_leaves_the_engine_in_peace(house: House) -> None:
    limit(house, rate=(2, SECOND_US), key_rate=(2, SECOND_US))
    worker = house.worker()
    submit_each(house, b"a", b"b")
    house.drain_with(worker)
    house.pass_seconds(1)
    assert house.engine.next_deadline_us is None
    assert not limiter_of(house).key_queues


@pytest.mark.parametrize("jump_seconds", [-3600, -0.3, 0.3, 3600])
def test_setting_the_clock_neither_makes_nor_takes_tokens(house: House, jump_seconds: float) -> None:
    limit(house, rate=(1, 10 * SECOND_US), key_rate=(1, 20 * SECOND_US))
    worker = house.worker()
    for key in (b"a", b"a", b"b"):
        house.submit(key=key)
    assert len(house.drain_with(worker)) == 1
    house.pass_seconds(4)
    house.set_clock(jump_seconds)
    assert house.drain_with(worker) == []
    house.pass_seconds(5.9)
    assert house.drain_with(worker) == []
    house.pass_seconds(0.1)
    assert len(house.drain_with(worker)) == 1
    house.pass_seconds(10)
    assert len(house.drain_with(worker)) == 1


def test_a_job_that_expired_before_its_token_came_is_not_started(house: House) -> None:
    """Although both are seen at once, by a server that was busy or suspended."""
    limit(house, rate=(1, SECOND_US))
    pushed = house.worker()
    house.engine.grant(pushed, 5)
    house.submit()
    late = house.submit(expires_us=house.at(2))
    also_late = house.submit(expires_us=house.at(0.5))
    fine = house.submit()
    house.pass_seconds(10)
    assert (late.attempts, also_late.attempts) == (0, 0)
    assert fine.worker is pushed


# --- another policy ---

POLICIES = {
    "none": Policy(),
    "concurrency": Policy(concurrency=5),
    "rate": Policy(rate=(5, SECOND_US)),
    "key": Policy(key_concurrency=1),
    "key rate": Policy(key_rate=(1, SECOND_US)),
    "fair": Policy(fair=True),
}


@pytest.mark.parametrize("before", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("after", POLICIES.values(), ids=POLICIES)
def test_everybody_keeps_his_place_when_the_policy_changes(house: House, before: Policy, after: Policy) -> None:
    house.engine.set_policy(house.function(), before)
    jobs = submit_each(house, b"a", b"b", b"a", b"", b"b")
    house.engine.cancel(jobs[2])
    house.engine.retry(jobs[2])  # and now it stands at the end
    house.engine.set_policy(house.function(), after)
    check_engine(house.engine)
    house.engine.set_policy(house.function(), Policy())
    assert house.drain_with(house.worker()) == ids(jobs[0], jobs[1], jobs[3], jobs[4], jobs[2])


def test_what_runs_counts_for_a_new_policy(house: House) -> None:
    worker = house.worker()
    jobs = submit_each(house, b"a", b"a", b"b")
    assert house.engine.take(worker) is jobs[0]
    limit(house, key_concurrency=1)
    assert taken(house, worker) == [jobs[2]]
    house.engine.complete(worker, jobs[0].id, b"")
    assert taken(house, worker) == [jobs[1]]


def test_the_same_policy_once_more_changes_nothing(house: House) -> None:
    """Workers declare it whenever they connect."""
    limit(house, rate=(1, MINUTE_US), fair=True)
    house.running(key=b"a")
    limiter = limiter_of(house)
    house.engine.take_changes()
    limit(house, rate=(1, MINUTE_US), fair=True)
    assert limiter_of(house) is limiter
    assert house.engine.take_changes() == ([], [])


def test_what_was_spent_is_spent_for_a_new_rate(house: House) -> None:
    limit(house, rate=(2, MINUTE_US))
    worker = house.worker()
    for _ in range(8):
        house.submit()
    assert len(house.drain_with(worker)) == 2
    limit(house, rate=(6, MINUTE_US))
    assert house.drain_with(worker) == []
    house.pass_seconds(10)
    assert len(house.drain_with(worker)) == 1


def test_a_policy_is_to_be_kept(house: House) -> None:
    limit(house, concurrency=3)
    assert house.engine.take_changes()[1] == [house.function()]


# --- why a job waits ---


@pytest.mark.parametrize(
    ("limits", "reason", "opens_seconds"),
    [
        ({"concurrency": 1}, "concurrency", None),
        ({"rate": (2, 10 * SECOND_US)}, None, None),
        ({"rate": (1, 10 * SECOND_US)}, "rate", 10),
        ({"key_concurrency": 1}, "key_concurrency", None),
        ({"key_rate": (1, 20 * SECOND_US)}, "key_rate", 20),
        ({"fair": True}, None, None),
    ],
    ids=str,
)
def test_why_a_ready_job_is_not_handed_out(
    house: House, limits: dict[str, Any], reason: str | None, opens_seconds: float | None
) -> None:
    limit(house, **limits)
    opens_us = house.at(opens_seconds) if opens_seconds else 0
    _, job = house.running(key=b"a")
    waiting = house.submit(key=b"a")
    assert house.engine.limiters.why_closed(waiting) == (Closed(reason, opens_us) if reason else None)
    assert house.engine.limiters.why_closed(job) is None


def test_no_limit_holds_up_a_job_of_a_function_without_a_gate(house: House) -> None:
    assert house.engine.limiters.why_closed(house.submit()) is None


# --- looking at the queue from outside ---


def test_the_next_entries_are_those_that_come_next(house: House) -> None:
    limit(house, fair=True)
    submit_each(house, b"a", b"a", b"a", b"b", b"c", b"c")
    function = house.function()
    upcoming = list(function.next_entries(NORMAL))
    assert keys_of(upcoming) == "abcaca"
    assert taken(house, house.worker()) == upcoming
    assert function.ready_of(NORMAL) == 0


def test_limits_hold_for_jobs_with_and_without_options(house: House) -> None:
    limit(house, concurrency=1, key_concurrency=1)
    plain = house.engine.submit(b"mail", b"", b"", NORMAL, Delivery.HANDLE)
    keyed = house.engine.submit(b"mail", b"", b"", NORMAL, Delivery.HANDLE, None, SubmitOptions(key=b"a"))
    worker = house.worker()
    assert house.drain_with(worker) == ids(plain, keyed)
