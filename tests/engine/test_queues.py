"""Which job comes first: priorities, the order of functions, leaving from the middle, limits and pauses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.errors import Refused
from switchgear.model import HIGH, LOW, NORMAL, READY, RUNNING, URGENT, Job
from switchgear.refusals import REFUSED_DRAINING, REFUSED_FULL, REFUSED_LIMIT
from tests.engine.harness import Harness, ids, peer_of, state_of

MakeHarness = Callable[..., Harness]

# --- priorities ---


def test_jobs_of_one_priority_come_first_in_first_out(harness: Harness) -> None:
    jobs = [harness.submit() for _ in range(3)]
    assert harness.drain_with(harness.worker()) == ids(*jobs)


def test_a_higher_priority_comes_first(harness: Harness) -> None:
    low, normal, high = (harness.submit(priority=priority) for priority in (LOW, NORMAL, HIGH))
    assert [harness.function().ready_of(priority) for priority in (HIGH, NORMAL, LOW)] == [1, 1, 1]
    assert harness.drain_with(harness.worker()) == ids(high, normal, low)


def test_urgent_jobs_come_before_all_others(harness: Harness) -> None:
    low, high, urgent = (harness.submit(priority=priority) for priority in (LOW, HIGH, URGENT))
    later = harness.submit(priority=URGENT)
    assert harness.drain_with(harness.worker()) == ids(urgent, later, high, low)


@pytest.mark.parametrize("order", ["fair", "registration", "round-robin"])
def test_urgent_jobs_come_first_among_functions_where_priority_does(make_harness: MakeHarness, order: str) -> None:
    harness = make_harness(function_order=order)
    high, urgent = harness.submit(b"two", priority=HIGH), harness.submit(b"one", priority=URGENT)
    expected = [urgent, high] if order == "fair" else [high, urgent]
    assert harness.drain_with(harness.worker(b"one", b"two")) == ids(*expected)


def test_an_urgent_job_counts_towards_the_limit_of_high_ones(harness: Harness) -> None:
    harness.engine.set_limits(harness.function(), high=1, normal=0, low=0)
    harness.submit(priority=URGENT)
    with pytest.raises(Refused):
        harness.submit(priority=URGENT)


def test_a_worker_may_ask_for_jobs_of_one_priority(harness: Harness) -> None:
    first, second, other = (harness.submit(priority=priority) for priority in (LOW, LOW, HIGH))
    harness.engine.cancel(first)
    worker = harness.worker()
    assert harness.engine.take_of(worker, harness.function(), NORMAL) is None
    assert harness.engine.take_of(worker, harness.function(), LOW) is second
    assert (second.state, harness.function().ready) == (RUNNING, 1)
    assert harness.drain_with(harness.worker()) == ids(other)


def test_one_who_asks_for_a_priority_gets_nothing_that_it_may_not_have(make_harness: MakeHarness) -> None:
    harness = make_harness(jobs_per_worker=1)
    harness.submit(timeout_us=1)
    function = harness.function()
    assert harness.engine.take_of(harness.worker(b"other"), function, NORMAL) is None
    harness.engine.pause(function)
    assert harness.engine.take_of(harness.worker(), function, NORMAL) is None
    harness.engine.resume(function)
    harness.engine.stop_handing_out()
    assert harness.engine.take_of(harness.worker(), function, NORMAL) is None
    harness.engine.start_handing_out()
    full, _ = harness.running(b"other")
    harness.engine.can_do(full, function)
    assert harness.engine.take_of(full, function, NORMAL) is None
    assert harness.engine.take_of(harness.worker(), function, NORMAL) is not None


def test_one_who_was_woken_and_asks_for_something_else_passes_the_call_on(harness: Harness) -> None:
    woken, other = harness.worker(b"mail", b"other"), harness.worker(b"mail")
    harness.engine.sleep(woken)
    harness.engine.sleep(other)
    harness.submit(b"mail")
    harness.submit(b"other")
    assert (peer_of(woken).words(), peer_of(other).words()) == (["wake"], [])
    assert harness.engine.take_of(woken, harness.function(b"other"), NORMAL) is not None
    assert peer_of(other).words() == ["wake"]


def test_a_requeued_job_goes_to_the_end_of_its_priority(harness: Harness) -> None:
    worker, first = harness.running()
    second, low = harness.submit(), harness.submit(priority=LOW)
    harness.engine.release(worker, first.id)
    assert harness.drain_with(worker) == ids(second, first, low)


# --- the order of functions ---


def two_functions(harness: Harness) -> dict[int, str]:
    """Jobs as in the documents on gearmand: function 1 has two normal ones and a low one, function 2 a high one too."""
    named = {
        "1norm": harness.submit(b"one"),
        "1norm2": harness.submit(b"one"),
        "1low": harness.submit(b"one", priority=LOW),
        "2high": harness.submit(b"two", priority=HIGH),
        "2norm": harness.submit(b"two"),
        "2norm2": harness.submit(b"two"),
    }
    return {job.id: name for name, job in named.items()}


@pytest.mark.parametrize(
    ("order", "handed_out"),
    [
        ("fair", "2high 1norm 2norm 1norm2 2norm2 1low"),
        ("registration", "2high 2norm 2norm2 1norm 1norm2 1low"),
        ("round-robin", "2high 1norm 2norm 1norm2 2norm2 1low"),
    ],
)
def test_a_worker_with_two_functions_is_served_in_the_order_of_the_setting(
    make_harness: MakeHarness, order: str, handed_out: str
) -> None:
    harness = make_harness(function_order=order)
    names = two_functions(harness)
    worker = harness.worker(b"one", b"two")
    assert " ".join(names[job_id] for job_id in harness.drain_with(worker)) == handed_out


def test_fair_puts_priority_above_everything(make_harness: MakeHarness) -> None:
    harness = make_harness(function_order="fair")
    lows = [harness.submit(name, priority=LOW) for name in (b"one", b"two", b"three")]
    highs = [harness.submit(b"three", priority=HIGH) for _ in range(2)]
    assert harness.drain_with(harness.worker(b"one", b"two", b"three")) == ids(*highs, *lows)


def test_fair_serves_next_the_function_served_longest_ago(make_harness: MakeHarness) -> None:
    harness = make_harness(function_order="fair")
    worker = harness.worker(b"one", b"two", b"three")
    first = [harness.submit(name) for name in (b"three", b"two")]
    assert harness.drain_with(worker) == ids(first[1], first[0])
    second = [harness.submit(name) for name in (b"three", b"two", b"one")]
    assert harness.drain_with(worker) == ids(second[2], second[1], second[0])


def test_round_robin_takes_turns_whatever_the_priority(make_harness: MakeHarness) -> None:
    harness = make_harness(function_order="round-robin")
    high = [harness.submit(b"two", priority=HIGH) for _ in range(2)]
    low = [harness.submit(b"one", priority=LOW) for _ in range(2)]
    assert harness.drain_with(harness.worker(b"one", b"two")) == ids(high[0], low[0], high[1], low[1])


def test_orders_are_each_workers_own(make_harness: MakeHarness) -> None:
    harness = make_harness(function_order="registration")
    jobs = {name: [harness.submit(name) for _ in range(2)] for name in (b"one", b"two")}
    assert harness.engine.take(harness.worker(b"one", b"two")) is jobs[b"two"][0]
    assert harness.engine.take(harness.worker(b"two", b"one")) is jobs[b"one"][0]


@pytest.mark.parametrize("order", ["fair", "registration", "round-robin"])
def test_a_worker_without_functions_gets_nothing(make_harness: MakeHarness, order: str) -> None:
    harness = make_harness(function_order=order)
    harness.submit()
    worker = harness.worker()
    harness.engine.forget_functions(worker)
    assert harness.engine.take(worker) is None
    harness.engine.grant(worker, 3)
    assert harness.engine.sleep(worker)
    assert peer_of(worker).heard == []


# --- leaving from the middle ---


def test_a_job_that_left_the_middle_of_the_queue_is_skipped(harness: Harness) -> None:
    first, second, third = (harness.submit() for _ in range(3))
    harness.engine.cancel(second)
    assert harness.function().ready == harness.function().ready_of(NORMAL) == 2
    assert list(harness.function().queues[NORMAL]) == [first, third]
    assert harness.drain_with(harness.worker()) == ids(first, third)


def test_a_job_that_left_and_came_back_has_its_place_at_the_end(harness: Harness) -> None:
    comeback, other = harness.submit(), harness.submit()
    harness.engine.cancel(comeback)
    harness.engine.retry(comeback)
    assert harness.drain_with(harness.worker()) == ids(other, comeback)


def test_a_job_may_leave_and_come_back_many_times(harness: Harness) -> None:
    comeback, other = harness.submit(), harness.submit()
    for _ in range(5):
        harness.engine.cancel(comeback)
        harness.engine.retry(comeback)
    assert harness.function().ready == 2
    assert harness.drain_with(harness.worker()) == ids(other, comeback)


def test_a_job_that_leaves_the_middle_leaves_nothing_behind(harness: Harness) -> None:
    kept = [harness.submit() for _ in range(10)]
    for _ in range(2560):
        harness.engine.cancel(harness.submit())
        assert len(harness.function().queues[NORMAL]) == 10
    assert harness.function().ready == 10
    assert harness.drain_with(harness.worker()) == ids(*kept)


def test_one_that_left_and_came_back_keeps_its_place_while_others_leave(harness: Harness) -> None:
    comeback, other = harness.submit(), harness.submit()
    harness.engine.cancel(comeback)
    harness.engine.retry(comeback)
    for job in [harness.submit() for _ in range(257)]:
        harness.engine.cancel(job)
    assert list(harness.function().queues[NORMAL]) == [other, comeback]
    assert harness.drain_with(harness.worker()) == ids(other, comeback)


# --- limits ---


def fill(harness: Harness, count: int, **submission: Any) -> list[Job]:
    return [harness.submit(**submission) for _ in range(count)]


def test_a_full_function_takes_no_more(make_harness: MakeHarness) -> None:
    harness = make_harness(jobs_per_function=2)
    fill(harness, 2)
    with pytest.raises(Refused, match="Job queue is full") as refused:
        harness.submit()
    assert refused.value.reason == REFUSED_FULL
    harness.submit(b"other")


def test_running_and_waiting_jobs_count_towards_a_limit(make_harness: MakeHarness) -> None:
    harness = make_harness(jobs_per_function=3)
    _, first = harness.running()
    harness.submit(after=(first,))
    harness.submit(run_at_us=harness.at(60))
    with pytest.raises(Refused):
        harness.submit()


def test_each_priority_may_have_a_limit_of_its_own(harness: Harness) -> None:
    harness.engine.set_limits(harness.function(), high=0, normal=2, low=1)
    fill(harness, 1)
    with pytest.raises(Refused):
        harness.submit(priority=LOW)
    fill(harness, 1)
    with pytest.raises(Refused):
        harness.submit()
    fill(harness, 5, priority=HIGH)


def test_a_refused_submission_leaves_nothing_behind(make_harness: MakeHarness) -> None:
    harness = make_harness(jobs_per_function=1)
    harness.submit(unique=b"a")
    next_id = harness.engine.next_job_id
    with pytest.raises(Refused):
        harness.submit(unique=b"b", name=b"Anna", run_at_us=harness.at(5))
    assert harness.engine.next_job_id == next_id
    assert not harness.engine.names
    assert harness.function().uniques.keys() == {b"a"}


def test_joining_is_possible_where_the_function_is_full(make_harness: MakeHarness) -> None:
    harness = make_harness(jobs_per_function=1)
    job = harness.submit(unique=b"a")
    assert harness.submit(unique=b"a") is job


def test_the_server_as_a_whole_may_be_full(make_harness: MakeHarness) -> None:
    harness = make_harness(jobs=2)
    harness.submit(b"one")
    harness.submit(b"two")
    with pytest.raises(Refused):
        harness.submit(b"three")


def test_strangers_cannot_make_up_any_number_of_functions(make_harness: MakeHarness) -> None:
    harness = make_harness(functions=2)
    harness.submit(b"one")
    harness.worker(b"two")
    with pytest.raises(Refused) as refused:
        harness.submit(b"three")
    assert refused.value.reason == REFUSED_LIMIT


# --- pause, drain, drop ---


def test_nothing_of_a_paused_function_is_handed_out(harness: Harness) -> None:
    job = harness.submit()
    harness.engine.pause(harness.function())
    worker = harness.worker(b"mail", b"other")
    other = harness.submit(b"other")
    assert harness.engine.take(worker) is other
    assert harness.engine.take(worker) is None
    harness.engine.resume(harness.function())
    assert harness.engine.take(worker) is job


def test_a_job_that_runs_may_finish_while_its_function_is_paused(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.pause(harness.function())
    assert harness.engine.complete(worker, job.id, b"") is job


def test_resuming_wakes_sleepers_and_pushes_to_workers_with_credit(harness: Harness) -> None:
    harness.engine.pause(harness.function())
    sleeper, pushed = harness.worker(), harness.worker()
    jobs = [harness.submit() for _ in range(3)]
    assert harness.engine.sleep(sleeper)
    harness.engine.grant(pushed, 2)
    harness.engine.resume(harness.function())
    assert peer_of(pushed).heard == [("assign", pushed.id, job.id) for job in jobs[:2]]
    assert peer_of(sleeper).words() == ["wake"]


def test_pausing_is_a_change_to_be_kept_once(harness: Harness) -> None:
    function = harness.function()
    harness.engine.pause(function)
    harness.engine.pause(function)
    harness.engine.set_limits(function, 1, 2, 3)
    assert harness.engine.take_changes() == ([], [function])
    harness.engine.resume(function)
    harness.engine.resume(function)
    assert harness.engine.take_changes() == ([], [function])


def test_draining_starts_and_takes_nothing_but_lets_running_jobs_finish(harness: Harness) -> None:
    worker, job = harness.running()
    queued = harness.submit()
    sleeper = harness.worker(b"other")
    harness.engine.drain()
    with pytest.raises(Refused) as refused:
        harness.submit()
    assert refused.value.reason == REFUSED_DRAINING
    assert harness.engine.take(worker) is None
    assert harness.engine.sleep(sleeper)
    harness.engine.grant(sleeper, 1)
    assert harness.engine.running_jobs() == 1
    harness.engine.complete(worker, job.id, b"")
    assert harness.engine.running_jobs() == 0
    assert state_of(queued) is READY


def test_after_a_drain_was_called_off_everybody_is_offered_what_is_there(harness: Harness) -> None:
    harness.engine.drain()
    sleeper, pushed = harness.worker(b"one"), harness.worker(b"two")
    assert harness.engine.sleep(sleeper)
    harness.engine.grant(pushed, 1)
    harness.engine.refusal = None
    harness.submit(b"one")
    job = harness.submit(b"two")
    assert state_of(job) is READY
    harness.engine.start_handing_out()
    assert peer_of(sleeper).words() == ["wake"]
    assert state_of(job) is RUNNING


def test_a_function_that_nobody_uses_can_be_dropped(harness: Harness) -> None:
    worker = harness.worker()
    function = harness.function()
    assert not harness.engine.drop_function(function)
    harness.engine.remove_worker(worker)
    job = harness.submit()
    assert not harness.engine.drop_function(function)
    harness.engine.cancel(job)
    assert harness.engine.drop_function(function)
    assert not harness.engine.drop_function(function)
    assert harness.engine.functions == {}


def test_a_function_with_an_order_of_its_own_is_not_dropped(harness: Harness) -> None:
    harness.function().released_first = True
    assert not harness.engine.drop_function(harness.function())


def test_a_job_of_a_dropped_function_can_be_retried(harness: Harness) -> None:
    job = harness.submit()
    harness.engine.cancel(job)
    assert harness.engine.drop_function(job.function)
    harness.engine.retry(job)
    assert harness.drain_with(harness.worker()) == [job.id]


def test_a_new_limit_holds_for_functions_that_were_given_none_of_their_own(
    make_harness: Callable[..., Harness],
) -> None:
    harness = make_harness(jobs_per_function=1)
    harness.engine.set_limits(harness.function(b"own"), 5, 5, 5)
    harness.function(b"usual")
    harness.engine.use_settings(EngineSettings(jobs_per_function=2))
    limits = {name: harness.function(name).limits for name in (b"own", b"usual", b"new")}
    assert limits == {b"own": [5, 5, 5], b"usual": [2, 2, 2], b"new": [2, 2, 2]}
