"""`ResumedStarts`: gives a job back to a worker that lost its connection in the middle of the job and still runs it.

The engine returns the jobs of a lost worker to their queues at once, because it cannot know whether the worker still
runs them.  A worker that does comes back and names the job and the number of its attempt.  If no attempt has begun
since, the job is its own again: the same attempt goes on, and the loss is not counted.  It is the same after a restart
of the engine, which finds the job as one that was running.  If the engine has taken the function over from another one,
the job is still running (`AdoptedRuns`), and goes on without a new start.

A worker is believed: it could take any job of its functions by asking for work, so nothing is gained by a lie.
"""

from __future__ import annotations

from switchgear.engine.adopted_runs import AdoptedRuns
from switchgear.engine.attempts import Attempts
from switchgear.engine.limiters import Limiters
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.engine.requirements import fits
from switchgear.engine.state import EngineState
from switchgear.model import READY, RUNNING, Job, Worker

__all__ = ["ResumedStarts"]


class ResumedStarts:
    """Gives jobs back to workers that still run them."""

    def __init__(
        self,
        state: EngineState,
        limiters: Limiters,
        queues: ReadyQueues,
        attempts: Attempts,
        packed: PackedQueues,
        adopted_runs: AdoptedRuns,
    ) -> None:
        self.adopted_runs = adopted_runs
        self._state = state
        self._limiters = limiters
        self._queues = queues
        self._attempts = attempts
        self._packed = packed

    def resume(self, worker: Worker, job_id: int, attempt: int, start_number: int = 0) -> Job | None:
        """Give a ready job to the worker that still runs its latest attempt; None if another attempt has begun, or
        limits let the job run no more. With the number of its start, that no other start has begun either."""
        job = self._packed.job(job_id)
        if job is None or not worker.alive or not self._state.handing_out:
            return None
        # Fewer attempts: the start was not stored when the server stopped.
        if attempt < 1 or job.attempts > attempt or job.function not in worker.timeouts_us:
            return None
        if 0 < start_number < job.start_number:
            return None
        if job.state is RUNNING and self.adopted_runs.is_kept(job):
            job.attempts = attempt
            if start_number > job.start_number:
                job.own_details().starts = start_number
            self.adopted_runs.give(job, worker)
            return job
        if job.state is not READY:
            return None
        if job.requires and not fits(worker, job):
            return None
        if self._limiters.why_closed(job) is not None:
            return None
        if job.attempts == attempt:
            job.attempts -= 1  # the start counts it again
            if job.has_details and job.losses:
                job.losses -= 1
        self._queues.pop_job(job)
        self._attempts.start(job, worker)
        return job
