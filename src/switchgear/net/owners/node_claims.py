"""`NodeClaims`: another node claims the runs that its workers have of functions which this node has taken over.

The node may also have lost its link to this one, which has requeued the jobs meanwhile. It gets those back that nobody
has begun since. The engine decides (`Engine.resume_attempt`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from switchgear.errors import Refused
from switchgear.model import Delivery, Function, Job, Peer, Worker
from switchgear.net.hub import Hub
from switchgear.net.owners.messages import (
    NOT_YET,
    REFUSED,
    BegunRun,
    ClaimRuns,
    ClaimsWanted,
    RunClaimed,
    from_option_values,
)
from switchgear.net.owners.node_workers import NodeWorkers
from switchgear.protocols.pending_read import Step

if TYPE_CHECKING:
    from switchgear.net.owners.relay import Relay

__all__ = ["RUN_OPTIONS", "NodeClaims", "job_of_run"]

# The options of a job that matter where it runs.
RUN_OPTIONS: Final = frozenset(("timeout_us", "reducer", "key", "requires", "label", "trace"))


class NodeClaims:
    """The claims of one other node."""

    def __init__(self, hub: Hub, relay: Relay, workers: NodeWorkers, session: Any) -> None:
        """`session` is the session of the node."""
        self.missing = 0  # of these partitions (a bit for each) the node has not said yet what it runs
        self.on_change: Callable[[], None] = lambda: None
        self._hub = hub
        self._engine = hub.engine
        self._relay = relay
        self._workers = workers
        self._session = session
        self._peer: Peer = session
        self._is_closed = False

    def closed(self) -> None:
        """The node cannot be asked any more."""
        self._is_closed = True
        self.missing = 0
        self.on_change()

    def ask(self, partitions: int) -> None:
        """Ask the node for what its workers run of these partitions, which this node has taken over."""
        self.missing |= partitions
        self._session.send(ClaimsWanted(partitions))

    def receive(self, message: ClaimRuns) -> None:
        """Answer the claims of a message."""
        self._hub.work_off(self._answered(message))

    def _answered(self, message: ClaimRuns) -> Iterator[Step]:
        unknown = [run for run in message.runs if not self._give(run)]
        if unknown:
            try:
                states = yield from self._hub.find_states(tuple(run.id for run in unknown))
            except Refused:
                for run in unknown:
                    self._session.send(RunClaimed(run.id, run.start, NOT_YET))  # the node claims it again
                return
            if self._is_closed:
                return
            for run in unknown:
                if not self._give(run):
                    self._enter(run, is_stored=run.id in states)
        self.missing &= ~message.partitions
        self.on_change()

    def _give(self, run: BegunRun) -> bool:
        """Give the job to the worker that runs it, or refuse that; False if this node does not have the job, and it
        may be in no store, because its submitter waits for it."""
        engine = self._engine
        if not self._relay.may_claim(run.function):
            self._session.send(RunClaimed(run.id, run.start, NOT_YET))
            return True
        if run.delivery == Delivery.WAIT and not engine.has_job(run.id):
            return False
        worker = self._workers.claimant((run.function, run.kind))
        job = None
        if worker is not None:
            before, engine.speaker = engine.speaker, self._peer
            try:
                job = engine.resume_attempt(worker, run.id, run.attempt, run.start)
            finally:
                engine.speaker = before
        self._answer(run, worker, job)
        return True

    def _enter(self, run: BegunRun, *, is_stored: bool) -> None:
        """Enter a job whose submitter waits for it: the submitter's node submits it again."""
        worker = None if is_stored else self._workers.claimant((run.function, run.kind))
        job = None
        if worker is not None:
            job = job_of_run(run, worker.order[0])
            self._engine.adopted_runs.enter(job, worker)
        self._answer(run, worker, job)

    def _answer(self, run: BegunRun, worker: Worker | None, job: Job | None) -> None:
        if job is not None and worker is not None:
            self._workers.claimed(worker, job.id)
            self._session.send(RunClaimed(run.id, run.start, job.start_number))
        else:
            self._session.send(RunClaimed(run.id, run.start, REFUSED))


def job_of_run(run: BegunRun, function: Function) -> Job:
    """A job whose submitter waits for it, as far as its run says what it is."""
    job = Job(run.id, function, run.unique, b"", run.priority, Delivery.WAIT, run.created_us)
    options = from_option_values(run.details, run.id)
    for name in RUN_OPTIONS:
        value = getattr(options, name)
        if value:
            setattr(job, name, value)
    job.own_details().starts = run.start
    job.attempts = run.attempt - 1  # entering it counts the start
    return job
