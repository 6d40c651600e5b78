"""`Dispatcher`: assigns ready jobs to workers that pull, sleep until they are woken, or have granted credit.

Three ways to get jobs.  A worker pulls; or it sleeps and is woken (`engine.wakeups`); or it grants credit and is pushed
to.

Order of functions.  A worker that can do several is served by `function_order`:
  fair          the best priority over all its functions; among equals the function served longest ago
  registration  the function registered last, until it has nothing, then the one before it
  round-robin   like registration, but a function that was served goes to the end
`engine.ready_queues` decides which job of a function comes first, and `engine.limiters` whether it may be handed out.

Priorities.  A worker may take only jobs of some priorities of a function.  Such a worker is served before those that
take all, because these are of use for every other job as well.

Credit.  A worker may grant credit for a number of jobs and is then sent them without asking, round robin with other
workers that have.  A credit may end at some time; it then has a ticket.  Each job that is assigned uses up the worker's
oldest ticket, if it has any.  Credit beyond what a worker may hold is not given, so there may be more tickets than
credits; a ticket without one times out.
"""

from __future__ import annotations

from collections.abc import Iterator

from switchgear.engine.attempts import Attempts
from switchgear.engine.deadlines import Deadlines
from switchgear.engine.job_chooser import JobChooser
from switchgear.engine.limiters import Limiters
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.engine.requirements import Requirements, first_fitting, unlist_worker
from switchgear.engine.state import EngineState
from switchgear.engine.waiting_workers import (
    add_pusher,
    first_waiting,
    has_sleepers,
    remove_pusher,
    to_end_of_pushers,
)
from switchgear.engine.wake_policy import PolicyCaller
from switchgear.engine.wakeups import Wakeups
from switchgear.model import BEST_FIRST, Function, Job, KeyQueue, Limiter, PriorityWaiters, QueueGroup, Worker

__all__ = ["Dispatcher"]


