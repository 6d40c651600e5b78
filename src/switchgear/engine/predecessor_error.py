"""The error text of a job that ended because a predecessor did not succeed.

The text is stored with the id of that predecessor, the only identification that the engine has; `error_told` replaces
it by the name that a peer's protocol uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from switchgear.model import Cause, Job, JobState

__all__ = [
    "ENDED_WORDS",
    "NO_ERROR",
    "RootCause",
    "error_told",
    "inherited_cause",
    "predecessor_error",
    "root_cause",
]

ENDED_WORDS: Final = {
    JobState.FAILED: "failed",
    JobState.CANCELLED: "was cancelled",
    JobState.EXPIRED: "expired",
}
NO_ERROR: Final = b"no job that it waited for has failed"
LONGEST_CAUSE_BYTES: Final = 300
_ID: Final = re.compile(rb"job ([0-9]{1,19})(?=, which )")
STATES_OF_WORDS: Final = {words.encode(): state for state, words in ENDED_WORDS.items()}
_CAUSE: Final = re.compile(
    rb"job ([0-9]{1,19}), which it waited for, (" + b"|".join(STATES_OF_WORDS) + rb")(?:: (.*))?", re.DOTALL
)


class RootCause:
    """Why jobs end that have not run: the first job that did not succeed, and what it said."""

    __slots__ = ("job_id", "state", "text")

    def __init__(self, job_id: int, state: JobState, text: bytes) -> None:
        self.job_id = job_id
        self.state = state
        self.text = (
            text  # the function and the first line of the error; empty if there is none, or it is not known any more
        )


def root_cause(job: Job) -> RootCause:
    """The cause that a job is for those that wait for it: itself."""
    lines = (job.error or b"").split(b"\n", 1)
    text = lines[0][:LONGEST_CAUSE_BYTES].decode("utf-8", "ignore").strip()
    if text:
        text = f"{job.function.name.decode('utf-8', 'replace')}: {text}"
    return RootCause(job.id, job.state, text.encode())


def predecessor_error(cause: RootCause) -> bytes:
    """The error of a job that ends for this cause."""
    text = f"job {cause.job_id}, which it waited for, {ENDED_WORDS[cause.state]}".encode()
    return b"%b: %b" % (text, cause.text) if cause.text else text


def inherited_cause(job: Job) -> RootCause | None:
    """The cause of a job that ended because a predecessor did not succeed, as its error says; None for another job."""
    if job.error is None or job.log[-1][0] not in (Cause.DOOMED, Cause.SKIPPED):
        return None
    found = _CAUSE.fullmatch(job.error)
    return None if found is None else RootCause(int(found[1]), STATES_OF_WORDS[found[2]], found[3] or b"")


def error_told(job: Job, name: Callable[[int], str]) -> bytes | None:
    """The error of a job, with predecessors named as in the peer's protocol."""
    error = job.error
    if error is None or job.log[-1][0] not in (Cause.DOOMED, Cause.SKIPPED):
        return error
    found = _ID.match(error)
    return error if found is None else name(int(found[1])).encode() + error[found.end() :]
