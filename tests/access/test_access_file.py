"""The access file: what is read, what is refused, and that writing it loses nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from switchgear.access.access_file import (
    AccessEntry,
    AccessList,
    check_name,
    read_access_file,
    write_access_file,
)
from switchgear.errors import ConfigError
from switchgear.verbs.access import Role

HASH = "sha256:" + "0" * 64
KEY = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    entry = AccessEntry(
        "a.b@c-d", frozenset({Role.SUBMIT, Role.READ}), ("mail.*", 'x"y\\'), (HASH,), ("CN=a b",), (KEY,)
    )
    access = AccessList(AccessEntry("anonymous", frozenset({Role.READ})), {entry.name: entry})
    path = tmp_path / "access.toml"
    write_access_file(path, access)
    assert read_access_file(path) == access
    assert os.stat(path).st_mode & 0o777 == 0o600
    write_access_file(path, AccessList())
    assert read_access_file(path) == AccessList()
    assert [each.name for each in tmp_path.iterdir()] == ["access.toml"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[identities.a]\nroles = ['all']", "[identities.a]: roles: there is no role 'all'; there are: read, submit"),
        ("[identities.a]\nrole = ['read']", "[identities.a]: unknown key 'role'; there are: roles, functions, tokens"),
        ("[identity.a]\nroles = ['read']", "the file: unknown key 'identity'"),
        ("[identities.a]\nroles = 'read'", "[identities.a]: roles: expected an array of texts"),
        ("[identities.a]\nroles = []\ntokens = ['secret']", "tokens: an entry is not sha256: and 64 digits"),
        ("[identities.a]\nroles = []\ncurve_keys = ['x']", "curve_keys: an entry is not the 40 characters"),
        (f"[identities.a]\nroles = []\ncurve_keys = ['{'#' * 40}']", "curve_keys: five characters are too large"),
        ("[identities.a]\nroles = []\ncertificates = ['a']", "'a' is neither CN=NAME nor sha256: and 64 digits"),
        ("[identities.a]\nroles = []\nfunctions = ['']", "functions: a name is empty"),
        ("[identities.'a b']\nroles = []", "'a b' is no name"),
        ("[identities.anonymous]\nroles = []", "anonymous is the name of peers that have not identified themselves"),
        ("[anonymous]\ntokens = []", "[anonymous]: unknown key 'tokens'; there are: roles, functions"),
        (
            f"[identities.a]\ntokens = ['{HASH}']\n[identities.b]\ntokens = ['{HASH}']",
            "[identities.b]: a has the same token",
        ),
        ("identities = 3", "identities: expected a table"),
        ("[identities]\na = 3", "[identities.a]: expected a table"),
        ("[", "not valid TOML"),
        ("a = " + "[" * 3000, "not valid TOML: nested too deeply"),
        ("a = " + "1" * 5000, "not valid TOML: a number has too many digits"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, text: str, complaint: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        read_access_file(path)
    assert str(raised.value).startswith(f"access file {path}: ")
    assert complaint in str(raised.value)
    assert "secret" not in str(raised.value)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_access_file(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_nobody_else_may_have_access_to_it(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, "")
    path.chmod(mode)
    with pytest.raises(ConfigError, match="other users have access to it; chmod 600"):
        read_access_file(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_access_file(tmp_path / "none")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "")
    os.chown(path, 12345, 12345)
    with pytest.raises(ConfigError, match="it belongs to another user"):
        read_access_file(path)


def test_a_file_that_cannot_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "access.toml"
    write_access_file(path, AccessList())
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        write_access_file(path, AccessList(AccessEntry("anonymous", frozenset({Role.READ}))))
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["access.toml"]


def test_names() -> None:
    assert check_name("a1.B@c-d_e") == "a1.B@c-d_e"
    for wrong in ("", ".a", "a/b", "a\n", "x" * 101, "é"):
        with pytest.raises(ValueError, match="is no name"):
            check_name(wrong)
