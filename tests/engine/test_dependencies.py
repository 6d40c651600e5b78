"""Jobs that wait for others: release, failure, retry, and circles."""

from __future__ import annotations

import pytest

from switchgear.engine import cycle_search, dependencies
from switchgear.engine.transitions import FAILURES_PER_TURN
from switchgear.errors import CycleRefused, Refused
from switchgear.model import CANCELLED, DONE, FAILED, READY, RUNNING, SCHEDULED, WAITING, Cause, Job, JobState
from switchgear.refusals import REFUSED_CONFLICT
from tests.engine.harness import Harness, causes, ids, peer_of, state_of


def test_a_job_waits_until_all_its_predecessors_are_done(harness: Harness) -> None:
    first, second = harness.submit(), harness.submit()
    job = harness.submit(b"other", after=(first, second))
    worker = harness.worker()
    assert (job.state, job.blockers) == (WAITING, 2)
    harness.engine.complete(worker, harness.engine.take(worker).id, b"")  # type: ignore[union-attr]
    assert (job.state, job.blockers) == (WAITING, 1)
    assert harness.drain_with(worker) == [second.id]
    assert (job.state, job.blockers) == (READY, 0)
    assert causes(job) == [Cause.SUBMITTED_WAITING, Cause.RELEASED]


def test_a_predecessor_named_twice_counts_once(harness: Harness) -> None:
    first = harness.submit()
    job = harness.submit(predecessors=(first.id, first.id))
    assert job.predecessors == (first.id,)
    assert harness.drain_with(harness.worker()) == ids(first, job)


def test_a_predecessor_that_is_done_or_unknown_does_not_count(harness: Harness) -> None:
    done = harness.ended(DONE)
    job = harness.submit(predecessors=(done.id, 999))
    assert state_of(job) is READY
    assert job.predecessors == (done.id, 999)


def test_released_jobs_come_in_the_order_in_which_they_began_to_wait(harness: Harness) -> None:
    first = harness.submit()
    waiting = [harness.submit(after=(first,)) for _ in range(3 * dependencies.MOST_IN_TUPLE)]
    assert harness.drain_with(harness.worker()) == ids(first, *waiting)


def test_a_released_job_may_still_have_to_wait_for_its_time(harness: Harness) -> None:
    first = harness.submit()
    job = harness.submit(after=(first,), run_at_us=harness.at(10))
    harness.drain_with(harness.worker())
    assert state_of(job) is SCHEDULED
    harness.pass_seconds(10)
    assert state_of(job) is READY
    assert causes(job) == [Cause.SUBMITTED_WAITING, Cause.RELEASED_EARLY, Cause.DUE]


def test_a_time_that_has_come_while_it_waited_is_not_waited_for(harness: Harness) -> None:
    first = harness.submit()
    job = harness.submit(after=(first,), run_at_us=harness.at(10))
    harness.pass_seconds(11)
    assert state_of(job) is WAITING
    harness.drain_with(harness.worker())
    assert causes(job)[:2] == [Cause.SUBMITTED_WAITING, Cause.RELEASED]


@pytest.mark.parametrize("end", [JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED])
def test_a_predecessor_that_was_not_done_leaves_its_successors_waiting(harness: Harness, end: JobState) -> None:
    job = harness.submit(b"other", after=(harness.ended(end),))
    assert state_of(job) is WAITING
    assert job.id in harness.engine.jobs


def test_a_failed_predecessor_leaves_its_successors_waiting(harness: Harness) -> None:
    worker, first = harness.running()
    job = harness.submit(b"other", after=(first,))
    harness.engine.fail(worker, first.id)
    assert state_of(job) is WAITING
    assert harness.engine.dependencies.unsuccessful == {first.id: FAILED}


def test_they_go_on_when_it_is_retried_and_done(harness: Harness) -> None:
    worker, first = harness.running()
    job = harness.submit(b"other", after=(first,))
    harness.engine.fail(worker, first.id)
    harness.engine.retry(first)
    assert state_of(job) is WAITING
    assert harness.drain_with(worker) == [first.id]
    assert state_of(job) is READY
    assert harness.engine.dependencies.unsuccessful == {}


def test_settling_releases_too(harness: Harness) -> None:
    first = harness.submit()
    job = harness.submit(after=(first,))
    assert harness.engine.complete_unowned(first)
    assert state_of(job) is READY


def test_a_job_that_ended_waits_for_nothing(harness: Harness) -> None:
    first, second = harness.submit(), harness.submit()
    job = harness.submit(after=(first, second))
    harness.engine.cancel(job)
    assert job.blockers == 0
    assert not len(harness.engine.dependencies.successors)


