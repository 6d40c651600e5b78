"""Jobs that wait for others: release, failure, retry, and circles."""

from __future__ import annotations

import pytest

from switchgear.engine import dependencies
from switchgear.errors import CycleRefused, Refused
from switchgear.model import CANCELLED, DONE, FAILED, READY, RUNNING, SCHEDULED, WAITING, Cause, Job, JobState
from switchgear.refusals import REFUSED_CONFLICT
from tests.engine.house import House, causes, ids, peer_of, state_of


def test_a_job_waits_until_all_its_predecessors_are_done(house: House) -> None:
    first, second = house.submit(), house.submit()
    job = house.submit(b"other", after=(first, second))
    worker = house.worker()
    assert (job.state, job.blockers) == (WAITING, 2)
    house.engine.complete(worker, house.engine.take(worker).id, b"")  # type: ignore[union-attr]
    assert (job.state, job.blockers) == (WAITING, 1)
    assert house.drain_with(worker) == [second.id]
    assert (job.state, job.blockers) == (READY, 0)
    assert causes(job) == [Cause.SUBMITTED_WAITING, Cause.RELEASED]


def test_a_predecessor_named_twice_counts_once(house: House) -> None:
    first = house.submit()
    job = house.submit(predecessors=(first.id, first.id))
    assert job.predecessors == (first.id,)
    assert house.drain_with(house.worker()) == ids(first, job)


def test_a_predecessor_that_is_done_or_unknown_does_not_count(house: House) -> None:
    done = house.ended(DONE)
    job = house.submit(predecessors=(done.id, 999))
    assert state_of(job) is READY
    assert job.predecessors == (done.id, 999)


def test_released_jobs_come_in_the_order_in_which_they_began_to_wait(house: House) -> None:
    first = house.submit()
    waiting = [house.submit(after=(first,)) for _ in range(3 * dependencies.MOST_IN_TUPLE)]
    assert house.drain_with(house.worker()) == ids(first, *waiting)


def test_a_released_job_may_still_have_to_wait_for_its_time(house: House) -> None:
    first = house.submit()
    job = house.submit(after=(first,), run_at_us=house.at(10))
    house.drain_with(house.worker())
    assert state_of(job) is SCHEDULED
    house.pass_seconds(10)
    assert state_of(job) is READY
    assert causes(job) == [Cause.SUBMITTED_WAITING, Cause.RELEASED_EARLY, Cause.DUE]


def test_a_time_that_has_come_while_it_waited_is_not_waited_for(house: House) -> None:
    first = house.submit()
    job = house.submit(after=(first,), run_at_us=house.at(10))
    house.pass_seconds(11)
    assert state_of(job) is WAITING
    house.drain_with(house.worker())
    assert causes(job)[:2] == [Cause.SUBMITTED_WAITING, Cause.RELEASED]


@pytest.mark.parametrize("end", [JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED])
def test_a_predecessor_that_was_not_done_leaves_its_successors_waiting(house: House, end: JobState) -> None:
    job = house.submit(b"other", after=(house.ended(end),))
    assert state_of(job) is WAITING
    assert job.id in house.engine.jobs


def test_a_failed_predecessor_leaves_its_successors_waiting(house: House) -> None:
    worker, first = house.running()
    job = house.submit(b"other", after=(first,))
    house.engine.fail(worker, first.id)
    assert state_of(job) is WAITING
    assert house.engine.dependencies.unsuccessful == {first.id: FAILED}


def test_they_go_on_when_it_is_retried_and_done(house: House) -> None:
    worker, first = house.running()
    job = house.submit(b"other", after=(first,))
    house.engine.fail(worker, first.id)
    house.engine.retry(first)
    assert state_of(job) is WAITING
    assert house.drain_with(worker) == [first.id]
    assert state_of(job) is READY
    assert house.engine.dependencies.unsuccessful == {}


def test_settling_releases_too(house: House) -> None:
    first = house.submit()
    job = house.submit(after=(first,))
    assert house.engine.complete_unowned(first)
    assert state_of(job) is READY


def test_a_job_that_ended_waits_for_nothing(house: House) -> None:
    first, second = house.submit(), house.submit()
    job = house.submit(after=(first, second))
    house.engine.cancel(job)
    assert job.blockers == 0
    assert house.engine.dependencies.successors == {}


def test_any_of_very_many_successors_can_leave(house: House) -> None:
    first = house.submit()
    waiting = [house.submit(after=(first,)) for _ in range(2000)]
    for job in waiting[::2]:
        house.engine.cancel(job)
    assert house.engine.dependencies.waiting_for(first.id) == waiting[1::2]
    assert house.drain_with(house.worker()) == ids(first, *waiting[1::2])


