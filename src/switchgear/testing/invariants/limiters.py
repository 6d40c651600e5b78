"""Invariants: limiters count what runs, and exactly the key queues that may be served are listed."""

from __future__ import annotations

from collections import Counter

from switchgear.engine.engine import Engine
from switchgear.engine.sliced_work import SlicedKind
from switchgear.engine.token_bucket import tokens
from switchgear.model import RUNNING, KeyQueue, Limiter, QueueGroup
from switchgear.testing.invariants.broken_invariant import broken

__all__ = ["check_limiter"]


def check_limiter(limiter: Limiter, engine: Engine) -> None:
    """Key queues from which a job may be assigned are listed, no others are, and none is kept without a reason."""
    function, policy, key_queues = limiter.function, limiter.policy, limiter.key_queues
    check_groups(limiter, engine)
    is_needed = bool(policy or limiter.requiring or limiter.is_draining)
    has_key_queues = policy.tells_keys_apart or limiter.is_draining
    if function.limiter is not limiter or not is_needed or (key_queues is not None) != has_key_queues:
        broken(f"{function} has a limiter for {policy}")
    if limiter.has_room:
        broken(f"a job of {function} has left, and its room was not offered")
    if policy.rate is not None and not tokens(limiter.full_at, policy.rate, engine.now_us) and not limiter.check_us:
        broken(f"the bucket of {function} is empty, and nobody will look again")
    if key_queues is None:
        return
    # While the change of its limits is at work: not all jobs are in the queues of their keys, not all key queues were
    # reviewed, and not all running jobs were counted.
    is_distributed = not engine.sliced_work.is_pending(SlicedKind.LIMITS, function)
    if is_distributed and limiter.is_reviewing:
        broken(f"nobody reviews the key queues of {function}")
    is_draining_needed = limiter.keyed_jobs or not is_distributed or function.running
    if limiter.is_draining and (policy.tells_keys_apart or not is_draining_needed):
        broken(f"{function} has key queues for nothing")
    if limiter.keyed_jobs != sum(sum(group.ready) for group in limiter.groups):
        broken(f"{function} counts {limiter.keyed_jobs} jobs in key queues")
    has_others = any(any(group.queue.queues) for group in limiter.groups) or function.is_segmented
    if is_distributed and has_others and not limiter.is_draining:
        broken(f"{function} has key queues, and jobs beside them")
    running = Counter(
        job.key
        for job in engine.jobs.values()
        if job.state is RUNNING
        and job.function is function
        and job.worker is not None
        and job.worker.id not in limiter.uncounted_workers
        and job.id not in limiter.uncounted_jobs
    )
    if limiter.is_counting() and (is_distributed or (limiter.keyed_jobs and not limiter.is_draining)):
        broken(f"not all running jobs of {function} are counted, and nobody does it, or others may run")
    if {key: key_queue.running for key, key_queue in key_queues.items() if key_queue.running} != running:
        broken(f"the key queues of {function} count others than {running} running")
    for key, key_queue in key_queues.items():
        if key_queue.key != key or key_queue.function is not function:
            broken(f"{key_queue} is listed under {key!r}")
        check_key_queue(limiter, key_queue, engine)
    waiting = sum(bool(key and key_queue.ready) for key, key_queue in key_queues.items())
    if waiting != limiter.keys_waiting:
        broken(f"{function} counts ready jobs of {limiter.keys_waiting} keys; there are {waiting}")
    for group in limiter.groups:
        check_key_queues(limiter, group)


def check_groups(limiter: Limiter, engine: Engine) -> None:
    """There is a group for each set of requirements of unfinished jobs, and each job is in its own."""
    function = limiter.function
    unfinished = [job for job in engine.jobs.values() if job.function is function]
    required = Counter(job.requires for job in unfinished if job.requires)
    if {requires: group.unfinished for requires, group in limiter.requiring.items()} != required:
        broken(f"{function} has groups {limiter.requiring}; its jobs require {required}")
    if limiter.groups != [limiter, *limiter.requiring.values()]:
        broken(f"{function} lists groups {limiter.groups}; it has {limiter.requiring}")
    for offer, groups in limiter.fitting.items():
        if groups != [group for group in limiter.groups if offer.fits(group)]:
            broken(f"{function} gives workers with {offer.tags} and {offer.free} jobs of {groups}")
    if limiter.freed:
        broken(f"{limiter.freed} have resources that were not offered")
    for group in limiter.groups:
        for ready_queue in group.ready_queues():
            for queue in ready_queue.queues:
                if any(job.requires != group.requires for job in queue):
                    broken(f"{queue} are in {group}")


def check_key_queues(limiter: Limiter, group: QueueGroup) -> None:
    """Exactly the open and reviewed key queues of a group that have jobs are listed."""
    key_queues = list(group.key_queues.values()) if group.key_queues is not None else []
    by_priority = [sum(key_queue.ready_of(priority) for key_queue in key_queues) for priority in range(4)]
    if by_priority != group.ready:
        broken(f"{group} counts {group.ready} in key queues; there are {by_priority}")
    for key_queue in key_queues:
        if key_queue.owner is not key_queue and (
            not key_queue.ready or key_queue not in (key_queue.owner.requiring or ())
        ):
            broken(f"{key_queue} of {group} is remembered for nothing, or its owner does not know it")
    for priority, order in enumerate(group.order):
        served = list(order.in_order())
        seated = {
            key_queue
            for key_queue in key_queues
            if key_queue.owner.is_open and key_queue.owner.revision == limiter.revision and key_queue.ready_of(priority)
        }
        if set(served) != seated or len(served) != len(order):
            broken(f"of {group} {served} are served with priority {priority}; {seated} should")
        turns = [key_queue.turns[priority] for key_queue in served]
        numbers = [turn.number for turn in turns if turn is not None and order.has(turn)]
        if len(numbers) != len(served) or numbers != sorted(numbers):
            broken(f"of {group} {served} are served with priority {priority}, in the order of {numbers}")
        if any(key_queue.turns[priority] is not None for key_queue in key_queues if not key_queue.ready_of(priority)):
            broken(f"a key queue of {group} without jobs of priority {priority} has a turn")


def check_key_queue(limiter: Limiter, key_queue: KeyQueue, engine: Engine) -> None:
    rate = limiter.policy.key_rate if key_queue.key else None
    available = tokens(key_queue.full_at, rate, engine.now_us) if rate is not None else 1
    is_full = rate is None or available == rate[0]
    is_busy = bool(key_queue.key) and 0 < limiter.policy.key_concurrency <= key_queue.running
    all_of_key = (key_queue, *(key_queue.requiring or ()))
    if key_queue.ready != sum(each.ready_of(priority) for each in all_of_key for priority in range(4)):
        broken(f"{key_queue} counts {key_queue.ready} ready")
    if key_queue.revision != limiter.revision:
        return
    if key_queue.is_open != (available > 0 and not is_busy):
        state = "open" if key_queue.is_open else "closed"
        broken(f"{key_queue} is {state}, with {available} tokens and {key_queue.running} running")
    is_idle = not (key_queue.ready or key_queue.running)
    if is_idle and is_full:
        broken(f"{key_queue} is remembered for nothing")
    if (not available or is_idle) and not key_queue.check_us:
        broken(f"{key_queue} has {available} tokens, and nobody will look again")
