"""A small, slow and obviously right model of the engine.

Plain lists, searched from end to end for every question; nothing is counted, cached or indexed.  What is due is found
by looking at everything that has a time.  `test_reference_model` holds the engine against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from switchgear.model import (
    CANCELLED,
    DONE,
    EXPIRED,
    FAILED,
    FINAL_STATES,
    QUEUED_STATES,
    READY,
    RUNNING,
    SCHEDULED,
    WAITING,
    Cause,
    EdgePolicy,
    JobState,
    UniquePolicy,
)
from tests.engine.reference_dispatch import ModelDispatch
from tests.engine.reference_words import ModelFunction, ModelJob, ModelWorker, News, RefusedByModel


class Model(ModelDispatch):
    """What the engine does, said once more."""

    # --- moving ---

    def make_ready(self, job: ModelJob, cause: Cause, *, ahead: bool = False) -> None:
        """The job goes to the end, or ahead of all others where they may."""
        self.move(job, cause, READY)
        self.enqueue(job, ahead=ahead)

    def enqueue(self, job: ModelJob, *, ahead: bool) -> None:
        function = job.function
        if ahead and function.released_first:
            function.queue.insert(0, job)
        else:
            function.queue.append(job)
        if function.groups:
            self.offer_one(function, job.requires)
        elif function.pushers:
            self.push(function)
        elif function.sleepers:
            self.wake(function)

    def leave(self, job: ModelJob) -> None:
        """The job is not where it was any more."""
        self.edges = [(job_id, waiting) for job_id, waiting in self.edges if waiting is not job]
        if job in job.function.queue:
            job.function.queue.remove(job)
        if job.worker is not None:
            job.worker.holds.remove(job)
            job.worker = None
        job.limit_us = job.renewed_us = 0

    def finish(self, job: ModelJob, cause: Cause, state: JobState) -> None:
        self.leave(job)
        self.move(job, cause, state)
        self.leave_group(job)
        job.durable = job.durable or job.waited_for
        if state is DONE:
            waiting = [successor for job_id, successor in self.edges if job_id == job.id]
            self.edges = [(job_id, successor) for job_id, successor in self.edges if job_id != job.id]
            for successor in sorted(waiting, key=lambda successor: successor.since):
                if not any(other is successor for _, other in self.edges):
                    self.release(successor)
        job.has_key = job.has_key and job.held_until_us > 0
        watchers, job.subscribers = job.subscribers, []
        for heard in watchers:
            heard.append(("finished", job.id, state))
        if state is not DONE:
            self.let_down(job)

    def join_group(self, job: ModelJob) -> None:
        if job.requires and job.requires not in job.function.groups:
            job.function.groups.append(job.requires)

    def leave_group(self, job: ModelJob) -> None:
        """No group is left over for what no unfinished job requires."""
        function = job.function
        if job.requires and not any(
            other.requires == job.requires and other.function is function for other in self.unfinished()
        ):
            function.groups.remove(job.requires)

    def let_down(self, job: ModelJob) -> None:
        """Those that wait for a job which was not done meet what their edges say, one after the other."""
        self.disappointing.append(job)
        if len(self.disappointing) > 1:
            return
        for ended in self.disappointing:
            waiting = [successor for job_id, successor in self.edges if job_id == ended.id]
            going_on = [successor for successor in waiting if successor.policy(ended.id) == EdgePolicy.RUN]
            self.edges = [edge for edge in self.edges if edge[0] != ended.id or edge[1] not in going_on]
            for successor in waiting:
                self.end_by_edge(successor, ended)
            for successor in sorted(going_on, key=lambda successor: successor.since):
                if not any(other is successor for _, other in self.edges):
                    self.release(successor)
        self.disappointing = []

    def end_by_edge(self, job: ModelJob, predecessor: ModelJob) -> None:
        policy = job.policy(predecessor.id)
        if policy == EdgePolicy.SKIP:
            self.finish(job, Cause.SKIPPED, CANCELLED)
        elif policy == EdgePolicy.FAIL:
            self.finish(job, Cause.DOOMED, FAILED)

    def failed_dependency(self, job: ModelJob) -> ModelJob | None:
        """The job for whose end this one must not go on."""
        for job_id in job.predecessors:
            for other in self.jobs:
                ended_badly = other.id == job_id and other.state in (FAILED, CANCELLED, EXPIRED)
                if ended_badly and job.policy(job_id) in (EdgePolicy.SKIP, EdgePolicy.FAIL):
                    return other
        return None

    def meet_doom(self, job: ModelJob) -> None:
        predecessor = self.failed_dependency(job)
        assert predecessor is not None
        self.end_by_edge(job, predecessor)

    # --- unique keys ---

    def holder(self, function: ModelFunction, unique: bytes) -> ModelJob | None:
        if not unique:
            return None
        return next(
            (job for job in self.jobs if job.has_key and (job.function, job.unique) == (function, unique)), None
        )

    def take_key_again(self, job: ModelJob) -> None:
        if job.queued_only and job.unique:
            if self.holder(job.function, job.unique) in (None, job):
                job.has_key = True
            else:
                job.unique = b""

    def end_hold(self, job: ModelJob) -> None:
        job.held_until_us = 0
        if job.state in FINAL_STATES or (job.state is RUNNING and job.queued_only):
            job.has_key = False

    def release(self, job: ModelJob) -> None:
        if job.run_at_us > self.now_us:
            self.move(job, Cause.RELEASED_EARLY, SCHEDULED)
        else:
            self.make_ready(job, Cause.RELEASED, ahead=True)

    def is_too_late(self, job: ModelJob) -> bool:
        return 0 < job.expires_us <= self.now_us

    def is_last_attempt(self, job: ModelJob) -> bool:
        limit = job.attempts_limit if job.attempts_limit >= 0 else self.attempts
        return 0 < limit <= job.attempts - job.losses

    def dies_of(self, job: ModelJob, cause: Cause) -> bool:
        if cause is Cause.GIVEN_BACK:
            return False
        if job.crash_limit < 0 or (cause is Cause.TIMED_OUT and job.timeout_us):
            return self.is_last_attempt(job)
        job.losses += 1
        return 0 < job.crash_limit <= job.losses

    def requeue(self, job: ModelJob, cause: Cause, *, ahead: bool) -> None:
        """A running job that its worker does not hold any more."""
        if not job.durable and not job.subscribers:
            self.finish(job, Cause.ABANDONED, CANCELLED)
        elif self.dies_of(job, cause):
            self.finish(job, Cause.EXHAUSTED, FAILED)
        else:
            self.leave(job)
            self.take_key_again(job)
            job.attempts -= cause is Cause.GIVEN_BACK
            if self.is_too_late(job):
                self.move(job, cause, READY)
                self.expire(job)
            else:
                self.make_ready(job, cause, ahead=ahead)

    # --- time ---

    def advance(self, now_us: int) -> None:
        self.now_us = now_us
        while due := [timed for timed in self.timed() if timed[0] <= now_us]:
            _, _, happens, subject = min(due, key=lambda timed: timed[:2])
            happens(subject)

    def timed(self) -> Iterator[tuple[int, int, Callable[[Any], None], object]]:
        """Everything that has a time: when, which came first, what happens then, and to whom."""
        for job in self.unfinished():
            if job.state is SCHEDULED:
                yield job.run_at_us, job.since, self.come_due, job
            if job.expires_us and job.state is not RUNNING:
                yield job.expires_us, job.id, self.expire, job
            if job.limit_us:
                yield job.limit_us, job.limit_since, self.time_out, job
            if job.state is WAITING and self.failed_dependency(job) is not None:
                yield 0, job.doomed_since, self.meet_doom, job
        for job in self.jobs:
            if job.held_until_us:
                yield job.held_until_us, job.id, self.end_hold, job
        for worker in self.workers:
            if worker.lease_until_us:
                yield worker.lease_until_us, worker.id, self.lose_worker, worker
            if worker.tickets:
                yield min(until_us for _, until_us in worker.tickets), 0, self.lose_patience, worker
        for function in self.functions:
            if function.look_at_us:
                yield function.look_at_us, 0, self.look_after, function

    def expire(self, job: ModelJob) -> None:
        self.finish(job, Cause.EXPIRED, EXPIRED)

    def come_due(self, job: ModelJob) -> None:
        if self.is_too_late(job):
            self.expire(job)
        else:
            self.make_ready(job, Cause.DUE, ahead=True)

    def time_out(self, job: ModelJob) -> None:
        assert job.worker is not None
        if job.renewed_us > job.limit_us:
            self.serial += 1
            job.limit_us, job.limit_since = job.renewed_us, self.serial
            return
        job.worker.heard.append(("revoke", job.worker.id, job.id))
        self.requeue(job, Cause.TIMED_OUT, ahead=True)

    def lose_worker(self, worker: ModelWorker) -> None:
        self.remove_worker(worker)
        worker.heard.append(("expired", worker.id))

    def lose_patience(self, worker: ModelWorker) -> None:
        ticket = min(worker.tickets, key=lambda ticket: ticket[1])
        worker.tickets.remove(ticket)
        worker.credits -= 1
        self.fill(worker)
        worker.heard.append(("waited in vain", worker.id, ticket[0]))

    def clock_moved(self, delta_us: int) -> None:
        self.advance(self.now_us)
        self.now_us += delta_us
        for job in self.jobs:
            if job.limit_us:
                job.limit_us += delta_us
            if job.renewed_us:
                job.renewed_us += delta_us
        for worker in self.workers:
            if worker.lease_until_us:
                worker.lease_until_us += delta_us
            worker.tickets = [(ticket, until_us + delta_us) for ticket, until_us in worker.tickets]
        for function in self.functions:
            function.taken_us += delta_us
            if function.look_at_us:
                function.look_at_us += delta_us

    # --- submitting ---

    def submit(
        self,
        name: bytes,
        unique: bytes,
        priority: int,
        durable: bool,
        heard: list[News] | None,
        *,
        own_name: bytes = b"",
        run_at_us: int = 0,
        expires_us: int = 0,
        timeout_us: int = 0,
        attempts_limit: int = -1,
        predecessors: tuple[int, ...] = (),
        edges: bytes = b"",
        crash_limit: int = -1,
        unique_scope: int = 0,
        unique_policy: int = 0,
        unique_for_us: int = 0,
        requires: bytes = b"",
    ) -> ModelJob:
        if self.refusal:
            raise RefusedByModel(self.refusal)
        function = self.function(name)
        twin = self.holder(function, unique)
        if twin is not None and unique_policy == UniquePolicy.REJECT:
            raise RefusedByModel("unique")
        if twin is not None and unique_policy == UniquePolicy.JOIN:
            if twin.state not in FINAL_STATES:
                if heard is not None:
                    twin.subscribers.append(heard)
                if durable:
                    self.rely_on(twin)
            return twin
        if own_name and any(job.name == own_name and job is not twin for job in self.unfinished()):
            raise RefusedByModel("conflict")
        if twin is not None:
            self.replace(twin)
        policies: dict[int, int] = {}
        for job_id, policy in zip(predecessors, edges or bytes(len(predecessors))):
            policies.setdefault(job_id, policy)
        known = list(policies)
        job = ModelJob(
            len(self.jobs) + 1, function, unique, own_name, priority, durable,
            run_at_us, expires_us, timeout_us, attempts_limit, known, list(policies.values()), crash_limit,
            bool(unique and unique_scope), self.now_us + unique_for_us if unique and unique_for_us else 0,
            bool(unique), frozenset(requires.split(b",")) if requires else frozenset(),
        )  # fmt: skip
        self.join_group(job)
        blockers = self.not_done(job, known)
        self.jobs.append(job)
        if heard is not None:
            job.subscribers.append(heard)
        if blockers:
            self.move(job, Cause.SUBMITTED_WAITING, WAITING)
            self.wait_for(job, blockers)
        elif run_at_us > self.now_us:
            self.move(job, Cause.SUBMITTED_EARLY, SCHEDULED)
        else:
            self.make_ready(job, Cause.SUBMITTED)
        return job

    def replace(self, job: ModelJob) -> None:
        """Another comes in its place."""
        job.held_until_us = 0
        if job.state in FINAL_STATES:
            job.has_key = False
        else:
            self.cut_off(job, Cause.REPLACED, CANCELLED)

    def not_done(self, job: ModelJob, job_ids: list[int]) -> list[int]:
        """Those of its predecessors that the job must wait for."""
        blockers = []
        for job_id in job_ids:
            for other in self.jobs:
                is_let_go = other.state in FINAL_STATES and job.policy(job_id) == EdgePolicy.RUN
                if other.id == job_id and other.state is not DONE and not is_let_go:
                    blockers.append(job_id)
        return blockers

    def wait_for(self, job: ModelJob, blockers: list[int]) -> None:
        self.edges += [(job_id, job) for job_id in blockers]
        self.serial += 1
        job.doomed_since = self.serial
        self.rely_on_all(job, blockers)

    def rely_on_all(self, job: ModelJob, blockers: list[int]) -> None:
        """If the job is durable these become durable, too; if not, at least their ends will be."""
        for other in map(self.job, blockers):
            if job.durable:
                self.rely_on(other)
            elif other.state not in FINAL_STATES:
                other.waited_for = True

    def rely_on(self, job: ModelJob) -> None:
        if not job.durable and job.state not in FINAL_STATES:
            job.durable = True
            for other in self.jobs:
                if other.id in job.predecessors:
                    self.rely_on(other)

    def unwatch(self, heard: list[News]) -> None:
        for job in list(self.unfinished()):
            if any(other is heard for other in job.subscribers):
                job.subscribers = [other for other in job.subscribers if other is not heard]
                if not job.durable and not job.subscribers and job.state in QUEUED_STATES:
                    self.finish(job, Cause.ABANDONED, CANCELLED)

    # --- workers ---

    def remove_worker(self, worker: ModelWorker) -> None:
        worker.alive = worker.asleep = False
        worker.lease_until_us = worker.credits = 0
        worker.tickets = []
        for function in list(worker.functions):
            self.cannot_do(worker, function)
        for job in list(worker.holds):
            if job.worker is worker:
                self.requeue(job, Cause.WORKER_LOST, ahead=True)
        worker.holds.clear()

    # --- reports: the job's id, or None if the worker does not have it ---

    def report(
        self, worker: ModelWorker, job_id: int, verb: str, delay_us: int = 0, attempts_limit: int = -1
    ) -> int | None:
        job = next((job for job in worker.holds if job.id == job_id), None)
        if job is None:
            return None
        if job.worker is not worker:  # cancelled or settled
            if verb != "renew":
                worker.holds.remove(job)
        elif verb == "complete":
            self.finish(job, Cause.SUCCEEDED, DONE)
        elif verb == "renew":
            if job.limit_us and not job.timeout_us:
                job.renewed_us = self.now_us + worker.timeouts_us.get(job.function.name, 0)
        elif verb == "hand back":
            self.requeue(job, Cause.GIVEN_BACK, ahead=False)
        elif verb == "fail" or self.is_last_attempt_by(job, attempts_limit):
            self.finish(job, Cause.ENDED_BADLY, FAILED)
        elif not job.durable and not job.subscribers:
            self.finish(job, Cause.ABANDONED, CANCELLED)
        else:
            self.leave(job)
            self.take_key_again(job)
            job.run_at_us = self.now_us + delay_us
            self.move(job, Cause.RETRY_LATER, SCHEDULED)
            if self.is_too_late(job):
                self.expire(job)
        return job_id

    def is_last_attempt_by(self, job: ModelJob, attempts_limit: int) -> bool:
        """If the worker says how many there are, unless the submitter did."""
        if job.attempts_limit < 0:
            job.attempts_limit = attempts_limit
        return self.is_last_attempt(job)

    # --- operators ---

    def settle(self, job: ModelJob) -> bool:
        if job.state not in (READY, RUNNING):
            return False
        self.cut_off(job, Cause.SETTLED, DONE)
        return True

    def cut_off(self, job: ModelJob, cause: Cause, state: JobState) -> None:
        """The end of a job that a worker may have, who will perhaps still report it."""
        worker = job.worker
        if worker is not None:
            worker.heard.append(("revoke", worker.id, job.id))
        self.finish(job, cause, state)
        if worker is not None:
            worker.holds.append(job)

    def change(self, job: ModelJob, priority: int, run_at_us: int) -> ModelJob:
        if job.state not in QUEUED_STATES:
            raise RefusedByModel("running" if job.state is RUNNING else "conflict")
        if self.is_too_late(job):
            self.expire(job)
            raise RefusedByModel("conflict")
        new_priority = job.priority if priority < 0 else priority
        if job.state is READY:
            is_put_off = run_at_us > self.now_us and run_at_us != job.run_at_us
            if is_put_off or new_priority != job.priority:
                self.leave(job)
                job.priority = new_priority
                if is_put_off:
                    job.run_at_us = run_at_us
                    self.move(job, Cause.RESCHEDULED, SCHEDULED)
                else:
                    self.enqueue(job, ahead=False)
            return job
        job.priority = new_priority
        if run_at_us >= 0 and run_at_us != job.run_at_us:
            job.run_at_us = run_at_us
            if job.state is SCHEDULED and run_at_us > self.now_us:
                self.move(job, Cause.RESCHEDULED, SCHEDULED)
            elif job.state is SCHEDULED:
                self.make_ready(job, Cause.DUE, ahead=True)
        return job

    def cancel(self, job: ModelJob, cascade: bool) -> list[int]:
        found: list[ModelJob] = []
        pending = [job]
        while pending:
            current = pending.pop()
            if current not in found:
                found.append(current)
                if cascade:
                    pending += reversed([waiting for job_id, waiting in self.edges if job_id == current.id])
        ended = [each for each in found if each.state not in FINAL_STATES]
        self.edges = [(job_id, waiting) for job_id, waiting in self.edges if waiting not in ended]
        for each in ended:
            self.cut_off(each, Cause.CANCELLED, CANCELLED)
        return [each.id for each in ended]

    def retry(self, job: ModelJob) -> None:
        if self.refusal:
            raise RefusedByModel(self.refusal)
        if job.state not in (FAILED, CANCELLED, EXPIRED):
            raise RefusedByModel("conflict")
        if self.holder(job.function, job.unique) not in (None, job):
            raise RefusedByModel("conflict")
        if job.name and any(other.name == job.name for other in self.unfinished()):
            raise RefusedByModel("conflict")
        if self.failed_dependency(job) is not None:
            raise RefusedByModel("conflict")
        blockers = self.not_done(job, job.predecessors)
        self.refuse_cycle(job, blockers)
        job.attempts = job.losses = job.run_at_us = job.expires_us = 0
        job.durable = True
        job.has_key = bool(job.unique)
        self.join_group(job)
        if blockers:
            self.move(job, Cause.RETRIED_WAITING, WAITING)
            self.wait_for(job, blockers)
        else:
            self.make_ready(job, Cause.RETRIED)

    def add_predecessors(self, job: ModelJob, job_ids: tuple[int, ...], edges: bytes) -> None:
        if job.state in FINAL_STATES:
            raise RefusedByModel("conflict")
        before = list(job.predecessors), list(job.edges)
        for job_id, policy in zip(job_ids, edges):
            if job_id not in job.predecessors:
                job.predecessors.append(job_id)
                job.edges.append(policy)
        blockers = self.not_done(job, job.predecessors[len(before[0]) :])
        try:
            self.refuse_cycle(job, blockers)
        except RefusedByModel:
            job.predecessors, job.edges = before
            raise
        if not blockers:
            return
        if job.state is not WAITING:
            was_running = job.worker is not None
            if job.worker is not None:
                job.worker.heard.append(("revoke", job.worker.id, job.id))
                job.attempts -= 1
            self.leave(job)
            if was_running:
                self.take_key_again(job)
            self.move(job, Cause.HELD_BACK, WAITING)
        self.rely_on_all(job, blockers)
        if self.is_too_late(job):
            self.expire(job)
        else:
            self.wait_for(job, blockers)

    def refuse_cycle(self, job: ModelJob, blockers: list[int]) -> None:
        """Nothing that the job is to wait for may wait for it, however indirectly."""
        waiting = {job.id}
        while more := {other.id for job_id, other in self.edges if job_id in waiting} - waiting:
            waiting |= more
        if waiting & set(blockers):
            raise RefusedByModel("cycle")
