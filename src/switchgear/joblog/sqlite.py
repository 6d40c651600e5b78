"""The job log in an SQLite file, which any number of processes of one machine may use at once."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from switchgear.errors import ConfigError, StorageError
from switchgear.joblog.database import Answer, Ask, ConnectionLost, Database, Server, read_migrations, read_statements
from switchgear.joblog.runs import RunRow

__all__ = ["SqliteDatabase"]

log = logging.getLogger("switchgear")

Result = TypeVar("Result")

MIGRATIONS: Final = read_migrations("sqlite")
STATEMENTS: Final = read_statements("sqlite")

APPLICATION_ID: Final = 0x5357474C  # "SWGL", so that another program's database is not taken for ours

# Other processes write too, each for some milliseconds; only a checkpoint on a slow disk takes longer.
BUSY_TIMEOUT_S: Final = 10.0
BUSY_PAUSE_S: Final = 0.01

# A checkpoint syncs, and the store needs the disk too: better seldom.
CHECKPOINT_PAGES: Final = 8000
LOG_SIZE_LIMIT_BYTES: Final = 64 * 1024 * 1024

# A statement is prepared once for each of these numbers of rows, and a batch is padded to the next. While values are
# bound no other thread of this process can run, which for the largest is half a millisecond.
STATEMENT_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
FILLER: Final = (0,) * 17


class SqliteDatabase(Database[sqlite3.Connection]):
    """The file at `path`; without `create` it must exist."""

    statements = STATEMENTS

    def __init__(self, path: Path, *, create: bool = True, migrations: Mapping[int, str] = MIGRATIONS) -> None:
        super().__init__()
        self.path = path.absolute()
        self.url = f"sqlite:{self.path}"  # also for those who are told of it, and work in another directory
        self._create = create
        self._file = (0, 0)  # device and inode of the open file
        self._migrations = migrations

    @classmethod
    def at(cls, place: str, *, create: bool = True) -> SqliteDatabase:
        """The database of a path as it stands after `sqlite:`."""
        if not place:
            raise ConfigError("job log 'sqlite:': expected the path of a file after sqlite:")
        if place.startswith("//"):
            plain = f"sqlite:{place.lstrip('/')}"
            raise ConfigError(f"job log 'sqlite:{place}': expected a plain path after sqlite:, as in {plain}")
        if place == ":memory:":
            raise ConfigError(f"job log 'sqlite:{place}': it is for later, so it has to be a file")
        try:
            return cls(Path(place).expanduser(), create=create)
        except (RuntimeError, ValueError) as error:  # no such home directory, or a NUL in the path
            raise ConfigError(f"job log 'sqlite:{place}': {error}") from None

    def _connect(self) -> sqlite3.Connection:
        try:
            self._make_file()
            self._file = self._is_current_file()
            connection = sqlite3.connect(
                self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
        except (sqlite3.Error, OSError, ValueError) as error:
            raise StorageError(f"the job log {self.path} cannot be opened: {error}") from error
        try:
            self._prepare(connection)
        except (sqlite3.Error, ValueError) as error:
            connection.close()
            raise StorageError(f"{self.path} cannot be used as a job log: {error}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_file(self) -> None:
        if not self._create:
            if not self.path.exists():
                raise StorageError(f"there is no job log at {self.path}")
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite gives its log the mode of the file, so this keeps keys and errors from other users.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))

    def _is_current_file(self) -> tuple[int, int]:
        try:
            found = os.stat(self.path)
        except OSError:
            return 0, 0
        return found.st_dev, found.st_ino

    def _refuse_lost_file(self) -> None:
        """Raise if the file was deleted or replaced: what is written to it would be lost without an error."""
        if self._is_current_file() != self._file:
            log.warning("the job log %s was deleted or moved; logging continues in a new file", self.path)
            raise ConnectionLost(f"the job log {self.path} was deleted or moved")

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = self._version(connection)
        newest = max(self._migrations)
        self._check_version(version, newest)
        if not version and not self._create:
            raise StorageError(f"there is no job log at {self.path}, only an empty file")
        if version < newest:
            self._use_write_ahead_log(connection)
            self._migrate(connection)
        connection.create_aggregate("percentiles", 1, _Percentiles)  # type: ignore[arg-type]  # for its answer None
        connection.execute("PRAGMA synchronous = NORMAL")  # the last moments may be lost in a power failure
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_SIZE_LIMIT_BYTES}")

    def _version(self, connection: sqlite3.Connection) -> int:
        """The version of the schema, 0 for an empty file; raises for a database that is not a job log."""
        connection.execute("BEGIN")  # one snapshot for all three: another process may be migrating
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        owner = int(connection.execute("PRAGMA application_id").fetchone()[0])
        tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
        connection.execute("COMMIT")
        if owner != APPLICATION_ID and (version or owner or tables):
            raise StorageError(f"{self.path} is a database, but not a job log")
        return version

    def _use_write_ahead_log(self, connection: sqlite3.Connection) -> None:
        """Switch to the write-ahead log, with retries, because SQLite does not wait for other processes here."""
        give_up = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                break
            except sqlite3.OperationalError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(BUSY_PAUSE_S)
        if mode != "wal":
            raise StorageError(f"{self.path}: its file system cannot hold a write-ahead log (journal mode {mode})")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have migrated meanwhile.
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        for step in sorted(self._migrations):
            if step > version:
                for statement in _statements_of(self._migrations[step]):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {step}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")

    def _disconnect(self, connection: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):
            connection.close()

    def _transact(self, connection: sqlite3.Connection, work: Callable[[Ask], Result]) -> Result:
        def ask(statement: str, values: Mapping[str, Any]) -> Answer:
            cursor = connection.execute(statement, values)
            return Answer(cursor.fetchall(), cursor.rowcount)

        with self._translating_errors():
            # Opened for writing at once: a transaction that begins with a read may find that it cannot write any more.
            connection.execute("BEGIN IMMEDIATE")
            result = work(ask)
            connection.execute("COMMIT")
        return result

    def _query(
        self, connection: sqlite3.Connection, statement: str, values: Mapping[str, Any]
    ) -> Sequence[tuple[Any, ...]]:
        with self._translating_errors():
            return connection.execute(statement, values).fetchall()

    def _put(self, connection: sqlite3.Connection, server: Server, rows: Sequence[RunRow]) -> None:
        # 32,766 in any SQLite since 2020, 999 before; three values are the server's.
        most = (connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) - 3) // len(FILLER)
        sizes = STATEMENT_ROWS[: bisect_right(STATEMENT_ROWS, most)]
        self._refuse_lost_file()
        with self._translating_errors():
            if len(rows) <= sizes[-1]:
                # One statement is a transaction by itself. Each call releases the interpreter lock, and getting it back
                # from a busy event loop takes long: the fewer calls the better.
                _put_rows(connection, server, rows, sizes)
                return
            connection.execute("BEGIN IMMEDIATE")
            for start in range(0, len(rows), sizes[-1]):
                _put_rows(connection, server, rows[start : start + sizes[-1]], sizes)
            connection.execute("COMMIT")

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError):
            raise  # a defect of ours
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"the job log {self.path}: {error}") from error


class _Percentiles:
    """The 50th and the 99th percentile of some whole numbers, as a JSON array."""

    def __init__(self) -> None:
        self._numbers = array("q")

    def step(self, number: int | None) -> None:
        if number is not None:
            self._numbers.append(number)

    def finalize(self) -> str | None:
        numbers = sorted(self._numbers)
        if not numbers:
            return None
        return json.dumps([numbers[(len(numbers) * part + 99) // 100 - 1] for part in (50, 99)])


@cache
def _put_sql(count: int) -> str:
    row = f"({', '.join('?' * len(FILLER))})"
    return STATEMENTS["put_runs"].replace("$rows", ", ".join([row] * count))


def _put_rows(connection: sqlite3.Connection, server: Server, rows: Sequence[RunRow], sizes: Sequence[int]) -> None:
    size = sizes[bisect_left(sizes, len(rows))]
    values: list[Any] = [server.prefix, server.host, server.process]
    values.extend(chain.from_iterable(rows))
    values.extend(FILLER * (size - len(rows)))
    connection.execute(_put_sql(size), values)


def _statements_of(script: str) -> Iterator[str]:
    """The statements of a script one by one, because `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
