"""A job that is there begins to wait for very many others: no turn does all of that, and it waits for all or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from switchgear.engine.dependencies import RELIED_PER_STEP
from switchgear.engine.predecessor_commands import MOST_AT_ONCE, MOST_LINKED_LATER
from switchgear.engine.sliced_work import UNITS_PER_TURN
from switchgear.errors import CycleRefused, Refused
from switchgear.model import CANCELLED, DONE, FAILED, READY, RUNNING, WAITING, Delivery, EdgePolicy, Job, JobState
from switchgear.testing import check_engine
from tests.engine.harness import Harness, state_of
from tests.engine.restarts import restarted

WIDTH = 3 * MOST_AT_ONCE


@pytest.fixture
def harness() -> Harness:
    return Harness()


def many(harness: Harness, count: int = WIDTH) -> tuple[int, ...]:
    return tuple(harness.submit().id for _ in range(count))


def edge_count(harness: Harness, job: Job) -> int:
    """To how many predecessors the job is linked."""
    dependencies = harness.engine.dependencies
    return sum(dependencies.has_edge(job_id, job) for job_id in job.predecessors)


def exhaust(steps: Iterator[None]) -> int:
    return sum(1 for _ in steps)


def link(harness: Harness, job: Job) -> int:
    """Let turns pass until the job is linked to all its predecessors; returns how many."""
    turns = 0
    before = edge_count(harness, job)
    while job in harness.engine.dependencies.linked_later:
        harness.engine.advance(harness.now_us)
        turns += 1
        after = edge_count(harness, job)
        assert after - before <= UNITS_PER_TURN
        before = after
        if turns % 5 == 0:
            check_engine(harness.engine)
    check_engine(harness.engine)
    return turns


def test_a_job_is_given_very_many_predecessors_over_several_turns(harness: Harness) -> None:
    job = harness.submit(b"sum")
    others = many(harness)
    steps = harness.engine.add_predecessors_in_steps(job, others)
    for _ in steps:
        assert (state_of(job), job.predecessors) == (READY, ())  # nothing is changed before the last step
        check_engine(harness.engine)
    assert (state_of(job), job.predecessors) == (WAITING, others)
    assert edge_count(harness, job) <= UNITS_PER_TURN
    assert link(harness, job) >= WIDTH // UNITS_PER_TURN - 1
    assert (job.blockers, edge_count(harness, job), harness.function(b"sum").waiting) == (WIDTH, WIDTH, 1)
    assert harness.drain_with(harness.worker(b"mail", b"sum"))[-1] == job.id
    check_engine(harness.engine)


def test_it_does_not_become_ready_half_way(harness: Harness) -> None:
    job = harness.submit(b"sum")
    others = many(harness)
    exhaust(harness.engine.add_predecessors_in_steps(job, others))
    worker = harness.worker()
    for _ in others[:-1]:  # those that it is linked to, and those that it is not
        taken = harness.engine.take(worker)
        assert taken is not None
        harness.engine.complete(worker, taken.id, b"")
        assert state_of(job) is WAITING
    link(harness, job)
    assert (state_of(job), job.blockers) == (WAITING, 1)
    harness.drain_with(worker)
    assert state_of(job) is READY


def test_it_becomes_ready_when_all_ended_before_it_was_linked(harness: Harness) -> None:
    job = harness.submit(b"sum")
    exhaust(harness.engine.add_predecessors_in_steps(job, many(harness)))
    worker = harness.worker()
    while (taken := harness.engine.take(worker)) is not None:
        harness.engine.complete(worker, taken.id, b"")
    assert state_of(job) is WAITING
    link(harness, job)
    assert (state_of(job), harness.function(b"sum").waiting) == (READY, 0)


def test_it_keeps_what_it_had(harness: Harness) -> None:
    others = many(harness)
    job = harness.submit(predecessors=others[:10], edges=bytes([EdgePolicy.RUN]) * 10)
    more = (*others[5:], *others[5:20])
    exhaust(harness.engine.add_predecessors_in_steps(job, more, bytes([EdgePolicy.FAIL]) * len(more)))
    link(harness, job)
    assert job.predecessors == others
    assert job.edges == bytes([EdgePolicy.RUN]) * 10 + bytes([EdgePolicy.FAIL]) * (WIDTH - 10)
    assert job.blockers == WIDTH


def test_others_give_it_predecessors_meanwhile(harness: Harness) -> None:
    job = harness.submit(b"sum")
    others = many(harness)
    steps = harness.engine.add_predecessors_in_steps(job, others)
    next(steps)
    new = harness.submit()
    harness.engine.add_predecessors(job, (others[7], new.id))
    exhaust(steps)
    harness.engine.add_predecessors(job, (harness.submit().id,))
    link(harness, job)
    assert (sorted(job.predecessors)[:WIDTH], job.blockers) == (list(others), WIDTH + 2)


def test_two_requests_for_one_job_follow_each_other(harness: Harness) -> None:
    job = harness.submit(b"sum")
    first, second = many(harness), many(harness)
    exhaust(harness.engine.add_predecessors_in_steps(job, first))
    steps = harness.engine.add_predecessors_in_steps(job, second)
    for _ in steps:
        harness.engine.advance(harness.now_us)
        check_engine(harness.engine)
    link(harness, job)
    assert (job.predecessors, job.blockers) == ((*first, *second), 2 * WIDTH)


def test_only_some_jobs_are_linked_at_a_time(harness: Harness) -> None:
    others = many(harness)
    jobs = [harness.submit(b"sum") for _ in range(MOST_LINKED_LATER + 1)]
    for job in jobs[:-1]:
        exhaust(harness.engine.add_predecessors_in_steps(job, others))
    last = jobs[-1]
    waits = 0
    for _ in harness.engine.add_predecessors_in_steps(last, others):
        waits += 1
        harness.engine.advance(harness.now_us)
        assert len(harness.engine.dependencies.linked_later) <= MOST_LINKED_LATER
    assert waits > WIDTH // UNITS_PER_TURN
    link(harness, last)
    assert [job.blockers for job in jobs] == [WIDTH] * len(jobs)


def test_a_running_job_is_taken_from_its_worker_at_the_end(harness: Harness) -> None:
    _, job = harness.running(b"sum")
    steps = harness.engine.add_predecessors_in_steps(job, many(harness))
    next(steps)
    assert state_of(job) is RUNNING
    exhaust(steps)
    assert (state_of(job), job.worker) == (WAITING, None)
    link(harness, job)


def test_a_job_that_ends_meanwhile_waits_for_nothing(harness: Harness) -> None:
    worker, job = harness.running(b"sum")
    others = many(harness)
    steps = harness.engine.add_predecessors_in_steps(job, others)
    next(steps)
    harness.engine.complete(worker, job.id, b"")
    with pytest.raises(Refused, match="is done"):
        exhaust(steps)
    assert job.predecessors == ()
    check_engine(harness.engine)


def test_a_job_that_is_cancelled_before_it_is_linked_leaves_no_edges(harness: Harness) -> None:
    job = harness.submit(b"sum")
    exhaust(harness.engine.add_predecessors_in_steps(job, many(harness)))
    harness.engine.cancel(job)
    assert state_of(job) is CANCELLED
    while len(harness.engine.sliced_work):
        harness.engine.advance(harness.now_us)
        check_engine(harness.engine)
    assert not len(harness.engine.dependencies.successors)


@pytest.mark.parametrize(
    ("policy", "end"), [(EdgePolicy.FAIL, FAILED), (EdgePolicy.SKIP, CANCELLED), (EdgePolicy.WAIT, WAITING)]
)
@pytest.mark.parametrize("place", [0, -1])
def test_a_failure_before_it_is_linked_means_what_its_edge_says(
    harness: Harness, policy: EdgePolicy, end: JobState, place: int
) -> None:
    job = harness.submit(b"sum")
    others = many(harness)
    exhaust(harness.engine.add_predecessors_in_steps(job, others, bytes([policy]) * WIDTH))
    failed = harness.engine.job(others[place])
    assert failed is not None
    harness.engine.cancel(failed)
    while len(harness.engine.sliced_work):
        harness.engine.advance(harness.now_us)
    harness.pass_seconds(0)
    assert state_of(job) is end


def test_a_failure_runs_an_error_handler_that_is_not_linked_yet(harness: Harness) -> None:
    job = harness.submit(b"sum")
    others = many(harness)
    exhaust(harness.engine.add_predecessors_in_steps(job, others, bytes([EdgePolicy.ERROR]) * WIDTH))
    worker = harness.worker()
    for job_id in others:
        taken = harness.engine.take(worker)
        assert taken is not None
        if job_id == others[-1]:
            harness.engine.fail(worker, taken.id)
        else:
            harness.engine.complete(worker, taken.id, b"")
    link(harness, job)
    assert state_of(job) is READY


# --- cycles ---


def test_a_circle_is_refused_before_anything_is_changed(harness: Harness) -> None:
    job = harness.submit(b"sum")
    others = (*many(harness), harness.submit(after=(job,)).id)
    with pytest.raises(CycleRefused):
        exhaust(harness.engine.add_predecessors_in_steps(job, others))
    assert (state_of(job), job.predecessors) == (READY, ())
    with pytest.raises(CycleRefused):
        exhaust(harness.engine.add_predecessors_in_steps(job, (*others[:-1], job.id)))
    check_engine(harness.engine)


def test_a_circle_over_an_edge_that_is_not_linked_yet_is_refused(harness: Harness) -> None:
    job = harness.submit(b"sum")
    others = many(harness)
    exhaust(harness.engine.add_predecessors_in_steps(job, others))
    last = harness.engine.job(others[-1])
    assert last is not None
    assert not harness.engine.dependencies.has_edge(last.id, job)
    with pytest.raises(CycleRefused):
        harness.engine.add_predecessors(last, (job.id,))
    successor = harness.submit(after=(job,))
    with pytest.raises(CycleRefused):
        harness.engine.add_predecessors(last, (successor.id,))
    link(harness, job)


# --- retries ---


def failed_with(harness: Harness, others: tuple[int, ...], **options: Any) -> Job:
    job = harness.submit(b"sum", predecessors=others, **options)
    harness.engine.cancel(job)
    while len(harness.engine.sliced_work):
        harness.engine.advance(harness.now_us)
    return job


def test_a_retry_is_linked_over_several_turns(harness: Harness) -> None:
    others = many(harness)
    job = failed_with(harness, others)
    for _ in harness.engine.retry_in_steps(job):
        assert state_of(job) is CANCELLED
        check_engine(harness.engine)
    assert state_of(job) is WAITING
    assert edge_count(harness, job) <= UNITS_PER_TURN
    assert link(harness, job) >= WIDTH // UNITS_PER_TURN - 1
    assert job.blockers == WIDTH
    assert harness.drain_with(harness.worker(b"mail", b"sum"))[-1] == job.id


def test_a_retry_does_not_wait_for_the_unlinking_of_its_last_run_in_one_step(harness: Harness) -> None:
    job = harness.submit(b"sum", predecessors=many(harness))
    harness.engine.cancel(job)
    for _ in harness.engine.retry_in_steps(job):
        check_engine(harness.engine)
    link(harness, job)
    assert (job.blockers, edge_count(harness, job)) == (WIDTH, WIDTH)


def test_a_retry_whose_predecessors_are_done_is_ready(harness: Harness) -> None:
    job = failed_with(harness, many(harness))
    harness.drain_with(harness.worker())
    assert exhaust(harness.engine.retry_in_steps(job)) > 0
    assert state_of(job) is READY


def test_a_retry_gets_very_many_more(harness: Harness) -> None:
    job = failed_with(harness, many(harness, 3), edges=bytes([EdgePolicy.RUN]) * 3)
    more = many(harness)
    exhaust(harness.engine.retry_in_steps(job, (*more, *more)))
    link(harness, job)
    assert (job.blockers, len(job.predecessors), len(job.edges)) == (WIDTH + 3, WIDTH + 3, WIDTH + 3)


def test_a_second_retry_at_the_same_time_is_refused(harness: Harness) -> None:
    job = failed_with(harness, many(harness))
    steps = harness.engine.retry_in_steps(job)
    next(steps)
    exhaust(harness.engine.retry_in_steps(job))
    with pytest.raises(Refused):
        exhaust(steps)
    link(harness, job)
    assert job.blockers == WIDTH


def test_what_a_retried_job_relies_on_becomes_durable_in_steps(harness: Harness) -> None:
    others = tuple(harness.submit(delivery=Delivery.WAIT).id for _ in range(2 * RELIED_PER_STEP))
    job = harness.submit(predecessors=others, delivery=Delivery.WAIT)
    harness.engine.cancel(job)
    before = 0
    for _ in harness.engine.retry_in_steps(job):
        durable = sum(bool(harness.engine.jobs[job_id].delivery) for job_id in others)
        assert durable - before <= RELIED_PER_STEP
        before = durable
    assert before
    assert state_of(job) is WAITING
    check_engine(harness.engine)


def test_a_restart_before_it_is_linked_loses_nothing(harness: Harness) -> None:
    job = harness.submit(b"sum")
    others = many(harness)
    exhaust(harness.engine.add_predecessors_in_steps(job, others))
    again, copies = restarted(harness, *(harness.engine.jobs[job_id] for job_id in sorted((job.id, *others))))
    found = copies[job.id]
    assert (state_of(found), found.blockers) == (WAITING, WIDTH)
    assert again.drain_with(again.worker(b"mail", b"sum"))[-1] == job.id
    assert state_of(found) is DONE
