"""docs/howto/cluster.md leads from nothing to three nodes, a takeover and a fail-over: all of it is run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS
from tests.docs.running import Reader
from tests.support.peers import require_program
from tests.support.postgres import owned_by_other_user, run_as_user

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(240)]

PROGRAMS = ("initdb", "pg_ctl", "pg_basebackup", "psql")
PORTS = ("4731", "4732", "4733", "5441", "5442")


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory of a user who may run PostgreSQL."""
    with tempfile.TemporaryDirectory(prefix="cluster-page-") as name:
        place = Path(name)
        owned_by_other_user(place)
        yield place
        for data in ("db1", "db2"):
            command = run_as_user([require_program("pg_ctl"), "-D", str(place / data), "-m", "immediate", "stop"])
            subprocess.run(command, capture_output=True, check=False)


def test_from_nothing_to_three_nodes(place: Path, tmp_path: Path) -> None:
    for name in PROGRAMS:
        program = tmp_path / name
        command = " ".join(run_as_user([require_program(name)]))
        program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        program.chmod(0o755)
    switchgear = tmp_path / "switchgear"
    switchgear.write_text(f'#!/bin/sh\nexec {sys.executable} -m switchgear "$@"\n')
    switchgear.chmod(0o755)
    Reader(DOCS / "howto" / "cluster.md", place, does_commands=True, programs=tmp_path, ports=PORTS).read()
