"""`Limiter`: the limits of a function, with a group of queues for each set of requirements and a queue for each key."""

from __future__ import annotations

from collections.abc import Iterator

from switchgear.model.function import Function
from switchgear.model.job import Job
from switchgear.model.key_queue_order import KeyQueueOrder, KeyQueueTurn
from switchgear.model.names import NameTable
from switchgear.model.priority import BEST_FIRST
from switchgear.model.ready_queue import NO_JOBS, NOT_SEGMENTED, ReadyQueue
from switchgear.model.worker import Offer, Worker
from switchgear.policy import Policy, Rate
from switchgear.resources import split_requirements

__all__ = ["KeyQueue", "Limiter", "QueueGroup"]


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
