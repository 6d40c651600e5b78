"""`switchgear config check|show`."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from switchgear.cli.main import main
from switchgear.config import SETTINGS, load_config


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in list(os.environ):
        if variable.startswith("SWITCHGEAR_"):
            monkeypatch.delenv(variable)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "good.toml"
    file.write_text("store = 'memory:'\n[limits]\npacket_bytes = '1MiB'\n", encoding="utf-8")
    return file


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    file = tmp_path / "bad.toml"
    file.write_text("[limits]\npacket_byte = 1\njobs = -1\n", encoding="utf-8")
    return file


def config(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["config", *arguments], prog_name="switchgear")


def test_a_good_file_is_ok(good: Path) -> None:
    result = config("check", str(good))
    assert (result.exit_code, result.output) == (0, "OK\n")


def test_no_file_at_all_is_ok() -> None:
    assert (config("check").exit_code, config("check").output) == (0, "OK\n")


def test_all_problems_are_listed(bad: Path) -> None:
    result = config("check", str(bad))
    assert result.exit_code == 2
    assert result.output.splitlines() == [
        f"{bad}: unknown key limits.packet_byte; did you mean limits.packet_bytes?",
        f"limits.jobs: expected a whole number, 0 or more, got -1 (from {bad})",
    ]


def test_the_environment_is_checked_too(good: Path, bad: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHGEAR_CONFIG", str(bad))
    assert config("check").exit_code == 2
    assert config("check", str(good)).exit_code == 0
    monkeypatch.setenv("SWITCHGEAR_LOG_LEVEL", "loud")
    assert "SWITCHGEAR_LOG_LEVEL" in config("check", str(good)).output


def test_files_that_it_names_are_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('[engine]\nwake_policy = "nosuch:policy"\n[zeromq]\ncurve_key_file = "/nosuch/key"\n')
    result = CliRunner().invoke(main, ["config", "check", str(file)])
    assert result.exit_code == 2
    assert "engine.wake_policy: cannot load nosuch:policy" in result.output
    assert "zeromq.curve_key_file: there is no file /nosuch/key" in result.output


def test_a_program_can_read_the_check(good: Path, bad: Path) -> None:
    assert json.loads(config("check", "--json", str(good)).output) == {"ok": True, "problems": []}
    result = config("check", "--json", str(bad))
    assert result.exit_code == 2
    assert len(json.loads(result.output)["problems"]) == 2


def test_show_writes_a_file_that_means_the_same(good: Path, tmp_path: Path) -> None:
    shown = config("show", str(good))
    assert shown.exit_code == 0
    saved = tmp_path / "saved.toml"
    saved.write_text(shown.output, encoding="utf-8")
    assert load_config(saved, {}, {}) == load_config(good, os.environ, {})
    assert tomllib.loads(shown.output)["limits"]["packet_bytes"] == "1MiB"


def test_show_says_where_a_value_came_from(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHGEAR_ENGINE_ATTEMPTS", "9")
    text = config("show", str(good)).output
    assert f"# From: {good}." in text.replace("\n#  ", "")
    assert "# From: the environment variable SWITCHGEAR_ENGINE_ATTEMPTS." in text
    assert "# From: default." in text


def test_show_for_programs(good: Path) -> None:
    entries = json.loads(config("show", "--json", str(good)).output)
    assert [entry["name"] for entry in entries] == list(SETTINGS)
    (store,) = (entry for entry in entries if entry["name"] == "store")
    assert (store["value"], store["source"]) == ("memory:", str(good))


def test_show_of_a_bad_file_is_a_configuration_error(bad: Path) -> None:
    result = config("show", str(bad))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"switchgear: {bad}: unknown key")


@pytest.mark.parametrize("as_json", [False, True])
def test_passwords_are_not_shown(tmp_path: Path, as_json: bool) -> None:
    file = tmp_path / "server.toml"
    file.write_text("[joblog]\nurl = 'postgresql://jobs:hunter2@db/jobs?sslpassword=hunter2'\n", encoding="utf-8")
    result = config("show", *(["--json"] if as_json else []), str(file))
    assert result.exit_code == 0
    assert "hunter2" not in result.output
    assert "postgresql://jobs:***@db/jobs?sslpassword=***" in result.output
    if not as_json:
        assert "The password is not shown" in result.output


@pytest.mark.parametrize(
    "line",
    [
        "listen = 'redis://h:6379?password=hunter2'",
        "listen = 'redis://h:6379?passwort=1&password=hunter2'",
        "listen = 'redis://u:hunter2@h:6379'",
        "listen = 'gearman://h?password=hunter2'",
        "store = 'mysql://u:hunter2@h/db'",
        "store = 'mysql://h/db?password=hunter2'",
        "joblog.url = 'mysql://u:hunter2@h/db'",
        "limits.jobs = 'redis://u:hunter2@h'",
    ],
)
@pytest.mark.parametrize("command", ["check", "show"])
def test_passwords_are_not_repeated_in_problems(tmp_path: Path, line: str, command: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text(line + "\n", encoding="utf-8")
    result = config(command, str(file))
    assert result.exit_code == 2
    assert "hunter2" not in result.output


def test_a_password_in_a_listener_is_sent_to_its_file(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("listen = 'redis://h:6379?password=hunter2'\n", encoding="utf-8")
    assert "password_file=FILE" in config("check", str(file)).output
