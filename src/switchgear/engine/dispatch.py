"""Who gets which job: ready queues, and workers that pull, sleep or are pushed to.

Ready queues.  Each function has one deque per priority.  A job that leaves the queue from its middle (cancelled,
expired, held back) leaves its entry behind as a ghost, counted on the job and on the queue, and the entry is skipped
when it surfaces.  So leaving costs nothing that grows with the queue.  A queue that is mostly ghosts is swept.

Order of functions.  A worker that can do several is served by `function_order`:
  fair          the best priority over all its functions; among equals the function served longest ago
  registration  the function registered last, until it has nothing, then the one before it
  round-robin   like registration, but a function that was served goes to the end

Waking.  A sleeping worker is woken once and then has to ask.  For each job that becomes ready `wakeups` of the workers
asleep longest are woken.  One that was woken and takes a job of another function, or leaves, passes the call on.  One
that was woken and does not come would leave its job lying although others could do it; so each function that woke
somebody is looked at again a moment later: if nothing was taken from it everybody is woken, and otherwise as many as
for one job.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import Final

from switchgear.engine.core import Core, EngineSettings, Observer
from switchgear.engine.deadlines import Kind
from switchgear.engine.lifecycle import NEXT_STATE, next_state
from switchgear.model import READY, RUNNING, Cause, Delivery, Function, Job, Peer, Worker

__all__ = ["Dispatch"]

TAKEN: Final = Cause.TAKEN  # a global is cheaper to look up than a member of an enumeration
assert NEXT_STATE[TAKEN][READY] is RUNNING  # what `_start` relies on

# Sweeping a short queue is not worth the trouble.
LEAST_GHOSTS_FOR_SWEEP: Final = 256

LOSS_TEXTS: Final = {
    Cause.WORKER_LOST: b"worker lost",
    Cause.SERVER_LOST: b"server stopped",
    Cause.TIMED_OUT: b"timed out",
}


class Dispatch(Core):
    """The part of the engine that brings jobs and workers together."""

    def __init__(self, settings: EngineSettings | None = None, observer: Observer | None = None) -> None:
        super().__init__(settings, observer)
        self._last_worker_id = 0
        self._last_run_limit = 0

    # --- workers come, say what they can do, and go ---

    def add_worker(self, peer: Peer, protocol: str, name: bytes = b"") -> Worker:
        """A worker that can do nothing yet."""
        self._last_worker_id += 1
        worker = Worker(self._last_worker_id, peer, protocol, self.now_us)
        if name:
            worker.name = name
        self.workers[worker.id] = worker
        return worker

    def can_do(self, worker: Worker, function: Function, timeout_us: int = 0) -> None:
        """The worker takes jobs of this function; each may run for `timeout_us` (0: for ever)."""
        if not worker.alive:
            return
        if function not in worker.timeouts_us:
            worker.order.append(function)
            function.workers[worker] = None
        worker.timeouts_us[function] = timeout_us
        if timeout_us:
            worker.has_timeouts = True
        if worker.credits:
            self._fill(worker)
        if worker.asleep and not self.sleep(worker):
            worker.peer.wake(worker)

    def cannot_do(self, worker: Worker, function: Function) -> None:
        """The worker takes no more jobs of this function.  One that it is running stays with it."""
        if worker.timeouts_us.pop(function, None) is None:
            return
        worker.order.remove(function)
        del function.workers[worker]
        function.sleepers.pop(worker, None)
        function.pushers.pop(worker, None)
        if worker.woken_for is function:
            self._pass_on(worker)

    def forget_functions(self, worker: Worker) -> None:
        """The worker takes no more jobs of any function."""
        for function in list(worker.order):
            self.cannot_do(worker, function)

    def remove_worker(self, worker: Worker, cause: Cause = Cause.WORKER_LOST) -> None:
        """The worker is gone; what it held goes back."""
        if not worker.alive:
            return
        worker.alive = False
        worker.asleep = False
        worker.credits = 0
        if worker.lease_check_us:
            worker.lease_check_us = 0
            self.deadlines.stale += 1
        self.forget_functions(worker)
        del self.workers[worker.id]
        for job in list(worker.running.values()):
            if job.worker is worker:
                self._leave_worker(job)
                self._requeue(job, cause)
        worker.running.clear()

    def renew_lease(self, worker: Worker, lease_us: int) -> None:
        """The worker is alive and will say so again within `lease_us`."""
        if not worker.alive:
            return
        until_us = worker.lease_until_us = self.now_us + lease_us
        if worker.lease_check_us and worker.lease_check_us <= until_us:
            return  # a later end is seen when the earlier one comes up
        if worker.lease_check_us:
            self.deadlines.stale += 1
        worker.lease_check_us = until_us
        self.deadlines.add(until_us, Kind.LEASE, worker)

    # --- the three ways to ask ---

    def take(self, worker: Worker) -> Job | None:
        """Pull: a job for this worker now, or None."""
        if worker.asleep:
            self._rouse(worker)
        if len(worker.running) >= self.settings.jobs_per_worker > 0:
            return None
        order = worker.order
        if len(order) == 1 and self.handing_out:  # `_choose`, for the usual worker
            function = order[0]
            job = self._pop(function) if function.ready and not function.paused else None
        else:
            job = self._choose(worker)
        if job is not None:
            self._start(job, worker)
        return job

    def sleep(self, worker: Worker) -> bool:
        """Sleep and be woken: False if there is a job already, so the worker should ask at once."""
        is_full = len(worker.running) >= self.settings.jobs_per_worker > 0
        if self.handing_out and not is_full:
            for function in worker.order:
                if function.ready and not function.paused:
                    if worker.asleep:
                        self._rouse(worker)
                    return False
        worker.asleep = True
        for function in worker.order:
            function.sleepers[worker] = None
            if is_full and function.ready and not function.watched:
                self._watch(function)  # it will have room again, and nobody will say so
        return True

    def grant(self, worker: Worker, credit: int) -> None:
        """Be pushed to: the worker takes up to `credit` more jobs without asking for each."""
        limit = self.settings.jobs_per_worker
        if limit:
            credit = min(credit, limit - worker.credits) if len(worker.running) < limit else 0
        worker.credits += credit
        self._fill(worker)

    def withdraw_credit(self, worker: Worker) -> None:
        """The worker takes back the credit it has not used."""
        worker.credits = 0
        for function in worker.order:
            function.pushers.pop(worker, None)

    # --- operators ---

    def pause(self, function: Function) -> None:
        """Hand out nothing of this function until it is resumed."""
        if not function.paused:
            function.paused = True
            self._note_function(function)

    def resume(self, function: Function) -> None:
        """Hand out jobs of this function again."""
        if function.paused:
            function.paused = False
            self._note_function(function)
            self._offer(function)

    def set_limits(self, function: Function, high: int, normal: int, low: int) -> None:
        """Take submissions only while the function has fewer unfinished jobs than this; 0: always."""
        function.limits = [high, normal, low]
        self._note_function(function)

    def stop_handing_out(self) -> None:
        """Running jobs may finish, no other is started."""
        self.handing_out = False

    def start_handing_out(self) -> None:
        self.handing_out = True
        for function in self.functions.values():
            self._offer(function)

    # --- inside ---

    def _choose(self, worker: Worker) -> Job | None:
        """Take the job that this worker should have off its queue."""
        if not self.handing_out:
            return None
        order = worker.order
        if self.settings.function_order == "fair":
            job = self._choose_fairly(order)
        else:
            job = self._choose_in_order(order)
        if job is not None and worker.woken_for is not None and worker.woken_for is not job.function:
            self._pass_on(worker)
        return job

    def _choose_in_order(self, order: list[Function]) -> Job | None:
        for function in reversed(order):
            if function.ready and not function.paused:
                if self.settings.function_order == "round-robin":
                    order.remove(function)
                    order.insert(0, function)
                return self._pop(function)
        return None

    def _choose_fairly(self, order: list[Function]) -> Job | None:
        best: Function | None = None
        best_priority = 3
        for function in order:
            if not function.ready or function.paused:
                continue
            for priority in range(best_priority):
                if function.ready_of(priority):
                    best, best_priority = function, priority
                    break
            if best_priority == 0:
                break
        if best is None:
            return None
        order.remove(best)
        order.append(best)
        return self._pop(best)

    def _pop(self, function: Function) -> Job | None:
        """The first job of the best priority."""
        for queue in function.queues:
            while queue:
                job = queue.popleft()
                if not job.special or not job.ghosts:
                    function.ready -= 1
                    return job
                job.ghosts -= 1
                function.ghosts[job.priority] -= 1
        return None

    def _start(self, job: Job, worker: Worker) -> None:
        """READY to RUNNING.  Written out, not through `_move`, because every job passes here."""
        if job.state is not READY:
            next_state(job, TAKEN)  # raises
        now_us = self.now_us
        job.state = RUNNING
        if job.moves is None:
            job.moves = [TAKEN, now_us]
        else:
            job.moves += (TAKEN, now_us)
        job.attempts += 1
        job.worker = worker
        worker.running[job.id] = job
        function = job.function
        function.running += 1
        function.taken_us = now_us
        if job.special or worker.has_timeouts:
            self._limit_run(job, job.timeout_us or worker.timeouts_us[function])
        if self.keeps and (job.delivery or self.notes_starts):
            self._note(job)

    def _limit_run(self, job: Job, timeout_us: int) -> None:
        """See to it that this attempt ends."""
        if timeout_us:
            self._last_run_limit += 1
            job.special = True
            job.run_limit = self._last_run_limit
            self.deadlines.add(self.now_us + timeout_us, Kind.RUN_LIMIT, job, job.run_limit)

    def _enqueue(self, job: Job) -> None:
        """A job has become ready."""
        function = job.function
        function.queues[job.priority].append(job)
        function.ready += 1
        if function.pushers:
            self._push(function)
        elif function.sleepers:
            self._wake(function)

    def _dequeue(self, job: Job) -> None:
        """A ready job leaves its queue from wherever it is."""
        function = job.function
        priority = job.priority
        function.ready -= 1
        job.special = True
        job.ghosts += 1
        function.ghosts[priority] += 1
        queue = function.queues[priority]
        if function.ghosts[priority] > LEAST_GHOSTS_FOR_SWEEP and function.ghosts[priority] * 2 > len(queue):
            self._sweep(function, priority)

    def _sweep(self, function: Function, priority: int) -> None:
        """Rebuild a queue without its ghosts."""
        kept: deque[Job] = deque()
        for job in function.queues[priority]:
            if job.ghosts:
                job.ghosts -= 1
            else:
                kept.append(job)
        queues = list(function.queues)
        queues[priority] = kept
        function.queues = (queues[0], queues[1], queues[2])
        function.ghosts[priority] = 0

    def _leave_worker(self, job: Job) -> None:
        """A running job is not its worker's any more."""
        worker = job.worker
        if worker is not None:
            worker.running.pop(job.id, None)
            job.worker = None
        job.function.running -= 1
        if job.special and job.run_limit:
            job.run_limit = 0
            self.deadlines.stale += 1

    def _requeue(self, job: Job, cause: Cause) -> None:
        """A running job that its worker no longer holds: back to the queue, unless that makes no sense."""
        if job.delivery == Delivery.WAIT and not job.watchers:
            self._finish(job, Cause.ABANDONED)
            return
        if cause is not Cause.GIVEN_BACK and self.is_last_attempt(job):
            job.result_code = 255
            job.error = b"%s in attempt %d, the last one" % (LOSS_TEXTS[cause], job.attempts)
            self._finish(job, Cause.EXHAUSTED)
            self.observer.job_died(job)
            return
        if cause is Cause.GIVEN_BACK:
            job.attempts -= 1
        self._forget_run(job)
        job.function.requeued += 1
        self._move(job, cause)
        if self._is_too_late(job):
            self._expire(job)
            return
        if self.keeps and job.delivery:
            self._note(job)
        self._enqueue(job)
        self.observer.job_requeued(job, cause)

    def _forget_run(self, job: Job) -> None:
        """What an attempt that came to nothing has said of itself."""
        job.numerator = job.denominator = 0
        job.time_left_s = -1
        job.progress_text = b""
        job.chunks = None
        job.collected_bytes = 0

    def _is_too_late(self, job: Job) -> bool:
        """Whether the job must not be started any more.  Asked where several deadlines may have passed at once."""
        return 0 < job.expires_us <= self.now_us

    def _expire(self, job: Job) -> None:
        """The end of a job that was not started in time, and is in no queue any more."""
        self._finish(job, Cause.EXPIRED)
        self.observer.job_expired(job)

    @abstractmethod
    def _finish(self, job: Job, cause: Cause) -> None:
        """The end of a job's life; the engine proper knows how."""

    def _rouse(self, worker: Worker) -> None:
        worker.asleep = False
        for function in worker.order:
            function.sleepers.pop(worker, None)

    def _wake(self, function: Function) -> None:
        """Wake as many sleepers as one job is worth."""
        if function.paused or not self.handing_out:
            return
        if not function.watched:
            self._watch(function)
        count = self.settings.wakeups or len(function.sleepers)
        while count and function.sleepers:
            worker = next(iter(function.sleepers))
            self._rouse(worker)
            worker.woken_for = function
            worker.peer.wake(worker)
            count -= 1

    def _pass_on(self, worker: Worker) -> None:
        """A woken worker will not take the job that it was woken for: somebody else should."""
        function = worker.woken_for
        worker.woken_for = None
        if function is not None and function.ready and function.sleepers:
            self._wake(function)

    def _watch(self, function: Function) -> None:
        function.watched = True
        self.deadlines.add(self.now_us + self.settings.neglect_us, Kind.NEGLECT, function)

    def _look_after(self, function: Function) -> None:
        """Some time after a wake-up: has anybody come?"""
        function.watched = False
        if not (function.ready and function.sleepers) or function.paused or not self.handing_out:
            return
        if function.taken_us + self.settings.neglect_us > self.now_us:
            self._wake(function)  # those who come may be too few
            return
        for worker in list(function.sleepers):
            self._rouse(worker)
            worker.peer.wake(worker)

    def _offer(self, function: Function) -> None:
        """A function that was held up may be handed out again."""
        while function.ready and function.pushers and not function.paused and self.handing_out:
            self._push(function)
        for _ in range(min(function.ready, len(function.sleepers))):
            self._wake(function)

    def _push(self, function: Function) -> None:
        """Give the best ready job to the worker that has waited longest with credit."""
        if function.paused or not self.handing_out:
            return
        worker = next(iter(function.pushers))
        job = self._pop(function)
        if job is None:
            return
        worker.credits -= 1
        for other in worker.order:
            if worker.credits:
                other.pushers.move_to_end(worker)
            else:
                other.pushers.pop(worker, None)
        self._start(job, worker)
        worker.peer.assign(worker, job)

    def _fill(self, worker: Worker) -> None:
        """Use a worker's credit for what is ready; what is left lets jobs be pushed later."""
        while worker.credits:
            job = self._choose(worker)
            if job is None:
                for function in worker.order:
                    function.pushers[worker] = None
                return
            worker.credits -= 1
            self._start(job, worker)
            worker.peer.assign(worker, job)
        for function in worker.order:
            function.pushers.pop(worker, None)

    def is_last_attempt(self, job: Job) -> bool:
        """Whether the attempt that is being made spends the job's last one."""
        limit = job.attempts_limit if job.attempts_limit >= 0 else self.settings.attempts
        return 0 < limit <= job.attempts
