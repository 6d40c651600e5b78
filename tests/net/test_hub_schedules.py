"""The hub and schedules: a tick and its job are kept together, and nobody hears of either before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from switchgear.model import SECOND_US, Function, Job, Schedule
from switchgear.net.commits import LAZY_COMMIT_SECONDS, LONGEST_RETRY_SECONDS
from switchgear.protocols.gearman.messages import Packet as Extension
from switchgear.testing import check_engine
from switchgear.testing.clock import START_US
from switchgear.timetable import Every
from tests.net.harness import (
    CAN_DO,
    GRAB,
    NOOP,
    HubHarness,
    ScriptedStore,
    idle,
    in_turns,
    open_harness,
)
from tests.support.wire import Kind, Packet, request

SLEEP = request(Kind.PRE_SLEEP)


class ScheduleStore(ScriptedStore):
    """Remembers how often each schedule has fired, and keeps that with the jobs."""

    def __init__(self, *schedules: Schedule) -> None:
        super().__init__(True)
        self.snapshot.schedules.extend(schedules)
        self.staged_fired: dict[bytes, int | None] = {}
        self.kept_fired: dict[bytes, int | None] = {}

    def stage(
        self,
        jobs: Iterable[Job],
        functions: Iterable[Function] = (),
        next_job_id: int = 0,
        schedules: Iterable[Schedule] = (),
    ) -> None:
        super().stage(jobs, functions, next_job_id)
        for schedule in schedules:
            self.staged_fired[schedule.name] = None if schedule.removed else schedule.fired

    async def commit(self) -> Sequence[int]:
        batch, self.staged_fired = self.staged_fired, {}
        try:
            refused = await super().commit()
        except BaseException:
            self.staged_fired = batch | self.staged_fired
            raise
        self.kept_fired.update(batch)
        return refused


def control(verb: bytes, **arguments: Any) -> bytes:
    return request(Extension.CONTROL, verb, json.dumps(arguments).encode())


POLL = control(b"schedule", name="poll", function="f", payload="x", every_seconds=10)


async def harness_with_schedule() -> tuple[HubHarness, ScheduleStore]:
    """A schedule that comes every ten seconds, and is kept; it is a full ten seconds now."""
    assert START_US % (10 * SECOND_US) == 0
    store = ScheduleStore()
    harness = await open_harness(store=store)
    worker = harness.connect()
    worker.send(POLL)
    await idle()
    assert worker.heard() == [], "the answer waits for the store"
    await store.succeed()
    (answer,) = worker.heard()
    assert isinstance(answer, Packet)
    assert json.loads(answer.body)["next_at"] == START_US / SECOND_US + 10
    assert store.kept_fired == {b"poll": 0}
    return harness, store


@in_turns
async def test_a_tick_is_kept_with_its_job_and_then_a_worker_hears_of_it() -> None:
    harness, store = await harness_with_schedule()
    worker = harness.connect()
    worker.send(CAN_DO, SLEEP)
    await idle()
    await harness.pass_time(9.9)
    assert worker.heard() == []
    await harness.pass_time(0.1)
    assert worker.heard() == [NOOP]
    worker.send(GRAB)
    await idle()
    assert worker.heard() == []
    assert store.is_committing
    await store.succeed()
    assert worker.heard() == [Packet(Kind.JOB_ASSIGN, b"H:t:1\0f\0x")]
    assert (store.kept, store.kept_fired) == ({1: "RUNNING"}, {b"poll": 1})


@in_turns
async def test_a_worker_that_is_pushed_to_hears_of_it_then_too() -> None:
    harness, store = await harness_with_schedule()
    worker = harness.connect()
    worker.send(request(Kind.OPTION_REQ, b"switchgear"), CAN_DO, request(Extension.CREDIT, b"1", b"0"))
    await idle()
    worker.heard()
    await harness.pass_time(10)
    assert worker.heard() == []
    assert store.is_committing
    await store.succeed()
    (push,) = worker.heard()
    assert isinstance(push, Packet)
    assert (push.type, push.body.startswith(b"H:t:1\0f\0")) == (Extension.JOB_PUSH, True)


@in_turns
async def test_a_tick_that_nobody_waits_for_is_kept_a_moment_later() -> None:
    harness, store = await harness_with_schedule()
    await harness.pass_time(10)
    assert not store.is_committing
    await harness.pass_time(LAZY_COMMIT_SECONDS)
    await store.succeed()
    assert (store.kept, store.kept_fired) == ({1: "READY"}, {b"poll": 1})


@in_turns
async def test_a_tick_without_a_job_is_kept_too() -> None:
    harness, store = await harness_with_schedule()
    await harness.pass_time(10)
    await harness.pass_time(LAZY_COMMIT_SECONDS)
    await store.succeed()
    store.kept_fired.clear()
    await harness.pass_time(10)
    await harness.pass_time(LAZY_COMMIT_SECONDS)
    await store.succeed()
    assert store.kept_fired == {b"poll": 1}
    assert harness.engine.schedules[b"poll"].skipped == 1


@in_turns
async def test_a_tick_whose_job_could_not_be_kept_comes_again() -> None:
    harness, store = await harness_with_schedule()
    await harness.pass_time(10)
    await harness.pass_time(LAZY_COMMIT_SECONDS)
    await store.fail()
    assert not harness.engine.jobs
    assert (store.staged, store.staged_fired) == ({}, {b"poll": 0})
    await harness.pass_time(LONGEST_RETRY_SECONDS)
    await store.succeed()
    assert [job.run_at_us for job in harness.engine.jobs.values()] == [START_US + 10 * SECOND_US]
    await harness.pass_time(LAZY_COMMIT_SECONDS)
    await store.succeed()
    assert store.kept_fired == {b"poll": 1}
    assert list(store.kept.values()) == ["READY"]
    check_engine(harness.engine)


@in_turns
async def test_while_the_store_fails_ticks_wait() -> None:
    harness, store = await harness_with_schedule()
    harness.connect().send(control(b"pause", function="g"))
    await idle()
    await store.fail()
    await harness.pass_time(10)
    assert not harness.engine.jobs
    assert "storage failed" in harness.engine.schedules[b"poll"].refusal
    if store.is_committing:
        await store.succeed()
    await harness.pass_time(LONGEST_RETRY_SECONDS)
    if store.is_committing:
        await store.succeed()
    await harness.pass_time(1)
    assert [job.run_at_us for job in harness.engine.jobs.values()] == [START_US + 10 * SECOND_US]


@in_turns
async def test_a_job_that_an_operator_wants_now_is_refused_if_it_cannot_be_kept() -> None:
    harness, store = await harness_with_schedule()
    operator = harness.connect()
    operator.send(control(b"run_schedule", name="poll"))
    await idle()
    assert operator.heard() == []
    await store.fail()
    assert operator.heard() == [Packet(Kind.ERROR, b"QUEUE_ERROR\0storage failed: disk full")]
    assert not harness.engine.jobs


@in_turns
async def test_a_restart_makes_up_for_what_was_missed() -> None:
    kept = Schedule(b"poll", Every(10 * SECOND_US), b"f", reached_us=START_US - 35 * SECOND_US, fired=4)
    store = ScheduleStore(kept)
    harness = await open_harness(store=store)
    assert [job.run_at_us for job in harness.engine.jobs.values()] == [START_US]
    assert (store.kept, store.kept_fired, kept.missed) == ({1: "READY"}, {b"poll": 5}, 3)


@in_turns
async def test_what_a_stopping_server_has_settled_is_kept_even_without_a_job() -> None:
    harness, store = await harness_with_schedule()
    await harness.pass_time(10)
    await harness.pass_time(LAZY_COMMIT_SECONDS)
    await store.succeed()
    store.kept_fired.clear()
    await harness.pass_time(10)
    store.obedient = True
    await harness.hub.close()
    assert store.kept_fired == {b"poll": 1}
