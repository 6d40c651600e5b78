"""What an app declares to servers, its limits and schedules, and what it owns there by its name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from weakref import WeakSet

if TYPE_CHECKING:
    from switchgear.app.app import App

__all__ = ["UNDECLARED_WAYS", "Undeclared", "app_declarations", "module_of_caller", "remember", "undeclared_text"]

Undeclared: TypeAlias = Literal["remove", "report", "keep"]
UNDECLARED_WAYS: Final = ("remove", "report", "keep")

Declaration: TypeAlias = tuple[str, dict[str, Any]]

_apps: WeakSet[App] = WeakSet()


def remember(app: App) -> None:
    """Know an app of this process, so that another one of the same name is noticed."""
    _apps.add(app)


def module_of_caller(depth: int) -> str:
    """The module of a caller so many frames up, as it is imported; empty in notebooks, shells and the like."""
    names = sys._getframe(depth + 1).f_globals
    module = str(names.get("__name__", ""))
    if module != "__main__":
        return module
    spec, file = names.get("__spec__"), names.get("__file__")
    if spec is not None and spec.name:
        return str(spec.name)
    return Path(file).stem if file else ""


def app_declarations(app: App) -> list[Declaration]:
    """The verbs of CONTROL with their arguments by which a worker tells a server about the tasks of its app."""
    owner: dict[str, Any] = {"owner": app.name} if app.name else {}
    limits = {task.name: task.settings.limits() for task in app.tasks.values()}
    limits = {name: values for name, values in limits.items() if values}
    schedules = app.declared_schedules()
    told: list[Declaration] = [("limit", {"function": name, **values, **owner}) for name, values in limits.items()]
    told += [("schedule", schedule.declaration() | owner) for schedule in schedules]
    if owner and app.undeclared != "keep" and not _is_ambiguous(app):
        names = [schedule.name for schedule in schedules]
        remove = app.undeclared == "remove"
        told.append(("declare", owner | {"schedules": names, "functions": list(limits), "remove": remove}))
    return told


def _is_ambiguous(app: App) -> bool:
    """Whether another app of this process has the same name, so that neither knows all that belongs to the name."""
    return any(other.name == app.name for other in _apps if other is not app)


def undeclared_text(schedules: Sequence[str], functions: Sequence[str], removed: bool) -> str:
    """What is told of declarations that are gone from the code.

    >>> undeclared_text(["nightly"], [], True)
    'removed from the server, because the app declares it no more: the schedule nightly'
    """
    things = [*_named("schedule", schedules), *_named("limits of", functions)]
    it = "it" if len(schedules) + len(functions) == 1 else "them"
    if removed:
        return f"removed from the server, because the app declares {it} no more: {', '.join(things)}"
    return (
        f"still on the server, although the app declares {it} no more: {', '.join(things)}"
        f' (App(name=..., undeclared="remove") removes {it})'
    )


def _named(kind: str, names: Iterable[str]) -> list[str]:
    return [f"the {kind} {name}" for name in names]
