"""What jobs, workers and schedules take beside payloads and results is counted too, and has an end."""

from __future__ import annotations

from contextlib import suppress

import pytest

from switchgear.engine.engine import Engine, EngineSettings, SubmitOptions
from switchgear.engine.functions import FUNCTION_BYTES
from switchgear.engine.limiters import KEY_QUEUE_BYTES
from switchgear.engine.packed_queues import PACKED_JOB_BYTES
from switchgear.engine.workers import ABILITY_BYTES, WORKER_BYTES
from switchgear.errors import Refused
from switchgear.memory import LEAST_REGISTRATION_BYTES
from switchgear.model import NORMAL, SECOND_US, Cause, Delivery, Job, Peer, Schedule
from switchgear.model.job import DETAILS_BYTES, EDGE_BYTES, JOB_BYTES, MOST_MOVES, SUBSCRIPTION_BYTES
from switchgear.policy import Policy
from switchgear.testing import RecordingPeer, check_engine
from switchgear.timetable import Every
from switchgear.units import MIB

ENOUGH = 100 * JOB_BYTES


def limited(memory_bytes: int = ENOUGH) -> Engine:
    engine = Engine(EngineSettings(memory_bytes=memory_bytes))
    engine.advance(SECOND_US)
    return engine


def submit(engine: Engine, watcher: Peer | None = None, unique: bytes = b"", **options: object) -> Job:
    delivery = Delivery.WAIT if watcher is not None else Delivery.HANDLE
    given = SubmitOptions(**options) if options else None  # type: ignore[arg-type]
    return engine.submit(b"f", unique, b"", NORMAL, delivery, watcher, given)


def submit_until_refused(engine: Engine, watcher: Peer | None = None, unique: bytes = b"", **options: object) -> int:
    """How many were taken."""
    count = 0
    with suppress(Refused):
        while count < 10_000:
            submit(engine, watcher, unique, **options)
            count += 1
    check_engine(engine)
    return count


# --- jobs ---


def test_jobs_without_a_payload_have_an_end() -> None:
    engine = limited()
    assert submit_until_refused(engine) == engine.memory.stored_limit_bytes // JOB_BYTES


def test_a_job_that_ended_makes_room_for_another() -> None:
    engine = limited()
    submit_until_refused(engine)
    job = next(iter(engine.jobs.values()))
    engine.cancel(job)
    engine.drop_contents(job)
    submit(engine)


def test_watched_jobs_count_for_more_and_their_watcher_lets_go_of_them() -> None:
    engine = limited()
    client = RecordingPeer()
    assert submit_until_refused(engine, client) == engine.memory.stored_limit_bytes // (JOB_BYTES + SUBSCRIPTION_BYTES)
    engine.unsubscribe(client)
    assert engine.memory.job_bytes == 0


def test_one_job_that_is_submitted_again_and_again_has_an_end_of_watchers() -> None:
    engine = limited()
    expected = (engine.memory.stored_limit_bytes - JOB_BYTES - 1) // SUBSCRIPTION_BYTES
    assert submit_until_refused(engine, RecordingPeer(), b"k") == expected


def test_names_keys_and_edges_count() -> None:
    engine = limited(100_000)
    predecessors = tuple(submit(engine).id for _ in range(10))
    before = engine.memory.job_bytes
    submit(engine, name=b"n" * 100, key=b"k" * 100, origin="o" * 100, predecessors=predecessors)
    more = engine.memory.job_bytes - before
    assert more >= JOB_BYTES + DETAILS_BYTES + 300 + 10 * EDGE_BYTES
    check_engine(engine)


def test_edges_that_are_added_later_count() -> None:
    engine = limited(100_000)
    job, other = submit(engine), submit(engine)
    before = engine.memory.job_bytes
    engine.add_predecessors(job, (other.id,))
    assert engine.memory.job_bytes - before >= EDGE_BYTES
    check_engine(engine)


def test_the_tasks_of_a_long_request_are_counted_like_others() -> None:
    engine = limited(100_000)
    function = engine.function_named(b"f")
    graph = engine.new_graph()
    graph.add(graph.template(function, SubmitOptions()), b"payload", b"n")
    [job] = engine.submit_graph(graph)
    assert engine.memory.job_bytes == JOB_BYTES + DETAILS_BYTES + len(b"payload") + 1
    worker = engine.add_worker(RecordingPeer(), "test")
    engine.can_do(worker, function)
    engine.take(worker)
    engine.complete(worker, job.id, b"result")
    engine.drop_contents(job)
    assert engine.memory.job_bytes == 0


def test_a_job_that_is_handed_back_for_ever_remembers_its_first_and_its_last_moves() -> None:
    engine = limited(1_000_000)
    job = submit(engine)
    worker = engine.add_worker(RecordingPeer(), "test")
    engine.can_do(worker, engine.function_named(b"f"))
    for number in range(2 * MOST_MOVES):
        engine.advance((number + 2) * SECOND_US)
        assert engine.take(worker) is job
        engine.release(worker, job.id)
    assert len(job.log) <= MOST_MOVES + 1
    assert job.log[:3] == [
        (Cause.SUBMITTED, SECOND_US),
        (Cause.TAKEN, 2 * SECOND_US),
        (Cause.GIVEN_BACK, 2 * SECOND_US),
    ]
    assert job.log[-1] == (Cause.GIVEN_BACK, engine.now_us)
    check_engine(engine, [job])


