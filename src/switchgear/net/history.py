"""`History`: finds finished jobs, in the store and among the changes that are not stored yet.

A finished job is in one of three places: among the engine's changes of this turn, among the changes that are staged or
being committed, or in the store. While the store is read, a job may move from one place to the next, or be retried and
belong to the engine again. So jobs that a read did not find are looked up once more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from itertools import chain
from typing import Any

from switchgear.engine.engine import Engine
from switchgear.errors import Refused, StorageError
from switchgear.model import FINAL_STATES, Job, JobState
from switchgear.net.store_reads import StoreReads
from switchgear.protocols.pending_read import Reading, awaited
from switchgear.refusals import REFUSED_STORAGE
from switchgear.storage.base import JobQuery, Store

__all__ = ["History"]


class History:
    """Reads of finished jobs.  All of them raise Refused if the store cannot be read."""

    def __init__(
        self, engine: Engine, store: Store, reads: StoreReads, uncommitted: Callable[[], Iterable[Job]]
    ) -> None:
        self._engine = engine
        self._store = store
        self._reads = reads
        self._is_durable = store.durable
        self._uncommitted = uncommitted  # jobs that are staged or being committed, the oldest change first
        self._ends: dict[int, Job] | None = None  # those of them that ended, by id; None: must be computed again

    def uncommitted_changed(self) -> None:
        """Forget the index of ended jobs: the set of uncommitted jobs has changed."""
        self._ends = None

    def find_unkept_end(self, job_id: int) -> Job | None:
        """A job that has ended, but whose end is not stored yet; see `Context.find_unkept_end`."""
        for job in reversed(self._engine.changed):
            if job.id == job_id and job.state in FINAL_STATES:
                return job
        if self._ends is None:  # a client that reconnects asks for thousands of jobs at once
            self._ends = {job.id: job for job in self._uncommitted() if job.state in FINAL_STATES}
        ended = self._ends.get(job_id)
        return ended if ended is not None and ended.state in FINAL_STATES else None  # it may have been retried

    def find_jobs(self, job_ids: Sequence[int]) -> Reading[dict[int, Job]]:
        """The jobs with these ids, finished or not, by id; unknown ones are missing. See `Context.find_jobs`."""
        found: dict[int, Job] = {}
        wanted = self._numbers_of_others(job_ids)
        while wanted:
            recent = self._recent(wanted)
            found |= yield from self._read(self._store.read_jobs(list(wanted)))
            missing = wanted - found.keys()
            found |= self._recent(missing)
            # The job was not in the store when that was read, and is nowhere else now: it must be in the store by now.
            wanted = (missing & recent.keys()) - found.keys()
        for job_id in job_ids:
            job = self._engine.job(job_id)
            if job is not None:
                found[job_id] = job
        return found

    def find_states(self, job_ids: Sequence[int]) -> Reading[dict[int, JobState]]:
        """The states of the jobs that `find_jobs` would find."""
        states: dict[int, JobState] = {}
        wanted = self._numbers_of_others(job_ids)
        while wanted:
            recent = self._recent(wanted)
            states |= yield from self._read(self._store.read_states(list(wanted)))
            missing = wanted - states.keys()
            states |= {job_id: job.state for job_id, job in self._recent(missing).items()}
            wanted = (missing & recent.keys()) - states.keys()
        for job_id in job_ids:
            state = self._engine.state_of(job_id)
            if state is not None:
                states[job_id] = state
        return states

    def find_named(self, names: Collection[bytes], since_us: int = 0) -> Reading[dict[bytes, Job]]:
        """The newest finished job of each name; see `Context.find_named`."""
        found: dict[bytes, Job] = {}
        recent: dict[bytes, Job] = {}
        wanted: Collection[bytes] = names
        while wanted:
            before = self._recent_named(wanted, since_us)
            found |= yield from self._read(self._store.find_named(wanted, since_us))
            # Jobs that are not stored yet are newer than those in the store with the same name.
            recent = self._recent_named(names, since_us)
            wanted = before.keys() - recent.keys()  # by now these are in the store
        found |= recent
        return {name: job for name, job in found.items() if name not in self._engine.names}

    def read_payloads(self, job_ids: Sequence[int]) -> Reading[dict[int, bytes]]:
        """The payloads of the jobs that the store has."""
        payloads: dict[int, bytes] = yield from self._read(self._store.read_payloads(job_ids))
        return payloads

    def search(self, query: JobQuery) -> Reading[list[Job]]:
        """Jobs of the store that match; jobs that are not stored yet are not among them."""
        found: list[Job] = yield from self._read(self._store.find(query))
        return found

    def search_bound(self, before_id: int, count: int, states: frozenset[JobState]) -> Reading[int]:
        """See `Store.search_bound`."""
        bound: int = yield from self._read(self._store.search_bound(before_id, count, states))
        return bound

    def _read(self, coroutine: Coroutine[Any, Any, Any]) -> Reading[Any]:
        try:
            return (yield from awaited(self._reads.start(coroutine)))
        except StorageError as error:
            raise Refused(REFUSED_STORAGE, str(error)) from error

    def _numbers_of_others(self, job_ids: Sequence[int]) -> set[int]:
        """The ids that may belong to jobs which the engine no longer has."""
        engine = self._engine
        return {job_id for job_id in job_ids if 0 < job_id < engine.ids_end and not engine.has_job(job_id)}

    def _recent(self, job_ids: Collection[int]) -> dict[int, Job]:
        """The jobs that have just ended and will be stored.

        A durable job is not among them: its state is the one in the store.
        """
        if not job_ids:
            return {}
        jobs = chain(self._engine.changed, self._uncommitted())
        return {job.id: job for job in jobs if job.id in job_ids and not (self._is_durable and job.delivery)}

    def _recent_named(self, names: Collection[bytes], since_us: int) -> dict[bytes, Job]:
        recent = chain(self._uncommitted(), self._engine.changed)
        return {job.name: job for job in recent if job.name in names and job.created_us >= since_us}
