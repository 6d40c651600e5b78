"""`SqliteStore`: stores jobs in an SQLite file.

The event loop's thread stages rows and reads; the writer thread commits a batch of rows at a time. A staged row is in
one `Staged` at any moment: the one being filled, or the one of the commit in progress. When a commit fails, its rows
are returned below those staged meanwhile, so the next commit tries them again, with the newest row of each job.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import stat
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from switchgear.errors import StorageError
from switchgear.model import WAITING, Function, Job, JobState, Limiter, PlainJob, Schedule
from switchgear.storage.base import JobQuery, Snapshot, Spare, Store
from switchgear.storage.call_end import CallEnd
from switchgear.storage.function_rows import FunctionRow, FunctionsById, function_row, row_without_settings
from switchgear.storage.lockfile import DatabaseLock, FileLock
from switchgear.storage.lone_thread import LoneThread
from switchgear.storage.sqlite_reader import UnsuccessfulRow
from switchgear.storage.sqlite_reads import SqliteReads
from switchgear.storage.sqlite_rows import INLINE_PAYLOAD_BYTES, JobRow, job_row
from switchgear.storage.sqlite_schedules import ScheduleRow, schedule_row
from switchgear.storage.sqlite_schema import Sync
from switchgear.storage.sqlite_writer import Work, Writer
from switchgear.storage.store_files import LogFileLost, StoreFiles

__all__ = ["DEFAULT_PAYLOAD_MEMORY_BYTES", "SqliteStore"]

log = logging.getLogger("switchgear")

Result = TypeVar("Result")

# How many bytes of payloads a restarted server loads for its oldest jobs, so that the first ones to be assigned need
# not be read one by one.
DEFAULT_PAYLOAD_MEMORY_BYTES: Final = 256 * 1024 * 1024

# How many failures a restarted server remembers by id, for jobs that name them as predecessors.
UNSUCCESSFUL_COUNT: Final = 100_000

# How many rows are deleted in one transaction, which takes some 20 ms; a commit may have to wait for it.
DROP_COUNT: Final = 5_000

# A check of the files in advance (`expect_commit`) counts for a commit that begins within this time.
CHECKED_S: Final = 0.002


class Staged:
    """The changes for the next commit."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobRow] = {}  # by job id: a later change replaces an earlier one
        self.payloads: dict[int, bytes] = {}  # payloads that are too long for their row
        self.functions: dict[int, FunctionRow] = {}
        self.schedules: dict[bytes, ScheduleRow | None] = {}  # by name; None: to be deleted
        self.next_job_id = 0

    def is_empty(self) -> bool:
        """Whether nothing is staged."""
        return not (self.jobs or self.functions or self.schedules or self.next_job_id)

    def work(self) -> Work:
        """A copy for the writer thread."""
        return Work(
            list(self.jobs.values()),
            list(self.payloads.items()),
            list(self.functions.values()),
            self.next_job_id,
            list(self.schedules.items()),
        )

    def forget(self, job_id: int) -> None:
        """Remove one job."""
        self.jobs.pop(job_id, None)
        self.payloads.pop(job_id, None)

    def put_under(self, older: Staged) -> None:
        """Add the changes of a failed commit, except where there are newer ones."""
        for job_id, row in self.jobs.items():
            if job_id in older.jobs:
                # The newer row may have no payload, and the payload need not be elsewhere in memory.
                row = row[:-1] + older.jobs[job_id][-1:]
            older.jobs[job_id] = row
        self.jobs = older.jobs
        self.payloads = older.payloads | self.payloads
        self.functions = older.functions | self.functions
        self.schedules = older.schedules | self.schedules
        self.next_job_id = max(older.next_job_id, self.next_job_id)


