"""The hub: its beginning and end, ids that are never used twice, and time."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.engine.state import Observer
from switchgear.model import NORMAL, SECOND_US, Function, Peer, PlainJob, Worker
from switchgear.net import staged_changes
from switchgear.net.commits import LAZY_COMMIT_SECONDS
from switchgear.protocols.gearman.messages import Packet as Extension
from switchgear.storage.base import Snapshot
from tests.net.harness import (
    BACKGROUND,
    CAN_DO,
    FOREGROUND,
    GRAB,
    NO_JOB,
    NOOP,
    Connected,
    HubHarness,
    ScriptedStore,
    created,
    idle,
    in_turns,
    open_harness,
)
from tests.support.wire import Kind, Line, Packet, request

ECHO = request(Kind.ECHO_REQ, b"x")
UNIQUE_FOREGROUND = request(Kind.SUBMIT_JOB, b"g", b"key", b"payload")

# --- ids ---


@in_turns
async def test_ids_are_reserved_before_the_first_job_comes() -> None:
    harness = await open_harness()
    assert harness.store.kept_next_job_id >= staged_changes.RESERVED_IDS // 2


@in_turns
async def test_ids_go_on_where_an_earlier_server_may_have_been() -> None:
    store = ScriptedStore()
    store.snapshot.next_job_id = 5000
    harness = await open_harness(store=store)
    client = harness.connect()
    client.send(FOREGROUND)
    await idle()
    assert client.heard() == [created(5000)]
    assert harness.store.kept_next_job_id > 5000


@in_turns
async def test_no_handle_is_told_that_a_restart_might_give_to_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_changes, "RESERVED_IDS", 10)
    harness = await open_harness()
    client = harness.connect()
    bound = harness.store.kept_next_job_id
    for job_id in range(1, 40):
        client.send(FOREGROUND)
        await idle()
        if harness.store.is_committing and job_id >= bound:
            assert client.heard() == []
            await harness.store.succeed()
        elif harness.store.is_committing:
            await harness.store.succeed()
        await harness.pass_time(LAZY_COMMIT_SECONDS)
        if harness.store.is_committing:
            await harness.store.succeed()
        bound = harness.store.kept_next_job_id
        assert client.heard() == [created(job_id)]
        assert job_id < bound


@in_turns
async def test_many_jobs_in_one_turn_wait_until_their_ids_are_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_changes, "RESERVED_IDS", 10)
    harness = await open_harness()
    client = harness.connect()
    client.send(FOREGROUND * 50)
    await idle()
    assert client.heard() == []
    while harness.store.is_committing:
        await harness.store.succeed()
    assert client.heard() == [created(n) for n in range(1, 51)]
    assert harness.store.kept_next_job_id > 50


@in_turns
async def test_others_do_not_wait_for_ids_that_they_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_changes, "RESERVED_IDS", 10)
    harness = await open_harness()
    client, bystander = harness.connect(), harness.connect()
    client.send(FOREGROUND * 50)
    bystander.send(ECHO)
    await idle()
    assert harness.store.is_committing
    same, again, worker = harness.connect(), harness.connect(), harness.connect()
    same.send(UNIQUE_FOREGROUND)
    again.send(UNIQUE_FOREGROUND)
    worker.send(request(Kind.CAN_DO, b"g"), GRAB)
    worker.send(ECHO)  # its answer keeps its place behind the job
    bystander.send(ECHO)
    await idle()
    assert (client.heard(), same.heard(), again.heard(), worker.heard()) == ([], [], [], [])
    assert bystander.heard() == [Packet(Kind.ECHO_RES, b"x")] * 2
    while harness.store.is_committing:
        await harness.store.succeed()
    assert client.heard() == [created(n) for n in range(1, 51)]
    assert same.heard() == again.heard() == [created(51)]
    assert worker.heard() == [Packet(Kind.JOB_ASSIGN, b"H:t:51\0g\0payload"), Packet(Kind.ECHO_RES, b"x")]


# --- time ---


@in_turns
async def test_what_happens_by_itself_happens_in_time() -> None:
    harness = await open_harness(durable=False)
    client, worker = harness.connect(), harness.connect()
    in_ten, in_five = (b"%d" % (harness.clock.now_us() // SECOND_US + s) for s in (10, 5))
    client.send(request(Kind.SUBMIT_JOB_EPOCH, b"f", b"", in_ten, b"later"))
    client.send(request(Kind.SUBMIT_JOB_EPOCH, b"f", b"", in_five, b"sooner"))
    worker.send(CAN_DO, request(Kind.PRE_SLEEP))
    await idle()
    await harness.pass_time(4.9)
    assert worker.heard() == []
    await harness.pass_time(0.1)
    assert worker.heard() == [NOOP]
    worker.send(GRAB, GRAB, request(Kind.PRE_SLEEP))
    await idle()
    assert worker.heard() == [Packet(Kind.JOB_ASSIGN, b"H:t:2\0f\0sooner"), NO_JOB]
    await harness.pass_time(5)
    assert worker.heard() == [NOOP]


@in_turns
async def test_a_clock_that_was_set_is_followed_and_told_of() -> None:
    harness = await open_harness(durable=False)
    client, worker = harness.connect(), harness.connect()
    tomorrow = b"%d" % (harness.clock.now_us() // SECOND_US + 86_400)
    client.send(request(Kind.SUBMIT_JOB_EPOCH, b"f", b"", tomorrow, b"x"))
    worker.send(CAN_DO, request(Kind.PRE_SLEEP))
    await idle()
    harness.hub.follow_wall_clock()
    assert harness.telemetry.counts["clock_stepped"] == 0
    harness.clock.set_wall_clock(86_400)
    harness.hub.follow_wall_clock()
    await idle()
    assert harness.telemetry.counts["clock_stepped"] == 1
    assert worker.heard() == [NOOP]


@in_turns
async def test_a_clock_set_back_does_not_put_off_a_time_limit() -> None:
    harness = await open_harness(durable=False)
    client, worker = harness.connect(), harness.connect()
    client.send(FOREGROUND)
    worker.send(request(Kind.CAN_DO_TIMEOUT, b"f", b"2000"), GRAB)
    await idle()
    harness.clock.set_wall_clock(-3600)
    harness.hub.follow_wall_clock()
    await idle()
    await harness.pass_time(2)
    assert [job.state.name for job in harness.engine.jobs.values()] == ["READY"]


# --- the rest of what sessions ask ---


@in_turns
async def test_bad_input_is_an_event() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(b"nonsense\n", request(Kind.NOOP), b"\0XXX")
    assert harness.telemetry.counts["bad_input"] == 3


@in_turns
async def test_a_request_to_stop_is_passed_on_after_the_turn() -> None:
    harness = await open_harness()
    asked: list[bool] = []
    harness.hub.on_stop_requested = asked.append
    admin = harness.connect()
    admin.send(b"shutdown graceful\n")
    assert asked == []
    await idle()
    assert asked == [True]
    assert admin.heard() == [Line(b"OK\r\n")]


# --- the end ---


@in_turns
async def test_the_end_keeps_what_was_not_kept_yet() -> None:
    harness = await open_harness()
    client, worker = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    worker.send(CAN_DO, GRAB)
    harness.store.obedient = True
    await harness.hub.close()
    assert harness.store.kept == {1: "RUNNING"}
    await harness.pass_time(100)


@in_turns
async def test_the_end_tells_what_was_promised() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(BACKGROUND)
    harness.store.obedient = True
    await harness.hub.flush()
    assert client.heard() == [created(1)]
    await harness.hub.close()


@in_turns
async def test_the_end_comes_with_a_broken_store_too() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.fail()
    await harness.hub.flush()
    await harness.hub.close()
    await harness.pass_time(100)
    assert not harness.store.is_committing


# --- the beginning ---


@in_turns
async def test_a_restart_goes_on_with_what_was_kept() -> None:
    store = ScriptedStore()
    store.snapshot.jobs = [store.kept_job(3, b"three"), store.kept_job(4, b"four")]
    store.snapshot.next_job_id = 5
    harness = await open_harness(store=store)
    worker = harness.connect()
    worker.send(CAN_DO, GRAB, GRAB)
    await idle()
    assert worker.heard() == [Packet(Kind.JOB_ASSIGN, b"H:t:3\0f\0three"), Packet(Kind.JOB_ASSIGN, b"H:t:4\0f\0four")]


@in_turns
async def test_more_functions_than_are_allowed_now_are_no_reason_not_to_start() -> None:
    store = ScriptedStore()
    jobs = [store.kept_job(number, b"x") for number in (1, 2, 3)]
    for job in jobs:
        job.function.name = b"f%d" % job.id
    store.snapshot.jobs = jobs
    store.snapshot.next_job_id = 4
    harness = await open_harness(store=store, settings=EngineSettings(functions=2))
    assert len(harness.engine.jobs) == 3


class RowsLater(ScriptedStore):
    """Has plain jobs, whose functions are named only when their rows are read."""

    async def load_apart(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        return Snapshot(next_job_id=4, plain=self.rows(function_named))

    async def rows(self, function_named: Callable[[bytes], Function]) -> AsyncGenerator[list[PlainJob], None]:
        for number in (1, 2, 3):
            yield [(number, function_named(b"f%d" % number), NORMAL, 1, 0, b"")]


@in_turns
async def test_nor_are_they_if_their_jobs_are_plain() -> None:
    harness = await open_harness(store=RowsLater(), settings=EngineSettings(functions=2))
    assert sorted(harness.engine.functions) == [b"f1", b"f2", b"f3"]
    assert harness.engine.settings.functions == 2


class Defective(Observer):
    def worker_expired(self, worker: Worker) -> None:
        raise RuntimeError("a defect")


@in_turns
async def test_a_defect_in_what_happens_by_itself_does_not_stop_the_turns() -> None:
    harness = await open_harness(durable=False)
    client = harness.connect()
    harness.engine.observer = Defective()
    harness.hub.begin_turn()
    harness.engine.renew_lease(harness.engine.add_worker(Peer(), "test", b""), 1)
    await idle()
    harness.clock.advance(1)
    with pytest.raises(RuntimeError):
        harness.hub.begin_turn()
    await idle()
    client.send(FOREGROUND)
    await idle()
    assert client.heard() == [created(1)]


# --- a process that stands still ---


class Stopwatch:
    """Replaces the monotonic clock; without `pass_time` of the harness, no timer rings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.seconds)

    async def stand_still(self, harness: HubHarness, seconds: float) -> None:
        self.seconds += seconds
        await harness.pass_time(seconds)


