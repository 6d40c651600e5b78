"""`Store`: the interface that every store of jobs implements.

The engine decides, the hub collects what changed during a turn of the event loop and stages it, and one `commit` keeps
everything that was staged by then. No peer is told of a change before the commit returns. Three rules follow from that:

- Work comes in batches.  No method keeps one job.
- Staging takes a snapshot, at once and in the caller's thread; a commit may run elsewhere while the engine goes on.
- A row only moves forward.  Each kept change of a job carries a larger `revision`, and a store refuses a change whose
  revision is not newer than what it has.  With one server that never happens; with several sharing a store it is how
  a server that lost a job to another learns that its completion came too late.

Reading. A store may be remote, so every read is awaited, and the event loop continues meanwhile: it serves peers,
stages, and perhaps commits. Four rules follow from that:

- Reads come in batches too.  Nobody reads one job after the other.
- A read never occupies the event loop for more than a millisecond or so at a time.  It waits for a thread or a socket,
  or gives others a turn (`asyncio.sleep(0)`) between portions of what it looks at.  Making many jobs of rows is such
  work too.
- A read sees every commit that ended before it began.  It may see what is committed meanwhile, or not.
- A read may be cancelled at any moment, when nobody waits for it any more.  One that takes too long fails by itself,
  with a StorageError: those who wait for it have no patience of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from mypy_extensions import mypyc_attr

from switchgear.memory import MemoryAccount
from switchgear.model import Function, Job, JobState, PlainJob, Schedule

__all__ = ["KEEP_ALL", "LONGEST_SEARCHED_BYTES", "JobQuery", "Snapshot", "Spare", "Store", "contains_text"]

KEEP_ALL: Final = 2**62  # as the number of finished jobs to keep: only those with their own retention are dropped

LONGEST_SEARCHED_BYTES: Final = 65_536  # a longer payload is not searched: a thousand of them would take too long

Spare: TypeAlias = Callable[[], frozenset[int]]  # called in the thread of the event loop


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Selects jobs of the history: newest first, `limit` at a time, the next page below `before_id`."""

    function: bytes | None = None
    states: frozenset[JobState] = frozenset()  # empty: any
    unique: bytes | None = None
    name: bytes | None = None
    dead: bool = False  # only those that failed because their attempts are spent
    error_contains: bytes = b""  # only jobs whose error contains this
    key: bytes | None = None
    contains: bytes = (
        b""  # only jobs whose payload, name, unique key or error contains this; see LONGEST_SEARCHED_BYTES
    )
    since_us: int = 0  # created at or after
    until_us: int = 0  # created before; 0: no bound
    before_id: int = 0  # 0: starts with the newest
    from_id: int = 0  # down to this one
    limit: int = 100


@dataclass(slots=True)
class Snapshot:
    """Everything that a server needs to continue after a restart; read once at start."""

    next_job_id: int = 1
    jobs: list[Job] = field(default_factory=list)  # unfinished, by id
    # Those of the unfinished that are not in `jobs`, in portions, none of them empty, that are read when asked for.  To
    # be closed when it is not read to its end.
    plain: AsyncGenerator[Sequence[PlainJob], None] | None = None
    unsuccessful: dict[int, JobState] = field(default_factory=dict)  # finished but not done, by id, oldest first
    unsuccessful_names: dict[int, bytes] = field(default_factory=dict)  # names of the unsuccessful jobs that have one
    has_all_unsuccessful: bool = True  # the store has no others
    held: list[Job] = field(default_factory=list)  # finished jobs that still hold their unique key; without payloads
    schedules: list[Schedule] = field(default_factory=list)


