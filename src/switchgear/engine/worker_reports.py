"""`WorkerReports`: a worker completes, fails, postpones or releases a job, or sends progress, data and warnings.

Each report returns the job, or None if the worker does not have it. A job that was cancelled while it ran stays in the
worker's list until the worker reports; the report then frees the worker and has no other effect.

A report may name the start that it is about (`Job.start_number`; 0: the protocol cannot name it). If that is not the
present start the report is late, and treated as that of a worker without the job: see `late`.
"""

from __future__ import annotations

from typing import Final

from switchgear.engine.adopted_runs import AdoptedRuns
from switchgear.engine.attempts import Attempts
from switchgear.engine.dispatcher import Dispatcher
from switchgear.engine.function_placement import is_copy
from switchgear.engine.limiters import Limiters
from switchgear.engine.lost_starts import LostStarts
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.engine.resumed_starts import ResumedStarts
from switchgear.engine.state import EngineState
from switchgear.engine.transitions import Transitions
from switchgear.model import CANCELLED, DONE, FAILED, READY, RUNNING, Cause, Delivery, Job, Worker
from switchgear.states import LateReport

__all__ = ["WorkerReports"]

SUCCEEDED: Final = Cause.SUCCEEDED  # a global is cheaper to look up than a member of an enumeration

# The parts of a result are kept as they arrive. If there are many, small ones are joined.
MANY_CHUNKS: Final = 64
SMALL_CHUNK_BYTES: Final = 4096

STOPS: Final = (Cause.SERVER_LOST, Cause.GIVEN_BACK)

PARTS_ARE_MISSING: Final = b"parts of the result are missing, because there was no room for them\n"


