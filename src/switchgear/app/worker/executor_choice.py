"""`ExecutorChoice`: which task runs in threads, in the event loop, or in processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from switchgear.errors import ConfigError

if TYPE_CHECKING:
    from switchgear.app.task import Task

__all__ = ["DEFAULT_ASYNC_SLOTS", "DEFAULT_SLOTS", "CurrentTasks", "ExecutorChoice", "choose_executors"]

DEFAULT_SLOTS: Final = 8
DEFAULT_ASYNC_SLOTS: Final = 100

Tasks = dict[str, "Task[Any, Any]"]


class CurrentTasks(Mapping[str, "Task[Any, Any]"]):
    """The tasks of one executor, each as it was declared last.

    In a notebook a function may be declared again while a worker runs. If it has become a coroutine function, or is no
    longer one, it needs another executor, so its earlier declaration is used here.
    """

    def __init__(self, chosen: Tasks, declared: Mapping[str, Task[Any, Any]]) -> None:
        self._chosen = chosen
        self._declared = declared

    def __getitem__(self, name: str) -> Task[Any, Any]:
        chosen = self._chosen[name]
        task = self._declared.get(name, chosen)
        return task if task.is_async == chosen.is_async else chosen

    def __iter__(self) -> Iterator[str]:
        return iter(self._chosen)

    def __len__(self) -> int:
        return len(self._chosen)


@dataclass(frozen=True, slots=True)
class ExecutorChoice:
    """The tasks of each kind of executor, and how many jobs each runs at once."""

    in_threads: Tasks
    in_loop: Tasks
    in_processes: Tasks
    slots: int
    async_slots: int
    processes: int
    not_served: tuple[str, ...] = ()  # because there are no slots where they would have to run

    @property
    def tasks(self) -> Tasks:
        """All tasks of the worker."""
        return self.in_threads | self.in_loop | self.in_processes


def choose_executors(
    tasks: Mapping[str, Task[Any, Any]],
    *,
    slots: int | None = None,
    async_slots: int | None = None,
    processes: int | None = None,
    only: frozenset[str] | None = None,
    solo: bool = False,
) -> ExecutorChoice:
    """Choose an executor for each task by its `run_in` and by the given numbers; None: not given.  Raises ConfigError.

    A coroutine function runs in the event loop, unless it says `run_in="process"`.  A plain function runs where its
    `run_in` says.  If processes were asked for and threads were not, all plain functions run in processes.  With
    `solo` one process runs all tasks, coroutine functions too, and so one job at a time.
    """
    if solo:
        slots, async_slots, processes = None, None, 1
    if only is not None and (unknown := sorted(only - tasks.keys())):
        raise ConfigError(f"the app has no task {', '.join(unknown)}; it has {', '.join(sorted(tasks)) or 'none'}")
    wanted = {name: task for name, task in tasks.items() if only is None or name in only}
    if not wanted:
        raise ConfigError("the app has no tasks, so there is nothing to work on")
    all_in_processes = bool(processes) and slots is None
    threads: Tasks = {}
    loop: Tasks = {}
    children: Tasks = {}
    for name, task in wanted.items():
        if solo or task.settings.run_in == "process" or (all_in_processes and not task.is_async):
            children[name] = task
        else:
            (loop if task.is_async else threads)[name] = task
    thread_count = DEFAULT_SLOTS if slots is None else slots
    task_count = DEFAULT_ASYNC_SLOTS if async_slots is None else async_slots
    child_count = (os.cpu_count() or 1) if processes is None else processes
    choices = ((threads, thread_count), (loop, task_count), (children, child_count))
    idle = sorted(name for chosen, count in choices if not count for name in chosen)
    if len(idle) == len(wanted):
        raise ConfigError(f"there are no slots for any task: {', '.join(idle)}")
    return ExecutorChoice(
        in_threads=threads if thread_count else {},
        in_loop=loop if task_count else {},
        in_processes=children if child_count else {},
        slots=thread_count if threads else 0,
        async_slots=task_count if loop else 0,
        processes=child_count if children else 0,
        not_served=tuple(idle),
    )
