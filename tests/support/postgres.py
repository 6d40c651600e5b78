"""A PostgreSQL of our own: a cluster in a temporary directory, reached through a socket in it or a loopback port.

It does not sync, since nothing in it outlives the tests.  PostgreSQL refuses to run as root, so for root it runs as the
user that Debian's package has made for it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from tests.support.peers import require_program
from tests.support.servers import HOST, free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually

USER = "switchgear"

# One process runs all tests with PostgreSQL, so that it is started once.
POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.xdist_group("postgresql"))


class Cluster:
    """A running PostgreSQL."""

    def __init__(self, place: Path, settings: Mapping[str, object], primary: Cluster | None = None) -> None:
        """`primary` is the one of which this is a standby."""
        self._place = place
        self._numbers = count(1)
        self.port = free_port()
        self.settings = dict(settings)  # more of them, from the next start on
        self._process: subprocess.Popen[bytes] | None = None
        if primary is None:
            self._run("initdb", "--auth=trust", f"--username={USER}", "--encoding=UTF8", "--no-locale", "--no-sync")
            self.start()
        else:
            self.follow(primary)

    def start(self) -> None:
        settings = {
            "listen_addresses": HOST,
            "port": self.port,
            "fsync": "off",
            "shared_buffers": "16MB",
            # A standby that was away comes back soon, and finds what it has missed.
            "wal_retrieve_retry_interval": "200ms",
            "wal_keep_size": "256MB",
            "unix_socket_directories": self._place,
            **self.settings,
        }
        self._options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._launch()
        eventually(self._answers, "PostgreSQL answers")

    def _launch(self) -> None:
        with (self._place / "log").open("ab") as log:
            self._log_size = log.tell()
            command = [require_program("postgres"), "-D", str(self._data), *self._options]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._place, **_as_user()
            )

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Hang up on everybody, and end: fast, or immediately with SIGQUIT, or as a crash with SIGKILL."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(DEADLINE_SECONDS)
            self._process = None

    def freeze(self) -> None:
        """No process of it runs, until `thaw`."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        parents = [self._process.pid]
        for process in parents:
            with suppress(ProcessLookupError, FileNotFoundError):  # a process of a connection may end meanwhile
                os.kill(process, number)
                parents += map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())

    def new_url(self, port: int = 0) -> str:
        """Where a test has everything for itself: a schema of its own; through the socket, or at a loopback port."""
        schema = f"test_{next(self._numbers)}"
        self.execute(f"CREATE SCHEMA {schema}")
        url = f"postgresql://{USER}@{HOST}:{port}/postgres?sslmode=prefer" if port else self._url
        return f"{url}&options={quote(f'-csearch_path={schema}')}"

    def new_database(self, options: str = "") -> str:
        """The name of a new database."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} {options}")
        return name

    def execute(self, statement: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def follow(self, primary: Cluster) -> None:
        """Begin as a standby with a copy of this primary; it may have been another one's primary before."""
        if self._data.exists():
            shutil.rmtree(self._data)
        server = ("-h", HOST, "-p", str(primary.port), "-U", USER)
        self._run("pg_basebackup", *server, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        self.start()

    def await_standby(self) -> None:
        """From now on no commit is acknowledged that the standby does not have."""
        self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.execute("SELECT pg_reload_conf()")
        eventually(self._has_synchronous_standby, "the standby follows")

    def _has_synchronous_standby(self) -> bool:
        with psycopg.connect(self._url, autocommit=True) as connection:
            rows = connection.execute(b"SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").fetchall()
            return bool(rows)

    def promote(self) -> None:
        """Let this standby go on without its primary, and without a standby of its own."""
        self._run("pg_ctl", "promote")  # a statement could be in the way of the last changes
        self.execute("ALTER SYSTEM RESET synchronous_standby_names")
        self.execute("SELECT pg_reload_conf()")

    def require_passwords(self) -> None:
        """From now on whoever comes over the network needs one."""
        (self._data / "pg_hba.conf").write_text("local all all trust\nhost all all all scram-sha-256\n")
        self.execute("SELECT pg_reload_conf()")

    def use_tls(self) -> Path:
        """Restart with a certificate of its own, whose path this returns."""
        with psycopg.connect(self._url) as connection:
            if connection.execute(b"SHOW ssl_library").fetchall() == [("",)]:
                pytest.skip("this PostgreSQL was built without OpenSSL")
        certificate, key = self._place / "server.crt", self._place / "server.key"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        command += ["-addext", f"subjectAltName=IP:{HOST}", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(command, check=True, capture_output=True)
        if os.geteuid() == 0:
            os.chown(key, *_other_user())
        key.chmod(0o600)
        self.settings |= {"ssl": "on", "ssl_cert_file": certificate, "ssl_key_file": key}
        self.stop()
        self.start()
        return certificate

    def hang_up(self) -> None:
        """End every connection, as a restart or a firewall does; they have ended when this returns."""
        self.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

    @property
    def _url(self) -> str:
        return f"postgresql://{USER}@/postgres?host={quote(str(self._place), safe='')}&port={self.port}"

    @property
    def _data(self) -> Path:
        return self._place / "data"

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            log = (self._place / "log").read_text()[self._log_size :]
            # Processes of one that was killed take a moment to notice; another program may have the port for a moment.
            assert "is still in use" in log or "could not bind" in log, log
            self._launch()
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
def running_postgres(**settings: object) -> Iterator[Cluster]:
    require_program("initdb")  # skips the test before anything is made
    place = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        owned_by_other_user(place)
        cluster = Cluster(place, settings)
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(place)


@contextmanager
def running_standby(primary: Cluster) -> Iterator[Cluster]:
    """A standby of a PostgreSQL, which waits for it with each commit."""
    require_program("pg_basebackup")
    place = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        owned_by_other_user(place)
        standby = Cluster(place, {}, primary)
        try:
            primary.await_standby()
            yield standby
        finally:
            standby.stop()
    finally:
        shutil.rmtree(place)


class ReplicatedPostgres:
    """A primary and its synchronous standby, which take turns."""

    def __init__(self, primary: Cluster, standby: Cluster) -> None:
        self.primary = primary
        self.standby = standby

    def new_url(self) -> str:
        """A schema of its own, at the one of the two that can be written."""
        hosts = f"{HOST}:{self.primary.port},{HOST}:{self.standby.port}"
        options = self.primary.new_url().partition("options=")[2]
        return f"postgresql://{USER}@{hosts}/postgres?target_session_attrs=read-write&options={options}"

    def fail_over(self) -> None:
        """The primary crashes, the standby goes on, and the other one becomes its standby."""
        self.primary.stop(signal.SIGKILL)
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary
        self.standby.follow(self.primary)
        self.primary.await_standby()


@contextmanager
def running_pgbouncer(cluster: Cluster, port: int = 0) -> Iterator[int]:
    """The port of a pgbouncer in transaction mode."""
    program = require_program("pgbouncer")
    place = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
    port = port or free_port()
    settings = {
        "listen_addr": HOST,
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "any",
        "pool_mode": "transaction",
        "default_pool_size": 2,  # fewer than a server has connections
        "logfile": place / "log",
    }
    lines = ["[databases]", f"* = host={HOST} port={cluster.port} user={USER}", "[pgbouncer]"]
    lines += [f"{name} = {value}" for name, value in settings.items()]
    (place / "pgbouncer.ini").write_text("\n".join(lines))
    try:
        owned_by_other_user(place)
        process = subprocess.Popen([program, "-q", str(place / "pgbouncer.ini")], cwd=place, **_as_user())
        try:
            eventually(lambda: _connects(port), "pgbouncer listens")
            yield port
        finally:
            process.terminate()
            process.wait(DEADLINE_SECONDS)
    finally:
        shutil.rmtree(place)


def _connects(port: int) -> bool:
    try:
        socket.create_connection((HOST, port)).close()
    except OSError:
        return False
    return True


def _other_user() -> tuple[int, int]:
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise AssertionError("there is no user to run PostgreSQL as")


def owned_by_other_user(place: Path) -> None:
    """Give a directory to the user that PostgreSQL runs as, if it cannot run as ours."""
    if os.geteuid() == 0:
        os.chown(place, *_other_user())


def run_as_user(command: list[str]) -> list[str]:
    """The command, run as the user that PostgreSQL runs as."""
    if os.geteuid() != 0:
        return command
    user, group = _other_user()
    return [require_program("setpriv"), f"--reuid={user}", f"--regid={group}", "--clear-groups", *command]


def _as_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    user, group = _other_user()
    return {"user": user, "group": group, "extra_groups": []}
