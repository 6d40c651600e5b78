"""Who is let in: what cannot be tried out over loopback."""

from __future__ import annotations

import asyncio
from typing import cast

from switchgear.config import LimitsConfig, ListenUrl
from switchgear.net.hub import Hub
from switchgear.net.tcp import Connection, TcpDoor


def door_with(limits: LimitsConfig) -> TcpDoor:
    hub = cast(Hub, None)  # nobody gets so far

    def make_session(*_: object) -> None:
        raise AssertionError

    return TcpDoor(ListenUrl("gearman", "127.0.0.1", 0), hub, limits, make_session)  # type: ignore[arg-type]


def arriving(door: TcpDoor, host: str, *, is_loopback: bool = False) -> str:
    """What a connection from there is told; one that is let in stays."""

    class Arrival(Connection):
        def __init__(self) -> None:
            asyncio.Protocol.__init__(self)
            self.host = host
            self.is_loopback = is_loopback

    arrival = Arrival()
    reason = door.refusal_for(arrival)
    if not reason:
        door.connections.add(arrival)
        door.by_host[host] += 1
    return reason


def test_one_address_has_a_limit_of_its_own() -> None:
    door = door_with(LimitsConfig(connections_per_address=2))
    answers = [arriving(door, "192.0.2.1") for _ in range(3)]
    assert answers == ["", "", "it has 2 connections already"]
    assert arriving(door, "192.0.2.2") == ""


def test_loopback_has_none() -> None:
    door = door_with(LimitsConfig(connections_per_address=2))
    assert not any(arriving(door, "127.0.0.1", is_loopback=True) for _ in range(10))


def test_all_together_have_a_limit() -> None:
    door = door_with(LimitsConfig(connections=3, connections_per_address=0))
    answers = [arriving(door, "192.0.2.1") for _ in range(4)]
    assert answers == ["", "", "", "there are 3 connections already"]


def test_an_address_whose_connections_are_gone_is_forgotten() -> None:
    door = door_with(LimitsConfig(connections_per_address=1))
    arriving(door, "192.0.2.1")
    door.forget(door.connections.copy().pop())
    assert not door.by_host
    assert arriving(door, "192.0.2.1") == ""
