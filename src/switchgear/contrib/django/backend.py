"""`SwitchgearBackend`: a backend for Django's tasks, which enqueues them as jobs and reads their results.

Each queue of the backend is a function on the server, `django.QUEUE`, whose payload names the task: so a worker serves
whole queues, and need not know the tasks beforehand.  The label of each job is its task, for listings and the log.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, cast

import msgspec
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.module_loading import import_string

from switchgear import errors
from switchgear.app.app import App
from switchgear.app.job import Job
from switchgear.app.task import Task as AppTask
from switchgear.client.gearman.job_subscriber import TIMED_OUT_TEXT
from switchgear.contrib.django.framework import (
    BaseTaskBackend,
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
)
from switchgear.contrib.django.run_task import run_task
from switchgear.errors import ConfigError, JobUnknown

__all__ = ["DEFAULT_PREFIX", "SwitchgearBackend"]

DEFAULT_PREFIX: Final = "django"
DEFAULT_QUEUE: Final = "default"
# Django's priorities range from -100 to 100; 0 is the default.
PRIORITIES: Final = ("low", "normal", "high")
STATUSES: Final = {
    "running": TaskResultStatus.RUNNING,
    "done": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
    "expired": TaskResultStatus.FAILED,
}
# How a job ended that has no exception.
ENDINGS: Final = {
    "cancelled": "switchgear.errors.JobCancelled",
    "expired": "switchgear.errors.JobExpired",
    "failed": "switchgear.errors.JobLost",
}


class SwitchgearBackend(BaseTaskBackend):  # type: ignore[misc]  # Django has no types
    """A task backend that keeps tasks on a Switchgear server, or in a directory.

    OPTIONS: `url` (one or a list; default: the directory `.switchgear`), `prefix` of the functions on the server, and
    options of `App.task` that apply to every task, such as `retries`, `timeout` and `retention`.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        options = dict(self.options)
        url = options.pop("url", None)
        self.prefix = str(options.pop("prefix", DEFAULT_PREFIX))
        self._task_options = options
        # The enqueuing process is a web server or a shell; tasks are run by workers.
        try:
            self.app = App(url, name="", run_here=False)  # no name: it owns nothing on the server
            self.app.logs_failures = True  # Django's own receiver of `task_finished` does
        except ConfigError as error:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: OPTIONS: url: {error}") from error
        self._queue_tasks: dict[str, AppTask[..., Any]] = {}
        for queue in sorted(self.queues) or [DEFAULT_QUEUE]:
            self.queue_task(queue)

    def queue_task(self, queue: str) -> AppTask[..., Any]:
        """The task of the app for a queue."""
        known = self._queue_tasks.get(queue)
        if known is None:
            try:
                make = self.app.task(name=f"{self.prefix}.{queue}", **self._task_options)
            except (TypeError, ValueError) as error:
                raise ImproperlyConfigured(f"TASKS[{self.alias!r}]: OPTIONS: {error}") from error
            known = self._queue_tasks[queue] = make(run_task)
        return known

    # --- enqueueing ---

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        queue_task, arguments = self._submission(task, args, kwargs)
        return self._enqueued(task, arguments, queue_task.submit(**arguments))

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        queue_task, arguments = self._submission(task, args, kwargs)
        return self._enqueued(task, arguments, await queue_task.submit_async(**arguments))

    def _submission(self, task: Any, args: Any, kwargs: Any) -> tuple[AppTask[..., Any], dict[str, Any]]:
        self.validate_task(task)
        arguments = {
            "task": task.module_path,
            "args": normalize_json(list(args)),
            "kwargs": normalize_json(dict(kwargs)),
            "backend": self.alias,
            "priority": task.priority,
        }
        named = PRIORITIES[(task.priority > 0) - (task.priority < 0) + 1]
        queue_task = self.queue_task(task.queue_name).options(priority=cast(Any, named), label=task.module_path)
        return (queue_task.options(at=task.run_after) if task.run_after is not None else queue_task), arguments

    def _enqueued(self, task: Any, arguments: dict[str, Any], job: Job[Any]) -> Any:
        result = TaskResult(
            task=task,
            id=job.handle,
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=arguments["args"],
            kwargs=arguments["kwargs"],
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    # --- results ---

    def get_result(self, result_id: str) -> Any:
        try:
            answer = self.app.control("job", handle=result_id)
        except JobUnknown as error:
            raise TaskResultDoesNotExist(result_id) from error
        return self._result(result_id, answer)

    async def aget_result(self, result_id: str) -> Any:
        try:
            answer = await self.app.control_async("job", handle=result_id)
        except JobUnknown as error:
            raise TaskResultDoesNotExist(result_id) from error
        return self._result(result_id, answer)

    def _result(self, result_id: str, answer: dict[str, Any]) -> Any:
        """The Django task result of a job."""
        prefix, _, queue = str(answer["function"]).rpartition(".")
        if prefix != self.prefix:
            raise TaskResultDoesNotExist(result_id)
        arguments = msgspec.json.decode(answer["payload"] or "{}")
        task = rebuilt(arguments, queue, answer["run_at"])
        starts = [time_of(entry["at"]) for entry in answer["log"] if entry["cause"] == "taken"]
        status = STATUSES.get(answer["state"], TaskResultStatus.READY)
        result = TaskResult(
            task=task,
            id=result_id,
            status=status,
            enqueued_at=time_of(answer["created_at"]),
            started_at=starts[0] if starts else None,
            last_attempted_at=starts[-1] if starts else None,
            finished_at=time_of(answer["finished_at"]),
            args=arguments["args"],
            kwargs=arguments["kwargs"],
            backend=self.alias,
            errors=[failure(answer)] if status == TaskResultStatus.FAILED else [],
            worker_ids=[""] * len(starts),  # the server stores attempts, not their workers
        )
        if status == TaskResultStatus.SUCCESSFUL:
            object.__setattr__(result, "_return_value", msgspec.json.decode(answer["result"] or "null"))
        return result


def rebuilt(arguments: dict[str, Any], queue: str, run_at: float | None) -> Any:
    """The task with the options that it was enqueued with."""
    task = import_string(arguments["task"])
    if not isinstance(task, Task):
        raise TaskResultDoesNotExist(f"{arguments['task']} is not a task any more")
    return task.using(
        priority=arguments["priority"], queue_name=queue, backend=arguments["backend"], run_after=time_of(run_at)
    )


def failure(answer: dict[str, Any]) -> Any:
    """The exception class and traceback of an unsuccessful job.

    The first line of its error names the exception; the line of the traceback that names it again tells its module. The
    rest may be more of its message.
    """
    text = answer["error"] if isinstance(answer["error"], str) else ""
    summary, _, remote_traceback = text.partition("\n\n")
    name = summary.partition(":")[0]
    path = f"switchgear.errors.{name}" if hasattr(errors, name) else ENDINGS[answer["state"]]
    if text.startswith(TIMED_OUT_TEXT.decode()):
        path = "switchgear.errors.JobTimedOut"
    for line in reversed(remote_traceback.splitlines()):
        full_name = line.partition(":")[0]
        if full_name.rpartition(".")[2] == name != "":
            path = full_name if "." in full_name else f"builtins.{name}"
            break
    return TaskError(exception_class_path=path, traceback=remote_traceback or text)


def time_of(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, tz=UTC)
