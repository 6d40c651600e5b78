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
from tests.engine.harness import Harness, ids, peer_of
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


def test_a_policy_without_limits_is_no_gate(harness: Harness) -> None:
    limit(harness, concurrency=1)
    limit(harness)
    assert harness.function().limiter is None


# --- concurrency ---


def test_no_more_run_than_may_whoever_asks(harness: Harness) -> None:
    limit(harness, concurrency=2)
    jobs = [harness.submit() for _ in range(4)]
    first, second = harness.worker(), harness.worker()
    assert taken(harness, first) == jobs[:2]
    assert taken(harness, second) == []
    harness.engine.complete(first, jobs[0].id, b"")
    assert taken(harness, second) == [jobs[2]]


Leave = Callable[[Harness, Worker, Job], object]
WAYS_TO_LEAVE: dict[str, Leave] = {
    "complete": lambda harness, worker, job: harness.engine.complete(worker, job.id, b""),
    "fail": lambda harness, worker, job: harness.engine.fail(worker, job.id),
    "retry later": lambda harness, worker, job: harness.engine.retry_later(worker, job.id, SECOND_US),
    "hand back": lambda harness, worker, job: harness.engine.release(worker, job.id),
    "worker lost": lambda harness, worker, job: harness.engine.remove_worker(worker),
    "timed out": lambda harness, worker, job: harness.pass_seconds(30),
    "cancelled": lambda harness, worker, job: harness.engine.cancel(job),
    "settled": lambda harness, worker, job: harness.engine.complete_unowned(job, b""),
    "held back": lambda harness, worker, job: harness.engine.add_predecessors(job, (harness.submit(b"other").id,)),
    "abandoned": lambda harness, worker, job: leave_alone(harness, worker, job),
}
LIMITS: dict[str, dict[str, Any]] = {
    "function": {"concurrency": 1},
    "key": {"key_concurrency": 1},
    "both, fair": {"concurrency": 1, "key_concurrency": 1, "fair": True},
}


def leave_alone(harness: Harness, worker: Worker, job: Job) -> None:
    job.delivery = Delivery.WAIT
    harness.engine.remove_worker(worker)


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("way", WAYS_TO_LEAVE.values(), ids=WAYS_TO_LEAVE)
class TestHoweverAJobLeaves:
    """There is room for the next, and somebody is told so."""

    def begin(self, harness: Harness, limits: dict[str, Any]) -> tuple[Worker, Job, Job]:
        limit(harness, **limits)
        worker = harness.worker()
        job = harness.submit(key=b"a", timeout_us=30 * SECOND_US)
        assert harness.engine.take(worker) is job
        return worker, job, harness.submit(key=b"a")

    def test_one_that_asks_gets_the_next(self, harness: Harness, way: Leave, limits: dict[str, Any]) -> None:
        worker, job, waiting = self.begin(harness, limits)
        other = harness.worker()
        assert harness.engine.take(other) is None
        way(harness, worker, job)
        assert harness.engine.take(other) is waiting
        assert harness.engine.take(other) is None

    def test_one_that_sleeps_is_woken(self, harness: Harness, way: Leave, limits: dict[str, Any]) -> None:
        worker, job, waiting = self.begin(harness, limits)
        sleeper = harness.worker()
        assert harness.engine.sleep(sleeper)
        way(harness, worker, job)
        assert peer_of(sleeper).heard[-1] == ("wake", sleeper.id)
        assert harness.engine.take(sleeper) is waiting

    def test_one_with_credit_is_given_it(self, harness: Harness, way: Leave, limits: dict[str, Any]) -> None:
        worker, job, waiting = self.begin(harness, limits)
        pushed = harness.worker()
        harness.engine.grant(pushed, 5)
        assert pushed.credits == 5
        way(harness, worker, job)
        assert ("assign", pushed.id, waiting.id) in peer_of(pushed).heard
        assert harness.function().running == 1

    def test_nothing_is_counted_that_does_not_run(self, harness: Harness, way: Leave, limits: dict[str, Any]) -> None:
        worker, job, waiting = self.begin(harness, limits)
        way(harness, worker, job)
        harness.engine.cancel(job)
        harness.engine.cancel(waiting)
        assert harness.function().running == 0
        assert not limiter_of(harness).key_queues


