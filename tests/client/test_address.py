"""Where a server is, as people write it."""

from __future__ import annotations

import pytest

from switchgear.client import ServerAddress
from switchgear.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("gearman://127.0.0.1:4730", "127.0.0.1", 4730),
        ("gearman://jobs.example", "jobs.example", 4730),
        ("GEARMAN://jobs.example:1/", "jobs.example", 1),
        ("gearman://[::1]:4731", "::1", 4731),
        ("[fe80::1%eth0]", "fe80::1%eth0", 4730),
        ("localhost", "localhost", 4730),
        ("localhost:99", "localhost", 99),
    ],
)
def test_it_reads(text: str, host: str, port: int) -> None:
    address = ServerAddress.parse(text)
    assert (address.host, address.port) == (host, port)
    assert ServerAddress.parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    ["", "gearman://", "gearman://:4730", "http://x", "gearman://x:0", "gearman://x:65536", "a b", "gearman://x/y"],
)
def test_it_refuses(text: str) -> None:
    with pytest.raises(ConfigError):
        ServerAddress.parse(text)
