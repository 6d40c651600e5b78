"""`AsyncResult` and `GroupResult`: the results of jobs, by their ids."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from switchgear.app.current_job import current_job
from switchgear.app.reraised_exceptions import original_exception, traceback_in
from switchgear.compat.celery import states
from switchgear.compat.celery.exceptions import CeleryTimeoutError, TaskRevokedError, TimeLimitExceeded
from switchgear.compat.json_types import from_json_types
from switchgear.compat.not_supported import NotSupported
from switchgear.errors import (
    JobCancelled,
    JobExpired,
    JobFailed,
    JobTimedOut,
    JobUnknown,
    PredecessorFailed,
    TaskFailed,
)

if TYPE_CHECKING:
    from switchgear.app.server_answers import JobInfo
    from switchgear.compat.celery.app import CeleryApp

__all__ = ["AsyncResult", "EagerResult", "GroupResult", "ResultSet", "celery_exception"]

_STATES: Final = {
    "waiting": states.PENDING,
    "scheduled": states.PENDING,
    "ready": states.PENDING,
    "running": states.STARTED,
    "done": states.SUCCESS,
    "failed": states.FAILURE,
    "cancelled": states.REVOKED,
    "expired": states.REVOKED,
}

_GRAPH: Final = "the dashboard shows the graph of a job, and App.job(id).explain() what it waits for"
_NOT_SUPPORTED: Final = {
    "as_tuple": "store the `id`, and make the result anew with AsyncResult(id)",
    "build_graph": _GRAPH,
    "get_leaf": "the result of a chain is that of its last task: get()",
    "graph": _GRAPH,
    "iterdeps": _GRAPH,
}


def celery_exception(app: CeleryApp, failure: JobFailed) -> BaseException:
    """The exception that Celery raises for a job that did not succeed."""
    if isinstance(failure, JobCancelled | JobExpired):
        return TaskRevokedError("revoked" if isinstance(failure, JobCancelled) else "expired")
    if isinstance(failure, JobTimedOut):
        return TimeLimitExceeded(str(failure))
    if isinstance(failure, PredecessorFailed) and failure.predecessor:
        try:
            app.switchgear_app.job(failure.predecessor).result()
        except JobFailed as earlier:
            return celery_exception(app, earlier)
    return original_exception(failure) if isinstance(failure, TaskFailed) else failure


class AsyncResult:
    """A job that was submitted, by its id."""

    def __init__(self, id: str, *, app: CeleryApp | None = None, parent: Any = None, **others: Any) -> None:
        from switchgear.compat.celery.app import current_celery_app

        if not isinstance(id, str):
            raise ValueError(f"AsyncResult requires a valid id, not {type(id).__name__}")
        self.id = id
        self.app = app or current_celery_app()
        self.parent = parent
        self._job = self.app.switchgear_app.job(id)

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"

    def __str__(self) -> str:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def task_id(self) -> str:
        """The id of the job."""
        return self.id

    # --- the end ---

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float = 0.5,
        no_ack: bool = True,
        follow_parents: bool = True,
        callback: Callable[[str, Any], Any] | None = None,
        on_message: Any = None,
        disable_sync_subtasks: bool = True,
        **others: Any,
    ) -> Any:
        """Wait for the job and return its result, or raise its exception; nothing is polled."""
        if disable_sync_subtasks and current_job(None) is not None:
            raise RuntimeError("Never call result.get() within a task! Use a chain, or pass the result on")
        try:
            value = from_json_types(self._job.result(timeout))
        except TimeoutError as late:
            raise CeleryTimeoutError("The operation timed out.") from late
        except JobFailed as failure:
            value = celery_exception(self.app, failure)
            if propagate:
                raise value from failure
        if callback is not None:
            callback(self.id, value)
        return value

    wait = get

    def collect(self, **options: Any) -> Iterator[tuple[AsyncResult, Any]]:
        """This result with its value."""
        yield self, self.get(**options)

    def forget(self) -> None:
        """Nothing is done: the server deletes finished jobs after their retention."""

    def revoke(self, terminate: bool = False, signal: Any = None, wait: bool = False, timeout: Any = None) -> None:
        """Cancel the job; a running one is asked to stop, and killed if it runs in a process."""
        self._job.cancel()

    # --- what is known now ---

    def _status(self) -> JobInfo | None:
        try:
            return self._job.status()
        except JobUnknown:  # Celery cannot tell such a job from one that waits
            return None

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE, REVOKED, or what `update_state` was given."""
        return self._state_of(self._status())

    status = state

    def _state_of(self, info: JobInfo | None) -> str:
        if info is None:
            return states.PENDING
        if info.state == "running":
            reported = _reported(info)
            return str(reported["state"]) if reported and reported.get("state") else states.STARTED
        if info.state == "scheduled" and info.attempts:
            return states.RETRY
        return _STATES[info.state]

    @property
    def info(self) -> Any:
        """The result, the exception, or what `update_state` was given as `meta`."""
        info = self._status()
        state = self._state_of(info)
        if info is not None and info.state == "running":
            reported = _reported(info)
            return from_json_types(reported["meta"]) if reported else None
        return self.get(propagate=False, disable_sync_subtasks=False) if state in states.READY_STATES else None

    result = info

    @property
    def traceback(self) -> str | None:
        """The traceback of the worker as text, if the task has failed."""
        info = self._status()
        if info is None or info.state != "failed" or not info.error:
            return None
        return traceback_in(info.error)

    def ready(self) -> bool:
        """Whether the job has ended."""
        return self.state in states.READY_STATES

    def successful(self) -> bool:
        """Whether the task has succeeded."""
        return self.state == states.SUCCESS

    def failed(self) -> bool:
        """Whether the task has failed."""
        return self.state == states.FAILURE

    def maybe_throw(self, propagate: bool = True, **others: Any) -> Any:
        """The result if the job has ended; raises the exception of a task that failed."""
        return self.get(propagate=propagate, disable_sync_subtasks=False) if self.ready() else None

    def then(self, *args: Any, **kwargs: Any) -> Any:
        """Not supported."""
        raise NotSupported("AsyncResult.then is not supported: use link= or a chain")

    @property
    def name(self) -> str | None:
        """The name of the task."""
        info = self._status()
        return info.task if info is not None else None

    @property
    def date_done(self) -> Any:
        """When the job ended."""
        info = self._status()
        return info.finished_at if info is not None else None

    @property
    def retries(self) -> int:
        """How often the job was started again."""
        info = self._status()
        return max(0, info.attempts - 1) if info is not None else 0

    @property
    def children(self) -> list[Any]:
        """Jobs that were submitted by the job are not recorded."""
        return []

    # Celery knows these only with `result_extended`.
    args = kwargs = queue = worker = None

    def __getattr__(self, name: str) -> Any:
        if name in _NOT_SUPPORTED:
            raise NotSupported(f"AsyncResult.{name} is not supported: {_NOT_SUPPORTED[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _reported(info: JobInfo) -> dict[str, Any] | None:
    """What the task has given to `update_state`."""
    try:
        reported = msgspec.json.decode(info.message)
    except msgspec.MsgspecError:
        return None
    return reported if isinstance(reported, dict) and reported.keys() == {"state", "meta"} else None


class ResultSet:
    """Several results, which are waited for together."""

    def __init__(self, results: Iterable[Any] = (), **others: Any) -> None:
        self.results = list(results)

    def __repr__(self) -> str:
        return f"<ResultSet: [{', '.join(str(result) for result in self.results)}]>"

    def add(self, result: Any) -> None:
        """Add a result, if it is not there yet."""
        if result not in self.results:
            self.results.append(result)

    def update(self, results: Iterable[Any]) -> None:
        """Add several results."""
        for result in results:
            self.add(result)

    def discard(self, result: Any) -> None:
        """Remove a result, if it is there."""
        if result in self.results:
            self.results.remove(result)

    def remove(self, result: Any) -> None:
        """Remove a result; raises KeyError."""
        if result not in self.results:
            raise KeyError(result)
        self.results.remove(result)

    def clear(self) -> None:
        """Remove all results."""
        self.results.clear()

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.results)

    def __getitem__(self, index: int) -> Any:
        return self.results[index]

    def get(self, timeout: float | None = None, propagate: bool = True, **options: Any) -> list[Any]:
        """The values of all results, in order."""
        return list(self.iterate(timeout, propagate, **options))

    join = join_native = get

    def iterate(self, timeout: float | None = None, propagate: bool = True, **options: Any) -> Iterator[Any]:
        """The values one after the other, in order, each as soon as it is there."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for result in self.results:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            yield result.get(timeout=left, propagate=propagate, **options)

    def maybe_throw(self, propagate: bool = True, **options: Any) -> None:
        """Raise the exception of a task that has failed."""
        for result in self.results:
            result.maybe_throw(propagate=propagate, **options)

    def ready(self) -> bool:
        """Whether all have ended."""
        return all(result.ready() for result in self.results)

    def waiting(self) -> bool:
        """Whether any has not ended."""
        return not self.ready()

    def successful(self) -> bool:
        """Whether all have succeeded."""
        return all(result.successful() for result in self.results)

    def failed(self) -> bool:
        """Whether any has failed."""
        return any(result.failed() for result in self.results)

    def completed_count(self) -> int:
        """How many have succeeded."""
        return sum(result.successful() for result in self.results)

    def revoke(self, **options: Any) -> None:
        """Cancel all."""
        for result in self.results:
            result.revoke(**options)

    def forget(self) -> None:
        """Nothing is done: the server deletes finished jobs after their retention."""


class GroupResult(ResultSet):
    """The results of a group, in the order of its members."""

    def __init__(self, results: Iterable[Any], *, id: str | None = None, parent: Any = None, **others: Any) -> None:
        super().__init__(results)
        self.id = id or str(uuid.uuid4())
        self.parent = parent

    def __repr__(self) -> str:
        return f"<GroupResult: {self.id} [{', '.join(str(result) for result in self.results)}]>"

    @property
    def children(self) -> list[Any]:
        """The results."""
        return self.results

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Not supported."""
        raise NotSupported("GroupResult.save is not supported: store the ids of its results")


class EagerResult:
    """The result of a task that ran here."""

    def __init__(self, id: str, value: Any, state: str, traceback: str | None = None) -> None:
        self.id = id
        self._value = value
        self.state = self.status = state
        self.traceback = traceback
        self.parent: Any = None
        self.children: list[Any] = []

    def __repr__(self) -> str:
        return f"<EagerResult: {self.id}>"

    def get(self, timeout: float | None = None, propagate: bool = True, **others: Any) -> Any:
        """The result, or its exception."""
        if propagate and isinstance(self._value, BaseException):
            raise self._value
        return self._value

    wait = get

    @property
    def result(self) -> Any:
        """The value or the exception."""
        return self._value

    info = result

    def ready(self) -> bool:
        """Always true."""
        return True

    def successful(self) -> bool:
        """Whether the task has succeeded."""
        return self.state == states.SUCCESS

    def failed(self) -> bool:
        """Whether the task has failed."""
        return self.state == states.FAILURE

    def revoke(self, **options: Any) -> None:
        """Nothing is done: the task has ended."""

    def forget(self) -> None:
        """Nothing is done."""