def test_a_cancelled_job_counts_no_more_although_its_worker_may_be_busy(harness: Harness) -> None:
    limit(harness, concurrency=1)
    worker, job = harness.running()
    waiting = harness.submit()
    harness.engine.cancel(job)
    assert harness.engine.take(harness.worker()) is waiting
    harness.engine.complete(worker, job.id, b"late")
    assert harness.function().running == 1


def test_only_as_many_sleepers_are_woken_as_may_run(harness: Harness) -> None:
    limit(harness, concurrency=2)
    sleepers = [harness.worker() for _ in range(5)]
    assert all(harness.engine.sleep(worker) for worker in sleepers)
    for _ in range(5):
        harness.submit()
    assert [worker.asleep for worker in sleepers] == [False, False, True, True, True]


def test_raising_a_limit_wakes_as_many_more(harness: Harness) -> None:
    limit(harness, concurrency=1)
    harness.running()
    jobs = [harness.submit() for _ in range(3)]
    sleepers = [harness.worker() for _ in range(4)]
    assert all(harness.engine.sleep(worker) for worker in sleepers)
    limit(harness, concurrency=3)
    assert [worker.asleep for worker in sleepers] == [False, False, True, True]
    assert [harness.engine.take(worker) for worker in sleepers[:2]] == jobs[:2]


def test_lowering_a_limit_lets_finish_what_runs(harness: Harness) -> None:
    limit(harness, concurrency=3)
    worker = harness.worker()
    jobs = [harness.submit() for _ in range(4)]
    assert taken(harness, worker) == jobs[:3]
    limit(harness, concurrency=1)
    for job in jobs[:2]:
        harness.engine.complete(worker, job.id, b"")
        assert harness.engine.take(worker) is None
    harness.engine.complete(worker, jobs[2].id, b"")
    assert harness.engine.take(worker) is jobs[3]


def test_a_closed_gate_does_not_keep_a_worker_from_its_other_functions(make_harness: Callable[..., Harness]) -> None:
    for order in ("fair", "registration", "round-robin"):
        harness = make_harness(function_order=order)
        limit(harness, concurrency=1)
        harness.running()
        harness.submit(priority=HIGH)
        other = harness.submit(b"other", priority=LOW)
        worker = harness.worker(b"other", b"mail")
        assert not harness.engine.sleep(worker)
        assert harness.engine.take(worker) is other
        assert harness.engine.take(worker) is None
        assert harness.engine.sleep(worker)


def test_nobody_is_called_to_a_closed_gate_for_being_neglected(harness: Harness) -> None:
    limit(harness, concurrency=1)
    harness.running()
    harness.submit()
    sleeper = harness.worker()
    assert harness.engine.sleep(sleeper)
    for _ in range(10):
        harness.pass_seconds(1)
    assert peer_of(sleeper).heard == []
    assert harness.engine.next_deadline_us is None


def test_one_that_was_woken_for_a_gate_and_does_not_come_gets_company(harness: Harness) -> None:
    limit(harness, concurrency=1)
    worker, job = harness.running()
    waiting = harness.submit()
    lazy, eager = harness.worker(), harness.worker()
    assert harness.engine.sleep(lazy)
    assert harness.engine.sleep(eager)
    harness.engine.complete(worker, job.id, b"")
    assert (lazy.asleep, eager.asleep) == (False, True)
    harness.pass_seconds(1)
    assert harness.engine.take(eager) is waiting


def test_a_paused_function_stays_paused_when_its_gate_opens(harness: Harness) -> None:
    limit(harness, concurrency=1)
    worker, job = harness.running()
    waiting = harness.submit()
    pushed = harness.worker()
    harness.engine.grant(pushed, 1)
    harness.engine.pause(harness.function())
    harness.engine.complete(worker, job.id, b"")
    assert pushed.credits == 1
    harness.engine.resume(harness.function())
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


