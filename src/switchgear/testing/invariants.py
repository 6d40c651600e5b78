"""`check_engine`: checks the invariants of an engine, which hold between any two calls.

The engine keeps the same facts in several tables, so that each lookup is fast. Here every fact is computed again the
slow way and compared. `check_engine` checks one moment; the simulation checks what spans several (logs that only grow,
promises).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NoReturn

from switchgear.engine.deadlines import LEAST_STALE_FOR_SWEEP, DeadlineKind
from switchgear.engine.dependencies import policy_of
from switchgear.engine.engine import Engine
from switchgear.engine.functions import FUNCTION_BYTES
from switchgear.engine.limiters import KEY_QUEUE_BYTES
from switchgear.engine.packed_queues import PACKED_JOB_BYTES
from switchgear.engine.requirements import GROUP_BYTES
from switchgear.engine.schedules import held_bytes
from switchgear.engine.token_bucket import tokens
from switchgear.engine.workers import ABILITY_BYTES, WORKER_BYTES
from switchgear.model import (
    BEST_FIRST,
    FINAL_STATES,
    READY,
    RUNNING,
    SCHEDULED,
    WAITING,
    EdgePolicy,
    Function,
    Job,
    KeyQueue,
    Limiter,
    Offer,
    PackedSegment,
    QueueGroup,
    ReadyQueue,
    Schedule,
    SegmentedQueue,
    UniqueScope,
    Worker,
)
from switchgear.model.job import place_of
from switchgear.resources import split_requirements

__all__ = ["BrokenInvariant", "check_engine"]


class BrokenInvariant(AssertionError):
    """An invariant of the engine does not hold."""


def broken(text: str) -> NoReturn:
    raise BrokenInvariant(text)


def check_engine(engine: Engine, unstored: Iterable[Job] | None = None) -> None:
    """Raise BrokenInvariant if two tables of the engine contradict each other.

    `unstored` has all finished jobs whose contents may not be dropped yet; without it, their memory is not known, and
    the memory account is not compared exactly.
    """
    for function in engine.functions.values():
        check_queues(function, engine)
    check_tables(engine)
    check_packed_queues(engine)
    check_workers(engine)
    if not len(engine.sliced_work):  # otherwise the end of a job may not have reached all that wait for it
        check_dependencies(engine)
    check_deadlines(engine)
    check_subscribers(engine)
    check_memory(engine, unstored)


# --- memory ---


def check_memory(engine: Engine, unstored: Iterable[Job] | None) -> None:
    """The bytes counted for jobs, schedules, limiters, functions and workers are what they hold."""
    check_registrations(engine)
    held = 0
    for job in engine.jobs.values():
        if not job.entry_bytes:
            broken(f"the contents of {job} are not counted")
        held += job.entry_bytes + job.content_bytes
    held += packed_bytes(engine)
    counted = engine.memory.job_bytes
    if unstored is None:
        if counted < held:
            broken(f"{counted} bytes are counted for jobs, and unfinished ones hold {held}")
        return
    ended = (job for job in unstored if job.entry_bytes and engine.jobs.get(job.id) is not job)
    held += sum(job.entry_bytes + job.content_bytes for job in ended)
    if counted != held:
        broken(f"{counted} bytes are counted for jobs, which hold {held}")


def check_registrations(engine: Engine) -> None:
    """The bytes counted for functions and workers; protocols may have added data of their peers."""
    memory = engine.memory
    held = sum(FUNCTION_BYTES + len(name) for name in engine.functions)
    held += sum(WORKER_BYTES + ABILITY_BYTES * len(worker.timeouts_us) for worker in engine.workers.values())
    if memory.registration_bytes < held:
        broken(f"{memory.registration_bytes} bytes are counted for functions and workers, which take {held}")
    held = sum(map(held_bytes, engine.schedules.values()))
    if memory.schedule_bytes != held:
        broken(f"{memory.schedule_bytes} bytes are counted for schedules, which take {held}")
    held = 0
    for function in engine.functions.values():
        if function.limiter is not None:
            for group in function.limiter.groups:
                held += sum(KEY_QUEUE_BYTES + len(key) for key in group.key_queues or ())
            held += sum(GROUP_BYTES + len(requires) for requires in function.limiter.requiring)
    if memory.limiter_bytes != held:
        broken(f"{memory.limiter_bytes} bytes are counted for the queues of keys, which take {held}")


def packed_bytes(engine: Engine) -> int:
    """The bytes counted for packed jobs."""
    size = PACKED_JOB_BYTES * engine.packed_queues.job_count
    for function in engine.packed_queues.functions:
        for rest in function.segmented:
            if rest is not None:
                packed = [segment for segment in rest.segments if isinstance(segment, PackedSegment)]
                size += sum(segment.packed_key_bytes() for segment in packed)
    return size


# --- jobs and functions ---


def check_tables(engine: Engine) -> None:
    total: Counter[Function] = Counter()
    running: Counter[Function] = Counter()
    waiting: Counter[Function] = Counter()
    names = 0
    for job in engine.unfinished_jobs():
        total[job.function] += 1
    for job in engine.jobs.values():
        function = job.function
        if engine.jobs.get(job.id) is not job or job.state in FINAL_STATES or job.withdrawn:
            broken(f"{job} is listed, and should not be")
        if engine.functions.get(function.name) is not function:
            broken(f"{job} is of a function that was dropped")
        if job.state is RUNNING:
            running[function] += 1
        if job.state is WAITING:
            waiting[function] += 1
        if job.name:
            names += 1
            if engine.names.get(job.name) is not job:
                broken(f"the name of {job} is not listed")
        check_attempts(engine, job)
        check_key(job)
    if names != len(engine.names):
        broken("a name is listed that no unfinished job has")
    for function in engine.functions.values():
        for key, job in function.uniques.items():
            if job.unique != key or job.function is not function:
                broken(f"{job} is listed under the unique key {key!r}")
            if engine.jobs.get(job.id) is not job and (job.state not in FINAL_STATES or not job.unique_until_us):
                broken(f"{job} has ended, and does not hold its unique key {key!r}")
    for name, function in engine.functions.items():
        counted = (name, function.total, function.running, function.waiting)
        if counted != (function.name, total[function], running[function], waiting[function]):
            broken(
                f"{function} counts {function.total} jobs, {function.running} running, {function.waiting} waiting; "
                f"there are {total[function]}, {running[function]}, {waiting[function]}"
            )


def check_attempts(engine: Engine, job: Job) -> None:
    limit = job.attempts_limit if job.attempts_limit >= 0 else engine.settings.attempts
    if limit and job.attempts - job.losses > limit:
        broken(f"{job} was started {job.attempts} times and lost {job.losses} times, {limit} attempts are allowed")
    if job.losses and not (job.crash_limit == 0 or job.losses < job.crash_limit):
        broken(f"{job} was lost {job.losses} times, the limit is {job.crash_limit}")
    if job.attempts < (1 if job.state is RUNNING else 0):
        broken(f"{job} counts {job.attempts} attempts")


def check_key(job: Job) -> None:
    """An unfinished job has its key, unless it was started and the scope of its key ends at the start."""
    gave_it_up = job.state is RUNNING and job.unique_scope == UniqueScope.QUEUED and not job.unique_until_us
    has_it = bool(job.unique) and job.function.uniques.get(job.unique) is job
    if has_it != (bool(job.unique) and not gave_it_up):
        broken(f"the unique key of {job} is {'' if has_it else 'not '}listed")
    if job.unique_until_us and not has_it:
        broken(f"{job} has no unique key, and holds it")


def check_queues(function: Function, engine: Engine) -> None:
    """Each ready job is in its queue once, and queues are in the order of places."""
    queued: list[int] = []
    for ready_queue in function.ready_queues():
        queued += check_ready_queue(ready_queue, function, engine)
    ready = sorted(job.id for job in engine.unfinished_jobs() if job.state is READY and job.function is function)
    if sorted(queued) != ready or function.ready != len(ready):
        broken(f"{function} counts {function.ready} ready, has {sorted(queued)} queued; ready are {ready}")
    if function.limiter is not None:
        check_limiter(function.limiter, engine)


def check_ready_queue(ready_queue: ReadyQueue, function: Function, engine: Engine) -> list[int]:
    """Check one queue; returns the ids of its jobs."""
    if ready_queue.is_segmented != any(rest is not None for rest in ready_queue.segmented):
        broken(f"{ready_queue} is segmented, and has no segments, or the other way round")
    ids: list[int] = []
    for priority, head in enumerate(ready_queue.queues):
        rest = ready_queue.segmented[priority]
        queue = [*head, *(rest.jobs_in_order() if rest is not None else ())]
        if rest is not None:
            check_segments(rest, priority, ready_queue, function, engine)
        for job in queue:
            if job.state is not READY or not is_listed(engine, job):
                broken(f"{job} is in queue {priority} of {ready_queue}")
            if job.priority != priority or job.function is not function:
                broken(f"{job} is in queue {priority} of {ready_queue}")
            if isinstance(ready_queue, KeyQueue) and job.key != ready_queue.key:
                broken(f"{job} of {job.key!r} is in {ready_queue}")
        places = [place_of(job) for job in queue]
        if places != sorted(set(places)):  # a restart must restore this order
            broken(f"{queue} stand in this order, and their places are {places}")
        if not isinstance(ready_queue, Function) and ready_queue.ready_of(priority) != len(queue):
            broken(f"{ready_queue} counts {ready_queue.ready_of(priority)} jobs of priority {priority}; it has {queue}")
        ids += [job.id for job in queue]
    return ids


# --- segments and packed jobs ---


def is_listed(engine: Engine, job: Job) -> bool:
    """Whether this is an unfinished job, or the copy of a packed one."""
    return engine.jobs.get(job.id) is job or (job.id not in engine.jobs and engine.has_job(job.id))


def check_segments(
    rest: SegmentedQueue, priority: int, ready_queue: ReadyQueue, function: Function, engine: Engine
) -> None:
    """Segments are in order, every packed job can be found by its id and its key, and the head is not empty."""
    if not ready_queue.queues[priority]:
        broken(f"queue {priority} of {ready_queue} has segments and no head")
    ids: list[int] = []
    for segment in rest.segments:
        jobs = list(segment.jobs_in_order())
        if not jobs or segment.entries != len(jobs) or segment.first_place > place_of(jobs[0]):
            broken(f"a segment of {function} counts {segment.entries} jobs from {segment.first_place}; it has {jobs}")
        if isinstance(segment, PackedSegment):
            if segment.function is not function or segment.priority != priority:
                broken(f"a segment of {segment.function} is among those of {function}")
            ids += check_packed(segment, function, engine)
    firsts = [segment.first_id for segment in rest.segments]
    first_places = [segment.first_place for segment in rest.segments]
    if ids != sorted(set(ids)) or firsts != sorted(firsts) or (ids and ids[-1] > rest.last_id):
        broken(f"the segments of {function} have jobs {ids} up to {rest.last_id}, and begin with {firsts}")
    if first_places != sorted(first_places):
        broken(f"the segments of {function} begin at {first_places}")
    if list(rest.to_pack) != list(rest.segments)[len(rest.segments) - len(rest.to_pack) :]:
        broken(f"the segments of {function} that may be packed are not its last")
    if rest.entries != sum(segment.entries for segment in rest.segments):
        broken(f"the segments of {function} count {rest.entries} jobs")


def check_packed(segment: PackedSegment, function: Function, engine: Engine) -> list[int]:
    """Check a packed segment; returns the ids of its packed jobs."""
    ids = []
    for index, job_id in enumerate(segment.ids):
        if index in segment.objects:
            continue
        ids.append(job_id)
        unique = segment.unique_at(index)
        if job_id < segment.first_id or job_id in engine.jobs or engine.look_at(job_id) is None:
            broken(f"job {job_id} is packed in a segment that begins with {segment.first_id}")
        if unique and (unique in function.uniques or not engine.has_holder(function, unique)):
            broken(f"the unique key of job {job_id} cannot be found, or is another's")
    return ids


def check_packed_queues(engine: Engine) -> None:
    """The number of packed jobs, their functions and their keys are right."""
    packed = 0
    functions: set[Function] = set()
    for function in engine.functions.values():
        keys = 0
        for rest in function.segmented:
            for segment in rest.segments if rest is not None else ():
                if isinstance(segment, PackedSegment):
                    functions.add(function)
                    indexes = [index for index in range(len(segment.ids)) if index not in segment.objects]
                    packed += len(indexes)
                    keys += sum(bool(segment.unique_at(index)) for index in indexes)
        if keys != sum(map(len, function.packed_keys)):
            broken(f"{function} has {keys} packed keys, and lists others")
        if bool(function.packed_keys) != (function in engine.packed_queues.functions):
            broken(f"{function} has tables of keys for nothing, or none")
    if engine.packed_queues.job_count != packed or not functions <= engine.packed_queues.functions.keys():
        broken(f"{packed} jobs of {functions} are packed, not {engine.packed_queues.job_count}")
    if any(not function.is_segmented for function in engine.packed_queues.functions):
        broken(f"of {list(engine.packed_queues.functions)} one has no segments")
    if engine.job_count() != sum(function.total for function in engine.functions.values()):
        broken(f"{engine.job_count()} jobs are counted")


# --- limits and key queues ---


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
    is_distributed = not len(engine.sliced_work)
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
    running = Counter(job.key for job in engine.jobs.values() if job.state is RUNNING and job.function is function)
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
    key_queues = list((group.key_queues or {}).values())
    by_priority = [sum(key_queue.ready_of(priority) for key_queue in key_queues) for priority in range(4)]
    if by_priority != group.ready:
        broken(f"{group} counts {group.ready} in key queues; there are {by_priority}")
    for key_queue in key_queues:
        if key_queue.owner is not key_queue and (
            not key_queue.ready or key_queue not in (key_queue.owner.requiring or ())
        ):
            broken(f"{key_queue} of {group} is remembered for nothing, or its owner does not know it")
    for priority, served in enumerate(group.round_robin):
        seated = {
            key_queue
            for key_queue in key_queues
            if key_queue.owner.is_open and key_queue.owner.revision == limiter.revision and key_queue.ready_of(priority)
        }
        if set(served) != seated:
            broken(f"of {group} {set(served)} are served with priority {priority}; {seated} should")


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


# --- workers ---


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
        if job.worker is not None and not job.worker.alive and len(engine.sliced_work):
            continue  # the jobs of a worker that is gone go back over several turns
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
        uses = {}
        for job in worker.running.values():
            amounts = split_requirements(job.requires)[1]
            if worker.resources and amounts:
                uses[job.id] = amounts
                for name, amount in amounts:
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
    if len(engine.sliced_work):
        return  # a change of limits may be at work, and offers jobs after some steps
    if function.ready and not function.paused and engine.handing_out and engine.limiters.is_open(function):
        is_left_by_policy = engine.wake_policy is not None and function.wakeup_check_pending
        could_be_pushed = any(could_be_given(engine, function, worker) for worker in function.pushers)
        if could_be_pushed and not is_left_by_policy:
            broken(f"{function} has {function.ready} ready jobs and a worker with credit")
        could_work = any(could_be_given(engine, function, worker) for worker in function.sleepers)
        if could_work and not function.wakeup_check_pending:
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


# --- dependencies ---


def check_dependencies(engine: Engine) -> None:
    dependencies = engine.dependencies
    edges: defaultdict[int, set[int]] = defaultdict(set)
    for job_id in dependencies.successors:
        waiting = dependencies.waiting_for(job_id)
        if not engine.has_job(job_id) and job_id not in dependencies.unsuccessful:
            broken(f"{waiting} wait for {job_id}, which nobody knows")
        if not waiting or len({job.id for job in waiting}) != len(waiting):
            broken(f"for {job_id} wait {waiting}")
        for job in waiting:
            if job.id in dependencies.linking or dependencies.is_unlinking(job):
                continue
            edges[job.id].add(job_id)
            if (
                engine.has_job(job_id)
                and policy_of(job, job_id) != EdgePolicy.WAIT
                and job_id not in dependencies.has_failure_policy
            ):
                broken(f"{job} minds how {job_id} ends, and nobody knows")
            if job.state is not WAITING or engine.jobs.get(job.id) is not job or job_id not in job.predecessors:
                broken(f"{job} waits for {job_id}")
    if not dependencies.has_failure_policy <= dependencies.successors.keys():
        forgotten = dependencies.has_failure_policy - dependencies.successors.keys()
        broken(f"{forgotten} are said to have edges with a policy, and no job waits for them")
    for job in engine.jobs.values():
        actual = edges[job.id]
        required, possible = waited_for(job, engine)
        if not required <= actual <= possible:
            broken(f"{job} waits for {actual}; it should for {required}, and may for {possible}")
        if job.blockers != len(actual) or (job.state is WAITING) != bool(actual):
            broken(f"{job} counts {job.blockers} blockers and has edges to {actual}")
        if job.delivery:
            for predecessor in job.predecessors:
                unfinished = engine.look_at(predecessor)
                if unfinished is not None and not unfinished.delivery:
                    broken(f"{job} will be kept, and job {predecessor} that it waits for will not")


def waited_for(job: Job, engine: Engine) -> tuple[set[int], set[int]]:
    """The predecessors that a job must wait for, and those that it may wait for.

    They differ by predecessors with the policy "run" that ended without success and were retried since.
    """
    if len(job.edges) not in (0, len(job.predecessors)):
        broken(f"{job} has {len(job.edges)} edges to {job.predecessors}")
    required, possible = set(), set()
    for job_id in job.predecessors:
        runs_anyway = policy_of(job, job_id) == EdgePolicy.RUN
        if job_id in failures_to_tell(engine):
            possible.add(job_id)
        if engine.has_job(job_id) or (job_id in engine.dependencies.unsuccessful and not runs_anyway):
            possible.add(job_id)
            if not runs_anyway:
                required.add(job_id)
    return required, possible


def failures_to_tell(engine: Engine) -> set[int]:
    """The failed jobs whose successors are processed in the next turn."""
    return {job.id for job in engine.pending_failures if job.state in FINAL_STATES}


# --- time ---


def check_deadlines(engine: Engine) -> None:
    entries: Counter[tuple[DeadlineKind, int, int]] = Counter()
    stale = 0
    for deadline in engine.deadlines:
        at_us, _, kind, subject, _ = deadline
        entries[kind, id(subject), at_us] += 1
        stale += not engine.deadline_dispatch.is_live(deadline)
    if stale > engine.deadlines.stale:
        broken(f"{stale} deadlines are stale, {engine.deadlines.stale} are counted")
    if len(engine.deadlines) > 2 * (len(engine.deadlines) - stale + LEAST_STALE_FOR_SWEEP):
        broken(f"of {len(engine.deadlines)} deadlines {stale} are stale")

    def expect(kind: DeadlineKind, subject: Job | Worker | Schedule | Limiter | KeyQueue, at_us: int) -> None:
        if not entries[kind, id(subject), at_us]:
            broken(f"nothing will happen to {subject} for {kind.name} at {at_us}")

    if engine.pending_failures:
        expect(DeadlineKind.FAILED_DEPENDENCY, engine.pending_failures[0], engine.now_us)
    limited = 0
    for job in engine.jobs.values():
        if job.state is SCHEDULED:
            expect(DeadlineKind.DUE, job, job.run_at_us)
        if job.expires_us and (job.state is not RUNNING or job.expires_us > engine.now_us):
            expect(DeadlineKind.EXPIRY, job, job.expires_us)
        will_be_told = job in engine.pending_failures or not failures_to_tell(engine).isdisjoint(job.predecessors)
        if (
            engine.dependencies.failed_dependency(job)
            and not will_be_told
            and not entries_for(engine, DeadlineKind.FAILED_DEPENDENCY, job)
        ):
            broken(f"{job} must not go on, and nobody will tell it")
        if job.run_limit:
            limited += 1
            if job.state is not RUNNING:
                broken(f"{job} has a time limit")
    if limited != sum(
        kind is DeadlineKind.RUN_LIMIT and engine.deadline_dispatch.is_live(d)
        for d in engine.deadlines
        for kind in [d[2]]
    ):
        broken(f"{limited} jobs have a time limit that nobody watches")
    for function in engine.functions.values():
        for job in function.uniques.values():
            if job.unique_until_us:
                expect(DeadlineKind.KEY_HELD, job, job.unique_until_us)
    for worker in engine.workers.values():
        if worker.lease_until_us:
            expect(DeadlineKind.LEASE, worker, worker.lease_check_us)
            if worker.lease_check_us > worker.lease_until_us:
                broken(f"the lease of {worker} is looked at too late")
        for until_us in (worker.tickets or {}).values():
            expect(DeadlineKind.WAIT_TIMEOUT, worker, until_us)
    for schedule in engine.schedules.values():
        if schedule.next_us != (schedule.timetable.next_after_us(schedule.reached_us) or 0):
            broken(f"{schedule} has met its ticks until {schedule.reached_us}, and its next is at {schedule.next_us}")
        if schedule.wake_us:
            expect(DeadlineKind.TICK, schedule, schedule.wake_us)
        elif schedule.next_us and not schedule.paused:
            broken(f"nobody will look at {schedule}")
    for function in engine.functions.values():
        if function.limiter is not None:
            looked_at: list[Limiter | KeyQueue] = [function.limiter, *(function.limiter.key_queues or {}).values()]
            for limiter in looked_at:
                if limiter.check_us:
                    expect(DeadlineKind.LIMITER, limiter, limiter.check_us)
    pending = sum(function.wakeup_check_pending for function in engine.functions.values())
    if pending != sum(
        kind is DeadlineKind.UNANSWERED_WAKEUP and engine.deadline_dispatch.is_live(d)
        for d in engine.deadlines
        for kind in [d[2]]
    ):
        broken(f"{pending} functions have a wakeup check pending, and another number of deadlines")


def entries_for(engine: Engine, kind: DeadlineKind, job: Job) -> int:
    return sum(each is kind and subject is job for _, _, each, subject, _ in engine.deadlines)


# --- subscribers ---


def check_subscribers(engine: Engine) -> None:
    """The jobs and the peers agree about subscriptions."""
    for job in engine.jobs.values():
        if job.subscribers is None:
            continue
        if not job.subscribers:
            broken(f"{job} has an empty list of subscribers")
        for subscriber in job.subscribers:
            if subscriber.subscriptions.get(job.id) is not job:
                broken(f"{job} has a subscriber that does not know")
            for other_id, other in subscriber.subscriptions.items():
                if (
                    engine.jobs.get(other_id) is not other
                    or not other.subscribers
                    or subscriber not in other.subscribers
                ):
                    broken(f"a peer believes to be subscribed to {other}")
