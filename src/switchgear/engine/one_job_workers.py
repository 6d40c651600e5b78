"""`OneJobWorkers`: workers that are pushed one job at a time, and whose reports name neither the job nor its start.

Such a report belongs to the job that the worker was sent last.  So a worker must never be sent a second job while it
may still be at work on the first, or a submitter would get another's result.  Everything here that looks like caution
follows from that.

What is known of a worker, by its identity, is one of four things:

  unknown   nothing; when it says that it is there, it is registered, and is idle
  idle      it has credit for one job, and is deregistered if it is silent for too long
  at work   it was sent a job.  It does not expire, since it says nothing while it works
  owing     its job was taken from it, because it took too long, was cancelled, or was done by another, or because its
            connection was lost.  It may still report, and until it does it has no credit and is not registered

A word that the worker sent before it received the job crosses the job on its way, and says nothing of its being idle.
So a sign of life from a worker that is at work means nothing.  A word that it has started means nothing either if it
may have crossed the job; later than that it means that the worker has started anew, and that the job is lost.  It may
have crossed the job nevertheless, if the server itself was held up and reads it late.  So the job is given to another
worker at once, but this one is owing until it says another word a moment later; what it said long ago is all read by
then.

Events of the engine must not call it back.  What follows from `assign` and `revoke` of a peer, the peer calls in the
next turn: `refuse_job`, `take_back`, `Engine.remove_worker`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from switchgear.engine.dispatcher import Dispatcher
from switchgear.engine.functions import FunctionRegistry
from switchgear.engine.state import EngineState
from switchgear.engine.worker_reports import WorkerReports
from switchgear.engine.workers import WorkerRegistry
from switchgear.memory import FOR_WAITING
from switchgear.model import SECOND_US, Cause, Job, Peer, Worker
from switchgear.states import LateReport

__all__ = ["OneJobRules", "OneJobWorker", "OneJobWorkers"]

# Workers that owe a report may never come back.  So many of them are remembered.
MOST_OWING = 10_000


@dataclass(slots=True)
class OneJobRules:
    """The rules that apply to all workers of one peer."""

    function: bytes
    silence_us: int = 0  # an idle worker that is silent for so long is deregistered; 0: never
    run_limit_us: int = 0  # a job that is not reported by then is taken from its worker; 0: never
    crossing_us: int = SECOND_US  # the longest that a message, and one in answer to it, may be on their way


class OneJobWorker:
    """The state of one worker: idle, at work or owing."""

    __slots__ = (
        "claimed_us",
        "identity",
        "is_cut_off",
        "is_disconnected",
        "is_leaving",
        "job_id",
        "name",
        "sent",
        "sent_us",
        "start_number",
        "worker",
    )

    def __init__(self, identity: bytes, name: bytes) -> None:
        self.identity = identity
        self.name = name
        self.worker: Worker | None = None  # None: it is owing
        self.sent: object = None  # the message with the job that it is at work on; None: it is idle, or owing
        self.job_id = 0  # the job that it was last sent, if it has not reported
        self.start_number = 0  # which start of the job that was
        self.sent_us = 0  # when that was
        self.claimed_us = 0  # when it first claimed to be idle since; 0: it has not
        self.is_cut_off = False  # nobody waits for its report
        self.is_leaving = False  # and takes no job when it has reported
        self.is_disconnected = False  # the connection over which it was sent its last job is closed


class OneJobWorkers:
    """The workers of one peer: those known, idle or at work, and those that owe a report."""

    def __init__(
        self,
        state: EngineState,
        functions: FunctionRegistry,
        dispatcher: Dispatcher,
        workers: WorkerRegistry,
        reports: WorkerReports,
        peer: Peer,
        protocol: str,
        rules: OneJobRules,
    ) -> None:
        self.known: dict[bytes, OneJobWorker] = {}  # by identity
        self.owing: OrderedDict[bytes, OneJobWorker] = OrderedDict()  # the one that has owed longest first
        self._by_worker: dict[int, OneJobWorker] = {}  # those known, by the number of the worker
        self._state = state
        self._functions = functions
        self._dispatcher = dispatcher
        self._workers = workers
        self._reports = reports
        self._peer = peer
        self._protocol = protocol
        self._rules = rules

    def _find(self, identity: bytes) -> OneJobWorker | None:
        return self.known.get(identity) or self.owing.get(identity)

    # --- what workers say ---

    def is_there(self, identity: bytes, name: bytes, *, has_started: bool) -> None:
        """The worker says that it is there, or that it has just started; it is idle, as far as it knows.

        Raises Refused if there is no memory to register it.
        """
        known = self._find(identity)
        if known is None:
            self._register(OneJobWorker(identity, name))
        elif known.worker is not None and known.sent is None:
            self._make_ready(known, known.worker)
        elif not self._may_have_crossed_job(known, has_started=has_started):
            self._claims_to_be_idle(known)

    def sign_of_life(self, identity: bytes) -> None:
        """The worker has said something that means nothing else."""
        known = self.known.get(identity)
        if known is not None and known.worker is not None and known.sent is None:
            self._make_ready(known, known.worker)

    def _may_have_crossed_job(self, known: OneJobWorker, *, has_started: bool) -> bool:
        """Whether the worker may have said this before it received the job that it was sent last."""
        rules = self._rules
        if known.claimed_us:
            return False  # it has said so before
        if has_started:  # over a new connection it was sent after the job
            return not known.is_disconnected and self._is_within(known.sent_us, rules.crossing_us)
        if known.worker is not None or not rules.run_limit_us:
            return True
        return self._is_within(known.sent_us, max(rules.run_limit_us, rules.crossing_us))

    def _claims_to_be_idle(self, known: OneJobWorker) -> None:
        """A worker that has not reported claims to be idle: it has lost its job, or the server its report.

        Or the server was held up, and reads late what the worker said long ago; then the report comes just behind it.
        """
        if known.worker is not None:
            worker = self._forget(known)
            self._remember_owing(known)
            self._workers.remove(worker, Cause.WORKER_LOST)
        if not known.claimed_us:
            known.claimed_us = self._state.now_us
        elif not self._is_within(known.claimed_us, self._rules.crossing_us // 2):
            self._register(known)

    def _is_within(self, since_us: int, span_us: int) -> bool:
        # Should the clock have been set back meanwhile, what was done in the future is not waited for.
        return 0 <= self._state.now_us - since_us < span_us

    def report(self, identity: bytes, result: bytes) -> tuple[LateReport, int]:
        """The worker reports success: whether that counts, and the job that it was about.  Call `has_reported` next.

        UNKNOWN: it was sent no job.  DROPPED: another was quicker.  UNWANTED: nobody has waited for it any more.
        """
        known = self._find(identity)
        if known is None or not known.job_id:
            return LateReport.UNKNOWN, 0
        job_id, known.job_id = known.job_id, 0
        if known.worker is not None and known.sent is not None:
            known.sent = None
            if self._reports.complete(known.worker, job_id, result, known.start_number) is not None:
                return LateReport.ACCEPTED, job_id
            # All jobs were given back: the server stops.
        verdict = self._reports.late(job_id, identity, known.start_number, result)
        if verdict is not LateReport.ACCEPTED:
            verdict = LateReport.UNWANTED if known.is_cut_off else LateReport.DROPPED
        return verdict, job_id

    def has_reported(self, identity: bytes) -> None:
        """The worker takes the next job, unless it is leaving; raises Refused if it cannot be registered."""
        known = self._find(identity)
        if known is None:
            return
        if known.is_leaving:
            self._part_with(known)
        elif known.worker is None:
            self._register(known)
        else:
            self._make_ready(known, known.worker)

    def leave(self, identity: bytes) -> None:
        """The worker takes no more jobs; one that it is at work on it reports first."""
        known = self._find(identity)
        if known is not None:
            known.is_leaving = True
            if known.sent is None:
                self._part_with(known)

    # --- what happens to workers ---

    def gone(self, identity: bytes) -> None:
        """The worker's connection is closed: its job goes to another at once.

        Should it come back with a result, that counts if it is the first.
        """
        known = self._find(identity)
        if known is not None:
            known.is_disconnected = True
        if known is not None and known.worker is not None:
            self._part_with(known)

    def not_delivered(self, identity: bytes, message: object) -> None:
        """A message with a job could not be delivered, which is not the job's fault."""
        known = self.known.get(identity)
        if known is not None and known.sent is message:
            self._workers.remove(self._forget(known), Cause.GIVEN_BACK)
        else:
            self.owing.pop(identity, None)  # the job was taken from it meanwhile

    # --- events of the engine, as the peer hears of them ---

    def identity_of(self, worker: Worker) -> bytes:
        """By which the peer knows a worker."""
        return self._by_worker[worker.id].identity

    def assigned(self, worker: Worker, job: Job, sent: object) -> None:
        """The worker was assigned a job, with this message; None: the peer has no message for it, and will refuse it.

        Only idle workers expire.  That is seen to now, and must be: the end of the lease may have passed too, and be
        met before anything that is done in the next turn.
        """
        self._workers.suspend_lease(worker)
        if sent is None:
            return
        known = self._by_worker[worker.id]
        known.job_id = job.id
        known.start_number = job.start_number
        known.sent_us = self._state.now_us
        known.claimed_us = 0
        known.is_cut_off = False
        known.sent = sent

    def refuse_job(self, worker: Worker, job_id: int, error: bytes) -> None:
        """A job cannot be said in the words of the peer: it fails, and the worker is idle."""
        self._reports.fail(worker, job_id, 255, error)
        self._make_ready_again(worker)

    def message_to(self, worker: Worker) -> object:
        """The message with the job that a worker is at work on; None if it was sent none."""
        known = self._by_worker.get(worker.id)
        return known.sent if known is not None else None

    def revoked(self, worker: Worker, job: Job) -> None:
        """The job was taken from the worker, which cannot be told: from now on it is owing."""
        known = self._by_worker[worker.id]
        known.is_cut_off = job.id in worker.running
        self._forget(known)
        self._remember_owing(known)

    def revoked_unsent(self, worker: Worker) -> None:
        """The job was taken from the worker before it was sent; `take_back` follows."""
        known = self._by_worker[worker.id]
        known.sent = None
        known.job_id = 0

    def take_back(self, worker: Worker, job_id: int) -> None:
        """A worker that was not sent its job is idle."""
        self._reports.release(worker, job_id)
        self._make_ready_again(worker)

    def expired(self, worker: Worker) -> None:
        """An idle worker was silent for too long."""
        known = self._by_worker[worker.id]
        self._forget(known)
        if known.job_id:
            self._remember_owing(known)

    # --- who is known ---

    def _register(self, known: OneJobWorker) -> None:
        """Register a worker, which is idle; raises Refused."""
        rules = self._rules
        self._workers.refuse_registrations(1, FOR_WAITING)
        function = self._functions.named(rules.function)
        self.owing.pop(known.identity, None)
        known.is_leaving = known.is_disconnected = False
        worker = known.worker = self._workers.add(self._peer, self._protocol, known.name)
        worker.identity = known.identity
        self.known[known.identity] = known
        self._by_worker[worker.id] = known
        self._workers.can_do(worker, function, rules.run_limit_us)
        self._make_ready(known, worker)

    def _make_ready(self, known: OneJobWorker, worker: Worker) -> None:
        """An idle worker gave a sign of life: it may be sent a job, for a time."""
        if self._rules.silence_us:
            self._workers.renew_lease(worker, self._rules.silence_us)
        if not worker.credits:
            self._dispatcher.grant(worker, 1)

    def _make_ready_again(self, worker: Worker) -> None:
        """A worker was assigned a job that it was not sent."""
        known = self._by_worker.get(worker.id)
        if known is None or known.sent is not None:
            return
        if known.is_leaving:
            self._part_with(known)
        else:
            self._make_ready(known, worker)

    def _forget(self, known: OneJobWorker) -> Worker:
        """The worker is neither idle nor at work any more."""
        worker, known.worker = known.worker, None
        assert worker is not None
        known.sent = None
        del self.known[known.identity]
        del self._by_worker[worker.id]
        return worker

    def _part_with(self, known: OneJobWorker) -> None:
        """Remove a worker that takes no more jobs; remember what it owes."""
        worker = self._forget(known) if known.worker is not None else None
        if known.job_id:
            self._remember_owing(known)
        else:
            self.owing.pop(known.identity, None)
        if worker is not None:
            self._workers.remove(worker, Cause.WORKER_LOST)

    def _remember_owing(self, known: OneJobWorker) -> None:
        self.owing[known.identity] = known
        if len(self.owing) > MOST_OWING:
            self.owing.popitem(last=False)
