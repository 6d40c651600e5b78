"""Keys that are told apart while a long queue is there: its jobs get to the queues of their keys over several turns."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from switchgear.model import HIGH, LOW, NORMAL, READY, SECOND_US, Job
from switchgear.policy import Policy
from switchgear.testing import check_engine
from tests.engine.house import House, state_of
from tests.engine.limiter_words import limit, submit_each, taken


def few_per_turn(house: House, units: int = 3) -> None:
    house.engine.sliced_work.units_per_turn = units
    house.pass_seconds(0)


def finish_distributing(house: House) -> None:
    for _ in range(1_000):
        if not len(house.engine.sliced_work):
            return
        house.pass_seconds(0)
    raise AssertionError("it does not end")


def test_only_a_part_of_a_long_queue_is_moved_in_a_turn(house: House) -> None:
    jobs = submit_each(house, *[b"a", b"b"] * 5)
    few_per_turn(house)
    limit(house, fair=True)
    check_engine(house.engine)
    function = house.function()
    assert (function.own_ready_of(NORMAL), function.ready) == (7, 10)
    assert sum(function.ready_of(priority) for priority in range(4)) == 10
    house.pass_seconds(0)
    assert function.own_ready_of(NORMAL) == 4
    finish_distributing(house)
    assert function.own_ready_of(NORMAL) == 0
    assert taken(house, house.worker()) == jobs


def test_the_limits_are_in_force_at_once(house: House) -> None:
    worker, first = house.running(key=b"a")
    jobs = submit_each(house, b"a", b"b", b"b", b"a", b"c", b"c")
    few_per_turn(house)
    limit(house, key_concurrency=1)
    assert taken(house, worker) == [jobs[1]]
    finish_distributing(house)
    assert taken(house, worker) == [jobs[4]]
    house.engine.complete(worker, first.id, b"")
    assert taken(house, worker) == [jobs[0]]
    check_engine(house.engine)


def test_new_jobs_go_behind_those_that_wait_to_be_moved_and_others_ahead(house: House) -> None:
    house.function().released_first = True
    slow = house.submit(key=b"a", timeout_us=SECOND_US)
    assert taken(house, house.worker()) == [slow]
    jobs = submit_each(house, *[b"a"] * 9)
    few_per_turn(house)
    limit(house, fair=True)
    new = house.submit(key=b"a")
    house.pass_seconds(1)  # and the slow one goes ahead
    check_engine(house.engine)
    assert house.function().own_ready_of(NORMAL) == 4
    finish_distributing(house)
    check_engine(house.engine)
    assert taken(house, house.worker()) == [slow, *jobs, new]


def test_jobs_of_a_better_priority_are_moved_first(house: House) -> None:
    low = submit_each(house, *[b"a"] * 4, priority=LOW)
    high = submit_each(house, *[b"a"] * 4, priority=HIGH)
    few_per_turn(house)
    limit(house, fair=True)
    worker = house.worker()
    assert taken(house, worker) == high[:3]
    finish_distributing(house)
    assert taken(house, worker) == [high[3], *low]


def test_jobs_are_cancelled_wherever_they_are(house: House) -> None:
    jobs = submit_each(house, *[b"a", b"b"] * 6)
    few_per_turn(house)
    limit(house, key_concurrency=100)
    for job in (jobs[0], jobs[2], jobs[3], jobs[7], jobs[11]):
        assert state_of(job) is READY
        house.engine.cancel(job)
        check_engine(house.engine)
    finish_distributing(house)
    check_engine(house.engine)
    assert taken(house, house.worker()) == [jobs[number] for number in (1, 4, 5, 6, 8, 9, 10)]


def test_workers_that_sleep_are_woken_for_what_is_moved(house: House) -> None:
    submit_each(house, *[b"a"] * 5)
    sleeper = house.worker()
    house.engine.pause(house.function())
    assert house.engine.sleep(sleeper)
    house.engine.sliced_work.units_per_turn = 0
    house.pass_seconds(0)
    limit(house, fair=True)
    house.engine.resume(house.function())
    assert sleeper.asleep  # there is nothing yet
    few_per_turn(house)
    finish_distributing(house)
    assert not sleeper.asleep


@pytest.mark.parametrize(
    "policy", [{}, {"concurrency": 2}, {"key_concurrency": 2}, {"fair": True, "key_concurrency": 1}]
)
def test_the_limits_are_changed_again_before_all_are_moved(house: House, policy: dict[str, Any]) -> None:
    jobs = submit_each(house, *[b"a", b"b", b""] * 5)
    few_per_turn(house)
    limit(house, fair=True)
    limit(house, **policy)
    check_engine(house.engine)
    finish_distributing(house)
    check_engine(house.engine)
    worker = house.worker()
    ran: list[Job] = []
    while some := taken(house, worker):
        ran += some
        for job in some:
            house.engine.complete(worker, job.id, b"")
    assert sorted(job.id for job in ran) == [job.id for job in jobs]
    for key in (b"a", b"b", b""):
        of_key = [job.id for job in ran if job.key == key]
        assert of_key == sorted(of_key)


def test_a_function_is_dropped_before_all_are_moved(house: House) -> None:
    jobs = submit_each(house, *[b"a"] * 5)
    few_per_turn(house)
    limit(house, fair=True)
    for job in jobs:
        house.engine.cancel(job)
    finish_distributing(house)
    check_engine(house.engine)
    assert house.function().ready == 0


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_meanwhile_nothing_is_lost(house: House, seed: int) -> None:
    random = Random(seed)
    packed = house.engine.packed_queues
    packed.pack_from, packed.head_jobs, packed.segment_jobs = 6, 4, 4
    house.engine.sliced_work.units_per_turn = random.randint(1, 4)
    keys = [b"", b"a", b"b", b"c"]
    workers = [house.worker() for _ in range(3)]
    policies = [
        Policy(),
        Policy(concurrency=3),
        Policy(fair=True),
        Policy(key_concurrency=1),
        Policy(key_concurrency=2),
    ]
    submitted: list[Job] = []
    ended: set[int] = set()
    for _ in range(300):
        choice = random.random()
        unfinished = [job for job in submitted if job.id not in ended]
        if choice < 0.45:
            submitted.append(house.submit(key=random.choice(keys), priority=random.choice([LOW, NORMAL, NORMAL])))
        elif choice < 0.6:
            house.engine.take(random.choice(workers))
        elif choice < 0.72:
            worker = random.choice(workers)
            for job_id in list(worker.running)[:1]:
                house.engine.complete(worker, job_id, b"")
                ended.add(job_id)
        elif choice < 0.82 and unfinished:
            job = random.choice(unfinished)
            house.engine.cancel(job)
            ended.add(job.id)
        elif choice < 0.87:
            house.engine.set_policy(house.function(), random.choice(policies))
        elif choice < 0.9:
            worker = random.choice(workers)
            for job_id in list(worker.running)[:1]:
                house.engine.release(worker, job_id)
        else:
            house.pass_seconds(0)
        check_engine(house.engine)
    limit(house)
    finish_distributing(house)
    worker = workers[0]
    for other in workers:
        for job_id in list(other.running):
            house.engine.complete(other, job_id, b"")
            ended.add(job_id)
    while some := taken(house, worker):
        for job in some:
            house.engine.complete(worker, job.id, b"")
            ended.add(job.id)
    assert ended == {job.id for job in submitted}
    check_engine(house.engine)


# --- keys that were distinguished before ---


def reviewed(house: House) -> int:
    """How many keys were reviewed for the present policy."""
    limiter = house.function().limiter
    assert limiter is not None
    return sum(queue.revision == limiter.revision for queue in (limiter.key_queues or {}).values())


def test_only_a_part_of_the_keys_is_reviewed_in_a_turn(house: House) -> None:
    limit(house, key_concurrency=1)
    jobs = submit_each(house, *[b"%d" % number for number in range(10)])
    few_per_turn(house)
    for policy in ({"key_concurrency": 2}, {"fair": True}, {"fair": True, "key_rate": (1, SECOND_US)}):
        limit(house, **policy)
        check_engine(house.engine)
        for count in (3, 6, 9, 10):
            assert reviewed(house) == count
            house.pass_seconds(0)
            check_engine(house.engine)
        assert not len(house.engine.sliced_work)
    assert taken(house, house.worker()) == jobs


def test_only_a_part_of_the_jobs_is_gathered_in_a_turn(house: House) -> None:
    limit(house, fair=True)
    jobs = submit_each(house, *[b"a", b"b", b""] * 4)
    few_per_turn(house, 4)
    limit(house)
    moved = []
    for _ in range(20):
        check_engine(house.engine)
        moved.append(house.function().own_ready_of(NORMAL))
        house.pass_seconds(0)
    assert all(later - earlier <= 4 for earlier, later in pairwise(moved))
    assert moved[-1] == 12
    assert house.function().limiter is None
    assert house.engine.memory.limiter_bytes == 0
    assert taken(house, house.worker()) == jobs


def test_lower_limits_of_keys_hold_before_all_are_reviewed(house: House) -> None:
    limit(house, key_concurrency=2)
    worker = house.worker()
    first = submit_each(house, b"a", b"b", b"c", b"d")
    assert taken(house, worker) == first
    second = submit_each(house, b"a", b"b", b"c", b"d")
    few_per_turn(house, 1)
    limit(house, key_concurrency=1)
    assert taken(house, worker) == []
    finish_distributing(house)
    assert taken(house, worker) == []
    house.engine.complete(worker, first[2].id, b"")
    assert taken(house, worker) == [second[2]]


def test_jobs_come_in_order_while_they_are_gathered(house: House) -> None:
    limit(house, key_concurrency=1)
    jobs = submit_each(house, *[b"a", b"b", b"c"] * 4)
    few_per_turn(house, 2)
    limit(house, concurrency=100)
    jobs.append(house.submit(key=b"d"))
    house.pass_seconds(0)  # all keys are reviewed, and few jobs are gathered
    worker = house.worker()
    got: list[Job] = []
    while len(got) < len(jobs):
        assert len(got) > 3 or len(house.engine.sliced_work)
        got += taken(house, worker, 1)
        check_engine(house.engine)
        house.pass_seconds(0)
    assert got == jobs


def test_keys_are_distinguished_again_while_jobs_are_gathered(house: House) -> None:
    limit(house, key_concurrency=1)
    jobs = submit_each(house, *[b"a", b"b"] * 5)
    few_per_turn(house)
    limit(house)
    house.pass_seconds(0)
    limit(house, key_concurrency=3)
    check_engine(house.engine)
    finish_distributing(house)
    check_engine(house.engine)
    assert house.function().own_ready_of(NORMAL) == 0
    assert taken(house, house.worker()) == jobs[:6]


def test_cancelling_all_jobs_ends_the_gathering(house: House) -> None:
    limit(house, fair=True)
    jobs = submit_each(house, *[b"a", b"b"] * 5)
    few_per_turn(house)
    limit(house)
    for job in jobs:
        house.engine.cancel(job)
        check_engine(house.engine)
    finish_distributing(house)
    check_engine(house.engine)
    assert house.function().limiter is None
