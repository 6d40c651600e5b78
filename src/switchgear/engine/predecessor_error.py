"""The error text of a job that ended because a predecessor did not succeed.

The text is stored with the id of that predecessor, the only identification that the engine has; `error_told` replaces
it by the name that a peer's protocol uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from switchgear.model import Cause, Job, JobState

__all__ = ["ENDED_WORDS", "error_told", "predecessor_error"]

ENDED_WORDS: Final = {
    JobState.FAILED: "failed",
    JobState.CANCELLED: "was cancelled",
    JobState.EXPIRED: "expired",
}
_ID: Final = re.compile(rb"job ([0-9]{1,19})(?=, which )")


def predecessor_error(predecessor_id: int, state: JobState) -> bytes:
    """The error of a successor of this job, which ended in this state."""
    return f"job {predecessor_id}, which it waited for, {ENDED_WORDS[state]}".encode()


def error_told(job: Job, name: Callable[[int], str]) -> bytes | None:
    """The error of a job, with predecessors named as in the peer's protocol."""
    error = job.error
    if error is None or job.log[-1][0] not in (Cause.DOOMED, Cause.SKIPPED):
        return error
    found = _ID.match(error)
    return error if found is None else name(int(found[1])).encode() + error[found.end() :]
