"""Jobs that are gone when the server is: only a history of those that finished last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import chain
from typing import Final

from mypy_extensions import mypyc_attr

from switchgear.memory import MemoryAccount
from switchgear.model import DONE, FINAL_STATES, Delivery, Function, Job, JobState, Schedule
from switchgear.storage.base import JobQuery, Snapshot, Spare, Store

__all__ = ["DEFAULT_KEEP_COUNT", "MemoryStore"]

# Those that ended without success, and may be retried.
DEFAULT_KEEP_COUNT: Final = 10_000
# Those that are done.  Few, because every job passes here: the sooner its memory is used again, the cheaper it is.
DONE_COUNT: Final = 1_000
# Those that are done and were submitted with wishes of their own, as the Python library does: somebody may well come
# for the result, perhaps for those of a whole group.  Named ones are not among them, since whoever names jobs asks
# whether they are done, and knows that from their successors.
WANTED_COUNT: Final = 100_000

# So many are looked at in one step of a search, in less than a millisecond.
JOBS_PER_STEP: Final = 1_000

# Some thousand jobs are nothing to hold, unless each came with megabytes.
DEFAULT_KEEP_BYTES: Final = 256 * 1024 * 1024
# All rings together may take this part of what peers may make the server hold.
HISTORY_SHARE: Final = 8


@mypyc_attr(allow_interpreted_subclasses=True)
class MemoryStore(Store):
    """Rings of finished jobs, the very objects that the engine is done with; unfinished ones are the engine's.

    `keep_bytes` bounds what the contents of the jobs in each ring may take, and a part of the memory account's limit
    what those of all rings may.  A job that falls out of its ring loses its contents, whoever still refers to it.  A
    job that is retried stays in its ring until it falls out, but is not shown: only the engine knows how it fares.
    """

    durable = False
    url = "memory:"

    def __init__(self, keep_count: int = DEFAULT_KEEP_COUNT, keep_bytes: int = DEFAULT_KEEP_BYTES) -> None:
        self.memory = MemoryAccount()
        self._done = _Circle(min(keep_count, DONE_COUNT), keep_bytes)
        self._wanted = _Ring(WANTED_COUNT if keep_count else 0, keep_bytes)
        self._unsuccessful = _UnsuccessfulRing(keep_count, keep_bytes)
        self._rings: tuple[_Ring, ...] = (self._wanted, self._unsuccessful)

    def count_in(self, memory: MemoryAccount) -> None:
        """Count the contents of the jobs in the rings here."""
        self.memory = memory
        self._count()

    def open(self) -> None:
        """Nothing to do."""

    def load(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        """Nothing survived."""
        return Snapshot()

    def stage(
        self,
        jobs: Iterable[Job],
        functions: Iterable[Function] = (),
        next_job_id: int = 0,
        schedules: Iterable[Schedule] = (),
    ) -> None:
        """Put the finished ones of these into their rings.  The rest is the engine's, and ends with it."""
        memory = self.memory
        for job in jobs:
            if not job.finished_us:
                continue
            if job.counted:  # it was the engine's, and is ours now
                job.counted = False
                memory.job_bytes -= job.content_bytes
            is_wanted = False
            if job.special:
                if job.retention_us == 0 and not job.unique_until_us:
                    job.drop_contents()  # nobody is to find it once it has ended
                    continue
                is_wanted = (job.delivery == Delivery.HANDLE and not job.name) or job.unique_until_us > 0
            if job.state is not DONE:
                self._unsuccessful.put(job)
                continue
            if job.history is not None:
                self._unsuccessful.take_out(job)  # it was retried, with success
            if is_wanted:
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
        """Let the oldest go where most is held, until all rings together hold no more than this."""
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
        """Take these out of the rings."""
        unwanted = {job.id for job in jobs}
        self._done.remove(unwanted)
        for ring in self._rings:
            ring.remove(unwanted)
        self._count()

    async def commit(self) -> Sequence[int]:
        """Nothing to wait for, and nothing to refuse."""
        return ()

    def read_payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        """The payloads of finished jobs; an unfinished one has its own."""
        wanted = set(job_ids)
        jobs = self._finished().values()
        return {job.id: job.payload for job in jobs if job.id in wanted and job.payload is not None}

    def get(self, job_id: int) -> Job | None:
        """One finished job."""
        for ring in self._rings:
            job = ring.jobs.get(job_id)
            if job is not None and job.state in FINAL_STATES:
                return job
        return next((job for job in self._done.jobs() if job.id == job_id), None)

    def states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        """The states of those of the jobs that are kept, by id: one search for all of them."""
        states = {job.id: job.state for job in self._done.jobs()}
        for ring in self._rings:
            states |= {job.id: job.state for job in map(ring.jobs.get, job_ids) if job and job.state in FINAL_STATES}
        return {job_id: states[job_id] for job_id in job_ids if job_id in states}

    def find(self, query: JobQuery) -> list[Job]:
        """Finished jobs that match, newest first; being the engine's own objects, they have their payloads."""
        matching = [job for job in self._finished().values() if _matches(job, query)]
        return nlargest(query.limit, matching, key=lambda job: job.id)

    def find_in_steps(self, query: JobQuery) -> Generator[bool, None, list[Job]]:
        """The same in steps."""
        found: dict[int, Job] = {}
        jobs = [*self._wanted.jobs.values(), *self._done.jobs(), *self._unsuccessful.jobs.values()]
        for start in range(0, len(jobs), JOBS_PER_STEP):
            if start:
                yield False
            for job in jobs[start : start + JOBS_PER_STEP]:
                if job.state in FINAL_STATES and _matches(job, query):
                    found[job.id] = job
        return nlargest(query.limit, found.values(), key=lambda job: job.id)

    async def drop_finished(self, before_us: int, keep_count: int, spare: Spare = frozenset, now_us: int = 0) -> int:
        """Forget jobs that finished before a time, and the oldest beyond `keep_count`; returns how many."""
        finished = sorted(self._finished().values(), key=lambda job: job.finished_us)
        usual = [job for job in finished if job.retention_us < 0]
        excess = max(0, len(usual) - keep_count)
        old = [job for place, job in enumerate(usual) if place < excess or job.finished_us < before_us]
        old += [job for job in finished if 0 <= job.retention_us <= now_us - job.finished_us]
        spared = spare()
        dropped = [job for job in old if job.id not in spared and job.unique_until_us <= now_us]
        self.unstage(dropped)
        return len(dropped)

    async def close(self) -> None:
        """Forget everything."""
        self.unstage(self._finished().values())
        for ring in self._rings:
            ring.remove(set(ring.jobs))

    def _finished(self) -> dict[int, Job]:
        """By id; a job that was retried and finished again is in the rings twice, as the same object."""
        jobs = chain(self._wanted.jobs.values(), self._done.jobs(), self._unsuccessful.jobs.values())
        return {job.id: job for job in jobs if job.state in FINAL_STATES}


