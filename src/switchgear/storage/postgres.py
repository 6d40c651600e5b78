"""`PostgresStore`: stores jobs in a PostgreSQL database, which one server at a time owns.

The event loop's thread does everything: libpq never blocks (`postgres_connection`). A commit is one pipeline on the
writing connection (`postgres_writer`); reads have two connections of their own (`postgres_reads`). A lease with a fence
makes sure that only its owner stores anything (`postgres_lease`).

Staged rows are in one `StagedRows` at any moment: the one being filled, or the one of the commit in progress. When a
commit fails, its rows are returned below those staged meanwhile, so the next commit tries them again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from switchgear.errors import Fenced, StorageError
from switchgear.model import WAITING, Function, Job, JobState, Limiter, PlainJob, Schedule
from switchgear.postgresql import connection_parameters
from switchgear.storage.base import JobQuery, Snapshot, Spare, Store
from switchgear.storage.function_rows import FunctionsById, function_row, row_without_settings
from switchgear.storage.lone_thread import LoneThread
from switchgear.storage.postgres_connection import PostgresConnection
from switchgear.storage.postgres_fence import DEFAULT_LEASE_SECONDS, PostgresFence
from switchgear.storage.postgres_lease import PostgresLease
from switchgear.storage.postgres_nodes import PostgresNodes
from switchgear.storage.postgres_reads import PostgresReads
from switchgear.storage.postgres_schema import MIGRATIONS, migrate
from switchgear.storage.postgres_writer import PostgresWriter, StagedRows
from switchgear.storage.sqlite_rows import INLINE_PAYLOAD_BYTES, decode_policy, job_row
from switchgear.storage.sqlite_schedules import schedule_row
from switchgear.text import without_secrets

__all__ = ["PostgresStore"]

log = logging.getLogger("switchgear")

Result = TypeVar("Result")

DEFAULT_PAYLOAD_MEMORY_BYTES: Final = 256 * 1024 * 1024

# How many failures a restarted server remembers by id, for jobs that name them as predecessors.
UNSUCCESSFUL_COUNT: Final = 100_000

# How many rows are deleted in one transaction; a commit may have to wait for it.
DROP_COUNT: Final = 5_000


class PostgresStore(Store):
    """Stores jobs in the database of a URL, in the first schema of its search path.

    All methods belong to the thread of the event loop. A job from `read_jobs` or `find` has a `Function` of its own
    that has only a name.
    """

    def __init__(
        self,
        url: str,
        payload_memory_bytes: int = DEFAULT_PAYLOAD_MEMORY_BYTES,
        *,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        migrations: Mapping[int, str] = MIGRATIONS,
    ) -> None:
        """Raises ConfigError for an invalid URL, or if psycopg is missing."""
        self.durable = True
        self.answers_at_once = False
        self._given_url = url
        self.url = without_secrets(url)
        self._parameters = connection_parameters(url, "store")
        self._payload_memory_bytes = payload_memory_bytes
        self._migrations = migrations
        connect = partial(PostgresConnection, url, self._parameters)
        writing = connect()
        self.lease = PostgresLease(writing, self.url, lease_seconds)
        self.fence: PostgresFence = self.lease
        self._writer = PostgresWriter(writing, self.lease)
        self._reads = PostgresReads(self.url, connect)
        self.nodes = PostgresNodes(self._reads)
        self._committing = asyncio.Lock()
        self._staged = StagedRows()
        self._in_flight = StagedRows()
        self._beating: asyncio.Task[None] | None = None
        self._fenced: Fenced | None = None
        self._function_ids: dict[bytes, int] = {}
        self._functions: dict[int, Function] = {}  # for jobs of the history
        self._next_function_id = 1

    # --- opening and closing ---

    def open(self) -> None:
        """Take the lease, and create or migrate the tables; blocks, at most a little longer than a lease."""
        thread = LoneThread("postgres-open")
        try:
            thread.submit(asyncio.run, self._open()).result()
        finally:
            thread.shutdown()

    async def _open(self) -> None:
        try:
            await self.prepare()
            await self.lease.acquire()
            await self.take_over()
        except BaseException:
            self._writer.connection.close()
            self._reads.close()
            raise

    async def prepare(self) -> None:
        """Create the tables if there are none."""
        await self._migrate(only_create=True)
        await self._writer.connection.open()

    async def take_over(self) -> None:
        """Migrate the tables, as the owner of the lease, and read the functions."""
        await self._migrate()
        for row in await self._reads.functions():
            self._learn_function(row[0], row[1])

    async def _migrate(self, *, only_create: bool = False) -> None:
        work = partial(migrate, self._parameters, self._given_url, self._migrations, only_create=only_create)
        thread = LoneThread("postgres-migrate")
        try:
            await asyncio.wrap_future(thread.submit(work))
        finally:
            thread.end_soon()

    async def close(self) -> None:
        """Release the lease and all connections. Staged changes that are not committed are lost."""
        await self._stop_beating()
        async with self._committing:
            if self._reads.is_closed:
                return
            self._reads.close()
            if self._writer.connection.is_open:
                with suppress(StorageError):  # it ends by itself
                    await self._give_up_ownership()
            self._writer.connection.close()

    async def _give_up_ownership(self) -> None:
        """Let another server take over at once."""
        await self.lease.release()

    # --- the lease ---

    def check(self) -> None:
        """Raise StorageError if another server may have taken over. A commit that succeeds renews the lease."""
        if self._fenced is not None:
            raise self._fenced
        if self.fence.has_lapsed():
            raise StorageError(f"{self.url} has not confirmed for too long that this server owns its jobs")

    def must_be_silent(self) -> bool:
        """Whether another server may have taken over by now, so that no output may be sent to peers."""
        return self.fence.has_lapsed()

    def _keep_lease(self) -> None:
        """Give signs of life in the event loop that runs now, even if nothing is committed."""
        loop = asyncio.get_running_loop()
        if self._beating is None or self._beating.done() or self._beating.get_loop() is not loop:
            self._committing = asyncio.Lock()  # one belongs to the event loop that it was first awaited in
            self._beating = loop.create_task(self._beat_on())

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(self.fence.beat_seconds)
            if self._committing.locked():
                continue
            async with self._committing:
                try:
                    await self._writer.beat()
                except Fenced as fenced:
                    self._fenced = fenced
                    return
                except StorageError:
                    continue  # `check` tells when that has lasted too long

    async def _stop_beating(self) -> None:
        beating, self._beating = self._beating, None
        if beating is not None and not beating.get_loop().is_closed():
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    # --- at the start ---

    async def load(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        """Everything unfinished; sets what was decided for the functions it knows through `function_named`."""
        self._keep_lease()
        functions = await self._load_functions(function_named)
        jobs = await self._reads.unfinished(functions, self._payload_memory_bytes, but_plain=False)
        return await self._snapshot(functions, now_us, jobs)

    async def load_apart(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        """The same, and most of what is ready as rows."""
        self._keep_lease()
        functions = await self._load_functions(function_named)
        jobs = await self._reads.unfinished(functions, self._payload_memory_bytes, but_plain=True)
        return await self._snapshot(functions, now_us, jobs, self._reads.plain(functions))

    async def _load_functions(self, function_named: Callable[[bytes], Function]) -> FunctionsById:
        rows = await self._reads.functions()
        functions = FunctionsById({row[0]: row[1] for row in rows}, function_named)
        for function_id, _, paused, high, normal, low, policy in rows:
            if paused is not None:  # it has settings
                function = functions[function_id]
                function.paused = bool(paused)
                function.limits = [high or 0, normal or 0, low or 0]
                function.limiter = Limiter(function, decode_policy(policy)) if policy is not None else None
        return functions

    async def _snapshot(
        self,
        functions: FunctionsById,
        now_us: int,
        jobs: list[Job],
        plain: AsyncGenerator[Sequence[PlainJob], None] | None = None,
    ) -> Snapshot:
        unsuccessful = await self._unsuccessful(jobs)
        return Snapshot(
            next_job_id=await self._reads.next_job_id(),
            jobs=jobs,
            plain=plain,
            unsuccessful={job_id: JobState(state) for job_id, state, _ in unsuccessful},
            unsuccessful_names={job_id: name for job_id, _, name in unsuccessful if name},
            has_all_unsuccessful=len(unsuccessful) < UNSUCCESSFUL_COUNT,
            schedules=await self._reads.schedules(),
            held=await self._reads.holding_their_key(functions, now_us),
        )

    async def _unsuccessful(self, unfinished: list[Job]) -> list[tuple[int, int, bytes]]:
        """The newest failures, and older ones if some job still waits for them; the oldest first."""
        newest = await self._reads.unsuccessful(UNSUCCESSFUL_COUNT)
        if len(newest) < UNSUCCESSFUL_COUNT:
            return newest  # these are all
        oldest_id = newest[0][0]
        waited_for = {
            job_id for job in unfinished if job.state is WAITING for job_id in job.predecessors if job_id < oldest_id
        }
        return await self._reads.unsuccessful_among(waited_for) + newest

    # --- writing ---

    def stage(
        self,
        jobs: Iterable[Job],
        functions: Iterable[Function] = (),
        next_job_id: int = 0,
        schedules: Iterable[Schedule] = (),
    ) -> None:
        """Copy the present state of these for the next commit."""
        staged = self._staged
        new, changed = staged.new, staged.changed
        function_ids = self._function_ids
        for function in functions:
            self._stage_function(function)
        for job in jobs:
            job.revision += 1
            function_id = function_ids.get(job.function.name)
            if function_id is None:
                function_id = self._new_function_id(job.function.name)
            row = job_row(job, function_id)
            job_id = job.id
            rows = new if job.revision == 1 or job_id in new else changed
            payload = job.payload
            if payload is None:
                if job_id in rows:
                    row = row[:-1] + rows[job_id][-1:]
            elif len(payload) > INLINE_PAYLOAD_BYTES:
                staged.payloads[job_id] = payload
            rows[job_id] = row
        if next_job_id > staged.next_job_id:
            staged.next_job_id = next_job_id
        for schedule in schedules:
            staged.schedules[schedule.name] = None if schedule.removed else schedule_row(schedule)

    def unstage(self, jobs: Iterable[Job]) -> None:
        """Drop these staged jobs. If a commit with one of them may have been stored, the next commit deletes it."""
        for job in jobs:
            self._staged.forget(job.id)
            if self._in_flight.forget(job.id) or self._writer.in_doubt:
                self._staged.withdrawn.add(job.id)

    async def commit(self) -> Sequence[int]:
        """Store all staged changes in one transaction; returns the ids of refused jobs."""
        self._keep_lease()
        async with self._committing:
            if self._reads.is_closed:
                raise StorageError(f"{self.url} is closed")
            if self._staged.is_empty():
                return ()
            # Before anything is awaited: what is staged from now on belongs to the next commit.
            batch, self._staged = self._staged, StagedRows()
            self._in_flight = batch
            try:
                self._refuse_if_fenced()
                return await _to_its_end(self._put(batch))
            except Fenced as fenced:
                self._fenced = fenced
                raise
            finally:
                self._in_flight = StagedRows()
                if not batch.is_stored:  # it may be, although the task was cancelled
                    self._staged.put_under(batch)

    async def _put(self, batch: StagedRows) -> list[int]:
        refused = await self._writer.put(batch)
        if self.fence.has_lapsed():
            # This process was stopped, or the answer took long. Another server may have taken over since the commit,
            # and may have run the jobs whose starts are in it.
            batch.is_stored = False
            self._writer.in_doubt = True
            await self._writer.beat()
            batch.is_stored = True
            self._writer.in_doubt = False
        return refused

    def _refuse_if_fenced(self) -> None:
        if self._fenced is not None:
            raise self._fenced

    async def drop_finished(self, before_us: int, keep_count: int, spare: Spare = frozenset, now_us: int = 0) -> int:
        """Delete jobs that finished before a time, and the oldest beyond `keep_count`, with commits in between."""
        self._keep_lease()
        self.check()
        bound = await self._reads.drop_bound(before_us, keep_count)
        spare_ids = sorted(spare())
        dropped = 0
        while True:
            async with self._committing:
                self._refuse_if_fenced()
                count = await _to_its_end(self._writer.drop(bound, now_us, spare_ids, DROP_COUNT))
            dropped += count
            if count < DROP_COUNT:
                return dropped

    def _stage_function(self, function: Function) -> None:
        """Stage the function's settings."""
        function_id = self._function_ids.get(function.name)
        if function_id is None:
            function_id = self._new_function_id(function.name)
        self._staged.functions[function_id] = function_row(function_id, function)

    def _new_function_id(self, name: bytes) -> int:
        """Stage a function without settings; its jobs need its id."""
        if not self.fence.is_held:
            raise StorageError(f"{self.url} is not open")
        function_id = self._next_function_id
        self._learn_function(function_id, name)
        self._staged.functions[function_id] = row_without_settings(function_id, name)
        return function_id

    def _learn_function(self, function_id: int, name: bytes) -> None:
        self._function_ids[name] = function_id
        self._functions[function_id] = Function(name)
        self._next_function_id = max(self._next_function_id, function_id + 1)

    # --- reading ---

    async def read_payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        """The payloads of these jobs, as far as they are stored, by id."""
        return await self._reads.payloads(job_ids)

    async def read_jobs(self, job_ids: Sequence[int]) -> dict[int, Job]:
        """These jobs, as far as they are stored, finished or not, with payload and result, by id."""
        return await self._reads.jobs(job_ids, self._functions)

    async def read_states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        """The states of these jobs, as far as they are stored, by id."""
        return await self._reads.states(job_ids)

    async def find(self, query: JobQuery) -> list[Job]:
        """Stored jobs that match, newest first, without their payloads."""
        function_id = None
        if query.function is not None:
            function_id = self._function_ids.get(query.function)
            if function_id is None:
                return []
        return await self._reads.find(query, function_id, self._functions)

    async def find_named(self, names: Collection[bytes], since_us: int = 0) -> dict[bytes, Job]:
        """The newest stored job of each of these names that was created since then, by name."""
        return await self._reads.find_named(names, since_us, self._functions)

    async def count_jobs(self, *, only_unfinished: bool = False) -> int:
        """How many jobs are stored."""
        return await self._reads.count_jobs(only_unfinished)

    def jobs_read(self) -> int:
        """How many unfinished jobs were read so far."""
        return self._reads.jobs_read

    async def search_bound(self, before_id: int, count: int, states: frozenset[JobState]) -> int:
        """The id from which on there are this many jobs in these states, or in more states than these."""
        return await self._reads.search_bound(before_id, count, states)


async def _to_its_end(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of the work, awaited even by a cancelled task: the outcome of a transaction must be known."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        with suppress(StorageError):
            task.result()
        raise cancelled
    return task.result()