def test_jobs_on_shelves_count_for_less_and_for_something() -> None:
    engine = limited(1_000_000)
    engine.reports_changes = True
    engine.packed_queues.segment_jobs, engine.packed_queues.head_jobs, engine.packed_queues.pack_from = 4, 2, 8
    jobs = [engine.submit(b"f", b"key %d" % number, b"", NORMAL, Delivery.HANDLE) for number in range(10, 50)]
    before = engine.memory.job_bytes
    engine.take_changes()
    for job in jobs:
        job.kept = job.revision = 1
    engine.pack({jobs[0].function: None})
    shelved = engine.packed_queues.job_count
    assert shelved > 20
    assert before - engine.memory.job_bytes == shelved * (JOB_BYTES - PACKED_JOB_BYTES)
    check_engine(engine)
    assert engine.job(jobs[20].id) is not None
    check_engine(engine)


def test_a_long_error_is_told_whole_and_kept_in_part() -> None:
    engine = limited(10_000_000)
    client = RecordingPeer()
    job = submit(engine, client)
    worker = engine.add_worker(RecordingPeer(), "test")
    engine.can_do(worker, engine.function_named(b"f"))
    engine.take(worker)
    engine.fail(worker, job.id, 1, b"e" * 1_000_000)
    assert job.error == b"e" * engine.settings.warning_bytes
    check_engine(engine, [job])


# --- workers and functions ---


def test_functions_and_workers_have_a_share_of_their_own() -> None:
    engine = limited()
    submit_until_refused(engine)
    worker = engine.add_worker(RecordingPeer(), "test")
    engine.refuse_registrations(1)
    engine.can_do(worker, engine.function_named(b"f"))
    assert engine.take(worker) is not None
    assert engine.memory.registration_bytes == FUNCTION_BYTES + 1 + WORKER_BYTES + ABILITY_BYTES
    engine.remove_worker(worker)
    assert engine.memory.registration_bytes == FUNCTION_BYTES + 1


def test_workers_have_an_end() -> None:
    engine = limited()
    function = engine.function_named(b"f")
    count = 0
    with suppress(Refused):
        while count < 10_000:
            engine.refuse_registrations(1)
            engine.can_do(engine.add_worker(RecordingPeer(), "test"), function)
            count += 1
    assert count == (LEAST_REGISTRATION_BYTES * 3 // 4 - FUNCTION_BYTES - 1) // (WORKER_BYTES + ABILITY_BYTES)
    engine.function_named(b"there is still room for functions")


def test_functions_that_nobody_uses_make_room_for_others() -> None:
    engine = limited()
    most = LEAST_REGISTRATION_BYTES // (FUNCTION_BYTES + 5)
    for number in range(10 * most):
        engine.advance((number + 2) * SECOND_US)
        engine.function_named(b"%05d" % number)
    assert len(engine.functions) == most


def test_functions_are_looked_through_once_in_a_turn_to_make_room_for_workers() -> None:
    """One connection can ask hundreds of times in a turn, and all others wait for that."""
    engine = limited(256 * MIB)
    with suppress(Refused):
        for number in range(100_000):
            engine.function_named(b"%05d" % number)  # in use, for this turn
    orders = [list(engine.functions)]
    for _ in range(2):
        with pytest.raises(Refused, match="no memory"):
            engine.refuse_registrations(1)
        orders.append(list(engine.functions))
    assert orders[0] != orders[1], "those that were looked at and stay go to the end"
    assert orders[1] == orders[2]
    for seconds in range(2, 10):
        engine.advance(seconds * SECOND_US)
        with suppress(Refused):
            engine.refuse_registrations(1)
            break
    else:
        pytest.fail("functions that nobody uses do not make room")


# --- schedules ---


def test_the_payloads_of_schedules_count() -> None:
    engine = limited(100_000)
    schedule = engine.set_schedule(Schedule(b"s", Every(60 * SECOND_US), b"f", b"x" * 10_000))
    assert engine.memory.schedule_bytes > 10_000
    with pytest.raises(Refused, match="no memory"):
        engine.set_schedule(Schedule(b"t", Every(60 * SECOND_US), b"f", b"x" * 50_000))
    with pytest.raises(Refused, match="no memory"):
        engine.set_schedule(Schedule(b"s", Every(60 * SECOND_US), b"f", b"x" * 50_000))
    assert (list(engine.schedules), schedule.payload) == ([b"s"], b"x" * 10_000)
    engine.remove_schedule(schedule)
    assert engine.memory.schedule_bytes == 0


# --- limits by key ---


def test_keys_that_limits_are_kept_for_count() -> None:
    engine = limited(1_000_000)
    engine.set_policy(engine.function_named(b"f"), Policy(key_rate=(1, 3600 * SECOND_US)))
    worker = engine.add_worker(RecordingPeer(), "test")
    engine.can_do(worker, engine.function_named(b"f"))
    for number in range(10):
        job = submit(engine, key=b"key %d" % number)
        assert engine.take(worker) is job
        engine.complete(worker, job.id, b"")
        engine.drop_contents(job)
    assert engine.memory.job_bytes == 0
    assert engine.memory.limiter_bytes == 10 * (KEY_QUEUE_BYTES + len(b"key 0"))
    engine.advance(2 * 3600 * SECOND_US)
    assert engine.memory.limiter_bytes == 0


def test_a_policy_that_is_taken_back_holds_no_keys() -> None:
    engine = limited(1_000_000)
    function = engine.function_named(b"f")
    engine.set_policy(function, Policy(key_concurrency=1))
    submit(engine, key=b"k")
    engine.set_policy(function, Policy(key_concurrency=2))
    assert engine.memory.limiter_bytes == KEY_QUEUE_BYTES + 1
    engine.set_policy(function, Policy())
    assert engine.memory.limiter_bytes == 0
