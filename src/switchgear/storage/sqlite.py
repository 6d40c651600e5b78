"""Jobs in an SQLite file.

Two sides meet here.  The event loop's thread stages rows and reads; the writer thread keeps a batch of rows at a time.
What is staged is in one `Staged` at any moment: the one being filled, or the one whose commit is in flight.  When a
commit fails its rows go back under those staged meanwhile, so the next commit tries them again, the newest of each job.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import stat
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from switchgear.errors import StorageError
from switchgear.model import WAITING, Function, Gate, Job, JobState, PlainJob, Schedule
from switchgear.storage.base import JobQuery, Snapshot, Spare, Store
from switchgear.storage.lockfile import DatabaseLock, FileLock
from switchgear.storage.lone_thread import LoneThread
from switchgear.storage.sqlite_reader import UNSUCCESSFUL_STATES, Reader
from switchgear.storage.sqlite_rows import INLINE_PAYLOAD_BYTES, JobRow, encode, job_row
from switchgear.storage.sqlite_schedules import ScheduleRow, schedule_row
from switchgear.storage.sqlite_schema import Sync
from switchgear.storage.sqlite_writer import FunctionRow, Work, Writer
from switchgear.storage.store_files import LogFileLost, StoreFiles

__all__ = ["DEFAULT_PAYLOAD_MEMORY_BYTES", "SqliteStore"]

log = logging.getLogger("switchgear")

Result = TypeVar("Result")

# What a restarted server may fill with the payloads of its oldest jobs, so that the first ones it hands out need not be
# fetched one by one.
DEFAULT_PAYLOAD_MEMORY_BYTES: Final = 256 * 1024 * 1024

# How many failures a restarted server remembers by id, for jobs that name them as predecessors.
UNSUCCESSFUL_COUNT: Final = 100_000

# Rows dropped in one transaction, which takes some 20 ms; a commit may have to wait for it.
DROP_COUNT: Final = 5_000

# A busy event loop lets go of the interpreter lock for a microsecond at every system call and takes it back before the
# writer thread has woken up, and each time that thread's patience (`sys.setswitchinterval`) begins anew: it has been
# seen to starve for a second.  So once a commit takes longer than the first of these, the loop stands still for the
# second, again and again until it is over.
PATIENCE_S: Final = 0.005
STEP_ASIDE_S: Final = 0.0001


class Staged:
    """What the next commit is to keep."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobRow] = {}  # by job id: a later change replaces an earlier one
        self.payloads: dict[int, bytes] = {}  # those too long for their row
        self.functions: dict[int, FunctionRow] = {}
        self.schedules: dict[bytes, ScheduleRow | None] = {}  # by name; None: it is to be forgotten
        self.next_job_id = 0

    def is_empty(self) -> bool:
        """Whether there is nothing to keep."""
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
        """Take back one job."""
        self.jobs.pop(job_id, None)
        self.payloads.pop(job_id, None)

    def put_under(self, older: Staged) -> None:
        """Take in what an earlier commit could not keep, except where there is newer."""
        for job_id, row in self.jobs.items():
            if job_id in older.jobs:
                # The newer row may be without the payload, which by now need not be in memory elsewhere.
                row = row[:-1] + older.jobs[job_id][-1:]
            older.jobs[job_id] = row
        self.jobs = older.jobs
        self.payloads = older.payloads | self.payloads
        self.functions = older.functions | self.functions
        self.schedules = older.schedules | self.schedules
        self.next_job_id = max(older.next_job_id, self.next_job_id)


