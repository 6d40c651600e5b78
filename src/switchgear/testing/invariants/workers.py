"""Invariants: workers and jobs agree who runs what, and no job lies idle while a worker waits for it."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain

from switchgear.engine.engine import Engine
from switchgear.engine.requirements import ELSEWHERE
from switchgear.engine.sliced_work import SlicedKind
from switchgear.model import BEST_FIRST, RUNNING, Function, Offer, Worker
from switchgear.resources import split_requirements
from switchgear.testing.invariants.broken_invariant import broken

__all__ = ["check_workers", "is_being_offered", "is_being_read"]


def check_workers(engine: Engine) -> None:
    held: Counter[int] = Counter()
    for worker_id, worker in engine.workers.items():
        if worker.id != worker_id or not worker.alive or worker.credits < 0:
            broken(f"{worker} is listed under {worker_id}, alive {worker.alive}, credits {worker.credits}")
        if worker.credits < len(worker.tickets or ()) and not engine.settings.jobs_per_worker:
            broken(f"{worker} has tickets {list(worker.tickets or ())}, and {worker.credits} credits")
        if len(worker.order) != len(set(worker.order)) or set(worker.order) != set(worker.timeouts_us):
            broken(f"{worker} has functions {worker.order} in order and {list(worker.timeouts_us)} with limits")
        for job_id, job in worker.running.items():
            if job.id != job_id:
                broken(f"{worker} holds {job} as {job_id}")
            if job.worker is worker:
                held[job_id] += 1
                if job.state is not RUNNING or engine.jobs.get(job_id) is not job:
                    broken(f"{worker} holds {job}")
    for job in engine.jobs.values():
        if job.worker is not None and engine.sliced_work.is_pending(SlicedKind.REQUEUE, job.worker):
            if job.worker.alive or job.state is not RUNNING:
                broken(f"{job} goes back, and should not")
            continue  # its worker is gone, and its turn has not come yet
        if (job.state is RUNNING) != (job.worker is not None) or held[job.id] != (job.state is RUNNING):
            broken(f"{job} is held {held[job.id]} times, last by {job.worker}")
    check_offers(engine)
    for function in engine.functions.values():
        check_workers_of(function, engine)


def check_offers(engine: Engine) -> None:
    """Each worker offers its tags and what its jobs leave free, shares that with its equals, and has enough for all."""
    offers: Counter[Offer] = Counter()
    for worker in engine.workers.values():
        free = dict(worker.resources)
        uses = {job_id: amounts for job_id, amounts in (worker.uses or {}).items() if job_id == ELSEWHERE}
        for job in worker.running.values():
            amounts = split_requirements(job.requires)[1]
            if worker.resources and amounts:
                uses[job.id] = amounts
        for name, amount in chain.from_iterable(uses.values()):
            if name in free:
                free[name] -= amount
        if (worker.uses or {}) != uses:
            broken(f"{worker} counts {worker.uses} in use; its jobs use {uses}")
        if worker.offer is None:
            if worker.tags or worker.resources:
                broken(f"{worker} offers nothing, and has {worker.tags} and {worker.resources}")
            continue
        offers[worker.offer] += 1
        if (worker.offer.tags, worker.offer.free) != (worker.tags, free):
            broken(f"{worker} offers {worker.offer.tags} and {worker.offer.free}; it has {worker.tags} and {free}")
    if {offer: offer.workers for offer in engine.requirements.offers()} != offers:
        broken(f"other offers are remembered than {offers}")


def could_be_given(engine: Engine, function: Function, worker: Worker) -> bool:
    """Whether there is a job for this worker, and its payload is not being read."""
    job = engine.ready_queues.first(function, worker)
    return job is not None and not (job.payload is None and function.unloaded is not None)


def is_being_read(function: Function) -> bool:
    """Whether the payload of a job is being read that is next for some worker."""
    if function.limiter is not None and function.limiter.requiring:
        return True  # of some group
    heads = (next(function.next_entries(priority), None) for priority in BEST_FIRST)
    return any(job is not None and job.payload is None for job in heads)


def is_being_offered(engine: Engine, function: Function) -> bool:
    """Whether workers are being told of jobs that may run, and not all that could run them were told yet."""
    kinds = (SlicedKind.LIMITS, SlicedKind.OFFER, SlicedKind.WAKE_ALL)
    return any(engine.sliced_work.is_pending(kind, function) for kind in kinds)


def check_workers_of(function: Function, engine: Engine) -> None:
    able = {worker for worker in engine.workers.values() if function in worker.timeouts_us}
    if set(function.workers) != able:
        broken(f"{function} lists {set(function.workers)}; able are {able}")
    check_waiting_workers(function, able)
    for workers, offering in (
        (function.sleepers, function.offering_sleepers),
        (function.pushers, function.offering_pushers),
    ):
        by_offer: defaultdict[Offer, set[Worker]] = defaultdict(set)
        for worker in workers:
            if worker.offer is not None:
                by_offer[worker.offer].add(worker)
        if {offer: set(listed) for offer, listed in offering.items()} != by_offer:
            broken(f"{function} has {by_offer} by what they offer, and lists {offering}")
    if is_being_offered(engine, function):
        return
    if function.ready and not function.paused and engine.handing_out and engine.limiters.is_open(function):
        is_left_by_policy = engine.wake_policy is not None and function.wakeup_check_pending
        could_be_pushed = any(could_be_given(engine, function, worker) for worker in function.pushers)
        if could_be_pushed and not is_left_by_policy:
            broken(f"{function} has {function.ready} ready jobs and a worker with credit")
        could_work = any(could_be_given(engine, function, worker) for worker in function.sleepers)
        # A job that was next for a group of requirements may be held back by its key meanwhile: when its payload has
        # been read, workers are woken for the one behind it.
        is_waiting = function.unloaded is not None and is_being_read(function)
        if could_work and not function.wakeup_check_pending and not is_waiting:
            broken(f"{function} has {function.ready} ready jobs and sleepers, and nobody will look again")
        for priority in BEST_FIRST if function.by_priority is not None else ():
            assert function.by_priority is not None
            head = next(function.next_entries(priority), None)
            if not engine.limiters.offers(function, priority) or head is None or head.payload is None:
                continue
            if function.unloaded is not None and is_being_read(function):
                continue  # then it is offered, with all jobs behind it
            offers = engine.limiters.offers
            pushers = function.by_priority.pushers[priority]
            if any(offers(function, priority, worker) for worker in pushers) and not is_left_by_policy:
                broken(f"{function} has jobs of priority {priority} and a worker with credit for these")
            could_work = any(offers(function, priority, worker) for worker in function.by_priority.sleepers[priority])
            if could_work and not function.wakeup_check_pending:
                broken(f"{function} has jobs of priority {priority} and sleepers, and nobody will look again")


def check_waiting_workers(function: Function, able: set[Worker]) -> None:
    """Each waiting worker is in the lists of the priorities that it takes, and in no others."""
    unlimited = {worker for worker in able if worker.priorities is None or function not in worker.priorities}
    if set(function.sleepers) != {worker for worker in unlimited if worker.asleep}:
        broken(f"{function} lists sleepers {set(function.sleepers)}")
    if set(function.pushers) != {worker for worker in unlimited if worker.credits}:
        broken(f"{function} lists pushers {set(function.pushers)}")
    limited = able - unlimited
    waiters = function.by_priority
    if (waiters.workers if waiters is not None else 0) != len(limited):
        broken(f"{function} counts {waiters and waiters.workers} workers with priorities; there are {len(limited)}")
    for priority in BEST_FIRST if waiters is not None else ():
        assert waiters is not None
        takers = {worker for worker in limited if priority in (worker.priorities or {}).get(function, ())}
        if set(waiters.sleepers[priority]) != {worker for worker in takers if worker.asleep}:
            broken(f"{function} lists sleepers {set(waiters.sleepers[priority])} for priority {priority}")
        if set(waiters.pushers[priority]) != {worker for worker in takers if worker.credits}:
            broken(f"{function} lists pushers {set(waiters.pushers[priority])} for priority {priority}")
