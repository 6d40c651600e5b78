"""What the reference model is about: jobs, workers and functions as plain things."""

from __future__ import annotations

from dataclasses import dataclass, field

from switchgear.model import READY, Cause, JobState

News = tuple[object, ...]


class RefusedByModel(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(eq=False)
class ModelJob:
    id: int
    function: ModelFunction
    unique: bytes
    name: bytes
    priority: int
    durable: bool
    run_at_us: int
    expires_us: int
    timeout_us: int
    attempts_limit: int
    predecessors: list[int]
    edges: list[int]  # a policy for each of them
    crash_limit: int
    queued_only: bool  # the unique key is its own only until it is started
    held_until_us: int  # or for so long, whatever becomes of it; 0: no longer than that
    has_key: bool = False
    requires: frozenset[bytes] = frozenset()
    waited_for: bool = False  # by another that is not durable, while this one was not either
    losses: int = 0
    doomed_since: int = 0  # tells which of two jobs was told first that it must not go on
    state: JobState = READY
    attempts: int = 0
    causes: list[Cause] = field(default_factory=list)
    subscribers: list[list[News]] = field(default_factory=list)
    worker: ModelWorker | None = None
    limit_us: int = 0  # when the attempt has taken too long, unless it was renewed
    limit_since: int = 0
    renewed_us: int = 0  # when it has taken too long if it was
    since: int = 0  # tells which of two things with the same time was set first

    def policy(self, job_id: int) -> int:
        return self.edges[self.predecessors.index(job_id)]


@dataclass(eq=False)
class ModelWorker:
    id: int
    heard: list[News]
    functions: list[ModelFunction] = field(default_factory=list)
    timeouts_us: dict[bytes, int] = field(default_factory=dict)
    holds: list[ModelJob] = field(default_factory=list)  # cancelled ones that were not reported yet, too
    tags: frozenset[bytes] = frozenset()
    asleep: bool = False
    woken_for: ModelFunction | None = None
    credits: int = 0
    tickets: list[tuple[int, int]] = field(default_factory=list)  # number, and until when
    lease_until_us: int = 0
    alive: bool = True


@dataclass(eq=False)
class ModelFunction:
    name: bytes
    released_first: bool = False
    queue: list[ModelJob] = field(default_factory=list)  # ready jobs of all priorities, the first one first
    sleepers: list[ModelWorker] = field(default_factory=list)
    pushers: list[ModelWorker] = field(default_factory=list)
    paused: bool = False
    taken_us: int = 0
    groups: list[frozenset[bytes]] = field(default_factory=list)  # what its unfinished jobs require, the oldest first
    look_at_us: int = 0  # 0: nobody was woken whose coming is to be checked
