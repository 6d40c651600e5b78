"""`DeadlineDispatch`: advances the engine's time, and passes each deadline that is due to the part that it concerns."""

from __future__ import annotations

from switchgear.engine.attempts import Attempts
from switchgear.engine.deadlines import LEAST_STALE_FOR_SWEEP, Deadline, DeadlineKind, Deadlines
from switchgear.engine.dispatcher import Dispatcher
from switchgear.engine.limiters import Limiters
from switchgear.engine.schedules import ScheduleRunner
from switchgear.engine.sliced_work import UNITS_PER_TURN, SlicedWork
from switchgear.engine.state import EngineState
from switchgear.engine.timers import Timers
from switchgear.engine.transitions import Transitions
from switchgear.engine.unique_keys import UniqueKeys
from switchgear.engine.wakeups import Wakeups
from switchgear.engine.workers import WorkerRegistry
from switchgear.model import (
    FINAL_STATES,
    RUNNING,
    SCHEDULED,
    Cause,
    Job,
    KeyQueue,
    Limiter,
    Schedule,
    Timer,
    Worker,
)

__all__ = ["DeadlineDispatch"]


class DeadlineDispatch:
    """Passes each due deadline to the part of the engine that it concerns."""

    def __init__(
        self,
        state: EngineState,
        deadlines: Deadlines,
        sliced_work: SlicedWork,
        limiters: Limiters,
        keys: UniqueKeys,
        wakeups: Wakeups,
        attempts: Attempts,
        dispatcher: Dispatcher,
        transitions: Transitions,
        workers: WorkerRegistry,
        schedules: ScheduleRunner,
        timers: Timers,
    ) -> None:
        # A million jobs may be due at the same time. This many deadlines are handled in a turn, the earliest first.
        self.deadlines_per_turn = UNITS_PER_TURN
        self._state = state
        self._deadlines = deadlines
        self._sliced_work = sliced_work
        self._limiters = limiters
        self._keys = keys
        self._wakeups = wakeups
        self._attempts = attempts
        self._dispatcher = dispatcher
        self._transitions = transitions
        self._workers = workers
        self._schedules = schedules
        self._timers = timers

    def advance(self, now_us: int) -> None:
        """Set the time, and handle all deadlines up to it."""
        if now_us > self._state.now_us:
            self._state.now_us = now_us
        self._sliced_work.begin_turn()
        if self._deadlines.earliest_us <= self._state.now_us:
            self._meet_deadlines()
        elif self._deadlines.stale >= LEAST_STALE_FOR_SWEEP:
            self._deadlines.sweep_some(self.is_live)

    def time_stood_still(self, now_us: int) -> None:
        """Give silent peers some time, because the process has stood still since the last `advance`."""
        if now_us > self._state.now_us:
            self._deadlines.time_stood_still(self._state.now_us, now_us)

    @property
    def next_deadline_us(self) -> int | None:
        """When `advance` next has something to do; `None` if it never has."""
        return self._deadlines.next_us if not len(self._sliced_work) else self._state.now_us

    @property
    def earliest_us(self) -> int:
        """The same with `NEVER_US` for `None`. It is read in every turn; compiled, a plain int is not an object."""
        return self._deadlines.earliest_us if not len(self._sliced_work) else self._state.now_us

    def clock_moved(self, delta_us: int) -> None:
        """Adapt to a wall clock that was set forward (or back) by this much; time spans in progress keep their
        length."""
        state = self._state
        before_us = state.now_us
        self.advance(before_us)
        while self._deadlines.earliest_us <= before_us:
            self._meet_deadlines()  # deadlines that were due by the old time come first
        state.now_us += delta_us
        self._workers.shift(delta_us)
        for worker in state.workers.values():
            for job in worker.running.values():
                if job.worker is not worker:
                    continue
                if job.run_until_us:
                    job.run_until_us += delta_us
                if before_us >= job.expires_us > state.now_us:
                    # It has passed, and is in the future again.
                    self._deadlines.add(job.expires_us, DeadlineKind.EXPIRY, job)
        for function in state.functions.values():
            if function.taken_us:
                function.taken_us += delta_us
            if function.limiter is not None:
                self._limiters.shift(function.limiter, delta_us)
        self._deadlines.shift_spans(delta_us)
        self._schedules.clock_moved()

    def _meet_deadlines(self) -> None:
        state = self._state
        deadlines = self._deadlines
        state.is_meeting_deadlines = True
        try:
            for _ in range(self.deadlines_per_turn):
                deadline = deadlines.pop_due(state.now_us)
                if deadline is None:
                    break
                if self.is_live(deadline):
                    self._meet(deadline)
                else:
                    deadlines.note_stale_popped()
        finally:  # otherwise one defect would leave jobs behind forever
            state.is_meeting_deadlines = False
            self._transitions.propagate_later()
        self._dispatcher.offer_deferred()
        deadlines.sweep_some(self.is_live)

    def _meet(self, deadline: Deadline) -> None:
        at_us, _, kind, subject, token = deadline
        if isinstance(subject, Job):
            self._meet_for_job(subject, kind, at_us)
        elif isinstance(subject, Worker):
            if kind is DeadlineKind.LEASE:
                self._workers.lease_ended(subject)
            else:
                self._workers.wait_timed_out(subject, token)
        elif isinstance(subject, Schedule):
            self._schedules.meet_tick(subject)
        elif isinstance(subject, Limiter | KeyQueue):
            self._dispatcher.token_came(subject)
        elif isinstance(subject, Timer):
            self._timers.fire(subject)
        else:
            self._dispatcher.check_wakeups(subject)

    def _meet_for_job(self, job: Job, kind: DeadlineKind, at_us: int) -> None:
        transitions = self._transitions
        if kind is DeadlineKind.DUE:
            if self._state.is_too_late(job):
                transitions.expire(job)
            else:
                transitions.make_ready(job, Cause.DUE)
        elif kind is DeadlineKind.EXPIRY:
            if job.state is not RUNNING:  # a running job may finish
                transitions.leave_queue(job)
                transitions.expire(job)
        elif kind is DeadlineKind.KEY_HELD:
            self._keys.hold_ended(job)
        elif kind is DeadlineKind.FAILED_DEPENDENCY:
            transitions.dependency_failed(job)
        elif self._attempts.limit_reached(job, at_us):
            self._attempts.revoke(job, Cause.TIMED_OUT)
            transitions.requeue(job, Cause.TIMED_OUT)

    def is_live(self, deadline: Deadline) -> bool:
        """Whether an entry of the index is not stale."""
        at_us, _, kind, subject, token = deadline
        if isinstance(subject, Job):
            if kind is DeadlineKind.RUN_LIMIT:
                return subject.run_limit == token
            if kind is DeadlineKind.KEY_HELD:
                return self._keys.is_held(subject, at_us)
            if kind is DeadlineKind.FAILED_DEPENDENCY:
                return True  # it is checked again when it is due
            if self._state.jobs.get(subject.id) is not subject:  # it has ended, or was withdrawn or handed over
                return False
            if kind is DeadlineKind.DUE:
                is_same_wait = subject.run_at_us == at_us and len(subject.moves or ()) == token
                return subject.state is SCHEDULED and is_same_wait
            return subject.state not in FINAL_STATES and subject.expires_us == at_us
        if isinstance(subject, Worker):
            if kind is DeadlineKind.LEASE:
                return subject.lease_check_us == at_us
            return token in (subject.tickets or ())
        if isinstance(subject, Schedule):
            return subject.wake_us == at_us
        if isinstance(subject, Limiter | KeyQueue):
            return subject.check_us == at_us
        if isinstance(subject, Timer):
            return subject.is_set
        return subject.wakeup_check_pending
