"""Keys that are told apart while a long queue is there: its jobs get to the queues of their keys over several turns."""

from __future__ import annotations

import gc
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from switchgear.model import HIGH, LOW, NORMAL, READY, SECOND_US, Job, KeyQueue, Worker
from switchgear.model.key_queue_order import KeyQueueTurn
from switchgear.policy import Policy
from switchgear.testing import check_engine
from tests.engine.harness import Harness, state_of
from tests.engine.limiter_words import limit, submit_each, taken


def few_per_turn(harness: Harness, units: int = 3) -> None:
    harness.engine.sliced_work.units_per_turn = units
    harness.pass_seconds(0)


def finish_distributing(harness: Harness) -> None:
    for _ in range(1_000):
        if not len(harness.engine.sliced_work):
            return
        harness.pass_seconds(0)
    raise AssertionError("it does not end")


def test_only_a_part_of_a_long_queue_is_moved_in_a_turn(harness: Harness) -> None:
    jobs = submit_each(harness, *[b"a", b"b"] * 5)
    few_per_turn(harness)
    limit(harness, fair=True)
    check_engine(harness.engine)
    function = harness.function()
    assert (function.own_ready_of(NORMAL), function.ready) == (7, 10)
    assert sum(function.ready_of(priority) for priority in range(4)) == 10
    harness.pass_seconds(0)
    assert function.own_ready_of(NORMAL) == 4
    finish_distributing(harness)
    assert function.own_ready_of(NORMAL) == 0
    assert taken(harness, harness.worker()) == jobs


def test_the_limits_are_in_force_at_once(harness: Harness) -> None:
    worker, first = harness.running(key=b"a")
    jobs = submit_each(harness, b"a", b"b", b"b", b"a", b"c", b"c")
    few_per_turn(harness, 5)  # two of them to count the running job
    limit(harness, key_concurrency=1)
    assert taken(harness, worker) == [jobs[1]]
    finish_distributing(harness)
    assert taken(harness, worker) == [jobs[4]]
    harness.engine.complete(worker, first.id, b"")
    assert taken(harness, worker) == [jobs[0]]
    check_engine(harness.engine)


def test_new_jobs_go_behind_those_that_wait_to_be_moved_and_others_ahead(harness: Harness) -> None:
    harness.function().released_first = True
    slow = harness.submit(key=b"a", timeout_us=SECOND_US)
    assert taken(harness, harness.worker()) == [slow]
    jobs = submit_each(harness, *[b"a"] * 9)
    few_per_turn(harness)
    limit(harness, fair=True)
    new = harness.submit(key=b"a")
    harness.pass_seconds(1)  # and the slow one goes ahead
    check_engine(harness.engine)
    assert harness.function().own_ready_of(NORMAL) == 6  # two units were used to count the running job
    finish_distributing(harness)
    check_engine(harness.engine)
    assert taken(harness, harness.worker()) == [slow, *jobs, new]


def test_jobs_of_a_better_priority_are_moved_first(harness: Harness) -> None:
    low = submit_each(harness, *[b"a"] * 4, priority=LOW)
    high = submit_each(harness, *[b"a"] * 4, priority=HIGH)
    few_per_turn(harness)
    limit(harness, fair=True)
    worker = harness.worker()
    assert taken(harness, worker) == high[:3]
    finish_distributing(harness)
    assert taken(harness, worker) == [high[3], *low]


def test_jobs_are_cancelled_wherever_they_are(harness: Harness) -> None:
    jobs = submit_each(harness, *[b"a", b"b"] * 6)
    few_per_turn(harness)
    limit(harness, key_concurrency=100)
    for job in (jobs[0], jobs[2], jobs[3], jobs[7], jobs[11]):
        assert state_of(job) is READY
        harness.engine.cancel(job)
        check_engine(harness.engine)
    finish_distributing(harness)
    check_engine(harness.engine)
    assert taken(harness, harness.worker()) == [jobs[number] for number in (1, 4, 5, 6, 8, 9, 10)]


