"""The SQLite schema: opening the file, tables, migrations, and statements."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final, Literal

from switchgear.errors import SchemaTooNew, StorageError

__all__ = ["COLUMNS", "MIGRATIONS", "STATEMENTS", "Sync", "advice", "connect", "migrate", "put_jobs_sql"]

Sync = Literal["full", "normal"]

APPLICATION_ID: Final = 0x53574752

# Another program (a backup, the sqlite3 shell) may lock the file for a moment. If that takes longer than this, a commit
# fails, which its caller can report and repeat.
BUSY_TIMEOUT_S: Final = 5.0

# A checkpoint copies pages from the log into the file and syncs both. With the usual 1000 pages a busy server would
# have one after every few commits, and copy the same hot pages each time.
CHECKPOINT_PAGES: Final = 4000

# The maximum size of the log file after a burst, once its contents are in the database.
LOG_SIZE_LIMIT_BYTES: Final = 64 * 1024 * 1024

# In the order of `sqlite_rows.job_row`; the payload follows as the last.
COLUMNS: Final = (
    "id",
    "function_id",
    "state",
    "priority",
    "delivery",
    "created_us",
    "run_at_us",
    "finished_us",
    "attempts",
    "result_code",
    "revision",
    "unique_key",
    "name",
    "extra",
    "moves",
    "result",
    "error",
    "keep_until_us",
    "unique_until_us",
)


def _read_migrations() -> dict[int, str]:
    """The migration scripts by the version that they lead to."""
    scripts = {}
    for file in resources.files(__package__).joinpath("sql").iterdir():
        numbered = re.fullmatch(r"(\d{3})_\w+\.sql", file.name)
        if numbered:
            scripts[int(numbered[1])] = file.read_text(encoding="utf-8")
    return dict(sorted(scripts.items()))


def _read_statements() -> dict[str, str]:
    text = resources.files(__package__).joinpath("sql", "statements.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    columns = ", ".join(COLUMNS)
    listed = ", ".join("x''" if column == "result" else column for column in COLUMNS)
    return {
        name: body.strip().replace("$columns", columns).replace("$listed", listed)
        for name, body in zip(parts[1::2], parts[2::2])
    }


MIGRATIONS: Final = _read_migrations()
STATEMENTS: Final = _read_statements()


@cache
def put_jobs_sql(count: int) -> str:
    """The statement that inserts or updates this many rows at once."""
    row = f"({', '.join('?' * (len(COLUMNS) + 1))})"
    return STATEMENTS["put_jobs"].replace("$rows", ", ".join([row] * count))


def connect(path: Path, sync: Sync, *, any_thread: bool = False) -> sqlite3.Connection:
    """A connection in write-ahead mode that begins and ends transactions only when told to."""
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=not any_thread)
    try:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StorageError(f"{path}: its file system cannot hold a write-ahead log (journal mode {mode})")
        connection.execute(f"PRAGMA synchronous = {sync}")
        connection.execute("PRAGMA fullfsync = ON")  # only macOS has a weaker fsync; no effect elsewhere
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_SIZE_LIMIT_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection


def advice(error: Exception) -> str:
    """Advice for a file that SQLite cannot read, to be added to the error."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return "; restore a backup, or move the file away with its -wal and -shm to begin with an empty one"
    return ""


def migrate(connection: sqlite3.Connection, path: Path, migrations: Mapping[int, str] = MIGRATIONS) -> None:
    """Migrate the schema to the newest version; each step is one transaction."""
    version = _version(connection, path)
    newest = max(migrations)
    if version > newest:
        raise SchemaTooNew(
            f"{path} has layout version {version}, this program knows versions up to {newest}: "
            f"it was written by a later Switchgear"
        )
    for step in sorted(migrations):
        if step <= version:
            continue
        try:
            connection.executescript(f"BEGIN IMMEDIATE;\n{migrations[step]}\nPRAGMA user_version = {step};\nCOMMIT;")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise StorageError(f"{path}: cannot bring its layout to version {step}: {error}") from error


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema's version, 0 for an empty file; refuses a database of another program."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    owner = int(connection.execute("PRAGMA application_id").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if owner != APPLICATION_ID and (version or owner or tables):
        raise StorageError(f"{path} is the database of another program")
    return version
