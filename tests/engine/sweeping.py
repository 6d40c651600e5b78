"""Sweeps the index of deadlines at once, which otherwise happens when stale entries are the majority."""

from __future__ import annotations

from collections.abc import Callable

from switchgear.engine.deadlines import LEAST_STALE_FOR_SWEEP, Deadline, Deadlines


def sweep(deadlines: Deadlines, is_live: Callable[[Deadline], bool]) -> None:
    """Remove the stale entries of a small index."""
    deadlines.note_stale(max(LEAST_STALE_FOR_SWEEP, len(deadlines)))
    deadlines.sweep_some(is_live)
