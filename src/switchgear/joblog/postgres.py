"""The job log in a PostgreSQL database, which any number of machines may share.

Needs psycopg 3: `pip install 'switchgear[postgres]'`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from switchgear.errors import StorageError
from switchgear.joblog.database import Answer, Ask, ConnectionLost, Database, Server, read_migrations, read_statements
from switchgear.joblog.runs import RunRow
from switchgear.postgresql import connection_parameters
from switchgear.text import without_secrets

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgresDatabase"]

Result = TypeVar("Result")

MIGRATIONS: Final = read_migrations("postgresql")
STATEMENTS: Final = read_statements("postgresql")

# An advisory lock for migrations, with an arbitrary number.
MIGRATION_LOCK: Final = 0x5357474C

encode = msgspec.json.Encoder().encode


class PostgresDatabase(Database["psycopg.Connection[tuple[Any, ...]]"]):
    """The database that a URL names; its tables are in the first schema of the search path."""

    statements = STATEMENTS

    def __init__(self, url: str, *, create: bool = True, migrations: Mapping[int, str] = MIGRATIONS) -> None:
        super().__init__()
        self._arguments: dict[str, Any] = connection_parameters(url, "job log")
        import psycopg

        self._psycopg = psycopg
        self.url = without_secrets(url)
        self._given_url = url
        self._create = create
        self._migrations = migrations

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        try:
            # Prepared statements would be lost on their way through a connection pooler.
            connection = self._psycopg.connect(autocommit=True, prepare_threshold=None, **self._arguments)
            connection.isolation_level = self._psycopg.IsolationLevel.READ_COMMITTED
        except (self._psycopg.Error, OSError, UnicodeError) as error:
            reason = without_secrets(str(error), self._given_url)
            raise ConnectionLost(f"the job log {self.url} cannot be reached: {reason}") from error
        try:
            self._prepare(connection)
        except self._psycopg.Error as error:
            self._disconnect(connection)
            raise StorageError(f"{self.url} cannot be used for the job log: {error}") from error
        except BaseException:
            self._disconnect(connection)
            raise
        return connection

    def _prepare(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        newest = max(self._migrations)
        version = self._version(connection)
        self._check_version(version, newest)
        if version == newest:
            return
        if not version and not self._create:
            raise StorageError(f"there is no job log in {self.url}")
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            version = self._version(connection)  # another process may have migrated meanwhile
            for step in sorted(self._migrations):
                if step > version:
                    connection.execute(self._migrations[step].encode())
            connection.execute("CREATE TABLE IF NOT EXISTS joblog_version (version BIGINT NOT NULL)")
            connection.execute("DELETE FROM joblog_version")
            connection.execute("INSERT INTO joblog_version (version) VALUES (%s)", (newest,))

    def _version(self, connection: psycopg.Connection[tuple[Any, ...]]) -> int:
        """The version of the schema, 0 if there is none.

        The catalogue is read, and not `to_regclass`, which answers from a cache: it would not see a table that another
        process made while we waited for the lock.
        """
        found = connection.execute(
            "SELECT 1 FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
            " WHERE c.relname = 'joblog_version' AND n.nspname = ANY (current_schemas(false))"
        ).fetchone()
        if found is None:
            return 0
        row = connection.execute("SELECT max(version) FROM joblog_version").fetchone()
        return int(row[0] or 0) if row is not None else 0

    def _disconnect(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        with suppress(self._psycopg.Error):
            connection.close()

    def _transact(self, connection: psycopg.Connection[tuple[Any, ...]], work: Callable[[Ask], Result]) -> Result:
        def ask(statement: str, values: Mapping[str, Any]) -> Answer:
            cursor = connection.execute(_translated(statement), values)
            return Answer(cursor.fetchall() if cursor.description else (), cursor.rowcount)

        with self._translating_errors(connection), connection.transaction():
            return work(ask)

    def _query(
        self, connection: psycopg.Connection[tuple[Any, ...]], statement: str, values: Mapping[str, Any]
    ) -> Sequence[tuple[Any, ...]]:
        with self._translating_errors(connection):
            return connection.execute(_translated(statement), values).fetchall()

    def _put(self, connection: psycopg.Connection[tuple[Any, ...]], server: Server, rows: Sequence[RunRow]) -> None:
        values = {
            "prefix": server.prefix,
            "host": server.host,
            "process": server.process,
            "rows": encode(rows).decode(),
        }
        self._transact(connection, lambda ask: ask(STATEMENTS["put_runs"], values))

    @contextmanager
    def _translating_errors(self, connection: psycopg.Connection[tuple[Any, ...]]) -> Iterator[None]:
        try:
            yield
        except (self._psycopg.OperationalError, self._psycopg.InterfaceError, OSError) as error:
            kind = ConnectionLost if connection.broken or connection.closed else StorageError
            raise kind(f"the job log {self.url}: {error}") from error


@lru_cache(maxsize=256)
def _translated(statement: str) -> bytes:
    """A statement with `:name` parameters rewritten to psycopg's `%(name)s`."""
    return re.sub(r"(?<!:):([a-z_]+)", r"%(\1)s", statement).encode()