def test_workers_that_sleep_are_woken_for_what_is_moved(harness: Harness) -> None:
    submit_each(harness, *[b"a"] * 5)
    sleeper = harness.worker()
    harness.engine.pause(harness.function())
    assert harness.engine.sleep(sleeper)
    harness.engine.sliced_work.units_per_turn = 0
    harness.pass_seconds(0)
    limit(harness, fair=True)
    harness.engine.resume(harness.function())
    assert sleeper.asleep  # there is nothing yet
    few_per_turn(harness)
    finish_distributing(harness)
    assert not sleeper.asleep


@pytest.mark.parametrize(
    "policy", [{}, {"concurrency": 2}, {"key_concurrency": 2}, {"fair": True, "key_concurrency": 1}]
)
def test_the_limits_are_changed_again_before_all_are_moved(harness: Harness, policy: dict[str, Any]) -> None:
    jobs = submit_each(harness, *[b"a", b"b", b""] * 5)
    few_per_turn(harness)
    limit(harness, fair=True)
    limit(harness, **policy)
    check_engine(harness.engine)
    finish_distributing(harness)
    check_engine(harness.engine)
    worker = harness.worker()
    ran: list[Job] = []
    while some := taken(harness, worker):
        ran += some
        for job in some:
            harness.engine.complete(worker, job.id, b"")
    assert sorted(job.id for job in ran) == [job.id for job in jobs]
    for key in (b"a", b"b", b""):
        of_key = [job.id for job in ran if job.key == key]
        assert of_key == sorted(of_key)


def test_a_function_is_dropped_before_all_are_moved(harness: Harness) -> None:
    jobs = submit_each(harness, *[b"a"] * 5)
    few_per_turn(harness)
    limit(harness, fair=True)
    for job in jobs:
        harness.engine.cancel(job)
    finish_distributing(harness)
    check_engine(harness.engine)
    assert harness.function().ready == 0


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_meanwhile_nothing_is_lost(harness: Harness, seed: int) -> None:
    random = Random(seed)
    packed = harness.engine.packed_queues
    packed.pack_from, packed.head_jobs, packed.segment_jobs = 6, 4, 4
    harness.engine.sliced_work.units_per_turn = random.randint(1, 4)
    keys = [b"", b"a", b"b", b"c"]
    workers = [harness.worker() for _ in range(3)]
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
            submitted.append(harness.submit(key=random.choice(keys), priority=random.choice([LOW, NORMAL, NORMAL])))
        elif choice < 0.6:
            harness.engine.take(random.choice(workers))
        elif choice < 0.72:
            worker = random.choice(workers)
            for job_id in list(worker.running)[:1]:
                harness.engine.complete(worker, job_id, b"")
                ended.add(job_id)
        elif choice < 0.82 and unfinished:
            job = random.choice(unfinished)
            harness.engine.cancel(job)
            ended.add(job.id)
        elif choice < 0.87:
            harness.engine.set_policy(harness.function(), random.choice(policies))
        elif choice < 0.9:
            worker = random.choice(workers)
            for job_id in list(worker.running)[:1]:
                harness.engine.release(worker, job_id)
        else:
            harness.pass_seconds(0)
        check_engine(harness.engine)
    limit(harness)
    finish_distributing(harness)
    worker = workers[0]
    for other in workers:
        for job_id in list(other.running):
            harness.engine.complete(other, job_id, b"")
            ended.add(job_id)
    while some := taken(harness, worker):
        for job in some:
            harness.engine.complete(worker, job.id, b"")
            ended.add(job.id)
    assert ended == {job.id for job in submitted}
    check_engine(harness.engine)


