"""How long jobs wait and run is counted in the histograms of their functions."""

from __future__ import annotations

import pytest

from switchgear.model import SECOND_US, Cause
from switchgear.model.duration_histogram import BOUNDS_US, DurationHistogram
from tests.engine.harness import Harness


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


def test_wait_and_run_of_a_plain_job(harness: Harness) -> None:
    worker = harness.worker()
    job = harness.submit()
    harness.pass_seconds(3)
    assert harness.engine.take(worker) is job
    harness.pass_seconds(10)
    harness.engine.complete(worker, job.id, b"")
    function = harness.function()
    assert function.wait_times.sum_us == 3 * SECOND_US
    assert function.run_times.sum_us == 10 * SECOND_US
    assert sum(function.wait_times.counts()) == sum(function.run_times.counts()) == 1


def test_every_attempt_counts_and_waiting_begins_anew(harness: Harness) -> None:
    worker = harness.worker()
    job = harness.submit()
    harness.pass_seconds(1)
    harness.engine.take(worker)
    harness.pass_seconds(2)
    harness.engine.release(worker, job.id)
    harness.pass_seconds(4)
    harness.engine.take(worker)
    harness.pass_seconds(8)
    harness.engine.fail(worker, job.id)
    function = harness.function()
    assert function.wait_times.sum_us == 5 * SECOND_US
    assert function.run_times.sum_us == 10 * SECOND_US
    assert sum(function.wait_times.counts()) == sum(function.run_times.counts()) == 2


def test_a_scheduled_job_does_not_wait_before_its_time(harness: Harness) -> None:
    worker = harness.worker()
    harness.submit(run_at_us=harness.engine.now_us + 60 * SECOND_US)
    harness.pass_seconds(61)
    assert harness.engine.take(worker) is not None
    assert harness.function().wait_times.sum_us <= SECOND_US


def test_the_run_of_a_lost_worker_counts(harness: Harness) -> None:
    worker = harness.worker()
    harness.submit()
    harness.engine.take(worker)
    harness.pass_seconds(7)
    harness.engine.remove_worker(worker, Cause.WORKER_LOST)
    assert harness.function().run_times.sum_us == 7 * SECOND_US
