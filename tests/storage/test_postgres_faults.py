"""A PostgreSQL that others have configured, filled, locked and dropped: the store says why it fails, and goes on."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from switchgear.errors import Fenced, StorageError
from switchgear.storage.postgres import PostgresStore
from switchgear.storage.postgres_schema import STATEMENTS
from tests.storage.support import close, commit, function, new_job, read_payloads, run
from tests.support.postgres import Cluster, owned_by_other_user, running_pgbouncer, running_postgres
from tests.support.servers import HOST
from tests.support.waiting import eventually

pytestmark = pytest.mark.xdist_group("postgresql")

OTHER_ROLE = "stranger"

# How many sessions have locked the lease and do something.
HOLDERS = "SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"


class Database:
    """One of its own, so that nobody else is disturbed."""

    def __init__(self, cluster: Cluster, options: str = "") -> None:
        self._cluster = cluster
        self.name = cluster.new_database(options)
        self.url = f"postgresql://switchgear@{HOST}:{cluster.port}/{self.name}"

    def alter(self, text: str) -> None:
        self._cluster.execute(f"ALTER DATABASE {self.name} {text}")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def hang_up(self) -> None:
        self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.fixture
def database(postgres: Cluster) -> Database:
    return Database(postgres)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def opened(url: str, stack: ExitStack) -> PostgresStore:
    store = PostgresStore(url)
    store.open()
    stack.callback(close, store)
    return store


def commits_again(store: PostgresStore, job_id: int) -> bool:
    try:
        commit(store)
        commit(store, [new_job(job_id)])
    except StorageError:
        return False
    return True


class TestSettingsOfOthers:
    """An administrator has limited everybody: the server is not meant."""

    @pytest.mark.parametrize(
        "setting",
        [
            "statement_timeout = '30ms'",
            "lock_timeout = '1ms'",
            "idle_session_timeout = '200ms'",
            "idle_in_transaction_session_timeout = '50ms'",
            "default_transaction_read_only = on",
            "default_transaction_isolation = 'serializable'",
            "client_encoding = 'latin1'",
            "bytea_output = 'escape'",
            "standard_conforming_strings = off",
        ],
    )
    def test_a_setting_of_the_database(self, database: Database, stack: ExitStack, setting: str) -> None:
        database.alter(f"SET {setting}")
        store = opened(database.url, stack)
        assert not commit(store, [new_job(number, payload=bytes(1000)) for number in range(1, 9001)])
        run(store._writer.beat())
        assert len(read_payloads(store, range(1, 9001))) == 9000

    @pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
    def test_an_encoding(self, postgres: Cluster, stack: ExitStack, encoding: str) -> None:
        database = Database(postgres, f"ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
        store = opened(database.url, stack)
        name = "größe 日本 \U0001f600".encode()
        job = new_job(1, function(name), payload=b"\xff\x00\xfe")
        assert not commit(store, [job])
        store.lease.name = "node größe 日本 \U0001f600"
        assert run(store.lease.take(run(store.lease.look())))
        assert run(store.lease.look()).name == store.lease.name
        assert read_payloads(store, [1]) == {1: b"\xff\x00\xfe"}


class TestRights:
    def test_a_role_that_may_not_create_tables(self, database: Database) -> None:
        database.execute(f"DROP ROLE IF EXISTS {OTHER_ROLE}")
        database.execute(f"CREATE ROLE {OTHER_ROLE} LOGIN")
        url = database.url.replace("switchgear@", f"{OTHER_ROLE}@")
        with pytest.raises(StorageError, match=r"cannot be used as a job store: .*permission denied for schema public"):
            PostgresStore(url).open()

    def test_a_role_that_may_only_read(self, database: Database, stack: ExitStack) -> None:
        close(opened(database.url, ExitStack()))
        database.execute(f"DROP ROLE IF EXISTS {OTHER_ROLE}")
        database.execute(f"CREATE ROLE {OTHER_ROLE} LOGIN")
        database.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {OTHER_ROLE}")
        try:
            with pytest.raises(StorageError, match="permission denied for table sg_lease"):
                PostgresStore(database.url.replace("switchgear@", f"{OTHER_ROLE}@")).open()
        finally:
            database.execute(f"DROP OWNED BY {OTHER_ROLE}")

    def test_a_password_that_changes(self, tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        """Connections stay; new ones need the new one, which may come into the password file at any time."""
        cluster = stack.enter_context(running_postgres())
        database = Database(cluster)
        database.execute(f"CREATE ROLE {OTHER_ROLE} LOGIN PASSWORD 'one'")
        database.execute(f"ALTER DATABASE {database.name} OWNER TO {OTHER_ROLE}")
        cluster.require_passwords()
        passwords = tmp_path / "passwords"
        monkeypatch.setenv("PGPASSFILE", str(passwords))

        def write(password: str) -> None:
            passwords.write_text(f"*:*:*:{OTHER_ROLE}:{password}\n")
            passwords.chmod(0o600)

        write("one")
        store = opened(database.url.replace("switchgear@", f"{OTHER_ROLE}@"), stack)
        cluster.execute(f"ALTER ROLE {OTHER_ROLE} PASSWORD 'two'")
        commit(store, [new_job(1)])
        cluster.hang_up()
        with pytest.raises(StorageError, match=r"password authentication failed|connection was lost"):
            commit(store, [new_job(2)])
        with pytest.raises(StorageError, match="password authentication failed"):
            commit(store)
        write("two")
        eventually(lambda: commits_again(store, 3), "the store works again")
        assert set(read_payloads(store, [1, 2, 3])) == {1, 2, 3}


class TestWithoutRoom:
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
    def test_the_disk_is_full(self, stack: ExitStack) -> None:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="postgres-small-")))
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", place], check=False).returncode:
            pytest.skip("nothing can be mounted here")
        stack.callback(lambda: subprocess.run(["umount", "-l", place], check=True))
        owned_by_other_user(place)
        cluster = stack.enter_context(running_postgres())
        cluster.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
        database = Database(cluster)
        store = opened(database.url, stack)
        database.execute("ALTER TABLE sg_job SET TABLESPACE small")
        database.execute("CREATE TABLE filler TABLESPACE small AS SELECT repeat('x', 999) FROM generate_series(1, 999)")
        commit(store, [new_job(1)])
        jobs = [new_job(number, payload=bytes(1000)) for number in range(2, 10_000)]
        with pytest.raises(StorageError, match="No space left on device"):
            commit(store, jobs)
        run(store._writer.beat())  # the lease is kept
        with pytest.raises(StorageError, match="No space left on device"):
            commit(store)
        store.unstage(jobs)  # the server refuses them
        database.execute("DROP TABLE filler")
        eventually(lambda: commits_again(store, 10_000), "the store works again")
        assert set(read_payloads(store, [1, 2, 10_000])) == {1, 10_000}

    def test_no_connections_are_left(self, stack: ExitStack) -> None:
        cluster = stack.enter_context(running_postgres(max_connections=6, superuser_reserved_connections=0))
        url = cluster.new_url()
        store = opened(url, stack)
        commit(store, [new_job(1)])
        cluster.hang_up()
        others = [psycopg.connect(url)]
        while len(others) < 6:  # some of them may be taken for a moment by sessions that are ending
            with suppress(psycopg.OperationalError):
                others.append(psycopg.connect(url))
        with pytest.raises(StorageError):
            commit(store, [new_job(2)])
        with pytest.raises(StorageError, match="too many clients"):
            commit(store)
        with pytest.raises(StorageError, match="too many clients"):
            PostgresStore(url).open()
        for other in others:
            other.close()
        eventually(lambda: commits_again(store, 3), "the store works again")
        assert set(read_payloads(store, [1, 2, 3])) == {1, 2, 3}


class TestSomethingElseInItsPlace:
    def test_a_database_that_is_dropped(self, database: Database, postgres: Cluster, stack: ExitStack) -> None:
        """And created again by another server: what the first one knows must not be mixed with what is there."""
        store = opened(database.url, stack)
        commit(store, [new_job(1)])
        postgres.execute(f"DROP DATABASE {database.name} WITH (FORCE)")
        with pytest.raises(StorageError, match=r"connection was lost|does not exist"):
            commit(store, [new_job(2)])
        with pytest.raises(StorageError, match="does not exist"):
            commit(store)
        postgres.execute(f"CREATE DATABASE {database.name}")
        with pytest.raises(StorageError, match="does not exist"):
            commit(store)
        opened(database.url, stack)
        with pytest.raises(Fenced):
            commit(store)

    def test_a_name_that_leads_elsewhere(
        self, database: Database, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Names are looked up for each new connection."""
        addresses = [HOST]
        find = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", lambda name, *rest, **options: find(addresses[0], *rest, **options))
        store = opened(database.url.replace(HOST, "db.example.org"), stack)
        commit(store, [new_job(1)])
        addresses[0] = "127.0.0.9"  # nobody is there
        database.hang_up()
        with pytest.raises(StorageError):
            commit(store, [new_job(2)])
        with pytest.raises(StorageError, match=r"127\.0\.0\.9"):
            commit(store)
        addresses[0] = HOST
        eventually(lambda: commits_again(store, 3), "the store works again")

    def test_a_pooler_that_restarts(self, postgres: Cluster, stack: ExitStack) -> None:
        database = postgres.new_database()
        with running_pgbouncer(postgres) as port:
            store = opened(f"postgresql://switchgear@{HOST}:{port}/{quote(database)}", stack)
            commit(store, [new_job(1)])
        with pytest.raises(StorageError):
            commit(store, [new_job(2)])
        with running_pgbouncer(postgres, port):
            eventually(lambda: commits_again(store, 3), "the store works again")
            assert set(read_payloads(store, [1, 2, 3])) == {1, 2, 3}
            close(store)


