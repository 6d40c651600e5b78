"""The hub: turns, promises, and hanging up."""

from __future__ import annotations

from switchgear.net.commits import LAZY_COMMIT_SECONDS
from switchgear.protocols.gearman.messages import Packet as Extension
from tests.net.harness import (
    BACKGROUND,
    CAN_DO,
    FOREGROUND,
    GRAB,
    NO_JOB,
    NOOP,
    created,
    echo,
    echoed,
    idle,
    in_turns,
    open_harness,
)
from tests.support.wire import Kind, Line, Packet, request

# --- turns ---


@in_turns
async def test_all_answers_of_a_turn_are_one_write_at_its_end() -> None:
    harness = await open_harness()
    first, second = harness.connect(), harness.connect()
    first.send(echo(b"1"), echo(b"2"))
    second.send(b"version\n")
    first.send(echo(b"3"))
    assert first.wire.writes == []
    await idle()
    assert len(first.wire.writes) == len(second.wire.writes) == 1
    assert first.heard() == [echoed(b"1"), echoed(b"2"), echoed(b"3")]
    assert second.heard() == [Line(b"OK test\n")]


@in_turns
async def test_a_turn_begins_with_the_time_it_is() -> None:
    harness = await open_harness()
    client = harness.connect()
    harness.clock.advance(5)
    client.send(FOREGROUND)
    (job,) = harness.engine.jobs.values()
    assert job.created_us == harness.clock.now_us()


@in_turns
async def test_news_for_others_leave_in_the_same_turn() -> None:
    harness = await open_harness()
    client, worker = harness.connect(), harness.connect()
    worker.send(CAN_DO, request(Kind.PRE_SLEEP))
    await idle()
    client.send(FOREGROUND)
    await idle()
    assert worker.heard() == [NOOP]
    worker.send(GRAB, request(Kind.WORK_COMPLETE, b"H:t:1", b"done"))
    await idle()
    assert client.heard() == [created(1), Packet(Kind.WORK_COMPLETE, b"H:t:1\0done")]


@in_turns
async def test_a_store_that_forgets_is_never_asked_to_commit() -> None:
    harness = await open_harness(durable=False)
    client = harness.connect()
    client.send(BACKGROUND, FOREGROUND)
    await idle()
    assert client.heard() == [created(1), created(2)]
    await harness.pass_time(10)
    assert harness.store.commits == 0


# --- promises ---


@in_turns
async def test_a_promise_waits_for_the_commit() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(BACKGROUND)
    await idle()
    assert harness.store.is_committing
    assert client.heard() == []
    await harness.store.succeed()
    assert harness.store.kept == {1: "READY"}
    assert client.heard() == [created(1)]


@in_turns
async def test_what_is_no_promise_does_not_wait() -> None:
    harness = await open_harness()
    client, other = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    other.send(FOREGROUND, echo(b"x"))
    await idle()
    assert client.heard() == []
    assert other.heard() == [created(2), echoed(b"x")]
    other.send(b"version\n")
    await idle()
    assert other.heard() == [Line(b"OK test\n")]


@in_turns
async def test_the_order_of_answers_never_changes() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(echo(b"1"), BACKGROUND, echo(b"2"))
    await idle()
    client.send(echo(b"3"))
    await idle()
    client.send(BACKGROUND, echo(b"4"))
    await idle()
    client.send(echo(b"5"))
    await idle()
    assert client.heard() == []
    await harness.store.succeed()
    assert client.heard() == [echoed(b"1"), created(1), echoed(b"2")]
    client.send(echo(b"6"))
    await idle()
    assert client.heard() == []
    await harness.store.succeed()
    assert client.heard() == [*map(echoed, [b"3"]), created(2), echoed(b"4"), echoed(b"5"), echoed(b"6")]
    client.send(echo(b"7"))
    await idle()
    assert client.heard() == [echoed(b"7")]


@in_turns
async def test_what_is_said_during_a_commit_and_promises_nothing_leaves_with_it() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(BACKGROUND)
    await idle()
    client.send(echo(b"1"))
    await idle()
    client.send(echo(b"2"))
    await idle()
    assert client.heard() == []
    await harness.store.succeed()
    assert client.heard() == [created(1), echoed(b"1"), echoed(b"2")]


@in_turns
async def test_one_commit_at_a_time_and_the_next_takes_all_that_came_meanwhile() -> None:
    harness = await open_harness()
    clients = [harness.connect() for _ in range(20)]
    for client in clients:
        client.send(BACKGROUND)
        await idle()
    assert harness.store.commits == 1
    await harness.store.succeed()
    assert [client.heard() for client in clients] == [[created(1)], *([[]] * 19)]
    assert harness.store.commits == 2
    await harness.store.succeed()
    assert [client.heard() for client in clients[1:]] == [[created(n)] for n in range(2, 21)]
    assert harness.store.commits == 2
    assert not harness.store.is_committing


@in_turns
async def test_a_commit_that_ends_in_the_middle_of_a_turn_releases_nothing_of_that_turn() -> None:
    harness = await open_harness()
    client, other = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    harness.store.succeed_soon()
    client.send(BACKGROUND)
    other.send(BACKGROUND)
    await idle()
    assert client.heard() == [created(1)]
    assert other.heard() == []
    assert harness.store.kept == {1: "READY"}
    await harness.store.succeed()
    assert client.heard() == [created(2)]
    assert other.heard() == [created(3)]