def lists_of_key_queues(generations: tuple[int, ...]) -> list[list[Any]]:
    """The lists with more than some entries that the garbage collector has in these generations."""
    return [
        each
        for generation in generations
        for each in gc.get_objects(generation=generation)
        if type(each) is list and len(each) > 8 and isinstance(each[0], KeyQueue | KeyQueueTurn)
    ]


def test_long_lists_of_key_queues_are_old_when_they_are_filled(harness: Harness) -> None:
    """While a list is young, each collection visits all its entries, of which there may be a million."""
    harness.engine.limiters.long = 5
    limit(harness, key_concurrency=1)
    submit_each(harness, *[b"%d" % number for number in range(10)])
    gc.collect()
    gc.disable()
    try:
        limit(harness, fair=True)
        assert lists_of_key_queues((0, 1)) == []
        assert len(lists_of_key_queues((2,))) >= 1
        few_per_turn(harness, 10)
        harness.engine.sliced_work.finish()
        few_per_turn(harness, 21)
        limit(harness)  # the keys are reviewed, then listed, and then one is gathered
        assert len(lists_of_key_queues((2,))) == 2  # the order of turns, and those that are gathered
        assert len(lists_of_key_queues((0, 1))) <= 1  # a portion of the table, which is never long
    finally:
        gc.enable()


# --- keys that were distinguished before ---


def reviewed(harness: Harness) -> int:
    """How many keys were reviewed for the present policy."""
    limiter = harness.function().limiter
    assert limiter is not None
    assert limiter.key_queues is not None
    return sum(queue.revision == limiter.revision for queue in limiter.key_queues.values())


def test_only_a_part_of_the_keys_is_reviewed_in_a_turn(harness: Harness) -> None:
    limit(harness, key_concurrency=1)
    jobs = submit_each(harness, *[b"%d" % number for number in range(10)])
    few_per_turn(harness)
    for policy in ({"key_concurrency": 2}, {"fair": True}, {"fair": True, "key_rate": (1, SECOND_US)}):
        limit(harness, **policy)
        check_engine(harness.engine)
        for count in (3, 6, 9, 10):
            assert reviewed(harness) == count
            harness.pass_seconds(0)
            check_engine(harness.engine)
        assert not len(harness.engine.sliced_work)
    assert taken(harness, harness.worker()) == jobs


def test_only_a_part_of_the_jobs_is_gathered_in_a_turn(harness: Harness) -> None:
    limit(harness, fair=True)
    jobs = submit_each(harness, *[b"a", b"b", b""] * 4)
    few_per_turn(harness, 4)
    limit(harness)
    moved = []
    for _ in range(20):
        check_engine(harness.engine)
        moved.append(harness.function().own_ready_of(NORMAL))
        harness.pass_seconds(0)
    assert all(later - earlier <= 4 for earlier, later in pairwise(moved))
    assert moved[-1] == 12
    assert harness.function().limiter is None
    assert harness.engine.memory.limiter_bytes == 0
    assert taken(harness, harness.worker()) == jobs


def test_a_collection_visits_only_a_part_of_the_jobs_that_are_gathered(harness: Harness) -> None:
    """The segments of a long queue are few objects with very many jobs: while they are made, no collection begins by
    itself for so long that one would take as long as several turns."""
    function = harness.function()
    harness.engine.administration.key_distribution.most_in_new_segments = 4
    limit(harness, fair=True)
    submit_each(harness, *[b"a", b"b"] * 5)
    gathered: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 1:
            gathered.append(function.own_ready_of(NORMAL))

    gc.disable()
    gc.callbacks.append(note)
    try:
        limit(harness)
    finally:
        gc.callbacks.remove(note)
        gc.enable()
    assert gathered == [4, 8]


