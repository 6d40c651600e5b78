"""Ids that are given away before there is a job: a protocol may name a job first and submit it later."""

from __future__ import annotations

import pytest

from switchgear.errors import Refused
from switchgear.model import SCHEDULED, WAITING, Job
from switchgear.refusals import REFUSED_CONFLICT
from tests.engine.house import House, ids, state_of


def test_a_job_may_be_submitted_with_an_id_that_was_reserved_for_it(house: House) -> None:
    reserved = house.engine.reserve_id()
    other = house.submit()
    job = house.submit(job_id=reserved)
    assert (reserved, other.id, job.id) == (1, 2, 1)
    assert list(house.engine.jobs.values()) == sorted([other, job], key=lambda listed: listed.id)
    assert house.submit().id == 3


def test_it_stands_where_its_submission_puts_it(house: House) -> None:
    reserved = [house.engine.reserve_id() for _ in range(2)]
    first, second = house.submit(), house.submit(job_id=reserved[1])
    third, fourth = house.submit(job_id=reserved[0]), house.submit()
    assert house.drain_with(house.worker()) == ids(first, second, third, fourth)


def test_it_may_have_to_wait_as_any_other(house: House) -> None:
    reserved = [house.engine.reserve_id() for _ in range(2)]
    source = house.submit()
    waiting = house.submit(job_id=reserved[0], after=(source,))
    delayed = house.submit(job_id=reserved[1], run_at_us=house.at(5))
    assert (state_of(waiting), state_of(delayed)) == (WAITING, SCHEDULED)
    worker = house.worker()
    assert house.drain_with(worker) == ids(source, waiting)
    house.pass_seconds(5)
    assert house.drain_with(worker) == ids(delayed)


@pytest.mark.parametrize("wrong", [-1, "unfinished", "next"])
def test_an_id_that_was_not_reserved_is_refused_and_nothing_is_left_behind(house: House, wrong: int | str) -> None:
    job = house.submit()
    next_id = house.engine.next_job_id
    job_id = {"unfinished": job.id, "next": next_id}.get(str(wrong), -1)
    with pytest.raises(Refused) as refused:
        house.submit(job_id=job_id, name=b"Anna", run_at_us=house.at(5))
    assert refused.value.reason == REFUSED_CONFLICT
    assert house.engine.next_job_id == next_id
    assert not house.engine.names
    assert list(house.engine.jobs.values()) == [job]


def test_a_name_that_is_taken_is_refused_for_a_reserved_id_too(house: House) -> None:
    house.submit(name=b"Anna")
    reserved = house.engine.reserve_id()
    with pytest.raises(Refused):
        house.submit(job_id=reserved, name=b"Anna")
    assert isinstance(house.submit(job_id=reserved), Job)
