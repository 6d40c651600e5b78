"""Data classes of the engine: function, worker, peer, limiter, schedule; `switchgear.model.job` has the job.
  Times are whole
microseconds since the epoch, so that comparing them is comparing integers.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from mypy_extensions import mypyc_attr

from switchgear.model.duration_histogram import DurationHistogram
from switchgear.model.flow import Flow
from switchgear.model.job import KEPT, PAYLOAD_KEY, RESIDENT, Job
from switchgear.model.job_details import Details
from switchgear.model.key_queue_order import KeyQueueOrder, KeyQueueTurn
from switchgear.model.names import NameTable
from switchgear.model.segments import PackedSegment, SegmentedQueue
from switchgear.model.table import JobTable
from switchgear.policy import Policy, Rate
from switchgear.resources import split_requirements
from switchgear.states import (
    CANCELLED,
    DONE,
    EXPIRED,
    FAILED,
    FINAL_STATES,
    PRIORITY_NAMES,
    QUEUED_STATES,
    READY,
    RUNNING,
    SCHEDULED,
    WAITING,
    CatchUp,
    Cause,
    Delivery,
    EdgePolicy,
    JobState,
    UniquePolicy,
    UniqueScope,
)

__all__ = [
    "BEST_FIRST",
    "CANCELLED",
    "DONE",
    "EXPIRED",
    "FAILED",
    "FINAL_STATES",
    "HIGH",
    "KEPT",
    "LOW",
    "NORMAL",
    "NO_RESOURCES",
    "NO_TAGS",
    "PAYLOAD_KEY",
    "PRIORITY_NAMES",
    "QUEUED_STATES",
    "READY",
    "RESIDENT",
    "RUNNING",
    "SCHEDULED",
    "SECOND_US",
    "URGENT",
    "WAITING",
    "CatchUp",
    "Cause",
    "Delivery",
    "Details",
    "EdgePolicy",
    "Function",
    "Job",
    "JobState",
    "JobTable",
    "KeyQueue",
    "Limiter",
    "Offer",
    "PackedSegment",
    "Peer",
    "PlainJob",
    "PriorityWaiters",
    "QueueGroup",
    "ReadyQueue",
    "Schedule",
    "SegmentedQueue",
    "Timer",
    "Timetable",
    "UniquePolicy",
    "UniqueScope",
    "Worker",
]

SECOND_US: Final = 1_000_000
UNKNOWN_US: Final = 1 << 62  # longer than anything

HIGH: Final = 0
NORMAL: Final = 1
LOW: Final = 2
URGENT: Final = 3  # before high; for jobs that became due, where a protocol wants that
BEST_FIRST: Final = (URGENT, HIGH, NORMAL, LOW)


@mypyc_attr(allow_interpreted_subclasses=True)
class Peer:
    """A receiver of the engine's events: a protocol session, or a recorder in a test.

    The engine calls these methods while it handles a command; an implementation notes what to send and returns. It must
    not call the engine, except to suspend the lease of a worker that the event concerns, or to take back credit.
    """

    worker_tags: frozenset[bytes] = frozenset()  # tags that its listener gives to each of its workers
    worker_resources: Mapping[bytes, int] = {}  # likewise resources, in thousandths, unless the worker states its own
    collects_data: bool = False  # needs the parts of a result joined, because it cannot pass them on one by one
    timers: dict[Timer, None] | None = None  # timers that are set; maintained by the engine
    # Subscriptions that have ended and are still listed at their jobs, by job id; maintained by the engine, which
    # removes them in slices. The peer is told nothing more about these jobs.
    ended_subscriptions: dict[int, Job] | None = None
    source: int = 0  # the number of the protocol by which it submits jobs; see engine.flows

    def __init__(self) -> None:
        self.subscriptions: dict[int, Job] = {}  # jobs it is subscribed to, by id; maintained by the engine
        # The last batch of changes that concerns this peer; set by the engine. The owner sends nothing to the peer
        # until that batch is stored, so a peer is never told of something that a crash could undo.
        self.unstored_batch = 0

    def hears_of(self, job_id: int) -> bool:
        """Whether a subscription of this peer, listed at this job, has not ended."""
        return self.ended_subscriptions is None or job_id not in self.ended_subscriptions

    def drop_subscription(self, job_id: int) -> bool:
        """Forget the subscription to a job that no longer lists this peer; returns whether it had not ended before."""
        self.subscriptions.pop(job_id, None)
        return self.ended_subscriptions is None or self.ended_subscriptions.pop(job_id, None) is None

    def event_concerns(self, batch: int) -> None:
        """The next event for this peer is a change of this batch."""
        self.unstored_batch = batch

    def job_promised(self, job: Job, batch: int) -> None:
        """A submission of this peer has created or joined this job, which this batch will store.

        The next output to the peer is the answer to that submission.
        """
        self.unstored_batch = batch

    def wake(self, worker: Worker) -> None:
        """There is a job for this sleeping worker, which should ask for it."""

    def job_started(self, job: Job) -> None:
        """A job was assigned to a worker. Only global subscribers are told."""

    def job_detached(self, job: Job) -> None:
        """A job was taken from its worker, or its worker is gone or has failed: if it does not end with that, it will
        run again. Only global subscribers are told."""

    def assign(self, worker: Worker, job: Job) -> None:
        """A job was assigned to this worker, which had granted credit."""

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        """The worker's job was cancelled, timed out, done by another or held back: its result is no longer needed.

        The cause is the move that the job is about to make.
        """

    def control_worker(self, worker: Worker, number: int, request: bytes) -> bool:
        """Pass a request of an operator on to the worker; returns whether the worker can be controlled."""
        return False

    def expired(self, worker: Worker) -> None:
        """The worker did not renew its lease in time, and is deregistered."""

    def wait_timed_out(self, worker: Worker, ticket: int) -> None:
        """The worker's credit for one job has reached its time limit."""

    def timer_fired(self, timer: Timer) -> None:
        """A timer that this peer has set has fired."""

    def job_finished(self, job: Job) -> None:
        """A job of this subscriber has reached a final state; global subscribers are told of every job."""

    def job_progress(self, job: Job) -> None:
        """A job of this subscriber has new progress figures."""

    def job_data(self, job: Job, data: bytes) -> None:
        """A job of this subscriber has sent part of its result."""

    def job_warning(self, job: Job, data: bytes) -> None:
        """A job of this subscriber has sent a warning."""


