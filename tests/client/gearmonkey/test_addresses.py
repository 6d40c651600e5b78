"""Where a GearMonkey client finds its Redis, or a server of ours that stands in for one."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.client.gearmonkey.redis_adapter import connect, connect_async
from switchgear.errors import ConfigError

ADDRESSES = [
    ("redis://here:1234/5", ("here", 1234, 5)),
    ("gearmonkey://here:1234", ("here", 1234, None)),
    ("gearmonkey://here", ("here", 6380, None)),
    ("GearMonkey://here/0", ("here", 6380, 0)),
    ("gearmonkey://[::1]", ("::1", 6380, None)),
    ("gearmonkey://[::1]:99?socket_timeout=2", ("::1", 99, None)),
    ("gearmonkey://:secret@here", ("here", 6380, None)),
    ("gearmonkeys://me:secret@here/0?socket_timeout=2", ("here", 6380, 0)),
    ("rediss://here:1234/5", ("here", 1234, 5)),
]


@pytest.mark.parametrize(("url", "meant"), ADDRESSES)
def test_addresses(url: str, meant: tuple[str, int, int | None]) -> None:
    for client in (connect(url), connect_async(url)):
        settings = client.connection_pool.connection_kwargs
        assert (settings["host"], settings["port"], settings.get("db")) == meant


def settings_of(url: str) -> dict[str, Any]:
    one, other = (client.connection_pool.connection_kwargs for client in (connect(url), connect_async(url)))
    names = ("username", "password", "ssl_ca_certs", "ssl_check_hostname")
    assert [one.get(name) for name in names] == [other.get(name) for name in names]
    return dict(one)


def test_the_token_goes_to_our_server_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHGEAR_TOKEN", "swg_secret-token")
    for url in ("gearmonkeys://here", "gearmonkey://127.0.0.1", "gearmonkey://[::1]:99", "gearmonkey://localhost"):
        assert settings_of(url)["password"] == "swg_secret-token"
    for url in ("redis://127.0.0.1", "rediss://here", "unix:///run/redis"):
        assert settings_of(url).get("password") is None
    for url in ("gearmonkeys://:own@here", "gearmonkey://127.0.0.1?password=own", "rediss://:own@here"):
        assert settings_of(url)["password"] == "own"
    with pytest.raises(ConfigError, match="the token is not sent to gearmonkey://here:6380") as caught:
        connect("gearmonkey://here")
    assert "secret" not in str(caught.value)


def test_files_for_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ssl_check_hostname" not in settings_of("gearmonkey://here")
    assert settings_of("rediss://here")["ssl_check_hostname"] is True
    monkeypatch.setenv("SWITCHGEAR_TLS_CA", "/nowhere")
    for url in ("rediss://here", "gearmonkeys://here"):
        with pytest.raises(ConfigError, match="SWITCHGEAR_TLS_CA: /nowhere"):
            connect(url)
    assert settings_of("redis://here").get("ssl_ca_certs") is None


def test_addresses_that_are_none() -> None:
    for url in ("gearmonkeys://", "gearmonkey://here:0", "gearmonkey://:secret@he re"):
        with pytest.raises(ConfigError) as caught:
            connect(url)
        assert "secret" not in str(caught.value)
