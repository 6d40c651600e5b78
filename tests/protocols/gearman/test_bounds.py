"""What a connection can make the server hold or list: each has an end."""

from __future__ import annotations

import pytest

from switchgear.protocols.base import MOST_FUNCTIONS
from switchgear.protocols.gearman import control, extensions
from switchgear.protocols.gearman.codec import request, response
from switchgear.protocols.gearman.messages import Packet
from tests.protocols.gearman.house import House


def test_the_functions_of_a_worker_are_bounded() -> None:
    house = House(packet_bytes=1_000_000)
    worker = house.talker("worker")
    worker.send(*(request(Packet.CAN_DO, b"f%d" % number) for number in range(MOST_FUNCTIONS)))
    worker.send(request(Packet.CAN_DO, b"f0"), request(Packet.CAN_DO_TIMEOUT, b"f1", b"5000"))
    assert not worker.take_bytes()
    refused = response(Packet.ERROR, b"ARGUMENT_TOO_LARGE", b"a worker may register 1000 functions")
    for packet in (request(Packet.CAN_DO, b"one more"), request(Packet.CAN_DO_TIMEOUT, b"one more", b"5")):
        worker.send(packet)
        assert worker.take_bytes() == refused
    assert b"one more" not in house.engine.functions
    worker.send(request(Packet.CANT_DO, b"f0"), request(Packet.CAN_DO, b"one more"))
    assert not worker.take_bytes()


@pytest.mark.parametrize("verb", [b"server", b"jobs"])
def test_json_is_not_read_if_it_is_very_long(verb: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MOST_JSON_BYTES", 1000)
    house = House()
    peer = house.talker("peer")
    text = b'{"nonsense": [%b1]}' % (b"[]," * 400)
    peer.send(request(Packet.CONTROL, verb, text))
    assert peer.take_bytes() == response(Packet.ERROR, b"ARGUMENT_TOO_LARGE", b"arguments of more than 1000 bytes")
    peer.send(request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"", text, b""))
    assert peer.take_bytes() == response(Packet.ERROR, b"ARGUMENT_TOO_LARGE", b"options of more than 1000 bytes")


def test_the_jobs_that_a_connection_watches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "MOST_WATCHED", 2)
    house = House()
    peer = house.talker("peer")
    peer.send(request(Packet.OPTION_REQ, b"switchgear"))
    peer.send(*[request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"", b'{"watch": true}', b"")] * 2)
    peer.send(request(Packet.SUBMIT_JOB_BG, b"f", b"", b""))
    peer.take_bytes()
    refused = response(Packet.ERROR, b"ARGUMENT_TOO_LARGE", b"a connection may watch 2 jobs")
    peer.send(request(Packet.WATCH, b"H:t:3"))
    assert peer.take_bytes() == refused
    peer.send(request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"", b'{"watch": true}', b""))
    assert peer.take_bytes() == refused
    assert len(house.engine.jobs) == 3
    peer.send(request(Packet.WATCH, b"H:t:1"))
    assert peer.take_bytes() == response(Packet.WATCH_RES, b"H:t:1", b"ready")
    peer.send(b"cancel job H:t:1\n")
    peer.take_bytes()
    peer.send(request(Packet.WATCH, b"H:t:3"))
    assert peer.take_bytes() == response(Packet.WATCH_RES, b"H:t:3", b"ready")


def test_a_list_of_the_text_protocol_is_made_no_faster_than_it_is_read() -> None:
    house = House()
    peer = house.talker("peer")
    for _ in range(60):
        peer.send(*[request(Packet.SUBMIT_JOB_BG, b"f", b"", b"")] * 100)
    peer.take_bytes()
    house.peers_read = False
    peer.send(b"show jobs\n")
    unread = peer.take_bytes()
    assert 65_536 <= len(unread) < 70_000
    assert unread.endswith(b"\t1\n")
    house.peers_read = True
    house.end_turn()
    peer.session.go_on()
    house.end_turn()
    lines = (unread + peer.take_bytes()).splitlines()
    assert (lines[-1], len(lines)) == (b".", 6001)
