"""The attempts of a job: when each began and ended, and which worker made it.

The job itself knows the times. The worker of an attempt that has ended is in the job log only: a million finished jobs
should not each name their worker in memory and in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from switchgear.errors import StorageError
from switchgear.joblog.recorder import Recorder, described_worker
from switchgear.joblog.runs import LoggedStart
from switchgear.model import SECOND_US, Cause, Job, Worker
from switchgear.protocols.pending_read import PendingRead, Reading, awaited
from switchgear.verbs.answers import AttemptAnswer

__all__ = ["attempt_history", "logged_starts", "present_start"]


def attempt_history(job: Job, starts: Mapping[int, LoggedStart]) -> list[AttemptAnswer]:
    """The attempts of a job, the first one first; `starts` are those that the job log knows, by their microseconds."""
    attempts: list[AttemptAnswer] = []
    first = max(1, job.start_number + 1 - sum(cause is Cause.TAKEN for cause, _ in job.log))
    for cause, at_us in job.log:
        if cause is Cause.TAKEN:
            known = starts.get(at_us)
            attempts.append(
                {
                    "attempt": first + len(attempts),
                    "started_at": at_us / SECOND_US,
                    "ended_at": None,
                    "outcome": "running",
                    "worker": known.worker if known is not None else None,
                    "worker_host": known.worker_host if known is not None else None,
                    "protocol": known.protocol if known is not None else None,
                }
            )
        elif attempts and attempts[-1]["ended_at"] is None:
            attempts[-1]["ended_at"] = at_us / SECOND_US
            attempts[-1]["outcome"] = cause.name.lower()
    return attempts


def present_start(job: Job, worker: Worker) -> LoggedStart:
    """The start of the current attempt of a running job."""
    return LoggedStart(job.taken_us / SECOND_US, *described_worker(worker))


def logged_starts(recorder: Recorder, handle: str, job_id: int) -> Reading[dict[int, LoggedStart]]:
    """The starts of a job that the job log knows; none if it cannot be read. The event loop goes on meanwhile."""
    read = PendingRead()
    found = asyncio.get_running_loop().run_in_executor(None, recorder.find_starts, handle, job_id)
    found.add_done_callback(partial(_ended, read))
    try:
        starts: dict[int, LoggedStart] = yield from awaited(read)
    except StorageError:
        return {}  # the rest of the answer is still useful
    return starts


def _ended(read: PendingRead, found: asyncio.Future[dict[int, LoggedStart]]) -> None:
    if found.cancelled():
        read.finish({})
        return
    error = found.exception()
    if error is None:
        read.finish(found.result())
    else:
        read.finish(None, error if isinstance(error, StorageError) else StorageError(str(error)))
