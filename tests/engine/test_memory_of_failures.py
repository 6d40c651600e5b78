"""What the engine remembers of jobs that ended without success is counted, and the oldest of it is forgotten."""

from __future__ import annotations

from switchgear.engine.engine import Engine, EngineSettings, SubmitOptions
from switchgear.engine.recent_causes import CAUSE_BYTES
from switchgear.engine.unsuccessful_jobs import NAMED_BYTES, UNSUCCESSFUL_BYTES
from switchgear.model import NORMAL, SECOND_US, WAITING, Delivery, EdgePolicy, Job, Worker
from switchgear.testing import RecordingPeer, check_engine
from switchgear.units import MIB

ERROR = b"e" * 300


def limited(memory_bytes: int) -> tuple[Engine, Worker]:
    engine = Engine(EngineSettings(memory_bytes=memory_bytes))
    engine.advance(SECOND_US)
    worker = engine.add_worker(RecordingPeer(), "gearman")
    engine.can_do(worker, engine.function_named(b"f"))
    return engine, worker


def submit(engine: Engine, options: SubmitOptions | None = None) -> Job:
    return engine.submit(b"f", b"", b"", NORMAL, Delivery.HANDLE, None, options)


def fail_one(engine: Engine, worker: Worker, name: bytes = b"") -> Job:
    job = submit(engine, SubmitOptions(name=name, attempts_limit=1))
    assert engine.take(worker) is job
    engine.fail(worker, job.id, error=ERROR)
    engine.drop_contents(job)
    return job


def test_a_failed_job_is_counted_with_its_name_and_the_beginning_of_its_error() -> None:
    engine, worker = limited(64 * MIB)
    fail_one(engine, worker)
    each_bytes = UNSUCCESSFUL_BYTES + CAUSE_BYTES + len(b"f: ") + len(ERROR)
    assert engine.memory.failure_bytes == each_bytes
    fail_one(engine, worker, b"index")
    assert engine.memory.failure_bytes == 2 * each_bytes + NAMED_BYTES + len(b"index")
    assert engine.memory.held_bytes > engine.memory.failure_bytes
    check_engine(engine)


def test_a_retried_job_is_not_a_failed_one() -> None:
    engine, worker = limited(64 * MIB)
    job = fail_one(engine, worker, b"index")
    engine.retry(job)
    assert not len(engine.unsuccessful_jobs)
    assert engine.memory.failure_bytes == CAUSE_BYTES + len(b"f: ") + len(ERROR)  # until others take its place


def test_failures_without_end_do_not_fill_more_than_their_share() -> None:
    engine, worker = limited(4 * MIB)
    for number in range(2_000):
        fail_one(engine, worker, b"n%d" % number)
        assert engine.memory.failure_bytes <= engine.memory.failure_limit_bytes
    check_engine(engine)
    assert 0 < len(engine.unsuccessful_jobs) < 2_000
    assert not engine.unsuccessful_jobs.is_complete  # the store has to be searched for the others
    submit(engine)  # there is room for jobs


def test_a_successor_of_a_job_that_failed_long_ago_ends_without_its_text() -> None:
    engine, worker = limited(4 * MIB)
    first = fail_one(engine, worker)
    engine.unsuccessful_jobs.most_jobs = 1_000_000
    waiting = submit(engine, SubmitOptions(predecessors=(first.id,), edges=bytes([EdgePolicy.WAIT])))
    for _ in range(2_000):
        fail_one(engine, worker)
    doomed = submit(engine, SubmitOptions(predecessors=(first.id,), edges=bytes([EdgePolicy.FAIL])))
    engine.advance(2 * SECOND_US)
    assert doomed.error == b"job %d, which it waited for, failed" % first.id
    assert waiting.state is WAITING
    check_engine(engine)


def test_the_end_of_the_engine_leaves_nothing_counted() -> None:
    engine, worker = limited(4 * MIB)
    fail_one(engine, worker, b"index")
    engine.shutdown()
    assert engine.memory.failure_bytes == 0
