"""How long jobs wait and run is counted in the histograms of their functions."""

from __future__ import annotations

import pytest

from switchgear.model import SECOND_US, Cause
from switchgear.model.duration_histogram import BOUNDS_US, DurationHistogram
from tests.engine.house import House


@pytest.mark.parametrize("bucket", range(len(BOUNDS_US)))
def test_a_bound_belongs_to_its_bucket(bucket: int) -> None:
    histogram = DurationHistogram()
    histogram.note(BOUNDS_US[bucket])
    histogram.note(BOUNDS_US[bucket] + 1)
    counts = [0] * (len(BOUNDS_US) + 1)
    counts[bucket] = counts[bucket + 1] = 1
    assert histogram.counts() == counts
    assert histogram.sum_us == 2 * BOUNDS_US[bucket] + 1


def test_the_bounds_are_four_times_one_another() -> None:
    assert tuple(1_000 * 4**power for power in range(10)) == BOUNDS_US


def test_a_clock_that_was_set_back_counts_as_no_time() -> None:
    histogram = DurationHistogram()
    histogram.note(-5)
    assert histogram.counts()[0] == 1
    assert histogram.sum_us == 0


def test_histograms_are_added() -> None:
    one, other = DurationHistogram(), DurationHistogram()
    for bound_us in (0, *BOUNDS_US, 10**9):
        one.note(bound_us)
        other.note(bound_us)
    one.add(other)
    assert one.counts() == [2 * count for count in other.counts()]
    assert one.sum_us == 2 * other.sum_us


def test_wait_and_run_of_a_plain_job(house: House) -> None:
    worker = house.worker()
    job = house.submit()
    house.pass_seconds(3)
    assert house.engine.take(worker) is job
    house.pass_seconds(10)
    house.engine.complete(worker, job.id, b"")
    function = house.function()
    assert function.wait_times.sum_us == 3 * SECOND_US
    assert function.run_times.sum_us == 10 * SECOND_US
    assert sum(function.wait_times.counts()) == sum(function.run_times.counts()) == 1


def test_every_attempt_counts_and_waiting_begins_anew(house: House) -> None:
    worker = house.worker()
    job = house.submit()
    house.pass_seconds(1)
    house.engine.take(worker)
    house.pass_seconds(2)
    house.engine.release(worker, job.id)
    house.pass_seconds(4)
    house.engine.take(worker)
    house.pass_seconds(8)
    house.engine.fail(worker, job.id)
    function = house.function()
    assert function.wait_times.sum_us == 5 * SECOND_US
    assert function.run_times.sum_us == 10 * SECOND_US
    assert sum(function.wait_times.counts()) == sum(function.run_times.counts()) == 2


def test_a_scheduled_job_does_not_wait_before_its_time(house: House) -> None:
    worker = house.worker()
    house.submit(run_at_us=house.engine.now_us + 60 * SECOND_US)
    house.pass_seconds(61)
    assert house.engine.take(worker) is not None
    assert house.function().wait_times.sum_us <= SECOND_US


def test_the_run_of_a_lost_worker_counts(house: House) -> None:
    worker = house.worker()
    house.submit()
    house.engine.take(worker)
    house.pass_seconds(7)
    house.engine.remove_worker(worker, Cause.WORKER_LOST)
    assert house.function().run_times.sum_us == 7 * SECOND_US