def test_a_rate_lets_a_burst_through_and_then_one_by_one(harness: Harness) -> None:
    limit(harness, rate=(4, SECOND_US))
    worker = harness.worker()
    for _ in range(20):
        harness.submit()
    started = []
    for _ in range(9):
        started.append(len(harness.drain_with(worker)))
        harness.pass_seconds(0.125)
    assert started == [4, 0, 1, 0, 1, 0, 1, 0, 1]


def test_a_token_that_comes_back_wakes_and_pushes(harness: Harness) -> None:
    limit(harness, rate=(1, SECOND_US))
    worker, job = harness.running()
    harness.engine.complete(worker, job.id, b"")
    jobs = [harness.submit() for _ in range(3)]
    sleeper, pushed = harness.worker(), harness.worker()
    assert harness.engine.sleep(sleeper)
    harness.engine.grant(pushed, 1)
    harness.pass_seconds(1)
    assert jobs[0].worker is pushed
    assert sleeper.asleep
    harness.pass_seconds(1)
    assert not sleeper.asleep
    assert harness.engine.take(sleeper) is jobs[1]
    assert harness.engine.take(sleeper) is None


def test_each_token_wakes_another_although_the_first_has_not_come(harness: Harness) -> None:
    limit(harness, rate=(4, SECOND_US))
    worker = harness.worker()
    for _ in range(8):
        harness.submit()
    assert len(taken(harness, worker)) == 4
    sleepers = [harness.worker() for _ in range(3)]
    assert all(harness.engine.sleep(sleeper) for sleeper in sleepers)
    asleep = []
    for _ in range(3):
        harness.pass_seconds(0.25)
        asleep.append(sum(sleeper.asleep for sleeper in sleepers))
    assert asleep == [2, 1, 0]


def test_a_rate_with_nothing_to_do_leaves_the_engine_in_peace(harness: Harness) -> None:
    limit(harness, rate=(2, SECOND_US), key_rate=(2, SECOND_US))
    worker = harness.worker()
    submit_each(harness, b"a", b"b")
    harness.drain_with(worker)
    harness.pass_seconds(1)
    assert harness.engine.next_deadline_us is None
    assert not limiter_of(harness).key_queues


@pytest.mark.parametrize("jump_seconds", [-3600, -0.3, 0.3, 3600])
def test_setting_the_clock_neither_makes_nor_takes_tokens(harness: Harness, jump_seconds: float) -> None:
    limit(harness, rate=(1, 10 * SECOND_US), key_rate=(1, 20 * SECOND_US))
    worker = harness.worker()
    for key in (b"a", b"a", b"b"):
        harness.submit(key=key)
    assert len(harness.drain_with(worker)) == 1
    harness.pass_seconds(4)
    harness.set_clock(jump_seconds)
    assert harness.drain_with(worker) == []
    harness.pass_seconds(5.9)
    assert harness.drain_with(worker) == []
    harness.pass_seconds(0.1)
    assert len(harness.drain_with(worker)) == 1
    harness.pass_seconds(10)
    assert len(harness.drain_with(worker)) == 1


def test_a_job_that_expired_before_its_token_came_is_not_started(harness: Harness) -> None:
    """Although both are seen at once, by a server that was busy or suspended."""
    limit(harness, rate=(1, SECOND_US))
    pushed = harness.worker()
    harness.engine.grant(pushed, 5)
    harness.submit()
    late = harness.submit(expires_us=harness.at(2))
    also_late = harness.submit(expires_us=harness.at(0.5))
    fine = harness.submit()
    harness.pass_seconds(10)
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
def test_everybody_keeps_his_place_when_the_policy_changes(harness: Harness, before: Policy, after: Policy) -> None:
    harness.engine.set_policy(harness.function(), before)
    jobs = submit_each(harness, b"a", b"b", b"a", b"", b"b")
    harness.engine.cancel(jobs[2])
    harness.engine.retry(jobs[2])  # and now it stands at the end
    harness.engine.set_policy(harness.function(), after)
    check_engine(harness.engine)
    harness.engine.set_policy(harness.function(), Policy())
    assert harness.drain_with(harness.worker()) == ids(jobs[0], jobs[1], jobs[3], jobs[4], jobs[2])


