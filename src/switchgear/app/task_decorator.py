"""`TaskDecorator`: the decorators that `app.task(...)` and `app.every(...)` return."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from switchgear.app.schedules import TaskSchedule
from switchgear.app.task import AsyncTask, Task
from switchgear.app.task_options import TaskOptions

if TYPE_CHECKING:
    from switchgear.app.app import App

__all__ = ["TaskDecorator"]

P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator:
    """The decorator that `@app.task(...)` and `@app.every(...)` return."""

    def __init__(
        self,
        app: App,
        name: str | None,
        options: TaskOptions,
        schedule: TaskSchedule | None = None,
        *,
        has_options: bool = True,
    ) -> None:
        self._app = app
        self._name = name
        self._options = options
        self._schedule = schedule
        self._has_options = has_options

    @overload
    def __call__(self, function: AsyncTask[P, R]) -> AsyncTask[P, R]: ...

    @overload  # a Task is also a Callable, and for a type checker it might return a coroutine
    def __call__(self, function: Task[P, R]) -> Task[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...

    def __call__(self, function: Any) -> Any:
        task = self._task(function)
        if self._schedule is not None:
            self._app.add_schedule(self._schedule.of(task))
        return task

    def _task(self, function: Any) -> Task[Any, Any]:
        if isinstance(function, Task) and self._schedule is not None:
            if self._has_options:
                raise TypeError(f"{function.name} is a task already: give its options to @app.task")
            return function
        return self._app.register(function, self._name, self._options)