async def leased_worker(harness: HubHarness) -> Connected:
    """A worker with a lease of a second, and a job that it runs."""
    worker = harness.connect()
    worker.send(request(Kind.OPTION_REQ, b"switchgear"), CAN_DO, request(Extension.CREDIT, b"1", b"1000"), FOREGROUND)
    await idle()
    assert any(isinstance(each, Packet) and each.type == Extension.JOB_PUSH for each in worker.heard())
    return worker


@in_turns
async def test_a_worker_is_not_lost_because_the_process_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    stopwatch = Stopwatch(monkeypatch)
    harness = await open_harness(durable=False)
    worker = await leased_worker(harness)
    await stopwatch.stand_still(harness, 60)
    worker.send(ECHO)  # it lay in the socket
    await stopwatch.stand_still(harness, 0.9)
    assert worker.heard()
    assert len(harness.engine.workers) == 1
    stopwatch.seconds += 0.1
    await harness.pass_time(0.1)
    assert not harness.engine.workers


@in_turns
async def test_a_worker_is_not_lost_because_a_turn_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    stopwatch = Stopwatch(monkeypatch)
    harness = await open_harness(durable=False)
    await leased_worker(harness)
    harness.hub.begin_turn()
    await stopwatch.stand_still(harness, 60)
    assert len(harness.engine.workers) == 1


@in_turns
async def test_a_worker_is_lost_when_the_process_did_not_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    stopwatch = Stopwatch(monkeypatch)
    harness = await open_harness(durable=False)
    await leased_worker(harness)
    stopwatch.seconds += 1
    await harness.pass_time(1)
    assert not harness.engine.workers


@in_turns
async def test_hours_without_a_deadline_are_no_standstill(monkeypatch: pytest.MonkeyPatch) -> None:
    stopwatch = Stopwatch(monkeypatch)
    harness = await open_harness(durable=False)
    peer = harness.connect()
    peer.send(CAN_DO)
    await leased_worker(harness)
    await stopwatch.stand_still(harness, 1)  # the timer rings in time
    await stopwatch.stand_still(harness, 3600)
    await leased_worker(harness)
    stopwatch.seconds += 1
    await harness.pass_time(1)
    assert len(harness.engine.workers) == 1  # the one without a lease
