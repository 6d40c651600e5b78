"""Segments of a long queue: jobs enter at the end, leave in order or from anywhere, and only one segment is touched."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.model import NORMAL, Delivery, Function, Job, PackedSegment, SegmentedQueue
from switchgear.model.job import RANKS_BETWEEN, place_of
from switchgear.model.segments import ObjectSegment, remove_from
from switchgear.policy import Policy
from switchgear.testing import check_engine
from tests.engine.harness import Harness, ids

FUNCTION = Function(b"mail")


def job(job_id: int, rank: int = 0) -> Job:
    made = Job(job_id, FUNCTION, b"", b"", NORMAL, Delivery.HANDLE, 0)
    if rank:
        made.rank = rank
    return made


def segmented(jobs: list[Job], segment_jobs: int) -> SegmentedQueue:
    queue = SegmentedQueue()
    for each in jobs:
        queue.append(each, segment_jobs)
    return queue


@given(st.integers(1, 40), st.integers(1, 6), st.randoms(use_true_random=False))
def test_every_job_can_be_removed_whatever_the_order(count: int, segment_jobs: int, random: object) -> None:
    jobs = [job(number) for number in range(1, count + 1)]
    queue = segmented(jobs, segment_jobs)
    left = list(jobs)
    order = list(jobs)
    random.shuffle(order)  # type: ignore[attr-defined]
    for each in order:
        assert queue.remove(each)
        left.remove(each)
        assert list(queue.jobs_in_order()) == left
        assert queue.entries + len(queue.tail) == len(left)
        assert all(segment.entries for segment in queue.segments)
        assert not queue.remove(each)


def test_a_job_that_went_to_the_end_is_found_by_its_rank() -> None:
    jobs = [job(3), job(5), job(1, rank=5 * RANKS_BETWEEN + 1), job(2, rank=5 * RANKS_BETWEEN + 2), job(7)]
    queue = segmented(jobs, 2)
    assert queue.remove(jobs[3])
    assert queue.remove(jobs[2])
    assert ids(*queue.jobs_in_order()) == [3, 5, 7]


def test_a_job_that_is_not_there_is_not_removed() -> None:
    jobs = deque(job(number) for number in (2, 4, 6))
    assert not remove_from(jobs, job(5))
    assert not remove_from(jobs, job(4))  # another object
    assert not remove_from(deque(), job(4))
    assert len(jobs) == 3


def test_an_object_in_a_packed_segment_is_removed_by_its_place() -> None:
    segment = PackedSegment(FUNCTION, NORMAL)
    ahead, behind = job(9, rank=2 * RANKS_BETWEEN + 1), job(8, rank=2 * RANKS_BETWEEN + 2)
    segment.objects = {1: ahead, 2: behind}
    segment.fill([2, 2, 2, 3], [0, 0, 0, 0], [1, 1, 1, 1], [b"", b"", b"", b""])
    assert ids(*segment.jobs_in_order()) == [2, 9, 8, 3]
    assert segment.remove(behind)
    assert not segment.remove(behind)
    assert ids(*segment.jobs_in_order()) == [2, 9, 3]
    assert segment.entries == 3


def test_an_object_segment_begins_at_the_place_of_its_first_job() -> None:
    first = job(4)
    segment = ObjectSegment(deque([first, job(5)]))
    assert segment.remove(first)
    assert segment.first_place == place_of(first)  # nothing before it can be there
    assert segment.entries == 1


# --- in the engine: queues without a store, and queues of keys, are divided too ---


@pytest.fixture
def small() -> Harness:
    """An engine whose queues are divided early."""
    harness = Harness(keeps=False)
    harness.engine.packed_queues.segment_jobs = 4
    harness.engine.packed_queues.head_jobs = 2
    harness.engine.packed_queues.pack_from = 8
    return harness


@pytest.mark.parametrize("policy", [Policy(), Policy(concurrency=100), Policy(fair=True)])
def test_a_long_queue_is_divided_and_nobody_can_tell(small: Harness, policy: Policy) -> None:
    small.engine.set_policy(small.function(), policy)
    jobs = [small.submit(key=b"tenant") for _ in range(50)]
    queue = next(iter(small.function().ready_queues()))
    assert queue.is_segmented
    for each in jobs[1::2]:
        small.engine.cancel(each)
        check_engine(small.engine)
    assert small.drain_with(small.worker()) == ids(*jobs[::2])
    assert not queue.is_segmented


def test_jobs_that_go_ahead_of_a_long_queue_are_divided_too(small: Harness) -> None:
    small.function().released_first = True
    blocker = small.submit(b"other")
    behind = [small.submit() for _ in range(20)]
    waiting = [small.submit(after=(blocker,)) for _ in range(50)]
    small.drain_with(small.worker(b"other"))
    check_engine(small.engine)
    assert len(small.function().queues[NORMAL]) < 8
    for each in waiting[::3]:
        small.engine.cancel(each)
    check_engine(small.engine)
    left = [each for number, each in enumerate(waiting) if number % 3]
    assert small.drain_with(small.worker()) == ids(*reversed(left), *behind)


def test_a_job_whose_place_does_not_tell_where_it_is_can_be_cancelled(small: Harness) -> None:
    """More jobs went to the end since the last submission than there are ranks between two."""
    worker, first = small.running()
    small.engine.release(worker, first.id)
    first.rank += 2 * RANKS_BETWEEN
    others = [small.submit() for _ in range(20)]
    small.engine.cancel(first)
    small.engine.cancel(others[3])
    assert small.drain_with(worker) == ids(*others[:3], *others[4:])
