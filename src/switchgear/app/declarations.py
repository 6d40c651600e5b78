"""Declares the limits and schedules of an app to servers, and removes or reports those it no longer declares."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from switchgear.app.app_registry import the_apps

if TYPE_CHECKING:
    from switchgear.app.app import App

__all__ = ["UNDECLARED_WAYS", "Undeclared", "app_declarations", "module_of_caller", "undeclared_text"]

Undeclared: TypeAlias = Literal["remove", "report", "keep"]
UNDECLARED_WAYS: Final = ("remove", "report", "keep")

Declaration: TypeAlias = tuple[str, dict[str, Any]]


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
    # If another app of this process has the same name, neither knows all that belongs to the name.
    if owner and app.undeclared != "keep" and not the_apps.has_other_named(app):
        names = [schedule.name for schedule in schedules]
        remove = app.undeclared == "remove"
        told.append(("declare", owner | {"schedules": names, "functions": list(limits), "remove": remove}))
    return told


def undeclared_text(schedules: Sequence[str], functions: Sequence[str], removed: bool) -> str:
    """The warning about declarations that are at the server and no longer in the code.

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
