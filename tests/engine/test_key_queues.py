"""Keys: limits for each of them, keys served round robin, and that none is remembered for nothing."""

from __future__ import annotations

from collections import Counter

from switchgear.model import HIGH, LOW, NORMAL, READY, SECOND_US
from switchgear.testing import check_engine
from tests.engine.house import House, ids, state_of
from tests.engine.limiter_words import keys_of, limit, limiter_of, submit_each, taken

MINUTE_US = 60 * SECOND_US

# --- keys ---


def test_each_key_has_a_limit_of_its_own_and_who_has_none_has_no_limit(house: House) -> None:
    limit(house, key_concurrency=1)
    jobs = submit_each(house, b"a", b"a", b"b", b"", b"a", b"", b"b")
    worker = house.worker()
    assert taken(house, worker) == [jobs[0], jobs[2], jobs[3], jobs[5]]
    house.engine.complete(worker, jobs[0].id, b"")
    assert taken(house, worker) == [jobs[1]]


def test_each_key_has_a_rate_of_its_own(house: House) -> None:
    limit(house, key_rate=(1, SECOND_US))
    jobs = submit_each(house, b"a", b"a", b"b", b"b", b"", b"")
    worker = house.worker()
    assert house.drain_with(worker) == ids(jobs[0], jobs[2], jobs[4], jobs[5])
    house.pass_seconds(1)
    assert house.drain_with(worker) == ids(jobs[1], jobs[3])


def test_a_job_of_a_closed_key_wakes_nobody_and_one_of_another_does(house: House) -> None:
    limit(house, key_concurrency=1)
    house.running(key=b"a")
    sleeper = house.worker()
    assert house.engine.sleep(sleeper)
    house.submit(key=b"a")
    assert sleeper.asleep
    house.submit(key=b"b")
    assert not sleeper.asleep


def test_take_of_a_priority_passes_over_closed_keys(house: House) -> None:
    limit(house, key_concurrency=1)
    high, low = house.submit(key=b"a", priority=HIGH), house.submit(key=b"a", priority=LOW)
    other = house.submit(key=b"b", priority=LOW)
    worker, function = house.worker(), house.function()
    assert house.engine.take_of(worker, function, HIGH) is high
    assert house.engine.take_of(worker, function, HIGH) is None
    assert house.engine.take_of(worker, function, LOW) is other
    assert state_of(low) is READY


def test_without_fairness_jobs_come_in_the_order_of_their_arrival(house: House) -> None:
    limit(house, key_concurrency=2)
    jobs = submit_each(house, b"a", b"a", b"a", b"b", b"a", b"c", b"b")
    worker = house.worker()
    assert keys_of(taken(house, worker)) == "aabcb"
    house.engine.complete(worker, jobs[0].id, b"")
    house.engine.complete(worker, jobs[3].id, b"")
    assert taken(house, worker) == [jobs[2]]


def test_a_job_that_goes_ahead_does_so_in_its_key_queue_and_over_all(house: House) -> None:
    house.function().released_first = True
    limit(house, key_concurrency=5)
    first = house.submit()
    jobs = submit_each(house, b"a", b"b")
    waited = house.submit(key=b"b", after=(first,))
    worker = house.worker()
    house.engine.take(worker)
    house.engine.complete(worker, first.id, b"")
    assert taken(house, worker) == [waited, *jobs]


# --- keys in turn ---


def test_one_tenant_with_very_many_jobs_does_not_hold_up_the_others(house: House) -> None:
    limit(house, fair=True)
    submit_each(house, *[b"big"] * 10_000)
    small = [job for tenant in range(9) for job in submit_each(house, *[b"small %d" % tenant] * 10)]
    worker = house.worker()
    first = taken(house, worker, 100)
    assert {job for job in first if job.key != b"big"} == set(small)
    assert Counter(job.key for job in first) == Counter(dict.fromkeys({job.key for job in first}, 10))


