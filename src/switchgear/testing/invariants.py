"""What must be true of an engine between any two commands.

The engine keeps the same facts in several tables, because each question has to be answered at once.  Here every fact is
counted again the slow way and compared.  `check_engine` looks at one moment; what spans moments (logs that only grow,
promises that are kept) is the simulation's to watch.
"""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

from switchgear.engine.deadlines import LEAST_STALE_FOR_REBUILD, Kind
from switchgear.engine.engine import Engine
from switchgear.engine.queues import place_of
from switchgear.model import FINAL_STATES, READY, RUNNING, SCHEDULED, WAITING, Function, Job, Worker

__all__ = ["BrokenInvariant", "check_engine"]


class BrokenInvariant(AssertionError):
    """Something is true of an engine that never should be."""


def broken(text: str) -> NoReturn:
    raise BrokenInvariant(text)


def check_engine(engine: Engine) -> None:
    """Raise BrokenInvariant if two tables of the engine contradict each other."""
    for function in engine.functions.values():
        check_queues(function, engine)
    check_tables(engine)
    check_workers(engine)
    check_graph(engine)
    check_deadlines(engine)
    check_watchers(engine)


# --- jobs and functions ---


def check_tables(engine: Engine) -> None:
    total: Counter[Function] = Counter()
    running: Counter[Function] = Counter()
    waiting: Counter[Function] = Counter()
    uniques = names = 0
    for job_id, job in engine.jobs.items():
        function = job.function
        total[function] += 1
        if job.id != job_id or job.state in FINAL_STATES or job.withdrawn:
            broken(f"{job} is listed under {job_id}")
        if engine.functions.get(function.name) is not function:
            broken(f"{job} is of a function that was dropped")
        if job.state is RUNNING:
            running[function] += 1
        if job.state is WAITING:
            waiting[function] += 1
        if job.unique:
            uniques += 1
            if function.uniques.get(job.unique) is not job:
                broken(f"the unique key of {job} is not listed")
        if job.name:
            names += 1
            if engine.names.get(job.name) is not job:
                broken(f"the name of {job} is not listed")
        check_attempts(engine, job)
    if names != len(engine.names) or uniques != sum(len(f.uniques) for f in engine.functions.values()):
        broken("a name or unique key is listed that no unfinished job has")
    for name, function in engine.functions.items():
        counted = (name, function.total, function.running, function.waiting)
        if counted != (function.name, total[function], running[function], waiting[function]):
            broken(
                f"{function} counts {function.total} jobs, {function.running} running, {function.waiting} waiting; "
                f"there are {total[function]}, {running[function]}, {waiting[function]}"
            )
    if engine.keeps:
        for job in engine.changed:
            if not job.changed:
                broken(f"{job} is among the changes and does not know it")
        if len({id(job) for job in engine.changed}) != len(engine.changed):
            broken("a job is among the changes twice")


def check_attempts(engine: Engine, job: Job) -> None:
    limit = job.attempts_limit if job.attempts_limit >= 0 else engine.settings.attempts
    if limit and job.attempts > limit:
        broken(f"{job} was started {job.attempts} times, {limit} are allowed")
    if job.attempts < (1 if job.state is RUNNING else 0):
        broken(f"{job} counts {job.attempts} attempts")


def check_queues(function: Function, engine: Engine) -> None:
    """Each ready job has exactly one live entry, before or behind all its ghosts, and they stand in order."""
    live: set[int] = set()
    for priority, queue in enumerate(function.queues):
        if not queue and not function.ghosts[priority]:
            continue
        entries = Counter(queue)
        ghosts = 0
        for job, count in entries.items():
            is_ready = job.state is READY and engine.jobs.get(job.id) is job
            ghosts += job.ghosts
            if count != job.ghosts + is_ready or job.priority != priority or job.function is not function:
                broken(f"{job} is {count} times in queue {priority} of {function}, with {job.ghosts} ghosts")
            if is_ready:
                live.add(job.id)
        check_places([job for job in queue if engine.jobs.get(job.id) is job and job.state is READY])
        if function.ghosts[priority] != ghosts:
            broken(f"queue {priority} of {function} counts {function.ghosts[priority]} ghosts; there are {ghosts}")
    ready = {job.id for job in engine.jobs.values() if job.state is READY and job.function is function}
    if live != ready or function.ready != len(ready):
        broken(f"{function} counts {function.ready} ready, has {sorted(live)} queued; ready are {sorted(ready)}")


