"""What a connection can make the server hold or list: each has an end."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.protocols.gearman import submit_and_control, watch_and_credit
from switchgear.protocols.gearman.codec import request, response
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.packet_dispatch import COMMANDS_PER_TURN
from switchgear.protocols.handles import MOST_FUNCTIONS
from tests.protocols.gearman.harness import Harness


def test_the_functions_of_a_worker_are_bounded() -> None:
    harness = Harness(packet_bytes=1_000_000)
    worker = harness.talker("worker")
    worker.send(*(request(Packet.CAN_DO, b"f%d" % number) for number in range(MOST_FUNCTIONS)))
    worker.send(request(Packet.CAN_DO, b"f0"), request(Packet.CAN_DO_TIMEOUT, b"f1", b"5000"))
    assert not worker.take_bytes()
    refused = response(Packet.ERROR, b"ARGUMENT_TOO_LARGE", b"a worker may register 1000 functions")
    for packet in (request(Packet.CAN_DO, b"one more"), request(Packet.CAN_DO_TIMEOUT, b"one more", b"5")):
        worker.send(packet)
        assert worker.take_bytes() == refused
    assert b"one more" not in harness.engine.functions
    worker.send(request(Packet.CANT_DO, b"f0"), request(Packet.CAN_DO, b"one more"))
    assert not worker.take_bytes()


@pytest.mark.parametrize("verb", [b"server", b"jobs"])
def test_json_is_not_read_if_it_is_very_long(verb: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit_and_control, "MOST_JSON_BYTES", 1000)
    harness = Harness()
    peer = harness.talker("peer")
    text = b'{"nonsense": [%b1]}' % (b"[]," * 400)
    peer.send(request(Packet.CONTROL, verb, text))
    assert peer.take_bytes() == response(Packet.ERROR, b"ARGUMENT_TOO_LARGE", b"arguments of more than 1000 bytes")
    peer.send(request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"", text, b""))
    assert peer.take_bytes() == response(Packet.ERROR, b"ARGUMENT_TOO_LARGE", b"options of more than 1000 bytes")


def test_json_is_not_read_if_it_has_very_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit_and_control, "MOST_JSON_VALUES", 100)
    harness = Harness()
    peer = harness.talker("peer")
    refused = response(Packet.ERROR, b"ARGUMENT_TOO_LARGE", b"arguments of more than 100 values")
    for text in (b'{"nonsense": [%b1]}' % (b"1," * 101), b'{"nonsense": %b' % (b"[" * 101), b'{"a":' * 101):
        peer.send(request(Packet.CONTROL, b"jobs", text))
        assert peer.take_bytes() == refused
    peer.send(request(Packet.CONTROL, b"jobs", b'{"name": "%b"}' % (b"x" * 200)))
    assert peer.take_bytes() != refused


def test_of_many_requests_that_take_long_some_wait_for_the_next_turn() -> None:
    harness = Harness()
    peer = harness.talker("peer")
    peer.session.receive(request(Packet.GET_STATUS_UNIQUE, b"nobody") * (COMMANDS_PER_TURN + 3))
    assert len(peer.session.out) == COMMANDS_PER_TURN
    assert len(peer.session.deferred) == 3


def test_the_jobs_that_a_connection_watches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_and_credit, "MOST_WATCHED", 2)
    harness = Harness()
    peer = harness.talker("peer")
    peer.send(request(Packet.OPTION_REQ, b"switchgear"))
    peer.send(*[request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"", b'{"watch": true}', b"")] * 2)
    peer.send(request(Packet.SUBMIT_JOB_BG, b"f", b"", b""))
    peer.take_bytes()
    refused = response(Packet.ERROR, b"ARGUMENT_TOO_LARGE", b"a connection may watch 2 jobs")
    peer.send(request(Packet.WATCH, b"H:t:3"))
    assert peer.take_bytes() == refused
    peer.send(request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"", b'{"watch": true}', b""))
    assert peer.take_bytes() == refused
    assert len(harness.engine.jobs) == 3
    peer.send(request(Packet.WATCH, b"H:t:1"))
    assert peer.take_bytes() == response(Packet.WATCH_RES, b"H:t:1", b"ready")
    peer.send(b"cancel job H:t:1\n")
    peer.take_bytes()
    peer.send(request(Packet.WATCH, b"H:t:3"))
    assert peer.take_bytes() == response(Packet.WATCH_RES, b"H:t:3", b"ready")


def test_a_list_of_the_text_protocol_is_made_no_faster_than_it_is_read() -> None:
    harness = Harness()
    peer = harness.talker("peer")
    for _ in range(60):
        peer.send(*[request(Packet.SUBMIT_JOB_BG, b"f", b"", b"")] * 100)
    peer.take_bytes()
    harness.peers_read = False
    peer.send(b"show jobs\n")
    unread = peer.take_bytes()
    assert 65_536 <= len(unread) < 70_000
    assert unread.endswith(b"\t1\n")
    harness.peers_read = True
    harness.end_turn()
    peer.session.go_on()
    harness.end_turn()
    lines = (unread + peer.take_bytes()).splitlines()
    assert (lines[-1], len(lines)) == (b".", 6001)


# --- what many hear of ---


@pytest.mark.parametrize("kind", [Packet.WORK_DATA, Packet.WORK_WARNING, Packet.WORK_EXCEPTION, Packet.WORK_COMPLETE])
def test_what_a_worker_says_is_not_copied_for_each_who_hears_it(kind: Packet) -> None:
    harness = Harness(packet_bytes=100_000, exceptions=True)
    written: list[bytes] = []
    for name in ("one", "two"):
        client = harness.talker(name)
        client.send(request(Packet.SUBMIT_JOB, b"f", b"same", b""))
        client.take_bytes()
        client.wire.write = written.extend  # type: ignore[method-assign, assignment]
    worker = harness.talker("worker")
    worker.send(request(Packet.CAN_DO, b"f"), request(Packet.GRAB_JOB))
    worker.send(request(kind, b"H:t:1", b"x" * 50_000))
    long = [piece for piece in written if len(piece) >= 50_000]
    assert len(long) == 2
    assert long[0] is long[1]
    assert b"".join(written) == 2 * response(kind, b"H:t:1", b"x" * 50_000)


def test_answers_that_are_long_wait_when_much_was_answered_in_one_turn() -> None:
    harness = Harness(packet_bytes=100_000, settings=EngineSettings(memory_bytes=80_000))
    peer = harness.talker("peer")
    harness.engine.memory.answer_bytes = 10_001
    assert harness.engine.memory.answers_must_wait
    peer.session.receive(request(Packet.ECHO_REQ, b"x"))
    assert peer.session.deferred


def test_a_watch_that_finds_no_memory_is_refused() -> None:
    harness = Harness(settings=EngineSettings(memory_bytes=1400))
    peer = harness.talker("peer")
    peer.send(request(Packet.SUBMIT_JOB_BG, b"f", b"", b""))
    assert peer.take_bytes() == response(Packet.JOB_CREATED, b"H:t:1")
    harness.engine.memory.history_bytes = 100
    peer.send(request(Packet.WATCH, b"H:t:1"))
    assert peer.take_bytes().startswith(response(Packet.ERROR, b"QUEUE_ERROR", b"")[:8])
    assert not harness.engine.jobs[1].subscribers
