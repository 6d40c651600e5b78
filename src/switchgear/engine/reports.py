"""What workers report of their jobs.

Each report returns the job, or None if the worker does not hold it.  A job that was cancelled while it ran is still the
worker's until it reports; the report then frees the worker and changes nothing.
"""

from __future__ import annotations

from typing import Final

from switchgear.engine.tables import SUCCEEDED
from switchgear.engine.wishes import Wishes
from switchgear.model import READY, RUNNING, Cause, Delivery, Job, Worker

__all__ = ["Reports"]

# The parts of a result are kept as they came.  When there are many, small ones are put together.
MANY_CHUNKS: Final = 64
SMALL_CHUNK_BYTES: Final = 4096

PARTS_ARE_MISSING: Final = b"parts of the result are missing, because there was no room for them\n"


class Reports(Wishes):
    """The part of the engine that workers report to."""

    def complete(self, worker: Worker, job_id: int, result: bytes) -> Job | None:
        """The job is done."""
        job = worker.running.get(job_id)
        if job is None:
            return None
        del worker.running[job_id]
        if job.worker is not worker:  # cancelled while it ran: the report only frees the worker
            return job
        job.result = result
        self.memory.job_bytes += len(result)
        job.worker = None
        function = job.function
        function.running -= 1
        if function.gate is not None:
            self._count_end(job)
        if job.special and job.run_limit:
            job.run_limit = 0
            self.deadlines.stale += 1
        self._finish(job, SUCCEEDED)
        return job

    def fail(
        self, worker: Worker, job_id: int, code: int = 1, error: bytes | None = None, result: bytes = b""
    ) -> Job | None:
        """The job failed, for good."""
        job = worker.running.get(job_id)
        if job is None:
            return None
        if job.worker is not worker:
            del worker.running[job_id]
            return job
        job.result_code = code
        self._set_error(job, error)
        job.result = result
        self.memory.job_bytes += len(result)
        self._leave_worker(job)
        self._finish(job, Cause.ENDED_BADLY)
        if error is not None and len(error) > self.settings.warning_bytes:
            self._set_error(job, error[: self.settings.warning_bytes])  # whoever waited has been told all of it
        return job

    def retry_later(
        self, worker: Worker, job_id: int, delay_us: int, error: bytes | None = None, attempts_limit: int = -1
    ) -> Job | None:
        """The job failed, but should be tried again after a pause, if it has attempts left.

        The worker may say how many attempts it has, if whoever submitted it did not.
        """
        job = worker.running.get(job_id)
        if job is None or job.worker is not worker:
            return self.fail(worker, job_id)
        job.special = True
        if attempts_limit >= 0 > job.attempts_limit:
            job.attempts_limit = attempts_limit
        if self._attempts_are_spent(job):
            return self.fail(worker, job_id, 1, error)
        self._set_error(job, error[: self.settings.warning_bytes] if error is not None else None)  # it waits in memory
        self._leave_worker(job)
        if job.delivery == Delivery.WAIT and not job.watchers:
            self._finish(job, Cause.ABANDONED)
            return job
        self._forget_run(job)
        if job.unique_scope:
            self._take_key_again(job)
        job.run_at_us = self.now_us + max(1, delay_us)
        self._rank_last(job)
        self._move(job, Cause.RETRY_LATER)
        if self._is_too_late(job):
            self._expire(job)
            return job
        self._await_time(job)
        if self.keeps and job.delivery:
            self._note(job)
        self._offer_room(job.function)
        return job

    def hand_back(self, worker: Worker, job_id: int) -> Job | None:
        """The worker returns the job untouched; no attempt is spent."""
        job = worker.running.get(job_id)
        if job is None:
            return None
        if job.worker is not worker:
            del worker.running[job_id]
            return job
        self._leave_worker(job)
        self._requeue(job, Cause.GIVEN_BACK, self._enqueue_last)
        return job

    def could_not_be_sent(self, worker: Worker, job_id: int, lost: bytes = b"") -> Job | None:
        """The worker took the job but cannot be given it, because its payload cannot be read: not now, so it goes back,
        or, as `lost` says, never again, so it fails."""
        if lost:
            return self.fail(worker, job_id, 255, lost)
        return self.hand_back(worker, job_id)

    def progress(
        self,
        worker: Worker,
        job_id: int,
        numerator: int,
        denominator: int,
        time_left_s: int = -1,
        text: bytes = b"",
        message: bytes = b"",
    ) -> Job | None:
        """The job is so far along; `message` says for people what its worker is doing."""
        job = worker.running.get(job_id)
        if job is None or job.worker is not worker:
            return job
        job.numerator = numerator
        job.denominator = denominator
        job.time_left_s = time_left_s
        self.memory.job_bytes += len(text) + len(message) - len(job.progress_text) - len(job.message)
        job.progress_text = text
        if message or job.message:
            job.special = True
            job.message = message
        for watcher in job.watchers or ():
            watcher.job_progress(job)
        return job

    def renew_run(self, worker: Worker, job_id: int, span_us: int = 0) -> Job | None:
        """The worker is still at it: the time that it gave itself for the job begins anew.

        That is `span_us`, or what it said for the function, if it can still do that.  A limit that the submitter has
        set is not moved.
        """
        job = worker.running.get(job_id)
        if job is not None and job.worker is worker and job.run_limit and not job.timeout_us:
            span_us = span_us or worker.timeouts_us.get(job.function, 0)
            job.run_until_us = self.now_us + span_us  # seen when the limit comes up
        return job

    def data(self, worker: Worker, job_id: int, data: bytes) -> Job | None:
        """Part of the result, ahead of its end."""
        job = worker.running.get(job_id)
        if job is None or job.worker is not worker:
            return job
        collect = bool(job.delivery)
        for watcher in job.watchers or ():
            collect = collect or watcher.collects_data
            watcher.job_data(job, data)
        if collect:
            self._collect(job, data)
        return job

    def _collect(self, job: Job, data: bytes) -> None:
        """Keep a part of a result until its end.  Once there is no room for one, nothing more is added."""
        job.special = True
        chunks = job.chunks
        if chunks is None:
            chunks = job.chunks = []
        most_bytes = self.settings.collected_bytes
        had_room = job.collected_bytes <= most_bytes
        job.collected_bytes += len(data)
        if had_room and not self.memory.has_room(len(data)):
            job.collected_bytes = max(job.collected_bytes, most_bytes + 1)
        if job.collected_bytes <= most_bytes:
            self.memory.job_bytes += len(data)
            if len(chunks) >= MANY_CHUNKS and len(chunks[-1]) + len(data) <= SMALL_CHUNK_BYTES:
                chunks[-1] += data  # an object for each byte would take forty times as much
            else:
                chunks.append(data)
        elif had_room:
            self._add_warning(job, PARTS_ARE_MISSING)

    def warning(self, worker: Worker, job_id: int, data: bytes) -> Job | None:
        """Something to be said on the way."""
        job = worker.running.get(job_id)
        if job is None or job.worker is not worker:
            return job
        self._add_warning(job, data)
        for watcher in job.watchers or ():
            watcher.job_warning(job, data)
        return job

    def _add_warning(self, job: Job, data: bytes) -> None:
        """Keep the end of what was said."""
        warnings = (job.warnings + data)[-self.settings.warning_bytes :]
        self.memory.job_bytes += len(warnings) - len(job.warnings)
        job.warnings = warnings

    def settle(self, job: Job, result: bytes = b"") -> bool:
        """A job is reported done by somebody who does not hold it, or not any more.  The first result counts.

        A worker that holds it is told to stop.  False, and no change, for a job that may not run yet or has ended.
        """
        if self.jobs.get(job.id) is not job or job.state not in (READY, RUNNING):
            return False
        if job.state is RUNNING:
            self._cut_off(job, Cause.SETTLED)
            self._forget_run(job)  # the parts of a result that will not come to its end
        else:
            self._leave_queue(job)
        job.result = result
        self.memory.job_bytes += len(result)
        self._finish(job, Cause.SETTLED)
        return True