class Timer:
    """A time at which a peer is called. `engine.timers` has the operations."""

    __slots__ = ("is_set", "peer")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.is_set = True  # neither fired nor cancelled


NO_FLOWS: Final = [Flow()]
NO_HEADERS: Final[Mapping[str, Any]] = {}
NO_TAGS: Final[frozenset[bytes]] = frozenset()
NO_RESOURCES: Final[Mapping[bytes, int]] = {}


class Offer:
    """What a worker has to offer to a job at the moment: its tags, and how much of its resources is free.

    Workers that offer the same share one; see engine.requirements.
    """

    __slots__ = ("free", "tags", "workers")

    def __init__(self, tags: frozenset[bytes], free: dict[bytes, int]) -> None:
        self.tags = tags
        self.free = free  # thousandths; below 0 if the worker says that it has less than its jobs use
        self.workers = 0  # how many have this offer

    def fits(self, group: QueueGroup) -> bool:
        """Whether a worker with this offer may be given a job of a group."""
        if not group.tags <= self.tags:
            return False
        for name, amount in group.amounts:  # noqa: SIM110  (a generator would take longer than all the rest)
            if self.free.get(name, 0) < amount:
                return False
        return True


class Worker:
    """A registered worker: its functions, its running jobs, and how it asks for jobs."""

    tickets: OrderedDict[int, int] | None = None  # credits with a time limit: the number of the ticket, and its end
    # The priorities that the worker takes, by function, if not all; None: it takes all everywhere.
    priorities: dict[Function, tuple[int, ...]] | None = None
    may_miss_wakeups: bool = False  # a wakeup may be lost in transit, and is repeated until the worker asks
    identity: object = None  # identifies its late reports; see engine.lost_starts
    resources: Mapping[bytes, int] = NO_RESOURCES  # how much it has of what, in thousandths; see engine.requirements
    uses: dict[int, tuple[tuple[bytes, int], ...]] | None = None  # how much of it its jobs use, by their ids
    offer: Offer | None = None  # what follows from tags, resources and uses; None: it has neither tags nor resources
    stands_for: int = 1  # how many workers of another server this one is
    woken_job: Job | None = None  # the job for which a wake policy has chosen it
    status: bytes | None = None  # what it says of itself, as JSON; None: it cannot be controlled from the server
    answered_control: int = 0  # the number of the request to which the status is the answer

    def __init__(self, worker_id: int, peer: Peer, protocol: str, since_us: int) -> None:
        self.id = worker_id
        self.peer = peer
        self.protocol = protocol
        self.name = b""
        self.headers = NO_HEADERS  # sent by the worker, for a wake policy
        self.tags = NO_TAGS  # it takes jobs that require these; see engine.requirements
        self.since_us = since_us
        self.alive = True
        self.order: list[Function] = []  # the order of assignment; see engine.dispatcher
        self.timeouts_us: dict[Function, int] = {}  # time limit of a run by function, 0 for none
        self.has_timeouts = False  # some of them are not 0
        self.holds_limited = False  # a job was started with such a limit since `Engine.end_own_limits`
        self.running: dict[int, Job] = {}
        self.asleep = False
        self.woken_for: Function | None = None  # the function of the last wakeup
        self.credits = 0  # how many more jobs may be pushed to it
        self.lease_until_us = 0  # 0: the connection itself is the sign of life
        self.lease_check_us = 0  # when the engine checks the lease; 0: never
        self.flows = NO_FLOWS  # counters by the protocol of the submitter; see engine.flows

    def __repr__(self) -> str:
        return f"Worker({self.id}, {self.protocol})"


