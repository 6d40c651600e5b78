"""Workers: how they come and go, and who gets which job.

Three ways to ask.  A worker pulls; or it sleeps and is woken (`engine.waking`); or it grants credit and is pushed to.

Order of functions.  A worker that can do several is served by `function_order`:
  fair          the best priority over all its functions; among equals the function served longest ago
  registration  the function registered last, until it has nothing, then the one before it
  round-robin   like registration, but a function that was served goes to the end
Which job of a function comes first is the matter of `engine.queues`, and whether it may be handed out that of
`engine.gates`.

Credit.  A worker may grant credit for a number of jobs and is then sent them without asking, in turn with others who
have.  A credit may end at some time; it then has a ticket.  Each job that is assigned uses up the worker's oldest
ticket, if it has any.  Credit beyond what a worker may hold is not given, so there may be more tickets than credits; a
ticket without one waits in vain.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from switchgear.engine.deadlines import Kind
from switchgear.engine.lifecycle import NEXT_STATE, next_state
from switchgear.engine.operating import Operating
from switchgear.engine.uniques import free_key
from switchgear.engine.waking import WakePolicy
from switchgear.memory import FOR_WORKERS
from switchgear.model import BEST_FIRST, READY, RUNNING, Cause, Delivery, Function, Job, Peer, Worker
from switchgear.model.job import NO_DETAILS

__all__ = ["Dispatch", "WakePolicy"]

TAKEN: Final = Cause.TAKEN  # a global is cheaper to look up than a member of an enumeration
assert NEXT_STATE[TAKEN][READY] is RUNNING  # what `_start` relies on

# What a worker takes in memory, about, and each function that it can do.
WORKER_BYTES: Final = 1_000
ABILITY_BYTES: Final = 300

LOSS_TEXTS: Final = {
    Cause.WORKER_LOST: b"worker lost",
    Cause.SERVER_LOST: b"server stopped",
    Cause.TIMED_OUT: b"timed out",
}


class Dispatch(Operating):
    """The part of the engine that brings jobs and workers together."""

    holds_starts: bool = False  # a worker is sent a job when its start is kept, and the owner says when that is

    # --- workers come, say what they can do, and go ---

    def add_worker(self, peer: Peer, protocol: str, name: bytes = b"") -> Worker:
        """A worker that can do nothing yet."""
        self._last.worker_id += 1
        worker = Worker(self._last.worker_id, peer, protocol, self.now_us)
        if name:
            worker.name = name
        self.workers[worker.id] = worker
        self.memory.registration_bytes += WORKER_BYTES
        return worker

    def refuse_registrations(self, count: int, quarters: int = FOR_WORKERS) -> None:
        """Raise Refused if there is no memory for a worker that registers for so many functions.

        Where one connection can stand for any number of workers, they should fill fewer quarters of what there is.
        """
        self._refuse_registration(WORKER_BYTES + ABILITY_BYTES * count, quarters)

    def can_do(self, worker: Worker, function: Function, timeout_us: int = 0) -> None:
        """The worker takes jobs of this function; each may run for `timeout_us` (0: for ever)."""
        if not worker.alive:
            return
        if function.dropped:  # since the caller has seen it
            function = self.function_named(function.name)
        if function not in worker.timeouts_us:
            worker.order.append(function)
            function.workers[worker] = None
            self.memory.registration_bytes += ABILITY_BYTES
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
        self.memory.registration_bytes -= ABILITY_BYTES
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
        self.withdraw_credit(worker)
        self.suspend_lease(worker)
        for number in list(worker.alarms or ()):
            self.cancel_alarm(worker, number)
        self.forget_functions(worker)
        del self.workers[worker.id]
        self.memory.registration_bytes -= WORKER_BYTES
        if worker.running:
            running, worker.running = worker.running, {}
            self.backlog.start(self._give_back(worker, running, cause))

    def _give_back(self, worker: Worker, running: dict[int, Job], cause: Cause) -> Iterator[None]:
        """The jobs of a worker that is gone go back, one at a time."""
        for job in running.values():
            if job.worker is worker:
                self._leave_worker(job)
                self._requeue(job, cause, self._enqueue_again)
            yield

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

    def suspend_lease(self, worker: Worker) -> None:
        """No sign of life is expected from the worker until its lease is renewed."""
        worker.lease_until_us = 0
        if worker.lease_check_us:
            worker.lease_check_us = 0
            self.deadlines.stale += 1

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

    def take_of(self, worker: Worker, function: Function, priority: int) -> Job | None:
        """Pull: a job of this function and priority for this worker now, or None."""
        if worker.asleep:
            self._rouse(worker)
        if len(worker.running) >= self.settings.jobs_per_worker > 0 or not self.handing_out or function.paused:
            return None
        job = self._pop_of(function, priority) if function in worker.timeouts_us else None
        if job is not None:
            if worker.woken_for is not None and worker.woken_for is not function:
                self._pass_on(worker)
            self._start(job, worker)
        return job

    def grant(self, worker: Worker, credit: int) -> None:
        """Be pushed to: the worker takes up to `credit` more jobs without asking for each."""
        limit = self.settings.jobs_per_worker
        if limit:
            credit = min(credit, limit - worker.credits) if len(worker.running) < limit else 0
        if credit > 0:
            worker.credits += credit
        self._fill(worker)

    def grant_until(self, worker: Worker, until_us: int) -> int:
        """Be pushed to: the worker takes one job without asking, if there is one by then.

        Returns the number of the ticket that `Peer.waited_in_vain` will name, or 0 if a job was assigned at once.
        A worker that has several is assigned jobs for them in the order in which it was given them.
        """
        self._last.ticket = ticket = self._last.ticket + 1
        if worker.tickets is None:
            worker.tickets = OrderedDict()
        worker.tickets[ticket] = until_us
        self.deadlines.add(until_us, Kind.PATIENCE, worker, ticket)
        self.grant(worker, 1)
        return ticket if ticket in worker.tickets else 0

    def cancel_ticket(self, worker: Worker, ticket: int) -> None:
        """Nobody waits any more for the job that this ticket stands for."""
        if worker.tickets and worker.tickets.pop(ticket, None) is not None:
            self.deadlines.stale += 1
            self._take_back_ticket(worker)

    def _take_back_ticket(self, worker: Worker) -> None:
        """A ticket of the worker is gone without a job: its credit goes too, if it had one."""
        if worker.credits > len(worker.tickets or ()):
            worker.credits -= 1
            if not worker.credits:
                self._leave_pushers(worker)

    def alarm(self, worker: Worker, at_us: int) -> int:
        """Tell the worker's peer when it is so late; returns the number that `Peer.waited_in_vain` will name."""
        self._last.ticket = number = self._last.ticket + 1
        if worker.alarms is None:
            worker.alarms = {}
        worker.alarms[number] = at_us
        self.deadlines.add(at_us, Kind.PATIENCE, worker, number)
        return number

    def cancel_alarm(self, worker: Worker, number: int) -> None:
        """The worker's peer need not be told any more."""
        if worker.alarms and worker.alarms.pop(number, None) is not None:
            self.deadlines.stale += 1

    def _end_patience(self, worker: Worker, ticket: int) -> None:
        """The time of a ticket or an alarm has come.  The worker's other credits keep their turn."""
        if worker.alarms and worker.alarms.pop(ticket, None) is not None:
            worker.peer.waited_in_vain(worker, ticket)
            return
        assert worker.tickets is not None
        del worker.tickets[ticket]
        self._take_back_ticket(worker)
        worker.peer.waited_in_vain(worker, ticket)

    def withdraw_credit(self, worker: Worker) -> None:
        """The worker takes back the credit it has not used."""
        worker.credits = 0
        if worker.tickets:
            self.deadlines.stale += len(worker.tickets)
            worker.tickets.clear()
        self._leave_pushers(worker)

    def take_back_credit(self, worker: Worker, credit: int) -> int:
        """The worker takes back so much of the credit it has not used, or all there is; returns how much that was.

        For credits without tickets.  A peer may call this while it is told of a job that the worker was assigned.
        """
        credit = min(credit, worker.credits)
        if credit > 0:
            worker.credits -= credit
            if not worker.credits:
                self._leave_pushers(worker)
        return max(0, credit)

    # --- inside ---

    def _choose(self, worker: Worker) -> Job | None:
        """Take the job that this worker should have off its queue."""
        if not self.handing_out:
            return None
        order = worker.order
        if len(order) == 1:
            function = order[0]
            return self._pop(function) if function.ready and not function.paused else None
        if self.settings.function_order == "fair":
            job = self._choose_fairly(order)
        else:
            job = self._choose_in_order(order)
        if job is not None and worker.woken_for is not None and worker.woken_for is not job.function:
            self._pass_on(worker)
        return job

    def _choose_in_order(self, order: list[Function]) -> Job | None:
        for function in reversed(order):
            if function.ready and not function.paused and (function.gate is None or self._is_open(function)):
                if self.settings.function_order == "round-robin":
                    order.remove(function)
                    order.insert(0, function)
                return self._pop(function)
        return None

    def _choose_fairly(self, order: list[Function]) -> Job | None:
        best: Function | None = None
        best_place = len(BEST_FIRST)
        for function in order:
            if not function.ready or function.paused or (function.gate is not None and not self._is_open(function)):
                continue
            for place in range(best_place):
                if self._offers(function, BEST_FIRST[place]):
                    best, best_place = function, place
                    break
            if best_place == 0:
                break
        if best is None:
            return None
        order.remove(best)
        order.append(best)
        return self._pop(best)

    def _start(self, job: Job, worker: Worker) -> None:
        """READY to RUNNING.  Written out, not through `_move`, because every job passes here."""
        if job.state is not READY:
            next_state(job, TAKEN)  # raises
        now_us = self.now_us
        if job.history is None and job.started_us < 0:
            job.started_us = now_us  # which implies the move
        else:
            self._note_move(job, TAKEN)
        job.state = RUNNING
        job.attempts += 1
        job.worker = worker
        worker.running[job.id] = job
        function = job.function
        function.running += 1
        function.taken_us = now_us
        if function.gate is not None:
            self._count_start(job)
        if job.special or worker.has_timeouts:
            timeout_us = job.timeout_us or worker.timeouts_us[function]
            if timeout_us:
                self._limit_run(job, timeout_us)
            if job.unique_scope and job.unique:
                free_key(job)
        if self.keeps and (job.delivery or self.notes_starts):
            self._note(job)
        if self.audience:
            for peer in self.audience:
                peer.job_started(job)

    def _limit_run(self, job: Job, timeout_us: int) -> None:
        """See to it that this attempt ends."""
        self._last.run_limit += 1
        job.special = True
        job.run_limit = self._last.run_limit
        if job.run_until_us:
            job.run_until_us = 0  # an earlier attempt was renewed
        self.deadlines.add(self.now_us + timeout_us, Kind.RUN_LIMIT, job, job.run_limit)
        is_unsent = self.holds_starts and job.delivery > 0 and self.start_must_be_kept(job)
        if is_unsent or job.unsent:
            job.unsent = is_unsent

    def start_is_kept(self, job: Job) -> None:
        """The worker is sent the job now, if it still has it: the time that it may take begins."""
        job.unsent = False
        worker = job.worker
        if job.state is not RUNNING or worker is None:
            return
        timeout_us = job.timeout_us or worker.timeouts_us.get(job.function, 0)
        if not timeout_us:
            return  # the worker cannot do such jobs any more, and has it without a limit
        if job.run_limit:
            job.run_until_us = max(job.run_until_us, self.now_us + timeout_us)  # seen when the limit comes up
        else:
            self._limit_run(job, timeout_us)  # that has come up already
            job.unsent = False

    def _leave_worker(self, job: Job) -> None:
        """A running job is not its worker's any more."""
        worker = job.worker
        if worker is not None:
            worker.running.pop(job.id, None)
            job.worker = None
        function = job.function
        function.running -= 1
        if function.gate is not None and worker is not None:  # after a restart there is none, and none was counted
            self._count_end(job)
        if job.special and job.run_limit:
            job.run_limit = 0
            self.deadlines.stale += 1
        if job.special and job.unsent:
            job.unsent = False

    def _cut_off(self, job: Job, cause: Cause = Cause.CANCELLED) -> None:
        """Tell the worker of a job that ends without it, and why.  It stays in the worker's list until it reports, so
        that the report is not taken for a lie."""
        worker = job.worker
        self._leave_worker(job)
        if worker is not None:
            worker.running[job.id] = job
            worker.peer.revoke(worker, job, cause)

    def _requeue(self, job: Job, cause: Cause, enqueue: Callable[[Job], None]) -> None:
        """A running job that its worker no longer holds: back to the queue, unless that makes no sense."""
        if job.delivery == Delivery.WAIT and not job.watchers:
            self._finish(job, Cause.ABANDONED)
            return
        if cause is Cause.GIVEN_BACK:
            job.attempts -= 1
        elif self._dies_of(job, cause):
            self._finish(job, Cause.EXHAUSTED)
            self.observer.job_died(job)
            return
        self._forget_run(job)
        if job.unique_scope:
            self._take_key_again(job)
        job.function.requeued += 1
        self._move(job, cause)
        if self._is_too_late(job):
            self._expire(job)
            return
        if self.keeps and job.delivery:
            self._note(job)
        enqueue(job)
        self._offer_room(job.function)
        self.observer.job_requeued(job, cause)

    def _dies_of(self, job: Job, cause: Cause) -> bool:
        """A run came to nothing: count it, and say in the job if that was one too many."""
        text = LOSS_TEXTS[cause]
        # A limit that the submitter has set is about the job.  One that the worker gave itself, or that its protocol
        # gives it, is how one notices that nothing more will be heard of it.
        took_too_long = cause is Cause.TIMED_OUT and job.timeout_us
        if job.losses_limit >= 0 and not took_too_long:
            job.losses += 1
            if not 0 < job.losses_limit <= job.losses:
                return False
            times = b"once" if job.losses == 1 else b"%d times" % job.losses
            self._set_error(job, b"%s in attempt %d; lost %b, the most allowed" % (text, job.attempts, times))
        elif self._attempts_are_spent(job):
            self._set_error(job, b"%s in attempt %d, the last one" % (text, job.attempts))
        else:
            return False
        job.result_code = 255
        return True

    def _forget_run(self, job: Job) -> None:
        """What an attempt that came to nothing has said of itself."""
        if job.details is NO_DETAILS:
            return
        before = job.details.content_size()
        if job.message:
            job.message = b""
        if job.numerator or job.denominator or job.time_left_s != -1 or job.progress_text:
            job.numerator = job.denominator = 0
            job.time_left_s = -1
            job.progress_text = b""
        if job.chunks is not None or job.collected_bytes:
            job.chunks = None
            job.collected_bytes = 0
        self.memory.job_bytes += job.details.content_size() - before

    def _set_error(self, job: Job, error: bytes | None) -> None:
        """This is said of the job's failure now."""
        self.memory.job_bytes += len(error or b"") - len(job.error or b"")
        job.error = error

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

    def _push(self, function: Function) -> None:
        """Give the best ready job to the worker that has waited longest with credit."""
        if function.paused or not self.handing_out:
            return
        worker = next(iter(function.pushers))
        job = self._pop(function)
        if job is None:
            return
        worker.credits -= 1
        if worker.credits:
            for other in worker.order:
                if len(other.pushers) > 1:
                    other.pushers.move_to_end(worker)  # those who have some left are served in turn
        else:
            self._leave_pushers(worker)
        self._assign(worker, job)

    def _fill(self, worker: Worker) -> None:
        """Use a worker's credit for what is ready; what is left lets jobs be pushed later."""
        while worker.credits:
            job = self._choose(worker)
            if job is None:
                for function in worker.order:
                    function.pushers[worker] = None
                return
            worker.credits -= 1
            self._assign(worker, job)
        self._leave_pushers(worker)

    def _assign(self, worker: Worker, job: Job) -> None:
        """A job for which a credit was spent."""
        if worker.tickets:
            worker.tickets.popitem(last=False)
            self.deadlines.stale += 1
        self._start(job, worker)
        worker.peer.assign(worker, job)

    def _leave_pushers(self, worker: Worker) -> None:
        for function in worker.order:
            function.pushers.pop(worker, None)

    def is_last_attempt(self, job: Job) -> bool:
        """Whether the job is dead if the run that it is in is lost."""
        if job.special and job.losses_limit >= 0:
            return 0 < job.losses_limit <= job.losses + 1
        return self._attempts_are_spent(job)

    def start_must_be_kept(self, job: Job) -> bool:
        """Whether a worker may hear of this start of a durable job only when it is kept.

        If not, a server that dies again and again would start the job more often than its limit says.  If losses count
        apart and have no limit, a start that is forgotten changes nothing.  And were a job lost that a schedule has
        just made, its tick would be due again and the work be done twice.
        """
        if job.special:
            if job.schedule and not job.kept:
                return True
            if job.losses_limit >= 0:
                return job.losses_limit > 0
            if job.attempts_limit >= 0:
                return job.attempts_limit > 0
        return self.settings.attempts > 0

    def _attempts_are_spent(self, job: Job) -> bool:
        """Whether the job must not be started again, if the run that it is in counts as an attempt."""
        limit = job.attempts_limit if job.attempts_limit >= 0 else self.settings.attempts
        return 0 < limit <= job.attempts - (job.losses if job.special else 0)
