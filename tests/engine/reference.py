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
from tests.engine.reference_words import ModelFunction, ModelJob, ModelWorker, News, RefusedByModel


class Model:
    """What the engine does, said once more."""

    def __init__(self, now_us: int, order: str, attempts: int, wakeups: int, neglect_us: int) -> None:
        self.now_us = now_us
        self.order = order
        self.attempts = attempts
        self.wakeups = wakeups
        self.neglect_us = neglect_us
        self.jobs: list[ModelJob] = []
        self.workers: list[ModelWorker] = []
        self.functions: list[ModelFunction] = []
        self.edges: list[tuple[int, ModelJob]] = []  # who waits for whose id, in the order in which they began to
        self.refusal = ""
        self.handing_out = True
        self.serial = 0

    def function(self, name: bytes) -> ModelFunction:
        for function in self.functions:
            if function.name == name:
                return function
        self.functions.append(ModelFunction(name))
        return self.functions[-1]

    def job(self, job_id: int) -> ModelJob:
        return next(job for job in self.jobs if job.id == job_id)

    def unfinished(self) -> Iterator[ModelJob]:
        return (job for job in self.jobs if job.state not in FINAL_STATES)

    # --- moving ---

    def move(self, job: ModelJob, cause: Cause, state: JobState) -> None:
        job.causes.append(cause)
        job.state = state
        self.serial += 1
        job.since = self.serial

    def make_ready(self, job: ModelJob, cause: Cause) -> None:
        self.move(job, cause, READY)
        self.enqueue(job)

    def enqueue(self, job: ModelJob) -> None:
        function = job.function
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
        job.limit_us = 0

    def finish(self, job: ModelJob, cause: Cause, state: JobState) -> None:
        self.leave(job)
        self.move(job, cause, state)
        if state is DONE:
            waiting = [successor for job_id, successor in self.edges if job_id == job.id]
            self.edges = [(job_id, successor) for job_id, successor in self.edges if job_id != job.id]
            for successor in waiting:
                if not any(other is successor for _, other in self.edges):
                    self.release(successor)
        watchers, job.watchers = job.watchers, []
        for heard in watchers:
            heard.append(("finished", job.id, state))

    def release(self, job: ModelJob) -> None:
        if job.run_at_us > self.now_us:
            self.move(job, Cause.RELEASED_EARLY, SCHEDULED)
        else:
            self.make_ready(job, Cause.RELEASED)

    def is_too_late(self, job: ModelJob) -> bool:
        return 0 < job.expires_us <= self.now_us

    def is_last_attempt(self, job: ModelJob) -> bool:
        limit = job.attempts_limit if job.attempts_limit >= 0 else self.attempts
        return 0 < limit <= job.attempts

    def requeue(self, job: ModelJob, cause: Cause) -> None:
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
                self.make_ready(job, cause)

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
                yield job.limit_us, job.since, self.time_out, job
        for worker in self.workers:
            if worker.lease_until_us:
                yield worker.lease_until_us, worker.id, self.remove_worker, worker
        for function in self.functions:
            if function.look_at_us:
                yield function.look_at_us, 0, self.look_after, function

    def expire(self, job: ModelJob) -> None:
        self.finish(job, Cause.EXPIRED, EXPIRED)

    def come_due(self, job: ModelJob) -> None:
        if self.is_too_late(job):
            self.expire(job)
        else:
            self.make_ready(job, Cause.DUE)

    def time_out(self, job: ModelJob) -> None:
        assert job.worker is not None
        job.worker.heard.append(("revoke", job.worker.id, job.id))
        self.requeue(job, Cause.TIMED_OUT)

    def clock_moved(self, delta_us: int) -> None:
        self.advance(self.now_us)
        self.now_us += delta_us
        for job in self.jobs:
            if job.limit_us:
                job.limit_us += delta_us
        for worker in self.workers:
            if worker.lease_until_us:
                worker.lease_until_us += delta_us
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

    def can_do(self, worker: ModelWorker, function: ModelFunction, timeout_us: int) -> None:
        if function not in worker.functions:
            worker.functions.append(function)
        worker.timeouts_us[function.name] = timeout_us
        if worker.credits:
            self.fill(worker)
        if worker.asleep and not self.sleep(worker):
            worker.heard.append(("wake", worker.id))

    def cannot_do(self, worker: ModelWorker, function: ModelFunction) -> None:
        if function not in worker.functions:
            return
        worker.functions.remove(function)
        for places in (function.sleepers, function.pushers):
            if worker in places:
                places.remove(worker)
        if worker.woken_for is function:
            self.pass_on(worker)

    def remove_worker(self, worker: ModelWorker) -> None:
        worker.alive = worker.asleep = False
        worker.lease_until_us = worker.credits = 0
        for function in list(worker.functions):
            self.cannot_do(worker, function)
        for job in list(worker.holds):
            if job.worker is worker:
                self.requeue(job, Cause.WORKER_LOST)
        worker.holds.clear()

    def best(self, worker: ModelWorker) -> ModelJob | None:
        """The job that this worker should have."""
        open_functions = [f for f in worker.functions if f.queue and not f.paused and self.handing_out]
        if not open_functions:
            return None
        if self.order == "fair":
            chosen = min(open_functions, key=lambda f: min(job.priority for job in f.queue))
        else:
            chosen = open_functions[-1]
        if len(worker.functions) > 1:
            if self.order == "fair":  # served longest ago comes first
                worker.functions.remove(chosen)
                worker.functions.append(chosen)
            elif self.order == "round-robin":  # served last comes last, and the last is the first
                worker.functions.remove(chosen)
                worker.functions.insert(0, chosen)
        return self.best_of(chosen)

    def best_of(self, function: ModelFunction) -> ModelJob:
        return min(function.queue, key=lambda job: job.priority)

    def start(self, job: ModelJob, worker: ModelWorker) -> None:
        job.function.queue.remove(job)
        self.move(job, Cause.TAKEN, RUNNING)
        job.attempts += 1
        job.worker = worker
        if job not in worker.holds:  # or else cancelled, not reported, retried, and here again
            worker.holds.append(job)
        job.function.taken_us = self.now_us
        timeout_us = job.timeout_us or worker.timeouts_us[job.function.name]
        job.limit_us = self.now_us + timeout_us if timeout_us else 0

    def take(self, worker: ModelWorker) -> ModelJob | None:
        self.rouse(worker)
        job = self.best(worker)
        if job is not None:
            self.start_chosen(job, worker)
        return job

    def start_chosen(self, job: ModelJob, worker: ModelWorker) -> None:
        self.start(job, worker)
        if worker.woken_for is not None and worker.woken_for is not job.function:
            self.pass_on(worker)

    def sleep(self, worker: ModelWorker) -> bool:
        if self.handing_out and any(f.queue and not f.paused for f in worker.functions):
            self.rouse(worker)
            return False
        worker.asleep = True
        for function in worker.functions:
            if worker not in function.sleepers:
                function.sleepers.append(worker)
        return True

    def rouse(self, worker: ModelWorker) -> None:
        worker.asleep = False
        for function in worker.functions:
            if worker in function.sleepers:
                function.sleepers.remove(worker)

    def wake(self, function: ModelFunction) -> None:
        if function.paused or not self.handing_out:
            return
        if not function.look_at_us:
            function.look_at_us = self.now_us + self.neglect_us
        for worker in function.sleepers[: self.wakeups or None]:
            self.rouse(worker)
            worker.woken_for = function
            worker.heard.append(("wake", worker.id))

    def pass_on(self, worker: ModelWorker) -> None:
        function, worker.woken_for = worker.woken_for, None
        if function is not None and function.queue and function.sleepers:
            self.wake(function)

    def look_after(self, function: ModelFunction) -> None:
        function.look_at_us = 0
        if not function.queue or not function.sleepers or function.paused or not self.handing_out:
            return
        if function.taken_us + self.neglect_us > self.now_us:
            self.wake(function)
            return
        for worker in list(function.sleepers):
            self.rouse(worker)
            worker.heard.append(("wake", worker.id))

    def grant(self, worker: ModelWorker, credit: int) -> None:
        worker.credits += credit
        self.fill(worker)

    def fill(self, worker: ModelWorker) -> None:
        while worker.credits and (job := self.best(worker)) is not None:
            worker.credits -= 1
            self.start_chosen(job, worker)
            worker.heard.append(("assign", worker.id, job.id))
        for function in worker.functions:
            if worker.credits and worker not in function.pushers:
                function.pushers.append(worker)
            elif not worker.credits and worker in function.pushers:
                function.pushers.remove(worker)

    def withdraw_credit(self, worker: ModelWorker) -> None:
        worker.credits = 0
        self.fill(worker)

    def push(self, function: ModelFunction) -> None:
        if function.paused or not self.handing_out:
            return
        worker = function.pushers[0]
        job = self.best_of(function)
        worker.credits -= 1
        for other in worker.functions:
            other.pushers.remove(worker)
            if worker.credits:
                other.pushers.append(worker)
        self.start(job, worker)
        worker.heard.append(("assign", worker.id, job.id))

    def offer(self, function: ModelFunction) -> None:
        while function.queue and function.pushers and not function.paused and self.handing_out:
            self.push(function)
        for _ in range(min(len(function.queue), len(function.sleepers))):
            self.wake(function)

    # --- reports: the job's id, or None if the worker does not have it ---

    def report(self, worker: ModelWorker, job_id: int, verb: str, delay_us: int = 0) -> int | None:
        job = next((job for job in worker.holds if job.id == job_id), None)
        if job is None:
            return None
        if job.worker is not worker:  # cancelled
            worker.holds.remove(job)
        elif verb == "complete":
            self.finish(job, Cause.SUCCEEDED, DONE)
        elif verb == "hand back":
            self.requeue(job, Cause.GIVEN_BACK)
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
        if job.state is not READY:
            return False
        self.finish(job, Cause.SETTLED, DONE)
        return True

    def cancel(self, job: ModelJob, cascade: bool) -> list[int]:
        ended = []
        pending = [job]
        while pending:
            current = pending.pop()
            if cascade:
                pending += [waiting for job_id, waiting in self.edges if job_id == current.id]
            if current.state in FINAL_STATES:
                continue
            worker = current.worker
            if worker is not None:
                worker.heard.append(("revoke", worker.id, current.id))
            self.finish(current, Cause.CANCELLED, CANCELLED)
            if worker is not None:
                worker.holds.append(current)
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
