"""`switchgear access`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from switchgear.access.access_file import read_access_file
from switchgear.access.tokens import digest_of
from switchgear.cli.main import main
from switchgear.verbs.access import Role


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "access.toml"
    monkeypatch.setenv("SWITCHGEAR_ACCESS_FILE", str(path))
    monkeypatch.chdir(tmp_path)
    return path


def access(*words: str) -> Result:
    return CliRunner().invoke(main, ["access", *words])


def test_a_token_is_shown_once_and_stored_as_a_hash(file: Path) -> None:
    result = access("add", "mailer", "--role", "submit", "--function", "mail.*")
    assert result.exit_code == 0, result.output
    token = result.stdout.strip()
    entry = read_access_file(file).identities["mailer"]
    assert entry.tokens == (f"sha256:{digest_of(token.encode()).hex()}",)
    assert entry.functions == ("mail.*",)
    assert token not in file.read_text()


def test_a_token_goes_to_a_file_of_its_owner(file: Path, tmp_path: Path) -> None:
    assert access("add", "a", "--role", "work", "--token-out", "a.token").exit_code == 0
    token = tmp_path / "a.token"
    assert os.stat(token).st_mode & 0o777 == 0o600
    result = access("check", "--token-file", "a.token", "--role", "work")
    assert result.stdout == "a: work, for every function\n"
    again = access("add", "b", "--role", "work", "--token-out", "a.token")
    assert again.exit_code == 1
    assert list(read_access_file(file).identities) == ["a"]
    assert digest_of(token.read_text().strip().encode()).hex() in file.read_text()


def test_more_is_added_to_an_identity(file: Path) -> None:
    access("add", "a", "--role", "work")
    result = access(
        "add", "a", "--role", "read", "--certificate", "CN=a", "--certificate", "SHA256:" + "AB:" * 31 + "AB"
    )
    assert result.exit_code == 0, result.output
    entry = read_access_file(file).identities["a"]
    assert entry.roles == {Role.WORK, Role.READ}
    assert entry.certificates == ("CN=a", "sha256:" + "ab" * 32)
    assert len(entry.tokens) == 1


def test_listing_removing_and_checking(file: Path) -> None:
    access("add", "a", "--role", "work")
    access("add", "anonymous", "--role", "read")
    found = json.loads(access("list", "--json").stdout)
    assert [(each["identity"], each["roles"], each["tokens"]) for each in found] == [
        ("anonymous", ["read"], 0),
        ("a", ["work"], 1),
    ]
    assert "a          work   all             1" in access("list").stdout
    assert access("check").stdout == f"{file}: 1 identity, nothing is wrong\n"
    refused = access("check", "--identity", "a", "--role", "submit")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "switchgear: submit needs the role submit, which a does not have\n",
    )
    assert access("remove", "a").exit_code == 0
    assert access("remove", "a").stderr == f"switchgear: {file} has no identity a\n"
    assert access("remove", "anonymous").exit_code == 0
    assert not read_access_file(file).anonymous.roles


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["add", "a"], "without --role it may do nothing"),
        (["add", "a b", "--role", "read"], "is no name"),
        (["add", "a", "--role", "all"], "is not one of"),
        (["add", "anonymous", "--role", "read", "--certificate", "CN=x"], "anonymous peers have no token"),
        (["add", "a", "--role", "read", "--no-token"], "it needs a token, a certificate or a key"),
        (["add", "a", "--role", "read", "--certificate", "x"], "'x' is neither CN=NAME nor"),
        (["list"], "No such file"),
        (["check", "--token-file", "none"], "No such file"),
    ],
)
def test_mistakes_are_told(file: Path, words: list[str], complaint: str) -> None:
    result = access(*words)
    assert result.exit_code != 0
    assert complaint in result.stderr
    assert not file.exists() or not read_access_file(file).identities


def test_without_a_file_one_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SWITCHGEAR_ACCESS_FILE", raising=False)
    assert "which access file?" in access("list").stderr
