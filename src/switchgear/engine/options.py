"""What a submission may ask for beyond the usual."""

from __future__ import annotations

from dataclasses import dataclass

from switchgear.model.job import DETAILS_BYTES, EDGE_BYTES, Details

__all__ = ["SubmitOptions"]


@dataclass(slots=True)  # not frozen: that would make each one three times as expensive
class SubmitOptions:
    """What most submissions do without."""

    run_at_us: int = 0  # not before this moment
    expires_us: int = 0  # not started by this moment, or not again: not wanted any more
    timeout_us: int = 0  # longest run of one attempt
    attempts_limit: int = -1  # 0: no limit; -1: the server's setting
    predecessors: tuple[int, ...] = ()  # wait until these are done
    name: bytes = b""  # a name of its own among all unfinished jobs
    job_id: int = 0  # an id that was reserved for it
    reducer: bytes = b""
    origin: str = ""
    key: bytes = b""  # whose job it is, for limits and for fair hand-out
    losses_limit: int = -1  # dead at so many lost workers; 0: no limit; -1: a loss is an attempt like any other
    edges: bytes = b""  # an EdgePolicy for each of the predecessors; empty: WAIT for all
    unique_scope: int = 0  # UniqueScope
    unique_policy: int = 0  # UniquePolicy
    unique_hold_us: int = 0  # the unique key is this job's for so long, even if it ends before
    retention_us: int = -1  # how long it is remembered after its end; -1: the server's setting
    schedule: bytes = b""  # the schedule that makes it
    details: Details | None = None  # of all jobs that are submitted with this object, which then asks for nothing else

    def held_bytes(self) -> int:
        """What a job with these takes in memory more than one without, about."""
        if self.details is not None:
            return 0
        texts = len(self.name) + len(self.origin) + len(self.key) + len(self.reducer) + len(self.schedule)
        return DETAILS_BYTES + EDGE_BYTES * len(self.predecessors) + texts
