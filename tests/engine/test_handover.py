"""An engine lets go of functions, and another one goes on with what the store has of them."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import Engine
from switchgear.engine.handover import HandedOver
from switchgear.model import DONE, HIGH, READY, RUNNING, SCHEDULED, WAITING, Delivery, Function, Job, Schedule
from switchgear.policy import Policy
from switchgear.testing import RecordingPeer, check_engine
from switchgear.testing.simulation.store import SimulatedStore
from switchgear.timetable import Every
from tests.engine.harness import Harness


def hand_over(harness: Harness, *names: bytes) -> HandedOver:
    """Let go of these functions, with a look at the engine after each step."""
    known = HandedOver()
    functions = [harness.engine.functions[name] for name in names]
    steps = harness.engine.hand_over(functions, known)
    for number, _ in enumerate(steps):
        if number < 50:
            check_engine(harness.engine)
    check_engine(harness.engine)
    return known


def stored(harness: Harness) -> SimulatedStore:
    """A store with all changes so far."""
    store = SimulatedStore()
    store.stage(harness.engine)
    store.begin_commit()
    store.end_commit(harness.engine)
    return store


def adopt(store: SimulatedStore, engine: Engine, *names: bytes) -> dict[int, Job]:
    """Restore the jobs of these functions in an engine that has others already."""
    store.committed = {job_id: row for job_id, row in store.committed.items() if row.function_name in names}
    store.next_job_id = 0
    jobs, _ = store.load(engine, plain_apart=False)
    check_engine(engine)
    return {job.id: job for job in jobs}


@pytest.fixture
def harness() -> Harness:
    harness = Harness()
    harness.engine.is_durable = True
    return harness


def used_bytes(engine: Engine) -> tuple[int, ...]:
    memory = engine.memory
    return memory.job_bytes, memory.key_bytes, memory.limiter_bytes, memory.schedule_bytes, memory.registration_bytes


def test_nothing_is_left_of_a_function_and_nothing_else_changes(harness: Harness) -> None:
    engine = harness.engine
    stays = harness.submit(b"stays", unique=b"k")
    before = used_bytes(engine)
    ready = harness.submit(b"goes", unique=b"k")
    harness.submit(b"goes", unique=b"later", run_at_us=harness.at(10))
    harness.submit(b"goes", expires_us=harness.at(20), name=b"named")
    harness.submit(b"goes", predecessors=(ready.id,))
    stored(harness)
    known = hand_over(harness, b"goes")
    assert [job.id for job in engine.unfinished_jobs()] == [stays.id]
    assert list(engine.functions) == [b"stays"]
    assert used_bytes(engine) == before
    assert b"named" not in engine.names
    assert (known.runs, known.subscriptions, known.unstored) == ([], [], [])
    harness.pass_seconds(100)  # no deadline of theirs is left
    check_engine(engine)
    assert not engine.changed


def test_another_engine_goes_on_with_them(harness: Harness) -> None:
    first = harness.submit(b"goes", unique=b"k")
    scheduled = harness.submit(b"goes", run_at_us=harness.at(10))
    waiting = harness.submit(b"goes", predecessors=(first.id,))
    urgent = harness.submit(b"goes", priority=HIGH)
    store = stored(harness)
    hand_over(harness, b"goes")
    other = Harness(clock=harness.clock)
    other.engine.next_job_id = 1_000_000  # ids of different engines are never the same
    mine = other.submit(b"mine")
    jobs = adopt(store, other.engine, b"goes")
    states = {job_id: job.state for job_id, job in jobs.items()}
    assert states == {first.id: READY, scheduled.id: SCHEDULED, waiting.id: WAITING, urgent.id: READY}
    assert other.submit(b"goes", unique=b"k").id == first.id
    assert other.submit(b"goes").id == 1_000_001
    worker = other.worker(b"goes", b"mine")
    taken = [other.engine.take(worker) for _ in range(3)]
    assert {job.id for job in taken if job} == {urgent.id, first.id, mine.id}
    for job in taken:
        assert job is not None
        other.engine.complete(worker, job.id, b"")
    assert jobs[waiting.id].state is READY
    check_engine(other.engine)


def test_who_waited_and_worked_is_told_to_the_owner(harness: Harness) -> None:
    engine = harness.engine
    client = RecordingPeer()
    worker = harness.worker(b"goes", b"stays")
    running = harness.submit(b"goes", watcher=client)
    engine.take(worker)
    foreground = harness.submit(b"goes", delivery=Delivery.WAIT, watcher=client, payload=b"precious")
    goes = engine.functions[b"goes"]
    stored(harness)
    known = hand_over(harness, b"goes")
    assert known.registrations == [(worker, goes)]
    assert known.runs == [(worker, running)]
    assert running.state is RUNNING
    assert known.subscriptions == [(client, running), (client, foreground)]
    assert known.unstored == [foreground]
    assert foreground.payload == b"precious"
    assert client.take_heard() == []
    assert not client.subscriptions
    assert not worker.running
    assert [function.name for function in worker.order] == [b"stays"]
    assert engine.complete(worker, running.id, b"late") is None


def test_a_change_that_is_not_staged_yet_keeps_its_contents(harness: Harness) -> None:
    job = harness.submit(b"goes", payload=b"new")
    hand_over(harness, b"goes")
    jobs, _ = harness.engine.take_changes()
    assert (jobs, job.payload) == ([job], b"new")


def test_keys_that_finished_jobs_hold(harness: Harness) -> None:
    worker = harness.worker(b"goes")
    job = harness.submit(b"goes", unique=b"k", unique_for_us=60_000_000)
    harness.engine.take(worker)
    harness.engine.complete(worker, job.id, b"")
    assert job.state is DONE
    store = stored(harness)
    hand_over(harness, b"goes")
    other = Harness(clock=harness.clock)
    adopt(store, other.engine, b"goes")
    assert other.submit(b"goes", unique=b"k").id == job.id


def test_limits_and_keys(harness: Harness) -> None:
    engine = harness.engine
    engine.set_policy(harness.function(b"goes"), Policy(concurrency=2, key_concurrency=1, fair=True))
    for number in range(20):
        harness.submit(b"goes", key=b"key %d" % (number % 3))
    worker = harness.worker(b"goes")
    assert engine.take(worker) is not None
    stored(harness)
    known = hand_over(harness, b"goes")
    assert len(known.runs) == 1
    assert engine.memory.limiter_bytes == 0
    harness.pass_seconds(5)
    check_engine(engine)


def test_schedules_go_with_their_function(harness: Harness) -> None:
    engine = harness.engine
    for name in (b"goes", b"stays"):
        engine.set_schedule(Schedule(name, Every(5_000_000), name))
    engine.function_named(b"goes")
    stored(harness)
    hand_over(harness, b"goes")
    assert list(engine.schedules) == [b"stays"]
    assert not engine.changed_schedules
    harness.pass_seconds(11)
    assert {job.function.name for job in engine.unfinished_jobs()} == {b"stays"}


def test_very_many_packed_jobs_leave_in_steps(harness: Harness) -> None:
    engine = harness.engine
    engine.packed_queues.segment_jobs = 16
    engine.packed_queues.head_jobs = 8
    engine.packed_queues.pack_from = 64
    for number in range(500):
        harness.submit(b"goes", unique=b"%d" % number)
    store = stored(harness)
    engine.pack(list(engine.functions.values()))
    assert engine.packed_queues.job_count > 300
    steps = hand_over_steps(engine, engine.functions[b"goes"])
    assert steps > 300
    assert engine.job_count() == engine.memory.job_bytes == 0
    other = Harness(clock=harness.clock)
    assert len(adopt(store, other.engine, b"goes")) == 500


def hand_over_steps(engine: Engine, function: Function) -> int:
    return sum(1 for _ in engine.hand_over([function], HandedOver()))


def test_a_function_comes_back(harness: Harness) -> None:
    job = harness.submit(b"goes", unique=b"k")
    store = stored(harness)
    hand_over(harness, b"goes")
    jobs = adopt(store, harness.engine, b"goes")
    assert jobs[job.id] is not job
    assert harness.submit(b"goes", unique=b"k") is jobs[job.id]


def test_jobs_that_went_last_stay_behind_after_others_are_adopted(harness: Harness) -> None:
    """Adopting must not forget which places are taken."""
    engine = harness.engine
    worker = harness.worker(b"stays")
    first, second = harness.submit(b"stays"), harness.submit(b"stays")
    engine.take(worker)
    engine.retry_later(worker, first.id, 0)
    rank = engine.jobs.get(first.id).rank  # type: ignore[union-attr]
    assert rank > 0
    adopt(stored(Harness(clock=harness.clock)), engine, b"none")
    engine.take(worker)
    engine.retry_later(worker, second.id, 0)
    assert engine.jobs.get(second.id).rank > rank  # type: ignore[union-attr]


def test_a_schedule_goes_although_its_function_is_not_known(harness: Harness) -> None:
    """Nothing was ever submitted to the function, and no worker serves it."""
    engine = harness.engine
    schedule = engine.set_schedule(Schedule(b"goes", Every(5_000_000), b"unknown"))
    engine.take_changed_schedules()
    assert b"unknown" not in engine.functions
    for _ in engine.hand_over((), HandedOver(), [schedule]):
        pass
    assert not engine.schedules
    assert not engine.changed_schedules
    check_engine(engine)


def test_a_schedule_is_given_to_another_engine_in_one_change(harness: Harness) -> None:
    engine = harness.engine
    known = engine.set_schedule(Schedule(b"s", Every(5_000_000), b"ours", payload=b"old"))
    known.fired = 3
    engine.take_changed_schedules()
    engine.give_schedule(known, Schedule(b"s", Every(7_000_000), b"theirs", payload=b"new"))
    assert not engine.schedules
    (changed,) = engine.take_changed_schedules()
    assert (changed.function_name, changed.payload, changed.fired, changed.removed) == (b"theirs", b"new", 3, False)
    check_engine(engine)
