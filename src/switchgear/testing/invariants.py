"""What must be true of an engine between any two commands.

The engine keeps the same facts in several tables, because each question has to be answered at once.  Here every fact is
counted again the slow way and compared.  `check_engine` looks at one moment; what spans moments (logs that only grow,
promises that are kept) is the simulation's to watch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NoReturn

from switchgear.engine.core import FUNCTION_BYTES
from switchgear.engine.deadlines import LEAST_STALE_FOR_REBUILD, Kind
from switchgear.engine.dispatch import ABILITY_BYTES, WORKER_BYTES
from switchgear.engine.engine import Engine
from switchgear.engine.gates import tokens
from switchgear.engine.graph import policy_of
from switchgear.engine.queues import place_of
from switchgear.engine.schedules import held_bytes
from switchgear.engine.shelves import SHELVED_BYTES, entries_on
from switchgear.model import (
    FINAL_STATES,
    READY,
    RUNNING,
    SCHEDULED,
    WAITING,
    EdgePolicy,
    Function,
    Gate,
    Job,
    Lane,
    Line,
    Rack,
    Schedule,
    UniqueScope,
    Worker,
)

__all__ = ["BrokenInvariant", "check_engine"]


class BrokenInvariant(AssertionError):
    """Something is true of an engine that never should be."""


def broken(text: str) -> NoReturn:
    raise BrokenInvariant(text)


def check_engine(engine: Engine, unstored: Iterable[Job] | None = None) -> None:
    """Raise BrokenInvariant if two tables of the engine contradict each other.

    `unstored` has all jobs that ended and whose contents were perhaps not dropped yet; without it, what is held for
    them is not known, and memory is not counted as exactly.
    """
    for function in engine.functions.values():
        check_queues(function, engine)
    check_tables(engine)
    check_storeroom(engine)
    check_workers(engine)
    check_graph(engine)
    check_deadlines(engine)
    check_watchers(engine)
    check_memory(engine, unstored)


# --- memory ---


def check_memory(engine: Engine, unstored: Iterable[Job] | None) -> None:
    """What is counted for jobs is what they hold, and the same for schedules, functions and workers."""
    check_registrations(engine)
    held = 0
    for job in engine.jobs.values():
        if not job.entry_bytes:
            broken(f"the contents of {job} are not counted")
        held += job.entry_bytes + job.content_bytes
    held += shelved_bytes(engine)
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
    """What is counted for functions and workers; protocols may have added what they know of their peers."""
    memory = engine.memory
    held = sum(FUNCTION_BYTES + len(name) for name in engine.functions)
    held += sum(WORKER_BYTES + ABILITY_BYTES * len(worker.timeouts_us) for worker in engine.workers.values())
    if memory.registration_bytes < held:
        broken(f"{memory.registration_bytes} bytes are counted for functions and workers, which take {held}")
    held = sum(map(held_bytes, engine.schedules.values()))
    if memory.schedule_bytes != held:
        broken(f"{memory.schedule_bytes} bytes are counted for schedules, which take {held}")


def shelved_bytes(engine: Engine) -> int:
    """What is counted for jobs that are no objects."""
    size = SHELVED_BYTES * engine.storeroom.jobs
    for function in engine.storeroom.functions:
        for rack in function.racks:
            if rack is not None:
                size += sum(shelf.plain_key_bytes() for shelf in rack.shelves)
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
    if job.losses and not (job.losses_limit == 0 or job.losses < job.losses_limit):
        broken(f"{job} was lost {job.losses} times, the limit is {job.losses_limit}")
    if job.attempts < (1 if job.state is RUNNING else 0):
        broken(f"{job} counts {job.attempts} attempts")


def check_key(job: Job) -> None:
    """An unfinished job has its key, unless it was started and its key's scope ends there."""
    gave_it_up = job.state is RUNNING and job.unique_scope == UniqueScope.QUEUED and not job.unique_until_us
    has_it = bool(job.unique) and job.function.uniques.get(job.unique) is job
    if has_it != (bool(job.unique) and not gave_it_up):
        broken(f"the unique key of {job} is {'' if has_it else 'not '}listed")
    if job.unique_until_us and not has_it:
        broken(f"{job} has no unique key, and holds it")


