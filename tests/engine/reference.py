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
    JobState,
)
from tests.engine.reference_dispatch import ModelDispatch
from tests.engine.reference_words import ModelJob, ModelWorker, News, RefusedByModel


class Model(ModelDispatch):
    """What the engine does, said once more."""

    # --- moving ---

    def make_ready(self, job: ModelJob, cause: Cause, *, ahead: bool = False) -> None:
        """The job goes to the end, or ahead of all others where they may."""
        self.move(job, cause, READY)
        function = job.function
        if ahead and function.released_first:
            function.queue.insert(0, job)
        else:
            function.queue.append(job)
        if function.pushers:
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
        if state is DONE:
            waiting = [successor for job_id, successor in self.edges if job_id == job.id]
            self.edges = [(job_id, successor) for job_id, successor in self.edges if job_id != job.id]
            for successor in sorted(waiting, key=lambda successor: successor.since):
                if not any(other is successor for _, other in self.edges):
                    self.release(successor)
        watchers, job.watchers = job.watchers, []
        for heard in watchers:
            heard.append(("finished", job.id, state))

    def release(self, job: ModelJob) -> None:
        if job.run_at_us > self.now_us:
            self.move(job, Cause.RELEASED_EARLY, SCHEDULED)
        else:
            self.make_ready(job, Cause.RELEASED, ahead=True)

    def is_too_late(self, job: ModelJob) -> bool:
        return 0 < job.expires_us <= self.now_us

    def is_last_attempt(self, job: ModelJob) -> bool:
        limit = job.attempts_limit if job.attempts_limit >= 0 else self.attempts
        return 0 < limit <= job.attempts

    def requeue(self, job: ModelJob, cause: Cause, *, ahead: bool) -> None:
        """A running job that its worker does not hold any more."""
        if not job.durable and not job.watchers:
            self.finish(job, Cause.ABANDONED, CANCELLED)
        elif cause is not Cause.GIVEN_BACK and self.is_last_attempt(job):
            self.finish(job, Cause.EXHAUSTED, FAILED)
        else:
            self.leave(job)
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
    ) -> ModelJob:
        if self.refusal:
            raise RefusedByModel(self.refusal)
        function = self.function(name)
        for twin in self.unfinished():
            if unique and twin.function is function and twin.unique == unique:
                if heard is not None:
                    twin.watchers.append(heard)
                if durable:
                    self.rely_on(twin)
                return twin
        if own_name and any(job.name == own_name for job in self.unfinished()):
            raise RefusedByModel("conflict")
        known = list(dict.fromkeys(predecessors))
        job = ModelJob(
            len(self.jobs) + 1, function, unique, own_name, priority, durable,
            run_at_us, expires_us, timeout_us, attempts_limit, known,
        )  # fmt: skip
        blockers = self.not_done(known)
        self.jobs.append(job)
        if heard is not None:
            job.watchers.append(heard)
        if blockers:
            self.move(job, Cause.SUBMITTED_WAITING, WAITING)
            self.wait_for(job, blockers)
        elif run_at_us > self.now_us:
            self.move(job, Cause.SUBMITTED_EARLY, SCHEDULED)
        else:
            self.make_ready(job, Cause.SUBMITTED)
        return job

    def not_done(self, job_ids: list[int]) -> list[int]:
        return [job.id for job_id in job_ids for job in self.jobs if job.id == job_id and job.state is not DONE]

    def wait_for(self, job: ModelJob, blockers: list[int]) -> None:
        self.edges += [(job_id, job) for job_id in blockers]
        if job.durable:
            for job_id in blockers:
                self.rely_on(self.job(job_id))

    def rely_on(self, job: ModelJob) -> None:
        if not job.durable and job.state not in FINAL_STATES:
            job.durable = True
            for other in self.jobs:
                if other.id in job.predecessors:
                    self.rely_on(other)

    def unwatch(self, heard: list[News]) -> None:
        for job in list(self.unfinished()):
            if any(other is heard for other in job.watchers):
                job.watchers = [other for other in job.watchers if other is not heard]
                if not job.durable and not job.watchers and job.state in QUEUED_STATES:
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

    def report(self, worker: ModelWorker, job_id: int, verb: str, delay_us: int = 0) -> int | None:
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
        elif verb == "fail" or self.is_last_attempt(job):
            self.finish(job, Cause.ENDED_BADLY, FAILED)
        elif not job.durable and not job.watchers:
            self.finish(job, Cause.ABANDONED, CANCELLED)
        else:
            self.leave(job)
            job.run_at_us = self.now_us + delay_us
            self.move(job, Cause.RETRY_LATER, SCHEDULED)
            if self.is_too_late(job):
                self.expire(job)
        return job_id

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

    def cancel(self, job: ModelJob, cascade: bool) -> list[int]:
        ended = []
        pending = [job]
        while pending:
            current = pending.pop()
            if cascade:
                pending += [waiting for job_id, waiting in self.edges if job_id == current.id]
            if current.state in FINAL_STATES:
                continue
            self.cut_off(current, Cause.CANCELLED, CANCELLED)
            ended.append(current.id)
        return ended

    def retry(self, job: ModelJob) -> None:
        if self.refusal:
            raise RefusedByModel(self.refusal)
        if job.state not in (FAILED, CANCELLED, EXPIRED):
            raise RefusedByModel("conflict")
        for other in self.unfinished():
            if job.unique and other.function is job.function and other.unique == job.unique:
                raise RefusedByModel("conflict")
            if job.name and other.name == job.name:
                raise RefusedByModel("conflict")
        blockers = self.not_done(job.predecessors)
        self.refuse_cycle(job, blockers)
        job.attempts = job.run_at_us = job.expires_us = 0
        job.durable = True
        if blockers:
            self.move(job, Cause.RETRIED_WAITING, WAITING)
            self.wait_for(job, blockers)
        else:
            self.make_ready(job, Cause.RETRIED)

    def add_predecessors(self, job: ModelJob, job_ids: tuple[int, ...]) -> None:
        if job.state in FINAL_STATES:
            raise RefusedByModel("conflict")
        new = [job_id for job_id in dict.fromkeys(job_ids) if job_id not in job.predecessors]
        blockers = self.not_done(new)
        self.refuse_cycle(job, blockers)
        job.predecessors += new
        if not blockers:
            return
        if job.state is not WAITING:
            if job.worker is not None:
                job.worker.heard.append(("revoke", job.worker.id, job.id))
                job.attempts -= 1
            self.leave(job)
            self.move(job, Cause.HELD_BACK, WAITING)
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
