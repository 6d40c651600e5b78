"""A job of very many predecessors is submitted in slices, and other commands come in between: it is taken or not."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from switchgear.engine.dependencies import RELIED_PER_STEP
from switchgear.engine.engine import SubmitOptions
from switchgear.engine.wide_submissions import LINKED_PER_SLICE
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
from tests.engine.harness import Harness, state_of
from tests.engine.restarts import restarted

WIDTH = 3 * LINKED_PER_SLICE


def wide(
    harness: Harness,
    before: list[Job],
    *,
    unique: bytes = b"",
    subscriber: RecordingPeer | None = None,
    function: bytes = b"sum",
    **options: Any,
) -> Generator[bool, None, Job]:
    wanted = SubmitOptions(predecessors=tuple(job.id for job in before), **options)
    delivery = Delivery.HANDLE if subscriber is None else Delivery.WAIT
    return harness.engine.submit_wide(function, unique, b"", NORMAL, delivery, subscriber, wanted)


def finished(steps: Generator[bool, None, Job], harness: Harness) -> Job:
    try:
        while True:
            assert next(steps) is False
            check_engine(harness.engine)
    except StopIteration as stop:
        job: Job = stop.value
        check_engine(harness.engine)
        return job


def many(harness: Harness) -> list[Job]:
    return [harness.submit() for _ in range(WIDTH)]


def edge_count(harness: Harness) -> int:
    while len(harness.engine.sliced_work):
        harness.engine.advance(harness.now_us)
    return sum(harness.engine.dependencies.successor_count(job_id) for job_id in harness.engine.dependencies.successors)


def test_it_waits_for_all_of_them_as_one_submitted_at_once_does() -> None:
    harness = Harness()
    before = many(harness)
    job = finished(wide(harness, before), harness)
    assert (job.state, job.blockers, job.predecessors) == (WAITING, WIDTH, tuple(each.id for each in before))
    assert harness.function(b"sum").waiting == 1
    worker = harness.worker(b"mail", b"sum")
    assert harness.drain_with(worker)[-1] == job.id
    assert state_of(job) is DONE
    assert edge_count(harness) == 0


def test_between_two_slices_nobody_knows_of_it() -> None:
    harness = Harness()
    steps = wide(harness, many(harness), name=b"total", unique=b"key")
    next(steps)
    assert harness.engine.job_count() == WIDTH
    assert harness.engine.named(b"total") is None
    assert not harness.engine.has_holder(harness.function(b"sum"), b"key")
    assert not harness.function(b"sum").waiting
    assert finished(steps, harness) is harness.engine.named(b"total")


def test_what_ends_meanwhile_is_not_waited_for() -> None:
    harness = Harness()
    before = many(harness)
    worker = harness.worker(b"mail")
    steps = wide(harness, before)
    next(steps)
    harness.drain_with(worker)
    job = finished(steps, harness)
    assert job.state is READY
    assert edge_count(harness) == 0


@pytest.mark.parametrize(
    ("policy", "end"), [(EdgePolicy.FAIL, FAILED), (EdgePolicy.SKIP, CANCELLED), (EdgePolicy.WAIT, WAITING)]
)
def test_a_failure_meanwhile_means_what_its_edge_says(policy: EdgePolicy, end: object) -> None:
    harness = Harness()
    before = many(harness)
    steps = wide(harness, before, edges=bytes([policy]) * WIDTH)
    next(steps)
    harness.engine.cancel(before[0])
    job = finished(steps, harness)
    harness.pass_seconds(0)
    assert state_of(job) is end
    check_engine(harness.engine)


def take_name(harness: Harness) -> None:
    harness.submit(name=b"taken")


def fill(harness: Harness) -> None:
    harness.engine.set_limits(harness.function(b"sum"), 1, 1, 1)
    harness.submit(b"sum")


def close(harness: Harness) -> None:
    harness.engine.drain()


@pytest.mark.parametrize("meanwhile", [take_name, fill, close])
def test_one_that_is_refused_at_the_end_leaves_nothing_behind(meanwhile: Callable[[Harness], None]) -> None:
    harness = Harness()
    before = many(harness)
    held_bytes = harness.engine.memory.job_bytes
    steps = wide(harness, before, name=b"taken")
    next(steps)
    meanwhile(harness)
    count = harness.engine.job_count()
    with pytest.raises(Refused):
        finished(steps, harness)
    assert (harness.engine.job_count(), edge_count(harness)) == (count, 0)
    assert harness.engine.memory.job_bytes >= held_bytes
    check_engine(harness.engine)


@pytest.mark.parametrize("reason", ["memory", "refusal"])
def test_one_that_cannot_be_taken_is_refused_before_anything_is_done(reason: str) -> None:
    harness = Harness()
    before = many(harness)
    if reason == "memory":
        harness.engine.memory.limit_bytes = harness.engine.memory.job_bytes + 10_000
    else:
        close(harness)
    with pytest.raises(Refused):
        next(wide(harness, before))
    assert edge_count(harness) == 0


def test_one_whose_submitter_gives_up_leaves_nothing_behind() -> None:
    harness = Harness()
    steps = wide(harness, many(harness))
    next(steps)
    steps.close()
    assert (harness.engine.job_count(), edge_count(harness)) == (WIDTH, 0)
    check_engine(harness.engine)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_one_whose_unique_key_is_taken_joins_that_job(when: str) -> None:
    harness = Harness()
    before = many(harness)
    steps = wide(harness, before, unique=b"key")
    if when == "meanwhile":
        next(steps)
    holder = harness.submit(b"sum", unique=b"key")
    assert finished(steps, harness) is holder
    assert edge_count(harness) == 0


def test_one_may_replace_the_job_that_has_its_key() -> None:
    harness = Harness()
    before = many(harness)
    steps = wide(harness, before, unique=b"key", unique_policy=UniquePolicy.REPLACE)
    next(steps)
    replaced = harness.submit(b"sum", unique=b"key")
    job = finished(steps, harness)
    assert (state_of(replaced), replaced.log[-1][0]) == (CANCELLED, Cause.REPLACED)
    assert (job.state, job.blockers) == (WAITING, WIDTH)


def test_a_function_that_was_forgotten_meanwhile_is_made_again() -> None:
    harness = Harness(functions=2)
    before = many(harness)
    steps = wide(harness, before)
    next(steps)
    harness.pass_seconds(1)
    harness.function(b"other")
    assert b"sum" not in harness.engine.functions
    harness.engine.drop_function(harness.function(b"other"))
    job = finished(steps, harness)
    assert (job.function, job.blockers) == (harness.function(b"sum"), WIDTH)
    assert edge_count(harness) == WIDTH


def test_one_that_a_client_waits_for_goes_with_it() -> None:
    harness = Harness()
    client = RecordingPeer()
    job = finished(wide(harness, many(harness), subscriber=client), harness)
    assert job.id in client.subscriptions
    harness.engine.unsubscribe(client)
    assert state_of(job) is CANCELLED
    assert edge_count(harness) == 0
    check_engine(harness.engine)


def test_after_a_restart_it_waits_as_before() -> None:
    harness = Harness()
    before = many(harness)
    job = finished(wide(harness, before), harness)
    _, copies = restarted(harness, *before, job)
    assert (copies[job.id].state, copies[job.id].blockers) == (WAITING, WIDTH)


# --- very many foreground jobs become durable ---


def foreground_chain(harness: Harness, count: int) -> list[Job]:
    """Foreground jobs, each of which waits for the one before."""
    jobs: list[Job] = []
    client = RecordingPeer()
    for _ in range(count):
        options = SubmitOptions(predecessors=(jobs[-1].id,)) if jobs else None
        jobs.append(harness.engine.submit(b"chain", b"", b"", NORMAL, Delivery.WAIT, client, options))
    harness.engine.take_changes()
    return jobs


def test_a_long_chain_of_foreground_jobs_becomes_durable_in_steps_before_the_job_is_submitted(harness: Harness) -> None:
    jobs = foreground_chain(harness, 3 * RELIED_PER_STEP)
    assert harness.engine.relies_on_many((jobs[-1].id,))
    steps = wide(harness, jobs[-1:])
    durable = 0
    submitted: Job | None = None
    while submitted is None:
        try:
            next(steps)
        except StopIteration as stop:
            submitted = stop.value
        before, durable = durable, sum(1 for job in jobs if job.delivery)
        assert durable - before <= RELIED_PER_STEP
    assert durable == len(jobs)
    assert submitted.state is WAITING
    check_engine(harness.engine)


def test_a_short_chain_of_foreground_jobs_or_a_long_one_of_durable_jobs_takes_one_step(harness: Harness) -> None:
    jobs = foreground_chain(harness, RELIED_PER_STEP)
    assert not harness.engine.relies_on_many((jobs[-1].id,))
    longer = foreground_chain(harness, 3 * RELIED_PER_STEP)
    for _ in harness.engine.rely_in_steps((longer[-1].id,)):
        pass
    assert all(job.delivery for job in longer)
    assert not harness.engine.relies_on_many((longer[-1].id,))
