"""One connection in the 2005 draft: packets to engine calls, news to packets.

A connection may be application and worker at once.  A worker has one task at a time, and what it announces carries no
handle: the connection names the task.  So a task that was taken from its worker, because it timed out, still counts as
the worker's until it reports the end; otherwise that report would be taken for one on the next task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from switchgear.errors import PeerError, Refused
from switchgear.model import FINAL_STATES, NORMAL, Delivery, Job, Worker
from switchgear.protocols.base import MOST_FUNCTIONS, Context, Listed, Session, Wire, number_in_handle
from switchgear.protocols.gearman_draft.answers import OpenRequest, OpenRequests, completion_of, progress_of
from switchgear.protocols.gearman_draft.codec import Decoder, packet
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
from switchgear.text import harmless

__all__ = ["ON_PACKET", "DraftSession", "DraftSetup"]

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

# Answers are given in order, so one job that takes long holds up all that was asked after it; a peer cannot make us
# remember any number of questions.
MOST_OPEN_REQUESTS = 10_000

# One large result may be asked for any number of times in one breath.  What is written down before anything is sent has
# to fit in memory.
MOST_ANSWER_BYTES = 256 * 1024 * 1024


@dataclass(slots=True)
class DraftSetup:
    """What the sessions of one listener share."""

    handle_prefix: bytes  # up to and including the colon before the number
    packet_bytes: int = 64 * 1024 * 1024
    name_bytes: int = 512
    sessions: dict[Listed, None] = field(default_factory=dict)
    ended_job: Job | None = None  # the last one that somebody was told of, in this turn
    completion: bytes = b""  # that packet

    def forget_completion(self) -> None:
        """The turn is over."""
        self.ended_job = None
        self.completion = b""


class DraftSession(Session):
    """A conversation in the 2005 draft."""

    protocol = "gearman-draft"
    collects_data = True  # there is no packet for part of a result

    def __init__(self, context: Context, wire: Wire, setup: DraftSetup) -> None:
        super().__init__(context, wire)
        self.setup = setup
        self.decoder = Decoder(setup.packet_bytes)
        self.client_id = b"-"
        self.worker: Worker | None = None  # from the first time it acts like one
        self.task = 0  # the job that the worker was given and has not ended
        self.requests = OpenRequests()
        self._counted = self.out
        self._counted_bytes = 0  # of the answers in it
        setup.sessions[self] = None

    # --- the wire side ---

    def receive(self, data: bytes) -> None:
        if self.closing:
            return
        for kind, body in self.decoder.feed(data):
            if self.closing:
                return
            try:
                self._on_packet(kind, body)
            except PeerError as error:
                self._complain(error)
            except Refused as refused:
                self.send(self.refusal(refused))
        failure = self.decoder.failure
        if failure is not None and not self.closing:  # it may have said goodbye before
            self._lose(failure)

    def _on_packet(self, kind: int, body: bytes) -> None:
        handler = ON_PACKET.get(kind)
        if handler is None:
            raise PeerError(f"a server takes no packet of type {kind}", code=ErrorCode.UNEXPECTED.name)
        if body and kind in WITHOUT_BODY:
            raise malformed(f"{Packet(kind).name.lower()} takes no arguments")
        handler(self, body)

    @property
    def buffered_bytes(self) -> int:
        return self.decoder.buffered_bytes + self.requests.held_bytes

    def closed(self) -> None:
        self.setup.sessions.pop(self, None)
        self.engine.unwatch(self)  # first, so that a job that it did for itself is not queued again
        self.drop_worker()

    def drop_worker(self) -> None:
        """This is a worker no more; its task goes back."""
        if self.worker is not None:
            self.engine.remove_worker(self.worker)
            self.worker = None
            self.task = 0

    def _complain(self, error: PeerError) -> None:
        text = harmless(str(error))
        self.context.count_bad_input(self, error.code, text)
        self.send(packet(Packet.ERROR, ErrorReport(ErrorCode[error.code], text).pack()))

    def _lose(self, error: PeerError) -> None:
        """This is the end of the conversation."""
        self._complain(error)
        self.requests.clear()
        self.closing = True

    def refusal(self, refused: Refused) -> bytes:
        return packet(Packet.ERROR, ErrorReport(ErrorCode.REFUSED, harmless(str(refused))).pack())

    # --- names, handles, workers ---

    def short(self, name: bytes, what: str) -> bytes:
        """A name or key that is not too long."""
        if len(name) > self.setup.name_bytes:
            raise PeerError(f"{what} over {self.setup.name_bytes} bytes", code=ErrorCode.TOO_LARGE.name)
        return name

    def as_worker(self) -> Worker:
        """This connection as a worker, from the first time it acts like one."""
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
        """Whether one more request may be left open."""
        if len(self.requests) >= MOST_OPEN_REQUESTS:
            text = f"{MOST_OPEN_REQUESTS} requests of this connection are open already"
            raise PeerError(text, code=ErrorCode.BUSY.name)

    def answer_in_turn(self, request: OpenRequest) -> None:
        """Answer this request when all before it are answered."""
        self.requests.add(request)
        self._answer_due()

    def _answer_due(self) -> None:
        while (request := self.requests.take_due()) is not None:
            answer = self._answer_to(request)
            if not self._has_room_for(answer) or (answer is not request.answer and not self._may_answer(answer)):
                text = f"answers of more than {MOST_ANSWER_BYTES} bytes at once"
                self._lose(PeerError(text, code=ErrorCode.TOO_LARGE.name))
                return
            self.send(answer)
        oldest = self.requests.new_oldest()
        if oldest is not None and (oldest.numerator or oldest.denominator):
            self.job_progress(oldest)  # what it has missed

    def _answer_to(self, request: OpenRequest) -> bytes:
        job = request.job
        if request.answer and job is not None:
            if job.delivery:
                self.pledge()
            return request.answer
        try:
            if job is None or job.state not in FINAL_STATES:  # the engine may have put it away, and go on with another
                job = self.context.find_job(request.job_id)
            elif not job.entry_bytes:  # what it came to is not in memory any more
                job = self.ended_job(request.job_id)
        except Refused as refused:
            return self.refusal(refused)
        if job is None:
            return UNKNOWN_HANDLE
        if job.delivery and job.state in FINAL_STATES:
            self.pledge()
        return request.answer_about(job)

    def _has_room_for(self, answer: bytes) -> bool:
        """Whether this can be sent along with what was not sent yet."""
        if self.out is not self._counted:  # what was counted is on its way
            self._counted = self.out
            self._counted_bytes = 0
        fits = not self._counted_bytes or self._counted_bytes + len(answer) <= MOST_ANSWER_BYTES
        self._counted_bytes += len(answer)
        return fits

    def _may_answer(self, answer: bytes) -> bool:
        """Whether an answer that nobody shares fits into what all may be answered in one turn."""
        self.engine.memory.answer_bytes += len(answer)
        return not self.engine.memory.answers_must_wait

    # --- news from the engine ---

    def wake(self, worker: Worker) -> None:
        self.send(NOOP)

    def job_progress(self, job: Job) -> None:
        if self.requests.is_oldest(job):
            self.send(packet(Packet.JOB_STATUS_RES, progress_of(job).pack()))

    def job_finished(self, job: Job) -> None:
        self.requests.job_ended(job, self._completion(job))
        self._answer_due()

    def _completion(self, job: Job) -> bytes:
        """How a job has ended.  All who wait for the same job share the packet."""
        setup = self.setup
        if setup.ended_job is not job:
            setup.ended_job = job
            setup.completion = packet(Packet.JOB_COMPLETE_RES, completion_of(job).pack())
            self.context.soon(setup.forget_completion)
        return setup.completion


# --- what workers say ---


def on_worker_connect(session: DraftSession, body: bytes) -> None:
    names = [session.short(name, "job name") for name in split_names(body, MOST_FUNCTIONS)]
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
    if job is None or not session.can_hand_out(worker, job):
        session.send(NOOP)
        return
    session.task = job.id
    session.send(packet(Packet.JOB_ASSIGN_RES, Assignment(job.function.name, job.payload or b"").pack()))


def on_status_announce(session: DraftSession, body: bytes) -> None:
    numerator, denominator, seconds_left = Progress.unpack(body)
    worker = session.worker_with_task()
    session.engine.progress(worker, session.task, numerator, denominator, seconds_left or -1)


def on_complete_announce(session: DraftSession, body: bytes) -> None:
    code, data = Result.unpack(body)
    worker = session.worker_with_task()
    if code:
        job = session.engine.fail(worker, session.task, code, data or None, data)
    else:
        job = session.engine.complete(worker, session.task, data)
    session.task = 0
    if job is not None and job.delivery:
        session.pledge()


# --- what applications ask ---


def on_job_create(session: DraftSession, body: bytes) -> None:
    name, dupkey, job_type, args, _ = JobRequest.unpack(body)
    waits = job_type is JobType.SYNC_WAIT
    if waits:
        session.check_room()
    session.short(name, "job name")
    session.short(dupkey, "duplicate key")
    job = session.engine.submit(name, dupkey, args, NORMAL, DELIVERIES[job_type])
    if not waits:
        handle = b"%b%d" % (session.setup.handle_prefix, job.id) if job_type is JobType.ASYNC_HANDLE else b""
        session.send(packet(Packet.JOB_CREATE_RES, handle))
        session.pledge_job(job)
        return
    is_over = job.state in FINAL_STATES  # it holds the key beyond its end, and nobody will be told of that again
    if not is_over and job.id not in session.watching:  # one that has the key of another wait here is heard of once
        session.engine.watch(job, session)
    session.send(CREATED)
    session.answer_in_turn(OpenRequest(Packet.JOB_CREATE_REQ, job.id, job))
    if is_over:
        session.job_finished(session.held_end(job))


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
