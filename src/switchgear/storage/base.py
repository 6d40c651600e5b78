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
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mypy_extensions import mypyc_attr

from switchgear.memory import MemoryAccount
from switchgear.model import Function, Job, JobState, PlainJob, Schedule

__all__ = ["JobQuery", "Snapshot", "Spare", "Store"]

Spare: TypeAlias = Callable[[], frozenset[int]]  # asked in the event loop's thread


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs of the history to list: newest first, `limit` at a time, the next page below `before_id`."""

    function: bytes | None = None
    states: frozenset[JobState] = frozenset()  # empty: any
    unique: bytes | None = None
    name: bytes | None = None
    dead: bool = False  # only those that failed because their attempts are spent
    error_contains: bytes = b""  # only those of whose failure this was said, among other things
    since_us: int = 0  # created at or after
    until_us: int = 0  # created before; 0: no bound
    before_id: int = 0  # 0: from the newest
    from_id: int = 0  # down to this one
    limit: int = 100


@dataclass(slots=True)
class Snapshot:
    """What a server needs to go on where it was: read once at start."""

    next_job_id: int = 1
    jobs: list[Job] = field(default_factory=list)  # unfinished, by id
    # Those of the unfinished that are not in `jobs`, in portions, none of them empty, that are read when asked for.
    plain: Iterable[Sequence[PlainJob]] = ()
    unsuccessful: dict[int, JobState] = field(default_factory=dict)  # finished but not done, by id, oldest first
    held: list[Job] = field(default_factory=list)  # finished, and their unique key is still held; without payloads
    schedules: list[Schedule] = field(default_factory=list)


@mypyc_attr(allow_interpreted_subclasses=True)
class Store(ABC):
    """Where jobs are kept."""

    # Set by each store for itself: compiled code looks for them in the object, and not in an interpreted class.
    durable: bool  # whether what is committed survives the process
    url: str  # as a user would write it, for the start-up line

    def count_in(self, memory: MemoryAccount) -> None:  # noqa: B027
        """Count what is held in memory for finished jobs here.  Nothing to do for a store that holds none."""

    @abstractmethod
    def open(self) -> None:
        """Get ready, migrating an older layout; raises StorageError (SchemaTooNew) if that cannot be."""

    @abstractmethod
    def load(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        """Everything unfinished, and what still holds its unique key now; sets what operators decided
        (paused, limits, gate) for the functions it knows through `function_named`."""

    def load_apart(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        """The same, for a store that may have millions: ready jobs that have nothing but what they were submitted with
        are apart, to be read before anything else is asked of the store."""
        return self.load(function_named, now_us)

    @abstractmethod
    def stage(
        self,
        jobs: Iterable[Job],
        functions: Iterable[Function] = (),
        next_job_id: int = 0,
        schedules: Iterable[Schedule] = (),
    ) -> None:
        """Note these as they are now, for the next commit.  `next_job_id` (if not 0) promises that ids below it may
        be in use, so that a restart never hands one out twice.  A schedule that is `removed` is forgotten."""

    @abstractmethod
    def unstage(self, jobs: Iterable[Job]) -> None:
        """Forget these staged jobs: they were never kept and nobody was told of them."""

    @abstractmethod
    async def commit(self) -> Sequence[int]:
        """Keep all that is staged when this begins, and nothing that is staged later.

        Returns the ids of jobs refused because the store has a newer revision.

        Raises StorageError if nothing was kept; everything stays staged and the call may be repeated.
        """

    def check(self) -> None:
        """Raise StorageError if a restart would not find what is kept; asked now and then while nothing is committed.
        Work goes on when a commit works again."""
        return

    @abstractmethod
    def read_payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        """The payloads of kept jobs."""

    @abstractmethod
    def get(self, job_id: int) -> Job | None:
        """One kept job, finished or not, with payload and result."""

    def states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        """The states of those of the jobs that are kept, by id."""
        return {job.id: job.state for job in map(self.get, job_ids) if job is not None}

    @abstractmethod
    def find(self, query: JobQuery) -> list[Job]:
        """Kept jobs that match, newest first, without their payloads."""

    def find_in_steps(self, query: JobQuery) -> Generator[bool, None, list[Job]]:
        """The same in steps that take little time each, for a query that may match few of many jobs."""
        yield False
        return self.find(query)

    def search_bound(self, before_id: int, count: int) -> int:
        """The id from which on, and below `before_id` if that is not 0, about so many jobs ended without success.

        For a search of which nobody knows how much it will find.  0 if they are fewer, or to be had for nothing.
        """
        return 0

    @abstractmethod
    async def drop_finished(self, before_us: int, keep_count: int, spare: Spare = frozenset, now_us: int = 0) -> int:
        """Forget jobs that finished before a time, and the oldest beyond `keep_count`; returns how many.

        A job with a retention of its own is forgotten when that is over by `now_us`, and is not counted among the
        others.  One that still holds its unique key stays.
        Those in `spare` stay: other jobs wait for them, and a restart must still know that they were not done.  It is
        asked when it is settled which jobs are old enough, so that one that fails meanwhile is in it or too young.
        """

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything.  What is staged and not committed is lost."""
