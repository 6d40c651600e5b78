"""`MemoryStore`: a store in memory, with a history of the jobs that finished last."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from mypy_extensions import mypyc_attr

from switchgear.memory import MemoryAccount
from switchgear.model import DONE, FINAL_STATES, Delivery, Function, Job, JobState, Schedule
from switchgear.storage.base import LONGEST_SEARCHED_BYTES, JobQuery, Snapshot, Spare, Store, contains_text

__all__ = ["DEFAULT_KEEP_COUNT", "MemoryStore"]

# Unsuccessful jobs, which may be retried.
DEFAULT_KEEP_COUNT: Final = 10_000
# Jobs that are done. Few, because every job passes here: the sooner its memory is reused, the cheaper it is.
DONE_COUNT: Final = 1_000
# Jobs that are done and were submitted with options, as by the Python library: a client may well ask for the result,
# perhaps for the results of a whole group. Named jobs are not among them: whoever names jobs wants to know whether they
# are done, and their successors tell that.
WANTED_COUNT: Final = 100_000

# This many jobs are examined in one step of a search, in less than a millisecond.
JOBS_PER_STEP: Final = 500
BYTES_PER_STEP: Final = 1024 * 1024  # of payloads that are searched for a text
DROPPED_PER_STEP: Final = 2_000
# Ids of jobs that a ring has dropped are removed in batches.
IDS_DROPPED: Final = 10_000

# Some thousand jobs take little memory, unless each has megabytes.
DEFAULT_KEEP_BYTES: Final = 256 * 1024 * 1024
# The share of the memory limit that all rings together may take.
HISTORY_SHARE: Final = 8


@mypyc_attr(allow_interpreted_subclasses=True)
class MemoryStore(Store):
    """Ring buffers of finished jobs, which are the engine's own objects; unfinished jobs are in the engine only.

    `keep_bytes` bounds the contents of the jobs in each ring, and a share of the memory account's limit those of all
    rings. A job that is dropped from its ring loses its contents, whatever still refers to it. A job that is retried
    stays in its ring until it is dropped, but is not listed: only the engine has its state.
    """

    durable = False
    url = "memory:"
    answers_at_once = True

    def __init__(self, keep_count: int = DEFAULT_KEEP_COUNT, keep_bytes: int = DEFAULT_KEEP_BYTES) -> None:
        self.memory = MemoryAccount()
        self._done = _Circle(min(keep_count, DONE_COUNT), keep_bytes)
        self._wanted = _Ring(WANTED_COUNT if keep_count else 0, keep_bytes)
        self._unsuccessful = _UnsuccessfulRing(keep_count, keep_bytes)
        self._rings: tuple[_Ring, ...] = (self._wanted, self._unsuccessful)
        self._wants_named = False  # whether the first of these has, or had, jobs with names

    def count_in(self, memory: MemoryAccount) -> None:
        """Count the contents of the jobs in the rings in this account."""
        self.memory = memory
        self._count()

    def open(self) -> None:
        """Do nothing: there is no file to open."""

    async def load(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        """An empty snapshot: jobs in memory do not survive a restart."""
        return Snapshot()

    def stage(
        self,
        jobs: Iterable[Job],
        functions: Iterable[Function] = (),
        next_job_id: int = 0,
        schedules: Iterable[Schedule] = (),
    ) -> None:
        """Add the finished ones of these to their rings. The others exist only in the engine."""
        memory = self.memory
        for job in jobs:
            if not job.finished_us:
                continue
            if job.entry_bytes:  # the engine counted the job; the store does now
                memory.job_bytes -= job.entry_bytes + job.content_bytes
                job.entry_bytes = 0
            is_wanted = False
            if job.has_details:
                if job.retention_us == 0 and not job.unique_until_us:
                    job.drop_contents()  # it is not listed after its end
                    continue
                is_wanted = (job.delivery == Delivery.HANDLE and not job.name) or job.unique_until_us > 0
            if job.state is not DONE:
                self._unsuccessful.put(job)
                continue
            if job.history is not None:
                self._unsuccessful.take_out(job)  # it was retried successfully
            if is_wanted:
                if job.name:
                    self._wants_named = True
                self._wanted.put(job)
            else:
                self._done.put(job)
        for ring in self._rings:
            ring.trim()
        self._count()
        if memory.limit_bytes:
            self._trim_together(memory.limit_bytes // HISTORY_SHARE)

    def _count(self) -> None:
        self.memory.history_bytes = self._done.bytes + self._wanted.bytes + self._unsuccessful.bytes

    def _trim_together(self, most_bytes: int) -> None:
        """Drop the oldest jobs of the largest ring, until all rings together hold no more than this."""
        while self.memory.history_bytes > most_bytes:
            largest = max(self._wanted.bytes, self._unsuccessful.bytes)
            if self._done.bytes > largest:
                self._done.drop_oldest()
            elif self._wanted.bytes == largest:
                self._wanted.drop_oldest()
            else:
                self._unsuccessful.drop_oldest()
            self._count()

    def unstage(self, jobs: Iterable[Job]) -> None:
        """Remove these jobs from the history."""
        unwanted = {job.id for job in jobs}
        self._done.remove(unwanted)
        for ring in self._rings:
            ring.remove(unwanted)
        self._count()

    async def commit(self) -> Sequence[int]:
        """Do nothing: there is nothing to wait for, and nothing to refuse."""
        return ()

    async def read_payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        """The payloads of finished jobs; unfinished jobs have theirs."""
        found = self._find_all(job_ids)
        return {job_id: job.payload for job_id, job in found.items() if job.payload is not None}

    async def read_jobs(self, job_ids: Sequence[int]) -> dict[int, Job]:
        """These jobs, as far as they are finished, by id: the engine's own objects."""
        return self._find_all(job_ids)

    async def read_states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        """The states of these jobs, as far as they are kept, by id."""
        return {job_id: job.state for job_id, job in self._find_all(job_ids).items()}

    def _find_all(self, job_ids: Sequence[int]) -> dict[int, Job]:
        found: dict[int, Job] = {}
        others: set[int] = set()
        for job_id in job_ids:
            job = self._wanted.jobs.get(job_id) or self._unsuccessful.jobs.get(job_id)
            if job is not None and job.state in FINAL_STATES:
                found[job_id] = job
            else:
                others.add(job_id)
        if others:
            for job in self._done.jobs():
                if job.id in others:
                    found[job.id] = job
        return found

    async def find(self, query: JobQuery) -> list[Job]:
        """Finished jobs that match, newest first; they are the engine's own objects, with their payloads."""
        found: dict[int, Job] = {}
        rings: list[_Ring] = [self._unsuccessful]
        if not query.dead and (not query.states or DONE in query.states):
            rings.append(self._wanted)
            found = {job.id: job for job in self._done.jobs() if _matches(job, query)}
        for ring in rings:
            start = ring.first
            while start < len(ring.ids):
                searched_bytes = 0
                for job in ring.portion(start):
                    if job.state in FINAL_STATES and _matches(job, query):
                        found[job.id] = job
                    if query.contains:
                        searched_bytes += min(len(job.payload or b""), LONGEST_SEARCHED_BYTES)
                        if searched_bytes > BYTES_PER_STEP:
                            searched_bytes = 0
                            await asyncio.sleep(0)
                if len(found) > query.limit + JOBS_PER_STEP:
                    found = {job_id: found[job_id] for job_id in sorted(found, reverse=True)[: query.limit]}
                start = max(start + JOBS_PER_STEP, ring.first)
                await asyncio.sleep(0)
        return [found[job_id] for job_id in sorted(found, reverse=True)[: query.limit]]

    async def find_named(self, names: Collection[bytes], since_us: int = 0) -> dict[bytes, Job]:
        """The newest finished job of each of these names."""
        found: dict[bytes, Job] = {}
        _choose_named(found, self._done.jobs(), names, since_us)
        for ring in self._rings if self._wants_named else (self._unsuccessful,):
            start = ring.first
            while start < len(ring.ids):
                _choose_named(found, ring.portion(start), names, since_us)
                start = max(start + JOBS_PER_STEP, ring.first)
                if start < len(ring.ids):
                    await asyncio.sleep(0)
        return found

    async def drop_finished(self, before_us: int, keep_count: int, spare: Spare = frozenset, now_us: int = 0) -> int:
        """Delete jobs that finished before a time, and the oldest beyond `keep_count`; returns how many."""
        old: dict[int, Job] = {}
        usual: dict[int, Job] = {}  # those without a time of their own; a job may be in the rings twice
        _choose_old(self._done.jobs(), old, usual, before_us, now_us)
        for ring in self._rings:
            start = ring.first
            while start < len(ring.ids):
                _choose_old(ring.portion(start), old, usual, before_us, now_us)
                start = max(start + JOBS_PER_STEP, ring.first)
                await asyncio.sleep(0)
        excess = len(usual) - keep_count
        if excess > 0:
            for job in sorted(usual.values(), key=_finished_us)[:excess]:
                old[job.id] = job
        return await self._drop(list(old.values()), spare, now_us)

    async def _drop(self, old: list[Job], spare: Spare, now_us: int) -> int:
        """Forget those of these jobs that need not stay; returns how many."""
        count = 0
        for start in range(0, len(old), DROPPED_PER_STEP):
            if start:
                await asyncio.sleep(0)
            spared = spare()
            dropped = [
                job
                for job in old[start : start + DROPPED_PER_STEP]
                if job.id not in spared and job.unique_until_us <= now_us and job.state in FINAL_STATES
            ]
            self.unstage(dropped)
            count += len(dropped)
        return count

    async def close(self) -> None:
        """Drop the history."""
        self.unstage(self._finished().values())
        for ring in self._rings:
            ring.remove(set(ring.jobs))

    def _finished(self) -> dict[int, Job]:
        """Finished jobs by id; a job that was retried and finished again is in two rings, as the same object."""
        jobs = chain(self._wanted.jobs.values(), self._done.jobs(), self._unsuccessful.jobs.values())
        return {job.id: job for job in jobs if job.state in FINAL_STATES}


