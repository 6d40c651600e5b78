"""`SlowStore`: wraps a store; its reads wait until a test releases them, fail, or never return.

store = SlowStore(MemoryStore())        # each read takes some turns of the event loop
store.hold_reads()                      # from now on reads wait
store.release_reads()                   # those that wait go on, and later ones wait no more
store.fail_reads(StorageError("..."))   # those that wait fail
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

from switchgear.errors import StorageError
from switchgear.memory import MemoryAccount
from switchgear.model import Function, Job, JobState, Schedule
from switchgear.storage.base import JobQuery, Snapshot, Spare, Store

__all__ = ["SlowStore"]

READ_TURNS = 3  # of the event loop that each read takes at least


class SlowStore(Store):
    """Delegates to another store, with delayed reads."""

    def __init__(self, store: Store) -> None:
        self.durable = store.durable
        self.url = store.url
        self.answers_at_once = False
        self.reads: list[str] = []  # the names of all reads
        self._store = store
        self._is_holding = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def waiting(self) -> int:
        """How many reads wait to be released, or to fail."""
        return len(self._waiting)

    def hold_reads(self) -> None:
        """Let reads wait until they are released."""
        self._is_holding = True

    def release_reads(self) -> None:
        """Let waiting and later reads continue."""
        self._is_holding = False
        for gate in list(self._waiting):
            if not gate.done():
                gate.set_result(None)

    def fail_reads(self, error: StorageError) -> None:
        """Fail the waiting reads."""
        for gate in list(self._waiting):
            if not gate.done():
                gate.set_exception(error)

    async def _wait(self, read: str) -> None:
        self.reads.append(read)
        for _ in range(READ_TURNS):
            await asyncio.sleep(0)
        if self._is_holding:
            gate = asyncio.get_running_loop().create_future()
            self._waiting.append(gate)
            try:
                await gate
            finally:
                self._waiting.remove(gate)

    # --- reads ---

    async def load(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        """`Store.load`, delayed."""
        await self._wait("load")
        return await self._store.load(function_named, now_us)

    async def load_apart(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        """`Store.load_apart`, delayed."""
        await self._wait("load_apart")
        return await self._store.load_apart(function_named, now_us)

    async def read_payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        """`Store.read_payloads`, delayed."""
        await self._wait("read_payloads")
        return await self._store.read_payloads(job_ids)

    async def read_jobs(self, job_ids: Sequence[int]) -> dict[int, Job]:
        """`Store.read_jobs`, delayed."""
        await self._wait("read_jobs")
        return await self._store.read_jobs(job_ids)

    async def read_states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        """`Store.read_states`, delayed."""
        await self._wait("read_states")
        return await self._store.read_states(job_ids)

    async def find(self, query: JobQuery) -> list[Job]:
        """`Store.find`, delayed."""
        await self._wait("find")
        return await self._store.find(query)

    async def find_named(self, names: Collection[bytes], since_us: int = 0) -> dict[bytes, Job]:
        """`Store.find_named`, delayed."""
        await self._wait("find_named")
        return await self._store.find_named(names, since_us)

    async def search_bound(self, before_id: int, count: int, states: frozenset[JobState]) -> int:
        """`Store.search_bound`, delayed."""
        await self._wait("search_bound")
        return await self._store.search_bound(before_id, count, states)

    async def count_jobs(self, *, only_unfinished: bool = False) -> int:
        """`Store.count_jobs`, delayed."""
        await self._wait("count_jobs")
        return await self._store.count_jobs(only_unfinished=only_unfinished)

    # --- not delayed ---

    def jobs_read(self) -> int:
        """`Store.jobs_read`."""
        return self._store.jobs_read()

    def count_in(self, memory: MemoryAccount) -> None:
        """See `Store.count_in`."""
        self._store.count_in(memory)

    def open(self) -> None:
        """See `Store.open`."""
        self._store.open()

    def stage(
        self,
        jobs: Iterable[Job],
        functions: Iterable[Function] = (),
        next_job_id: int = 0,
        schedules: Iterable[Schedule] = (),
    ) -> None:
        """See `Store.stage`."""
        self._store.stage(jobs, functions, next_job_id, schedules)

    def unstage(self, jobs: Iterable[Job]) -> None:
        """See `Store.unstage`."""
        self._store.unstage(jobs)

    async def commit(self) -> Sequence[int]:
        """See `Store.commit`."""
        return await self._store.commit()

    def check(self) -> None:
        """See `Store.check`."""
        self._store.check()

    def must_be_silent(self) -> bool:
        """See `Store.must_be_silent`."""
        return self._store.must_be_silent()

    async def drop_finished(self, before_us: int, keep_count: int, spare: Spare = frozenset, now_us: int = 0) -> int:
        """See `Store.drop_finished`."""
        return await self._store.drop_finished(before_us, keep_count, spare, now_us)

    async def close(self) -> None:
        """See `Store.close`."""
        await self._store.close()
