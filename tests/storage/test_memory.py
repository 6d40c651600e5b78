"""The store in memory: a job log of bounded size."""

from __future__ import annotations

import pytest

from switchgear.model import FAILED
from switchgear.storage.base import JobQuery
from switchgear.storage.memory import MemoryStore
from tests.storage.support import NOW_US, commit, find, finished_job, function, get, ids, new_job, read_payloads, retry

ALL = JobQuery(limit=100_000)


def test_it_forgets_everything_but_the_last_few() -> None:
    store = MemoryStore(keep_count=3)
    for number in range(1, 11):
        commit(store, [finished_job(number)])
    assert ids(find(store, ALL)) == [10, 9, 8]
    assert get(store, 7) is None


def test_one_batch_may_be_longer_than_what_is_kept() -> None:
    store = MemoryStore(keep_count=3)
    commit(store, [finished_job(number, state=FAILED) for number in range(1, 11)])
    assert ids(find(store, ALL)) == [10, 9, 8]


def test_large_jobs_are_forgotten_sooner() -> None:
    store = MemoryStore(keep_count=100, keep_bytes=1000)
    commit(store, [finished_job(number, payload=b"x" * 200, result=b"y" * 100) for number in range(1, 11)])
    assert ids(find(store, ALL)) == [10, 9, 8]
    commit(store, [finished_job(11, payload=b"x" * 5000)])
    assert ids(find(store, ALL)) == []
    commit(store, [finished_job(12)])
    assert ids(find(store, ALL)) == [12]


def test_what_was_said_of_a_failure_counts_too() -> None:
    store = MemoryStore(keep_count=100, keep_bytes=1000)
    said, warned = b"x" * 200, b"y" * 100
    commit(store, [finished_job(number, state=FAILED, error=said, warnings=warned) for number in range(1, 11)])
    assert ids(find(store, ALL)) == [10, 9, 8]


def test_a_job_that_is_retried_again_and_again_does_not_wash_away_the_others() -> None:
    store = MemoryStore(keep_count=100, keep_bytes=1000)
    stubborn = finished_job(2, state=FAILED, payload=b"x" * 200, result=b"y" * 300)
    commit(store, [finished_job(1, state=FAILED), stubborn])
    for _ in range(10):
        retry(stubborn).result = b""
        stubborn.state = FAILED
        stubborn.result = b"y" * 300
        commit(store, [stubborn])
    assert ids(find(store, ALL)) == [2, 1]


def test_a_flood_of_done_jobs_does_not_wash_away_the_failures() -> None:
    store = MemoryStore(keep_count=5_000)
    of = function()
    commit(store, [finished_job(1, of, state=FAILED)])
    commit(store, [finished_job(number, of) for number in range(2, 20_000)])
    assert ids(find(store, JobQuery(states=frozenset({FAILED})))) == [1]


def test_of_jobs_submitted_with_options_more_are_remembered() -> None:
    store = MemoryStore()
    of = function()
    plain = [finished_job(number, of) for number in range(1, 3_001)]
    special = [finished_job(number, of) for number in range(3_001, 23_001)]
    named = [finished_job(number, of, name=b"task-%d" % number) for number in range(23_001, 26_001)]
    for job in special + named:
        job.has_details = True
    commit(store, plain + special + named)
    assert get(store, 3_001) is special[0]
    assert len(find(store, ALL)) == 20_000 + 1_000
    assert get(store, 1) is None


@pytest.mark.parametrize("again", [1, 50])
def test_a_job_retried_over_and_over_takes_no_more_room(again: int) -> None:
    store = MemoryStore(keep_count=10, keep_bytes=10_000)
    job = finished_job(1, state=FAILED, payload=b"x" * 1000)
    for _ in range(again):
        commit(store, [job])
        commit(store, [retry(job)])
        job.state = FAILED
    commit(store, [job])
    assert ids(find(store, ALL)) == [1]
    assert get(store, 1) is job


def test_unfinished_jobs_are_the_engines() -> None:
    store = MemoryStore()
    job = finished_job(1, state=FAILED)
    commit(store, [job, new_job(2)])
    assert ids(find(store, ALL)) == [1]
    retry(job)
    assert get(store, 1) is None
    assert find(store, ALL) == []
    assert read_payloads(store, [1, 2]) == {}


def test_revisions_are_for_stores_that_last() -> None:
    job = finished_job(1)
    commit(MemoryStore(), [job])
    assert job.revision == 0


def test_a_job_that_is_to_be_forgotten_at_once_is_never_found() -> None:
    store = MemoryStore()
    commit(
        store, [finished_job(1, retention_us=0, has_details=True), finished_job(2, retention_us=1, has_details=True)]
    )
    assert ids(find(store, ALL)) == [2]
    assert get(store, 1) is None


def test_unless_it_holds_its_key() -> None:
    store = MemoryStore()
    commit(store, [finished_job(1, retention_us=0, unique=b"k", unique_until_us=NOW_US, has_details=True)])
    assert ids(find(store, ALL)) == [1]
