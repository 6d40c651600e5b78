"""Which functions can be tasks, and the names of their tasks."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

__all__ = ["check_function", "check_name", "task_name"]

# They would break the lines of logs and of text commands, and change the colours of terminals.
_CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_function(function: Any, name: str | None) -> None:
    """Raise TypeError for what cannot be a task, with what to do instead."""
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"a task is made of a function, not of {function!r}")
    shown = name or getattr(function, "__qualname__", "")
    if not hasattr(function, "__qualname__") and not (name and inspect.isfunction(function)):
        raise TypeError(f"{function!r} is no function; define one that calls it, and make that a task")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{shown} has a `yield`, and a task has one result: return a list, report progress by"
            " current_job().progress(...), or submit a job for each item"
        )
    first = next(iter(inspect.signature(function).parameters.values()), None) if inspect.isfunction(function) else None
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    if first is not None and first.name == "self" and owner and not owner.endswith("<locals>"):
        raise TypeError(
            f"{shown} is a method, and a worker has no object for `self`: make a function of it, or a staticmethod,"
            " and pass what it needs, or have it injected (docs/howto/hooks.md)"
        )


def task_name(function: Callable[..., Any]) -> str:
    """The name of a function's task, which is the same in processes that import the module and that run it as a
    script."""
    module = function.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        file = getattr(main, "__file__", None)
        if spec is not None and spec.name:
            module = spec.name
        elif file:
            module = Path(file).stem
    if "<lambda>" in function.__qualname__:
        raise ValueError("a lambda has no name that a worker could know; give one: app.task(name=...)")
    return f"{module}.{function.__qualname__}"


def check_name(name: str) -> None:
    """Raise ValueError if servers, logs and terminals could not show this name of a task as one text."""
    if not name or _CONTROL_CHARACTER.search(name) or name.encode(errors="ignore").decode() != name:
        raise ValueError(f"{name!r} cannot be the name of a task")
