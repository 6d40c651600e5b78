"""`SqliteReads`: awaited reads of an SQLite file, which run in two threads beside the event loop.

Each thread has its own connection, so that a long search does not delay reads of payloads. The threads fetch rows. Jobs
are decoded in the event loop's thread, some at a time: a thread that runs Python code keeps the interpreter lock for
the switch interval (`sys.getswitchinterval`), which is longer than any peer should wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from switchgear.errors import StorageError
from switchgear.model import Job, JobState, PlainJob
from switchgear.states import UNSUCCESSFUL_STATES
from switchgear.storage.base import JobQuery
from switchgear.storage.lone_thread import LoneThread
from switchgear.storage.sqlite_reader import Functions, Reader, Row

__all__ = ["SqliteReads"]

Result = TypeVar("Result")

# Jobs decoded before other tasks run: half a millisecond.
ROWS_PER_TURN: Final = 50
# The same for plain jobs of a server that starts, which stay rows.
PLAIN_PER_TURN: Final = 512
# Names looked up in one call of the thread.
NAMES_AT_ONCE: Final = 200

# A busy event loop takes the interpreter lock back before a waiting thread has woken up. So when a read takes longer
# than the first of these, the loop sleeps for the second, repeatedly, until the read ends.
PATIENCE_S: Final = 0.002
STEP_ASIDE_S: Final = 0.00005


class SqliteReads:
    """The reader of jobs by id and the searcher of the history, with their threads."""

    def __init__(self, path: Path, check: Callable[[], object]) -> None:
        self.reader = Reader(path, check)
        self.searcher = Reader(path, check)
        self._path = path
        self.jobs_read = 0  # of the unfinished, while all are read
        self._threads: dict[Reader, LoneThread] = {}

    def open(self) -> None:
        """Start the threads."""
        self._threads = {self.reader: LoneThread("sqlite-reader"), self.searcher: LoneThread("sqlite-searcher")}

    def disconnect(self) -> None:
        """Close the connections until the next read."""
        self.reader.disconnect()
        self.searcher.disconnect()

    def close(self) -> None:
        """Close the connections for good."""
        self.reader.close()
        self.searcher.close()

    def end(self) -> None:
        """End the threads."""
        threads, self._threads = self._threads, {}
        for thread in threads.values():
            thread.shutdown()

    async def payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        """The payloads of these jobs, as far as they are stored."""
        return await self.call(self.reader, self.reader.payloads, list(job_ids))

    async def states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        """The states of these jobs, as far as they are stored."""
        return await self.call(self.reader, self.reader.states, list(job_ids))

    async def jobs(self, job_ids: Sequence[int], functions: Functions) -> dict[int, Job]:
        """These jobs, as far as they are stored, with their payloads."""
        rows = await self.call(self.reader, self.reader.jobs, list(job_ids))
        return {job.id: job for job in await self.decoded(self.reader, rows, functions)}

    async def find_named(self, names: Collection[bytes], since_us: int, functions: Functions) -> dict[bytes, Job]:
        """The newest job of each of these names."""
        wanted = [name for name in names if name]
        found: dict[bytes, Job] = {}
        for start in range(0, len(wanted), NAMES_AT_ONCE):
            some = wanted[start : start + NAMES_AT_ONCE]
            rows = await self.call(self.searcher, self.searcher.find_named, some, since_us)
            found.update((job.name, job) for job in await self.decoded(self.searcher, rows, functions))
        return found

    async def find(self, query: JobQuery, function_id: int | None, functions: Functions) -> list[Job]:
        """The jobs that match, newest first, without payloads. Each call in the thread examines a bounded number of
        rows."""
        found: list[Job] = []
        states = query.states or (UNSUCCESSFUL_STATES if query.dead else frozenset())
        before_id = query.before_id
        while True:
            from_id = query.from_id
            if not query.name:  # names have an index
                from_id = max(from_id, await self.call(self.searcher, self.searcher.window, query, before_id, states))
            some = replace(query, before_id=before_id, from_id=from_id, limit=query.limit - len(found))
            rows = await self.call(self.searcher, self.searcher.find, some, function_id)
            found += await self.decoded(self.searcher, rows, functions)
            if len(found) >= query.limit or from_id <= query.from_id:
                return found
            before_id = from_id

    async def unfinished(self, functions: Functions, payload_memory_bytes: int, *, but_plain: bool) -> list[Job]:
        """Every unfinished job by id, or those that are not plain; the first ones with their payloads."""
        jobs: list[Job] = []
        portions = self.reader.unfinished_rows(payload_memory_bytes, but_plain=but_plain)
        async with aclosing(self._in_portions(self.reader, portions)) as rows_at_once:
            async for rows in rows_at_once:
                jobs += await self.decoded(self.reader, rows, functions)
                self.jobs_read += len(rows)
        return jobs

    async def plain(self, functions: Functions) -> AsyncGenerator[Sequence[PlainJob], None]:
        """The plain ones of the unfinished jobs by id, some hundred at a time."""
        async with aclosing(self._in_portions(self.reader, self.reader.plain_rows())) as rows_at_once:
            async for rows in rows_at_once:
                for start in range(0, len(rows), PLAIN_PER_TURN):
                    yield [
                        (job_id, functions[function_id], priority, delivery, created_us, unique)
                        for job_id, function_id, priority, delivery, created_us, unique in rows[
                            start : start + PLAIN_PER_TURN
                        ]
                    ]
                    await asyncio.sleep(0)
                self.jobs_read += len(rows)

    async def _in_portions(
        self, reader: Reader, portions: Generator[list[Row], None, None]
    ) -> AsyncGenerator[list[Row], None]:
        """Yield what a generator of the reader yields; the generator runs in the reader's thread."""
        try:
            while rows := await self.call(reader, next, portions, []):
                yield rows
        finally:
            # In that thread too, which may be in the middle of a portion that nobody waits for any more.
            thread = self._threads.get(reader)
            if thread is not None:
                thread.submit(portions.close)

    async def call(self, reader: Reader, work: Callable[..., Result], *arguments: object) -> Result:
        """The result of a call in the thread of one of the readers."""
        thread = self._threads.get(reader)
        if thread is None:
            raise StorageError(f"{self._path} is closed")
        return await _result_of(thread.submit(work, *arguments))

    async def decoded(self, reader: Reader, rows: list[Row], functions: Functions) -> list[Job]:
        """The jobs of these rows, made some at a time."""
        jobs: list[Job] = []
        for start in range(0, len(rows), ROWS_PER_TURN):
            if start:
                await asyncio.sleep(0)
            jobs += reader.decode(rows[start : start + ROWS_PER_TURN], functions)
        return jobs


async def _result_of(future: Future[Result]) -> Result:
    """The result of a future; if the caller is cancelled, a call that has not begun is cancelled too."""
    if not future.done():
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def step_aside() -> None:
            nonlocal timer
            time.sleep(STEP_ASIDE_S)
            timer = loop.call_later(PATIENCE_S, step_aside)

        timer = loop.call_later(PATIENCE_S, step_aside)
        try:
            return await asyncio.wrap_future(future)
        finally:
            timer.cancel()
    await asyncio.sleep(0)  # it was done at once, and so may be the next ones of a long search
    return future.result()
