"""`AdoptedRuns`: runs that were begun under another engine, which is gone, and whose workers may be alive.

When this engine takes over functions, the store says which of their jobs were running. Their workers may be connected
to other engines, and go on. So these jobs stay running for a short time, held by a worker of no function, the *keeper*:
limits count them as before, and no other worker is given them. The engine whose worker has a run claims it meanwhile
(`ResumedStarts`), and it goes on as if nothing had happened: the same start of the same attempt. What nobody has
claimed when the time is over goes back to its queue, as after a restart.

A job whose submitter waits for it is in no store. Its run is entered as it is claimed, and the submission, which its
client's engine repeats, finds it.

In the other direction, `take_out` removes the copy of a job of another engine whose functions this engine takes over
itself: its worker has it still, and claims the job. What the worker reports before that is passed to the subscriber of
the copy (`report_aside`).
"""

from __future__ import annotations

from switchgear.engine.attempts import Attempts
from switchgear.engine.dispatcher import Dispatcher
from switchgear.engine.limiters import Limiters
from switchgear.engine.requirements import Requirements
from switchgear.engine.state import EngineState
from switchgear.engine.submit_options import SubmitOptions
from switchgear.engine.timers import Timers
from switchgear.engine.transitions import Transitions
from switchgear.engine.unique_keys import UniqueKeys
from switchgear.engine.workers import WorkerRegistry
from switchgear.errors import Refused
from switchgear.model import Cause, Delivery, Job, JobState, Peer, Timer, Worker
from switchgear.model.job import SUBSCRIPTION_BYTES

__all__ = ["KEEPER_PROTOCOL", "AdoptedRuns"]

# As that of a worker that stands for those of another node: neither is a worker that an operator could look for.
KEEPER_PROTOCOL = "node"


class AdoptedRuns(Peer):
    """Keeps the running jobs of adopted functions until they are claimed or requeued."""

    def __init__(
        self,
        state: EngineState,
        timers: Timers,
        limiters: Limiters,
        keys: UniqueKeys,
        attempts: Attempts,
        dispatcher: Dispatcher,
        transitions: Transitions,
        workers: WorkerRegistry,
        requirements: Requirements,
    ) -> None:
        super().__init__()
        self._state = state
        self._timers_of_engine = timers
        self._limiters = limiters
        self._keys = keys
        self._attempts = attempts
        self._dispatcher = dispatcher
        self._transitions = transitions
        self._workers = workers
        self._requirements = requirements
        self._keepers: dict[Timer, Worker] = {}
        self._aside: set[Job] = set()  # copies that were taken out, and whose jobs are not restored yet

    # --- runs that may be claimed ---

    def begin(self) -> Worker:
        """A keeper for the runs that are restored now. Their time begins with `await_claims`."""
        return self._workers.add(self, KEEPER_PROTOCOL, b"unclaimed runs")

    def await_claims(self, keeper: Worker, claimable_us: int) -> None:
        """Everything is restored, and claims can come: what nobody claims within this time runs again."""
        try:
            timer = self._timers_of_engine.set(self, self._state.now_us + claimable_us)
        except Refused:  # there is no memory for a timer
            self._workers.remove(keeper, Cause.SERVER_LOST)
            return
        self._keepers[timer] = keeper

    def keep(self, job: Job, keeper: Worker) -> None:
        """Let the keeper have a running job that was restored."""
        self._attach(job, keeper)
        if job.timeout_us:
            self._attempts.limit_again(job)

    def is_kept(self, job: Job) -> bool:
        """Whether the job is a run that nobody has claimed yet."""
        return job.worker is not None and job.worker.peer is self

    def give(self, job: Job, worker: Worker) -> None:
        """The worker has the run: it is the worker's from now on, and nothing else changes."""
        keeper = job.worker
        assert keeper is not None
        del keeper.running[job.id]
        function = job.function
        function.running -= 1
        limiter = function.limiter
        if limiter is not None:
            has_room = limiter.has_room
            self._limiters.count_end(job, keeper)
            limiter.has_room = has_room  # there is no more than before
        self._attach(job, worker)
        for peer in self._state.global_subscribers:
            peer.job_started(job)

    def _attach(self, job: Job, worker: Worker) -> None:
        job.worker = worker
        worker.running[job.id] = job
        job.function.running += 1
        if job.function.limiter is not None:
            self._limiters.count_run(job)

    def timer_fired(self, timer: Timer) -> None:
        """The time is over: what was not claimed runs again."""
        self._workers.remove(self._keepers.pop(timer), Cause.SERVER_LOST)

    # --- runs of jobs that are in no store ---

    def enter(self, job: Job, worker: Worker) -> None:
        """Enter a job whose submitter waits for it, and which this worker runs already."""
        job.delivery = Delivery.WAIT
        self._enter(job, worker)
        if job.unique and not self._keys.gave_up(job):
            self._keys.take_again(job)

    def _enter(self, job: Job, worker: Worker) -> None:
        state = self._state
        job.has_details = True
        state.count_contents(job)
        state.jobs.add(job)
        job.function.total += 1
        job.function.submitted += 1
        if job.requires:
            self._requirements.join(job)
        self._attempts.start(job, worker)

    def complete_submission(self, job: Job, payload: bytes, options: SubmitOptions) -> None:
        """The submission of such a job has come: now the job can also be run again."""
        if job.payload:
            return
        state = self._state
        job.payload = payload
        if job.entry_bytes:
            state.memory.job_bytes += len(payload)
        job.attempts_limit = options.attempts_limit
        job.crash_limit = options.crash_limit
        job.retention_us = options.retention_us

    # --- copies of jobs of other engines ---

    def enter_copy(self, copy: Job, worker: Worker, subscriber: Peer) -> None:
        """The worker goes on with a job that is another engine's from now on, as with a borrowed copy."""
        copy.attempts_limit = 1
        self._enter(copy, worker)
        self._state.count_more(copy, SUBSCRIPTION_BYTES)
        copy.subscribers = [subscriber]
        subscriber.subscriptions[copy.id] = copy

    def take_out(self, copy: Job) -> Worker | None:
        """Remove a running copy of a job; returns the worker, which is not told, or `None` if it has none.

        The worker can report until `end_aside`.
        """
        worker = copy.worker
        if self._state.jobs.get(copy.id) is not copy or worker is None:
            return None
        self._attempts.detach(copy)
        self._dispatcher.offer_room(copy.function)
        for subscriber in copy.subscribers or ():
            subscriber.drop_subscription(copy.id)
        self._state.uncount_contents(copy)
        self._transitions.unlist(copy)
        self._state.changed.pop(copy, None)
        worker.running[copy.id] = copy
        if worker.resources:
            self._requirements.begin_use(worker, copy)
        self._aside.add(copy)
        return worker

    def end_aside(self, copy: Job, worker: Worker) -> None:
        """Let the worker no longer report on a copy that was taken out."""
        self._aside.discard(copy)
        copy.subscribers = None
        if worker.running.get(copy.id) is copy:
            del worker.running[copy.id]
            if worker.uses is not None:
                self._dispatcher.end_use(worker, copy.id)

    def is_aside(self, job: Job) -> bool:
        """Whether this is a copy that was taken out, and its worker may still report."""
        return job in self._aside

    def report_aside(self, copy: Job, state: JobState) -> None:
        """The worker reports the end of a copy that was taken out."""
        self._aside.discard(copy)
        copy.state = state
        for subscriber in copy.subscribers or ():
            subscriber.job_finished(copy)
        copy.subscribers = None
