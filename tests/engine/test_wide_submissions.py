"""A job of very many predecessors is submitted in slices, and other commands come in between: it is taken or not."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from switchgear.engine.engine import SubmitOptions
from switchgear.engine.submissions import LINKED_PER_SLICE
from switchgear.errors import Refused
from switchgear.model import (
    CANCELLED,
    DONE,
    FAILED,
    NORMAL,
    READY,
    WAITING,
    Cause,
    Delivery,
    EdgePolicy,
    Job,
    UniquePolicy,
)
from switchgear.testing import RecordingPeer, check_engine
from tests.engine.house import House, state_of
from tests.engine.restarts import restarted

WIDTH = 3 * LINKED_PER_SLICE


def wide(
    house: House,
    before: list[Job],
    *,
    unique: bytes = b"",
    subscriber: RecordingPeer | None = None,
    function: bytes = b"sum",
    **options: Any,
) -> Generator[bool, None, Job]:
    wanted = SubmitOptions(predecessors=tuple(job.id for job in before), **options)
    delivery = Delivery.HANDLE if subscriber is None else Delivery.WAIT
    return house.engine.submit_wide(function, unique, b"", NORMAL, delivery, subscriber, wanted)


def finished(steps: Generator[bool, None, Job], house: House) -> Job:
    try:
        while True:
            assert next(steps) is False
            check_engine(house.engine)
    except StopIteration as stop:
        job: Job = stop.value
        check_engine(house.engine)
        return job


def many(house: House) -> list[Job]:
    return [house.submit() for _ in range(WIDTH)]


def edge_count(house: House) -> int:
    while len(house.engine.sliced_work):
        house.engine.advance(house.now_us)
    return sum(house.engine.dependencies.successor_count(job_id) for job_id in house.engine.dependencies.successors)


def test_it_waits_for_all_of_them_as_one_submitted_at_once_does() -> None:
    house = House()
    before = many(house)
    job = finished(wide(house, before), house)
    assert (job.state, job.blockers, job.predecessors) == (WAITING, WIDTH, tuple(each.id for each in before))
    assert house.function(b"sum").waiting == 1
    worker = house.worker(b"mail", b"sum")
    assert house.drain_with(worker)[-1] == job.id
    assert state_of(job) is DONE
    assert edge_count(house) == 0


def test_between_two_slices_nobody_knows_of_it() -> None:
    house = House()
    steps = wide(house, many(house), name=b"total", unique=b"key")
    next(steps)
    assert house.engine.job_count() == WIDTH
    assert house.engine.named(b"total") is None
    assert not house.engine.has_holder(house.function(b"sum"), b"key")
    assert not house.function(b"sum").waiting
    assert finished(steps, house) is house.engine.named(b"total")


def test_what_ends_meanwhile_is_not_waited_for() -> None:
    house = House()
    before = many(house)
    worker = house.worker(b"mail")
    steps = wide(house, before)
    next(steps)
    house.drain_with(worker)
    job = finished(steps, house)
    assert job.state is READY
    assert edge_count(house) == 0


@pytest.mark.parametrize(
    ("policy", "end"), [(EdgePolicy.FAIL, FAILED), (EdgePolicy.SKIP, CANCELLED), (EdgePolicy.WAIT, WAITING)]
)
def test_a_failure_meanwhile_means_what_its_edge_says(policy: EdgePolicy, end: object) -> None:
    house = House()
    before = many(house)
    steps = wide(house, before, edges=bytes([policy]) * WIDTH)
    next(steps)
    house.engine.cancel(before[0])
    job = finished(steps, house)
    house.pass_seconds(0)
    assert state_of(job) is end
    check_engine(house.engine)


def take_name(house: House) -> None:
    house.submit(name=b"taken")


def fill(house: House) -> None:
    house.engine.set_limits(house.function(b"sum"), 1, 1, 1)
    house.submit(b"sum")


def close(house: House) -> None:
    house.engine.drain()


@pytest.mark.parametrize("meanwhile", [take_name, fill, close])
def test_one_that_is_refused_at_the_end_leaves_nothing_behind(meanwhile: Callable[[House], None]) -> None:
    house = House()
    before = many(house)
    held_bytes = house.engine.memory.job_bytes
    steps = wide(house, before, name=b"taken")
    next(steps)
    meanwhile(house)
    count = house.engine.job_count()
    with pytest.raises(Refused):
        finished(steps, house)
    assert (house.engine.job_count(), edge_count(house)) == (count, 0)
    assert house.engine.memory.job_bytes >= held_bytes
    check_engine(house.engine)


@pytest.mark.parametrize("reason", ["memory", "refusal"])
def test_one_that_cannot_be_taken_is_refused_before_anything_is_done(reason: str) -> None:
    house = House()
    before = many(house)
    if reason == "memory":
        house.engine.memory.limit_bytes = house.engine.memory.job_bytes + 10_000
    else:
        close(house)
    with pytest.raises(Refused):
        next(wide(house, before))
    assert edge_count(house) == 0


def test_one_whose_submitter_gives_up_leaves_nothing_behind() -> None:
    house = House()
    steps = wide(house, many(house))
    next(steps)
    steps.close()
    assert (house.engine.job_count(), edge_count(house)) == (WIDTH, 0)
    check_engine(house.engine)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_one_whose_unique_key_is_taken_joins_that_job(when: str) -> None:
    house = House()
    before = many(house)
    steps = wide(house, before, unique=b"key")
    if when == "meanwhile":
        next(steps)
    holder = house.submit(b"sum", unique=b"key")
    assert finished(steps, house) is holder
    assert edge_count(house) == 0


def test_one_may_replace_the_job_that_has_its_key() -> None:
    house = House()
    before = many(house)
    steps = wide(house, before, unique=b"key", unique_policy=UniquePolicy.REPLACE)
    next(steps)
    replaced = house.submit(b"sum", unique=b"key")
    job = finished(steps, house)
    assert (state_of(replaced), replaced.log[-1][0]) == (CANCELLED, Cause.REPLACED)
    assert (job.state, job.blockers) == (WAITING, WIDTH)


def test_a_function_that_was_forgotten_meanwhile_is_made_again() -> None:
    house = House(functions=2)
    before = many(house)
    steps = wide(house, before)
    next(steps)
    house.pass_seconds(1)
    house.function(b"other")
    assert b"sum" not in house.engine.functions
    house.engine.drop_function(house.function(b"other"))
    job = finished(steps, house)
    assert (job.function, job.blockers) == (house.function(b"sum"), WIDTH)
    assert edge_count(house) == WIDTH


def test_one_that_a_client_waits_for_goes_with_it() -> None:
    house = House()
    client = RecordingPeer()
    job = finished(wide(house, many(house), subscriber=client), house)
    assert job.id in client.subscriptions
    house.engine.unsubscribe(client)
    assert state_of(job) is CANCELLED
    assert edge_count(house) == 0
    check_engine(house.engine)


def test_after_a_restart_it_waits_as_before() -> None:
    house = House()
    before = many(house)
    job = finished(wide(house, before), house)
    _, copies = restarted(house, *before, job)
    assert (copies[job.id].state, copies[job.id].blockers) == (WAITING, WIDTH)