def test_keys_are_served_in_turn_and_those_without_one_are_one_key(house: House) -> None:
    limit(house, fair=True)
    submit_each(house, b"a", b"a", b"a", b"", b"", b"b", b"a")
    assert keys_of(taken(house, house.worker())) == "a-ba-aa"


def test_the_best_priority_comes_first_and_its_keys_take_turns(house: House) -> None:
    limit(house, fair=True)
    submit_each(house, b"a", b"a", b"b", priority=LOW)
    submit_each(house, b"c", b"c", b"d", priority=HIGH)
    assert keys_of(taken(house, house.worker())) == "cdcaba"


def test_a_key_that_was_closed_comes_back_at_the_end_of_the_turn(house: House) -> None:
    limit(house, fair=True, key_concurrency=1)
    jobs = submit_each(house, b"a", b"a", b"b", b"b", b"c")
    worker = house.worker()
    assert house.engine.take(worker) is jobs[0]
    house.engine.complete(worker, jobs[0].id, b"")
    assert taken(house, worker) == [jobs[2], jobs[4], jobs[1]]


def test_pushed_workers_are_served_fairly_too(house: House) -> None:
    limit(house, fair=True)
    submit_each(house, *[b"a"] * 4, b"b", b"c")
    pushed = house.worker()
    house.engine.grant(pushed, 4)
    assert keys_of(list(pushed.running.values())) == "abca"


# --- what is remembered ---


def test_keys_are_forgotten_when_nothing_is_left_of_them(house: House) -> None:
    limit(house, fair=True, key_concurrency=1)
    jobs = submit_each(house, *[b"%d" % number for number in range(1000)])
    limiter = limiter_of(house)
    assert limiter.keys_waiting == 1000
    for job in jobs[:500]:
        house.engine.cancel(job)
    assert len(limiter.key_queues or ()) == limiter.keys_waiting == 500
    house.drain_with(house.worker())
    assert not limiter.key_queues
    assert not any(limiter.round_robin)


def test_a_key_with_a_rate_is_remembered_until_its_bucket_is_full(house: House) -> None:
    limit(house, key_rate=(2, MINUTE_US))
    worker = house.worker()
    submit_each(house, b"a", b"a", b"a")
    assert len(house.drain_with(worker)) == 2
    house.pass_seconds(30)
    assert len(house.drain_with(worker)) == 1
    house.pass_seconds(59)
    assert limiter_of(house).key_queues
    house.pass_seconds(1)
    assert not limiter_of(house).key_queues


def test_submitting_and_cancelling_for_ever_takes_no_memory(house: House) -> None:
    limit(house, key_concurrency=1)
    house.running(key=b"busy")
    house.submit(key=b"busy")
    for _ in range(3000):
        house.engine.cancel(house.submit(key=b"other"))
    assert len(limiter_of(house).heads[NORMAL]) < 600
    assert len(limiter_of(house).key_queues or ()) == 1


def test_a_job_that_left_a_forgotten_key_queue_can_be_retried(house: House) -> None:
    limit(house, key_concurrency=1)
    job = house.submit(key=b"a")
    for _ in range(3):
        house.engine.cancel(job)
        house.engine.retry(job)
    assert house.function().ready == 1
    assert house.drain_with(house.worker()) == [job.id]


def test_a_dropped_function_forgets_its_limits(house: House) -> None:
    limit(house, rate=(1, MINUTE_US), key_rate=(1, MINUTE_US))
    worker, job = house.running(key=b"a")
    house.engine.complete(worker, job.id, b"")
    house.engine.remove_worker(worker)
    function = house.function()
    assert house.engine.drop_function(function)
    check_engine(house.engine)
    assert function.limiter is None
    assert house.function().limiter is None
    house.pass_seconds(60)
    assert house.engine.next_deadline_us is None


def test_a_submission_that_could_not_be_kept_leaves_its_key_queue(house: House) -> None:
    limit(house, fair=True)
    job = house.submit(key=b"a")
    assert house.engine.withdraw(job)
    assert not limiter_of(house).key_queues