# --- more to wait for ---


@pytest.mark.parametrize("state", [SCHEDULED, READY])
def test_a_queued_job_can_be_held_back(house: House, state: JobState) -> None:
    job = house.submit(run_at_us=house.at(10) if state is SCHEDULED else 0)
    other = house.submit(b"other")
    house.engine.add_predecessors(job, (other.id,))
    assert state_of(job) is WAITING
    assert job.predecessors == (other.id,)
    house.pass_seconds(10)
    assert state_of(job) is WAITING
    house.drain_with(house.worker(b"other"))
    assert house.drain_with(house.worker()) == [job.id]


def test_a_waiting_job_gets_one_more_to_wait_for(house: House) -> None:
    first, second = house.submit(), house.submit()
    job = house.submit(b"other", after=(first,))
    house.engine.add_predecessors(job, (first.id, second.id, 999))
    assert job.predecessors == (first.id, second.id, 999)
    assert job.blockers == 2
    assert Cause.HELD_BACK not in causes(job)


def test_a_running_job_can_be_held_back_and_its_worker_is_told(house: House) -> None:
    worker, job = house.running()
    house.engine.data(worker, job.id, b"half")
    other = house.submit(b"other")
    house.engine.add_predecessors(job, (other.id,))
    assert state_of(job) is WAITING
    assert worker.running == {}
    assert peer_of(worker).heard == [("revoke", worker.id, job.id)]
    assert house.engine.complete(worker, job.id, b"") is None
    assert (job.attempts, job.chunks) == (0, None)


def test_being_held_back_spends_no_attempt(house: House) -> None:
    worker, job = house.running(attempts_limit=1)
    for _ in range(3):
        other = house.submit(b"other")
        house.engine.add_predecessors(job, (other.id,))
        house.engine.complete_unowned(other)
        assert house.engine.take(worker) is job
        assert job.attempts == 1
    house.engine.remove_worker(worker)
    assert job.is_dead


def test_adding_what_is_done_changes_nothing_but_the_list(house: House) -> None:
    worker, job = house.running()
    done = house.ended(DONE)
    house.engine.add_predecessors(job, (done.id,))
    assert state_of(job) is RUNNING
    assert job.predecessors == (done.id,)
    assert house.engine.complete(worker, job.id, b"") is job


@pytest.mark.parametrize("end", [DONE, FAILED, CANCELLED])
def test_a_finished_job_can_be_made_to_wait_for_nothing_more(house: House, end: JobState) -> None:
    job = house.ended(end)
    other = house.submit(b"other")
    with pytest.raises(Refused, match=f"job {job.id} is {end.name.lower()}") as refused:
        house.engine.add_predecessors(job, (other.id,))
    assert refused.value.reason == REFUSED_CONFLICT
    assert job.predecessors == ()


def test_held_back_after_its_expiry_a_job_expires(house: House) -> None:
    _, job = house.running(expires_us=house.at(1))
    house.pass_seconds(2)
    house.engine.add_predecessors(job, (house.submit(b"other").id,))
    assert causes(job)[-2:] == [Cause.HELD_BACK, Cause.EXPIRED]


def test_a_waiting_job_whose_expiry_has_passed_expires_when_it_is_to_wait_for_more(house: House) -> None:
    job = house.submit(after=(house.submit(b"other"),), expires_us=house.at(0))
    house.engine.add_predecessors(job, (house.submit(b"other").id,))
    assert causes(job)[-1] is Cause.EXPIRED
    assert house.engine.dependencies.successors == {}


# --- circles ---


def test_a_job_cannot_wait_for_itself(house: House) -> None:
    job = house.submit(name=b"Anna")
    with pytest.raises(CycleRefused, match=r"wait for each other: Anna -> Anna$"):
        house.engine.add_predecessors(job, (job.id,))
    assert state_of(job) is READY


def chain(house: House, *names: bytes) -> list[Job]:
    """Each waits for the one before it."""
    jobs: list[Job] = []
    for name in names:
        jobs.append(house.submit(name=name, after=tuple(jobs[-1:])))
    return jobs


def test_a_circle_is_refused_naming_it_in_the_order_of_waiting(house: House) -> None:
    first, _, third = chain(house, b"a", b"b", b"c")
    with pytest.raises(CycleRefused) as refused:
        house.engine.add_predecessors(first, (third.id,))
    assert refused.value.path == ["a", "c", "b", "a"]
    assert str(refused.value) == "jobs would wait for each other: a -> c -> b -> a"
    assert refused.value.reason == "cycle"


