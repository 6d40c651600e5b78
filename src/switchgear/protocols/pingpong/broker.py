"""The PING/PONG broker: clients on one socket, workers on the other, one function between them.

A worker's result does not say which job it belongs to.  What follows from that, and whether a worker is idle, at work
or owing, the engine decides (`engine/one_job_workers.py`).  The broker tells it what workers say: a PING, that the
worker is there; a READY, that it has just started.

A worker that simply goes would be sent one more job, in answer to its last result or until it expires.  So there is a
word of our own for leaving, which is sent back: after that no job comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from switchgear.engine.engine import OneJobRules
from switchgear.errors import Refused
from switchgear.model import NORMAL, SECOND_US, Cause, Delivery, Job, Worker
from switchgear.protocols.context import Context
from switchgear.protocols.message_session import MessageSession
from switchgear.protocols.multipart import Message, is_given_name
from switchgear.protocols.pingpong.messages import GOODBYE, PING, PONG, READY, answer_of, failure, printable
from switchgear.protocols.transport import PeerTransport
from switchgear.states import LateReport
from switchgear.verbs.access import Role

__all__ = ["CLIENT_ROLES", "WORKER_ROLES", "ClientsSession", "PingPongSetup", "WorkersSession"]

# The envelope is kept until the job is done. Each hop from a client adds a frame, so few are enough.
MOST_ENVELOPE_FRAMES: Final = 16
MOST_ENVELOPE_BYTES: Final = 4096

# The approximate memory of an envelope besides its bytes, and of each of its frames.
ENVELOPE_BYTES: Final = 300
FRAME_BYTES: Final = 50

# Each socket has one kind of request.
CLIENT_ROLES: Final = frozenset({Role.SUBMIT})
WORKER_ROLES: Final = frozenset({Role.WORK})

UNSPEAKABLE: Final = b"the payload is the word PONG, which a PING/PONG worker would not take for a job"


@dataclass(slots=True)
class PingPongSetup:
    """Settings and state that the two sockets of one broker share."""

    function: bytes = b"pingpong"
    expire_us: int = 3 * SECOND_US  # an idle worker that is silent for this long gets no job; 0: no limit
    # A job that is not answered by then is sent again, though its worker is connected; 0: never.  The job of a worker
    # whose connection is closed is sent again at once.
    resend_us: int = 0
    broker_timeout_us: int = SECOND_US  # the longest time that a message, and an answer to it, may be in transit


class ClientsSession(MessageSession):
    """The frontend: each request is a job, and the answer its result."""

    protocol = "pingpong"
    collects_data = True

    def __init__(self, context: Context, transport: PeerTransport, setup: PingPongSetup) -> None:
        super().__init__(context, transport)
        self.setup = setup
        self.envelopes: dict[int, Message] = {}  # by job: the envelope of its answer
        self._jobs_of: dict[bytes, set[int]] = {}  # by client

    def handle_message(self, message: Message) -> None:
        try:
            delimiter = message.index(b"", 1)
        except ValueError:
            text = f"a request of {len(message) - 1} frames, none of them an empty delimiter"
            self.context.count_bad_input(self, "MALFORMED", text)
            return
        envelope = message[: delimiter + 1]
        if len(message) != delimiter + 2:
            self._reject(envelope, f"a request is one frame after the delimiter, not {len(message) - delimiter - 1}")
        elif delimiter > MOST_ENVELOPE_FRAMES + 1 or sum(map(len, envelope)) > MOST_ENVELOPE_BYTES:
            limits = f"{MOST_ENVELOPE_FRAMES} frames and {MOST_ENVELOPE_BYTES} bytes"
            self._reject(envelope, f"more than {limits} before the delimiter")
        else:
            self._submit(envelope, message[-1])

    def _submit(self, envelope: Message, payload: bytes) -> None:
        try:
            self.require("a request", CLIENT_ROLES, self.setup.function)
            job = self.engine.submit(self.setup.function, b"", payload, NORMAL, Delivery.WAIT, self)
        except Refused as refused:
            self.send(failure(envelope, str(refused).encode()))
            return
        self.envelopes[job.id] = envelope
        self._jobs_of.setdefault(envelope[0], set()).add(job.id)
        self.engine.count_more(job, ENVELOPE_BYTES + sum([FRAME_BYTES + len(frame) for frame in envelope]))

    def _reject(self, envelope: Message, text: str) -> None:
        self.context.count_bad_input(self, "MALFORMED", text)
        self.send(failure(envelope, text.encode()))

    def tell_end(self, job: Job) -> None:
        envelope = self.envelopes.pop(job.id, None)
        if envelope is None:
            return  # its client is gone
        jobs = self._jobs_of.get(envelope[0])
        if jobs is not None:
            jobs.discard(job.id)
            if not jobs:
                del self._jobs_of[envelope[0]]
        self.send(answer_of(job, envelope, self.engine.settings.collected_bytes))

    def unreachable(self, message: Message) -> None:
        """Do nothing: a client that is gone needs no answer."""

    def peer_gone(self, identity: bytes) -> None:
        """Drop the requests of a closed connection that are not running.

        A client with its own identity may reconnect, and is sent its answers then.
        """
        if not is_given_name(identity):
            return
        job_ids = self._jobs_of.pop(identity, ())
        for job_id in job_ids:
            del self.envelopes[job_id]
        self.engine.unsubscribe_from(self, job_ids)

    def closed(self) -> None:
        """Drop all requests: the listener is being closed."""
        self.engine.unsubscribe(self)
        for envelope in self.envelopes.values():
            self.send(failure(envelope, b"the server is shutting down"))
        self.envelopes.clear()
        self._jobs_of.clear()


class WorkersSession(MessageSession):
    """The backend: workers, pushed one job at a time."""

    protocol = "pingpong"

    def __init__(self, context: Context, transport: PeerTransport, setup: PingPongSetup) -> None:
        super().__init__(context, transport)
        self.function = setup.function
        rules = OneJobRules(setup.function, setup.expire_us, setup.resend_us, setup.broker_timeout_us)
        self.workers = self.engine.new_one_job_workers(self, self.protocol, rules)

    # --- messages of workers ---

    def handle_message(self, message: Message) -> None:
        identity = message[0]
        if self.is_guarded:
            refusal = self.permissions.refusal("a worker's message", WORKER_ROLES, self.function)
            if refusal:  # the protocol has no word for that; without answers to its PINGs the worker gives up
                self.context.count_access_refused(self, refusal)
                return
        if len(message) != 3 or message[1]:
            if message[1:] == GOODBYE:
                self.workers.leave(identity)
                self.send([identity, *GOODBYE])
            else:
                text = f"a worker sends an empty delimiter and one frame, not {len(message) - 1} frames"
                self._complain(identity, "MALFORMED", text)
            return
        try:
            if message[2] == PING:
                self.send_at_once([identity, b"", PONG])  # though a job may wait for the store: or the worker gives up
                self.workers.is_there(identity, printable(identity), has_started=False)
            elif message[2] == READY:
                self.workers.is_there(identity, printable(identity), has_started=True)
            else:
                self._on_result(identity, message[2])
        except Refused as refused:
            self.context.count_bad_input(self, "REFUSED", f"a worker cannot be registered: {refused}")

    def _on_result(self, identity: bytes, result: bytes) -> None:
        verdict, job_id = self.workers.report(identity, result)
        if verdict is LateReport.UNKNOWN:
            self._complain(identity, "UNEXPECTED", "a result from a worker that was sent no job")
            return
        if verdict is LateReport.DROPPED:
            text = f"a result for job {job_id}, which was taken from its worker and is over; it is dropped"
            self.context.count_bad_input(self, "LATE_RESULT", text)
        self.workers.has_reported(identity)

    def _complain(self, identity: bytes, code: str, text: str) -> None:
        """Count a useless message, which is still a sign of life."""
        self.context.count_bad_input(self, code, text)
        self.workers.sign_of_life(identity)

    # --- events of the engine ---

    def assign_job(self, worker: Worker, job: Job) -> None:
        payload = job.payload
        assert payload is not None
        if payload == PONG:
            self.workers.assigned(worker, job, None)
            self.context.soon(partial(self.workers.refuse_job, worker, job.id, UNSPEAKABLE))
            return
        message = [self.workers.identity_of(worker), b"", payload]
        self.workers.assigned(worker, job, message)
        self.send(message)

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        message = self.workers.message_to(worker)
        if not isinstance(message, list):
            return  # it was not sent the job
        if job.delivery and self.is_delayed(message):  # and may have been for very long
            message[2] = PONG  # which does no harm
            self.workers.revoked_unsent(worker)
            self.context.soon(partial(self.workers.take_back, worker, job.id))
            return
        self.workers.revoked(worker, job)
        self.context.soon(partial(self.engine.remove_worker, worker))

    def expired(self, worker: Worker) -> None:
        self.workers.expired(worker)

    def peer_gone(self, identity: bytes) -> None:
        self.workers.gone(identity)

    def unreachable(self, message: Message) -> None:
        """A worker that is gone has not got its job; any other word does not matter."""
        if message[-1] != PONG and message[1:] != GOODBYE:
            self.workers.not_delivered(message[0], message)
