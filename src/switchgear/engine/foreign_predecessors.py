"""`ForeignPredecessors`: jobs of other engines that jobs of this one wait for.

With other engines, an unknown predecessor may be a job of one of them. So it counts as unfinished
(`Dependencies.foreign`) until the owner of this engine has found out how it is. Then the owner says so here, and again
when that changes. While jobs wait for an unsuccessful one it is among `UnsuccessfulJobs`, as one of this engine would
be.
"""

from __future__ import annotations

from switchgear.engine.dependencies import Dependencies
from switchgear.engine.function_placement import is_copy
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.state import EngineState
from switchgear.engine.transitions import Transitions
from switchgear.engine.unsuccessful_jobs import UnsuccessfulJobs
from switchgear.model import Delivery, Job

__all__ = ["ForeignPredecessors"]


class ForeignPredecessors:
    """Applies to this engine's jobs what becomes of their predecessors of other engines."""

    def __init__(
        self,
        state: EngineState,
        packed: PackedQueues,
        dependencies: Dependencies,
        transitions: Transitions,
        unsuccessful: UnsuccessfulJobs,
    ) -> None:
        self._state = state
        self._packed = packed
        self._dependencies = dependencies
        self._transitions = transitions
        self._unsuccessful = unsuccessful

    def is_awaited(self, job_id: int) -> bool:
        """Whether a job of this engine waits for that one."""
        return job_id in self._dependencies.successors

    def waiting_for(self, job_id: int) -> list[Job]:
        """The jobs of this engine that wait for that one."""
        return self._dependencies.waiting_for(job_id)

    def is_own(self, job_id: int) -> bool:
        """Whether the unfinished job is one of this engine."""
        job = self._packed.look_at(job_id)
        return job is not None and not is_copy(job)

    def is_done(self, job_id: int) -> None:
        """The job is done, or was done so long ago that nobody remembers it."""
        self._dependencies.foreign.pop(job_id, None)
        self._unsuccessful.remove(job_id)
        self._transitions.predecessor_done(job_id)

    def has_failed(self, job: Job) -> None:
        """The job has ended without success; this is a copy of it."""
        dependencies = self._dependencies
        dependencies.foreign.pop(job.id, None)
        self._unsuccessful.remove(job.id)  # it may have been retried, and have ended otherwise
        self._unsuccessful.add(job.id, job.state, job.name if job.has_details else b"", dependencies.successors)
        self._transitions.predecessor_failed(job)

    def is_unfinished(self, job_id: int) -> None:
        """The job was unsuccessful and is retried, or it is not known any more how it is."""
        dependencies = self._dependencies
        if job_id not in dependencies.successors or self.is_own(job_id):
            return
        dependencies.foreign[job_id] = None
        if job_id in dependencies.unsuccessful:
            self._unsuccessful.remove(job_id)
            dependencies.has_failure_policy.add(job_id)

    def has_come(self, job_id: int) -> None:
        """The job is one of this engine by now."""
        dependencies = self._dependencies
        job = self._packed.job(job_id)
        if job is None or is_copy(job) or job_id not in dependencies.foreign:
            return
        del dependencies.foreign[job_id]
        self._unsuccessful.remove(job_id)
        for waiting in dependencies.waiting_for(job_id):
            if waiting.function is not job.function:
                dependencies.cross_function_edges.add(job, waiting.function)
            dependencies.rely_on(waiting, (job_id,))

    def forget(self, job_id: int) -> None:
        """No job of this engine waits for that one any more."""
        self._dependencies.foreign.pop(job_id, None)
        if not self.is_own(job_id):
            self._unsuccessful.remove(job_id)

    def must_be_kept(self, job: Job) -> None:
        """A job of another engine waits for this one: it and its predecessors must survive a crash, and its result is
        kept for as long as results usually are."""
        job = self._packed.job(job.id) or job
        state = self._state
        changed = False
        if not job.delivery:
            job.delivery = Delivery.HANDLE
            changed = True
            self._dependencies.rely_on(job, job.predecessors)
        if job.has_details and 0 <= job.retention_us < state.settings.retention_us:
            job.retention_us = -1
            changed = True
        if changed and state.reports_changes:
            state.note(job)

    # --- functions that go to another engine ---

    def goes(self, job: Job) -> None:
        """This job is another engine's from now on; those that wait for it may stay."""
        dependencies = self._dependencies
        if job.id in dependencies.successors and self._state.placement is not None:
            dependencies.foreign[job.id] = None
            if len(dependencies.cross_function_edges):
                dependencies.cross_function_edges.ended(job.id)
            self._state.placement.await_job(job.id)

    def forget_unsuccessful(self) -> None:
        """Unsuccessful jobs may be other engines' from now on, and may be retried there: forget how they are."""
        dependencies = self._dependencies
        placement = self._state.placement
        for job_id in list(dependencies.unsuccessful):
            if job_id not in dependencies.successors:
                self._unsuccessful.remove(job_id)
            elif placement is not None:
                self.is_unfinished(job_id)
                placement.await_job(job_id)
        self._unsuccessful.is_complete = False
