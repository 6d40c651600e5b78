"""What every protocol's session shares: it turns bytes into engine calls and news into bytes, and touches no wire.

A session collects what it wants to send in `out`.  Its owner (the hub) sends all of it once per turn of the event loop.

Promises.  An answer that tells somebody "this is kept" must not leave before it is true.  A session that writes
such an answer calls `pledge`, and the hub holds the session's output until the store has committed.  For
submissions the session also notes which piece of output is the answer (`pledge_job`), so that it can be exchanged
for a refusal should the store fail.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, Protocol

from mypy_extensions import i64, mypyc_attr

from switchgear.engine.engine import Engine
from switchgear.errors import PeerError, Refused
from switchgear.model import DONE, FAILED, FINAL_STATES, Job, Peer, Worker

__all__ = [
    "MOST_FUNCTIONS",
    "Context",
    "Listed",
    "Message",
    "MessageSession",
    "Promises",
    "Session",
    "Wire",
    "is_given_name",
    "number_in_handle",
]

Message = list[bytes]
"""A message of several frames.  What arrives begins with who sent it, and what is sent with who is to have it."""


# Functions that one worker may register.  Each makes the server hold some entries, for every worker that names it.
MOST_FUNCTIONS: Final = 1000

MOST_DIGITS: Final = 19  # as many may be more than a store can hold
ZERO: Final = 48


@mypyc_attr(allow_interpreted_subclasses=True)
class Wire(ABC):
    """The connection behind a session.  Sessions read what it is; only the hub writes to it."""

    session: Session | None = None  # who is spoken to; another may take over
    host: str = ""
    port: int = 0
    descriptor: int = -1
    is_loopback: bool = True

    @abstractmethod
    def write(self, out: list[Any]) -> None:
        """Send what a session has collected: pieces of bytes, or whole messages where the wire carries those."""

    @abstractmethod
    def close(self) -> None:
        """Hang up, once everything written has been sent."""

    def is_of_same_user(self) -> bool:
        """Whether the peer is a process of this machine that runs as the server's own user, or as root."""
        return False

    @property
    def unsent_bytes(self) -> int:
        """What was written, and the peer has not taken."""
        return 0

    def give_up_on_slow_reader(self, waiting_bytes: int) -> None:
        """Hang up at once: more than may wait for the peer would."""
        self.close()

    def when_taken(self, go_on: Callable[[], None]) -> None:
        """Call this when the peer has taken most of what was written; read nothing from it until then."""
        go_on()


class Listed(Protocol):
    """A conversation as it is shown where connections are listed."""

    wire: Wire
    client_id: bytes  # what the peer calls itself
    worker: Worker | None


