"""`Failure`: what an error handler is given of a job that did not succeed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from switchgear.app.references import FAILED_TASK, REFERENCE, Reference
from switchgear.app.reraised_exceptions import restored_failure
from switchgear.client.gearman.job_subscriber import JobEnd
from switchgear.errors import JobFailed, TaskFailed

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.graph_plan import PlannedJob

__all__ = ["Failure", "FailureReference"]


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that did not succeed, as the task of `on_error` is given it."""

    job: str
    """The handle of the job."""
    task: str
    """The name of its task."""
    exception: JobFailed
    """What `Job.result` would raise: a `TaskFailed` if the task itself failed, a `PredecessorFailed` if a step before
    it did, and so on."""

    @property
    def traceback(self) -> str:
        """The traceback of the worker as text; empty if the task itself raised nothing."""
        return self.exception.remote_traceback if isinstance(self.exception, TaskFailed) else ""

    def __str__(self) -> str:
        return f"{self.task}: {self.exception}"

    @classmethod
    def of_end(cls, app: App, handle: str, task: str, end: JobEnd) -> Failure:
        """The failure of a job that has ended so."""
        failure = end.failure(handle)
        if not isinstance(failure, JobFailed):  # the server has forgotten it
            failure = JobFailed(f"job {handle} did not succeed, and nothing more is known of it")
        return cls(handle, task, restored_failure(app, app.tasks.get(task), failure))


class FailureReference(Reference):
    """An argument that stands for the failure of the first of these jobs that does not succeed."""

    def __init__(self, jobs: list[PlannedJob[Any]]) -> None:
        self._jobs = jobs

    def as_reference(self) -> list[dict[str, Any]]:
        return [{REFERENCE: job.handle, FAILED_TASK: job.task.name} for job in self._jobs]
