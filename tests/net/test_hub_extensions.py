"""Extension packets and a store that commits, or fails to, when the test says so: who is told what, and when."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.errors import StorageError
from switchgear.net.commits import LONGEST_RETRY_SECONDS
from switchgear.protocols.gearman.messages import Packet as Ours
from switchgear.testing import check_engine
from tests.net.harness import (
    CAN_DO,
    FOREGROUND,
    Connected,
    HubHarness,
    ScriptedStore,
    created,
    echo,
    echoed,
    idle,
    in_turns,
    open_harness,
)
from tests.support.wire import Kind, Message, Packet, request

OPTION = request(Kind.OPTION_REQ, b"switchgear")
COMPLETE = request(Kind.WORK_COMPLETE, b"H:t:1", b"y")
COMPLETED = Packet(Kind.WORK_COMPLETE, b"H:t:1\0y")
WATCH = request(Ours.WATCH, b"H:t:1")


def watched(unique: bytes = b"", options: bytes = b'{"watch":true}', payload: bytes = b"x") -> bytes:
    return request(Ours.SUBMIT_JOB_OPTIONS, b"f", unique, options, payload)


def credit(number: int) -> bytes:
    return request(Ours.CREDIT, b"%d" % number, b"0")


def pushed(job_id: int, payload: bytes = b"x", attempt: int = 1, limit: int = 0) -> Message:
    return Packet(Ours.JOB_PUSH, b"H:t:%d\0f\0\0%d\0%d\0%d\0%d\0%b" % (job_id, attempt, 0, limit, 0, payload))


def watching(state: bytes) -> Message:
    return Packet(Ours.WATCH_RES, b"H:t:1\0" + state)


async def kept_job(harness: HubHarness, submission: bytes) -> Connected:
    """A client whose first job is kept, and who has heard so."""
    client = harness.connect()
    client.send(submission)
    await idle()
    await harness.store.succeed()
    assert client.heard() == [created(1)]
    return client


# --- watching what is kept ---


@in_turns
async def test_a_watched_job_is_promised_and_its_end_told_only_when_they_are_kept() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(watched())
    await idle()
    assert client.heard() == []
    await harness.store.succeed()
    assert client.heard() == [created(1)]
    worker = harness.connect()
    worker.send(CAN_DO, credit(1))
    await idle()
    worker.send(COMPLETE, echo(b"reported"))
    await idle()
    assert client.heard() == []
    assert worker.heard() == [pushed(1)]
    await harness.store.succeed()
    assert client.heard() == [COMPLETED]
    assert worker.heard() == [echoed(b"reported")]


@in_turns
async def test_an_end_that_is_not_kept_yet_is_told_once_it_is_and_only_once() -> None:
    harness = await open_harness()
    await kept_job(harness, watched(options=b"{}"))
    before, after, worker = harness.connect(), harness.connect(), harness.connect()
    before.send(WATCH)
    await idle()
    assert before.heard() == [watching(b"ready")]
    worker.send(CAN_DO, credit(1), COMPLETE)
    await idle()
    assert harness.store.is_committing
    after.send(WATCH)  # it has ended, and the store does not know it
    before.send(WATCH)
    await idle()
    assert (before.heard(), after.heard()) == ([], [])
    await harness.store.succeed()
    while harness.store.is_committing:
        await harness.store.succeed()
    assert before.heard() == [COMPLETED, watching(b"done"), COMPLETED]  # it has asked twice
    assert after.heard() == [watching(b"done"), COMPLETED]


@in_turns
async def test_an_end_in_the_very_turn_of_the_question_is_not_unknown() -> None:
    harness = await open_harness()
    worker, watcher = harness.connect(), harness.connect()
    worker.send(CAN_DO, credit(1))
    watcher.send(watched(options=b"{}"))
    worker.send(COMPLETE)
    watcher.send(WATCH)
    await idle()
    assert watcher.heard() == []
    await harness.store.succeed()
    assert watcher.heard() == [created(1), watching(b"done"), COMPLETED]


@in_turns
async def test_what_is_kept_is_told_at_once() -> None:
    harness = await open_harness()
    await kept_job(harness, watched())
    worker, watcher = harness.connect(), harness.connect()
    worker.send(CAN_DO, credit(1), COMPLETE)
    await idle()
    await harness.store.succeed()
    watcher.send(WATCH)
    await idle()
    assert not harness.store.is_committing
    assert watcher.heard() == [watching(b"done"), COMPLETED]


@in_turns
async def test_a_store_that_cannot_be_read_is_an_error_and_no_end() -> None:
    harness = await open_harness()
    await kept_job(harness, watched())
    worker, watcher = harness.connect(), harness.connect()
    worker.send(CAN_DO, credit(1), COMPLETE)
    await idle()
    await harness.store.succeed()
    harness.store.read_error = StorageError("unreadable")
    watcher.send(WATCH, echo(b"still here"))
    await idle()
    watcher.read()
    await idle()
    assert watcher.heard() == [Packet(Kind.ERROR, b"QUEUE_ERROR\0unreadable"), echoed(b"still here")]


# --- watched jobs that cannot be kept ---

REFUSED = Packet(Kind.ERROR, b"QUEUE_ERROR\0storage failed: disk full")


@in_turns
async def test_a_watched_submission_that_cannot_be_kept_is_refused() -> None:
    harness = await open_harness()
    client, other = harness.connect(), harness.connect()
    client.send(watched(b"key"), watched(b"key"), echo(b"between"), watched())
    other.send(watched(b"key"))
    await idle()
    await harness.store.fail()
    assert client.heard() == [REFUSED, REFUSED, echoed(b"between"), REFUSED]
    assert other.heard() == [REFUSED]
    assert not harness.engine.jobs
    assert not client.session.subscriptions
    check_engine(harness.engine)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["watched first", "watched second"])
@in_turns
async def test_one_that_somebody_waits_for_in_the_foreground_is_not(order: tuple[int, int]) -> None:
    harness = await open_harness()
    client = harness.connect()
    submissions = (watched(b"key"), request(Kind.SUBMIT_JOB, b"f", b"key", b"x"))
    client.send(*(submissions[place] for place in order))
    await idle()
    await harness.store.fail()
    assert client.heard() == []
    assert list(harness.engine.jobs) == [1]
    await harness.pass_time(LONGEST_RETRY_SECONDS)
    await harness.store.succeed()
    assert client.heard() == [created(1), created(1)]
    check_engine(harness.engine)


@in_turns
async def test_one_that_was_kept_before_is_not() -> None:
    harness = await open_harness()
    client = await kept_job(harness, watched(b"key"))
    client.send(watched(b"key"), watched())
    await idle()
    await harness.store.fail()
    assert list(harness.engine.jobs) == [1]
    await harness.pass_time(LONGEST_RETRY_SECONDS)
    await harness.store.succeed()
    assert client.heard() == [created(1), REFUSED]
    assert list(client.session.subscriptions) == [1]
    assert not client.session.followed


# --- pushing ---


@pytest.mark.parametrize("options", [b'{"attempts":1}', b'{"attempts":2}', b'{"attempts":0,"crashes":3}'])
@in_turns
async def test_a_start_that_counts_is_in_one_commit_with_the_submission(options: bytes) -> None:
    harness = await open_harness()
    client, worker = harness.connect(), harness.connect()
    worker.send(CAN_DO, credit(2))
    client.send(watched(options=options))
    await idle()
    assert len(worker.heard()) == 1
    assert client.heard() == []
    await harness.store.succeed()
    assert client.heard() == [created(1)]
    assert harness.store.commits == 1
    assert harness.store.kept[1] == "RUNNING"


@in_turns
async def test_other_starts_are_not_waited_for() -> None:
    harness = await open_harness()
    client, worker = harness.connect(), harness.connect()
    worker.send(CAN_DO, credit(3))
    client.send(watched(options=b'{"attempts":0}'), watched(options=b'{"attempts":1,"crashes":0}'), FOREGROUND)
    await idle()
    assert worker.heard() == [pushed(1, limit=0), pushed(2, limit=1), pushed(3)]


@in_turns
async def test_a_job_whose_payload_cannot_be_read_is_not_pushed_and_costs_no_credit() -> None:
    harness = await open_harness(payload_memory_bytes=0)
    await kept_job(harness, watched(options=b"{}", payload=b"long"))
    harness.store.read_error = StorageError("unreadable")
    worker = harness.connect()
    worker.send(CAN_DO, credit(1))
    await idle()
    assert worker.heard() == []
    assert harness.engine.jobs[1].attempts == 0
    assert [found.running for found in harness.engine.workers.values()] == [{}]
    harness.store.read_error = None
    await harness.pass_time(LONGEST_RETRY_SECONDS)
    while harness.store.is_committing:
        await harness.store.succeed()
    assert worker.heard() == [pushed(1, b"long")]
    check_engine(harness.engine)


@in_turns
async def test_a_job_whose_payload_is_lost_fails_and_costs_no_credit() -> None:
    store = ScriptedStore()
    harness = await open_harness(payload_memory_bytes=0, store=store)
    client = await kept_job(harness, watched(payload=b"long"))
    client.send(OPTION)
    store.payloads.clear()
    worker = harness.connect()
    worker.send(CAN_DO, credit(1))
    await idle()
    await harness.store.succeed()
    text = b"the store has lost the payload of job 1"
    option = Packet(Kind.OPTION_RES, b"switchgear")
    assert client.heard() == [option, Packet(Ours.JOB_ENDED, b"H:t:1\0failed\0ended_badly\0" + text)]
    client.send(FOREGROUND)
    await idle()
    assert worker.heard() == [pushed(2)]


@pytest.mark.parametrize(
    "report",
    [request(Ours.RETRY_LATER, b"H:t:1", b"1000", b"", b"busy"), request(Ours.HAND_BACK, b"H:t:1")],
    ids=["RETRY_LATER", "HAND_BACK"],
)
@in_turns
async def test_a_worker_hears_no_more_until_what_it_gave_back_is_kept(report: bytes) -> None:
    harness = await open_harness()
    await kept_job(harness, watched())
    worker = harness.connect()
    worker.send(CAN_DO, credit(1))
    await idle()
    assert worker.heard() == [pushed(1)]
    worker.send(report, echo(b"reported"))
    await idle()
    assert worker.heard() == []
    await harness.store.succeed()
    assert worker.heard() == [echoed(b"reported")]


# --- workers that do not read ---


async def write_paused(jobs_per_worker: int = 10_000) -> tuple[HubHarness, Connected, Connected]:
    """A worker that grants much and reads nothing, and a hundred jobs of a thousand bytes, few of them pushed."""
    harness = await open_harness(durable=False, settings=EngineSettings(jobs_per_worker=jobs_per_worker))
    harness.setup.long_bytes = 10_000
    client, worker = harness.connect(), harness.connect()
    client.send(*[request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x" * 1000)] * 100)
    worker.send(CAN_DO, credit(1_000_000))
    await idle()
    return harness, client, worker


@in_turns
async def test_a_worker_that_reads_nothing_is_sent_little() -> None:
    harness, client, worker = await write_paused()
    assert [len(worker.heard()) for _ in range(2)] == [10, 0]
    client.send(*[request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x" * 1000)] * 5)
    worker.send(credit(1), echo(b"heard"))
    await idle()
    assert worker.heard() == [echoed(b"heard")]
    assert harness.engine.functions[b"f"].ready == 95
    for left in range(85, 0, -10):
        worker.read()
        await idle()
        assert len(worker.heard()) == 10
        assert harness.engine.functions[b"f"].ready == left
    worker.read()
    await idle()
    assert len(worker.heard()) == 5
    check_engine(harness.engine)


@in_turns
async def test_credit_is_taken_back_also_from_what_was_held() -> None:
    harness, _, worker = await write_paused(jobs_per_worker=50)
    assert len(worker.heard()) == 10
    worker.send(credit(-37))
    worker.read()
    await idle()
    assert len(worker.heard()) == 3
    assert harness.engine.functions[b"f"].ready == 87


@in_turns
async def test_a_worker_that_leaves_meanwhile_takes_nothing_along() -> None:
    harness, _, worker = await write_paused()
    worker.heard()
    worker.stop_sending()
    await idle()
    assert worker.wire.is_closed
    worker.leave()
    assert harness.engine.functions[b"f"].ready == 100
    check_engine(harness.engine)


@in_turns
async def test_credit_beyond_what_a_worker_may_hold_is_not_given() -> None:
    harness = await open_harness(durable=False, settings=EngineSettings(jobs_per_worker=5))
    client, worker = harness.connect(), harness.connect()
    client.send(*[FOREGROUND] * 20)
    worker.send(CAN_DO, credit(1_000_000), credit(1_000_000), credit(1))
    await idle()
    assert len(worker.heard()) == 5
    worker.send(COMPLETE, credit(1))
    await idle()
    assert worker.heard() == [pushed(6)]
