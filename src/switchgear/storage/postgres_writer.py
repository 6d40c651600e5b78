"""`PostgresWriter`: the writing connection of the PostgreSQL store, and its transactions.

A commit is one pipeline: BEGIN, the fence, the changes, COMMIT. Which statement a row needs follows from what the store
knows: a row that was never staged before is inserted, another one is updated, or moved to the history. Each statement
compares the number of rows that it changed with the number expected, and aborts the transaction if they differ. That
happens if a row is refused because of its revision, if a finished job changes, or if a commit was stored although its
connection was lost. Then the stored revisions are read, and each row gets the statement that it needs.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from switchgear.errors import StorageError
from switchgear.storage.function_rows import FunctionRow
from switchgear.storage.postgres_connection import NOT_AS_EXPECTED, PostgresConnection, PostgresRefusal, Step
from switchgear.storage.postgres_fence import PostgresFence
from switchgear.storage.postgres_reads import ERROR_KIND, PAYLOAD_KIND, RESULT_KIND, number
from switchgear.storage.postgres_rows import (
    arrays,
    bigint,
    clamped,
    done_arrays,
    integer,
    integer_array,
    new_plain_arrays,
    portions,
    smallint,
    sort_rows,
    started_arrays,
)
from switchgear.storage.postgres_schema import STATEMENTS
from switchgear.storage.sqlite_rows import ERROR, ID, RESULT, REVISION, STATE, JobRow
from switchgear.storage.sqlite_schedules import ScheduleRow

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

__all__ = ["PostgresWriter", "StagedRows"]

# The place of the fence in a transaction: after BEGIN.
FENCE_STEP: Final = 1
PIECE_BYTES: Final = 262_144
FIRST_FINAL_STATE: Final = 4
IN_HISTORY: Final = 1

encode_schedule = msgspec.msgpack.Encoder().encode


class StagedRows:
    """The changes for one commit."""

    def __init__(self) -> None:
        self.new: dict[int, JobRow] = {}  # by id: rows of jobs that were never stored
        self.changed: dict[int, JobRow] = {}  # by id: rows of jobs that were stored before
        self.payloads: dict[int, bytes] = {}  # payloads that are too long for their row
        self.withdrawn: set[int] = set()  # jobs that may be stored, and must not be
        self.functions: dict[int, FunctionRow] = {}
        self.schedules: dict[bytes, ScheduleRow | None] = {}  # by name; None: to be deleted
        self.next_job_id = 0
        self.inbox: dict[int, list[int]] = {}  # by partition: new jobs whose owner is another node
        self.is_stored = False

    def is_empty(self) -> bool:
        """Whether nothing is staged."""
        return not (self.new or self.changed or self.functions or self.schedules or self.next_job_id or self.withdrawn)

    def forget(self, job_id: int) -> bool:
        """Remove one job; returns whether it was there."""
        self.payloads.pop(job_id, None)
        is_there = self.new.pop(job_id, None) is not None
        return self.changed.pop(job_id, None) is not None or is_there

    def put_under(self, older: StagedRows) -> None:
        """Add the changes of a failed commit, except where there are newer ones."""
        for job_id, row in self.changed.items():
            rows = older.new if job_id in older.new else older.changed
            if job_id in rows:
                # The newer row may have no payload, and the payload need not be elsewhere in memory.
                row = row[:-1] + rows[job_id][-1:]
            rows[job_id] = row
        older.new.update(self.new)
        self.new, self.changed = older.new, older.changed
        self.payloads = older.payloads | self.payloads
        self.withdrawn |= older.withdrawn
        self.functions = older.functions | self.functions
        self.schedules = older.schedules | self.schedules
        self.next_job_id = max(older.next_job_id, self.next_job_id)
        for partition, job_ids in older.inbox.items():
            self.inbox[partition] = job_ids + self.inbox.get(partition, [])


class PostgresWriter:
    """Writes and deletes rows as the owner of all jobs, or of some partitions."""

    def __init__(self, connection: PostgresConnection, lease: PostgresFence) -> None:
        self.connection = connection
        self.lease = lease
        self.in_doubt = False  # the last transaction may have been stored although it failed

    async def put(self, staged: StagedRows) -> list[int]:
        """Store everything; returns the ids of jobs refused because of their revision.

        Raises StorageError if nothing was stored, or if nobody knows (`in_doubt`); Fenced if another server is the
        owner.
        """
        await self.be_ready()
        refused = await self._put_or_clamp(staged)
        staged.is_stored = True
        return refused

    async def _put_or_clamp(self, staged: StagedRows) -> list[int]:
        try:
            return await self._put(staged)
        except struct.error:  # a number beyond its column, which only a peer can have sent
            for rows in (staged.new, staged.changed):
                for job_id, row in rows.items():
                    rows[job_id] = clamped(row)
            await self.be_ready()
            return await self._put(staged)

    async def be_ready(self) -> None:
        """Connect if the connection was lost, and begin a new epoch: no earlier transaction can be stored from now."""
        if not self.connection.is_open:
            await self.connection.open()
            try:
                await self.lease.renew()
            except BaseException:
                self.connection.close()
                raise

    async def beat(self) -> None:
        """Renew the lease; reconnect if necessary."""
        if self.connection.is_open:
            await self.lease.beat()
        else:
            await self.be_ready()

    async def drop(self, before: tuple[int, int], now_us: int, spare: list[int], limit: int) -> int:
        """Delete up to `limit` finished jobs whose time and id are below `before`, the oldest first, and as many
        whose own retention has passed at `now_us`. Jobs in `spare`, or whose unique key is still held, stay."""
        await self.be_ready()
        spared = integer_array(spare)
        old = (bigint(before[0]), bigint(before[1]), bigint(now_us), spared, bigint(limit))
        steps: list[Step] = [
            (STATEMENTS["drop_old"], old),
            (STATEMENTS["drop_kept_long_enough"], (bigint(now_us), spared, bigint(limit))),
        ]
        results = await self._transact(iter(steps))
        return sum(number(result, 0, 0) for result in results[2:4])

    async def _put(self, staged: StagedRows) -> list[int]:
        if not self.in_doubt:
            try:
                await self._transact(chain(_other_steps(staged), _guessed_steps(staged)))
            except PostgresRefusal as refusal:
                if refusal.code != NOT_AS_EXPECTED:
                    raise
            else:
                return []
        return await self._put_exactly(staged)

    async def _put_exactly(self, staged: StagedRows) -> list[int]:
        """Store each row with the statement that it needs, after looking what is stored."""
        rows = [*staged.new.values(), *staged.changed.values()]
        stored: dict[int, tuple[int, bool]] = {}
        for portion in portions(rows):
            job_ids = integer_array([row[ID] for row in portion])
            (result,) = await self._request(iter([(STATEMENTS["revisions"], (job_ids,))]))
            for place in range(result.ntuples):
                found = (number(result, place, 1), number(result, place, 2) == IN_HISTORY)
                stored[number(result, place, 0)] = found
        ours = self.in_doubt  # then the same revision is our own
        refused: list[int] = []
        wanted: list[JobRow] = []
        for row in rows:
            revision = stored[row[ID]][0] if row[ID] in stored else -1
            if revision < row[REVISION]:
                wanted.append(row)
            elif not (ours and revision == row[REVISION]):
                refused.append(row[ID])
        await self._transact(chain(_other_steps(staged), _exact_steps(wanted, stored, staged.payloads)))
        return refused

    async def _transact(self, steps: Iterator[Step]) -> list[PGresult]:
        """Run a transaction of these steps; returns their results."""
        first: list[Step] = [(STATEMENTS["begin"], ()), self.lease.fence()]
        sent_s = time.monotonic()
        beat = self.lease.due_beat_steps(sent_s)
        results = await self._request(chain(first, steps, beat or (), [(STATEMENTS["commit"], ())]))
        self.in_doubt = False
        if beat is not None:
            self.lease.beat_succeeded(sent_s)
        return results

    async def _request(self, steps: Iterator[Step]) -> list[PGresult]:
        try:
            return await self.connection.run(steps)
        except PostgresRefusal as refusal:
            await self._roll_back()
            if refusal.step == FENCE_STEP and refusal.code == NOT_AS_EXPECTED:
                raise self.lease.fenced() from refusal
            raise
        except StorageError:
            self.in_doubt = True
            raise
        except struct.error:
            raise  # nothing was sent that could be stored: the transaction has no end
        except BaseException:
            self.in_doubt = True
            raise

    async def _roll_back(self) -> None:
        """End a failed transaction."""
        await self.connection.run([(STATEMENTS["rollback"], ())])


def _other_steps(staged: StagedRows) -> Iterator[Step]:
    """The steps for everything except jobs."""
    # In the order of their names, so that nodes which use several new functions at once do not wait for each other.
    functions = sorted(staged.functions.values(), key=itemgetter(1))
    for function_id, name, paused, high, normal, low, policy in functions:
        limits = (None if limit is None else bigint(limit) for limit in (high, normal, low))
        is_paused = None if paused is None else smallint(paused)
        yield STATEMENTS["put_function"], (integer(function_id), name, is_paused, *limits, policy)
    if staged.next_job_id:
        yield STATEMENTS["put_next_job_id"], (bigint(staged.next_job_id),)
    for schedule_name, row in staged.schedules.items():
        if row is None:
            yield STATEMENTS["drop_schedule"], (schedule_name,)
        else:
            yield STATEMENTS["put_schedule"], (schedule_name, encode_schedule(row))
    for partition, job_ids in staged.inbox.items():
        yield STATEMENTS["put_inbox"], (bigint(partition), integer_array(job_ids))
    if staged.withdrawn:
        yield STATEMENTS["withdraw"], (integer_array(sorted(staged.withdrawn)),)


def _guessed_steps(staged: StagedRows) -> Iterator[Step]:
    """The steps for jobs, if new ones are not stored and others are unfinished."""
    for job_id in staged.new:
        if job_id in staged.payloads:
            yield from _long_steps(job_id, PAYLOAD_KIND, staged.payloads[job_id])
    new, steps = _without_long_values(list(staged.new.values()))
    yield from steps
    changed, steps = _without_long_values(list(staged.changed.values()))
    yield from steps
    rows = sort_rows(new, changed)
    for name, some, make in (
        ("new_plain", rows.new_plain, new_plain_arrays),
        ("new_unfinished", rows.new_unfinished, arrays),
        ("new_finished", rows.new_finished, arrays),
        ("started", rows.started, started_arrays),
        ("changed", rows.changed, arrays),
        ("done", rows.done, done_arrays),
        ("ended", rows.ended, arrays),
    ):
        if some:
            for portion in portions(some):
                yield STATEMENTS[name], make(portion)


def _exact_steps(
    wanted: list[JobRow], stored: dict[int, tuple[int, bool]], payloads: dict[int, bytes]
) -> Iterator[Step]:
    """The steps for jobs when it is known which are stored, and whether in the history."""
    for row in wanted:
        if row[ID] not in stored and row[ID] in payloads:
            yield from _long_steps(row[ID], PAYLOAD_KIND, payloads[row[ID]])
    rows, steps = _without_long_values(wanted)
    yield from steps
    by_statement: dict[str, list[JobRow]] = {}
    for row in rows:
        is_final = row[STATE] >= FIRST_FINAL_STATE
        if row[ID] not in stored:
            name = "new_finished" if is_final else "new_unfinished"
        elif stored[row[ID]][1]:
            name = "changed_finished" if is_final else "retried"
        else:
            name = "ended" if is_final else "changed"
        by_statement.setdefault(name, []).append(row)
    for name, some in by_statement.items():
        for portion in portions(some):
            yield STATEMENTS[name], arrays(portion)


def _without_long_values(rows: list[JobRow]) -> tuple[list[JobRow], list[Step]]:
    """The rows without results and errors that are too long for a row, and the steps for those."""
    steps: list[Step] = []
    for place, row in enumerate(rows):
        result, error = row[RESULT], row[ERROR]
        if not isinstance(result, bytes) and not isinstance(error, bytes):  # only long ones are not bytearrays
            continue
        changed: list[Any] = list(row)
        changed[RESULT], changed[ERROR] = None, 0
        rows[place] = tuple(changed)
        steps += _long_steps(row[ID], RESULT_KIND, result)
        if error != 0:
            steps += _long_steps(row[ID], ERROR_KIND, error)
        else:
            steps.append((STATEMENTS["drop_long"], (bigint(row[ID]), smallint(ERROR_KIND))))
    return rows, steps


def _long_steps(job_id: int, kind: int, value: bytes | bytearray) -> Iterator[Step]:
    """The steps that store a long value in pieces, in place of an earlier one."""
    key = (bigint(job_id), smallint(kind))
    yield STATEMENTS["drop_long"], key
    view = memoryview(value)
    for piece, start in enumerate(range(0, max(1, len(value)), PIECE_BYTES)):
        content = bytes(view[start : start + PIECE_BYTES])
        yield STATEMENTS["put_long"], (*key, integer(piece), content)
