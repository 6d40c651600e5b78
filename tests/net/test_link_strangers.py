"""Whoever reaches the port for other nodes and proves nothing holds little, and not for long."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from switchgear.net.owners.link import MOST_UNPROVEN, AcceptedLink, LinkListener, proof_of
from switchgear.net.owners.messages import Challenge, Framing, FromOwner, Hello, encoded
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
    """What a link needs of a hub before it is proven."""

    engine = None

    def __init__(self) -> None:
        self.telemetry = Telemetry(lambda: 0.0)

    def begin_turn(self) -> None:
        pass


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
    (challenge,) = Framing(FromOwner).feed(transport.written)
    assert isinstance(challenge, Challenge)
    wrong = proof_of(b"another secret", challenge.nonce, OWNER, NODE)
    link.data_received(encoded(Hello(NODE, "stranger", wrong)))
    assert transport.is_aborted
    assert listener.sessions() == []


@in_turns
async def test_a_flood_of_strangers_is_not_a_flood_of_lines_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    for data in (encoded(Hello(NODE, "stranger", b"wrong")), b"\0\0\0\1\xc1"):
        listener = listening()
        caplog.clear()
        for _ in range(1_000):
            link, transport = connected(listener)
            link.data_received(data)
            assert transport.is_aborted
            link.connection_lost(None)
        assert 0 < len(caplog.records) <= LINES_PER_SECOND
