"""`shared_task`: declares a task without naming its app, for modules that several programs use."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from switchgear.app.app_registry import the_apps
from switchgear.app.task import AsyncTask, Task, new_task
from switchgear.app.task_options import TaskKeywords, TaskOptions

__all__ = ["SharedTaskDecorator", "shared_task"]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def shared_task(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...


@overload
def shared_task(function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def shared_task(*, name: str | None = None, **options: Unpack[TaskKeywords]) -> SharedTaskDecorator: ...


def shared_task(function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any) -> Any:
    """Make a function a task of the app of the program: `@shared_task`, or `@shared_task(retries=3, ...)`.

    The task belongs to the only app of the process, or to the one whose `set_default` was called.  It finds its app
    when it is first submitted, or when a worker of the app starts.
    """
    checked = TaskOptions().changed(options)
    if function is not None:
        return _shared(function, name, checked)
    return SharedTaskDecorator(name, checked)


class SharedTaskDecorator:
    """The decorator that `@shared_task(...)` returns."""

    def __init__(self, name: str | None, options: TaskOptions) -> None:
        self._name = name
        self._options = options

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...

    def __call__(self, function: Any) -> Any:
        return _shared(function, self._name, self._options)


def _shared(function: Callable[..., Any], name: str | None, options: TaskOptions) -> Task[Any, Any]:
    task = new_task(None, function, name, options)
    the_apps.add_shared(task)
    return task