class SqliteStore(Store):
    """Stores jobs in the file at `path`, which one server uses at a time.

    All methods belong to the thread of the event loop. A job from `read_jobs` or `find` has a `Function` of its own
    that has only a name.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        sync: Sync = "full",
        payload_memory_bytes: int = DEFAULT_PAYLOAD_MEMORY_BYTES,
        *,
        make_directory: bool = False,
    ) -> None:
        """With `make_directory` the directory of the file is created if missing, for its owner only."""
        self.durable = True
        self.answers_at_once = False
        self.url = f"sqlite:{os.fspath(path)}"
        self.path = Path(path).resolve()  # one lock for one file, whatever links refer to it
        self._make_directory = make_directory
        self._payload_memory_bytes = payload_memory_bytes
        self._lock = FileLock(self.path)
        self._database_lock = DatabaseLock(self.path)
        self._files = StoreFiles(Path(os.path.abspath(path)), self.path, self._database_lock)
        self._writer = Writer(self.path, sync)
        self._reads = SqliteReads(self.path, self._files.check_names)
        self._reader = self._reads.reader
        self._thread: LoneThread | None = None
        self._committing = asyncio.Lock()
        self._staged = Staged()
        self._in_flight = Staged()
        self._function_ids: dict[bytes, int] = {}
        self._functions: dict[int, Function] = {}  # for jobs of the history
        self._next_function_id = 1
        self._checked_at = 0.0  # when `expect_commit` has found the files in order

    def open(self) -> None:
        """Lock the file, create it if it is missing, and migrate its schema."""
        try:
            if self._make_directory:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.acquire()
        except FileNotFoundError:
            # The directory is not created: with a mistyped path the server would start with an empty queue, and nobody
            # would know why.
            directory = self.path.parent
            raise StorageError(
                f"{self.path} cannot be opened: there is no directory {directory}; if the path is right, make it:"
                f" mkdir -p -m 700 {shlex.quote(str(directory))}"
            ) from None
        except OSError as error:
            raise StorageError(f"{self.path} cannot be opened: {error}") from error
        self._thread = LoneThread("sqlite-writer")
        self._reads.open()
        try:
            self._database_lock.acquire()
            self._refuse_log_without_database()
            self._thread.submit(self._writer.open).result()
            self._files.begin()
            for row in self._reader.functions():
                self._learn_function(row[0], row[1])
        except BaseException as error:
            self._thread.submit(self._writer.close).result()
            self._release_resources()
            if isinstance(error, (OSError, TypeError, ValueError)):  # a damaged row causes the latter two
                raise StorageError(f"{self.path} cannot be opened: {error}") from error
            raise
        self._warn_of_others()

    def _refuse_log_without_database(self) -> None:
        """Refuse a log without its database: SQLite would delete the log, and with it the last acknowledged changes."""
        log_path = self.path.with_name(self.path.name + "-wal")
        if not self.path.stat().st_size and log_path.exists() and log_path.stat().st_size:
            raise StorageError(
                f"{self.path} is missing or empty, and its log {log_path} is there: put the file back that the log"
                " belongs to, or delete the log to begin with an empty store"
            )

    def _warn_of_others(self) -> None:
        """Warn if other users could change the jobs, or replace the file."""
        directory, file = self.path.parent.stat(), self.path.stat()
        if directory.st_mode & stat.S_IWOTH and not directory.st_mode & stat.S_ISVTX:
            log.warning("every user of this machine can replace the store: %s is writable for all", self.path.parent)
        if file.st_mode & stat.S_IWOTH:
            log.warning("every user of this machine can change jobs: %s is writable for all", self.path)
        if file.st_uid not in (os.geteuid(), 0):
            log.warning("%s belongs to user %d, and this server runs as %d", self.path, file.st_uid, os.geteuid())
        if file.st_nlink > 1:
            log.warning(
                "%s has %d hard links; opened by another one, the database is without its write-ahead log",
                self.path,
                file.st_nlink,
            )

    async def load(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        """Everything unfinished; sets what was decided for the functions it knows through `function_named`."""
        functions = await self._load_functions(function_named)
        jobs = await self._reads.unfinished(functions, self._payload_memory_bytes, but_plain=False)
        return await self._snapshot(functions, now_us, jobs)

    async def load_apart(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        """The same, and most of what is ready as rows."""
        functions = await self._load_functions(function_named)
        jobs = await self._reads.unfinished(functions, self._payload_memory_bytes, but_plain=True)
        return await self._snapshot(functions, now_us, jobs, self._reads.plain(functions))

    async def _load_functions(self, function_named: Callable[[bytes], Function]) -> FunctionsById:
        rows = await self._read(self._reader.functions)
        functions = FunctionsById({row[0]: row[1] for row in rows}, function_named)
        for row in rows:
            function_id, _, paused, high, normal, low, _ = row
            if paused is not None:  # it has settings
                function = functions[function_id]
                function.paused = bool(paused)
                function.limits = [high or 0, normal or 0, low or 0]
                policy = self._reader.policy(row)
                function.limiter = Limiter(function, policy) if policy else None
        return functions

    async def _snapshot(
        self,
        functions: FunctionsById,
        now_us: int,
        jobs: list[Job],
        plain: AsyncGenerator[Sequence[PlainJob], None] | None = None,
    ) -> Snapshot:
        unsuccessful = await self._unsuccessful(jobs)
        held = await self._read(self._reader.holding_their_key, now_us)
        return Snapshot(
            next_job_id=await self._read(self._reader.next_job_id),
            jobs=jobs,
            plain=plain,
            unsuccessful={job_id: JobState(state) for job_id, state, _ in unsuccessful},
            unsuccessful_names={job_id: name for job_id, _, name in unsuccessful if name},
            has_all_unsuccessful=len(unsuccessful) < UNSUCCESSFUL_COUNT,
            schedules=await self._read(self._reader.schedules),
            held=await self._reads.decoded(self._reader, held, functions),
        )

    async def _unsuccessful(self, unfinished: list[Job]) -> list[UnsuccessfulRow]:
        """The newest failures, and older ones if some job still waits for them; the oldest first."""
        newest = await self._read(self._reader.unsuccessful, UNSUCCESSFUL_COUNT)
        if len(newest) < UNSUCCESSFUL_COUNT:
            return newest  # these are all
        oldest_id = newest[0][0]
        waited_for = {
            job_id for job in unfinished if job.state is WAITING for job_id in job.predecessors if job_id < oldest_id
        }
        return await self._read(self._reader.unsuccessful_among, waited_for) + newest

    async def _read(self, read: Callable[..., Result], *arguments: object) -> Result:
        """The result of a method of the reader, which runs in the reader's thread."""
        return await self._reads.call(self._reader, read, *arguments)

    def stage(
        self,
        jobs: Iterable[Job],
        functions: Iterable[Function] = (),
        next_job_id: int = 0,
        schedules: Iterable[Schedule] = (),
    ) -> None:
        """Copy the present state of these for the next commit."""
        staged = self._staged
        rows = staged.jobs
        function_ids = self._function_ids
        for function in functions:
            self._stage_function(function)
        for job in jobs:
            job.revision += 1
            function_id = function_ids.get(job.function.name)
            if function_id is None:
                function_id = self._new_function_id(job.function.name)
            row = job_row(job, function_id)
            payload = job.payload
            if payload is None:
                if job.id in rows:
                    row = row[:-1] + rows[job.id][-1:]
            elif len(payload) > INLINE_PAYLOAD_BYTES:
                staged.payloads[job.id] = payload
            rows[job.id] = row
        if next_job_id > staged.next_job_id:
            staged.next_job_id = next_job_id
        for schedule in schedules:
            staged.schedules[schedule.name] = None if schedule.removed else schedule_row(schedule)

    def unstage(self, jobs: Iterable[Job]) -> None:
        """Drop these staged jobs: they were never committed, and no peer was told of them.

        A job in the commit in progress may be stored all the same, but if that commit fails it is not tried again.
        """
        for job in jobs:
            self._staged.forget(job.id)
            self._in_flight.forget(job.id)

    def expect_commit(self) -> None:
        """Check the files now, while the peers are busy: they do not wait for that later."""
        try:
            self._files.check()
        except StorageError:
            return  # the commit finds that too
        self._checked_at = time.monotonic()

    async def commit(self) -> Sequence[int]:
        """Store all staged changes in one transaction; returns the ids of refused jobs."""
        async with self._committing:
            if self._staged.is_empty():
                return ()
            # Before anything is awaited: what is staged from now on belongs to the next commit.
            batch, self._staged = self._staged, Staged()
            self._in_flight = batch
            keeping: Future[list[int]] | None = None
            is_kept = False
            try:
                checked_at, self._checked_at = self._checked_at, 0.0
                if time.monotonic() - checked_at > CHECKED_S or not self._files.is_log_unchanged():
                    await self._check_files()
                keeping = Future()
                await self._in_writer_thread(self._writer.put, batch.work(), future=keeping)
                await self._check_files()  # the files may have been removed meanwhile
                is_kept = True
            finally:
                self._in_flight = Staged()
                if not is_kept:
                    self._put_back(keeping, batch)
            return keeping.result()

    def _put_back(self, keeping: Future[list[int]] | None, batch: Staged) -> None:
        """Stage the changes of a failed commit again, or of one that a restart would not find."""
        if keeping is not None and not keeping.cancelled() and keeping.exception() is None:
            try:
                self._files.check()
            except StorageError:
                self._writer.doubt()
            else:
                return  # it is stored, and only the task was cancelled
        self._staged.put_under(batch)

    async def _check_files(self) -> None:
        """Raise StorageError unless a restart would find the present commit. A lost log is replaced."""
        if self._thread is None:
            raise StorageError(f"{self.path} is closed")
        try:
            self._files.check()
        except LogFileLost as lost:
            log.error("%s; the store is opened again with a new one", lost)
            await self._in_writer_thread(self._writer.merge_log)  # SQLite still has the old log open
            self._reopen()
            log.warning("everything that was in the lost log of %s is in the store", self.path)

    def _reopen(self) -> None:
        assert self._thread is not None
        self._reads.disconnect()
        self._thread.submit(self._writer.close).result()
        self._files.end()
        try:
            self._thread.submit(self._writer.open).result()
            self._files.begin()
        except OSError as error:
            raise StorageError(f"{self.path} cannot be opened again: {error}") from error

    def check(self) -> None:
        """Raise StorageError if a restart would not find the stored jobs. The next commit may repair that."""
        self._files.check()

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
        """Stored jobs that match, newest first, without their payloads and results."""
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
        """How many jobs are stored; takes some tens of milliseconds for a million."""
        searcher = self._reads.searcher
        return await self._reads.call(searcher, searcher.count_jobs, only_unfinished)

    def jobs_read(self) -> int:
        """How many unfinished jobs were read so far."""
        return self._reads.jobs_read

    async def search_bound(self, before_id: int, count: int, states: frozenset[JobState]) -> int:
        """The id from which on there are this many jobs in these states, or in more states than these."""
        searcher = self._reads.searcher
        return await self._reads.call(searcher, searcher.search_bound, before_id, count, states)

    async def drop_finished(self, before_us: int, keep_count: int, spare: Spare = frozenset, now_us: int = 0) -> int:
        """Delete jobs that finished before a time, and the oldest beyond `keep_count`, with commits in between."""
        self.check()
        bound = await self._reads.call(self._reads.searcher, self._reads.searcher.drop_bound, before_us, keep_count)
        spare_ids = json.dumps(sorted(spare()))
        dropped = 0
        while True:
            count = await self._in_writer_thread(self._writer.drop, bound, now_us, spare_ids, DROP_COUNT)
            dropped += count
            if count < DROP_COUNT:
                return dropped

    async def close(self) -> None:
        """Release all resources. Staged changes that are not committed are lost."""
        async with self._committing:
            if self._thread is not None:
                self._reads.close()
                await self._prepare_for_closing()
                # The writer closes last, and in its thread, because the last connection to close merges the log into
                # the file.
                await self._in_writer_thread(self._writer.close)
                self._release_resources()

    async def _prepare_for_closing(self) -> None:
        """Make sure that closing does not damage a file that has replaced the database or its log."""
        try:
            self._files.check()
        except LogFileLost as lost:
            log.error("%s; everything in it is merged into the store", lost)
        except StorageError as error:
            log.error("the server stops while its store cannot be relied on: %s", error)
            if not self._files.is_damaged:
                with suppress(StorageError):  # so that the file is complete, wherever it is
                    await self._in_writer_thread(self._writer.merge_log)
            self._database_lock.keep_from_merging()

    def _release_resources(self) -> None:
        self._reads.close()
        self._reads.end()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._files.end()
        self._database_lock.release()
        self._lock.release()

    def _stage_function(self, function: Function) -> None:
        """Stage the function's settings."""
        function_id = self._function_ids.get(function.name)
        if function_id is None:
            function_id = self._new_function_id(function.name)
        self._staged.functions[function_id] = function_row(function_id, function)

    def _new_function_id(self, name: bytes) -> int:
        """Stage a function without settings; its jobs need its id."""
        if self._thread is None:
            raise StorageError(f"{self.path} is not open")
        function_id = self._next_function_id
        self._learn_function(function_id, name)
        self._staged.functions[function_id] = row_without_settings(function_id, name)
        return function_id

    def _learn_function(self, function_id: int, name: bytes) -> None:
        self._function_ids[name] = function_id
        self._functions[function_id] = Function(name)
        self._next_function_id = max(self._next_function_id, function_id + 1)

    async def _in_writer_thread(
        self, work: Callable[..., Result], *arguments: object, future: Future[Result] | None = None
    ) -> Result:
        """The result of a call in the writer thread, awaited even by a cancelled task: its outcome must be known.

        The outcome is also in `future`, if the caller has made one.
        """
        if self._thread is None:
            raise StorageError(f"{self.path} is closed")
        call: Future[Result] = future if future is not None else Future()
        end = CallEnd(call)  # all of it before the thread is woken, since the thread then waits for this one
        self._thread.run(call, work, *arguments)
        await end.wait()
        return call.result()
