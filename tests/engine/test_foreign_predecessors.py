"""`ForeignPredecessors`: jobs wait for jobs of other engines until it is known how these are."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import Engine, SubmitOptions
from switchgear.engine.function_placement import BORROWED, FOREIGN_LIMIT, FunctionPlacement
from switchgear.engine.handover import HandedOver
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
    Function,
    Job,
    JobState,
)
from switchgear.testing.invariants import check_engine
from switchgear.testing.recording_peer import RecordingPeer

ELSEWHERE = 7_000


class Elsewhere(FunctionPlacement):
    """Notes which jobs the engine asks for."""

    def __init__(self) -> None:
        self.awaited: list[int] = []
        self.retried: list[int] = []
        self.watched: list[int] = []

    def watch(self, job: Job) -> None:
        self.watched.append(job.id)

    def is_ours(self, name: bytes) -> bool:
        return True

    def await_job(self, job_id: int) -> None:
        self.awaited.append(job_id)

    def job_retried(self, job: Job) -> None:
        self.retried.append(job.id)

    def owner_of_predecessor(self, job_id: int) -> str:
        return "bob"


@pytest.fixture
def engine() -> Engine:
    engine = Engine()
    engine.placement = Elsewhere()
    return engine


def submit(engine: Engine, *predecessors: int, policy: EdgePolicy = EdgePolicy.WAIT) -> Job:
    options = SubmitOptions(predecessors=predecessors, edges=bytes([policy]) * len(predecessors))
    return engine.submit(b"f", b"", b"x", NORMAL, Delivery.HANDLE, None, options)


def failed(job_id: int, error: bytes = b"no paper") -> Job:
    job = Job(job_id, Function(b"printing"), b"", b"", NORMAL, Delivery.HANDLE, 0)
    job.has_details = True
    job.state = FAILED
    job.error = error
    return job


def asked(engine: Engine) -> list[int]:
    assert isinstance(engine.placement, Elsewhere)
    return engine.placement.awaited


def is_in(job: Job, state: JobState) -> bool:
    return job.state is state


def test_an_unknown_predecessor_is_asked_for_and_waited_for(engine: Engine) -> None:
    job = submit(engine, ELSEWHERE)
    assert is_in(job, WAITING)
    assert asked(engine) == [ELSEWHERE]
    check_engine(engine)
    engine.foreign_predecessors.is_done(ELSEWHERE)
    assert is_in(job, READY)
    check_engine(engine)


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        (EdgePolicy.WAIT, WAITING),
        (EdgePolicy.SKIP, CANCELLED),
        (EdgePolicy.FAIL, FAILED),
        (EdgePolicy.RUN, READY),
        (EdgePolicy.ERROR, READY),
    ],
)
def test_each_policy_applies_to_an_unsuccessful_one(engine: Engine, policy: EdgePolicy, state: object) -> None:
    job = submit(engine, ELSEWHERE, policy=policy)
    engine.foreign_predecessors.has_failed(failed(ELSEWHERE))
    engine.advance(engine.now_us + 1)
    assert job.state is state
    check_engine(engine, {job})


def test_the_error_of_the_first_failure_is_passed_on(engine: Engine) -> None:
    """The predecessor has itself ended because of another one."""
    job = submit(engine, ELSEWHERE, policy=EdgePolicy.FAIL)
    predecessor = failed(ELSEWHERE, b"job 6999, which it waited for, failed: printing: no paper")
    predecessor.moves = [Cause.SUBMITTED_WAITING, 0, Cause.DOOMED, 0]
    engine.foreign_predecessors.has_failed(predecessor)
    engine.advance(engine.now_us + 1)
    assert job.error == predecessor.error


def test_a_retried_one_is_waited_for_again(engine: Engine) -> None:
    foreign = engine.foreign_predecessors
    job = submit(engine, ELSEWHERE)
    foreign.has_failed(failed(ELSEWHERE))
    foreign.is_unfinished(ELSEWHERE)
    late = submit(engine, ELSEWHERE, policy=EdgePolicy.SKIP)
    assert late.state is WAITING
    foreign.is_done(ELSEWHERE)
    assert (job.state, late.state) == (READY, READY)
    check_engine(engine)


def test_the_end_of_a_borrowed_copy_is_not_the_end_of_the_job(engine: Engine) -> None:
    copy = Job(ELSEWHERE, engine.function_named(b"g"), b"", b"x", NORMAL, Delivery.WAIT, 0)
    copy.has_details = True
    copy.origin = BORROWED
    engine.borrow(copy, RecordingPeer())
    skipped = submit(engine, ELSEWHERE, policy=EdgePolicy.SKIP)
    worker = engine.add_worker(RecordingPeer(), "test")
    engine.can_do(worker, engine.function_named(b"g"))
    assert engine.take(worker) is copy
    engine.fail(worker, copy.id, 1, b"failed")
    engine.advance(engine.now_us + 1)
    assert skipped.state is WAITING


def test_a_predecessor_that_goes_to_another_engine_is_asked_for(engine: Engine) -> None:
    first = engine.submit(b"g", b"", b"x", NORMAL, Delivery.HANDLE, None, None)
    second = submit(engine, first.id)
    assert asked(engine) == []
    for _ in engine.hand_over([engine.function_named(b"g")], HandedOver()):
        pass
    assert asked(engine) == [first.id]
    assert is_in(second, WAITING)
    check_engine(engine)
    engine.foreign_predecessors.is_done(first.id)
    assert is_in(second, READY)


def test_a_predecessor_that_comes_from_another_engine_is_one_of_this(engine: Engine) -> None:
    second = submit(engine, ELSEWHERE)
    first = Job(ELSEWHERE, engine.function_named(b"g"), b"", b"x", NORMAL, Delivery.HANDLE, 0)
    first.has_details = True
    engine.restore([first], {}, 0)
    engine.foreign_predecessors.has_come(ELSEWHERE)
    check_engine(engine)
    worker = engine.add_worker(RecordingPeer(), "test")
    engine.can_do(worker, engine.function_named(b"g"))
    assert engine.take(worker) is first
    engine.complete(worker, first.id, b"")
    assert first.state is DONE
    assert second.state is READY


def test_others_are_told_when_a_job_is_retried(engine: Engine) -> None:
    job = submit(engine)
    engine.cancel(job)
    engine.retry(job)
    assert isinstance(engine.placement, Elsewhere)
    assert engine.placement.retried == [job.id]


def test_an_explanation_names_the_node(engine: Engine) -> None:
    [reason] = engine.explain(submit(engine, ELSEWHERE))
    assert reason.text == f"waits for job {ELSEWHERE}, which the node bob has"
    assert reason.data["node"] == "bob"


def test_a_function_whose_jobs_wait_for_another_engine_is_not_stuck(engine: Engine) -> None:
    job = submit(engine, ELSEWHERE)
    assert not engine.is_stuck(job.function)


def test_a_peer_that_subscribes_to_a_job_of_this_engine_is_told_by_it(engine: Engine) -> None:
    """Also while its function is on the way from or to another engine, and accepts no submissions here."""
    job = submit(engine)
    job.function.limits = [FOREIGN_LIMIT] * 3
    engine.subscribe(job, RecordingPeer())
    assert isinstance(engine.placement, Elsewhere)
    assert engine.placement.watched == []
    stands_for_another = failed(7)
    stands_for_another.function.limits = [FOREIGN_LIMIT] * 3
    engine.subscribe(stands_for_another, RecordingPeer())
    assert engine.placement.watched == [7]
