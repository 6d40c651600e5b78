"""`Job`: one piece of work, from its submission to its end, and what it takes in memory.

A million jobs may be waiting, and each passes through every part of the engine, so both their size and the cost of
reading their fields matter. Fields that few jobs need are in a separate object, `Details`. Jobs without such fields
share one, as do jobs that were submitted with the same options; a job whose details change gets its own. Code outside
this module reads and sets those fields as if they were the job's. The field `has_details` tells whether most of them
are worth reading.

Most jobs are submitted, taken and done, without any other change of state. So these three moves are not stored but
implied by their times; see `moves`. All times are whole microseconds since the epoch, so that comparing them is
comparing integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i32, mypyc_attr, u8

from switchgear.model.job_details import NO_DETAILS, Details
from switchgear.states import DONE, FAILED, READY, Cause, Delivery, JobState

if TYPE_CHECKING:
    from switchgear.model.function import Function
    from switchgear.model.peer import Peer
    from switchgear.model.worker import Worker

__all__ = [
    "DETAILS_BYTES",
    "EDGE_BYTES",
    "JOB_BYTES",
    "KEPT",
    "MOST_MOVES",
    "MOVE_BYTES",
    "PAYLOAD_KEY",
    "RANKS_BETWEEN",
    "RESIDENT",
    "SUBSCRIPTION_BYTES",
    "Job",
    "lost_payload_text",
    "place_of",
]

# What the store has of a job.
KEPT: Final = 1
RESIDENT: Final = 2  # and the payload is in memory too, and counted there

# The prefix of a unique key that stands for the payload itself, written as a dash. No protocol lets a client send a NUL
# in a key, so no client can forge one.
PAYLOAD_KEY: Final = b"-\0"

# This many jobs may go to the end between two submissions; with more, a restart could confuse their order with that of
# jobs submitted later.
RANKS_BETWEEN: Final = 1 << 20

# The approximate memory of a job besides its contents, rather too high: the object and its entries in tables and
# queues; its own details and its deadlines; and each edge, subscriber and move.
JOB_BYTES: Final = 450
DETAILS_BYTES: Final = 700
EDGE_BYTES: Final = 100
SUBSCRIPTION_BYTES: Final = 100
MOVE_BYTES: Final = 50

# A job may be released and taken again without end. At most this many of its moves are kept, the first and the last
# ones.
MOST_MOVES: Final = 200
FIRST_MOVES: Final = 10
MOVES_DROPPED: Final = 50

TAKEN: Final = Cause.TAKEN
SUCCEEDED: Final = Cause.SUCCEEDED
ABANDONED: Final = Cause.ABANDONED


@mypyc_attr(acyclic=True)
class Job:
    """One piece of work, from its submission to its end."""

    __slots__ = (
        "attempts",
        "created_us",
        "delivery",
        "details",
        "entry_bytes",
        "finished_us",
        "function",
        "has_details",
        "history",
        "id",
        "kept",
        "payload",
        "priority",
        "result",
        "revision",
        "source",
        "started_us",
        "state",
        "subscribers",
        "unique",
        "worker",
    )

    def __init__(
        self,
        job_id: int,
        function: Function,
        unique: bytes,
        payload: bytes | None,
        priority: int,
        delivery: int,
        created_us: int,
    ) -> None:
        self.id = job_id
        self.function = function
        self.unique = unique
        self.payload = payload  # None: only the store has it
        self.priority: u8 = priority
        self.delivery: u8 = delivery
        self.created_us = created_us
        self.started_us = -1  # when it was taken, if that was its first move; otherwise -1
        self.finished_us = 0
        self.state: JobState = READY
        self.has_details = False
        # The bytes counted for it in `MemoryAccount.job_bytes` besides its contents; 0: it is not counted.
        self.entry_bytes = 0
        # KEPT: the store has the job in some state; RESIDENT: its payload is also counted as in memory
        self.kept: u8 = 0
        self.source: u8 = 0  # the number of the protocol by which it was submitted; see engine.flows
        self.attempts: i32 = 0
        self.revision: i32 = 0  # grows with every stored change; a store never goes back
        self.worker: Worker | None = None
        self.subscribers: list[Peer] | None = None
        self.history: list[int] | None = None  # see `moves`
        self.result = b""
        self.details = NO_DETAILS

    def __repr__(self) -> str:
        return f"Job({self.id}, {self.function.name!r}, {self.state.name})"

    def own_details(self) -> Details:
        """The details of this job alone, made if it shares them."""
        details = self.details
        if details is NO_DETAILS:
            details = self.details = Details()
        elif details.shared:
            shared, details = details, Details()
            details.timeout_us = shared.timeout_us
            details.attempts_limit = shared.attempts_limit
            details.crash_limit = shared.crash_limit
            details.retention_us = shared.retention_us
            details.requires = shared.requires
            self.details = details
        return details

    # --- its moves ---

    @property
    def moves(self) -> list[int] | None:
        """Cause, time, cause, time ... of its moves, without the first if the job was submitted ready; `None` if there
        are no others.

        The list must not be changed.
        """
        if self.history is not None or self.started_us < 0:
            return self.history
        moves = [int(TAKEN), self.started_us]
        if self.state is DONE:
            moves += (int(SUCCEEDED), self.finished_us)
        return moves

    @moves.setter
    def moves(self, moves: list[int] | None) -> None:
        self.history = moves
        self.started_us = -1

    def note_move(self, cause: Cause, now_us: int) -> None:
        """Add a move that is not implied. Call this before the state changes."""
        if self.history is None:
            self.history = self.moves or []
        history = self.history
        if len(history) >= 2 * MOST_MOVES:
            del history[2 * FIRST_MOVES : 2 * (FIRST_MOVES + MOVES_DROPPED)]
        history += (int(cause), now_us)

    @property
    def log(self) -> list[tuple[Cause, int]]:
        """Every move with its time in microseconds, the submission first."""
        moves = self.moves or []
        entries = [(Cause(moves[i]), moves[i + 1]) for i in range(0, len(moves), 2)]
        if not entries or entries[0][0] not in (Cause.SUBMITTED_EARLY, Cause.SUBMITTED_WAITING):
            entries.insert(0, (Cause.SUBMITTED, self.created_us))
        return entries

    @property
    def taken_us(self) -> int:
        """When a running job was started: its last move."""
        history = self.history
        return self.started_us if history is None else history[-1]

    @property
    def start_number(self) -> int:
        """Which start of the job the present or last one is: 1 for the first.

        Reports of workers name it, so that a late report on an earlier start is not taken for one on the present start.
        Unlike `attempts` it never goes back, neither when a worker releases the job nor when the job is retried.
        """
        return self.details.starts or 1

    def count_start(self) -> None:
        """Count a start that is not the first move of the job."""
        details = self.own_details()
        if self.started_us >= 0 and not details.starts:
            details.starts = 1  # the implied first start
        details.starts += 1

    def count_past_starts(self) -> None:
        """Count the starts in the log of a job from a store."""
        moves = self.moves
        if moves:
            self.own_details().starts = moves[::2].count(int(TAKEN))

    # --- derived properties ---

    @property
    def client_unique(self) -> bytes:
        """The unique key as its submitter wrote it."""
        return b"-" if self.unique.startswith(PAYLOAD_KEY) else self.unique

    @property
    def whole_result(self) -> bytes:
        """The result with the parts that arrived ahead of its end."""
        chunks = self.details.chunks
        return b"".join((*chunks, self.result)) if chunks else self.result

    @property
    def content_bytes(self) -> int:
        """The number of bytes of its payload, result and texts that are in memory."""
        size = len(self.result)
        if self.payload is not None:
            size += len(self.payload)
        if self.details is not NO_DETAILS:
            size += self.details.content_size()
        return size

    @property
    def has_own_details(self) -> bool:
        """Whether it has details of its own, which no other job shares."""
        return self.details is not NO_DETAILS and not self.details.shared

    def measured_entry(self) -> int:
        """Its approximate memory besides its contents."""
        size = JOB_BYTES + len(self.unique)
        details = self.details
        if self.has_own_details:
            size += DETAILS_BYTES + EDGE_BYTES * len(details.predecessors) + len(details.name) + len(details.origin)
            size += len(details.key) + len(details.reducer) + len(details.schedule) + len(details.requires)
            size += len(details.label)
            size += len(details.trace)
        if self.subscribers is not None:
            size += SUBSCRIPTION_BYTES * len(self.subscribers)
        if self.history is not None:
            size += MOVE_BYTES * (len(self.history) // 2)
        return size

    def drop_contents(self) -> None:
        """Free the payload, the result and the texts. `EngineState.drop_contents` also updates the memory account."""
        self.payload = None
        self.result = b""
        if self.details is not NO_DETAILS and not self.details.shared:
            self.details.drop_contents()

    @property
    def durable(self) -> bool:
        """Whether losing this job would break a promise: its submitter does not wait for it, and relies on it."""
        return self.delivery != Delivery.WAIT

    @property
    def is_dead(self) -> bool:
        """Whether the job failed because its attempts are used up, not because a worker reported a failure."""
        return self.state is FAILED and bool(self.moves) and self.log[-1][0] is Cause.EXHAUSTED

    @property
    def leaves_nothing(self) -> bool:
        """Whether the job ended because its submitter was gone, and neither a successor nor a submission with its
        unique key relies on it."""
        if self.delivery or self.history is None or not self.finished_us or self.history[-2] != ABANDONED:
            return False
        return not self.unique_until_us

    # --- its details ---

    @property
    def name(self) -> bytes:
        return self.details.name

    @name.setter
    def name(self, name: bytes) -> None:
        self.own_details().name = name

    @property
    def reducer(self) -> bytes:
        return self.details.reducer

    @reducer.setter
    def reducer(self, reducer: bytes) -> None:
        self.own_details().reducer = reducer

    @property
    def label(self) -> bytes:
        return self.details.label

    @label.setter
    def label(self, label: bytes) -> None:
        self.own_details().label = label

    @property
    def origin(self) -> str:
        return self.details.origin

    @origin.setter
    def origin(self, origin: str) -> None:
        self.own_details().origin = origin

    @property
    def run_at_us(self) -> int:
        return self.details.run_at_us

    @run_at_us.setter
    def run_at_us(self, run_at_us: int) -> None:
        self.own_details().run_at_us = run_at_us

    @property
    def expires_us(self) -> int:
        return self.details.expires_us

    @expires_us.setter
    def expires_us(self, expires_us: int) -> None:
        self.own_details().expires_us = expires_us

    @property
    def timeout_us(self) -> int:
        return self.details.timeout_us

    @timeout_us.setter
    def timeout_us(self, timeout_us: int) -> None:
        self.own_details().timeout_us = timeout_us

    @property
    def attempts_limit(self) -> int:
        return self.details.attempts_limit

    @attempts_limit.setter
    def attempts_limit(self, attempts_limit: int) -> None:
        self.own_details().attempts_limit = attempts_limit

    @property
    def numerator(self) -> int:
        return self.details.numerator

    @numerator.setter
    def numerator(self, numerator: int) -> None:
        self.own_details().numerator = numerator

    @property
    def denominator(self) -> int:
        return self.details.denominator

    @denominator.setter
    def denominator(self, denominator: int) -> None:
        self.own_details().denominator = denominator

    @property
    def time_left_s(self) -> int:
        return self.details.time_left_s

    @time_left_s.setter
    def time_left_s(self, time_left_s: int) -> None:
        self.own_details().time_left_s = time_left_s

    @property
    def progress_text(self) -> bytes:
        return self.details.progress_text

    @progress_text.setter
    def progress_text(self, progress_text: bytes) -> None:
        self.own_details().progress_text = progress_text

    @property
    def result_code(self) -> int:
        return self.details.result_code

    @result_code.setter
    def result_code(self, result_code: int) -> None:
        self.own_details().result_code = result_code

    @property
    def error(self) -> bytes | None:
        return self.details.error

    @error.setter
    def error(self, error: bytes | None) -> None:
        self.own_details().error = error

    @property
    def warnings(self) -> bytes:
        return self.details.warnings

    @warnings.setter
    def warnings(self, warnings: bytes) -> None:
        self.own_details().warnings = warnings

    @property
    def chunks(self) -> list[bytes] | None:
        return self.details.chunks

    @chunks.setter
    def chunks(self, chunks: list[bytes] | None) -> None:
        self.own_details().chunks = chunks

    @property
    def collected_bytes(self) -> int:
        return self.details.collected_bytes

    @collected_bytes.setter
    def collected_bytes(self, collected_bytes: int) -> None:
        self.own_details().collected_bytes = collected_bytes

    @property
    def predecessors(self) -> tuple[int, ...]:
        return self.details.predecessors

    @predecessors.setter
    def predecessors(self, predecessors: tuple[int, ...]) -> None:
        self.own_details().predecessors = predecessors

    @property
    def blockers(self) -> int:
        return self.details.blockers

    @blockers.setter
    def blockers(self, blockers: int) -> None:
        self.own_details().blockers = blockers

    @property
    def run_limit(self) -> int:
        return self.details.run_limit

    @run_limit.setter
    def run_limit(self, run_limit: int) -> None:
        self.own_details().run_limit = run_limit

    @property
    def run_until_us(self) -> int:
        return self.details.run_until_us

    @run_until_us.setter
    def run_until_us(self, run_until_us: int) -> None:
        self.own_details().run_until_us = run_until_us

    @property
    def unsent(self) -> bool:
        return self.details.unsent

    @unsent.setter
    def unsent(self, unsent: bool) -> None:
        self.own_details().unsent = unsent

    @property
    def withdrawn(self) -> bool:
        return self.details.withdrawn

    @withdrawn.setter
    def withdrawn(self, withdrawn: bool) -> None:
        self.own_details().withdrawn = withdrawn

    @property
    def irrevocable(self) -> bool:
        return self.details.irrevocable

    @irrevocable.setter
    def irrevocable(self, irrevocable: bool) -> None:
        self.own_details().irrevocable = irrevocable

    @property
    def key(self) -> bytes:
        return self.details.key

    @key.setter
    def key(self, key: bytes) -> None:
        self.own_details().key = key

    @property
    def losses(self) -> int:
        return self.details.losses

    @losses.setter
    def losses(self, losses: int) -> None:
        self.own_details().losses = losses

    @property
    def starts(self) -> int:
        return self.details.starts

    @starts.setter
    def starts(self, starts: int) -> None:
        self.own_details().starts = starts

    @property
    def crash_limit(self) -> int:
        return self.details.crash_limit

    @crash_limit.setter
    def crash_limit(self, crash_limit: int) -> None:
        self.own_details().crash_limit = crash_limit

    @property
    def edges(self) -> bytes:
        return self.details.edges

    @edges.setter
    def edges(self, edges: bytes) -> None:
        self.own_details().edges = edges

    @property
    def unique_scope(self) -> int:
        return self.details.unique_scope

    @unique_scope.setter
    def unique_scope(self, unique_scope: int) -> None:
        self.own_details().unique_scope = unique_scope

    @property
    def unique_until_us(self) -> int:
        return self.details.unique_until_us

    @unique_until_us.setter
    def unique_until_us(self, unique_until_us: int) -> None:
        self.own_details().unique_until_us = unique_until_us

    @property
    def retention_us(self) -> int:
        return self.details.retention_us

    @retention_us.setter
    def retention_us(self, retention_us: int) -> None:
        self.own_details().retention_us = retention_us

    @property
    def schedule(self) -> bytes:
        return self.details.schedule

    @schedule.setter
    def schedule(self, schedule: bytes) -> None:
        self.own_details().schedule = schedule

    @property
    def requires(self) -> bytes:
        return self.details.requires

    @requires.setter
    def requires(self, requires: bytes) -> None:
        self.own_details().requires = requires

    @property
    def trace(self) -> bytes:
        return self.details.trace

    @trace.setter
    def trace(self, trace: bytes) -> None:
        self.own_details().trace = trace

    @property
    def message(self) -> bytes:
        return self.details.message

    @message.setter
    def message(self, message: bytes) -> None:
        self.own_details().message = message

    @property
    def rank(self) -> int:
        return self.details.rank

    @rank.setter
    def rank(self, rank: int) -> None:
        self.own_details().rank = rank


def place_of(job: Job) -> int:
    """The place of a job in its queue: lower comes first."""
    return job.details.rank or job.id * RANKS_BETWEEN


def lost_payload_text(job_id: int) -> str:
    """The error of a job whose payload is missing in the store."""
    return f"the store has lost the payload of job {job_id}"
