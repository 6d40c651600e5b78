"""Which job comes first: priorities, the order of functions, leaving from the middle, limits and pauses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.errors import Refused
from switchgear.model import HIGH, LOW, NORMAL, READY, RUNNING, URGENT, Job
from switchgear.refusals import REFUSED_DRAINING, REFUSED_FULL, REFUSED_LIMIT
from tests.engine.house import House, ids, peer_of, state_of

MakeHouse = Callable[..., House]

# --- priorities ---


def test_jobs_of_one_priority_come_first_in_first_out(house: House) -> None:
    jobs = [house.submit() for _ in range(3)]
    assert house.drain_with(house.worker()) == ids(*jobs)


def test_a_higher_priority_comes_first(house: House) -> None:
    low, normal, high = (house.submit(priority=priority) for priority in (LOW, NORMAL, HIGH))
    assert [house.function().ready_of(priority) for priority in (HIGH, NORMAL, LOW)] == [1, 1, 1]
    assert house.drain_with(house.worker()) == ids(high, normal, low)


def test_urgent_jobs_come_before_all_others(house: House) -> None:
    low, high, urgent = (house.submit(priority=priority) for priority in (LOW, HIGH, URGENT))
    later = house.submit(priority=URGENT)
    assert house.drain_with(house.worker()) == ids(urgent, later, high, low)


@pytest.mark.parametrize("order", ["fair", "registration", "round-robin"])
def test_urgent_jobs_come_first_among_functions_where_priority_does(make_house: MakeHouse, order: str) -> None:
    house = make_house(function_order=order)
    high, urgent = house.submit(b"two", priority=HIGH), house.submit(b"one", priority=URGENT)
    expected = [urgent, high] if order == "fair" else [high, urgent]
    assert house.drain_with(house.worker(b"one", b"two")) == ids(*expected)


def test_an_urgent_job_counts_towards_the_limit_of_high_ones(house: House) -> None:
    house.engine.set_limits(house.function(), high=1, normal=0, low=0)
    house.submit(priority=URGENT)
    with pytest.raises(Refused):
        house.submit(priority=URGENT)


def test_a_worker_may_ask_for_jobs_of_one_priority(house: House) -> None:
    first, second, other = (house.submit(priority=priority) for priority in (LOW, LOW, HIGH))
    house.engine.cancel(first)
    worker = house.worker()
    assert house.engine.take_of(worker, house.function(), NORMAL) is None
    assert house.engine.take_of(worker, house.function(), LOW) is second
    assert (second.state, house.function().ready) == (RUNNING, 1)
    assert house.drain_with(house.worker()) == ids(other)


def test_one_who_asks_for_a_priority_gets_nothing_that_it_may_not_have(make_house: MakeHouse) -> None:
    house = make_house(jobs_per_worker=1)
    house.submit(timeout_us=1)
    function = house.function()
    assert house.engine.take_of(house.worker(b"other"), function, NORMAL) is None
    house.engine.pause(function)
    assert house.engine.take_of(house.worker(), function, NORMAL) is None
    house.engine.resume(function)
    house.engine.stop_handing_out()
    assert house.engine.take_of(house.worker(), function, NORMAL) is None
    house.engine.start_handing_out()
    full, _ = house.running(b"other")
    house.engine.can_do(full, function)
    assert house.engine.take_of(full, function, NORMAL) is None
    assert house.engine.take_of(house.worker(), function, NORMAL) is not None


def test_one_who_was_woken_and_asks_for_something_else_passes_the_call_on(house: House) -> None:
    woken, other = house.worker(b"mail", b"other"), house.worker(b"mail")
    house.engine.sleep(woken)
    house.engine.sleep(other)
    house.submit(b"mail")
    house.submit(b"other")
    assert (peer_of(woken).words(), peer_of(other).words()) == (["wake"], [])
    assert house.engine.take_of(woken, house.function(b"other"), NORMAL) is not None
    assert peer_of(other).words() == ["wake"]


def test_a_requeued_job_goes_to_the_end_of_its_priority(house: House) -> None:
    worker, first = house.running()
    second, low = house.submit(), house.submit(priority=LOW)
    house.engine.release(worker, first.id)
    assert house.drain_with(worker) == ids(second, first, low)


# --- the order of functions ---


def two_functions(house: House) -> dict[int, str]:
    """Jobs as in the documents on gearmand: function 1 has two normal ones and a low one, function 2 a high one too."""
    named = {
        "1norm": house.submit(b"one"),
        "1norm2": house.submit(b"one"),
        "1low": house.submit(b"one", priority=LOW),
        "2high": house.submit(b"two", priority=HIGH),
        "2norm": house.submit(b"two"),
        "2norm2": house.submit(b"two"),
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
    make_house: MakeHouse, order: str, handed_out: str
) -> None:
    house = make_house(function_order=order)
    names = two_functions(house)
    worker = house.worker(b"one", b"two")
    assert " ".join(names[job_id] for job_id in house.drain_with(worker)) == handed_out


def test_fair_puts_priority_above_everything(make_house: MakeHouse) -> None:
    house = make_house(function_order="fair")
    lows = [house.submit(name, priority=LOW) for name in (b"one", b"two", b"three")]
    highs = [house.submit(b"three", priority=HIGH) for _ in range(2)]
    assert house.drain_with(house.worker(b"one", b"two", b"three")) == ids(*highs, *lows)


def test_fair_serves_next_the_function_served_longest_ago(make_house: MakeHouse) -> None:
    house = make_house(function_order="fair")
    worker = house.worker(b"one", b"two", b"three")
    first = [house.submit(name) for name in (b"three", b"two")]
    assert house.drain_with(worker) == ids(first[1], first[0])
    second = [house.submit(name) for name in (b"three", b"two", b"one")]
    assert house.drain_with(worker) == ids(second[2], second[1], second[0])


def test_round_robin_takes_turns_whatever_the_priority(make_house: MakeHouse) -> None:
    house = make_house(function_order="round-robin")
    high = [house.submit(b"two", priority=HIGH) for _ in range(2)]
    low = [house.submit(b"one", priority=LOW) for _ in range(2)]
    assert house.drain_with(house.worker(b"one", b"two")) == ids(high[0], low[0], high[1], low[1])


def test_orders_are_each_workers_own(make_house: MakeHouse) -> None:
    house = make_house(function_order="registration")
    jobs = {name: [house.submit(name) for _ in range(2)] for name in (b"one", b"two")}
    assert house.engine.take(house.worker(b"one", b"two")) is jobs[b"two"][0]
    assert house.engine.take(house.worker(b"two", b"one")) is jobs[b"one"][0]


@pytest.mark.parametrize("order", ["fair", "registration", "round-robin"])
def test_a_worker_without_functions_gets_nothing(make_house: MakeHouse, order: str) -> None:
    house = make_house(function_order=order)
    house.submit()
    worker = house.worker()
    house.engine.forget_functions(worker)
    assert house.engine.take(worker) is None
    house.engine.grant(worker, 3)
    assert house.engine.sleep(worker)
    assert peer_of(worker).heard == []


# --- leaving from the middle ---


def test_a_job_that_left_the_middle_of_the_queue_is_skipped(house: House) -> None:
    first, second, third = (house.submit() for _ in range(3))
    house.engine.cancel(second)
    assert house.function().ready == house.function().ready_of(NORMAL) == 2
    assert list(house.function().queues[NORMAL]) == [first, third]
    assert house.drain_with(house.worker()) == ids(first, third)


def test_a_job_that_left_and_came_back_has_its_place_at_the_end(house: House) -> None:
    comeback, other = house.submit(), house.submit()
    house.engine.cancel(comeback)
    house.engine.retry(comeback)
    assert house.drain_with(house.worker()) == ids(other, comeback)


def test_a_job_may_leave_and_come_back_many_times(house: House) -> None:
    comeback, other = house.submit(), house.submit()
    for _ in range(5):
        house.engine.cancel(comeback)
        house.engine.retry(comeback)
    assert house.function().ready == 2
    assert house.drain_with(house.worker()) == ids(other, comeback)


def test_a_job_that_leaves_the_middle_leaves_nothing_behind(house: House) -> None:
    kept = [house.submit() for _ in range(10)]
    for _ in range(2560):
        house.engine.cancel(house.submit())
        assert len(house.function().queues[NORMAL]) == 10
    assert house.function().ready == 10
    assert house.drain_with(house.worker()) == ids(*kept)


def test_one_that_left_and_came_back_keeps_its_place_while_others_leave(house: House) -> None:
    comeback, other = house.submit(), house.submit()
    house.engine.cancel(comeback)
    house.engine.retry(comeback)
    for job in [house.submit() for _ in range(257)]:
        house.engine.cancel(job)
    assert list(house.function().queues[NORMAL]) == [other, comeback]
    assert house.drain_with(house.worker()) == ids(other, comeback)


# --- limits ---


def fill(house: House, count: int, **submission: Any) -> list[Job]:
    return [house.submit(**submission) for _ in range(count)]


def test_a_full_function_takes_no_more(make_house: MakeHouse) -> None:
    house = make_house(jobs_per_function=2)
    fill(house, 2)
    with pytest.raises(Refused, match="Job queue is full") as refused:
        house.submit()
    assert refused.value.reason == REFUSED_FULL
    house.submit(b"other")


def test_running_and_waiting_jobs_count_towards_a_limit(make_house: MakeHouse) -> None:
    house = make_house(jobs_per_function=3)
    _, first = house.running()
    house.submit(after=(first,))
    house.submit(run_at_us=house.at(60))
    with pytest.raises(Refused):
        house.submit()


def test_each_priority_may_have_a_limit_of_its_own(house: House) -> None:
    house.engine.set_limits(house.function(), high=0, normal=2, low=1)
    fill(house, 1)
    with pytest.raises(Refused):
        house.submit(priority=LOW)
    fill(house, 1)
    with pytest.raises(Refused):
        house.submit()
    fill(house, 5, priority=HIGH)


def test_a_refused_submission_leaves_nothing_behind(make_house: MakeHouse) -> None:
    house = make_house(jobs_per_function=1)
    house.submit(unique=b"a")
    next_id = house.engine.next_job_id
    with pytest.raises(Refused):
        house.submit(unique=b"b", name=b"Anna", run_at_us=house.at(5))
    assert house.engine.next_job_id == next_id
    assert not house.engine.names
    assert house.function().uniques.keys() == {b"a"}


def test_joining_is_possible_where_the_function_is_full(make_house: MakeHouse) -> None:
    house = make_house(jobs_per_function=1)
    job = house.submit(unique=b"a")
    assert house.submit(unique=b"a") is job


def test_the_server_as_a_whole_may_be_full(make_house: MakeHouse) -> None:
    house = make_house(jobs=2)
    house.submit(b"one")
    house.submit(b"two")
    with pytest.raises(Refused):
        house.submit(b"three")


def test_strangers_cannot_make_up_any_number_of_functions(make_house: MakeHouse) -> None:
    house = make_house(functions=2)
    house.submit(b"one")
    house.worker(b"two")
    with pytest.raises(Refused) as refused:
        house.submit(b"three")
    assert refused.value.reason == REFUSED_LIMIT


# --- pause, drain, drop ---


def test_nothing_of_a_paused_function_is_handed_out(house: House) -> None:
    job = house.submit()
    house.engine.pause(house.function())
    worker = house.worker(b"mail", b"other")
    other = house.submit(b"other")
    assert house.engine.take(worker) is other
    assert house.engine.take(worker) is None
    house.engine.resume(house.function())
    assert house.engine.take(worker) is job


def test_a_job_that_runs_may_finish_while_its_function_is_paused(house: House) -> None:
    worker, job = house.running()
    house.engine.pause(house.function())
    assert house.engine.complete(worker, job.id, b"") is job


def test_resuming_wakes_sleepers_and_pushes_to_workers_with_credit(house: House) -> None:
    house.engine.pause(house.function())
    sleeper, pushed = house.worker(), house.worker()
    jobs = [house.submit() for _ in range(3)]
    assert house.engine.sleep(sleeper)
    house.engine.grant(pushed, 2)
    house.engine.resume(house.function())
    assert peer_of(pushed).heard == [("assign", pushed.id, job.id) for job in jobs[:2]]
    assert peer_of(sleeper).words() == ["wake"]


def test_pausing_is_a_change_to_be_kept_once(house: House) -> None:
    function = house.function()
    house.engine.pause(function)
    house.engine.pause(function)
    house.engine.set_limits(function, 1, 2, 3)
    assert house.engine.take_changes() == ([], [function])
    house.engine.resume(function)
    house.engine.resume(function)
    assert house.engine.take_changes() == ([], [function])


def test_draining_starts_and_takes_nothing_but_lets_running_jobs_finish(house: House) -> None:
    worker, job = house.running()
    queued = house.submit()
    sleeper = house.worker(b"other")
    house.engine.drain()
    with pytest.raises(Refused) as refused:
        house.submit()
    assert refused.value.reason == REFUSED_DRAINING
    assert house.engine.take(worker) is None
    assert house.engine.sleep(sleeper)
    house.engine.grant(sleeper, 1)
    assert house.engine.running_jobs() == 1
    house.engine.complete(worker, job.id, b"")
    assert house.engine.running_jobs() == 0
    assert state_of(queued) is READY


def test_after_a_drain_was_called_off_everybody_is_offered_what_is_there(house: House) -> None:
    house.engine.drain()
    sleeper, pushed = house.worker(b"one"), house.worker(b"two")
    assert house.engine.sleep(sleeper)
    house.engine.grant(pushed, 1)
    house.engine.refusal = None
    house.submit(b"one")
    job = house.submit(b"two")
    assert state_of(job) is READY
    house.engine.start_handing_out()
    assert peer_of(sleeper).words() == ["wake"]
    assert state_of(job) is RUNNING


def test_a_function_that_nobody_uses_can_be_dropped(house: House) -> None:
    worker = house.worker()
    function = house.function()
    assert not house.engine.drop_function(function)
    house.engine.remove_worker(worker)
    job = house.submit()
    assert not house.engine.drop_function(function)
    house.engine.cancel(job)
    assert house.engine.drop_function(function)
    assert not house.engine.drop_function(function)
    assert house.engine.functions == {}


def test_a_function_with_an_order_of_its_own_is_not_dropped(house: House) -> None:
    house.function().released_first = True
    assert not house.engine.drop_function(house.function())


def test_a_job_of_a_dropped_function_can_be_retried(house: House) -> None:
    job = house.submit()
    house.engine.cancel(job)
    assert house.engine.drop_function(job.function)
    house.engine.retry(job)
    assert house.drain_with(house.worker()) == [job.id]


def test_a_new_limit_holds_for_functions_that_were_given_none_of_their_own(
    make_house: Callable[..., House],
) -> None:
    house = make_house(jobs_per_function=1)
    house.engine.set_limits(house.function(b"own"), 5, 5, 5)
    house.function(b"usual")
    house.engine.use_settings(EngineSettings(jobs_per_function=2))
    limits = {name: house.function(name).limits for name in (b"own", b"usual", b"new")}
    assert limits == {b"own": [5, 5, 5], b"usual": [2, 2, 2], b"new": [2, 2, 2]}