class WorkerReports:
    """Handles the reports of workers."""

    def __init__(
        self,
        state: EngineState,
        limiters: Limiters,
        queues: ReadyQueues,
        attempts: Attempts,
        dispatcher: Dispatcher,
        transitions: Transitions,
        packed: PackedQueues,
        lost_starts: LostStarts,
        adopted_runs: AdoptedRuns,
    ) -> None:
        self._packed = packed
        self._lost_starts = lost_starts
        self._state = state
        self._limiters = limiters
        self._queues = queues
        self._attempts = attempts
        self._dispatcher = dispatcher
        self._transitions = transitions
        self._adopted_runs = adopted_runs
        self.resumed_starts = ResumedStarts(state, limiters, queues, attempts, packed, adopted_runs)

    def complete(self, worker: Worker, job_id: int, result: bytes, start_number: int = 0) -> Job | None:
        """End a job as done, or return `None` if the worker does not hold that start of it; see `Engine.complete`."""
        # Every job passes here. It is looked up in the table of jobs, which takes half the time of `worker.running`.
        state = self._state
        job = state.jobs.get(job_id)
        if job is None or job.worker is not worker:
            job = worker.running.get(job_id)
            if job is None:
                return None
            if job.worker is not worker:
                self._free(worker, job_id)
                if self._adopted_runs.is_aside(job):
                    job.result = result
                    self._adopted_runs.report_aside(job, DONE)
                return job
        if start_number and start_number != job.start_number:
            return None  # see `_reported`
        del worker.running[job_id]
        job.result = result
        state.memory.job_bytes += len(result)
        job.worker = None  # `Attempts.detach`, inlined, because every job passes here
        function = job.function
        function.running -= 1
        history = job.history  # `Job.taken_us`, inlined
        run_us = state.now_us - (job.started_us if history is None else history[-1])
        function.run_times.note(run_us)
        function.last_run_us = run_us
        worker.flows[job.source].note(run_us)
        if function.limiter is not None:
            self._limiters.count_end(job, worker)
        if job.has_details and job.run_limit:
            self._attempts.end_limit(job)
        self._transitions.finish(job, SUCCEEDED)
        return job

    def _reported(self, worker: Worker, job_id: int, start_number: int) -> Job | None:
        """The job of a report; None if the worker does not have it.

        A report that names another start than the worker's present one is about a start that the worker has lost. If
        the job was cancelled while the worker had it, another start may be another worker's: the report counts as one
        on the cancelled start, which frees the worker and changes nothing else.
        """
        job = worker.running.get(job_id)
        if job is not None and start_number and start_number != job.start_number and job.worker is worker:
            return None
        return job

    def _free(self, worker: Worker, job_id: int) -> None:
        """Free a worker that reports on a job that was cancelled while it ran; the report has no other effect.

        The next answer to the worker means that its job has ended for good, and the cancelling may not be stored yet.
        """
        del worker.running[job_id]
        if worker.uses is not None:
            self._dispatcher.end_use(worker, job_id)
        self._state.concern_speaker()

    def fail(
        self,
        worker: Worker,
        job_id: int,
        code: int = 1,
        error: bytes | None = None,
        result: bytes = b"",
        start_number: int = 0,
    ) -> Job | None:
        """End a job as failed, without a retry."""
        job = self._reported(worker, job_id, start_number)
        if job is None:
            return None
        if job.worker is not worker:
            self._free(worker, job_id)
            if self._adopted_runs.is_aside(job):
                job.result_code, job.error, job.result = code, error, result
                self._adopted_runs.report_aside(job, FAILED)
            return job
        job.result_code = code
        self._state.set_error(job, error)
        self._state.set_result(job, result)
        worker.flows[job.source].note_failure(self._state.now_us - job.taken_us)
        self._attempts.detach(job)
        self._transitions.finish(job, Cause.ENDED_BADLY)
        warning_bytes = self._state.settings.warning_bytes
        if error is not None and len(error) > warning_bytes:
            self._state.set_error(job, error[:warning_bytes])  # the subscribers were told the whole text
        return job

    def retry_later(
        self,
        worker: Worker,
        job_id: int,
        delay_us: int,
        error: bytes | None = None,
        attempts_limit: int = -1,
        start_number: int = 0,
    ) -> Job | None:
        """Retry a failed job after a pause, if it has attempts left.

        The worker may set the limit of attempts, if the submitter did not.
        """
        job = self._reported(worker, job_id, start_number)
        if job is None:
            return None
        placement = self._state.placement
        if job.worker is not worker:
            if placement is not None and self._adopted_runs.is_aside(job):
                placement.note_retry(job, delay_us, error, attempts_limit)
            return self.fail(worker, job_id)
        if placement is not None and is_copy(job):
            placement.note_retry(job, delay_us, error, attempts_limit)
            return self.fail(worker, job_id, 1, error)
        job.has_details = True
        if attempts_limit >= 0 > job.attempts_limit:
            job.attempts_limit = attempts_limit
        if self._attempts.are_spent(job):
            return self.fail(worker, job_id, 1, error)
        state = self._state
        # The text stays in memory while the job waits, so only its beginning is kept.
        state.set_error(job, error[: state.settings.warning_bytes] if error is not None else None)
        self._attempts.detach(job)
        if job.delivery == Delivery.WAIT and not job.subscribers:
            self._transitions.finish(job, Cause.ABANDONED)
            return job
        self._attempts.wait_again(job)
        job.run_at_us = state.now_us + max(1, delay_us)
        self._queues.rank_last(job)
        state.move(job, Cause.RETRY_LATER)
        if state.is_too_late(job):
            self._transitions.expire(job)
            return job
        self._transitions.await_time(job)
        if state.reports_changes and job.delivery:
            state.note(job)
        self._dispatcher.offer_room(job.function)
        return job

    def release(self, worker: Worker, job_id: int, start_number: int = 0) -> Job | None:
        """Return a job to its queue; the attempt does not count."""
        return self._requeue(worker, job_id, start_number, Cause.GIVEN_BACK, goes_last=True)

    def lost(self, worker: Worker, job_id: int, start_number: int = 0) -> Job | None:
        """Return a job to its queue because the worker to which this one had passed it on is gone."""
        return self._requeue(worker, job_id, start_number, Cause.WORKER_LOST, goes_last=False)

    def _requeue(self, worker: Worker, job_id: int, start_number: int, cause: Cause, *, goes_last: bool) -> Job | None:
        job = self._reported(worker, job_id, start_number)
        if job is None:
            return None
        if job.worker is not worker:
            self._free(worker, job_id)
            if self._adopted_runs.is_aside(job):
                self._adopted_runs.report_aside(job, CANCELLED)
            return job
        self._attempts.detach(job)
        self._transitions.requeue(job, cause, goes_last=goes_last)
        return job

    def could_not_be_sent(self, worker: Worker, job_id: int, lost: bytes = b"") -> Job | None:
        """Take back a job that could not be sent because its payload cannot be read: it goes back to its queue or,
        if `lost`, fails."""
        if lost:
            return self.fail(worker, job_id, 255, lost)
        return self.release(worker, job_id)

    def progress(
        self,
        worker: Worker,
        job_id: int,
        numerator: int,
        denominator: int,
        time_left_s: int = -1,
        text: bytes = b"",
        message: bytes = b"",
        start_number: int = 0,
    ) -> Job | None:
        """Set the progress of a job; `message` tells people what the worker is doing."""
        job = self._reported(worker, job_id, start_number)
        if job is None:
            return None
        if job.worker is not worker:
            return job
        job.numerator = numerator
        job.denominator = denominator
        job.time_left_s = time_left_s
        self._state.memory.job_bytes += len(text) + len(message) - len(job.progress_text) - len(job.message)
        job.progress_text = text
        if message or job.message:
            job.has_details = True
            job.message = message
        for subscriber in job.subscribers or ():
            if subscriber.hears_of(job.id):
                subscriber.job_progress(job)
        return job

    def renew_run(self, worker: Worker, job_id: int, span_us: int = 0, start_number: int = 0) -> Job | None:
        """Restart the time limit that the worker has set for the job.

        The limit is `span_us`, or the one of the worker's registration if it still serves the function. A limit of the
        submitter does not move.
        """
        job = self._reported(worker, job_id, start_number)
        if job is not None and job.worker is worker:
            self._attempts.renew(job, worker, span_us)
        return job

    def data(self, worker: Worker, job_id: int, data: bytes, start_number: int = 0) -> Job | None:
        """Add a part of the result, ahead of the end."""
        job = self._reported(worker, job_id, start_number)
        if job is None:
            return None
        if job.worker is not worker:
            if self._adopted_runs.is_aside(job):
                for subscriber in job.subscribers or ():
                    subscriber.job_data(job, data)
            return job
        collect = bool(job.delivery)
        for subscriber in job.subscribers or ():
            if subscriber.hears_of(job.id):
                collect = collect or subscriber.collects_data
                subscriber.job_data(job, data)
        if collect:
            self._collect(job, data)
        return job

    def _collect(self, job: Job, data: bytes) -> None:
        """Keep a part of a result until the end. After the first part without room, no more are added."""
        job.has_details = True
        chunks = job.chunks
        if chunks is None:
            chunks = job.chunks = []
        most_bytes = self._state.settings.collected_bytes
        had_room = job.collected_bytes <= most_bytes
        job.collected_bytes += len(data)
        if had_room and not self._state.memory.has_room(len(data)):
            job.collected_bytes = max(job.collected_bytes, most_bytes + 1)
        if job.collected_bytes <= most_bytes:
            self._state.memory.job_bytes += len(data)
            if len(chunks) >= MANY_CHUNKS and len(chunks[-1]) + len(data) <= SMALL_CHUNK_BYTES:
                chunks[-1] += data  # an object for each byte would take forty times as much memory
            else:
                chunks.append(data)
        elif had_room:
            self._add_warning(job, PARTS_ARE_MISSING)

    def warning(self, worker: Worker, job_id: int, data: bytes, start_number: int = 0) -> Job | None:
        """Append text to the warnings of a running job, and tell its subscribers."""
        job = self._reported(worker, job_id, start_number)
        if job is None:
            return None
        if job.worker is not worker:
            if self._adopted_runs.is_aside(job):
                for subscriber in job.subscribers or ():
                    subscriber.job_warning(job, data)
            return job
        self._add_warning(job, data)
        for subscriber in job.subscribers or ():
            if subscriber.hears_of(job.id):
                subscriber.job_warning(job, data)
        return job

    def _add_warning(self, job: Job, data: bytes) -> None:
        """Keep the end of all warnings."""
        warnings = (job.warnings + data)[-self._state.settings.warning_bytes :]
        self._state.memory.job_bytes += len(warnings) - len(job.warnings)
        job.warnings = warnings

    def late(self, job_id: int, identity: object, start_number: int, result: bytes | None) -> LateReport:
        """Handle the report of a worker that does not, or no longer, have the job; `result` is None unless it reports
        success.

        The first result counts, if the worker is known to have had the job. After a restart of the server that is not
        known: then every worker is believed that claims to have had the job, until another is assigned it.
        """
        job = self._packed.job(job_id)
        if not self._lost_starts.is_known(job_id, identity, start_number):
            is_before_restart = job is not None and job.state is READY and start_number <= job.start_number
            if job is None or not is_before_restart or not was_lost_with_server(job):
                return LateReport.UNKNOWN
        if result is None:
            return LateReport.DROPPED
        self._lost_starts.forget(job_id, identity)
        if job is None or not self.complete_unowned(job, result):
            return LateReport.DROPPED
        return LateReport.ACCEPTED

    def complete_unowned(self, job: Job, result: bytes, message: bytes = b"") -> bool:
        """Complete a job on the report of a peer that does not, or no longer, have it. The first result counts.

        A worker that has the job is told to stop. Returns False, and changes nothing, if the job may not run yet or has
        ended.
        """
        if self._state.jobs.get(job.id) is not job or job.state not in (READY, RUNNING):
            return False
        if job.state is RUNNING:
            self._attempts.cut_off(job, Cause.SETTLED)
            self._attempts.reset(job)  # discard the parts of an unfinished result
        else:
            self._transitions.leave_queue(job)
        self._state.set_result(job, result)
        if message:
            self.set_message(job, message)
        self._transitions.finish(job, Cause.SETTLED)
        return True

    def set_message(self, job: Job, message: bytes) -> None:
        """Note what the worker says about its job, for people; it is stored with the next change of the job."""
        if message or job.message:
            self._state.memory.job_bytes += len(message) - len(job.message)
            job.has_details = True
            job.message = message


def was_lost_with_server(job: Job) -> bool:
    """Whether the job was running when the server stopped, or was released then."""
    return any(cause in STOPS for cause, _ in job.log)