def check_places(entries: list[Job]) -> None:
    """These are the entries of ready jobs, and ghosts of theirs.  Who is where is what a restart has to find again."""
    last = {job: place for place, job in enumerate(entries)}
    first = {job: place for place, job in reversed(list(enumerate(entries)))}
    standing = sorted(last, key=lambda job: first[job] if job.rank < 0 else last[job])
    if standing != sorted(standing, key=place_of):
        broken(f"{standing} stand in this order, and their places are {[place_of(job) for job in standing]}")


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
    if function.ready and not function.paused and engine.handing_out:
        if function.pushers:
            broken(f"{function} has {function.ready} ready jobs and a worker with credit")
        if function.sleepers and not function.watched:
            broken(f"{function} has {function.ready} ready jobs and sleepers, and nobody will look again")


# --- who waits for whom ---


def check_graph(engine: Engine) -> None:
    graph = engine.graph
    edges: Counter[int] = Counter()
    for job_id in graph.successors:
        waiting = graph.waiting_for(job_id)
        if job_id not in engine.jobs and job_id not in graph.unsuccessful:
            broken(f"{waiting} wait for {job_id}, which nobody knows")
        if not waiting or len({job.id for job in waiting}) != len(waiting):
            broken(f"for {job_id} wait {waiting}")
        for job in waiting:
            edges[job.id] += 1
            if job.state is not WAITING or engine.jobs.get(job.id) is not job or job_id not in job.predecessors:
                broken(f"{job} waits for {job_id}")
    for job in engine.jobs.values():
        not_done = sum(p in engine.jobs or p in graph.unsuccessful for p in job.predecessors)
        if job.blockers != not_done or edges[job.id] != not_done or (job.state is WAITING) != bool(not_done):
            broken(f"{job} counts {job.blockers} blockers and has {edges[job.id]} edges; {not_done} are not done")
        if job.delivery:
            for predecessor in job.predecessors:
                if predecessor in engine.jobs and not engine.jobs[predecessor].delivery:
                    broken(f"{job} will be kept, and job {predecessor} that it waits for will not")


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

    def expect(kind: Kind, subject: Job | Worker, at_us: int) -> None:
        if not entries[kind, id(subject), at_us]:
            broken(f"nothing will happen to {subject} for {kind.name} at {at_us}")

    limited = 0
    for job in engine.jobs.values():
        if job.state is SCHEDULED:
            expect(Kind.DUE, job, job.run_at_us)
        if job.expires_us and (job.state is not RUNNING or job.expires_us > engine.now_us):
            expect(Kind.EXPIRY, job, job.expires_us)
        if job.run_limit:
            limited += 1
            if job.state is not RUNNING:
                broken(f"{job} has a time limit")
    if limited != sum(kind is Kind.RUN_LIMIT and engine._is_live(d) for d in engine.deadlines for kind in [d[2]]):
        broken(f"{limited} jobs have a time limit that nobody watches")
    for worker in engine.workers.values():
        if worker.lease_until_us:
            expect(Kind.LEASE, worker, worker.lease_check_us)
            if worker.lease_check_us > worker.lease_until_us:
                broken(f"the lease of {worker} is looked at too late")
        for until_us in (*(worker.tickets or {}).values(), *(worker.alarms or {}).values()):
            expect(Kind.PATIENCE, worker, until_us)
    watched = sum(function.watched for function in engine.functions.values())
    if watched != sum(kind is Kind.NEGLECT and engine._is_live(d) for d in engine.deadlines for kind in [d[2]]):
        broken(f"{watched} functions are watched for neglect, by another number of deadlines")


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