def _choose_old(jobs: Iterable[Job], old: dict[int, Job], usual: dict[int, Job], before_us: int, now_us: int) -> None:
    """Add the jobs that are old enough to be forgotten, and all without a time of their own."""
    for job in jobs:
        if job.state not in FINAL_STATES:
            continue
        if job.retention_us < 0:
            usual[job.id] = job
            if job.finished_us < before_us:
                old[job.id] = job
        elif job.retention_us <= now_us - job.finished_us:
            old[job.id] = job


def _finished_us(job: Job) -> int:
    return job.finished_us


def _drop_job(job: Job) -> None:
    """Handle a job dropped from a ring. A retried job belongs to the engine again, and keeps its contents."""
    if not job.entry_bytes:
        job.drop_contents()


class _Circle:
    """A ring buffer of a number of done jobs, with a limit of bytes. These jobs do not change any more.

    Every job passes here, and hardly any is asked for: so adding a job costs next to nothing, and finding one is a
    linear search.
    """

    def __init__(self, most_jobs: int, most_bytes: int) -> None:
        self.bytes = 0
        self._places: list[Job | None] = [None] * most_jobs
        self._next = 0  # the index of the next job
        self._oldest = 0  # the slots between the next index and this one are empty
        self._most_bytes = most_bytes

    def put(self, job: Job) -> None:
        places = self._places
        if not places:
            job.drop_contents()
            return
        place = self._next
        if places[place] is not None:
            self._clear(place)
        places[place] = job
        self._next = place + 1 if place + 1 < len(places) else 0
        if self._oldest == place:  # it is now the newest
            self._oldest = self._next
        self.bytes += job.content_bytes
        while self.bytes > self._most_bytes:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        """Drop the oldest job, if there is one."""
        for _ in range(len(self._places)):
            place = self._oldest
            self._oldest = (place + 1) % len(self._places)
            if self._places[place] is not None:
                self._clear(place)
                break

    def jobs(self) -> Iterator[Job]:
        """The jobs, the oldest first."""
        for job in self._places[self._next :] + self._places[: self._next]:
            if job is not None:
                yield job

    def remove(self, job_ids: set[int]) -> None:
        for place, job in enumerate(self._places):
            if job is not None and job.id in job_ids:
                self._clear(place)

    def _clear(self, place: int) -> None:
        job = self._places[place]
        if job is not None:
            self._places[place] = None
            self.bytes -= job.content_bytes
            _drop_job(job)


