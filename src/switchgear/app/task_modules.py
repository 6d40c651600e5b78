"""Finds the modules of a package that are called `tasks`, however deep, without importing anything else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

from switchgear.errors import ConfigError

__all__ = ["TASKS_MODULE", "task_modules"]

TASKS_MODULE: Final = "tasks"


def task_modules(package: str) -> list[str]:
    """The full names of the modules `tasks` in this package and the packages within it, sorted.

    If `tasks` is itself a package, its modules are among them.  Raises ConfigError if there is no such package.
    """
    try:
        spec = find_spec(package)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"tasks are looked for in {package}, which cannot be imported: {error}") from error
    if spec is None:
        raise ConfigError(f"tasks are looked for in {package}, but there is no such package")
    if spec.submodule_search_locations is None:
        raise ConfigError(f"tasks are looked for in {package}, which is a module and not a package")
    return sorted(_found(package, spec.submodule_search_locations, is_tasks=package.endswith(f".{TASKS_MODULE}")))


def _found(package: str, places: Iterable[str], *, is_tasks: bool) -> Iterator[str]:
    for module in iter_modules(places):
        name = f"{package}.{module.name}"
        is_of_tasks = is_tasks or module.name == TASKS_MODULE
        if is_of_tasks and not module.name.startswith("_"):
            yield name
        if module.ispkg:
            inner = [str(Path(place, module.name)) for place in places]
            yield from _found(name, inner, is_tasks=is_of_tasks)
