"""The words of the house: job, function, worker, peer.

Everything here is plain data that the engine moves about; `switchgear.model.job` has the job itself.  Times are whole
microseconds since the epoch, so that comparing them is comparing integers.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from mypy_extensions import mypyc_attr

from switchgear.model.job import KEPT, PAYLOAD_KEY, RESIDENT, Details, Job
from switchgear.model.shelf import Rack, Shelf
from switchgear.model.table import JobTable
from switchgear.policy import Policy
from switchgear.states import (
    CANCELLED,
    DONE,
    EXPIRED,
    FAILED,
    FINAL_STATES,
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
    "Gate",
    "Job",
    "JobState",
    "JobTable",
    "Lane",
    "Line",
    "Peer",
    "PlainJob",
    "Rack",
    "Schedule",
    "Shelf",
    "Timetable",
    "UniquePolicy",
    "UniqueScope",
    "Worker",
]

SECOND_US: Final = 1_000_000

HIGH: Final = 0
NORMAL: Final = 1
LOW: Final = 2
URGENT: Final = 3  # ahead of high; for jobs whose time has come, where a protocol wants that
PRIORITY_NAMES: Final = ("high", "normal", "low")  # those that a submitter may ask for
BEST_FIRST: Final = (URGENT, HIGH, NORMAL, LOW)


@mypyc_attr(allow_interpreted_subclasses=True)
class Peer:
    """Somebody the engine may have news for: a protocol session, or a recorder in a test.

    The engine calls these while it handles a command; an implementation notes what to send and returns.  It must not
    call the engine back, except to suspend the lease of a worker that it is told of, or to take back its credit.
    """

    collects_data: bool = False  # wants the parts of a result put together, having no way to pass them on singly

    def __init__(self) -> None:
        self.watching: dict[int, Job] = {}  # kept by the engine

    def wake(self, worker: Worker) -> None:
        """There is a job for this sleeping worker; it should ask."""

    def job_started(self, job: Job) -> None:
        """A job was handed to a worker.  Only the engine's audience is told."""

    def assign(self, worker: Worker, job: Job) -> None:
        """Here is a job for this worker, which has granted credit for it."""

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        """The worker's job was cancelled, timed out, done by another or held back: no result is expected any more.

        The cause is the move that the job is about to make.
        """

    def expired(self, worker: Worker) -> None:
        """The worker gave no sign of life within its lease, and is a worker no more."""

    def waited_in_vain(self, worker: Worker, ticket: int) -> None:
        """The time is over for which the worker had granted one job its credit, or for which it had set an alarm."""

    def job_finished(self, job: Job) -> None:
        """A job this peer watches has reached a final state; the engine's audience is told of every job."""

    def job_progress(self, job: Job) -> None:
        """A job this peer watches has new progress figures."""

    def job_data(self, job: Job, data: bytes) -> None:
        """A job this peer watches has sent part of its result."""

    def job_warning(self, job: Job, data: bytes) -> None:
        """A job this peer watches has sent a warning."""


NO_HEADERS: Final[Mapping[str, Any]] = {}


class Worker:
    """A set of functions, and a way of asking for jobs."""

    tickets: OrderedDict[int, int] | None = None  # credits that end at a time: number of the ticket, and when
    alarms: dict[int, int] | None = None  # the same for times at which it only wants to be told

    def __init__(self, worker_id: int, peer: Peer, protocol: str, since_us: int) -> None:
        self.id = worker_id
        self.peer = peer
        self.protocol = protocol
        self.name = b""
        self.headers = NO_HEADERS  # what it says of itself, for whoever chooses between workers
        self.since_us = since_us
        self.alive = True
        self.order: list[Function] = []  # hand-out order; see engine.dispatch
        self.timeouts_us: dict[Function, int] = {}  # run time limit by function, 0 for none
        self.has_timeouts = False  # some of them are not 0
        self.running: dict[int, Job] = {}
        self.asleep = False
        self.woken_for: Function | None = None  # whose job it was last woken for
        self.credits = 0  # how many more jobs may be pushed to it
        self.lease_until_us = 0  # 0: the connection itself is the sign of life
        self.lease_check_us = 0  # when the engine looks at the lease; 0: never

    def __repr__(self) -> str:
        return f"Worker({self.id}, {self.protocol})"


class Line:
    """Ready jobs that stand in line: those of a function, or of one key of it."""

    __slots__ = ("ghosts", "queues")

    def __init__(self) -> None:
        self.queues: list[deque[Job]] = [deque(), deque(), deque(), deque()]  # by priority
        self.ghosts = [0, 0, 0, 0]  # entries in each queue whose job has left it; see engine.queues

    def entries_of(self, priority: int) -> int:
        """How long this queue is, with its ghosts."""
        return len(self.queues[priority])

    def ready_of(self, priority: int) -> int:
        """Jobs of this priority that wait for a worker."""
        return self.entries_of(priority) - self.ghosts[priority]


