"""Late reports: a worker reports on a start of a job that was taken from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from switchgear.engine.lost_starts import LOST_START_BYTES
from switchgear.model import DONE, FAILED, READY, RUNNING, Cause, Job, Worker
from switchgear.states import LateReport
from tests.engine.house import House, state_of
from tests.engine.restarts import restarted

MakeHouse = Callable[..., House]
ME = b"w1"


def known_worker(house: House, identity: bytes = ME, timeout_seconds: float = 0) -> Worker:
    worker = house.worker(timeout_seconds=timeout_seconds)
    worker.identity = identity
    return worker


def lost(house: House, identity: bytes = ME, **submission: Any) -> Job:
    """A job that a worker had, and has lost with its connection."""
    worker = known_worker(house, identity)
    job = house.submit(**submission)
    assert house.engine.take(worker) is job
    house.engine.remove_worker(worker)
    return job


# --- the number of a start ---


def test_starts_are_numbered_from_one_and_never_go_back(make_house: MakeHouse) -> None:
    house = make_house(attempts=0)
    worker, job = house.worker(), house.submit()
    numbers = []
    for end in ("released", "lost", "failed", "released"):
        assert house.engine.take(worker) is job
        numbers.append(job.start_number)
        if end == "released":
            house.engine.release(worker, job.id)
        elif end == "lost":
            house.engine.remove_worker(worker)
            worker = house.worker()
        else:
            house.engine.fail(worker, job.id)
            house.engine.retry(job)
    assert numbers == [1, 2, 3, 4]
    assert job.attempts < 4


def test_the_first_start_of_a_job_that_had_to_wait_is_number_one(house: House) -> None:
    first = house.submit()
    second = house.submit(after=(first,))
    worker = house.worker()
    for job in (first, second):
        assert house.engine.take(worker) is job
        assert job.start_number == 1
        house.engine.complete(worker, job.id, b"")


# --- a report names the start that it is about ---


@pytest.mark.parametrize("report", ["complete", "fail", "release", "progress", "renew_run"])
def test_a_report_on_an_earlier_start_does_not_count_for_the_present_one(house: House, report: str) -> None:
    worker, job = known_worker(house, timeout_seconds=5), house.submit()
    assert house.engine.take(worker) is job
    house.pass_seconds(5)
    assert house.engine.take(worker) is job
    engine = house.engine
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


def test_a_late_result_counts_if_it_is_the_first(house: House) -> None:
    job = lost(house)
    assert house.engine.report_late(job.id, ME, 1, b"late") is LateReport.ACCEPTED
    assert (state_of(job), job.result) == (DONE, b"late")
    assert len(house.engine.lost_starts) == 0


def test_a_worker_that_has_the_job_meanwhile_is_told_to_stop(house: House) -> None:
    job = lost(house)
    other = known_worker(house, b"w2")
    assert house.engine.take(other) is job
    assert house.engine.report_late(job.id, ME, 1, b"late") is LateReport.ACCEPTED
    assert house.engine.complete(other, job.id, b"too late", 2) is job  # which only frees the worker
    assert job.result == b"late"


def test_a_late_result_is_dropped_when_the_job_has_ended(house: House) -> None:
    job = lost(house)
    other = house.worker()
    assert house.engine.take(other) is job
    house.engine.complete(other, job.id, b"first")
    assert house.engine.report_late(job.id, ME, 1, b"late") is LateReport.DROPPED
    assert job.result == b"first"


def test_anything_but_a_result_is_dropped_and_a_result_may_follow(house: House) -> None:
    job = lost(house)
    assert house.engine.report_late(job.id, ME, 1, None) is LateReport.DROPPED
    assert state_of(job) is READY
    assert house.engine.has_lost(job.id, ME, 1)
    assert house.engine.report_late(job.id, ME, 1, b"late") is LateReport.ACCEPTED


@pytest.mark.parametrize(("identity", "start"), [(b"w2", 1), (ME, 2), (b"w2", 0)])
def test_a_worker_that_did_not_have_that_start_is_not_believed(house: House, identity: bytes, start: int) -> None:
    job = lost(house)
    assert house.engine.report_late(job.id, identity, start, b"late") is LateReport.UNKNOWN
    assert state_of(job) is READY


def test_a_worker_without_an_identity_cannot_report_late(house: House) -> None:
    worker, job = house.running()
    house.engine.remove_worker(worker)
    assert len(house.engine.lost_starts) == 0
    assert house.engine.report_late(job.id, None, 1, b"late") is LateReport.UNKNOWN


def test_a_job_that_took_too_long_is_remembered_too(house: House) -> None:
    worker, job = known_worker(house, timeout_seconds=5), house.submit()
    house.engine.take(worker)
    house.pass_seconds(5)
    assert house.engine.has_lost(job.id, ME, 1)
    assert house.engine.report_late(job.id, ME, 0, b"late") is LateReport.ACCEPTED


# --- after the server was killed ---


def test_after_the_server_was_killed_any_worker_is_believed_until_another_has_the_job(house: House) -> None:
    worker, job = known_worker(house), house.submit()
    house.engine.take(worker)
    after, _ = restarted(house, job)
    again = after.engine.jobs[job.id]
    assert again.log[-1][0] is Cause.SERVER_LOST
    assert after.engine.report_late(job.id, b"anybody", 2, b"") is LateReport.UNKNOWN  # there was no second start
    assert after.engine.report_late(job.id, b"anybody", 1, b"late") is LateReport.ACCEPTED
    assert state_of(again) is DONE


def test_and_not_when_another_has_it(house: House) -> None:
    worker, job = known_worker(house), house.submit()
    house.engine.take(worker)
    after, _ = restarted(house, job)
    other = known_worker(after, b"w2")
    again = after.engine.take(other)
    assert again is not None
    assert again.start_number == 2
    assert after.engine.report_late(job.id, ME, 1, b"late") is LateReport.UNKNOWN
    assert after.engine.complete(other, job.id, b"late", 1) is None
    assert state_of(again) is RUNNING


# --- bounds ---


def test_the_oldest_of_too_many_is_forgotten_and_all_are_counted(house: House) -> None:
    house.engine.lost_starts.most = 2
    house.function()
    before = house.engine.memory.registration_bytes
    worker = known_worker(house)
    jobs = [house.submit() for _ in range(3)]
    for _ in jobs:
        house.engine.take(worker)
    house.engine.remove_worker(worker)
    assert len(house.engine.lost_starts) == 2
    assert house.engine.memory.registration_bytes == before + 2 * LOST_START_BYTES
    assert sum(house.engine.has_lost(job.id, ME, 0) for job in jobs) == 2


def test_a_job_that_failed_for_good_stays_so(make_house: MakeHouse) -> None:
    house = make_house(attempts=1)
    job = lost(house)
    assert state_of(job) is FAILED
    assert house.engine.report_late(job.id, ME, 1, b"late") is LateReport.DROPPED
    assert state_of(job) is FAILED
