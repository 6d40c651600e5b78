"""One Gearman connection: packets to engine calls, news to packets.

A connection may be client, worker and administrator at once; the protocol does not tell them apart, so neither does
this. Handlers only translate.  What happens to a job is the engine's decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from switchgear.engine.core import REFUSED_CONFLICT, REFUSED_LIMIT
from switchgear.errors import PeerError, Refused
from switchgear.model import CANCELLED, DONE, Job, Worker
from switchgear.protocols.base import Context, Listed, Session, Wire, number_in_handle
from switchgear.protocols.gearman.codec import FOREIGN_MAGIC, HEADER, REQUEST, RESPONSE, TEXT, Decoder, response
from switchgear.protocols.gearman.messages import ARGUMENTS, Packet
from switchgear.text import harmless

__all__ = [
    "GearmanSession",
    "GearmanSetup",
    "first_argument",
    "leading_number",
    "refusal_code",
    "split",
]

NOOP: Final = response(Packet.NOOP)

# When long answers of so many bytes wait to be sent, further requests are put off until the peer has taken them: a few
# bytes of requests must not fill the memory with answers.
LONG_BYTES: Final = 8 * 1024 * 1024
LONG_ANSWER_BYTES: Final = 4096
REFUSAL_CODES: Final = {REFUSED_LIMIT: b"ARGUMENT_TOO_LARGE", REFUSED_CONFLICT: b"INVALID_ARGUMENT"}


@dataclass(slots=True)
class GearmanSetup:
    """What the sessions of one listener share."""

    handle_prefix: bytes  # up to and including the colon before the number
    version: str
    on_request: Mapping[int, Callable[[GearmanSession, bytes], None]]
    on_line: Callable[[GearmanSession, bytes], None]
    exceptions: bool = False
    packet_bytes: int = 64 * 1024 * 1024
    line_bytes: int = 8192
    name_bytes: int = 512
    shutdown: str = "loopback"
    log_level: str = "INFO"
    sessions: dict[Listed, None] = field(default_factory=dict)


class GearmanSession(Session):
    """A conversation in the modern protocol, with text commands in between."""

    protocol = "gearman"

    def __init__(self, context: Context, wire: Wire, setup: GearmanSetup) -> None:
        super().__init__(context, wire)
        self.setup = setup
        self.on_request = setup.on_request
        self.decoder = Decoder(REQUEST, setup.packet_bytes, setup.line_bytes)
        self.prefix = setup.handle_prefix
        self.keeps = context.keeps
        self.client_id = b"-"
        self.exceptions = setup.exceptions
        self.worker: Worker | None = None  # from the first time it acts like one
        self.assigned: dict[bytes, int] = {}  # the jobs this worker has, by handle
        self.ended = False  # the peer will send no more
        self.threw = 0  # the job that ended with this worker's last exception
        setup.sessions[self] = None

    # --- the wire side ---

    def receive(self, data: bytes) -> None:
        if self.closing:
            return
        messages = self.decoder.feed(data)
        if self.put_off:
            messages = self.put_off + messages
            self.put_off = []
        if self.long_bytes and not self.out:
            self.long_bytes = 0
        on_request = self.on_request
        pending = iter(messages)
        for kind, body in pending:
            if self.long_bytes > LONG_BYTES:
                self.put_off = [(kind, body), *pending]
                self.mark()
                return
            handler = on_request.get(kind)
            if handler is None:
                self._not_a_request(kind, body)
                if self.closing:
                    return
                continue
            try:
                handler(self, body)
            except PeerError as error:
                text = harmless(str(error))
                self.context.count_bad_input(self, error.code, text)
                self.send_error(error.code, text)
            except Refused as refused:
                self.send(self.refusal(refused))
        if self.out and not self.marked:
            self.mark()
        failure = self.decoder.failure
        if failure is not None:
            self._lose_framing(failure)
        elif self.ended:
            super().eof()

    def go_on(self) -> None:
        self.receive(b"")

    def eof(self) -> None:
        self.ended = True
        if not self.put_off:
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

    def _not_a_request(self, kind: int, body: bytes) -> None:
        if kind == TEXT:
            self.setup.on_line(self, body)
        elif kind == FOREIGN_MAGIC:
            self.context.count_bad_input(self, "INVALID_MAGIC", "response magic from a peer")
            self.send_error("INVALID_MAGIC", "Request magic expected")
        else:
            self.context.count_bad_input(self, "INVALID_COMMAND", f"packet type {kind} is not a request")
            self.send_error("INVALID_COMMAND", "Command not expected")

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
        return response(Packet.ERROR, refusal_code(refused), str(refused).encode())

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

    # --- news from the engine ---

    def wake(self, worker: Worker) -> None:
        self.send(NOOP)

    def revoke(self, worker: Worker, job: Job) -> None:
        # The protocol has no words for this.  A job that timed out is not the worker's any more; a cancelled one
        # is until it reports, so that its report is not answered with an error.
        if job.id not in worker.running:
            self.assigned.pop(self.handle(job), None)

    def job_progress(self, job: Job) -> None:
        words = job.progress_text or b"%d\0%d" % (job.numerator, job.denominator)
        self.send(response(Packet.WORK_STATUS, self.handle(job), words))

    def job_data(self, job: Job, data: bytes) -> None:
        self.send(response(Packet.WORK_DATA, self.handle(job), data))

    def job_warning(self, job: Job, data: bytes) -> None:
        self.send(response(Packet.WORK_WARNING, self.handle(job), data))

    def job_finished(self, job: Job) -> None:
        handle = self.handle(job)
        if job.state is DONE:
            size = len(handle) + 1 + len(job.result)
            self.send(b"%b%b\0%b" % (HEADER.pack(RESPONSE, Packet.WORK_COMPLETE, size), handle, job.result))
        elif job.error is not None and self.exceptions and job.state is not CANCELLED:
            self.send(response(Packet.WORK_EXCEPTION, handle, job.error))
        else:
            self.send(response(Packet.WORK_FAIL, handle))
        if job.delivery:
            self.pledge()


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


def leading_number(text: bytes) -> int:
    """The digits a text starts with, as a number; 0 if there are none."""
    digits = 0
    for byte in text.strip():
        if not 48 <= byte <= 57:
            break
        digits += 1
    return int(text.strip()[: min(digits, 18)] or b"0")
