"""What stories cannot tell: envelopes, promises, peers that are gone, other protocols' jobs, and limits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from switchgear.engine.engine import EngineSettings, SubmitOptions
from switchgear.errors import Refused
from switchgear.model import NORMAL, Delivery, EdgePolicy, Job, JobState
from switchgear.protocols.dwork import known_workers, session_base
from switchgear.protocols.dwork import session as session_module
from switchgear.protocols.dwork.codec import decode_reply, encode
from switchgear.protocols.dwork.known_workers import KnownWorker, KnownWorkers
from switchgear.protocols.dwork.messages import LogEntry, LogState, Query, QueryType, Task
from switchgear.protocols.dwork.request_rules import REQUESTS
from switchgear.protocols.dwork.session import IN_STEPS, ON_REQUEST
from switchgear.refusals import REFUSED_STORAGE
from switchgear.testing import RecordingPeer
from tests.protocols.dwork.harness import (
    EXIT,
    HOST,
    NOT_FOUND,
    OK,
    DworkHarness,
    complete,
    create,
    fail,
    leave,
    names,
    steal,
    transfer,
)

STATUS = encode(Query(QueryType.OK))


@pytest.fixture
def harness() -> DworkHarness:
    return DworkHarness()


@pytest.fixture
def durable() -> DworkHarness:
    return DworkHarness(keeps=True)


def submit(
    harness: DworkHarness, payload: bytes, *, name: bytes = b"", function: bytes = b"dwork", after: tuple[Job, ...] = ()
) -> Job:
    """Somebody submits a job over another protocol."""
    options = SubmitOptions(name=name, predecessors=tuple(job.id for job in after))
    job = harness.engine.submit(function, b"", payload, NORMAL, Delivery.HANDLE, None, options)
    harness.harness.turn()
    return job


def test_every_kind_of_request_has_a_rule_and_a_handler() -> None:
    assert {*ON_REQUEST, *IN_STEPS} == set(REQUESTS)
    assert set(QueryType) - set(REQUESTS) == {QueryType.NOT_FOUND, QueryType.ERROR}


# --- envelopes ---


@pytest.mark.parametrize("envelope", [[b""], [b"tag", b""], [b"a", b"b", b"c", b""]], ids=len)
def test_the_frames_before_the_empty_one_come_back(harness: DworkHarness, envelope: list[bytes]) -> None:
    harness.listener.send(b"peer", *envelope, STATUS)
    [answer] = harness.listener.heard(b"peer")
    assert answer[:-1] == envelope
    assert answer[-1].startswith(STATUS)


@pytest.mark.parametrize("message", [[STATUS], [b"tag", STATUS], [b""], [b"tag", b""]], ids=repr)
def test_a_message_without_envelope_is_counted_and_dropped(harness: DworkHarness, message: list[bytes]) -> None:
    harness.listener.send(b"peer", *message)
    assert harness.listener.heard_by_all() == []
    assert len(harness.harness.bad_input) == 1


@pytest.mark.parametrize("more", [[b"tail"], [b""], [b"", b"", STATUS]], ids=repr)
def test_a_request_of_several_frames_is_an_error(harness: DworkHarness, more: list[bytes]) -> None:
    harness.listener.send(b"peer", b"tag", b"", STATUS, *more)
    [[tag, empty, answer]] = harness.listener.heard(b"peer")
    assert (tag, empty) == (b"tag", b"")
    assert answer.startswith(b"\x08\x08")


@pytest.mark.parametrize("envelope", [[b"x"] * 17, [b"x" * 4096]], ids=["many frames", "a long frame"])
def test_an_envelope_that_is_too_large_to_be_kept_is_an_error(harness: DworkHarness, envelope: list[bytes]) -> None:
    harness.listener.send(b"peer", *envelope, b"", encode(steal("w", wait_ms=1000)))
    [answer] = harness.listener.heard(b"peer")
    assert answer[:-1] == [*envelope, b""]
    reason = b"more than 16 frames and 4096 bytes before the request"
    assert decode_reply(answer[-1]) == Query(QueryType.ERROR, reason=reason)
    assert harness.harness.bad_input == [("MALFORMED", reason.decode())]
    assert not harness.session.known_workers._by_name


@pytest.mark.parametrize("envelope", [[b"x"] * 16, [b"x" * 4092]], ids=["many frames", "a long frame"])
def test_one_that_is_just_small_enough_comes_back(harness: DworkHarness, envelope: list[bytes]) -> None:
    harness.listener.send(b"peer", *envelope, b"", STATUS)
    [answer] = harness.listener.heard(b"peer")
    assert answer[:-1] == [*envelope, b""]
    assert answer[-1].startswith(STATUS)


def test_requests_of_one_turn_are_answered_in_order(harness: DworkHarness) -> None:
    requests = [create("a", "b"), steal("w"), complete("w", "a"), steal("w"), Query(QueryType.OK)]
    harness.listener.send_in_one_turn(*([b"peer", b"%d" % i, b"", encode(query)] for i, query in enumerate(requests)))
    assert [frames[0] for frames in harness.listener.heard(b"peer")] == [b"0", b"1", b"2", b"3", b"4"]


# --- promises ---


@pytest.mark.parametrize(
    "query",
    [create("new"), create("b after c"), complete("w", "a"), fail("w", "a", "x"), transfer("w", "a"), leave("w")],
    ids=lambda query: QueryType(query.type).name,
)
def test_what_was_done_is_answered_when_it_is_kept(durable: DworkHarness, query: Query) -> None:
    durable.ask(create("a", "b", "c"))
    assert names(durable.ask(steal("w"))) == ["a"]
    durable.send(query)
    assert durable.heard() == []
    durable.keep()
    assert durable.heard() == [OK]


@pytest.mark.parametrize("query", [Query(QueryType.OK), create("a"), Query(QueryType.LOOKUP, name=b"a")], ids=str)
def test_what_promises_nothing_is_answered_at_once(durable: DworkHarness, query: Query) -> None:
    durable.ask(create("a"))
    durable.send(query)
    assert len(durable.heard()) == 1


def test_a_worker_gets_a_task_when_it_is_kept_that_it_was_started(durable: DworkHarness) -> None:
    durable.ask(create("a"))
    durable.send(steal("w"))
    assert durable.heard() == []
    durable.keep()
    assert len(durable.heard()) == 1


def test_a_task_that_is_created_again_before_it_is_kept_is_promised_when_it_is_kept(durable: DworkHarness) -> None:
    durable.send(create("a"), b"one")
    durable.send(create("a"), b"two")
    assert durable.heard(b"two") == []
    durable.keep()
    assert durable.heard(b"one") == durable.heard(b"two") == [OK]


def test_a_last_attempt_is_kept_before_the_worker_hears_of_it() -> None:
    harness = DworkHarness(keeps=True, settings=EngineSettings(attempts=1))
    harness.ask(create("a", "b", "c"))
    harness.send(steal("w", 2), b"w")
    assert harness.heard(b"w") == []
    harness.keep()
    assert names(harness.heard(b"w")[0]) == ["a", "b"]


def test_so_is_one_that_a_waiting_worker_is_given() -> None:
    harness = DworkHarness(keeps=True, settings=EngineSettings(attempts=1))
    harness.ask(create("a", "b after a"))
    harness.send(steal("x"), b"x")
    harness.keep()
    harness.send(steal("w", wait_ms=1000), b"w")
    harness.send(complete("x", "a"), b"x")
    assert harness.heard(b"w") == []
    harness.keep()
    assert names(harness.heard(b"w")[0]) == ["b"]


def test_a_task_that_is_given_at_once_is_stored_together_with_its_start() -> None:
    harness = DworkHarness(keeps=True, settings=EngineSettings(attempts=1))
    harness.send(steal("w", wait_ms=1000), b"w")
    harness.send(create("a"), b"c")
    assert names(harness.heard(b"w")[0]) == ["a"]
    assert harness.heard(b"c") == []
    harness.keep()
    assert harness.heard(b"c") == [OK]


def test_when_the_store_cannot_keep_them_new_tasks_are_refused_as_a_whole(durable: DworkHarness) -> None:
    durable.ask(create("a"))
    durable.send(create("b after a", "c after b"))
    durable.harness.fail_to_keep(Refused(REFUSED_STORAGE, "storage failed: disk full"))
    assert durable.heard() == [Query(QueryType.ERROR, reason=b"storage failed: disk full")]
    assert durable.status() == (1, 1)
    assert durable.ask(create("b after a", "c after b")) == OK
    assert durable.status() == (3, 1)


def test_a_completion_that_could_not_be_kept_is_answered_when_it_is(durable: DworkHarness) -> None:
    durable.ask(create("a"))
    durable.ask(steal("w"))
    durable.send(complete("w", "a"), b"w")
    durable.harness.fail_to_keep(Refused(REFUSED_STORAGE, "disk full"))
    assert durable.heard(b"w") == []
    durable.keep()
    assert durable.heard(b"w") == [OK]


def test_while_the_store_has_failed_creators_hear_why_and_workers_too(harness: DworkHarness) -> None:
    harness.ask(create("a"))
    harness.engine.refusal = Refused(REFUSED_STORAGE, "storage failed: disk full")
    harness.engine.stop_handing_out()
    assert harness.ask(create("b")) == Query(QueryType.ERROR, reason=b"storage failed: disk full")
    assert harness.ask(steal("w", wait_ms=1000)) == Query(QueryType.NOT_FOUND, reason=b"storage failed: disk full")


def test_a_server_that_stops_sends_creators_away_and_lets_workers_finish(harness: DworkHarness) -> None:
    harness.ask(create("a", "b"))
    harness.ask(steal("w"))
    harness.engine.drain()
    assert harness.ask(create("c")) == Query(QueryType.EXIT, reason=b"server is shutting down")
    assert harness.ask(steal("w")) == Query(QueryType.NOT_FOUND, reason=b"server is shutting down")
    assert harness.ask(complete("w", "a")) == OK


def test_steals_that_wait_are_answered_before_the_listener_is_closed(harness: DworkHarness) -> None:
    for peer, worker in ((b"1", "w"), (b"2", "w"), (b"3", "v")):
        harness.send(steal(worker, wait_ms=60_000), peer)
    harness.engine.drain()
    harness.session.closed()
    harness.harness.turn()
    for peer in (b"1", b"2", b"3"):
        assert harness.heard(peer) == [Query(QueryType.NOT_FOUND, reason=b"server is shutting down")]
    harness.harness.pass_time(100)
    assert harness.listener.heard_by_all() == []


# --- requests that are repeated ---


def finish(harness: DworkHarness, name: str) -> None:
    assert names(harness.ask(steal("w"))) == [name]
    assert harness.ask(complete("w", name)) == OK


@pytest.mark.parametrize("keeps", [False, True])
def test_a_repeated_create_does_not_create_what_is_finished_since(keeps: bool) -> None:
    harness = DworkHarness(keeps=keeps)
    harness.ask(create("a", "b"))
    finish(harness, "a")
    harness.harness.pass_time(5)
    assert harness.ask(create("a", "b", "c after a", retry_us=5_000_000)) == OK
    assert names(harness.ask(steal("w", 9))) == ["b", "c"]


@pytest.mark.parametrize("keeps", [False, True])
def test_but_it_creates_what_was_finished_before(keeps: bool) -> None:
    harness = DworkHarness(keeps=keeps)
    harness.ask(create("a"))
    finish(harness, "a")
    harness.harness.pass_time(5)
    assert harness.ask(create("a", retry_us=2_000_000)) == OK
    finish(harness, "a")


def test_a_task_that_would_fail_at_once_is_not_tried_again_and_nothing_else_is_done(harness: DworkHarness) -> None:
    """It was submitted by way of another protocol, and fails if the one that it waits for does."""
    engine = harness.engine
    first = engine.submit(b"other", b"", b"", NORMAL, Delivery.HANDLE)
    options = SubmitOptions(name=b"a", predecessors=(first.id,), edges=bytes([EdgePolicy.FAIL]))
    engine.submit(b"dwork", b"", b"a", NORMAL, Delivery.HANDLE, None, options)
    engine.cancel(first)
    harness.keep()
    answer = harness.ask(create("b", "a"))
    assert b"would fail at once, because job 1" in (answer.reason or b"")
    assert list(engine.jobs) == []


def test_a_repeated_create_does_not_try_a_failed_task_again(harness: DworkHarness) -> None:
    harness.ask(create("a"))
    harness.ask(steal("w"))
    harness.ask(fail("w", "a", "so it is"))
    harness.ask(create("a", retry_us=1))
    assert harness.status() == (0, 0)


def test_a_repeated_create_allows_for_the_time_that_messages_take(harness: DworkHarness) -> None:
    harness.ask(create("a"))
    finish(harness, "a")
    harness.harness.pass_time(1.5)
    harness.ask(create("a", retry_us=600_000))
    assert harness.status() == (0, 0)


def test_a_failure_that_is_not_kept_yet_is_known_all_the_same(durable: DworkHarness) -> None:
    for query in (create("a"), steal("w"), fail("w", "a", "so it is"), create("b after a")):
        durable.send(query, b"others")
    assert durable.status() == (1, 0)
    assert durable.ask(create("a")) == OK
    finish(durable, "a")
    finish(durable, "b")


def test_failures_beyond_those_in_memory_are_looked_up_in_the_store(durable: DworkHarness) -> None:
    durable.engine.unsuccessful_jobs.most_jobs = 5
    tasks = [f"t{number}" for number in range(20)]
    durable.ask(create(*tasks))
    durable.ask(steal("w", 20))
    for name in tasks:
        assert durable.ask(fail("w", name, "so it is")) == OK
    assert durable.ask(create("a after t0", "b after t19", "c after nobody")) == OK
    assert durable.status() == (3, 1)
    assert durable.ask(create("t0")) == OK
    assert durable.status() == (4, 2)
    finish(durable, "c")
    finish(durable, "t0")
    finish(durable, "a")


def test_a_task_that_is_lost_for_good_can_be_tried_again_before_that_is_kept() -> None:
    harness = DworkHarness(keeps=True, lease_seconds=10, settings=EngineSettings(attempts=1))
    harness.ask(create("a", "b after a"))
    harness.ask(steal("w"))
    harness.harness.pass_time(11)
    harness.send(create("a"))
    assert harness.heard() == []
    harness.keep()
    assert harness.heard() == [OK]
    finish(harness, "a")
    finish(harness, "b")


# --- peers that are gone ---


def test_tasks_that_could_not_be_delivered_go_back(harness: DworkHarness) -> None:
    harness.ask(create("a", "b", "c"))
    harness.ask(steal("w"))
    harness.listener.socket.gone.add(b"gone")
    harness.send(steal("w", 2), b"gone")
    assert harness.status() == (3, 2)
    assert names(harness.ask(steal("v", 3))) == ["b", "c"]
    assert harness.ask(complete("w", "a")) == OK


def test_so_does_one_that_a_worker_waited_for_and_no_other_of_that_name(harness: DworkHarness) -> None:
    harness.listener.socket.gone.add(b"gone")
    first = submit(harness, b"x")
    harness.ask(steal("w"))
    harness.send(steal("w", wait_ms=1000), b"gone")
    harness.harness.pass_time(0.5)
    second = submit(harness, b"x")
    assert (first.state, second.state) == (JobState.RUNNING, JobState.READY)
    assert names(harness.ask(steal("v"))) == ["x"]
    assert harness.ask(complete("w", "x")) == OK


def test_only_the_tasks_of_that_very_answer_go_back(harness: DworkHarness) -> None:
    """Two answers of one moment to one worker, with tasks of one name."""
    first, second, third = (submit(harness, b"x") for _ in range(3))
    harness.listener.socket.gone.add(b"gone")
    harness.listener.send_in_one_turn(
        [b"peer", b"", encode(steal("w"))], [b"gone", b"", encode(steal("w"))], [b"peer", b"", encode(steal("w"))]
    )
    assert [job.state.name for job in (first, second, third)] == ["RUNNING", "READY", "RUNNING"]


def test_other_workers_are_not_asked_for_tasks_that_could_not_be_delivered(harness: DworkHarness) -> None:
    jobs = [submit(harness, b"x") for _ in range(20)]

    class Unlisted(KnownWorkers):
        def __iter__(self) -> Iterator[KnownWorker]:
            raise AssertionError("this takes the longer the more workers there are")

    harness.session.known_workers = Unlisted()
    harness.listener.socket.gone.add(b"gone")
    harness.send(steal("w", 20), b"gone")
    assert {job.state for job in jobs} == {JobState.READY}


def test_a_task_that_was_handed_out_again_meanwhile_stays_there(durable: DworkHarness) -> None:
    durable.engine.settings.attempts = 1
    durable.ask(create("a"))
    durable.listener.socket.gone.add(b"gone")
    durable.send(steal("w"), b"gone")
    durable.send(leave("w"), b"other")
    durable.send(steal("v"), b"v")
    durable.keep()
    assert names(durable.heard(b"v")[0]) == ["a"]
    assert durable.engine.names[b"a"].state is JobState.RUNNING


def test_other_answers_that_could_not_be_delivered_change_nothing(harness: DworkHarness) -> None:
    harness.listener.socket.gone.add(b"gone")
    harness.send(create("a"), b"gone")
    harness.send(Query(QueryType.LOOKUP, name=b"a"), b"gone")
    assert harness.status() == (1, 1)


# --- what a worker returns with a task ---


def test_the_log_times_of_a_completed_task_are_kept_with_the_job(harness: DworkHarness) -> None:
    harness.ask(create("a", "b"))
    jobs = [harness.engine.names[name] for name in (b"a", b"b")]
    harness.ask(steal("w", 2))
    at_us = 1_700_000_000_123_456
    log = [LogEntry(LogState.STOLEN, at_us), LogEntry(LogState.DONE, at_us + 2_000_000), LogEntry(77, -5)]
    returned = Task(b"a", b"node17", log=log)
    assert harness.ask(Query(QueryType.COMPLETE, [returned], location=b"w")) == OK
    assert jobs[0].message.decode() == (
        "origin node17, Stolen 2023-11-14T22:13:20.123456Z, Done 2023-11-14T22:13:22.123456Z, 77 -5 µs"
    )
    failed = Task(b"b", HOST, log=log[:1], error=b"no room")
    assert harness.ask(Query(QueryType.COMPLETE, [failed], location=b"w")) == OK
    assert (jobs[1].message, jobs[1].error) == (b"Stolen 2023-11-14T22:13:20.123456Z", b"no room")


@pytest.mark.parametrize("is_stolen", [True, False])
def test_so_are_those_of_a_task_that_another_completes(harness: DworkHarness, is_stolen: bool) -> None:
    harness.ask(create("a"))
    job = harness.engine.names[b"a"]
    if is_stolen:
        harness.ask(steal("v"))
    returned = Task(b"a", b"here", log=[LogEntry(LogState.DONE, 1_000_000)])
    assert harness.ask(Query(QueryType.COMPLETE, [returned], location=b"w")) == OK
    assert job.message == b"Done 1970-01-01T00:00:01.000000Z"


def test_what_the_server_knows_already_is_not_kept(harness: DworkHarness) -> None:
    for origin in (b"here", HOST):  # that of the creator, and that of the answer to Steal
        harness.ask(create("a"))
        job = harness.engine.names[b"a"]
        harness.ask(steal("w"))
        assert harness.ask(Query(QueryType.COMPLETE, [Task(b"a", origin)], location=b"w")) == OK
        assert job.message == b""


def test_a_log_without_end_is_cut(harness: DworkHarness) -> None:
    harness.ask(create("a"))
    job = harness.engine.names[b"a"]
    harness.ask(steal("w"))
    returned = Task(b"a", b"x\n" * 1000, log=[LogEntry(6, 2**63 - 1)] * 20_000)
    harness.send(Query(QueryType.COMPLETE, [returned], location=b"w"))
    harness.harness.pass_time(1)
    assert job.state is JobState.DONE
    assert job.message.endswith(b", and 19984 more")
    assert b"\n" not in job.message
    assert len(job.message) < 2000


# --- jobs of other protocols ---


def test_jobs_that_others_submit_are_tasks_called_by_their_payload(harness: DworkHarness) -> None:
    job = submit(harness, b"resize 1.jpg")
    assert [task.name for task in harness.ask(steal("w")).tasks] == [b"resize 1.jpg"]
    done = Query(QueryType.COMPLETE, [Task(b"resize 1.jpg")], location=b"w")
    assert harness.ask(done) == OK
    assert (job.state, job.result) == (JobState.DONE, b"")
    assert harness.ask(done).type == QueryType.NOT_FOUND


def test_two_of_the_same_payload_are_two_tasks(harness: DworkHarness) -> None:
    first, second = submit(harness, b"x"), submit(harness, b"x")
    assert names(harness.ask(steal("w", 2))) == ["x", "x"]
    assert harness.ask(fail("w", "x", "broken")) == OK
    assert harness.ask(complete("w", "x")) == OK
    assert (first.state, second.state) == (JobState.FAILED, JobState.DONE)
    assert first.error == b"broken"


def test_jobs_that_a_worker_has_no_more_are_forgotten(harness: DworkHarness) -> None:
    for number in range(500):
        submit(harness, b"x" if number % 2 else b"%d" % number)
        [task] = harness.ask(steal("w")).tasks
        if number % 5:
            harness.ask(Query(QueryType.COMPLETE, [task], location=b"w"))
        else:
            harness.engine.cancel(next(iter(harness.engine.jobs.values())))
            harness.harness.turn()
    [location] = harness.session.known_workers
    assert sum(len(ids) for ids in location.unnamed.values()) <= 64


def test_one_may_be_given_back(harness: DworkHarness) -> None:
    submit(harness, b"x")
    harness.ask(steal("w"))
    assert harness.ask(transfer("w", "x")) == OK
    assert names(harness.ask(transfer("w", "x"))) == ["x"]
    assert names(harness.ask(steal("v"))) == ["x"]


def test_an_empty_payload_is_a_name_too(harness: DworkHarness) -> None:
    submit(harness, b"")
    assert names(harness.ask(steal("w"))) == [""]
    assert harness.ask(Query(QueryType.COMPLETE, [Task(b"")], location=b"w")) == OK


def test_a_cancelled_task_is_its_worker_s_no_more(harness: DworkHarness) -> None:
    harness.ask(create("a"))
    harness.ask(steal("w"))
    harness.engine.cancel(harness.engine.names[b"a"])
    harness.harness.turn()
    [worker] = harness.engine.workers.values()
    assert not worker.running
    assert harness.ask(complete("w", "a")).type == QueryType.NOT_FOUND


def test_a_task_may_wait_for_another_function_s_job(harness: DworkHarness) -> None:
    job = submit(harness, b"data", name=b"before", function=b"mail")
    harness.ask(create("a after before"))
    assert harness.ask(steal("w")) == NOT_FOUND
    harness.engine.complete_unowned(job)
    assert names(harness.ask(steal("w"))) == ["a"]


def test_but_it_cannot_have_its_name(harness: DworkHarness) -> None:
    submit(harness, b"data", name=b"a", function=b"mail")
    answer = harness.ask(create("x", "a"))
    assert answer.type == QueryType.ERROR
    assert b"an unfinished job of another kind has the name a" in (answer.reason or b"")
    assert names(harness.ask(complete("w", "a"))) == ["a"]
    assert harness.ask(Query(QueryType.LOOKUP, name=b"a")).type == QueryType.NOT_FOUND
    assert harness.status() == (0, 0)


def test_nor_the_name_of_a_job_that_lives_only_while_somebody_waits_for_it(harness: DworkHarness) -> None:
    peer = RecordingPeer()
    harness.engine.submit(b"dwork", b"", b"a", NORMAL, Delivery.WAIT, peer, SubmitOptions(name=b"a"))
    assert harness.ask(create("a")).type == QueryType.ERROR


def test_workers_wait_on_while_another_function_s_job_may_let_a_task_go(harness: DworkHarness) -> None:
    harness.ask(create("a", "b after a"))
    harness.ask(steal("w"))
    harness.ask(fail("w", "a", "so it is"))
    assert harness.ask(steal("w")) == EXIT
    other = submit(harness, b"", function=b"mail", name=b"other")
    assert harness.ask(steal("w")) == EXIT  # one that nobody waits for
    job = submit(harness, b"x", after=(other,))
    assert harness.ask(steal("w")) == NOT_FOUND
    harness.engine.cancel(job)
    assert harness.ask(steal("w")) == EXIT
    harness.ask(create("b after other"))
    assert harness.ask(steal("w")) == NOT_FOUND
    harness.engine.cancel(other)
    harness.harness.pass_time(1)
    assert harness.ask(steal("w")) == EXIT


def test_a_payload_that_the_store_has_lost_fails_its_job_and_no_other(harness: DworkHarness) -> None:
    lost, job = submit(harness, b"x"), submit(harness, b"y")
    lost.payload = None
    assert harness.ask(steal("w", 2)) == NOT_FOUND
    assert lost.state is JobState.FAILED
    assert names(harness.ask(steal("w", 2))) == ["y"]
    assert job.state is JobState.RUNNING


def test_the_function_cannot_be_dropped(harness: DworkHarness) -> None:
    assert not harness.engine.drop_function(harness.session.function)


def test_two_listeners_may_serve_one_function(harness: DworkHarness) -> None:
    other = harness.open_listener()
    harness.ask(create("a", "b after a"))
    other.send(b"peer", b"", encode(steal("w")))
    assert harness.ask(complete("w", "a")) == OK
    assert names(harness.ask(steal("w"))) == ["b"]


# --- limits ---


def test_a_full_queue_takes_all_tasks_of_a_message_or_none() -> None:
    harness = DworkHarness(settings=EngineSettings(jobs_per_function=3))
    assert harness.ask(create("a", "b")) == OK
    assert harness.ask(create("c", "d")) == Query(QueryType.ERROR, reason=b"Job queue is full")
    assert harness.status() == (2, 2)
    assert harness.ask(create("a", "b", "c")) == OK


def test_so_does_a_full_server() -> None:
    harness = DworkHarness(settings=EngineSettings(jobs=3))
    submit(harness, b"", function=b"mail")
    assert harness.ask(create("a", "b", "c")).type == QueryType.ERROR
    assert harness.ask(create("a", "b")) == OK


def test_a_worker_gets_no_more_than_it_may_hold() -> None:
    harness = DworkHarness(settings=EngineSettings(jobs_per_worker=2))
    harness.ask(create("a", "b", "c"))
    assert names(harness.ask(steal("w", 9))) == ["a", "b"]
    assert harness.ask(steal("w", wait_ms=1000)) == Query(
        QueryType.NOT_FOUND, reason=b"this worker has 2 tasks already"
    )
    harness.ask(complete("w", "a"))
    assert names(harness.ask(steal("w", 9))) == ["c"]


def test_nor_may_it_wait_for_more() -> None:
    harness = DworkHarness(settings=EngineSettings(jobs_per_worker=2))
    for peer in (b"1", b"2", b"3"):
        harness.send(steal("w", wait_ms=1000), peer)
    assert harness.heard(b"3") == [EXIT]
    harness.ask(create("a", "b", "c"))
    assert names(harness.heard(b"1")[0]) + names(harness.heard(b"2")[0]) == ["a", "b"]


def test_only_so_many_steals_wait(harness: DworkHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_base, "MOST_BLOCKED", 2)
    for worker in ("u", "v"):
        harness.send(steal(worker, wait_ms=1000), worker.encode())
    assert harness.ask(steal("w", wait_ms=1000)) == EXIT
    harness.harness.pass_time(2)
    assert harness.heard(b"u") == harness.heard(b"v") == [EXIT]
    harness.send(steal("w", wait_ms=1000))
    assert harness.heard() == []


def test_a_long_answer_is_cut(harness: DworkHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchgear.protocols.dwork.worker_requests.ENOUGH_BYTES", 100)
    harness.ask(create(*(f"{letter * 60}" for letter in "abc")))
    assert len(harness.ask(steal("w", 3)).tasks) == 2
    assert len(harness.ask(steal("w", 3)).tasks) == 1


def test_workers_that_hold_nothing_make_room_for_others(harness: DworkHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_workers, "MOST_LOCATIONS", 3)
    harness.ask(create("a", "b", "c"))
    for worker in ("busy", "idle", "also idle"):
        harness.ask(steal(worker))
    harness.ask(complete("idle", "b"))
    harness.ask(create("d", "e"))
    assert names(harness.ask(steal("new"))) == ["d"]
    assert harness.ask(leave("idle")) == NOT_FOUND
    answer = harness.ask(steal("one too many"))
    assert answer == Query(QueryType.ERROR, reason=b"there are 3 workers already")
    assert harness.ask(complete("unknown", "a")) == OK  # a report is heard even so
    assert harness.ask(leave("unknown")) == NOT_FOUND
    assert harness.ask(leave("busy")) == OK


def test_remembered_requests_are_few(harness: DworkHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "REMEMBERED_REQUESTS", 10)
    for number in range(25):
        harness.ask(steal(f"w{number}"))
        harness.ask(create(f"t{number}"))
    assert 0 < len(harness.session._requests) <= 10
    assert not any(query.tasks for query in harness.session._requests.values())


def registered(harness: DworkHarness) -> list[bytes]:
    """The workers that the engine knows, which others count and send jobs for."""
    return [worker.name for worker in harness.session.function.workers]


def nothing_is_left(harness: DworkHarness) -> bool:
    session = harness.session
    is_empty = not (session.known_workers._by_name or session._speakers or session._leaving or session.timers)
    new = DworkHarness()
    memory, memory_of_new = harness.engine.memory, new.engine.memory
    return is_empty and not harness.engine.workers and memory.registration_bytes == memory_of_new.registration_bytes


def test_a_worker_that_was_sent_home_counts_for_its_lease_and_leaves_nothing_behind() -> None:
    harness = DworkHarness(lease_seconds=10)
    for number in range(5):
        assert harness.ask(steal(f"w{number}")) == EXIT
    harness.harness.pass_time(6)
    assert harness.ask(steal("w3")) == EXIT
    assert len(registered(harness)) == 5
    harness.harness.pass_time(6)
    assert registered(harness) == [b"w3"]
    harness.harness.pass_time(6)
    assert nothing_is_left(harness)
    assert not harness.harness.telemetry.counts["worker_expired"]


def test_a_worker_that_polls_gets_what_others_submit() -> None:
    harness = DworkHarness(lease_seconds=10)
    assert harness.ask(steal("w")) == EXIT
    assert registered(harness) == [b"w"]
    submit(harness, b"x")
    assert names(harness.ask(steal("w"))) == ["x"]


@pytest.mark.parametrize("lease_seconds", [0, 3600])
@pytest.mark.parametrize("answer", [EXIT, NOT_FOUND])
def test_a_worker_that_has_gone_counts_for_some_seconds_only(lease_seconds: float, answer: Query) -> None:
    harness = DworkHarness(lease_seconds=lease_seconds)
    if answer == NOT_FOUND:
        harness.ask(create("a", "b after a"))
        harness.ask(steal("busy"), b"busy")
    assert harness.ask(steal("w"), b"first") == answer
    harness.session.peer_gone(b"first")
    harness.harness.pass_time(9)
    assert b"w" in registered(harness)
    assert harness.ask(steal("w"), b"second") == answer  # such as a shell loop with a program for each Steal
    harness.harness.pass_time(60)
    assert b"w" in registered(harness)
    harness.session.peer_gone(b"second")
    harness.harness.pass_time(11)
    assert b"w" not in registered(harness)
    if answer == EXIT:
        assert nothing_is_left(harness)
    assert not harness.harness.telemetry.counts["worker_expired"]


def test_one_that_has_gone_with_a_task_keeps_it_for_its_lease() -> None:
    harness = DworkHarness(lease_seconds=100)
    harness.ask(create("a"))
    harness.ask(steal("w"), b"first")
    harness.session.peer_gone(b"first")
    harness.harness.pass_time(60)
    assert harness.ask(complete("w", "a"), b"second") == OK
    harness.session.peer_gone(b"second")
    harness.harness.pass_time(11)
    assert registered(harness) == []
    assert harness.ask(leave("w")) == OK


def test_one_whose_blocked_steal_is_lost_has_gone() -> None:
    harness = DworkHarness(lease_seconds=100)
    harness.send(steal("w", wait_ms=50_000), b"first")
    harness.session.peer_gone(b"first")
    harness.harness.pass_time(11)
    assert nothing_is_left(harness)


def test_a_location_that_two_connections_use_has_not_gone_with_one() -> None:
    harness = DworkHarness(lease_seconds=100)
    for identity in (b"one", b"other"):
        harness.ask(steal("w"), identity)
    harness.session.peer_gone(b"one")
    harness.harness.pass_time(50)
    assert registered(harness) == [b"w"]
    assert harness.ask(steal("w"), b"other") == EXIT
    harness.session.peer_gone(b"other")
    harness.harness.pass_time(11)
    assert nothing_is_left(harness)


def test_a_connection_that_spoke_for_very_many_workers_is_lost_in_steps() -> None:
    harness = DworkHarness(lease_seconds=3600)
    for number in range(1000):
        harness.ask(steal(f"w{number}"), b"proxy")
    harness.session.peer_gone(b"proxy")
    harness.harness.turn()
    harness.harness.pass_time(11)
    assert nothing_is_left(harness)


def test_a_long_request_of_one_that_has_gone_leaves_nothing_behind() -> None:
    harness = DworkHarness()
    harness.send(steal("w", 1000), b"first")
    harness.session.peer_gone(b"first")
    harness.harness.pass_time(11)
    assert not harness.session._speakers


def test_a_silent_worker_is_forgotten() -> None:
    harness = DworkHarness(lease_seconds=10)
    harness.ask(create("a"))
    harness.ask(steal("w"))
    harness.harness.pass_time(11)
    assert not harness.session.known_workers._by_name
    assert harness.ask(leave("w")) == NOT_FOUND
    assert harness.status() == (1, 1)


def test_the_engine_knows_workers_by_their_locations(harness: DworkHarness) -> None:
    harness.ask(create("a"))
    harness.ask(steal("node7:1"))
    [worker] = harness.engine.workers.values()
    assert (worker.name, worker.protocol) == (b"node7:1", "dwork")


def test_a_location_may_be_empty(harness: DworkHarness) -> None:
    harness.ask(create("a"))
    assert harness.ask(steal("")).tasks[0].origin == HOST
    assert harness.ask(complete("", "a")) == OK
    assert harness.ask(leave("")) == OK


# --- tags and resources of workers ---


def submit_requiring(harness: DworkHarness, requires: bytes) -> Job:
    job = harness.engine.submit(
        b"dwork", b"", requires, NORMAL, Delivery.HANDLE, None, SubmitOptions(requires=requires)
    )
    harness.harness.turn()
    return job


def test_a_steal_may_say_what_the_worker_has(harness: DworkHarness) -> None:
    submit_requiring(harness, b"gpu,memory=48G")
    assert harness.ask(steal("plain")) == NOT_FOUND
    assert names(harness.ask(steal("able", tags=b"gpu", resources=b"memory=64G"))) == ["gpu,memory=48G"]


def test_what_a_worker_has_said_counts_for_its_next_steals_and_its_tasks_use_it(harness: DworkHarness) -> None:
    for requires in (b"memory=48G", b"memory=40G"):
        submit_requiring(harness, requires)
    assert names(harness.ask(steal("w", 5, resources=b"memory=64G"))) == ["memory=48G"]
    assert harness.ask(steal("w")) == NOT_FOUND
    assert harness.ask(complete("w", "memory=48G")) == OK
    assert names(harness.ask(steal("w"))) == ["memory=40G"]


def test_a_waiting_steal_gets_a_task_when_another_leaves_room_for_it(harness: DworkHarness) -> None:
    for requires in (b"memory=48G", b"memory=40G"):
        submit_requiring(harness, requires)
    assert names(harness.ask(steal("w", resources=b"memory=64G"))) == ["memory=48G"]
    harness.send(steal("w", wait_ms=1000), b"waiting")
    assert harness.ask(complete("w", "memory=48G")) == OK
    assert [names(answer) for answer in harness.heard(b"waiting")] == [["memory=40G"]]


@pytest.mark.parametrize("fields", [{"tags": b"a b"}, {"resources": b"gpu"}, {"tags": b"\xff"}, {"resources": b"m=-1"}])
def test_what_is_no_tag_or_resource_is_ill_formed(harness: DworkHarness, fields: dict[str, bytes]) -> None:
    assert harness.ask(steal("w", None, **fields)).type == QueryType.ERROR
