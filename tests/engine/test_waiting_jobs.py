"""`WaitingJobs`: in the order in which they began to wait, whatever comes and goes, also while they are visited."""

from __future__ import annotations

from random import Random

from switchgear.engine.waiting_jobs import SEGMENT_JOBS, WaitingJobs
from switchgear.model import Job
from tests.engine.harness import Harness


def jobs(count: int) -> list[Job]:
    harness = Harness()
    return [harness.submit() for _ in range(count)]


def test_they_are_in_the_order_in_which_they_were_added() -> None:
    rng = Random(1)
    some = jobs(500)
    waiting, wanted = WaitingJobs(some[:3]), dict.fromkeys(some[:3])
    for _ in range(5000):
        job = rng.choice(some)
        if job in wanted:
            waiting.remove(job.id)
            del wanted[job]
        elif rng.random() < 0.7:
            waiting.add(job)
            wanted[job] = None
        assert len(waiting) == len(wanted)
        assert waiting.has(job.id) == (job in wanted)
    assert list(waiting.jobs()) == list(wanted)
    waiting.remove(-1)  # none of them
    for job in wanted:
        waiting.remove(job.id)
    assert (len(waiting), list(waiting.jobs())) == (0, [])


def test_a_visit_sees_what_was_there_when_it_began() -> None:
    some = jobs(4 * SEGMENT_JOBS)
    waiting = WaitingJobs(some[: 2 * SEGMENT_JOBS + 5])
    visit = waiting.jobs()
    seen = [next(visit)]
    for job in some[2 * SEGMENT_JOBS + 5 :]:
        waiting.add(job)
    for job in some[SEGMENT_JOBS + 1 : 2 * SEGMENT_JOBS + 2]:
        waiting.remove(job.id)
    seen.extend(visit)
    assert seen == [*some[: SEGMENT_JOBS + 1], *some[2 * SEGMENT_JOBS + 2 : 2 * SEGMENT_JOBS + 5]]


def test_all_of_them_may_go_while_they_are_visited() -> None:
    some = jobs(3 * SEGMENT_JOBS)
    waiting = WaitingJobs(some)
    for job in waiting.jobs():
        waiting.remove(job.id)
    assert not len(waiting)
