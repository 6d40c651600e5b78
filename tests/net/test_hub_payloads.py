"""Payloads that memory has no room for: only the store has them until they are wanted."""

from __future__ import annotations

import pytest

from switchgear.errors import StorageError
from switchgear.model import READY
from switchgear.net import payload_reads
from switchgear.net.commits import LONGEST_RETRY_SECONDS
from switchgear.net.payload_reads import FIRST_READ_AHEAD, READ_AHEAD
from switchgear.testing import check_engine
from tests.net.harness import (
    CAN_DO,
    GRAB,
    NO_JOB,
    NOOP,
    HubHarness,
    ScriptedStore,
    created,
    grab_all,
    idle,
    in_turns,
    open_harness,
)
from tests.support.wire import Kind, Packet, request

SLEEP = request(Kind.PRE_SLEEP)


async def submit(harness: HubHarness, *payloads: bytes) -> None:
    client = harness.connect()
    client.send(*(request(Kind.SUBMIT_JOB_BG, b"f", b"", payload) for payload in payloads))
    await idle()
    if harness.store.is_committing:
        await harness.store.succeed()


def payloads(harness: HubHarness) -> list[bytes | None]:
    return [job.payload for job in harness.engine.jobs.values()]


def assigned(job_id: int, payload: bytes) -> Packet:
    return Packet(Kind.JOB_ASSIGN, b"H:t:%d\0f\0%b" % (job_id, payload))


@in_turns
async def test_what_memory_has_no_room_for_is_left_to_the_store() -> None:
    harness = await open_harness(payload_memory_bytes=10)
    await submit(harness, b"12345", b"12345", b"x", b"")
    assert payloads(harness) == [b"12345", b"12345", None, b""]


@in_turns
async def test_a_payload_stays_in_memory_until_the_store_has_it() -> None:
    harness = await open_harness(payload_memory_bytes=0)
    client = harness.connect()
    client.send(request(Kind.SUBMIT_JOB_BG, b"f", b"", b"precious"))
    await idle()
    assert payloads(harness) == [b"precious"]
    await harness.store.fail()
    client.send(request(Kind.SUBMIT_JOB, b"f", b"", b"never kept"))
    await harness.pass_time(LONGEST_RETRY_SECONDS)
    await harness.store.succeed()
    client.send(request(Kind.SUBMIT_JOB, b"f", b"", b"never kept"))
    await idle()
    assert payloads(harness) == [b"never kept"]


@in_turns
async def test_a_job_that_runs_keeps_its_payload() -> None:
    harness = await open_harness(payload_memory_bytes=0)
    client, worker = harness.connect(), harness.connect()
    client.send(request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x"))
    await idle()
    worker.send(CAN_DO, GRAB)
    await idle()
    await harness.store.succeed()
    assert payloads(harness) == [b"x"]


@in_turns
async def test_payloads_are_read_when_they_are_wanted_and_some_ahead() -> None:
    harness = await open_harness(payload_memory_bytes=0)
    count = 3 * READ_AHEAD
    await submit(harness, *(b"%d" % n for n in range(1, count + 1)))
    assert payloads(harness) == [None] * count
    worker = harness.connect()
    worker.send(CAN_DO, GRAB)
    await idle()
    assert worker.heard() == [assigned(1, b"1")]
    assert set(harness.store.reads[0]) == set(range(1, FIRST_READ_AHEAD + 1))
    assert await grab_all(worker, count - 1) == [assigned(n, b"%d" % n) for n in range(2, count + 1)]
    assert sorted(job_id for read in harness.store.reads for job_id in read) == list(range(1, count + 1))  # each once
    assert max(map(len, harness.store.reads)) == READ_AHEAD
    assert len(harness.store.reads) < 20


@in_turns
async def test_what_is_read_ahead_has_its_bounds_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_reads, "READ_AHEAD_BYTES", 1000)
    harness = await open_harness(payload_memory_bytes=0)
    await submit(harness, *[b"x" * 100] * 200)
    worker = harness.connect()
    worker.send(CAN_DO)
    assert len(await grab_all(worker, 100)) == 100
    assert max(map(len, harness.store.reads)) <= 10 + FIRST_READ_AHEAD


@in_turns
async def test_large_payloads_are_not_read_ahead_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_reads, "READ_AHEAD_BYTES", 1000)
    harness = await open_harness(payload_memory_bytes=0)
    await submit(harness, *[b"small"] * 100, *[b"x" * 900] * 100)
    worker = harness.connect()
    worker.send(CAN_DO)
    await grab_all(worker, 199)
    assert max(map(len, harness.store.reads[-10:])) <= FIRST_READ_AHEAD + 1


