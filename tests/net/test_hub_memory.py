"""What has ended holds nothing: no byte of a payload, a result or a text can be reached from the engine or the hub."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import FrameType, FunctionType, ModuleType

import pytest

from switchgear.engine.engine import Engine, EngineSettings, SubmitOptions
from switchgear.engine.predecessor_error import LONGEST_CAUSE_BYTES
from switchgear.errors import Refused, StorageError
from switchgear.model import NORMAL, SECOND_US, Delivery, Job, Worker
from switchgear.model.job import JOB_BYTES
from switchgear.net import staged_changes
from switchgear.storage.memory import MemoryStore
from switchgear.testing import FakeClock, RecordingPeer, check_engine
from tests.net.harness import CAN_DO, GRAB, HubHarness, ScriptedStore, idle, in_turns, open_harness
from tests.support.reads import kept_job

pytestmark = pytest.mark.skipif(not hasattr(Engine(), "__dict__"), reason="compiled jobs are not seen by the collector")

MARK = b"mark of a payload or of what was said"
LONG = MARK * 50
HOUR_US = 3600 * SECOND_US


def marks_within(*roots: object) -> int:
    """How many bytes objects with the mark can be reached from here."""
    seen = {id(root) for root in roots}
    pending = list(roots)
    found = 0
    while pending:
        current = pending.pop()
        # The beginning of an error is remembered for successors that are submitted later, of a bounded number of jobs.
        if isinstance(current, bytes | bytearray) and MARK in current and len(current) > 2 * LONGEST_CAUSE_BYTES:
            found += 1
        for other in gc.get_referents(current):
            if id(other) not in seen and not isinstance(
                other, type | ModuleType | FunctionType | FrameType | ScriptedStore
            ):
                seen.add(id(other))
                pending.append(other)
    return found


async def let_commit(harness: HubHarness) -> None:
    """Let the turn end, and then what nobody waits for be kept."""
    await idle()
    await harness.pass_time(0.1)


class Stage:
    """Submits marked jobs and lets them end."""

    def __init__(self, harness: HubHarness) -> None:
        self.harness = harness
        self.engine = harness.engine
        self.client = RecordingPeer()
        self.worker = self.new_worker()

    def new_worker(self) -> Worker:
        worker = self.engine.add_worker(RecordingPeer(), "test")
        self.engine.can_do(worker, self.engine.function_named(b"f"), 2 * HOUR_US)
        return worker

    def submit(self, delivery: Delivery = Delivery.HANDLE, **options: int) -> Job:
        self.harness.hub.begin_turn()
        engine = self.engine
        given = SubmitOptions(
            timeout_us=options.get("timeout_us", HOUR_US),
            expires_us=engine.now_us + options.get("expires_after_us", HOUR_US),
            run_at_us=engine.now_us + options["delay_us"] if "delay_us" in options else 0,
            unique_for_us=HOUR_US,
            attempts_limit=1,
        )
        unique = b"key %d" % engine.next_job_id
        watcher = self.client if delivery is Delivery.WAIT else None
        return engine.submit(b"f", unique, LONG + b"payload", NORMAL, delivery, watcher, given)

    def run(self, delivery: Delivery = Delivery.HANDLE, **options: int) -> Job:
        job = self.submit(delivery, **options)
        assert self.engine.take(self.worker) is job
        self.engine.warning(self.worker, job.id, LONG + b"warning")
        self.engine.progress(self.worker, job.id, 1, 2, text=LONG + b"text", message=LONG + b"message")
        self.engine.data(self.worker, job.id, LONG + b"part")
        return job


async def done(stage: Stage) -> None:
    for delivery in Delivery:
        job = stage.run(delivery)
        stage.engine.complete(stage.worker, job.id, LONG + b"result")


async def failed(stage: Stage) -> None:
    job = stage.run()
    stage.engine.fail(stage.worker, job.id, 1, LONG + b"error", LONG + b"result")


async def cancelled(stage: Stage) -> None:
    stage.engine.cancel(stage.submit())
    stage.engine.cancel(stage.submit(delay_us=SECOND_US))


async def cancelled_while_it_ran(stage: Stage) -> None:
    stage.engine.cancel(stage.run())


async def expired(stage: Stage) -> None:
    stage.submit(expires_after_us=SECOND_US)
    await stage.harness.pass_time(2)


async def abandoned(stage: Stage) -> None:
    stage.submit(Delivery.WAIT)
    stage.engine.unsubscribe(stage.client)


async def abandoned_while_it_ran(stage: Stage) -> None:
    stage.run(Delivery.WAIT)
    stage.engine.unsubscribe(stage.client)
    stage.engine.remove_worker(stage.worker)


async def timed_out(stage: Stage) -> None:
    stage.run(timeout_us=SECOND_US)
    await let_commit(stage.harness)  # its start is kept, and its time begins
    await stage.harness.pass_time(2)


async def lost(stage: Stage) -> None:
    stage.run()
    stage.engine.remove_worker(stage.worker)


async def replaced(stage: Stage) -> None:
    job = stage.submit()
    options = SubmitOptions(unique_policy=2)
    other = stage.engine.submit(b"f", job.unique, LONG + b"other", NORMAL, Delivery.HANDLE, None, options)
    stage.engine.cancel(other)


ENDS = [
    done,
    failed,
    cancelled,
    cancelled_while_it_ran,
    expired,
    abandoned,
    abandoned_while_it_ran,
    timed_out,
    lost,
    replaced,
]


@pytest.mark.parametrize("end", ENDS)
@in_turns
async def test_what_has_ended_and_is_stored_holds_nothing(end: Callable[[Stage], object]) -> None:
    harness = await open_harness()
    harness.store.obedient = True
    stage = Stage(harness)
    for _ in range(3):
        await end(stage)  # type: ignore[misc]
        if not stage.worker.alive:
            stage.worker = stage.new_worker()
        await let_commit(harness)
    assert not harness.engine.jobs
    assert marks_within(harness.engine, vars(harness.hub)) == 0
    assert harness.engine.memory.job_bytes == 0
    check_engine(harness.engine, [])


@pytest.mark.parametrize("end", ENDS)
@in_turns
async def test_without_a_history_what_has_ended_holds_nothing_at_once(end: Callable[[Stage], object]) -> None:
    store = MemoryStore(keep_count=0)
    harness = HubHarness(store, 0, None)
    await harness.hub.load()
    stage = Stage(harness)
    await end(stage)  # type: ignore[misc]
    await idle()
    assert not harness.engine.jobs
    assert marks_within(harness.engine, vars(harness.hub), store) == 0
    assert (harness.engine.memory.job_bytes, harness.engine.memory.history_bytes) == (0, 0)


@in_turns
async def test_what_was_withdrawn_holds_nothing() -> None:
    harness = await open_harness()
    stage = Stage(harness)
    stage.submit()
    stage.submit(delay_us=SECOND_US)
    await let_commit(harness)
    await harness.store.fail(StorageError("full"))
    assert not harness.engine.jobs
    harness.store.staged.clear()
    assert marks_within(harness.engine, vars(harness.hub)) == 0
    assert harness.engine.memory.job_bytes == 0


@in_turns
async def test_until_its_end_is_stored_a_job_can_be_read_and_counts() -> None:
    harness = await open_harness()
    stage = Stage(harness)
    job = stage.run()
    stage.engine.complete(stage.worker, job.id, LONG)
    await idle()
    found = harness.hub.find_unkept_end(job.id)
    assert found is not None
    assert found.result.endswith(LONG)
    assert harness.engine.memory.job_bytes == job.entry_bytes + job.content_bytes > 5 * len(LONG)
    await let_commit(harness)
    await harness.store.succeed()
    assert harness.engine.memory.job_bytes == job.content_bytes == 0


@in_turns
async def test_a_job_that_ended_again_before_its_first_end_was_stored_keeps_what_it_came_to() -> None:
    harness = await open_harness()
    stage = Stage(harness)
    job = stage.run()
    stage.engine.fail(stage.worker, job.id, 1, b"first")
    await let_commit(harness)
    assert harness.store.is_committing
    harness.hub.begin_turn()
    stage.engine.retry(job)
    stage.engine.take(stage.worker)
    stage.engine.complete(stage.worker, job.id, LONG)
    await harness.store.succeed()
    assert job.result == LONG
    check_engine(harness.engine, [job])
    await let_commit(harness)
    await harness.store.succeed()
    assert job.result == b""
    check_engine(harness.engine, [])


@in_turns
async def test_payloads_that_only_the_store_has_do_not_count() -> None:
    harness = await open_harness(payload_memory_bytes=len(LONG) * 3 // 2)
    harness.store.obedient = True
    stage = Stage(harness)
    first, second = stage.submit(), stage.submit()
    await let_commit(harness)
    assert (first.payload is None, second.payload is None) == (False, True)
    entries = first.entry_bytes + second.entry_bytes
    assert harness.engine.memory.job_bytes == entries + first.content_bytes
    worker = harness.connect()
    worker.send(CAN_DO, GRAB, GRAB)
    await idle()
    assert harness.engine.memory.job_bytes == entries + first.content_bytes + second.content_bytes
    check_engine(harness.engine, [])


@in_turns
async def test_a_foreground_job_whose_client_left_is_not_stored() -> None:
    harness = await open_harness()
    harness.store.obedient = True
    stage = Stage(harness)
    job = stage.engine.submit(b"f", b"", LONG, NORMAL, Delivery.WAIT, stage.client)
    harness.hub.begin_turn()
    stage.engine.unsubscribe(stage.client)
    await let_commit(harness)
    assert (harness.store.kept, job.payload) == ({}, None)
    assert stage.engine.functions[b"f"].cancelled == 1


# --- no room ---


def test_a_submission_without_room_is_refused_before_anything_is_made() -> None:
    engine = Engine(EngineSettings(memory_bytes=3200))
    limit_bytes = engine.memory.stored_limit_bytes
    held_bytes = JOB_BYTES + 1 + 60
    engine.submit(b"f", b"k", b"x" * 60, NORMAL, Delivery.WAIT)
    room = limit_bytes - held_bytes - JOB_BYTES
    with pytest.raises(Refused, match=r"limits\.memory_bytes is 3200") as refused:
        engine.submit(b"g", b"", b"x" * (room + 1), NORMAL, Delivery.WAIT)
    assert refused.value.reason == "full"
    assert (list(engine.functions), len(engine.jobs), engine.memory.job_bytes) == ([b"f"], 1, held_bytes)
    assert engine.submit(b"f", b"k", b"x" * 60, NORMAL, Delivery.WAIT).id == 1  # it holds nothing more
    assert engine.submit(b"g", b"", b"x" * room, NORMAL, Delivery.WAIT).id == 2


def test_parts_of_a_result_are_kept_while_there_is_room_and_not_after_a_gap() -> None:
    engine = Engine(EngineSettings(memory_bytes=16 * (JOB_BYTES + 100) // 7))
    worker = engine.add_worker(RecordingPeer(), "test")
    engine.can_do(worker, engine.function_named(b"f"))
    job = engine.submit(b"f", b"", b"", NORMAL, Delivery.HANDLE)
    engine.take(worker)
    for part in (b"a" * 60, b"b" * 60, b"c"):
        engine.data(worker, job.id, part)
    assert job.chunks == [b"a" * 60]
    assert job.warnings == b"parts of the result are missing, because there was no room for them\n"
    engine.complete(worker, job.id, b"end")
    assert job.result == b"a" * 60 + b"end"
    check_engine(engine, [job])


def test_many_small_parts_are_few_objects() -> None:
    engine = Engine()
    worker = engine.add_worker(RecordingPeer(), "test")
    engine.can_do(worker, engine.function_named(b"f"))
    job = engine.submit(b"f", b"", b"", NORMAL, Delivery.HANDLE)
    engine.take(worker)
    for _ in range(10_000):
        engine.data(worker, job.id, b"x")
    assert job.chunks is not None
    assert len(job.chunks) < 100
    engine.complete(worker, job.id, b"")
    assert job.result == b"x" * 10_000
    check_engine(engine, [job])


# --- the history in memory ---


def test_the_history_takes_an_eighth_of_the_limit_at_most() -> None:
    engine = Engine(EngineSettings(memory_bytes=8000))
    store = MemoryStore()
    store.count_in(engine.memory)
    engine.advance(FakeClock().now_us())
    worker = engine.add_worker(RecordingPeer(), "test")
    engine.can_do(worker, engine.function_named(b"f"))
    jobs = []
    for number in range(40):
        options = SubmitOptions(retention_us=HOUR_US) if number % 2 else None
        jobs.append(engine.submit(b"f", b"", b"x" * 90, NORMAL, Delivery.HANDLE, None, options))
        engine.take(worker)
        if number % 3:
            engine.complete(worker, jobs[-1].id, b"y" * 10)
        else:
            engine.fail(worker, jobs[-1].id, 1, b"z" * 10)
        store.stage(engine.take_changes()[0])
        assert engine.memory.job_bytes == 0
        assert engine.memory.history_bytes <= 1000
    held = [job for job in jobs if job.content_bytes]
    assert sum(job.content_bytes for job in held) == engine.memory.history_bytes == 1000
    assert jobs[-1] in held
    for job in held:
        assert kept_job(store, job.id) is job


# --- a store that cannot follow ---


@in_turns
async def test_foreground_jobs_are_not_kept_if_the_store_cannot_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_changes, "MOST_HISTORY_BYTES", 10 * len(LONG))
    harness = await open_harness()
    stage = Stage(harness)
    for _ in range(20):
        job = stage.run(Delivery.WAIT)
        stage.engine.complete(stage.worker, job.id, LONG)
    await let_commit(harness)
    assert harness.engine.memory.job_bytes < 12 * len(LONG)
    assert harness.telemetry.counts["history_skipped"] > 10
    await harness.store.succeed()
    assert harness.engine.memory.job_bytes == 0
    stage.engine.complete(stage.worker, stage.run(Delivery.WAIT).id, LONG)
    await let_commit(harness)
    assert harness.store.is_committing, "it follows again"


@in_turns
async def test_a_very_long_foreground_job_is_kept_if_no_other_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_changes, "MOST_HISTORY_BYTES", len(LONG))
    harness = await open_harness()
    stage = Stage(harness)
    for _ in range(3):
        stage.engine.complete(stage.worker, stage.run(Delivery.WAIT).id, 2 * LONG)
    await let_commit(harness)
    assert harness.telemetry.counts["history_skipped"] == 2
    await harness.store.succeed()
    assert harness.engine.memory.job_bytes == 0


@in_turns
async def test_whoever_reports_what_must_be_kept_waits_while_that_fills_the_memory() -> None:
    harness = await open_harness(settings=EngineSettings(memory_bytes=16 * len(LONG)))
    stage = Stage(harness)
    job = stage.run()
    assert not harness.hub.must_wait_for_store
    stage.engine.complete(stage.worker, job.id, LONG * 7)
    assert harness.hub.must_wait_for_store
    await let_commit(harness)
    await harness.store.succeed()
    assert not harness.hub.must_wait_for_store