def check_queues(function: Function, engine: Engine) -> None:
    """Each ready job has exactly one live entry, before or behind all its ghosts, and they stand in order."""
    live: set[int] = set()
    for line in function.lines():
        live |= check_line(line, function, engine)
    ready = {job.id for job in engine.unfinished_jobs() if job.state is READY and job.function is function}
    if live != ready or function.ready != len(ready):
        broken(f"{function} counts {function.ready} ready, has {sorted(live)} queued; ready are {sorted(ready)}")
    if function.gate is not None:
        check_gate(function.gate, engine)


def check_line(line: Line, function: Function, engine: Engine) -> set[int]:
    """The ids of the jobs in line."""
    live: set[int] = set()
    for priority, head in enumerate(line.queues):
        rack = line.racks[priority] if isinstance(line, Function) else None
        queue = [*head, *entries_on(rack)]
        if rack is not None:
            check_rack(rack, priority, function, engine)
        if not queue and not line.ghosts[priority]:
            continue
        entries = Counter(queue)
        ghosts = 0
        for job, count in entries.items():
            is_ready = job.state is READY and is_listed(engine, job)
            ghosts += job.ghosts
            if count != job.ghosts + is_ready or job.priority != priority or job.function is not function:
                broken(f"{job} is {count} times in queue {priority} of {line}, with {job.ghosts} ghosts")
            if isinstance(line, Lane) and job.key != line.key:
                broken(f"{job} of {job.key!r} is in {line}")
            if is_ready:
                live.add(job.id)
        check_places([job for job in queue if is_listed(engine, job) and job.state is READY])
        if line.ghosts[priority] != ghosts:
            broken(f"queue {priority} of {line} counts {line.ghosts[priority]} ghosts; there are {ghosts}")
    return live


def check_places(entries: list[Job]) -> None:
    """These are the entries of ready jobs, and ghosts of theirs.  Who is where is what a restart has to find again."""
    last = {job: place for place, job in enumerate(entries)}
    first = {job: place for place, job in reversed(list(enumerate(entries)))}
    standing = sorted(last, key=lambda job: first[job] if job.rank < 0 else last[job])
    if standing != sorted(standing, key=place_of):
        broken(f"{standing} stand in this order, and their places are {[place_of(job) for job in standing]}")


# --- what is put away ---


def is_listed(engine: Engine, job: Job) -> bool:
    """Whether this is an unfinished job, or the copy of one that is put away."""
    return engine.jobs.get(job.id) is job or (job.id not in engine.jobs and engine.has_job(job.id))


def check_rack(rack: Rack, priority: int, function: Function, engine: Engine) -> None:
    """Shelves are in order, every plain job can be found by its id and its key, and the head is not empty."""
    if not function.queues[priority] or not function.has_racks or function not in engine.storeroom.functions:
        broken(f"queue {priority} of {function} has shelves and no head, or nobody knows of them")
    ids: list[int] = []
    entries = 0
    for shelf in rack.shelves:
        if shelf.function is not function or shelf.priority != priority:
            broken(f"a shelf of {shelf.function} is among those of {function}")
        entries += sum(shelf.objects.get(place, shelf) is not None for place in range(len(shelf.ids)))
        for place, job_id in enumerate(shelf.ids):
            if place in shelf.objects:
                continue
            ids.append(job_id)
            unique = shelf.unique_at(place)
            if job_id < shelf.first_id or job_id in engine.jobs or engine.look_at(job_id) is None:
                broken(f"job {job_id} is on a shelf that begins with {shelf.first_id}")
            if unique and (unique in function.uniques or not engine.has_holder(function, unique)):
                broken(f"the unique key of job {job_id} cannot be found, or is another's")
    firsts = [shelf.first_id for shelf in rack.shelves]
    if ids != sorted(set(ids)) or firsts != sorted(firsts) or (ids and ids[-1] > rack.last_id):
        broken(f"the shelves of {function} have jobs {ids} up to {rack.last_id}, and begin with {firsts}")
    if rack.entries != entries:
        broken(f"the shelves of {function} count {rack.entries} entries; there are {entries}")


