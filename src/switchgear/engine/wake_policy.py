"""`PolicyCaller`: calls the operator's wake policy, which chooses among the workers that fit a job.

The policy is given a job and workers that fit it, and names some of them, or none.  It has a say whenever a job could
be handed out: when workers could be woken for it or it could be pushed to one of them, with all these workers, the one
that waits longest first; and when a single worker asks, or wants to sleep.  Limits and requirements are decided before:
it sees only jobs that may be handed out, and for each only workers that fit.

It is asked about one job after the other, in the order in which they would be handed out, until it names somebody:
about at most `MOST_CANDIDATES` of a function, so that one for which it names nobody does not block those behind it.  A
job that somebody was woken for is passed over until a second has gone by without anybody asking for it.  A woken worker
that asks gets the job that it was woken for, if that is still there.

A policy that raises, or names something that is not one of the workers, is ignored for this decision, and the observer
is told; the usual choice is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from typing import Any, Final

from switchgear.engine.limiters import Limiters
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.engine.requirements import fits, groups_for
from switchgear.engine.state import EngineState
from switchgear.engine.waiting_workers import allowed_priorities
from switchgear.model import BEST_FIRST, READY, Function, Job, Limiter, QueueGroup, Worker
from switchgear.model.job import place_of

__all__ = ["MOST_CANDIDATES", "PolicyCaller", "WakePolicy"]

# Names those of the workers that should have a job, of those that could be given it, the one that waits longest first.
WakePolicy = Callable[[Job, Sequence[Worker]], Iterable[Worker]]

MOST_CANDIDATES: Final = 32


class PolicyCaller:
    """Knows the wake policy, and for which jobs workers were woken because of it."""

    def __init__(self, state: EngineState, limiters: Limiters, queues: ReadyQueues) -> None:
        self.policy: WakePolicy | None = None
        self._state = state
        self._limiters = limiters
        self._queues = queues
        self._woken_for: dict[int, int] = {}  # by the id of a job, how many workers were woken for it and did not ask

    def use_policy(self, policy: WakePolicy | None) -> None:
        """Ask this policy from now on; None: none."""
        self.policy = policy
        self._state.set_handing_out(self._state.handing_out, policy is not None)

    # --- asking ---

    def choose(
        self, function: Function, workers: tuple[Worker, ...], *, again: bool = False
    ) -> tuple[Job, list[Worker]] | None:
        """The first job for which the policy names some of these workers, and those it names.

        Jobs that somebody was woken for are passed over, unless `again` is set.
        """
        candidates = self._candidates(function, workers)
        if not candidates and function.unloaded is not None and len(workers) > 1:
            # The next job of all is being read. Another may be the next one for some of the workers.
            workers = tuple([worker for worker in workers if not self._queues.awaits_payload(function, worker)])
            candidates = self._candidates(function, workers)
        for job in candidates:
            if not again and job.id in self._woken_for:
                continue
            fitting = self._fitting(job, workers)
            chosen = self._ask(job, fitting) if fitting else []
            if chosen:
                return job, chosen
        return None

    def job_for(self, worker: Worker, function: Function, priorities: tuple[int, ...] = ()) -> Job | None:
        """The first job, of these priorities if some are given, that the policy lets this worker have.

        It is the one that the worker was woken for, if that is still there.
        """
        woken_job = worker.woken_job
        candidates = self._candidates(function, (worker,))
        if (
            woken_job is not None
            and woken_job.function is function
            and woken_job.state is READY
            and self._state.jobs.get(woken_job.id) is woken_job  # a packed job is another object when it is unpacked
        ):
            is_open = self._limiters.is_open_for(function, worker) and not self._queues.is_key_closed(woken_job)
            is_wanted = not priorities or woken_job.priority in priorities
            if is_open and is_wanted and woken_job.payload is not None and self._fitting(woken_job, (worker,)):
                return woken_job
        for job in candidates:
            if priorities and job.priority not in priorities:
                continue
            if self._fitting(job, (worker,)) and self._ask(job, (worker,)):
                return job
        return None

    def _candidates(self, function: Function, workers: tuple[Worker, ...]) -> list[Job]:
        """The jobs that the policy is asked about. Each of them fits some of the workers."""
        found: list[Job] = []
        if function.paused or not self._state.handing_out or not self._limiters.is_open(function):
            return found
        limiter = function.limiter
        groups: list[QueueGroup] = [] if limiter is None else _groups_for_any(limiter, workers)
        count = 0
        for priority in _priorities_for_any(function, workers):
            if limiter is None:
                queue = function.queues[priority]
                entries: Iterable[Job] = queue
                head = queue[0] if queue else None
            else:
                entries = merge(*[group.next_entries(priority) for group in groups], key=place_of)
                head = self._queues.first_of_groups(limiter, priority, groups)
            if head is not None and head.payload is None and not found and self._fitting(head, workers):
                if head is not function.unloaded:
                    self._queues.want_payload(function, head)
                return found  # nothing behind it is handed out before its payload has been read
            for job in entries:
                if job.payload is not None and self._fitting(job, workers):
                    found.append(job)
                count += 1
                if count == MOST_CANDIDATES:
                    return found
        return found

    def _fitting(self, job: Job, workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
        fitting = workers if not job.requires else tuple([worker for worker in workers if fits(worker, job)])
        if job.function.by_priority is not None:
            fitting = tuple([each for each in fitting if job.priority in allowed_priorities(each, job.function)])
        return fitting

    def _ask(self, job: Job, workers: tuple[Worker, ...]) -> list[Worker]:
        """Call the wake policy; returns the workers that it names."""
        assert self.policy is not None
        shown = frozenset(workers)
        try:
            named: dict[Any, None] = dict.fromkeys(self.policy(job, workers))  # it may contain anything
            for each in named:
                if not isinstance(each, Worker):
                    raise TypeError(f"it names {each!r}, which is no worker")
        except Exception as error:  # the operator's code: the jobs must go on
            self._state.observer.wake_policy_failed(job.function, error)
            return list(workers[: self._state.settings.wakeups or None])
        return [worker for worker in named if worker in shown]

    # --- for whom somebody was woken ---

    def note_woken(self, worker: Worker, job: Job) -> None:
        """The worker was woken for this job."""
        self.forget_woken(worker)
        worker.woken_job = job
        self._woken_for[job.id] = self._woken_for.get(job.id, 0) + 1

    def forget_woken(self, worker: Worker) -> None:
        """The worker has asked, sleeps again, or is gone."""
        job = worker.woken_job
        if job is None:
            return
        worker.woken_job = None
        count = self._woken_for.get(job.id, 0)
        if count > 1:
            self._woken_for[job.id] = count - 1
        else:
            self._woken_for.pop(job.id, None)


def _groups_for_any(limiter: Limiter, workers: tuple[Worker, ...]) -> list[QueueGroup]:
    """The groups that some of the workers fit, each once."""
    if not limiter.requiring:
        return limiter.groups
    if len(workers) == 1:
        return groups_for(limiter, workers[0])
    groups: dict[QueueGroup, None] = {limiter: None}
    for worker in {worker.offer: worker for worker in workers}.values():
        groups.update(dict.fromkeys(groups_for(limiter, worker)))
    return list(groups)


def _priorities_for_any(function: Function, workers: tuple[Worker, ...]) -> list[int]:
    """The priorities that some of the workers take, the best first."""
    if function.by_priority is None:
        return list(BEST_FIRST)
    allowed = {priority for worker in workers for priority in allowed_priorities(worker, function)}
    return [priority for priority in BEST_FIRST if priority in allowed]
