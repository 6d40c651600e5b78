"""`PolicyCaller`, which asks the operator's wake policy, without an engine around it."""

from __future__ import annotations

from collections.abc import Sequence

from switchgear.engine.wake_policy import MOST_CANDIDATES
from switchgear.model import Job, Worker
from tests.engine.parts.parts import Parts


def everybody(_job: Job, workers: Sequence[Worker]) -> Sequence[Worker]:
    return workers


def test_the_first_job_for_which_the_policy_names_a_worker_is_chosen() -> None:
    parts = Parts()
    jobs = [parts.submit() for _ in range(3)]
    worker = parts.registered()
    parts.policy_caller.use_policy(lambda job, workers: workers if job is jobs[1] else [])
    assert parts.policy_caller.choose(parts.function(), (worker,)) == (jobs[1], [worker])


def test_only_so_many_jobs_are_shown_to_the_policy() -> None:
    parts = Parts()
    for _ in range(MOST_CANDIDATES + 1):
        parts.submit()
    worker = parts.registered()
    shown: list[Job] = []

    def nobody(job: Job, _workers: Sequence[Worker]) -> Sequence[Worker]:
        shown.append(job)
        return []

    parts.policy_caller.use_policy(nobody)
    assert parts.policy_caller.choose(parts.function(), (worker,)) is None
    assert len(shown) == MOST_CANDIDATES


def test_a_job_that_a_worker_was_woken_for_is_passed_over_and_is_that_worker_s() -> None:
    parts = Parts()
    first, second = parts.submit(), parts.submit()
    worker, other = parts.registered(), parts.registered()
    parts.policy_caller.use_policy(everybody)
    parts.policy_caller.note_woken(worker, second)
    assert parts.policy_caller.job_for(worker, parts.function()) is second
    assert parts.policy_caller.job_for(other, parts.function()) is first
    parts.policy_caller.note_woken(other, first)
    assert parts.policy_caller.choose(parts.function(), (worker, other)) is None
    assert parts.policy_caller.choose(parts.function(), (worker, other), again=True) == (first, [worker, other])


def test_a_worker_that_has_asked_or_is_gone_holds_no_job_back() -> None:
    parts = Parts()
    job = parts.submit()
    worker = parts.registered()
    parts.policy_caller.use_policy(everybody)
    parts.policy_caller.note_woken(worker, job)
    parts.policy_caller.forget_woken(worker)
    parts.policy_caller.forget_woken(worker)
    assert worker.woken_job is None
    assert parts.policy_caller.choose(parts.function(), (worker,)) == (job, [worker])


def test_a_policy_that_names_no_worker_at_all_is_ignored() -> None:
    parts = Parts()
    job = parts.submit()
    worker = parts.registered()
    parts.policy_caller.use_policy(lambda _job, _workers: ["somebody"])  # type: ignore[list-item]
    assert parts.policy_caller.job_for(worker, parts.function()) is job
