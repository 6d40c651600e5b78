"""An engine that is no longer wanted leaves nothing behind, compiled or not."""

from __future__ import annotations

import gc

from switchgear.engine.engine import Engine, SubmitOptions
from switchgear.model import LOW, NORMAL, Delivery, Function, Peer
from switchgear.policy import Policy

NAME = b"a function that no other test has"


def busy_engine() -> Engine:
    """With jobs in every place where a job can be."""
    engine = Engine()
    engine.reports_changes = True
    engine.advance(1)
    watcher = Peer()
    worker = engine.add_worker(watcher, "gearman", b"")
    engine.can_do(worker, engine.function_named(NAME), timeout_us=1000)
    engine.submit(NAME, b"key", b"", NORMAL, Delivery.WAIT, watcher)
    engine.take(worker)
    engine.submit(NAME, b"", b"", LOW, Delivery.HANDLE)
    waits_for = engine.submit(b"g", b"other", b"", NORMAL, Delivery.WAIT, watcher)
    engine.set_policy(engine.function_named(b"key_queues"), Policy(key_concurrency=1))
    engine.submit(b"key_queues", b"", b"", NORMAL, Delivery.HANDLE, None, SubmitOptions(key=b"k"))
    late = SubmitOptions(run_at_us=10**9, expires_us=10**10, name=b"late")
    engine.submit(NAME, b"", b"", NORMAL, Delivery.HANDLE, None, late)
    engine.submit(NAME, b"", b"", NORMAL, Delivery.HANDLE, None, SubmitOptions(predecessors=(waits_for.id,)))
    return engine


def left() -> int:
    """How many functions of that name there are; whatever is in an engine is held by one, and holds one."""
    gc.collect()
    return sum(type(found) is Function and found.name == NAME for found in gc.get_objects())  # asking some is work


def test_an_engine_that_was_let_go_is_garbage() -> None:
    engine = busy_engine()
    assert left() == 1
    engine.shutdown()
    assert not engine.jobs
    del engine
    assert left() == 0


def test_an_engine_with_shelves_can_be_let_go_too() -> None:
    engine = Engine()
    engine.reports_changes = True
    engine.packed_queues.segment_jobs, engine.packed_queues.head_jobs, engine.packed_queues.pack_from = 4, 2, 8
    jobs = [engine.submit(NAME, b"key %d" % number, b"", NORMAL, Delivery.HANDLE) for number in range(40)]
    engine.take_changes()
    for job in jobs:
        job.kept = job.revision = 1
    engine.pack({jobs[0].function: None})
    assert engine.packed_queues.job_count
    for job_id in range(1, 41, 3):
        assert engine.job(job_id) is not None
    del jobs, job
    engine.shutdown()
    assert engine.job_count() == 0
    del engine
    assert left() == 0


def test_a_function_that_was_dropped_is_garbage() -> None:
    engine = Engine()
    job = engine.submit(NAME, b"", b"", NORMAL, Delivery.HANDLE)
    assert engine.cancel(job)
    assert engine.drop_function(job.function)
    engine.take_changes()
    del job
    assert left() == 0
