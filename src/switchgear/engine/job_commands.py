"""`JobCommands`: what submitters and operators may do to a job: cancel it, retry it, change it, add predecessors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from switchgear.engine.attempts import Attempts
from switchgear.engine.deadlines import Deadlines
from switchgear.engine.dependencies import Dependencies, check_edges, has_policies, policy_of
from switchgear.engine.dispatcher import Dispatcher
from switchgear.engine.functions import FunctionRegistry
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.predecessor_error import ENDED_WORDS
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.engine.requirements import Requirements
from switchgear.engine.state import EngineState
from switchgear.engine.transitions import Transitions
from switchgear.engine.unique_keys import UniqueKeys
from switchgear.errors import Refused
from switchgear.model import DONE, FINAL_STATES, READY, RUNNING, WAITING, Cause, Delivery, EdgePolicy, Function, Job
from switchgear.model.job import DETAILS_BYTES, EDGE_BYTES, KEPT
from switchgear.refusals import REFUSED_CONFLICT, REFUSED_RUNNING

__all__ = ["CANCELLED_WITH_SUCCESSORS", "JobCommands"]


# The ids of visited jobs are in this many sets. Growing a single set of a million takes 50 ms.
SEEN_TABLES: Final = 64
# So many predecessors are added to a job at a time, if it need not get all at once.
EDGES_PER_STEP: Final = 500

# The error of a cancelled job, by which other engines know that their jobs that wait for it are to be cancelled too.
CANCELLED_WITH_SUCCESSORS: Final = b"cancelled together with the jobs that wait for it"


class JobCommands:
    """Cancels jobs, retries them, changes their priority and time, and adds predecessors."""

    def __init__(
        self,
        state: EngineState,
        deadlines: Deadlines,
        packed: PackedQueues,
        queues: ReadyQueues,
        functions: FunctionRegistry,
        keys: UniqueKeys,
        attempts: Attempts,
        dispatcher: Dispatcher,
        dependencies: Dependencies,
        transitions: Transitions,
        requirements: Requirements,
    ) -> None:
        self._state = state
        self._deadlines = deadlines
        self._packed = packed
        self._queues = queues
        self._functions = functions
        self._keys = keys
        self._attempts = attempts
        self._dispatcher = dispatcher
        self._dependencies = dependencies
        self._transitions = transitions
        self._requirements = requirements

    # --- cancel ---

    def cancel_in_steps(self, job: Job, *, cascade: bool) -> Iterator[Job | None]:
        """Cancel a job, and with `cascade` all jobs that wait for it.

        Yields each job that was ended, and None after other parts of the work. Other commands may come between the
        steps. A job that begins to wait for a cancelled one meanwhile is not cancelled, as if it had come later.
        """
        if job.state not in FINAL_STATES:
            job = self._packed.job(job.id) or job  # the caller may have a copy
        if not cascade:
            if self._can_cancel(job):
                self._transitions.end(job, Cause.CANCELLED)
                yield job
            return
        found: list[Job] = []
        for each in self._with_successors(job):
            found.append(each)
            yield None
        # All of them stop waiting before the first ends, so that their edges have no effect on each other.
        for each in found:
            if each.state is WAITING and self._can_cancel(each):
                self._dependencies.remove(each)
            yield None
        found.reverse()
        while found:  # freed one by one, because freeing a million jobs at once takes long
            each = found.pop()
            if self._can_cancel(each):
                if self._state.placement is not None:
                    self._state.set_error(each, CANCELLED_WITH_SUCCESSORS)
                self._transitions.end(each, Cause.CANCELLED)
                yield each

    def _can_cancel(self, job: Job) -> bool:
        return job.state not in FINAL_STATES and self._state.jobs.get(job.id) is job

    def _with_successors(self, job: Job) -> Iterator[Job]:
        """The job and all that wait for it, directly or indirectly."""
        seen: list[set[int]] = [set() for _ in range(SEEN_TABLES)]
        seen[job.id % SEEN_TABLES].add(job.id)
        branches: list[Iterator[Job]] = [iter((job,))]
        while branches:
            current = next(branches[-1], None)
            if current is None:
                branches.pop()
            elif current is job or current.id not in seen[current.id % SEEN_TABLES]:
                seen[current.id % SEEN_TABLES].add(current.id)
                yield current
                branches.append(iter(self._dependencies.waiting_for(current.id)))

    # --- complete ---

    def complete_without_run(self, job: Job, result: bytes) -> None:
        """Complete a job that does not run with a result, without running it; raises Refused."""
        state = self._state
        job = self._packed.job(job.id) or job
        if state.jobs.get(job.id) is not job or job.state is RUNNING:
            reason = REFUSED_RUNNING if job.state is RUNNING else REFUSED_CONFLICT
            raise Refused(reason, f"{{}} is {job.state.name.lower()}: it cannot be completed", job.id)
        self._transitions.leave_queue(job)
        if state.is_too_late(job):
            self._transitions.expire(job)
            raise Refused(REFUSED_CONFLICT, "{} is expired: it cannot be completed", job.id)
        state.set_result(job, result)
        self._transitions.finish(job, Cause.SETTLED)

    # --- more predecessors ---

    def let_successors_wait(self, job: Job, job_ids: tuple[int, ...]) -> Iterator[bool]:
        """Let each job that waits for this unfinished one wait for others too, under the policy that it has for this
        one; raises CycleRefused.

        Yields after each step whether it was the last one of a job. A job that begins to wait meanwhile is not among
        them.
        """
        if self._state.jobs.get(job.id) is not job:
            raise Refused(REFUSED_CONFLICT, f"{{}} is {job.state.name.lower()}", job.id)
        yield from self.let_waiting_wait(job.id, job_ids)

    def let_waiting_wait(self, job_id: int, job_ids: tuple[int, ...]) -> Iterator[bool]:
        """The same for a job that may be another engine's."""
        for successor in self._dependencies.waiting_for(job_id):
            for start in range(0, len(job_ids), EDGES_PER_STEP):
                if start:
                    yield False
                some = job_ids[start : start + EDGES_PER_STEP]
                if successor.delivery and self._dependencies.relies_on_many(some):
                    for _ in self._dependencies.rely_in_steps(some):
                        yield False
                for _ in self.search_cycle(successor, some):
                    yield False
                if successor.state is not WAITING:
                    break
                edges = bytes([policy_of(successor, job_id)]) * len(some)
                self.add_predecessors(successor, some, edges, is_checked=True)
            yield True

    def search_cycle(self, job: Job, job_ids: tuple[int, ...]) -> Iterator[None]:
        """See in steps whether the job may wait for these too; raises CycleRefused if it would wait for itself.

        If predecessors are added before anything else is done, they need not be checked again.
        """
        dependencies = self._dependencies
        return dependencies.search_cycle(job, dependencies.blockers_among(tuple(dict.fromkeys(job_ids))))

    def add_predecessors(self, job: Job, job_ids: tuple[int, ...], edges: bytes, *, is_checked: bool) -> None:
        """Add predecessors to an unfinished job; raises CycleRefused if it would wait for itself.

        With `is_checked` the caller has excluded cycles; the search takes long if very many jobs wait for the job.
        `edges` has an EdgePolicy for each. A predecessor that the job already has keeps its policy.
        """
        state = self._state
        if state.jobs.get(job.id) is not job:
            raise Refused(REFUSED_CONFLICT, f"{{}} is {job.state.name.lower()}", job.id)
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
        if job.edges or has_policies(new_edges):
            job.has_details = True
            job.edges = (job.edges or bytes(len(job.predecessors))) + new_edges
        job.predecessors += new
        state.count_more(job, EDGE_BYTES * len(new))
        if state.reports_changes and job.delivery:
            state.note(job)
        if blockers:
            state.edge_changes += 1
            if job.state is not WAITING:
                self._hold_back(job)
            self._dependencies.rely_on(job, blockers)
            if state.is_too_late(job):
                self._transitions.leave_queue(job)
                self._transitions.expire(job)
                return
            self._dependencies.wait_for(job, blockers)
            self._dispatcher.offer_room(job.function)  # the job may have been running

    def _hold_back(self, job: Job) -> None:
        """Take a job that has no predecessors out of its queue, or from its worker."""
        if job.state is RUNNING:
            self._attempts.revoke(job, Cause.HELD_BACK)
            job.attempts -= 1  # the job is not to blame
            self._attempts.wait_again(job)
        else:
            self._transitions.leave_queue(job)
        self._queues.rank_last(job)
        self._state.move(job, Cause.HELD_BACK)

    # --- priority and time ---

    def change(self, job: Job, priority: int, run_at_us: int) -> Job:
        """Change the priority and the run-at time of a job that waits; raises Refused. -1 leaves a value as it is.

        A job whose time has come already runs as soon as it can. A ready job whose priority changes goes to the end of
        the queue of its new priority. Returns the job, of which the caller may have a copy.
        """
        state = self._state
        job = self._packed.job(job.id) or job
        if state.jobs.get(job.id) is not job or job.state is RUNNING:
            reason = REFUSED_RUNNING if job.state is RUNNING else REFUSED_CONFLICT
            raise Refused(reason, f"{{}} is {job.state.name.lower()}: it cannot be changed", job.id)
        if state.is_too_late(job):
            self._transitions.leave_queue(job)
            self._transitions.expire(job)
            raise Refused(REFUSED_CONFLICT, "{} is expired: it cannot be changed", job.id)
        if priority < 0:
            priority = job.priority
        if run_at_us < 0 or (job.state is READY and run_at_us <= state.now_us):
            run_at_us = job.run_at_us
        if priority == job.priority and run_at_us == job.run_at_us:
            state.concern_speaker()  # an earlier change to the same may not be stored yet
            return job
        if not job.has_own_details:
            state.count_more(job, DETAILS_BYTES)  # it may be one of a million plain jobs
        job.has_details = True
        if state.reports_changes and job.delivery:
            if not job.kept:
                job.irrevocable = True  # otherwise the change could be withdrawn together with the submission
            state.note(job)
        if job.state is READY:
            self._change_ready(job, priority, run_at_us)
        else:
            job.priority = priority
            if run_at_us != job.run_at_us:
                self._change_time(job, run_at_us)
        return job

    def _change_ready(self, job: Job, priority: int, run_at_us: int) -> None:
        """Move a ready job to another queue, or let it wait for its time."""
        function = job.function
        was_awaited = function.unloaded is job
        self._queues.remove(job)
        job.priority = priority
        if run_at_us == job.run_at_us:  # which may be in the future again, if the clock was set back
            self._dispatcher.enqueue_last(job)
            if was_awaited:  # its payload is being read, and the job that is next now may have its own
                self._dispatcher.offer_loaded(function, 1)
        else:
            self._await_new_time(job, run_at_us)

    def _change_time(self, job: Job, run_at_us: int) -> None:
        """Change the time of a job that waits for it or for predecessors."""
        if job.state is WAITING:
            job.run_at_us = run_at_us
            return
        self._deadlines.note_stale()
        if run_at_us > self._state.now_us:
            self._await_new_time(job, run_at_us)
        else:
            job.run_at_us = run_at_us
            self._transitions.make_ready(job, Cause.DUE)

    def _await_new_time(self, job: Job, run_at_us: int) -> None:
        job.run_at_us = run_at_us
        self._queues.rank_last(job)
        self._state.move(job, Cause.RESCHEDULED)
        self._transitions.await_time(job)

    # --- retry ---

    def retry(self, job: Job, more_predecessors: tuple[int, ...], *, is_checked: bool = False) -> None:
        """Run an unsuccessful job again, with all its attempts; raises Refused.

        If its predecessors are still not done, it waits again; predecessors can be added. With `is_checked` the job
        belongs to a graph that was accepted as a whole, whatever has been refused since.
        """
        state = self._state
        dependencies = self._dependencies
        if state.refusal is not None and not is_checked:
            raise Refused(state.refusal.reason, str(state.refusal))
        state.refuse_foreign(job.function.name)
        dependencies.finish_unlinking(job)
        function = self._refuse_retry(job)
        predecessors = tuple(dict.fromkeys(job.predecessors + more_predecessors)) if more_predecessors else ()
        edges = job.edges
        if edges and predecessors:
            edges += bytes(len(predecessors) - len(edges))
        blockers = dependencies.blockers_among(predecessors or job.predecessors, edges)
        dependencies.refuse_cycle(job, blockers)
        if predecessors:
            job.predecessors = predecessors
            if edges:
                job.edges = edges
        holder = self._packed.holder(function, job.unique) if job.unique else None
        if holder is None:
            job.unique_until_us = 0  # the copy in the store may be outdated
        elif holder is not job:
            self._keys.transfer(holder, job)
        dependencies.forget_unsuccessful(job)
        self._begin_again(job)
        function.submitted += 1
        if state.reports_changes:
            state.note(job)
        if blockers:
            state.edge_changes += 1
            self._queues.rank_last(job)
            state.move(job, Cause.RETRIED_WAITING)
            dependencies.add(job, blockers)
            dependencies.rely_on(job, blockers)
        else:
            state.move(job, Cause.RETRIED)
            self._dispatcher.enqueue_last(job)

    def _refuse_retry(self, job: Job) -> Function:
        """Raise Refused if a job must not be retried; otherwise return its function."""
        state = self._state
        unfinished = self._packed.job(job.id) or job  # the caller may have an old copy
        if unfinished.state not in FINAL_STATES or job.state is DONE:
            raise Refused(REFUSED_CONFLICT, f"{{}} is {unfinished.state.name.lower()}", job.id)
        function = job.function = self._functions.named(job.function.name)
        holder = self._packed.holder(function, job.unique) if job.unique else None
        is_taken = job.name and (job.name in state.names or state.is_name_reserved(job.name))
        if (holder is not None and holder.id != job.id) or is_taken:
            raise Refused(REFUSED_CONFLICT, "another job has the unique key or name of {}", job.id)
        self.refuse_failed_dependency(job)
        if job.requires:
            self._requirements.refuse_group(function, job.requires)
        if not job.entry_bytes:
            state.refuse_without_memory(job.measured_entry() + len(job.payload or b""))
        return function

    def _begin_again(self, job: Job) -> None:
        """Reset the end of a job, and enter the job into the tables."""
        state = self._state
        state.uncount_contents(job)  # if the end is not stored yet
        job.attempts = 0
        if job.losses:
            job.losses = 0
        job.result_code = 0
        job.result = job.warnings = job.message = job.progress_text = b""
        job.error = None
        job.chunks = None
        job.collected_bytes = job.numerator = job.denominator = 0
        job.time_left_s = -1
        job.finished_us = job.expires_us = job.run_at_us = 0
        job.delivery = job.delivery or Delivery.HANDLE  # the peer that waited for the job is gone
        self._transitions.list_again(job)
        if not job.kept or (job.kept == KEPT and job.payload is not None and state.reports_changes):
            job.kept = 0  # frees the payload when the retry is stored, if memory is short
            job.irrevocable = True  # peers were told of its first end

    def refuse_failed_dependency(self, job: Job) -> None:
        """Raise Refused if the retried job would end at once because of a predecessor."""
        predecessor_id = self._dependencies.failed_dependency(job) if job.edges else 0
        if predecessor_id:
            is_skipped = policy_of(job, predecessor_id) == EdgePolicy.SKIP
            end = ENDED_WORDS[self._dependencies.unsuccessful[predecessor_id]]
            what = "be skipped" if is_skipped else "fail"
            text = f"{{}} would {what} at once, because {{}}, which it waits for, {end}; retry {{}} first"
            raise Refused(REFUSED_CONFLICT, text, job.id, predecessor_id, predecessor_id)