# Shared by all key queues without jobs: an empty deque takes as much memory as the entries of sixty jobs.
NO_JOBS: Final[deque[Job]] = deque(maxlen=0)
# Shared by all ready queues in which no priority is long; never changed.
NOT_SEGMENTED: Final[list[SegmentedQueue | None]] = [None, None, None, None]


class ReadyQueue:
    """Ready jobs by priority: those of a function, or of one key of it.  `engine.ready_queues` has the operations."""

    __slots__ = ("is_segmented", "queues", "segmented")

    def __init__(self) -> None:
        # By priority, the first jobs. Empty only if there are no others.
        self.queues: list[deque[Job]] = [deque(), deque(), deque(), deque()]
        # By priority, the jobs behind these, if the queue is long.
        self.segmented: list[SegmentedQueue | None] = NOT_SEGMENTED
        self.is_segmented = False  # some of them are not None

    def ready_of(self, priority: int) -> int:
        """How many jobs of this priority wait for a worker."""
        rest = self.segmented[priority]
        if rest is None:
            return len(self.queues[priority])
        return len(self.queues[priority]) + rest.entries + len(rest.tail)


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


class KeyQueue(ReadyQueue):
    """The ready jobs of one key of a function that has limits for each key; see engine.limiters."""

    __slots__ = (
        "_owner", "check_us", "full_at", "function", "group", "is_open", "key", "key_rate", "ready", "requiring",
        "revision", "running", "turns",
    )  # fmt: skip

    def __init__(self, group: QueueGroup, key: bytes, owner: KeyQueue | None = None) -> None:
        self.queues = [NO_JOBS, NO_JOBS, NO_JOBS, NO_JOBS]
        self.segmented = NOT_SEGMENTED
        self.is_segmented = False
        self.function = group.function
        self.group = group
        self.key = key
        self._owner = owner  # None: itself; a reference to itself would leave it to the garbage collector
        self.turns: list[KeyQueueTurn | None] = [None, None, None, None]  # by priority, where it is listed to be served
        self.requiring: list[KeyQueue] | None = None  # those others
        self.ready = 0  # in the owner, including the others
        self.running = 0  # this and the following only in the owner
        self.is_open = True  # the limits of the key allow one more to run
        self.full_at = 0  # as in Limiter
        self.key_rate: Rate | None = None  # the rate for which `full_at` was computed
        self.check_us = 0
        self.revision = 0  # of the policy that the queue was last reviewed for; see `Limiter.revision`

    @property
    def owner(self) -> KeyQueue:
        """The limits of a key are counted in the queue of its jobs that require no tags, which owns the others."""
        owner = self._owner
        return self if owner is None else owner

    def __repr__(self) -> str:
        return f"KeyQueue({self.function.name!r}, {self.key!r})"


class QueueGroup:
    """The ready jobs of a function that require the same: one queue, or one for each key."""

    def __init__(self, function: Function, requires: bytes, tells_keys_apart: bool) -> None:
        self.function = function
        self.requires = requires  # as `Job.requires`
        self.tags, self.amounts = split_requirements(requires)
        self.unfinished = 0  # jobs in any state that require this; not counted for those that require nothing
        # If keys are distinguished, the jobs that have not been moved to the queues of their keys yet.
        self.queue: ReadyQueue = ReadyQueue() if requires else function
        self.key_queues: NameTable[KeyQueue] | None = NameTable() if tells_keys_apart else None
        # Keys are no longer distinguished: `queue` has the jobs that come after those that the key queues still have.
        self.is_draining = False
        self.ready = [0, 0, 0, 0]  # jobs in the key queues, by priority
        # By priority, the open key queues that have such jobs: by the place of the first job or, with round robin, by
        # a number that is higher the later they were served.
        self.order: list[KeyQueueOrder] = [KeyQueueOrder() for _ in BEST_FIRST]

    def __repr__(self) -> str:
        return f"QueueGroup({self.function.name!r}, {self.requires!r})"

    def ready_of(self, priority: int) -> int:
        """How many jobs of this priority wait for a worker."""
        queue = self.queue
        own = queue.own_ready_of(priority) if isinstance(queue, Function) else queue.ready_of(priority)
        return own if self.key_queues is None else own + self.ready[priority]

    def has_ready(self) -> bool:
        """Whether the limits of keys allow to assign a job."""
        if self.key_queues is None:
            return any(self.queue.queues)
        for order in self.order:
            if len(order):
                return True
        if self.is_draining:
            for priority in BEST_FIRST:
                if self.queue.queues[priority] and not self.ready[priority]:
                    return True
        return False

    def serves_own_queue(self, priority: int) -> bool:
        """Whether the next job of this priority comes from `queue`, and not from the queue of a key."""
        return self.key_queues is None or (self.is_draining and not self.ready[priority])

    def ready_queues(self) -> Iterator[ReadyQueue]:
        """The queues that hold the ready jobs, of which there may be very many. None may be added meanwhile."""
        if self.key_queues is not None:
            yield from self.key_queues.values()
        yield self.queue

    def next_entries(self, priority: int) -> Iterator[Job]:
        """Jobs of this priority, about in the order of assignment."""
        if self.serves_own_queue(priority):
            yield from self.queue.queues[priority]
            return
        depth = -1
        is_deeper = True
        while is_deeper:
            is_deeper = False
            depth += 1
            for key_queue in self.order[priority].in_order():
                if len(key_queue.queues[priority]) > depth:
                    is_deeper = True
                    yield key_queue.queues[priority][depth]


