"""`StagedChanges`: changes of jobs, functions and schedules on their way from the engine to the store.

Ids. Most foreground jobs are never stored, but their handles must not be given to other jobs after a restart. So ids
are used only below a bound that is stored; the bound is raised in large steps, long before it is reached. If it is
reached all the same, because a commit takes long, the peers that are told of such an id wait for the next commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from switchgear.engine.engine import Engine
from switchgear.model import KEPT, RESIDENT, Function, Job, Peer, Schedule
from switchgear.net.payload_reads import Payloads
from switchgear.storage.base import Store
from switchgear.telemetry import Telemetry

__all__ = ["StagedChanges"]

# A restart skips at most this many ids; reserving them in blocks saves writing the counter with every job.
RESERVED_IDS = 100_000
# This many bytes of finished foreground jobs may wait for the store; the history of further ones is not stored, unless
# no other waits. That is enough for the jobs that end during one commit; they count in the memory account like all
# jobs.
MOST_HISTORY_BYTES = 32 * 1024 * 1024
NOBODY: Final[set[Peer]] = set()


class StagedChanges:
    """Changes staged for the next commit, and those of the commit in progress."""

    def __init__(self, engine: Engine, store: Store, telemetry: Telemetry, payloads: Payloads) -> None:
        self.engine = engine
        self.store = store
        self.telemetry = telemetry
        self.is_durable = store.durable
        self.payloads = payloads
        self.on_uncommitted: Callable[[], None] = lambda: None  # called when the set of uncommitted jobs has changed
        self.on_changes: Callable[[list[Job]], None] | None = None  # called with every start and end
        self.unkept: list[Job] = []  # staged since the commit in progress began
        self.in_commit: list[Job] = []
        self.ids_at_once = RESERVED_IDS
        self.reserved_ids = 0  # ids below it may be used once this bound is stored
        self._ids_in_commit = 0
        self._kept_ids = 0  # ids below it may be used
        self._history_bytes = 0  # contents of foreground jobs that ended, staged for the next commit
        self._history_in_commit = 0

    def restored(self, next_job_id: int, jobs: list[Job]) -> None:
        """Register restored jobs, which are not counted yet, and the stored bound of ids."""
        self.reserved_ids = next_job_id
        self._ids_are_kept(next_job_id)
        for job in jobs:
            self.payloads.spill(job)

    def clear(self) -> None:
        """Drop all references to jobs."""
        self.unkept = []
        self.in_commit = []
        self.on_uncommitted()

    def _ids_are_kept(self, below: int) -> None:
        self._kept_ids = below
        if self.is_durable:
            self.engine.ids_are_stored(below)

    @property
    def is_behind(self) -> bool:
        """Whether changes are staged that are in no commit yet."""
        return bool(self.unkept) or self.reserved_ids > self._kept_ids

    # --- staging ---

    def stage(self) -> bool:
        """Stage the changes since the last call; returns whether a commit is needed for them."""
        engine = self.engine
        must_commit = False
        if self.is_durable and engine.next_job_id + self.ids_at_once // 2 > self.reserved_ids:
            self.reserved_ids = engine.next_job_id + self.ids_at_once
            self.store.stage((), (), self.reserved_ids)
            must_commit = True
        if not (engine.changed or engine.changed_functions or engine.changed_schedules):
            return must_commit
        jobs, functions = engine.take_changes()
        schedules: list[Schedule] = []  # in one commit with the jobs that they made
        if engine.changed_schedules:
            schedules = engine.take_changed_schedules()
        if self.on_changes is not None:
            self.on_changes(jobs)
            jobs = [job for job in jobs if job.delivery or self._is_history(job)]
        if self.is_durable:
            jobs = [job for job in jobs if job.delivery or self._fits_into_history(job)]
        if not jobs and not functions and not schedules:
            return must_commit
        if self.is_durable:
            self.unkept.extend(jobs)
            self.on_uncommitted()
            for job in jobs:
                if job.kept == RESIDENT and job.finished_us:
                    self.payloads.job_ended(job)
            must_commit = True
        self.store.stage(jobs, functions, 0, schedules)
        return must_commit

    def stage_new_id(self) -> None:
        """Stage a new id bound, so that there is something to commit."""
        self.reserved_ids += 1
        self.store.stage((), (), self.reserved_ids)

    def _is_history(self, job: Job) -> bool:
        """Whether a foreground job is stored: after its end, unless no peer waited for that."""
        if not job.finished_us:
            return False
        if job.leaves_nothing:
            self.engine.drop_contents(job)
            return False
        return True

    def _fits_into_history(self, job: Job) -> bool:
        """Whether a finished foreground job is stored: its history is not promised, and a slow store must not fill
        the memory with waiting changes."""
        size = job.content_bytes
        waiting_bytes = self._history_bytes + self._history_in_commit
        if size and waiting_bytes and waiting_bytes + size > MOST_HISTORY_BYTES:
            self.telemetry.emit("history_skipped", job=self.telemetry.label(job))
            self.engine.drop_contents(job)
            return False
        self._history_bytes += size
        return True

    # --- a commit ---

    def commit_begins(self) -> None:
        """Move the staged changes into the commit in progress."""
        self.in_commit, self.unkept = self.unkept, []
        self._history_in_commit, self._history_bytes = self._history_bytes, 0
        self._ids_in_commit = self.reserved_ids

    def commit_failed(self) -> None:
        """Return the changes of a failed commit to the staged ones."""
        self.unkept = self.in_commit + self.unkept
        self.in_commit = []
        self._history_bytes += self._history_in_commit
        self._history_in_commit = 0

    def commit_is_done(self) -> tuple[list[Job], dict[Function, None], list[Job]]:
        """Forget the changes of a successful commit; returns its jobs, the functions with new ones, and the jobs
        that can be sent to their workers now."""
        grown: dict[Function, None] = {}
        kept, self.in_commit = self.in_commit, []
        self._history_in_commit = 0
        unsent: list[Job] = []
        for job in kept:
            if not job.kept:
                job.kept = KEPT
                self.payloads.spill(job)
                grown[job.function] = None
            if job.has_details and job.unsent:
                unsent.append(job)
        self.on_uncommitted()
        self._ids_are_kept(self._ids_in_commit)
        return kept, grown, unsent

    def drop_ended(self, jobs: list[Job]) -> None:
        """Free the contents of stored jobs that have ended, whatever still refers to them."""
        # A job may have ended while its submission was being stored, or have been retried and have ended again.
        unkept = set(self.unkept)
        for job in jobs:
            if job.finished_us and job not in unkept:
                self.engine.drop_contents(job)

    def withdraw(self, followers: dict[int, set[Peer]]) -> list[Job]:
        """Undo submissions that are not stored, unless a peer relies on them; returns their jobs.

        `followers` has, by job, the subscribed peers that will be told.
        """
        withdrawn = [job for job in reversed(self.unkept) if self.engine.withdraw(job, followers.get(job.id, NOBODY))]
        if withdrawn:
            self.store.unstage(withdrawn)
            self.store.stage((), (), 0, self.engine.take_changed_schedules())  # their ticks are not met
            self.unkept = [job for job in self.unkept if not job.withdrawn]
        return withdrawn

    def uncommitted(self) -> Iterator[Job]:
        """Jobs that are staged or being committed, the oldest change first."""
        return chain(self.in_commit, self.unkept)
