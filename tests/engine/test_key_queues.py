"""Keys: limits for each of them, keys served round robin, and that none is remembered for nothing."""

from __future__ import annotations

from collections import Counter

from switchgear.model import HIGH, LOW, NORMAL, READY, SECOND_US
from switchgear.testing import check_engine
from tests.engine.harness import Harness, ids, state_of
from tests.engine.limiter_words import keys_of, limit, limiter_of, submit_each, taken

MINUTE_US = 60 * SECOND_US

# --- keys ---


def test_each_key_has_a_limit_of_its_own_and_who_has_none_has_no_limit(harness: Harness) -> None:
    limit(harness, key_concurrency=1)
    jobs = submit_each(harness, b"a", b"a", b"b", b"", b"a", b"", b"b")
    worker = harness.worker()
    assert taken(harness, worker) == [jobs[0], jobs[2], jobs[3], jobs[5]]
    harness.engine.complete(worker, jobs[0].id, b"")
    assert taken(harness, worker) == [jobs[1]]


def test_each_key_has_a_rate_of_its_own(harness: Harness) -> None:
    limit(harness, key_rate=(1, SECOND_US))
    jobs = submit_each(harness, b"a", b"a", b"b", b"b", b"", b"")
    worker = harness.worker()
    assert harness.drain_with(worker) == ids(jobs[0], jobs[2], jobs[4], jobs[5])
    harness.pass_seconds(1)
    assert harness.drain_with(worker) == ids(jobs[1], jobs[3])


def test_a_job_of_a_closed_key_wakes_nobody_and_one_of_another_does(harness: Harness) -> None:
    limit(harness, key_concurrency=1)
    harness.running(key=b"a")
    sleeper = harness.worker()
    assert harness.engine.sleep(sleeper)
    harness.submit(key=b"a")
    assert sleeper.asleep
    harness.submit(key=b"b")
    assert not sleeper.asleep


def test_take_of_a_priority_passes_over_closed_keys(harness: Harness) -> None:
    limit(harness, key_concurrency=1)
    high, low = harness.submit(key=b"a", priority=HIGH), harness.submit(key=b"a", priority=LOW)
    other = harness.submit(key=b"b", priority=LOW)
    worker, function = harness.worker(), harness.function()
    assert harness.engine.take_of(worker, function, HIGH) is high
    assert harness.engine.take_of(worker, function, HIGH) is None
    assert harness.engine.take_of(worker, function, LOW) is other
    assert state_of(low) is READY


def test_without_fairness_jobs_come_in_the_order_of_their_arrival(harness: Harness) -> None:
    limit(harness, key_concurrency=2)
    jobs = submit_each(harness, b"a", b"a", b"a", b"b", b"a", b"c", b"b")
    worker = harness.worker()
    assert keys_of(taken(harness, worker)) == "aabcb"
    harness.engine.complete(worker, jobs[0].id, b"")
    harness.engine.complete(worker, jobs[3].id, b"")
    assert taken(harness, worker) == [jobs[2]]


def test_a_job_that_goes_ahead_does_so_in_its_key_queue_and_over_all(harness: Harness) -> None:
    harness.function().released_first = True
    limit(harness, key_concurrency=5)
    first = harness.submit()
    jobs = submit_each(harness, b"a", b"b")
    waited = harness.submit(key=b"b", after=(first,))
    worker = harness.worker()
    harness.engine.take(worker)
    harness.engine.complete(worker, first.id, b"")
    assert taken(harness, worker) == [waited, *jobs]


# --- keys in turn ---


def test_one_tenant_with_very_many_jobs_does_not_hold_up_the_others(harness: Harness) -> None:
    limit(harness, fair=True)
    submit_each(harness, *[b"big"] * 10_000)
    small = [job for tenant in range(9) for job in submit_each(harness, *[b"small %d" % tenant] * 10)]
    worker = harness.worker()
    first = taken(harness, worker, 100)
    assert {job for job in first if job.key != b"big"} == set(small)
    assert Counter(job.key for job in first) == Counter(dict.fromkeys({job.key for job in first}, 10))


