"""What concerns very many jobs is done over several turns, so many jobs in each."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import SubmitOptions
from switchgear.engine.sliced_work import UNITS_PER_TURN
from switchgear.errors import Refused
from switchgear.model import CANCELLED, DONE, NORMAL, READY, RUNNING, WAITING, Delivery
from switchgear.testing import RecordingPeer
from switchgear.testing.invariants import check_engine
from tests.engine.house import House

MANY = 2 * UNITS_PER_TURN + 500


def turns_until_rest(house: House) -> int:
    turns = 0
    while (next_us := house.engine.next_deadline_us) is not None and next_us <= house.now_us:
        house.pass_seconds(0)
        turns += 1
    check_engine(house.engine)
    return turns


def test_a_client_with_very_many_foreground_jobs_leaves(house: House) -> None:
    client = RecordingPeer()
    jobs = [house.submit(delivery=Delivery.WAIT, watcher=client) for _ in range(MANY)]
    house.pass_seconds(0)
    house.engine.unsubscribe(client)
    assert sum(job.state is CANCELLED for job in jobs) == UNITS_PER_TURN
    assert turns_until_rest(house) == 2
    assert all(job.state is CANCELLED for job in jobs)


def test_a_job_that_its_client_watches_again_is_not_abandoned(house: House) -> None:
    client = RecordingPeer()
    jobs = [house.submit(delivery=Delivery.WAIT, watcher=client) for _ in range(MANY)]
    house.pass_seconds(0)
    house.engine.unsubscribe(client)
    house.engine.subscribe(jobs[-1], client)
    turns_until_rest(house)
    assert [job.id for job in jobs if job.state is READY] == [jobs[-1].id]


def test_a_worker_that_holds_very_many_jobs_dies(house: House) -> None:
    house.engine.settings.jobs_per_worker = 0
    worker = house.worker()
    jobs = [house.submit() for _ in range(MANY)]
    for _ in jobs:
        house.engine.take(worker)
    house.pass_seconds(0)
    house.engine.remove_worker(worker)
    assert sum(job.state is READY for job in jobs) == UNITS_PER_TURN
    assert sum(job.state is RUNNING for job in jobs) == MANY - UNITS_PER_TURN
    assert turns_until_rest(house) == 2
    assert all(job.state is READY and job.worker is None for job in jobs)


def test_a_job_is_done_that_very_many_wait_for(house: House) -> None:
    worker = house.worker()
    first = house.submit()
    jobs = [house.submit(after=(first,)) for _ in range(MANY)]
    house.engine.take(worker)
    house.pass_seconds(0)
    house.engine.complete(worker, first.id, b"")
    assert sum(job.state is READY for job in jobs) == UNITS_PER_TURN
    house.engine.cancel(jobs[-1])  # one that has not been released yet
    late = house.submit(after=(first,))
    assert (first.state, late.state) == (DONE, READY)
    turns_until_rest(house)
    assert all(job.state is READY for job in jobs[:-1])
    assert house.engine.dependencies.successors == {}


def test_very_many_jobs_are_due_at_one_moment(house: House) -> None:
    at_us = house.at(10)
    jobs = [house.submit(run_at_us=at_us) for _ in range(MANY)]
    house.pass_seconds(10)
    assert [job.state is READY for job in jobs] == [True] * UNITS_PER_TURN + [False] * (MANY - UNITS_PER_TURN)
    assert turns_until_rest(house) == 2
    assert all(job.state is READY for job in jobs)


def test_turns_are_shared_by_all_that_is_pending(house: House) -> None:
    clients = [RecordingPeer(), RecordingPeer()]
    jobs = [[house.submit(delivery=Delivery.WAIT, watcher=client) for _ in range(MANY)] for client in clients]
    house.pass_seconds(0)
    for client in clients:
        house.engine.unsubscribe(client)
    house.pass_seconds(0)
    ended = [sum(job.state is CANCELLED for job in each) for each in jobs]
    assert ended == [UNITS_PER_TURN + UNITS_PER_TURN // 2, UNITS_PER_TURN // 2]
    turns_until_rest(house)


def test_others_may_act_between_the_steps_of_a_cancel(house: House) -> None:
    first = house.submit()
    second = house.submit(after=(first,))
    third = house.submit(after=(second,))
    steps = house.engine.cancel_in_steps(first, cascade=True)
    for _ in range(4):
        assert next(steps) is None  # all are found, and none has ended
    house.engine.cancel(second)
    fourth = house.submit(after=(third,))
    assert [job for job in steps if job is not None] == [first, third]
    assert (second.state, fourth.state) == (CANCELLED, WAITING)
    check_engine(house.engine)


def test_a_reserved_name_can_be_used_by_its_graph_only(house: House) -> None:
    graph = house.engine.new_graph(is_long=True)
    assert graph.begin()
    graph.add(graph.template(house.function(), SubmitOptions()), b"x", b"Anna")
    with pytest.raises(Refused, match="named b'Anna'"):
        house.submit(name=b"Anna")
    assert [*graph.check(), *graph.apply()] == [None]
    graph.end()
    job = house.engine.named(b"Anna")
    assert job is not None
    assert (job.state, job.priority, job.payload) == (READY, NORMAL, b"x")
    assert not house.engine.withdraw(job)