def test_what_runs_counts_for_a_new_policy(harness: Harness) -> None:
    worker = harness.worker()
    jobs = submit_each(harness, b"a", b"a", b"b")
    assert harness.engine.take(worker) is jobs[0]
    limit(harness, key_concurrency=1)
    assert taken(harness, worker) == [jobs[2]]
    harness.engine.complete(worker, jobs[0].id, b"")
    assert taken(harness, worker) == [jobs[1]]


def test_the_same_policy_once_more_changes_nothing(harness: Harness) -> None:
    """Workers declare it whenever they connect."""
    limit(harness, rate=(1, MINUTE_US), fair=True)
    harness.running(key=b"a")
    limiter = limiter_of(harness)
    harness.engine.take_changes()
    limit(harness, rate=(1, MINUTE_US), fair=True)
    assert limiter_of(harness) is limiter
    assert harness.engine.take_changes() == ([], [])


def test_what_was_spent_is_spent_for_a_new_rate(harness: Harness) -> None:
    limit(harness, rate=(2, MINUTE_US))
    worker = harness.worker()
    for _ in range(8):
        harness.submit()
    assert len(harness.drain_with(worker)) == 2
    limit(harness, rate=(6, MINUTE_US))
    assert harness.drain_with(worker) == []
    harness.pass_seconds(10)
    assert len(harness.drain_with(worker)) == 1


def test_a_policy_is_to_be_kept(harness: Harness) -> None:
    limit(harness, concurrency=3)
    assert harness.engine.take_changes()[1] == [harness.function()]


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
    harness: Harness, limits: dict[str, Any], reason: str | None, opens_seconds: float | None
) -> None:
    limit(harness, **limits)
    opens_us = harness.at(opens_seconds) if opens_seconds else 0
    _, job = harness.running(key=b"a")
    waiting = harness.submit(key=b"a")
    assert harness.engine.limiters.why_closed(waiting) == (Closed(reason, opens_us) if reason else None)
    assert harness.engine.limiters.why_closed(job) is None


def test_no_limit_holds_up_a_job_of_a_function_without_a_gate(harness: Harness) -> None:
    assert harness.engine.limiters.why_closed(harness.submit()) is None


# --- looking at the queue from outside ---


def test_the_next_entries_are_those_that_come_next(harness: Harness) -> None:
    limit(harness, fair=True)
    submit_each(harness, b"a", b"a", b"a", b"b", b"c", b"c")
    function = harness.function()
    upcoming = list(function.next_entries(NORMAL))
    assert keys_of(upcoming) == "abcaca"
    assert taken(harness, harness.worker()) == upcoming
    assert function.ready_of(NORMAL) == 0


def test_limits_hold_for_jobs_with_and_without_options(harness: Harness) -> None:
    limit(harness, concurrency=1, key_concurrency=1)
    plain = harness.engine.submit(b"mail", b"", b"", NORMAL, Delivery.HANDLE)
    keyed = harness.engine.submit(b"mail", b"", b"", NORMAL, Delivery.HANDLE, None, SubmitOptions(key=b"a"))
    worker = harness.worker()
    assert harness.drain_with(worker) == ids(plain, keyed)


def test_workers_are_told_of_a_better_job_while_the_payload_of_another_is_read(harness: Harness) -> None:
    """Of the other, which limits do not hold back, nobody was told."""
    limit(harness, concurrency=1)
    slow = submit_each(harness, b"", b"", priority=LOW)
    for job in slow:
        job.payload = None  # it is in the store alone
    worker = harness.worker()
    assert harness.engine.take(worker) is None
    assert harness.engine.sleep(worker)
    better = harness.submit(priority=HIGH)
    assert not worker.asleep
    assert taken(harness, worker) == [better]
