"""`Function`: a named queue, the workers that are registered for it, and its counters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from switchgear.model.duration_histogram import DurationHistogram
from switchgear.model.job import Job
from switchgear.model.priority import BEST_FIRST
from switchgear.model.ready_queue import ReadyQueue
from switchgear.model.segments import PackedSegment
from switchgear.model.worker import Offer, Worker

if TYPE_CHECKING:
    from switchgear.model.limiter import Limiter

__all__ = ["Function", "PlainJob", "PriorityWaiters"]

UNKNOWN_US: Final = 1 << 62  # longer than anything


class PriorityWaiters:
    """Workers that take only some priorities of a function and wait for a job: by priority, the longest waiting first.

    `engine.waiting_workers` has the operations.
    """

    __slots__ = ("pushers", "sleepers", "workers")

    def __init__(self) -> None:
        self.sleepers: list[OrderedDict[Worker, None]] = [OrderedDict() for _ in BEST_FIRST]
        self.pushers: list[OrderedDict[Worker, None]] = [OrderedDict() for _ in BEST_FIRST]
        self.workers = 0  # registered for the function, waiting or not


class Function(ReadyQueue):
    """A named queue: its ready jobs, and the workers that are registered for it."""

    by_priority: PriorityWaiters | None = None  # None: all its workers take jobs of every priority
    released_first: bool = False  # jobs that had to wait, or were lost, go to the front; see engine.ready_queues

    def __init__(self, name: bytes) -> None:
        super().__init__()
        self.name = name
        self.told_name = name  # by which workers and clients know it; of a shard, the name of the divided function
        self.limiter: Limiter | None = None  # limits, and queues for each key
        self.paused = False
        self.unloaded: Job | None = None  # the next job, if its payload is known not to be in memory
        self.dropped = False  # unused, and forgotten with its settings
        self.named_us = 0  # when a peer last named it
        # By priority, the number of unfinished jobs from which on submissions are refused; 0: no limit.
        self.limits = [0, 0, 0]
        self.uniques: dict[bytes, Job] = {}
        # Segments of packed jobs by the hash of a unique key, in many small tables; empty if none are packed.
        self.packed_keys: list[dict[int, PackedSegment]] = []
        self.workers: dict[Worker, None] = {}
        self.sleepers: OrderedDict[Worker, None] = OrderedDict()
        self.pushers: OrderedDict[Worker, None] = OrderedDict()
        # The sleepers and pushers that have tags or resources, by what they offer.
        self.offering_sleepers: dict[Offer, OrderedDict[Worker, None]] = {}
        self.offering_pushers: dict[Offer, OrderedDict[Worker, None]] = {}
        self.taken_us = 0  # when a job was last assigned
        # Workers whose wakeup may be lost: woken, and have not asked. In how many checks each is woken again, and after
        # how many the next time.
        self.woken: dict[Worker, tuple[int, int]] = {}
        self.wakeup_check_pending = False  # a worker was woken, and will be checked for its answer
        self.total = 0  # unfinished jobs in any state
        self.ready = 0
        self.waiting = 0  # for predecessors
        self.running = 0
        self.submitted = 0  # this and the following count since the server started
        self.done = 0
        self.failed = 0
        self.cancelled = 0
        self.expired = 0
        self.requeued = 0
        self.dead = 0  # of those that failed: their attempts were spent
        self.wait_times = DurationHistogram()  # of each start: how long the job was ready before
        self.run_times = DurationHistogram()  # of each attempt, however it ended
        self.last_run_us = UNKNOWN_US  # of the attempt that succeeded last

    def __repr__(self) -> str:
        return f"Function({self.name!r})"

    def counts(self) -> tuple[int, int, int, int, int, int]:
        """How many of its jobs were submitted, done, failed, cancelled, expired and requeued."""
        return self.submitted, self.done, self.failed, self.cancelled, self.expired, self.requeued

    def ready_of(self, priority: int) -> int:
        """How many jobs of this priority wait for a worker."""
        if self.limiter is not None:
            return sum([group.ready_of(priority) for group in self.limiter.groups])
        rest = self.segmented[priority]
        if rest is None:
            return len(self.queues[priority])
        return len(self.queues[priority]) + rest.entries + len(rest.tail)

    def own_ready_of(self, priority: int) -> int:
        """How many jobs of this priority are in the queue of the function itself."""
        return ReadyQueue.ready_of(self, priority)

    def ready_queues(self) -> Iterator[ReadyQueue]:
        """The queues that hold its ready jobs: the function itself, unless each key has one, and others for jobs
        that require something."""
        if self.limiter is None:
            yield self
            return
        for group in self.limiter.groups:
            yield from group.ready_queues()

    def next_entries(self, priority: int) -> Iterator[Job]:
        """Jobs of this priority, about in the order of assignment.

        Of a very long queue only the first ones.
        """
        if self.limiter is None:
            yield from self.queues[priority]
            return
        for group in self.limiter.groups:
            yield from group.next_entries(priority)


# A plain ready job as a store has it: its id, function, priority, delivery, time of creation and unique key.
PlainJob: TypeAlias = tuple[int, Function, int, int, int, bytes]
