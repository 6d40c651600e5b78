"""A start that counts is kept before the worker gets the job, and its time begins when the worker does."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import EngineSettings, SubmitOptions
from switchgear.engine.function_placement import FunctionPlacement
from switchgear.model import NORMAL, READY, RUNNING, Delivery
from switchgear.net.commits import EXPECTED_SECONDS, LAZY_COMMIT_SECONDS
from switchgear.protocols.gearman.messages import Packet as Ours
from tests.engine.harness import state_of
from tests.net.harness import BACKGROUND, CAN_DO, GRAB, NOOP, created, echo, idle, in_turns, open_harness
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
    await harness.pass_time(EXPECTED_SECONDS)
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


def credit(jobs: int = 1) -> bytes:
    return request(Ours.CREDIT, b"%d" % jobs, b"0")


def complete(number: int) -> bytes:
    return request(Kind.WORK_COMPLETE, b"H:t:%d" % number, b"")


@in_turns
async def test_a_quick_job_is_submitted_started_and_ended_in_one_commit() -> None:
    harness = await open_harness(settings=LIMITED)
    client, worker = harness.connect(), harness.connect()
    worker.send(CAN_DO, credit())
    client.send(BACKGROUND)
    await idle()
    assert len(worker.heard()) == 1  # nothing of the job is stored, and nobody knows of it yet
    assert harness.store.commits == 1, "how long such jobs take is not known yet, so nobody waits for the end"
    worker.send(complete(1), credit())
    await idle()
    assert (client.heard(), worker.heard()) == ([], [])
    await harness.store.succeed()
    await harness.pass_time(LAZY_COMMIT_SECONDS)
    await harness.store.succeed()
    assert (client.heard(), harness.store.commits) == ([created(1)], 2)
    client.send(BACKGROUND)
    await idle()
    assert (len(worker.heard()), harness.store.commits) == (1, 2)
    worker.send(complete(2))
    await idle()
    assert (client.heard(), harness.store.commits) == ([], 3)
    await harness.store.succeed()
    assert client.heard() == [created(2)]
    assert (harness.store.kept[2], harness.store.commits) == ("DONE", 3)


@in_turns
async def test_a_job_that_is_not_as_quick_as_expected_holds_up_nobody_for_long() -> None:
    harness = await open_harness(settings=LIMITED)
    client, worker = harness.connect(), harness.connect()
    worker.send(CAN_DO, credit())
    client.send(BACKGROUND)
    worker.send(complete(1), credit())
    await idle()
    while harness.store.is_committing:
        await harness.store.succeed()
    client.heard()
    client.send(BACKGROUND)
    await idle()
    assert not harness.store.is_committing
    await harness.pass_time(EXPECTED_SECONDS)
    await harness.store.succeed()
    assert client.heard() == [created(2)]
    assert harness.store.kept[2] == "RUNNING"


@in_turns
async def test_a_job_whose_submission_is_being_stored_is_not_sent_before_its_start_is_stored() -> None:
    harness = await open_harness(settings=LIMITED)
    client, worker = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    assert harness.store.is_committing
    worker.send(CAN_DO, credit())
    await idle()
    assert worker.heard() == []
    await harness.store.succeed()
    assert (client.heard(), worker.heard()) == ([created(1)], [])
    await harness.store.succeed()
    assert len(worker.heard()) == 1


@in_turns
async def test_a_job_that_was_sent_with_its_submission_is_not_refused_when_the_store_fails() -> None:
    harness = await open_harness(settings=LIMITED)
    client, worker = harness.connect(), harness.connect()
    worker.send(CAN_DO, credit())
    client.send(BACKGROUND)
    await idle()
    assert len(worker.heard()) == 1
    await harness.store.fail()
    assert client.heard() == []
    worker.send(complete(1))
    await harness.pass_time(1.0)
    await harness.store.succeed()
    while harness.store.is_committing:
        await harness.store.succeed()
    assert client.heard() == [created(1)]
    assert harness.store.kept[1] == "DONE"


@in_turns
async def test_a_client_that_asks_for_an_end_that_is_not_stored_yet_does_not_wait_for_long() -> None:
    harness = await open_harness(settings=LIMITED)
    client, worker = harness.connect(), harness.connect()
    worker.send(CAN_DO, credit())
    client.send(BACKGROUND)
    await idle()
    worker.send(complete(1))
    await harness.store.succeed()
    assert client.heard() == [created(1)]
    assert not harness.store.is_committing
    client.send(request(Ours.WATCH, b"H:t:1"))
    await idle()
    assert harness.store.is_committing
    await harness.store.succeed()
    assert len(client.heard()) == 2


@in_turns
async def test_a_submission_that_is_repeated_after_a_crash_is_stored_before_its_job_is_sent() -> None:
    harness = await open_harness(settings=LIMITED)
    client, worker = harness.connect(), harness.connect()
    worker.send(CAN_DO, credit(2))
    await idle()
    harness.engine.await_submissions()
    client.send(BACKGROUND)
    await idle()
    assert (client.heard(), worker.heard()) == ([], [])
    await harness.store.succeed()
    assert (client.heard(), len(worker.heard())) == ([created(1)], 1)
    client.send(BACKGROUND)
    await idle()
    assert (client.heard(), len(worker.heard())) == ([], 1), "it was for one batch"


@in_turns
async def test_so_is_one_with_an_id_of_another_node() -> None:
    harness = await open_harness(settings=LIMITED)
    worker = harness.connect()
    worker.send(CAN_DO, credit())
    await idle()
    harness.engine.placement = FunctionPlacement()
    harness.engine.submit(b"f", b"", b"x", NORMAL, Delivery.HANDLE, None, SubmitOptions(job_id=1_000_000))
    worker.send(echo(b"the turn is over"))
    await idle()
    assert worker.heard() == []
    await harness.store.succeed()
    assert len(worker.heard()) == 2