class TestASnapshotThatIsHeld:
    """By a backup or a forgotten session: versions of rows that were replaced stay until it ends."""

    def test_commits_leave_no_versions_of_the_lease(self, database: Database, stack: ExitStack) -> None:
        store = opened(database.url, stack)
        versions = set()
        for number in range(1, 20):
            commit(store, [new_job(number)])
            versions |= set(database.execute("SELECT ctid::text, xmin::text FROM sg_lease"))
        assert len(versions) == 1

    def test_commits_are_signs_of_life(self, database: Database, stack: ExitStack) -> None:
        """From time to time, or a server that is never idle would give none."""
        store = opened(database.url, stack)
        store.lease.lease_seconds = 0.2
        before = run(store.lease.look())
        begun_s = time.monotonic()
        for number in count(1):
            commit(store, [new_job(number)])
            if time.monotonic() - begun_s > 0.5:
                break
        assert run(store.lease.look()).beat - before.beat >= 2


class TestFrozenInATransaction:
    """A server that stands still between the fence and the end of a commit holds the lock of the lease."""

    @pytest.mark.parametrize("is_waited_for", [True, False])
    def test_a_takeover_goes_on(self, database: Database, stack: ExitStack, is_waited_for: bool) -> None:
        frozen = PostgresStore(database.url, lease_seconds=0.5)
        frozen.open()
        stack.callback(frozen._writer.connection.close)
        begin, fence = STATEMENTS["begin"], frozen.lease.fence()
        database.execute("UPDATE sg_lease SET process = ''")  # its process could be seen to live

        async def freeze_and_take_over() -> None:
            await frozen._writer.connection.run([(begin, ()), fence])
            begun_s = time.monotonic()
            other = PostgresStore(database.url, lease_seconds=0.5)
            await other._writer.connection.open()
            try:
                if is_waited_for:
                    await other.lease.wait_until_taken(_ignore)
                else:
                    await other.lease.acquire()
                assert time.monotonic() - begun_s < 10
                with suppress(StorageError):  # its session was ended, which the connection may have noticed before
                    await frozen._writer.connection.run([(STATEMENTS["commit"], ())])
                with pytest.raises(Fenced):
                    await frozen._writer.beat()
            finally:
                other._writer.connection.close()

        run(freeze_and_take_over())


def test_taking_the_lease_does_not_end_a_session_that_is_busy_with_it(database: Database, stack: ExitStack) -> None:
    """Servers that start at the same moment would end each other's attempts without end."""
    close(opened(database.url, stack))
    busy = stack.enter_context(psycopg.connect(database.url, autocommit=True))

    def hold() -> None:
        busy.execute("BEGIN; SELECT 1 FROM sg_lease FOR UPDATE")
        busy.execute("SELECT pg_sleep(0.9)")
        busy.execute("COMMIT")

    async def story() -> bool:
        other = PostgresStore(database.url, lease_seconds=0.5)
        await other._writer.connection.open()
        try:
            seen = await other.lease.look()
            holder = asyncio.create_task(asyncio.to_thread(hold))
            await asyncio.to_thread(eventually, lambda: database.execute(HOLDERS) == [(1,)], "the lease is locked")
            has_taken = await other.lease.take(seen)
            await holder
            return has_taken
        finally:
            other._writer.connection.close()

    assert run(story())


async def _ignore(_: object) -> None:
    pass
