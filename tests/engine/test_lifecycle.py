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
from tests.engine.house import House, causes

PAGE = Path(__file__).parents[2] / "docs" / "job-lifecycle.md"

# --- every legal move is reachable ---


def waiting(house: House, **submission: Any) -> Job:
    return house.submit(after=(house.submit(b"other"),), **submission)


def scheduled(house: House, **submission: Any) -> Job:
    return house.submit(run_at_us=house.at(5), **submission)


def ready(house: House, **submission: Any) -> Job:
    return house.submit(**submission)


def running(house: House, **submission: Any) -> Job:
    return house.running(**submission)[1]


IN_STATE: dict[JobState, Callable[..., Job]] = {
    WAITING: waiting,
    SCHEDULED: scheduled,
    READY: ready,
    RUNNING: running,
}


def in_state(state: JobState | None, house: House, **submission: Any) -> Job:
    assert state is not None
    return IN_STATE[state](house, **submission)


def finish_other(house: House) -> None:
    house.drain_with(house.worker(b"other"))


def released(house: House, origin: JobState | None) -> Job:
    job = waiting(house)
    finish_other(house)
    return job


def released_early(house: House, origin: JobState | None) -> Job:
    job = waiting(house, run_at_us=house.at(5))
    finish_other(house)
    return job


def due(house: House, origin: JobState | None) -> Job:
    job = scheduled(house)
    house.pass_seconds(5)
    return job


def rescheduled(house: House, origin: JobState | None) -> Job:
    job = in_state(origin, house)
    house.engine.change(job, run_at_us=house.at(100))
    return job


def held_back(house: House, origin: JobState | None) -> Job:
    job = in_state(origin, house)
    house.engine.add_predecessors(job, (house.submit(b"other").id,))
    return job


def taken(house: House, origin: JobState | None) -> Job:
    return running(house)


def reported(report: Callable[[House, Job], object]) -> Callable[[House, JobState | None], Job]:
    def way(house: House, origin: JobState | None) -> Job:
        job = running(house)
        report(house, job)
        return job

    return way


def succeeded(house: House, job: Job) -> None:
    assert job.worker is not None
    house.engine.complete(job.worker, job.id, b"")


def ended_badly(house: House, job: Job) -> None:
    assert job.worker is not None
    house.engine.fail(job.worker, job.id)


def given_back(house: House, job: Job) -> None:
    assert job.worker is not None
    house.engine.release(job.worker, job.id)


def retry_later(house: House, job: Job) -> None:
    assert job.worker is not None
    house.engine.retry_later(job.worker, job.id, 1)


def worker_lost(house: House, job: Job) -> None:
    assert job.worker is not None
    house.engine.remove_worker(job.worker)


def settled(house: House, origin: JobState | None) -> Job:
    job = in_state(origin, house)
    house.engine.complete_unowned(job)
    return job


def timed_out(house: House, origin: JobState | None) -> Job:
    job = running(house, timeout_us=1)
    house.pass_seconds(1)
    return job


def exhausted(house: House, origin: JobState | None) -> Job:
    job = running(house, attempts_limit=1)
    worker_lost(house, job)
    return job


def server_lost(house: House, origin: JobState | None) -> Job:
    job = running(house)
    job.worker = None
    house.engine = House(clock=house.clock).engine  # the first one is gone
    job.function = house.function()
    house.engine.restore([job], {}, job.id + 1)
    return job


def let_down(policy: EdgePolicy) -> Callable[[House, JobState | None], Job]:
    def way(house: House, origin: JobState | None) -> Job:
        other = house.submit(b"other")
        job = house.submit(after=(other,), edges=bytes([policy]))
        house.engine.cancel(other)
        return job

    return way


def replaced(house: House, origin: JobState | None) -> Job:
    job = in_state(origin, house, unique=b"k")
    house.submit(unique=b"k", unique_policy=UniquePolicy.REPLACE)
    return job


def cancelled(house: House, origin: JobState | None) -> Job:
    job = in_state(origin, house)
    house.engine.cancel(job)
    return job


def abandoned(house: House, origin: JobState | None) -> Job:
    client = RecordingPeer()
    job = in_state(origin, house, delivery=Delivery.WAIT, watcher=client)
    house.engine.unsubscribe(client)
    if origin is RUNNING:  # it may finish; but if it does not, nobody minds
        worker_lost(house, job)
    return job


def expired(house: House, origin: JobState | None) -> Job:
    job = in_state(origin, house, expires_us=house.at(1))
    house.pass_seconds(1)
    return job


def retried(house: House, origin: JobState | None) -> Job:
    assert origin is not None
    job = house.ended(origin)
    house.engine.retry(job)
    return job


def retried_waiting(house: House, origin: JobState | None) -> Job:
    assert origin is not None
    # One that failed has run, so what it waited for was done, or was not known then.
    job = house.ended(origin, predecessors=(2,)) if origin is FAILED else None
    other = house.submit(b"other")
    job = job or house.ended(origin, after=(other,))
    house.engine.retry(job)
    return job


def ended_badly_or_lost(house: House, origin: JobState | None) -> Job:
    if origin is not READY:
        return reported(ended_badly)(house, origin)
    job = ready(house)
    job.payload = None
    house.engine.payload_arrivals.lost(job, b"the store has lost it")
    return job


WAYS: dict[Cause, Callable[[House, JobState | None], Job]] = {
    Cause.SUBMITTED: lambda house, origin: ready(house),
    Cause.SUBMITTED_EARLY: lambda house, origin: scheduled(house),
    Cause.SUBMITTED_WAITING: lambda house, origin: waiting(house),
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
def test_every_legal_move_is_reachable(house: House, cause: Cause, origin: JobState | None, target: JobState) -> None:
    job = WAYS[cause](house, origin)
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


def test_the_log_tells_every_move_with_its_time_in_microseconds(house: House) -> None:
    job = house.submit(run_at_us=house.at(2))
    begin_us = house.now_us
    house.pass_seconds(2)
    worker = house.worker()
    house.pass_seconds(0.25)
    house.engine.take(worker)
    house.pass_seconds(0.000001)
    house.engine.complete(worker, job.id, b"")
    assert job.log == [
        (Cause.SUBMITTED_EARLY, begin_us),
        (Cause.DUE, begin_us + 2_000_000),
        (Cause.TAKEN, begin_us + 2_250_000),
        (Cause.SUCCEEDED, begin_us + 2_250_001),
    ]
    assert job.finished_us == begin_us + 2_250_001


def test_the_submission_of_a_ready_job_is_in_its_log_though_it_is_not_stored(house: House) -> None:
    job = house.submit()
    assert job.moves is None
    assert job.log == [(Cause.SUBMITTED, house.now_us)]
    house.engine.cancel(job)
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
