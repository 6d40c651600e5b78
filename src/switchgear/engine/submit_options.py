"""`SubmitOptions`: the rarely used options of a submission: times, limits, predecessors, uniqueness."""

from __future__ import annotations

from dataclasses import dataclass

from switchgear.model import Job
from switchgear.model.job import DETAILS_BYTES, EDGE_BYTES
from switchgear.model.job_details import Details

__all__ = ["SubmitOptions"]


# Not frozen, which would make construction three times as expensive; and with an `__init__` that is compiled, which the
# one that `dataclass` makes is not.
@dataclass(slots=True, init=False)
class SubmitOptions:
    """Options that most submissions do not use."""

    run_at_us: int = 0  # does not start before this time
    expires_us: int = 0  # expires if it is not started, or not started again, by this time
    timeout_us: int = 0  # longest run of one attempt
    attempts_limit: int = -1  # 0: no limit; -1: the server's setting
    predecessors: tuple[int, ...] = ()  # jobs that must be done first
    name: bytes = b""  # a name that is unique among unfinished jobs
    job_id: int = 0  # a reserved id
    reducer: bytes = b""
    origin: str = ""
    key: bytes = b""  # for limits per key, and for serving keys round robin
    crash_limit: int = -1  # dead after this many lost workers; 0: no limit; -1: a loss counts as an attempt
    edges: bytes = b""  # an EdgePolicy for each of the predecessors; empty: WAIT for all
    unique_scope: int = 0  # UniqueScope
    unique_policy: int = 0  # UniquePolicy
    unique_for_us: int = 0  # how long the job holds its unique key, even beyond its end
    retention_us: int = -1  # how long the job is kept after its end; -1: the server's setting
    requires: bytes = b""  # tags that a worker needs to run it, sorted, with commas
    label: bytes = b""  # what people see beside the function
    trace: bytes = b""  # its traceparent; see switchgear.trace_context
    schedule: bytes = b""  # the schedule that makes the job
    linked: Job | None = None  # the job, if it is linked to its predecessors already; see `WideSubmissions`
    # Shared by all jobs that are submitted with this object, which has no other options then.
    details: Details | None = None

    def __init__(
        self,
        *,
        run_at_us: int = 0,
        expires_us: int = 0,
        timeout_us: int = 0,
        attempts_limit: int = -1,
        predecessors: tuple[int, ...] = (),
        name: bytes = b"",
        job_id: int = 0,
        reducer: bytes = b"",
        origin: str = "",
        key: bytes = b"",
        crash_limit: int = -1,
        edges: bytes = b"",
        unique_scope: int = 0,
        unique_policy: int = 0,
        unique_for_us: int = 0,
        retention_us: int = -1,
        requires: bytes = b"",
        label: bytes = b"",
        trace: bytes = b"",
        schedule: bytes = b"",
        linked: Job | None = None,
        details: Details | None = None,
    ) -> None:
        self.run_at_us = run_at_us
        self.expires_us = expires_us
        self.timeout_us = timeout_us
        self.attempts_limit = attempts_limit
        self.predecessors = predecessors
        self.name = name
        self.job_id = job_id
        self.reducer = reducer
        self.origin = origin
        self.key = key
        self.crash_limit = crash_limit
        self.edges = edges
        self.unique_scope = unique_scope
        self.unique_policy = unique_policy
        self.unique_for_us = unique_for_us
        self.retention_us = retention_us
        self.requires = requires
        self.label = label
        self.trace = trace
        self.schedule = schedule
        self.linked = linked
        self.details = details

    def held_bytes(self) -> int:
        """The approximate memory that these options add to a job."""
        if self.details is not None:
            return 0
        texts = len(self.name) + len(self.origin) + len(self.key) + len(self.reducer) + len(self.schedule)
        texts += len(self.requires) + len(self.label) + len(self.trace)
        return DETAILS_BYTES + EDGE_BYTES * len(self.predecessors) + texts
