"""One connection: slicing, bad input, limits, and the promises that answers make."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.engine.engine import EngineSettings, SubmitOptions
from switchgear.errors import Refused
from switchgear.model import NORMAL, SECOND_US, Delivery
from switchgear.protocols.gearman_draft import session as session_module
from switchgear.testing.invariants import check_engine
from tests.protocols.gearman.conversations import Said
from tests.protocols.gearman.harness import PACKET_BYTES
from tests.protocols.gearman_draft.conversations import cut, listen, sayings
from tests.protocols.gearman_draft.harness import MixedHarness, MixedTalker
from tests.support.draft_wire import (
    ASK,
    GOODBYE,
    HANDLE,
    MAGIC,
    NOOP,
    SLEEP,
    THROW_AWAY,
    WAIT,
    ErrorCode,
    Kind,
    Packet,
    complete,
    create,
    numbers,
    packet,
    split_packet,
    status,
)
from tests.support.reads import kept_job
from tests.support.wire import Kind as Modern
from tests.support.wire import request


def worker_of(harness: MixedHarness, name: str = "worker") -> MixedTalker:
    worker = harness.talker(name)
    worker.send(packet(Kind.worker_connect, b"f"))
    return worker


def error_codes(talker: MixedTalker) -> list[ErrorCode]:
    return [ErrorCode(heard.body[0]) for heard in talker.packets() if heard.kind == Kind.error]


# --- any slices, any bytes ---


@settings(max_examples=150, deadline=None)
@given(st.lists(sayings, max_size=30), st.randoms(use_true_random=False))
def test_slicing_never_matters(conversation: list[Said], random: Random) -> None:
    whole = listen((who, [data]) for who, data in conversation)
    single_bytes = listen((who, [data[i : i + 1] for i in range(len(data))]) for who, data in conversation)
    assert single_bytes == whole
    assert listen(cut(conversation, random)) == whole


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=10))
def test_any_bytes_are_answered_with_packets(pieces: list[bytes]) -> None:
    harness = MixedHarness()
    worker_of(harness)
    peer = harness.talker("peer")
    peer.send(MAGIC)
    for piece in pieces:
        if not peer.wire.is_closed:
            peer.send(piece)
    check_engine(harness.engine)
    answers = peer.packets()
    if peer.wire.is_closed:
        assert answers[-1].kind == Kind.error
        assert answers[-1].body[0] in (ErrorCode.bad_magic, ErrorCode.too_large)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=20))
def test_any_packets_are_answered_and_the_connection_stays(packets: list[tuple[int, bytes]]) -> None:
    harness = MixedHarness()
    peer = harness.talker("peer")
    peer.send(*(packet(kind, body) for kind, body in packets), ASK)
    said_goodbye = (Kind.worker_disconnect, b"") in packets
    assert peer.wire.is_closed == said_goodbye
    check_engine(harness.engine)
    peer.packets()


@given(st.integers(0, 2**32 - 1), st.binary(max_size=30))
def test_lengths_that_lie(size: int, body: bytes) -> None:
    harness = MixedHarness()
    peer = harness.talker("peer")
    peer.send(MAGIC + bytes([Kind.job_create_req]) + numbers(size) + body)
    if size > PACKET_BYTES:
        assert error_codes(peer) == [ErrorCode.too_large]
        assert peer.wire.is_closed
    elif size > len(body):
        assert peer.session.buffered_bytes == 9 + len(body)
        assert not peer.wire.written
    else:
        peer.packets()
        assert peer.wire.is_closed == (not MAGIC.startswith(body[size : size + 4]))


@given(st.data())
def test_one_changed_byte_is_never_more_than_an_error(data: st.DataObject) -> None:
    stream = bytearray(create(b"f", b"args", WAIT, b"key") + packet(Kind.worker_connect, b"f\0g") + ASK + SLEEP)
    place = data.draw(st.integers(0, len(stream) - 1))
    stream[place] = data.draw(st.integers(0, 255))
    harness = MixedHarness()
    harness.talker("peer").send(MAGIC, bytes([Kind.job_assign_req]), numbers(0), bytes(stream))
    check_engine(harness.engine)
    harness.talker("peer").packets()


# --- bad input is counted, and the rest is not disturbed ---


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        (ASK + b"\0JOC", ["BAD_MAGIC"]),
        (MAGIC + b"\4" + numbers(PACKET_BYTES + 1), ["TOO_LARGE"]),
        (packet(Kind.noop), ["UNEXPECTED"]),
        (packet(99) + packet(100), ["UNEXPECTED", "UNEXPECTED"]),
        (packet(Kind.job_create_req, b"f"), ["MALFORMED"]),
        (create(b"n" * 65), ["TOO_LARGE"]),
        (complete(0), ["UNEXPECTED"]),
        (packet(Kind.job_status_req, b"unknown"), []),
        (packet(Kind.job_complete_req, b""), []),
    ],
)
def test_bad_input_is_counted(data: bytes, codes: list[str]) -> None:
    harness = MixedHarness()
    harness.talker("stranger").send(data)
    assert harness.bad_input == [("stranger", code) for code in codes]


def test_a_second_task_is_bad_input() -> None:
    harness = MixedHarness()
    harness.talker("app").send(create(b"f"))
    worker_of(harness).send(ASK, ASK)
    assert harness.bad_input == [("worker", "BUSY")]


def test_nothing_is_understood_after_the_end_of_the_conversation() -> None:
    harness = MixedHarness()
    peer = harness.talker("peer")
    peer.send(ASK + b"nonsense")
    peer.take_bytes()
    peer.session.receive(create(b"f"))
    assert not peer.session.out
    assert not harness.engine.jobs


def test_a_thousand_requests_in_one_piece_are_answered_in_order() -> None:
    harness = MixedHarness()
    peer = harness.talker("peer")
    peer.send(*(create(b"f", b"%d" % n) for n in range(1000)))
    assert peer.packets() == [Packet(Kind.job_create_res, b"H:t:%d" % n) for n in range(1, 1001)]


def test_a_session_leaves_nothing_behind() -> None:
    harness = MixedHarness()
    both = harness.talker("both")
    both.send(packet(Kind.worker_connect, b"f"), create(b"f", b"", WAIT), ASK)
    both.send(create(b"f", b"", WAIT, b"key"), create(b"f", b"", WAIT, b"key"), packet(Kind.job_status_req, b"H:t:1"))
    both.leave()
    assert not harness.setup.sessions
    assert not harness.engine.workers
    assert not harness.engine.jobs
    assert not both.session.subscriptions


# --- limits ---


def test_a_connection_has_so_many_open_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MOST_OPEN_REQUESTS", 3)
    harness = MixedHarness()
    app = harness.talker("app")
    question = packet(Kind.job_complete_req, b"H:t:1")
    app.send(create(b"f", b"", WAIT), question, question)
    app.take_bytes()
    app.send(create(b"f", b"", WAIT), question, create(b"f", b"", HANDLE))
    assert [heard.kind for heard in app.packets()] == [Kind.error, Kind.error, Kind.job_create_res]
    assert harness.bad_input == [("app", "BUSY"), ("app", "BUSY")]
    assert len(harness.engine.jobs) == 2  # the job that could not be waited for was not made
    worker_of(harness).send(ASK, complete(0, b"done"))
    assert [heard.kind for heard in app.packets()] == [Kind.job_complete_res] * 3
    app.send(create(b"f", b"", WAIT))
    assert [heard.kind for heard in app.packets()] == [Kind.job_create_res]


def test_answers_that_wait_for_their_turn_count_as_held() -> None:
    harness = MixedHarness()
    app = harness.talker("app")
    app.send(create(b"slow", b"", WAIT), create(b"f", b"", WAIT), create(b"f", b"", WAIT))
    worker_of(harness).send(ASK, complete(0, b"x" * 500), ASK, complete(0, b"y" * 500))
    held = app.session.buffered_bytes
    assert 1000 < held < 1100
    slow = harness.talker("slow")
    slow.send(packet(Kind.worker_connect, b"slow"), ASK, complete(0))
    assert app.session.buffered_bytes == 0


def finished_job(harness: MixedHarness, size: int) -> None:
    harness.talker("app").send(create(b"f"))
    worker_of(harness).send(ASK, complete(0, b"x" * size))
    harness.talker("app").take_bytes()


def test_a_large_result_is_not_asked_for_any_number_of_times_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MOST_ANSWER_BYTES", 3000)
    harness = MixedHarness()
    finished_job(harness, 1000)
    app = harness.talker("app")
    question = packet(Kind.job_complete_req, b"H:t:1")
    for _ in range(5):  # one after the other it can be asked for
        app.send(question, question)
        assert [heard.kind for heard in app.packets()] == [Kind.job_complete_res] * 2
    app.send(*[question] * 10)
    heard = app.packets()
    assert [answer.kind for answer in heard] == [Kind.job_complete_res] * 2 + [Kind.error]
    assert heard[-1].body[0] == ErrorCode.too_large
    assert app.wire.is_closed


def test_one_result_is_given_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MOST_ANSWER_BYTES", 100)
    harness = MixedHarness()
    finished_job(harness, 1000)
    harness.talker("app").send(packet(Kind.job_complete_req, b"H:t:1"))
    assert len(harness.talker("app").packets()[0].body) == 1005


def test_many_waits_for_one_large_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MOST_ANSWER_BYTES", 3000)
    harness = MixedHarness()
    app = harness.talker("app")
    app.send(*[create(b"f", b"", WAIT, b"key")] * 10)
    app.take_bytes()
    worker_of(harness).send(ASK, complete(0, b"x" * 1000))
    assert [answer.kind for answer in app.packets()] == [Kind.job_complete_res] * 2 + [Kind.error]
    assert app.wire.is_closed
    check_engine(harness.engine)


def test_questions_that_wait_hold_no_results() -> None:
    harness = MixedHarness()
    finished_job(harness, 1000)
    app = harness.talker("app")
    app.send(create(b"slow", b"", WAIT), *[packet(Kind.job_complete_req, b"H:t:1")] * 20)
    assert app.session.buffered_bytes == 0
    assert [request.job for request in app.draft.requests._requests][1:] == [None] * 20
    harness.talker("slow").send(packet(Kind.worker_connect, b"slow"), ASK, complete(0))
    assert [len(heard.body) for heard in app.packets()] == [0, 5, *[1005] * 20]


# --- promises ---


@pytest.mark.parametrize(("job_type", "waits"), [(WAIT, False), (HANDLE, True), (THROW_AWAY, True)])
def test_a_job_is_kept_before_it_is_said_to_be_taken(job_type: int, waits: bool) -> None:
    harness = MixedHarness(keeps=True)
    harness.talker("app").send(ASK)
    session = harness.talker("app").session
    session.receive(create(b"f", b"", job_type))
    assert session.awaits_commit == waits
    assert len(session.promised_jobs) == waits


def test_a_job_that_could_not_be_kept_is_refused() -> None:
    harness = MixedHarness(keeps=True)
    harness.talker("app").send(ASK)
    harness.talker("app").take_bytes()
    session = harness.talker("app").session
    session.receive(create(b"f", b"1") + create(b"f", b"2", THROW_AWAY) + create(b"f", b"3", WAIT))
    for job in list(harness.engine.jobs.values())[:2]:
        assert harness.engine.withdraw(job)
    session.refuse_withdrawn(Refused("storage", "storage failed: no room"))
    harness.end_turn()
    refused = Packet(Kind.error, bytes([ErrorCode.refused]) + b"storage failed: no room")
    assert harness.talker("app").packets() == [refused, refused, Packet(Kind.job_create_res)]


def test_what_a_worker_hears_after_its_announcement_tells_that_it_is_kept() -> None:
    harness = MixedHarness(keeps=True, settings=EngineSettings(attempts=0))
    harness.talker("app").send(create(b"f"), create(b"f"))
    worker = worker_of(harness)
    worker.send(ASK)
    assert not worker.session.awaits_commit
    worker.session.receive(complete(0, b"done") + ASK)
    assert worker.session.awaits_commit
    harness.end_turn()
    worker.session.receive(complete(9, b"broken"))
    assert worker.session.awaits_commit


def test_the_end_of_a_kept_job_is_kept_before_it_is_told() -> None:
    harness = MixedHarness(keeps=True)
    harness.talker("app").send(create(b"f", b"", HANDLE, b"key"))
    waiting = harness.talker("waiting")
    waiting.send(create(b"f", b"", WAIT, b"key"), packet(Kind.job_complete_req, b"H:t:1"))
    worker = worker_of(harness)
    worker.send(ASK)
    worker.session.receive(status(1, 2, 3))
    assert not waiting.session.awaits_commit
    worker.session.receive(complete(0, b"done"))
    assert waiting.session.awaits_commit


def test_the_end_of_a_job_that_is_not_kept_is_told_at_once() -> None:
    harness = MixedHarness(keeps=True)
    harness.talker("waiting").send(create(b"f", b"", WAIT))
    worker = worker_of(harness)
    worker.send(ASK)
    worker.session.receive(complete(0, b"done"))
    assert not harness.talker("waiting").session.awaits_commit


@pytest.mark.parametrize(("attempts", "waits"), [(0, False), (1, True), (2, True)])
def test_an_attempt_that_counts_is_kept_before_it_is_made(attempts: int, waits: bool) -> None:
    harness = MixedHarness(keeps=True, settings=EngineSettings(attempts=attempts))
    harness.talker("app").send(create(b"f"))
    worker = worker_of(harness)
    worker.session.receive(ASK)
    assert worker.session.awaits_commit == waits


def test_a_task_whose_payload_is_not_in_memory_is_not_given() -> None:
    harness = MixedHarness()
    harness.talker("app").send(create(b"f"))
    (job,) = harness.engine.jobs.values()
    job.payload = None
    harness.read_error = Refused("storage", "unreadable")
    worker = worker_of(harness)
    worker.send(ASK)
    assert worker.packets() == [NOOP]
    assert harness.engine.jobs
    worker.send(GOODBYE)


def test_a_log_that_cannot_be_read_is_an_error() -> None:
    harness = MixedHarness()
    harness.read_error = Refused("storage", "unreadable")
    harness.engine.reserve_id()
    app = harness.talker("app")
    app.send(packet(Kind.job_complete_req, b"H:t:1"), ASK)
    assert app.packets() == [Packet(Kind.error, bytes([ErrorCode.refused]) + b"unreadable"), NOOP]


def test_while_the_server_stops_nothing_is_taken_or_given() -> None:
    harness = MixedHarness()
    harness.talker("app").send(create(b"f"))
    harness.talker("app").take_bytes()
    harness.engine.drain()
    harness.talker("app").send(create(b"f"), create(b"f", b"", WAIT))
    assert error_codes(harness.talker("app")) == [ErrorCode.refused, ErrorCode.refused]
    worker = worker_of(harness)
    worker.send(ASK, SLEEP)
    assert worker.packets() == [NOOP]


def test_a_waiting_job_that_ended_and_is_run_again_holds_nobody_up() -> None:
    harness = MixedHarness()
    app = harness.talker("app")
    app.send(create(b"slow", b"", WAIT), create(b"f", b"", WAIT))
    worker_of(harness).send(ASK, complete(5, b"broken"))
    failed = kept_job(harness.store, 2)
    assert failed is not None
    harness.engine.retry(failed)
    slow = harness.talker("slow")
    slow.send(packet(Kind.worker_connect, b"slow"), ASK, complete(0))
    heard = app.take_bytes()
    assert heard.endswith(packet(Kind.job_complete_res, numbers(1) + b"\5broken"))


# --- modern peers see what a worker of the draft does ---


def test_the_list_of_workers_names_the_protocol() -> None:
    harness = MixedHarness()
    worker_of(harness).send(SLEEP)
    admin = harness.talker("admin")
    admin.send(request(1001, b"workers", b""))
    answer = admin.take_bytes()
    assert b'"protocol":"gearman-draft"' in answer
    assert b'"functions":["f"]' in answer
    assert b'"asleep":true' in answer


def test_both_protocols_share_the_queue() -> None:
    harness = MixedHarness()
    harness.talker("client").send(*(request(Modern.SUBMIT_JOB_BG, b"f", b"", b"%d" % n) for n in (1, 3)))
    harness.talker("app").send(create(b"f", b"2"))
    worker = worker_of(harness)
    for payload in (b"1", b"3", b"2"):
        worker.send(ASK)
        assert worker.packets() == [Packet(Kind.job_assign_res, b"f\0" + payload)]
        worker.send(complete(0))


def test_half_a_packet_is_not_a_packet() -> None:
    assert split_packet(ASK[:-1]) is None


def test_a_job_that_a_connection_did_for_itself_is_not_queued_again() -> None:
    harness = MixedHarness()
    both = worker_of(harness, "both")
    other = worker_of(harness, "other")
    other.send(SLEEP)
    both.send(create(b"f", job_type=WAIT))
    both.send(ASK)
    other.packets()
    other.send(SLEEP)
    both.leave()
    assert not harness.engine.jobs
    assert harness.engine.functions[b"f"].requeued == 0
    assert other.packets() == []


def test_one_who_waits_for_a_job_that_has_ended_and_holds_its_key_is_told_at_once() -> None:
    harness = MixedHarness()
    options = SubmitOptions(unique_for_us=SECOND_US)
    job = harness.engine.submit(b"f", b"key", b"", NORMAL, Delivery.HANDLE, None, options)
    worker = worker_of(harness)
    worker.send(ASK, complete(0, b"result"))
    client = harness.talker("client")
    client.send(create(b"f", b"args", WAIT, b"key"))
    assert [heard.kind for heard in client.packets()] == [Kind.job_create_res, Kind.job_complete_res]
    assert (client.session.subscriptions, job.subscribers) == ({}, None)