def test_jobs_without_a_name_are_named_by_their_number(house: House) -> None:
    first = house.submit()
    second = house.submit(after=(first,))
    with pytest.raises(CycleRefused, match=f"job {first.id} -> job {second.id} -> job {first.id}$"):
        house.engine.add_predecessors(first, (second.id,))


def test_a_refused_circle_changes_nothing(house: House) -> None:
    first, second, third = chain(house, b"a", b"b", b"c")
    outside = house.submit(b"other")
    with pytest.raises(CycleRefused):
        house.engine.add_predecessors(first, (outside.id, third.id))
    assert state_of(first) is READY
    assert first.predecessors == ()
    assert house.drain_with(house.worker()) == ids(first, second, third)


def test_a_circle_through_many_paths_is_found(house: House) -> None:
    first = house.submit(name=b"first")
    middle = [house.submit(after=(first,)) for _ in range(2 * dependencies.MOST_IN_TUPLE)]
    last = house.submit(after=tuple(middle), name=b"last")
    with pytest.raises(CycleRefused) as refused:
        house.engine.add_predecessors(first, (last.id,))
    assert refused.value.path[:2] == ["first", "last"]
    assert refused.value.path[-1] == "first"
    assert len(refused.value.path) == 4


def test_a_diamond_is_no_circle(house: House) -> None:
    first = house.submit()
    left, right = house.submit(after=(first,)), house.submit(after=(first,))
    last = house.submit(after=(left,))
    house.engine.add_predecessors(last, (right.id,))
    assert house.drain_with(house.worker()) == ids(first, left, right, last)


def test_a_circle_that_a_retry_would_close_is_refused(house: House) -> None:
    first, second = chain(house, b"a", b"b")
    house.engine.cancel(second)
    house.engine.add_predecessors(first, (second.id,))
    with pytest.raises(CycleRefused, match="b -> a -> b"):
        house.engine.retry(second)
    assert state_of(second) is CANCELLED
    assert house.engine.dependencies.unsuccessful == {second.id: CANCELLED}


# --- what failed is remembered, but not for ever ---


def test_old_failures_are_forgotten_unless_a_job_waits_for_them(house: House) -> None:
    house.engine.unsuccessful_jobs.most_jobs = 11
    failures = [house.ended(CANCELLED)]
    waiting = house.submit(b"other", after=(failures[0],))
    failures += [house.ended(CANCELLED) for _ in range(20)]
    assert list(house.engine.dependencies.unsuccessful) == ids(failures[0], *failures[-10:])
    assert house.submit(b"other", after=(failures[1],)).state is READY
    assert house.submit(b"other", after=(failures[-10],)).state is WAITING
    house.engine.retry(failures[0])
    house.drain_with(house.worker())
    assert state_of(waiting) is READY


def test_failures_that_jobs_wait_for_are_remembered_however_many_there_are(house: House) -> None:
    house.engine.unsuccessful_jobs.most_jobs = 20
    for _ in range(200):
        house.submit(b"other", after=(house.ended(CANCELLED),))
    assert len(house.engine.dependencies.unsuccessful) == 200


def test_jobs_that_fail_and_are_retried_again_and_again_leave_nothing_behind(house: House) -> None:
    house.engine.unsuccessful_jobs.most_jobs = 2
    worker, job = house.running()
    for _ in range(5000):
        house.engine.fail(worker, job.id)
        house.engine.retry(job)
        assert house.engine.take(worker) is job
    old = house.ended(FAILED)
    assert house.engine.dependencies.unsuccessful == {old.id: FAILED}


def test_of_all_that_are_waited_for_only_the_unsuccessful_are_listed(house: House) -> None:
    failed, _nobody_waits = house.ended(FAILED), house.ended(FAILED)
    waiting = house.submit(b"other", after=(failed, house.submit()))
    house.submit(b"other", after=(waiting,))
    assert house.engine.dependencies.unsuccessful_with_successors() == {failed.id}
    house.engine.cancel(waiting)
    assert house.engine.dependencies.unsuccessful_with_successors() == {waiting.id}


def test_a_retried_job_may_be_told_to_wait_for_more(house: House) -> None:
    failed = house.ended(FAILED)
    first = house.submit()
    house.engine.retry(failed, (first.id, first.id))
    assert (failed.state, failed.predecessors) == (WAITING, (first.id,))
    assert house.drain_with(house.worker()) == ids(first, failed)


def test_a_retry_that_would_close_a_circle_changes_nothing(house: House) -> None:
    failed = house.ended(FAILED)
    successor = house.submit(after=(failed,))
    with pytest.raises(CycleRefused):
        house.engine.retry(failed, (successor.id,))
    assert (failed.state, failed.predecessors) == (FAILED, ())
