"""`PartitionStore`: stores jobs in a PostgreSQL database in which several nodes each own some partitions of functions.

It is the PostgreSQL store with another fence: the row of this node (`postgres_partitions`) instead of the one lease.
What the nodes would otherwise all count for themselves comes in blocks that no other node uses: ids of jobs and of
functions.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from switchgear.backoff import ReconnectBackoff
from switchgear.engine.function_placement import is_copy, is_foreign
from switchgear.errors import Fenced, StorageError
from switchgear.model import Function, Job, Limiter, Schedule
from switchgear.partitions import NodeLease, Shards, partition_of
from switchgear.storage.base import JobQuery, Snapshot, Spare
from switchgear.storage.function_rows import FunctionsById
from switchgear.storage.postgres import DEFAULT_PAYLOAD_MEMORY_BYTES, PostgresStore
from switchgear.storage.postgres_connection import PostgresRefusal
from switchgear.storage.postgres_fence import DEFAULT_LEASE_SECONDS
from switchgear.storage.postgres_partitions import ClusterView, PostgresPartitions
from switchgear.storage.postgres_reads import number
from switchgear.storage.postgres_rows import bigint
from switchgear.storage.postgres_writer import StagedRows
from switchgear.storage.sqlite_rows import FUNCTION_ID, decode_policy

__all__ = ["NodeAddress", "PartitionStore"]

Result = TypeVar("Result")
NodeAddress = tuple[int, str, str, str]  # id, name, address, version

# So many ids of functions are reserved at a time, and more of them when fewer than half are left.
FUNCTION_IDS: Final = 10_000
NOT_UNIQUE: Final = "23505"  # the SQLSTATE of a second row with the same key
JOIN_ATTEMPTS: Final = 20
# The node that has this partition deletes old history, for all.
HISTORY_PARTITION: Final = 0


class PartitionStore(PostgresStore):
    """Stores the jobs of the partitions that this node owns, and reads those of all."""

    def __init__(
        self,
        url: str,
        payload_memory_bytes: int = DEFAULT_PAYLOAD_MEMORY_BYTES,
        *,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        name: str = "",
    ) -> None:
        super().__init__(url, payload_memory_bytes, lease_seconds=lease_seconds)
        connection = self._writer.connection
        self.partitions = PostgresPartitions(connection, self.url, lease_seconds, name)
        self.fence = self._writer.lease = self.partitions
        self.overrides: dict[bytes, int] = {}
        self._shards = Shards({})
        self.for_owners: Container[int] = ()  # new jobs that go into the inbox, of graphs of several owners
        self._function_ids_end = 0
        self.schedule_changes = 0  # how many were staged
        self._must_beat = False  # the next commit has to find out whether the store works

    # --- the node ---

    async def join(self, address: str) -> None:
        """Create the tables if there are none, and enter this node."""
        self.partitions.address = address
        connection = self._writer.connection
        pauses = ReconnectBackoff(first_seconds=0.1, most_seconds=1.0)
        holder = 0
        for attempt in range(JOIN_ATTEMPTS):
            try:
                if not connection.is_open:
                    await self.prepare()
                await self._end_single_ownership()
                await self.partitions.join()
                break
            except StorageError:
                # Nodes that are started at the same time hold the lease one after the other, each for the moment of its
                # migration, and end sessions that keep them waiting. A server that owns all jobs keeps the lease.
                last_holder, holder = holder, 0
                with suppress(StorageError):
                    holder = (await self.lease.look()).holder
                if attempt + 1 == JOIN_ATTEMPTS or (holder and holder == last_holder):
                    raise
            await asyncio.sleep(pauses.seconds(attempt))
        self._keep_lease()
        await self._learn_functions()
        await self._reserve_function_ids()

    async def _end_single_ownership(self) -> None:
        """Migrate the tables, and make sure that no server owns all jobs; raises StoreInUse if one does."""
        if not (await self.lease.look()).holder and await self._has_nodes():
            return
        try:
            await self.lease.acquire()
        except StorageError:
            if not (await self.lease.look()).holder and await self._has_nodes():
                return  # another node was started at the same time
            raise
        try:
            await self._migrate()
        finally:
            await self.lease.release()

    async def _has_nodes(self) -> bool:
        try:
            return bool((await self.partitions.look()).nodes)
        except PostgresRefusal:  # the tables are of an earlier version
            return False

    async def shared_secret(self) -> bytes:
        """The secret by which nodes know each other; the first node makes it."""
        await self._reads.ask(self._reads.reader, "propose_secret", secrets.token_hex(32).encode())
        result = await self._reads.ask(self._reads.reader, "secret")
        return bytes(result.get_value(0, 0) or b"")

    async def look(self) -> ClusterView:
        """All nodes and partitions as they are now."""
        view = await self._alone(self.partitions.look)
        self.overrides = view.overrides
        if view.shards != self._shards.counts:
            self._shards = Shards(view.shards)
            for function in self._functions.values():
                function.told_name = self._shards.base_of(function.name)
        return view

    async def addresses(self) -> list[NodeAddress]:
        """Where the links of all nodes are."""
        result = await self._reads.ask(self._reads.reader, "node_addresses")
        rows: list[NodeAddress] = []
        for row in range(result.ntuples):
            name, address, version = (bytes(result.get_value(row, place) or b"").decode() for place in (1, 2, 3))
            rows.append((number(result, row, 0), name, address, version))
        return rows

    async def claim(self, partitions: Collection[int]) -> set[int]:
        """Claim these partitions as far as they are free; returns those that are this node's now."""
        taken = await self._alone(lambda: self.partitions.claim(partitions))
        await self._learn_functions()
        await self._reserve_function_ids()
        return set(taken)

    async def reserve_ids(self, count: int) -> int:
        """Reserve job ids above those of all nodes; returns the first of them."""
        return await self._alone(lambda: self.partitions.reserve_ids(count))

    async def hand_over(self, partitions: Sequence[int]) -> None:
        """Free these partitions. Their last changes must be stored."""
        await self._alone(lambda: self.partitions.hand_over(partitions))

    async def empty_inbox(self, ids: Sequence[int], moved: Mapping[int, list[int]]) -> None:
        """Delete rows of the inbox whose jobs this node has taken, and put jobs of other partitions into theirs."""
        await self._alone(lambda: self.partitions.empty_inbox(ids, moved))

    async def place(self, function: bytes, source: int, target: int) -> None:
        """Put a function of a partition of this node into another partition. Its last changes must be stored."""
        by_name = target == partition_of(function)
        await self._alone(lambda: self.partitions.place(function, source, target, by_name=by_name))

    async def divide(self, function: bytes, partition: int, count: int, unplaced: Sequence[bytes]) -> None:
        """Divide a function of a partition of this node into so many shards; 1: unite them. It must have no jobs."""
        await self._alone(lambda: self.partitions.divide(function, partition, count, unplaced))

    async def evict(self, seen: NodeLease) -> bool:
        """Free all partitions of a dead node."""
        return await self._alone(lambda: self.partitions.evict(seen))

    async def announce_leaving(self) -> None:
        """Tell the other nodes that this one will claim nothing more."""
        await self._alone(self.partitions.announce_leaving)

    async def _alone(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Do this on the writing connection, between two commits."""
        async with self._committing:
            self._refuse_if_fenced()
            await self._writer.be_ready()
            try:
                return await work()
            except Fenced as fenced:
                self._fenced = fenced
                raise

    async def _give_up_ownership(self) -> None:
        await self.partitions.leave()

    # --- functions ---

    async def _learn_functions(self) -> None:
        for row in await self._reads.functions():
            self._learn_function(row[0], row[1])

    def _learn_function(self, function_id: int, name: bytes) -> None:
        self._function_ids[name] = function_id
        function = self._functions[function_id] = Function(name)
        function.told_name = self._shards.base_of(name)

    async def _reserve_function_ids(self) -> None:
        if self._next_function_id + FUNCTION_IDS // 2 <= self._function_ids_end:
            return
        result = await self._reads.ask(self._reads.reader, "reserve_function_ids", bigint(FUNCTION_IDS))
        self._next_function_id = number(result, 0, 0)
        self._function_ids_end = self._next_function_id + FUNCTION_IDS

    def _new_function_id(self, name: bytes) -> int:
        if self._next_function_id >= self._function_ids_end:
            raise StorageError("no ids for new functions are left")
        function_id = super()._new_function_id(name)
        self._next_function_id = function_id + 1
        return function_id

    async def _put(self, batch: StagedRows) -> list[int]:
        while True:
            try:
                return await super()._put(batch)
            except PostgresRefusal as refusal:
                if refusal.code != NOT_UNIQUE or not await self._use_stored_function_ids(batch):
                    raise

    async def _use_stored_function_ids(self, batch: StagedRows) -> bool:
        """Use the ids of functions that other nodes have used first; returns whether there were any.

        This node may have read such an id some time ago, after it had staged its own one. So the staged functions say
        which ids are not the stored ones.
        """
        await self._learn_functions()
        ids: dict[int, int] = {}
        for staged in (batch, self._staged):
            for function_id, function_row in staged.functions.items():
                stored_id = self._function_ids[function_row[1]]
                if stored_id != function_id:
                    ids[function_id] = stored_id
        for staged in (batch, self._staged) if ids else ():
            for function_id in ids.keys() & staged.functions.keys():
                stored_id = ids[function_id]
                _, name, paused, high, normal, low, policy = staged.functions.pop(function_id)
                # Otherwise only its id was needed, or there are newer settings.
                if paused is not None and stored_id not in staged.functions:
                    staged.functions[stored_id] = (stored_id, name, paused, high, normal, low, policy)
            for rows in (staged.new, staged.changed):
                for job_id, row in rows.items():
                    if row[FUNCTION_ID] in ids:
                        rows[job_id] = (*row[:FUNCTION_ID], ids[row[FUNCTION_ID]], *row[FUNCTION_ID + 1 :])
        return bool(ids)

    # --- loading ---

    async def load_functions(
        self, is_wanted: Callable[[bytes], bool], function_named: Callable[[bytes], Function], now_us: int
    ) -> tuple[Snapshot, dict[Function, list[int]]]:
        """Everything unfinished of the functions with these names, most of what is ready as rows; and by function the
        limits of unfinished jobs, where there are some."""
        limits: dict[Function, list[int]] = {}
        rows = await self._reads.functions()
        for row in rows:  # the last owner may have been the first that has used a function
            if is_wanted(row[1]):
                self._learn_function(row[0], row[1])
        only = {row[0] for row in rows if is_wanted(row[1])}
        functions = FunctionsById({row[0]: row[1] for row in rows}, function_named)
        for function_id, _, paused, high, normal, low, policy in rows:
            if function_id in only and paused is not None:
                function = functions[function_id]
                function.paused = bool(paused)
                limits[function] = [high or 0, normal or 0, low or 0]
                function.limiter = Limiter(function, decode_policy(policy)) if policy is not None else None
        jobs = await self._reads.unfinished(functions, self._payload_memory_bytes, but_plain=True, only=only)
        schedules = [schedule for schedule in await self._reads.schedules() if is_wanted(schedule.function_name)]
        snapshot = Snapshot(
            jobs=jobs,
            plain=self._reads.plain(functions, only),
            has_all_unsuccessful=False,
            schedules=schedules,
            held=await self._reads.holding_their_key(functions, now_us, only),
        )
        return snapshot, limits

    # --- changes ---

    def stage(
        self,
        jobs: Iterable[Job],
        functions: Iterable[Function] = (),
        next_job_id: int = 0,
        schedules: Iterable[Schedule] = (),
    ) -> None:
        """Stage what belongs to this node: not borrowed copies of jobs, nor functions that others own."""
        if next_job_id:
            self._must_beat = True
        schedules = list(schedules)
        self.schedule_changes += len(schedules)
        own_jobs = [job for job in jobs if not is_copy(job)]
        own_functions = [function for function in functions if not is_foreign(function)]
        for job in own_jobs:
            if job.id in self.for_owners and not job.revision:
                partition = partition_of(job.function.name, self.overrides)
                self._staged.inbox.setdefault(partition, []).append(job.id)
        super().stage(own_jobs, own_functions, 0, schedules)

    async def commit(self) -> Sequence[int]:
        """Store all staged changes in one transaction; returns the ids of refused jobs."""
        if self._must_beat and self._staged.is_empty():
            await self._alone(self._writer.beat)
        self._must_beat = False
        return await super().commit()

    async def drop_finished(self, before_us: int, keep_count: int, spare: Spare = frozenset, now_us: int = 0) -> int:
        """Delete old history; one of the nodes does that."""
        if HISTORY_PARTITION not in self.partitions.owned:
            return 0
        return await super().drop_finished(before_us, keep_count, spare, now_us)

    # --- reading ---

    async def read_heads(self, job_ids: Sequence[int]) -> list[Job]:
        """These jobs without their payloads, as far as they are stored, whichever node owns them. The function of a job
        is the one that has it, though it may have been stored under another name of it."""
        try:
            jobs = await self._reads.jobs_without_payloads(job_ids, self._functions)
        except StorageError:  # of a function that another node has used for the first time
            await self._learn_functions()
            jobs = await self._reads.jobs_without_payloads(job_ids, self._functions)
        for job in jobs:
            if not self._shards.has_queue(job.function.name):
                job.function = Function(self._shards.queue_for(job.function.name, job.id))
        return jobs

    async def read_schedules(self) -> list[Schedule]:
        """All schedules, whichever nodes have them."""
        return await self._reads.schedules()

    async def find_schedule_function(self, name: bytes) -> bytes | None:
        """The function of the schedule with this name, whichever node owns it."""
        schedules = await self._reads.schedules()
        return next((schedule.function_name for schedule in schedules if schedule.name == name), None)

    async def read_jobs(self, job_ids: Sequence[int]) -> dict[int, Job]:
        """These jobs, as far as they are stored, whichever node owns them."""
        try:
            return await super().read_jobs(job_ids)
        except StorageError:  # of a function that another node has used for the first time
            await self._learn_functions()
            return await super().read_jobs(job_ids)

    async def find(self, query: JobQuery) -> list[Job]:
        """Stored jobs that match, newest first, without their payloads."""
        if query.function is not None and query.function not in self._function_ids:
            await self._learn_functions()
        try:
            return await super().find(query)
        except StorageError:
            await self._learn_functions()
            return await super().find(query)
