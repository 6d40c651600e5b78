"""Jobs by id, in pages: what a dictionary would do, in the order of the ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.model import NORMAL, Delivery, Function, Job, JobTable
from switchgear.model.table import PAGE_PLACES

FUNCTION = Function(b"f")

# Crowded around the edges of pages, and far away.
IDS = st.one_of(
    st.integers(1, 5),
    st.integers(PAGE_PLACES - 2, PAGE_PLACES + 2),
    st.integers(3 * PAGE_PLACES - 2, 3 * PAGE_PLACES + 2),
    st.integers(10**15, 10**15 + 2),
)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove", "get"]), IDS), max_size=60)


def job(job_id: int) -> Job:
    return Job(job_id, FUNCTION, b"", b"", NORMAL, Delivery.HANDLE, 0)


@given(steps=STEPS, before_id=IDS)
def test_it_is_a_dictionary_in_order(steps: list[tuple[str, int]], before_id: int) -> None:
    table = JobTable()
    model: dict[int, Job] = {}
    for word, job_id in steps:
        if word == "add":
            model[job_id] = job(job_id)
            table.add(model[job_id])
        elif word == "remove" and job_id in model:
            del model[job_id]
            table.remove(job_id)
        assert table.get(job_id) is model.get(job_id)
        assert (job_id in table) == (job_id in model)
        assert len(table) == len(model)
    assert list(table) == sorted(model)
    assert list(table.values()) == [model[job_id] for job_id in sorted(model)]
    assert list(table.newest_first()) == [model[job_id] for job_id in sorted(model, reverse=True)]
    assert [found.id for found in table.newest_first(before_id)] == [
        job_id for job_id in sorted(model, reverse=True) if job_id < before_id
    ]


@pytest.mark.parametrize("job_id", [-(10**30), 2**62, 2**63, 10**30])
def test_any_number_may_be_asked_for(job_id: int) -> None:
    """Peers send what they like."""
    table = JobTable()
    table.add(job(5))
    assert table.get(job_id) is None
    assert job_id not in table


@pytest.mark.parametrize("job_id", [0, -1, 7, PAGE_PLACES, 10**18])
def test_a_job_that_is_not_there_is_missed(job_id: int) -> None:
    table = JobTable()
    table.add(job(5))
    assert table.get(job_id) is None
    with pytest.raises(KeyError):
        table[job_id]
    with pytest.raises(KeyError):
        table.remove(job_id)


def test_pages_that_are_empty_are_let_go() -> None:
    table = JobTable()
    for job_id in range(1, 20 * PAGE_PLACES):
        table.add(job(job_id))
        table.remove(job_id)
    assert len(table._pages) == 1


def test_looking_up_jobs_does_not_disturb_who_goes_through_them() -> None:
    table = JobTable()
    for number in (1, PAGE_PLACES, 2 * PAGE_PLACES):
        table.add(job(number))
    table.add(job(5 * PAGE_PLACES))
    table.remove(5 * PAGE_PLACES)
    assert [table.get(found.id) for found in table.values()] == list(table.values())