@mypyc_attr(allow_interpreted_subclasses=True)
class Store(ABC):
    """The contract of a store of jobs."""

    # Each store sets these itself: compiled code looks for them in the object, and not in an interpreted class.
    durable: bool  # whether commits survive the process
    url: str  # as a user would write it, for the start-up line
    # Whether reads are answered from memory: the caller need not make a task of a read.
    answers_at_once: bool

    def count_in(self, memory: MemoryAccount) -> None:  # noqa: B027
        """Count memory held for finished jobs in this account. Does nothing in a store that holds none."""

    @abstractmethod
    def open(self) -> None:
        """Open the store, migrating an older schema; raises StorageError, or SchemaTooNew for a newer schema."""

    @abstractmethod
    async def load(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        """All unfinished jobs, and jobs that still hold their unique key; sets the operators' settings (paused,
        limits, policy) of functions obtained through `function_named`."""

    async def load_apart(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        """Like `load`, for a store that may have millions of jobs: plain ready jobs are separate, and must be read
        before any other call of the store."""
        return await self.load(function_named, now_us)

    @abstractmethod
    def stage(
        self,
        jobs: Iterable[Job],
        functions: Iterable[Function] = (),
        next_job_id: int = 0,
        schedules: Iterable[Schedule] = (),
    ) -> None:
        """Copy the present state of these for the next commit. `next_job_id` (if not 0) means that ids below it may
        be in use, so that a restart never uses one twice. A schedule that is `removed` is deleted."""

    @abstractmethod
    def unstage(self, jobs: Iterable[Job]) -> None:
        """Drop these staged jobs: they were never committed, and no peer was told of them."""

    def expect_commit(self) -> None:  # noqa: B027
        """A commit is likely within a millisecond: the store may do now what the commit needs first."""

    @abstractmethod
    async def commit(self) -> Sequence[int]:
        """Store everything that is staged when this begins, and nothing that is staged later.

        Returns the ids of jobs refused because the store has a newer revision.

        Raises StorageError if nothing was stored; everything stays staged, and the call may be repeated.
        """

    def check(self) -> None:
        """Raise StorageError if a restart would not find the stored jobs; called regularly while nothing is
        committed. The store works again when a commit succeeds."""
        return

    def must_be_silent(self) -> bool:
        """Whether another server may own the jobs by now. Then no output may be sent to peers until a commit
        succeeds; `commit` raises Fenced if another server does own them."""
        return False

    @abstractmethod
    async def read_payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        """The payloads of these jobs, as far as they are stored, by id."""

    @abstractmethod
    async def read_jobs(self, job_ids: Sequence[int]) -> dict[int, Job]:
        """These jobs, as far as they are stored, finished or not, with payload and result, by id."""

    async def read_states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        """The states of these jobs, as far as they are stored, by id."""
        return {job_id: job.state for job_id, job in (await self.read_jobs(job_ids)).items()}

    @abstractmethod
    async def find(self, query: JobQuery) -> list[Job]:
        """Stored jobs that match, newest first; a durable store leaves out their payloads and results."""

    @abstractmethod
    async def find_named(self, names: Collection[bytes], since_us: int = 0) -> dict[bytes, Job]:
        """The newest stored job of each of these names that was created since then, by name."""

    async def count_jobs(self, *, only_unfinished: bool = False) -> int:
        """How many jobs are stored, for those who wait for all of them to be read; 0 if that is not known."""
        return 0

    def jobs_read(self) -> int:
        """How many unfinished jobs were read so far, while `load` or `load_apart` reads them."""
        return 0

    async def search_bound(self, before_id: int, count: int, states: frozenset[JobState]) -> int:
        """The id from which on (and below `before_id`, if that is not 0) there are this many jobs in these states.

        It bounds a search whose number of results is not known. A store may count other jobs too. 0 if there are fewer,
        or if the search costs nothing.
        """
        return 0

    @abstractmethod
    async def drop_finished(self, before_us: int, keep_count: int, spare: Spare = frozenset, now_us: int = 0) -> int:
        """Delete jobs that finished before a time, and the oldest beyond `keep_count`; returns how many.

        A job with its own retention is deleted when that has passed at `now_us`, and does not count among the others. A
        job that still holds its unique key stays. Jobs in `spare` stay: other jobs wait for them, and a restart must
        still know that they were unsuccessful. `spare` is called after the old jobs were determined, so that a job that
        fails meanwhile is in it or too young.
        """

    @abstractmethod
    async def close(self) -> None:
        """Release all resources. Staged changes that are not committed are lost."""


def contains_text(job: Job, text: bytes) -> bool:
    """Whether the payload, the name, the unique key or the error of a job contains a text.

    False for a payload that is not in memory, or too long to be searched.
    """
    payload = job.payload
    return (
        text in job.unique
        or text in job.name
        or (job.error is not None and text in job.error)
        or (payload is not None and len(payload) <= LONGEST_SEARCHED_BYTES and text in payload)
    )
