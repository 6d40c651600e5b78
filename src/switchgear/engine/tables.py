"""How jobs enter and leave the engine's tables: becoming ready, being released by others, and ending."""

from __future__ import annotations

from typing import Final

from switchgear.engine.core import EngineSettings, Observer
from switchgear.engine.deadlines import Kind
from switchgear.engine.dispatch import Dispatch
from switchgear.engine.graph import Graph
from switchgear.engine.lifecycle import NEXT_STATE
from switchgear.engine.queues import place_of
from switchgear.model import DONE, READY, RUNNING, WAITING, Cause, Job, JobState

__all__ = ["Tables"]

SUCCEEDED: Final = Cause.SUCCEEDED  # a global is cheaper to look up than a member of an enumeration
RELEASED: Final = Cause.RELEASED
assert NEXT_STATE[SUCCEEDED][RUNNING] is DONE  # what `_finish` relies on


class Tables(Dispatch):
    """The part of the engine that keeps account of all jobs."""

    def __init__(self, settings: EngineSettings | None = None, observer: Observer | None = None) -> None:
        super().__init__(settings, observer)
        self.graph = Graph()

    def _list(self, job: Job) -> None:
        """Enter a job that is not new into the tables."""
        job.special = True
        self.jobs[job.id] = job
        job.function.total += 1
        if job.unique:
            job.function.uniques[job.unique] = job
        if job.name:
            self.names[job.name] = job

    def _unlist(self, job: Job) -> None:
        """Take a job that ended out of the tables."""
        del self.jobs[job.id]
        function = job.function
        function.total -= 1
        if job.unique:
            del function.uniques[job.unique]
        if job.special:
            if job.name:
                del self.names[job.name]
            if job.expires_us:
                self.deadlines.stale += 1

    def _leave_queue(self, job: Job) -> None:
        """A job that is not running stops waiting for whatever it waits for."""
        if job.state is READY:
            self._dequeue(job)
        elif job.state is WAITING:
            self.graph.remove(job)
        else:
            self.deadlines.stale += 1

    def _await_time(self, job: Job) -> None:
        """A job has become scheduled.  The length of its log tells this time of waiting from others."""
        self.deadlines.add(job.run_at_us, Kind.DUE, job, len(job.moves or ()))

    def _make_ready(self, job: Job, cause: Cause) -> None:
        self._move(job, cause)
        if self.keeps and job.delivery:
            self._note(job)
        self._enqueue_again(job)

    def _release(self, jobs: list[Job]) -> None:
        """These waited for others, and have nothing more to wait for but, perhaps, their time."""
        if len(jobs) > 1:
            jobs.sort(key=place_of)
        for job in jobs:
            if job.run_at_us <= self.now_us:
                self._make_ready(job, RELEASED)
                continue
            self._rank_last(job)
            self._move(job, Cause.RELEASED_EARLY)
            self._await_time(job)
            if self.keeps and job.delivery:
                self._note(job)

    def _finish(self, job: Job, cause: Cause) -> None:
        """The end: the job is in nobody's hands and no queue, and leaves the tables.

        The usual end is written out, not through `_move`, because every job passes here.
        """
        job.finished_us = now_us = self.now_us
        function = job.function
        if cause is SUCCEEDED and job.state is RUNNING and job.moves is not None:
            job.state = DONE
            job.moves += (SUCCEEDED, now_us)
        else:
            self._move(job, cause)
        self._unlist(job)
        if job.state is DONE:
            function.done += 1
            if self.graph.successors:
                self._release(self.graph.release(job.id))
        else:
            self._count_unsuccessful(job)
        if job.watchers is not None:
            for watcher in job.watchers:
                watcher.watching.pop(job.id, None)
                watcher.job_finished(job)
            job.watchers = None
        if self.audience:
            for peer in self.audience:
                peer.job_finished(job)
        if job.special:
            self._tidy(job)
        if self.keeps:
            self._note(job)
        else:
            self.changed.append(job)

    def _tidy(self, job: Job) -> None:
        """Put the parts of the result together, and forget what an earlier attempt complained of."""
        if job.chunks is not None:
            job.result = job.whole_result
            job.chunks = None
        if job.error is not None and job.state is DONE:
            job.error = None

    def _count_unsuccessful(self, job: Job) -> None:
        function = job.function
        state = job.state
        self.graph.remember_unsuccessful(job.id, state)
        if state is JobState.FAILED:
            function.failed += 1
        elif state is JobState.CANCELLED:
            function.cancelled += 1
        else:
            function.expired += 1
