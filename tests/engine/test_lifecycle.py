"""The life of a job is one table: every move in it can happen, and no other can."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switchgear.engine.lifecycle import MOVES, NEXT_STATE, mermaid, next_state
from switchgear.errors import IllegalMove
from switchgear.model import (
    CANCELLED,
    DONE,
    EXPIRED,
    FAILED,
    FINAL_STATES,
    QUEUED_STATES,
    READY,
    RUNNING,
    SCHEDULED,
    WAITING,
    Cause,
    Delivery,
    EdgePolicy,
    Function,
    Job,
    JobState,
    UniquePolicy,
)
from switchgear.testing import RecordingPeer
from switchgear.testing.lifecycle_diagram import drawn, main, redraw
from tests.engine.harness import Harness, causes

PAGE = Path(__file__).parents[2] / "docs" / "job-lifecycle.md"

# --- every legal move is reachable ---


def waiting(harness: Harness, **submission: Any) -> Job:
    return harness.submit(after=(harness.submit(b"other"),), **submission)


def scheduled(harness: Harness, **submission: Any) -> Job:
    return harness.submit(run_at_us=harness.at(5), **submission)


def ready(harness: Harness, **submission: Any) -> Job:
    return harness.submit(**submission)


def running(harness: Harness, **submission: Any) -> Job:
    return harness.running(**submission)[1]


IN_STATE: dict[JobState, Callable[..., Job]] = {
    WAITING: waiting,
    SCHEDULED: scheduled,
    READY: ready,
    RUNNING: running,
}


def in_state(state: JobState | None, harness: Harness, **submission: Any) -> Job:
    assert state is not None
    return IN_STATE[state](harness, **submission)


def finish_other(harness: Harness) -> None:
    harness.drain_with(harness.worker(b"other"))


def released(harness: Harness, origin: JobState | None) -> Job:
    job = waiting(harness)
    finish_other(harness)
    return job


def released_early(harness: Harness, origin: JobState | None) -> Job:
    job = waiting(harness, run_at_us=harness.at(5))
    finish_other(harness)
    return job


def due(harness: Harness, origin: JobState | None) -> Job:
    job = scheduled(harness)
    harness.pass_seconds(5)
    return job


def rescheduled(harness: Harness, origin: JobState | None) -> Job:
    job = in_state(origin, harness)
    harness.engine.change(job, run_at_us=harness.at(100))
    return job


def held_back(harness: Harness, origin: JobState | None) -> Job:
    job = in_state(origin, harness)
    harness.engine.add_predecessors(job, (harness.submit(b"other").id,))
    return job


def taken(harness: Harness, origin: JobState | None) -> Job:
    return running(harness)


def reported(report: Callable[[Harness, Job], object]) -> Callable[[Harness, JobState | None], Job]:
    def way(harness: Harness, origin: JobState | None) -> Job:
        job = running(harness)
        report(harness, job)
        return job

    return way


def succeeded(harness: Harness, job: Job) -> None:
    assert job.worker is not None
    harness.engine.complete(job.worker, job.id, b"")


def ended_badly(harness: Harness, job: Job) -> None:
    assert job.worker is not None
    harness.engine.fail(job.worker, job.id)


def given_back(harness: Harness, job: Job) -> None:
    assert job.worker is not None
    harness.engine.release(job.worker, job.id)


def retry_later(harness: Harness, job: Job) -> None:
    assert job.worker is not None
    harness.engine.retry_later(job.worker, job.id, 1)


def worker_lost(harness: Harness, job: Job) -> None:
    assert job.worker is not None
    harness.engine.remove_worker(job.worker)


def settled(harness: Harness, origin: JobState | None) -> Job:
    job = in_state(origin, harness)
    if origin in (WAITING, SCHEDULED):
        harness.engine.complete_without_run(job)
    else:
        harness.engine.complete_unowned(job)
    return job


def timed_out(harness: Harness, origin: JobState | None) -> Job:
    job = running(harness, timeout_us=1)
    harness.pass_seconds(1)
    return job


def exhausted(harness: Harness, origin: JobState | None) -> Job:
    job = running(harness, attempts_limit=1)
    worker_lost(harness, job)
    return job


def server_lost(harness: Harness, origin: JobState | None) -> Job:
    job = running(harness)
    job.worker = None
    harness.engine = Harness(clock=harness.clock).engine  # the first one is gone
    job.function = harness.function()
    harness.engine.restore([job], {}, job.id + 1)
    return job


def let_down(policy: EdgePolicy) -> Callable[[Harness, JobState | None], Job]:
    def way(harness: Harness, origin: JobState | None) -> Job:
        other = harness.submit(b"other")
        job = harness.submit(after=(other,), edges=bytes([policy]))
        harness.engine.cancel(other)
        return job

    return way


def replaced(harness: Harness, origin: JobState | None) -> Job:
    job = in_state(origin, harness, unique=b"k")
    harness.submit(unique=b"k", unique_policy=UniquePolicy.REPLACE)
    return job


def cancelled(harness: Harness, origin: JobState | None) -> Job:
    job = in_state(origin, harness)
    harness.engine.cancel(job)
    return job


def abandoned(harness: Harness, origin: JobState | None) -> Job:
    client = RecordingPeer()
    job = in_state(origin, harness, delivery=Delivery.WAIT, watcher=client)
    harness.engine.unsubscribe(client)
    if origin is RUNNING:  # it may finish; but if it does not, nobody minds
        worker_lost(harness, job)
    return job


def expired(harness: Harness, origin: JobState | None) -> Job:
    job = in_state(origin, harness, expires_us=harness.at(1))
    harness.pass_seconds(1)
    return job


def retried(harness: Harness, origin: JobState | None) -> Job:
    assert origin is not None
    job = harness.ended(origin)
    harness.engine.retry(job)
    return job


def retried_waiting(harness: Harness, origin: JobState | None) -> Job:
    assert origin is not None
    # One that failed has run, so what it waited for was done, or was not known then.
    job = harness.ended(origin, predecessors=(2,)) if origin is FAILED else None
    other = harness.submit(b"other")
    job = job or harness.ended(origin, after=(other,))
    harness.engine.retry(job)
    return job


def ended_badly_or_lost(harness: Harness, origin: JobState | None) -> Job:
    if origin is not READY:
        return reported(ended_badly)(harness, origin)
    job = ready(harness)
    job.payload = None
    harness.engine.payload_arrivals.lost(job, b"the store has lost it")
    return job


WAYS: dict[Cause, Callable[[Harness, JobState | None], Job]] = {
    Cause.SUBMITTED: lambda harness, origin: ready(harness),
    Cause.SUBMITTED_EARLY: lambda harness, origin: scheduled(harness),
    Cause.SUBMITTED_WAITING: lambda harness, origin: waiting(harness),
    Cause.RELEASED: released,
    Cause.RELEASED_EARLY: released_early,
    Cause.DUE: due,
    Cause.HELD_BACK: held_back,
    Cause.RESCHEDULED: rescheduled,
    Cause.TAKEN: taken,
    Cause.SUCCEEDED: reported(succeeded),
    Cause.SETTLED: settled,
    Cause.ENDED_BADLY: ended_badly_or_lost,
    Cause.WORKER_LOST: reported(worker_lost),
    Cause.SERVER_LOST: server_lost,
    Cause.TIMED_OUT: timed_out,
    Cause.GIVEN_BACK: reported(given_back),
    Cause.RETRY_LATER: reported(retry_later),
    Cause.EXHAUSTED: exhausted,
    Cause.CANCELLED: cancelled,
    Cause.ABANDONED: abandoned,
    Cause.EXPIRED: expired,
    Cause.SKIPPED: let_down(EdgePolicy.SKIP),
    Cause.DOOMED: let_down(EdgePolicy.FAIL),
    Cause.REPLACED: replaced,
    Cause.RETRIED: retried,
    Cause.RETRIED_WAITING: retried_waiting,
}

LEGAL = [(cause, origin, target) for cause, origins, target in MOVES for origin in origins or (None,)]


def states(job: Job) -> list[JobState]:
    """The states of a job's life, read from its log."""
    return [next(target for cause, _, target in MOVES if cause is moved) for moved in causes(job)]


