"""`Handover`: removes functions that another engine is going to own from this one, with their jobs and schedules.

Nothing ends: the jobs leave the tables as they are, and the store has them for the next owner, who restores them. What
the store does not have is given to the owner of this engine (`HandedOver`): which peers had subscribed, which workers
had registered, which jobs were running where, and foreground jobs, which are not stored.

There may be millions of jobs, so this is done in steps. From the first step on no job of the functions is started; the
owner must submit none of them, nor restore them, until all steps are done and the last changes are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from switchgear.engine.attempts import Attempts
from switchgear.engine.dependencies import Dependencies
from switchgear.engine.dispatcher import Dispatcher
from switchgear.engine.foreign_predecessors import ForeignPredecessors
from switchgear.engine.functions import FunctionRegistry
from switchgear.engine.lost_starts import LostStarts
from switchgear.engine.schedules import ScheduleRunner
from switchgear.engine.state import EngineState
from switchgear.engine.transitions import Transitions
from switchgear.engine.unique_keys import UniqueKeys
from switchgear.engine.workers import WorkerRegistry
from switchgear.model import BEST_FIRST, RESIDENT, RUNNING, Function, Job, Peer, Schedule, Worker

__all__ = ["HandedOver", "Handover"]

# So many jobs of all functions are looked at between two steps.
LOOKED_AT_PER_STEP: Final = 256


class HandedOver:
    """State of removed functions that the store does not have: subscribers, workers, running and foreground jobs."""

    def __init__(self) -> None:
        self.registrations: list[tuple[Worker, Function]] = []
        self.runs: list[tuple[Worker, Job]] = []  # the workers were not told
        self.subscriptions: list[tuple[Peer, Job]] = []
        self.unstored: list[Job] = []  # foreground jobs, complete
        self.resident_bytes = 0  # of payloads in memory that the store has too


class Handover:
    """Removes functions and everything that belongs to them, without an end."""

    def __init__(
        self,
        state: EngineState,
        functions: FunctionRegistry,
        keys: UniqueKeys,
        lost_starts: LostStarts,
        attempts: Attempts,
        dispatcher: Dispatcher,
        dependencies: Dependencies,
        transitions: Transitions,
        workers: WorkerRegistry,
        schedules: ScheduleRunner,
        foreign: ForeignPredecessors,
    ) -> None:
        self._state = state
        self._functions = functions
        self._keys = keys
        self._lost_starts = lost_starts
        self._attempts = attempts
        self._dispatcher = dispatcher
        self._dependencies = dependencies
        self._transitions = transitions
        self._workers = workers
        self._schedules = schedules
        self._foreign = foreign

    def hand_over(
        self, functions: Iterable[Function], handed_over: HandedOver, schedules: Iterable[Schedule] = ()
    ) -> Iterator[None]:
        """The steps after which the engine knows nothing of these functions; each takes less than a millisecond.

        `schedules` are those of functions that have no jobs and no workers, and so are not known as functions.
        """
        leaving = dict.fromkeys(functions)
        for function in leaving:
            for worker in list(function.workers):
                handed_over.registrations.append((worker, function))
                self._workers.cannot_do(worker, function)
        names = {function.name for function in leaving} | {schedule.function_name for schedule in schedules}
        for schedule in list(self._state.schedules.values()):
            if schedule.function_name in names:
                self._schedules.forget(schedule)
        yield
        for function in leaving:
            yield from self._empty_segments(function, handed_over)
        from_id = 0
        while True:
            looked_at = list(islice(self._state.jobs.values(from_id), LOOKED_AT_PER_STEP))
            if not looked_at:
                break
            from_id = looked_at[-1].id + 1
            for job in looked_at:
                if job.function in leaving:
                    self._remove(job, handed_over)
            yield
        self._foreign.forget_unsuccessful()
        for function in leaving:
            yield from self._free_held_keys(function)
            self._functions.forget(function)

    def _empty_segments(self, function: Function, handed_over: HandedOver) -> Iterator[None]:
        """Remove packed jobs, which are in no other table, as the queue gets to them."""
        for priority in BEST_FIRST:
            while function.segmented[priority] is not None:
                self._remove(function.queues[priority][0], handed_over)
                yield

    def _remove(self, job: Job, handed_over: HandedOver) -> None:
        """Remove a job from all tables."""
        state = self._state
        if job.state is RUNNING:
            worker = job.worker
            self._attempts.detach(job)
            if job.function.limiter is not None:
                self._dispatcher.offer_room(job.function)  # to nobody
            if worker is not None:
                self._lost_starts.remember(worker, job)
                handed_over.runs.append((worker, job))
        else:
            self._transitions.leave_queue(job)
        for subscriber in job.subscribers or ():
            if subscriber.drop_subscription(job.id):
                handed_over.subscriptions.append((subscriber, job))
        job.subscribers = None
        self._keys.end_hold(job)
        self._transitions.unlist(job)
        self._dependencies.waited_for.discard(job.id)
        self._foreign.goes(job)
        if job.kept == RESIDENT:
            handed_over.resident_bytes += len(job.payload or b"")
        if not job.delivery:
            state.uncount_contents(job)
            state.changed.pop(job, None)
            handed_over.unstored.append(job)
        elif job in state.changed:
            state.uncount_contents(job)  # the change is still to be staged
        else:
            state.drop_contents(job)

    def _free_held_keys(self, function: Function) -> Iterator[None]:
        """Forget the keys that finished jobs still hold."""
        for job in list(function.uniques.values()):
            self._keys.end_hold(job)
            self._keys.free(job)
            yield
