"""Exceptions of tasks as exceptions of their own class, if that class is known in this process."""

from __future__ import annotations

import builtins
import sys

from switchgear.errors import TaskFailed

__all__ = ["original_exception", "traceback_in"]


def original_exception(failure: TaskFailed) -> BaseException:
    """The exception that the task raised, with its arguments; the failure itself if its class is not known here.

    The class is looked up among the builtins and in modules that this process has imported, and nothing is imported.
    """
    name = failure.error_type
    kind = _class_of(name, failure.remote_traceback)
    if kind is None:
        return failure
    arguments = failure.raised[2]
    if arguments is None:  # they were not sent: only Python can express them
        arguments = (failure.message,) if failure.message else ()
    try:
        error = kind(*arguments)
    except Exception:  # a class that takes other arguments
        return failure
    error.__cause__ = failure  # the traceback of the worker
    return error


def traceback_in(error: str | None) -> str | None:
    """The traceback of the worker within the error of a job; the error itself if it has none, None without an error."""
    if not error:
        return None
    return TaskFailed("", error=error.encode()).remote_traceback or error


def _class_of(name: str, remote_traceback: str) -> type[Exception] | None:
    if not name:
        return None
    path = name
    for line in reversed(remote_traceback.splitlines()):
        full_name = line.partition(":")[0]
        if full_name.rpartition(".")[2] == name:
            path = full_name
            break
    module_name, _, class_name = path.rpartition(".")
    module = sys.modules.get(module_name) if module_name else builtins
    kind = getattr(module, class_name, None)
    return kind if isinstance(kind, type) and issubclass(kind, Exception) else None
