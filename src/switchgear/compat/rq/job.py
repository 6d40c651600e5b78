"""`RqJob`: a job as RQ's programs know it."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from switchgear.app.current_job import current_job
from switchgear.app.reraised_exceptions import traceback_in
from switchgear.compat.json_types import from_json_types, to_json_types
from switchgear.compat.not_supported import NotSupported
from switchgear.compat.rq.options import CLEAN_UP_SECONDS, RqCallback, RqDependency, RqRetry
from switchgear.errors import JobUnknown, SwitchgearError

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.server_answers import JobInfo

__all__ = [
    "Callback",
    "Dependency",
    "Job",
    "JobStatus",
    "NoSuchJobError",
    "Retry",
    "RqJob",
    "RqJobStatus",
    "RqResult",
    "get_current_job",
    "running_job",
]


class RqJobStatus(StrEnum):
    """What `get_status` returns."""

    QUEUED = "queued"
    FINISHED = "finished"
    FAILED = "failed"
    STARTED = "started"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"
    STOPPED = "stopped"
    CANCELED = "canceled"


_STATUSES: Final = {
    "waiting": RqJobStatus.DEFERRED,
    "scheduled": RqJobStatus.SCHEDULED,
    "ready": RqJobStatus.QUEUED,
    "running": RqJobStatus.STARTED,
    "done": RqJobStatus.FINISHED,
    "failed": RqJobStatus.FAILED,
    "cancelled": RqJobStatus.CANCELED,
    "expired": RqJobStatus.CANCELED,
}
# Attributes of RQ's jobs that are not here, and what to use.
_INSTEAD: Final = {
    "get_position": "jobs of a queue run by priority and age: switchgear explain shows what one waits for",
    "worker_name": "switchgear job HANDLE shows where its attempts ran",
    "results": "earlier results are not kept: latest_result()",
    "stop_execution": "cancel()",
    "heartbeat": "the worker renews the lease of its jobs by itself",
}


class NoSuchJobError(SwitchgearError):
    """There is no such job, or it ended so long ago that it was deleted."""


class RqResultType(Enum):
    """How a job ended."""

    SUCCESSFUL = 1
    FAILED = 2


@dataclass(frozen=True, slots=True)
class RqResult:
    """The end of a job, as `RqJob.latest_result` returns it."""

    Type: ClassVar[type[RqResultType]] = RqResultType

    job_id: str
    type: RqResultType
    created_at: datetime | None
    return_value: Any
    exc_string: str | None


class RqJob:
    """A job that was enqueued."""

    def __init__(self, app: App, handle: str, id: str | None = None) -> None:
        self.connection = app
        self.handle = handle
        self.id = id or handle
        self.meta: dict[str, Any] = {}
        self._job = app.job(handle)
        self._payload: dict[str, Any] | None = None

    @classmethod
    def fetch(cls, id: str, connection: Any = None, **others: Any) -> RqJob:
        """The job with this id; raises NoSuchJobError."""
        from switchgear.compat.rq.queue import app_of

        app = app_of(connection)
        handle = id
        if not id.startswith("H:"):  # an id that the program has chosen
            found = next(app.jobs(unique=id, limit=1), None)
            if found is None:
                raise NoSuchJobError(f"No such job: {id}")
            handle = found.handle
        job = cls(app, handle, id)
        job.refresh()
        return job

    @classmethod
    def fetch_many(cls, job_ids: Iterable[str], connection: Any = None, **others: Any) -> list[RqJob | None]:
        """The jobs with these ids, with None for those that there are not."""
        return [cls._fetch_or_none(id, connection) for id in job_ids]

    @classmethod
    def _fetch_or_none(cls, id: str, connection: Any) -> RqJob | None:
        try:
            return cls.fetch(id, connection)
        except NoSuchJobError:
            return None

    @classmethod
    def exists(cls, job_id: str, connection: Any = None) -> bool:
        """Whether there is such a job."""
        return cls._fetch_or_none(job_id, connection) is not None

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RqJob) and other.handle == self.handle

    def __hash__(self) -> int:
        return hash(self.handle)

    def get_id(self) -> str:
        """The id of the job."""
        return self.id

    # --- what is known now ---

    def _info(self) -> JobInfo:
        try:
            return self._job.status()
        except JobUnknown as error:
            raise NoSuchJobError(f"No such job: {self.id}") from error

    def refresh(self) -> None:
        """Read `meta` again; raises NoSuchJobError."""
        info = self._info()
        payload = self._read_payload(info)
        self.meta = dict(from_json_types(payload.get("meta") or {}))
        try:
            saved = msgspec.json.decode(info.message)
        except msgspec.MsgspecError:
            return
        if isinstance(saved, dict) and saved.keys() == {"meta"}:
            self.meta = dict(from_json_types(saved["meta"]))

    def _read_payload(self, info: JobInfo | None = None) -> dict[str, Any]:
        if self._payload is None:
            payload = (info or self._info()).details["payload"]
            self._payload = dict(msgspec.json.decode(payload)) if payload else {}
        return self._payload

    def get_status(self, refresh: bool = True) -> RqJobStatus:
        """queued, started, deferred, scheduled, finished, failed or canceled."""
        return _STATUSES[self._info().state]

    def get_meta(self, refresh: bool = True) -> dict[str, Any]:
        """What the job has stored with `save_meta`."""
        self.refresh()
        return self.meta

    @property
    def is_finished(self) -> bool:
        """Whether the function has returned."""
        return self.get_status() == "finished"

    @property
    def is_failed(self) -> bool:
        """Whether the job has failed."""
        return self.get_status() == "failed"

    @property
    def is_queued(self) -> bool:
        """Whether the job waits for a worker."""
        return self.get_status() == "queued"

    @property
    def is_started(self) -> bool:
        """Whether a worker runs the job."""
        return self.get_status() == "started"

    @property
    def is_deferred(self) -> bool:
        """Whether the job waits for other jobs."""
        return self.get_status() == "deferred"

    @property
    def is_scheduled(self) -> bool:
        """Whether the job waits for its time."""
        return self.get_status() == "scheduled"

    @property
    def is_canceled(self) -> bool:
        """Whether the job was cancelled, or has expired."""
        return self.get_status() == "canceled"

    def return_value(self, refresh: bool = False) -> Any:
        """What the function returned; None if it has not."""
        if self._info().state != "done":
            return None
        return from_json_types(self._job.result())

    @property
    def result(self) -> Any:
        """What the function returned; None if it has not."""
        return self.return_value()

    @property
    def exc_info(self) -> str | None:
        """The traceback of a job that has failed."""
        return traceback_in(self._info().error)

    def latest_result(self) -> RqResult | None:
        """How the job ended; None if it has not."""
        info = self._info()
        if info.state == "done":
            return RqResult(self.id, RqResult.Type.SUCCESSFUL, info.finished_at, self.return_value(), None)
        if info.state == "failed":
            return RqResult(self.id, RqResult.Type.FAILED, info.finished_at, None, traceback_in(info.error))
        return None

    @property
    def func_name(self) -> str:
        """Where the function is imported from."""
        return str(self._read_payload().get("function", ""))

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments of the function."""
        return tuple(from_json_types(self._read_payload().get("args", [])))

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments of the function."""
        return dict(from_json_types(self._read_payload().get("kwargs", {})))

    @property
    def origin(self) -> str:
        """The name of its queue."""
        return self._info().task.partition(".")[2]

    @property
    def description(self) -> str:
        """What listings show."""
        return str(self._info().details.get("label") or self.func_name)

    @property
    def created_at(self) -> datetime:
        """When the job was enqueued."""
        return self._info().created_at

    enqueued_at = created_at

    @property
    def started_at(self) -> datetime | None:
        """When a worker began the latest attempt."""
        attempts = self._info().details.get("attempt_history") or []
        return datetime.fromtimestamp(attempts[-1]["started_at"], UTC) if attempts else None

    @property
    def ended_at(self) -> datetime | None:
        """When the job ended."""
        return self._info().finished_at

    @property
    def timeout(self) -> float | None:
        """The seconds after which JobTimeoutException is raised in the function; None for no limit."""
        seconds = self._info().details.get("timeout")
        return seconds - CLEAN_UP_SECONDS if seconds else None

    @property
    def dependency_ids(self) -> list[str]:
        """The jobs that it waits for."""
        return list(self._info().predecessors)

    def fetch_dependencies(self, **options: Any) -> list[RqJob]:
        """The jobs that it waits for, as far as the server still has them."""
        found = (self._fetch_or_none(handle, self.connection) for handle in self.dependency_ids)
        return [job for job in found if job is not None]

    @property
    def dependency(self) -> RqJob | None:
        """The first job that it waits for."""
        return next(iter(self.fetch_dependencies()), None)

    def __getattr__(self, name: str) -> Any:
        if name in _INSTEAD:
            raise NotSupported(f"Job.{name} is not supported: {_INSTEAD[name]}")
        raise AttributeError(f"Job has no attribute {name}")

    # --- acting ---

    def cancel(self, **options: Any) -> None:
        """Cancel the job, and with it the jobs that wait for it, unless they allow failures."""
        self._job.cancel()

    def requeue(self, at_front: bool = False) -> RqJob:
        """Run a job again that did not succeed."""
        self._job.retry()
        return self

    def delete(self, **options: Any) -> None:
        """Not supported."""
        raise NotSupported("Job.delete is not supported: cancel() it; the server deletes ended jobs after result_ttl")

    def save_meta(self) -> None:
        """Store `meta`, from inside of the job."""
        running = current_job(None)
        if running is None or running.handle != self.handle:
            raise NotSupported("save_meta is for the job that runs: get_current_job().save_meta()")
        meta = msgspec.json.encode({"meta": to_json_types(self.meta)}).decode()
        running.progress(0, 0, meta)

    save = save_meta


Job = RqJob  # RQ's names
JobStatus, Dependency, Retry, Callback = RqJobStatus, RqDependency, RqRetry, RqCallback

_running: ContextVar[RqJob | None] = ContextVar("switchgear_rq_job", default=None)


def running_job(function: str, args: list[Any], kwargs: dict[str, Any], meta: dict[str, Any]) -> RqJob:
    """The job that this worker has just begun."""
    from switchgear.compat.rq.queue import default_app

    job = RqJob(default_app(), current_job().handle)
    job.meta = dict(from_json_types(meta))
    job._payload = {"function": function, "args": args, "kwargs": kwargs}
    _running.set(job)
    return job


def get_current_job(connection: Any = None, job_class: Any = None) -> RqJob | None:
    """The job that is running; None outside of one."""
    job, running = _running.get(), current_job(None)
    return job if job is not None and running is not None and running.handle == job.handle else None