class Limiter(QueueGroup):
    """Concurrency and rate limits of a function, and its queues by key and by what jobs require.

    It is itself the group of the jobs that require nothing. `engine.limiters` has the operations.
    """

    def __init__(self, function: Function, policy: Policy) -> None:
        super().__init__(function, b"", policy.tells_keys_apart)
        self.policy = policy
        self.full_at = 0  # when its token bucket is full again, in microseconds times the count of its rate
        self.check_us = 0  # when the engine next checks it; 0: never
        self.has_room = False  # a job has stopped running, and no other was offered yet
        self.keys_waiting = 0  # how many keys have a ready job
        self.keyed_jobs = 0  # how many jobs are in key queues
        self.key_queue_bytes = 0  # what the memory account counts for all key queues
        self.revision = 0  # how often the policy was changed while there were key queues
        self.is_reviewing = False  # not all key queues were reviewed since the last change
        self.unreviewed = 0  # at most so many were not
        # Workers whose running jobs are not counted in the key queues yet, and such jobs of others; until all are
        # counted no job is in a key queue.
        self.uncounted_workers: dict[int, Worker] = {}
        self.uncounted_jobs: dict[int, Job] = {}
        self.serial = 0
        self.requiring: dict[bytes, QueueGroup] = {}  # the groups of jobs that require something, by that
        self.groups: list[QueueGroup] = [self]  # all groups
        self.fitting: dict[Offer, list[QueueGroup]] = {}  # for what workers offer, the groups that they can do
        self.freed: dict[Worker, None] = {}  # workers whose resources are in less use, which was not offered yet

    def is_counting(self) -> bool:
        """Whether running jobs of some keys are not counted yet."""
        return len(self.uncounted_workers) > 0 or len(self.uncounted_jobs) > 0


class Timetable(Protocol):
    """The times of something recurring; `switchgear.timetable` has implementations."""

    spec: str  # as it was written
    timezone: str

    def next_after_us(self, us: int) -> int | None:
        """The first time after this one, or `None`."""

    def last_between_us(self, after_us: int, until_us: int, most: int) -> list[int]:
        """The last times that are after the first and not after the second argument, in order, up to a number."""


@dataclass(slots=True, eq=False)
class Schedule:
    """The definition of a job that is made at each tick of a timetable."""

    name: bytes
    timetable: Timetable
    function_name: bytes
    payload: bytes = b""
    priority: int = NORMAL
    catch_up: int = CatchUp.LATEST
    overlap: bool = False  # a job is made even while the last one is unfinished
    # The options of each job; see Job.
    expires_after_us: int = 0  # counted from the tick
    timeout_us: int = 0
    attempts_limit: int = -1
    crash_limit: int = -1
    retention_us: int = -1
    key: bytes = b""
    requires: bytes = b""
    owner: bytes = b""  # the app that has declared it; empty: an operator
    # The state of the schedule.
    paused: bool = False
    removed: bool = False
    reached_us: int = 0  # ticks up to this time are met: a job was made, or none will be
    next_us: int = 0  # the first tick after that; 0: there is none
    wake_us: int = 0  # when the engine checks it; 0: never
    last_us: int = 0  # when a job was last made
    last_job_id: int = 0
    refusal: str = ""  # why the due tick could not be met yet
    fired: int = 0
    skipped: int = 0  # ticks without a job because the last job was unfinished
    missed: int = 0  # ticks without a job because they were missed
    refused: int = 0  # ticks that had to wait because their job was refused

    def __repr__(self) -> str:
        return f"Schedule({self.name!r}, {self.timetable.spec!r})"
