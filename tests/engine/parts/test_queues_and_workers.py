"""`ReadyQueues`, `Wakeups`, `FunctionRegistry` and `Dispatcher`: which job goes to which worker."""

from __future__ import annotations

import pytest

from switchgear.engine.deadlines import DeadlineKind
from switchgear.errors import Refused
from switchgear.model import HIGH, RUNNING
from switchgear.policy import Policy
from tests.engine.parts.parts import Parts, heard

# --- ReadyQueues ---


def test_jobs_leave_a_queue_in_the_order_in_which_they_came() -> None:
    parts = Parts()
    jobs = [parts.job() for _ in range(3)]
    for job in jobs:
        parts.queues.append(job)
    assert parts.queues.first(parts.function()) is jobs[0]
    assert [parts.queues.pop(parts.function(), parts.worker()) for _ in range(4)] == [*jobs, None]
    assert parts.function().ready == 0


def test_a_better_priority_comes_first() -> None:
    parts = Parts()
    normal, high = parts.job(), parts.job()
    high.priority = HIGH
    parts.queues.append(normal)
    parts.queues.append(high)
    assert parts.queues.pop_of(parts.function(), HIGH, parts.worker()) is high
    assert parts.queues.pop(parts.function(), parts.worker()) is normal


def test_one_that_is_ranked_first_goes_ahead_and_one_from_the_middle_leaves() -> None:
    parts = Parts()
    jobs = [parts.job() for _ in range(3)]
    for job in jobs:
        parts.queues.append(job)
    ahead = parts.job()
    parts.queues.rank_first(ahead)
    parts.queues.prepend(ahead)
    parts.queues.remove(jobs[1])
    assert list(parts.queues.ready_jobs(parts.function())) == [ahead, jobs[0], jobs[2]]


# --- Wakeups ---


def test_the_worker_asleep_longest_is_woken_and_then_has_to_ask() -> None:
    parts = Parts()
    first, second = parts.worker(), parts.worker()
    assert parts.wakeups.sleep(first)
    assert parts.wakeups.sleep(second)
    parts.queues.append(parts.job())
    parts.wakeups.wake(parts.function())
    assert (heard(first), heard(second)) == ([("wake", first.id)], [])
    assert (first.asleep, second.asleep, parts.wakeups.count) == (False, True, 1)


def test_a_worker_for_which_there_is_a_job_should_not_sleep() -> None:
    parts = Parts()
    parts.queues.append(parts.job())
    assert not parts.wakeups.sleep(parts.worker())


def test_if_a_woken_worker_does_not_ask_all_are_woken() -> None:
    parts = Parts()
    workers = [parts.worker() for _ in range(3)]
    for worker in workers:
        parts.wakeups.sleep(worker)
    parts.queues.append(parts.job())
    parts.wakeups.wake(parts.function())
    assert parts.due(2_000_000) == [(DeadlineKind.UNANSWERED_WAKEUP, parts.function())]
    parts.state.now_us += 2_000_000
    parts.wakeups.check(parts.function())
    assert [len(heard(worker)) for worker in workers] == [1, 1, 1]


def test_a_woken_worker_that_leaves_passes_the_wakeup_on() -> None:
    parts = Parts()
    first, second = parts.worker(), parts.worker()
    parts.wakeups.sleep(first)
    parts.wakeups.sleep(second)
    parts.queues.append(parts.job())
    parts.wakeups.wake(parts.function())
    parts.wakeups.pass_on(first)
    assert heard(second) == [("wake", second.id)]


# --- FunctionRegistry ---


def test_a_function_is_created_once() -> None:
    parts = Parts(jobs_per_function=9)
    function = parts.functions.named(b"mail")
    assert parts.functions.named(b"mail") is function
    assert (function.limits, parts.observer.heard) == ([9, 9, 9], [("function", b"mail")])


def test_an_unused_function_makes_room_for_another_one_in_use_does_not() -> None:
    parts = Parts(functions=2)
    parts.job(b"used")
    parts.functions.named(b"unused")
    parts.state.now_us += 1
    parts.functions.named(b"new")
    assert list(parts.state.functions) == [b"used", b"new"]
    parts.job(b"new")
    with pytest.raises(Refused, match="there are 2 functions already"):
        parts.functions.named(b"third")


def test_a_function_in_use_is_not_dropped() -> None:
    parts = Parts()
    function = parts.job().function
    assert not parts.functions.drop(function)
    function.total = 0
    assert parts.functions.drop(function)
    assert not parts.functions.drop(function)
    assert (parts.state.functions, parts.state.memory.registration_bytes) == ({}, 0)


# --- Dispatcher ---


def test_a_worker_that_asks_gets_the_next_job() -> None:
    parts = Parts()
    worker, job = parts.worker(), parts.job()
    assert parts.dispatcher.take(worker) is None
    parts.dispatcher.enqueue(job)
    assert parts.dispatcher.chooser.has_work(parts.function())
    assert parts.dispatcher.take(worker) is job
    assert (job.state, job.worker, list(worker.running)) == (RUNNING, worker, [job.id])


def test_a_worker_with_credit_is_assigned_jobs_without_asking() -> None:
    parts = Parts()
    worker = parts.worker()
    parts.dispatcher.grant(worker, 2)
    jobs = [parts.job() for _ in range(3)]
    for job in jobs:
        parts.dispatcher.enqueue(job)
    assert heard(worker) == [("assign", worker.id, job.id) for job in jobs[:2]]
    assert (worker.credits, parts.function().ready) == (0, 1)
    assert parts.dispatcher.take_back_credit(worker, 5) == 0


def test_a_limit_leaves_jobs_in_their_queue_until_there_is_room() -> None:
    parts = Parts()
    function, worker = parts.function(), parts.worker()
    parts.key_distribution.use_policy(function, Policy(concurrency=1))
    first, second = parts.job(), parts.job()
    parts.dispatcher.enqueue(first)
    parts.dispatcher.enqueue(second)
    assert [parts.dispatcher.take(worker), parts.dispatcher.take(worker)] == [first, None]
    parts.attempts.detach(first)
    assert parts.dispatcher.take(worker) is second


def test_nothing_is_handed_out_while_that_is_stopped() -> None:
    parts = Parts()
    worker = parts.worker()
    parts.dispatcher.enqueue(parts.job())
    parts.state.set_handing_out(False, False)
    assert parts.dispatcher.take(worker) is None
