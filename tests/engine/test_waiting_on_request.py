"""Jobs that are completed without a run, and successors that begin to wait for more jobs."""

from __future__ import annotations

import pytest

from switchgear.errors import CycleRefused, Refused
from switchgear.model import DONE, READY, RUNNING, SCHEDULED, WAITING, Cause, EdgePolicy
from tests.engine.harness import Harness, causes


def test_a_job_is_completed_wherever_it_waits() -> None:
    harness = Harness()
    ready, later = harness.submit(), harness.submit(run_at_us=harness.at(60))
    waiting = harness.submit(predecessors=(later.id,))
    after = harness.submit(predecessors=(waiting.id,))
    assert [job.state for job in (ready, later, waiting, after)] == [READY, SCHEDULED, WAITING, WAITING]
    for job in (ready, waiting):
        harness.engine.complete_without_run(job, b"done")
        assert (job.state, job.result, causes(job)[-1]) == (DONE, b"done", Cause.SETTLED)
    assert after.state is READY
    harness.engine.complete_without_run(later)
    assert later.state is DONE
    harness.pass_seconds(120)
    assert harness.engine.job_count() == 1  # only the last one is left


def test_running_and_ended_jobs_are_not_completed() -> None:
    harness = Harness()
    worker, job = harness.running()
    with pytest.raises(Refused, match="is running"):
        harness.engine.complete_without_run(job)
    harness.engine.complete(worker, job.id, b"")
    with pytest.raises(Refused, match="is done"):
        harness.engine.complete_without_run(job)


def test_a_running_job_that_waits_runs_again() -> None:
    harness = Harness()
    worker, job = harness.running()
    event = harness.submit(b"event", run_at_us=harness.at(600))
    harness.engine.add_predecessors(job, (event.id,), bytes([EdgePolicy.RUN]))
    assert (job.state, job.worker, job.attempts) == (WAITING, None, 0)
    harness.engine.complete_without_run(event, b"7")
    assert job.state is READY
    assert harness.engine.take(worker) is job
    assert (job.state, job.attempts) == (RUNNING, 1)


def test_successors_wait_for_spawned_jobs_too() -> None:
    harness = Harness()
    worker, job = harness.running()
    after = harness.submit(predecessors=(job.id,), edges=bytes([EdgePolicy.FAIL]))
    spawned = harness.submit(b"part")
    list(harness.engine.let_successors_wait(job, (spawned.id,)))
    harness.engine.complete(worker, job.id, b"")
    assert (after.state, after.predecessors) == (WAITING, (job.id, spawned.id))
    assert list(after.edges) == [EdgePolicy.FAIL, EdgePolicy.FAIL]
    harness.engine.complete_without_run(spawned)
    assert after.state is READY


def test_a_spawned_job_that_waits_for_a_successor_is_refused() -> None:
    harness = Harness()
    _, job = harness.running()
    after = harness.submit(predecessors=(job.id,))
    spawned = harness.submit(b"part", predecessors=(after.id,))
    with pytest.raises(CycleRefused):
        list(harness.engine.let_successors_wait(job, (spawned.id,)))