@pytest.mark.parametrize(("cause", "origin", "target"), LEGAL, ids=lambda value: "new" if value is None else value.name)
def test_every_legal_move_is_reachable(
    harness: Harness, cause: Cause, origin: JobState | None, target: JobState
) -> None:
    job = WAYS[cause](harness, origin)
    assert causes(job)[-1] is cause
    assert job.state is target
    assert states(job)[-2:] == [state for state in (origin, target) if state is not None]


def test_each_cause_has_one_row_and_leads_to_one_state() -> None:
    assert [cause for cause, _, _ in sorted(MOVES)] == list(Cause)
    assert WAYS.keys() == set(Cause)


# --- every other move is refused ---

ILLEGAL = [
    (cause, state)
    for cause, state in itertools.product(Cause, JobState)
    if (cause, state) not in {(cause, origin) for cause, origin, _ in LEGAL}
]


@pytest.mark.parametrize(("cause", "state"), ILLEGAL, ids=lambda value: value.name)
def test_an_illegal_move_raises_naming_state_and_cause(cause: Cause, state: JobState) -> None:
    job = Job(7, Function(b"mail"), b"", b"", 1, 1, 0)
    job.state = state
    with pytest.raises(IllegalMove, match=rf"job 7 is {state.name}; {cause.name} cannot happen"):
        next_state(job, cause)
    assert job.state is state


