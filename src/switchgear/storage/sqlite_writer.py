"""The one connection that writes, and the transactions it makes.

Everything here runs in the store's writer thread.  The engine's thread is busy meanwhile, and the two share the
interpreter lock.  sqlite3 lets go of it for every step of a statement, and getting it back from a busy neighbour takes
its switch interval, 5 ms, and in bad luck much longer.  With `executemany`, one step a row, a thousand rows then take
seconds (300 rows/s were measured beside a busy loop).  So a batch is one statement of as many rows, and what SQLite
does with it happens while the engine runs.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from switchgear.errors import StorageError
from switchgear.storage.sqlite_rows import ID, PAYLOAD, REVISION, JobRow, clamped
from switchgear.storage.sqlite_schedules import ScheduleRow
from switchgear.storage.sqlite_schema import STATEMENTS, Sync, advice, connect, migrate, put_jobs_sql

__all__ = ["FunctionRow", "Work", "Writer"]

# Id, name, paused, the limits for high, normal and low, and the policy.  A setting is None where nobody has set any.
FunctionRow: TypeAlias = tuple[int, bytes, int | None, int | None, int | None, int | None, bytes | None]

# A statement is prepared once for each of these numbers of rows, and a batch filled up to the next of them.  The steps
# are small, so little is wasted, and the last is as many as the engine's thread should wait for, 1 ms, while values are
# bound.
STATEMENT_ROWS: Final = tuple(
    sorted({1, 2, 3, 4, 5, 6, 7} | {step * 2**power for step in (4, 5, 6, 7) for power in range(1, 8)} | {1024})
)
FILLER: Final = (0,) * (PAYLOAD + 1)


class Work(NamedTuple):
    """What one transaction is to keep."""

    jobs: Sequence[JobRow]
    payloads: Sequence[tuple[int, bytes]]  # those too long for their row
    functions: Sequence[FunctionRow]
    next_job_id: int  # 0: as it was
    schedules: Sequence[tuple[bytes, ScheduleRow | None]] = ()  # by name; None: it is to be forgotten


class Writer:
    """Puts and drops rows.  After an error the connection is replaced, so no broken transaction outlives its caller."""

    def __init__(self, path: Path, sync: Sync) -> None:
        self._path = path
        self._sync: Sync = sync
        self._connection: sqlite3.Connection | None = None
        # As long as it is there, closing another connection neither merges the log nor deletes it.
        self._anchor: sqlite3.Connection | None = None
        self._in_doubt = False  # the last transaction failed, perhaps after it was kept

    def open(self) -> None:
        """Connect, and bring the layout up to date."""
        try:
            self._connection = connect(self._path, self._sync)
            migrate(self._connection, self._path)
            self._anchor = connect(self._path, self._sync, any_thread=True)
            self._anchor.execute("SELECT count(*) FROM meta").fetchone()  # opens the log
        except (sqlite3.Error, ValueError) as error:  # the latter where SQLite quotes damaged text
            self.close()
            raise StorageError(f"{self._path} cannot be used as a job database: {error}{advice(error)}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file.  Whoever is the last to do so merges the log into it."""
        self._discard()
        anchor, self._anchor = self._anchor, None
        if anchor is not None:
            with suppress(sqlite3.Error):
                anchor.close()

    def doubt(self) -> None:
        """The last transaction was kept, but perhaps where nobody will find it; its changes will come again."""
        self._in_doubt = True

    def merge_log(self) -> None:
        """Write all that is in the log into the database; raises StorageError if not all of it could be.

        Not by a new connection, which would open whatever has the log's name now.
        """
        if self._anchor is None:
            return  # then nobody has it open
        try:
            busy, _, _ = self._anchor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            raise StorageError(f"the log of {self._path} cannot be merged into it: {error}") from error
        if busy:
            raise StorageError(f"the log of {self._path} cannot be merged into it: it is being read")

    def _discard(self) -> None:
        """Let go of the connection; SQLite undoes a transaction that is still open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def put(self, work: Work) -> list[int]:
        """Keep it all or raise StorageError; returns the ids of the jobs refused for their revision."""
        try:
            refused = self._put(work)
        except OverflowError:  # a number beyond 64 bits, which only a stranger can have sent
            refused = self._put(work._replace(jobs=[clamped(row) for row in work.jobs]))
        self._in_doubt = False
        return refused

    def drop(self, before: tuple[int, int], now_us: int, spare: str, limit: int) -> int:
        """Forget up to `limit` finished jobs whose time and id are below `before`, the oldest first, and as many of
        those that were to be remembered until `now_us`.  None whose id is in the JSON array `spare`, or whose unique
        key is still held."""
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
        except (sqlite3.Error, OSError, ValueError) as error:  # the last where SQLite quotes damaged text
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
            # Some were refused.  Which ones can only be seen before the others are changed.
            connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            known, refused = self._not_newer(connection, work.jobs)
            self._put_rows(connection, work)
            self._put_jobs(connection, [row for row in work.jobs if row[ID] not in known])
            return refused

    def _put_rows(self, connection: sqlite3.Connection, work: Work) -> None:
        """All but the jobs."""
        if work.functions:
            connection.executemany(STATEMENTS["put_function"], work.functions)
        if work.payloads:
            connection.executemany(STATEMENTS["put_payload"], work.payloads)
        if work.next_job_id:
            connection.execute(STATEMENTS["put_next_job_id"], (work.next_job_id,))
        for name, row in work.schedules:
            if row is None:
                connection.execute(STATEMENTS["drop_schedule"], (name,))
            else:
                connection.execute(STATEMENTS["put_schedule"], row)

    def _put_jobs(self, connection: sqlite3.Connection, rows: Sequence[JobRow]) -> int:
        """How many of the rows were newer than what is there, and are now there."""
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
        return connection.total_changes - changes

    def _not_newer(self, connection: sqlite3.Connection, rows: Sequence[JobRow]) -> tuple[frozenset[int], list[int]]:
        """The jobs that need no putting, and those of them whose change is refused.

        They differ after a failure in whose course the change was kept after all: the same revision is then our own.
        """
        ids = json.dumps([row[ID] for row in rows])
        stored: dict[int, int] = dict(connection.execute(STATEMENTS["revisions"], (ids,)))
        known = frozenset(row[ID] for row in rows if stored.get(row[ID], -1) >= row[REVISION])
        ours = self._in_doubt
        refused = [row[ID] for row in rows if row[ID] in known and not (ours and stored[row[ID]] == row[REVISION])]
        return known, refused