def check_storeroom(engine: Engine) -> None:
    """The engine knows how many jobs are put away, of which functions, and their keys."""
    shelved = 0
    racked: set[Function] = set()
    for function in engine.functions.values():
        keys = 0
        for rack in function.racks:
            if rack is None:
                continue
            racked.add(function)
            for shelf in rack.shelves:
                places = [place for place in range(len(shelf.ids)) if place not in shelf.objects]
                shelved += len(places)
                keys += sum(bool(shelf.unique_at(place)) for place in places)
        if function.has_racks != (function in racked) or keys != sum(map(len, function.shelved_keys)):
            broken(f"{function} has {keys} keys on shelves, and lists others")
        if bool(function.shelved_keys) != function.has_racks:
            broken(f"{function} has tables of keys for nothing, or none")
    if engine.storeroom.jobs != shelved or set(engine.storeroom.functions) != racked:
        broken(f"{shelved} jobs of {racked} are put away, not {engine.storeroom.jobs}")
    if engine.job_count() != sum(function.total for function in engine.functions.values()):
        broken(f"{engine.job_count()} jobs are counted")


# --- limits, and keys in turn ---


def check_gate(gate: Gate, engine: Engine) -> None:
    """Whoever may run has his turn, nobody else has, and nothing is remembered for nothing."""
    function, policy, lanes = gate.function, gate.policy, gate.lanes
    if function.gate is not gate or not policy or (lanes is not None) != policy.tells_keys_apart:
        broken(f"{function} has a gate for {policy}")
    if gate.has_room:
        broken(f"a job of {function} has left, and its room was not offered")
    if policy.rate is not None and not tokens(gate.full_at, policy.rate, engine.now_us) and not gate.check_us:
        broken(f"the bucket of {function} is empty, and nobody will look again")
    if lanes is None:
        return
    if any(any(queue) for queue in function.queues) or function.has_racks:
        broken(f"{function} has lanes, and jobs beside them")
    running = Counter(job.key for job in engine.jobs.values() if job.state is RUNNING and job.function is function)
    if {key: lane.running for key, lane in lanes.items() if lane.running} != running:
        broken(f"the lanes of {function} count others than {running} running")
    for key, lane in lanes.items():
        if lane.key != key or lane.function is not function:
            broken(f"{lane} is listed under {key!r}")
        check_lane(gate, lane, engine)
    by_priority = [sum(lane.ready_of(priority) for lane in lanes.values()) for priority in range(4)]
    waiting = sum(bool(key and lane.ready) for key, lane in lanes.items())
    if by_priority != gate.ready or waiting != gate.keys_waiting:
        broken(f"{function} counts {gate.ready} in lanes, of {gate.keys_waiting} keys; there are {by_priority}")
    for priority, turns in enumerate(gate.turns):
        seated = {lane for lane in lanes.values() if lane.is_open and lane.ready_of(priority)}
        if set(turns) != seated:
            broken(f"of {function} {set(turns)} have turns with priority {priority}; {seated} should")


