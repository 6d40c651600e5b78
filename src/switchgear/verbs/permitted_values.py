"""Values that arguments of verbs may have: names of states and policies, and the largest numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from switchgear.states import FINAL_STATES, UNSUCCESSFUL_STATES, CatchUp, EdgePolicy, JobState

__all__ = [
    "BULK_STATES",
    "CATCH_UP_NAMES",
    "EDGE_POLICY_NAMES",
    "EVENT_FUNCTION",
    "LARGEST_PORT",
    "LATEST_SECONDS",
    "LONGEST_INTERVAL_SECONDS",
    "MOST_CONNECTIONS",
    "MOST_HANDLES",
    "MOST_JOBS",
    "MOST_NAME_BYTES",
    "MOST_STREAM_ROWS",
    "MOST_TEXT_BYTES",
    "SERIES_METRICS",
    "STATE_NAMES",
    "UNFINISHED_NAMES",
    "UNSUCCESSFUL_NAMES",
    "WORKER_ACTIONS",
]

LARGEST_PORT: Final = 65_535
MOST_NAME_BYTES: Final = 512
MOST_STREAM_ROWS: Final = 5_000
MOST_TEXT_BYTES: Final = 1024
SERIES_METRICS: Final = ("submitted", "done", "failed", "ready", "running", "oldest", "workers")
MOST_JOBS: Final = 1000  # in one answer; more would block the server for too long
MOST_CONNECTIONS: Final = 1000
MOST_HANDLES: Final = 10_000
WORKER_ACTIONS: Final = ("ping", "drain", "restart", "resize", "broadcast")
# The function of jobs that stand for what tasks wait for, such as signals; submitters may complete these.
EVENT_FUNCTION: Final = "switchgear.event"
LATEST_SECONDS: Final = 2**43 // 1000 * 1000  # what fits into 63 bits of microseconds
LONGEST_INTERVAL_SECONDS: Final = 100_000 * 366 * 24 * 3600

STATE_NAMES: Final = tuple(state.name.lower() for state in JobState)
UNFINISHED_NAMES: Final = tuple(state.name.lower() for state in JobState if state not in FINAL_STATES)
UNSUCCESSFUL_NAMES: Final = tuple(state.name.lower() for state in JobState if state in UNSUCCESSFUL_STATES)
# Bulk actions, and the states of jobs that each can change.
BULK_STATES: Final[Mapping[str, tuple[str, ...]]] = {"cancel": UNFINISHED_NAMES, "retry": UNSUCCESSFUL_NAMES}
EDGE_POLICY_NAMES: Final = tuple(policy.name.lower() for policy in EdgePolicy)
CATCH_UP_NAMES: Final = tuple(policy.name.lower() for policy in CatchUp)
