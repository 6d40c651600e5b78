"""Jobs that are submitted together with what they wait for: all of them or none, at once or over many turns."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from switchgear.engine.engine import GraphSubmission, SubmitOptions
from switchgear.engine.graph_submission import LINKED_PER_STEP
from switchgear.engine.sliced_work import UNITS_PER_TURN
from switchgear.errors import CycleRefused, Refused
from switchgear.model import (
    CANCELLED,
    DONE,
    FAILED,
    HIGH,
    NORMAL,
    READY,
    RUNNING,
    SCHEDULED,
    WAITING,
    Delivery,
    EdgePolicy,
    Job,
    JobState,
)
from switchgear.testing import RecordingPeer, check_engine
from tests.engine.harness import Harness, ids, state_of
from tests.engine.restarts import restarted


class Graph:
    """A graph of one function, and short words for what tests add to it."""

    def __init__(
        self, harness: Harness, *, joins: bool = False, is_long: bool = False, function: bytes = b"mail"
    ) -> None:
        self.harness = harness
        self.graph = harness.engine.new_graph(joins=joins, is_long=is_long)
        self.template = self.graph.template(harness.function(function), SubmitOptions())

    def add(self, name: str = "", *after: str, ids: tuple[int, ...] = (), edges: bytes = b"") -> int:
        names = [word.encode() for word in after]
        return self.graph.add(self.template, b"payload", name.encode(), ids, names, edges)

    def submit(self) -> list[Job]:
        jobs = self.harness.engine.submit_graph(self.graph)
        check_engine(self.harness.engine)
        return jobs

    def refused(self) -> str:
        """Submit it in vain, which changes nothing; returns why."""
        engine = self.harness.engine
        before = (engine.job_count(), engine.next_job_id, engine.memory.job_bytes, list(engine.changed))
        with pytest.raises(Refused) as refused:
            engine.submit_graph(self.graph)
        assert before == (engine.job_count(), engine.next_job_id, engine.memory.job_bytes, list(engine.changed))
        check_engine(engine)
        return str(refused.value)


def named(harness: Harness, name: str) -> Job:
    job = harness.engine.named(name.encode())
    assert job is not None
    return job


def states(*jobs: Job) -> list[JobState]:
    return [job.state for job in jobs]


# --- short graphs ---


def test_jobs_wait_for_each_other_by_number_by_name_and_by_id(harness: Harness) -> None:
    before = harness.submit()
    graph = Graph(harness)
    first = graph.add("first")
    second = graph.add("", "first", ids=(before.id,))
    graph.add("third", ids=(first, second))
    jobs = graph.submit()
    assert [job.predecessors for job in jobs] == [(), (before.id, jobs[0].id), (jobs[0].id, jobs[1].id)]
    assert states(*jobs) == [READY, WAITING, WAITING]
    assert [graph.graph.id_of(number) for number in (first, second)] == ids(*jobs[:2])
    assert harness.drain_with(harness.worker()) == ids(before, *jobs)


def test_all_options_are_obeyed(harness: Harness) -> None:
    peer = RecordingPeer()
    graph = harness.engine.new_graph()
    options = SubmitOptions(run_at_us=harness.at(5), attempts_limit=7, origin="here", key=b"k")
    template = graph.template(harness.function(), options, HIGH, Delivery.WAIT, peer)
    graph.add(template, b"one", b"first")
    graph.add(template, b"two", b"second", predecessor_names=(b"first",))
    one, two = harness.engine.submit_graph(graph)
    assert states(one, two) == [SCHEDULED, WAITING]
    assert [
        (job.payload, job.priority, job.delivery, job.attempts_limit, job.origin, job.key) for job in (one, two)
    ] == [
        (b"one", HIGH, Delivery.WAIT, 7, "here", b"k"),
        (b"two", HIGH, Delivery.WAIT, 7, "here", b"k"),
    ]
    assert list(peer.subscriptions) == ids(one, two)
    check_engine(harness.engine)


def test_edges_say_what_a_failure_means(harness: Harness) -> None:
    graph = Graph(harness)
    first = graph.add("first")
    graph.add("doomed", ids=(first,), edges=bytes([EdgePolicy.FAIL]))
    graph.add("anyway", "first", edges=bytes([EdgePolicy.RUN]))
    jobs = graph.submit()
    harness.engine.cancel(jobs[0])
    assert [state_of(job) for job in jobs] == [CANCELLED, FAILED, READY]


def test_a_refused_graph_can_be_withdrawn_by_nobody_because_nothing_was_submitted(harness: Harness) -> None:
    harness.submit(name=b"taken")
    graph = Graph(harness)
    graph.add("free")
    with pytest.raises(Refused, match="there is an unfinished job named taken"):
        graph.add("taken")
    assert harness.engine.named(b"free") is None


def test_two_jobs_of_one_name_are_refused(harness: Harness) -> None:
    graph = Graph(harness)
    graph.add("a")
    with pytest.raises(Refused, match="two jobs of one graph are named a"):
        graph.add("a")


def test_a_predecessor_that_nobody_knows_is_refused(harness: Harness) -> None:
    with pytest.raises(Refused, match="there is no unfinished job named later"):
        Graph(harness).add("a", "later")


def test_a_predecessor_that_failed_is_known_by_name(harness: Harness) -> None:
    failed = harness.ended(FAILED, name=b"bad")
    graph = Graph(harness)
    graph.add("a", "bad")
    [job] = graph.submit()
    assert (job.state, job.predecessors) == (WAITING, (failed.id,))


def test_limits_hold_for_the_graph_as_a_whole(harness: Harness) -> None:
    harness.engine.set_limits(harness.function(), 0, 3, 0)
    for count, answer in ((4, "Job queue is full"), (3, "")):
        graph = Graph(harness)
        for _ in range(count):
            graph.add()
        assert (graph.refused() if answer else len(graph.submit())) == (answer or count)


def test_the_limit_of_all_jobs_holds_for_the_graph_as_a_whole() -> None:
    harness = Harness(jobs=5)
    harness.submit(b"other")
    graph = Graph(harness)
    for _ in range(5):
        graph.add()
    assert graph.refused() == "Job queue is full"


def test_there_must_be_memory_for_all_of_it() -> None:
    harness = Harness(memory_bytes=100_000)
    graph = Graph(harness)
    for _ in range(100):
        graph.add()
    assert graph.refused().startswith("no memory for 100 jobs or more")


def test_a_very_large_one_is_refused_before_all_of_it_is_described() -> None:
    graph = Graph(Harness(memory_bytes=100_000))
    for _ in range(999):
        graph.add()
    with pytest.raises(Refused, match="no memory for 1000 jobs or more"):
        graph.add()


def test_a_server_that_drains_takes_none(harness: Harness) -> None:
    harness.engine.drain()
    graph = Graph(harness)
    graph.add()
    assert "shutting down" in graph.refused()


# --- graphs that join what exists ---


def test_a_job_that_exists_waits_for_more(harness: Harness) -> None:
    old = harness.submit(name=b"old")
    graph = Graph(harness, joins=True)
    graph.add("new")
    assert graph.add("old", "new") == old.id
    [new] = graph.submit()
    assert (graph.graph.existing, old.predecessors, state_of(old)) == ([old], (new.id,), WAITING)


def test_a_job_that_runs_cannot_be_made_to_wait_by_others(harness: Harness) -> None:
    _, job = harness.running(name=b"a")
    graph = Graph(harness, joins=True)
    graph.add("b")
    with pytest.raises(Refused, match=f"job {job.id} is being worked on"):
        graph.add("a", "b")
    assert Graph(harness, joins=True).add("a") == job.id  # which changes nothing


def test_a_job_of_another_function_has_the_name(harness: Harness) -> None:
    harness.submit(b"other", name=b"a")
    with pytest.raises(Refused, match="an unfinished job of another kind has the name a"):
        Graph(harness, joins=True).add("a")


@pytest.mark.parametrize("is_long", [False, True])
def test_a_cycle_is_refused_and_named(harness: Harness, is_long: bool) -> None:
    harness.submit(name=b"old")
    graph = Graph(harness, joins=True, is_long=is_long)
    graph.add("x", "old")
    graph.add("y", "x")
    graph.add("old", "y")
    assert graph.refused() == "jobs would wait for each other: old -> y -> x -> old"


def test_a_job_cannot_wait_for_itself(harness: Harness) -> None:
    with pytest.raises(CycleRefused, match="a -> a"):
        Graph(harness, joins=True).add("a", "a")


def test_jobs_are_submitted_after_those_that_they_are_told_later_to_wait_for(harness: Harness) -> None:
    graph = Graph(harness, joins=True)
    numbers = [graph.add("a"), graph.add("b"), graph.add("c")]
    graph.add("a", "b")
    graph.add("b", "c")
    jobs = graph.submit()
    assert [job.name for job in jobs] == [b"c", b"b", b"a"]
    assert [job.predecessors for job in jobs] == [(), (jobs[0].id,), (jobs[1].id,)]
    assert [graph.graph.id_of(number) for number in numbers] == ids(*reversed(jobs))


def provide(graph: GraphSubmission, *names: str, **jobs: Job) -> None:
    for job_id in graph.unsuccessful_among([name.encode() for name in names]):
        graph.provide(job_id, next((job for job in jobs.values() if job.id == job_id), None))


def test_one_that_failed_is_retried_for_those_that_wait_for_it(harness: Harness) -> None:
    failed = harness.ended(FAILED, name=b"bad")
    waiting = harness.submit(after=(failed,))
    graph = Graph(harness, joins=True)
    provide(graph.graph, "bad", bad=failed)
    graph.add("new")
    assert graph.add("bad", "new") == failed.id
    [new] = graph.submit()
    assert harness.drain_with(harness.worker()) == ids(new, failed, waiting)


def test_one_that_failed_and_is_not_known_any_more_is_a_new_job(harness: Harness) -> None:
    failed = harness.ended(FAILED, name=b"bad")
    graph = Graph(harness, joins=True)
    provide(graph.graph, "bad")
    graph.add("bad")
    [new] = graph.submit()
    assert new.id != failed.id


def test_one_that_fails_between_the_question_and_the_answer_is_to_be_tried_again(harness: Harness) -> None:
    graph = Graph(harness, joins=True)
    provide(graph.graph, "bad")
    failed = harness.ended(FAILED, name=b"bad")
    with pytest.raises(Refused, match=f"job {failed.id} has just failed; try again"):
        graph.add("bad")


def test_a_job_whose_failure_is_not_stored_yet_cannot_be_provided_as_it_was(harness: Harness) -> None:
    failed = harness.ended(FAILED, name=b"bad")
    old = harness.submit()
    with pytest.raises(Refused, match=f"that job {failed.id} failed is being written down"):
        Graph(harness, joins=True).graph.provide(failed.id, old)


def test_a_worker_returns_jobs_that_wait_for_more(harness: Harness) -> None:
    worker = harness.worker()
    first, second = harness.submit(name=b"first"), harness.submit(name=b"second")
    assert [harness.engine.take(worker), harness.engine.take(worker)] == [first, second]
    last = harness.submit(name=b"last")
    harness.engine.drain()  # what a worker has it may always return
    graph = Graph(harness, joins=True)
    graph.graph.release(worker, first, [b"last"])
    graph.graph.release(worker, second, [])
    graph.submit()
    assert (states(first, second), first.predecessors) == ([WAITING, READY], (last.id,))


def test_a_restart_knows_which_names_failed(harness: Harness) -> None:
    failed = [harness.ended(FAILED, name=b"t%d" % number) for number in range(5_000)]
    again, _ = restarted(harness, *failed)
    graph = Graph(again, joins=True)
    graph.add("a", "t0")
    graph.add("b", "t4999")
    assert states(*graph.submit()) == [WAITING, WAITING]


def test_beyond_what_is_in_memory_the_store_is_asked(harness: Harness) -> None:
    harness.engine.unsuccessful_jobs.most_jobs = 10
    failed = [harness.ended(FAILED, name=b"t%d" % number) for number in range(30)]
    graph = Graph(harness, joins=True)
    assert harness.engine.has_unsuccessful_names
    assert graph.graph.unknown_among([b"t0", b"t29", b"nobody"]) == [b"t0", b"nobody"]
    graph.graph.recall(failed[0])
    graph.add("a", "t0")
    [job] = graph.submit()
    assert (job.state, job.predecessors) == (WAITING, (failed[0].id,))


# --- long graphs ---


def steps_of(graph: GraphSubmission) -> Iterator[None]:
    yield from graph.check()
    yield from graph.apply()
    graph.end()


def test_nothing_is_seen_of_a_long_one_before_it_is_accepted(harness: Harness) -> None:
    graph = Graph(harness, is_long=True)
    assert graph.graph.begin()
    for number in range(50):
        graph.add(f"t{number}", *([f"t{number - 1}"] if number else []))
    assert (harness.engine.job_count(), harness.engine.take_changes()[0]) == (0, [])
    for _ in steps_of(graph.graph):
        check_engine(harness.engine)
    assert harness.drain_with(harness.worker()) == list(range(1, 51))


def test_others_submit_in_between_and_ids_follow(harness: Harness) -> None:
    graph = Graph(harness, is_long=True)
    graph.graph.begin()
    first = graph.add("a")
    graph.add("b", ids=(first,))
    steps = steps_of(graph.graph)
    next(steps)
    other = harness.submit()
    for _ in steps:
        pass
    assert named(harness, "b").predecessors == (named(harness, "a").id,) == (graph.graph.id_of(first),)
    assert other.id == named(harness, "a").id + 1


def test_one_long_one_at_a_time(harness: Harness) -> None:
    one, two = Graph(harness, is_long=True), Graph(harness, is_long=True)
    assert one.graph.begin()
    assert not two.graph.begin()
    assert harness.engine.is_graph_under_way
    one.graph.end()
    assert two.graph.begin()


def test_who_must_wait_for_a_long_one(harness: Harness) -> None:
    harness.submit(name=b"old")
    graph = Graph(harness, is_long=True)
    must_wait = harness.engine.must_wait_for_graph
    assert not must_wait(b"new", [b"old"])
    graph.graph.begin()
    graph.add("reserved")
    assert must_wait(b"reserved", [])
    assert must_wait(b"new", [b"reserved"])
    assert must_wait(b"old", [b"other"])  # it would wait for more
    assert not must_wait(b"old", [])
    assert not must_wait(b"new", [b"old"])
    with pytest.raises(Refused, match="there is an unfinished job named reserved"):
        Graph(harness).add("reserved")


def test_what_was_checked_is_carried_out_whatever_happens_meanwhile(harness: Harness) -> None:
    failed = harness.ended(FAILED, name=b"bad")
    graph = Graph(harness, joins=True, is_long=True)
    graph.graph.begin()
    provide(graph.graph, "bad", bad=failed)
    graph.add("a")
    graph.add("bad", "a")
    for _ in graph.graph.check():
        pass
    harness.engine.refusal = Refused("storage", "the disk is full")
    for _ in graph.graph.apply():
        check_engine(harness.engine)
    graph.graph.end()
    assert (named(harness, "a").state, failed.state) == (READY, WAITING)


# --- very many predecessors ---


def wide(harness: Harness, count: int, *, edges: bytes = b"", is_long: bool = True) -> tuple[list[Job], Graph, int]:
    """A job that will wait for very many, described in portions."""
    before = [harness.submit() for _ in range(count)]
    graph = Graph(harness, is_long=is_long)
    if is_long:
        graph.graph.begin()
    if edges:
        last = graph.add("last", ids=tuple(ids(*before)), edges=edges * count)
    else:
        last = graph.add("last")
        for start in range(0, count, 700):
            graph.graph.extend(last, ids(*before[start : start + 700]))
    return before, graph, last


@pytest.mark.parametrize("is_long", [True, False])
def test_a_job_waits_for_very_many(harness: Harness, is_long: bool) -> None:
    before, graph, last = wide(harness, 3_500, is_long=is_long)
    steps = 0
    for _ in steps_of(graph.graph):
        steps += 1
        if steps % 50 == 0:
            check_engine(harness.engine)
    job = named(harness, "last")
    assert (job.state, job.blockers, job.predecessors) == (WAITING, 3_500, tuple(ids(*before)))
    assert (graph.graph.id_of(last), steps) == (job.id, 2 * 3_500 // LINKED_PER_STEP + 1)
    assert harness.drain_with(harness.worker())[-1] == job.id


def test_predecessors_may_end_while_it_is_linked_to_them(harness: Harness) -> None:
    before, graph, _ = wide(harness, 2_500)
    worker = harness.worker()
    for place, _ in enumerate(steps_of(graph.graph)):
        if place % 50 == 0:
            for _ in range(300):
                job = harness.engine.take(worker)
                assert job is not None
                harness.engine.complete(worker, job.id, b"")
            check_engine(harness.engine)
    last = named(harness, "last")
    done = sum(job.state is DONE for job in before)
    assert (last.state, last.blockers) == (WAITING, 2_500 - done)
    harness.drain_with(worker)
    assert last.state is DONE


def test_all_predecessors_may_be_done_by_then(harness: Harness) -> None:
    _, graph, _ = wide(harness, 2_500)
    worker = harness.worker()
    steps = steps_of(graph.graph)
    for _ in range(150):  # it is linked to some of them
        next(steps)
    harness.drain_with(worker)
    check_engine(harness.engine)
    for _ in steps:
        pass
    check_engine(harness.engine)
    assert named(harness, "last").state is READY


@pytest.mark.parametrize(
    ("policy", "state"), [(EdgePolicy.WAIT, WAITING), (EdgePolicy.FAIL, FAILED), (EdgePolicy.RUN, WAITING)]
)
def test_a_predecessor_may_fail_while_it_is_linked(harness: Harness, policy: EdgePolicy, state: JobState) -> None:
    before, graph, _ = wide(harness, 2_500, edges=bytes([policy]))
    for place, _ in enumerate(steps_of(graph.graph)):
        if place == 150:
            harness.engine.cancel(before[0])  # which it is linked to
            harness.engine.cancel(before[-1])  # which it is not
            check_engine(harness.engine)
        job = harness.engine.named(b"last") or graph
    harness.pass_seconds(0)
    assert isinstance(job, Job)
    assert state_of(job) is state
    check_engine(harness.engine)
    harness.drain_with(harness.worker())
    assert (state_of(job) is DONE) == (policy is EdgePolicy.RUN)


def test_a_predecessor_that_is_named_twice_counts_once(harness: Harness) -> None:
    before = harness.submit()
    graph = Graph(harness, is_long=True)
    graph.graph.begin()
    graph.add("last", ids=(before.id,) * 2_500)
    for _ in steps_of(graph.graph):
        pass
    check_engine(harness.engine)
    assert named(harness, "last").blockers == 1
    assert len(harness.drain_with(harness.worker())) == 2


def test_it_leaves_its_predecessors_over_several_turns(harness: Harness) -> None:
    before, graph, _ = wide(harness, 3_500)
    for _ in steps_of(graph.graph):
        pass
    last = named(harness, "last")
    harness.pass_seconds(0)
    harness.engine.cancel(last)
    turns = 0
    while len(harness.engine.sliced_work):
        check_engine(harness.engine)
        worker = harness.worker()
        job = harness.engine.take(worker)
        assert job is not None
        harness.engine.complete(worker, job.id, b"")
        harness.engine.cancel(before[-1 - turns])
        harness.pass_seconds(0)
        turns += 1
    assert turns == 3_500 // UNITS_PER_TURN
    assert (len(harness.engine.dependencies.successors), last.blockers, harness.function().waiting) == (0, 0, 0)
    check_engine(harness.engine)


def test_it_can_be_retried_before_that(harness: Harness) -> None:
    before, graph, _ = wide(harness, 3_500)
    for _ in steps_of(graph.graph):
        pass
    last = named(harness, "last")
    harness.pass_seconds(0)
    harness.engine.cancel(last)
    harness.engine.retry(last)
    assert (last.state, last.blockers) == (WAITING, len(before))
    check_engine(harness.engine)
    assert harness.drain_with(harness.worker())[-1] == last.id


def test_normal_is_the_usual_priority(harness: Harness) -> None:
    graph = Graph(harness)
    graph.add()
    [job] = graph.submit()
    assert (job.priority, job.delivery) == (NORMAL, Delivery.HANDLE)
    assert harness.engine.take(harness.worker()) is job
    assert state_of(job) is RUNNING


def test_a_task_that_is_named_very_often_with_one_more_predecessor_each_time_takes_no_longer_each_time(
    harness: Harness,
) -> None:
    graph = Graph(harness, joins=True, is_long=True)
    others = [graph.add(f"other {number}") for number in range(30_000)]
    began = time.process_time()
    for number in range(30_000):
        graph.add("sum", f"other {number}")
    graph.add("sum", *(f"other {number}" for number in range(30_000)))
    assert time.process_time() - began < 5  # seconds; half of one on a quiet machine, and eight if it were quadratic
    for _ in graph.graph.check():
        pass
    for _ in graph.graph.apply():
        pass
    assert named(harness, "sum").predecessors == tuple(graph.graph.id_of(number) for number in others)
