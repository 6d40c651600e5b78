"""Assigned jobs that wait in a worker for the results of other jobs among their arguments."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import msgspec

from switchgear.client.gearman.assigned_job import AssignedJob

__all__ = ["ArgumentResults"]


# State, result (none), cause and error of a job without success.
FailedEnd = tuple[str, bytes, str, bytes]


@dataclass(slots=True)
class _WaitingJob:
    """An assigned job without all of its arguments."""

    assignment: AssignedJob
    missing: set[str]  # handles of jobs whose results have not come
    results: dict[str, bytes | None] = field(default_factory=dict)
    failures: dict[str, FailedEnd] = field(default_factory=dict)


class ArgumentResults:
    """Which assigned jobs wait for the results of which other jobs."""

    def __init__(self) -> None:
        self._jobs: dict[str, _WaitingJob] = {}  # by the handle of the assigned job
        self._waiters: dict[str, list[str]] = {}  # by the handle of the other job: the assigned jobs that wait for it

    def __len__(self) -> int:
        """The number of assigned jobs that wait for results among their arguments."""
        return len(self._jobs)

    @property
    def handles(self) -> list[str]:
        """The handles of assigned jobs that wait for results among their arguments."""
        return list(self._jobs)

    @property
    def wanted(self) -> Collection[str]:
        """The jobs whose results are waited for."""
        return self._waiters.keys()

    def add(self, assignment: AssignedJob, references: Sequence[str]) -> list[str]:
        """Have a job wait; returns the jobs whose results have to be asked for, because no other job waits for them."""
        self._jobs[assignment.handle] = _WaitingJob(assignment, set(references))
        new: list[str] = []
        for wanted in dict.fromkeys(references):
            if wanted not in self._waiters:
                self._waiters[wanted] = []
                new.append(wanted)
            self._waiters[wanted].append(assignment.handle)
        return new

    def discard(self, handle: str) -> bool:
        """Forget an assigned job; returns whether it was waiting."""
        return self._jobs.pop(handle, None) is not None

    def on_result(self, wanted: str, result: bytes | None, failure: FailedEnd | None = None) -> list[AssignedJob]:
        """A result has come, or None and the end of a job without success; returns the jobs that can be run now."""
        complete: list[AssignedJob] = []
        for handle in self._waiters.pop(wanted, ()):
            job = self._jobs.get(handle)
            if job is None or wanted not in job.missing:
                continue
            job.missing.discard(wanted)
            job.results[wanted] = result
            if failure is not None:
                job.failures[wanted] = failure
            if not job.missing:
                del self._jobs[handle]
                complete.append(msgspec.structs.replace(job.assignment, results=job.results, failures=job.failures))
        return complete

    def on_no_result(self, wanted: str) -> list[AssignedJob]:
        """Handle a result that will not come; returns the jobs that waited for it, which no longer wait."""
        jobs = [self._jobs.pop(handle, None) for handle in self._waiters.pop(wanted, ())]
        return [job.assignment for job in jobs if job is not None]
