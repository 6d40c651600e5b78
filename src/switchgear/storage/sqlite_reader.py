"""`Reader`: a read-only connection of the SQLite store, for restarts, payloads and the history."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from switchgear.errors import StorageError
from switchgear.model import FAILED, FINAL_STATES, Function, Job, JobState, Schedule
from switchgear.policy import Policy
from switchgear.states import UNSUCCESSFUL_STATES
from switchgear.storage.base import KEEP_ALL, LONGEST_SEARCHED_BYTES, JobQuery
from switchgear.storage.function_rows import FunctionRow
from switchgear.storage.sqlite_rows import PAYLOAD, decode_policy, has_key, is_exhausted, job_from_row
from switchgear.storage.sqlite_schedules import schedule_from_row
from switchgear.storage.sqlite_schema import STATEMENTS, advice, connect

__all__ = ["Reader", "UnsuccessfulRow"]

Row: TypeAlias = tuple[Any, ...]
UnsuccessfulRow: TypeAlias = tuple[int, int, bytes]  # id, state, name
Functions: TypeAlias = Mapping[int, Function]  # by the function's id in rows

LARGEST_ID = 2**63 - 1
# This many rows are examined in one step of a search, in two or three milliseconds.
WINDOW_ROWS = 2_000
# The same for a search in payloads, each of which may have `LONGEST_SEARCHED_BYTES`.
TEXT_WINDOW_ROWS = 200
# So many rows are fetched at a time when a server starts.  Those that are not plain may have long payloads.
PLAIN_AT_ONCE = 4_096
UNFINISHED_AT_ONCE = 500


class Reader:
    """Reads rows and decodes them to jobs. Any thread may call it, one at a time; the others wait.

    `check` is called before connecting, and raises StorageError if the file at `path` is no longer the store's.
    """

    def __init__(self, path: Path, check: Callable[[], object] = lambda: None) -> None:
        self._path = path
        self._check = check
        self._connection: sqlite3.Connection | None = None
        self._busy = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Close the connection for good."""
        with self._busy:
            self._closed = True
            self._discard()

    def disconnect(self) -> None:
        """Close the connection until the next call."""
        with self._busy:
            self._discard()

    def functions(self) -> list[FunctionRow]:
        """All functions with their settings."""
        with self._reading() as connection:
            return connection.execute(STATEMENTS["functions"]).fetchall()

    def policy(self, row: FunctionRow) -> Policy:
        """The limits of a function."""
        with self._reading():  # it handles invalid rows
            return decode_policy(row[-1]) if row[-1] is not None else Policy()

    def schedules(self) -> list[Schedule]:
        """All schedules, by name."""
        with self._reading() as connection:
            return [schedule_from_row(row) for row in connection.execute(STATEMENTS["schedules"])]

    def next_job_id(self) -> int:
        """An id that no job has had."""
        with self._reading() as connection:
            return int(connection.execute(STATEMENTS["next_job_id"]).fetchone()[0])

    def plain_rows(self) -> Generator[list[Row], None, None]:
        """The rows of the plain ones of the unfinished jobs by id, in portions.  Others may read when all are."""
        statement = STATEMENTS["unfinished_plain"].replace("$is_plain", STATEMENTS["is_plain"])
        with self._reading() as connection:
            cursor = connection.execute(statement)
            while rows := cursor.fetchmany(PLAIN_AT_ONCE):
                yield rows

    def unfinished_rows(self, payload_memory_bytes: int, *, but_plain: bool) -> Generator[list[Row], None, None]:
        """The rows of every unfinished job by id, in portions, the first ones with their payload until those fill the
        memory given.  Others may read when all are."""
        which = f"AND NOT ({STATEMENTS['is_plain']})" if but_plain else ""
        left_bytes = payload_memory_bytes
        last_id = 0
        with self._reading() as connection:
            cursor = connection.execute(STATEMENTS["unfinished_with_payloads"].replace("$which", which))
            while rows := cursor.fetchmany(UNFINISHED_AT_ONCE):
                fitting: list[Row] = []
                for row in rows:
                    left_bytes -= len(row[PAYLOAD])
                    if left_bytes < 0:
                        break
                    fitting.append(row)
                    last_id = row[0]
                if fitting:
                    yield fitting
                if left_bytes < 0:
                    break
            if left_bytes < 0:
                cursor = connection.execute(STATEMENTS["unfinished_after"].replace("$which", which), (last_id,))
                while rows := cursor.fetchmany(UNFINISHED_AT_ONCE):
                    yield rows

    def holding_their_key(self, now_us: int) -> list[Row]:
        """The rows of jobs that ended and hold their unique key beyond this moment, without payloads."""
        with self._reading() as connection:
            return connection.execute(STATEMENTS["holding_their_key"], (now_us,)).fetchall()

    def unsuccessful(self, limit: int) -> list[UnsuccessfulRow]:
        """Id, state and name of the newest unsuccessful jobs, the oldest of them first."""
        with self._reading() as connection:
            newest_first = connection.execute(STATEMENTS["unsuccessful"], (limit,)).fetchall()
        newest_first.reverse()
        return newest_first

    def unsuccessful_among(self, job_ids: Iterable[int]) -> list[UnsuccessfulRow]:
        """The unsuccessful jobs among these, by id."""
        with self._reading() as connection:
            return connection.execute(STATEMENTS["unsuccessful_among"], (json.dumps(list(job_ids)),)).fetchall()

    def states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        """The states of these jobs, as far as they are stored."""
        with self._reading() as connection:
            rows = connection.execute(STATEMENTS["states"], (json.dumps(list(job_ids)),))
            return {job_id: JobState(state) for job_id, state in rows}

    def payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        """The payloads of these jobs, as far as they are stored.

        They are read as one row: at each row this thread releases the interpreter lock, and a busy event loop is slow
        to return it.
        """
        ids = (json.dumps(list(job_ids)),)
        with self._reading() as connection:
            id_list, sizes, together = connection.execute(STATEMENTS["payloads_together"], ids).fetchone()
            if id_list is None:
                return {}
            ends = list(accumulate(map(int, sizes.split(","))))
            if ends[-1] != len(together):  # an SQLite whose group_concat stops at a NUL
                return dict(connection.execute(STATEMENTS["payloads"], ids))
            found = map(int, id_list.split(","))
            return {job_id: together[start:end] for job_id, start, end in zip(found, [0, *ends], ends)}

    def jobs(self, job_ids: Sequence[int]) -> list[Row]:
        """The rows of these jobs, as far as they are stored, with payloads."""
        with self._reading() as connection:
            return connection.execute(STATEMENTS["jobs"], (json.dumps(list(job_ids)),)).fetchall()

    def find(self, query: JobQuery, function_id: int | None) -> list[Row]:
        """The rows of the jobs that match, newest first, without payloads."""
        where, parameters = _conditions(query, function_id)
        statement = STATEMENTS["find"].replace("$where", where)
        with self._reading() as connection:
            return connection.execute(statement, (*parameters, max(0, query.limit))).fetchall()

    def find_named(self, names: Sequence[bytes], since_us: int) -> list[Row]:
        """The rows of the newest job of each of these names, without payloads."""
        rows: list[Row] = []
        with self._reading() as connection:
            for name in names:
                rows += connection.execute(STATEMENTS["find_named"], (name, since_us)).fetchall()
        return rows

    def decode(self, rows: Iterable[Row], functions: Functions) -> list[Job]:
        """The jobs of these rows. Unlike a read this runs in the caller's thread."""
        try:
            return [job_from_row(row, functions[row[1]]) for row in rows]
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:  # an invalid row
            raise StorageError(f"{self._path} cannot be read: {error}") from error

    def count_jobs(self, only_unfinished: bool) -> int:
        """How many jobs there are."""
        with self._reading() as connection:
            row = connection.execute(STATEMENTS["count_unfinished" if only_unfinished else "count_all"]).fetchone()
            return int(row[0])

    def search_bound(self, before_id: int, count: int, states: frozenset[JobState]) -> int:
        """The id from which on, and below the other, there are this many jobs, among the jobs that an index for these
        states has; 0 if there are fewer."""
        name = "window"
        if states and states <= UNSUCCESSFUL_STATES:
            name = "unsuccessful_window"
        elif states and not states & FINAL_STATES:
            name = "unfinished_window"
        with self._reading() as connection:
            row = connection.execute(STATEMENTS[name], (before_id or LARGEST_ID, max(0, count - 1))).fetchone()
            return 0 if row is None else int(row[0])

    def window(self, query: JobQuery, before_id: int, states: frozenset[JobState]) -> int:
        """The id from which on, and below the other, as many jobs are as can be examined in one step."""
        return self.search_bound(before_id, TEXT_WINDOW_ROWS if query.contains else WINDOW_ROWS, states)

    def drop_bound(self, before_us: int, keep_count: int) -> tuple[int, int]:
        """The finishing time and id below which a finished job is deleted, because of its age or the number of jobs."""
        if keep_count >= KEEP_ALL:
            return (before_us, 0)  # and the finished jobs need not be counted
        with self._reading() as connection:
            newest = connection.execute(STATEMENTS["newest_to_drop"], (keep_count,)).fetchone()
        by_age = (before_us, 0)
        return by_age if newest is None else max(by_age, (newest[0], newest[1] + 1))

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._busy:
            if self._closed:
                raise StorageError(f"{self._path} is closed")
            try:
                if self._connection is None:
                    self._check()
                    self._connection = connect(self._path, "normal", any_thread=True)
                    self._connection.execute("PRAGMA query_only = ON")
                    self._connection.create_function("is_exhausted", 1, is_exhausted, deterministic=True)
                    self._connection.create_function("has_key", 2, has_key, deterministic=True)
                yield self._connection
            except (sqlite3.Error, OSError, msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
                # An invalid row causes the latter four.
                self._discard()
                raise StorageError(f"{self._path} cannot be read: {error}{advice(error)}") from error

    def _discard(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _conditions(query: JobQuery, function_id: int | None) -> tuple[str, list[Any]]:
    """The middle of the search statement: the index to use, if one helps, and the conditions with their values."""
    index = ""
    terms: list[str] = []
    parameters: list[Any] = []

    def require(term: str, *values: object) -> None:
        terms.append(term)
        parameters.extend(values)

    if query.name is not None:
        require("name = ?", query.name)
        if query.name:
            require("name <> x''")  # lets SQLite use the index of named jobs
    states = frozenset({FAILED}) if query.dead and not query.states else query.states
    if states:
        # The states are part of the text: SQLite uses a partial index only if the statement shows that it may.
        require(f"state IN ({', '.join(str(int(state)) for state in sorted(states))})")
        if not query.name and states <= UNSUCCESSFUL_STATES:
            index = "INDEXED BY jobs_unsuccessful"
            require("state > 4")
        elif not query.name and not states & FINAL_STATES:
            index = "INDEXED BY jobs_unfinished"
            require("state < 4")
    if function_id is not None:
        require("function_id = ?", function_id)
    if query.unique is not None:
        require("unique_key = ?", query.unique)
    if query.since_us:
        require("created_us >= ?", query.since_us)
    if query.until_us:
        require("created_us < ?", query.until_us)
    if query.before_id:
        require("id < ?", query.before_id)
    if query.from_id:
        require("id >= ?", query.from_id)
    # Conditions that need the row itself come last.
    if query.error_contains:
        require("instr(error, ?) > 0", query.error_contains)
    if query.key is not None:
        if query.key:
            require("instr(extra, ?) > 0", query.key)  # the function below takes much longer
        require("has_key(extra, ?)", query.key)
    if query.dead:
        require("is_exhausted(moves)")
    if query.contains:
        text = query.contains
        require(STATEMENTS["contains"], text, text, text, text, LONGEST_SEARCHED_BYTES, text)
    return f"{index} WHERE {' AND '.join(terms)}" if terms else "", parameters
