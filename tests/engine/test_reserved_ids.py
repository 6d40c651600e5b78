"""Ids that are given away before there is a job: a protocol may name a job first and submit it later."""

from __future__ import annotations

import pytest

from switchgear.errors import Refused
from switchgear.model import SCHEDULED, WAITING, Job
from switchgear.refusals import REFUSED_CONFLICT
from tests.engine.harness import Harness, ids, state_of


def test_a_job_may_be_submitted_with_an_id_that_was_reserved_for_it(harness: Harness) -> None:
    reserved = harness.engine.reserve_id()
    other = harness.submit()
    job = harness.submit(job_id=reserved)
    assert (reserved, other.id, job.id) == (1, 2, 1)
    assert list(harness.engine.jobs.values()) == sorted([other, job], key=lambda listed: listed.id)
    assert harness.submit().id == 3


def test_it_stands_where_its_submission_puts_it(harness: Harness) -> None:
    reserved = [harness.engine.reserve_id() for _ in range(2)]
    first, second = harness.submit(), harness.submit(job_id=reserved[1])
    third, fourth = harness.submit(job_id=reserved[0]), harness.submit()
    assert harness.drain_with(harness.worker()) == ids(first, second, third, fourth)


def test_it_may_have_to_wait_as_any_other(harness: Harness) -> None:
    reserved = [harness.engine.reserve_id() for _ in range(2)]
    source = harness.submit()
    waiting = harness.submit(job_id=reserved[0], after=(source,))
    delayed = harness.submit(job_id=reserved[1], run_at_us=harness.at(5))
    assert (state_of(waiting), state_of(delayed)) == (WAITING, SCHEDULED)
    worker = harness.worker()
    assert harness.drain_with(worker) == ids(source, waiting)
    harness.pass_seconds(5)
    assert harness.drain_with(worker) == ids(delayed)


@pytest.mark.parametrize("wrong", [-1, "unfinished", "next"])
def test_an_id_that_was_not_reserved_is_refused_and_nothing_is_left_behind(harness: Harness, wrong: int | str) -> None:
    job = harness.submit()
    next_id = harness.engine.next_job_id
    job_id = {"unfinished": job.id, "next": next_id}.get(str(wrong), -1)
    with pytest.raises(Refused) as refused:
        harness.submit(job_id=job_id, name=b"Anna", run_at_us=harness.at(5))
    assert refused.value.reason == REFUSED_CONFLICT
    assert harness.engine.next_job_id == next_id
    assert not harness.engine.names
    assert list(harness.engine.jobs.values()) == [job]


def test_a_name_that_is_taken_is_refused_for_a_reserved_id_too(harness: Harness) -> None:
    harness.submit(name=b"Anna")
    reserved = harness.engine.reserve_id()
    with pytest.raises(Refused):
        harness.submit(job_id=reserved, name=b"Anna")
    assert isinstance(harness.submit(job_id=reserved), Job)