def check_lane(gate: Gate, lane: Lane, engine: Engine) -> None:
    rate = gate.policy.key_rate if lane.key else None
    available = tokens(lane.full_at, rate, engine.now_us) if rate is not None else 1
    is_full = rate is None or available == rate[0]
    is_busy = bool(lane.key) and 0 < gate.policy.key_concurrency <= lane.running
    if lane.ready != sum(lane.ready_of(priority) for priority in range(4)):
        broken(f"{lane} counts {lane.ready} ready")
    if lane.is_open != (available > 0 and not is_busy):
        broken(f"{lane} is {'open' if lane.is_open else 'closed'}, with {available} tokens and {lane.running} running")
    is_idle = not (lane.ready or lane.running)
    if is_idle and is_full:
        broken(f"{lane} is remembered for nothing")
    if (not available or is_idle) and not lane.check_us:
        broken(f"{lane} has {available} tokens, and nobody will look again")


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
        if (job.state is RUNNING) != (job.worker is not None) or held[job.id] != (job.state is RUNNING):
            broken(f"{job} is held {held[job.id]} times, last by {job.worker}")
    for function in engine.functions.values():
        check_workers_of(function, engine)


def check_workers_of(function: Function, engine: Engine) -> None:
    able = {worker for worker in engine.workers.values() if function in worker.timeouts_us}
    if set(function.workers) != able:
        broken(f"{function} lists {set(function.workers)}; able are {able}")
    if set(function.sleepers) != {worker for worker in able if worker.asleep}:
        broken(f"{function} lists sleepers {set(function.sleepers)}")
    if set(function.pushers) != {worker for worker in able if worker.credits}:
        broken(f"{function} lists pushers {set(function.pushers)}")
    if function.ready and not function.paused and engine.handing_out and engine._is_open(function):
        if function.pushers:
            broken(f"{function} has {function.ready} ready jobs and a worker with credit")
        if function.sleepers and not function.watched:
            broken(f"{function} has {function.ready} ready jobs and sleepers, and nobody will look again")


# --- who waits for whom ---


def check_graph(engine: Engine) -> None:
    graph = engine.graph
    edges: defaultdict[int, set[int]] = defaultdict(set)
    for job_id in graph.successors:
        waiting = graph.waiting_for(job_id)
        if not engine.has_job(job_id) and job_id not in graph.unsuccessful:
            broken(f"{waiting} wait for {job_id}, which nobody knows")
        if not waiting or len({job.id for job in waiting}) != len(waiting):
            broken(f"for {job_id} wait {waiting}")
        for job in waiting:
            edges[job.id].add(job_id)
            if engine.has_job(job_id) and policy_of(job, job_id) != EdgePolicy.WAIT and job_id not in graph.minded:
                broken(f"{job} minds how {job_id} ends, and nobody knows")
            if job.state is not WAITING or engine.jobs.get(job.id) is not job or job_id not in job.predecessors:
                broken(f"{job} waits for {job_id}")
    if not graph.minded <= graph.successors.keys():
        broken(f"nobody waits for {graph.minded - graph.successors.keys()}, and somebody minds how they end")
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
    """What a job must wait for, and what it may wait for.

    They differ by jobs that it would rather run without, that ended without success, and that were retried since.
    """
    if len(job.edges) not in (0, len(job.predecessors)):
        broken(f"{job} has {len(job.edges)} edges to {job.predecessors}")
    required, possible = set(), set()
    for job_id in job.predecessors:
        runs_anyway = policy_of(job, job_id) == EdgePolicy.RUN
        if job_id in let_down_by(engine):
            possible.add(job_id)
        if engine.has_job(job_id) or (job_id in engine.graph.unsuccessful and not runs_anyway):
            possible.add(job_id)
            if not runs_anyway:
                required.add(job_id)
    return required, possible


def let_down_by(engine: Engine) -> set[int]:
    """The jobs that have ended, and of whom those that wait for them will hear in the next turn."""
    return {job.id for job in engine.backlog.failed if job.state in FINAL_STATES}


# --- time ---


