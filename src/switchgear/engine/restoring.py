"""After a restart: the engine goes on with what a store has kept.

Most of a long queue is plain jobs (`engine.shelves`), of which there may be millions.  They come one by one and go to
their shelves without ever having been objects, apart from those at the head of their queue.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from switchgear.engine.deadlines import Kind
from switchgear.engine.lines import RANKS_BETWEEN, place_of
from switchgear.engine.schedules import Schedules
from switchgear.model import (
    BEST_FIRST,
    FINAL_STATES,
    KEPT,
    RUNNING,
    SCHEDULED,
    WAITING,
    Cause,
    Function,
    Job,
    JobState,
    PlainJob,
    Schedule,
    Shelf,
)
from switchgear.model.shelf import FIRST_REVISION

__all__ = ["Restoring"]

Arrived: TypeAlias = dict[Function, list[list[PlainJob]]]  # by function and priority, fewer than a shelf holds


class Restoring(Schedules):
    """The part of the engine that takes over what another has left."""

    @abstractmethod
    def advance(self, now_us: int) -> None:
        """It is now this late."""

    def restore(
        self,
        jobs: list[Job],
        unsuccessful: dict[int, JobState],
        next_job_id: int,
        schedules: Sequence[Schedule] = (),
        held: Sequence[Job] = (),
        plain: Iterable[Sequence[PlainJob]] = (),
    ) -> None:
        """Go on with what a store has kept; the engine must know the time.

        `jobs` are unfinished ones by id, `plain` the others of these, in portions and by id too, which are ready and
        have nothing but what they were submitted with; `held` are those that ended and perhaps still hold their key.
        """
        self.next_job_id = max(self.next_job_id, next_job_id)
        self.graph.unsuccessful.update(unsuccessful)
        for job in jobs:
            if 0 < job.unique_until_us <= self.now_us:
                job.unique_until_us = 0
            job.entry_bytes = 0  # it is not counted here yet
            self._list(job)
            if job.unique_until_us:
                self._hold_key_again(job)
        for job in sorted(held, key=lambda job: job.id, reverse=True):
            job.drop_contents()  # the store has them
            self._hold_key_again(job)
        self._remember_ranks(jobs)
        waiting = self._line_up(sorted(jobs, key=place_of), plain)
        released: list[Job] = []
        for job in waiting:  # when all that they may wait for are known
            blockers = self._blockers_among(job.predecessors, job.edges)
            if blockers:
                self.graph.add(job, blockers)
                self._foresee_doom(job)
            else:
                released.append(job)
        self._release(released)
        self._restore_schedules(schedules)
        self.advance(self.now_us)  # what came due while the server was down

    def _line_up(self, jobs: list[Job], plain: Iterable[Sequence[PlainJob]]) -> list[Job]:
        """Let those stand in line that can, in the order of their places; returns those that wait for others."""
        waiting: list[Job] = []
        arrived: Arrived = {}
        portions = iter(plain)
        rows = next(portions, None)
        for job in jobs:
            if job.expires_us:
                self.deadlines.add(job.expires_us, Kind.EXPIRY, job)
            if job.state is WAITING:
                waiting.append(job)
                continue
            if job.state is SCHEDULED:
                self._await_time(job)
                continue
            place = place_of(job)
            while rows is not None and rows[0][0] * RANKS_BETWEEN < place:
                count = bisect_left(rows, place, key=_place_of_row)
                self._arrive(rows[:count], arrived)
                rows = rows[count:] or next(portions, None)
            self._line_up_arrived(job.function, job.priority, arrived)
            if job.state is RUNNING:
                job.function.running += 1
                self._leave_worker(job)
                self._requeue(job, Cause.SERVER_LOST, self._enqueue)  # where it was taken from
            else:
                self._enqueue(job)
        while rows is not None:
            self._arrive(rows, arrived)
            rows = next(portions, None)
        for function in arrived:
            for priority in BEST_FIRST:
                self._line_up_arrived(function, priority, arrived)
        return waiting

    def _arrive(self, rows: Sequence[PlainJob], arrived: Arrived) -> None:
        """The next plain jobs; all others that have arrived stand before them."""
        size = self.shelf_jobs
        for row in rows:
            function = row[1]
            priority = row[2]
            if row[5] and row[5] in function.uniques:
                self._give_up_key(function.uniques.pop(row[5]))
            queues = arrived.get(function)
            if queues is None:
                queues = arrived[function] = [[], [], [], []]
            queue = queues[priority]
            queue.append(row)
            if len(queue) >= size:
                self._line_up_arrived(function, priority, arrived)

    def _give_up_key(self, job: Job) -> None:
        """The job has a key that is another's: it gave it up when it was started, and would have it back, or it has
        ended."""
        if job.state in FINAL_STATES:
            self._end_hold(job)
        else:
            job.unique = b""

    def _line_up_arrived(self, function: Function, priority: int, arrived: Arrived) -> None:
        """Let the plain jobs stand in line that have come so far."""
        queues = arrived.get(function)
        if queues is None or not queues[priority]:
            return
        rows, queues[priority] = queues[priority], []
        is_long = self._can_shelve(function) and function.entries_of(priority) >= self.head_jobs
        if is_long and function.racks[priority] is None:
            self._begin_rack(function, priority)
        rack = function.racks[priority]
        if rack is not None and not rack.tail and len(rows) >= self.shelf_jobs:
            self._shelve_rows(function, priority, rows)
            return
        for row in rows:
            job = self._object_of(row)
            function.total += 1
            self._enqueue(job)
        if rack is not None:
            self._shelve(function, priority)

    def _shelve_rows(self, function: Function, priority: int, rows: list[PlainJob]) -> None:
        """These become a shelf at once."""
        rack = function.racks[priority]
        assert rack is not None
        shelf = Shelf(function, priority)
        uniques = [row[5] for row in rows]
        for place, unique in enumerate(uniques):
            if unique and not self._note_key(unique, shelf):
                row = rows[place]
                if unique in uniques[:place]:  # no two of a sound store are alike
                    row = (*row[:5], b"")
                shelf.objects[place] = self._object_of(row)
        shelf.fill([row[0] for row in rows], [row[4] for row in rows], [row[3] for row in rows], uniques)
        self._add_shelf(rack, shelf)
        function.total += len(rows)
        function.ready += len(rows)

    def _object_of(self, row: PlainJob) -> Job:
        """The job, entered into the tables."""
        job_id, function, priority, delivery, created_us, unique = row
        job = Job(job_id, function, unique, None, priority, delivery, created_us)
        job.kept = KEPT
        job.revision = FIRST_REVISION
        self.jobs.add(job)
        self._take_key_again(job)
        self._count_contents(job)
        return job


def _place_of_row(row: PlainJob) -> int:
    return row[0] * RANKS_BETWEEN
