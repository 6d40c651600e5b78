"""`CrossNodeGraphs`: graphs whose jobs belong to several nodes, and the jobs of such graphs that belong to this node.

The node that a graph is submitted at stores all its jobs in one transaction, with a row for each partition in the inbox
(`sg_inbox`). So the graph is accepted as a whole or not at all, whichever node dies when. An owner looks into the inbox
with each look at the database, and at once if the node says so; it takes the jobs and deletes the row. If it dies
before that, the next owner finds the jobs when it claims the partition, and the row does not matter any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from switchgear.errors import StorageError
from switchgear.model import FINAL_STATES, Job
from switchgear.model.job import RESIDENT
from switchgear.net.hub import Hub
from switchgear.net.owners.messages import LookSoon
from switchgear.storage.base import Snapshot
from switchgear.storage.postgres_partitions import StoredForOwner

if TYPE_CHECKING:
    from switchgear.net.owners.relay import Relay

__all__ = ["CrossNodeGraphs", "Inbox"]

PAUSE_SECONDS: Final = 0.05


class Inbox(Protocol):
    """The part of the store that has the inbox."""

    async def read_jobs(self, job_ids: list[int]) -> dict[int, Job]: ...

    async def empty_inbox(self, ids: list[int], moved: dict[int, list[int]]) -> None: ...


class CrossNodeGraphs:
    """Jobs that this node stores for others, and takes from others."""

    def __init__(self, hub: Hub, store: Inbox, relay: Relay, look_soon: Callable[[], None]) -> None:
        self.waiting: set[int] = set()  # jobs that are not stored yet
        # Jobs of a function that was divided or united while they were stored. Their rows have the name that it had, so
        # their row of the inbox stays until they have ended: another owner finds them by it.
        self._renamed: set[int] = set()
        self.taken = 0  # jobs that this node has taken
        self._hub = hub
        self._store = store
        self._relay = relay
        self._look_soon = look_soon
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Tell the owners nothing more."""
        for task in self._tasks:
            task.cancel()

    # --- storing ---

    def store(self, jobs: list[Job]) -> None:
        """These jobs are among the changes of this turn: tell their owners when they are stored."""
        self.waiting.update(job.id for job in jobs)
        task = asyncio.create_task(self._tell_owners(jobs, self._hub.engine.batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell_owners(self, jobs: list[Job], batch: int) -> None:
        hub = self._hub
        await asyncio.sleep(0)
        while hub.engine.stored_batch < batch:
            if hub.commits.storage_error is None:
                hub.commits.start()
                await hub.commits.wait()
            else:
                await asyncio.sleep(PAUSE_SECONDS)
        hub.begin_turn()
        for job in jobs:
            self.waiting.discard(job.id)
            if job.kept == RESIDENT:
                hub.payloads.resident_bytes -= len(job.payload or b"")
            hub.engine.drop_contents(job)
        partitions = {self._relay.partition_of(name) for name in {job.function.name for job in jobs}}
        for link in {self._relay.links[partition] for partition in partitions if partition in self._relay.links}:
            link.send(LookSoon())
        self._look_soon()
        self._relay.follow_stored(job for job in jobs if job.subscribers)

    # --- taking ---

    async def take(self, inbox: Iterable[StoredForOwner]) -> None:
        """Take the jobs of those rows that are for this node; raises StorageError."""
        hub, relay = self._hub, self._relay
        rows = [row for row in inbox if row.partition in relay.ready]
        if not rows:
            return
        hub.begin_turn()
        # A job that is not here was never here, unless it has ended: then that is stored, or will be.
        changing = {job.id for job in (*hub.engine.changed, *hub.changes.uncommitted())}
        changing -= self.waiting
        is_own = hub.engine.foreign_predecessors.is_own
        renamed = self._renamed = {job_id for job_id in self._renamed if is_own(job_id)}
        rows = [row for row in rows if renamed.isdisjoint(row.jobs)]
        wanted = [job_id for row in rows for job_id in row.jobs if job_id not in changing and not is_own(job_id)]
        found = await self._store.read_jobs(wanted)
        hub.begin_turn()
        jobs: list[Job] = []
        moved: dict[int, list[int]] = {}  # by partition: the function was placed elsewhere meanwhile
        for job in sorted(found.values(), key=lambda job: job.id):
            if job.state in FINAL_STATES:
                continue
            name = relay.divided.queue_of_stored(job.function.name, job.id)
            if not relay.is_ours(name) or name != job.function.name:
                moved.setdefault(relay.partition_of(name), []).append(job.id)
            if relay.is_ours(name):
                if name != job.function.name:
                    self._renamed.add(job.id)
                job.function = hub.engine.function_named(name)
                hub.engine.ready_queues.rank_last(job)
                jobs.append(job)
        await hub.adopt(Snapshot(next_job_id=0, jobs=jobs, has_all_unsuccessful=False))
        self.taken += len(jobs)
        hub.begin_turn()
        with suppress(StorageError):  # then they are looked at once more, and have come
            await self._store.empty_inbox([row.id for row in rows], moved)
