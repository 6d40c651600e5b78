"""`DraftSession`: one connection of the 2005 draft; translates packets into engine calls, and events into packets.

A connection may be application and worker at once. A worker has one task at a time, and its reports carry no handle:
the connection identifies the task. So a task that was taken from its worker, because it timed out, still counts as the
worker's until it reports the end; otherwise that report would count for the next task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from switchgear.errors import PeerError, Refused
from switchgear.model import FINAL_STATES, NORMAL, Delivery, Job, Worker
from switchgear.protocols.context import Context, Listed
from switchgear.protocols.gearman_draft.codec import DraftDecoder, packet
from switchgear.protocols.gearman_draft.messages import (
    WITHOUT_BODY,
    Assignment,
    ErrorCode,
    ErrorReport,
    JobRequest,
    JobType,
    Packet,
    Progress,
    Result,
    malformed,
    split_names,
)
from switchgear.protocols.gearman_draft.open_requests import OpenRequest, OpenRequests, completion_of, progress_of
from switchgear.protocols.handles import MOST_FUNCTIONS, number_in_handle
from switchgear.protocols.pending_read import PendingRead, Reading, Step, close_steps
from switchgear.protocols.session import ByteSession
from switchgear.protocols.transport import PeerTransport
from switchgear.text import harmless
from switchgear.verbs.access import Role

__all__ = ["ON_PACKET", "PACKET_ROLES", "DraftSession", "DraftSetup"]

SUBMIT: Final = frozenset({Role.SUBMIT})
WORK: Final = frozenset({Role.WORK})
FOLLOW: Final = frozenset({Role.SUBMIT, Role.READ})  # a submitter follows its jobs by their handles

NOOP: Final = packet(Packet.NOOP)
CREATED: Final = packet(Packet.JOB_CREATE_RES)
UNKNOWN_HANDLE: Final = packet(
    Packet.ERROR, ErrorReport(ErrorCode.UNKNOWN_HANDLE, "no job of this server, or dropped from its log").pack()
)
DELIVERIES: Final = {
    JobType.SYNC_WAIT: Delivery.WAIT,
    JobType.ASYNC_HANDLE: Delivery.HANDLE,
    JobType.ASYNC_THROW_AWAY: Delivery.THROW_AWAY,
}

# Answers are given in order, so one long job delays all later answers; the number of open requests of a peer is
# limited.
MOST_OPEN_REQUESTS = 10_000

# One large result may be requested many times at once. Answers that are not sent yet have to fit into memory.
MOST_ANSWER_BYTES = 256 * 1024 * 1024


@dataclass(slots=True)
class DraftSetup:
    """Settings and state that the sessions of one listener share."""

    handle_prefix: bytes  # up to and including the colon before the number
    packet_bytes: int = 64 * 1024 * 1024
    name_bytes: int = 512
    sessions: dict[Listed, None] = field(default_factory=dict)
    ended_job: Job | None = None  # the last job whose end was sent in this turn
    completion: bytes = b""  # the packet with its end

    def forget_completion(self) -> None:
        """Drop the cached packet at the end of the turn."""
        self.ended_job = None
        self.completion = b""


class DraftSession(ByteSession):
    """The session of one connection of the 2005 draft."""

    protocol = "gearman-draft"
    collects_data = True  # there is no packet for part of a result

    def __init__(self, context: Context, transport: PeerTransport, setup: DraftSetup) -> None:
        super().__init__(context, transport)
        self.setup = setup
        self.decoder = DraftDecoder(setup.packet_bytes)
        self.client_id = b"-"
        self.worker: Worker | None = None  # set when it first acts as a worker
        self.task = 0  # the job that the worker was assigned and has not ended
        self.requests = OpenRequests()
        self._is_answering = False  # the answer to the oldest request is being read; later ones wait
        self._readings: dict[int, Iterator[Step]] = {}  # operations that wait for the store
        self._last_reading = 0
        self._has_ended = False  # the peer has closed its side
        self._counted = self.out
        self._counted_bytes = 0  # bytes of answers in `_counted`
        setup.sessions[self] = None

    # --- called by the connection ---

    def handle_data(self, data: bytes) -> None:
        if self.closing:
            return
        packets = self.decoder.feed(data)
        if self.deferred:
            packets = self.deferred + packets
            self.deferred = []
        for index, (kind, body) in enumerate(packets):
            if self.operation is not None:  # a task is being read; answers come in the order of the requests
                self.deferred = packets[index:]
                return
            if self.closing:
                return
            try:
                self._on_packet(kind, body)
            except PeerError as error:
                self._complain(error)
            except Refused as refused:
                self.send(self.refusal(refused))
        failure = self.decoder.failure
        if failure is not None and not self.closing and self.operation is None:  # the peer may have left before
            self._lose(failure)

    def handle_deferred(self) -> None:
        if self.operation is not None:
            self.resume_operation()
            return
        self.handle_data(b"")
        if self._has_ended and not self._readings and self.operation is None:
            super().eof()

    def _on_packet(self, kind: int, body: bytes) -> None:
        handler = ON_PACKET.get(kind)
        if handler is None:
            raise PeerError(f"a server takes no packet of type {kind}", code=ErrorCode.UNEXPECTED.name)
        if body and kind in WITHOUT_BODY:
            raise malformed(f"{Packet(kind).name.lower()} takes no arguments")
        if self.is_guarded:
            self.require(Packet(kind).name.lower(), PACKET_ROLES[kind])
        handler(self, body)

    @property
    def buffered_bytes(self) -> int:
        return self.decoder.buffered_bytes + self.requests.held_bytes

    @property
    def awaited_bytes(self) -> int:
        return self.decoder.awaited_bytes

    def closed(self) -> None:
        self.abandon_read()
        for operation in list(self._readings.values()):
            close_steps(operation)
        self.setup.sessions.pop(self, None)
        self.engine.unsubscribe(self)  # first, so that its own jobs are not requeued
        self.drop_worker()

    def drop_worker(self) -> None:
        """Deregister the worker; its task is requeued."""
        if self.worker is not None:
            self.engine.remove_worker(self.worker)
            self.worker = None
            self.task = 0

    def _complain(self, error: PeerError) -> None:
        text = harmless(str(error))
        self.context.count_bad_input(self, error.code, text)
        self.send(packet(Packet.ERROR, ErrorReport(ErrorCode[error.code], text).pack()))

    def _lose(self, error: PeerError) -> None:
        """Close the connection after lost framing."""
        self._complain(error)
        self.requests.clear()
        self.closing = True

    def refusal(self, refused: Refused) -> bytes:
        return packet(Packet.ERROR, ErrorReport(ErrorCode.REFUSED, harmless(str(refused))).pack())

    def answer_with_id(self, answer: bytes, job_id: int) -> bytes:
        if answer == CREATED:  # without a handle
            return answer
        return packet(Packet.JOB_CREATE_RES, b"%b%d" % (self.setup.handle_prefix, job_id))

    # --- names, handles, workers ---

    def short(self, name: bytes, what: str) -> bytes:
        """A name or key, checked for its length."""
        if len(name) > self.setup.name_bytes:
            raise PeerError(f"{what} over {self.setup.name_bytes} bytes", code=ErrorCode.TOO_LARGE.name)
        return name

    def as_worker(self) -> Worker:
        """The worker of this connection, registered on first use."""
        if self.worker is None:
            self.worker = self.engine.add_worker(self, self.protocol)
        return self.worker

    def worker_with_task(self) -> Worker:
        """This worker, which must have a task."""
        if self.worker is None or not self.task:
            raise PeerError("an announcement without a task", code=ErrorCode.UNEXPECTED.name)
        return self.worker

    def worker_without_task(self, wish: str) -> Worker:
        """This worker, which must not have a task."""
        if self.task:
            raise PeerError(f"a worker that has a task cannot {wish}", code=ErrorCode.BUSY.name)
        return self.as_worker()

    # --- answers in the order of the requests ---

    def check_room(self) -> None:
        """Check whether one more request may stay open; raises PeerError."""
        if len(self.requests) >= MOST_OPEN_REQUESTS:
            text = f"{MOST_OPEN_REQUESTS} requests of this connection are open already"
            raise PeerError(text, code=ErrorCode.BUSY.name)

    def answer_in_turn(self, request: OpenRequest) -> None:
        """Answer this request after all earlier ones."""
        self.requests.add(request)
        self._answer_due()

    def _answer_due(self) -> None:
        """Answer the oldest requests, unless that is in progress: finished jobs have to be read from the store."""
        while not self._is_answering and (request := self.requests.take_due()) is not None:
            if request.answer:
                self._give(request, request.answer)
            else:
                self._is_answering = True
                self.read_apart(self._answer_from(request))
        self._tell_missed_progress()

    def _answer_from(self, request: OpenRequest | None) -> Iterator[Step]:
        """Answer this request, and then all others that are due."""
        try:
            while request is not None and not self.closing:
                answer = request.answer
                if not answer:
                    answer = yield from self._answer_to(request)
                self._give(request, answer)
                request = self.requests.take_due()
        finally:
            self._is_answering = False
        self._tell_missed_progress()

    def _give(self, request: OpenRequest, answer: bytes) -> None:
        if not self._has_room_for(answer) or (answer is not request.answer and not self._may_answer(answer)):
            text = f"answers of more than {MOST_ANSWER_BYTES} bytes at once"
            self._lose(PeerError(text, code=ErrorCode.TOO_LARGE.name))
        else:
            self.send(answer)

    def _tell_missed_progress(self) -> None:
        """Send the present progress of the job that the oldest request waits for, when it becomes the oldest."""
        if self._is_answering:
            return
        oldest = self.requests.new_oldest()
        if oldest is not None and (oldest.numerator or oldest.denominator):
            self.job_progress(oldest)

    def read_apart(self, steps: Iterator[Step]) -> None:
        """Run an operation that reads the store; other requests of the peer are handled meanwhile."""
        self._last_reading += 1
        operation = self._readings[self._last_reading] = self._until_read(self._last_reading, steps)
        self.context.work_off(operation)

    def _until_read(self, number: int, steps: Iterator[Step]) -> Iterator[Step]:
        try:
            yield from steps
        finally:
            close_steps(steps)
            del self._readings[number]
            if self._has_ended and not self._readings:
                super().eof()

    def eof(self) -> None:
        """The peer still gets the answers that are being read."""
        self._has_ended = True
        if not self._readings and self.operation is None:
            super().eof()

    def _answer_to(self, request: OpenRequest) -> Reading[bytes]:
        job = request.job
        try:
            # The engine may have packed the job, and use another object.
            if job is None or job.state not in FINAL_STATES:
                job = yield from self.context.find_job(request.job_id)
                if job is not None:
                    job = yield from self.context.find_live(job)
            elif not job.entry_bytes:  # its result is not in memory any more
                job = yield from self.ended_job(request.job_id)
        except Refused as refused:
            return self.refusal(refused)
        if job is None or (self.is_guarded and not self.permissions.covers(job.function.told_name)):
            return UNKNOWN_HANDLE
        if job.entry_bytes and job.delivery and job.state in FINAL_STATES:
            self.await_commit()  # its end may not be stored yet
        return request.answer_about(job)

    def _has_room_for(self, answer: bytes) -> bool:
        """Whether this can be sent together with all unsent output."""
        if self.out is not self._counted:  # the counted output was sent
            self._counted = self.out
            self._counted_bytes = 0
        fits = not self._counted_bytes or self._counted_bytes + len(answer) <= MOST_ANSWER_BYTES
        self._counted_bytes += len(answer)
        return fits

    def _may_answer(self, answer: bytes) -> bool:
        """Whether an answer that is not shared fits into the limit of all answers of this turn."""
        self.engine.memory.answer_bytes += len(answer)
        return not self.engine.memory.answers_must_wait

    # --- events of the engine ---

    def wake(self, worker: Worker) -> None:
        self.send(NOOP)

    def job_progress(self, job: Job) -> None:
        if not self._is_answering and self.requests.is_oldest(job):
            self.send(packet(Packet.JOB_STATUS_RES, progress_of(job).pack()))

    def job_finished(self, job: Job) -> None:
        self.requests.job_ended(job, self._completion(job))
        self._answer_due()

    def _completion(self, job: Job) -> bytes:
        """The packet with the end of a job, shared by all connections that wait for it."""
        setup = self.setup
        if setup.ended_job is not job:
            setup.ended_job = job
            setup.completion = packet(Packet.JOB_COMPLETE_RES, completion_of(job).pack())
            self.context.soon(setup.forget_completion)
        return setup.completion


# --- packets of workers ---


def on_worker_connect(session: DraftSession, body: bytes) -> None:
    names = [session.short(name, "job name") for name in split_names(body, MOST_FUNCTIONS)]
    for name in names:
        session.require("worker_connect", WORK, name)
    session.engine.refuse_registrations(len(names))
    functions = [session.engine.function_named(name) for name in names]
    worker = session.as_worker()
    session.engine.forget_functions(worker)
    for function in functions:
        session.engine.can_do(worker, function)


def on_worker_disconnect(session: DraftSession, body: bytes) -> None:
    session.drop_worker()
    session.closing = True
    session.mark()


def on_worker_sleep(session: DraftSession, body: bytes) -> None:
    if not session.engine.sleep(session.worker_without_task("sleep")):
        session.send(NOOP)


def on_job_assign(session: DraftSession, body: bytes) -> None:
    worker = session.worker_without_task("ask for another")
    job = session.engine.take(worker)
    if job is not None:
        assign(session, job)
        return
    wait = session.context.awaited_payload(worker)
    if wait is None:
        session.send(NOOP)
    else:
        session.work_off(assign_when_read(session, worker, wait))


def assign_when_read(session: DraftSession, worker: Worker, wait: PendingRead) -> Iterator[Step]:
    job = yield from session.take_when_read(worker, wait)
    if job is None:
        session.send(NOOP)
    else:
        assign(session, job)


def assign(session: DraftSession, job: Job) -> None:
    session.task = job.id
    session.send(packet(Packet.JOB_ASSIGN_RES, Assignment(job.function.told_name, job.payload or b"").pack()))


def on_status_announce(session: DraftSession, body: bytes) -> None:
    numerator, denominator, seconds_left = Progress.unpack(body)
    worker = session.worker_with_task()
    session.engine.progress(worker, session.task, numerator, denominator, seconds_left or -1)


def on_complete_announce(session: DraftSession, body: bytes) -> None:
    code, data = Result.unpack(body)
    worker = session.worker_with_task()
    if code:
        session.engine.fail(worker, session.task, code, data or None, data)
    else:
        session.engine.complete(worker, session.task, data)
    session.task = 0


# --- packets of applications ---


def on_job_create(session: DraftSession, body: bytes) -> None:
    name, dupkey, job_type, args, _ = JobRequest.unpack(body)
    waits = job_type is JobType.SYNC_WAIT
    if waits:
        session.check_room()
    session.short(name, "job name")
    session.short(dupkey, "duplicate key")
    session.require("job_create_req", SUBMIT, name)
    job = session.engine.submit(name, dupkey, args, NORMAL, DELIVERIES[job_type])
    if not waits:
        handle = b"%b%d" % (session.setup.handle_prefix, job.id) if job_type is JobType.ASYNC_HANDLE else b""
        session.send(packet(Packet.JOB_CREATE_RES, handle))
        return
    is_over = job.state in FINAL_STATES  # it holds the key beyond its end, which will not be reported again
    if (
        not is_over and job.id not in session.subscriptions
    ):  # a request that joins another wait of this connection is subscribed once
        session.engine.subscribe(job, session)
    session.send(CREATED)
    session.answer_in_turn(OpenRequest(Packet.JOB_CREATE_REQ, job.id, job))
    if is_over:
        session.read_apart(held_end_told(session, job))


def held_end_told(session: DraftSession, held: Job) -> Iterator[Step]:
    """Answer requests for a finished job that still holds its duplicate key."""
    job = yield from session.held_end(held)
    session.job_finished(job)


def on_status_request(session: DraftSession, body: bytes) -> None:
    ask(session, Packet.JOB_STATUS_REQ, body)


def on_complete_request(session: DraftSession, body: bytes) -> None:
    ask(session, Packet.JOB_COMPLETE_REQ, body)


def ask(session: DraftSession, kind: Packet, handle: bytes) -> None:
    session.check_room()
    job_id = number_in_handle(handle, session.setup.handle_prefix)
    session.answer_in_turn(OpenRequest(kind, job_id, session.engine.job(job_id)))


ON_PACKET: Final[dict[int, Callable[[DraftSession, bytes], None]]] = {
    Packet.WORKER_CONNECT: on_worker_connect,
    Packet.WORKER_DISCONNECT: on_worker_disconnect,
    Packet.WORKER_SLEEP: on_worker_sleep,
    Packet.JOB_CREATE_REQ: on_job_create,
    Packet.JOB_ASSIGN_REQ: on_job_assign,
    Packet.JOB_STATUS_ANNOUNCE: on_status_announce,
    Packet.JOB_STATUS_REQ: on_status_request,
    Packet.JOB_COMPLETE_ANNOUNCE: on_complete_announce,
    Packet.JOB_COMPLETE_REQ: on_complete_request,
}

PACKET_ROLES: Final[dict[int, frozenset[Role]]] = {
    Packet.WORKER_CONNECT: WORK,
    Packet.WORKER_DISCONNECT: WORK,
    Packet.WORKER_SLEEP: WORK,
    Packet.JOB_CREATE_REQ: SUBMIT,
    Packet.JOB_ASSIGN_REQ: WORK,
    Packet.JOB_STATUS_ANNOUNCE: WORK,
    Packet.JOB_STATUS_REQ: FOLLOW,
    Packet.JOB_COMPLETE_ANNOUNCE: WORK,
    Packet.JOB_COMPLETE_REQ: FOLLOW,
}