def test_any_of_very_many_successors_can_leave(harness: Harness) -> None:
    first = harness.submit()
    waiting = [harness.submit(after=(first,)) for _ in range(2 * FAILURES_PER_TURN)]
    for job in waiting[::2]:
        harness.engine.cancel(job)
    assert harness.engine.dependencies.waiting_for(first.id) == waiting[1::2]
    assert harness.drain_with(harness.worker()) == ids(first, *waiting[1::2])


# --- more to wait for ---


@pytest.mark.parametrize("state", [SCHEDULED, READY])
def test_a_queued_job_can_be_held_back(harness: Harness, state: JobState) -> None:
    job = harness.submit(run_at_us=harness.at(10) if state is SCHEDULED else 0)
    other = harness.submit(b"other")
    harness.engine.add_predecessors(job, (other.id,))
    assert state_of(job) is WAITING
    assert job.predecessors == (other.id,)
    harness.pass_seconds(10)
    assert state_of(job) is WAITING
    harness.drain_with(harness.worker(b"other"))
    assert harness.drain_with(harness.worker()) == [job.id]


def test_a_waiting_job_gets_one_more_to_wait_for(harness: Harness) -> None:
    first, second = harness.submit(), harness.submit()
    job = harness.submit(b"other", after=(first,))
    harness.engine.add_predecessors(job, (first.id, second.id, 999))
    assert job.predecessors == (first.id, second.id, 999)
    assert job.blockers == 2
    assert Cause.HELD_BACK not in causes(job)


