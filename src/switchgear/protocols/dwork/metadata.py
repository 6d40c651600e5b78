"""`described_metadata`: the metadata that a worker returns with a completed task, as a line of text."""

from __future__ import annotations

from typing import Final

from switchgear.protocols.dwork.messages import LogState, Task
from switchgear.text import harmless
from switchgear.units import utc_text

__all__ = ["described_metadata"]

# A worker's log has a few entries, and the line is stored with the job.
MOST_ENTRIES: Final = 16
MOST_ORIGIN_BYTES: Final = 256

STATE_NAMES: Final = {int(state): state.name.capitalize() for state in LogState}


def described_metadata(task: Task, known_origins: tuple[bytes, ...]) -> bytes:
    """The origin of a task, unless it is one of the known ones, and its log; empty if it has neither."""
    parts: list[str] = []
    if task.origin and task.origin not in known_origins:
        parts.append(f"origin {harmless(task.origin[:MOST_ORIGIN_BYTES].decode('utf-8', 'replace'))}")
    for entry in task.log[:MOST_ENTRIES]:
        parts.append(f"{STATE_NAMES.get(entry.state, str(entry.state))} {utc_text(entry.time_us)}")
    more = len(task.log) - MOST_ENTRIES
    if more > 0:
        parts.append(f"and {more} more")
    return ", ".join(parts).encode()
