"""What a store promises, and nothing about how.

The engine decides, the hub collects what changed during a turn of the event loop and stages it, and one `commit` keeps
everything that was staged by then.  Only after it returns does anybody hear about it.  Three rules follow from that:

- Work comes in batches.  No method keeps one job.
- Staging takes a snapshot, at once and in the caller's thread; a commit may run elsewhere while the engine goes on.
- A row only moves forward.  Each kept change of a job carries a larger `revision`, and a store refuses a change whose
  revision is not newer than what it has.  With one server that never happens; with several sharing a store it is how
  a server that lost a job to another learns that its completion came too late.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from switchgear.model import Function, Job, JobState

__all__ = ["JobQuery", "Snapshot", "Spare", "Store"]

Spare: TypeAlias = Callable[[], frozenset[int]]  # asked in the event loop's thread


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs of the history to list: newest first, `limit` at a time, the next page below `before_id`."""

    function: bytes | None = None
    states: frozenset[JobState] = frozenset()  # empty: any
    unique: bytes | None = None
    name: bytes | None = None
    since_us: int = 0  # created at or after
    until_us: int = 0  # created before; 0: no bound
    before_id: int = 0  # 0: from the newest
    limit: int = 100


@dataclass(slots=True)
class Snapshot:
    """What a server needs to go on where it was: read once at start."""

    next_job_id: int = 1
    jobs: list[Job] = field(default_factory=list)  # unfinished, by id
    unsuccessful: dict[int, JobState] = field(default_factory=dict)  # finished but not done, by id, oldest first


class Store(ABC):
    """Where jobs are kept."""

    durable: bool  # whether what is committed survives the process
    url: str  # as a user would write it, for the start-up line

    @abstractmethod
    def open(self) -> None:
        """Get ready, migrating an older layout; raises StorageError (SchemaTooNew) if that cannot be."""

    @abstractmethod
    def load(self, function_named: Callable[[bytes], Function]) -> Snapshot:
        """Everything unfinished; sets paused and limits of the functions it knows through `function_named`."""

    @abstractmethod
    def stage(self, jobs: Iterable[Job], functions: Iterable[Function] = (), next_job_id: int = 0) -> None:
        """Note these as they are now, for the next commit.  `next_job_id` (if not 0) promises that ids below it may
        be in use, so that a restart never hands one out twice."""

    @abstractmethod
    def unstage(self, jobs: Iterable[Job]) -> None:
        """Forget these staged jobs: they were never kept and nobody was told of them."""

    @abstractmethod
    async def commit(self) -> Sequence[int]:
        """Keep all that is staged now.  Returns the ids of jobs refused because the store has a newer revision.

        Raises StorageError if nothing was kept; everything stays staged and the call may be repeated.
        """

    @abstractmethod
    def read_payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        """The payloads of kept jobs."""

    @abstractmethod
    def get(self, job_id: int) -> Job | None:
        """One kept job, finished or not, with payload and result."""

    @abstractmethod
    def find(self, query: JobQuery) -> list[Job]:
        """Kept jobs that match, newest first, without their payloads."""

    @abstractmethod
    async def drop_finished(self, before_us: int, keep_count: int, spare: Spare = frozenset) -> int:
        """Forget jobs that finished before a time, and the oldest beyond `keep_count`; returns how many.

        Those in `spare` stay: other jobs wait for them, and a restart must still know that they were not done.  It is
        asked when it is settled which jobs are old enough, so that one that fails meanwhile is in it or too young.
        """

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything.  What is staged and not committed is lost."""
