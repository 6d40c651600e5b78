"""`Writer`: the writing connection of the SQLite store, and its transactions.

Everything here runs in the store's writer thread. The engine's thread is busy meanwhile, and both share the interpreter
lock. sqlite3 releases it at every step of a statement, and getting it back from a busy thread takes the switch
interval, 5 ms, or sometimes much longer. With `executemany`, one step a row, a thousand rows then take seconds (300
rows/s were measured beside a busy loop). So a batch is one statement of as many rows, and SQLite processes it while the
engine runs.

Long values are an exception: sqlite3 copies values that it binds, and holds the lock meanwhile, 20 ms for 30 MiB. So a
long value is bound as its length, and written in pieces into the space that SQLite has reserved for it.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from switchgear.errors import StorageError
from switchgear.storage.function_rows import FunctionRow
from switchgear.storage.sqlite_rows import ERROR, ID, LONG_VALUE_BYTES, PAYLOAD, RESULT, REVISION, JobRow, clamped
from switchgear.storage.sqlite_schedules import ScheduleRow
from switchgear.storage.sqlite_schema import STATEMENTS, Sync, advice, connect, migrate, put_jobs_sql

__all__ = ["Work", "Writer"]

# A statement is prepared once for each of these numbers of rows, and a batch is padded to the next of them. The steps
# are small, so little is wasted, and the largest one blocks the engine's thread for 1 ms while values are bound.
STATEMENT_ROWS: Final = tuple(
    sorted({1, 2, 3, 4, 5, 6, 7} | {step * 2**power for step in (4, 5, 6, 7) for power in range(1, 8)} | {1024})
)
FILLER: Final = (0,) * (PAYLOAD + 1)

# How many bytes of a long value are written at a time.
BLOB_PIECE_BYTES: Final = 262_144
LONG_COLUMNS: Final = ((RESULT, "result"), (ERROR, "error"))


class Work(NamedTuple):
    """The changes of one transaction."""

    jobs: Sequence[JobRow]
    payloads: Sequence[tuple[int, bytes]]  # payloads that are too long for their row
    functions: Sequence[FunctionRow]
    next_job_id: int  # 0: unchanged
    schedules: Sequence[tuple[bytes, ScheduleRow | None]] = ()  # by name; None: to be deleted


class Writer:
    """Writes and deletes rows. After an error the connection is replaced, so no broken transaction outlives its
    caller."""

    def __init__(self, path: Path, sync: Sync) -> None:
        self._path = path
        self._sync: Sync = sync
        self._connection: sqlite3.Connection | None = None
        # While this connection is open, closing another one neither merges the log nor deletes it.
        self._anchor: sqlite3.Connection | None = None
        self._in_doubt = False  # the last transaction failed, perhaps after it was stored

    def open(self) -> None:
        """Connect, and migrate the schema."""
        try:
            self._connection = connect(self._path, self._sync)
            migrate(self._connection, self._path)
            self._anchor = connect(self._path, self._sync, any_thread=True)
            self._anchor.execute("SELECT count(*) FROM meta").fetchone()  # opens the log
        except (sqlite3.Error, ValueError) as error:  # ValueError if SQLite quotes damaged text
            self.close()
            raise StorageError(f"{self._path} cannot be used as a job database: {error}{advice(error)}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections. The last one to close merges the log into the file."""
        self._discard()
        anchor, self._anchor = self._anchor, None
        if anchor is not None:
            with suppress(sqlite3.Error):
                anchor.close()

    def doubt(self) -> None:
        """Note that the last transaction may be in a file that a restart will not find; its changes will come again."""
        self._in_doubt = True

    def merge_log(self) -> None:
        """Merge the whole log into the database; raises StorageError if that is not possible.

        A new connection cannot do this: it would open whatever file has the log's name now.
        """
        if self._anchor is None:
            return  # then no connection has it open
        try:
            busy, _, _ = self._anchor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            raise StorageError(f"the log of {self._path} cannot be merged into it: {error}") from error
        if busy:
            raise StorageError(f"the log of {self._path} cannot be merged into it: it is being read")

    def _discard(self) -> None:
        """Close the connection; SQLite rolls back an open transaction."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def put(self, work: Work) -> list[int]:
        """Store everything or raise StorageError; returns the ids of jobs refused because of their revision."""
        try:
            refused = self._put(work)
        except OverflowError:  # a number beyond 64 bits, which only a peer can have sent
            refused = self._put(work._replace(jobs=[clamped(row) for row in work.jobs]))
        self._in_doubt = False
        return refused

    def drop(self, before: tuple[int, int], now_us: int, spare: str, limit: int) -> int:
        """Delete up to `limit` finished jobs whose time and id are below `before`, the oldest first, and as many
        whose own retention has passed at `now_us`. Jobs whose id is in the JSON array `spare`, or whose unique key
        is still held, stay."""
        parameters = {"finished_us": before[0], "id": before[1], "now_us": now_us, "spare": spare, "limit": limit}
        dropped = 0
        with self._transaction() as connection:
            for which in ("old_ids", "ids_kept_long_enough"):
                connection.execute(STATEMENTS["drop_payloads"].replace("$ids", STATEMENTS[which]), parameters)
                dropped += connection.execute(
                    STATEMENTS["drop_jobs"].replace("$ids", STATEMENTS[which]), parameters
                ).rowcount
        return dropped

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._connection is None:
                self._connection = connect(self._path, self._sync)
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection
            self._connection.execute("COMMIT")
        except (sqlite3.Error, OSError, ValueError) as error:  # ValueError if SQLite quotes damaged text
            self._in_doubt = True
            self._discard()
            raise StorageError(f"{self._path} cannot be written: {error}{advice(error)}") from error
        except BaseException:
            self._discard()
            raise

    def _put(self, work: Work) -> list[int]:
        with self._transaction() as connection:
            self._put_rows(connection, work)
            if self._put_jobs(connection, work.jobs) == len(work.jobs):
                return []
            # Some were refused. Which ones can be determined only before the others are changed.
            connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            known, refused = self._not_newer(connection, work.jobs)
            self._put_rows(connection, work)
            self._put_jobs(connection, [row for row in work.jobs if row[ID] not in known])
            return refused

    def _put_rows(self, connection: sqlite3.Connection, work: Work) -> None:
        """Write everything except the jobs."""
        if work.functions:
            connection.executemany(STATEMENTS["put_function"], work.functions)
        payloads = [row for row in work.payloads if len(row[1]) < LONG_VALUE_BYTES]
        if payloads:
            connection.executemany(STATEMENTS["put_payload"], payloads)
        for job_id, payload in work.payloads:
            if len(payload) < LONG_VALUE_BYTES:
                continue
            if connection.execute(STATEMENTS["put_long_payload"], (job_id, len(payload))).rowcount:
                _write_blob(connection, "payloads", "payload", job_id, payload)
        if work.next_job_id:
            connection.execute(STATEMENTS["put_next_job_id"], (work.next_job_id,))
        for name, row in work.schedules:
            if row is None:
                connection.execute(STATEMENTS["drop_schedule"], (name,))
            else:
                connection.execute(STATEMENTS["put_schedule"], row)

    def _put_jobs(self, connection: sqlite3.Connection, rows: Sequence[JobRow]) -> int:
        """Write the jobs; returns how many rows were newer than the stored ones."""
        long_rows = [row for row in rows if isinstance(row[RESULT], bytes) or isinstance(row[ERROR], bytes)]
        if long_rows:
            rows = [_without_long_values(row) for row in rows]
        changes = connection.total_changes
        # 32,766 in any SQLite since 2020, 999 before.
        most = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // len(FILLER)
        sizes = STATEMENT_ROWS[: bisect_right(STATEMENT_ROWS, most)]
        for start in range(0, len(rows), sizes[-1]):
            part = rows[start : start + sizes[-1]]
            size = sizes[bisect_left(sizes, len(part))]
            values = list(chain.from_iterable(part))
            values.extend(FILLER * (size - len(part)))
            connection.execute(put_jobs_sql(size), values)
        count = connection.total_changes - changes
        if count == len(rows):
            for row in long_rows:
                _put_long_values(connection, row)
        return count

    def _not_newer(self, connection: sqlite3.Connection, rows: Sequence[JobRow]) -> tuple[frozenset[int], list[int]]:
        """The jobs that need not be written, and those of them whose change is refused.

        They differ after an error in a transaction that was stored after all: the same revision is then our own.
        """
        ids = json.dumps([row[ID] for row in rows])
        stored: dict[int, int] = dict(connection.execute(STATEMENTS["revisions"], (ids,)))
        known = frozenset(row[ID] for row in rows if stored.get(row[ID], -1) >= row[REVISION])
        ours = self._in_doubt
        refused = [row[ID] for row in rows if row[ID] in known and not (ours and stored[row[ID]] == row[REVISION])]
        return known, refused


def _without_long_values(row: JobRow) -> JobRow:
    """The row with placeholders for values that are written separately."""
    values = list(row)
    for place, _ in LONG_COLUMNS:
        if isinstance(values[place], bytes):
            values[place] = bytearray()
    return tuple(values)


def _put_long_values(connection: sqlite3.Connection, row: JobRow) -> None:
    for place, column in LONG_COLUMNS:
        value = row[place]
        if isinstance(value, bytes):
            connection.execute(STATEMENTS[f"make_room_for_{column}"], (len(value), row[ID]))
            _write_blob(connection, "jobs", column, row[ID], value)


def _write_blob(connection: sqlite3.Connection, table: str, column: str, row_id: int, value: bytes) -> None:
    """Write a value into its reserved space. Each piece is copied without the interpreter lock."""
    view = memoryview(value)
    with connection.blobopen(table, column, row_id) as blob:
        for start in range(0, len(value), BLOB_PIECE_BYTES):
            blob.write(view[start : start + BLOB_PIECE_BYTES])