@mypyc_attr(allow_interpreted_subclasses=True)
class Context(ABC):
    """What a session may ask of the house."""

    engine: Engine
    keeps: bool  # whether promises have to wait for a store
    marked: list[Session]  # sessions with output in this turn

    @abstractmethod
    def payload(self, job: Job) -> bytes:
        """The job's payload, from memory or from the store."""

    @abstractmethod
    def find_job(self, job_id: int) -> Job | None:
        """A job by its number, unfinished or from the history; raises Refused if that cannot be read.

        One that has to be kept shows its end only when that is kept, and until then what the store last had of it.
        """

    def find_unkept_end(self, job_id: int) -> Job | None:
        """A job whose end is decided, but not kept yet; whoever tells of it has to pledge.  See `find_job`."""
        return None

    @abstractmethod
    def find_named(self, names: frozenset[bytes], since_us: int = 0) -> dict[bytes, Job]:
        """By name, the newest finished job of each that has one created since then; raises Refused like `find_job`.

        One whose end is not kept yet may still be shown as the store last had it.
        """

    @abstractmethod
    def find_kept(self, before_id: int, limit: int) -> list[Job]:
        """The newest jobs below this id that the store has, the newest first; raises Refused like `find_job`."""

    @abstractmethod
    def operate(self, verb: str, arguments: dict[str, Any]) -> Any:
        """Do what an operator asks for; see net.operations.  Raises Refused or LookupError."""

    def operate_in_steps(self, verb: str, arguments: dict[str, Any], answer: list[Any]) -> Iterator[bool]:
        """The same in steps; at the end the answer is added to the list."""
        answer.append(self.operate(verb, arguments))
        yield False

    def work_off(self, operation: Iterator[bool]) -> None:
        """Do something in steps, in as many turns as it takes; see net.slices."""
        for pauses in operation:
            if pauses:
                return

    @abstractmethod
    def count_bad_input(self, session: Session, code: str, text: str) -> None:
        """A peer broke its protocol."""

    @abstractmethod
    def soon(self, action: Callable[[], object]) -> None:
        """Do this in the next turn: for what news from the engine give rise to, which must not call it back."""

    @abstractmethod
    def request_stop(self, *, graceful: bool) -> None:
        """Somebody who may do so asked the server to stop."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Session(Peer):
    """One conversation with one peer."""

    protocol: str = ""

    def __init__(self, context: Context, wire: Wire) -> None:
        super().__init__()
        self.context = context
        self.engine = context.engine
        self.wire = wire
        self.out: list[Any] = []  # what the wire carries: bytes, or messages
        self.pledges = 0
        self.pledged_jobs: list[tuple[int, Job]] = []  # index in `out`, job
        self.held: list[Any] | None = None  # output that the commit under way allows to be sent
        self.held_pledges = 0
        self.held_jobs: list[tuple[int, Job]] = []
        self.waiting = False  # for the next commit
        self.long_bytes = 0  # how much of `out` is long answers
        self.put_off: list[tuple[int, bytes]] = []  # requests to be handled when those are sent
        self.operation: Iterator[bool] | None = None  # what is worked off in steps; requests wait until it is done
        self.is_paused = False  # that goes on when the peer has taken what it was sent
        self.has_ended_operation = False  # and is to be read from again
        self.choked = False  # was sent so much of its own accord that it is asked to go on only when that is taken
        self.marked = False
        self.closing = False  # hang up when everything is sent

    @abstractmethod
    def receive(self, data: bytes) -> None:
        """The peer sent this; may be any slice of its conversation."""

    @abstractmethod
    def closed(self) -> None:
        """The peer is gone."""

    @abstractmethod
    def refusal(self, refused: Refused) -> bytes:
        """How this protocol says that a submission was not taken."""

    def refusal_instead_of(self, answer: Any, refused: Refused) -> Any:
        """What is said in place of an answer that cannot be given after all."""
        return self.refusal(refused)

    @property
    def buffered_bytes(self) -> int:
        """How much of an unfinished message is being held."""
        return 0

    @property
    def unsent_bytes(self) -> int:
        """How much output waits for the store."""
        return sum(map(len, self.out)) + sum(map(len, self.held or ()))

    @property
    def awaits_store(self) -> bool:
        """Whether nothing more should be read while the store fails, because what was promised has to wait for it."""
        return self.pledges > 0

    def note_long_answer(self, size: int) -> None:
        """An answer of so many bytes is about to be sent; after much of this, requests are put off."""
        self.long_bytes += size
        self.engine.memory.answer_bytes += size

    def go_on(self) -> None:
        """Handle the requests that were put off."""

    def work_off(self, steps: Iterator[bool]) -> None:
        """Do in steps what the peer has asked for.  Its further requests wait until that is done."""
        self.operation = operation = self._until_done(steps)
        self.mark()  # so that it is not read from meanwhile
        self.context.work_off(operation)

    def _until_done(self, steps: Iterator[bool]) -> Iterator[bool]:
        try:
            for pauses in steps:
                self.is_paused = pauses
                if pauses:
                    self.mark()
                yield pauses
        except (PeerError, Refused) as error:
            self.answer_error(error)
        finally:
            self.operation = None
            self.is_paused = False
            self.has_ended_operation = True
            self.mark()

    def resume_operation(self) -> None:
        """The peer has taken what it was sent."""
        if self.operation is not None and self.is_paused:
            self.is_paused = False
            self.context.work_off(self.operation)

    def answer_error(self, error: PeerError | Refused) -> None:
        """What the peer asked for cannot be done."""
        raise NotImplementedError

    def eof(self) -> None:
        """The peer will send no more.  It gets the answers to what it has asked, and then it is gone.

        Whether it still reads cannot be known: closing both directions looks the same.  So a job that only it waits
        for is not kept alive.
        """
        self.closing = True
        self.mark()

    def mark(self) -> None:
        """Have `out` sent at the end of the turn."""
        if not self.marked:
            self.marked = True
            self.context.marked.append(self)

    def send(self, packet: Any) -> None:
        self.out.append(packet)
        if not self.marked:
            self.marked = True
            self.context.marked.append(self)

    def pledge(self) -> None:
        """What is written next (or was written last) tells of something that has to be kept first."""
        if self.context.keeps:
            self.pledges += 1

    def pledge_job(self, job: Job) -> None:
        """The piece of output written last promises this job."""
        if self.context.keeps and job.delivery:
            self.pledges += 1
            self.pledged_jobs.append((len(self.out) - 1, job))

    def follows_promise(self, job: Job) -> bool:
        """Whether this session watches a job that it was promised for that reason alone, and so only once.

        Should the promise be broken, there is nothing left to watch.
        """
        return False

    def ended_job(self, job_id: int) -> Job | None:
        """A job that is not the engine's any more, as it ended; None if nothing is known of it.  Raises Refused.

        It may have ended a moment ago, such that the store does not know it yet, or not how it ended.  Whoever hears
        of that has to wait until it does.
        """
        job = self.context.find_unkept_end(job_id)
        if job is not None:
            if job.delivery:
                self.pledge()
            return job
        job = self.context.find_job(job_id)
        return job if job is not None and job.state in FINAL_STATES else None

    def held_end(self, held: Job) -> Job:
        """As it ended: a job that a submission was answered with, since it holds its unique key beyond its end.

        The engine knows only that it ended.  If what it came to cannot be read, it counts as failed: an error would
        be taken for the answer to another question, and no result for the result.
        """
        reason = "its result is not kept any more"
        try:
            job = self.ended_job(held.id)
            if job is not None:
                return job
        except Refused as refused:
            reason = f"its result cannot be read: {refused}"
        if held.state is not DONE:
            return held
        job = Job(held.id, held.function, held.unique, None, held.priority, held.delivery, held.created_us)
        job.state = FAILED
        job.finished_us = held.finished_us
        job.result_code = 255
        job.error = f"the job was done, and {reason}".encode()
        return job

    def not_read(self) -> None:
        """Nothing that the peer sends is read for now, so its silence means nothing."""

    def read_again(self) -> None:
        """What the peer sends is read again."""

    def can_hand_out(self, worker: Worker, job: Job) -> bool:
        """What a durable store makes necessary before a worker is sent a job that it took; False if it cannot be."""
        if job.payload is None and not self._fetch_payload(worker, job):
            return False
        if job.delivery and self.engine.start_must_be_kept(job):
            # Should the server die now, it must remember that this attempt was made.
            self.pledge()
        return True

    def _fetch_payload(self, worker: Worker, job: Job) -> bool:
        """Get a payload that only the store has; if it cannot give it, the worker does not get the job."""
        try:
            self.context.payload(job)
        except Refused:
            self.engine.could_not_be_sent(worker, job.id)
            return False
        except LookupError as error:
            self.engine.could_not_be_sent(worker, job.id, lost=str(error.args[0]).encode())
            return False
        return True

    def has_payload(self, worker: Worker, job: Job) -> bool:
        """Whether the worker that was given this job can be sent it; if not, it will not keep it.

        For news from the engine, which must not call it back.
        """
        if job.payload is not None:
            return True
        try:
            self.context.payload(job)
        except Refused:
            self.context.soon(partial(self.engine.could_not_be_sent, worker, job.id))
            return False
        except LookupError as error:
            lost = str(error.args[0]).encode()
            self.context.soon(partial(self.engine.could_not_be_sent, worker, job.id, lost))
            return False
        return True

    # --- the hub's side of promises ---

    def hold(self) -> None:
        """A commit begins that keeps what was promised so far."""
        self.held, self.out = self.out, []
        self.held_pledges, self.pledges = self.pledges, 0
        self.held_jobs, self.pledged_jobs = self.pledged_jobs, []
        self.waiting = False

    def release(self) -> list[Any]:
        """The commit is done: this may be sent now."""
        held, self.held = self.held or [], None
        self.held_pledges = 0
        self.held_jobs = []
        return held

    def unhold(self) -> None:
        """The commit failed: what was held waits again, ahead of what came since."""
        held = self.held or []
        self.pledged_jobs = self.held_jobs + [(index + len(held), job) for index, job in self.pledged_jobs]
        self.pledges += self.held_pledges
        self.out = held + self.out
        self.release()

    def refuse_withdrawn(self, refused: Refused) -> None:
        """Exchange the promises of jobs that were withdrawn for refusals."""
        still_promised = []
        for index, job in self.pledged_jobs:
            if job.withdrawn:
                self.out[index] = self.refusal_instead_of(self.out[index], refused)
                self.pledges -= 1
            else:
                still_promised.append((index, job))
        self.pledged_jobs = still_promised


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageSession(Session):
    """A conversation in whole messages, with all peers behind one socket.

    Most answers can be sent at once.  Those that promise something wait for the store in `promises`, so that they hold
    up nobody who was promised nothing.
    """

    def __init__(self, context: Context, wire: Wire) -> None:
        super().__init__(context, wire)
        self.promises = Promises(context, wire, self)

    @abstractmethod
    def receive_message(self, message: Message) -> None:
        """A peer, named by the first frame, sent the others.  There is at least one other."""

    @abstractmethod
    def unreachable(self, message: Message) -> None:
        """This could not be delivered: the peer is gone, or takes nothing any more.  Nothing else of it was sent."""

    def peer_gone(self, identity: bytes) -> None:
        """The peer of this name has closed its connection.  Called by wires that can tell."""

    def refused_message(self, answer: Message, refused: Refused) -> Message:
        """What is said in place of an answer that promised a job which cannot be kept."""
        raise NotImplementedError

    def promise(self, answer: Message, jobs: Iterable[Job] = ()) -> None:
        """Send this once everything that was done until now is kept; it may promise new jobs."""
        promises = self.promises
        pledges = promises.pledges
        promises.send(answer)
        for job in jobs:
            promises.pledge_job(job)
        if promises.pledges == pledges:  # else it is the jobs that have to be kept, and the answer falls with them
            promises.pledge()

    def send_job(self, job: Job, message: Message) -> None:
        """Send a job to its worker, when its start is kept if it counts: the server may die now."""
        if self.context.keeps and job.delivery and self.engine.start_must_be_kept(job):
            self.promise(message)
        else:
            self.send(message)

    def receive(self, data: bytes) -> None:
        raise NotImplementedError("this wire carries messages")

    def closed(self) -> None:
        """The listener is being closed."""

    def refusal(self, refused: Refused) -> bytes:
        raise NotImplementedError("a refusal needs the answer in whose place it is sent")

    @property
    def unsent_bytes(self) -> int:
        return message_bytes(self.out) + message_bytes(self.held or ())


class Promises(Session):
    """The answers of a `MessageSession` that have to be kept before they are sent."""

    def __init__(self, context: Context, wire: Wire, owner: MessageSession) -> None:
        super().__init__(context, wire)
        self.owner = owner
        self.protocol = owner.protocol

    def receive(self, data: bytes) -> None:
        raise NotImplementedError("nobody speaks to a promise")

    def closed(self) -> None:
        """Nothing to do."""

    def refusal(self, refused: Refused) -> bytes:
        raise NotImplementedError("a refusal needs the answer in whose place it is sent")

    def refusal_instead_of(self, answer: Any, refused: Refused) -> Any:
        return self.owner.refused_message(answer, refused)

    @property
    def unsent_bytes(self) -> int:
        return message_bytes(self.out) + message_bytes(self.held or ())


def is_given_name(identity: bytes) -> bool:
    """Whether a peer on ZeroMQ was given this name by the server, so that nobody will ever have it again."""
    return identity.startswith(b"\0")


def message_bytes(messages: Iterable[Message]) -> int:
    return sum(len(frame) for message in messages for frame in message)


def number_in_handle(handle: bytes, prefix: bytes, end: i64 = -1) -> int:
    """The number of the job whose handle this is, up to the `end` if that is given, or 0."""
    start: i64 = len(prefix)
    if end < 0:
        end = len(handle)
    if not 0 < end - start < MOST_DIGITS or handle[start] == ZERO or not handle.startswith(prefix):
        return 0
    number: i64 = 0
    for position in range(start, end):  # compiled, this takes a tenth of the time of int(handle[start:])
        digit: i64 = handle[position] - ZERO
        if not 0 <= digit <= 9:
            return 0
        number = number * 10 + digit
    return number
