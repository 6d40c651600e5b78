"""One Gearman connection: packets to engine calls, news to packets.

A connection may be client, worker and administrator at once; the protocol does not tell them apart, so neither does
this. Handlers only translate.  What happens to a job is the engine's decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from switchgear.engine.core import REFUSED_CONFLICT, REFUSED_LIMIT, REFUSED_UNIQUE
from switchgear.engine.edge_errors import error_told
from switchgear.errors import PeerError, Refused
from switchgear.model import DONE, Cause, Job, Worker
from switchgear.protocols.base import Context, Listed, Session, Wire, number_in_handle
from switchgear.protocols.framing import Message
from switchgear.protocols.gearman.codec import (
    FOREIGN_MAGIC,
    HEADER,
    REQUEST,
    RESPONSE,
    TEXT,
    Decoder,
    ResponseMaker,
    response,
)
from switchgear.protocols.gearman.messages import ARGUMENTS, Packet
from switchgear.protocols.gearman.news import (
    COMPLETE,
    bad_end_start,
    job_push,
    last_packet,
    progress_packet,
    revocation,
)
from switchgear.text import harmless

__all__ = [
    "GearmanSession",
    "GearmanSetup",
    "first_argument",
    "refusal_code",
    "split",
]

NOOP: Final = response(Packet.NOOP)
DATA: Final = ResponseMaker(Packet.WORK_DATA)
WARNING: Final = ResponseMaker(Packet.WORK_WARNING)

# When long answers of so many bytes wait to be sent, further requests are put off until the peer has taken them: a few
# bytes of requests must not fill the memory with answers.
LONG_BYTES: Final = 8 * 1024 * 1024
LONG_ANSWER_BYTES: Final = 4096
# A worker with much credit is sent so many jobs, and further ones when it has taken these.
MOST_PUSHED: Final = 500
REFUSAL_CODES: Final = {
    REFUSED_LIMIT: b"ARGUMENT_TOO_LARGE",
    REFUSED_CONFLICT: b"INVALID_ARGUMENT",
    REFUSED_UNIQUE: b"ALREADY_SUBMITTED",
}


@dataclass(slots=True)
class GearmanSetup:
    """What the sessions of one listener share."""

    handle_prefix: bytes  # up to and including the colon before the number
    version: str
    on_messages: Callable[[GearmanSession, list[Message]], None]
    on_line: Callable[[GearmanSession, bytes], None]
    exceptions: bool = False
    packet_bytes: int = 64 * 1024 * 1024
    line_bytes: int = 8192
    name_bytes: int = 512
    long_bytes: int = LONG_BYTES
    long_answer_bytes: int = LONG_ANSWER_BYTES
    shutdown: str = "same-user"
    log_level: str = "INFO"
    sessions: dict[Listed, None] = field(default_factory=dict)


class GearmanSession(Session):
    """A conversation in the modern protocol, with text commands in between."""

    protocol = "gearman"

    def __init__(self, context: Context, wire: Wire, setup: GearmanSetup) -> None:
        super().__init__(context, wire)
        self.setup = setup
        self.on_messages = setup.on_messages
        self.decoder = Decoder(REQUEST, setup.packet_bytes, setup.line_bytes)
        self.prefix = setup.handle_prefix
        self.keeps = context.keeps
        self.client_id = b"-"
        self.exceptions = setup.exceptions
        self.extended = False  # the peer understands the extension packets
        self.worker: Worker | None = None  # from the first time it acts like one
        self.handle_bytes = 0  # how long the last handle was that a worker reported on
        self.last_function = b""  # the name of the last one that a job was submitted to
        self.last_name = b"\0"  # and the NUL after it, as they begin a packet
        self.unique_bytes = 0  # how long its unique key was
        self.ended = False  # the peer will send no more
        self.threw = 0  # the job that ended with this worker's last exception
        self.followed: set[int] = set()  # jobs it was promised a moment ago, and watches for that reason alone
        self.takes_pushes = False  # it has granted credit, now or once
        self.pushed_jobs = self.pushed_bytes = 0  # since the peer was last known to have taken what it was sent
        self.held_credit = 0  # what the engine is not given until then
        self.lease_us = 0  # how long the worker lives after each sign of life; 0: as long as the connection
        setup.sessions[self] = None

    # --- the wire side ---

    def receive(self, data: bytes) -> None:
        if self.closing:
            return
        if self.lease_us and data:
            self._renew_lease()
        messages = self.decoder.feed(data)
        if self.operation is not None:
            self.put_off += messages
            self.mark()
            return
        if self.put_off:
            messages = self.put_off + messages
            self.put_off = []
        if self.long_bytes and not self.out:
            self.long_bytes = 0
        self.on_messages(self, messages)
        if (self.out or self.put_off) and not self.marked:
            self.mark()
        if self.put_off or self.closing or self._is_at_work():  # answers come in the order of the requests
            return
        failure = self.decoder.failure
        if failure is not None:
            self._lose_framing(failure)
        elif self.ended:
            super().eof()

    def _is_at_work(self) -> bool:
        """Whether a request that was begun just now is worked off in steps."""
        return self.operation is not None

    def go_on(self) -> None:
        if self.operation is not None:
            self.resume_operation()
            return
        if self.choked:
            self.choked = False
            self.pushed_bytes = 0
            self.pushed_jobs = 0
            self.grant(0)
        self.receive(b"")

    def eof(self) -> None:
        self.ended = True
        self.take_back_credit(self.held_credit + (self.worker.credits if self.worker is not None else 0))
        self.choked = False
        if not self.put_off and self.operation is None:
            super().eof()

    @property
    def buffered_bytes(self) -> int:
        return self.decoder.buffered_bytes

    def closed(self) -> None:
        self.setup.sessions.pop(self, None)
        self.engine.unwatch(self)  # first, so that a job that it did for itself is not queued again
        if self.worker is not None:
            self.engine.remove_worker(self.worker)
            self.worker = None

    def not_a_request(self, kind: int, body: bytes) -> None:
        """A line of text, or something that only a server may say."""
        if kind == TEXT:
            self.setup.on_line(self, body)
        elif kind == FOREIGN_MAGIC:
            self.context.count_bad_input(self, "INVALID_MAGIC", "response magic from a peer")
            self.send_error("INVALID_MAGIC", "Request magic expected")
        else:
            self.context.count_bad_input(self, "INVALID_COMMAND", f"packet type {kind} is not a request")
            self.send_error("INVALID_COMMAND", "Command not expected")

    def answer_error(self, error: PeerError | Refused) -> None:
        """What the peer asked for cannot be done."""
        if isinstance(error, Refused):
            self.send(self.refusal(error))
            return
        text = harmless(str(error))
        self.context.count_bad_input(self, error.code, text)
        self.send_error(error.code, text)

    def _lose_framing(self, failure: PeerError) -> None:
        """Nothing after this can be understood: say why where there are words for it, and hang up."""
        self.context.count_bad_input(self, failure.code, str(failure))
        if failure.code != "LINE_TOO_LONG":  # whoever speaks text would not understand a packet
            self.send_error(failure.code, str(failure))
        self.closing = True
        self.mark()

    def send_error(self, code: str, text: str) -> None:
        self.send(response(Packet.ERROR, code.encode(), text.encode()))

    def refusal(self, refused: Refused) -> bytes:
        text = refused.told(lambda job_id: f"{self.prefix.decode(errors='replace')}{job_id}")
        return response(Packet.ERROR, refusal_code(refused), text.encode())

    def follows_promise(self, job: Job) -> bool:
        return job.id in self.followed

    def release(self) -> list[bytes]:
        if self.followed:
            self.followed.difference_update([job.id for _, job in self.held_jobs if job.kept])
        return super().release()

    def refuse_withdrawn(self, refused: Refused) -> None:
        self.followed.difference_update([job.id for _, job in self.pledged_jobs if job.withdrawn])
        super().refuse_withdrawn(refused)

    # --- handles and names ---

    def handle(self, job: Job) -> bytes:
        return b"%b%d" % (self.prefix, job.id)

    def job_id(self, handle: bytes) -> int:
        """The number in a handle of ours, or 0."""
        return number_in_handle(handle, self.prefix)

    def name_of(self, body: bytes) -> bytes:
        """A function name that is not too long."""
        if len(body) > self.setup.name_bytes:
            raise PeerError(f"Function name over {self.setup.name_bytes} bytes", code="ARGUMENT_TOO_LARGE")
        return body

    # --- working for credit ---

    def grant(self, credit: int) -> None:
        """The worker takes so many more jobs; how many of them at once depends on how it reads."""
        self.held_credit += credit
        if self.worker is not None and not self.choked:
            credit, self.held_credit = self.held_credit, 0
            self.engine.grant(self.worker, credit)

    def take_back_credit(self, credit: int) -> None:
        """The worker takes so many jobs less, if it has not been sent them yet."""
        if self.worker is not None:
            credit -= self.engine.take_back_credit(self.worker, credit)
        self.held_credit = max(0, self.held_credit - credit)

    def use_lease(self, lease_us: int) -> None:
        """From now on the worker is taken for lost if nothing is heard of it for so long; 0: never."""
        if self.worker is not None and self.lease_us and not lease_us:
            self.engine.suspend_lease(self.worker)
        self.lease_us = lease_us
        self._renew_lease()

    def not_read(self) -> None:
        if self.worker is not None and self.lease_us:
            self.engine.suspend_lease(self.worker)

    def read_again(self) -> None:
        self._renew_lease()

    def _renew_lease(self) -> None:
        if self.worker is not None and self.lease_us:
            self.engine.renew_lease(self.worker, self.lease_us)

    # --- news from the engine ---

    def assign(self, worker: Worker, job: Job) -> None:
        if self.closing or self.ended:  # it would be lost, through no fault of its own
            self.take_back_credit(self.held_credit + worker.credits)
            self.context.soon(partial(self.engine.hand_back, worker, job.id))
            return
        payload = job.payload
        if payload is None:
            if not self.has_payload(worker, job):
                self.context.soon(partial(self.grant, 1))
                return
            payload = job.payload or b""
        packet = job_push(b"%b%d" % (self.prefix, job.id), worker, job, payload)
        self.send(packet)
        if self.keeps and job.delivery and self.engine.start_must_be_kept(job):
            self.pledge()  # should the server die now, it must remember that this attempt was made
        self.pushed_bytes += len(packet)
        self.pushed_jobs += 1
        if (self.pushed_bytes > self.setup.long_bytes or self.pushed_jobs >= MOST_PUSHED) and not self.choked:
            self.choked = True
            self.held_credit += self.engine.take_back_credit(worker, worker.credits)

    def expired(self, worker: Worker) -> None:
        """The engine has given the worker's jobs to others; it can only come back as a new one."""
        self.worker = None
        text = f"Nothing was heard within the lease of {self.lease_us // 1000} ms"
        self.lease_us = self.held_credit = 0
        self.choked = False
        self.put_off = []
        self.send_error("LEASE_EXPIRED", text)
        self.closing = True

    def wake(self, worker: Worker) -> None:
        self.send(NOOP)

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        # The plain protocol has no words for this.
        if self.takes_pushes:
            self.send(revocation(self.handle(job), cause))

    def job_progress(self, job: Job) -> None:
        self.send(progress_packet(self.handle(job), job, extended=self.extended))

    def job_data(self, job: Job, data: bytes) -> None:
        self._tell(DATA, job, data)

    def job_warning(self, job: Job, data: bytes) -> None:
        self._tell(WARNING, job, data)

    def _tell(self, packets: ResponseMaker, job: Job, data: bytes) -> None:
        """Pass on what a worker says.  Many may hear of it, and share what is long."""
        start = b"%b%d\0" % (self.prefix, job.id)
        if len(data) <= self.setup.long_answer_bytes:
            self.send(packets.packet(start + data))
        else:
            self.send(packets.beginning(start, len(data)))
            self.send(data)

    def job_finished(self, job: Job) -> None:
        if job.state is DONE and len(job.result) > self.setup.long_answer_bytes:
            self.send(COMPLETE.beginning(b"%b%d\0" % (self.prefix, job.id), len(job.result)))
            self.send(job.result)
        elif job.error is not None and len(job.error) > self.setup.long_answer_bytes:
            self._tell_long_error(job)
        else:
            self.send(self.last_packet(job))
        if job.delivery:
            self.pledge()

    def _tell_long_error(self, job: Job) -> None:
        """The same for a job that ended badly, whose error others may share."""
        start = bad_end_start(self.prefix, job, exceptions=self.exceptions, extended=self.extended)
        error = error_told(job, self.handle_text)
        if start is None or error is None:
            self.send(self.last_packet(job))
        else:
            kind, body = start
            self.send(HEADER.pack(RESPONSE, kind, len(body) + len(error)) + body)
            self.send(error)

    def handle_text(self, job_id: int) -> str:
        """The handle of a job, in a text."""
        return f"{self.prefix.decode(errors='replace')}{job_id}"

    def last_packet(self, job: Job) -> bytes:
        """How the end of a job is told to this peer."""
        return last_packet(self.prefix, job, exceptions=self.exceptions, extended=self.extended)


def refusal_code(refused: Refused) -> bytes:
    """The protocol's word for why something was refused."""
    return REFUSAL_CODES.get(refused.reason, b"QUEUE_ERROR")


def split(body: bytes, kind: Packet) -> list[bytes]:
    """The arguments of a request, as many as it must have."""
    count = ARGUMENTS[kind]
    arguments = body.split(b"\0", count - 1)
    if len(arguments) != count:
        raise PeerError(f"{kind.name} takes {count} arguments, got {len(arguments)}")
    return arguments


def first_argument(body: bytes) -> bytes:
    """The one argument of a request; what follows a NUL is ignored, as gearmand does."""
    return body.partition(b"\0")[0]
