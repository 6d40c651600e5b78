"""A long queue is put away once it is kept, and its payloads come back from the store."""

from __future__ import annotations

from collections.abc import Iterable

from switchgear.model import Function, Job, Schedule
from switchgear.testing import check_engine
from tests.net.harness import CAN_DO, HubHarness, ScriptedStore, created, grab_all, idle, in_turns, open_harness
from tests.support.reads import awaited
from tests.support.wire import Kind, Packet, request


class CountingStore(ScriptedStore):
    """Counts changes, as a store must, so that a job can be told from one that changed since it was kept."""

    def stage(
        self,
        jobs: Iterable[Job],
        functions: Iterable[Function] = (),
        next_job_id: int = 0,
        schedules: Iterable[Schedule] = (),
    ) -> None:
        jobs = list(jobs)
        for job in jobs:
            job.revision += 1
        super().stage(jobs, functions, next_job_id, schedules)


async def open_small_harness(payload_memory_bytes: int = 1_000_000) -> HubHarness:
    harness = await open_harness(store=CountingStore(), payload_memory_bytes=payload_memory_bytes)
    harness.engine.packed_queues.segment_jobs = 4
    harness.engine.packed_queues.head_jobs = 2
    harness.engine.packed_queues.pack_from = 8
    return harness


async def submit(harness: HubHarness, count: int, first: int = 1) -> None:
    client = harness.connect()
    names = [b"%d" % number for number in range(first, first + count)]
    client.send(*(request(Kind.SUBMIT_JOB_BG, b"f", b"key " + name, name) for name in names))
    await idle()
    assert harness.engine.packed_queues.job_count == 0 or first > 1  # nothing before it is kept
    await harness.store.succeed()
    assert client.heard() == [created(first + number) for number in range(count)]


def resident_bytes(harness: HubHarness) -> int:
    """What the objects have that are kept and counted; as the hub should have it."""
    return sum(len(job.payload or b"") for job in harness.engine.jobs.values())


@in_turns
async def test_what_is_kept_is_put_away_and_comes_back_with_its_payload() -> None:
    harness = await open_small_harness()
    await submit(harness, 40)
    assert harness.engine.packed_queues.job_count == 32
    assert harness.hub.payloads.resident_bytes == resident_bytes(harness)
    check_engine(harness.engine)
    worker = harness.connect()
    worker.send(CAN_DO)
    numbers = range(1, 41)
    assert await grab_all(worker, 40) == [
        Packet(Kind.JOB_ASSIGN, b"H:t:%d\0f\0%d" % (number, number)) for number in numbers
    ]
    check_engine(harness.engine)
    assert harness.engine.packed_queues.job_count == 0


@in_turns
async def test_the_account_of_payloads_in_memory_stays_right() -> None:
    harness = await open_small_harness(payload_memory_bytes=30)
    await submit(harness, 40)
    await submit(harness, 40, first=41)
    assert harness.hub.payloads.resident_bytes == resident_bytes(harness) <= 30
    worker = harness.connect()
    worker.send(CAN_DO)
    assert len(await grab_all(worker, 80)) == 80
    worker.send(*[done(number) for number in range(1, 81)])
    await idle()
    while harness.store.is_committing:
        await harness.store.succeed()
    assert not harness.engine.job_count()
    assert harness.hub.payloads.resident_bytes == 0


@in_turns
async def test_a_key_meets_its_job_on_the_shelf() -> None:
    harness = await open_small_harness()
    await submit(harness, 40)
    client = harness.connect()
    client.send(request(Kind.SUBMIT_JOB, b"f", b"key 20", b"again"))
    await idle()
    assert client.heard() == [created(20)]
    assert len(harness.engine.jobs) == 9
    assert (await awaited(harness.hub.find_job(21))) is harness.engine.jobs[21]
    check_engine(harness.engine)


@in_turns
async def test_a_look_at_a_job_leaves_it_where_it_is() -> None:
    harness = await open_small_harness()
    await submit(harness, 40)
    client = harness.connect()
    client.send(request(Kind.GET_STATUS, b"H:t:20"), request(Kind.GET_STATUS, b"H:t:41"))
    await idle()
    assert client.heard() == [
        Packet(Kind.STATUS_RES, b"H:t:20\0001\0000\0000\0000"),
        Packet(Kind.STATUS_RES, b"H:t:41\0000\0000\0000\0000"),
    ]
    assert (await awaited(harness.hub.find_states([20])))[20].name == "READY"
    assert harness.engine.packed_queues.job_count == 32


@in_turns
async def test_a_failing_store_undoes_what_is_new_and_nothing_that_is_put_away() -> None:
    harness = await open_small_harness()
    await submit(harness, 40)
    joining, submitting = harness.connect(), harness.connect()
    joining.send(request(Kind.SUBMIT_JOB_BG, b"f", b"key 20", b""))
    submitting.send(request(Kind.SUBMIT_JOB_BG, b"f", b"new", b""))
    await idle()
    await harness.store.fail()
    (refused,) = submitting.heard()
    assert isinstance(refused, Packet)
    assert (refused.type, joining.heard()) == (Kind.ERROR, [created(20)])  # whose job the store has
    assert harness.engine.job_count() == 40
    check_engine(harness.engine)


def done(number: int) -> bytes:
    return request(Kind.WORK_COMPLETE, b"H:t:%d" % number, b"")