class SqliteStore(Store):
    """Keeps jobs in the file at `path`, which one server uses at a time.

    `find` may also be called from another thread, for searches that take long; everything else belongs to the thread
    of the event loop.  A job from `get` or `find` has a `Function` of its own that carries nothing but the name.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        sync: Sync = "full",
        payload_memory_bytes: int = DEFAULT_PAYLOAD_MEMORY_BYTES,
        *,
        make_directory: bool = False,
    ) -> None:
        """`make_directory`: make the directory of the file, for its owner only, if it is missing."""
        self.durable = True
        self.url = f"sqlite:{os.fspath(path)}"
        self.path = Path(path).resolve()  # one file, one lock, whatever links lead to it
        self._make_directory = make_directory
        self._payload_memory_bytes = payload_memory_bytes
        self._lock = FileLock(self.path)
        self._database_lock = DatabaseLock(self.path)
        self._files = StoreFiles(Path(os.path.abspath(path)), self.path, self._database_lock)
        self._writer = Writer(self.path, sync)
        self._reader = Reader(self.path, self._files.check_names)
        self._searcher = Reader(self.path, self._files.check_names)  # apart, so that a long search keeps nobody waiting
        self._thread: LoneThread | None = None
        self._committing = asyncio.Lock()
        self._staged = Staged()
        self._in_flight = Staged()
        self._function_ids: dict[bytes, int] = {}
        self._functions: dict[int, Function] = {}  # for jobs of the history
        self._next_function_id = 1

    def open(self) -> None:
        """Own the file, create it if it is missing, and bring its layout up to date."""
        try:
            if self._make_directory:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.acquire()
        except FileNotFoundError:
            # Not made here: whoever mistypes a path would start with an empty queue, and not know why.
            directory = self.path.parent
            raise StorageError(
                f"{self.path} cannot be opened: there is no directory {directory}; if the path is right, make it:"
                f" mkdir -p -m 700 {shlex.quote(str(directory))}"
            ) from None
        except OSError as error:
            raise StorageError(f"{self.path} cannot be opened: {error}") from error
        self._thread = LoneThread("sqlite-writer")
        try:
            self._database_lock.acquire()
            self._refuse_log_without_database()
            self._thread.submit(self._writer.open).result()
            self._files.begin()
            for row in self._reader.functions():
                self._learn_function(row[0], row[1])
        except BaseException as error:
            self._thread.submit(self._writer.close).result()
            self._let_go()
            if isinstance(error, (OSError, TypeError, ValueError)):  # the latter two come of a damaged row
                raise StorageError(f"{self.path} cannot be opened: {error}") from error
            raise
        self._warn_of_others()

    def _refuse_log_without_database(self) -> None:
        """SQLite would delete the log, and with it what was acknowledged last."""
        log_path = self.path.with_name(self.path.name + "-wal")
        if not self.path.stat().st_size and log_path.exists() and log_path.stat().st_size:
            raise StorageError(
                f"{self.path} is missing or empty, and its log {log_path} is there: put the file back that the log"
                " belongs to, or delete the log to begin with an empty store"
            )

    def _warn_of_others(self) -> None:
        """Say so if other users could change the jobs, or exchange the file."""
        directory, file = self.path.parent.stat(), self.path.stat()
        if directory.st_mode & stat.S_IWOTH and not directory.st_mode & stat.S_ISVTX:
            log.warning("every user of this machine can replace the store: %s is writable for all", self.path.parent)
        if file.st_mode & stat.S_IWOTH:
            log.warning("every user of this machine can change jobs: %s is writable for all", self.path)
        if file.st_uid not in (os.geteuid(), 0):
            log.warning("%s belongs to user %d, and this server runs as %d", self.path, file.st_uid, os.geteuid())
        if file.st_nlink > 1:
            log.warning("%s has %d names: the others lead to a database without its log", self.path, file.st_nlink)

    def load(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        """Everything unfinished; sets what was decided for the functions it knows through `function_named`."""
        functions = self._load_functions(function_named)
        jobs = self._reader.unfinished(functions, self._payload_memory_bytes)
        return self._snapshot(functions, now_us, jobs)

    def load_apart(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        """The same, and most of what is ready as rows."""
        functions = self._load_functions(function_named)
        jobs = self._reader.unfinished(functions, self._payload_memory_bytes, but_plain=True)
        return self._snapshot(functions, now_us, jobs, self._reader.plain(functions))

    def _load_functions(self, function_named: Callable[[bytes], Function]) -> _Loaded:
        rows = self._reader.functions()
        functions = _Loaded({row[0]: row[1] for row in rows}, function_named)
        for row in rows:
            function_id, _, paused, high, normal, low, _ = row
            if paused is not None:  # somebody has set something
                function = functions[function_id]
                function.paused = bool(paused)
                function.limits = [high or 0, normal or 0, low or 0]
                policy = self._reader.policy(row)
                function.gate = Gate(function, policy) if policy else None
        return functions

    def _snapshot(
        self, functions: _Loaded, now_us: int, jobs: list[Job], plain: Iterable[Sequence[PlainJob]] = ()
    ) -> Snapshot:
        return Snapshot(
            next_job_id=self._reader.next_job_id(),
            jobs=jobs,
            plain=plain,
            unsuccessful=self._unsuccessful(jobs),
            schedules=self._reader.schedules(),
            held=self._reader.holding_their_key(functions, now_us),
        )

    def _unsuccessful(self, unfinished: list[Job]) -> dict[int, JobState]:
        """The newest failures, and older ones if some job still waits for them."""
        newest = self._reader.unsuccessful(UNSUCCESSFUL_COUNT)
        if len(newest) < UNSUCCESSFUL_COUNT:
            return newest  # there are no more
        oldest_id = next(iter(newest))
        waited_for = {
            job_id for job in unfinished if job.state is WAITING for job_id in job.predecessors if job_id < oldest_id
        }
        return self._reader.unsuccessful_among(waited_for) | newest

    def stage(
        self,
        jobs: Iterable[Job],
        functions: Iterable[Function] = (),
        next_job_id: int = 0,
        schedules: Iterable[Schedule] = (),
    ) -> None:
        """Note these as they are now, for the next commit."""
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
        """Forget these staged jobs: they were never kept and nobody was told of them.

        One in the commit that is in flight may be kept all the same, but if that fails it is not tried again.
        """
        for job in jobs:
            self._staged.forget(job.id)
            self._in_flight.forget(job.id)

    async def commit(self) -> Sequence[int]:
        """Keep all that is staged now, in one transaction; returns the ids of jobs refused."""
        async with self._committing:
            if self._staged.is_empty():
                return ()
            # Before anything is waited for: what is staged from now on belongs to the next commit.
            batch, self._staged = self._staged, Staged()
            self._in_flight = batch
            keeping: Future[list[int]] | None = None
            is_kept = False
            try:
                await self._check_files()
                keeping = self._in_writer_thread(self._writer.put, batch.work())
                await _end_of(keeping)
                await self._check_files()  # the files may have gone meanwhile
                is_kept = True
            finally:
                self._in_flight = Staged()
                if not is_kept:
                    self._put_back(keeping, batch)
            return keeping.result()

    def _put_back(self, keeping: Future[list[int]] | None, batch: Staged) -> None:
        """Stage again what a commit has not kept, or not where it would be found."""
        if keeping is not None and not keeping.cancelled() and keeping.exception() is None:
            try:
                self._files.check()
            except StorageError:
                self._writer.doubt()
            else:
                return  # it is kept, and only the task was cancelled
        self._staged.put_under(batch)

    async def _check_files(self) -> None:
        """Raise StorageError unless a restart would find what is committed now.  A lost log is replaced."""
        if self._thread is None:
            raise StorageError(f"{self.path} is closed")
        try:
            self._files.check()
        except LogFileLost as lost:
            log.error("%s; the store is opened again with a new one", lost)
            await _end_of(self._in_writer_thread(self._writer.merge_log))  # SQLite still has the old one
            self._reopen()
            log.warning("everything that was in the lost log of %s is in the store", self.path)

    def _reopen(self) -> None:
        assert self._thread is not None
        self._reader.disconnect()
        self._searcher.disconnect()
        self._thread.submit(self._writer.close).result()
        self._files.end()
        try:
            self._thread.submit(self._writer.open).result()
            self._files.begin()
        except OSError as error:
            raise StorageError(f"{self.path} cannot be opened again: {error}") from error

    def check(self) -> None:
        """Raise StorageError if a restart would not find what is kept.  The next commit may mend that."""
        self._files.check()

    def read_payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        """The payloads of kept jobs."""
        return self._reader.payloads(job_ids)

    def get(self, job_id: int) -> Job | None:
        """One kept job, finished or not, with payload and result."""
        return self._reader.job(job_id, self._functions)

    def states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        """The states of those of the jobs that are kept, by id."""
        return self._reader.states(job_ids)

    def find(self, query: JobQuery) -> list[Job]:
        """Kept jobs that match, newest first, without their payloads."""
        function_id = None
        if query.function is not None:
            function_id = self._function_ids.get(query.function)
            if function_id is None:
                return []
        return self._searcher.find(query, function_id, self._functions)

    def find_in_steps(self, query: JobQuery) -> Generator[bool, None, list[Job]]:
        """The same in steps, each of which looks at a bounded number of rows."""
        found: list[Job] = []
        if query.name:
            return self.find(query)  # there is an index
        states = query.states or (UNSUCCESSFUL_STATES if query.dead else frozenset())
        before_id = query.before_id
        while True:
            from_id = max(query.from_id, self._searcher.window(before_id, states))
            some = self.find(replace(query, before_id=before_id, from_id=from_id, limit=query.limit - len(found)))
            found += some
            if len(found) >= query.limit or from_id <= query.from_id:
                return found
            before_id = from_id
            yield False

    def search_bound(self, before_id: int, count: int) -> int:
        """The id from which on about so many jobs ended without success."""
        return self._searcher.search_bound(before_id, count)

    async def drop_finished(self, before_us: int, keep_count: int, spare: Spare = frozenset, now_us: int = 0) -> int:
        """Forget jobs that finished before a time, and the oldest beyond `keep_count`, with commits in between."""
        self.check()
        bound = await asyncio.to_thread(self._searcher.drop_bound, before_us, keep_count)
        spare_ids = json.dumps(sorted(spare()))
        dropped = 0
        while True:
            count = await _end_of(self._in_writer_thread(self._writer.drop, bound, now_us, spare_ids, DROP_COUNT))
            dropped += count
            if count < DROP_COUNT:
                return dropped

    async def close(self) -> None:
        """Let go of everything.  What is staged and not committed is lost."""
        async with self._committing:
            if self._thread is not None:
                self._reader.close()
                self._searcher.close()
                await self._prepare_for_closing()
                # Last of all, and in its thread, because the last to close empties the log into the file.
                await _end_of(self._in_writer_thread(self._writer.close))
                self._let_go()

    async def _prepare_for_closing(self) -> None:
        """See that closing does no harm to a file that has taken the place of the store's, or of its log."""
        try:
            self._files.check()
        except LogFileLost as lost:
            log.error("%s; everything in it is merged into the store", lost)
        except StorageError as error:
            log.error("the server stops while its store cannot be relied on: %s", error)
            if not self._files.is_damaged:
                with suppress(StorageError):  # so that the file is whole, wherever it is
                    await _end_of(self._in_writer_thread(self._writer.merge_log))
            self._database_lock.keep_from_merging()

    def _let_go(self) -> None:
        self._reader.close()
        self._searcher.close()
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
        if function.dropped:
            self._staged.functions[function_id] = (function_id, function.name, None, None, None, None, None)
            return
        high, normal, low = function.limits
        policy = encode(function.gate.policy) if function.gate is not None else None
        paused = int(function.paused)
        self._staged.functions[function_id] = (function_id, function.name, paused, high, normal, low, policy)

    def _new_function_id(self, name: bytes) -> int:
        """Stage a function without settings; its jobs need its id."""
        if self._thread is None:
            raise StorageError(f"{self.path} is not open")
        function_id = self._next_function_id
        self._learn_function(function_id, name)
        self._staged.functions[function_id] = (function_id, name, None, None, None, None, None)
        return function_id

    def _learn_function(self, function_id: int, name: bytes) -> None:
        self._function_ids[name] = function_id
        self._functions[function_id] = Function(name)
        self._next_function_id = max(self._next_function_id, function_id + 1)

    def _in_writer_thread(self, work: Callable[..., Result], *arguments: object) -> Future[Result]:
        if self._thread is None:
            raise StorageError(f"{self.path} is closed")
        return self._thread.submit(work, *arguments)


class _Loaded(dict[int, Function]):
    """Functions by id, each asked for when its first job or setting turns up, so that unused ones stay forgotten."""

    def __init__(self, names: dict[int, bytes], function_named: Callable[[bytes], Function]) -> None:
        super().__init__()
        self._names = names
        self._function_named = function_named

    def __missing__(self, function_id: int) -> Function:
        function = self[function_id] = self._function_named(self._names[function_id])
        return function


async def _end_of(future: Future[Result]) -> Result:
    """The result, waited for even by a cancelled task: what the writer thread has begun must be known when it ends."""
    loop = asyncio.get_running_loop()
    cancelled: asyncio.CancelledError | None = None
    timer: asyncio.TimerHandle

    def step_aside() -> None:
        nonlocal timer
        time.sleep(STEP_ASIDE_S)
        timer = loop.call_later(PATIENCE_S, step_aside)

    timer = loop.call_later(PATIENCE_S, step_aside)
    try:
        while not future.done():
            try:
                await asyncio.wrap_future(future)
            except asyncio.CancelledError as error:
                cancelled = error
            except StorageError:
                if cancelled is None:
                    raise
    finally:
        timer.cancel()
    if cancelled is not None:
        raise cancelled
    return future.result()