def test_lower_limits_of_keys_hold_before_all_are_reviewed(harness: Harness) -> None:
    limit(harness, key_concurrency=2)
    worker = harness.worker()
    first = submit_each(harness, b"a", b"b", b"c", b"d")
    assert taken(harness, worker) == first
    second = submit_each(harness, b"a", b"b", b"c", b"d")
    few_per_turn(harness, 1)
    limit(harness, key_concurrency=1)
    assert taken(harness, worker) == []
    finish_distributing(harness)
    assert taken(harness, worker) == []
    harness.engine.complete(worker, first[2].id, b"")
    assert taken(harness, worker) == [second[2]]


def test_jobs_come_in_order_while_they_are_gathered(harness: Harness) -> None:
    limit(harness, key_concurrency=1)
    jobs = submit_each(harness, *[b"a", b"b", b"c"] * 4)
    few_per_turn(harness, 2)
    limit(harness, concurrency=100)
    jobs.append(harness.submit(key=b"d"))
    harness.pass_seconds(0)  # all keys are reviewed, and few jobs are gathered
    worker = harness.worker()
    got: list[Job] = []
    while len(got) < len(jobs):
        assert len(got) > 3 or len(harness.engine.sliced_work)
        got += taken(harness, worker, 1)
        check_engine(harness.engine)
        harness.pass_seconds(0)
    assert got == jobs


def test_keys_are_distinguished_again_while_jobs_are_gathered(harness: Harness) -> None:
    limit(harness, key_concurrency=1)
    jobs = submit_each(harness, *[b"a", b"b"] * 5)
    few_per_turn(harness)
    limit(harness)
    harness.pass_seconds(0)
    limit(harness, key_concurrency=3)
    check_engine(harness.engine)
    finish_distributing(harness)
    check_engine(harness.engine)
    assert harness.function().own_ready_of(NORMAL) == 0
    assert taken(harness, harness.worker()) == jobs[:6]


def test_cancelling_all_jobs_ends_the_gathering(harness: Harness) -> None:
    limit(harness, fair=True)
    jobs = submit_each(harness, *[b"a", b"b"] * 5)
    few_per_turn(harness)
    limit(harness)
    for job in jobs:
        harness.engine.cancel(job)
        check_engine(harness.engine)
    finish_distributing(harness)
    check_engine(harness.engine)
    assert harness.function().limiter is None


# --- running jobs are counted ---


def uncounted(harness: Harness) -> int:
    limiter = harness.function().limiter
    assert limiter is not None
    return len(limiter.uncounted_workers) + len(limiter.uncounted_jobs)


def busy_workers(harness: Harness, *keys: bytes) -> list[tuple[Worker, Job]]:
    return [harness.running(key=key) for key in keys]


def test_only_a_part_of_the_workers_is_looked_at_in_a_turn(harness: Harness) -> None:
    busy_workers(harness, *[b"%d" % number for number in range(10)])
    ready = submit_each(harness, b"new", b"1")
    few_per_turn(harness, 4)  # two for each worker: it is looked at, and its job is counted
    limit(harness, key_concurrency=1)
    left = []
    while uncounted(harness):
        left.append(uncounted(harness))
        check_engine(harness.engine)
        assert taken(harness, harness.worker()) == []
        harness.pass_seconds(0)
    assert left == [8, 6, 4, 2]
    finish_distributing(harness)
    check_engine(harness.engine)
    assert taken(harness, harness.worker()) == ready[:1]


def test_a_worker_with_many_jobs_is_counted_over_several_turns(harness: Harness) -> None:
    jobs = submit_each(harness, *[b"a"] * 20)
    worker = harness.worker()
    assert taken(harness, worker) == jobs
    few_per_turn(harness)
    limit(harness, key_concurrency=20)
    assert uncounted(harness) == 18
    for job in jobs:  # some are counted, and some are not
        harness.engine.complete(worker, job.id, b"")
        check_engine(harness.engine)
    assert uncounted(harness) == 0
    finish_distributing(harness)
    check_engine(harness.engine)