class Function(Line):
    """A named queue: the ready jobs of one name, and the workers that can do them."""

    released_first: bool = False  # jobs that had to wait, or were lost, go ahead of all others; see engine.queues

    def __init__(self, name: bytes) -> None:
        super().__init__()
        self.name = name
        self.gate: Gate | None = None  # limits, and lines for each key
        self.paused = False
        self.dropped = False  # nobody uses it, and it was forgotten with its settings
        self.named_us = 0  # when somebody last asked for it by its name
        # Most unfinished jobs at which a submission of each priority is still taken; 0: any number.
        self.limits = [0, 0, 0]
        self.uniques: dict[bytes, Job] = {}
        # What follows the head of a queue that is very long, by priority; see engine.shelves.
        self.racks: list[Rack | None] = [None, None, None, None]
        self.has_racks = False
        self.shelved_keys: list[dict[int, Shelf]] = []  # by the hash of the key, in many small tables, or none
        self.workers: dict[Worker, None] = {}
        self.sleepers: OrderedDict[Worker, None] = OrderedDict()
        self.pushers: OrderedDict[Worker, None] = OrderedDict()
        self.taken_us = 0  # when a job was last handed out
        self.watched = False  # somebody was woken, and it will be checked that somebody came
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

    def __repr__(self) -> str:
        return f"Function({self.name!r})"

    def entries_of(self, priority: int) -> int:
        """How long this queue is, with its ghosts."""
        rack = self.racks[priority]
        if rack is None:
            return len(self.queues[priority])
        return len(self.queues[priority]) + rack.entries + len(rack.tail)

    def ready_of(self, priority: int) -> int:
        """Jobs of this priority that wait for a worker."""
        if self.gate is not None and self.gate.lanes is not None:
            return self.gate.ready[priority]
        return self.entries_of(priority) - self.ghosts[priority]

    def lines(self) -> Iterable[Line]:
        """Where its ready jobs stand."""
        if self.gate is not None and self.gate.lanes is not None:
            return self.gate.lanes.values()
        return (self,)

    def next_entries(self, priority: int) -> Iterator[Job]:
        """Jobs of this priority, ghosts among them, about in the order in which they will be handed out.

        Of a very long queue only the head.
        """
        if self.gate is None or self.gate.lanes is None:
            yield from self.queues[priority]
            return
        depth = -1
        is_deeper = True
        while is_deeper:
            is_deeper = False
            depth += 1
            for lane in self.gate.turns[priority]:
                if len(lane.queues[priority]) > depth:
                    is_deeper = True
                    yield lane.queues[priority][depth]


# A ready job that has nothing but what it was submitted with, as a store has it: its id, function, priority, delivery,
# time of creation and unique key.
PlainJob: TypeAlias = tuple[int, Function, int, int, int, bytes]

# Stands for each queue of a lane that has nobody in it: an empty deque takes as much memory as sixty jobs' entries.
NOBODY: Final[deque[Job]] = deque(maxlen=0)


class Lane(Line):
    """The jobs of one key of a function whose keys are told apart; see engine.gates."""

    __slots__ = ("check_us", "full_at", "function", "is_open", "key", "ready", "running")

    def __init__(self, function: Function, key: bytes) -> None:
        self.queues = [NOBODY, NOBODY, NOBODY, NOBODY]
        self.ghosts = [0, 0, 0, 0]
        self.function = function
        self.key = key
        self.ready = 0
        self.running = 0
        self.is_open = True  # the limits of the key let one more run
        self.full_at = 0  # as in Gate
        self.check_us = 0

    def __repr__(self) -> str:
        return f"Lane({self.function.name!r}, {self.key!r})"


class Gate:
    """What stands between the ready jobs of a function and its workers.  The engine keeps account: see engine.gates."""

    def __init__(self, function: Function, policy: Policy) -> None:
        self.function = function
        self.policy = policy
        self.full_at = 0  # when its bucket is full again, in microseconds times the count of its rate
        self.check_us = 0  # when the engine looks at it; 0: never
        self.has_room = False  # a job has left it, and nobody was told yet
        self.lanes: dict[bytes, Lane] | None = {} if policy.tells_keys_apart else None
        self.ready = [0, 0, 0, 0]  # jobs in the lanes, by priority
        self.keys_waiting = 0  # how many keys have a ready job
        # By priority, the open lanes that have jobs of it, with the place of the first if that decides.
        self.turns: list[OrderedDict[Lane, int]] = [OrderedDict() for _ in BEST_FIRST]
        # The same by those places: a heap, with a serial number, and entries that are stale.
        self.heads: list[list[tuple[int, int, Lane]]] = [[] for _ in BEST_FIRST]
        self.serial = 0


class Timetable(Protocol):
    """When something is to happen again and again; `switchgear.timetable` has some."""

    spec: str  # as it was written
    timezone: str

    def next_after_us(self, us: int) -> int | None:
        """The first moment after this one, or None."""

    def last_between_us(self, after_us: int, until_us: int, most: int) -> list[int]:
        """The last so many moments that are after the one and not after the other, in order."""


@dataclass(slots=True, eq=False)
class Schedule:
    """A job that is made anew at each tick of a timetable."""

    name: bytes
    timetable: Timetable
    function_name: bytes
    payload: bytes = b""
    priority: int = NORMAL
    catch_up: int = CatchUp.LATEST
    overlap: bool = False  # a job is made even while the last one is unfinished
    # What each job is given; see Job.
    expires_after_us: int = 0  # counted from the tick
    timeout_us: int = 0
    attempts_limit: int = -1
    losses_limit: int = -1
    retention_us: int = -1
    key: bytes = b""
    # How it fares.
    paused: bool = False
    removed: bool = False
    reached_us: int = 0  # ticks up to this moment have been met: a job was made, or it is settled that there is none
    next_us: int = 0  # the first tick after that; 0: there is none
    wake_us: int = 0  # when the engine looks at it; 0: never
    last_us: int = 0  # when a job was last made
    last_job_id: int = 0
    refusal: str = ""  # why the tick that has come could not be met yet
    fired: int = 0
    skipped: int = 0  # ticks without a job because the last one was unfinished
    missed: int = 0  # ticks without a job because they were over before they could be met
    refused: int = 0  # ticks that had to wait because their job was refused, whatever became of them

    def __repr__(self) -> str:
        return f"Schedule({self.name!r}, {self.timetable.spec!r})"
