"""A PostgreSQL of our own: a cluster in a temporary directory, reached through a socket in it, gone afterwards.

It does not sync, since nothing in it outlives the tests.  PostgreSQL refuses to run as root, so for root it runs as the
user that Debian's package has made for it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from tests.support.peers import require_program
from tests.support.waiting import DEADLINE_SECONDS, eventually

USER = "switchgear"

# One process runs all tests with PostgreSQL, so that it is started once.
POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.xdist_group("postgresql"))


class Cluster:
    """A running PostgreSQL."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "--auth=trust", f"--username={USER}", "--encoding=UTF8", "--no-locale", "--no-sync")
        self.start()

    def start(self) -> None:
        settings = {
            "listen_addresses": "",
            "fsync": "off",
            "shared_buffers": "16MB",
            "unix_socket_directories": self._place,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self._place / "log").open("ab") as log:
            command = [require_program("postgres"), "-D", str(self._data), *options]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._place, **_as_user()
            )
        eventually(self._answers, "PostgreSQL answers")

    def stop(self) -> None:
        """Hang up on everybody, and end."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(DEADLINE_SECONDS)
            self._process = None

    def new_url(self) -> str:
        """Where a test has everything for itself: a schema of its own."""
        schema = f"test_{next(self._numbers)}"
        self.execute(f"CREATE SCHEMA {schema}")
        return f"{self._url}&options={quote(f'-csearch_path={schema}')}"

    def execute(self, statement: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def hang_up(self) -> None:
        """End every connection, as a restart or a firewall does."""
        self.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

    @property
    def _url(self) -> str:
        return f"postgresql://{USER}@/postgres?host={quote(str(self._place), safe='')}"

    @property
    def _data(self) -> Path:
        return self._place / "data"

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._place / "log").read_text()
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        command = [require_program(program), "-D", str(self._data), *arguments]
        done = subprocess.run(command, cwd=self._place, capture_output=True, text=True, check=False, **_as_user())
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def running_postgres() -> Iterator[Cluster]:
    require_program("initdb")  # skips the test before anything is made
    place = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        if os.geteuid() == 0:
            os.chown(place, *_other_user())
        cluster = Cluster(place)
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(place)


def _other_user() -> tuple[int, int]:
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise AssertionError("there is no user to run PostgreSQL as")


def _as_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    user, group = _other_user()
    return {"user": user, "group": group, "extra_groups": []}
