"""Runs a Django task in a worker."""

from __future__ import annotations

from typing import Any

from django.db import close_old_connections
from django.utils import timezone
from django.utils.module_loading import import_string

from switchgear.app.current_job import current_job
from switchgear.app.job_execution import is_retried
from switchgear.contrib.django.framework import (
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)

__all__ = ["run_task"]


def run_task(task: str, args: list[Any], kwargs: dict[str, Any], backend: str = "default", priority: int = 0) -> Any:
    """Call the task of that name as Django does: with its context and signals, and fresh database connections."""
    close_old_connections()
    try:
        return _run(task, args, kwargs, backend, priority)
    finally:
        close_old_connections()


def _run(path: str, args: list[Any], kwargs: dict[str, Any], backend: str, priority: int) -> Any:
    found = import_string(path)
    if not isinstance(found, Task):
        raise TypeError(f"{path} is not a task of Django's")
    job = current_job()
    now = timezone.now()
    tasks_backend = task_backends[backend]
    sender = type(tasks_backend)
    queue = job.function.rpartition(".")[2]
    result = TaskResult(
        task=found.using(priority=priority, queue_name=queue, backend=backend),
        id=job.handle,
        status=TaskResultStatus.RUNNING,
        enqueued_at=None,  # only the server has it; a request for each job would take as long as many jobs
        started_at=now,
        last_attempted_at=now,
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=backend,
        errors=[],
        worker_ids=[""] * job.attempt,
    )
    task_started.send(sender, task_result=result)
    try:
        context = (TaskContext(task_result=result),) if found.takes_context else ()
        value = normalize_json(found.call(*context, *args, **kwargs))
    except BaseException as error:
        if job.cancelled or is_retried(tasks_backend.queue_task(queue).settings, job, error):
            raise  # the task has not finished; the worker tells of the attempt
        _end(result, TaskResultStatus.FAILED)
        result.errors.append(TaskError(exception_class_path=_path_of(type(error)), traceback=""))
        task_finished.send(sender, task_result=result)
        raise
    _end(result, TaskResultStatus.SUCCESSFUL)
    object.__setattr__(result, "_return_value", value)
    task_finished.send(sender, task_result=result)
    return value


def _end(result: Any, status: Any) -> None:
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())


def _path_of(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
