"""`Dependencies`: which jobs wait for which, and what a predecessor's failure means.

Edges are stored by the id of the predecessor, not on its job, so that they outlive the job: a failed predecessor is no
longer in the engine's tables, but its successors still wait, and continue if it is retried and done.

When a predecessor ends without success, the edge (`model.EdgePolicy`) decides what happens to the successor. An edge
with WAIT stays; any other is used up. So an unsuccessful job has only WAIT edges left and, for a moment, the edges of
jobs that are about to end because of it.

A job with ERROR edges handles errors. When the first of these predecessors fails, all its ERROR edges become RUN edges.
So if it still has one when it waits for nothing more, none has failed, and the job is skipped.

Most jobs have few successors, and a tuple is the smallest container for them. Some have very many, each of which must
be added and removed in constant time; so a long tuple becomes `WaitingJobs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from switchgear.engine.cross_function_edges import CrossFunctionEdges
from switchgear.engine.cycle_search import CycleSearch
from switchgear.engine.deadlines import DeadlineKind, Deadlines
from switchgear.engine.function_placement import FunctionPlacement, is_copy
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.sliced_work import SlicedKind, SlicedWork
from switchgear.engine.state import EngineState
from switchgear.engine.unsuccessful_jobs import UnsuccessfulJobs
from switchgear.engine.waiting_jobs import WaitingJobs
from switchgear.model import CANCELLED, READY, WAITING, Cause, Delivery, EdgePolicy, Job, JobState
from switchgear.model.id_set import IdSet
from switchgear.model.id_table import IdTable

__all__ = ["ERROR", "Dependencies", "check_edges", "has_policies", "policy_of", "without_repetitions"]

# A job with more predecessors than this is linked to them, and unlinked, over several turns.
MOST_UNLINKED_AT_ONCE: Final = 1_000

UNLINKED_PER_STEP: Final = 250

# So many foreground jobs become durable at once because a durable job waits for them. Storing each takes as long again
# as to submit it.
RELIED_PER_STEP: Final = 250

WAIT: Final = int(EdgePolicy.WAIT)
RUN: Final = int(EdgePolicy.RUN)
ERROR: Final = int(EdgePolicy.ERROR)
ERROR_EDGE: Final = bytes([ERROR])
RUN_EDGE: Final = bytes([RUN])
ERROR_STATES: Final = (JobState.FAILED, JobState.EXPIRED)

# Searching this many entries costs no more than a table.
MOST_IN_TUPLE: Final = 16


class Dependencies:
    """Edges from unfinished or unsuccessful predecessors to waiting jobs."""

    def __init__(
        self,
        state: EngineState,
        deadlines: Deadlines,
        sliced_work: SlicedWork,
        packed: PackedQueues,
        ended: UnsuccessfulJobs,
    ) -> None:
        self.successors = IdTable[tuple[Job, ...] | WaitingJobs]()
        self.cross_function_edges = CrossFunctionEdges()
        self.unsuccessful: dict[int, JobState] = ended.states  # jobs that ended without success
        self.has_failure_policy = IdSet()  # predecessors with an edge other than WAIT
        # Unfinished jobs that are not durable, and that are predecessors of other such jobs.
        self.waited_for: set[int] = set()
        # New jobs with ERROR edges whose predecessors were all done before, and that are skipped in the next turn.
        self.unneeded: dict[int, Job] = {}
        # Predecessors of other engines that are unfinished, and those of which it is not known yet how they are.
        self.foreign: dict[int, None] = {}
        self.linking: dict[int, Job] = {}  # jobs of very many predecessors that are not yet in the tables
        # Jobs in the tables that are not yet linked to all their predecessors, and those of these that were unfinished.
        self.linked_later: dict[Job, IdSet] = {}
        self._state = state
        self._deadlines = deadlines
        self._sliced_work = sliced_work
        self._packed = packed
        self._ended = ended
        # Jobs of very many predecessors that ended, and still have edges.
        self._unlinking: dict[int, Iterator[None]] = {}

    # --- starting to wait ---

    def blockers_among(self, job_ids: Sequence[int], edges: bytes = b"") -> list[int]:
        """The jobs among these that are not done, or do not count as done. An unknown id is a job that was done and
        forgotten.

        `edges` has the policy for each; without it, all are waited for.
        """
        if self._packed.job_count:
            for job_id in job_ids:
                self._packed.job(job_id)  # a predecessor must not be packed
        if self._state.placement is not None:
            return self._blockers_of_all_engines(job_ids, edges, self._state.placement)
        unfinished = self._state.jobs
        unsuccessful = self.unsuccessful
        blockers = []
        if edges:
            for job_id, policy in zip(job_ids, edges):
                if job_id in unfinished or (job_id in unsuccessful and policy < RUN):
                    blockers.append(job_id)
            return blockers
        for job_id in job_ids:
            if job_id in unfinished or job_id in unsuccessful:
                blockers.append(job_id)
        return blockers

    def _blockers_of_all_engines(self, job_ids: Sequence[int], edges: bytes, placement: FunctionPlacement) -> list[int]:
        """The same among several engines: an unknown job may be one of another engine, and is waited for until that is
        known."""
        unfinished = self._state.jobs
        unsuccessful = self.unsuccessful
        blockers = []
        for job_id, policy in zip(job_ids, edges or bytes(len(job_ids))):
            job = unfinished.get(job_id)
            if job is not None and not is_copy(job):
                blockers.append(job_id)
            elif job_id in unsuccessful:
                if policy < RUN:
                    blockers.append(job_id)
            else:
                blockers.append(job_id)
                self.foreign[job_id] = None
                placement.await_job(job_id)
        return blockers

    def is_blocker(self, job_id: int) -> bool:
        """Whether a job that was not done is so still."""
        return job_id in self._state.jobs or job_id in self.unsuccessful or job_id in self.foreign

    def wait_for(self, job: Job, blockers: list[int]) -> None:
        """Let the job wait for the jobs with these ids.

        If one of them was unsuccessful and its edge ends the job, the job ends in the next turn, after its submitter
        was told that it is accepted.
        """
        self.add(job, blockers)
        if job.edges and self.failed_dependency(job):
            self._deadlines.add(self._state.now_us, DeadlineKind.FAILED_DEPENDENCY, job)

    def note_earlier_errors(self, job: Job) -> None:
        """Note which predecessors of an error handler have failed before it began to wait for the others."""
        unsuccessful = self.unsuccessful
        for job_id, policy in zip(job.predecessors, job.edges):
            if policy == ERROR and unsuccessful.get(job_id) in ERROR_STATES:
                self._note_error(job)
                return

    def _note_error(self, job: Job) -> None:
        """A predecessor of an error handler has failed: the handler runs when the others have ended."""
        job.edges = job.edges.replace(ERROR_EDGE, RUN_EDGE)

    def wait_to_be_skipped(self, job: Job) -> None:
        """Let an error handler without an error wait for the next turn, after its submitter was told that it is
        accepted."""
        self.unneeded[job.id] = job
        job.blockers = 1
        job.function.waiting += 1
        self._deadlines.add(self._state.now_us, DeadlineKind.FAILED_DEPENDENCY, job)

    def end_wait_to_be_skipped(self, job: Job) -> bool:
        """The next turn has come; returns whether the job still waits for nothing else."""
        del self.unneeded[job.id]
        job.blockers -= 1
        if job.blockers:
            return False  # it was given more predecessors meanwhile
        job.function.waiting -= 1
        return True

    def rely_on(self, job: Job, job_ids: Sequence[int]) -> None:
        """Note that the job waits for these. If the job is durable, they and their predecessors become durable too: if
        they were lost in a crash, they would count as done.

        If the job is not durable, it may be retried later and become durable. So at least the ends of its predecessors
        must be stored.
        """
        pending = list(job_ids)
        is_durable = bool(job.delivery)
        for job_id in pending:  # the list grows in the loop
            other = self._foreground(job_id)
            if other is not None:
                if is_durable:
                    self._make_durable(other)
                    pending.extend(other.predecessors)
                else:
                    self.waited_for.add(job_id)

    def rely_in_steps(self, job_ids: Sequence[int]) -> Iterator[None]:
        """Make these jobs durable, and those that they wait for, before a durable job begins to wait for them.

        `rely_on` finds nothing to do then. If the job is not submitted after all, they are only stored in vain.
        """
        pending = list(job_ids)
        for visited, job_id in enumerate(pending):  # the list grows in the loop
            if visited % RELIED_PER_STEP == RELIED_PER_STEP - 1:
                yield
            other = self._foreground(job_id)
            if other is not None:
                self._make_durable(other)
                pending.extend(other.predecessors)

    def relies_on_many(self, job_ids: Sequence[int]) -> bool:
        """Whether so many jobs would become durable if a durable job waited for these that it takes several turns."""
        pending: list[int] = []
        for job_id in job_ids:
            if self._foreground(job_id) is not None:
                pending.append(job_id)
        seen = set(pending)
        for job_id in pending:  # the list grows in the loop
            if len(pending) > RELIED_PER_STEP:
                return True
            other = self._foreground(job_id)
            if other is not None:
                for earlier_id in other.predecessors:
                    if earlier_id not in seen and self._foreground(earlier_id) is not None:
                        seen.add(earlier_id)
                        pending.append(earlier_id)
                        if len(pending) > RELIED_PER_STEP:
                            return True
        return False

    def _foreground(self, job_id: int) -> Job | None:
        """The job if it is a foreground job of this engine, and has not ended."""
        job = self._state.jobs.get(job_id)
        return None if job is None or job.delivery or job_id in self.foreign else job

    def _make_durable(self, job: Job) -> None:
        job.delivery = Delivery.HANDLE
        if self._state.reports_changes:
            self._state.changed[job] = None

    # --- edges ---

    def waiting_for(self, job_id: int) -> list[Job]:
        """The jobs that wait for this one, in the order in which they began to."""
        return list(self.each_waiting_for(job_id))

    def each_waiting_for(self, job_id: int) -> Iterator[Job]:
        """The same one by one. Jobs that begin to wait meanwhile are not among them, and those that end to may be."""
        waiting = self.successors.get(job_id)
        if isinstance(waiting, WaitingJobs):
            return waiting.jobs()
        return iter(() if waiting is None else waiting)

    def some_waiting_for(self, job_id: int, most: int) -> list[Job]:
        """At most so many of them, in the same order."""
        return list(islice(self.each_waiting_for(job_id), most))

    def successor_count(self, job_id: int) -> int:
        """How many jobs wait for this one."""
        waiting = self.successors.get(job_id)
        return len(waiting) if waiting is not None else 0

    def add(self, job: Job, blockers: list[int]) -> None:
        """Add the edges from the jobs with these ids, without a check whether one has ended without success."""
        if not job.blockers:
            job.function.waiting += 1
        job.blockers += len(blockers)
        for job_id in blockers:
            self._add_edge(job_id, job)
        if job.edges:
            policies = dict(zip(job.predecessors, job.edges))
            self.has_failure_policy.update(job_id for job_id in blockers if policies[job_id] != WAIT)

    def _add_edge(self, job_id: int, job: Job) -> None:
        predecessor = self._state.jobs.get(job_id)
        if predecessor is not None and predecessor.function is not job.function and job_id not in self.foreign:
            self.cross_function_edges.add(predecessor, job.function)
        waiting = self.successors.get(job_id)
        if waiting is None:
            self.successors[job_id] = (job,)
        elif isinstance(waiting, WaitingJobs):
            waiting.add(job)
        elif len(waiting) < MOST_IN_TUPLE:
            self.successors[job_id] = (*waiting, job)
        else:
            self.successors[job_id] = WaitingJobs((*waiting, job))

    # --- jobs of very many predecessors ---

    def begin_linking(self, job: Job) -> None:
        """Start to link a new job to its predecessors in portions. Until that is complete an extra blocker is
        counted, so that the job does not become ready too early."""
        job.state = WAITING
        job.blockers = 1
        self.linking[job.id] = job

    def link_some(self, job: Job, start: int, stop: int) -> None:
        """Let the job wait for those of some predecessors that are not done; repetitions count once."""
        job_ids = job.predecessors[start:stop]
        policies = job.edges[start:stop]
        blockers = [
            job_id for job_id in dict.fromkeys(self.blockers_among(job_ids, policies)) if not self.has_edge(job_id, job)
        ]
        job.blockers += len(blockers)
        for job_id in blockers:
            self._add_edge(job_id, job)
        if policies:
            waited_for = set(blockers)
            self.has_failure_policy.update(
                job_id for job_id, policy in zip(job_ids, policies) if policy != WAIT and job_id in waited_for
            )
        self.rely_on(job, blockers)

    def end_linking(self, job: Job) -> bool:
        """Finish linking; returns whether the job has to wait for any predecessor."""
        del self.linking[job.id]
        job.blockers -= 1
        if ERROR in job.edges:
            self.note_earlier_errors(job)
        if not job.blockers and ERROR in job.edges:
            job.moves = [Cause.SUBMITTED_WAITING, self._state.now_us]
            self.wait_to_be_skipped(job)
            return True
        if not job.blockers:
            job.state = READY
            return False
        job.moves = [Cause.SUBMITTED_WAITING, self._state.now_us]
        job.function.waiting += 1
        if job.edges and self.failed_dependency(job):
            self._deadlines.add(self._state.now_us, DeadlineKind.FAILED_DEPENDENCY, job)
        return True

    def give_up_linking(self, job: Job) -> None:
        """The job was not taken after all: remove the edges that it has.  Nothing happens if it was taken."""
        if self.linking.pop(job.id, None) is None:
            return
        job.blockers = 0
        job.state = CANCELLED  # so that it is told of nothing while it still has edges
        unlinking = self._unlinking[job.id] = self._unlink(job)
        self._sliced_work.start(unlinking, SlicedKind.UNLINK, job)

    def _unlink(self, job: Job) -> Iterator[None]:
        """Remove the edges of a job that no longer waits, one by one."""
        for job_id in job.predecessors:
            self._remove_edge(job_id, job)
            yield
        del self._unlinking[job.id]
        job.blockers = 0  # ended predecessors may have been counted while the job had edges

    def finish_unlinking(self, job: Job) -> None:
        """Remove the remaining edges of a job that is about to wait again."""
        unlinking = self._unlinking.get(job.id)
        if unlinking is not None:
            for _ in unlinking:
                pass

    def unlink_in_steps(self, job: Job) -> Iterator[None]:
        """The same in steps."""
        unlinking = self._unlinking.get(job.id)
        if unlinking is not None:
            for number, _ in enumerate(unlinking, 1):
                if number % UNLINKED_PER_STEP == 0:
                    yield

    def is_unlinking(self, job: Job) -> bool:
        """Whether the job no longer waits, but still has edges."""
        return job.id in self._unlinking

    # --- jobs that begin to wait for very many others ---

    def begin_linking_later(self, job: Job, pending: IdSet) -> None:
        """Count an extra blocker for a waiting job, until it is linked to these as well."""
        if not job.blockers:
            job.function.waiting += 1
        job.blockers += 1
        self.linked_later[job] = pending

    def is_linked_later(self, job: Job, pending: IdSet) -> bool:
        """Whether the job still waits, and is not linked to all of these yet."""
        return self.linked_later.get(job) is pending

    def end_linking_later(self, job: Job) -> bool:
        """The job is linked to all its predecessors; returns whether it waits for nothing more."""
        del self.linked_later[job]
        if ERROR in job.edges:
            self.note_earlier_errors(job)
        job.blockers -= 1
        if not job.blockers:
            job.function.waiting -= 1
            return True
        if job.edges and self.failed_dependency(job):
            self._deadlines.add(self._state.now_us, DeadlineKind.FAILED_DEPENDENCY, job)
        return False

    # --- end of waiting ---

    def unblock_successors(self, job_id: int) -> list[Job]:
        """Handle a job that is done; returns the successors that wait for nothing more."""
        unblocked: list[Job] = []
        waiting = self.successors.pop(job_id)
        if waiting is None:
            return unblocked
        if self.has_failure_policy.count:
            self.has_failure_policy.discard(job_id)
        if len(self.cross_function_edges):
            self.cross_function_edges.ended(job_id)
        for job in waiting.jobs() if isinstance(waiting, WaitingJobs) else waiting:
            job.blockers -= 1
            if not job.blockers:
                job.function.waiting -= 1
                unblocked.append(job)
        return unblocked

    def remove(self, job: Job) -> None:
        """Remove all edges of a job that has ended itself."""
        if job.id in self._unlinking:
            return
        if self.unneeded:
            self.unneeded.pop(job.id, None)
        if self.linked_later:
            self.linked_later.pop(job, None)
        if job.blockers:
            job.blockers = 0
            job.function.waiting -= 1
        if len(job.predecessors) > MOST_UNLINKED_AT_ONCE:
            unlinking = self._unlinking[job.id] = self._unlink(job)
            self._sliced_work.start(unlinking, SlicedKind.UNLINK, job)
            return
        for job_id in job.predecessors:
            self._remove_edge(job_id, job)

    def _remove_edge(self, job_id: int, job: Job) -> None:
        waiting = self.successors.get(job_id)
        if len(self.cross_function_edges) and self.has_edge(job_id, job):
            self.cross_function_edges.remove(job_id, job.function)
        if isinstance(waiting, WaitingJobs):
            waiting.remove(job.id)
        elif waiting is not None:
            self.successors[job_id] = waiting = tuple([other for other in waiting if other is not job])
        if waiting is not None and not waiting:
            self.successors.pop(job_id)
            self.has_failure_policy.discard(job_id)

    def use_up_edge(self, job_id: int, job: Job) -> bool:
        """Remove the edge to this predecessor; returns whether the job waits for nothing more. Does nothing without
        such an edge."""
        if not self.has_edge(job_id, job):
            return False
        self._remove_edge(job_id, job)
        job.blockers -= 1
        if job.blockers:
            return False
        job.function.waiting -= 1
        return True

    def has_edge(self, job_id: int, job: Job) -> bool:
        """Whether the job waits for this one."""
        waiting = self.successors.get(job_id)
        if isinstance(waiting, WaitingJobs):
            return waiting.has(job.id)
        return waiting is not None and job in waiting

    def propagate_failure(self, job_id: int, waiting: list[Job]) -> tuple[list[Job], list[Job]]:
        """Handle an unsuccessful job: returns those of these successors that wait for nothing more, and those that
        must end."""
        self.has_failure_policy.discard(job_id)
        unblocked: list[Job] = []
        must_end: list[Job] = []
        for job in waiting:
            if job.state is not WAITING or not self.has_edge(job_id, job):
                continue  # the successor has ended meanwhile
            policy = policy_of(job, job_id)
            if policy == ERROR and self.unsuccessful.get(job_id) in ERROR_STATES:
                self._note_error(job)
                if self._state.reports_changes and job.delivery:
                    self._state.note(job)
            if policy >= RUN:
                if self.use_up_edge(job_id, job):
                    unblocked.append(job)
            elif policy != WAIT:
                must_end.append(job)
        return unblocked, must_end

    def failed_dependency(self, job: Job) -> int:
        """The id of the first predecessor whose failure must end this job, or 0."""
        for job_id, policy in zip(job.predecessors, job.edges):
            if WAIT < policy < RUN and job_id in self.unsuccessful:
                return job_id
        return 0

    def remember_unsuccessful(self, job: Job) -> None:
        """Note that this job ended without success: its WAIT edges stay."""
        self._ended.add(job.id, job.state, job.name if job.has_details else b"", self.successors)
        if len(self.cross_function_edges):
            self.cross_function_edges.ended(job.id)

    def forget_unsuccessful(self, job: Job) -> None:
        """Note that this job is retried; the edges of its remaining successors apply to its next end."""
        self._ended.remove(job.id)
        if job.id in self.successors:
            self.has_failure_policy.add(job.id)
            self.cross_function_edges.retried(job, self.waiting_for(job.id))
        if self._state.placement is not None:
            self._state.placement.job_retried(job)

    def unsuccessful_with_successors(self) -> frozenset[int]:
        """The unsuccessful jobs that others wait for: few, however large the graph is."""
        return frozenset([job_id for job_id in self.unsuccessful if job_id in self.successors])

    def clear(self) -> None:
        """Forget everything."""
        self.successors.clear()
        self.cross_function_edges.clear()
        self.has_failure_policy.clear()
        self.waited_for.clear()
        self.foreign.clear()
        self.unneeded.clear()
        self.linking.clear()
        self.linked_later.clear()
        self._unlinking.clear()
        self._ended.clear()

    def refuse_cycle(self, job: Job, blockers: Sequence[int]) -> None:
        """Raise CycleRefused if waiting for these would make the job wait for itself."""
        for _ in self.search_cycle(job, blockers):
            pass

    def search_cycle(self, job: Job, blockers: Sequence[int]) -> Iterator[None]:
        """The same in steps: when the last one is done, and before anything else is, the job may wait for these."""
        search = CycleSearch(self._state, self.successors, self.linked_later, job, blockers)
        yield from search.steps()
        self._sliced_work.start(search.free(), SlicedKind.FREE, None)


def check_edges(edges: bytes, predecessors: tuple[int, ...]) -> None:
    """Raise ValueError unless there is a policy for each of the predecessors."""
    if len(edges) != len(predecessors):
        raise ValueError(f"{len(edges)} edges for {len(predecessors)} predecessors")
    if max(edges) > ERROR:
        raise ValueError(f"there is no edge policy {max(edges)}")


def has_policies(edges: bytes) -> bool:
    """Whether some edge is not WAIT."""
    return edges.count(WAIT) < len(edges)


def without_repetitions(predecessors: tuple[int, ...], edges: bytes) -> tuple[tuple[int, ...], bytes]:
    """Each predecessor once, with the policy of its first occurrence."""
    if not edges:
        return tuple(dict.fromkeys(predecessors)), b""
    policies: dict[int, int] = {}
    for job_id, policy in zip(predecessors, edges):
        policies.setdefault(job_id, policy)
    return tuple(policies), bytes(policies.values())


def policy_of(job: Job, predecessor_id: int) -> int:
    """The policy of the edge from this predecessor."""
    edges = job.edges
    if not edges:
        return WAIT
    if edges.count(edges[0]) == len(edges):  # usually all are equal
        return edges[0]
    return edges[job.predecessors.index(predecessor_id)]
