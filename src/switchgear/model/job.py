"""A job: what every one has, and apart from that what only some have.

A million jobs may be waiting, and each passes through every hand of the engine, so both their size and the cost of
looking at them count.  What few jobs have is in an object of its own, `Details`, which most jobs share, as do those
that were submitted with the same options; one that is given something else gets its own.  Everybody else reads and sets
those fields as if they were the job's.  The field `special` tells whether a look at most of them is worth while.

Most jobs are submitted, taken and done, and nothing else happens to them.  So those three moves are not written down
but implied by their times; see `moves`.  All times are whole microseconds since the epoch, so that comparing them is
comparing integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i32, mypyc_attr, u8

from switchgear.states import DONE, FAILED, READY, Cause, Delivery, JobState

if TYPE_CHECKING:
    from switchgear.model import Function, Peer, Worker

__all__ = [
    "DETAILS_BYTES",
    "EDGE_BYTES",
    "JOB_BYTES",
    "KEPT",
    "MOST_MOVES",
    "MOVE_BYTES",
    "NO_DETAILS",
    "PAYLOAD_KEY",
    "RESIDENT",
    "WATCH_BYTES",
    "Details",
    "Job",
    "shared_details",
]

# What the store has of a job, if anything.
KEPT: Final = 1
RESIDENT: Final = 2  # and the payload is in memory all the same, within what is set aside for that

# How a unique key starts that stands for the payload itself, written as a dash.  No protocol lets a client send a NUL
# in a key, so nobody can make one up.
PAYLOAD_KEY: Final = b"-\0"

# What a job takes in memory beside its contents, about and rather too much: itself and its places in tables and queues;
# if it has details of its own, those and its deadlines; and each edge, watcher and move.
JOB_BYTES: Final = 450
DETAILS_BYTES: Final = 700
EDGE_BYTES: Final = 100
WATCH_BYTES: Final = 100
MOVE_BYTES: Final = 50

# A job may be handed back and taken again without end.  Of its moves the first and the last are remembered, at most so
# many; when there are more, some of those in between are dropped.
MOST_MOVES: Final = 200
FIRST_MOVES: Final = 10
MOVES_DROPPED: Final = 50

TAKEN: Final = Cause.TAKEN
SUCCEEDED: Final = Cause.SUCCEEDED
ABANDONED: Final = Cause.ABANDONED


@mypyc_attr(acyclic=True)
class Details:
    """What few jobs have."""

    __slots__ = (
        "attempts_limit",
        "blockers",
        "chunks",
        "collected_bytes",
        "denominator",
        "edges",
        "error",
        "expires_us",
        "ghosts",
        "irrevocable",
        "key",
        "losses",
        "losses_limit",
        "message",
        "name",
        "numerator",
        "origin",
        "predecessors",
        "progress_text",
        "rank",
        "reducer",
        "result_code",
        "retention_us",
        "run_at_us",
        "run_limit",
        "run_until_us",
        "schedule",
        "shared",
        "time_left_s",
        "timeout_us",
        "unique_scope",
        "unique_until_us",
        "unsent",
        "warnings",
        "withdrawn",
    )

    def __init__(self) -> None:
        self.shared = False  # several jobs have it, so it is never changed; see `shared_details`
        self.name = b""
        self.reducer = b""
        self.origin = ""
        self.run_at_us = 0
        self.expires_us = 0
        self.timeout_us = 0  # longest run of one attempt; 0: the worker's own limit, or none
        self.attempts_limit = -1  # 0: no limit; -1: the server's setting
        self.numerator = 0
        self.denominator = 0
        self.time_left_s = -1  # -1: the worker did not say
        self.progress_text = b""  # the worker's own words for its progress, for whoever speaks its protocol
        self.result_code = 0  # 0 is success, 1 to 255 an error
        self.error: bytes | None = None  # what the worker said about the failure, if it said anything
        self.warnings = b""  # what it said on the way; the end of it, if it was much
        self.chunks: list[bytes] | None = None  # parts of the result that came ahead of its end
        self.collected_bytes = 0  # how long they are, together with those there was no room for
        self.predecessors: tuple[int, ...] = ()  # ids of the jobs it was told to wait for, done or not
        self.blockers = 0  # how many of them are not done
        self.run_limit = 0  # tells the deadline of this attempt from those of earlier ones
        self.run_until_us = 0  # when this attempt ends, if that was put off since it began
        self.unsent = False  # its worker gets it when the start is kept, and until then its time does not count
        self.ghosts = 0  # stale entries of this job in its queue
        self.withdrawn = False  # undone because the store could not keep it
        self.irrevocable = False  # that is not possible
        self.key = b""  # whose it is: limits may be set for each key, and keys be served in turn; see engine.gates
        self.losses = 0  # how often its worker, or the server, was lost while it ran
        self.losses_limit = -1  # dead at so many losses; 0: no limit; -1: a loss is an attempt like any other
        self.edges = b""  # an EdgePolicy for each predecessor; empty: WAIT for all
        self.unique_scope = 0  # UniqueScope
        self.unique_until_us = 0  # its unique key stays its own until then, even if it ends before
        self.retention_us = -1  # how long it is remembered after its end; -1: the server's setting
        self.schedule = b""  # the schedule that made it
        self.message = b""  # what its worker says it is doing, for people
        self.rank = 0  # its place among those that wait for the same, if not that of its submission; see engine.queues

    def content_size(self) -> int:
        """How many bytes the texts and the parts of a result have that are held here."""
        size = len(self.warnings) + len(self.progress_text) + len(self.message)
        if self.error is not None:
            size += len(self.error)
        if self.chunks is not None:
            for chunk in self.chunks:
                size += len(chunk)
        return size

    def drop_contents(self) -> None:
        """Let go of them."""
        self.warnings = self.progress_text = self.message = b""
        self.error = None
        self.chunks = None


NO_DETAILS: Final = Details()  # of all jobs that have none; never changed


def shared_details(
    *, timeout_us: int = 0, attempts_limit: int = -1, losses_limit: int = -1, retention_us: int = -1
) -> Details:
    """For any number of jobs that were submitted with these, and with nothing else that is out of the ordinary."""
    details = Details()
    details.shared = True
    details.timeout_us = timeout_us
    details.attempts_limit = attempts_limit
    details.losses_limit = losses_limit
    details.retention_us = retention_us
    return details


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
        "history",
        "id",
        "kept",
        "payload",
        "priority",
        "result",
        "revision",
        "special",
        "started_us",
        "state",
        "unique",
        "watchers",
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
        self.started_us = -1  # when it was taken, if that was its first move; -1: it was not
        self.finished_us = 0
        self.state: JobState = READY
        self.special = False
        # What was counted for it in `MemoryAccount.job_bytes` beside its contents; 0: it is not counted there.
        self.entry_bytes = 0
        self.kept: u8 = 0  # KEPT: the store has it, in some state; RESIDENT: and its payload counts as being in memory
        self.attempts: i32 = 0
        self.revision: i32 = 0  # grows with every change that is kept; a store never goes back
        self.worker: Worker | None = None
        self.watchers: list[Peer] | None = None
        self.history: list[int] | None = None  # see `moves`
        self.result = b""
        self.details = NO_DETAILS

    def __repr__(self) -> str:
        return f"Job({self.id}, {self.function.name!r}, {self.state.name})"

    def own_details(self) -> Details:
        """Those of this job alone."""
        details = self.details
        if details is NO_DETAILS:
            details = self.details = Details()
        elif details.shared:
            shared, details = details, Details()
            details.timeout_us = shared.timeout_us
            details.attempts_limit = shared.attempts_limit
            details.losses_limit = shared.losses_limit
            details.retention_us = shared.retention_us
            self.details = details
        return details

    # --- how it came to be where it is ---

    @property
    def moves(self) -> list[int] | None:
        """Cause, time, cause, time ... of its moves, without the first if that was being submitted ready; None: none.

        Not to be changed.
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
        """Write down a move that is not implied.  Before the state is changed."""
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

    # --- what follows from the rest ---

    @property
    def shown_unique(self) -> bytes:
        """The unique key as its submitter wrote it."""
        return b"-" if self.unique.startswith(PAYLOAD_KEY) else self.unique

    @property
    def whole_result(self) -> bytes:
        """The result with the parts that came ahead of its end."""
        chunks = self.details.chunks
        return b"".join((*chunks, self.result)) if chunks else self.result

    @property
    def content_bytes(self) -> int:
        """How long its payload, its result and its texts are that are in memory."""
        size = len(self.result)
        if self.payload is not None:
            size += len(self.payload)
        if self.details is not NO_DETAILS:
            size += self.details.content_size()
        return size

    def measured_entry(self) -> int:
        """What it takes in memory beside its contents, about."""
        size = JOB_BYTES + len(self.unique)
        details = self.details
        if details is not NO_DETAILS and not details.shared:
            size += DETAILS_BYTES + EDGE_BYTES * len(details.predecessors) + len(details.name) + len(details.origin)
            size += len(details.key) + len(details.reducer) + len(details.schedule)
        if self.watchers is not None:
            size += WATCH_BYTES * len(self.watchers)
        if self.history is not None:
            size += MOVE_BYTES * (len(self.history) // 2)
        return size

    def drop_contents(self) -> None:
        """Let go of the payload, the result and the texts.  `Core.drop_contents` also keeps account of it."""
        self.payload = None
        self.result = b""
        if self.details is not NO_DETAILS and not self.details.shared:
            self.details.drop_contents()

    @property
    def durable(self) -> bool:
        """Whether losing this job would break a promise: somebody left and relies on it."""
        return self.delivery != Delivery.WAIT

    @property
    def is_dead(self) -> bool:
        """Failed because its attempts are spent, not because a worker said so."""
        return self.state is FAILED and bool(self.moves) and self.log[-1][0] is Cause.EXHAUSTED

    @property
    def leaves_nothing(self) -> bool:
        """Whether it ended because whoever waited for it was gone, and nobody else relies on it: no job that waits for
        it, and nobody who uses its unique key."""
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
    def ghosts(self) -> int:
        return self.details.ghosts

    @ghosts.setter
    def ghosts(self, ghosts: int) -> None:
        self.own_details().ghosts = ghosts

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
    def losses_limit(self) -> int:
        return self.details.losses_limit

    @losses_limit.setter
    def losses_limit(self, losses_limit: int) -> None:
        self.own_details().losses_limit = losses_limit

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