class _Ring:
    """A ring buffer of jobs that clients may well ask for, indexed by id."""

    def __init__(self, most_jobs: int, most_bytes: int) -> None:
        self.jobs: OrderedDict[int, Job] = OrderedDict()
        # Ids in about that order, from `first` on, including some of dropped jobs: a search goes through portions of
        # it.
        self.ids: list[int] = []
        self.first = 0
        self.bytes = 0
        self._most_jobs = most_jobs
        self._most_bytes = most_bytes

    def put(self, job: Job) -> None:
        self.jobs[job.id] = job
        self.ids.append(job.id)
        self.bytes += job.content_bytes

    def portion(self, start: int) -> list[Job]:
        """The jobs from an index of `ids` on, as many as are examined in one step."""
        jobs = self.jobs
        return [jobs[job_id] for job_id in self.ids[start : start + JOBS_PER_STEP] if job_id in jobs]

    def trim(self) -> None:
        jobs = self.jobs
        while jobs and (len(jobs) > self._most_jobs or self.bytes > self._most_bytes):
            self.drop_oldest()

    def drop_oldest(self) -> None:
        """Drop the oldest job; there must be one."""
        _, job = self.jobs.popitem(last=False)
        ids = self.ids
        while self.first < len(ids) and ids[self.first] not in self.jobs:
            self.first += 1
        if self.first >= IDS_DROPPED:
            del ids[: self.first]
            self.first = 0
        self.bytes -= self._bytes_of(job)
        _drop_job(job)

    def remove(self, job_ids: set[int]) -> None:
        for job_id in self.jobs.keys() & job_ids:
            job = self.jobs.pop(job_id)
            self.bytes -= self._bytes_of(job)
            _drop_job(job)

    def _bytes_of(self, job: Job) -> int:
        """How many bytes were counted when this job, which has left the ring, was added."""
        return job.content_bytes