def test_jobs_end_and_workers_vanish_while_running_jobs_are_counted(harness: Harness) -> None:
    running = busy_workers(harness, *[b"a", b"b"] * 5)
    few_per_turn(harness)
    limit(harness, key_concurrency=3)
    for number, (worker, job) in enumerate(running):
        if number % 3 == 0:
            harness.engine.complete(worker, job.id, b"")
        elif number % 3 == 1:
            harness.engine.remove_worker(worker)
        check_engine(harness.engine)
        harness.submit(key=b"a")
        harness.pass_seconds(0)
        check_engine(harness.engine)
    finish_distributing(harness)
    check_engine(harness.engine)


def test_keys_are_distinguished_while_the_jobs_of_a_lost_worker_go_back(harness: Harness) -> None:
    jobs = submit_each(harness, *[b"a", b"b"] * 5)
    worker = harness.worker()
    assert taken(harness, worker) == jobs
    few_per_turn(harness)
    harness.engine.remove_worker(worker)
    assert harness.function().running == 7
    limit(harness, key_concurrency=1)
    check_engine(harness.engine)
    finish_distributing(harness)
    check_engine(harness.engine)
    assert harness.function().running == 0
    assert len(taken(harness, harness.worker())) == 2


def test_the_limits_are_changed_again_while_running_jobs_are_counted(harness: Harness) -> None:
    busy_workers(harness, *[b"a", b"b", b"c"] * 3)
    jobs = submit_each(harness, b"a", b"b", b"c", b"d")
    few_per_turn(harness)
    limit(harness, key_concurrency=4)
    limit(harness, key_concurrency=3)
    check_engine(harness.engine)
    assert taken(harness, harness.worker()) == []
    finish_distributing(harness)
    check_engine(harness.engine)
    assert taken(harness, harness.worker()) == jobs[3:]


def test_limits_are_removed_while_running_jobs_are_counted(harness: Harness) -> None:
    busy_workers(harness, *[b"a", b"b", b"c"] * 3)
    jobs = submit_each(harness, b"a", b"b", b"c", b"d")
    few_per_turn(harness)
    limit(harness, key_concurrency=1)
    limit(harness)
    check_engine(harness.engine)
    finish_distributing(harness)
    check_engine(harness.engine)
    assert taken(harness, harness.worker()) == jobs
    assert harness.function().limiter is None


def test_jobs_that_go_ahead_while_running_jobs_are_counted_keep_their_place(harness: Harness) -> None:
    harness.function().released_first = True
    running = busy_workers(harness, *[b"a"] * 5)
    jobs = submit_each(harness, *[b"a"] * 3)
    few_per_turn(harness, 1)
    limit(harness, fair=True)
    harness.engine.remove_worker(running[0][0])
    assert uncounted(harness)
    check_engine(harness.engine)
    finish_distributing(harness)
    check_engine(harness.engine)
    assert taken(harness, harness.worker()) == [running[0][1], *jobs]


def test_the_key_queues_of_running_jobs_are_freed_in_slices(harness: Harness) -> None:
    limit(harness, key_concurrency=1)
    busy_workers(harness, *[b"%d" % number for number in range(10)])
    few_per_turn(harness)
    limit(harness)
    while harness.function().limiter is not None:
        harness.pass_seconds(0)
        check_engine(harness.engine)
    assert harness.engine.memory.limiter_bytes == 0
    turns = 0
    while len(harness.engine.sliced_work):
        harness.pass_seconds(0)
        turns += 1
    assert turns >= 2


def test_key_queues_need_no_garbage_collection(harness: Harness) -> None:
    """It runs rarely, and would stop the server for as long as all the work on them took."""
    limit(harness, fair=True)
    job = submit_each(harness, b"a")[0]
    limiter = harness.function().limiter
    assert limiter is not None
    assert limiter.key_queues is not None
    key_queue = limiter.key_queues[b"a"]
    harness.engine.cancel(job)
    assert not [other for other in gc.get_referrers(key_queue) if isinstance(other, KeyQueue | KeyQueueTurn)]
