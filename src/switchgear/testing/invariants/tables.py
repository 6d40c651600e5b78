"""Invariants: the tables of jobs, functions, names and unique keys agree with the jobs."""

from __future__ import annotations

from collections import Counter

from switchgear.engine.engine import Engine
from switchgear.engine.function_placement import is_copy
from switchgear.model import FINAL_STATES, RUNNING, WAITING, Function, Job, UniqueScope
from switchgear.testing.invariants.broken_invariant import broken

__all__ = ["check_tables"]


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
    """An unfinished job has its key, unless it was started and the scope of its key ends at the start. A copy of a job
    of another engine has none: the owner has the key."""
    if is_copy(job):
        return
    gave_it_up = job.state is RUNNING and job.unique_scope == UniqueScope.QUEUED and not job.unique_until_us
    has_it = bool(job.unique) and job.function.uniques.get(job.unique) is job
    if has_it != (bool(job.unique) and not gave_it_up):
        broken(f"the unique key of {job} is {'' if has_it else 'not '}listed")
    if job.unique_until_us and not has_it:
        broken(f"{job} has no unique key, and holds it")