class _UnsuccessfulRing(_Ring):
    """A ring buffer of unsuccessful jobs. They may be retried, and change then."""

    def __init__(self, most_jobs: int, most_bytes: int) -> None:
        super().__init__(most_jobs, most_bytes)
        self._sizes: dict[int, int] = {}

    def put(self, job: Job) -> None:
        self.take_out(job)  # it was retried without success
        size = job.content_bytes
        self.jobs[job.id] = job
        self.ids.append(job.id)
        self._sizes[job.id] = size
        self.bytes += size

    def take_out(self, job: Job) -> None:
        """Remove the job, if it is here, and leave it its contents."""
        if job.id in self.jobs:
            self.bytes -= self._bytes_of(self.jobs.pop(job.id))

    def _bytes_of(self, job: Job) -> int:
        return self._sizes.pop(job.id)


def _choose_named(found: dict[bytes, Job], jobs: Iterable[Job], names: Collection[bytes], since_us: int) -> None:
    """Add the newest job of each of these names."""
    for job in jobs:
        name = job.name
        if not name or name not in names or job.state not in FINAL_STATES or job.created_us < since_us:
            continue
        if name not in found or found[name].id < job.id:
            found[name] = job


def _matches(job: Job, query: JobQuery) -> bool:
    return (
        (query.function is None or job.function.name == query.function)
        and (not query.states or job.state in query.states)
        and (query.unique is None or job.unique == query.unique)
        and (query.name is None or job.name == query.name)
        and (not query.since_us or job.created_us >= query.since_us)
        and (not query.until_us or job.created_us < query.until_us)
        and (not query.before_id or job.id < query.before_id)
        and job.id >= query.from_id
        and (not query.dead or job.is_dead)
        and (not query.error_contains or query.error_contains in (job.error or b""))
        and (query.key is None or job.key == query.key)
        and (not query.contains or contains_text(job, query.contains))
    )
