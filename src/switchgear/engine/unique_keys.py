"""`UniqueKeys`: which job holds each unique key, and for how long.

While a job has a key, `Function.uniques` maps the key to the job, and other submissions with the key find this job.
Depending on its scope a key becomes free when the job ends, or when it starts. If the job holds its key until a given
time, the key is not free before that, whatever happens to the job; a deadline marks that time.

A job that gave up its key at its start, and has to be started again, takes the key back. If another job has it by then,
the first job continues without a key.
"""

from __future__ import annotations

from typing import Final

from switchgear.engine.deadlines import DeadlineKind, Deadlines
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.state import EngineState
from switchgear.engine.submit_options import SubmitOptions
from switchgear.errors import Refused
from switchgear.model import FINAL_STATES, RUNNING, Job, UniqueScope
from switchgear.refusals import REFUSED_FULL

__all__ = ["UniqueKeys"]

# The share of all memory that finished jobs may take which are kept for their unique keys.
HOLDS_SHARE: Final = 8


class UniqueKeys:
    """Takes, frees and holds the unique keys of jobs."""

    def __init__(self, state: EngineState, deadlines: Deadlines, packed: PackedQueues) -> None:
        self._state = state
        self._deadlines = deadlines
        self._packed = packed

    def owns(self, job: Job) -> bool:
        """Whether submissions with the job's key find this job."""
        return job.function.uniques.get(job.unique) is job

    def free(self, job: Job) -> None:
        """Free the job's key at the end of its scope, unless the job holds it for longer."""
        if not job.unique_until_us and self.owns(job):
            del job.function.uniques[job.unique]

    def take_again(self, job: Job) -> None:
        """Give a job that was started and waits again its key, or none if another job has it."""
        unique = job.unique
        if not unique:
            return
        if job.function.packed_keys:
            self._packed.holder(job.function, unique)  # unpacks the job, if there is one
        if job.function.uniques.setdefault(unique, job) is not job:
            job.unique = b""

    def gave_up(self, job: Job) -> bool:
        """Whether the job was started, and the scope of its key ends at the start."""
        return job.state is RUNNING and job.unique_scope == UniqueScope.QUEUED

    # --- keys that are held for a time ---

    def set_scope(self, job: Job, options: SubmitOptions) -> None:
        """Set how long a new job has its key."""
        if options.unique_scope:
            job.unique_scope = options.unique_scope
        if options.unique_for_us:
            job.unique_until_us = self._state.now_us + options.unique_for_us
            self._deadlines.add(job.unique_until_us, DeadlineKind.KEY_HELD, job)

    def end_hold(self, job: Job) -> None:
        """Limit the time for which the job has its key to its scope."""
        if job.unique_until_us:
            job.unique_until_us = 0
            self._deadlines.note_stale()

    def hold_ended(self, job: Job) -> None:
        """Handle the deadline until which a job holds its key."""
        job.unique_until_us = 0
        if job.id not in self._state.jobs or self.gave_up(job):
            self.free(job)

    def hold_again(self, job: Job) -> None:
        """Resume holding the key of a restored job, finished or not, if its time has not passed."""
        is_held = job.unique_until_us > self._state.now_us and job.unique
        if is_held and job.function.uniques.setdefault(job.unique, job) is job:
            job.has_details = True
            self._deadlines.add(job.unique_until_us, DeadlineKind.KEY_HELD, job)
        else:
            job.unique_until_us = 0

    def is_held(self, job: Job, until_us: int) -> bool:
        """Whether the job holds its key until a given time."""
        return job.unique_until_us == until_us and self.owns(job)

    def give_up(self, job: Job) -> None:
        """Remove the key of a restored job: another job has the key, because this one was started or has ended."""
        del job.function.uniques[job.unique]
        if job.state in FINAL_STATES:
            self.end_hold(job)
        else:
            job.unique = b""

    def transfer(self, held: Job, job: Job) -> None:
        """Move a held key from a finished job to the object from the store as which the job is retried."""
        job.unique_until_us = held.unique_until_us
        self.end_hold(held)
        self.free(held)
        job.function.uniques[job.unique] = job
        self._deadlines.add(job.unique_until_us, DeadlineKind.KEY_HELD, job)

    def refuse_more_holds(self) -> None:
        """Raise Refused if the memory for keys held beyond the end of their jobs is full."""
        limit_bytes = self._state.memory.limit_bytes
        holds = self._deadlines.holds
        if limit_bytes and self._state.memory.key_bytes >= limit_bytes // HOLDS_SHARE:
            text = f"{holds} unique keys are held for a time, and there is no memory for more"
            raise Refused(REFUSED_FULL, f"{text}: limits.memory_bytes is {limit_bytes}")