def test_a_running_job_can_be_held_back_and_its_worker_is_told(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.data(worker, job.id, b"half")
    other = harness.submit(b"other")
    harness.engine.add_predecessors(job, (other.id,))
    assert state_of(job) is WAITING
    assert worker.running == {}
    assert peer_of(worker).heard == [("revoke", worker.id, job.id)]
    assert harness.engine.complete(worker, job.id, b"") is None
    assert (job.attempts, job.chunks) == (0, None)


def test_being_held_back_spends_no_attempt(harness: Harness) -> None:
    worker, job = harness.running(attempts_limit=1)
    for _ in range(3):
        other = harness.submit(b"other")
        harness.engine.add_predecessors(job, (other.id,))
        harness.engine.complete_unowned(other)
        assert harness.engine.take(worker) is job
        assert job.attempts == 1
    harness.engine.remove_worker(worker)
    assert job.is_dead


def test_adding_what_is_done_changes_nothing_but_the_list(harness: Harness) -> None:
    worker, job = harness.running()
    done = harness.ended(DONE)
    harness.engine.add_predecessors(job, (done.id,))
    assert state_of(job) is RUNNING
    assert job.predecessors == (done.id,)
    assert harness.engine.complete(worker, job.id, b"") is job


@pytest.mark.parametrize("end", [DONE, FAILED, CANCELLED])
def test_a_finished_job_can_be_made_to_wait_for_nothing_more(harness: Harness, end: JobState) -> None:
    job = harness.ended(end)
    other = harness.submit(b"other")
    with pytest.raises(Refused, match=f"job {job.id} is {end.name.lower()}") as refused:
        harness.engine.add_predecessors(job, (other.id,))
    assert refused.value.reason == REFUSED_CONFLICT
    assert job.predecessors == ()


def test_held_back_after_its_expiry_a_job_expires(harness: Harness) -> None:
    _, job = harness.running(expires_us=harness.at(1))
    harness.pass_seconds(2)
    harness.engine.add_predecessors(job, (harness.submit(b"other").id,))
    assert causes(job)[-2:] == [Cause.HELD_BACK, Cause.EXPIRED]


def test_a_waiting_job_whose_expiry_has_passed_expires_when_it_is_to_wait_for_more(harness: Harness) -> None:
    job = harness.submit(after=(harness.submit(b"other"),), expires_us=harness.at(0))
    harness.engine.add_predecessors(job, (harness.submit(b"other").id,))
    assert causes(job)[-1] is Cause.EXPIRED
    assert not len(harness.engine.dependencies.successors)


# --- circles ---


def test_a_job_cannot_wait_for_itself(harness: Harness) -> None:
    job = harness.submit(name=b"Anna")
    with pytest.raises(CycleRefused, match=r"wait for each other: Anna -> Anna$"):
        harness.engine.add_predecessors(job, (job.id,))
    assert state_of(job) is READY


def chain(harness: Harness, *names: bytes) -> list[Job]:
    """Each waits for the one before it."""
    jobs: list[Job] = []
    for name in names:
        jobs.append(harness.submit(name=name, after=tuple(jobs[-1:])))
    return jobs


def test_a_circle_is_refused_naming_it_in_the_order_of_waiting(harness: Harness) -> None:
    first, _, third = chain(harness, b"a", b"b", b"c")
    with pytest.raises(CycleRefused) as refused:
        harness.engine.add_predecessors(first, (third.id,))
    assert refused.value.path == ["a", "c", "b", "a"]
    assert str(refused.value) == "jobs would wait for each other: a -> c -> b -> a"
    assert refused.value.reason == "cycle"


def test_jobs_without_a_name_are_named_by_their_number(harness: Harness) -> None:
    first = harness.submit()
    second = harness.submit(after=(first,))
    with pytest.raises(CycleRefused, match=f"job {first.id} -> job {second.id} -> job {first.id}$"):
        harness.engine.add_predecessors(first, (second.id,))


def test_a_refused_circle_changes_nothing(harness: Harness) -> None:
    first, second, third = chain(harness, b"a", b"b", b"c")
    outside = harness.submit(b"other")
    with pytest.raises(CycleRefused):
        harness.engine.add_predecessors(first, (outside.id, third.id))
    assert state_of(first) is READY
    assert first.predecessors == ()
    assert harness.drain_with(harness.worker()) == ids(first, second, third)


def test_a_circle_through_many_paths_is_found(harness: Harness) -> None:
    first = harness.submit(name=b"first")
    middle = [harness.submit(after=(first,)) for _ in range(2 * dependencies.MOST_IN_TUPLE)]
    last = harness.submit(after=tuple(middle), name=b"last")
    with pytest.raises(CycleRefused) as refused:
        harness.engine.add_predecessors(first, (last.id,))
    assert refused.value.path[:2] == ["first", "last"]
    assert refused.value.path[-1] == "first"
    assert len(refused.value.path) == 4


def test_a_long_circle_is_named_by_its_ends(harness: Harness) -> None:
    jobs = chain(harness, *(b"%d" % number for number in range(1000)))
    with pytest.raises(CycleRefused) as refused:
        harness.engine.add_predecessors(jobs[0], (jobs[-1].id,))
    path = refused.value.path
    assert path[:3] == ["0", "999", "998"]
    assert path[10] == "(981 others)"
    assert path[-3:] == ["2", "1", "0"]
    assert len(path) == 21


def test_the_root_of_very_many_jobs_may_wait_for_a_new_one_at_once(harness: Harness) -> None:
    """Only one side of the search is long, so it is not."""
    root = harness.submit()
    for _ in range(2000):
        harness.submit(after=(root,))
    for _ in harness.engine.search_cycle(root, (harness.submit().id,)):
        pytest.fail("the search took more than one step")


def long_search(harness: Harness) -> tuple[Job, Job]:
    """Two jobs: very many wait for the first, and the second one waits for very many."""
    first = chain(harness, *(b"a%d" % number for number in range(3000)))[0]
    return first, chain(harness, *(b"b%d" % number for number in range(3000)))[-1]


def test_a_search_that_is_long_on_both_sides_takes_several_steps(harness: Harness) -> None:
    first, second = long_search(harness)
    assert len(list(harness.engine.search_cycle(first, (second.id,)))) == 2
    harness.engine.add_predecessors(first, (second.id,), is_checked=True)
    assert first.state is WAITING


def test_a_search_among_very_many_jobs_without_further_edges_takes_several_steps(harness: Harness) -> None:
    first = chain(harness, *(b"a%d" % number for number in range(3000)))[0]
    others = [harness.submit().id for _ in range(4000)]
    search = harness.engine.dependencies.search_cycle(first, others)
    begun = 2 * (len(others) // cycle_search.BLOCKERS_PER_STEP - 1)
    per_step = cycle_search.ROUNDS_PER_STEP * cycle_search.EDGES_PER_ROUND
    assert len(list(search)) >= begun + 2000 // per_step  # by then the other side has been seen

    root = harness.submit()
    for _ in range(3000):
        harness.submit(after=(root,))
    search = harness.engine.dependencies.search_cycle(root, [chain(harness, *[b""] * 4000)[-1].id])
    assert len(list(search)) >= 3000 // per_step


def test_a_circle_that_is_closed_during_the_search_is_found(harness: Harness) -> None:
    first, second = long_search(harness)
    search = harness.engine.search_cycle(first, (second.id,))
    next(search)
    beginning, last = harness.engine.named(b"b0"), harness.engine.named(b"a2999")
    assert beginning is not None
    assert last is not None
    harness.engine.add_predecessors(beginning, (last.id,))
    with pytest.raises(CycleRefused):
        list(search)


def test_a_circle_that_ends_during_the_search_is_none(harness: Harness) -> None:
    first, second = long_search(harness)
    beginning, last = harness.engine.named(b"b0"), harness.engine.named(b"a2999")
    assert beginning is not None
    assert last is not None
    harness.engine.add_predecessors(beginning, (last.id,))
    search = harness.engine.search_cycle(first, (second.id,))
    next(search)
    harness.engine.cancel(last)
    list(search)
    harness.engine.add_predecessors(first, (second.id,))
    assert first.state is WAITING


def test_a_search_among_jobs_that_change_all_the_time_is_given_up(harness: Harness) -> None:
    first, second = long_search(harness)

    def search() -> None:
        for _ in harness.engine.search_cycle(first, (second.id,)):
            harness.engine.add_predecessors(harness.submit(), (harness.submit().id,))

    with pytest.raises(Refused, match="others change the jobs that wait for job 1 all the time"):
        search()


def test_a_diamond_is_no_circle(harness: Harness) -> None:
    first = harness.submit()
    left, right = harness.submit(after=(first,)), harness.submit(after=(first,))
    last = harness.submit(after=(left,))
    harness.engine.add_predecessors(last, (right.id,))
    assert harness.drain_with(harness.worker()) == ids(first, left, right, last)


def test_a_circle_that_a_retry_would_close_is_refused(harness: Harness) -> None:
    first, second = chain(harness, b"a", b"b")
    harness.engine.cancel(second)
    harness.engine.add_predecessors(first, (second.id,))
    with pytest.raises(CycleRefused, match="b -> a -> b"):
        harness.engine.retry(second)
    assert state_of(second) is CANCELLED
    assert harness.engine.dependencies.unsuccessful == {second.id: CANCELLED}


# --- what failed is remembered, but not for ever ---


def test_old_failures_are_forgotten_unless_a_job_waits_for_them(harness: Harness) -> None:
    harness.engine.unsuccessful_jobs.most_jobs = 11
    failures = [harness.ended(CANCELLED)]
    waiting = harness.submit(b"other", after=(failures[0],))
    failures += [harness.ended(CANCELLED) for _ in range(20)]
    assert list(harness.engine.dependencies.unsuccessful) == ids(failures[0], *failures[-10:])
    assert harness.submit(b"other", after=(failures[1],)).state is READY
    assert harness.submit(b"other", after=(failures[-10],)).state is WAITING
    harness.engine.retry(failures[0])
    harness.drain_with(harness.worker())
    assert state_of(waiting) is READY


def test_failures_that_jobs_wait_for_are_remembered_however_many_there_are(harness: Harness) -> None:
    harness.engine.unsuccessful_jobs.most_jobs = 20
    for _ in range(200):
        harness.submit(b"other", after=(harness.ended(CANCELLED),))
    assert len(harness.engine.dependencies.unsuccessful) == 200


def test_jobs_that_fail_and_are_retried_again_and_again_leave_nothing_behind(harness: Harness) -> None:
    harness.engine.unsuccessful_jobs.most_jobs = 2
    worker, job = harness.running()
    for _ in range(5000):
        harness.engine.fail(worker, job.id)
        harness.engine.retry(job)
        assert harness.engine.take(worker) is job
    old = harness.ended(FAILED)
    assert harness.engine.dependencies.unsuccessful == {old.id: FAILED}


def test_of_all_that_are_waited_for_only_the_unsuccessful_are_listed(harness: Harness) -> None:
    failed, _nobody_waits = harness.ended(FAILED), harness.ended(FAILED)
    waiting = harness.submit(b"other", after=(failed, harness.submit()))
    harness.submit(b"other", after=(waiting,))
    assert harness.engine.dependencies.unsuccessful_with_successors() == {failed.id}
    harness.engine.cancel(waiting)
    assert harness.engine.dependencies.unsuccessful_with_successors() == {waiting.id}


def test_a_retried_job_may_be_told_to_wait_for_more(harness: Harness) -> None:
    failed = harness.ended(FAILED)
    first = harness.submit()
    harness.engine.retry(failed, (first.id, first.id))
    assert (failed.state, failed.predecessors) == (WAITING, (first.id,))
    assert harness.drain_with(harness.worker()) == ids(first, failed)


def test_a_retry_that_would_close_a_circle_changes_nothing(harness: Harness) -> None:
    failed = harness.ended(FAILED)
    successor = harness.submit(after=(failed,))
    with pytest.raises(CycleRefused):
        harness.engine.retry(failed, (successor.id,))
    assert (failed.state, failed.predecessors) == (FAILED, ())
