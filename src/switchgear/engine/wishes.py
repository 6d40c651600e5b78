"""What submitters and operators ask for: cancel a job, run it again, let it wait for more, say why it waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from switchgear.engine.core import REFUSED_CONFLICT, REFUSED_FULL
from switchgear.engine.deadlines import Kind
from switchgear.engine.edge_errors import ENDED_WORDS
from switchgear.engine.explain import Reason, explain
from switchgear.engine.graph import check_edges, has_policies, policy_of
from switchgear.engine.options import SubmitOptions
from switchgear.engine.tables import Tables
from switchgear.engine.uniques import free_key, take_key
from switchgear.errors import Refused
from switchgear.model import DONE, FINAL_STATES, READY, RUNNING, URGENT, WAITING, Cause, Delivery, EdgePolicy, Job
from switchgear.model.job import EDGE_BYTES, KEPT

__all__ = ["QUEUE_IS_FULL", "Wishes"]

QUEUE_IS_FULL: Final = "Job queue is full"

# Jobs that ended and are remembered for their unique keys may take this part of the memory.
HOLDS_SHARE: Final = 8


class Wishes(Tables):
    """The part of the engine that changes what was asked for."""

    def cancel(self, job: Job, *, cascade: bool = False) -> list[Job]:
        """End an unfinished job, and with `cascade` all that wait for it; returns those that were ended."""
        return [ended for ended in self.cancel_in_steps(job, cascade=cascade) if ended is not None]

    def cancel_in_steps(self, job: Job, *, cascade: bool = False) -> Iterator[Job | None]:
        """The same in steps: gives each job that was ended, and None after other parts of the work.

        Other commands may come between the steps.  A job that begins to wait for a cancelled one meanwhile is not
        cancelled, as if it had come later.
        """
        if job.state not in FINAL_STATES:
            job = self.job(job.id) or job  # it may be a copy
        if not cascade:
            if self._can_cancel(job):
                self._cancel_one(job)
                yield job
            return
        found: list[Job] = []
        for each in self._with_successors(job):
            found.append(each)
            yield None
        # All of them stop waiting before the first ends: what their edges say of each other does not matter now.
        for each in found:
            if each.state is WAITING and self._can_cancel(each):
                self.graph.remove(each)
            yield None
        found.reverse()
        while found:  # they are let go of on the way, because to free a million jobs at once takes long
            each = found.pop()
            if self._can_cancel(each):
                self._cancel_one(each)
                yield each

    def _can_cancel(self, job: Job) -> bool:
        return job.state not in FINAL_STATES and self.jobs.get(job.id) is job

    def _cancel_one(self, job: Job) -> None:
        if job.state is RUNNING:
            self._cut_off(job)
        else:
            self._leave_queue(job)
        self._finish(job, Cause.CANCELLED)

    def _with_successors(self, job: Job) -> Iterator[Job]:
        """The job and all that wait for it, and so on."""
        seen = {job.id}
        branches: list[Iterator[Job]] = [iter((job,))]
        while branches:
            current = next(branches[-1], None)
            if current is None:
                branches.pop()
            elif current is job or current.id not in seen:
                seen.add(current.id)
                yield current
                branches.append(iter(self.graph.waiting_for(current.id)))

    def add_predecessors(
        self, job: Job, job_ids: tuple[int, ...], edges: bytes = b"", *, is_checked: bool = False
    ) -> None:
        """Let an unfinished job wait for more; raises CycleRefused if it would wait for itself, unless the caller has
        made sure of that, which takes long if very many wait for the job.

        `edges` has an EdgePolicy for each.  One that the job was told of before keeps the policy that it has.
        """
        if self.jobs.get(job.id) is not job:
            raise Refused(REFUSED_CONFLICT, f"{{}} is {job.state.name.lower()}", job.id)
        if edges:
            check_edges(edges, job_ids)
        known = set(job.predecessors)
        policies: dict[int, int] = {}
        for job_id, policy in zip(job_ids, edges or bytes(len(job_ids))):
            if job_id not in known:
                policies.setdefault(job_id, policy)
        new, new_edges = tuple(policies), bytes(policies.values())
        blockers = self._blockers_among(new, new_edges)
        if not is_checked:
            self.graph.refuse_cycle(job, blockers)
        if job.edges or has_policies(new_edges):
            job.special = True
            job.edges = (job.edges or bytes(len(job.predecessors))) + new_edges
        job.predecessors += new
        self.hold_for(job, EDGE_BYTES * len(new))
        if self.keeps and job.delivery:
            self._note(job)
        if blockers:
            if job.state is not WAITING:
                self._hold_back(job)
            self._rely_on(job, blockers)
            if self._is_too_late(job):
                self._leave_queue(job)
                self._expire(job)
                return
            self.graph.add(job, blockers)
            self._foresee_doom(job)
            self._offer_room(job.function)  # if it was running

    def _hold_back(self, job: Job) -> None:
        if job.state is RUNNING:
            worker = job.worker
            self._leave_worker(job)
            if worker is not None:
                worker.peer.revoke(worker, job, Cause.HELD_BACK)
            job.attempts -= 1  # it was not the job's fault
            self._forget_run(job)
            if job.unique_scope:
                self._take_key_again(job)
        elif job.state is READY:
            self._dequeue(job)
        else:
            self.deadlines.stale += 1
        self._rank_last(job)
        self._move(job, Cause.HELD_BACK)

    def retry(self, job: Job, more_predecessors: tuple[int, ...] = ()) -> None:
        """Run a job again that ended without success, with all its attempts; raises Refused.

        If it waits for jobs that are still not done, it waits again; it may be told to wait for more than before.
        """
        if self.refusal is not None:
            raise Refused(self.refusal.reason, str(self.refusal))
        unfinished = self.job(job.id) or job  # if there is one, the caller's may be an old copy of it
        if unfinished.state not in FINAL_STATES or job.state is DONE:
            raise Refused(REFUSED_CONFLICT, f"{{}} is {unfinished.state.name.lower()}", job.id)
        function = job.function = self.function_named(job.function.name)
        twin = self.holder(function, job.unique) if job.unique else None
        is_taken = job.name and (job.name in self.names or self.backlog.is_reserved(job.name))
        if (twin is not None and twin.id != job.id) or is_taken:
            raise Refused(REFUSED_CONFLICT, "another job has the unique key or name of {}", job.id)
        self.refuse_doomed(job)
        if not job.entry_bytes:
            self._refuse_without_memory(job.measured_entry() + len(job.payload or b""))
        predecessors = tuple(dict.fromkeys(job.predecessors + more_predecessors)) if more_predecessors else ()
        edges = job.edges
        if edges and predecessors:
            edges += bytes(len(predecessors) - len(edges))
        blockers = self._blockers_among(predecessors or job.predecessors, edges)
        self.graph.refuse_cycle(job, blockers)
        if predecessors:
            job.predecessors = predecessors
            if edges:
                job.edges = edges
        if twin is None:
            job.unique_until_us = 0  # a copy from the store may not know that
        elif twin is not job:
            self._take_key_from(twin, job)
        self.graph.forget_unsuccessful(job.id)
        self._uncount(job)  # should it have just ended, and that not be stored yet
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
        job.delivery = job.delivery or Delivery.HANDLE  # whoever waited is gone
        self._list(job)
        if not job.kept or (job.kept == KEPT and job.payload is not None and self.keeps):
            job.kept = 0  # so that its payload is let go when the store has this life of it, if there is little room
            job.irrevocable = True  # somebody was told of its first life
        function.submitted += 1
        if self.keeps:
            self._note(job)
        if blockers:
            self._rank_last(job)
            self._move(job, Cause.RETRIED_WAITING)
            self.graph.add(job, blockers)
            self._rely_on(job, blockers)
        else:
            self._move(job, Cause.RETRIED)
            self._enqueue_last(job)

    def refuse_doomed(self, job: Job) -> None:
        """Raise Refused if running this job again makes no sense: it would end at once for one that it waits for."""
        predecessor_id = self.graph.doom_of(job) if job.edges else 0
        if predecessor_id:
            is_skipped = policy_of(job, predecessor_id) == EdgePolicy.SKIP
            end = ENDED_WORDS[self.graph.unsuccessful[predecessor_id]]
            what = "be skipped" if is_skipped else "fail"
            text = f"{{}} would {what} at once, because {{}}, which it waits for, {end}; retry {{}} first"
            raise Refused(REFUSED_CONFLICT, text, job.id, predecessor_id, predecessor_id)

    # --- why ---

    def explain(self, job: Job, name: Callable[[int], str] = "job {}".format) -> list[Reason]:
        """Why the job is where it is; `name` says what to call the job of an id."""
        return explain(self, job, name)

    # --- inside ---

    def _take_key_from(self, held: Job, job: Job) -> None:
        """A job that ended and holds its key is retried, in another copy that came from the store."""
        job.unique_until_us = held.unique_until_us
        self._end_hold(held)
        free_key(held)
        take_key(job)
        self.deadlines.add(job.unique_until_us, Kind.KEY_HELD, job)

    def _rely_on(self, job: Job, job_ids: Sequence[int]) -> None:
        """The job waits for these.  If it is worth keeping, they are worth keeping too: were they lost in a crash, it
        would be taken for granted that they were done.

        If it is not, it may still be retried one day, and be kept then.  So at least their ends have to be known.
        """
        jobs = self.jobs
        pending = list(job_ids)
        is_durable = bool(job.delivery)
        for job_id in pending:  # it grows
            other = jobs.get(job_id)
            if other is not None and not other.delivery:
                if not is_durable:
                    self.graph.waited_for.add(job_id)
                    continue
                other.delivery = Delivery.HANDLE
                if self.keeps:
                    self._note(other)
                pending.extend(other.predecessors)

    # --- submissions that change what another was promised ---

    def _settle_key(self, job: Job, options: SubmitOptions) -> None:
        """How long the key of a new job is its own."""
        if options.unique_scope:
            job.unique_scope = options.unique_scope
        if options.unique_hold_us:
            job.unique_until_us = self.now_us + options.unique_hold_us
            self.deadlines.add(job.unique_until_us, Kind.KEY_HELD, job)

    def _replace(self, job: Job, priority: int, options: SubmitOptions) -> None:
        """End the job whose key a submission wants to have, unless that would then be refused."""
        function = job.function
        going = job.state not in FINAL_STATES
        limit = function.limits[priority % URGENT]
        too_many = limit and function.total - going >= limit
        if too_many or (self.settings.jobs and self.job_count() - going >= self.settings.jobs):
            raise Refused(REFUSED_FULL, QUEUE_IS_FULL)
        if options.job_id:
            self._refuse_unreserved(options.job_id)
        if options.name and self.names.get(options.name) not in (None, job):
            raise Refused(REFUSED_CONFLICT, f"there is an unfinished job named {options.name!r}")
        if options.edges:
            check_edges(options.edges, options.predecessors)
        if options.unique_hold_us:
            self._refuse_more_holds()
        self._end_hold(job)
        if not going:
            free_key(job)
            if self.keeps:
                self._note(job)  # or a restart would find two that hold the key
            return
        if job.state is RUNNING:
            self._cut_off(job, Cause.REPLACED)
        else:
            self._leave_queue(job)
        self._finish(job, Cause.REPLACED)

    def _refuse_more_holds(self) -> None:
        """Raise Refused if as many unique keys are held beyond the end of their jobs as there is memory for."""
        limit_bytes = self.memory.limit_bytes
        if limit_bytes and self.memory.key_bytes >= limit_bytes // HOLDS_SHARE:
            text = f"{self.deadlines.holds} unique keys are held for a time, and there is no memory for more"
            raise Refused(REFUSED_FULL, f"{text}: limits.memory_bytes is {limit_bytes}")

    def _refuse_unreserved(self, job_id: int) -> None:
        if not 0 < job_id < self.next_job_id or self.has_job(job_id):
            raise Refused(REFUSED_CONFLICT, f"the id {job_id} is not reserved")
