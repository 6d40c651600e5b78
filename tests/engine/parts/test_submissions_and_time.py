"""`Submissions`, `WideSubmissions`, `PredecessorCommands`, `JobCommands`, `GraphParts`, `ScheduleRunner`,
`Administration`, `Restore` and `DeadlineDispatch`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from switchgear.engine.engine import GraphSubmission
from switchgear.engine.sliced_work import SlicedKind
from switchgear.engine.submit_options import SubmitOptions
from switchgear.engine.wide_submissions import LINKED_PER_SLICE
from switchgear.errors import CycleRefused, Refused
from switchgear.model import (
    CANCELLED,
    DONE,
    FAILED,
    NORMAL,
    READY,
    RUNNING,
    SCHEDULED,
    SECOND_US,
    WAITING,
    Cause,
    Delivery,
    EdgePolicy,
    Job,
    PlainJob,
    Schedule,
    UniquePolicy,
)
from switchgear.policy import Policy
from switchgear.timetable import Every
from tests.engine.harness import state_of
from tests.engine.parts.parts import Parts, heard

# --- Submissions ---


def test_a_submission_is_a_job_in_all_tables() -> None:
    parts = Parts()
    job = parts.submit(unique=b"key", name=b"nightly")
    assert (job.state, parts.state.jobs.get(1), parts.state.names[b"nightly"]) == (READY, job, job)
    assert (parts.function().total, parts.function().ready, parts.keys.owns(job)) == (1, 1, True)
    assert parts.state.memory.job_bytes > len(job.payload or b"")


def test_a_second_submission_with_a_key_joins_is_rejected_or_replaces() -> None:
    parts = Parts()
    first = parts.submit(unique=b"key")
    assert parts.submit(unique=b"key") is first
    with pytest.raises(Refused, match='which is ready, has the unique key "key"'):
        parts.submit(unique=b"key", unique_policy=UniquePolicy.REJECT)
    second = parts.submit(unique=b"key", unique_policy=UniquePolicy.REPLACE)
    assert (state_of(first), first.log[-1][0], parts.keys.owns(second)) == (CANCELLED, Cause.REPLACED, True)


@pytest.mark.parametrize("settings", [{"jobs": 1}, {"jobs_per_function": 1}])
def test_a_full_queue_takes_no_more_and_nothing_is_left_of_them(settings: dict[str, int]) -> None:
    parts = Parts(**settings)
    parts.submit()
    held = parts.state.memory.job_bytes
    with pytest.raises(Refused, match="Job queue is full"):
        parts.submit(name=b"one more")
    assert (parts.state.memory.job_bytes, b"one more" in parts.state.names) == (held, False)


def test_a_submission_may_wait_for_a_time_or_for_others() -> None:
    parts = Parts()
    first = parts.submit(run_at_us=parts.state.now_us + 10)
    second = parts.submit(predecessors=(first.id, first.id))
    assert (first.state, second.state, second.predecessors) == (SCHEDULED, WAITING, (first.id,))


def test_a_submission_is_withdrawn_as_if_it_had_not_been_made() -> None:
    parts = Parts()
    first = parts.submit(unique=b"key", name=b"nightly")
    second = parts.submit(predecessors=(first.id,))
    assert not parts.submissions.withdraw(first, frozenset()), "another waits for it"
    assert parts.submissions.withdraw(second, frozenset())
    assert parts.submissions.withdraw(first, frozenset())
    for job in (first, second):
        parts.state.drop_contents(job)
    assert (parts.function().total, parts.function().submitted, parts.state.memory.job_bytes) == (0, 0, 0)
    assert (b"nightly" in parts.state.names, parts.function().uniques) == (False, {})


def test_an_id_is_used_once_and_only_if_it_was_reserved() -> None:
    parts = Parts()
    reserved = parts.submissions.reserve_ids(1).start
    assert parts.submit().id == reserved + 1
    assert parts.submit(job_id=reserved).id == reserved
    for job_id in (reserved, 4711):
        with pytest.raises(Refused, match=f"the id {job_id} is not reserved"):
            parts.submit(job_id=job_id)


# --- JobCommands ---


def test_a_cancel_may_cascade() -> None:
    parts = Parts()
    first = parts.submit()
    second = parts.submit(predecessors=(first.id,))
    third = parts.submit(predecessors=(second.id,))
    steps = parts.commands.cancel_in_steps(first, cascade=True)
    assert [job for job in steps if job is not None] == [first, second, third]
    assert not len(parts.dependencies.successors)


def test_a_job_that_did_not_succeed_is_retried_with_all_its_attempts() -> None:
    parts = Parts()
    job, worker = parts.submit(), parts.registered()
    parts.dispatcher.take(worker)
    parts.reports.fail(worker, job.id)
    assert job.id in parts.unsuccessful.states
    parts.commands.retry(job, ())
    assert (state_of(job), job.attempts, len(parts.unsuccessful)) == (READY, 0, 0)
    with pytest.raises(Refused):
        parts.commands.retry(job, ())


# --- PredecessorCommands ---


def test_a_running_job_that_waits_for_more_is_taken_from_its_worker() -> None:
    parts = Parts()
    worker = parts.registered()
    job = parts.submit()
    parts.dispatcher.take(worker)
    other = parts.submit()
    parts.predecessor_commands.add(job, (other.id,), b"", is_checked=False)
    assert (state_of(job), heard(worker)) == (WAITING, [("revoke", worker.id, job.id)])
    with pytest.raises(CycleRefused):
        parts.predecessor_commands.add(other, (job.id,), b"", is_checked=False)


# --- WideSubmissions ---


def test_a_wide_job_is_in_no_table_before_it_is_linked_to_all_its_predecessors() -> None:
    parts = Parts()
    before = tuple(parts.submit().id for _ in range(LINKED_PER_SLICE + 1))
    options = SubmitOptions(predecessors=before)
    steps = parts.wide_submissions.submit(b"sum", b"", b"", NORMAL, Delivery.HANDLE, None, options)
    assert [next(steps), next(steps)] == [False, False]
    assert len(parts.state.jobs) == len(before)
    with pytest.raises(StopIteration) as stop:
        next(steps)
    job = stop.value.value
    assert (job.state, job.predecessors, parts.state.jobs.get(job.id)) == (WAITING, before, job)


# --- GraphParts, with a GraphSubmission ---


def graph_of(parts: Parts, *, is_long: bool = False) -> GraphSubmission:
    return GraphSubmission(parts.graph_parts, joins=False, is_long=is_long)


def test_a_graph_is_taken_as_a_whole() -> None:
    parts = Parts(jobs=2)
    graph = graph_of(parts)
    template = graph.template(parts.function(), SubmitOptions())
    first = graph.add(template, b"", b"a")
    graph.add(template, b"", b"b", (first,))
    for steps in (graph.check(), graph.apply()):
        for _ in steps:
            pass
    assert [(job.name, job.state) for job in graph.submitted] == [(b"a", READY), (b"b", WAITING)]
    another = graph_of(parts)
    another.add(another.template(parts.function(), SubmitOptions()), b"", b"c")
    with pytest.raises(Refused, match="Job queue is full"):
        list(another.check())
    assert b"c" not in parts.state.names


def test_while_a_long_graph_is_under_way_its_names_are_taken() -> None:
    parts = Parts()
    graph = graph_of(parts, is_long=True)
    assert graph.begin()
    graph.add(graph.template(parts.function(), SubmitOptions()), b"", b"a")
    assert not graph_of(parts, is_long=True).begin()
    assert [parts.graph_parts.must_wait(name, ()) for name in (b"a", b"b")] == [True, False]
    assert parts.graph_parts.must_wait(b"b", (b"a",))
    graph.end()
    assert not parts.graph_parts.must_wait(b"a", ())


# --- ScheduleRunner ---


def test_a_schedule_makes_a_job_at_each_tick_and_skips_while_it_has_one() -> None:
    parts = Parts()
    schedule = parts.schedules.set(Schedule(b"nightly", Every(60 * SECOND_US), b"mail"))
    assert parts.state.memory.schedule_bytes
    for skipped in (0, 1):
        parts.state.now_us = schedule.next_us
        parts.schedules.meet_tick(schedule)
        assert (schedule.fired, schedule.skipped, parts.function().ready) == (1, skipped, 1)
    parts.schedules.remove(schedule)
    assert (parts.state.schedules, parts.state.memory.schedule_bytes) == ({}, 0)


def test_a_paused_schedule_has_no_ticks_and_can_be_run() -> None:
    parts = Parts()
    schedule = parts.schedules.set(Schedule(b"nightly", Every(60 * SECOND_US), b"mail"))
    parts.schedules.pause(schedule)
    assert schedule.wake_us == 0
    assert parts.schedules.run_now(schedule).schedule == b"nightly"
    parts.schedules.resume(schedule)
    assert schedule.wake_us == schedule.next_us > parts.state.now_us


def test_a_tick_whose_job_was_withdrawn_comes_again() -> None:
    parts = Parts()
    schedule = parts.schedules.set(Schedule(b"nightly", Every(60 * SECOND_US), b"mail"))
    parts.state.now_us = tick_us = schedule.next_us
    parts.schedules.meet_tick(schedule)
    job = parts.state.jobs[schedule.last_job_id]
    assert parts.submissions.withdraw(job, frozenset())
    parts.schedules.take_back_tick(job)
    assert (schedule.fired, schedule.last_job_id, schedule.next_us) == (0, 0, tick_us)


# --- Administration ---


def test_a_paused_function_hands_out_nothing() -> None:
    parts = Parts()
    worker = parts.registered()
    parts.wakeups.sleep(worker)
    parts.administration.pause(parts.function())
    job = parts.submit()
    assert (parts.dispatcher.take(worker), heard(worker)) == (None, [])
    parts.wakeups.sleep(worker)
    parts.administration.resume(parts.function())
    assert (heard(worker), parts.dispatcher.take(worker)) == ([("wake", worker.id)], job)


def test_a_policy_and_limits_are_changes_of_a_function() -> None:
    parts = Parts()
    function = parts.function()
    parts.administration.set_policy(function, Policy(concurrency=1))
    parts.administration.set_limits(function, 3, 2, 1)
    assert (parts.state.take_changes(), function.limits) == (([], [function]), [3, 2, 1])
    parts.administration.set_policy(function, Policy(concurrency=1))
    assert parts.state.take_changes() == ([], [])


def test_a_server_that_drains_takes_nothing_and_starts_nothing() -> None:
    parts = Parts()
    worker = parts.registered()
    job = parts.submit()
    parts.administration.drain()
    assert parts.dispatcher.take(worker) is None
    with pytest.raises(Refused, match="server is shutting down"):
        parts.submit()
    parts.administration.start_handing_out()
    assert parts.dispatcher.take(worker) is job


# --- Restore ---


def stored(parts: Parts, job_id: int, state: object = READY, predecessors: tuple[int, ...] = ()) -> Job:
    """A job as a store gives it back."""
    job = Job(job_id, parts.function(), b"", b"x", NORMAL, Delivery.HANDLE, parts.state.now_us)
    if state is WAITING:
        job.has_details = True
        job.predecessors = predecessors
        job.state = WAITING
        job.moves = [Cause.SUBMITTED_WAITING, parts.state.now_us]
    elif state is RUNNING:
        job.state = RUNNING
        job.started_us = parts.state.now_us
        job.attempts = 1
    return job


def restore(parts: Parts, jobs: list[Job], plain: list[PlainJob] | None = None) -> None:
    steps = parts.restore.restore(jobs, 10, ())
    portions = [plain] if plain else []
    wants_rows = next(steps)
    with suppress(StopIteration):
        while True:
            wants_rows = steps.send(portions.pop() if wants_rows and portions else None)
    assert not portions


def test_jobs_are_restored_in_the_order_of_their_places() -> None:
    parts = Parts()
    plain: list[PlainJob] = [(2, parts.function(), NORMAL, Delivery.HANDLE, parts.state.now_us, b"key")]
    restore(parts, [stored(parts, 3), stored(parts, 1)], plain)
    worker = parts.registered()
    taken = [parts.queues.pop(parts.function(), worker) for _ in range(1)]
    assert [job.id for job in taken if job is not None] == [1]
    assert (parts.function().ready, parts.state.next_job_id) == (2, 10)
    assert parts.packed.has_holder(parts.function(), b"key")


def test_a_job_that_ran_is_ready_again_and_has_spent_an_attempt() -> None:
    parts = Parts()
    job = stored(parts, 1, RUNNING)
    restore(parts, [job])
    assert (state_of(job), job.attempts, job.log[-1][0], parts.function().running) == (READY, 1, Cause.SERVER_LOST, 0)


def test_what_is_not_in_the_store_any_more_was_done() -> None:
    parts = Parts()
    waiting, free = stored(parts, 2, WAITING, (1,)), stored(parts, 3, WAITING, (99,))
    restore(parts, [stored(parts, 1), waiting, free])
    assert (state_of(waiting), waiting.blockers, state_of(free)) == (WAITING, 1, READY)


# --- DeadlineDispatch ---


def test_time_passes_and_what_is_due_happens() -> None:
    parts = Parts()
    job = parts.submit(run_at_us=parts.state.now_us + 10)
    late = parts.submit(expires_us=parts.state.now_us + 5)
    assert parts.deadline_dispatch.next_deadline_us == parts.state.now_us + 5
    parts.deadline_dispatch.advance(parts.state.now_us + 10)
    assert (job.state, late.log[-1][0]) == (READY, Cause.EXPIRED)
    parts.deadline_dispatch.advance(0)
    assert parts.state.now_us == 1_000_010, "time does not go back"


def test_a_clock_that_is_set_moves_spans_and_leaves_moments() -> None:
    parts = Parts()
    worker = parts.registered(timeout_us=100)
    job = parts.submit()
    parts.dispatcher.take(worker)
    scheduled = parts.submit(run_at_us=parts.state.now_us + 1_000)
    parts.deadline_dispatch.clock_moved(10_000)
    assert (state_of(job), state_of(scheduled)) == (RUNNING, SCHEDULED)
    parts.deadline_dispatch.advance(parts.state.now_us)
    assert (state_of(job), state_of(scheduled)) == (RUNNING, READY)
    parts.deadline_dispatch.advance(parts.state.now_us + 100)
    assert state_of(job) is READY


def test_a_dependency_that_failed_ends_a_job_in_the_next_turn() -> None:
    parts = Parts()
    first = parts.submit()
    parts.transitions.end(first, Cause.CANCELLED)
    job = parts.submit(predecessors=(first.id,), edges=bytes([EdgePolicy.FAIL]))
    assert state_of(job) is WAITING
    parts.deadline_dispatch.advance(parts.state.now_us)
    assert state_of(job) is FAILED


def test_work_that_is_left_over_is_done_in_the_next_turns() -> None:
    parts = Parts()
    parts.sliced_work.units_per_turn = 2
    parts.deadline_dispatch.advance(parts.state.now_us)
    done: list[int] = []

    def work() -> Iterator[None]:
        for number in range(5):
            done.append(number)
            yield

    parts.sliced_work.start(work(), SlicedKind.FREE, None)
    assert (len(done), parts.deadline_dispatch.next_deadline_us) == (2, parts.state.now_us)
    parts.deadline_dispatch.advance(parts.state.now_us)
    parts.deadline_dispatch.advance(parts.state.now_us)
    assert (len(done), parts.deadline_dispatch.next_deadline_us) == (5, None)


def test_a_job_whose_time_is_over_is_tried_again() -> None:
    parts = Parts()
    worker = parts.registered(timeout_us=100)
    job = parts.submit()
    parts.dispatcher.take(worker)
    parts.deadline_dispatch.advance(parts.state.now_us + 100)
    assert (state_of(job), heard(worker)) == (READY, [("revoke", worker.id, job.id)])
    assert parts.dispatcher.take(worker) is job
    parts.reports.complete(worker, job.id, b"")
    assert state_of(job) is DONE
