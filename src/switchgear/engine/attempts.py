"""`Attempts`: starts, limits and ends attempts, and decides whether another attempt may follow."""

from __future__ import annotations

from typing import Final

from switchgear.engine.deadlines import DeadlineKind, Deadlines
from switchgear.engine.lifecycle import NEXT_STATE, next_state
from switchgear.engine.limiters import Limiters
from switchgear.engine.lost_starts import LostStarts
from switchgear.engine.requirements import Requirements
from switchgear.engine.state import EngineState
from switchgear.engine.unique_keys import UniqueKeys
from switchgear.model import READY, RUNNING, Cause, Job, Worker
from switchgear.model.job_details import NO_DETAILS

__all__ = ["Attempts"]

TAKEN: Final = Cause.TAKEN  # a global is cheaper to look up than a member of an enumeration
assert NEXT_STATE[TAKEN][READY] is RUNNING  # what `start` relies on

# A job whose function took no longer the last time is expected to end before a commit would.
QUICK_RUN_US: Final = 1_000

LOSS_TEXTS: Final = {
    Cause.WORKER_LOST: b"worker lost",
    Cause.SERVER_LOST: b"server stopped",
    Cause.TIMED_OUT: b"timed out",
}


class Attempts:
    """Starts jobs on workers, takes jobs from workers, and counts attempts and crashes."""

    def __init__(
        self,
        state: EngineState,
        deadlines: Deadlines,
        limiters: Limiters,
        keys: UniqueKeys,
        lost_starts: LostStarts,
        requirements: Requirements,
    ) -> None:
        self._requirements = requirements
        self._lost_starts = lost_starts
        self._state = state
        self._deadlines = deadlines
        self._limiters = limiters
        self._keys = keys
        self._last_run_limit = 0

    def start(self, job: Job, worker: Worker) -> None:
        """Move a job from READY to RUNNING. Inlined, not through `EngineState.move`, because every job passes here."""
        if job.state is not READY:
            next_state(job, TAKEN)  # raises
        state = self._state
        now_us = state.now_us
        history = job.history
        if history is None and job.started_us < 0:
            ready_us = job.created_us
            job.started_us = now_us  # the start time implies the move
        else:
            ready_us = job.created_us if history is None else history[-1]  # the time of the move that made it ready
            job.count_start()
            state.note_move(job, TAKEN)
        job.state = RUNNING
        job.attempts += 1
        job.worker = worker
        worker.running[job.id] = job
        function = job.function
        function.running += 1
        function.taken_us = now_us
        function.wait_times.note(now_us - ready_us)
        if function.limiter is not None:
            self._limiters.count_start(job)
        if job.has_details or worker.has_timeouts:
            # A worker that goes on with a job may have ceased to serve the function meanwhile.
            timeout_us = job.timeout_us or worker.timeouts_us.get(function, 0)
            if timeout_us:
                self._limit(job, timeout_us)
            if job.unique_scope and job.unique:
                self._keys.free(job)
        if state.reports_changes and (job.delivery or state.notes_starts):
            state.changed[job] = None
            if state.is_durable and job.delivery and self.start_must_be_kept(job):
                if self._is_stored_with_submission(job):
                    if function.last_run_us <= QUICK_RUN_US:
                        state.quick_starts += 1
                else:
                    # If the server dies now, it must remember that this attempt was made.
                    state.concern(worker.peer)
                    state.concern_speaker()  # a worker that asks may be known to the engine by another peer
        if job.id >= state.stored_ids:
            state.concern(worker.peer)
            state.concern_speaker()
        if state.global_subscribers:
            for peer in state.global_subscribers:
                peer.job_started(job)

    def _limit(self, job: Job, timeout_us: int) -> None:
        """Set the time limit of this attempt."""
        self._last_run_limit += 1
        job.has_details = True
        job.run_limit = self._last_run_limit
        if job.run_until_us:
            job.run_until_us = 0  # an earlier attempt was renewed
        self._deadlines.add(self._state.now_us + timeout_us, DeadlineKind.RUN_LIMIT, job, job.run_limit)
        if job.worker is not None:
            job.worker.holds_limited = True
        is_unsent = self._state.is_durable and job.delivery > 0 and self.start_must_be_kept(job)
        if is_unsent and self._is_stored_with_submission(job):
            is_unsent = False  # it is sent at once
        if is_unsent or job.unsent:
            job.unsent = is_unsent

    def start_is_kept(self, job: Job) -> None:
        """Handle a stored start: the worker is sent the job now, if it still has it, and its time limit begins."""
        job.unsent = False
        worker = job.worker
        if job.state is not RUNNING or worker is None:
            return
        timeout_us = job.timeout_us or worker.timeouts_us.get(job.function, 0)
        if not timeout_us:
            return  # the worker no longer serves the function, and has the job without a limit
        if job.run_limit:
            # Checked when the present deadline comes up.
            job.run_until_us = max(job.run_until_us, self._state.now_us + timeout_us)
        else:
            self._limit(job, timeout_us)  # the first deadline has already come up
            job.unsent = False

    def limit_again(self, job: Job) -> None:
        """Set the limit that the submitter has set for a run that was begun under another engine."""
        self._limit(job, max(0, job.taken_us + job.timeout_us - self._state.now_us))
        if job.unsent:
            job.unsent = False

    def limit_reached(self, job: Job, at_us: int) -> bool:
        """Handle the deadline of a time limit; returns whether the attempt has really run too long."""
        if job.run_until_us > at_us:  # renewed meanwhile; if the new end has passed too, its deadline comes next
            self._deadlines.add(job.run_until_us, DeadlineKind.RUN_LIMIT, job, job.run_limit)
            return False
        job.run_limit = 0  # this entry of the index is used up, not stale
        return not job.unsent  # an unsent job gets another limit when it is sent

    def renew(self, job: Job, worker: Worker, span_us: int) -> None:
        """Restart the time limit that the worker has set for the job; a limit of the submitter does not move."""
        if job.run_limit and not job.timeout_us:
            span_us = span_us or worker.timeouts_us.get(job.function, 0)
            job.run_until_us = self._state.now_us + span_us  # checked when the present deadline comes up

    def end_own_limits(self, worker: Worker) -> None:
        """End the time limits that the worker has set for the jobs it holds; those of submitters stay.

        The time of a job that was not sent yet begins later, so its limit stays too.
        """
        if not worker.holds_limited:
            return
        worker.holds_limited = False
        for job in worker.running.values():
            if job.worker is worker and job.has_details and not job.timeout_us and not job.unsent:
                self.end_limit(job)

    # --- the worker no longer has the job ---

    def detach(self, job: Job) -> None:
        """Take a running job from its worker."""
        worker = job.worker
        if worker is not None:
            worker.running.pop(job.id, None)
            job.worker = None
            job.function.run_times.note(self._state.now_us - job.taken_us)
            if self._state.global_subscribers:
                for peer in self._state.global_subscribers:
                    peer.job_detached(job)
        function = job.function
        function.running -= 1
        # After a restart the job has no worker, and was not counted.
        if function.limiter is not None and worker is not None:
            self._limiters.count_end(job, worker)
        if job.has_details:
            self.end_limit(job)
            if job.unsent:
                job.unsent = False

    def end_limit(self, job: Job) -> None:
        """Remove the time limit of the attempt."""
        if job.run_limit:
            job.run_limit = 0
            self._deadlines.note_stale()

    def cut_off(self, job: Job, cause: Cause) -> None:
        """Take a running job that ends from its worker, and tell the worker why.

        The job stays in the worker's list until the worker reports, so that the report is not an error.
        """
        worker = job.worker
        self.detach(job)
        if worker is not None:
            worker.running[job.id] = job
            if worker.resources:
                self._requirements.begin_use(worker, job)
            worker.peer.revoke(worker, job, cause)

    def revoke(self, job: Job, cause: Cause) -> None:
        """Take a running job that will run again from its worker, and tell the worker why."""
        worker = job.worker
        self.detach(job)
        if worker is not None:
            self._lost_starts.remember(worker, job)
            worker.peer.revoke(worker, job, cause)

    def reset(self, job: Job) -> None:
        """Discard the progress and the partial result of an unsuccessful attempt."""
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
        self._state.memory.job_bytes += job.details.content_size() - before

    def wait_again(self, job: Job) -> None:
        """Prepare a job whose attempt failed for its next start; it takes its unique key again."""
        self.reset(job)
        if job.unique_scope:
            self._keys.take_again(job)

    # --- counting attempts ---

    def start_must_be_kept(self, job: Job) -> bool:
        """Whether a worker may be sent this job only when its start is stored; the job is durable.

        Otherwise a server that dies again and again would start the job more often than its limit allows. If crashes
        are counted separately and have no limit, a forgotten start changes nothing. If a job that a schedule has just
        made were lost after its start, its tick would be due again, and the work would be done twice.
        """
        if job.has_details:
            if job.schedule and not job.kept:
                return True
            if job.crash_limit >= 0:
                return job.crash_limit > 0 or self._is_counted_by_next_owner(job)
            if job.attempts_limit >= 0:
                return job.attempts_limit > 0 or self._is_counted_by_next_owner(job)
        return self._state.settings.attempts > 0 or self._is_counted_by_next_owner(job)

    def _is_counted_by_next_owner(self, job: Job) -> bool:
        """Whether another engine that takes the function over has to know of this run, which may go on at a worker that
        is connected elsewhere: it counts for the limits."""
        return self._state.placement is not None and job.function.limiter is not None

    def _is_stored_with_submission(self, job: Job) -> bool:
        """Whether the first commit that has this job has this start, too.

        The submission was promised to nobody yet: if the server dies before that commit, there is no job whose attempts
        could be miscounted. But the tick of a schedule would be due again. Ids of other nodes are not below
        `next_job_id`; such submissions are repeated until they are stored.
        """
        state = self._state
        if not state.batch_ids <= job.id < state.next_job_id or job.kept or job.schedule:
            return False
        return state.placement is None or job.function.limiter is None  # see `_is_counted_by_next_owner`

    def are_spent(self, job: Job) -> bool:
        """Whether the job must not be started again, if this run counts as an attempt."""
        limit = job.attempts_limit if job.attempts_limit >= 0 else self._state.settings.attempts
        return 0 < limit <= job.attempts - (job.losses if job.has_details else 0)

    def is_dead_after(self, job: Job, cause: Cause) -> bool:
        """Count a lost attempt; if it was the last one, set the job's error and return True."""
        text = LOSS_TEXTS[cause]
        # A limit of the submitter is about the job. A limit of the worker or its protocol detects that the worker is
        # gone.
        took_too_long = cause is Cause.TIMED_OUT and job.timeout_us
        if job.crash_limit >= 0 and not took_too_long:
            job.losses += 1
            if not 0 < job.crash_limit <= job.losses:
                return False
            times = b"once" if job.losses == 1 else b"%d times" % job.losses
            self._state.set_error(job, b"%s in attempt %d; lost %b, the most allowed" % (text, job.attempts, times))
        elif self.are_spent(job):
            self._state.set_error(job, b"%s in attempt %d, the last one" % (text, job.attempts))
        else:
            return False
        job.result_code = 255
        return True