def test_a_finished_job_only_moves_by_being_retried() -> None:
    for cause, state in itertools.product(Cause, FINAL_STATES):
        if NEXT_STATE[cause][state] is not None:
            assert cause in (Cause.RETRIED, Cause.RETRIED_WAITING)
            assert state is not DONE


def test_every_state_is_queued_running_or_final() -> None:
    assert QUEUED_STATES | {RUNNING} | FINAL_STATES == set(JobState)
    assert {DONE, FAILED, CANCELLED, EXPIRED} == FINAL_STATES


# --- the log ---


def test_the_log_tells_every_move_with_its_time_in_microseconds(harness: Harness) -> None:
    job = harness.submit(run_at_us=harness.at(2))
    begin_us = harness.now_us
    harness.pass_seconds(2)
    worker = harness.worker()
    harness.pass_seconds(0.25)
    harness.engine.take(worker)
    harness.pass_seconds(0.000001)
    harness.engine.complete(worker, job.id, b"")
    assert job.log == [
        (Cause.SUBMITTED_EARLY, begin_us),
        (Cause.DUE, begin_us + 2_000_000),
        (Cause.TAKEN, begin_us + 2_250_000),
        (Cause.SUCCEEDED, begin_us + 2_250_001),
    ]
    assert job.finished_us == begin_us + 2_250_001


def test_the_submission_of_a_ready_job_is_in_its_log_though_it_is_not_stored(harness: Harness) -> None:
    job = harness.submit()
    assert job.moves is None
    assert job.log == [(Cause.SUBMITTED, harness.now_us)]
    harness.engine.cancel(job)
    assert causes(job) == [Cause.SUBMITTED, Cause.CANCELLED]


# --- the page ---


def test_the_diagram_shows_every_move() -> None:
    arrows = re.findall(r"^ +(\S+) --> (\S+): (.+)$", mermaid(), re.MULTILINE)
    assert len(arrows) == len(LEGAL)
    for cause, origin, target in LEGAL:
        start = "[*]" if origin is None else origin.name.lower()
        assert (start, target.name.lower(), cause.name.lower().replace("_", " ")) in arrows


def test_the_diagram_in_the_page_is_drawn_from_the_table() -> None:
    assert drawn() in PAGE.read_text(), "redraw it with: python -m switchgear.testing.lifecycle_diagram"


def test_the_page_explains_every_cause_with_its_states() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (\w+) \| [^|]+ \|$", PAGE.read_text(), re.MULTILINE)
    explained = {name: (origins.strip(), target) for name, origins, target in rows}
    assert explained == {
        cause.name: (", ".join(origin.name.lower() for origin in origins) or "–", target.name.lower())
        for cause, origins, target in MOVES
    }


def test_redrawing_replaces_an_old_diagram(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = drawn().replace("ready", "reddy")
    assert redraw(f"before\n{old}\nafter\n") == f"before\n{drawn()}\nafter\n"
    page = tmp_path / "page.md"
    page.write_text(old)
    assert main([str(page)]) == 0
    assert page.read_text() == drawn()
    page.write_text("no diagram here")
    assert main([str(page)]) == 1
    assert "page.md: no lines" in capsys.readouterr().err
