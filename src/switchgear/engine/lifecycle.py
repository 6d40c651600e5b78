"""The states of a job as one table: which cause leads from which state to which.

Every change of state in the program goes through `next_state`, so a move that is not in the table cannot happen. The
diagram in `docs/job-lifecycle.md` is drawn from the table by `mermaid()`, and a test compares the two.
"""

from __future__ import annotations

from typing import Final

from switchgear.errors import IllegalMove
from switchgear.model import (
    CANCELLED,
    DONE,
    EXPIRED,
    FAILED,
    READY,
    RUNNING,
    SCHEDULED,
    WAITING,
    Cause,
    Job,
    JobState,
)

__all__ = ["MOVES", "NEXT_STATE", "mermaid", "next_state"]

# fmt: off
MOVES: Final[tuple[tuple[Cause, tuple[JobState, ...], JobState], ...]] = (
    # cause                    from                                    to
    (Cause.SUBMITTED,          (),                                     READY),
    (Cause.SUBMITTED_EARLY,    (),                                     SCHEDULED),
    (Cause.SUBMITTED_WAITING,  (),                                     WAITING),
    (Cause.RELEASED,           (WAITING,),                             READY),
    (Cause.RELEASED_EARLY,     (WAITING,),                             SCHEDULED),
    (Cause.DUE,                (SCHEDULED,),                           READY),
    (Cause.RESCHEDULED,        (SCHEDULED, READY),                     SCHEDULED),
    (Cause.HELD_BACK,          (SCHEDULED, READY, RUNNING),            WAITING),
    (Cause.TAKEN,              (READY,),                               RUNNING),
    (Cause.SUCCEEDED,          (RUNNING,),                             DONE),
    (Cause.SETTLED,            (WAITING, SCHEDULED, READY, RUNNING),   DONE),
    (Cause.ENDED_BADLY,        (READY, RUNNING),                       FAILED),
    (Cause.WORKER_LOST,        (RUNNING,),                             READY),
    (Cause.SERVER_LOST,        (RUNNING,),                             READY),
    (Cause.TIMED_OUT,          (RUNNING,),                             READY),
    (Cause.GIVEN_BACK,         (RUNNING,),                             READY),
    (Cause.RETRY_LATER,        (RUNNING,),                             SCHEDULED),
    (Cause.EXHAUSTED,          (RUNNING,),                             FAILED),
    (Cause.CANCELLED,          (WAITING, SCHEDULED, READY, RUNNING),   CANCELLED),
    (Cause.ABANDONED,          (WAITING, SCHEDULED, READY, RUNNING),   CANCELLED),
    (Cause.EXPIRED,            (WAITING, SCHEDULED, READY),            EXPIRED),
    (Cause.SKIPPED,            (WAITING,),                             CANCELLED),
    (Cause.DOOMED,             (WAITING,),                             FAILED),
    (Cause.REPLACED,           (WAITING, SCHEDULED, READY, RUNNING),   CANCELLED),
    (Cause.RETRIED,            (FAILED, CANCELLED, EXPIRED),           READY),
    (Cause.RETRIED_WAITING,    (FAILED, CANCELLED, EXPIRED),           WAITING),
)
# fmt: on

NEXT_STATE: Final[tuple[tuple[JobState | None, ...], ...]] = tuple(
    next(
        tuple(target if state in origins else None for state in JobState)
        for cause, origins, target in MOVES
        if cause is wanted
    )
    for wanted in Cause
)
"""NEXT_STATE[cause][state]: the next state, or None where the move is illegal."""


def next_state(job: Job, cause: Cause) -> JobState:
    """The state that `cause` leads to from the job's present state."""
    state = NEXT_STATE[cause][job.state]
    if state is None:
        raise IllegalMove(f"job {job.id} is {job.state.name}; {cause.name} cannot happen to it")
    return state


def mermaid() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    for cause, origins, target in MOVES:
        label = cause.name.lower().replace("_", " ")
        for origin in origins or ("[*]",):
            start = origin if isinstance(origin, str) else origin.name.lower()
            lines.append(f"    {start} --> {target.name.lower()}: {label}")
    lines.extend(f"    {state.name.lower()} --> [*]" for state in (DONE, FAILED, CANCELLED, EXPIRED))
    return "\n".join(lines)