class Dispatcher:
    """Assigns jobs to workers that pull, sleep or have granted credit."""

    def __init__(
        self,
        state: EngineState,
        deadlines: Deadlines,
        limiters: Limiters,
        queues: ReadyQueues,
        wakeups: Wakeups,
        attempts: Attempts,
        policy_caller: PolicyCaller,
        requirements: Requirements,
    ) -> None:
        self._policy_caller = policy_caller
        self.chooser = JobChooser(state, limiters, queues, wakeups, policy_caller)
        self._requirements = requirements
        self._state = state
        self._deadlines = deadlines
        self._limiters = limiters
        self._queues = queues
        self._wakeups = wakeups
        self._attempts = attempts
        # While deadlines are handled: for how many more jobs than before there is room.
        self._deferred: dict[Function, int] = {}
        self._deferred_workers: dict[Worker, None] = {}  # likewise workers that have more to offer than before
        self._deferred_pushes: dict[Function, None] = {}  # likewise functions that a wake policy is asked about again

    # --- a job has become ready ---

    def enqueue(self, job: Job) -> None:
        """Append a ready job, whose place is the highest, to its queue, and tell workers."""
        function = job.function
        if function.limiter is not None:
            self._enqueue_limited(function.limiter, job, ahead=False)
            return
        self._queues.append(job)
        if function.by_priority is not None:
            self._offer_job(function, function.by_priority, job.priority)
        elif function.pushers:
            self.push(function)
        elif function.sleepers:
            self._wakeups.wake(function)

    def enqueue_last(self, job: Job) -> None:
        """Queue a job at the end, behind those that were submitted after it."""
        self._queues.rank_last(job)
        self.enqueue(job)

    def enqueue_again(self, job: Job) -> None:
        """Queue a job that has waited, or whose attempt failed: at the front if the function is `released_first`."""
        function = job.function
        if not function.released_first:
            self.enqueue_last(job)
            return
        self._queues.rank_first(job)
        if function.limiter is not None:
            self._enqueue_limited(function.limiter, job, ahead=True)
            return
        self._queues.prepend(job)
        if function.by_priority is not None:
            self._offer_job(function, function.by_priority, job.priority)
        elif function.pushers:
            self.push(function)
        elif function.sleepers:
            self._wakeups.wake(function)

    def _offer_job(self, function: Function, waiters: PriorityWaiters, priority: int) -> None:
        """Offer a job that has become ready, where some workers take only some priorities."""
        if function.paused or not self._state.handing_out:
            return
        if self._state.has_wake_policy:
            self._push_chosen(function)
        elif waiters.pushers[priority]:
            self._push_by_priority(function, waiters, priority)
        elif function.pushers:
            self.push(function)
        elif function.sleepers or waiters.sleepers[priority]:
            self._wakeups.wake(function, priority)

    def _enqueue_limited(self, limiter: Limiter, job: Job, *, ahead: bool) -> None:
        should_tell = self._queues.join_limited(limiter, job, ahead=ahead)
        function = limiter.function
        if should_tell or function.pushers or function.by_priority is not None:
            self.offer_one(function, limiter.requiring[job.requires] if job.requires else limiter)

    # --- pull ---

    def take(self, worker: Worker) -> Job | None:
        """Take a job for this worker, or return `None`."""
        if worker.asleep:
            self._wakeups.rouse(worker)
        if worker.may_miss_wakeups:
            self._wakeups.wakeup_answered(worker)
        state = self._state
        if len(worker.running) >= state.settings.jobs_per_worker > 0:
            return None
        order = worker.order
        # `JobChooser.choose`, inlined for the usual worker
        if len(order) == 1 and state.hands_out_plainly and worker.priorities is None:
            function = order[0]
            job = self._queues.pop(function, worker) if function.ready and not function.paused else None
        else:
            job = self.chooser.choose(worker)
        if job is not None:
            self._attempts.start(job, worker)
        return job

    def take_of(self, worker: Worker, function: Function, priority: int) -> Job | None:
        """Take a job of this function and priority for this worker, or return `None`."""
        if worker.asleep:
            self._wakeups.rouse(worker)
        state = self._state
        if len(worker.running) >= state.settings.jobs_per_worker > 0 or not state.handing_out or function.paused:
            return None
        if function not in worker.timeouts_us:
            return None
        if state.has_wake_policy:
            job = self.chooser.chosen_job(worker, (function,), (priority,))
        else:
            job = self._queues.pop_of(function, priority, worker)
        if job is not None:
            if worker.woken_for is not None and worker.woken_for is not function:
                self._wakeups.pass_on(worker)
            self._attempts.start(job, worker)
        return job

    def awaits_payload(self, worker: Worker) -> bool:
        """Whether this worker would be assigned a job now if the job's payload were in memory."""
        if not self._state.handing_out:
            return False
        for function in worker.order:
            if function.ready and not function.paused and self._queues.awaits_payload(function, worker):
                return True
        return False

    # --- push ---

    def grant(self, worker: Worker, credit: int) -> None:
        """Grant credit: the worker takes up to `credit` more jobs without asking for each."""
        limit = self._state.settings.jobs_per_worker
        if limit:
            credit = min(credit, limit - worker.credits) if len(worker.running) < limit else 0
        if credit > 0:
            worker.credits += credit
        self.fill(worker)

    def withdraw_credit(self, worker: Worker) -> None:
        """Take back all unused credit of the worker."""
        worker.credits = 0
        if worker.tickets:
            self._deadlines.note_stale(len(worker.tickets))
            worker.tickets.clear()
        self.leave_pushers(worker)

    def take_back_credit(self, worker: Worker, credit: int) -> int:
        """Take back this much unused credit of the worker, or all there is; returns how much that was.

        For credit without tickets. A peer may call this while it handles an assignment.
        """
        credit = min(credit, worker.credits)
        if credit > 0:
            worker.credits -= credit
            if not worker.credits:
                self.leave_pushers(worker)
        return max(0, credit)

    def end_ticket(self, worker: Worker, ticket: int) -> None:
        """Remove a ticket that got no job, and its credit if it had one; the others keep their order."""
        assert worker.tickets is not None
        del worker.tickets[ticket]
        if worker.credits > len(worker.tickets):
            worker.credits -= 1
            if not worker.credits:
                self.leave_pushers(worker)

    def push(self, function: Function, group: QueueGroup | None = None) -> bool:
        """Give the best ready job to the worker that has waited longest with credit; False if that is not possible.

        If jobs require something and a group is given, the best of that group.
        """
        if function.paused or not self._state.hands_out_plainly:
            return not function.paused and self._state.handing_out and self._push_chosen(function)
        limiter = function.limiter
        if limiter is not None and limiter.requiring:
            return self._push_fitting(limiter, group)
        worker = first_waiting(function.pushers)
        job = self._queues.pop(function, worker)
        if job is None:
            return False
        self._spend_credit(worker)
        self._assign(worker, job)
        return True

    def _push_chosen(self, function: Function) -> bool:
        """Give a job to the worker with credit that the wake policy names first, or else wake those that it names."""
        pushers: dict[Worker, None] = dict.fromkeys(function.pushers)
        if function.by_priority is not None:
            for priority in BEST_FIRST:
                pushers.update(function.by_priority.pushers[priority])
        choice = self._policy_caller.choose(function, tuple(pushers), again=True) if pushers else None
        if choice is None:
            if pushers and function.ready:
                self._wakeups.look_again(function)
            if has_sleepers(function):
                self._wakeups.wake(function)
            return False
        job, workers = choice
        self._queues.pop_job(job)
        self._spend_credit(workers[0])
        self._assign(workers[0], job)
        return True

    def _push_by_priority(self, function: Function, waiters: PriorityWaiters, priority: int) -> bool:
        """Give the first job of a priority to the worker that has waited longest with credit for only such jobs.

        If jobs require something it is the first of those workers that fit a job.
        """
        has_requirements = function.limiter is not None and bool(function.limiter.requiring)
        job: Job | None = None
        for worker in list(waiters.pushers[priority]) if has_requirements else waiters.pushers[priority]:
            job = self._queues.pop_of(function, priority, worker)
            if job is not None or not has_requirements:
                break
        if job is None:
            return False
        self._spend_credit(worker)
        self._assign(worker, job)
        return True

    def _push_fitting(self, limiter: Limiter, only: QueueGroup | None) -> bool:
        """The same for a function whose jobs require something: the best job for which a worker with credit fits.

        If a group is given only its jobs are looked at: a job of it has become ready, and for others nobody fits.
        """
        function = limiter.function
        if not self._limiters.is_open(function):
            return False
        workers: dict[QueueGroup, Worker] = {}
        for group in limiter.groups if only is None else (only,):
            if group.has_ready():
                fitting = first_fitting(group, function.pushers, function.offering_pushers)
                if fitting is not None:
                    workers[group] = fitting
        groups = list(workers)
        for priority in BEST_FIRST:
            while groups:
                best = self._limiters.next_group(limiter, priority, groups)
                if best is None:
                    break
                worker = workers[best]
                job = self._queues.pop_from(limiter, best, priority)
                if job is not None:
                    self._spend_credit(worker)
                    self._assign(worker, job)
                    return True
                groups.remove(best)  # the payload of its next job is not in memory
        return False

    def _spend_credit(self, worker: Worker) -> None:
        worker.credits -= 1
        if not worker.credits:
            self.leave_pushers(worker)
        elif worker.priorities is not None:
            to_end_of_pushers(worker)
        else:
            for other in worker.order:  # workers with credit left are served round robin
                if len(other.pushers) > 1:
                    other.pushers.move_to_end(worker)
                    if worker.offer is not None:
                        other.offering_pushers[worker.offer].move_to_end(worker)

    def fill(self, worker: Worker) -> None:
        """Use a worker's credit for ready jobs; the rest lets jobs be pushed later."""
        while worker.credits:
            job = self.chooser.choose(worker)
            if job is None:
                add_pusher(worker)
                if self._state.has_wake_policy:
                    self._look_again_for(worker)
                return
            worker.credits -= 1
            self._assign(worker, job)
        self.leave_pushers(worker)

    def _look_again_for(self, worker: Worker) -> None:
        """The wake policy gives nothing to this worker now, but may later."""
        for function in worker.order:
            if function.ready:
                self._wakeups.look_again(function)

    def check_wakeups(self, function: Function) -> None:
        """Check whether a worker took the job: some time after a wakeup, or after a wake policy named no worker."""
        self._wakeups.check(function)
        if self._state.has_wake_policy:
            if self._state.is_meeting_deadlines:
                self._deferred_pushes[function] = None  # some of its jobs may be about to expire
            else:
                self._push_all_chosen(function)

    def _push_all_chosen(self, function: Function) -> None:
        """Push jobs to those that the wake policy names, as long as it names any."""
        while self.chooser.has_work(function) and self._has_pushers(function) and self._push_chosen(function):
            pass

    def _has_pushers(self, function: Function) -> bool:
        return bool(function.pushers) or (function.by_priority is not None and any(function.by_priority.pushers))

    def _assign(self, worker: Worker, job: Job) -> None:
        """Start a job for which a credit was used."""
        if worker.tickets:
            worker.tickets.popitem(last=False)
            self._deadlines.note_stale()
        self._attempts.start(job, worker)
        worker.peer.assign(worker, job)

    def leave_pushers(self, worker: Worker) -> None:
        """Stop pushing to the worker."""
        if worker.priorities is not None:
            remove_pusher(worker)
            return
        for function in worker.order:
            function.pushers.pop(worker, None)
            if worker.offer is not None:
                unlist_worker(function.offering_pushers, worker)

    # --- offering jobs that were held back ---

    def offer(self, function: Function) -> Iterator[None]:
        """Push as many jobs as possible of a function that was held back, and wake workers for the rest, one per
        step: there may be very many of both."""
        yield from self._pushes(function, None)
        if not has_sleepers(function) or not self.chooser.has_work(function):
            return
        if function.by_priority is not None:
            self._wakeups.wake(function)
        for _ in range(min(self._limiters.room(function), len(function.sleepers))):
            asleep = len(function.sleepers)
            self._wakeups.wake(function)
            if len(function.sleepers) == asleep:
                break
            yield

    def _push_all(self, function: Function, group: QueueGroup | None = None) -> None:
        """Push jobs of a function, or of one of its groups, while there are some, and workers with credit for them."""
        if function.by_priority is not None:
            for _ in self._pushes(function, group):
                pass
            return
        while function.pushers and self.chooser.has_work(function) and self.push(function, group):
            pass

    def _pushes(self, function: Function, group: QueueGroup | None) -> Iterator[None]:
        """The same, one job per step."""
        waiters = function.by_priority
        if waiters is not None and self._state.has_wake_policy:
            while self.chooser.has_work(function) and self._push_chosen(function):
                yield
            return
        if waiters is not None:
            for priority in BEST_FIRST:
                while (
                    waiters.pushers[priority]
                    and self.chooser.has_work(function)
                    and self._limiters.offers(function, priority)
                    and self._push_by_priority(function, waiters, priority)
                ):
                    yield
        while function.pushers and self.chooser.has_work(function) and self.push(function, group):
            yield

    def offer_loaded(self, function: Function, count: int) -> None:
        """Push jobs whose payloads were read, and wake workers for the rest."""
        function.unloaded = None
        ready = function.ready
        self._push_all(function)
        count -= ready - function.ready
        # At least once: the jobs behind them may have had their payloads all the time, or are wanted next.
        count = max(1, count)
        for _ in range(min(count, len(function.sleepers))):
            if not function.sleepers or not self.chooser.has_work(function):
                return
            self._wakeups.wake(function)
        if has_sleepers(function) and self.chooser.has_work(function) and not function.wakeup_check_pending:
            self._wakeups.wake(function)  # the workers that asked for this job take only some priorities

    def offer_one(self, function: Function, group: QueueGroup | None = None) -> None:
        """Offer one more job of a function, or of one of its groups, which may run now."""
        if self._state.is_meeting_deadlines:
            self._deferred[function] = self._deferred.get(function, 0) + 1
            return
        has_more = function.limiter is not None and function.limiter.has_room  # so others may come first
        self._push_all(function, None if has_more else group)
        if has_sleepers(function) and self.chooser.has_work(function):
            self._wakeups.wake(function, -1, group)

    def offer_room(self, function: Function) -> None:
        """Offer another job of a function with limits: a job has left its worker, and its new state is complete.

        While deadlines are handled, this waits for the last of them: a job that might run now may have expired an hour
        ago.
        """
        limiter = function.limiter
        if limiter is not None and limiter.has_room:
            limiter.has_room = False
            if limiter.freed:
                freed, limiter.freed = limiter.freed, {}
                for worker in freed:
                    self.offer_to(worker)
            self._requirements.drop_needless(limiter)
            if limiter.policy:  # otherwise the job that has left was in nobody's way
                self.offer_one(function)

    def end_use(self, worker: Worker, job_id: int) -> None:
        """A worker has reported a job that had ended without it, and what the job used is free again."""
        if self._requirements.end_use(worker, job_id):
            self.offer_to(worker)

    def offer_to(self, worker: Worker) -> None:
        """A worker has more to offer than before: give it jobs, if it waits for any."""
        if self._state.is_meeting_deadlines:
            self._deferred_workers[worker] = None
        elif not worker.alive:
            return
        elif worker.credits:
            self.fill(worker)
        elif worker.asleep and not self._wakeups.sleep(worker):
            worker.peer.wake(worker)

    def token_came(self, subject: Limiter | KeyQueue) -> None:
        """Handle a returned token of a function, or of one of its keys."""
        if self._limiters.token_came(subject):
            function = subject.function
            self.offer_one(function)
            if has_sleepers(function) and self.chooser.has_work(function):
                self._limiters.await_more_tokens(subject)

    def offer_deferred(self) -> None:
        """Offer jobs for all room that has been deferred: all due deadlines are handled."""
        if self._deferred_workers:
            workers, self._deferred_workers = self._deferred_workers, {}
            for worker in workers:
                self.offer_to(worker)
        if self._deferred_pushes:
            functions, self._deferred_pushes = self._deferred_pushes, {}
            for function in functions:
                self._push_all_chosen(function)
        if self._deferred:
            offers, self._deferred = self._deferred, {}
            for function, count in offers.items():
                for _ in range(count):
                    self.offer_one(function)
