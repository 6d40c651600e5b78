"""A start that counts is kept before the worker gets the job, and its time begins when the worker does."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.model import READY, RUNNING
from switchgear.net.commits import WOKEN_SECONDS
from tests.engine.harness import state_of
from tests.net.harness import BACKGROUND, CAN_DO, GRAB, NOOP, created, idle, in_turns, open_harness
from tests.support.wire import Kind, Packet, request

ASSIGNED = Packet(Kind.JOB_ASSIGN, b"H:t:1\0f\0x")
LIMITED = EngineSettings(attempts=3)


@in_turns
async def test_every_start_is_counted_before_the_worker_gets_the_job() -> None:
    harness = await open_harness(settings=LIMITED)
    harness.connect().send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    for attempt in (1, 2, 3):
        worker = harness.connect()
        worker.send(CAN_DO, GRAB)
        await idle()
        assert worker.heard() == []
        assert harness.store.staged == {}  # it is in the commit that is under way
        await harness.store.succeed()
        assert worker.heard() == [ASSIGNED]
        assert (harness.store.kept[1], harness.engine.jobs[1].attempts) == ("RUNNING", attempt)
        if attempt < 3:
            worker.leave()
            await idle()
            await harness.pass_time(0.1)
            await harness.store.succeed()


@in_turns
async def test_a_woken_worker_that_comes_at_once_has_its_start_in_the_commit_of_the_submission() -> None:
    harness = await open_harness(settings=LIMITED)
    client, worker = harness.connect(), harness.connect()
    worker.send(CAN_DO, request(Kind.PRE_SLEEP))
    client.send(BACKGROUND)
    await idle()
    assert (worker.heard(), harness.store.commits) == ([NOOP], 0)
    worker.send(GRAB)
    await idle()
    assert harness.store.commits == 1
    await harness.store.succeed()
    assert (client.heard(), worker.heard()) == ([created(1)], [ASSIGNED])
    assert (harness.store.kept, harness.store.commits) == ({1: "RUNNING"}, 1)


@in_turns
async def test_a_woken_worker_that_does_not_come_holds_up_nobody_for_long() -> None:
    harness = await open_harness(settings=LIMITED)
    client, worker = harness.connect(), harness.connect()
    worker.send(CAN_DO, request(Kind.PRE_SLEEP))
    client.send(BACKGROUND)
    await idle()
    assert harness.store.commits == 0
    await harness.pass_time(WOKEN_SECONDS)
    await harness.store.succeed()
    assert client.heard() == [created(1)]


@in_turns
async def test_whatever_else_happens_meanwhile_ends_the_wait_for_a_woken_worker() -> None:
    harness = await open_harness(settings=LIMITED)
    client, worker = harness.connect(), harness.connect()
    worker.send(CAN_DO, request(Kind.PRE_SLEEP))
    client.send(BACKGROUND)
    await idle()
    client.send(BACKGROUND)
    await idle()
    assert harness.store.commits == 1


@in_turns
async def test_a_server_that_settles_does_not_wait_for_a_woken_worker() -> None:
    harness = await open_harness(settings=LIMITED)
    harness.store.obedient = True
    client, worker = harness.connect(), harness.connect()
    worker.send(CAN_DO, request(Kind.PRE_SLEEP))
    client.send(BACKGROUND)
    await harness.hub.flush()
    assert client.heard() == [created(1)]


# --- run limits ---

CAN_DO_FOR_A_SECOND = request(Kind.CAN_DO_TIMEOUT, b"f", b"1000")


@pytest.mark.parametrize("attempts", [1, 3])
@in_turns
async def test_the_time_of_a_job_begins_when_it_is_sent(attempts: int) -> None:
    harness = await open_harness(settings=EngineSettings(attempts=attempts))
    client, worker = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    worker.send(CAN_DO_FOR_A_SECOND, GRAB)
    await idle()
    await harness.pass_time(0.9)
    job = harness.engine.jobs[1]
    await harness.store.succeed()
    assert worker.heard() == [ASSIGNED]
    await harness.pass_time(0.9)
    assert (state_of(job), job.attempts) == (RUNNING, 1)
    await harness.pass_time(0.2)
    assert state_of(job) is not RUNNING


@pytest.mark.parametrize("attempts", [1, 3])
@in_turns
async def test_a_broken_store_costs_no_attempt_of_a_job_that_it_holds_up(attempts: int) -> None:
    harness = await open_harness(settings=EngineSettings(attempts=attempts))
    client, worker = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    worker.send(CAN_DO_FOR_A_SECOND, GRAB)
    await idle()
    job = harness.engine.jobs[1]
    for _ in range(5):
        await harness.store.fail()
        await harness.pass_time(2)
    assert (state_of(job), job.attempts, worker.heard()) == (RUNNING, 1, [])
    await harness.store.succeed()
    assert worker.heard() == [ASSIGNED]
    await harness.pass_time(0.9)
    assert (state_of(job), job.attempts) == (RUNNING, 1)
    await harness.pass_time(0.2)
    assert state_of(job) is (READY if attempts > 1 else job.state)
    assert job.worker is None


@in_turns
async def test_a_worker_that_leaves_before_it_is_sent_its_job_is_not_the_jobs_limit() -> None:
    harness = await open_harness(settings=LIMITED)
    client, worker, other = harness.connect(), harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    worker.send(CAN_DO_FOR_A_SECOND, GRAB)
    await idle()
    worker.leave()
    other.send(CAN_DO_FOR_A_SECOND, GRAB)
    await idle()
    await harness.store.succeed()  # the first start
    await harness.pass_time(5)
    job = harness.engine.jobs[1]
    assert (state_of(job), job.attempts, other.heard()) == (RUNNING, 2, [])
    await harness.store.succeed()  # the second
    assert other.heard() == [ASSIGNED]
    await harness.pass_time(1.1)
    assert state_of(job) is READY
