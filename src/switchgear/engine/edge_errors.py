"""The error of a job that ended because one that it waited for was not done.

It is kept with the id of that one, since the engine knows no other name of it; whoever tells it to a peer puts there
what that peer calls the job.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from switchgear.model import Cause, Job, JobState

__all__ = ["ENDED_WORDS", "edge_error", "error_told"]

ENDED_WORDS: Final = {
    JobState.FAILED: "failed",
    JobState.CANCELLED: "was cancelled",
    JobState.EXPIRED: "expired",
}
_ID: Final = re.compile(rb"job ([0-9]{1,19})(?=, which )")


def edge_error(predecessor_id: int, state: JobState) -> bytes:
    """For a job that waited for this one, which ended in this state."""
    return f"job {predecessor_id}, which it waited for, {ENDED_WORDS[state]}".encode()


def error_told(job: Job, name: Callable[[int], str]) -> bytes | None:
    """The error of a job as it is told to a peer that calls jobs by these names."""
    error = job.error
    if error is None or job.log[-1][0] not in (Cause.DOOMED, Cause.SKIPPED):
        return error
    found = _ID.match(error)
    return error if found is None else name(int(found[1])).encode() + error[found.end() :]
