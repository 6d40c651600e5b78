"""The hub with a store that fails: nothing is promised, nothing is lost, and everything goes on when it works again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from switchgear.errors import Fenced, StorageError
from switchgear.net.commits import FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS
from switchgear.protocols.gearman.messages import Packet as Extension
from switchgear.testing import check_engine
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
    echo,
    echoed,
    idle,
    in_turns,
    open_harness,
)
from tests.support.wire import Kind, Line, Packet, request

REFUSED = Packet(Kind.ERROR, b"QUEUE_ERROR\0storage failed: disk full")


async def worker_with_job(harness: HubHarness) -> Connected:
    """A worker that has job 1, which is kept."""
    client, worker = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    worker.send(CAN_DO, GRAB)
    await idle()
    assert worker.heard() == [Packet(Kind.JOB_ASSIGN, b"H:t:1\0f\0x")]
    return worker


async def broken_harness() -> HubHarness:
    """One whose store has just failed."""
    harness = await open_harness()
    client = harness.connect()
    client.send(request(Kind.SUBMIT_JOB_BG, b"other", b"", b"x"))
    await idle()
    await harness.store.fail()
    assert client.heard() == [REFUSED]
    harness.engine.next_job_id = 1
    return harness


async def mend(harness: HubHarness) -> None:
    """Time passes until the hub tries again, and this time it works."""
    await harness.pass_time(LONGEST_RETRY_SECONDS)
    await harness.store.succeed()


# --- submissions ---


@in_turns
async def test_a_promise_that_cannot_be_kept_becomes_a_refusal_in_its_place() -> None:
    harness = await open_harness()
    client, other = harness.connect(), harness.connect()
    client.send(echo(b"1"), BACKGROUND, echo(b"2"), BACKGROUND)
    other.send(BACKGROUND, b"version\n")
    await idle()
    client.send(echo(b"3"))
    await idle()
    await harness.store.fail()
    assert client.heard() == [echoed(b"1"), REFUSED, echoed(b"2"), REFUSED, echoed(b"3")]
    assert other.heard() == [REFUSED, Line(b"OK test\n")]
    assert not harness.engine.jobs
    assert harness.store.staged == {}
    check_engine(harness.engine)


@in_turns
async def test_what_came_during_the_failed_commit_is_refused_too() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(BACKGROUND)
    await idle()
    client.send(echo(b"1"), BACKGROUND)
    await idle()
    await harness.store.fail()
    assert client.heard() == [REFUSED, echoed(b"1"), REFUSED]
    assert not harness.engine.jobs


@in_turns
async def test_what_came_in_the_turn_of_the_failure_is_refused_too() -> None:
    harness = await open_harness()
    client, other = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    harness.store.fail_soon()
    client.send(BACKGROUND)
    other.send(BACKGROUND)
    await idle()
    assert client.heard() == [REFUSED, REFUSED]
    assert other.heard() == [REFUSED]
    await mend(harness)
    assert harness.store.kept == {}
    assert not harness.engine.jobs


@in_turns
async def test_new_submissions_are_refused_at_once() -> None:
    harness = await broken_harness()
    client = harness.connect()
    client.send(BACKGROUND, FOREGROUND, echo(b"x"))
    await idle()
    assert client.heard() == [REFUSED, REFUSED, echoed(b"x")]
    assert not harness.store.is_committing


@in_turns
async def test_jobs_that_wait_for_each_other_are_withdrawn_together() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(BACKGROUND, request(Extension.SUBMIT_JOB_OPTIONS, b"f", b"", b'{"after": ["H:t:1"]}', b"x"))
    await idle()
    await harness.store.fail()
    assert client.heard() == [REFUSED, REFUSED]
    assert not harness.engine.jobs
    check_engine(harness.engine)


@in_turns
async def test_a_job_that_has_replaced_another_is_not_withdrawn_since_the_other_is_gone() -> None:
    harness = await open_harness()
    client, other = harness.connect(), harness.connect()
    client.send(request(Kind.SUBMIT_JOB_BG, b"f", b"key", b"old"))
    await idle()
    await harness.store.succeed()
    assert client.heard() == [created(1)]
    replacing = request(Extension.SUBMIT_JOB_OPTIONS, b"f", b"key", b'{"unique_policy": "replace"}', b"new")
    client.send(replacing)
    other.send(request(Extension.SUBMIT_JOB_OPTIONS, b"f", b"other", b'{"unique_policy": "replace"}', b"new"))
    await idle()
    await harness.store.fail()
    assert client.heard() == []
    assert other.heard() == [REFUSED]  # it has replaced nobody
    await mend(harness)
    assert client.heard() == [created(2)]
    assert harness.store.kept == {1: "CANCELLED", 2: "READY"}
    check_engine(harness.engine)


@in_turns
async def test_two_who_share_a_job_are_both_refused() -> None:
    harness = await open_harness()
    first, second = harness.connect(), harness.connect()
    shared = request(Kind.SUBMIT_JOB_BG, b"f", b"key", b"x")
    first.send(shared)
    await idle()
    second.send(shared)
    await idle()
    await harness.store.fail()
    assert first.heard() == second.heard() == [REFUSED]
    first.send(b"status\n")
    await idle()
    assert first.heard() == [Line(b"f\t0\t0\t0\n"), Line(b".\n")]


@in_turns
async def test_a_job_that_somebody_waits_for_is_not_withdrawn() -> None:
    harness = await open_harness()
    background, foreground = harness.connect(), harness.connect()
    foreground.send(request(Kind.SUBMIT_JOB, b"f", b"key", b"x"))
    background.send(request(Kind.SUBMIT_JOB_BG, b"f", b"key", b"x"))
    await idle()
    await harness.store.fail()
    assert foreground.heard() == [created(1)]
    assert background.heard() == []
    await mend(harness)
    assert background.heard() == [created(1)]
    assert harness.store.kept == {1: "READY"}


@in_turns
async def test_a_job_that_a_worker_has_is_not_withdrawn() -> None:
    harness = await open_harness()
    client, worker = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    worker.send(CAN_DO, GRAB)
    await idle()
    assert worker.heard() == [Packet(Kind.JOB_ASSIGN, b"H:t:1\0f\0x")]
    await harness.store.fail()
    assert client.heard() == []
    await mend(harness)
    assert client.heard() == [created(1)]
    assert harness.store.kept == {1: "RUNNING"}


@in_turns
async def test_jobs_that_were_kept_stay() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    client.send(BACKGROUND)
    await idle()
    await harness.store.fail()
    assert client.heard() == [created(1), REFUSED]
    assert list(harness.engine.jobs) == [1]


# --- workers ---


@in_turns
async def test_nothing_is_handed_out_and_nobody_is_woken() -> None:
    harness = await open_harness()
    client, worker, sleeper = harness.connect(), harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    client.send(BACKGROUND)
    await idle()
    await harness.store.fail()
    worker.send(CAN_DO, GRAB, request(Kind.GRAB_JOB_UNIQ), request(Kind.GRAB_JOB_ALL))
    sleeper.send(CAN_DO, request(Kind.PRE_SLEEP))
    await idle()
    assert worker.heard() == [NO_JOB] * 3
    assert sleeper.heard() == []


@in_turns
async def test_when_it_works_again_sleepers_are_woken_and_submissions_taken() -> None:
    harness = await open_harness()
    client, sleeper = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    client.send(BACKGROUND)
    await idle()
    await harness.store.fail()
    client.heard()
    sleeper.send(CAN_DO, request(Kind.PRE_SLEEP))
    await idle()
    await mend(harness)
    assert sleeper.heard() == [NOOP]
    sleeper.send(GRAB)
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    assert sleeper.heard() == [Packet(Kind.JOB_ASSIGN, b"H:t:1\0f\0x")]
    assert client.heard() == [created(3)]


@in_turns
async def test_a_report_is_held_through_every_failure_and_told_when_it_is_kept() -> None:
    harness = await open_harness()
    worker = await worker_with_job(harness)
    client = harness.connect()
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"), echo(b"1"))
    await idle()
    for attempt in range(4):
        await harness.store.fail()
        client.send(echo(b"%d" % attempt))
        worker.send(GRAB)
        await harness.pass_time(LONGEST_RETRY_SECONDS)
        assert worker.heard() == []
        assert client.heard() == [echoed(b"%d" % attempt)]
    await harness.store.succeed()
    while harness.store.is_committing:
        await harness.store.succeed()
    assert worker.heard() == [echoed(b"1"), *[NO_JOB] * 4]
    assert harness.store.kept == {1: "DONE"}


@in_turns
async def test_what_is_reported_while_the_store_is_broken_is_kept_later() -> None:
    harness = await open_harness()
    worker = await worker_with_job(harness)
    client = harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.fail()
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"), GRAB)
    await idle()
    assert worker.heard() == []
    await mend(harness)
    assert worker.heard() == [NO_JOB]
    assert harness.store.kept == {1: "DONE"}


@in_turns
async def test_foreground_jobs_that_run_are_finished_without_the_store() -> None:
    harness = await open_harness()
    client, worker, other = harness.connect(), harness.connect(), harness.connect()
    client.send(FOREGROUND)
    worker.send(CAN_DO, GRAB)
    await idle()
    other.send(BACKGROUND)
    await idle()
    await harness.store.fail()
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"))
    await idle()
    assert client.heard() == [created(1), Packet(Kind.WORK_COMPLETE, b"H:t:1\0done")]


@in_turns
async def test_a_peer_hung_up_on_hears_what_is_held_for_it_first() -> None:
    harness = await open_harness()
    worker = await worker_with_job(harness)
    worker.send(request(Kind.WORK_FAIL, b"H:t:1"), echo(b"x"), b"a b c d e f\n")
    await idle()
    await harness.store.fail()
    assert not worker.wire.is_closed
    await mend(harness)
    assert worker.heard() == [echoed(b"x")]
    assert worker.wire.is_closed


# --- trying again ---


@in_turns
async def test_it_is_tried_again_after_longer_and_longer_pauses() -> None:
    harness = await broken_harness()
    pause = FIRST_RETRY_SECONDS
    for _ in range(8):
        commits = harness.store.commits
        await harness.pass_time(pause * 0.9)
        assert harness.store.commits == commits
        await harness.pass_time(pause * 0.1 + 1e-6)
        assert harness.store.commits == commits + 1
        await harness.store.fail()
        pause = min(pause * 2, LONGEST_RETRY_SECONDS)


@pytest.mark.parametrize(("calm_seconds", "pause"), [(0.0, LONGEST_RETRY_SECONDS), (11.0, FIRST_RETRY_SECONDS)])
@in_turns
async def test_the_pauses_are_short_again_if_it_worked_for_a_while(calm_seconds: float, pause: float) -> None:
    harness = await broken_harness()
    for _ in range(4):
        await harness.pass_time(LONGEST_RETRY_SECONDS)
        await harness.store.fail()
    await mend(harness)
    await harness.pass_time(calm_seconds)
    client = harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.fail()
    await harness.pass_time(pause - 0.01)
    assert not harness.store.is_committing
    await harness.pass_time(0.01)
    assert harness.store.is_committing


@in_turns
async def test_reports_do_not_make_it_try_more_often() -> None:
    harness = await open_harness()
    worker = await worker_with_job(harness)
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"), echo(b"x"))
    await idle()
    await harness.store.fail()
    commits = harness.store.commits
    for _ in range(100):
        worker.send(echo(b"x"), GRAB)
        await harness.pass_time(0.0001)
    assert harness.store.commits == commits


@in_turns
async def test_it_is_told_once_that_it_failed_and_once_that_it_works() -> None:
    harness = await broken_harness()
    for _ in range(3):
        await harness.pass_time(LONGEST_RETRY_SECONDS)
        await harness.store.fail(StorageError("still full"))
    await mend(harness)
    assert harness.telemetry.counts["storage_failed"] == 1
    assert harness.telemetry.counts["storage_recovered"] == 1
    assert harness.hub.storage_error is None


@in_turns
async def test_a_server_that_is_draining_goes_on_draining() -> None:
    harness = await broken_harness()
    harness.engine.drain()
    await mend(harness)
    client, worker = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    worker.send(CAN_DO, GRAB)
    await idle()
    assert client.heard() == [Packet(Kind.ERROR, b"QUEUE_ERROR\0server is shutting down")]
    assert not harness.engine.handing_out


@in_turns
async def test_a_draining_server_whose_store_fails_goes_on_draining() -> None:
    harness = await open_harness()
    worker = await worker_with_job(harness)
    harness.engine.drain()
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b""), echo(b"x"))
    await idle()
    await harness.store.fail()
    await mend(harness)
    assert harness.engine.refusal is not None
    assert harness.engine.refusal.reason == "draining"
    assert not harness.engine.handing_out
    assert worker.heard() == [echoed(b"x")]


@in_turns
async def test_a_defect_of_the_store_is_a_failure_like_any_other(caplog: pytest.LogCaptureFixture) -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(BACKGROUND)
    await idle()
    with caplog.at_level(logging.ERROR, "switchgear"):
        await harness.store.fail(OverflowError("too large for the store"))
    (answer,) = client.heard()
    assert isinstance(answer, Packet)
    assert answer.body.startswith(b"QUEUE_ERROR\0")
    assert not harness.engine.jobs
    await mend(harness)
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    assert client.heard() == [created(2)]


@in_turns
async def test_jobs_that_the_store_has_in_a_newer_version_are_told_of() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed(refused=[1])
    assert harness.telemetry.counts["storage_refused"] == 1
    assert client.heard() == [created(1)]


@in_turns
async def test_a_store_that_fails_at_the_very_beginning() -> None:
    store = ScriptedStore()
    store.obedient = False
    harness = HubHarness(store, 1_000_000, None)
    loading = asyncio.create_task(harness.hub.load())
    await idle()
    await store.fail()
    await loading
    client = harness.connect()
    client.send(BACKGROUND, FOREGROUND)
    await idle()
    assert client.heard() == [REFUSED, REFUSED]
    await mend(harness)
    assert store.kept_next_job_id > 1
    client.send(FOREGROUND)
    await idle()
    assert client.heard() == [created(1)]


@in_turns
async def test_nothing_is_refused_that_an_earlier_commit_has_kept() -> None:
    """A submission that is staged after a commit was decided on, and before the store begins with it, is in it."""
    harness = await open_harness()
    client, other = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    harness.store.succeed_soon()  # another commit follows at once, because
    asyncio.get_running_loop().call_soon(lambda: other.send(BACKGROUND))
    client.send(BACKGROUND)  # this waits; and the end of its turn is the end of the other's
    await idle()
    assert client.heard() == [created(1)]
    await harness.store.succeed()
    assert client.heard() == [created(2)]
    if harness.store.is_committing:
        await harness.store.fail()
    assert (3 in harness.store.kept) == (other.heard() == [created(3)])


# --- another server may own the jobs by now ---


class SharedStore(ScriptedStore):
    """A store that says when another server may own it."""

    is_in_doubt = False

    def must_be_silent(self) -> bool:
        return self.is_in_doubt


async def doubtful_harness() -> tuple[HubHarness, SharedStore, Connected, Connected]:
    """One whose lease has lapsed, with two clients that have each asked something, in a turn of their own."""
    store = SharedStore(True)
    harness = await open_harness(store=store)
    first, second = harness.connect(), harness.connect()
    store.is_in_doubt = True
    first.send(echo(b"1"))
    await idle()
    second.send(echo(b"2"), echo(b"3"))
    await idle()
    assert store.is_committing  # it asks at once
    second.send(echo(b"4"))
    await idle()
    assert first.heard() == second.heard() == []
    return harness, store, first, second


@in_turns
async def test_in_doubt_nothing_is_told_until_the_store_has_answered() -> None:
    _, store, first, second = await doubtful_harness()
    store.is_in_doubt = False
    await store.succeed()
    assert first.heard() == [echoed(b"1")]
    assert second.heard() == [echoed(b"2"), echoed(b"3"), echoed(b"4")]


@in_turns
async def test_a_server_that_can_ask_nobody_tells_nothing_either() -> None:
    harness, store, first, second = await doubtful_harness()
    await store.fail()
    second.send(BACKGROUND, echo(b"5"))
    await idle()
    assert first.heard() == second.heard() == []
    await harness.pass_time(LONGEST_RETRY_SECONDS)
    store.is_in_doubt = False
    await store.succeed()
    assert first.heard() == [echoed(b"1")]
    heard = second.heard()
    assert heard[:3] == [echoed(b"2"), echoed(b"3"), echoed(b"4")]
    assert heard[4:] == [echoed(b"5")]
    second.send(BACKGROUND)
    await idle()
    await store.succeed()
    assert second.heard() == [created(1)]


@in_turns
async def test_answers_that_waited_for_a_commit_keep_their_order_in_doubt() -> None:
    store = SharedStore(True)
    harness = await open_harness(store=store)
    client = harness.connect()
    client.send(echo(b"1"), BACKGROUND, echo(b"2"))
    await idle()
    assert store.is_committing
    store.is_in_doubt = True
    client.send(echo(b"3"))
    await idle()
    await store.fail()  # its submission is refused, and nobody is told yet
    client.send(echo(b"4"))
    await idle()
    assert client.heard() == []
    await harness.pass_time(LONGEST_RETRY_SECONDS)
    store.is_in_doubt = False
    await store.succeed()
    assert [str(packet)[:40] for packet in client.heard()] == [
        str(packet)[:40] for packet in (echoed(b"1"), REFUSED, echoed(b"2"), echoed(b"3"), echoed(b"4"))
    ]
    check_engine(harness.engine)


@in_turns
async def test_a_commit_that_took_too_long_does_not_end_the_doubt() -> None:
    harness, store, first, _ = await doubtful_harness()
    await store.succeed()  # a moment too late
    assert first.heard() == []
    await harness.pass_time(LONGEST_RETRY_SECONDS)
    store.is_in_doubt = False
    await store.succeed()
    assert first.heard() == [echoed(b"1")]
    assert harness.hub.storage_error is None


@in_turns
async def test_a_server_that_another_one_has_replaced_says_nothing_more() -> None:
    harness, store, first, second = await doubtful_harness()
    await store.fail(Fenced("another server has taken over"))
    second.send(echo(b"5"))
    await idle()
    assert first.heard() == second.heard() == []
    assert harness.hub.commits.is_fenced


@in_turns
async def test_nothing_is_kept_in_doubt_for_peers_that_have_left() -> None:
    harness, store, first, second = await doubtful_harness()
    first.leave()
    harness.hub.forget_output(first.session)
    await idle()
    store.is_in_doubt = False
    await store.succeed()
    assert first.heard() == []
    assert second.heard() == [echoed(b"2"), echoed(b"3"), echoed(b"4")]
    assert not harness.hub.commits.output.is_silent