def check_deadlines(engine: Engine) -> None:
    entries: Counter[tuple[Kind, int, int]] = Counter()
    stale = 0
    for deadline in engine.deadlines:
        at_us, _, kind, subject, _ = deadline
        entries[kind, id(subject), at_us] += 1
        stale += not engine._is_live(deadline)
    if stale > engine.deadlines.stale:
        broken(f"{stale} deadlines are stale, {engine.deadlines.stale} are counted")
    if len(engine.deadlines) > 2 * (len(engine.deadlines) - stale + LEAST_STALE_FOR_REBUILD):
        broken(f"of {len(engine.deadlines)} deadlines {stale} are stale")

    def expect(kind: Kind, subject: Job | Worker | Schedule | Gate | Lane, at_us: int) -> None:
        if not entries[kind, id(subject), at_us]:
            broken(f"nothing will happen to {subject} for {kind.name} at {at_us}")

    if engine.backlog.failed:
        expect(Kind.DOOM, engine.backlog.failed[0], engine.now_us)
    limited = 0
    for job in engine.jobs.values():
        if job.state is SCHEDULED:
            expect(Kind.DUE, job, job.run_at_us)
        if job.expires_us and (job.state is not RUNNING or job.expires_us > engine.now_us):
            expect(Kind.EXPIRY, job, job.expires_us)
        will_be_told = job in engine.backlog.failed or not let_down_by(engine).isdisjoint(job.predecessors)
        if engine.graph.doom_of(job) and not will_be_told and not entries_for(engine, Kind.DOOM, job):
            broken(f"{job} must not go on, and nobody will tell it")
        if job.run_limit:
            limited += 1
            if job.state is not RUNNING:
                broken(f"{job} has a time limit")
    if limited != sum(kind is Kind.RUN_LIMIT and engine._is_live(d) for d in engine.deadlines for kind in [d[2]]):
        broken(f"{limited} jobs have a time limit that nobody watches")
    for function in engine.functions.values():
        for job in function.uniques.values():
            if job.unique_until_us:
                expect(Kind.KEY_HELD, job, job.unique_until_us)
    for worker in engine.workers.values():
        if worker.lease_until_us:
            expect(Kind.LEASE, worker, worker.lease_check_us)
            if worker.lease_check_us > worker.lease_until_us:
                broken(f"the lease of {worker} is looked at too late")
        for until_us in (*(worker.tickets or {}).values(), *(worker.alarms or {}).values()):
            expect(Kind.PATIENCE, worker, until_us)
    for schedule in engine.schedules.values():
        if schedule.next_us != (schedule.timetable.next_after_us(schedule.reached_us) or 0):
            broken(f"{schedule} has met its ticks until {schedule.reached_us}, and its next is at {schedule.next_us}")
        if schedule.wake_us:
            expect(Kind.TICK, schedule, schedule.wake_us)
        elif schedule.next_us and not schedule.paused:
            broken(f"nobody will look at {schedule}")
    for function in engine.functions.values():
        if function.gate is not None:
            looked_at: list[Gate | Lane] = [function.gate, *(function.gate.lanes or {}).values()]
            for gate in looked_at:
                if gate.check_us:
                    expect(Kind.GATE, gate, gate.check_us)
    watched = sum(function.watched for function in engine.functions.values())
    if watched != sum(kind is Kind.NEGLECT and engine._is_live(d) for d in engine.deadlines for kind in [d[2]]):
        broken(f"{watched} functions are watched for neglect, by another number of deadlines")


def entries_for(engine: Engine, kind: Kind, job: Job) -> int:
    return sum(each is kind and subject is job for _, _, each, subject, _ in engine.deadlines)


# --- news ---


def check_watchers(engine: Engine) -> None:
    """Whoever watches a job knows it, and whoever believes to watch one does."""
    for job in engine.jobs.values():
        if job.watchers is None:
            continue
        if not job.watchers:
            broken(f"{job} has an empty list of watchers")
        for watcher in job.watchers:
            if watcher.watching.get(job.id) is not job:
                broken(f"{job} is watched by somebody who does not know")
            for other_id, other in watcher.watching.items():
                if engine.jobs.get(other_id) is not other or not other.watchers or watcher not in other.watchers:
                    broken(f"somebody believes to watch {other}")
