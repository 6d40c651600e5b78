"""`JobCommands`: what submitters and operators may do to a job: cancel it, complete it, change it, retry it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from switchgear.engine.attempts import Attempts
from switchgear.engine.deadlines import Deadlines
from switchgear.engine.dependencies import Dependencies, policy_of
from switchgear.engine.dispatcher import Dispatcher
from switchgear.engine.functions import FunctionRegistry
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.predecessor_commands import (
    PredecessorCommands,
    set_of,
    without_repetitions_in_steps,
)
from switchgear.engine.predecessor_error import ENDED_WORDS
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.engine.requirements import Requirements
from switchgear.engine.state import EngineState
from switchgear.engine.transitions import Transitions
from switchgear.engine.unique_keys import UniqueKeys
from switchgear.errors import Refused
from switchgear.model import DONE, FINAL_STATES, READY, RUNNING, WAITING, Cause, Delivery, EdgePolicy, Function, Job
from switchgear.model.id_set import IdSet
from switchgear.model.job import DETAILS_BYTES, KEPT
from switchgear.refusals import REFUSED_CONFLICT, REFUSED_RUNNING

__all__ = ["CANCELLED_WITH_SUCCESSORS", "JobCommands"]


# The error of a cancelled job, by which other engines know that their jobs that wait for it are to be cancelled too.
CANCELLED_WITH_SUCCESSORS: Final = b"cancelled together with the jobs that wait for it"


class JobCommands:
    """Cancels jobs, completes them, changes their priority and time, and retries them."""

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
        predecessors: PredecessorCommands,
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
        self._predecessors = predecessors

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
        seen = IdSet()
        for each in self._with_successors(job, seen):
            found.append(each)
            yield None
        for _ in seen.free():
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

    def _with_successors(self, job: Job, seen: IdSet) -> Iterator[Job]:
        """The job and all that wait for it, directly or indirectly; `seen` is going to have their ids."""
        branches: list[Iterator[Job]] = [iter((job,))]
        while branches:
            current = next(branches[-1], None)
            if current is None:
                branches.pop()
            elif seen.add(current.id):
                yield current
                branches.append(self._dependencies.each_waiting_for(current.id))

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

    def retry_in_steps(
        self, job: Job, more_predecessors: tuple[int, ...], *, is_checked: bool = False
    ) -> Iterator[None]:
        """Run an unsuccessful job again, with all its attempts; raises Refused. Everything is changed in the last step,
        or nothing.

        If its predecessors are still not done, it waits again; predecessors can be added. They are made durable. With
        `is_checked` the job belongs to a graph that was accepted as a whole, whatever has been refused since.
        """
        dependencies = self._dependencies
        yield from dependencies.rely_in_steps(job.predecessors)
        yield from dependencies.rely_in_steps(more_predecessors)
        if len(job.predecessors) + len(more_predecessors) <= self._predecessors.most_at_once:
            self.retry(job, more_predecessors, is_checked=is_checked)
            return
        self._refuse_outdated(job, is_checked=is_checked)
        yield from dependencies.unlink_in_steps(job)
        predecessors, edges = job.predecessors, job.edges
        if more_predecessors:
            predecessors = yield from without_repetitions_in_steps(predecessors + more_predecessors)
            if edges:
                edges += bytes(len(predecessors) - len(edges))
        blockers = yield from self._predecessors.blockers_in_steps(predecessors, edges)
        pending = yield from set_of(blockers)
        yield from self._predecessors.await_turn(job, blockers)
        function = self._refuse_outdated(job, is_checked=is_checked)
        dependencies.finish_unlinking(job)
        job.predecessors, job.edges = predecessors, edges
        self._begin_again(job, function)
        if self._predecessors.is_any_unfinished(blockers):
            self._wait_again(job)
            self._predecessors.link_later(job, pending, 0)
        else:
            self._make_ready_again(job)

    def retry(self, job: Job, more_predecessors: tuple[int, ...], *, is_checked: bool = False) -> None:
        """The same in one step, for a job of few predecessors."""
        dependencies = self._dependencies
        dependencies.finish_unlinking(job)
        function = self._refuse_outdated(job, is_checked=is_checked)
        predecessors, edges = job.predecessors, job.edges
        if more_predecessors:
            predecessors = tuple(dict.fromkeys(predecessors + more_predecessors))
            if edges:
                edges += bytes(len(predecessors) - len(edges))
        blockers = dependencies.blockers_among(predecessors, edges)
        dependencies.refuse_cycle(job, blockers)
        job.predecessors, job.edges = predecessors, edges
        self._begin_again(job, function)
        if blockers:
            self._state.edge_changes += 1
            self._wait_again(job)
            dependencies.add(job, blockers)
            dependencies.rely_on(job, blockers)
        else:
            self._make_ready_again(job)

    def _refuse_outdated(self, job: Job, *, is_checked: bool) -> Function:
        """Raise Refused if a job must not be retried now; otherwise return its function."""
        state = self._state
        if state.refusal is not None and not is_checked:
            raise Refused(state.refusal.reason, str(state.refusal))
        state.refuse_foreign(job.function.name)
        return self._refuse_retry(job)

    def _wait_again(self, job: Job) -> None:
        self._queues.rank_last(job)
        self._state.move(job, Cause.RETRIED_WAITING)

    def _make_ready_again(self, job: Job) -> None:
        self._state.move(job, Cause.RETRIED)
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

    def _begin_again(self, job: Job, function: Function) -> None:
        """Reset the end of a job, and enter the job into the tables."""
        state = self._state
        holder = self._packed.holder(function, job.unique) if job.unique else None
        if holder is None:
            job.unique_until_us = 0  # the copy in the store may be outdated
        elif holder is not job:
            self._keys.transfer(holder, job)
        self._dependencies.forget_unsuccessful(job)
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
        function.submitted += 1
        if state.reports_changes:
            state.note(job)

    def refuse_failed_dependency(self, job: Job) -> None:
        """Raise Refused if the retried job would end at once because of a predecessor."""
        predecessor_id = self._dependencies.failed_dependency(job) if job.edges else 0
        if predecessor_id:
            is_skipped = policy_of(job, predecessor_id) == EdgePolicy.SKIP
            end = ENDED_WORDS[self._dependencies.unsuccessful[predecessor_id]]
            what = "be skipped" if is_skipped else "fail"
            text = f"{{}} would {what} at once, because {{}}, which it waits for, {end}; retry {{}} first"
            raise Refused(REFUSED_CONFLICT, text, job.id, predecessor_id, predecessor_id)
