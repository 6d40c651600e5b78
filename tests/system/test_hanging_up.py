"""The last answer reaches a peer that is still sending when it is hung up on."""

from __future__ import annotations

import socket
from struct import pack

import pytest

from tests.support.servers import running_switchgear

pytestmark = pytest.mark.system

MIB = 1024 * 1024


def test_a_packet_that_is_too_large_is_answered_before_the_end() -> None:
    with (
        running_switchgear("--set", "limits.packet_bytes=1MiB", store="memory:") as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as peer,
    ):
        peer.sendall(b"\0REQ" + pack(">II", 18, 16 * MIB))
        for _ in range(16):
            peer.sendall(bytes(MIB))
        answer = b""
        while data := peer.recv(65536):
            answer += data
        assert b"ARGUMENT_TOO_LARGE\0packet of 16777216 bytes, at most 1048576 are taken" in answer
