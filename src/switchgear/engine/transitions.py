"""`Transitions`: a job becomes ready, is requeued, or ends, and its end is propagated to its successors."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from switchgear.engine.attempts import Attempts
from switchgear.engine.deadlines import DeadlineKind, Deadlines
from switchgear.engine.dependencies import ERROR, Dependencies, policy_of
from switchgear.engine.dispatcher import Dispatcher
from switchgear.engine.function_placement import is_copy
from switchgear.engine.lifecycle import NEXT_STATE
from switchgear.engine.predecessor_error import NO_ERROR, RootCause, inherited_cause, predecessor_error, root_cause
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.engine.recent_causes import RecentCauses
from switchgear.engine.requirements import Requirements
from switchgear.engine.sliced_work import SlicedKind, SlicedWork
from switchgear.engine.state import EngineState
from switchgear.engine.unique_keys import UniqueKeys
from switchgear.model import DONE, READY, RUNNING, WAITING, Cause, Delivery, EdgePolicy, Job, JobState
from switchgear.model.job import place_of

__all__ = ["Transitions"]

SUCCEEDED: Final = Cause.SUCCEEDED  # a global is cheaper to look up than a member of an enumeration
ABANDONED: Final = Cause.ABANDONED
RELEASED: Final = Cause.RELEASED
assert NEXT_STATE[SUCCEEDED][RUNNING] is DONE  # what `finish` relies on

# The end of one job may end a million others. This many of them end in one turn, which takes some four milliseconds;
# the others follow in the next turns, so that other peers do not have to wait.
FAILURES_PER_TURN: Final = 400


class Transitions:
    """Moves jobs between their queues, their workers and their end, and updates the tables."""

    def __init__(
        self,
        state: EngineState,
        deadlines: Deadlines,
        sliced_work: SlicedWork,
        queues: ReadyQueues,
        keys: UniqueKeys,
        attempts: Attempts,
        dispatcher: Dispatcher,
        dependencies: Dependencies,
        requirements: Requirements,
    ) -> None:
        self.failures_per_turn = FAILURES_PER_TURN
        # Unsuccessful jobs whose successors are still to be processed, and waiting jobs that must end.
        self.pending_failures: deque[Job] = deque()
        self._to_be_told: Iterator[Job] | None = None  # the other successors of the first of these, and the next one
        self._told_next: Job | None = None
        # By job: why a job of `pending_failures` was unsuccessful, or must end.
        self._causes: dict[int, RootCause] = {}
        self._ending_cause: RootCause | None = None  # why the job ends that is ended now
        self.recent_causes = RecentCauses(state.memory)
        self._is_propagating = False  # `pending_failures` is being processed, or will be in the next turn
        self._state = state
        self._deadlines = deadlines
        self._sliced_work = sliced_work
        self._queues = queues
        self._keys = keys
        self._attempts = attempts
        self._dispatcher = dispatcher
        self._dependencies = dependencies
        self._requirements = requirements

    # --- tables ---

    def list_again(self, job: Job) -> None:
        """Enter a job that is not new into the tables."""
        state = self._state
        job.has_details = True
        job.count_past_starts()
        state.count_contents(job)
        state.jobs.add(job)
        job.function.total += 1
        if job.unique and (job.unique_until_us or not self._keys.gave_up(job)):
            self._keys.take_again(job)
        # A job of another function may have come from another engine with the same name.
        if job.name and (state.placement is None or job.name not in state.names):
            state.names[job.name] = job
        if job.requires:
            self._requirements.join(job)

    def unlist(self, job: Job) -> None:
        """Remove a job that ended from the tables."""
        state = self._state
        state.jobs.remove(job.id)
        function = job.function
        function.total -= 1
        if job.unique:
            if job.has_details:
                self._keys.free(job)
            else:
                del function.uniques[job.unique]
        if job.has_details:
            if job.name and (state.placement is None or state.names.get(job.name) is job):
                del state.names[job.name]
            if job.expires_us:
                self._deadlines.note_stale()
            if job.requires:
                self._requirements.leave(job)

    # --- waiting and becoming ready ---

    def await_time(self, job: Job) -> None:
        """Add the deadline at which a scheduled job becomes ready. The length of its log distinguishes this wait
        from earlier ones."""
        self._deadlines.add(job.run_at_us, DeadlineKind.DUE, job, len(job.moves or ()))

    def leave_queue(self, job: Job) -> None:
        """Remove a job that is not running from its queue, its deadline or its predecessors."""
        if job.state is READY:
            self._queues.remove(job)
        elif job.state is WAITING:
            self._dependencies.remove(job)
        else:
            self._deadlines.note_stale()

    def make_ready(self, job: Job, cause: Cause) -> None:
        """Make a job ready that waited for a time or for predecessors."""
        state = self._state
        state.move(job, cause)
        if state.reports_changes and job.delivery:
            state.note(job)
        self._dispatcher.enqueue_again(job)

    def unblock(self, jobs: list[Job]) -> None:
        """Make jobs ready that wait for no predecessor any more, or scheduled if their time has not come."""
        state = self._state
        if len(jobs) > 1:
            jobs.sort(key=place_of)
        for job in jobs:
            if job.edges and ERROR in job.edges:
                self._skip_error_handler(job)
                continue
            if state.is_too_late(job):
                self.expire(job)
                continue
            if job.run_at_us <= state.now_us:
                self.make_ready(job, RELEASED)
                continue
            self._queues.rank_last(job)
            state.move(job, Cause.RELEASED_EARLY)
            self.await_time(job)
            if state.reports_changes and job.delivery:
                state.note(job)

    def _unblock_successors(self, job_id: int) -> None:
        """Handle a job that is done: make successors ready that wait for nothing more."""
        if self._dependencies.successor_count(job_id) <= self.failures_per_turn:
            self.unblock(self._dependencies.unblock_successors(job_id))
        else:
            self._sliced_work.start(self._unblock_one_by_one(job_id), SlicedKind.UNBLOCK, job_id)

    def predecessor_done(self, job_id: int) -> None:
        """A job of another engine is done."""
        self._unblock_successors(job_id)

    def predecessor_failed(self, job: Job) -> None:
        """A job of another engine has ended without success, as this copy of it says, and is remembered as such."""
        cause = inherited_cause(job) or (root_cause(job) if job.error else None)
        if cause is not None:
            self.recent_causes.remember(job.id, job.function.name, cause)
        if job.id in self._dependencies.has_failure_policy:
            self._ending_cause = cause
            self._propagate_failure(job)

    def _unblock_one_by_one(self, job_id: int) -> Iterator[None]:
        """Make very many successors ready, in the order in which they began to wait."""
        for job in self._dependencies.each_waiting_for(job_id):
            if self._dependencies.use_up_edge(job_id, job):
                self.unblock([job])
            yield

    def requeue(self, job: Job, cause: Cause, *, goes_last: bool = False, is_restored: bool = False) -> None:
        """Return a running job that its worker no longer has to its queue, unless it is dead or abandoned."""
        state = self._state
        if job.delivery == Delivery.WAIT and not job.subscribers:
            self.finish(job, ABANDONED)
            return
        if cause is Cause.GIVEN_BACK:
            job.attempts -= 1
        elif self._attempts.is_dead_after(job, cause):
            self.finish(job, Cause.EXHAUSTED)
            job.function.dead += 1
            state.observer.job_died(job)
            return
        self._attempts.wait_again(job)
        job.function.requeued += 1
        state.move(job, cause)
        if state.is_too_late(job):
            self.expire(job)
            return
        if state.reports_changes and job.delivery:
            state.note(job)
        state.observer.job_requeued(job, cause)  # before another worker is given it
        if goes_last:
            self._dispatcher.enqueue_last(job)
        elif is_restored:  # in the order of places
            self._dispatcher.enqueue(job)
        else:
            self._dispatcher.enqueue_again(job)
        self._dispatcher.offer_room(job.function)

    # --- the end ---

    def expire(self, job: Job) -> None:
        """End a job that was not started in time, and is in no queue."""
        self.finish(job, Cause.EXPIRED)
        self._state.observer.job_expired(job)

    def end(self, job: Job, cause: Cause) -> None:
        """End an unfinished job in any state; a worker that has it is told to stop."""
        if job.state is RUNNING:
            self._attempts.cut_off(job, cause)
        else:
            self.leave_queue(job)
        self.finish(job, cause)

    def finish(self, job: Job, cause: Cause) -> None:
        """End a job that no worker has and that is in no queue: remove it from the tables and tell its subscribers.

        The usual end is inlined, not through `EngineState.move`, because every job passes here.
        """
        state = self._state
        job.finished_us = state.now_us
        function = job.function
        if cause is SUCCEEDED and job.state is RUNNING:
            if job.history is not None:
                state.note_move(job, SUCCEEDED)  # otherwise it is implied
            job.state = DONE
        else:
            state.move(job, cause)
        self.unlist(job)
        must_propagate = False
        if job.state is DONE:
            function.done += 1
            if self._dependencies.successors.count and not is_copy(job):
                if job.has_details:
                    self._retain_for_successors(job)
                self._unblock_successors(job.id)
        else:
            self._count_unsuccessful(job)
            must_propagate = job.id in self._dependencies.has_failure_policy and not is_copy(job)
        must_be_stored = job.delivery > 0
        if job.subscribers is not None:
            for subscriber in job.subscribers:
                try:
                    del subscriber.subscriptions[job.id]
                except KeyError:  # it has subscribed twice, or the subscription has ended
                    if not subscriber.hears_of(job.id):
                        continue
                if must_be_stored:
                    state.concern(subscriber)
                subscriber.job_finished(job)
            job.subscribers = None
        if state.global_subscribers:
            for peer in state.global_subscribers:
                peer.job_finished(job)
        if job.has_details:
            self._tidy(job)
        waited_for = self._dependencies.waited_for
        if waited_for and job.id in waited_for:
            waited_for.remove(job.id)
            # A present or past successor may be durable later. A restart must not take this end for a success.
            job.delivery = Delivery.HANDLE
        if cause is ABANDONED and not state.notes_starts and job.leaves_nothing:
            state.drop_contents(job)  # it was never stored, and has no subscribers
        else:
            state.changed[job] = None
            if must_be_stored and state.is_durable:
                state.concern_speaker()
        if must_propagate:
            self._propagate_failure(job)
        if function.limiter is not None:
            self._dispatcher.offer_room(function)

    def _tidy(self, job: Job) -> None:
        """Join the parts of the result, drop the error of an earlier attempt, and note a retention of its own."""
        if job.chunks is not None:
            job.result = job.whole_result
            job.chunks = None
        if job.error is not None and job.state is DONE:
            self._state.set_error(job, None)
        if job.retention_us > 0:
            self._state.note_retention(job)

    def _retain_for_successors(self, job: Job) -> None:
        """Extend the job's retention to the server's setting: a successor may need the result for longer."""
        if 0 <= job.retention_us < self._state.settings.retention_us and job.id in self._dependencies.successors:
            job.retention_us = -1

    def _count_unsuccessful(self, job: Job) -> None:
        function = job.function
        final_state = job.state
        if not is_copy(job):
            if job.has_details and self._dependencies.successors.count:
                self._retain_for_successors(job)
            self._dependencies.remember_unsuccessful(job)
            self._remember_cause(job)
        if final_state is JobState.FAILED:
            function.failed += 1
        elif final_state is JobState.CANCELLED:
            function.cancelled += 1
        else:
            function.expired += 1

    def _remember_cause(self, job: Job) -> None:
        """Remember why a job was unsuccessful, for a while; without an error there is nothing to remember."""
        cause = self._ending_cause
        if cause is None and job.error:
            cause = root_cause(job)
        if cause is None:
            self.recent_causes.forget(job.id)
        else:
            self.recent_causes.remember(job.id, job.function.name, cause)

    # --- unsuccessful predecessors ---

    def _propagate_failure(self, job: Job) -> None:
        """Apply the edges of a job that ended without success to its successors, and so on.

        There may be a chain of a million jobs, so each end only extends a list, which is processed in parts.
        """
        self.pending_failures.append(job)
        cause, self._ending_cause = self._ending_cause, None
        self._causes[job.id] = cause if cause is not None else root_cause(job)
        if not self._is_propagating:
            self._is_propagating = True
            self._propagate_some()

    def _propagate_some(self) -> None:
        """Process a part of the list. A crash loses nothing: a restart finds the jobs that must end."""
        pending = self.pending_failures
        try:
            left = self.failures_per_turn
            while pending and left > 0:
                job = pending[0]
                if job.state is WAITING:
                    pending.popleft()
                    # The job was retried, and has ended again, before all its successors were processed.
                    self._to_be_told = None
                    self._end_for_failed_dependency(job)
                    left -= 1
                else:
                    left -= self._tell_successors(job, left)
        finally:
            self._is_propagating = bool(pending)
            if not self._state.is_meeting_deadlines:  # otherwise the rest would follow at once
                self.propagate_later()

    def _tell_successors(self, job: Job, most: int) -> int:
        """Process at most this many successors of the first job of the list; returns the number of units of work."""
        dependencies = self._dependencies
        if job.id not in dependencies.unsuccessful:  # retried meanwhile
            self._to_be_told = None
            self.pending_failures.popleft()
            self._causes.pop(job.id, None)
            return 1
        if self._to_be_told is None:
            self._to_be_told = dependencies.each_waiting_for(job.id)
            self._told_next = next(self._to_be_told, None)
        some: list[Job] = []
        while self._told_next is not None and len(some) < most:
            some.append(self._told_next)
            self._told_next = next(self._to_be_told, None)
        cause = self._causes.get(job.id)
        if self._told_next is None:
            self._to_be_told = None
            self.pending_failures.popleft()
            self._causes.pop(job.id, None)
        unblocked, must_end = dependencies.propagate_failure(job.id, some)
        if cause is not None:
            for successor in must_end:
                self._causes[successor.id] = cause
        self.pending_failures.extend(must_end)
        if unblocked:
            self.unblock(unblocked)
        return max(1, len(some))

    def propagate_later(self) -> None:
        """Process the rest of the list in the next turn."""
        if self.pending_failures:
            self._deadlines.add(self._state.now_us, DeadlineKind.FAILED_DEPENDENCY, self.pending_failures[0])

    def dependency_failed(self, job: Job) -> None:
        """Handle the deadline of a job with a failed predecessor, or of the rest of the list."""
        if self.pending_failures and self.pending_failures[0] is job:
            self._propagate_some()
        else:
            self._end_for_failed_dependency(job)

    def _end_for_failed_dependency(self, job: Job) -> None:
        """End a waiting job, if a predecessor was unsuccessful and its edge says so."""
        cause = self._causes.pop(job.id, None)
        if job.state is not WAITING or self._state.jobs.get(job.id) is not job:
            return
        if job.id in self._dependencies.unneeded:
            if self._dependencies.end_wait_to_be_skipped(job):
                self._skip_error_handler(job)
            return
        predecessor_id = self._dependencies.failed_dependency(job)
        if not predecessor_id:
            return  # retried meanwhile
        is_skipped = policy_of(job, predecessor_id) == EdgePolicy.SKIP
        if cause is None:
            cause = self.recent_causes.get(predecessor_id)
        if cause is None:
            cause = RootCause(predecessor_id, self._dependencies.unsuccessful[predecessor_id], b"")
        self._state.set_error(job, predecessor_error(cause))
        self._dependencies.remove(job)
        self._ending_cause = cause  # it is that of its own successors too
        if is_skipped:
            self.finish(job, Cause.SKIPPED)
        else:
            job.result_code = 1
            self.finish(job, Cause.DOOMED)
        self._ending_cause = None

    def _skip_error_handler(self, job: Job) -> None:
        """End a job that was to run only if a predecessor failed, and none has."""
        self._state.set_error(job, NO_ERROR)
        self.finish(job, Cause.SKIPPED)

    def clear(self) -> None:
        """Forget everything."""
        self.pending_failures.clear()
        self._to_be_told = None
        self._causes.clear()
        self.recent_causes.clear()
        self._is_propagating = False
