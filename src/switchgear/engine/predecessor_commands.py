"""`PredecessorCommands`: lets jobs that exist wait for others too.

A job may get 100,000 predecessors at once, or be retried with as many. Then all that takes long is done in steps: to
see what is new, what is unfinished, and whether the job would wait for itself. Nothing is changed meanwhile. The change
itself is one step: the job has all its new predecessors, and an extra blocker keeps it from becoming ready. The edges
follow over several turns (`Dependencies.linked_later`). Until then the search for cycles follows them as if they were
there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from switchgear.engine.attempts import Attempts
from switchgear.engine.dependencies import Dependencies, check_edges, has_policies, policy_of
from switchgear.engine.dispatcher import Dispatcher
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.engine.sliced_work import SlicedKind, SlicedWork
from switchgear.engine.state import EngineState
from switchgear.engine.transitions import Transitions
from switchgear.errors import Refused
from switchgear.model import RUNNING, WAITING, Cause, Job
from switchgear.model.id_set import IdSet
from switchgear.model.job import EDGE_BYTES
from switchgear.refusals import REFUSED_CONFLICT

__all__ = ["MOST_AT_ONCE", "PredecessorCommands", "set_of", "without_repetitions_in_steps"]

# With so many predecessors, old and new, everything is done in one step.
MOST_AT_ONCE: Final = 1_000
# So many predecessors are compared with others in a step, and of so many the state is looked up: each of the two takes
# some tenths of a millisecond.
COMPARED_PER_STEP: Final = 2_000
BLOCKERS_PER_STEP: Final = 500
# So many jobs may be waiting for their edges at a time, because each search for a cycle asks all of them.
MOST_LINKED_LATER: Final = 4


class PredecessorCommands:
    """Adds predecessors to jobs, in one step or in several."""

    def __init__(
        self,
        state: EngineState,
        sliced_work: SlicedWork,
        queues: ReadyQueues,
        attempts: Attempts,
        dispatcher: Dispatcher,
        dependencies: Dependencies,
        transitions: Transitions,
    ) -> None:
        self.most_at_once = MOST_AT_ONCE
        self._state = state
        self._sliced_work = sliced_work
        self._queues = queues
        self._attempts = attempts
        self._dispatcher = dispatcher
        self._dependencies = dependencies
        self._transitions = transitions

    # --- in steps ---

    def add_in_steps(self, job: Job, job_ids: tuple[int, ...], edges: bytes, *, is_checked: bool) -> Iterator[None]:
        """Add predecessors to an unfinished job, all in the last step or none; raises Refused, or CycleRefused if it
        would wait for itself.

        With `is_checked` the caller has excluded cycles. `edges` has an EdgePolicy for each. A predecessor that the job
        already has keeps its policy.
        """
        dependencies = self._dependencies
        self._refuse_ended(job)
        if job.delivery:
            yield from dependencies.rely_in_steps(job_ids)
        if len(job_ids) + len(job.predecessors) <= self.most_at_once:
            if not is_checked:
                yield from self.search_cycle(job, job_ids)
            self.add(job, job_ids, edges, is_checked=True)
            return
        if edges:
            check_edges(edges, job_ids)
        policies: dict[int, int] = {}
        for start in range(0, len(job_ids), COMPARED_PER_STEP):
            some = job_ids[start : start + COMPARED_PER_STEP]
            for job_id, policy in zip(some, edges[start : start + COMPARED_PER_STEP] or bytes(len(some))):
                policies.setdefault(job_id, policy)
            yield
        compared = 0
        while compared < len(job.predecessors):
            compared = drop_known(policies, job, compared)
            yield
        new, new_edges = tuple(policies), bytes(policies.values())
        blockers = yield from self.blockers_in_steps(new, new_edges)
        pending = yield from set_of(blockers)
        yield from self.await_turn(job, [] if is_checked else blockers)
        self._refuse_ended(job)
        if compared < len(job.predecessors):  # few: those of short requests that came meanwhile
            while compared < len(job.predecessors):
                compared = drop_known(policies, job, compared)
            new, new_edges = tuple(policies), bytes(policies.values())
        start = len(job.predecessors)
        self._append(job, new, new_edges)
        if self.is_any_unfinished(blockers):
            self._begin_to_wait(job)
            if not self._expire_if_late(job):
                self.link_later(job, pending, start)
                self._dispatcher.offer_room(job.function)  # the job may have been running

    def await_turn(self, job: Job, blockers: list[int]) -> Iterator[None]:
        """Wait until the job may be changed; raises CycleRefused if it would wait for itself.

        It may not while this job, or too many others, have predecessors to which they are not linked yet. Change it
        before anything else is done, because others may close a cycle.
        """
        while True:
            while not self.has_room(job):
                yield
            yield from self._dependencies.search_cycle(job, blockers)
            if self.has_room(job):
                return

    def has_room(self, job: Job) -> bool:
        """Whether the job is linked to all its predecessors, and few others are not."""
        later = self._dependencies.linked_later
        return job not in later and len(later) < MOST_LINKED_LATER

    def blockers_in_steps(self, job_ids: tuple[int, ...], edges: bytes) -> Generator[None, None, list[int]]:
        """The jobs among these that are not done, or do not count as done."""
        blockers: list[int] = []
        for start in range(0, len(job_ids), BLOCKERS_PER_STEP):
            if start:
                yield
            stop = start + BLOCKERS_PER_STEP
            blockers += self._dependencies.blockers_among(job_ids[start:stop], edges[start:stop])
        return blockers

    def is_any_unfinished(self, blockers: list[int]) -> bool:
        """Whether one of these that were unfinished is so still; usually the first."""
        for job_id in blockers:  # noqa: SIM110  (a generator would take longer)
            if self._dependencies.is_blocker(job_id):
                return True
        return False

    def link_later(self, job: Job, pending: IdSet, start: int) -> None:
        """Link a waiting job to its predecessors from the one at this place on, over several turns. `pending` has those
        that were unfinished."""
        self._state.edge_changes += 1
        self._dependencies.begin_linking_later(job, pending)
        self._sliced_work.start(self._link(job, pending, start), SlicedKind.LINK, job)

    def _link(self, job: Job, pending: IdSet, start: int) -> Iterator[None]:
        dependencies = self._dependencies
        for place in range(start, len(job.predecessors)):
            if not dependencies.is_linked_later(job, pending):
                break  # the job has ended
            if job.predecessors[place] in pending:
                dependencies.link_some(job, place, place + 1)
            yield
        if dependencies.is_linked_later(job, pending) and dependencies.end_linking_later(job):
            self._transitions.unblock([job])
        yield from pending.free()

    # --- at once ---

    def add(self, job: Job, job_ids: tuple[int, ...], edges: bytes, *, is_checked: bool) -> None:
        """Add few predecessors to an unfinished job; see `add_in_steps`."""
        self._refuse_ended(job)
        if edges:
            check_edges(edges, job_ids)
        known = set(job.predecessors)
        policies: dict[int, int] = {}
        for job_id, policy in zip(job_ids, edges or bytes(len(job_ids))):
            if job_id not in known:
                policies.setdefault(job_id, policy)
        new, new_edges = tuple(policies), bytes(policies.values())
        blockers = self._dependencies.blockers_among(new, new_edges)
        if not is_checked:
            self._dependencies.refuse_cycle(job, blockers)
        self._append(job, new, new_edges)
        if blockers:
            self._state.edge_changes += 1
            self._begin_to_wait(job)
            self._dependencies.rely_on(job, blockers)
            if not self._expire_if_late(job):
                self._dependencies.wait_for(job, blockers)
                self._dispatcher.offer_room(job.function)  # the job may have been running

    def search_cycle(self, job: Job, job_ids: tuple[int, ...]) -> Iterator[None]:
        """See in steps whether the job may wait for these too; raises CycleRefused if it would wait for itself.

        If predecessors are added before anything else is done, they need not be checked again.
        """
        blockers = yield from self.blockers_in_steps(tuple(dict.fromkeys(job_ids)), b"")
        yield from self._dependencies.search_cycle(job, blockers)

    def _refuse_ended(self, job: Job) -> None:
        if self._state.jobs.get(job.id) is not job:
            raise Refused(REFUSED_CONFLICT, f"{{}} is {job.state.name.lower()}", job.id)

    def _append(self, job: Job, new: tuple[int, ...], new_edges: bytes) -> None:
        state = self._state
        if job.edges or has_policies(new_edges):
            job.has_details = True
            job.edges = (job.edges or bytes(len(job.predecessors))) + new_edges
        job.predecessors += new
        state.count_more(job, EDGE_BYTES * len(new))
        if state.reports_changes and job.delivery:
            state.note(job)

    def _begin_to_wait(self, job: Job) -> None:
        """Take a job that waits for nothing out of its queue, or from its worker."""
        if job.state is WAITING:
            return
        if job.state is RUNNING:
            self._attempts.revoke(job, Cause.HELD_BACK)
            job.attempts -= 1  # the job is not to blame
            self._attempts.wait_again(job)
        else:
            self._transitions.leave_queue(job)
        self._queues.rank_last(job)
        self._state.move(job, Cause.HELD_BACK)

    def _expire_if_late(self, job: Job) -> bool:
        if not self._state.is_too_late(job):
            return False
        self._transitions.leave_queue(job)
        self._transitions.expire(job)
        return True

    # --- those that wait for a job ---

    def let_successors_wait(self, job: Job, job_ids: tuple[int, ...]) -> Iterator[bool]:
        """Let each job that waits for this unfinished one wait for others too, under the policy that it has for this
        one; raises CycleRefused.

        Yields after each step whether it was the last one of a job. A job that begins to wait meanwhile is not among
        them.
        """
        self._refuse_ended(job)
        yield from self.let_waiting_wait(job.id, job_ids)

    def let_waiting_wait(self, job_id: int, job_ids: tuple[int, ...]) -> Iterator[bool]:
        """The same for a job that may be another engine's."""
        for successor in self._dependencies.each_waiting_for(job_id):
            if successor.state is WAITING:
                edges = bytes([policy_of(successor, job_id)]) * len(job_ids)
                for _ in self.add_in_steps(successor, job_ids, edges, is_checked=False):
                    yield False
            yield True


def drop_known(policies: dict[int, int], job: Job, start: int) -> int:
    """Drop some predecessors that the job has, from this place on; returns the place after them."""
    stop = min(start + COMPARED_PER_STEP, len(job.predecessors))
    for place in range(start, stop):
        policies.pop(job.predecessors[place], None)
    return stop


def set_of(job_ids: list[int]) -> Generator[None, None, IdSet]:
    """A set of very many, in steps."""
    ids = IdSet()
    for start in range(0, len(job_ids), COMPARED_PER_STEP):
        ids.update(job_ids[start : start + COMPARED_PER_STEP])
        yield
    return ids


def without_repetitions_in_steps(job_ids: tuple[int, ...]) -> Generator[None, None, tuple[int, ...]]:
    """Each of very many ids once."""
    known: dict[int, None] = {}
    for start in range(0, len(job_ids), COMPARED_PER_STEP):
        for job_id in job_ids[start : start + COMPARED_PER_STEP]:
            known[job_id] = None
        yield
    return tuple(known)
