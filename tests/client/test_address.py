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


# --- TLS and tokens


def test_gearmans_is_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHGEAR_TOKEN", "swg_secret")
    address = ServerAddress.parse("gearmans://jobs.example:1")
    assert (str(address), address.uses_tls, address.token) == ("gearmans://jobs.example:1", True, "swg_secret")
    assert "secret" not in repr(address)
    plain = ServerAddress.parse("gearman://jobs.example:1")
    assert plain.tls_context() is None
    assert plain != address
    with pytest.raises(ConfigError, match=r"is not sent to gearman://jobs\.example:1, which is not encrypted"):
        assert plain.token
    for host in ("127.0.0.1", "[::1]", "localhost", "a.localhost"):
        assert ServerAddress.parse(f"gearman://{host}").token == "swg_secret"
    with pytest.raises(ConfigError, match="a token is one word"):
        address.security.with_token("two words")
    monkeypatch.setenv("SWITCHGEAR_TLS_CA", "/none")
    with pytest.raises(ConfigError, match="SWITCHGEAR_TLS_CA: /none: No such file"):
        ServerAddress.parse("gearmans://a").tls_context()
    monkeypatch.setenv("SWITCHGEAR_TOKEN", "")
    monkeypatch.setenv("SWITCHGEAR_TOKEN_FILE", "/none")
    with pytest.raises(ConfigError, match="token file /none: No such file"):
        ServerAddress.parse("gearmans://a")
