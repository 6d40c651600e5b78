"""`Wakeups`: chooses the sleeping workers to wake for a ready job, and wakes more if none takes it.

A sleeping worker is woken once and then has to ask.  For each job that becomes ready `wakeups` of the workers asleep
longest are woken.  One that was woken and takes a job of another function, or leaves, passes the wakeup on.  One that
was woken and does not ask would leave its job lying although others could do it; so each function that woke a worker is
checked a moment later: if nothing was taken from it all sleepers are woken, and otherwise as many as for one job.

Where a wakeup can be lost on its way (`Worker.may_miss_wakeups`), it is repeated at such checks, with growing pauses,
while the worker has not asked and there is a job.

The choice may be left to a wake policy (`engine.wake_policy`). It is called when a job becomes ready, when a worker
wants to sleep, and repeatedly, a moment later, while a job is ready and a worker sleeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from switchgear.engine.deadlines import DeadlineKind, Deadlines
from switchgear.engine.limiters import Limiters
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.engine.requirements import first_fitting, list_worker, unlist_worker
from switchgear.engine.sliced_work import SlicedKind, SlicedWork
from switchgear.engine.state import EngineState
from switchgear.engine.waiting_workers import (
    add_sleeper,
    allowed_priorities,
    first_waiting,
    has_sleepers,
    remove_sleeper,
)
from switchgear.engine.wake_policy import PolicyCaller
from switchgear.model import BEST_FIRST, Function, PriorityWaiters, QueueGroup, Worker

__all__ = ["Wakeups"]

# A wakeup is repeated after one check, then after two, four and so on, up to this number.
LONGEST_PAUSE_CHECKS: Final = 32


class Wakeups:
    """Tracks sleeping workers and wakes them."""

    def __init__(
        self,
        state: EngineState,
        deadlines: Deadlines,
        limiters: Limiters,
        queues: ReadyQueues,
        policy_caller: PolicyCaller,
        sliced_work: SlicedWork,
    ) -> None:
        self.count = 0  # how often a sleeping worker was woken for a job that has become ready
        self._state = state
        self._deadlines = deadlines
        self._limiters = limiters
        self._queues = queues
        self._sliced_work = sliced_work
        self.policy_caller = policy_caller

    def sleep(self, worker: Worker) -> bool:
        """Let the worker sleep until it is woken; False if there is a job already, so it should ask at once."""
        state = self._state
        is_full = len(worker.running) >= state.settings.jobs_per_worker > 0
        if worker.woken_job is not None:
            self.policy_caller.forget_woken(worker)
        if state.handing_out and not is_full:
            for function in worker.order:
                if (
                    function.ready
                    and not function.paused
                    and (function.limiter is None or self._limiters.is_open_for(function, worker))
                    and (function.unloaded is None or not self._queues.awaits_payload(function, worker))
                    and (worker.priorities is None or self._offers(worker, function))
                    and self._suits(worker, function)
                ):
                    if worker.asleep:
                        self.rouse(worker)
                    if worker.may_miss_wakeups:
                        self._note_woken(worker, function)
                    return False
        if worker.may_miss_wakeups:
            self.wakeup_answered(worker)
        worker.asleep = True
        for function in worker.order:
            if worker.priorities is not None:
                add_sleeper(worker, function)
            else:
                function.sleepers[worker] = None
                if worker.offer is not None:
                    list_worker(function.offering_sleepers, worker)
            is_ready = function.ready and (function.limiter is None or self._limiters.is_open_for(function, worker))
            if is_ready and not function.wakeup_check_pending and (is_full or state.has_wake_policy):
                self._check_later(function)  # it may have room again, or suit another job, without an event
        return True

    def rouse(self, worker: Worker) -> None:
        """Note that the worker no longer sleeps."""
        worker.asleep = False
        if worker.priorities is not None:
            remove_sleeper(worker)
            return
        for function in worker.order:
            if worker in function.sleepers:
                del function.sleepers[worker]
            if worker.offer is not None:
                unlist_worker(function.offering_sleepers, worker)

    def wake(self, function: Function, priority: int = -1, group: QueueGroup | None = None) -> None:
        """Wake as many sleepers as one job is worth, if one may be handed out: a job of this priority, if it is known.

        Workers that take only some priorities come first: the others are of use for all jobs.  If jobs of the function
        require something these are workers that fit the group, or some for each group.
        """
        limiter = function.limiter
        if (
            function.paused
            or not self._state.handing_out
            or (limiter is not None and not self._limiters.is_open(function))
            or (function.unloaded is not None and self._queues.awaits_payload(function))
        ):
            return
        if self._state.has_wake_policy:
            if not function.wakeup_check_pending:
                self._check_later(function)
            self._wake_chosen(function, again=False)
            return
        if limiter is not None and limiter.requiring:
            if function.by_priority is not None:
                woken = self._wake_by_priority(function, function.by_priority, priority)
                if woken and not function.wakeup_check_pending:
                    self._check_later(function)
            for each in limiter.groups if group is None else (group,):
                if not function.sleepers:
                    return
                self._wake_fitting(function, each)
            return
        if not function.wakeup_check_pending:
            self._check_later(function)
        wakeups = self._state.settings.wakeups
        if function.by_priority is not None:
            woken = self._wake_by_priority(function, function.by_priority, priority)
            if priority >= 0 and wakeups:
                wakeups -= woken
                if not wakeups:
                    return
        count = wakeups or len(function.sleepers)
        while count and function.sleepers:
            self._wake_for(first_waiting(function.sleepers), function)
            count -= 1

    def _wake_chosen(self, function: Function, *, again: bool) -> None:
        """Wake the workers that the wake policy returns."""
        choice = self.policy_caller.choose(function, self._sleepers(function), again=again)
        if choice is not None:
            job, workers = choice
            for worker in workers:
                self.policy_caller.note_woken(worker, job)
                self._wake_for(worker, function)

    def _wake_fitting(self, function: Function, group: QueueGroup) -> None:
        """Wake sleepers that fit one job of a group."""
        if not group.has_ready():
            return
        count = self._state.settings.wakeups or len(function.sleepers)
        while count:
            worker = first_fitting(group, function.sleepers, function.offering_sleepers)
            if worker is None or self._queues.awaits_payload_of(group):
                return
            if not function.wakeup_check_pending:
                self._check_later(function)
            self._wake_for(worker, function)
            count -= 1

    def _wake_by_priority(self, function: Function, waiters: PriorityWaiters, priority: int) -> int:
        """Wake workers that take only some priorities, for each priority with a job; returns how many."""
        most = self._state.settings.wakeups
        woken = 0
        for each in BEST_FIRST if priority < 0 else (priority,):
            sleepers = waiters.sleepers[each]
            count = most or len(sleepers)
            if priority < 0 and not self._limiters.offers(function, each):
                continue
            if function.limiter is not None and function.limiter.requiring:
                fitting = [worker for worker in sleepers if self._limiters.offers(function, each, worker)]
            else:
                fitting = list(sleepers)
            for worker in fitting[:count]:
                self._wake_for(worker, function)
                woken += 1
        return woken

    def pass_on(self, worker: Worker) -> None:
        """Wake another worker: a woken one will not take its job."""
        if worker.woken_job is not None:
            self.policy_caller.forget_woken(worker)
        function = worker.woken_for
        worker.woken_for = None
        if function is not None and function.ready and has_sleepers(function):
            self.wake(function)

    def wakeup_answered(self, worker: Worker) -> None:
        """Note that a worker whose wakeup may have been lost has asked, or wants to sleep again."""
        if worker.woken_for is not None:
            worker.woken_for.woken.pop(worker, None)

    def _note_woken(self, worker: Worker, function: Function) -> None:
        """Note that the wakeup of this worker may be lost."""
        self.wakeup_answered(worker)
        worker.woken_for = function
        function.woken[worker] = (1, 2)
        if not function.wakeup_check_pending:
            self._check_later(function)

    def _repeat_wakeups(self, function: Function) -> None:
        """Wake workers again that were woken and have not asked, if there is still a job."""
        is_open = function.limiter is None or self._limiters.is_open(function)
        if not (function.ready and is_open) or function.paused or not self._state.handing_out:
            function.woken.clear()
            return
        self._check_later(function)
        for worker, (checks_left, pause) in list(function.woken.items()):
            if checks_left > 1:
                function.woken[worker] = (checks_left - 1, pause)
            else:
                function.woken[worker] = (pause, min(2 * pause, LONGEST_PAUSE_CHECKS))
                worker.peer.wake(worker)

    def check(self, function: Function) -> None:
        """Some time after a wakeup: wake others if no worker has asked."""
        function.wakeup_check_pending = False
        if function.woken:
            self._repeat_wakeups(function)
        if not (function.ready and has_sleepers(function)) or function.paused or not self._state.handing_out:
            return
        if function.limiter is not None and not self._limiters.is_open(function):
            return  # when the limiter opens, a worker is woken and checked
        if function.unloaded is not None and self._queues.awaits_payload(function):
            return  # likewise when the payload was read
        was_taken_from = function.taken_us + self._state.settings.unanswered_wakeup_us > self._state.now_us
        if self._state.has_wake_policy:
            self._check_later(function)  # those whom the policy did not choose stay asleep
            self._wake_chosen(function, again=True)
            return
        if was_taken_from:
            self.wake(function)  # those that ask may be too few
            return
        self._sliced_work.start(self._wake_all(function), SlicedKind.WAKE_ALL, function)

    def _wake_all(self, function: Function) -> Iterator[None]:
        """Wake all sleepers, of which there may be very many, while there is a job."""
        for worker in self._sleepers(function):
            yield
            if not function.ready or function.paused or not self._state.handing_out:
                return
            if (
                worker.alive
                and worker.asleep
                and function in worker.timeouts_us
                and self._limiters.is_open_for(function, worker)
            ):
                self.rouse(worker)
                if worker.may_miss_wakeups:
                    self._note_woken(worker, function)
                worker.peer.wake(worker)

    def look_again(self, function: Function) -> None:
        """Have the policy called again in a moment for jobs of this function for which it named no worker."""
        if not function.wakeup_check_pending:
            self._check_later(function)

    def forget(self, function: Function) -> None:
        """Remove a function that is forgotten."""
        if function.wakeup_check_pending:
            function.wakeup_check_pending = False
            self._deadlines.note_stale()

    def _check_later(self, function: Function) -> None:
        function.wakeup_check_pending = True
        at_us = self._state.now_us + self._state.settings.unanswered_wakeup_us
        self._deadlines.add(at_us, DeadlineKind.UNANSWERED_WAKEUP, function)

    def _wake_for(self, worker: Worker, function: Function) -> None:
        self.count += 1
        self.rouse(worker)
        if worker.may_miss_wakeups:
            self._note_woken(worker, function)
        worker.woken_for = function
        worker.peer.wake(worker)

    def _sleepers(self, function: Function) -> tuple[Worker, ...]:
        """The sleeping workers that take a ready job."""
        if function.by_priority is None:
            return tuple(function.sleepers)
        sleepers: dict[Worker, None] = dict.fromkeys(function.sleepers)
        for priority in BEST_FIRST:
            if self._limiters.offers(function, priority):
                sleepers.update(function.by_priority.sleepers[priority])
        return tuple(sleepers)

    def _offers(self, worker: Worker, function: Function) -> bool:
        """Whether the function has a ready job of a priority that the worker takes."""
        return any(self._limiters.offers(function, each, worker) for each in allowed_priorities(worker, function))

    def _suits(self, worker: Worker, function: Function) -> bool:
        """Whether the policy would wake this worker for the next job."""
        if not self._state.has_wake_policy:
            return True
        choice = self.policy_caller.choose(function, (worker,))
        if choice is None:
            return False
        self.policy_caller.note_woken(worker, choice[0])
        return True
