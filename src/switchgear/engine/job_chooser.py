"""`JobChooser`: which job a worker gets next: of several functions, of some priorities, or as a wake policy says.

The order of functions is that of `function_order`; see `engine.dispatcher`.
"""

from __future__ import annotations

from collections.abc import Sequence

from switchgear.engine.limiters import Limiters
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.engine.state import EngineState
from switchgear.engine.waiting_workers import allowed_priorities
from switchgear.engine.wake_policy import PolicyCaller
from switchgear.engine.wakeups import Wakeups
from switchgear.model import BEST_FIRST, Function, Job, Worker

__all__ = ["JobChooser"]


class JobChooser:
    """Chooses the next job for a worker, and takes the job out of its queue."""

    def __init__(
        self,
        state: EngineState,
        limiters: Limiters,
        queues: ReadyQueues,
        wakeups: Wakeups,
        policy_caller: PolicyCaller,
    ) -> None:
        self._state = state
        self._limiters = limiters
        self._queues = queues
        self._wakeups = wakeups
        self._policy_caller = policy_caller

    def choose(self, worker: Worker) -> Job | None:
        """Remove the next job for this worker from its queue, and return it."""
        state = self._state
        if not state.handing_out:
            return None
        if state.has_wake_policy:
            return self._choose_by_policy(worker)
        order = worker.order
        if worker.priorities is not None:
            return self._choose_by_priority(worker)
        if len(order) == 1:
            function = order[0]
            return self._queues.pop(function, worker) if function.ready and not function.paused else None
        if state.settings.function_order == "fair":
            job = self._choose_fairly(worker)
        else:
            job = self._choose_in_order(worker)
        if job is not None and worker.woken_for is not None and worker.woken_for is not job.function:
            self._wakeups.pass_on(worker)
        return job

    def _choose_in_order(self, worker: Worker) -> Job | None:
        order = worker.order
        for function in reversed(order):
            if (
                function.ready
                and not function.paused
                and (function.limiter is None or self._limiters.is_open_for(function, worker))
            ):
                job = self._queues.pop(function, worker)
                if job is None:
                    continue  # its payload is not in memory
                if self._state.settings.function_order == "round-robin":
                    order.remove(function)
                    order.insert(0, function)
                return job
        return None

    def _choose_fairly(self, worker: Worker) -> Job | None:
        order = worker.order
        best: Function | None = None
        best_place = len(BEST_FIRST)
        for function in order:
            if not function.ready or function.paused:
                continue
            if function.limiter is not None and not self._limiters.is_open(function):
                continue
            if function.unloaded is not None and self._queues.awaits_payload(function, worker):
                continue
            for place in range(best_place):
                if self._limiters.offers(function, BEST_FIRST[place], worker):
                    best, best_place = function, place
                    break
            if best_place == 0:
                break
        if best is None:
            return None
        job = self._queues.pop(best, worker)
        if job is None:
            return self._choose_fairly(worker)  # its payload is not in memory, which is known now
        order.remove(best)
        order.append(best)
        return job

    def _choose_by_priority(self, worker: Worker) -> Job | None:
        """`choose` for a worker that takes only some priorities of some functions."""
        order = worker.order
        function_order = self._state.settings.function_order
        unread: list[Function] = []  # the payload of their next job for this worker is not in memory
        while True:
            best, priority = self._best_by_priority(worker, unread)
            if best is None:
                return None
            job = self._queues.pop_of(best, priority, worker)
            if job is not None:
                break
            unread.append(best)
        if function_order != "registration":
            order.remove(best)
            order.insert(len(order) if function_order == "fair" else 0, best)
        if worker.woken_for is not None and worker.woken_for is not best:
            self._wakeups.pass_on(worker)
        return job

    def _best_by_priority(self, worker: Worker, unread: list[Function]) -> tuple[Function | None, int]:
        """The function and the priority of the next job for such a worker, except the unread functions."""
        function_order = self._state.settings.function_order
        best: Function | None = None
        best_place = len(BEST_FIRST)
        for function in worker.order if function_order == "fair" else reversed(worker.order):
            if function in unread or not self.has_work(function):
                continue
            allowed = allowed_priorities(worker, function)
            for place in range(best_place):
                if BEST_FIRST[place] in allowed and self._limiters.offers(function, BEST_FIRST[place], worker):
                    best, best_place = function, place
                    break
            if best is not None and (function_order != "fair" or best_place == 0):
                break
        return best, BEST_FIRST[best_place] if best is not None else 0

    def _choose_by_policy(self, worker: Worker) -> Job | None:
        """`choose` if a wake policy has a say."""
        functions = [function for function in worker.order if self.has_work_for(function, worker)]
        function_order = self._state.settings.function_order
        if function_order == "fair":
            functions.sort(key=self._best_place)
        else:
            functions.reverse()
        woken_job = worker.woken_job
        if woken_job is not None and woken_job.function in functions:
            functions.remove(woken_job.function)
            functions.insert(0, woken_job.function)
        job = self.chosen_job(worker, functions)
        if job is None:
            return None
        order = worker.order
        if function_order != "registration":
            order.remove(job.function)
            order.insert(len(order) if function_order == "fair" else 0, job.function)
        if worker.woken_for is not None and worker.woken_for is not job.function:
            self._wakeups.pass_on(worker)
        return job

    def _best_place(self, function: Function) -> int:
        """The place of the best priority of which the function has a job."""
        for place in range(len(BEST_FIRST)):
            if self._limiters.offers(function, BEST_FIRST[place]):
                return place
        return len(BEST_FIRST)

    def chosen_job(self, worker: Worker, functions: Sequence[Function], priorities: tuple[int, ...] = ()) -> Job | None:
        """Take the first job that the policy lets the worker have out of its queue."""
        chosen: Job | None = None
        for function in functions:
            chosen = self._policy_caller.job_for(worker, function, priorities)
            if chosen is not None:
                self._queues.pop_job(chosen)
                break
        self._policy_caller.forget_woken(worker)
        return chosen

    def has_work(self, function: Function) -> bool:
        """Whether some worker that asks for a job of this function now could be assigned one."""
        if not function.ready or function.paused or not self._state.handing_out:
            return False
        if function.unloaded is not None and self._queues.awaits_payload(function):
            return False
        return function.limiter is None or self._limiters.is_open(function)

    def has_work_for(self, function: Function, worker: Worker) -> bool:
        """Whether this worker gets a job of this function if it asks now."""
        if not self.has_work(function):
            return False
        if function.unloaded is not None and self._queues.awaits_payload(function, worker):
            return False
        return function.limiter is None or self._limiters.is_open_for(function, worker)