def _let_go(job: Job) -> None:
    """A ring has dropped this job.  If it was retried it is the engine's again, with its contents."""
    if not job.counted:
        job.drop_contents()


class _Circle:
    """The last so many jobs that are done, of at most so many bytes.  They do not change any more.

    Every job passes here, and hardly one is asked for: so putting one in costs next to nothing, and finding one is a
    search.
    """

    def __init__(self, most_jobs: int, most_bytes: int) -> None:
        self.bytes = 0
        self._places: list[Job | None] = [None] * most_jobs
        self._next = 0  # where the next one goes
        self._oldest = 0  # nobody is between the next place and this one, going on from there
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
        if self._oldest == place:  # this one is the newest
            self._oldest = self._next
        self.bytes += job.content_bytes
        while self.bytes > self._most_bytes:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        """Let go of the oldest, if there is one."""
        for _ in range(len(self._places)):
            place = self._oldest
            self._oldest = (place + 1) % len(self._places)
            if self._places[place] is not None:
                self._clear(place)
                break

    def jobs(self) -> Iterator[Job]:
        """Those that are there, the oldest first."""
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
            _let_go(job)


class _Ring:
    """The same for jobs that somebody may well ask for."""

    def __init__(self, most_jobs: int, most_bytes: int) -> None:
        self.jobs: OrderedDict[int, Job] = OrderedDict()
        self.bytes = 0
        self._most_jobs = most_jobs
        self._most_bytes = most_bytes

    def put(self, job: Job) -> None:
        self.jobs[job.id] = job
        self.bytes += job.content_bytes

    def trim(self) -> None:
        jobs = self.jobs
        while jobs and (len(jobs) > self._most_jobs or self.bytes > self._most_bytes):
            self.drop_oldest()

    def drop_oldest(self) -> None:
        """Let go of the oldest; there is one."""
        _, job = self.jobs.popitem(last=False)
        self.bytes -= self._bytes_of(job)
        _let_go(job)

    def remove(self, job_ids: set[int]) -> None:
        for job_id in self.jobs.keys() & job_ids:
            job = self.jobs.pop(job_id)
            self.bytes -= self._bytes_of(job)
            _let_go(job)

    def _bytes_of(self, job: Job) -> int:
        """How much was added when this job, which has left the ring, came into it."""
        return job.content_bytes


class _UnsuccessfulRing(_Ring):
    """The same for jobs that were not done.  Those may be retried, and are other jobs then."""

    def __init__(self, most_jobs: int, most_bytes: int) -> None:
        super().__init__(most_jobs, most_bytes)
        self._sizes: dict[int, int] = {}

    def put(self, job: Job) -> None:
        self.take_out(job)  # it was retried, to no avail
        size = job.content_bytes
        self.jobs[job.id] = job
        self._sizes[job.id] = size
        self.bytes += size

    def take_out(self, job: Job) -> None:
        """If the job is here, it goes somewhere else, with its contents."""
        if job.id in self.jobs:
            self.bytes -= self._bytes_of(self.jobs.pop(job.id))

    def _bytes_of(self, job: Job) -> int:
        return self._sizes.pop(job.id)


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
    )
