"""Workers that sleep, and whom to wake for a job.

A sleeping worker is woken once and then has to ask.  For each job that becomes ready `wakeups` of the workers asleep
longest are woken.  One that was woken and takes a job of another function, or leaves, passes the call on.  One that was
woken and does not come would leave its job lying although others could do it; so each function that woke somebody is
looked at again a moment later: if nothing was taken from it everybody is woken, and otherwise as many as for one job.

Whom to wake may be left to a `wake_policy`, which knows the job that is next and what the workers say of themselves.
It may choose anybody of those it is shown, or nobody.  It is asked when a job becomes ready, when a worker that could
do the next job wants to sleep, and again and again, a moment later, while a job lies ready and somebody sleeps.  It has
no say in what workers get that ask or have granted credit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from switchgear.engine.core import EngineSettings, Observer
from switchgear.engine.deadlines import Kind
from switchgear.engine.queues import Queues
from switchgear.model import Function, Job, Worker

__all__ = ["WakePolicy", "Waking"]

# Whom to wake for a job, of the workers that sleep and could do it, the one asleep longest first.
WakePolicy = Callable[[Job, Sequence[Worker]], Iterable[Worker]]


class LastNumbers:
    """The numbers that were given out last."""

    __slots__ = ("run_limit", "tick", "tick_us", "ticket", "wake", "worker_id")

    def __init__(self) -> None:
        self.worker_id = 0
        self.ticket = 0
        self.run_limit = 0
        self.wake = 0
        self.tick = 0  # of the ticks that were met at the moment
        self.tick_us = 0  # and that is this


class Waking(Queues):
    """The part of the engine that lets workers sleep and wakes them."""

    def __init__(self, settings: EngineSettings | None = None, observer: Observer | None = None) -> None:
        super().__init__(settings, observer)
        self.wake_policy: WakePolicy | None = None
        self._last = LastNumbers()

    @property
    def wakes(self) -> int:
        """How often a sleeping worker was woken for a job that has become ready."""
        return self._last.wake

    def sleep(self, worker: Worker) -> bool:
        """Sleep and be woken: False if there is a job already, so the worker should ask at once."""
        is_full = len(worker.running) >= self.settings.jobs_per_worker > 0
        if self.handing_out and not is_full:
            for function in worker.order:
                if (
                    function.ready
                    and not function.paused
                    and (function.gate is None or self._is_open(function))
                    and self._suits(worker, function)
                ):
                    if worker.asleep:
                        self._rouse(worker)
                    return False
        worker.asleep = True
        for function in worker.order:
            function.sleepers[worker] = None
            is_ready = function.ready and (function.gate is None or self._is_open(function))
            if is_ready and not function.watched and (is_full or self.wake_policy is not None):
                self._watch(function)  # it will have room again, or suit another job, and nobody will say so
        return True

    def _rouse(self, worker: Worker) -> None:
        worker.asleep = False
        for function in worker.order:
            function.sleepers.pop(worker, None)

    def _wake(self, function: Function) -> None:
        """Wake as many sleepers as one job is worth, if one may be handed out."""
        if function.paused or not self.handing_out or (function.gate is not None and not self._is_open(function)):
            return
        if not function.watched:
            self._watch(function)
        if self.wake_policy is not None:
            for worker in self._chosen(function, tuple(function.sleepers)):
                self._call(worker, function)
            return
        count = self.settings.wakeups or len(function.sleepers)
        while count and function.sleepers:
            self._call(next(iter(function.sleepers)), function)
            count -= 1

    def _call(self, worker: Worker, function: Function) -> None:
        self._last.wake += 1
        self._rouse(worker)
        worker.woken_for = function
        worker.peer.wake(worker)

    def _chosen(self, function: Function, workers: tuple[Worker, ...]) -> list[Worker]:
        """Those of the workers that the policy wants to have woken for the job that is next."""
        job = self._first(function)
        if self.wake_policy is None or job is None:
            return []
        try:
            chosen: dict[Any, None] = dict.fromkeys(self.wake_policy(job, workers))  # who knows what is in it
        except Exception as error:  # somebody else's code: the jobs must go on
            self.observer.wake_policy_failed(function, error)
            return list(workers[: self.settings.wakeups or None])
        shown = frozenset(workers)
        return [worker for worker in chosen if worker in shown]

    def _suits(self, worker: Worker, function: Function) -> bool:
        """Whether the policy would wake this worker for what is ready now."""
        return self.wake_policy is None or bool(self._chosen(function, (worker,)))

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
        if function.gate is not None and not self._is_open(function):
            return  # when it opens somebody is woken, and that is watched
        was_taken_from = function.taken_us + self.settings.neglect_us > self.now_us
        if was_taken_from or self.wake_policy is not None:
            self._wake(function)  # those who come may be too few, and those whom the policy did not choose stay asleep
            return
        for worker in list(function.sleepers):
            self._rouse(worker)
            worker.peer.wake(worker)
