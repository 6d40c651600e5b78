"""`GearmanSession`: one Gearman connection; translates packets into engine calls, and engine events into packets.

A connection may be client, worker and administrator at once; the protocol does not distinguish them. Handlers only
translate; the engine decides what happens to a job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from switchgear.engine.predecessor_error import error_told
from switchgear.errors import PeerError, Refused
from switchgear.model import DONE, Cause, Job, Worker
from switchgear.protocols.context import Context, Listed
from switchgear.protocols.framing import Message
from switchgear.protocols.gearman.codec import (
    FOREIGN_MAGIC,
    HEADER,
    REQUEST,
    RESPONSE,
    TEXT,
    GearmanDecoder,
    JobPackets,
    response,
)
from switchgear.protocols.gearman.job_packets import (
    COMPLETE,
    bad_end_start,
    job_push,
    last_packet,
    progress_packet,
    revocation,
)
from switchgear.protocols.gearman.messages import ARGUMENTS, BEFORE_PAYLOAD, Packet
from switchgear.protocols.handles import number_in_handle
from switchgear.protocols.session import ByteSession
from switchgear.protocols.transport import PeerTransport
from switchgear.refusals import REFUSALS
from switchgear.text import harmless
from switchgear.verbs.access import AccessRules, refusal_of
from switchgear.verbs.operator_verb import OperatorVerb

__all__ = [
    "GearmanSession",
    "GearmanSetup",
    "OpenGraph",
    "first_argument",
    "refusal_code",
    "split",
]

NOOP: Final = response(Packet.NOOP)
DATA: Final = JobPackets(Packet.WORK_DATA)
WARNING: Final = JobPackets(Packet.WORK_WARNING)

# When this many bytes of long answers are unsent, further requests are deferred until the peer has read them: a few
# bytes of requests must not fill the memory with answers.
LONG_BYTES: Final = 8 * 1024 * 1024
LONG_ANSWER_BYTES: Final = 4096
# A worker with much credit is sent this many jobs, and further ones when it has read these.
MOST_PUSHED: Final = 500
REFUSAL_CODES: Final = {reason: refusal.gearman.encode() for reason, refusal in REFUSALS.items()}

# After these causes a job is not the worker's any more, and may be pushed to it again.
TAKEN_AWAY: Final = (Cause.TIMED_OUT, Cause.HELD_BACK)
# REVOKEs that a worker may leave without an answer; beyond that the oldest counts as answered.
MOST_REVOKED: Final = 10_000


@dataclass(slots=True)
class GearmanSetup:
    """Settings and state that the sessions of one listener share."""

    handle_prefix: bytes  # up to and including the colon before the number
    version: str
    on_messages: Callable[[GearmanSession, list[Message]], None]
    on_line: Callable[[GearmanSession, bytes], None]
    exceptions: bool = False
    sleep_ends_time_limits: bool = False  # PRE_SLEEP ends those of CAN_DO_TIMEOUT for jobs in hand
    packet_bytes: int = 64 * 1024 * 1024
    line_bytes: int = 8192
    name_bytes: int = 512
    long_bytes: int = LONG_BYTES
    long_answer_bytes: int = LONG_ANSWER_BYTES
    access: AccessRules = field(default_factory=AccessRules)
    log_level: str = "INFO"
    sessions: dict[Listed, None] = field(default_factory=dict)


class OpenGraph:
    """A graph that a client has begun, with the parts that have arrived."""

    __slots__ = ("held_bytes", "ids", "parts", "refusal")

    def __init__(self, ids: range) -> None:
        self.ids = ids
        self.parts: list[bytes] = []
        self.held_bytes = 0  # of the parts, counted in the memory account
        self.refusal = ""  # why the parts were dropped


class GearmanSession(ByteSession):
    """The session of one connection: Gearman packets, with text commands in between."""

    protocol = "gearman"

    def __init__(self, context: Context, transport: PeerTransport, setup: GearmanSetup) -> None:
        super().__init__(context, transport)
        self.setup = setup
        self.on_messages = setup.on_messages
        self.decoder = GearmanDecoder(REQUEST, setup.packet_bytes, setup.line_bytes, BEFORE_PAYLOAD)
        self.long_start = b""  # the arguments of a long packet, before its payload
        self.prefix = setup.handle_prefix
        self.is_durable = context.is_durable
        self.client_id = b"-"
        self.exceptions = setup.exceptions
        self.extended = False  # the peer understands the extension packets
        self.wants_traces = False  # the traces of jobs are pushed with them
        self.worker: Worker | None = None  # set when it first acts as a worker
        self.handle_bytes = 0  # the length of the last handle that a worker reported on
        self.last_function = b""  # the function of the last submission
        self.last_name = b"\0"  # its name with the NUL after it, as at the start of a packet
        self.unique_bytes = 0  # the length of its unique key
        self.ended = False  # the peer has closed its side
        self.threw = 0  # the job that ended with this worker's last exception
        self.followed: set[int] = set()  # jobs that it is subscribed to only because they were just promised to it
        # Jobs that were taken from the worker, and how many REVOKEs for each it has yet to answer with HAND_BACK.
        self.revoked: dict[int, int] = {}
        self.takes_pushes = False  # it has granted credit at some time
        self.pushed_jobs = self.pushed_bytes = 0  # since the peer last had read all output
        self.held_credit = 0  # credit that the engine does not get until then
        self.lease_us = 0  # how long the worker counts as alive after each message; 0: as long as the connection
        self.graphs: dict[int, OpenGraph] = {}  # by their first ids; not the one that is being submitted
        self.is_gone = False  # the connection is closed
        setup.sessions[self] = None

    # --- called by the connection ---

    def handle_data(self, data: bytes) -> None:
        if self.closing:
            return
        if self.lease_us and data:
            self._renew_lease()
        messages = self.decoder.feed(data)
        if self.operation is not None:
            self.deferred += messages
            self.mark()
            return
        if self.deferred:
            messages = self.deferred + messages
            self.deferred = []
        if self.long_bytes and not self.out:
            self.long_bytes = 0
        self.on_messages(self, messages)
        if (self.out or self.deferred) and not self.marked:
            self.mark()
        if self.deferred or self.closing or self._is_at_work():  # answers come in the order of the requests
            return
        failure = self.decoder.failure
        if failure is not None:
            self._lose_framing(failure)
        elif self.ended:
            super().eof()

    def _is_at_work(self) -> bool:
        """Whether a request that was just begun runs in steps."""
        return self.operation is not None

    def handle_deferred(self) -> None:
        if self.operation is not None:
            self.resume_operation()
            return
        if self.write_paused:
            self.write_paused = False
            self.pushed_bytes = 0
            self.pushed_jobs = 0
            self.grant(0)
        self.handle_data(b"")

    def eof(self) -> None:
        self.ended = True
        self.take_back_credit(self.held_credit + (self.worker.credits if self.worker is not None else 0))
        self.write_paused = False
        if not self.deferred and self.operation is None:
            super().eof()

    @property
    def buffered_bytes(self) -> int:
        return self.decoder.buffered_bytes

    @property
    def awaited_bytes(self) -> int:
        return self.decoder.awaited_bytes

    def closed(self) -> None:
        self.abandon_read()
        self.setup.sessions.pop(self, None)
        for first_id in list(self.graphs):
            self.drop_graph(first_id)
        self.is_gone = True
        self.engine.unsubscribe(self)  # first, so that its own foreground jobs are not requeued
        if self.worker is not None:
            self.engine.remove_worker(self.worker)
            self.worker = None

    def not_a_request(self, kind: int, body: bytes) -> None:
        """Handle a line of text, or a packet that only a server may send."""
        if kind == TEXT:
            self.setup.on_line(self, body)
        elif kind == FOREIGN_MAGIC:
            self.context.count_bad_input(self, "INVALID_MAGIC", "response magic from a peer")
            self.send_error("INVALID_MAGIC", "Request magic expected")
        else:
            self.context.count_bad_input(self, "INVALID_COMMAND", f"packet type {kind} is not a request")
            self.send_error("INVALID_COMMAND", "Command not expected")

    def answer_error(self, error: PeerError | Refused) -> None:
        """Answer a request with an error."""
        if isinstance(error, Refused):
            self.send(self.refusal(error))
            return
        text = harmless(str(error))
        self.context.count_bad_input(self, error.code, text)
        self.send_error(error.code, text)

    def _lose_framing(self, failure: PeerError) -> None:
        """Answer with the reason, if the peer would understand it, and close: no further input can be decoded."""
        self.context.count_bad_input(self, failure.code, str(failure))
        if failure.code != "LINE_TOO_LONG":  # a client of the text protocol would not understand a packet
            self.send_error(failure.code, str(failure))
        self.closing = True
        self.mark()

    def send_error(self, code: str, text: str) -> None:
        self.send(response(Packet.ERROR, code.encode(), text.encode()))

    def refusal(self, refused: Refused) -> bytes:
        text = refused.told(lambda job_id: f"{self.prefix.decode(errors='replace')}{job_id}")
        return response(Packet.ERROR, refusal_code(refused), text.encode())

    def answer_with_id(self, answer: Any, job_id: int) -> Any:
        return response(Packet.JOB_CREATED, b"%b%d" % (self.prefix, job_id))

    def follows_promise(self, job: Job) -> bool:
        return job.id in self.followed

    def release(self) -> list[bytes]:
        if self.followed:
            self.followed.difference_update([job.id for _, job in self.held_jobs if job.kept])
        return super().release()

    def refuse_withdrawn(self, refused: Refused) -> None:
        self.followed.difference_update([job.id for _, job in self.promised_jobs if job.withdrawn])
        super().refuse_withdrawn(refused)

    # --- handles and names ---

    def handle(self, job: Job) -> bytes:
        return b"%b%d" % (self.prefix, job.id)

    def job_id(self, handle: bytes) -> int:
        """The id in a handle of this server, or 0."""
        return number_in_handle(handle, self.prefix)

    def name_of(self, body: bytes) -> bytes:
        """A function name, checked for its length."""
        if len(body) > self.setup.name_bytes:
            raise PeerError(f"Function name over {self.setup.name_bytes} bytes", code="ARGUMENT_TOO_LARGE")
        return body

    def require_access(self, verb: OperatorVerb) -> None:
        """Refuse a verb that the peer may not use; raises PeerError or Refused."""
        self.require(verb.name, verb.roles)
        if self.is_guarded or not self.transport.access.is_open:
            return  # an identity has the role
        refusal = refusal_of(verb, self.transport, self.setup.access)
        if refusal:
            raise PeerError(refusal, code="NOT_ALLOWED")

    def may_see(self, function: bytes) -> bool:
        """Whether the peer may see this function and its jobs."""
        return not self.is_guarded or self.permissions.covers(function)

    # --- graphs ---

    def drop_graph(self, first_id: int) -> None:
        """Forget a graph, if it is known."""
        graph = self.graphs.pop(first_id, None)
        if graph is not None:
            self.drop_parts(graph)

    def drop_parts(self, graph: OpenGraph) -> None:
        """Forget what has arrived of a graph."""
        self.engine.memory.draft_bytes -= graph.held_bytes
        graph.held_bytes = 0
        graph.parts = []

    # --- credit ---

    def grant(self, credit: int) -> None:
        """Add credit of the worker; how much of it the engine gets at once depends on how fast the worker reads."""
        self.held_credit += credit
        if self.worker is not None and not self.write_paused:
            credit, self.held_credit = self.held_credit, 0
            self.engine.grant(self.worker, credit)

    def take_back_credit(self, credit: int) -> None:
        """Take back credit that is not used yet."""
        if self.worker is not None:
            credit -= self.engine.take_back_credit(self.worker, credit)
        self.held_credit = max(0, self.held_credit - credit)

    def use_lease(self, lease_us: int) -> None:
        """Set the worker's lease; 0: none."""
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

    # --- events of the engine ---

    def assign(self, worker: Worker, job: Job) -> None:
        if self.closing or self.ended:  # otherwise the job would be lost, and is not to blame
            self.take_back_credit(self.held_credit + worker.credits)
            self.context.soon(partial(self.engine.release, worker, job.id))
            return
        packet = job_push(self.prefix, worker, job, job.payload or b"", self.wants_traces)
        self.send(packet)
        self.pushed_bytes += len(packet)
        self.pushed_jobs += 1
        if (self.pushed_bytes > self.setup.long_bytes or self.pushed_jobs >= MOST_PUSHED) and not self.write_paused:
            self.write_paused = True
            self.held_credit += self.engine.take_back_credit(worker, worker.credits)

    def expired(self, worker: Worker) -> None:
        """The engine has given the worker's jobs to others; the peer has to register again."""
        self.worker = None
        text = f"Nothing was heard within the lease of {self.lease_us // 1000} ms"
        self.lease_us = self.held_credit = 0
        self.write_paused = False
        self.deferred = []
        self.send_error("LEASE_EXPIRED", text)
        self.closing = True

    def wake(self, worker: Worker) -> None:
        self.send(NOOP)

    def control_worker(self, worker: Worker, number: int, request: bytes) -> bool:
        if worker.status is None:
            return False
        self.send(response(Packet.WORKER_CONTROL, b"%d" % number, request))
        return True

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        # The plain protocol has no packet for this.
        if self.takes_pushes:
            self.send(revocation(self.handle(job), cause))
            if cause in TAKEN_AWAY:
                self.revoked[job.id] = self.revoked.pop(job.id, 0) + 1
                if len(self.revoked) > MOST_REVOKED:
                    del self.revoked[next(iter(self.revoked))]

    def reporter(self, job_id: int) -> Worker | None:
        """The worker, if its report on this job counts: not if the job was taken from it and it may not know yet."""
        return None if self.revoked and job_id in self.revoked else self.worker

    def confirm_revocation(self, job_id: int) -> bool:
        """The worker hands back a job.  If that answers a REVOKE, whatever it reports from now on is about a later
        attempt."""
        count = self.revoked.get(job_id, 0)
        if count > 1:
            self.revoked[job_id] = count - 1
        elif count:
            del self.revoked[job_id]
        return count > 0

    def job_progress(self, job: Job) -> None:
        self.send(progress_packet(self.handle(job), job, extended=self.extended))

    def job_data(self, job: Job, data: bytes) -> None:
        self._tell(DATA, job, data)

    def job_warning(self, job: Job, data: bytes) -> None:
        self._tell(WARNING, job, data)

    def _tell(self, packets: JobPackets, job: Job, data: bytes) -> None:
        """Pass on data of a worker. Many peers may receive it, and share long data."""
        start = packets.start(self.prefix, job.id, len(data) + 1)
        if len(data) <= self.setup.long_answer_bytes:
            self.send(b"%b%d\0%b" % (start, job.id, data))
        else:
            self.send(b"%b%d\0" % (start, job.id))
            self.send(data)

    def job_finished(self, job: Job) -> None:
        if job.state is DONE and len(job.result) > self.setup.long_answer_bytes:
            self._tell(COMPLETE, job, job.result)
        elif job.error is not None and len(job.error) > self.setup.long_answer_bytes:
            self._tell_long_error(job)
        else:
            self.send(self.last_packet(job))

    def _tell_long_error(self, job: Job) -> None:
        """Send the end of a failed job, whose long error other peers may share."""
        start = bad_end_start(self.prefix, job, exceptions=self.exceptions, extended=self.extended)
        error = error_told(job, self.handle_text)
        if start is None or error is None:
            self.send(self.last_packet(job))
        else:
            kind, body = start
            self.send(HEADER.pack(RESPONSE, kind, len(body) + len(error)) + body)
            self.send(error)

    def handle_text(self, job_id: int) -> str:
        """The handle of a job as text."""
        return f"{self.prefix.decode(errors='replace')}{job_id}"

    def last_packet(self, job: Job) -> bytes:
        """The packet with the end of a job for this peer."""
        return last_packet(self.prefix, job, exceptions=self.exceptions, extended=self.extended)


def refusal_code(refused: Refused) -> bytes:
    """The protocol's error code for a refusal."""
    return REFUSAL_CODES[refused.reason]


def split(body: bytes, kind: Packet) -> list[bytes]:
    """The arguments of a request; raises PeerError for a wrong number."""
    count = ARGUMENTS[kind]
    arguments = body.split(b"\0", count - 1)
    if len(arguments) != count:
        raise PeerError(f"{kind.name} takes {count} arguments, got {len(arguments)}")
    return arguments


def first_argument(body: bytes) -> bytes:
    """The only argument of a request; like gearmand, this ignores what follows a NUL."""
    return body.partition(b"\0")[0]
