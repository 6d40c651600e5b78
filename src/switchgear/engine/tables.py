"""How jobs enter and leave the engine's tables: becoming ready, being released by others or let down, and ending."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from switchgear.engine.core import EngineSettings, Observer
from switchgear.engine.deadlines import Kind
from switchgear.engine.dispatch import Dispatch
from switchgear.engine.edge_errors import edge_error
from switchgear.engine.graph import Graph, policy_of
from switchgear.engine.lifecycle import NEXT_STATE
from switchgear.engine.queues import place_of
from switchgear.engine.uniques import free_key, owns_key
from switchgear.model import (
    DONE,
    READY,
    RUNNING,
    WAITING,
    Cause,
    Delivery,
    EdgePolicy,
    Job,
    JobState,
    UniqueScope,
)

__all__ = ["Tables"]

SUCCEEDED: Final = Cause.SUCCEEDED  # a global is cheaper to look up than a member of an enumeration
ABANDONED: Final = Cause.ABANDONED
RELEASED: Final = Cause.RELEASED
assert NEXT_STATE[SUCCEEDED][RUNNING] is DONE  # what `_finish` relies on

# The end of one job may be that of a million others.  So many of them end in one turn, in some ten milliseconds; the
# others follow in the next turns, and whoever has something else to do is not kept waiting.
LET_DOWN_AT_ONCE: Final = 1_000


class Tables(Dispatch):
    """The part of the engine that keeps account of all jobs."""

    let_down_at_once: int = LET_DOWN_AT_ONCE
    _is_disappointing: bool = False  # the list below is being worked through, or will be in the next turn

    def __init__(self, settings: EngineSettings | None = None, observer: Observer | None = None) -> None:
        super().__init__(settings, observer)
        self.graph = Graph()

    def _list(self, job: Job) -> None:
        """Enter a job that is not new into the tables."""
        job.special = True
        self._count_contents(job)
        self.jobs.add(job)
        job.function.total += 1
        if job.unique and (job.unique_until_us or not self._gave_up_key(job)):
            self._take_key_again(job)
        if job.name:
            self.names[job.name] = job

    def _unlist(self, job: Job) -> None:
        """Take a job that ended out of the tables."""
        self.jobs.remove(job.id)
        function = job.function
        function.total -= 1
        if job.unique:
            if job.special:
                free_key(job)
            else:
                del function.uniques[job.unique]
        if job.special:
            if job.name:
                del self.names[job.name]
            if job.expires_us:
                self.deadlines.stale += 1

    def _end_hold(self, job: Job) -> None:
        """The job holds its key no longer than its scope says; the deadline of the hold means nothing any more."""
        if job.unique_until_us:
            job.unique_until_us = 0
            self.deadlines.stale += 1

    def _meet_end_of_hold(self, job: Job) -> None:
        """The time has come until which a job holds its key."""
        job.unique_until_us = 0
        if job.id not in self.jobs or self._gave_up_key(job):
            free_key(job)

    def _gave_up_key(self, job: Job) -> bool:
        """Whether the job was started, and its key is its own only until then."""
        return job.state is RUNNING and job.unique_scope == UniqueScope.QUEUED

    def _hold_key_again(self, job: Job) -> None:
        """A job that may hold its key comes from the store: an unfinished one, or one that ended."""
        is_held = job.unique_until_us > self.now_us and job.unique
        if is_held and job.function.uniques.setdefault(job.unique, job) is job:
            job.special = True
            self.deadlines.add(job.unique_until_us, Kind.KEY_HELD, job)
        else:
            job.unique_until_us = 0

    def _is_held(self, job: Job, until_us: int) -> bool:
        """Whether the job holds its key until then."""
        return job.unique_until_us == until_us and owns_key(job)

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
            if self._is_too_late(job):
                self._expire(job)
                continue
            if job.run_at_us <= self.now_us:
                self._make_ready(job, RELEASED)
                continue
            self._rank_last(job)
            self._move(job, Cause.RELEASED_EARLY)
            self._await_time(job)
            if self.keeps and job.delivery:
                self._note(job)

    def _release_successors(self, job_id: int) -> None:
        """This job is done: let those go on that wait for nothing more."""
        if self.graph.successor_count(job_id) <= self.let_down_at_once:
            self._release(self.graph.release(job_id))
        else:
            self.backlog.start(self._release_one_by_one(job_id))

    def _release_one_by_one(self, job_id: int) -> Iterator[None]:
        """The same for very many, in the order in which they began to wait."""
        for job in self.graph.waiting_for(job_id):
            if self.graph.use_up_edge(job_id, job):
                self._release([job])
            yield

    def _finish(self, job: Job, cause: Cause) -> None:
        """The end: the job is in nobody's hands and no queue, and leaves the tables.

        The usual end is written out, not through `_move`, because every job passes here.
        """
        job.finished_us = self.now_us
        function = job.function
        if cause is SUCCEEDED and job.state is RUNNING:
            if job.history is not None:
                self._note_move(job, SUCCEEDED)  # otherwise it is implied
            job.state = DONE
        else:
            self._move(job, cause)
        self._unlist(job)
        minded = False
        if job.state is DONE:
            function.done += 1
            if self.graph.successors:
                if job.special:
                    self._keep_for_others(job)
                self._release_successors(job.id)
        else:
            self._count_unsuccessful(job)
            minded = job.id in self.graph.minded
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
        if self.graph.waited_for and job.id in self.graph.waited_for:
            self.graph.waited_for.remove(job.id)
            # Whoever waits for it, or has, may be kept later.  A restart must not take this end for a success then.
            job.delivery = Delivery.HANDLE
        if cause is ABANDONED and not self.notes_starts and job.leaves_nothing:
            self.drop_contents(job)  # it was never kept, and nobody wants to hear of its end
        else:
            self.changed[job] = None
        if minded:
            self._disappoint(job)
        if function.gate is not None:
            self._offer_room(function)

    # --- one that others wait for was not done ---

    def _disappoint(self, job: Job) -> None:
        """Let those that wait for this job meet what their edges say, and then those that wait for them.

        It may be a chain of a million, so each end only adds to a list that is worked through, part by part.
        """
        self.backlog.failed.append(job)
        if not self._is_disappointing:
            self._is_disappointing = True
            self._disappoint_some()

    def _disappoint_some(self) -> None:
        """Work through a part of the list.  A crash on the way loses nothing: who must end is seen at a restart."""
        pending = self.backlog.failed
        try:
            left = self.let_down_at_once
            while pending and left > 0:
                job = pending[0]
                if job.state is WAITING:
                    pending.popleft()
                    self.backlog.to_be_told = None  # of its own end, if it was retried before all had heard of that
                    self._meet_doom(job)
                    left -= 1
                else:
                    left -= self._disappoint_successors(job, left)
        finally:
            self._is_disappointing = bool(pending)
            if not self._is_meeting:  # or the rest would follow at once
                self._disappoint_others_later()

    def _disappoint_successors(self, job: Job, most: int) -> int:
        """Let at most so many of those that wait for the first of the list meet its end; returns how many units of work
        that was."""
        backlog = self.backlog
        if job.id not in self.graph.unsuccessful:  # it was retried meanwhile
            backlog.to_be_told = None
            backlog.failed.popleft()
            return 1
        waiting = backlog.to_be_told
        if waiting is None:
            waiting = backlog.to_be_told = self.graph.waiting_for(job.id)
            waiting.reverse()
        some = waiting[-most:]
        del waiting[-most:]
        some.reverse()
        if not waiting:
            backlog.to_be_told = None
            backlog.failed.popleft()
        released, doomed = self.graph.disappoint(job.id, some)
        backlog.failed.extend(doomed)
        if released:
            self._release(released)
        return max(1, len(some))

    def _disappoint_others_later(self) -> None:
        if self.backlog.failed:
            self.deadlines.add(self.now_us, Kind.DOOM, self.backlog.failed[0])

    def _end_by_edge(self, job: Job, predecessor_id: int) -> None:
        """The end of a waiting job because one that it waited for was not done."""
        is_skipped = policy_of(job, predecessor_id) == EdgePolicy.SKIP
        self._set_error(job, edge_error(predecessor_id, self.graph.unsuccessful[predecessor_id]))
        self.graph.remove(job)
        if is_skipped:
            self._finish(job, Cause.SKIPPED)
        else:
            job.result_code = 1
            self._finish(job, Cause.DOOMED)

    def _blockers_among(self, job_ids: tuple[int, ...], edges: bytes) -> list[int]:
        """Those of the jobs that are not done, or do not count as done."""
        if self.storeroom.jobs:
            for job_id in job_ids:
                self.job(job_id)  # one that others wait for is an object
        return self.graph.blockers_among(job_ids, self.jobs, edges)

    def _foresee_doom(self, job: Job) -> None:
        """A job has begun to wait, perhaps for one that was not done: if it must not go on for that, it ends in the
        next turn, when whoever asked for it has been told that it is there."""
        if job.edges and self.graph.doom_of(job):
            self.deadlines.add(self.now_us, Kind.DOOM, job)

    def _meet_doom(self, job: Job) -> None:
        """The job ends, if one that it waits for was not done, and its edge to that one says so."""
        if job.state is WAITING and self.jobs.get(job.id) is job:
            predecessor_id = self.graph.doom_of(job)
            if predecessor_id:  # it may have been retried meanwhile
                self._end_by_edge(job, predecessor_id)

    def _tidy(self, job: Job) -> None:
        """Put the parts of the result together, and forget what an earlier attempt complained of."""
        if job.chunks is not None:
            job.result = job.whole_result
            job.chunks = None
        if job.error is not None and job.state is DONE:
            self._set_error(job, None)

    def _keep_for_others(self, job: Job) -> None:
        """Whoever waited for this job may need its result, and comes later than its own retention would allow for."""
        if 0 <= job.retention_us < self.settings.retention_us and job.id in self.graph.successors:
            job.retention_us = -1

    def _count_unsuccessful(self, job: Job) -> None:
        function = job.function
        if job.special and self.graph.successors:
            self._keep_for_others(job)
        state = job.state
        self.graph.remember_unsuccessful(job.id, state)
        if state is JobState.FAILED:
            function.failed += 1
        elif state is JobState.CANCELLED:
            function.cancelled += 1
        else:
            function.expired += 1
