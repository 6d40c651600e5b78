"""The hub with a store that fails: nothing is promised, nothing is lost, and everything goes on when it works again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from switchgear.errors import StorageError
from switchgear.net.commits import FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS
from switchgear.protocols.gearman.messages import Packet as Extension
from switchgear.testing import check_engine
from tests.net.house import (
    BACKGROUND,
    CAN_DO,
    FOREGROUND,
    GRAB,
    NO_JOB,
    NOOP,
    Connected,
    HubHouse,
    ScriptedStore,
    created,
    echo,
    echoed,
    idle,
    in_turns,
    open_house,
)
from tests.support.wire import Kind, Line, Packet, request

REFUSED = Packet(Kind.ERROR, b"QUEUE_ERROR\0storage failed: disk full")


async def worker_with_job(house: HubHouse) -> Connected:
    """A worker that has job 1, which is kept."""
    client, worker = house.connect(), house.connect()
    client.send(BACKGROUND)
    await idle()
    await house.store.succeed()
    worker.send(CAN_DO, GRAB)
    await idle()
    assert worker.heard() == [Packet(Kind.JOB_ASSIGN, b"H:t:1\0f\0x")]
    return worker


async def broken_house() -> HubHouse:
    """One whose store has just failed."""
    house = await open_house()
    client = house.connect()
    client.send(request(Kind.SUBMIT_JOB_BG, b"other", b"", b"x"))
    await idle()
    await house.store.fail()
    assert client.heard() == [REFUSED]
    house.engine.next_job_id = 1
    return house


async def mend(house: HubHouse) -> None:
    """Time passes until the hub tries again, and this time it works."""
    await house.pass_time(LONGEST_RETRY_SECONDS)
    await house.store.succeed()


# --- submissions ---


@in_turns
async def test_a_promise_that_cannot_be_kept_becomes_a_refusal_in_its_place() -> None:
    house = await open_house()
    client, other = house.connect(), house.connect()
    client.send(echo(b"1"), BACKGROUND, echo(b"2"), BACKGROUND)
    other.send(BACKGROUND, b"version\n")
    await idle()
    client.send(echo(b"3"))
    await idle()
    await house.store.fail()
    assert client.heard() == [echoed(b"1"), REFUSED, echoed(b"2"), REFUSED, echoed(b"3")]
    assert other.heard() == [REFUSED, Line(b"OK test\n")]
    assert not house.engine.jobs
    assert house.store.staged == {}
    check_engine(house.engine)


@in_turns
async def test_what_came_during_the_failed_commit_is_refused_too() -> None:
    house = await open_house()
    client = house.connect()
    client.send(BACKGROUND)
    await idle()
    client.send(echo(b"1"), BACKGROUND)
    await idle()
    await house.store.fail()
    assert client.heard() == [REFUSED, echoed(b"1"), REFUSED]
    assert not house.engine.jobs


@in_turns
async def test_what_came_in_the_turn_of_the_failure_is_refused_too() -> None:
    house = await open_house()
    client, other = house.connect(), house.connect()
    client.send(BACKGROUND)
    await idle()
    house.store.fail_soon()
    client.send(BACKGROUND)
    other.send(BACKGROUND)
    await idle()
    assert client.heard() == [REFUSED, REFUSED]
    assert other.heard() == [REFUSED]
    await mend(house)
    assert house.store.kept == {}
    assert not house.engine.jobs


@in_turns
async def test_new_submissions_are_refused_at_once() -> None:
    house = await broken_house()
    client = house.connect()
    client.send(BACKGROUND, FOREGROUND, echo(b"x"))
    await idle()
    assert client.heard() == [REFUSED, REFUSED, echoed(b"x")]
    assert not house.store.is_committing


@in_turns
async def test_jobs_that_wait_for_each_other_are_withdrawn_together() -> None:
    house = await open_house()
    client = house.connect()
    client.send(BACKGROUND, request(Extension.SUBMIT_JOB_OPTIONS, b"f", b"", b'{"after": ["H:t:1"]}', b"x"))
    await idle()
    await house.store.fail()
    assert client.heard() == [REFUSED, REFUSED]
    assert not house.engine.jobs
    check_engine(house.engine)


@in_turns
async def test_a_job_that_has_replaced_another_is_not_withdrawn_since_the_other_is_gone() -> None:
    house = await open_house()
    client, other = house.connect(), house.connect()
    client.send(request(Kind.SUBMIT_JOB_BG, b"f", b"key", b"old"))
    await idle()
    await house.store.succeed()
    assert client.heard() == [created(1)]
    replacing = request(Extension.SUBMIT_JOB_OPTIONS, b"f", b"key", b'{"unique_policy": "replace"}', b"new")
    client.send(replacing)
    other.send(request(Extension.SUBMIT_JOB_OPTIONS, b"f", b"other", b'{"unique_policy": "replace"}', b"new"))
    await idle()
    await house.store.fail()
    assert client.heard() == []
    assert other.heard() == [REFUSED]  # it has replaced nobody
    await mend(house)
    assert client.heard() == [created(2)]
    assert house.store.kept == {1: "CANCELLED", 2: "READY"}
    check_engine(house.engine)


@in_turns
async def test_two_who_share_a_job_are_both_refused() -> None:
    house = await open_house()
    first, second = house.connect(), house.connect()
    shared = request(Kind.SUBMIT_JOB_BG, b"f", b"key", b"x")
    first.send(shared)
    await idle()
    second.send(shared)
    await idle()
    await house.store.fail()
    assert first.heard() == second.heard() == [REFUSED]
    first.send(b"status\n")
    await idle()
    assert first.heard() == [Line(b"f\t0\t0\t0\n"), Line(b".\n")]


@in_turns
async def test_a_job_that_somebody_waits_for_is_not_withdrawn() -> None:
    house = await open_house()
    background, foreground = house.connect(), house.connect()
    foreground.send(request(Kind.SUBMIT_JOB, b"f", b"key", b"x"))
    background.send(request(Kind.SUBMIT_JOB_BG, b"f", b"key", b"x"))
    await idle()
    await house.store.fail()
    assert foreground.heard() == [created(1)]
    assert background.heard() == []
    await mend(house)
    assert background.heard() == [created(1)]
    assert house.store.kept == {1: "READY"}


@in_turns
async def test_a_job_that_a_worker_has_is_not_withdrawn() -> None:
    house = await open_house()
    client, worker = house.connect(), house.connect()
    client.send(BACKGROUND)
    await idle()
    worker.send(CAN_DO, GRAB)
    await idle()
    assert worker.heard() == [Packet(Kind.JOB_ASSIGN, b"H:t:1\0f\0x")]
    await house.store.fail()
    assert client.heard() == []
    await mend(house)
    assert client.heard() == [created(1)]
    assert house.store.kept == {1: "RUNNING"}


@in_turns
async def test_jobs_that_were_kept_stay() -> None:
    house = await open_house()
    client = house.connect()
    client.send(BACKGROUND)
    await idle()
    await house.store.succeed()
    client.send(BACKGROUND)
    await idle()
    await house.store.fail()
    assert client.heard() == [created(1), REFUSED]
    assert list(house.engine.jobs) == [1]


# --- workers ---


@in_turns
async def test_nothing_is_handed_out_and_nobody_is_woken() -> None:
    house = await open_house()
    client, worker, sleeper = house.connect(), house.connect(), house.connect()
    client.send(BACKGROUND)
    await idle()
    await house.store.succeed()
    client.send(BACKGROUND)
    await idle()
    await house.store.fail()
    worker.send(CAN_DO, GRAB, request(Kind.GRAB_JOB_UNIQ), request(Kind.GRAB_JOB_ALL))
    sleeper.send(CAN_DO, request(Kind.PRE_SLEEP))
    await idle()
    assert worker.heard() == [NO_JOB] * 3
    assert sleeper.heard() == []


@in_turns
async def test_when_it_works_again_sleepers_are_woken_and_submissions_taken() -> None:
    house = await open_house()
    client, sleeper = house.connect(), house.connect()
    client.send(BACKGROUND)
    await idle()
    await house.store.succeed()
    client.send(BACKGROUND)
    await idle()
    await house.store.fail()
    client.heard()
    sleeper.send(CAN_DO, request(Kind.PRE_SLEEP))
    await idle()
    await mend(house)
    assert sleeper.heard() == [NOOP]
    sleeper.send(GRAB)
    client.send(BACKGROUND)
    await idle()
    await house.store.succeed()
    assert sleeper.heard() == [Packet(Kind.JOB_ASSIGN, b"H:t:1\0f\0x")]
    assert client.heard() == [created(3)]


@in_turns
async def test_a_report_is_held_through_every_failure_and_told_when_it_is_kept() -> None:
    house = await open_house()
    worker = await worker_with_job(house)
    client = house.connect()
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"), echo(b"1"))
    await idle()
    for attempt in range(4):
        await house.store.fail()
        client.send(echo(b"%d" % attempt))
        worker.send(GRAB)
        await house.pass_time(LONGEST_RETRY_SECONDS)
        assert worker.heard() == []
        assert client.heard() == [echoed(b"%d" % attempt)]
    await house.store.succeed()
    while house.store.is_committing:
        await house.store.succeed()
    assert worker.heard() == [echoed(b"1"), *[NO_JOB] * 4]
    assert house.store.kept == {1: "DONE"}


@in_turns
async def test_what_is_reported_while_the_store_is_broken_is_kept_later() -> None:
    house = await open_house()
    worker = await worker_with_job(house)
    client = house.connect()
    client.send(BACKGROUND)
    await idle()
    await house.store.fail()
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"), GRAB)
    await idle()
    assert worker.heard() == []
    await mend(house)
    assert worker.heard() == [NO_JOB]
    assert house.store.kept == {1: "DONE"}


@in_turns
async def test_foreground_jobs_that_run_are_finished_without_the_store() -> None:
    house = await open_house()
    client, worker, other = house.connect(), house.connect(), house.connect()
    client.send(FOREGROUND)
    worker.send(CAN_DO, GRAB)
    await idle()
    other.send(BACKGROUND)
    await idle()
    await house.store.fail()
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"))
    await idle()
    assert client.heard() == [created(1), Packet(Kind.WORK_COMPLETE, b"H:t:1\0done")]


@in_turns
async def test_a_peer_hung_up_on_hears_what_is_held_for_it_first() -> None:
    house = await open_house()
    worker = await worker_with_job(house)
    worker.send(request(Kind.WORK_FAIL, b"H:t:1"), echo(b"x"), b"a b c d e f\n")
    await idle()
    await house.store.fail()
    assert not worker.wire.is_closed
    await mend(house)
    assert worker.heard() == [echoed(b"x")]
    assert worker.wire.is_closed


# --- trying again ---


@in_turns
async def test_it_is_tried_again_after_longer_and_longer_pauses() -> None:
    house = await broken_house()
    pause = FIRST_RETRY_SECONDS
    for _ in range(8):
        commits = house.store.commits
        await house.pass_time(pause * 0.9)
        assert house.store.commits == commits
        await house.pass_time(pause * 0.1 + 1e-6)
        assert house.store.commits == commits + 1
        await house.store.fail()
        pause = min(pause * 2, LONGEST_RETRY_SECONDS)


@pytest.mark.parametrize(("calm_seconds", "pause"), [(0.0, LONGEST_RETRY_SECONDS), (11.0, FIRST_RETRY_SECONDS)])
@in_turns
async def test_the_pauses_are_short_again_if_it_worked_for_a_while(calm_seconds: float, pause: float) -> None:
    house = await broken_house()
    for _ in range(4):
        await house.pass_time(LONGEST_RETRY_SECONDS)
        await house.store.fail()
    await mend(house)
    await house.pass_time(calm_seconds)
    client = house.connect()
    client.send(BACKGROUND)
    await idle()
    await house.store.fail()
    await house.pass_time(pause - 0.01)
    assert not house.store.is_committing
    await house.pass_time(0.01)
    assert house.store.is_committing


@in_turns
async def test_reports_do_not_make_it_try_more_often() -> None:
    house = await open_house()
    worker = await worker_with_job(house)
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"), echo(b"x"))
    await idle()
    await house.store.fail()
    commits = house.store.commits
    for _ in range(100):
        worker.send(echo(b"x"), GRAB)
        await house.pass_time(0.0001)
    assert house.store.commits == commits


@in_turns
async def test_it_is_told_once_that_it_failed_and_once_that_it_works() -> None:
    house = await broken_house()
    for _ in range(3):
        await house.pass_time(LONGEST_RETRY_SECONDS)
        await house.store.fail(StorageError("still full"))
    await mend(house)
    assert house.telemetry.counts["storage_failed"] == 1
    assert house.telemetry.counts["storage_recovered"] == 1
    assert house.hub.storage_error is None


@in_turns
async def test_a_server_that_is_draining_goes_on_draining() -> None:
    house = await broken_house()
    house.engine.drain()
    await mend(house)
    client, worker = house.connect(), house.connect()
    client.send(BACKGROUND)
    worker.send(CAN_DO, GRAB)
    await idle()
    assert client.heard() == [Packet(Kind.ERROR, b"QUEUE_ERROR\0server is shutting down")]
    assert not house.engine.handing_out


@in_turns
async def test_a_draining_server_whose_store_fails_goes_on_draining() -> None:
    house = await open_house()
    worker = await worker_with_job(house)
    house.engine.drain()
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b""), echo(b"x"))
    await idle()
    await house.store.fail()
    await mend(house)
    assert house.engine.refusal is not None
    assert house.engine.refusal.reason == "draining"
    assert not house.engine.handing_out
    assert worker.heard() == [echoed(b"x")]


@in_turns
async def test_a_defect_of_the_store_is_a_failure_like_any_other(caplog: pytest.LogCaptureFixture) -> None:
    house = await open_house()
    client = house.connect()
    client.send(BACKGROUND)
    await idle()
    with caplog.at_level(logging.ERROR, "switchgear"):
        await house.store.fail(OverflowError("too large for the store"))
    (answer,) = client.heard()
    assert isinstance(answer, Packet)
    assert answer.body.startswith(b"QUEUE_ERROR\0")
    assert not house.engine.jobs
    await mend(house)
    client.send(BACKGROUND)
    await idle()
    await house.store.succeed()
    assert client.heard() == [created(2)]


@in_turns
async def test_jobs_that_the_store_has_in_a_newer_version_are_told_of() -> None:
    house = await open_house()
    client = house.connect()
    client.send(BACKGROUND)
    await idle()
    await house.store.succeed(refused=[1])
    assert house.telemetry.counts["storage_refused"] == 1
    assert client.heard() == [created(1)]


@in_turns
async def test_a_store_that_fails_at_the_very_beginning() -> None:
    store = ScriptedStore()
    store.obedient = False
    house = HubHouse(store, 1_000_000, None)
    loading = asyncio.create_task(house.hub.load())
    await idle()
    await store.fail()
    await loading
    client = house.connect()
    client.send(BACKGROUND, FOREGROUND)
    await idle()
    assert client.heard() == [REFUSED, REFUSED]
    await mend(house)
    assert store.kept_next_job_id > 1
    client.send(FOREGROUND)
    await idle()
    assert client.heard() == [created(1)]


@in_turns
async def test_nothing_is_refused_that_an_earlier_commit_has_kept() -> None:
    """A submission that is staged after a commit was decided on, and before the store begins with it, is in it."""
    house = await open_house()
    client, other = house.connect(), house.connect()
    client.send(BACKGROUND)
    await idle()
    house.store.succeed_soon()  # another commit follows at once, because
    asyncio.get_running_loop().call_soon(lambda: other.send(BACKGROUND))
    client.send(BACKGROUND)  # this waits; and the end of its turn is the end of the other's
    await idle()
    assert client.heard() == [created(1)]
    await house.store.succeed()
    assert client.heard() == [created(2)]
    if house.store.is_committing:
        await house.store.fail()
    assert (3 in house.store.kept) == (other.heard() == [created(3)])