@in_turns
async def test_a_commit_that_begins_in_the_middle_of_a_turn_holds_back_what_it_does_not_keep() -> None:
    harness = await open_harness()
    client, worker = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    client.heard()
    worker.send(CAN_DO, GRAB)
    await idle()
    # The commit that nobody waits for is due in the same turn of the loop in which a client speaks.
    harness.loop.call_later(LAZY_COMMIT_SECONDS, client.send, BACKGROUND)
    await harness.pass_time(LAZY_COMMIT_SECONDS)
    assert client.heard() == []
    while harness.store.is_committing:
        kept_before = dict(harness.store.kept)
        await harness.store.succeed()
        if client.wire.writes:
            break
        assert harness.store.kept != kept_before
    assert client.heard() == [created(2)]
    assert harness.store.kept[2] == "READY"


@in_turns
async def test_the_result_of_a_kept_job_is_told_once_it_is_kept() -> None:
    harness = await open_harness()
    client, worker = harness.connect(), harness.connect()
    client.send(request(Kind.SUBMIT_JOB_BG, b"f", b"key", b"x"))
    await idle()
    await harness.store.succeed()
    client.send(request(Kind.SUBMIT_JOB, b"f", b"key", b"x"))
    await idle()
    assert client.heard() == [created(1), created(1)]
    worker.send(CAN_DO, GRAB)
    await idle()
    assert worker.heard() == [Packet(Kind.JOB_ASSIGN, b"H:t:1\0f\0x")]
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"), GRAB)
    await idle()
    assert client.heard() == []
    assert worker.heard() == []
    await harness.store.succeed()
    assert harness.store.kept == {1: "DONE"}
    assert client.heard() == [Packet(Kind.WORK_COMPLETE, b"H:t:1\0done")]
    assert worker.heard() == [NO_JOB]


@in_turns
async def test_what_an_operator_changes_is_kept_before_it_is_answered() -> None:
    harness = await open_harness()
    operator = harness.connect()
    operator.send(request(Extension.CONTROL, b"pause", b'{"function": "f"}'))
    await idle()
    assert operator.heard() == []
    assert harness.store.staged_functions == {b"f": True}
    await harness.store.succeed()
    (answer,) = operator.heard()
    assert isinstance(answer, Packet)
    assert answer.type == Extension.CONTROL_RES


@in_turns
async def test_changes_that_nobody_was_promised_are_kept_a_moment_later() -> None:
    harness = await open_harness()
    client, worker = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    worker.send(CAN_DO, GRAB)
    await idle()
    assert worker.heard() == [Packet(Kind.JOB_ASSIGN, b"H:t:1\0f\0x")]
    assert harness.store.kept == {1: "READY"}
    await harness.pass_time(LAZY_COMMIT_SECONDS * 0.9)
    assert harness.store.commits == 1
    await harness.pass_time(LAZY_COMMIT_SECONDS * 0.1)
    assert harness.store.commits == 2
    await harness.store.succeed()
    assert harness.store.kept == {1: "RUNNING"}
    await harness.pass_time(10)
    assert harness.store.commits == 2


@in_turns
async def test_changes_that_nobody_was_promised_go_along_with_the_next_promise() -> None:
    harness = await open_harness()
    client, worker = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    worker.send(CAN_DO, GRAB)
    await idle()
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    assert harness.store.kept == {1: "RUNNING", 2: "READY"}
    await harness.pass_time(10)
    assert harness.store.commits == 2


@in_turns
async def test_changes_during_a_commit_are_kept_after_it_even_if_nobody_waits() -> None:
    harness = await open_harness()
    client, worker = harness.connect(), harness.connect()
    client.send(BACKGROUND)
    await idle()
    worker.send(CAN_DO, GRAB)
    await idle()
    await harness.store.succeed()
    assert not harness.store.is_committing
    await harness.pass_time(LAZY_COMMIT_SECONDS)
    await harness.store.succeed()
    assert harness.store.kept == {1: "RUNNING"}


@in_turns
async def test_requests_put_off_for_long_answers_keep_their_order_and_their_promises() -> None:
    harness = await open_harness()
    harness.setup.long_bytes = 1
    client = harness.connect()
    client.send(b"version\n", BACKGROUND, b"version\n", BACKGROUND, echo(b"end"))
    await idle()
    assert client.heard() == [Line(b"OK test\n")]
    client.read()
    await idle()
    assert client.heard() == []
    await harness.store.succeed()
    assert client.heard() == [created(1), Line(b"OK test\n")]
    client.read()
    await idle()
    assert client.heard() == []
    await harness.store.succeed()
    assert client.heard() == [created(2), echoed(b"end")]
    assert harness.store.kept == {1: "READY", 2: "READY"}


# --- hanging up ---


@in_turns
async def test_hanging_up_waits_for_what_is_held() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(BACKGROUND, b"\0XXX")
    await idle()
    assert not client.wire.is_closed
    await harness.store.succeed()
    first, second = client.heard()
    assert first == created(1)
    assert isinstance(second, Packet)
    assert second.body.startswith(b"INVALID_MAGIC")
    assert client.wire.is_closed


@in_turns
async def test_hanging_up_waits_for_all_commits_that_hold_something() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(BACKGROUND)
    await idle()
    client.send(BACKGROUND, b"a b c d e f\n")
    await idle()
    await harness.store.succeed()
    assert client.heard() == [created(1)]
    assert not client.wire.is_closed
    await harness.store.succeed()
    assert client.heard() == [created(2)]
    assert client.wire.is_closed


@in_turns
async def test_a_peer_that_stops_sending_gets_its_answers_first() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(BACKGROUND)
    client.stop_sending()
    await idle()
    assert not client.wire.is_closed
    await harness.store.succeed()
    assert client.heard() == [created(1)]
    assert client.wire.is_closed


@in_turns
async def test_a_client_that_leaves_before_its_answer_loses_only_the_answer() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(BACKGROUND)
    await idle()
    client.leave()
    await idle()
    await harness.store.succeed()
    assert harness.store.kept == {1: "READY"}
    assert list(harness.engine.jobs) == [1]
