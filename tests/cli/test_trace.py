"""`switchgear trace`: the packets of a connection, as lines of text."""

from __future__ import annotations

import pytest

from switchgear.cli.trace import PacketTrace
from switchgear.client.gearman.blocking import Client
from switchgear.protocols.gearman.codec import REQUEST, RESPONSE, request, response
from switchgear.protocols.gearman.messages import Packet
from tests.cli.commands import Process
from tests.support.servers import running_switchgear


def lines_of(magic: int, *pieces: bytes, shown_bytes: int = 80) -> list[str]:
    lines: list[str] = []
    packets = PacketTrace(magic, shown_bytes, "#1 >", lines.append)
    for piece in pieces:
        packets.feed(piece)
    return lines


CONVERSATION = (
    request(Packet.SET_CLIENT_ID, b"me")
    + b"status\n"
    + request(Packet.SUBMIT_JOB_BG, b"resize", b"key", b"a\0b")
    + request(Packet.GRAB_JOB)
)
SHOWN = [
    '#1 > SET_CLIENT_ID "me"',
    '#1 > "status"',
    '#1 > SUBMIT_JOB_BG "resize" "key" "a\\x00b"',
    "#1 > GRAB_JOB",
]


def test_requests_with_their_fields() -> None:
    assert lines_of(REQUEST, CONVERSATION) == SHOWN


def test_slices_do_not_matter() -> None:
    assert lines_of(REQUEST, *(CONVERSATION[index : index + 1] for index in range(len(CONVERSATION)))) == SHOWN


def test_answers_with_their_fields() -> None:
    packets = response(Packet.JOB_ASSIGN, b"H:t:1", b"resize", b"data") + response(Packet.NOOP)
    assert lines_of(RESPONSE, packets) == ['#1 > JOB_ASSIGN "H:t:1" "resize" "data"', "#1 > NOOP"]


def test_long_fields_are_shown_in_part() -> None:
    packet = request(Packet.ECHO_REQ, b"x" * 1000)
    assert lines_of(REQUEST, packet, shown_bytes=3) == ['#1 > ECHO_REQ "xxx" and 997 more bytes']


def test_other_protocols_are_shown_as_bytes() -> None:
    first, *others = lines_of(REQUEST, b"\0JOB\x04\0\0\0\0", b"\xff\x01")
    assert first.startswith("#1 > no Gearman packets from here on")
    assert others == ['#1 > "\\xff\\x01"']


@pytest.mark.system
def test_a_connection_through_it() -> None:
    with running_switchgear() as server:
        process = Process(server, "trace", "--port", "0", "--once")
        try:
            url = process.until("listening on").split()[2].rstrip(",")
            with Client(url) as client:
                handle = client.submit("resize", b"picture", background=True).handle
            assert '> SUBMIT_JOB_BG "resize"' in process.until("SUBMIT_JOB_BG")
            assert f'< JOB_CREATED "{handle}"' in process.until("JOB_CREATED")
            process.until("closed")
            assert process.exit_code() == 0
        finally:
            process.close()
