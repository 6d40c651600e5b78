"""Where a GearMonkey client finds its Redis, or a server of ours that stands in for one."""

from __future__ import annotations

import pytest

from switchgear.client.gearmonkey.redis_adapter import connect, connect_async

ADDRESSES = [
    ("redis://here:1234/5", ("here", 1234, 5)),
    ("gearmonkey://here:1234", ("here", 1234, None)),
    ("gearmonkey://here", ("here", 6380, None)),
    ("GearMonkey://here/0", ("here", 6380, 0)),
    ("gearmonkey://[::1]", ("::1", 6380, None)),
    ("gearmonkey://[::1]:99?socket_timeout=2", ("::1", 99, None)),
]


@pytest.mark.parametrize(("url", "meant"), ADDRESSES)
def test_addresses(url: str, meant: tuple[str, int, int | None]) -> None:
    for client in (connect(url), connect_async(url)):
        settings = client.connection_pool.connection_kwargs
        assert (settings["host"], settings["port"], settings.get("db")) == meant
