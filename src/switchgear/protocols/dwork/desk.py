"""What all requests of a dwork server share: answers, the workers that ask, and news from the engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from mypy_extensions import mypyc_attr

from switchgear.errors import Refused
from switchgear.memory import FOR_WAITING
from switchgear.model import SECOND_US, Cause, Job, Worker
from switchgear.protocols.base import Context, Message, MessageSession, Wire
from switchgear.protocols.dwork.codec import TransferWriter, encode
from switchgear.protocols.dwork.locations import Location, Locations
from switchgear.protocols.dwork.messages import Query, QueryType
from switchgear.protocols.dwork.planning import FailedTasks
from switchgear.text import harmless

__all__ = ["EXIT", "NOT_FOUND", "OK", "Desk", "DworkSetup", "Handout", "error_text", "with_reason"]

OK: Final = encode(Query(QueryType.OK))
NOT_FOUND: Final = encode(Query(QueryType.NOT_FOUND))
EXIT: Final = encode(Query(QueryType.EXIT))

# Each Steal that waits is held in memory; beyond this many the next is answered at once.
MOST_BLOCKED = 100_000
# One that waits for somebody who is gone does so for no longer than this.
LONGEST_WAIT_US: Final = 86_400 * SECOND_US

# What a location takes in memory beside its name and its worker, about; a Steal that waits; and a frame of it.
LOCATION_BYTES: Final = 700
NEW_WORKER_BYTES: Final = 3 * LOCATION_BYTES  # and what the engine takes for its worker
WAITING_BYTES: Final = 500
FRAME_BYTES: Final = 50

# Looking for tasks that wait for other functions' jobs must not take long; if there may be some beyond, there are.
MOST_EDGES_LOOKED_AT: Final = 20_000


@dataclass(slots=True)
class DworkSetup:
    """What a dwork listener is told."""

    function: bytes = b"dwork"
    lease_us: int = 3_600_000_000  # 0: a worker may be silent for ever
    host: bytes = b""  # the server's own name


@mypyc_attr(native_class=False)  # no compiled class can be a list
class Handout(list[bytes]):
    """An answer with tasks.  It knows the jobs, so that they can be taken back if it cannot be delivered."""

    __slots__ = ("jobs", "time_us", "worker")

    def __init__(self, envelope: Message, worker: Worker, jobs: list[Job], time_us: int) -> None:
        super().__init__(envelope)
        self.worker = worker
        self.jobs = jobs
        self.time_us = time_us


class Desk(MessageSession):
    """One listener's side of all conversations."""

    protocol = "dwork"

    def __init__(self, context: Context, wire: Wire, setup: DworkSetup) -> None:
        super().__init__(context, wire)
        self.setup = setup
        self.locations = Locations()
        self.failed = FailedTasks(context)
        self.transfers = TransferWriter(setup.host)
        self.function = self.engine.function_named(setup.function)
        self.function.released_first = True
        self.is_changing = False  # a request of very many tasks changes what tasks wait for
        self._blocked = 0  # Steals, of all locations
        self._waiting: dict[bytes, dict[int, Location]] = {}  # the same by who sent them, and by ticket
        self._looked_at = (0, 0, 0)  # when it was last found out whether all is stuck
        self._was_stuck = False

    # --- answers ---

    def answer(self, envelope: Message, payload: bytes) -> None:
        envelope.append(payload)
        self.send(envelope)

    def answer_when_kept(self, envelope: Message, payload: bytes, jobs: Iterable[Job] = ()) -> None:
        """Answer once everything that was done until now is kept; the answer may promise new jobs."""
        envelope.append(payload)
        if self.context.keeps:
            self.promise(envelope, jobs)
        else:
            self.send(envelope)

    def refused_message(self, answer: Message, refused: Refused) -> Message:
        return [*answer[:-1], error_text(str(refused))]

    def nothing_ready(self) -> bytes:
        """The answer to a Steal that gets nothing."""
        return EXIT if not self.function.total or self._is_stuck() else NOT_FOUND

    def _is_stuck(self) -> bool:
        """Whether all tasks that are left wait for tasks that failed."""
        function = self.function
        if function.total != function.waiting:
            return False
        engine = self.engine
        if engine.job_count() == function.total:
            return True
        # Some may wait for another function's job, which may still be done.  It is not looked for with every request.
        moment = (engine.now_us // SECOND_US, function.submitted, function.waiting)
        if moment != self._looked_at:
            self._looked_at = moment
            successors = engine.graph.successors
            self._was_stuck = len(successors) <= MOST_EDGES_LOOKED_AT and all(map(self._is_own_or_over, successors))
        return self._was_stuck

    def _is_own_or_over(self, job_id: int) -> bool:
        job = self.engine.look_at(job_id)
        return job is None or job.function is self.function

    def edges_were_added(self) -> None:
        """Tasks wait for more than they did."""
        self._looked_at = (0, 0, 0)

    # --- workers ---

    def location_of(self, name: bytes) -> Location:
        """The worker that sent a request, which is a sign of life; raises Refused if there are too many."""
        location = self.locations.get(name)
        if location is None:
            is_full = not self.engine.memory.has_registration_room(NEW_WORKER_BYTES + len(name), FOR_WAITING)
            superfluous = self.locations.superfluous(is_full=is_full)
            if superfluous is not None:
                self.forget(superfluous, Cause.WORKER_LOST)
            self.engine.refuse_registrations(1, FOR_WAITING)
            location = self.locations.add(name, self.setup.lease_us)
            self.engine.memory.registration_bytes += LOCATION_BYTES + len(name)
        elif location.worker is not None and location.lease_us:
            self.engine.renew_lease(location.worker, location.lease_us)
        return location

    def reporter(self, name: bytes) -> Location:
        """The worker that reports on tasks, from now on a listed one; if there is no room, it is heard all the same."""
        try:
            location = self.location_of(name)
        except Refused:
            return Location(name, 0)
        location.listed = True
        return location

    def hire(self, location: Location) -> Worker:
        """Let a location that asks for tasks be a worker."""
        worker = location.worker = self.engine.add_worker(self, self.protocol, location.name)
        self.engine.can_do(worker, self.function)
        if location.lease_us:
            self.engine.renew_lease(worker, location.lease_us)
        return worker

    def dismiss(self, location: Location) -> None:
        """A worker was told that there is nothing left to do.  It may come back, but need not say goodbye."""
        if location.holds_nothing() and self.locations.get(location.name) is location:
            if location.worker is not None:
                self.engine.remove_worker(location.worker)
                location.worker = None
            if not location.listed:
                self._remove(location)

    def _remove(self, location: Location) -> None:
        """Nothing is known of this location any more."""
        self.locations.remove(location)
        self.engine.memory.registration_bytes -= LOCATION_BYTES + len(location.name)

    def forget(self, location: Location, cause: Cause) -> None:
        """This is a worker no more; what it held goes back."""
        self._remove(location)
        if location.worker is not None:
            self.engine.remove_worker(location.worker, cause)
        self._answer_blocked(location, self.nothing_ready())

    def job_held(self, location: Location, task_name: bytes) -> Job | None:
        """The job of that task, if this worker has it."""
        job = self.engine.names.get(task_name)
        worker = location.worker
        if job is not None and job.worker is worker and worker is not None:
            return job
        return location.unnamed_job(task_name) if location.unnamed else None

    def task_name(self, location: Location, job: Job) -> bytes:
        """What a job that this worker got is called."""
        name = job.payload or b""
        if job.name != name or not name:
            location.hold_unnamed(name, job)
        return name

    # --- Steals that wait ---

    def wait(self, location: Location, worker: Worker, envelope: Message, wait_us: int) -> bool:
        """Answer when there is a task, or the time is over; False if this Steal cannot wait."""
        most = self.engine.settings.jobs_per_worker
        if self._blocked >= MOST_BLOCKED or (most and len(worker.running) + len(location.blocked) >= most):
            return False
        memory = self.engine.memory
        if not memory.has_registration_room(waiting_bytes(envelope), FOR_WAITING):
            return False
        ticket = self.engine.grant_until(worker, self.engine.now_us + min(wait_us, LONGEST_WAIT_US))
        if not ticket:
            return False
        location.blocked[ticket] = envelope
        self._waiting.setdefault(envelope[0], {})[ticket] = location
        memory.registration_bytes += waiting_bytes(envelope)
        self._blocked += 1
        if not worker.running:
            self.engine.suspend_lease(worker)  # one that can only wait cannot give signs of life
        return True

    def _unblock(self, location: Location, ticket: int) -> Message:
        """The Steal of this ticket is over."""
        self._blocked -= 1
        if location.lease_us:
            self.context.soon(partial(self._renew_lease, location))
        envelope = location.blocked.pop(ticket)
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
        """Its Steals wait no more.  A worker is known by its location, so what it has stays its own for its lease."""
        for ticket, location in list(self._waiting.get(identity, {}).items()):
            self._unblock(location, ticket)
            if location.worker is not None:
                self.engine.cancel_ticket(location.worker, ticket)

    def _renew_lease(self, location: Location) -> None:
        worker = location.worker
        if worker is not None and (worker.running or not location.blocked):
            self.engine.renew_lease(worker, location.lease_us)

    def _answer_blocked(self, location: Location, payload: bytes) -> None:
        for ticket, envelope in location.blocked.items():
            self._stopped_waiting(ticket, envelope)
            self.answer(envelope, payload)
        self._blocked -= len(location.blocked)
        location.blocked = {}

    def closed(self) -> None:
        """The server stops, and there will be no task for those who wait."""
        payload = with_reason(QueryType.NOT_FOUND, "server is shutting down")
        for location in self.locations:
            if location.blocked and location.worker is not None:
                self.engine.withdraw_credit(location.worker)
                self._answer_blocked(location, payload)

    # --- news from the engine ---

    def assign(self, worker: Worker, job: Job) -> None:
        location = self.locations.get(worker.name)
        if location is None or location.worker is not worker or not location.blocked:
            self.context.soon(partial(self.engine.hand_back, worker, job.id))
            return
        envelope = self._unblock(location, next(iter(location.blocked)))
        if not self.has_payload(worker, job):
            self.answer(envelope, NOT_FOUND)
            return
        location.listed = True
        now_us = self.engine.now_us
        answer = Handout(envelope, worker, [job], now_us)
        answer.append(self.transfers.write([self.task_name(location, job)], now_us))
        self.send_job(job, answer)

    def waited_in_vain(self, worker: Worker, ticket: int) -> None:
        location = self.locations.get(worker.name)
        if location is None or location.worker is not worker or ticket not in location.blocked:
            return
        envelope = self._unblock(location, ticket)
        payload = self.nothing_ready()
        self.answer(envelope, payload)
        if payload is EXIT:
            self.context.soon(partial(self.dismiss, location))

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        """A worker cannot be told; should it report on the task, that will not be found."""
        self.context.soon(partial(self._let_go, worker, job))

    def _let_go(self, worker: Worker, job: Job) -> None:
        if job.worker is not worker:  # or it has got it again
            self.engine.hand_back(worker, job.id)

    def expired(self, worker: Worker) -> None:
        location = self.locations.get(worker.name)
        if location is not None and location.worker is worker:
            location.worker = None
            self._remove(location)
            self._answer_blocked(location, self.nothing_ready())

    def unreachable(self, message: Message) -> None:
        """If these were tasks for a worker, it has not got them."""
        if isinstance(message, Handout):
            for job in message.jobs:
                cause, at_us = job.log[-1]
                if job.worker is message.worker and cause is Cause.TAKEN and at_us <= message.time_us:
                    self.engine.hand_back(message.worker, job.id)


def waiting_bytes(envelope: Message) -> int:
    """What a Steal that waits takes in memory, about."""
    return WAITING_BYTES + sum([FRAME_BYTES + len(frame) for frame in envelope])


def with_reason(kind: QueryType, reason: str) -> bytes:
    return encode(Query(kind, reason=harmless(reason).encode()))


def error_text(reason: str) -> bytes:
    return with_reason(QueryType.ERROR, reason)
