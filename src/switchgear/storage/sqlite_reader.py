"""A connection that only reads: what a server needs at its start, payloads, and the history."""

from __future__ import annotations

import gc
import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from switchgear.errors import StorageError
from switchgear.model import DONE, FAILED, FINAL_STATES, Function, Job, JobState, PlainJob, Schedule
from switchgear.policy import Policy
from switchgear.storage.base import JobQuery
from switchgear.storage.sqlite_rows import PAYLOAD, decode_policy, is_exhausted, job_from_row
from switchgear.storage.sqlite_schedules import schedule_from_row
from switchgear.storage.sqlite_schema import STATEMENTS, advice, connect
from switchgear.storage.sqlite_writer import FunctionRow

__all__ = ["Reader"]

Functions: TypeAlias = Mapping[int, Function]  # by the id that rows have for it

UNSUCCESSFUL_STATES = FINAL_STATES - {DONE}
LARGEST_ID = 2**63 - 1
# So many rows are looked at in one step of a search, in two or three milliseconds.
WINDOW_ROWS = 2_000
PLAIN_AT_ONCE = 512


class Reader:
    """Reads rows and makes jobs of them.  Any thread may call it, one at a time; the others wait.

    `check` is called before it connects, and raises StorageError if the file at `path` is not the store's any more.
    """

    def __init__(self, path: Path, check: Callable[[], object] = lambda: None) -> None:
        self._path = path
        self._check = check
        self._connection: sqlite3.Connection | None = None
        self._busy = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Let go of the connection, for good."""
        with self._busy:
            self._closed = True
            self._discard()

    def disconnect(self) -> None:
        """Let go of the connection until the next call."""
        with self._busy:
            self._discard()

    def functions(self) -> list[FunctionRow]:
        """All functions with their settings."""
        with self._reading() as connection:
            return connection.execute(STATEMENTS["functions"]).fetchall()

    def policy(self, row: FunctionRow) -> Policy:
        """The limits of one of them."""
        with self._reading():  # which knows what to do about a row that means nothing
            return decode_policy(row[-1]) if row[-1] is not None else Policy()

    def schedules(self) -> list[Schedule]:
        """All schedules, by name."""
        with self._reading() as connection:
            return [schedule_from_row(row) for row in connection.execute(STATEMENTS["schedules"])]

    def next_job_id(self) -> int:
        """An id that no job has had."""
        with self._reading() as connection:
            return int(connection.execute(STATEMENTS["next_job_id"]).fetchone()[0])

    def plain(self, functions: Functions) -> Iterator[list[PlainJob]]:
        """The plain ones of the unfinished jobs by id, some hundred at a time.  Others may read when all are."""
        statement = STATEMENTS["unfinished_plain"].replace("$is_plain", STATEMENTS["is_plain"])
        with self._reading() as connection:
            cursor = connection.execute(statement)
            while rows := cursor.fetchmany(PLAIN_AT_ONCE):
                yield [
                    (job_id, functions[function_id], priority, delivery, created_us, unique)
                    for job_id, function_id, priority, delivery, created_us, unique in rows
                ]

    def unfinished(self, functions: Functions, payload_memory_bytes: int, *, but_plain: bool = False) -> list[Job]:
        """Every unfinished job by id, the first ones with their payload until those fill the memory given."""
        which = f"AND NOT ({STATEMENTS['is_plain']})" if but_plain else ""
        jobs: list[Job] = []
        left_bytes = payload_memory_bytes
        with self._reading() as connection, _garbage_collector_off():
            for row in connection.execute(STATEMENTS["unfinished_with_payloads"].replace("$which", which)):
                left_bytes -= len(row[PAYLOAD])
                if left_bytes < 0:
                    break
                jobs.append(job_from_row(row, functions[row[1]]))
            if left_bytes < 0:
                last_id = jobs[-1].id if jobs else 0
                rest = connection.execute(STATEMENTS["unfinished_after"].replace("$which", which), (last_id,))
                jobs.extend(job_from_row(row, functions[row[1]]) for row in rest)
        return jobs

    def holding_their_key(self, functions: Functions, now_us: int) -> list[Job]:
        """Jobs that ended and hold their unique key beyond this moment, without payloads."""
        with self._reading() as connection:
            rows = connection.execute(STATEMENTS["holding_their_key"], (now_us,))
            return [job_from_row(row, functions[row[1]]) for row in rows]

    def unsuccessful(self, limit: int) -> dict[int, JobState]:
        """The newest jobs that finished but are not done, the oldest of them first."""
        with self._reading() as connection:
            newest_first = connection.execute(STATEMENTS["unsuccessful"], (limit,)).fetchall()
        return {job_id: JobState(state) for job_id, state in reversed(newest_first)}

    def unsuccessful_among(self, job_ids: Iterable[int]) -> dict[int, JobState]:
        """Those of the jobs that finished but are not done, by id."""
        with self._reading() as connection:
            rows = connection.execute(STATEMENTS["unsuccessful_among"], (json.dumps(list(job_ids)),))
            return {job_id: JobState(state) for job_id, state in rows}

    def states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        """The states of those of the jobs that are kept."""
        with self._reading() as connection:
            rows = connection.execute(STATEMENTS["states"], (json.dumps(list(job_ids)),))
            return {job_id: JobState(state) for job_id, state in rows}

    def payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        """The payloads of those of the jobs that are kept."""
        with self._reading() as connection:
            return dict(connection.execute(STATEMENTS["payloads"], (json.dumps(list(job_ids)),)))

    def job(self, job_id: int, functions: Functions) -> Job | None:
        """One job with its payload."""
        with self._reading() as connection:
            row = connection.execute(STATEMENTS["job"], (job_id,)).fetchone()
            return None if row is None else job_from_row(row, functions[row[1]])

    def find(self, query: JobQuery, function_id: int | None, functions: Functions) -> list[Job]:
        """The jobs that match, newest first, without payloads."""
        where, parameters = _conditions(query, function_id)
        statement = STATEMENTS["find"].replace("$where", where)
        with self._reading() as connection:
            rows = connection.execute(statement, (*parameters, max(0, query.limit)))
            return [job_from_row(row, functions[row[1]]) for row in rows]

    def search_bound(self, before_id: int, count: int) -> int:
        """The id from which on, and below the other, so many jobs ended without success; 0 if they are fewer."""
        values = (before_id or LARGEST_ID, max(0, count - 1))
        with self._reading() as connection:
            row = connection.execute(STATEMENTS["search_bound"], values).fetchone()
            return 0 if row is None else int(row[0])

    def window(self, before_id: int, states: frozenset[JobState]) -> int:
        """The id from which on, and below the other, there are as many jobs as can be looked at in a moment, of those
        among which these states are; 0 if they are fewer."""
        name = "window"
        if states and states <= UNSUCCESSFUL_STATES:
            name = "unsuccessful_window"
        elif states and not states & FINAL_STATES:
            name = "unfinished_window"
        with self._reading() as connection:
            row = connection.execute(STATEMENTS[name], (before_id or LARGEST_ID, WINDOW_ROWS - 1)).fetchone()
            return 0 if row is None else int(row[0])

    def drop_bound(self, before_us: int, keep_count: int) -> tuple[int, int]:
        """The finishing time and id below which a finished job is to be dropped, by its age or for its number."""
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
                yield self._connection
            except (sqlite3.Error, OSError, msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
                # The latter four come of a row that means nothing.
                self._discard()
                raise StorageError(f"{self._path} cannot be read: {error}{advice(error)}") from error

    def _discard(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _conditions(query: JobQuery, function_id: int | None) -> tuple[str, list[Any]]:
    """The middle of the search statement: which index to walk, if one helps, and the conditions with their values."""
    index = ""
    terms: list[str] = []
    parameters: list[Any] = []

    def require(term: str, *values: object) -> None:
        terms.append(term)
        parameters.extend(values)

    if query.name is not None:
        require("name = ?", query.name)
        if query.name:
            require("name <> x''")  # says that the index of named jobs will do
    states = frozenset({FAILED}) if query.dead and not query.states else query.states
    if states:
        # The states go into the text: an index of some states is only used where the statement shows it may be.
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
    # What takes a look into the row comes last.
    if query.error_contains:
        require("instr(error, ?) > 0", query.error_contains)
    if query.dead:
        require("is_exhausted(moves)")
    return f"{index} WHERE {' AND '.join(terms)}" if terms else "", parameters


@contextmanager
def _garbage_collector_off() -> Iterator[None]:
    """A million new objects, all of them to stay, would be looked through again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
