"""Whoever reaches the port for other nodes and proves nothing holds little, and not for long."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from switchgear.net.owners.link import MOST_UNPROVEN, AcceptedLink, LinkListener
from switchgear.net.owners.link_handshake import Accepting, HandshakeError, Opening, first_frame
from switchgear.telemetry import LINES_PER_SECOND, Telemetry
from tests.net.harness import in_turns

SECRET = b"the secret of the cluster"
OWNER, NODE = 7, 8


class FakeTransport:
    """The connection of a peer."""

    def __init__(self) -> None:
        self.written = b""
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.is_aborted = True

    def get_extra_info(self, name: str) -> Any:
        return None


class FakeHub:
    """What a link needs of a hub before it is proven. No turn begins for strangers."""

    engine = None
    fair_queue = None

    def __init__(self) -> None:
        self.telemetry = Telemetry(lambda: 0.0)


def connected(listener: LinkListener) -> tuple[AcceptedLink, FakeTransport]:
    link, transport = AcceptedLink(listener), FakeTransport()
    link.connection_made(cast(asyncio.BaseTransport, transport))
    return link, transport


def listening() -> LinkListener:
    return LinkListener(cast(Any, FakeHub()), cast(Any, None), cast(Any, None), OWNER, SECRET)


@in_turns
async def test_the_oldest_peers_that_have_proven_nothing_make_room_for_new_ones() -> None:
    listener = listening()
    peers = [connected(listener) for _ in range(MOST_UNPROVEN + 2)]
    assert [transport.is_aborted for _, transport in peers] == [True, True] + [False] * MOST_UNPROVEN
    for link, _ in peers:
        link.connection_lost(None)
    assert not listener.links
    assert not connected(listener)[1].is_aborted


@in_turns
async def test_a_wrong_proof_ends_the_connection() -> None:
    listener = listening()
    link, transport = connected(listener)
    assert transport.written == b""  # strangers who say nothing are told nothing
    right, wrong = (Opening(secret, NODE, "stranger", OWNER) for secret in (SECRET, b"another secret"))
    link.data_received(right.begin())
    challenge = first_frame(bytearray(transport.written))
    assert challenge is not None
    wrong._hello = right._hello
    try:
        answer = wrong.receive(challenge, b"")
    except ValueError:  # it cannot check the proof of the node either
        answer = b"\0\0\0\x23\x91\xc4\x20" + b"x" * 32
    link.data_received(answer)
    assert transport.is_aborted
    assert listener.sessions() == []
    link.data_received(right.receive(challenge, b""))  # too late
    assert listener.sessions() == []


def test_a_name_that_is_not_text_is_refused() -> None:
    frame = first_frame(bytearray(Opening(SECRET, NODE, "name", OWNER).begin().replace(b"name", b"n\xd4me")))
    assert frame is not None
    with pytest.raises(HandshakeError, match="not those of a link"):
        Accepting(SECRET, OWNER).receive(frame, b"")


@in_turns
async def test_a_flood_of_strangers_is_not_a_flood_of_lines_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    for data in (Opening(SECRET, NODE, "stranger", OWNER + 1).begin(), b"\0\0\0\1\xc1"):
        listener = listening()
        caplog.clear()
        for _ in range(1_000):
            link, transport = connected(listener)
            link.data_received(data)
            assert transport.is_aborted
            link.connection_lost(None)
        assert 0 < len(caplog.records) <= LINES_PER_SECOND
