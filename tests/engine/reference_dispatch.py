"""The part of the reference model in which workers ask for jobs and get them."""

from __future__ import annotations

from collections.abc import Iterator

from switchgear.model import BEST_FIRST, FINAL_STATES, RUNNING, Cause, JobState
from tests.engine.reference_words import ModelFunction, ModelJob, ModelWorker


class ModelDispatch:
    """Who gets which job, and who is woken."""

    def __init__(self, now_us: int, order: str, attempts: int, wakeups: int, unanswered_wakeup_us: int) -> None:
        self.now_us = now_us
        self.order = order
        self.attempts = attempts
        self.wakeups = wakeups
        self.unanswered_wakeup_us = unanswered_wakeup_us
        self.jobs: list[ModelJob] = []
        self.workers: list[ModelWorker] = []
        self.functions: list[ModelFunction] = []
        self.disappointing: list[ModelJob] = []  # ended without success; those that waited for them are to meet that
        self.edges: list[tuple[int, ModelJob]] = []  # who waits for whose id, in the order in which they began to
        self.refusal = ""
        self.handing_out = True
        self.serial = 0
        self.last_ticket = 0

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

    def move(self, job: ModelJob, cause: Cause, state: JobState) -> None:
        job.causes.append(cause)
        job.state = state
        self.serial += 1
        job.since = self.serial

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

    def set_tags(self, worker: ModelWorker, tags: frozenset[bytes]) -> None:
        if tags == worker.tags:
            return
        was_asleep, credit = worker.asleep, worker.credits
        self.rouse(worker)
        worker.credits = 0
        self.fill(worker)
        worker.tags, worker.credits = tags, credit
        if credit:
            self.fill(worker)
        if was_asleep and not self.sleep(worker):
            worker.heard.append(("wake", worker.id))
        if worker.woken_for is not None:
            self.pass_on(worker)

    def fitting(self, worker: ModelWorker, function: ModelFunction) -> list[ModelJob]:
        """The ready jobs of a function whose tags the worker has."""
        return [job for job in function.queue if job.requires <= worker.tags]

    def best(self, worker: ModelWorker) -> ModelJob | None:
        """The job that this worker should have."""
        able = [f for f in worker.functions if not f.paused and self.handing_out]
        open_functions = [f for f in able if self.fitting(worker, f)]
        if not open_functions:
            return None
        if self.order == "fair":
            chosen = min(open_functions, key=lambda f: BEST_FIRST.index(best_of(self.fitting(worker, f)).priority))
        else:
            chosen = open_functions[-1]
        if len(worker.functions) > 1:
            if self.order == "fair":  # served longest ago comes first
                worker.functions.remove(chosen)
                worker.functions.append(chosen)
            elif self.order == "round-robin":  # served last comes last, and the last is the first
                worker.functions.remove(chosen)
                worker.functions.insert(0, chosen)
        return best_of(self.fitting(worker, chosen))

    def start(self, job: ModelJob, worker: ModelWorker) -> None:
        job.function.queue.remove(job)
        self.move(job, Cause.TAKEN, RUNNING)
        job.attempts += 1
        if job.queued_only and not job.held_until_us:
            job.has_key = False
        job.worker = worker
        if job not in worker.holds:  # or else cancelled, not reported, retried, and here again
            worker.holds.append(job)
        job.function.taken_us = self.now_us
        timeout_us = job.timeout_us or worker.timeouts_us[job.function.name]
        job.limit_us = self.now_us + timeout_us if timeout_us else 0
        job.limit_since = job.since

    def take(self, worker: ModelWorker) -> ModelJob | None:
        self.rouse(worker)
        job = self.best(worker)
        if job is not None:
            self.start_chosen(job, worker)
        return job

    def take_of(self, worker: ModelWorker, function: ModelFunction, priority: int) -> ModelJob | None:
        self.rouse(worker)
        if function.paused or not self.handing_out or function not in worker.functions:
            return None
        for job in self.fitting(worker, function):
            if job.priority == priority:
                self.start_chosen(job, worker)
                return job
        return None

    def start_chosen(self, job: ModelJob, worker: ModelWorker) -> None:
        self.start(job, worker)
        if worker.woken_for is not None and worker.woken_for is not job.function:
            self.pass_on(worker)

    def sleep(self, worker: ModelWorker) -> bool:
        if self.handing_out and any(self.fitting(worker, f) and not f.paused for f in worker.functions):
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

    def wake(self, function: ModelFunction, requires: frozenset[bytes] | None = None) -> None:
        """Wake as many as one job is worth: of all jobs, or of those that require these tags, or for each kind."""
        if function.paused or not self.handing_out:
            return
        if not function.groups:
            self.wake_some(function, function.sleepers)
            return
        for group in [frozenset(), *function.groups] if requires is None else [requires]:
            if any(job.requires == group for job in function.queue):
                for _ in range(self.wakeups or len(function.sleepers)):
                    self.wake_some(function, first_fitting(function.sleepers, group))

    def wake_some(self, function: ModelFunction, sleepers: list[ModelWorker]) -> None:
        if sleepers and not function.look_at_us:
            function.look_at_us = self.now_us + self.unanswered_wakeup_us
        for worker in sleepers[: self.wakeups or None]:
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
        if function.taken_us + self.unanswered_wakeup_us > self.now_us:
            self.wake(function)
            return
        for worker in list(function.sleepers):
            if self.fitting(worker, function):
                self.rouse(worker)
                worker.heard.append(("wake", worker.id))

    def grant(self, worker: ModelWorker, credit: int) -> None:
        worker.credits += credit
        self.fill(worker)

    def grant_until(self, worker: ModelWorker, until_us: int) -> int:
        self.last_ticket += 1
        ticket = (self.last_ticket, until_us)
        worker.tickets.append(ticket)
        self.grant(worker, 1)
        return self.last_ticket if ticket in worker.tickets else 0

    def fill(self, worker: ModelWorker) -> None:
        while worker.credits and (job := self.best(worker)) is not None:
            worker.credits -= 1
            worker.tickets = worker.tickets[1:]
            self.start_chosen(job, worker)
            worker.heard.append(("assign", worker.id, job.id))
        for function in worker.functions:
            if worker.credits and worker not in function.pushers:
                function.pushers.append(worker)
            elif not worker.credits and worker in function.pushers:
                function.pushers.remove(worker)

    def withdraw_credit(self, worker: ModelWorker) -> None:
        worker.credits = 0
        worker.tickets = []
        self.fill(worker)

    def push(self, function: ModelFunction) -> bool:
        if function.paused or not self.handing_out:
            return False
        able = [job for job in function.queue if first_fitting(function.pushers, job.requires)]
        if not able:
            return False
        job = best_of(able)
        (worker,) = first_fitting(function.pushers, job.requires)
        worker.credits -= 1
        worker.tickets = worker.tickets[1:]
        for other in worker.functions:
            other.pushers.remove(worker)
            if worker.credits:
                other.pushers.append(worker)
        self.start(job, worker)
        worker.heard.append(("assign", worker.id, job.id))
        return True

    def offer_one(self, function: ModelFunction, requires: frozenset[bytes]) -> None:
        while function.queue and function.pushers and self.push(function):
            pass
        if function.queue and function.sleepers:
            self.wake(function, requires)

    def offer(self, function: ModelFunction) -> None:
        while function.queue and function.pushers and self.push(function):
            pass
        for _ in range(min(len(function.queue), len(function.sleepers))):
            asleep = len(function.sleepers)
            self.wake(function)
            if len(function.sleepers) == asleep:
                break


def best_of(jobs: list[ModelJob]) -> ModelJob:
    return min(jobs, key=lambda job: BEST_FIRST.index(job.priority))


def first_fitting(workers: list[ModelWorker], requires: frozenset[bytes]) -> list[ModelWorker]:
    """The worker that a job with this requirement goes to, if there is one: of those with tags, with the fewest."""
    fitting = [worker for worker in workers if requires <= worker.tags]
    if requires:
        fitting.sort(key=lambda worker: len(worker.tags))
    return fitting[:1]
