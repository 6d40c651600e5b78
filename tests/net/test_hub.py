"""The hub: turns, promises, time, and what it does at its end."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.model import SECOND_US, Job
from switchgear.net import hub as hub_module
from switchgear.net.hub import LAZY_COMMIT_SECONDS
from switchgear.protocols.gearman.messages import Packet as Extension
from tests.net.house import HubHouse, ScriptedStore, idle, in_turns, open_house
from tests.support.wire import Kind, Line, Message, Packet, request


def echo(text: bytes) -> bytes:
    return request(Kind.ECHO_REQ, text)


def echoed(text: bytes) -> Message:
    return Packet(Kind.ECHO_RES, text)


def created(job_id: int) -> Message:
    return Packet(Kind.JOB_CREATED, b"H:t:%d" % job_id)


BACKGROUND = request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x")
FOREGROUND = request(Kind.SUBMIT_JOB, b"f", b"", b"x")
GRAB = request(Kind.GRAB_JOB)
CAN_DO = request(Kind.CAN_DO, b"f")
NO_JOB = Packet(Kind.NO_JOB, b"")
NOOP = Packet(Kind.NOOP, b"")


# --- turns ---


@in_turns
async def test_all_answers_of_a_turn_are_one_write_at_its_end() -> None:
    house = await open_house()
    first, second = house.connect(), house.connect()
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
    house = await open_house()
    client = house.connect()
    house.clock.advance(5)
    client.send(FOREGROUND)
    (job,) = house.engine.jobs.values()
    assert job.created_us == house.clock.now_us()


@in_turns
async def test_news_for_others_leave_in_the_same_turn() -> None:
    house = await open_house()
    client, worker = house.connect(), house.connect()
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
    house = await open_house(durable=False)
    client = house.connect()
    client.send(BACKGROUND, FOREGROUND)
    await idle()
    assert client.heard() == [created(1), created(2)]
    await house.pass_time(10)
    assert house.store.commits == 0


# --- promises ---


@in_turns
async def test_a_promise_waits_for_the_commit() -> None:
    house = await open_house()
    client = house.connect()
    client.send(BACKGROUND)
    await idle()
    assert house.store.is_committing
    assert client.heard() == []
    await house.store.succeed()
    assert house.store.kept == {1: "READY"}
    assert client.heard() == [created(1)]


@in_turns
async def test_what_is_no_promise_does_not_wait() -> None:
    house = await open_house()
    client, other = house.connect(), house.connect()
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
    house = await open_house()
    client = house.connect()
    client.send(echo(b"1"), BACKGROUND, echo(b"2"))
    await idle()
    client.send(echo(b"3"))
    await idle()
    client.send(BACKGROUND, echo(b"4"))
    await idle()
    client.send(echo(b"5"))
    await idle()
    assert client.heard() == []
    await house.store.succeed()
    assert client.heard() == [echoed(b"1"), created(1), echoed(b"2")]
    client.send(echo(b"6"))
    await idle()
    assert client.heard() == []
    await house.store.succeed()
    assert client.heard() == [*map(echoed, [b"3"]), created(2), echoed(b"4"), echoed(b"5"), echoed(b"6")]
    client.send(echo(b"7"))
    await idle()
    assert client.heard() == [echoed(b"7")]


@in_turns
async def test_what_is_said_during_a_commit_and_promises_nothing_leaves_with_it() -> None:
    house = await open_house()
    client = house.connect()
    client.send(BACKGROUND)
    await idle()
    client.send(echo(b"1"))
    await idle()
    client.send(echo(b"2"))
    await idle()
    assert client.heard() == []
    await house.store.succeed()
    assert client.heard() == [created(1), echoed(b"1"), echoed(b"2")]


@in_turns
async def test_one_commit_at_a_time_and_the_next_takes_all_that_came_meanwhile() -> None:
    house = await open_house()
    clients = [house.connect() for _ in range(20)]
    for client in clients:
        client.send(BACKGROUND)
        await idle()
    assert house.store.commits == 1
    await house.store.succeed()
    assert [client.heard() for client in clients] == [[created(1)], *([[]] * 19)]
    assert house.store.commits == 2
    await house.store.succeed()
    assert [client.heard() for client in clients[1:]] == [[created(n)] for n in range(2, 21)]
    assert house.store.commits == 2
    assert not house.store.is_committing


@in_turns
async def test_a_commit_that_ends_in_the_middle_of_a_turn_releases_nothing_of_that_turn() -> None:
    house = await open_house()
    client, other = house.connect(), house.connect()
    client.send(BACKGROUND)
    await idle()
    house.store.succeed_soon()
    client.send(BACKGROUND)
    other.send(BACKGROUND)
    await idle()
    assert client.heard() == [created(1)]
    assert other.heard() == []
    assert house.store.kept == {1: "READY"}
    await house.store.succeed()
    assert client.heard() == [created(2)]
    assert other.heard() == [created(3)]


@in_turns
async def test_a_commit_that_begins_in_the_middle_of_a_turn_holds_back_what_it_does_not_keep() -> None:
    house = await open_house()
    client, worker = house.connect(), house.connect()
    client.send(BACKGROUND)
    await idle()
    await house.store.succeed()
    client.heard()
    worker.send(CAN_DO, GRAB)
    await idle()
    # The commit that nobody waits for is due in the same turn of the loop in which a client speaks.
    house.loop.call_later(LAZY_COMMIT_SECONDS, client.send, BACKGROUND)
    await house.pass_time(LAZY_COMMIT_SECONDS)
    assert client.heard() == []
    while house.store.is_committing:
        kept_before = dict(house.store.kept)
        await house.store.succeed()
        if client.wire.writes:
            break
        assert house.store.kept != kept_before
    assert client.heard() == [created(2)]
    assert house.store.kept[2] == "READY"


@in_turns
async def test_the_result_of_a_kept_job_is_told_once_it_is_kept() -> None:
    house = await open_house()
    client, worker = house.connect(), house.connect()
    client.send(request(Kind.SUBMIT_JOB_BG, b"f", b"key", b"x"))
    await idle()
    await house.store.succeed()
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
    await house.store.succeed()
    assert house.store.kept == {1: "DONE"}
    assert client.heard() == [Packet(Kind.WORK_COMPLETE, b"H:t:1\0done")]
    assert worker.heard() == [NO_JOB]


@in_turns
async def test_what_an_operator_changes_is_kept_before_it_is_answered() -> None:
    house = await open_house()
    operator = house.connect()
    operator.send(request(Extension.CONTROL, b"pause", b'{"function": "f"}'))
    await idle()
    assert operator.heard() == []
    assert house.store.staged_functions == {b"f": True}
    await house.store.succeed()
    (answer,) = operator.heard()
    assert isinstance(answer, Packet)
    assert answer.type == Extension.CONTROL_RES


@in_turns
async def test_changes_that_nobody_was_promised_are_kept_a_moment_later() -> None:
    house = await open_house()
    client, worker = house.connect(), house.connect()
    client.send(BACKGROUND)
    await idle()
    await house.store.succeed()
    worker.send(CAN_DO, GRAB)
    await idle()
    assert worker.heard() == [Packet(Kind.JOB_ASSIGN, b"H:t:1\0f\0x")]
    assert house.store.kept == {1: "READY"}
    await house.pass_time(LAZY_COMMIT_SECONDS * 0.9)
    assert house.store.commits == 1
    await house.pass_time(LAZY_COMMIT_SECONDS * 0.1)
    assert house.store.commits == 2
    await house.store.succeed()
    assert house.store.kept == {1: "RUNNING"}
    await house.pass_time(10)
    assert house.store.commits == 2


@in_turns
async def test_changes_that_nobody_was_promised_go_along_with_the_next_promise() -> None:
    house = await open_house()
    client, worker = house.connect(), house.connect()
    client.send(BACKGROUND)
    await idle()
    await house.store.succeed()
    worker.send(CAN_DO, GRAB)
    await idle()
    client.send(BACKGROUND)
    await idle()
    await house.store.succeed()
    assert house.store.kept == {1: "RUNNING", 2: "READY"}
    await house.pass_time(10)
    assert house.store.commits == 2


@in_turns
async def test_changes_during_a_commit_are_kept_after_it_even_if_nobody_waits() -> None:
    house = await open_house()
    client, worker = house.connect(), house.connect()
    client.send(BACKGROUND)
    await idle()
    worker.send(CAN_DO, GRAB)
    await idle()
    await house.store.succeed()
    assert not house.store.is_committing
    await house.pass_time(LAZY_COMMIT_SECONDS)
    await house.store.succeed()
    assert house.store.kept == {1: "RUNNING"}


# --- hanging up ---


@in_turns
async def test_hanging_up_waits_for_what_is_held() -> None:
    house = await open_house()
    client = house.connect()
    client.send(BACKGROUND, b"\0XXX")
    await idle()
    assert not client.wire.is_closed
    await house.store.succeed()
    first, second = client.heard()
    assert first == created(1)
    assert isinstance(second, Packet)
    assert second.body.startswith(b"INVALID_MAGIC")
    assert client.wire.is_closed


@in_turns
async def test_hanging_up_waits_for_all_commits_that_hold_something() -> None:
    house = await open_house()
    client = house.connect()
    client.send(BACKGROUND)
    await idle()
    client.send(BACKGROUND, b"a b c d e f\n")
    await idle()
    await house.store.succeed()
    assert client.heard() == [created(1)]
    assert not client.wire.is_closed
    await house.store.succeed()
    assert client.heard() == [created(2)]
    assert client.wire.is_closed


@in_turns
async def test_a_peer_that_stops_sending_gets_its_answers_first() -> None:
    house = await open_house()
    client = house.connect()
    client.send(BACKGROUND)
    client.stop_sending()
    await idle()
    assert not client.wire.is_closed
    await house.store.succeed()
    assert client.heard() == [created(1)]
    assert client.wire.is_closed


@in_turns
async def test_a_client_that_leaves_before_its_answer_loses_only_the_answer() -> None:
    house = await open_house()
    client = house.connect()
    client.send(BACKGROUND)
    await idle()
    client.leave()
    await idle()
    await house.store.succeed()
    assert house.store.kept == {1: "READY"}
    assert list(house.engine.jobs) == [1]


# --- ids ---


@in_turns
async def test_ids_are_reserved_before_the_first_job_comes() -> None:
    house = await open_house()
    assert house.store.kept_next_job_id >= hub_module.RESERVED_IDS // 2


@in_turns
async def test_ids_go_on_where_an_earlier_server_may_have_been() -> None:
    store = ScriptedStore()
    store.snapshot.next_job_id = 5000
    house = await open_house(store=store)
    client = house.connect()
    client.send(FOREGROUND)
    await idle()
    assert client.heard() == [created(5000)]
    assert house.store.kept_next_job_id > 5000


@in_turns
async def test_no_handle_is_told_that_a_restart_might_give_to_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "RESERVED_IDS", 10)
    house = await open_house()
    client = house.connect()
    bound = house.store.kept_next_job_id
    for job_id in range(1, 40):
        client.send(FOREGROUND)
        await idle()
        if house.store.is_committing and job_id >= bound:
            assert client.heard() == []
            await house.store.succeed()
        elif house.store.is_committing:
            await house.store.succeed()
        await house.pass_time(LAZY_COMMIT_SECONDS)
        if house.store.is_committing:
            await house.store.succeed()
        bound = house.store.kept_next_job_id
        assert client.heard() == [created(job_id)]
        assert job_id < bound


@in_turns
async def test_many_jobs_in_one_turn_wait_until_their_ids_are_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "RESERVED_IDS", 10)
    house = await open_house()
    client = house.connect()
    client.send(FOREGROUND * 50)
    await idle()
    assert client.heard() == []
    while house.store.is_committing:
        await house.store.succeed()
    assert client.heard() == [created(n) for n in range(1, 51)]
    assert house.store.kept_next_job_id > 50


# --- time ---


@in_turns
async def test_what_happens_by_itself_happens_in_time() -> None:
    house = await open_house(durable=False)
    client, worker = house.connect(), house.connect()
    in_ten, in_five = (b"%d" % (house.clock.now_us() // SECOND_US + s) for s in (10, 5))
    client.send(request(Kind.SUBMIT_JOB_EPOCH, b"f", b"", in_ten, b"later"))
    client.send(request(Kind.SUBMIT_JOB_EPOCH, b"f", b"", in_five, b"sooner"))
    worker.send(CAN_DO, request(Kind.PRE_SLEEP))
    await idle()
    await house.pass_time(4.9)
    assert worker.heard() == []
    await house.pass_time(0.1)
    assert worker.heard() == [NOOP]
    worker.send(GRAB, GRAB, request(Kind.PRE_SLEEP))
    await idle()
    assert worker.heard() == [Packet(Kind.JOB_ASSIGN, b"H:t:2\0f\0sooner"), NO_JOB]
    await house.pass_time(5)
    assert worker.heard() == [NOOP]


@in_turns
async def test_a_clock_that_was_set_is_followed_and_told_of() -> None:
    house = await open_house(durable=False)
    client, worker = house.connect(), house.connect()
    tomorrow = b"%d" % (house.clock.now_us() // SECOND_US + 86_400)
    client.send(request(Kind.SUBMIT_JOB_EPOCH, b"f", b"", tomorrow, b"x"))
    worker.send(CAN_DO, request(Kind.PRE_SLEEP))
    await idle()
    house.hub.follow_wall_clock()
    assert house.telemetry.counts["clock_stepped"] == 0
    house.clock.set_wall_clock(86_400)
    house.hub.follow_wall_clock()
    await idle()
    assert house.telemetry.counts["clock_stepped"] == 1
    assert worker.heard() == [NOOP]


@in_turns
async def test_a_clock_set_back_does_not_put_off_a_time_limit() -> None:
    house = await open_house(durable=False)
    client, worker = house.connect(), house.connect()
    client.send(FOREGROUND)
    worker.send(request(Kind.CAN_DO_TIMEOUT, b"f", b"2000"), GRAB)
    await idle()
    house.clock.set_wall_clock(-3600)
    house.hub.follow_wall_clock()
    await idle()
    await house.pass_time(2)
    assert [job.state.name for job in house.engine.jobs.values()] == ["READY"]


# --- the rest of what sessions ask ---


@in_turns
async def test_bad_input_is_an_event() -> None:
    house = await open_house()
    client = house.connect()
    client.send(b"nonsense\n", request(Kind.NOOP), b"\0XXX")
    assert house.telemetry.counts["bad_input"] == 3


@in_turns
async def test_a_request_to_stop_is_passed_on_after_the_turn() -> None:
    house = await open_house()
    asked: list[bool] = []
    house.hub.on_stop_requested = asked.append
    admin = house.connect()
    admin.send(b"shutdown graceful\n")
    assert asked == []
    await idle()
    assert asked == [True]
    assert admin.heard() == [Line(b"OK\r\n")]


# --- the end ---


@in_turns
async def test_the_end_keeps_what_was_not_kept_yet() -> None:
    house = await open_house()
    client, worker = house.connect(), house.connect()
    client.send(BACKGROUND)
    await idle()
    await house.store.succeed()
    worker.send(CAN_DO, GRAB)
    house.store.obedient = True
    await house.hub.close()
    assert house.store.kept == {1: "RUNNING"}
    await house.pass_time(100)


@in_turns
async def test_the_end_tells_what_was_promised() -> None:
    house = await open_house()
    client = house.connect()
    client.send(BACKGROUND)
    house.store.obedient = True
    await house.hub.settle()
    assert client.heard() == [created(1)]
    await house.hub.close()


@in_turns
async def test_the_end_comes_with_a_broken_store_too() -> None:
    house = await open_house()
    client = house.connect()
    client.send(BACKGROUND)
    await idle()
    await house.store.fail()
    await house.hub.settle()
    await house.hub.close()
    await house.pass_time(100)
    assert not house.store.is_committing


# --- the beginning ---


def kept_job(house_store: ScriptedStore, job_id: int, payload: bytes) -> Job:
    from switchgear.model import Delivery, Function

    job = Job(job_id, Function(b"f"), b"", payload, 1, Delivery.HANDLE, 0)
    job.kept = True
    house_store.payloads[job_id] = payload
    house_store.kept[job_id] = "READY"
    return job


@in_turns
async def test_a_restart_goes_on_with_what_was_kept() -> None:
    store = ScriptedStore()
    store.snapshot.jobs = [kept_job(store, 3, b"three"), kept_job(store, 4, b"four")]
    store.snapshot.next_job_id = 5
    house = await open_house(store=store)
    worker = house.connect()
    worker.send(CAN_DO, GRAB, GRAB)
    await idle()
    assert worker.heard() == [Packet(Kind.JOB_ASSIGN, b"H:t:3\0f\0three"), Packet(Kind.JOB_ASSIGN, b"H:t:4\0f\0four")]


@in_turns
async def test_more_functions_than_are_allowed_now_are_no_reason_not_to_start() -> None:
    store = ScriptedStore()
    jobs = [kept_job(store, number, b"x") for number in (1, 2, 3)]
    for job in jobs:
        job.function.name = b"f%d" % job.id
    store.snapshot.jobs = jobs
    store.snapshot.next_job_id = 4
    house: HubHouse = await open_house(store=store, settings=EngineSettings(functions=2))
    assert len(house.engine.jobs) == 3
