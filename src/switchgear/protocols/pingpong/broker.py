"""The PING/PONG broker: clients on one socket, workers on the other, one function between them.

A worker's result does not say which job it belongs to.  It belongs to the job that the worker was sent last; so a
worker must never be sent a second job while it may still be at work on the first, or a client would get another's
result.  Everything here that looks like caution follows from that.

What the broker knows of a worker is one of four things:

  unknown   nothing; READY or PING registers it, and it is idle
  idle      it is in the ready queue, which it leaves if it is silent for too long
  at work   it was sent a job.  It does not expire, since it says nothing while it works
  owing     its job was taken from it, because it took too long, was cancelled, or was done by another.  It may still
            answer, and until it does it is not in the ready queue; the engine does not know it

A PING that the worker sent before it received the job crosses the job on its way, and says nothing of its being idle.
So a PING from a worker that is at work is answered and means nothing.  A READY means nothing either if it may have
crossed the job; later than that it means that the worker has started anew, and that the job is lost.  It may have
crossed the job nevertheless, if the broker itself was held up and reads it late.  So the job is given to somebody else
at once, but the worker is owing until it says another word a moment later; what it said long ago is all read by then.

A worker that simply goes would be sent one more job, in answer to its last result or until it expires.  So there is a
word of our own for leaving, which is sent back: after that no job comes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import Final

from switchgear.errors import Refused
from switchgear.memory import FOR_WAITING
from switchgear.model import NORMAL, SECOND_US, Cause, Delivery, Job, Worker
from switchgear.protocols.base import Context, Message, MessageSession, Wire, is_given_name
from switchgear.protocols.pingpong.messages import GOODBYE, PING, PONG, READY, answer_of, failure, printable

__all__ = ["ClientsSession", "PingPongSetup", "WorkersSession"]

# What comes before the delimiter is kept until the job is done.  Each hop on the way from a client adds a frame, so
# few are enough.
MOST_ENVELOPE_FRAMES: Final = 16
MOST_ENVELOPE_BYTES: Final = 4096

# What an envelope takes in memory beside its bytes, about, and each of its frames.
ENVELOPE_BYTES: Final = 300
FRAME_BYTES: Final = 50

# Workers that owe a result may never come back.  So many of them are remembered.
MOST_OWING = 10_000

UNSPEAKABLE: Final = b"the payload is the word PONG, which a PING/PONG worker would not take for a job"


@dataclass(slots=True)
class PingPongSetup:
    """What the two sockets of one broker share."""

    function: bytes = b"pingpong"
    expire_us: int = 3 * SECOND_US  # an idle worker that is silent for so long gets no job; 0: it does not matter
    resend_us: int = 60 * SECOND_US  # a job that is not answered by then is sent again; 0: never
    broker_timeout_us: int = SECOND_US  # the longest that a message, and one in answer to it, may be on their way


class ClientsSession(MessageSession):
    """The frontend: each request is a job, and the answer its result."""

    protocol = "pingpong"
    collects_data = True

    def __init__(self, context: Context, wire: Wire, setup: PingPongSetup) -> None:
        super().__init__(context, wire)
        self.setup = setup
        self.envelopes: dict[int, Message] = {}  # by job: what its answer begins with, up to the delimiter
        self._jobs_of: dict[bytes, set[int]] = {}  # by client

    def receive_message(self, message: Message) -> None:
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
            job = self.engine.submit(self.setup.function, b"", payload, NORMAL, Delivery.WAIT, self)
        except Refused as refused:
            self.send(failure(envelope, str(refused).encode()))
            return
        self.envelopes[job.id] = envelope
        self._jobs_of.setdefault(envelope[0], set()).add(job.id)
        self.engine.hold_for(job, ENVELOPE_BYTES + sum([FRAME_BYTES + len(frame) for frame in envelope]))

    def _reject(self, envelope: Message, text: str) -> None:
        self.context.count_bad_input(self, "MALFORMED", text)
        self.send(failure(envelope, text.encode()))

    def job_finished(self, job: Job) -> None:
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
        """A client that is gone needs no answer."""

    def peer_gone(self, identity: bytes) -> None:
        """What it has asked for, and is not being worked on, is not wanted any more.

        A client with a name of its own may connect again, and is sent its answers then.
        """
        if not is_given_name(identity):
            return
        job_ids = self._jobs_of.pop(identity, ())
        for job_id in job_ids:
            del self.envelopes[job_id]
        self.engine.unwatch_jobs(self, job_ids)

    def closed(self) -> None:
        """The server stops, and nobody will hear of the jobs that are left."""
        self.engine.unwatch(self)
        for envelope in self.envelopes.values():
            self.send(failure(envelope, b"the server is shutting down"))
        self.envelopes.clear()
        self._jobs_of.clear()


class WorkerRecord:
    """What is known of a worker, by its identity."""

    __slots__ = ("claimed_us", "cut_off", "identity", "is_leaving", "job_id", "message", "sent_us", "worker")

    def __init__(self, identity: bytes) -> None:
        self.identity = identity
        self.worker: Worker | None = None  # None: it is owing
        self.message: Message | None = None  # the job that it is at work on; None: it is idle, or owing
        self.job_id = 0  # the job that it was last sent, if it has not answered
        self.sent_us = 0  # when that was
        self.claimed_us = 0  # when it first claimed to be idle since; 0: it has not
        self.cut_off = False  # nobody waits for its answer
        self.is_leaving = False  # and takes no job when it has answered


class WorkersSession(MessageSession):
    """The backend: workers, pushed one job at a time."""

    protocol = "pingpong"

    def __init__(self, context: Context, wire: Wire, setup: PingPongSetup) -> None:
        super().__init__(context, wire)
        self.setup = setup
        self.known: dict[bytes, WorkerRecord] = {}  # idle or at work
        self.owing: OrderedDict[bytes, WorkerRecord] = OrderedDict()  # the one that has owed longest first
        self._records: dict[int, WorkerRecord] = {}  # those known, by the number of the worker

    # --- what workers say ---

    def receive_message(self, message: Message) -> None:
        identity = message[0]
        if len(message) != 3 or message[1]:
            if message[1:] == GOODBYE:
                self._on_goodbye(identity)
            else:
                text = f"a worker sends an empty delimiter and one frame, not {len(message) - 1} frames"
                self._complain(identity, "MALFORMED", text)
        elif message[2] == PING:
            self.send([identity, b"", PONG])
            self._on_word(identity, PING)
        elif message[2] == READY:
            self._on_word(identity, READY)
        else:
            self._on_result(identity, message[2])

    def _complain(self, identity: bytes, code: str, text: str) -> None:
        """Nothing comes of this message, except that any message is a sign of life."""
        self.context.count_bad_input(self, code, text)
        record = self.known.get(identity)
        if record is not None and record.message is None:
            self._make_ready(record)

    def _on_word(self, identity: bytes, word: bytes) -> None:
        """The worker is there, and thinks that it is idle."""
        record = self.known.get(identity) or self.owing.get(identity)
        if record is None:
            self._register(WorkerRecord(identity))
        elif record.worker is not None and record.message is None:
            self._make_ready(record)
        elif not self._may_have_crossed_job(record, word):
            self._on_claim(record)

    def _may_have_crossed_job(self, record: WorkerRecord, word: bytes) -> bool:
        """Whether the worker may have said this before it received the job that it was sent last."""
        setup = self.setup
        if record.claimed_us:
            return False  # it has said so before
        if word == READY:
            return self._is_within(record.sent_us, setup.broker_timeout_us)
        if record.worker is not None or not setup.resend_us:
            return True
        return self._is_within(record.sent_us, max(setup.resend_us, setup.broker_timeout_us))

    def _on_claim(self, record: WorkerRecord) -> None:
        """A worker that has not answered claims to be idle: it has lost its job, or the broker its answer.

        Or the broker was held up, and reads late what the worker said long ago; then the answer comes just behind it.
        """
        if record.worker is not None:
            worker = self._forget(record)
            self._remember_owing(record)
            self.engine.remove_worker(worker)
        if not record.claimed_us:
            record.claimed_us = self.engine.now_us
        elif not self._is_within(record.claimed_us, self.setup.broker_timeout_us // 2):
            self._register(record)

    def _is_within(self, since_us: int, span_us: int) -> bool:
        # Should the clock have been set back meanwhile, what was done in the future is not waited for.
        return 0 <= self.engine.now_us - since_us < span_us

    def _on_result(self, identity: bytes, result: bytes) -> None:
        record = self.known.get(identity) or self.owing.get(identity)
        if record is None or not record.job_id:
            self._complain(identity, "UNEXPECTED", "a result from a worker that was sent no job")
            return
        job_id, record.job_id = record.job_id, 0
        worker = record.worker
        if worker is None or record.message is None:
            self._on_late_result(record, job_id, result)
        else:
            record.message = None
            if self.engine.complete(worker, job_id, result) is None:  # all jobs were given back: the server stops
                self._on_late_result(record, job_id, result)
        if record.is_leaving:
            self._part_with(record)
        elif worker is None:
            self._register(record)
        else:
            self._make_ready(record)

    def _on_late_result(self, record: WorkerRecord, job_id: int, result: bytes) -> None:
        """A result from a worker whose job was taken from it.  It is as good as any, unless another was first."""
        job = self.engine.job(job_id)
        if (job is None or not self.engine.settle(job, result)) and not record.cut_off:
            text = f"a result for job {job_id}, which was taken from its worker and is over; it is dropped"
            self.context.count_bad_input(self, "LATE_RESULT", text)

    def _on_goodbye(self, identity: bytes) -> None:
        """The worker takes no more jobs.  It goes when it hears the same word, so its job must not come behind that."""
        answer = [identity, *GOODBYE]
        record = self.known.get(identity) or self.owing.get(identity)
        if record is not None:
            record.is_leaving = True
            if record.message is None:
                self._part_with(record)
            elif self._waits_for_store(record.message):
                self.promise(answer)
                return
        self.send(answer)

    # --- who is known ---

    def _register(self, record: WorkerRecord) -> None:
        """Let the engine know a worker, and add it to the ready queue."""
        try:
            self.engine.refuse_registrations(1, FOR_WAITING)
            function = self.engine.function_named(self.setup.function)
        except Refused as refused:
            self.context.count_bad_input(self, "REFUSED", f"a worker cannot be registered: {refused}")
            return
        self.owing.pop(record.identity, None)
        record.is_leaving = False
        worker = record.worker = self.engine.add_worker(self, self.protocol, printable(record.identity))
        self.known[record.identity] = record
        self._records[worker.id] = record
        self.engine.can_do(worker, function, self.setup.resend_us)
        self._make_ready(record)

    def _make_ready(self, record: WorkerRecord) -> None:
        """An idle worker gave a sign of life: it is in the ready queue, for a time."""
        worker = record.worker
        assert worker is not None
        if self.setup.expire_us:
            self.engine.renew_lease(worker, self.setup.expire_us)
        if not worker.credits:
            self.engine.grant(worker, 1)

    def _make_ready_again(self, record: WorkerRecord, worker: Worker) -> None:
        """A worker was given a job that it could not be sent."""
        if record.worker is not worker or record.message is not None:
            return
        if record.is_leaving:
            self._part_with(record)
        else:
            self._make_ready(record)

    def _forget(self, record: WorkerRecord) -> Worker:
        """The worker is neither idle nor at work any more."""
        worker, record.worker = record.worker, None
        assert worker is not None
        record.message = None
        del self.known[record.identity]
        del self._records[worker.id]
        return worker

    def _part_with(self, record: WorkerRecord) -> None:
        """The worker takes no more jobs."""
        if record.worker is not None:
            self.engine.remove_worker(self._forget(record))
        if record.job_id:
            self._remember_owing(record)
        else:
            self.owing.pop(record.identity, None)

    def _remember_owing(self, record: WorkerRecord) -> None:
        self.owing[record.identity] = record
        if len(self.owing) > MOST_OWING:
            self.owing.popitem(last=False)

    # --- news from the engine ---

    def assign(self, worker: Worker, job: Job) -> None:
        record = self._records[worker.id]
        # Only those in the ready queue expire.  This call may be made from here, and must: the end of the lease may
        # have passed too, and be met before anything that is done soon.
        self.engine.suspend_lease(worker)
        if not self.has_payload(worker, job):
            self.context.soon(partial(self._make_ready_again, record, worker))
            return
        payload = job.payload
        assert payload is not None
        if payload == PONG:
            self.context.soon(partial(self.engine.fail, worker, job.id, 255, UNSPEAKABLE))
            self.context.soon(partial(self._make_ready_again, record, worker))
            return
        record.job_id = job.id
        record.sent_us = self.engine.now_us
        record.claimed_us = 0
        record.cut_off = False
        record.message = [record.identity, b"", payload]
        self.send_job(job, record.message)

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        record = self._records.get(worker.id)
        if record is None or record.message is None:
            return  # it was not sent the job
        if job.delivery and self._waits_for_store(record.message):  # and may have done so for very long
            record.message[2] = PONG  # which does no harm
            record.message = None
            record.job_id = 0
            self.context.soon(partial(self.engine.hand_back, worker, job.id))
            self.context.soon(partial(self._make_ready_again, record, worker))
            return
        record.cut_off = job.id in worker.running
        self._forget(record)
        self._remember_owing(record)
        self.context.soon(partial(self.engine.remove_worker, worker))

    def _waits_for_store(self, message: Message) -> bool:
        """Whether a job was not sent yet, because its last attempt is to be remembered first."""
        promises = self.promises
        return any(waiting is message for waiting in (*promises.out, *(promises.held or ())))

    def expired(self, worker: Worker) -> None:
        record = self._records[worker.id]
        self._forget(record)
        if record.job_id:
            self._remember_owing(record)

    def peer_gone(self, identity: bytes) -> None:
        """A worker that has closed its connection gets no job; the one that it has goes to another at once, and should
        it come back with a result, that counts if it is the first."""
        record = self.known.get(identity)
        if record is None:
            return
        worker = self._forget(record)
        if record.job_id:
            self._remember_owing(record)
        self.engine.remove_worker(worker)

    def unreachable(self, message: Message) -> None:
        """A worker that is gone has not got its job, which is not the job's fault; any other word does not matter."""
        identity = message[0]
        if message[-1] == PONG or message[1:] == GOODBYE:
            return
        record = self.known.get(identity)
        if record is not None and record.message is message:
            self.engine.remove_worker(self._forget(record), Cause.GIVEN_BACK)
        else:
            self.owing.pop(identity, None)  # the job was taken from it meanwhile
