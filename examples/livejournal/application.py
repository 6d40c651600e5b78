"""The application: creates jobs, follows those that it has a handle for, and has a worker killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from examples.livejournal.orders import Order
from examples.livejournal.processes import Crew
from switchgear.client.draft import AsyncDraftClient, DraftStatus, JobRecord, JobType
from switchgear.joblog import JobLog

__all__ = ["Job", "Screen", "create_jobs", "follow_all", "kill_worker_halfway", "look_up_the_rest"]

# There is no packet by which a server tells of a job with a handle: it is asked so often.
POLL_SECONDS = 0.1


@dataclass(eq=False)
class Job:
    """A job that was created, and what is known of it."""

    order: Order
    record: JobRecord
    original: Job | None = None  # the job that the server had already when this was asked for
    state: str = "created"
    status: DraftStatus | None = None
    remark: str = ""

    @property
    def is_followed(self) -> bool:
        """Whether the server tells what becomes of it."""
        return self.original is None and self.order.job_type is not JobType.ASYNC_THROW_AWAY

    def note_end(self) -> None:
        """Its outcome is known."""
        assert self.record.outcome is not None
        code, data = self.record.outcome
        self.state = "failed" if code else "done"
        self.remark = data.decode(errors="replace").partition("\n")[0]


class Screen(Protocol):
    """Who shows it to people."""

    def show(self, job: Job) -> None:
        """Something is new about this job."""

    def say(self, text: str) -> None:
        """Something else is new."""


async def create_jobs(client: AsyncDraftClient, orders: Iterable[Order], screen: Screen) -> list[Job]:
    """Create all of them.  A handle that was seen before is that of an unfinished job with the same key."""
    jobs: list[Job] = []
    by_handle: dict[str, Job] = {}
    for order in orders:
        record = await client.submit(order.name, order.args, dupkey=order.dupkey, job_type=order.job_type)
        job = Job(order, record)
        if record.handle:
            original = by_handle.setdefault(record.handle, job)
            if original is not job:
                client.forget(record)
                job.original = original
                job.state, job.remark = "duplicate", f"has the handle {record.handle} of the first"
        jobs.append(job)
        screen.show(job)
    return jobs


async def follow_all(client: AsyncDraftClient, jobs: Iterable[Job], screen: Screen) -> None:
    """Show how far they are, until all have ended of which the server tells that."""
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            if job.is_followed:
                group.create_task(_follow(client, job, screen))


async def _follow(client: AsyncDraftClient, job: Job, screen: Screen) -> None:
    if job.order.job_type is JobType.SYNC_WAIT:
        async for status in client.statuses(job.record):
            _note_status(job, status, screen)
    else:
        while await client.complete(job.record) is None:
            _note_status(job, await client.status(job.record), screen)
            await asyncio.sleep(POLL_SECONDS)
    job.note_end()
    screen.show(job)


def _note_status(job: Job, status: DraftStatus, screen: Screen) -> None:
    if status.denominator and status != job.status:
        job.state, job.status = "running", status
        screen.show(job)


async def kill_worker_halfway(client: AsyncDraftClient, job: Job, crew: Crew, screen: Screen) -> None:
    """The first worker for a job is killed in the middle of it; the server hands the job to the next."""
    victim = await crew.start_worker(job.order.name, gets_stuck=True)
    status = await client.status(job.record)
    while not status.denominator or 2 * status.numerator < status.denominator:
        await asyncio.sleep(POLL_SECONDS)
        status = await client.status(job.record)
    _note_status(job, status, screen)
    victim.kill()
    screen.say(f"killed the worker that had {job.order.label}, at {status.numerator}/{status.denominator}")


def look_up_the_rest(log: JobLog, jobs: Iterable[Job], screen: Screen) -> None:
    """What became of the jobs that were thrown away, of which only the log knows."""
    seen: set[Order] = set()
    for job in jobs:
        if job.order.job_type is JobType.ASYNC_THROW_AWAY:
            runs = log.ran(function=job.order.name, key=job.order.dupkey)
            if job.order in seen:
                job.state, job.remark = "duplicate", f"{len(runs)} in the log"
            elif runs:
                job.state, job.remark = runs[-1].state, "says the log"
            seen.add(job.order)
            screen.show(job)
