"""What a bridge's address says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from switchgear.cli.main import main
from switchgear.config import Config, ListenUrl
from switchgear.errors import ConfigError
from switchgear.net.bridge.keys import Keys
from switchgear.net.bridge.scripts import SCRIPTS
from switchgear.net.bridge.settings import BridgeSettings, RedisLocation
from tests.net.bridge.harness import bridged, in_loop, queue, soon
from tests.support.peers import require_program
from tests.support.redis_server import running_redis
from tests.support.servers import HOST, free_port


def read(text: str) -> BridgeSettings:
    return BridgeSettings.read(ListenUrl.parse(text))


def test_without_options() -> None:
    assert read("redis://127.0.0.1") == BridgeSettings(location=RedisLocation("127.0.0.1", 6379), outbound=None)


def test_with_every_option(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    text = (
        f"redis://redis.example:7000/3?functions=a,b&outbound=c&lease=5&claim=7&push=9&busy=60&user=me"
        f"&password_file={password}&tls=yes&ca_file={password}"
    )
    assert read(text) == BridgeSettings(
        location=RedisLocation(
            "redis.example", 7000, 3, has_tls=True, user="me", password="secret", ca_file=str(password)
        ),
        functions=frozenset({b"a", b"b"}),
        outbound=frozenset({b"c"}),
        lease_seconds=5,
        claim=7,
        push=9,
        busy_seconds=60,
    )
    assert str(ListenUrl.parse(text)) == text
    assert "secret" not in repr(read(text))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("redis://127.0.0.1/zero", "the number of a database"),
        ("redis://127.0.0.1?lease=0.1", "lease is at least 0.2"),
        ("redis://127.0.0.1?busy=0.5", "busy is 0 or at least 1"),
        ("redis://127.0.0.1?password_file=/no/such/file", "cannot read the password"),
        ("redis://127.0.0.1?ca_file=/no/such/file", "there is no file /no/such/file"),
        ("redis://127.0.0.1?cert_file=/no/such/file", "there is no file /no/such/file"),
        ("redis://127.0.0.1?key_file=/dev/null", "there is no file /dev/null"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("redis://127.0.0.1?claim=0", "not a number between 1 and"),
        ("redis://127.0.0.1?claims=1", "did you mean claim"),
        ("gearman://127.0.0.1/0", "not of the form"),
        ("rediss://127.0.0.1", "did you mean redis"),
    ],
)
def test_what_no_url_may_say(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ListenUrl.parse(text)


def test_a_password_in_a_url_is_refused_without_being_shown() -> None:
    with pytest.raises(ValueError, match="password_file") as caught:
        ListenUrl.parse("redis://me:secret@127.0.0.1")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("ca_file=x", "has ca_file, and no tls=yes"),
        ("cert_file=x", "has cert_file, and no tls=yes"),
        ("tls=yes&key_file=x", "has key_file, and no cert_file"),
        ("tls=yes&cert_file=x&key_file=x&ca_file=x", ""),
        ("tls=YES", ""),
    ],
)
@pytest.mark.parametrize("scheme", ["redis", "gearman-worker"])
def test_options_for_tls_that_need_others(scheme: str, options: str, complaint: str) -> None:
    url = ListenUrl.parse(f"{scheme}://127.0.0.1?{options}")
    if complaint:
        with pytest.raises(ConfigError, match=complaint):
            Config(listen=(url,))
    else:
        assert Config(listen=(url,)).listen[0].uses_tls


def test_a_bridge_is_made_only_if_it_is_named_and_may_go_to_another_machine() -> None:
    assert "redis" not in {url.scheme for url in Config().listen}
    assert Config(listen=(ListenUrl.parse("redis://redis.example"),)).listen[0].host == "redis.example"


def test_commas_in_options_are_not_commas_between_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    from switchgear.config.setting_types import ListenUrls

    urls = ListenUrls().read_text("redis://a?functions=x,y, gearman://127.0.0.1 ,dwork://127.0.0.1")
    assert [str(url) for url in urls] == [  # type: ignore[attr-defined]
        "redis://a:6379?functions=x,y",
        "gearman://127.0.0.1:4730",
        "dwork://127.0.0.1:6125",
    ]


def test_without_redis_py_the_server_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("redis", "switchgear.net.bridge"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    monkeypatch.setattr(sys, "argv", ["switchgear", "serve", "--listen", "redis://127.0.0.1:1", "--store", "memory:"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code not in (0, None)
    assert "pip install 'switchgear[redis]'" in capsys.readouterr().err


def test_the_password_lets_a_client_in(tmp_path: Path) -> None:
    @in_loop
    async def check() -> None:
        with running_redis("--requirepass", "secret") as server:
            with redis.Redis(HOST, server.port, password="secret", decode_responses=True) as store:
                async with bridged(server, password_file=password) as harness:
                    queue(store, "shout", b"x")
                    assert await harness.run(harness.worker("shout"), 1) == [b"x"]
            async with bridged(server) as harness:
                await soon(lambda: harness.telemetry.counts["bridge_lost"], "without it there is no way in")

    password = tmp_path / "password"
    password.write_text("secret")
    check()


def test_the_connection_may_be_encrypted(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    make = [
        require_program("openssl"),
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ]
    names = ["-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{HOST}", "-days", "2"]
    subprocess.run([*make, *names, "-out", certificate, "-keyout", key], check=True, capture_output=True)
    port = free_port()
    flags = ("--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-auth-clients", "no")
    # The default of Redis is to demand a certificate of its authority, which is here the one that it has itself.
    demanding = (*flags[:-2], "--tls-ca-cert-file", certificate, "--requirepass", "secret")
    password = tmp_path / "password"
    password.write_text("secret")

    @in_loop
    async def check() -> None:
        with running_redis(*map(str, flags)) as server, server.client() as store:
            server.port = port
            async with bridged(server, tls="yes", ca_file=certificate) as harness:
                queue(store, "shout", b"x")
                assert await harness.run(harness.worker("shout"), 1) == [b"x"]
            async with bridged(server, tls="yes") as harness:
                await soon(lambda: harness.telemetry.counts["bridge_lost"], "a stranger's certificate is not trusted")
        with running_redis(*map(str, demanding)) as server:
            plain = redis.Redis(HOST, server.port, password="secret", decode_responses=True)
            server.port = port
            options: dict[str, Any] = {"tls": "yes", "ca_file": certificate, "password_file": password}
            with plain as store:
                async with bridged(server, **options, cert_file=certificate, key_file=key) as harness:
                    queue(store, "shout", b"x")
                    assert await harness.run(harness.worker("shout"), 1) == [b"x"]
            async with bridged(server, **options) as harness:
                await soon(lambda: harness.telemetry.counts["bridge_lost"], "without a certificate there is no way in")

    check()


@pytest.mark.parametrize(
    ("function", "expected"), [(b"{a}", True), (b"x{a}b", True), (b"a", False), (b"{}", False), (b"}a{", False)]
)
def test_a_hash_tag_puts_all_keys_into_one_place(function: bytes, expected: bool) -> None:
    from redis.crc import key_slot

    keys = Keys(function)
    assert keys.has_one_place is expected
    everything = [keys.count, keys.uid, keys.claimed, keys.holders, keys.counted, *keys.queues.values()]
    everything += [keys.job(b"1"), keys.lock(b"1"), keys.mark(b"H:1")]
    assert (len({key_slot(key) for key in everything}) == 1) is expected


def test_every_script_has_a_comment_that_says_what_it_is_for() -> None:
    assert all(script.text.startswith(b"-- ") for script in SCRIPTS.all())
