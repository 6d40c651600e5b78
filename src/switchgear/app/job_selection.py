"""Requests about the jobs that match a selection: listed, retried or cancelled, as many requests as that takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from switchgear.app.server_answers import JobInfo

if TYPE_CHECKING:
    from switchgear.app.app import App

__all__ = ["cancel_selected", "retry_selected", "selected_jobs", "selection_of"]

_PAGE: Final = 500


def selection_of(
    function: str | None,
    states: Iterable[str],
    *,
    dead: bool = False,
    error: str | None = None,
    unique: str | None = None,
    key: str | None = None,
    contains: str | None = None,
) -> dict[str, Any]:
    """The arguments of verbs that select jobs; a single state may be given as it is."""
    return {
        "function": function,
        "states": ([states] if isinstance(states, str) else list(states)) or None,
        "dead": dead or None,
        "error": error,
        "unique": unique,
        "key": key,
        "contains": contains,
    }


def selected_jobs(app: App, selection: dict[str, Any], limit: int | None) -> Iterator[JobInfo]:
    """The jobs that match, newest first, page by page; all of them if `limit` is None."""
    before_id = 0
    left = limit
    while left is None or left > 0:
        most = _PAGE if left is None else min(left, _PAGE)
        page = app.control("jobs", **selection, before_id=before_id, limit=most)
        for summary in page["jobs"]:
            yield JobInfo.read(summary)
        if left is not None:
            left -= len(page["jobs"])
        before_id = page["next_before_id"]
        if not before_id:
            return


def retry_selected(app: App, selection: dict[str, Any]) -> list[str]:
    """Retry all jobs that match; returns their handles."""
    retried: list[str] = []
    before_id = 0
    while True:  # the server examines a bounded number at a time
        answer = app.control("retry", **selection, before_id=before_id)
        retried += answer["retried"]
        before_id = answer["next_before_id"]
        if not before_id:
            return retried


def cancel_selected(app: App, selection: dict[str, Any]) -> list[str]:
    """Cancel all unfinished jobs that match; returns their handles."""
    cancelled: list[str] = []
    while True:  # the server cancels a bounded number at a time
        answer = app.control("cancel", **selection, limit=_PAGE)
        cancelled += answer["cancelled"]
        if not answer["more"]:
            return cancelled
