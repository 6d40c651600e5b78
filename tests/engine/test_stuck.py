"""Whether the jobs of a function can ever become ready: counted along the way, within a function and across some."""

from __future__ import annotations

from switchgear.engine.cross_function_edges import CrossFunctionEdges
from switchgear.model import FAILED, NORMAL, SECOND_US, Delivery, EdgePolicy, Function, Job
from tests.engine.harness import Harness
from tests.engine.restarts import restarted

# --- counting edges ---


def job(number: int, function: Function) -> Job:
    return Job(number, function, b"", b"", NORMAL, Delivery.HANDLE, 0)


def test_functions_are_reached_over_any_number_of_edges() -> None:
    a, b, c = Function(b"a"), Function(b"b"), Function(b"c")
    edges = CrossFunctionEdges()
    edges.add(job(1, b), a)
    edges.add(job(2, c), b)
    assert edges.waits_for(a) == {a, b, c}
    assert edges.waits_for(c) == {c}


def test_functions_may_wait_for_each_other() -> None:
    a, b = Function(b"a"), Function(b"b")
    edges = CrossFunctionEdges()
    edges.add(job(1, a), b)
    edges.add(job(2, b), a)
    assert edges.waits_for(a) == edges.waits_for(b) == {a, b}


def test_the_last_edge_counts() -> None:
    a, b = Function(b"a"), Function(b"b")
    edges = CrossFunctionEdges()
    first = job(1, b)
    edges.add(first, a)
    edges.add(first, a)
    edges.remove(1, a)
    assert edges.waits_for(a) == {a, b}
    edges.remove(1, a)
    edges.remove(1, a)
    assert (edges.waits_for(a), len(edges)) == ({a}, 0)


def test_a_predecessor_that_ends_holds_up_nobody_until_it_is_retried() -> None:
    a, b = Function(b"a"), Function(b"b")
    edges = CrossFunctionEdges()
    first = job(1, b)
    edges.add(first, a)
    edges.ended(1)
    edges.remove(1, a)  # which was not counted any more
    assert edges.waits_for(a) == {a}
    edges.retried(first, [job(2, a), job(3, b)])
    assert edges.waits_for(a) == {a, b}


# --- functions ---


def test_a_function_without_jobs_is_not_stuck(harness: Harness) -> None:
    assert not harness.engine.is_stuck(harness.function())


def test_jobs_that_wait_for_one_that_failed_are_stuck_until_it_is_retried(harness: Harness) -> None:
    worker, first = harness.running()
    harness.submit(after=(harness.submit(after=(first,)),))
    assert not harness.engine.is_stuck(harness.function())
    harness.engine.fail(worker, first.id)
    assert harness.engine.is_stuck(harness.function())
    assert harness.engine.explain(harness.engine.dependencies.waiting_for(first.id)[0])[-1].word == "stuck"
    harness.engine.retry(first)
    assert not harness.engine.is_stuck(harness.function())


def test_one_more_job_that_can_run_is_enough(harness: Harness) -> None:
    waiting = harness.submit(after=(harness.ended(FAILED),))
    assert harness.engine.is_stuck(harness.function())
    assert [reason.word for reason in harness.engine.explain(waiting)] == ["waiting_for", "stuck"]
    harness.submit()
    assert not harness.engine.is_stuck(harness.function())
    assert [reason.word for reason in harness.engine.explain(waiting)] == ["waiting_for"]


def test_a_job_that_waits_for_its_time_is_not_stuck(harness: Harness) -> None:
    harness.submit(run_at_us=harness.now_us + SECOND_US)
    assert not harness.engine.is_stuck(harness.function())


def test_another_functions_job_may_still_be_done(harness: Harness) -> None:
    other = harness.submit(b"other")
    harness.submit(after=(other,))
    assert not harness.engine.is_stuck(harness.function())
    worker = harness.worker(b"other")
    assert harness.engine.take(worker) is other
    harness.engine.fail(worker, other.id)
    assert harness.engine.is_stuck(harness.function())
    harness.engine.retry(other)
    assert not harness.engine.is_stuck(harness.function())


def test_another_function_may_be_stuck_itself(harness: Harness) -> None:
    failed = harness.ended(FAILED)
    harness.submit(after=(harness.submit(b"other", after=(failed,)),))
    assert harness.engine.is_stuck(harness.function())
    assert harness.engine.is_stuck(harness.function(b"other"))
    harness.submit(b"third")  # for which nobody waits
    assert harness.engine.is_stuck(harness.function())


def test_a_job_that_leaves_takes_its_edges_along(harness: Harness) -> None:
    other = harness.submit(b"other")
    leaving = harness.submit(after=(other,))
    harness.submit(after=(harness.ended(FAILED),))
    assert not harness.engine.is_stuck(harness.function())
    harness.engine.cancel(leaving)
    assert harness.engine.is_stuck(harness.function())


def test_jobs_that_are_about_to_be_told_are_not_stuck(harness: Harness) -> None:
    """Very many wait for one that was done: they are let go over several turns."""
    worker, first = harness.running(b"other")
    harness.engine.transitions.failures_per_turn = 0
    harness.engine.sliced_work.units_per_turn = 2
    harness.pass_seconds(0)
    many = [harness.submit(after=(first,)) for _ in range(10)]
    harness.engine.complete(worker, first.id, b"")
    while len(harness.engine.sliced_work):
        assert not harness.engine.is_stuck(harness.function())
        harness.pass_seconds(0)
    assert harness.function().ready == len(many)


def test_an_edge_that_lets_run_after_a_failure_is_not_stuck(harness: Harness) -> None:
    worker, first = harness.running(b"other")
    harness.submit(after=(first,), edges=bytes([EdgePolicy.RUN]))
    harness.engine.fail(worker, first.id)
    assert not harness.engine.is_stuck(harness.function())


def test_a_restart_knows_it(harness: Harness) -> None:
    other = harness.submit(b"other")
    failed = harness.ended(FAILED)
    waiting = harness.submit(after=(other, failed))
    again, copies = restarted(harness, other, failed, waiting)
    assert not again.engine.is_stuck(again.function())
    again.engine.cancel(copies[other.id])
    assert again.engine.is_stuck(again.function())
