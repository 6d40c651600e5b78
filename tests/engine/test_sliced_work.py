"""What concerns very many jobs is done over several turns, so many jobs in each."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import SubmitOptions
from switchgear.engine.sliced_work import UNITS_PER_TURN
from switchgear.errors import Refused
from switchgear.model import CANCELLED, DONE, NORMAL, READY, RUNNING, WAITING, Delivery
from switchgear.testing import RecordingPeer
from switchgear.testing.invariants import check_engine
from tests.engine.harness import Harness

MANY = 2 * UNITS_PER_TURN + UNITS_PER_TURN // 2


def turns_until_rest(harness: Harness) -> int:
    turns = 0
    while (next_us := harness.engine.next_deadline_us) is not None and next_us <= harness.now_us:
        harness.pass_seconds(0)
        turns += 1
    check_engine(harness.engine)
    return turns


def test_a_client_with_very_many_foreground_jobs_leaves(harness: Harness) -> None:
    client = RecordingPeer()
    jobs = [harness.submit(delivery=Delivery.WAIT, watcher=client) for _ in range(MANY)]
    harness.pass_seconds(0)
    harness.engine.unsubscribe(client)
    assert sum(job.state is CANCELLED for job in jobs) == UNITS_PER_TURN
    assert turns_until_rest(harness) == 2
    assert all(job.state is CANCELLED for job in jobs)


def test_a_client_that_has_left_is_told_nothing_while_its_subscriptions_are_removed(harness: Harness) -> None:
    client = RecordingPeer()
    jobs = [harness.submit(watcher=client) for _ in range(MANY)]
    worker = harness.worker(peer=RecordingPeer())
    for _ in jobs:
        harness.engine.take(worker)
    harness.pass_seconds(0)
    harness.engine.unsubscribe(client)
    last = jobs[-1]
    assert last.subscribers == [client]  # its subscription is still to be removed
    harness.engine.progress(worker, last.id, 1, 2)
    harness.engine.data(worker, last.id, b"part")
    harness.engine.warning(worker, last.id, b"careful")
    harness.engine.complete(worker, last.id, b"done")
    turns_until_rest(harness)
    assert client.heard == []
    assert client.ended_subscriptions is None


def test_a_client_that_subscribes_again_meanwhile_is_told_once(harness: Harness) -> None:
    client = RecordingPeer()
    jobs = [harness.submit(watcher=client) for _ in range(MANY)]
    harness.pass_seconds(0)
    harness.engine.unsubscribe(client)
    harness.engine.subscribe(jobs[-1], client)
    harness.engine.cancel(jobs[-1])
    assert client.heard == [("finished", jobs[-1].id, CANCELLED)]
    turns_until_rest(harness)


def test_a_job_that_its_client_watches_again_is_not_abandoned(harness: Harness) -> None:
    client = RecordingPeer()
    jobs = [harness.submit(delivery=Delivery.WAIT, watcher=client) for _ in range(MANY)]
    harness.pass_seconds(0)
    harness.engine.unsubscribe(client)
    harness.engine.subscribe(jobs[-1], client)
    turns_until_rest(harness)
    assert [job.id for job in jobs if job.state is READY] == [jobs[-1].id]


def test_a_worker_that_holds_very_many_jobs_dies(harness: Harness) -> None:
    harness.engine.settings.jobs_per_worker = 0
    worker = harness.worker()
    jobs = [harness.submit() for _ in range(MANY)]
    for _ in jobs:
        harness.engine.take(worker)
    harness.pass_seconds(0)
    harness.engine.remove_worker(worker)
    assert sum(job.state is READY for job in jobs) == UNITS_PER_TURN
    assert sum(job.state is RUNNING for job in jobs) == MANY - UNITS_PER_TURN
    assert turns_until_rest(harness) == 2
    assert all(job.state is READY and job.worker is None for job in jobs)


def test_a_job_is_done_that_very_many_wait_for(harness: Harness) -> None:
    worker = harness.worker()
    first = harness.submit()
    jobs = [harness.submit(after=(first,)) for _ in range(MANY)]
    harness.engine.take(worker)
    harness.pass_seconds(0)
    harness.engine.complete(worker, first.id, b"")
    assert sum(job.state is READY for job in jobs) == UNITS_PER_TURN
    harness.engine.cancel(jobs[-1])  # one that has not been released yet
    late = harness.submit(after=(first,))
    assert (first.state, late.state) == (DONE, READY)
    turns_until_rest(harness)
    assert all(job.state is READY for job in jobs[:-1])
    assert not len(harness.engine.dependencies.successors)


def test_very_many_jobs_are_due_at_one_moment(harness: Harness) -> None:
    at_us = harness.at(10)
    jobs = [harness.submit(run_at_us=at_us) for _ in range(MANY)]
    harness.pass_seconds(10)
    assert [job.state is READY for job in jobs] == [True] * UNITS_PER_TURN + [False] * (MANY - UNITS_PER_TURN)
    assert turns_until_rest(harness) == 2
    assert all(job.state is READY for job in jobs)


def test_turns_are_shared_by_all_that_is_pending(harness: Harness) -> None:
    clients = [RecordingPeer(), RecordingPeer()]
    jobs = [[harness.submit(delivery=Delivery.WAIT, watcher=client) for _ in range(MANY)] for client in clients]
    harness.pass_seconds(0)
    for client in clients:
        harness.engine.unsubscribe(client)
    harness.pass_seconds(0)
    ended = [sum(job.state is CANCELLED for job in each) for each in jobs]
    assert ended == [UNITS_PER_TURN + UNITS_PER_TURN // 2, UNITS_PER_TURN // 2]
    turns_until_rest(harness)


def test_others_may_act_between_the_steps_of_a_cancel(harness: Harness) -> None:
    first = harness.submit()
    second = harness.submit(after=(first,))
    third = harness.submit(after=(second,))
    steps = harness.engine.cancel_in_steps(first, cascade=True)
    for _ in range(4):
        assert next(steps) is None  # all are found, and none has ended
    harness.engine.cancel(second)
    fourth = harness.submit(after=(third,))
    assert [job for job in steps if job is not None] == [first, third]
    assert (second.state, fourth.state) == (CANCELLED, WAITING)
    check_engine(harness.engine)


def test_a_reserved_name_can_be_used_by_its_graph_only(harness: Harness) -> None:
    graph = harness.engine.new_graph(is_long=True)
    assert graph.begin()
    graph.add(graph.template(harness.function(), SubmitOptions()), b"x", b"Anna")
    with pytest.raises(Refused, match="named b'Anna'"):
        harness.submit(name=b"Anna")
    assert [*graph.check(), *graph.apply()] == [None]
    graph.end()
    job = harness.engine.named(b"Anna")
    assert job is not None
    assert (job.state, job.priority, job.payload) == (READY, NORMAL, b"x")
    assert not harness.engine.withdraw(job)


# --- very many workers ---


def test_a_function_is_resumed_for_which_very_many_workers_sleep(harness: Harness) -> None:
    harness.engine.pause(harness.function())
    workers = [harness.worker() for _ in range(MANY)]
    for worker in workers:
        harness.submit()
        assert harness.engine.sleep(worker)
    harness.pass_seconds(0)
    harness.engine.resume(harness.function())
    assert sum(not worker.asleep for worker in workers) == UNITS_PER_TURN
    assert turns_until_rest(harness) == 2
    assert not any(worker.asleep for worker in workers)


def test_handing_out_begins_again_and_very_many_workers_have_credit(harness: Harness) -> None:
    harness.engine.stop_handing_out()
    workers = [harness.worker() for _ in range(MANY)]
    for worker in workers:
        harness.submit()
        harness.engine.grant(worker, 1)
    harness.pass_seconds(0)
    harness.engine.start_handing_out()
    assert harness.function().running == UNITS_PER_TURN
    assert turns_until_rest(harness) == 2
    assert harness.function().running == MANY


def test_a_function_is_paused_again_before_all_are_woken(harness: Harness) -> None:
    harness.engine.pause(harness.function())
    workers = [harness.worker() for _ in range(MANY)]
    for worker in workers:
        harness.submit()
        assert harness.engine.sleep(worker)
    harness.pass_seconds(0)
    harness.engine.resume(harness.function())
    harness.engine.pause(harness.function())
    turns_until_rest(harness)
    assert sum(not worker.asleep for worker in workers) == UNITS_PER_TURN


def test_nobody_asks_for_a_job_and_very_many_others_sleep(harness: Harness) -> None:
    workers = [harness.worker() for _ in range(MANY)]
    for worker in workers:
        assert harness.engine.sleep(worker)
    harness.submit()
    assert sum(not worker.asleep for worker in workers) == 1
    harness.pass_seconds(1)
    assert UNITS_PER_TURN // 2 <= sum(not worker.asleep for worker in workers) <= 2 * UNITS_PER_TURN
    harness.engine.remove_worker(workers[-2])
    assert harness.engine.take(workers[0]) is not None  # so the others need not be woken
    turns_until_rest(harness)
    assert workers[-1].asleep
