"""Late reports: a worker reports on a start of a job that was taken from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from switchgear.engine.lost_starts import LOST_START_BYTES
from switchgear.model import DONE, FAILED, READY, RUNNING, Cause, Job, Worker
from switchgear.states import LateReport
from tests.engine.harness import Harness, state_of
from tests.engine.restarts import restarted

MakeHarness = Callable[..., Harness]
ME = b"w1"


def known_worker(harness: Harness, identity: bytes = ME, timeout_seconds: float = 0) -> Worker:
    worker = harness.worker(timeout_seconds=timeout_seconds)
    worker.identity = identity
    return worker


def lost(harness: Harness, identity: bytes = ME, **submission: Any) -> Job:
    """A job that a worker had, and has lost with its connection."""
    worker = known_worker(harness, identity)
    job = harness.submit(**submission)
    assert harness.engine.take(worker) is job
    harness.engine.remove_worker(worker)
    return job


# --- the number of a start ---


def test_starts_are_numbered_from_one_and_never_go_back(make_harness: MakeHarness) -> None:
    harness = make_harness(attempts=0)
    worker, job = harness.worker(), harness.submit()
    numbers = []
    for end in ("released", "lost", "failed", "released"):
        assert harness.engine.take(worker) is job
        numbers.append(job.start_number)
        if end == "released":
            harness.engine.release(worker, job.id)
        elif end == "lost":
            harness.engine.remove_worker(worker)
            worker = harness.worker()
        else:
            harness.engine.fail(worker, job.id)
            harness.engine.retry(job)
    assert numbers == [1, 2, 3, 4]
    assert job.attempts < 4


def test_the_first_start_of_a_job_that_had_to_wait_is_number_one(harness: Harness) -> None:
    first = harness.submit()
    second = harness.submit(after=(first,))
    worker = harness.worker()
    for job in (first, second):
        assert harness.engine.take(worker) is job
        assert job.start_number == 1
        harness.engine.complete(worker, job.id, b"")


# --- a report names the start that it is about ---


@pytest.mark.parametrize("report", ["complete", "fail", "release", "progress", "renew_run"])
def test_a_report_on_an_earlier_start_does_not_count_for_the_present_one(harness: Harness, report: str) -> None:
    worker, job = known_worker(harness, timeout_seconds=5), harness.submit()
    assert harness.engine.take(worker) is job
    harness.pass_seconds(5)
    assert harness.engine.take(worker) is job
    engine = harness.engine
    reports: dict[str, Callable[[int], Job | None]] = {
        "complete": lambda start: engine.complete(worker, job.id, b"", start),
        "fail": lambda start: engine.fail(worker, job.id, 1, start_number=start),
        "release": lambda start: engine.release(worker, job.id, start),
        "progress": lambda start: engine.progress(worker, job.id, 1, 2, start_number=start),
        "renew_run": lambda start: engine.renew_run(worker, job.id, 0, start),
    }
    assert reports[report](1) is None
    assert (state_of(job), job.worker, job.numerator) == (RUNNING, worker, 0)
    assert reports[report](2) is job


# --- the first result counts ---


def test_a_late_result_counts_if_it_is_the_first(harness: Harness) -> None:
    job = lost(harness)
    assert harness.engine.report_late(job.id, ME, 1, b"late") is LateReport.ACCEPTED
    assert (state_of(job), job.result) == (DONE, b"late")
    assert len(harness.engine.lost_starts) == 0


def test_a_worker_that_has_the_job_meanwhile_is_told_to_stop(harness: Harness) -> None:
    job = lost(harness)
    other = known_worker(harness, b"w2")
    assert harness.engine.take(other) is job
    assert harness.engine.report_late(job.id, ME, 1, b"late") is LateReport.ACCEPTED
    assert harness.engine.complete(other, job.id, b"too late", 2) is job  # which only frees the worker
    assert job.result == b"late"


def test_a_late_result_is_dropped_when_the_job_has_ended(harness: Harness) -> None:
    job = lost(harness)
    other = harness.worker()
    assert harness.engine.take(other) is job
    harness.engine.complete(other, job.id, b"first")
    assert harness.engine.report_late(job.id, ME, 1, b"late") is LateReport.DROPPED
    assert job.result == b"first"


def test_anything_but_a_result_is_dropped_and_a_result_may_follow(harness: Harness) -> None:
    job = lost(harness)
    assert harness.engine.report_late(job.id, ME, 1, None) is LateReport.DROPPED
    assert state_of(job) is READY
    assert harness.engine.has_lost(job.id, ME, 1)
    assert harness.engine.report_late(job.id, ME, 1, b"late") is LateReport.ACCEPTED


@pytest.mark.parametrize(("identity", "start"), [(b"w2", 1), (ME, 2), (b"w2", 0)])
def test_a_worker_that_did_not_have_that_start_is_not_believed(harness: Harness, identity: bytes, start: int) -> None:
    job = lost(harness)
    assert harness.engine.report_late(job.id, identity, start, b"late") is LateReport.UNKNOWN
    assert state_of(job) is READY


def test_a_worker_without_an_identity_cannot_report_late(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.remove_worker(worker)
    assert len(harness.engine.lost_starts) == 0
    assert harness.engine.report_late(job.id, None, 1, b"late") is LateReport.UNKNOWN


def test_a_job_that_took_too_long_is_remembered_too(harness: Harness) -> None:
    worker, job = known_worker(harness, timeout_seconds=5), harness.submit()
    harness.engine.take(worker)
    harness.pass_seconds(5)
    assert harness.engine.has_lost(job.id, ME, 1)
    assert harness.engine.report_late(job.id, ME, 0, b"late") is LateReport.ACCEPTED


# --- after the server was killed ---


def test_after_the_server_was_killed_any_worker_is_believed_until_another_has_the_job(harness: Harness) -> None:
    worker, job = known_worker(harness), harness.submit()
    harness.engine.take(worker)
    after, _ = restarted(harness, job)
    again = after.engine.jobs[job.id]
    assert again.log[-1][0] is Cause.SERVER_LOST
    assert after.engine.report_late(job.id, b"anybody", 2, b"") is LateReport.UNKNOWN  # there was no second start
    assert after.engine.report_late(job.id, b"anybody", 1, b"late") is LateReport.ACCEPTED
    assert state_of(again) is DONE


def test_and_not_when_another_has_it(harness: Harness) -> None:
    worker, job = known_worker(harness), harness.submit()
    harness.engine.take(worker)
    after, _ = restarted(harness, job)
    other = known_worker(after, b"w2")
    again = after.engine.take(other)
    assert again is not None
    assert again.start_number == 2
    assert after.engine.report_late(job.id, ME, 1, b"late") is LateReport.UNKNOWN
    assert after.engine.complete(other, job.id, b"late", 1) is None
    assert state_of(again) is RUNNING


# --- bounds ---


def test_the_oldest_of_too_many_is_forgotten_and_all_are_counted(harness: Harness) -> None:
    harness.engine.lost_starts.most = 2
    harness.function()
    before = harness.engine.memory.registration_bytes
    worker = known_worker(harness)
    jobs = [harness.submit() for _ in range(3)]
    for _ in jobs:
        harness.engine.take(worker)
    harness.engine.remove_worker(worker)
    assert len(harness.engine.lost_starts) == 2
    assert harness.engine.memory.registration_bytes == before + 2 * LOST_START_BYTES
    assert sum(harness.engine.has_lost(job.id, ME, 0) for job in jobs) == 2


def test_a_job_that_failed_for_good_stays_so(make_harness: MakeHarness) -> None:
    harness = make_harness(attempts=1)
    job = lost(harness)
    assert state_of(job) is FAILED
    assert harness.engine.report_late(job.id, ME, 1, b"late") is LateReport.DROPPED
    assert state_of(job) is FAILED
