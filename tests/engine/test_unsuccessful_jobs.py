"""Unsuccessful jobs are known by id and by name, after a restart too, and old ones are forgotten."""

from __future__ import annotations

from switchgear.engine.unsuccessful_jobs import UnsuccessfulJobs
from switchgear.memory import MemoryAccount
from switchgear.model import CANCELLED, FAILED


def test_the_newest_of_a_name_counts() -> None:
    jobs = UnsuccessfulJobs(MemoryAccount())
    jobs.add(3, FAILED, b"index", {})
    jobs.add(9, CANCELLED, b"index", {})
    jobs.add(5, FAILED, b"other", {})
    assert (jobs.named(b"index"), jobs.named(b"other"), jobs.named(b"nobody")) == (9, 5, 0)
    assert jobs.states == {3: FAILED, 9: CANCELLED, 5: FAILED}


def test_one_that_is_tried_again_is_not_unsuccessful() -> None:
    jobs = UnsuccessfulJobs(MemoryAccount())
    jobs.add(3, FAILED, b"index", {})
    jobs.remove(3)
    jobs.remove(4)
    assert (jobs.named(b"index"), len(jobs), jobs.is_complete) == (0, 0, True)


def test_long_names_are_told_apart() -> None:
    """And none of them can be made up by a short one: a digest is longer than every name that is kept as it is."""
    jobs = UnsuccessfulJobs(MemoryAccount())
    jobs.add(1, FAILED, b"x" * 1_000_000, {})
    jobs.add(2, FAILED, b"x" * 999_999 + b"y", {})
    assert jobs.named(b"x" * 1_000_000) == 1
    assert jobs.named(b"x" * 999_999 + b"y") == 2
    assert jobs.named(b"x" * 999_999) == 0


def test_the_oldest_are_forgotten_unless_a_job_waits_for_them() -> None:
    jobs = UnsuccessfulJobs(MemoryAccount())
    jobs.most_jobs = 10
    for number in range(1, 31):
        jobs.add(number, FAILED, b"t%d" % number, {2: "waited for"})
    assert sorted(jobs.states) == [2, *range(22, 31)]
    assert (jobs.named(b"t2"), jobs.named(b"t3"), jobs.named(b"t30")) == (2, 0, 30)
    assert not jobs.is_complete  # who asks for a name that is not here has to ask the store as well


def test_what_the_store_knows_is_recalled() -> None:
    jobs = UnsuccessfulJobs(MemoryAccount())
    jobs.most_jobs = 1
    jobs.add(1, FAILED, b"old", {})
    jobs.add(2, FAILED, b"new", {})
    assert jobs.named(b"old") == 0
    jobs.recall(1, FAILED, b"old")
    assert jobs.named(b"old") == 1


def test_a_restart_brings_them_back() -> None:
    jobs = UnsuccessfulJobs(MemoryAccount())
    jobs.restore({1: FAILED, 2: CANCELLED}, {2: b"index"}, is_complete=False)
    assert (jobs.states, jobs.named(b"index"), jobs.is_complete) == ({1: FAILED, 2: CANCELLED}, 2, False)


def test_jobs_that_fail_and_are_retried_for_ever_take_no_memory() -> None:
    jobs = UnsuccessfulJobs(MemoryAccount())
    for _ in range(10_000):
        jobs.add(1, FAILED, b"index", {})
        jobs.remove(1)
    assert len(jobs._oldest_first) < 2_000
