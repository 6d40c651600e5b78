"""`switchgear dashboard`, and `App.dashboard`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from switchgear import App
from switchgear.dashboard.address import dashboard_url
from switchgear.errors import ConfigError
from tests.cli.commands import call
from tests.support.servers import HOST, free_port, running_switchgear

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    ("listeners", "url"),
    [
        (["gearman://127.0.0.1:4730", "http://127.0.0.1:4740"], "http://127.0.0.1:4740/"),
        (["http://0.0.0.0:4740?hosts=jobs.example.org"], "http://127.0.0.1:4740/"),
        (["http://[::]:80"], "http://[::1]:80/"),
        (["http://127.0.0.1:4740?tls=yes&cert=a.pem"], "https://127.0.0.1:4740/"),
        (["http://127.0.0.1:4740?tls=no"], "http://127.0.0.1:4740/"),
        (["http://127.0.0.1:1?dashboard=no", "http://127.0.0.1:2?dashboard=yes"], "http://127.0.0.1:2/"),
    ],
)
def test_where_it_is(listeners: list[str], url: str) -> None:
    assert dashboard_url(listeners) == url


def test_of_another_machine() -> None:
    assert dashboard_url(["http://0.0.0.0:4740"], "jobs.example.org") == "http://jobs.example.org:4740/"


def test_a_server_without_one() -> None:
    with running_switchgear() as server:
        done = call(server, "dashboard", "--no-browser")
        assert done.exit_code == 2
        assert "the server has no dashboard" in done.output
        with App(f"gearman://{HOST}:{server.port}") as app, pytest.raises(ConfigError, match="no dashboard"):
            app.dashboard()


def test_the_address_is_printed_and_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\\nprintf %s "$1" > {opened}\\n'.replace("\\n", "\n"))
    browser.chmod(0o755)
    token = tmp_path / "token"
    token.write_text("a/secret+token\n")
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    with running_switchgear("--listen", f"http://{HOST}:{port}") as server:
        url = f"http://{HOST}:{port}/"
        assert call(server, "dashboard", "--no-browser").stdout == f"{url}\n"
        assert not opened.exists()
        assert call(server, "dashboard").stdout == f"{url}\n"
        assert opened.read_text() == url
        monkeypatch.setenv("SWITCHGEAR_TOKEN_FILE", os.fspath(token))
        assert call(server, "dashboard").stdout == f"{url}\n"
        assert opened.read_text() == url  # the server needs no login
        with App(f"gearman://{HOST}:{server.port}") as app:
            assert app.dashboard() == url
