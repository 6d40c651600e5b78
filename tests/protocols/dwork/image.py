"""A store that outlives its server: rows as the SQLite store writes them, without a file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from switchgear.engine.engine import Engine
from switchgear.model import DONE, FINAL_STATES, Function, Job, Schedule
from switchgear.storage.base import JobQuery
from switchgear.storage.memory import MemoryStore
from switchgear.storage.sqlite_rows import JobRow, job_from_row, job_row


class ImageStore(MemoryStore):
    """What was staged becomes the image when it is kept; a crash loses what was not."""

    def __init__(self) -> None:
        super().__init__()
        self.image: dict[int, JobRow] = {}
        self._staged: dict[int, JobRow] = {}
        self._functions: dict[int, Function] = {}

    def stage(
        self,
        jobs: Iterable[Job],
        functions: Iterable[Function] = (),
        next_job_id: int = 0,
        schedules: Iterable[Schedule] = (),
    ) -> None:
        for job in jobs:
            if job.delivery or job.state in FINAL_STATES:
                self._functions.setdefault(hash(job.function.name), Function(job.function.name))
                self._staged[job.id] = job_row(job, hash(job.function.name))

    def unstage(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._staged.pop(job.id, None)

    def keep(self) -> None:
        self.image.update(self._staged)
        self._staged = {}

    def crash(self) -> None:
        self._staged = {}

    async def read_jobs(self, job_ids: Sequence[int]) -> dict[int, Job]:
        return {job_id: self._job(self.image[job_id]) for job_id in job_ids if job_id in self.image}

    async def read_payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        jobs = await self.read_jobs(job_ids)
        return {job_id: job.payload or b"" for job_id, job in jobs.items()}

    async def find_named(self, names: Collection[bytes], since_us: int = 0) -> dict[bytes, Job]:
        jobs = [self._job(self.image[job_id]) for job_id in sorted(self.image)]
        return {job.name: job for job in jobs if job.name in names and job.created_us >= since_us}

    async def find(self, query: JobQuery) -> list[Job]:
        jobs = [self._job(self.image[job_id]) for job_id in sorted(self.image, reverse=True)]
        found = [
            job
            for job in jobs
            if (not query.before_id or job.id < query.before_id)
            and (query.name is None or job.name == query.name)
            and job.created_us >= query.since_us
        ]
        for job in found:
            job.payload = None  # as a database that does not read it
        return found[: query.limit]

    def restore(self, engine: Engine) -> None:
        """Let a new engine go on."""
        jobs = [self._job(self.image[job_id]) for job_id in sorted(self.image)]
        unfinished = [job for job in jobs if job.state not in FINAL_STATES]
        for job in unfinished:
            job.function = engine.function_named(job.function.name)
        ended = [job for job in jobs if job.state in FINAL_STATES and job.state is not DONE]
        ended.sort(key=lambda job: job.finished_us)
        next_job_id = max(self.image, default=0) + 1
        names = {job.id: job.name for job in ended if job.name}
        engine.restore(unfinished, {job.id: job.state for job in ended}, next_job_id, unsuccessful_names=names)

    def _job(self, row: JobRow) -> Job:
        plain = [bytes(value) if isinstance(value, bytearray) else value for value in row]
        plain[16] = None if plain[16] == 0 else plain[16]
        return job_from_row(tuple(plain), self._functions[row[1]])
