"""Whatever is written where a number should be, the connection goes on, and nothing long is kept of it."""

from __future__ import annotations

import time

import pytest

from switchgear.model import SECOND_US
from switchgear.protocols.gearman.codec import request, response
from switchgear.protocols.gearman.messages import Packet
from tests.protocols.gearman.harness import Harness

NUMBERS = [
    b"",
    b"-1",
    b" 5",
    b"1_000",
    "²".encode(),
    "٣".encode(),
    b"nan",
    b"inf",
    b"1e400",
    b"\xff\xfe",
    b"9" * 19,
    b"9" * 20,
    b"9" * 5000,
]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: repr(number[:10]))
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (Packet.CAN_DO_TIMEOUT, (b"f", None)),
        (Packet.WORK_STATUS, (b"H:t:1", None, None)),
        (Packet.WORK_STATUS, (None, b"1", b"2")),
        (Packet.SUBMIT_JOB_EPOCH, (b"f", b"", None, b"")),
        (Packet.GET_STATUS, (None,)),
        (Packet.GET_STATUS, (b"H:t:", None)),
        (Packet.CREDIT, (None, b"1")),
        (Packet.CREDIT, (b"1", None)),
        (Packet.WORK_PROGRESS, (b"H:t:1", None, b"1", b"")),
        (Packet.RETRY_LATER, (b"H:t:1", None, b"1", b"")),
        (Packet.RETRY_LATER, (b"H:t:1", b"1", None, b"")),
        (Packet.HAND_BACK, (None,)),
        (Packet.WATCH, (None,)),
        (Packet.SUBMIT_JOB_OPTIONS, (b"f", b"", b'{"run_at": ', None)),
    ],
    ids=lambda value: value.name if isinstance(value, Packet) else "",
)
def test_any_number_is_survived(kind: Packet, arguments: tuple[bytes | None, ...], number: bytes) -> None:
    harness = Harness(keeps=True, packet_bytes=100_000)
    peer = harness.talker("peer")
    peer.send(request(Packet.CAN_DO, b"f"), request(Packet.SUBMIT_JOB_BG, b"f", b"", b"x"), request(Packet.GRAB_JOB))
    peer.send(request(kind, *(number if argument is None else argument for argument in arguments)))
    peer.take_bytes()
    peer.send(request(Packet.ECHO_REQ, b"still there"))
    assert peer.take_bytes() == response(Packet.ECHO_RES, b"still there")
    harness.pass_time(10_000)


def test_a_job_is_not_scheduled_beyond_the_calendar() -> None:
    harness = Harness()
    peer = harness.talker("peer")
    peer.send(request(Packet.SUBMIT_JOB_EPOCH, b"f", b"", b"253402300800", b""))
    assert peer.take_bytes() == response(Packet.ERROR, b"ARGUMENT_TOO_LARGE", b"epoch is too far away")
    peer.send(request(Packet.SUBMIT_JOB_EPOCH, b"f", b"", b"253402300799", b""))
    assert harness.engine.jobs[1].run_at_us == 253402300799 * SECOND_US


def test_long_words_about_progress_are_not_kept() -> None:
    harness = Harness(packet_bytes=70_000_000)
    client, worker = harness.talker("client"), harness.talker("worker")
    client.send(request(Packet.SUBMIT_JOB, b"f", b"", b"x"))
    worker.send(request(Packet.CAN_DO, b"f"), request(Packet.GRAB_JOB))
    client.take_bytes()
    before = time.process_time()
    worker.send(request(Packet.WORK_STATUS, b"H:t:1", b"7" + b"0" * 30_000_000, b"9" + b" " * 30_000_000))
    assert time.process_time() - before < 1
    assert client.take_bytes() == response(Packet.WORK_STATUS, b"H:t:1", b"7" + b"0" * 17, b"9")
    assert len(harness.engine.jobs[1].progress_text) < 100
