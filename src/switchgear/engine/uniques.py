"""Unique keys: how long one is a job's own.

While a key is a job's own, `Function.uniques` has the job under it, and other submissions with that key meet it.  By
its scope a key is free again when the job ends, or when it is started.  If the job holds its key until some time, it is
not free before then, whatever becomes of the job; the engine's deadlines say when that is.

A job that gave up its key when it was started, and has to be started again, takes it back.  If another job has it by
then, the first one lives on without a key.
"""

from __future__ import annotations

from switchgear.model import Job

__all__ = ["free_key", "owns_key", "take_key", "take_key_again"]


def owns_key(job: Job) -> bool:
    """Whether submissions with the job's key meet this job."""
    return job.function.uniques.get(job.unique) is job


def take_key(job: Job) -> None:
    """The key is the job's own from now on."""
    job.function.uniques[job.unique] = job


def free_key(job: Job) -> None:
    """The job has reached the end of its key's scope."""
    if not job.unique_until_us and owns_key(job):
        del job.function.uniques[job.unique]


def take_key_again(job: Job) -> None:
    """A job that was started waits again."""
    if job.unique and job.function.uniques.setdefault(job.unique, job) is not job:
        job.unique = b""
