"""Which jobs the arguments of a verb select, as a query; and refusals of requests that select nothing, or twice."""

from __future__ import annotations

from math import ceil
from typing import Any

from switchgear.json_bytes import encoded
from switchgear.model import FAILED, SECOND_US, JobState
from switchgear.storage.base import JobQuery

__all__ = ["query_of", "refuse_both", "require_some"]


def query_of(
    function: str | None,
    states: list[str] | None,
    unique: str | None,
    name: str | None,
    error: str | None,
    key: str | None,
    since: float,
    until: float,
    before_id: int,
    limit: int,
    dead: bool = False,
    contains: str | None = None,
) -> JobQuery:
    """The query for a selection; raises ValueError if the selection contradicts itself."""
    wanted = frozenset(JobState[state.upper()] for state in states or ())
    if dead:
        if wanted and FAILED not in wanted:
            raise ValueError("dead jobs are failed ones; the states given leave them out")
        wanted = frozenset({FAILED})
    return JobQuery(
        function=encoded(function),
        states=wanted,
        unique=encoded(unique),
        name=encoded(name),
        dead=dead,
        error_contains=encoded(error) or b"",
        key=encoded(key),
        contains=encoded(contains) or b"",
        since_us=ceil(since * SECOND_US),
        until_us=ceil(until * SECOND_US),
        before_id=before_id,
        limit=limit,
    )


def chosen_by(selection: dict[str, Any]) -> list[str]:
    """The given arguments that select jobs."""
    return [name for name, value in selection.items() if value and name not in ("before_id", "limit")]


def require_some(selection: dict[str, Any], verb: str) -> None:
    """Refuse a request that names and selects no jobs: an empty selection must not mean all jobs."""
    if not chosen_by(selection):
        raise ValueError(f"{verb} takes a handle, or says which jobs: by function, states, error and others")


def refuse_both(selection: dict[str, Any]) -> None:
    chosen = chosen_by(selection)
    if chosen:
        raise ValueError(f"a handle names one job; {', '.join(chosen)} would select others")
