"""The predecessors of a job that a program submits: their handles, and that they are at the same servers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from switchgear.app.task_options import EDGE_POLICIES, TaskOptions
from switchgear.errors import ArgumentError

if TYPE_CHECKING:
    from switchgear.app.app import App

__all__ = ["check_same_server", "predecessor_policies"]


def predecessor_policies(app: App, name: str, settings: TaskOptions, references: Iterable[str]) -> dict[str, str]:
    """Handles of the predecessors of a job of this task, and the policy for each if it does not succeed.

    `references` are the handles of jobs among the arguments; the option `after` names the others.
    """
    policies = dict.fromkeys(references, settings.on_failure)
    for entry in settings.after:
        before, policy = entry if isinstance(entry, tuple) else (entry, settings.on_failure)
        if policy not in EDGE_POLICIES:
            raise ValueError(f"after: a policy is one of {', '.join(EDGE_POLICIES)}, not {policy!r}")
        try:
            check_same_server(app, before)
        except ValueError as error:
            raise ArgumentError(f"{name}: after: {error}") from None
        for handle in _handles_of(before):
            policies[handle] = policy
    return policies


def check_same_server(app: App, before: Any) -> None:
    """Raise ValueError for a job of another app's servers: at this app's servers its handle means another job, or
    none."""
    other = getattr(before, "app", None)  # a handle has none
    if other is None or other is app:
        return
    known = {location.directory or location.url for location in app.locations}
    if not all((location.directory or location.url) in known for location in other.locations):
        what = f"job {before.handle}" if hasattr(before, "handle") else repr(before)
        raise ValueError(f"{what} is of another app: it is at {_urls(other)}, and this task at {_urls(app)}")


def _urls(app: App) -> str:
    return ", ".join(location.url for location in app.locations)


def _handles_of(before: Any) -> Iterable[str]:
    if isinstance(before, str):
        return (before,)
    if hasattr(before, "handles"):  # a group
        return cast(Iterable[str], before.handles)
    handle = getattr(before, "handle", None)
    if isinstance(handle, str):
        return (handle,)
    raise TypeError(f"after: expected a job, a group or a handle, not {before!r}")
