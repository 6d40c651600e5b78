"""`PostgresReads`: awaited reads of jobs in PostgreSQL, over two connections of the event loop.

One connection serves reads by id, the other searches the history, so that a long search does not delay reads of
payloads. A connection that was lost is replaced, and the read is tried once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from switchgear.errors import StorageError
from switchgear.model import FINAL_STATES, Function, Job, JobState, PlainJob, Schedule
from switchgear.states import UNSUCCESSFUL_STATES
from switchgear.storage.base import KEEP_ALL, JobQuery
from switchgear.storage.function_rows import FunctionRow
from switchgear.storage.postgres_connection import PostgresConnection, PostgresRefusal, Statement, Step
from switchgear.storage.postgres_rows import (
    ARRAY_TYPES,
    bigint,
    bytea_array,
    integer_array,
)
from switchgear.storage.postgres_schema import STATEMENTS
from switchgear.storage.postgres_search import LARGEST_ID, is_filtered_here, search_statement
from switchgear.storage.sqlite_rows import (
    ERROR,
    FUNCTION_ID,
    ID,
    PAYLOAD,
    RESULT,
    JobRow,
    has_key,
    is_exhausted,
    job_from_row,
)
from switchgear.storage.sqlite_schedules import schedule_from_row

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

__all__ = ["ERROR_KIND", "PAYLOAD_KIND", "RESULT_KIND", "PostgresReads", "number"]

# The kinds of long values.
PAYLOAD_KIND: Final = 0
RESULT_KIND: Final = 1
ERROR_KIND: Final = 2

# Rows decoded before other tasks run: half a millisecond.
ROWS_PER_TURN: Final = 50
PLAIN_PER_TURN: Final = 256
# Rows fetched at a time.
PLAIN_AT_ONCE: Final = 4_096
JOBS_AT_ONCE: Final = 500
IDS_AT_ONCE: Final = 5_000
NAMES_AT_ONCE: Final = 500
# This many rows are examined in one step of a search.
WINDOW_ROWS: Final = 10_000
# The same for a search in payloads.
TEXT_WINDOW_ROWS: Final = 1_000

IS_NUMBER: Final = tuple(name != "bytea" for name in ARRAY_TYPES)


def number(result: PGresult, row: int, place: int) -> int:
    """A number of a result, which must not be NULL."""
    return int.from_bytes(result.get_value(row, place) or b"", "big", signed=True)


def _number_or_none(result: PGresult, row: int, place: int) -> int | None:
    value = result.get_value(row, place)
    return None if value is None else int.from_bytes(value, "big", signed=True)


def _job_row(result: PGresult, row: int) -> JobRow:
    get = result.get_value
    values: list[Any] = []
    for place, is_number in enumerate(IS_NUMBER):
        value = get(row, place)
        values.append(int.from_bytes(value or b"", "big", signed=True) if is_number else value)
    return tuple(values)


class PostgresReads:
    """Reads rows, and makes jobs of them."""

    def __init__(self, shown_url: str, connect: Callable[[], PostgresConnection]) -> None:
        self.reader = connect()
        self.searcher = connect()
        self._shown_url = shown_url
        self.jobs_read = 0  # of the unfinished, while all are read
        self.is_closed = False

    def close(self) -> None:
        """Close the connections for good."""
        self.is_closed = True
        self.reader.close()
        self.searcher.close()

    async def ask(self, connection: PostgresConnection, name: str, *parameters: bytes | None) -> PGresult:
        """Run the statement with this name and return its result."""
        return await self._ask(connection, STATEMENTS[name], parameters)

    async def _ask(
        self, connection: PostgresConnection, statement: Statement, parameters: Sequence[bytes | None]
    ) -> PGresult:
        if self.is_closed:
            raise StorageError(f"{self._shown_url} is closed")
        step: Step = (statement, parameters)
        was_open = connection.is_open
        try:
            results = await connection.run([step])
        except PostgresRefusal:
            raise
        except StorageError:
            if not was_open or self.is_closed:
                raise
            results = await connection.run([step])
        return results[0]

    # --- at the start ---

    async def functions(self) -> list[FunctionRow]:
        """All functions with their settings."""
        result = await self.ask(self.reader, "functions")
        rows: list[FunctionRow] = []
        for row in range(result.ntuples):
            paused, high, normal, low = (_number_or_none(result, row, place) for place in range(2, 6))
            name = result.get_value(row, 1) or b""
            rows.append((number(result, row, 0), name, paused, high, normal, low, result.get_value(row, 6)))
        return rows

    async def schedules(self) -> list[Schedule]:
        """All schedules, by name."""
        result = await self.ask(self.reader, "schedules")
        try:
            rows = [msgspec.msgpack.decode(result.get_value(row, 0) or b"") for row in range(result.ntuples)]
            return [schedule_from_row(tuple(row)) for row in rows]
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:  # an invalid row
            raise StorageError(f"{self._shown_url} cannot be read: {error}") from error

    async def next_job_id(self) -> int:
        """An id that no job has had."""
        return number(await self.ask(self.reader, "next_job_id"), 0, 0)

    async def unfinished(
        self,
        functions: Mapping[int, Function],
        payload_memory_bytes: int,
        *,
        but_plain: bool,
        only: Collection[int] | None = None,
    ) -> list[Job]:
        """Every unfinished job by id, or those that are not plain; the first ones with their payloads.

        With `only`, those of the functions with these ids that are not plain.
        """
        name = "unfinished_special" if but_plain else "unfinished"
        more = () if only is None else (integer_array(sorted(only), "integer"),)
        if only is not None:
            name = "owned_special"
        jobs: list[Job] = []
        left_bytes = payload_memory_bytes
        last_id = 0
        while True:
            result = await self.ask(self.reader, name, bigint(last_id), bigint(JOBS_AT_ONCE), *more)
            if not result.ntuples:
                return jobs
            rows = await self._rows(self.reader, result, with_payloads=left_bytes > 0)
            last_id = rows[-1][ID]
            for place, row in enumerate(rows):
                left_bytes -= len(row[PAYLOAD] or b"")
                if left_bytes < 0:
                    rows[place] = (*row[:PAYLOAD], None)
            jobs += await self.decoded(rows, functions)
            self.jobs_read += len(rows)

    async def plain(
        self, functions: Mapping[int, Function], only: Collection[int] | None = None
    ) -> AsyncGenerator[Sequence[PlainJob], None]:
        """The plain ones of the unfinished jobs by id, at most some hundred at a time; with `only`, of these functions.

        PostgreSQL finds the next ones while those before are being used: it may have a processor of its own.
        """
        asking = asyncio.create_task(self._ask_plain(0, only))
        try:
            while True:
                result = await asking
                count = result.ntuples
                if not count:
                    return
                asking = asyncio.create_task(self._ask_plain(number(result, count - 1, 0), only))
                for start in range(0, count, PLAIN_PER_TURN):
                    rows = _plain_rows(result, range(start, min(count, start + PLAIN_PER_TURN)), functions)
                    if rows:
                        self.jobs_read += len(rows)
                        yield rows
                    await asyncio.sleep(0)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _ask_plain(self, after_id: int, only: Collection[int] | None) -> PGresult:
        if only is not None:
            functions = integer_array(sorted(only), "integer")
            return await self.ask(self.reader, "owned_plain", bigint(after_id), functions)
        return await self.ask(self.reader, "unfinished_plain", bigint(after_id))

    async def holding_their_key(
        self, functions: Mapping[int, Function], now_us: int, only: Collection[int] | None = None
    ) -> list[Job]:
        """Jobs that ended and hold their unique key beyond this moment, without payloads; with `only`, of these
        functions."""
        jobs: list[Job] = []
        last_id = 0
        while True:
            limits = (bigint(now_us), bigint(last_id), bigint(JOBS_AT_ONCE))
            if only is None:
                result = await self.ask(self.reader, "holding_their_key", *limits)
            else:
                result = await self.ask(self.reader, "owned_keys", *limits, integer_array(sorted(only), "integer"))
            if not result.ntuples:
                return jobs
            rows = await self._rows(self.reader, result, with_payloads=False)
            last_id = rows[-1][ID]
            jobs += await self.decoded(rows, functions)

    async def unsuccessful(self, limit: int) -> list[tuple[int, int, bytes]]:
        """Id, state and name of the newest unsuccessful jobs, the oldest of them first."""
        found: list[tuple[int, int, bytes]] = []
        before_id = LARGEST_ID
        while len(found) < limit:
            count = min(PLAIN_AT_ONCE, limit - len(found))
            rows = _unsuccessful_rows(await self.ask(self.reader, "unsuccessful", bigint(before_id), bigint(count)))
            if not rows:
                break
            before_id = rows[-1][0]
            found += rows
            await asyncio.sleep(0)
        found.reverse()
        return found

    async def unsuccessful_among(self, job_ids: Collection[int]) -> list[tuple[int, int, bytes]]:
        """The unsuccessful jobs among these, by id."""
        found: list[tuple[int, int, bytes]] = []
        for some in _parts(sorted(job_ids), IDS_AT_ONCE):
            found += _unsuccessful_rows(await self.ask(self.reader, "unsuccessful_among", integer_array(some)))
        return found

    # --- by id ---

    async def payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        """The payloads of these jobs, as far as they are stored."""
        found: dict[int, bytes] = {}
        long_ids: list[int] = []
        for some in _parts(job_ids, IDS_AT_ONCE):
            result = await self.ask(self.reader, "payloads", integer_array(some))
            for row in range(result.ntuples):
                if row % PLAIN_PER_TURN == PLAIN_PER_TURN - 1:
                    await asyncio.sleep(0)
                payload = result.get_value(row, 1)
                if payload is None:
                    long_ids.append(number(result, row, 0))
                else:
                    found[number(result, row, 0)] = payload
        values = await self._long_values(self.reader, long_ids, [PAYLOAD_KIND])
        for job_id in long_ids:
            found[job_id] = values.get((job_id, PAYLOAD_KIND), b"")
        return found

    async def states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        """The states of these jobs, as far as they are stored."""
        found: dict[int, JobState] = {}
        for some in _parts(job_ids, IDS_AT_ONCE):
            result = await self.ask(self.reader, "states", integer_array(some))
            for row in range(result.ntuples):
                if row % PLAIN_PER_TURN == PLAIN_PER_TURN - 1:
                    await asyncio.sleep(0)
                found[number(result, row, 0)] = JobState(number(result, row, 1))
        return found

    async def jobs(self, job_ids: Sequence[int], functions: Mapping[int, Function]) -> dict[int, Job]:
        """These jobs, as far as they are stored, with their payloads."""
        found: dict[int, Job] = {}
        for some in _parts(job_ids, JOBS_AT_ONCE):
            result = await self.ask(self.reader, "jobs", integer_array(some))
            rows = await self._rows(self.reader, result, with_payloads=True)
            found.update((job.id, job) for job in await self.decoded(rows, functions))
        return found

    # --- searching ---

    async def find_named(
        self, names: Collection[bytes], since_us: int, functions: Mapping[int, Function]
    ) -> dict[bytes, Job]:
        """The newest job of each of these names."""
        found: dict[bytes, Job] = {}
        for some in _parts([name for name in names if name], NAMES_AT_ONCE):
            result = await self.ask(self.searcher, "find_named", bytea_array(some), bigint(since_us))
            job_ids = [number(result, row, 1) for row in range(result.ntuples)]
            for job in await self.jobs_without_payloads(job_ids, functions):
                found[job.name] = job
        return found

    async def find(self, query: JobQuery, function_id: int | None, functions: Mapping[int, Function]) -> list[Job]:
        """The jobs that match, newest first, without payloads. Each statement examines a bounded number of rows."""
        found: list[Job] = []
        states = query.states or (UNSUCCESSFUL_STATES if query.dead else frozenset())
        before_id = query.before_id or LARGEST_ID
        while len(found) < query.limit:
            from_id = query.from_id
            if not query.name:  # names have an index
                count = TEXT_WINDOW_ROWS if query.contains else WINDOW_ROWS
                from_id = max(from_id, await self.search_bound(before_id, count, states))
            some = replace(query, before_id=before_id, from_id=from_id, limit=query.limit - len(found))
            job_ids = await self._matching_ids(some, states, function_id)
            found += await self.jobs_without_payloads(job_ids, functions)
            if from_id <= query.from_id:
                break
            before_id = from_id
        return found[: max(0, query.limit)]

    async def _matching_ids(self, query: JobQuery, states: frozenset[JobState], function_id: int | None) -> list[int]:
        """The ids of the jobs that match, newest first, at most as many as the query's limit."""
        statement, parameters = search_statement(query, states, function_id)
        result = await self._ask(self.searcher, statement, parameters)
        if not is_filtered_here(query):
            return [number(result, row, 0) for row in range(result.ntuples)]
        job_ids: list[int] = []
        for row in range(result.ntuples):
            if row % ROWS_PER_TURN == ROWS_PER_TURN - 1:
                await asyncio.sleep(0)
            if len(job_ids) >= query.limit:
                break
            moves, extra = result.get_value(row, 1) or b"", result.get_value(row, 2) or b""
            if (not query.dead or is_exhausted(moves)) and (query.key is None or has_key(extra, query.key)):
                job_ids.append(number(result, row, 0))
        return job_ids

    async def jobs_without_payloads(self, job_ids: Sequence[int], functions: Mapping[int, Function]) -> list[Job]:
        """These jobs in this order, as far as they are stored."""
        jobs: list[Job] = []
        for some in _parts(job_ids, JOBS_AT_ONCE):
            result = await self.ask(self.searcher, "jobs_without_payloads", integer_array(some))
            rows = await self._rows(self.searcher, result, with_payloads=False)
            by_id = {job.id: job for job in await self.decoded(rows, functions)}
            jobs += [by_id[job_id] for job_id in some if job_id in by_id]
        return jobs

    async def count_jobs(self, only_unfinished: bool) -> int:
        """How many jobs there are."""
        return number(await self.ask(self.searcher, "count_unfinished" if only_unfinished else "count_all"), 0, 0)

    async def search_bound(self, before_id: int, count: int, states: frozenset[JobState]) -> int:
        """The id from which on, and below the other, there are this many jobs, among the jobs that an index for these
        states has; 0 if there are fewer."""
        name = "window"
        if states and states <= UNSUCCESSFUL_STATES:
            name = "unsuccessful_window"
        elif states and not states & FINAL_STATES:
            name = "unfinished_window"
        parameters = (bigint(before_id or LARGEST_ID), bigint(max(0, count - 1)))
        return number(await self.ask(self.searcher, name, *parameters), 0, 0)

    async def drop_bound(self, before_us: int, keep_count: int) -> tuple[int, int]:
        """The finishing time and id below which a finished job is deleted, because of its age or the number of jobs."""
        by_age = (before_us, 0)
        if keep_count >= KEEP_ALL:
            return by_age  # and the finished jobs need not be counted
        result = await self.ask(self.searcher, "newest_to_drop", bigint(keep_count))
        if not result.ntuples:
            return by_age
        return max(by_age, (number(result, 0, 0), number(result, 0, 1) + 1))

    # --- rows ---

    async def _rows(self, connection: PostgresConnection, result: PGresult, *, with_payloads: bool) -> list[JobRow]:
        """The rows of a result, with their long results and errors, and with their payloads if those are wanted."""
        rows: list[JobRow] = []
        for place in range(result.ntuples):
            if place % ROWS_PER_TURN == ROWS_PER_TURN - 1:
                await asyncio.sleep(0)
            rows.append(_job_row(result, place))
        kinds = [RESULT_KIND, ERROR_KIND]
        wanted = [row[ID] for row in rows if row[RESULT] is None]
        if with_payloads:
            kinds.append(PAYLOAD_KIND)
            wanted += [row[ID] for row in rows if row[PAYLOAD] is None and row[RESULT] is not None]
        if not wanted:
            return rows
        values = await self._long_values(connection, wanted, kinds)
        for place, row in enumerate(rows):
            changed = list(row)
            if row[RESULT] is None:
                changed[RESULT] = values.get((row[ID], RESULT_KIND), b"")
                changed[ERROR] = values.get((row[ID], ERROR_KIND))
            if with_payloads and row[PAYLOAD] is None:
                changed[PAYLOAD] = values.get((row[ID], PAYLOAD_KIND), b"")
            rows[place] = tuple(changed)
        return rows

    async def _long_values(
        self, connection: PostgresConnection, job_ids: Sequence[int], kinds: list[int]
    ) -> dict[tuple[int, int], bytes]:
        """The long values of these kinds, by id and kind. One job at a time, if there are long ones."""
        pieces: dict[tuple[int, int], list[bytes]] = {}
        for some in _parts(job_ids, 20):
            parameters = (integer_array(some), integer_array(kinds, "smallint"))
            result = await self.ask(connection, "long_values", *parameters)
            for row in range(result.ntuples):
                key = (number(result, row, 0), number(result, row, 1))
                pieces.setdefault(key, []).append(result.get_value(row, 2) or b"")
                if row % 8 == 7:
                    await asyncio.sleep(0)
        return {key: b"".join(parts) for key, parts in pieces.items()}

    async def decoded(self, rows: Sequence[JobRow], functions: Mapping[int, Function]) -> list[Job]:
        """The jobs of these rows, made some at a time."""
        jobs: list[Job] = []
        for start in range(0, len(rows), ROWS_PER_TURN):
            if start:
                await asyncio.sleep(0)
            try:
                jobs += [job_from_row(row, functions[row[FUNCTION_ID]]) for row in rows[start : start + ROWS_PER_TURN]]
            except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:  # an invalid row
                raise StorageError(f"{self._shown_url} cannot be read: {error}") from error
        return jobs


def _plain_rows(result: PGresult, rows: range, functions: Mapping[int, Function]) -> list[PlainJob]:
    """The plain jobs among these rows, of which the others have nothing but an id."""
    get = result.get_value
    return [
        (
            number(result, row, 0),
            functions[number(result, row, 1)],
            number(result, row, 2),
            number(result, row, 3),
            number(result, row, 4),
            get(row, 5) or b"",
        )
        for row in rows
        if get(row, 1) is not None
    ]


def _unsuccessful_rows(result: PGresult) -> list[tuple[int, int, bytes]]:
    return [
        (number(result, row, 0), number(result, row, 1), result.get_value(row, 2) or b"")
        for row in range(result.ntuples)
    ]


def _parts(values: Sequence[Any], count: int) -> list[list[Any]]:
    iterator = iter(values)
    parts = []
    while part := list(islice(iterator, count)):
        parts.append(part)
    return parts
