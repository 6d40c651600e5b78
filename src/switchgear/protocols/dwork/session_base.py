"""`DworkSessionBase`: what the requests of a dwork server share: answers, workers, and events of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from mypy_extensions import mypyc_attr

from switchgear.errors import PeerError, Refused
from switchgear.memory import FOR_WAITING
from switchgear.model import SECOND_US, Cause, Function, Job, Timer, Worker
from switchgear.protocols.context import Context
from switchgear.protocols.dwork.codec import TransferWriter, encode
from switchgear.protocols.dwork.known_workers import KnownWorker, KnownWorkers
from switchgear.protocols.dwork.messages import Query, QueryType
from switchgear.protocols.message_session import MessageSession
from switchgear.protocols.multipart import Message
from switchgear.protocols.pending_read import Step
from switchgear.protocols.transport import PeerTransport
from switchgear.resources import resource_amounts
from switchgear.tags import tag_set
from switchgear.text import harmless

__all__ = [
    "EXIT",
    "NOT_FOUND",
    "OK",
    "DworkSessionBase",
    "DworkSetup",
    "Handout",
    "error_text",
    "shown",
    "traces_of",
    "with_reason",
]

OK: Final = encode(Query(QueryType.OK))
NOT_FOUND: Final = encode(Query(QueryType.NOT_FOUND))
EXIT: Final = encode(Query(QueryType.EXIT))

# Each waiting Steal takes memory; beyond this many the next is answered at once.
MOST_BLOCKED = 100_000
# The longest wait of a Steal whose sender may be gone.
LONGEST_WAIT_US: Final = 86_400 * SECOND_US
# How long a worker without task and connection stays registered. Programs that are started for each request, in the
# loop of a shell script, poll more often than that.
RETURN_US: Final = 10 * SECOND_US
# The connection of a proxy may belong to very many workers. When it is lost, they are handled this many at a time.
LEAVING_AT_ONCE: Final = 200

# The approximate memory of a location besides its name and its worker; of a waiting Steal; and of one of its frames.
LOCATION_BYTES: Final = 1000
NEW_WORKER_BYTES: Final = 3 * LOCATION_BYTES  # with the engine's worker
WAITING_BYTES: Final = 500
FRAME_BYTES: Final = 50


@dataclass(slots=True)
class DworkSetup:
    """The settings of a dwork listener."""

    function: bytes = b"dwork"
    lease_us: int = 3_600_000_000  # 0: a worker may be silent forever
    host: bytes = b""  # the server's own name


@mypyc_attr(native_class=False)  # no compiled class can be a list
class Handout(list[bytes]):
    """An answer with tasks, and their jobs, so that they can be taken back if it cannot be delivered."""

    __slots__ = ("jobs", "time_us", "worker")

    def __init__(self, envelope: Message, worker: Worker, jobs: list[Job], time_us: int) -> None:
        super().__init__(envelope)
        self.worker = worker
        self.jobs = jobs
        self.time_us = time_us


class DworkSessionBase(MessageSession):
    """The base class of the session of a listener."""

    protocol = "dwork"

    def __init__(self, context: Context, transport: PeerTransport, setup: DworkSetup) -> None:
        super().__init__(context, transport)
        self.setup = setup
        self.known_workers = KnownWorkers()
        self.transfers = TransferWriter(setup.host)
        self._function = self.engine.function_named(setup.function)
        self._function.released_first = True
        self.is_arriving = False  # while a message is handled on its arrival, and not in steps later
        self._speakers: dict[
            bytes, dict[bytes, KnownWorker]
        ] = {}  # workers by routing id of a connection, and location
        self._leaving: dict[Timer, KnownWorker] = {}  # workers that are deregistered unless they send a request
        self._blocked = 0  # number of waiting Steals
        self._waiting: dict[bytes, dict[int, KnownWorker]] = {}  # the same by sender and ticket

    @property
    def function(self) -> Function:
        """The function of which the tasks are jobs; a new object after another node has had it."""
        function = self._function
        if function.dropped:
            function = self._function = self.engine.function_named(self.setup.function)
        return function

    # --- answers ---

    def answer(self, envelope: Message, payload: bytes) -> None:
        envelope.append(payload)
        self.send(envelope)

    def refused_message(self, answer: Message, refused: Refused) -> Message:
        return [*answer[:-1], error_text(str(refused))]

    def nothing_ready(self) -> bytes:
        """The answer to a Steal that gets nothing: Exit if no task can ever become ready."""
        function = self.function
        return EXIT if not function.total or self.engine.is_stuck(function) else NOT_FOUND

    # --- workers ---

    def known_worker(self, name: bytes, identity: bytes) -> KnownWorker:
        """The worker that sent a request; renews its lease. Raises Refused if there are too many workers."""
        known = self.known_workers.get(name)
        if known is None:
            is_full = not self.engine.memory.has_registration_room(NEW_WORKER_BYTES + len(name), FOR_WAITING)
            superfluous = self.known_workers.superfluous(is_full=is_full)
            if superfluous is not None:
                self.forget(superfluous, Cause.WORKER_LOST)
            self.engine.refuse_registrations(1, FOR_WAITING)
            known = self.known_workers.add(name, self.setup.lease_us)
            self.engine.memory.registration_bytes += LOCATION_BYTES + len(name)
            self._note_connection(known, identity)
            return known
        if identity not in known.identities:
            self._note_connection(known, identity)
        if known.leaving is not None:
            self._stay(known)
        if known.worker is not None and known.lease_us:
            self.engine.renew_lease(known.worker, known.lease_us)
        return known

    def _note_connection(self, known: KnownWorker, identity: bytes) -> None:
        """Note that a worker uses a connection, if its request has just arrived.

        Later, when a request is handled in steps, its connection may be closed, and `peer_gone` was called already.
        """
        if self.is_arriving:
            known.identities.add(identity)
            self._speakers.setdefault(identity, {})[known.name] = known

    def reporter(self, name: bytes, identity: bytes) -> KnownWorker:
        """The worker that reports on tasks, listed from now on; without room for it, the report is still handled."""
        try:
            known = self.known_worker(name, identity)
        except Refused:
            return KnownWorker(name, 0)
        known.listed = True
        return known

    def register_worker(self, known: KnownWorker) -> Worker:
        """Register a location that asks for tasks as a worker of the engine."""
        worker = known.worker = self.engine.add_worker(self, self.protocol, known.name)
        self.engine.can_do(worker, self.function)
        if known.lease_us:
            self.engine.renew_lease(worker, known.lease_us)
        if known.tags is not None or known.resources is not None:
            self.engine.describe_worker(worker, known.tags, known.resources)
        return worker

    def describe(self, known: KnownWorker, query: Query) -> None:
        """Note the tags and resources that a Steal states; raises PeerError and Refused."""
        try:
            if query.tags is not None:
                known.tags = tag_set(query.tags.decode())
            if query.resources is not None:
                known.resources = resource_amounts(query.resources.decode())
        except UnicodeDecodeError as error:
            raise PeerError("tags and resources are UTF-8", code="MALFORMED") from error
        except ValueError as error:
            raise PeerError(str(error), code="MALFORMED") from error
        if known.worker is not None:
            self.engine.describe_worker(known.worker, known.tags, known.resources)

    def sent_home(self, known: KnownWorker) -> None:
        """Handle a worker that was told that no tasks are left. It may ask again, so it stays registered for its
        lease."""
        if known.holds_nothing() and known.lease_us and (known.identities or known.leaving is None):
            self.leave_unless_heard(known, known.lease_us)

    def leave_unless_heard(self, known: KnownWorker, within_us: int) -> None:
        """Deregister a worker without tasks unless it sends a request in time.

        That is not logged as a loss: the worker was told that no tasks are left, or has closed its connections.
        """
        worker = known.worker
        if worker is None:
            return
        self._stay(known)
        if known.holds_nothing():
            self.engine.suspend_lease(worker)
        try:
            known.leaving = self.engine.set_timer(self, self.engine.now_us + within_us)
        except Refused:  # there is no memory for that
            self.context.soon(partial(self._deregister_idle, known))
        else:
            self._leaving[known.leaving] = known

    def _stay(self, known: KnownWorker) -> None:
        """Keep a worker registered that was to be deregistered."""
        if known.leaving is not None:
            self._leaving.pop(known.leaving, None)
            self.engine.cancel_timer(known.leaving)
            known.leaving = None

    def timer_fired(self, timer: Timer) -> None:
        known = self._leaving.pop(timer, None)
        if known is not None:
            known.leaving = None
            self._deregister_idle(known)

    def _deregister_idle(self, known: KnownWorker) -> None:
        """Deregister a worker without tasks. If it is listed, its Exit is still answered OK."""
        if known.holds_nothing() and self.known_workers.get(known.name) is known:
            if known.worker is not None:
                self.engine.remove_worker(known.worker)
                known.worker = None
            if not known.listed:
                self._remove(known)

    def _remove(self, known: KnownWorker) -> None:
        """Remove a worker from the engine and from the known locations."""
        self.known_workers.remove(known)
        self.engine.memory.registration_bytes -= LOCATION_BYTES + len(known.name)
        self._stay(known)
        for identity in known.identities:
            self._forget_connection(known, identity)
        known.identities = set()

    def _forget_connection(self, known: KnownWorker, identity: bytes) -> None:
        spoken_for = self._speakers.get(identity)
        if spoken_for is not None:
            spoken_for.pop(known.name, None)
            if not spoken_for:
                del self._speakers[identity]

    def forget(self, known: KnownWorker, cause: Cause) -> None:
        """Forget a worker; its tasks are requeued."""
        self._remove(known)
        if known.worker is not None:
            self.engine.remove_worker(known.worker, cause)
        self._answer_blocked(known, self.nothing_ready())

    def job_held(self, known: KnownWorker, task_name: bytes) -> Job | None:
        """The job of a task, if this worker has it."""
        job = self.engine.named(task_name)
        worker = known.worker
        if job is not None and job.worker is worker and worker is not None:
            return job
        return known.unnamed_job(task_name) if known.unnamed else None

    def task_label(self, job_id: int) -> str:
        """The name of an unfinished job in answers."""
        job = self.engine.look_at(job_id)
        return f"task {shown(job.name)}" if job is not None and job.name else f"job {job_id}"

    def task_name(self, known: KnownWorker, job: Job) -> bytes:
        """The name of a job that this worker got."""
        name = job.payload or b""
        if job.name != name or not name:
            known.hold_unnamed(name, job)
        return name

    # --- waiting Steals ---

    def wait(self, known: KnownWorker, worker: Worker, envelope: Message, wait_us: int) -> bool:
        """Answer a Steal when there is a task, or when its time is over; False if this Steal cannot wait."""
        most = self.engine.settings.jobs_per_worker
        if self._blocked >= MOST_BLOCKED or (most and len(worker.running) + len(known.blocked) >= most):
            return False
        memory = self.engine.memory
        if not memory.has_registration_room(waiting_bytes(envelope), FOR_WAITING):
            return False
        ticket = self.engine.grant_until(worker, self.engine.now_us + min(wait_us, LONGEST_WAIT_US))
        if not ticket:
            return False
        known.blocked[ticket] = envelope
        self._waiting.setdefault(envelope[0], {})[ticket] = known
        memory.registration_bytes += waiting_bytes(envelope)
        self._blocked += 1
        if not worker.running:
            self.engine.suspend_lease(worker)  # a worker that blocks in a Steal cannot send signs of life
        return True

    def _unblock(self, known: KnownWorker, ticket: int) -> Message:
        """End the wait of the Steal with this ticket."""
        self._blocked -= 1
        if known.lease_us:
            self.context.soon(partial(self._renew_lease, known))
        envelope = known.blocked.pop(ticket)
        self._stopped_waiting(ticket, envelope)
        return envelope

    def _stopped_waiting(self, ticket: int, envelope: Message) -> None:
        self.engine.memory.registration_bytes -= waiting_bytes(envelope)
        tickets = self._waiting.get(envelope[0])
        if tickets is not None:
            tickets.pop(ticket, None)
            if not tickets:
                del self._waiting[envelope[0]]

    def peer_gone(self, identity: bytes) -> None:
        """End the waits of a peer whose connection is closed. A worker is identified by its location, so it keeps
        its tasks for its lease."""
        super().peer_gone(identity)
        speakers = list(self._speakers.pop(identity, {}).values())
        for known in speakers:
            known.identities.discard(identity)
        if len(speakers) <= LEAVING_AT_ONCE:
            self._await_return(speakers)
        else:  # such as a proxy
            self.context.work_off(self._await_return_in_steps(speakers))
        for ticket, known in list(self._waiting.get(identity, {}).items()):
            self._unblock(known, ticket)
            if known.worker is not None:
                self.engine.cancel_ticket(known.worker, ticket)

    def _await_return_in_steps(self, speakers: list[KnownWorker]) -> Iterator[Step]:
        for start in range(0, len(speakers), LEAVING_AT_ONCE):
            self._await_return(speakers[start : start + LEAVING_AT_ONCE])
            yield False

    def _await_return(self, speakers: list[KnownWorker]) -> None:
        """Deregister those of the workers that have no connection left, unless they return within seconds."""
        for known in speakers:
            if not known.identities and self.known_workers.get(known.name) is known:
                self.leave_unless_heard(known, RETURN_US)

    def _renew_lease(self, known: KnownWorker) -> None:
        worker = known.worker
        if worker is not None and known.leaving is None and (worker.running or not known.blocked):
            self.engine.renew_lease(worker, known.lease_us)

    def _answer_blocked(self, known: KnownWorker, payload: bytes) -> None:
        for ticket, envelope in known.blocked.items():
            self._stopped_waiting(ticket, envelope)
            self.answer(envelope, payload)
        self._blocked -= len(known.blocked)
        known.blocked = {}

    def closed(self) -> None:
        """End all waits: the listener is being closed."""
        payload = with_reason(QueryType.NOT_FOUND, "server is shutting down")
        for known in self.known_workers:
            if known.blocked and known.worker is not None:
                self.engine.withdraw_credit(known.worker)
                self._answer_blocked(known, payload)

    # --- events of the engine ---

    def assign_job(self, worker: Worker, job: Job) -> None:
        known = self.known_workers.get(worker.name)
        if known is None or known.worker is not worker or not known.blocked:
            self.context.soon(partial(self.engine.release, worker, job.id))
            return
        envelope = self._unblock(known, next(iter(known.blocked)))
        known.listed = True
        now_us = self.engine.now_us
        answer = Handout(envelope, worker, [job], now_us)
        answer.append(self.transfers.write([self.task_name(known, job)], now_us, traces_of([job])))
        self.send(answer)

    def wait_timed_out(self, worker: Worker, ticket: int) -> None:
        known = self.known_workers.get(worker.name)
        if known is None or known.worker is not worker or ticket not in known.blocked:
            return
        envelope = self._unblock(known, ticket)
        payload = self.nothing_ready()
        self.answer(envelope, payload)
        if payload is EXIT:
            self.context.soon(partial(self.sent_home, known))

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        """Forget a task of a worker, which cannot be told; its report on the task will be answered with NotFound."""
        self.context.soon(partial(self._release_revoked, worker, job))

    def _release_revoked(self, worker: Worker, job: Job) -> None:
        if job.worker is not worker:  # otherwise it has got the job again
            self.engine.release(worker, job.id)

    def expired(self, worker: Worker) -> None:
        known = self.known_workers.get(worker.name)
        if known is not None and known.worker is worker:
            known.worker = None
            self._remove(known)
            self._answer_blocked(known, self.nothing_ready())

    def unreachable(self, message: Message) -> None:
        """Take back tasks that could not be delivered to their worker."""
        if isinstance(message, Handout):
            for job in message.jobs:
                cause, at_us = job.log[-1]
                if job.worker is message.worker and cause is Cause.TAKEN and at_us <= message.time_us:
                    self.engine.release(message.worker, job.id)


def traces_of(jobs: list[Job]) -> list[bytes] | None:
    """The traces of tasks that are handed out; None if they have none."""
    for job in jobs:
        if job.trace:
            return [each.trace for each in jobs]
    return None


def waiting_bytes(envelope: Message) -> int:
    """The approximate memory of a waiting Steal."""
    return WAITING_BYTES + sum([FRAME_BYTES + len(frame) for frame in envelope])


def shown(name: bytes) -> str:
    """The name of a task in the form that an answer may quote."""
    return harmless(name.decode("utf-8", "replace"))


def with_reason(kind: QueryType, reason: str) -> bytes:
    return encode(Query(kind, reason=harmless(reason).encode()))


def error_text(reason: str) -> bytes:
    return with_reason(QueryType.ERROR, reason)
