"""Raises the exception of a task again, as its own class and without pickle, in the program that waits for the job.

A worker sends the class of an exception by its name, and its arguments as JSON. A client makes an exception of them
only if it has that class already, and if the class is allowed: a built-in exception, one that is declared or imported
by the module of the task, or one that was registered (`App(exceptions=[...])`). Nothing is imported because of what a
server sends.

What is raised then is both: a `TaskFailed`, with the traceback of the worker, and an exception of that class. The
layers for programs of other libraries raise the exception itself (`original_exception`), as those libraries do.
"""

from __future__ import annotations

import builtins
import functools
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from switchgear.errors import RAISED_LINE, JobFailed, TaskFailed

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.task import Task

__all__ = ["allowed_exception", "original_exception", "raised_line", "restored_failure", "traceback_in"]

_LONGEST_ARGUMENTS_BYTES: Final = 4_096


def raised_line(error: BaseException, message: str) -> str:
    """The line that tells class and arguments of an exception, if they do not follow from its first line."""
    kind = type(error)
    if kind.__module__ == "builtins" and error.args in ((), (message,)):
        return ""
    try:
        arguments = msgspec.json.encode(list(error.args))
    except Exception:  # arguments that only Python can express
        arguments = b"null"
    if len(arguments) > _LONGEST_ARGUMENTS_BYTES:
        arguments = b"null"
    return f"{RAISED_LINE}{kind.__module__}:{kind.__qualname__} {arguments.decode()}"


def restored_failure(app: App, task: Task[Any, Any] | None, failure: JobFailed) -> JobFailed:
    """The failure as an exception that is also of the class which the task raised, if that class is allowed."""
    if type(failure) is not TaskFailed or app.exceptions is None:
        return failure
    module, name, arguments = failure.raised
    kind = allowed_exception(app.exceptions, task, module, name)
    if kind is None:
        return failure
    if arguments is None:
        arguments = (failure.message,)
    try:
        failed_class = _both(kind)  # type: ignore[arg-type]  # classes can be hashed
        restored: TaskFailed = failed_class.__new__(failed_class, *arguments)
        with suppress(Exception):  # a class whose constructor wants something else
            kind.__init__(restored, *arguments)
        restored.args = failure.args
        restored.error = failure.error
        restored.original_args = tuple(arguments)
        for note in getattr(failure, "__notes__", ()):
            restored.add_note(note)
        restored.__cause__ = failure.__cause__
    except Exception:  # a class that cannot be combined or filled so
        return failure
    return restored


def original_exception(failure: TaskFailed) -> BaseException:
    """The exception that the task raised, with its arguments; the failure itself if its class is not known here.

    The class may be of any module that this process has imported; nothing is imported because of it.
    """
    module, name, arguments = failure.raised
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    kind = _exception(found, module, name)
    if kind is None:
        return failure
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


def allowed_exception(
    registered: tuple[type[Exception], ...], task: Task[Any, Any] | None, module: str, name: str
) -> type[Exception] | None:
    """The class of this name, if this process has it and may raise it."""
    if module == "builtins":
        return _exception(getattr(builtins, name, None), module, name)
    for kind in registered:
        if (kind.__module__, kind.__qualname__) == (module, name):
            return kind
    if task is None:
        return None
    found: Any = sys.modules.get(task.function.__module__)
    declared = getattr(found, name.rpartition(".")[2], None)  # also if the module has only imported it
    if _exception(declared, module, name) is None:
        for part in name.split("."):
            found = getattr(found, part, None)
        declared = found
    return _exception(declared, module, name)


def _exception(found: Any, module: str, name: str) -> type[Exception] | None:
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return None
    is_it = module in (found.__module__, _main_name(found)) and found.__qualname__ == name
    return found if is_it else None


def _main_name(kind: type) -> str:
    """The module of a class as workers call it that have imported what is a script here, or the reverse."""
    if kind.__module__ != "__main__":
        return kind.__module__
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec is not None else kind.__module__


@functools.lru_cache(maxsize=1000)
def _both(kind: type[Exception]) -> type[TaskFailed]:
    """A class for exceptions that are both a TaskFailed and of this class."""
    if issubclass(kind, TaskFailed):
        return kind
    body = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__str__": TaskFailed.__str__}
    return type(kind.__name__, (TaskFailed, kind), body)
