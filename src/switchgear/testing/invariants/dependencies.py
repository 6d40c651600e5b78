"""Invariants: jobs wait for exactly the predecessors that they have to wait for."""

from __future__ import annotations

from collections import defaultdict

from switchgear.engine.dependencies import policy_of
from switchgear.engine.engine import Engine
from switchgear.engine.function_placement import is_copy
from switchgear.engine.sliced_work import SlicedKind
from switchgear.model import FINAL_STATES, WAITING, EdgePolicy, Job
from switchgear.testing.invariants.broken_invariant import broken

__all__ = ["check_dependencies", "failures_to_tell"]


def check_dependencies(engine: Engine) -> None:
    dependencies = engine.dependencies
    edges: defaultdict[int, set[int]] = defaultdict(set)
    for job_id in dependencies.successors:
        waiting = dependencies.waiting_for(job_id)
        is_done = engine.sliced_work.is_pending(SlicedKind.UNBLOCK, job_id)  # and not all of these were told
        is_known = engine.has_job(job_id) or job_id in dependencies.unsuccessful or job_id in dependencies.foreign
        if not is_known and not is_done:
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
    forgotten = set(dependencies.has_failure_policy) - set(dependencies.successors)
    if forgotten:
        broken(f"{forgotten} are said to have edges with a policy, and no job waits for them")
    for job in engine.jobs.values():
        actual = edges[job.id]
        required, possible = waited_for(job, engine)
        is_linked_later = job in dependencies.linked_later
        if is_linked_later:
            required = set()
        if not required <= actual <= possible:
            broken(f"{job} waits for {actual}; it should for {required}, and may for {possible}")
        blockers = (
            len(actual) + is_linked_later + (job.id in dependencies.unneeded)
        )  # which is skipped in the next turn
        if job.blockers != blockers or (job.state is WAITING) != bool(blockers):
            broken(f"{job} counts {job.blockers} blockers and has edges to {actual}")
        if job.delivery:
            for predecessor in job.predecessors:
                unfinished = engine.look_at(predecessor)
                if unfinished is not None and not unfinished.delivery and not is_copy(unfinished):
                    broken(f"{job} will be kept, and job {predecessor} that it waits for will not")


def waited_for(job: Job, engine: Engine) -> tuple[set[int], set[int]]:
    """The predecessors that a job must wait for, and those that it may wait for.

    They differ by predecessors with the policy "run" that ended without success and were retried since, and by those of
    other engines.
    """
    if len(job.edges) not in (0, len(job.predecessors)):
        broken(f"{job} has {len(job.edges)} edges to {job.predecessors}")
    required, possible = set(), set()
    for job_id in job.predecessors:
        runs_anyway = policy_of(job, job_id) in (EdgePolicy.RUN, EdgePolicy.ERROR)
        if job_id in failures_to_tell(engine) or engine.sliced_work.is_pending(SlicedKind.UNBLOCK, job_id):
            possible.add(job_id)
        if job_id in engine.dependencies.foreign:
            possible.add(job_id)
        elif engine.has_job(job_id) or (job_id in engine.dependencies.unsuccessful and not runs_anyway):
            possible.add(job_id)
            if not runs_anyway:
                required.add(job_id)
    return required, possible


def failures_to_tell(engine: Engine) -> set[int]:
    """The failed jobs whose successors are processed in the next turn."""
    return {job.id for job in engine.pending_failures if job.state in FINAL_STATES}