@in_turns
async def test_finished_jobs_make_room() -> None:
    harness = await open_harness(payload_memory_bytes=10)
    await submit(harness, b"1234567890")
    worker = harness.connect()
    worker.send(CAN_DO, GRAB, request(Kind.WORK_COMPLETE, b"H:t:1", b""), request(Kind.ECHO_REQ, b""))
    await idle()
    await harness.store.succeed()
    await submit(harness, b"another 10")
    assert payloads(harness) == [b"another 10"]


@in_turns
async def test_a_store_that_cannot_be_read_gives_the_job_back() -> None:
    harness = await open_harness(payload_memory_bytes=0)
    await submit(harness, b"1", b"2")
    harness.store.read_error = StorageError("disk broken")
    worker, client = harness.connect(), harness.connect()
    worker.send(CAN_DO, GRAB)
    await idle()
    assert worker.heard() == [NO_JOB]
    assert [(job.state, job.attempts) for job in harness.engine.jobs.values()] == [(READY, 0)] * 2
    client.send(request(Kind.SUBMIT_JOB, b"f", b"", b"x"))
    await idle()
    assert client.heard() == [Packet(Kind.ERROR, b"QUEUE_ERROR\0storage failed: disk broken")]
    check_engine(harness.engine)


@in_turns
async def test_a_store_that_can_be_read_again_is_found_out_by_a_commit() -> None:
    harness = await open_harness(payload_memory_bytes=0)
    await submit(harness, b"1")
    harness.store.read_error = StorageError("disk broken")
    worker = harness.connect()
    worker.send(CAN_DO, GRAB)
    await idle()
    worker.send(SLEEP)
    await idle()
    assert worker.heard() == [NO_JOB]
    harness.store.read_error = None
    await harness.pass_time(LONGEST_RETRY_SECONDS)
    await harness.store.succeed()
    assert worker.heard() == [NOOP]
    assert await grab_all(worker, 1) == [assigned(1, b"1")]


@in_turns
async def test_a_read_that_fails_during_a_commit_withdraws_nothing_that_the_commit_may_keep() -> None:
    harness = await open_harness(payload_memory_bytes=0)
    await submit(harness, b"1")
    client, worker = harness.connect(), harness.connect()
    client.send(request(Kind.SUBMIT_JOB_BG, b"f", b"", b"2"))
    await idle()
    harness.store.read_error = StorageError("disk broken")
    worker.send(CAN_DO, GRAB)
    client.send(request(Kind.SUBMIT_JOB_BG, b"f", b"", b"3"))
    await idle()
    assert worker.heard() == [NO_JOB]
    await harness.store.succeed()
    while harness.store.is_committing:
        await harness.store.succeed()
    heard = client.heard()
    assert heard[0] == created(2)
    told = {1, 2} | ({3} if heard[1] == created(3) else set())
    await harness.pass_time(LONGEST_RETRY_SECONDS)
    if harness.store.is_committing:
        await harness.store.succeed()
    assert set(harness.store.kept) == set(harness.engine.jobs) == told


@in_turns
async def test_a_payload_that_the_store_has_lost_fails_its_job() -> None:
    harness = await open_harness(payload_memory_bytes=0)
    await submit(harness, b"1", b"2")
    del harness.store.payloads[1]
    worker = harness.connect()
    worker.send(CAN_DO)
    assert await grab_all(worker, 1) == [assigned(2, b"2")]
    assert list(harness.engine.jobs) == [2]
    finished = harness.store.log[1]
    assert finished.error == b"the store has lost the payload of job 1"


@in_turns
async def test_a_restart_takes_only_as_much_as_there_is_room_for() -> None:
    store = ScriptedStore()
    store.snapshot.jobs = [store.kept_job(1, b"12345"), store.kept_job(2, b"123456"), store.kept_job(3, b"12345")]
    store.snapshot.next_job_id = 4
    harness = await open_harness(store=store, payload_memory_bytes=10)
    assert payloads(harness) == [b"12345", None, b"12345"]
    worker = harness.connect()
    worker.send(CAN_DO)
    assert await grab_all(worker, 3) == [assigned(1, b"12345"), assigned(2, b"123456"), assigned(3, b"12345")]