def test_keys_are_served_in_turn_and_those_without_one_are_one_key(harness: Harness) -> None:
    limit(harness, fair=True)
    submit_each(harness, b"a", b"a", b"a", b"", b"", b"b", b"a")
    assert keys_of(taken(harness, harness.worker())) == "a-ba-aa"


def test_the_best_priority_comes_first_and_its_keys_take_turns(harness: Harness) -> None:
    limit(harness, fair=True)
    submit_each(harness, b"a", b"a", b"b", priority=LOW)
    submit_each(harness, b"c", b"c", b"d", priority=HIGH)
    assert keys_of(taken(harness, harness.worker())) == "cdcaba"


def test_a_key_that_was_closed_comes_back_at_the_end_of_the_turn(harness: Harness) -> None:
    limit(harness, fair=True, key_concurrency=1)
    jobs = submit_each(harness, b"a", b"a", b"b", b"b", b"c")
    worker = harness.worker()
    assert harness.engine.take(worker) is jobs[0]
    harness.engine.complete(worker, jobs[0].id, b"")
    assert taken(harness, worker) == [jobs[2], jobs[4], jobs[1]]


def test_pushed_workers_are_served_fairly_too(harness: Harness) -> None:
    limit(harness, fair=True)
    submit_each(harness, *[b"a"] * 4, b"b", b"c")
    pushed = harness.worker()
    harness.engine.grant(pushed, 4)
    assert keys_of(list(pushed.running.values())) == "abca"


# --- what is remembered ---


def test_keys_are_forgotten_when_nothing_is_left_of_them(harness: Harness) -> None:
    limit(harness, fair=True, key_concurrency=1)
    jobs = submit_each(harness, *[b"%d" % number for number in range(1000)])
    limiter = limiter_of(harness)
    assert limiter.keys_waiting == 1000
    for job in jobs[:500]:
        harness.engine.cancel(job)
    assert len(limiter.key_queues or ()) == limiter.keys_waiting == 500
    harness.drain_with(harness.worker())
    assert not limiter.key_queues
    assert not any(limiter.order)


def test_a_key_with_a_rate_is_remembered_until_its_bucket_is_full(harness: Harness) -> None:
    limit(harness, key_rate=(2, MINUTE_US))
    worker = harness.worker()
    submit_each(harness, b"a", b"a", b"a")
    assert len(harness.drain_with(worker)) == 2
    harness.pass_seconds(30)
    assert len(harness.drain_with(worker)) == 1
    harness.pass_seconds(59)
    assert limiter_of(harness).key_queues
    harness.pass_seconds(1)
    assert not limiter_of(harness).key_queues


def test_submitting_and_cancelling_for_ever_takes_no_memory(harness: Harness) -> None:
    limit(harness, key_concurrency=1)
    harness.running(key=b"busy")
    harness.submit(key=b"busy")
    for _ in range(3000):
        harness.engine.cancel(harness.submit(key=b"other"))
    assert len(limiter_of(harness).order[NORMAL]) == 0
    assert len(limiter_of(harness).key_queues or ()) == 1


def test_a_job_that_left_a_forgotten_key_queue_can_be_retried(harness: Harness) -> None:
    limit(harness, key_concurrency=1)
    job = harness.submit(key=b"a")
    for _ in range(3):
        harness.engine.cancel(job)
        harness.engine.retry(job)
    assert harness.function().ready == 1
    assert harness.drain_with(harness.worker()) == [job.id]


def test_a_dropped_function_forgets_its_limits(harness: Harness) -> None:
    limit(harness, rate=(1, MINUTE_US), key_rate=(1, MINUTE_US))
    worker, job = harness.running(key=b"a")
    harness.engine.complete(worker, job.id, b"")
    harness.engine.remove_worker(worker)
    function = harness.function()
    assert harness.engine.drop_function(function)
    check_engine(harness.engine)
    assert function.limiter is None
    assert harness.function().limiter is None
    harness.pass_seconds(60)
    assert harness.engine.next_deadline_us is None


def test_a_submission_that_could_not_be_kept_leaves_its_key_queue(harness: Harness) -> None:
    limit(harness, fair=True)
    job = harness.submit(key=b"a")
    assert harness.engine.withdraw(job)
    assert not limiter_of(harness).key_queues
