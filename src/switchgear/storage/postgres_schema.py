"""The PostgreSQL schema: statements, migrations.

Locks. Every commit of a server locks the row of `sg_lease` before anything else, or its row of `sg_node`, and a
migration locks all tables as a whole, these two first. Reads use several tables in any order, so a migration waits for
its locks only for a moment, and less than PostgreSQL waits before it looks for deadlocks. Then it lets go of all of
them, so that the reads can end, and tries again. A server reads the version first, and locks nothing if it is the right
one: `CREATE TABLE IF NOT EXISTS` locks even if there is nothing to create.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from switchgear.errors import SchemaTooNew, StorageError
from switchgear.postgresql import connect
from switchgear.storage.postgres_connection import Statement
from switchgear.storage.postgres_rows import ARRAY_TYPES
from switchgear.storage.sqlite_schema import COLUMNS
from switchgear.text import in_one_line, without_secrets

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

__all__ = ["MIGRATIONS", "STATEMENTS", "layout_version", "migrate"]

# An advisory lock for migrations, with an arbitrary number.
MIGRATION_LOCK: Final = 0x53574753

# What a job was submitted with never changes.
UNCHANGING: Final = frozenset({"id", "function_id", "created_us", "name"})

# Waiting for a lock, or for a migration, ends after so long.
TIMEOUTS_MS: Final = {"lock_timeout": 10_000, "statement_timeout": 600_000, "idle_in_transaction_session_timeout": 0}
ONE_TRY_MS: Final = 300  # PostgreSQL looks for deadlocks after a second
PAUSE_SECONDS: Final = 0.05  # between two tries, in which others go on
TRIES: Final = 10_000 // ONE_TRY_MS
LOCKED_FIRST: Final = ("sg_lease", "sg_node")  # by commits, too
LOCK_NOT_AVAILABLE: Final = ("55P03", "40P01")  # SQLSTATEs: it took too long, or would have for ever


def _read_migrations() -> dict[int, str]:
    """The migration scripts by the version that they lead to."""
    scripts = {}
    for file in resources.files(__package__).joinpath("sql", "postgres").iterdir():
        numbered = re.fullmatch(r"(\d{3})_\w+\.sql", file.name)
        if numbered:
            scripts[int(numbered[1])] = file.read_text(encoding="utf-8")
    return dict(sorted(scripts.items()))


def _read_statements() -> dict[str, Statement]:
    text = resources.files(__package__).joinpath("sql", "postgres", "statements.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    bodies = dict(zip(parts[1::2], parts[2::2]))
    without_comment = {name: re.sub(r"^--.*\n", "", body, flags=re.MULTILINE).strip() for name, body in bodies.items()}
    moved = (f"{'job' if column in UNCHANGING else 'e'}.{column} AS {column}" for column in COLUMNS)
    replacements = {
        "$columns": ", ".join(COLUMNS),
        "$arrays": ", ".join(f"${number}::{name}[]" for number, name in enumerate(ARRAY_TYPES, 1)),
        "$count": f"${len(ARRAY_TYPES) + 1}",
        "$changes": ", ".join(f"{column} = e.{column}" for column in COLUMNS if column not in UNCHANGING),
        "$moved": ", ".join(moved),
        "$is_plain": without_comment["is_plain"],
    }
    statements = {}
    for name, body in without_comment.items():
        for placeholder, replacement in replacements.items():
            body = body.replace(placeholder, replacement)
        statements[name] = Statement(f"sg_{name}".encode(), body.encode())
    return statements


MIGRATIONS: Final = _read_migrations()
STATEMENTS: Final = _read_statements()


def migrate(
    parameters: Mapping[str, Any], url: str, migrations: Mapping[int, str] = MIGRATIONS, *, only_create: bool = False
) -> None:
    """Migrate the schema to the newest version in one transaction, on a connection of its own; blocks.

    With `only_create`, an older schema stays as it is: only the owner of the jobs migrates it. Raises SchemaTooNew for
    a newer schema, and StorageError if it cannot be migrated.
    """
    from psycopg import Error

    try:
        pgconn = connect(parameters)
    except StorageError as error:
        raise StorageError(f"{without_secrets(url)} cannot be reached: {without_secrets(str(error), url)}") from error
    try:
        _migrate(pgconn, without_secrets(url), migrations, only_create)
    except SchemaTooNew:
        raise
    except (Error, StorageError) as error:
        reason = in_one_line(without_secrets(str(error), url))
        raise StorageError(f"{without_secrets(url)} cannot be used as a job store: {reason}") from error
    finally:
        pgconn.finish()


def layout_version(pgconn: PGconn) -> int:
    """The version of the schema, 0 if there is none.

    The catalogue is read, and not `to_regclass`, which answers from a cache: it would not see a table that another
    process made while this one waited for the lock.
    """
    found = _run(
        pgconn,
        "SELECT count(*) FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE c.relname = 'sg_meta' AND n.nspname = ANY (current_schemas(false))",
    )
    if found == "0":
        return 0
    return int(_run(pgconn, "SELECT coalesce(max(value), 0) FROM sg_meta WHERE key = 'version'"))


def _migrate(pgconn: PGconn, url: str, migrations: Mapping[int, str], only_create: bool) -> None:
    newest = max(migrations)
    # One transaction from the beginning: what it sets is gone afterwards, also in a session of a pooler.
    settings = "; ".join(f"SET LOCAL {setting} = {milliseconds}" for setting, milliseconds in TIMEOUTS_MS.items())
    _run(pgconn, f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {settings}")
    version = layout_version(pgconn)
    if version > newest:
        raise SchemaTooNew(
            f"{url} has layout version {version}, this program knows versions up to {newest}: "
            f"it was written by a later Switchgear"
        )
    if version == newest or (version and only_create):
        return
    _run(pgconn, f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
    version = layout_version(pgconn)  # another process may have migrated meanwhile
    if version:
        _lock_tables(pgconn, _tables_of(migrations, version))
    for step in sorted(migrations):
        if step > version:
            _run(pgconn, migrations[step])
    if version < newest:
        _run(
            pgconn,
            f"INSERT INTO sg_meta (key, value) VALUES ('version', {newest})"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        )
    _run(pgconn, "COMMIT")


def _tables_of(migrations: Mapping[int, str], version: int) -> list[str]:
    """The tables of this version, those that commits lock first before the others.

    Without `sg_meta`, which others that wait to migrate have read.
    """
    scripts = "\n".join(migrations[step] for step in sorted(migrations) if step <= version)
    others = set(re.findall(r"^CREATE TABLE (\w+)", scripts, re.MULTILINE)) - {"sg_meta", *LOCKED_FIRST}
    return [*LOCKED_FIRST, *sorted(others)]


def _lock_tables(pgconn: PGconn, tables: list[str]) -> None:
    """Lock the tables in this transaction, so that nobody reads or writes them until it ends."""
    lock = f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE"
    _run(pgconn, f"SET LOCAL lock_timeout = {ONE_TRY_MS}")
    for tries_left in reversed(range(TRIES)):
        _run(pgconn, "SAVEPOINT unlocked")
        try:
            _run(pgconn, lock)
            break
        except LockNotAvailable:
            if not tries_left:
                raise
        _run(pgconn, "ROLLBACK TO SAVEPOINT unlocked")
        time.sleep(PAUSE_SECONDS)
    _run(pgconn, f"SET LOCAL lock_timeout = {TIMEOUTS_MS['lock_timeout']}")


class LockNotAvailable(StorageError):
    """Others hold the lock, for longer than this transaction may wait."""


def _run(pgconn: PGconn, text: str) -> str:
    """The first value of the answer; raises StorageError."""
    from psycopg import pq

    result = pgconn.exec_(text.encode())
    if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        code = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        raise (LockNotAvailable if code in LOCK_NOT_AVAILABLE else StorageError)(result.get_error_message())
    value: Any = result.get_value(0, 0) if result.ntuples else None
    return "" if value is None else bytes(value).decode()
