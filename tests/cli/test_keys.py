"""`switchgear keys`."""

from __future__ import annotations

import stat
from pathlib import Path

import zmq.auth
from click.testing import CliRunner

from switchgear.cli.main import main


def make_keys(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["keys", *args])
    return result.exit_code, result.output


def test_a_key_pair_is_made_that_zeromq_can_read_and_only_its_owner(tmp_path: Path) -> None:
    place = tmp_path / "new"
    code, output = make_keys(str(place), "server")
    assert code == 0
    assert str(place / "server.key_secret") in output
    public, secret = zmq.auth.load_certificate(place / "server.key_secret")
    assert secret is not None
    assert zmq.auth.load_certificate(place / "server.key") == (public, None)
    assert stat.S_IMODE((place / "server.key_secret").stat().st_mode) == 0o600


def test_a_key_pair_is_not_overwritten_by_accident(tmp_path: Path) -> None:
    make_keys(str(tmp_path), "a")
    before = (tmp_path / "a.key_secret").read_bytes()
    code, output = make_keys(str(tmp_path), "a")
    assert (code, "--force replaces it" in output) == (1, True)
    assert (tmp_path / "a.key_secret").read_bytes() == before
    assert make_keys(str(tmp_path), "a", "--force")[0] == 0
    assert (tmp_path / "a.key_secret").read_bytes() != before


def test_a_name_is_not_a_path(tmp_path: Path) -> None:
    assert make_keys(str(tmp_path), "../a")[0] == 2
